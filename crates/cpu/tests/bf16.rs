//! Products of bf16: the same bits for any number of threads, weights as they lie or laid out before, and the same sums by
//! tiles as by f32.
#![allow(clippy::unwrap_used, missing_docs)]

use gemwright_core::DType;
use gemwright_cpu::half::bf16;
use gemwright_cpu::{
    Epilogue, GroupedJob, Kernel, Mat, MatMut, MixedJob, PackedTiles, Pool, Right, Scratch, gemm_grouped,
};

/// Small whole numbers: every sum is exact, so kernels must agree to the bit.
fn numbers(count: usize, seed: usize) -> Vec<bf16> {
    (0..count).map(|i| bf16::from_f32(((i * 2_654_435_761 + seed * 40_503) >> 7 & 15) as f32 - 7.0)).collect()
}

/// Elements whose first begins on a line of the cache.
struct OnLines<T>(Vec<T>, usize);

fn on_lines<T: Copy>(elements: Vec<T>) -> OnLines<T> {
    let mut memory = elements.clone();
    memory.extend_from_slice(&elements[..elements.len().min(64)]);
    let skip = memory.as_ptr().align_offset(64);
    memory.copy_within(..elements.len(), skip);
    OnLines(memory, skip)
}

impl<T> OnLines<T> {
    fn len(&self) -> usize {
        self.0.len() - 64
    }
    fn as_slice(&self) -> &[T] {
        &self.0[self.1..][..self.len()]
    }
    fn as_mut_slice(&mut self) -> &mut [T] {
        let len = self.len();
        &mut self.0[self.1..][..len]
    }
}

/// Rows or columns of an operand one after the other.
fn view(memory: &[bf16], rows: usize, cols: usize, turned: bool) -> Mat<'_, bf16> {
    match turned {
        true => Mat::row_major(memory, cols, rows).unwrap().transposed(),
        false => Mat::row_major(memory, rows, cols).unwrap(),
    }
}

#[test]
fn exact_sums_are_exact_on_every_way() {
    let small = [
        (1, 70, 100),
        (1, 33, 2050),
        (5, 100, 333),
        (16, 31, 64),
        (17, 40, 31),
        (48, 70, 515),
        (130, 97, 300),
        (70, 100, 90),
    ];
    // Columns beyond those that are widened at a time.
    let wide = [(25, 530, 65), (40, 1100, 70)];
    for (m, n, k) in small.into_iter().chain(wide) {
        let (a, b) = (numbers(m * k, 1), numbers(k * n, 2));
        for (a_turned, b_turned) in [(false, true), (false, false), (true, false), (true, true)] {
            let (a_lies, b_lies) = (&a, &b);
            let (a, b) = (view(&a, m, k, a_turned), view(&b, k, n, b_turned));
            let packed = PackedTiles::new(b);
            assert!(packed.bytes() >= 2 * k * n);
            let step = |turned: bool, rows: usize, cols: usize| if turned { (1, rows) } else { (cols, 1) };
            let ((a_row, a_col), (b_row, b_col)) = (step(a_turned, m, k), step(b_turned, k, n));
            let sum = |i: usize, j: usize| -> f32 {
                (0..k).map(|s| a_lies[i * a_row + s * a_col].to_f32() * b_lies[s * b_row + j * b_col].to_f32()).sum()
            };
            let sums: Vec<f32> = (0..m * n).map(|at| sum(at / n, at % n)).collect();
            for kernel in Kernel::present().filter(|kernel| kernel.dtype == DType::Bf16) {
                // Added to what is there, and alone, when tiles may be stored where they belong, over what is not read.
                for (threads, laid, alpha, beta, before) in [
                    (1, false, 2.0, -1.0, 1f32),
                    (2, false, 2.0, -1.0, 1.0),
                    (3, true, 2.0, -1.0, 1.0),
                    (1, false, 1.0, 0.0, f32::NAN),
                    (2, true, 1.0, 0.0, f32::NAN),
                ] {
                    let expected: Vec<f32> =
                        sums.iter().map(|sum| alpha * sum + if beta == 0.0 { 0.0 } else { beta * before }).collect();
                    let mut c = vec![before; m * n];
                    let right = if laid { Right::Packed(&packed) } else { Right::Plain(b) };
                    let job = MixedJob {
                        a,
                        b: right,
                        c: MatMut::row_major(&mut c, m, n).unwrap(),
                        alpha,
                        beta,
                        epilogue: Epilogue::default(),
                    };
                    (kernel.mixed().unwrap().to_f32)(job, &Pool::new(threads), threads, &mut Scratch::new());
                    let what = format!("{m}x{n}x{k} {a_turned} {b_turned} {threads} {laid} {alpha} {beta}");
                    assert!(expected == c, "{} {what}", kernel.name);
                }
            }
        }
    }
}

