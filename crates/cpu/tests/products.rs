//! Every kernel against sums in higher precision: edges, layouts, factors.
#![allow(clippy::unwrap_used, missing_docs)]

use gemwright_core::DType;
use gemwright_cpu::{Element, Job, Kernel, Mat, MatMut, Pool, Scratch};

/// Small whole numbers and halves with a generator of our own, so that a failure repeats.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 40) as f64) / f64::from(1u32 << 24) - 0.5
    }

    fn below(&mut self, n: usize) -> usize {
        ((self.next() + 0.5) * n as f64) as usize % n
    }
}

type Run<T> = fn(Job<'_, T>, &Pool, usize, &mut Scratch);

/// A matrix with strides of its own inside memory that is larger.
struct Stored<T> {
    memory: Vec<T>,
    offset: usize,
    row: isize,
    col: isize,
}

fn stored<T: Element>(
    rows: usize,
    cols: usize,
    layout: usize,
    random: &mut Random,
    fill: impl Fn(&mut Random) -> T,
) -> Stored<T> {
    let (r, c) = (rows.max(1) as isize, cols.max(1) as isize);
    let (row, col) = match layout {
        0 => (c, 1),
        1 => (1, r),
        2 => (c + 5, 1),
        3 => (1, r + 3),
        4 => (3 * c + 1, 3),
        5 => (-(c + 2), 1),
        _ => (c, -1),
    };
    let far = |n: isize, step: isize| (n - 1) * step;
    let least = far(r, row).min(0) + far(c, col).min(0);
    let most = far(r, row).max(0) + far(c, col).max(0);
    let memory = (0..(most - least + 1) as usize).map(|_| fill(random)).collect();
    Stored { memory, offset: (-least) as usize, row, col }
}

fn check<T: Element>(kernel: &str, run: Run<T>, (m, n, k): (usize, usize, usize), random: &mut Random, epsilon: f64) {
    let (la, lb, lc) = (random.below(7), random.below(7), random.below(7));
    let (alpha, beta) = ([1.0, -0.5, 0.0][random.below(3)], [0.0, 1.0, 0.75][random.below(3)]);
    let a = stored(m, k, la, random, |r| T::from_f64(r.next()));
    let b = stored(k, n, lb, random, |r| T::from_f64(r.next()));
    let nan = beta == 0.0;
    let mut c = stored(m, n, lc, random, |r| T::from_f64(if nan { f64::NAN } else { r.next() }));
    let before = c.memory.clone();
    let at = |s: &Stored<T>, i: usize, j: usize| (s.offset as isize + i as isize * s.row + j as isize * s.col) as usize;
    let job = Job {
        a: Mat::new(&a.memory, a.offset, (m, k), (a.row, a.col)).unwrap(),
        b: Mat::new(&b.memory, b.offset, (k, n), (b.row, b.col)).unwrap(),
        c: MatMut::new(&mut c.memory, c.offset, (m, n), (c.row, c.col)).unwrap(),
        alpha: T::from_f64(alpha),
        beta: T::from_f64(beta),
    };
    let pool = Pool::global();
    run(job, pool, pool.threads(), &mut Scratch::new());
    let what = format!("{kernel} {m}x{n}x{k} layouts {la} {lb} {lc} alpha {alpha} beta {beta}");
    let mut written = vec![false; c.memory.len()];
    for i in 0..m {
        for j in 0..n {
            let (mut sum, mut size) = (0.0, 0.0);
            for s in 0..k {
                let term = a.memory[at(&a, i, s)].to_f64() * b.memory[at(&b, s, j)].to_f64();
                sum += term;
                size += term.abs();
            }
            let place = at(&c, i, j);
            let old = if nan { 0.0 } else { before[place].to_f64() };
            let want = alpha * sum + beta * old;
            let bound = (k as f64 + 4.0) * epsilon * (alpha.abs() * size + (beta * old).abs()) + f64::MIN_POSITIVE;
            let got = c.memory[place].to_f64();
            assert!((got - want).abs() <= bound, "{what}: [{i}, {j}] is {got}, want {want}");
            written[place] = true;
        }
    }
    for (place, _) in written.iter().enumerate().filter(|(_, w)| !**w) {
        let same = c.memory[place] == before[place] || nan && c.memory[place].to_f64().is_nan();
        assert!(same, "{what}: wrote outside, at {place}");
    }
}

#[test]
fn products_of_every_kernel() {
    let mut random = Random(7);
    let edges = [0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 47, 48, 49, 64, 65, 97];
    let ks = [0, 1, 2, 7, 16, 17, 64, 101, 515];
    let mut cases = Vec::new();
    for m in edges {
        for n in edges {
            cases.push((m, n, ks[random.below(ks.len())]));
        }
    }
    cases.extend([(9, 1030, 1100), (130, 530, 1029), (5, 2000, 700), (2000, 5, 700), (70, 900, 513)]);
    // Several blocks of k and of columns; sums so long that they are cut.
    cases.extend([
        (40, 300, 1100),
        (20, 40, 9000),
        (3, 5, 20000),
        (1, 1, 70000),
        (14, 32, 8200),
        (100, 320, 1030),
        (57, 176, 520),
    ]);
    // Those of bf16 have a file of their own.
    for kernel in Kernel::present().filter(|kernel| kernel.dtype != DType::Bf16) {
        for &case in &cases {
            match kernel.dtype {
                DType::F32 => check(kernel.name, kernel.run_f32().unwrap(), case, &mut random, f64::from(f32::EPSILON)),
                _ => check(kernel.name, kernel.run_f64().unwrap(), case, &mut random, f64::EPSILON),
            }
        }
    }
}

#[test]
fn the_same_bits_for_any_number_of_threads() {
    let mut random = Random(3);
    let shapes = [
        (150, 300, 1200),
        (100, 600, 2100),
        (20, 40, 9000),
        (61, 100, 90),
        (30, 501, 1300),
        (129, 500, 1100),
        (131, 70, 600),
    ];
    for (m, n, k) in shapes {
        let a: Vec<f32> = (0..m * k).map(|_| random.next() as f32).collect();
        let b: Vec<f32> = (0..k * n).map(|_| random.next() as f32).collect();
        for kernel in Kernel::present().filter(|kernel| kernel.dtype == DType::F32) {
            let run = |threads: usize, (turned, beta): (bool, f32)| {
                let pool = Pool::new(threads);
                let mut c: Vec<f32> = (0..m * n).map(|i| (i as f32).sin()).collect();
                // B as it comes, or as a layer has its weights.
                let turned = Mat::row_major(&b, n, k).ok().filter(|_| turned).map(|b| b.transposed());
                let job = Job {
                    a: Mat::row_major(&a, m, k).unwrap(),
                    b: turned.unwrap_or_else(|| Mat::row_major(&b, k, n).unwrap()),
                    c: MatMut::row_major(&mut c, m, n).unwrap(),
                    alpha: 1.0,
                    beta,
                };
                kernel.run_f32().unwrap()(job, &pool, threads, &mut Scratch::new());
                c
            };
            for how in [(false, 0.0), (true, 0.0), (false, 1.0)] {
                let alone = run(1, how);
                let same = [2, 3, 4, 5].into_iter().all(|threads| run(threads, how) == alone);
                assert!(same, "{} {m} {n} {k} {how:?}", kernel.name);
            }
        }
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn packed_weights_give_the_same_bits_for_every_number_of_rows() {
    use gemwright_cpu::simd_of::{Avx2F32, Avx512F32};
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        packed_weights::<Avx2F32>((301, 1100));
        packed_weights::<Avx2F32>((80, 64));
    }
    if is_x86_feature_detected!("avx512f") {
        packed_weights::<Avx512F32>((301, 1100));
        packed_weights::<Avx512F32>((80, 64));
        packed_weights::<Avx512F32>((33, 17));
    }
}

#[cfg(target_arch = "x86_64")]
fn packed_weights<S: gemwright_cpu::Tiles<T = f32>>((n, k): (usize, usize)) {
    use gemwright_cpu::{Packed, PackedJob, gemm_packed, gemm_with};
    let mut random = Random(5);
    let w: Vec<f32> = (0..n * k).map(|_| random.next() as f32).collect();
    let weights = Mat::row_major(&w, n, k).unwrap().transposed();
    let packed = Packed::new::<S>(weights);
    let pool = Pool::new(2);
    for m in [1, 7, 16, 130] {
        let x: Vec<f32> = (0..m * k).map(|_| random.next() as f32).collect();
        let a = Mat::row_major(&x, m, k).unwrap();
        let (mut plain, mut fast) = (vec![0.5f32; m * n], vec![0.5f32; m * n]);
        let c = MatMut::row_major(&mut plain, m, n).unwrap();
        gemm_with::<S>(Job { a, b: weights, c, alpha: 0.5, beta: 1.0 }, &pool, 2, &mut Scratch::new());
        let c = MatMut::row_major(&mut fast, m, n).unwrap();
        gemm_packed::<S>(PackedJob { a, b: &packed, c, alpha: 0.5, beta: 1.0 }, &pool, 2, &mut Scratch::new());
        for (x, y) in plain.iter().zip(&fast) {
            assert!((x - y).abs() < 1e-3, "{m} rows: {x} and {y}");
        }
        // One by one they are what they are together.
        let mut single = vec![0.5f32; m * n];
        for i in 0..m {
            let a = Mat::row_major(&x[i * k..], 1, k).unwrap();
            let c = MatMut::row_major(&mut single[i * n..(i + 1) * n], 1, n).unwrap();
            gemm_packed::<S>(PackedJob { a, b: &packed, c, alpha: 0.5, beta: 1.0 }, &pool, 1, &mut Scratch::new());
        }
        assert!(single == fast, "{m} rows");
    }
}
