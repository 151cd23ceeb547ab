//! The portable kernels alone, at sizes that an interpreter can afford.
#![allow(clippy::unwrap_used, missing_docs)]

use gemwright_cpu::simd_of::Portable;
use gemwright_cpu::{Job, Mat, MatMut, Packed, PackedJob, Pool, Scratch, gemm_packed, gemm_with};

/// Whole numbers, so that sums are exact in any order.
fn numbers(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 7 + seed) % 11) as f32 - 5.0).collect()
}

fn expected(a: &[f32], b: &[f32], (m, n, k): (usize, usize, usize)) -> Vec<f32> {
    let sum = |i: usize, j: usize| (0..k).map(|s| a[i * k + s] * b[s * n + j]).sum();
    (0..m * n).map(|at| sum(at / n, at % n)).collect()
}

#[test]
fn products_of_the_portable_kernels() {
    let pool = Pool::new(2);
    for (m, n, k) in [(1, 9, 5), (5, 3, 4), (9, 17, 6), (12, 40, 3), (3, 2, 8200)] {
        let (a, b) = (numbers(m * k, 1), numbers(k * n, 2));
        let want = expected(&a, &b, (m, n, k));
        let mut c = vec![f32::NAN; m * n];
        let job = Job {
            a: Mat::row_major(&a, m, k).unwrap(),
            b: Mat::row_major(&b, k, n).unwrap(),
            c: MatMut::row_major(&mut c, m, n).unwrap(),
            alpha: 1.0,
            beta: 0.0,
        };
        gemm_with::<Portable<f32>>(job, &pool, 2, &mut Scratch::new());
        assert_eq!(c, want, "{m} {n} {k}");
        let packed = Packed::new::<Portable<f32>>(Mat::row_major(&b, k, n).unwrap());
        let mut c = vec![f32::NAN; m * n];
        let (x, y) = (Mat::row_major(&a, m, k).unwrap(), MatMut::row_major(&mut c, m, n).unwrap());
        let job = PackedJob { a: x, b: &packed, c: y, alpha: 1.0, beta: 0.0 };
        gemm_packed::<Portable<f32>>(job, &pool, 2, &mut Scratch::new());
        assert_eq!(c, want, "packed {m} {n} {k}");
    }
}