/// What only large products do: k in several long blocks, and rows that lie across k laid out beforehand.
#[test]
fn exact_sums_are_exact_in_large_products() {
    for (m, n, k, a_turned, b_turned) in [
        // Bands of three, of two and of both; k in halves, in several blocks, and at once.
        (170, 175, 3100, false, true),
        (120, 130, 4130, false, true),
        (270, 40, 2090, true, true),
        (200, 300, 544, false, true),
        // Sums of several panels that wait for the next block of k.
        (300, 130, 4130, false, true),
        // Short panels, of rows as they lie and of turned ones.
        (60, 130, 600, false, true),
        (130, 100, 1029, true, false),
        (130, 40, 1029, true, false),
        // Rows laid out before; a result that is written past the caches.
        (530, 515, 260, true, false),
        (528, 512, 260, false, true),
        (512, 528, 260, false, true),
        (520, 512, 260, false, true),
        // More groups of threads than share bands evenly.
        (40, 2304, 515, false, false),
        (2304, 40, 515, false, true),
    ] {
        let (a, b) = (on_lines(numbers(m * k, 3)), on_lines(numbers(k * n, 4)));
        let (a, b) = (a.as_slice(), b.as_slice());
        // Rows of both along k.
        let whole = |memory: &[bf16], rows: usize, along: bool| -> Vec<i32> {
            let at = |i: usize, s: usize| if along { i * k + s } else { s * rows + i };
            (0..rows * k).map(|x| memory[at(x / k, x % k)].to_f32() as i32).collect()
        };
        let (left, right) = (whole(a, m, !a_turned), whole(b, n, b_turned));
        let sum = |i: usize, j: usize| -> i32 {
            left[i * k..][..k].iter().zip(&right[j * k..][..k]).map(|(x, y)| x * y).sum()
        };
        let expected: Vec<f32> = (0..m * n).map(|at| sum(at / n, at % n) as f32).collect();
        let (a, b) = (view(a, m, k, a_turned), view(b, k, n, b_turned));
        let packed = PackedTiles::new(b);
        let mixed = Kernel::best(DType::Bf16).unwrap().mixed().unwrap();
        let (plain, laid) = (Right::Plain(b), Right::Packed(&packed));
        for (threads, right) in [(1, plain), (3, plain), (9, plain), (2, laid), (9, laid)] {
            let job = |c| MixedJob { a, b: right, c, alpha: 1.0, beta: 0.0, epilogue: Epilogue::default() };
            let (pool, mut scratch) = (Pool::new(threads), Scratch::new());
            let mut c = on_lines(vec![f32::NAN; m * n]);
            (mixed.to_f32)(job(MatMut::row_major(c.as_mut_slice(), m, n).unwrap()), &pool, threads, &mut scratch);
            assert!(c.as_slice() == expected, "{m}x{n}x{k} {threads}");
            // Twice as much, rounded once, by rows and by columns of C.
            for turned in [false, true] {
                let at = |x: usize| if turned { x % m * n + x / m } else { x };
                let mut c = vec![bf16::NAN; m * n];
                let (row, col) = if turned { (1, m as isize) } else { (n as isize, 1) };
                let view = MatMut::new(&mut c, 0, (m, n), (row, col)).unwrap();
                let twice = MixedJob { a, b: right, c: view, alpha: 2.0, beta: 0.0, epilogue: Epilogue::default() };
                (mixed.to_bf16)(twice, &pool, threads, &mut scratch);
                let right = |x: usize| c[x] == bf16::from_f32(2.0 * expected[at(x)]);
                assert!((0..m * n).all(right), "{m}x{n}x{k} {threads} {turned}");
            }
        }
    }
}

#[test]
fn the_same_bits_for_any_number_of_threads() {
    for (m, n, k) in [
        (1, 500, 700),
        (9, 300, 1000),
        (100, 700, 600),
        (300, 200, 900),
        (64, 64, 64),
        (200, 256, 300),
        (70, 200, 2500),
        // Weights laid out before are rows for few threads and columns for many.
        (64, 96, 300),
        // Sums of several panels that wait for the next block of k.
        (300, 130, 4130),
    ] {
        // Numbers whose sums are rounded.
        let odd = |count: usize| (0..count).map(|i| bf16::from_f32((i as f32 * 0.618).sin())).collect::<Vec<_>>();
        let (a, b) = (odd(m * k), odd(k * n));
        let (a, b) = (Mat::row_major(&a, m, k).unwrap(), view(&b, k, n, true));
        let packed = PackedTiles::new(b);
        for kernel in Kernel::present().filter(|kernel| kernel.dtype == DType::Bf16) {
            for b in [Right::Plain(b), Right::Packed(&packed)] {
                let run = |threads: usize| {
                    let mut c = vec![bf16::NAN; m * n];
                    let of_c = MatMut::row_major(&mut c, m, n).unwrap();
                    let job = MixedJob { a, b, c: of_c, alpha: 1.0, beta: 0.0, epilogue: Epilogue::default() };
                    (kernel.mixed().unwrap().to_bf16)(job, &Pool::new(threads), threads, &mut Scratch::new());
                    c
                };
                let alone = run(1);
                assert!(alone.iter().all(|x| x.is_finite()), "{}", kernel.name);
                assert!([2, 3, 5].into_iter().all(|threads| run(threads) == alone), "{} {m}x{n}x{k}", kernel.name);
            }
        }
    }
}

/// What follows a product, in bands of three tiles of columns and with operands swapped.
#[test]
fn what_follows_exact_sums_is_exact() {
    for (m, n, k) in [(48, 70, 515), (97, 130, 515), (130, 97, 600), (5, 70, 515)] {
        let (a, b) = (numbers(m * k, 5), numbers(k * n, 6));
        let (lies_a, lies_b) = (a.as_slice(), b.as_slice());
        let (bias, residual) = (numbers(n, 7), numbers(m * n, 8));
        let whole = |numbers: &[bf16]| numbers.iter().map(|x| x.to_f32()).collect::<Vec<f32>>();
        let (bias, residual) = (whole(&bias), whole(&residual));
        let expected = |i: usize, j: usize| -> f32 {
            let sum: f32 = (0..k).map(|s| lies_a[i * k + s].to_f32() * lies_b[j * k + s].to_f32()).sum();
            sum + bias[j] + residual[i * n + j]
        };
        let (a, b) = (Mat::row_major(&a, m, k).unwrap(), view(&b, k, n, true));
        let packed = PackedTiles::new(b);
        let epilogue = Epilogue {
            bias: Some(Mat::new(&bias, 0, (m, n), (0, 1)).unwrap()),
            residual: Some(Mat::row_major(&residual, m, n).unwrap()),
            ..Epilogue::default()
        };
        for kernel in Kernel::present().filter(|kernel| kernel.dtype == DType::Bf16) {
            for (right, turned) in [
                (Right::Plain(b), false),
                (Right::Plain(b), true),
                (Right::Packed(&packed), false),
                (Right::Packed(&packed), true),
            ] {
                let mut c = vec![f32::NAN; m * n];
                let (row, col) = if turned { (1, m as isize) } else { (n as isize, 1) };
                let view = MatMut::new(&mut c, 0, (m, n), (row, col)).unwrap();
                let job = MixedJob { a, b: right, c: view, alpha: 1.0, beta: 0.0, epilogue };
                (kernel.mixed().unwrap().to_f32)(job, &Pool::new(2), 2, &mut Scratch::new());
                let at = |i: usize, j: usize| (i as isize * row + j as isize * col) as usize;
                let right = |x: usize| c[at(x / n, x % n)] == expected(x / n, x % n);
                assert!((0..m * n).all(right), "{} {m}x{n}x{k} {turned}", kernel.name);
            }
        }
    }
}

/// Groups of different numbers of rows, one of them empty, weights as they lie and laid out: the bits of single products.
#[test]
fn groups_are_their_products() {
    let (k, n, ends) = (70, 50, [3, 3, 40, 41]);
    let (a, w) = (numbers(45 * k, 1), numbers(4 * n * k, 2));
    let view = |g: usize| view(&w[g * n * k..(g + 1) * n * k], k, n, true);
    let packed: Vec<PackedTiles> = (0..4).map(|g| PackedTiles::new(view(g))).collect();
    let weights = [Right::Plain(view(0)), Right::Packed(&packed[1]), Right::Packed(&packed[2]), Right::Plain(view(3))];
    let (pool, mut scratch) = (Pool::new(2), Scratch::new());
    let run = Kernel::best(DType::Bf16).unwrap().mixed().unwrap().to_f32;
    let rows = |a: &[bf16], from: usize, to: usize| -> Vec<bf16> { a[from * k..to * k].to_vec() };
    let mut got = vec![7f32; 45 * n];
    let c = MatMut::row_major(&mut got, 45, n).unwrap();
    let a_view = Mat::row_major(&a, 45, k).unwrap();
    let job = GroupedJob { a: a_view, weights: &weights, ends: &ends, c, alpha: 1.0, beta: 0.0 };
    gemm_grouped(job, run, &pool, 2, &mut scratch);
    let mut first = 0;
    for (g, end) in ends.into_iter().enumerate() {
        let (a, mut want) = (rows(&a, first, end), vec![0f32; (end - first) * n]);
        let c = MatMut::row_major(&mut want, end - first, n).unwrap();
        let a = Mat::row_major(&a, end - first, k).unwrap();
        run(
            MixedJob { a, b: weights[g], c, alpha: 1.0, beta: 0.0, epilogue: Epilogue::default() },
            &pool,
            2,
            &mut scratch,
        );
        assert_eq!(got[first * n..end * n], want);
        first = end;
    }
    assert!(got[first * n..].iter().all(|x| *x == 7.0));
}
