//! Vectors: what of the BLAS's first two levels is not a product of matrices. Lengths that do not belong
//! together are the caller's mistake and panic.

use crate::gemm::{Job, Tiles, gemm_with};
use crate::matrix::{Mat, MatMut};
use crate::pool::Pool;
use crate::scratch::Scratch;
use crate::simd::Element;

/// Sums that run side by side.
const SUMS: usize = 32;

/// y += alpha · x.
pub fn axpy<T: Element>(alpha: T, x: &[T], y: &mut [T]) {
    assert_eq!(x.len(), y.len(), "vectors of different lengths");
    for (x, y) in x.iter().zip(y) {
        *y = alpha.mul_add(*x, *y);
    }
}

/// The sum of x · y, in a fixed order.
pub fn dot<T: Element>(x: &[T], y: &[T]) -> T {
    assert_eq!(x.len(), y.len(), "vectors of different lengths");
    let mut sums = [T::ZERO; SUMS];
    let (mut xs, mut ys) = (x.chunks_exact(SUMS), y.chunks_exact(SUMS));
    for (x, y) in xs.by_ref().zip(ys.by_ref()) {
        for i in 0..SUMS {
            sums[i] = x[i].mul_add(y[i], sums[i]);
        }
    }
    for (i, (x, y)) in xs.remainder().iter().zip(ys.remainder()).enumerate() {
        sums[i] = x.mul_add(*y, sums[i]);
    }
    let mut width = SUMS / 2;
    while width > 0 {
        for i in 0..width {
            sums[i] = sums[i].add(sums[i + width]);
        }
        width /= 2;
    }
    sums[0]
}

/// x = alpha · x.
pub fn scal<T: Element>(alpha: T, x: &mut [T]) {
    for x in x {
        *x = alpha.mul(*x);
    }
}

/// The length of x, without overflow where the result has none.
pub fn nrm2<T: Element>(x: &[T]) -> T {
    let largest = x.iter().map(|x| x.to_f64().abs()).fold(0.0, |m: f64, x| if x > m || x.is_nan() { x } else { m });
    if largest == 0.0 || !largest.is_finite() {
        return T::from_f64(largest);
    }
    let squares: f64 = x.iter().map(|x| (x.to_f64() / largest).powi(2)).sum();
    T::from_f64(largest * squares.sqrt())
}

/// y = alpha · A · x + beta · y.
pub fn gemv<S: Tiles>(alpha: S::T, a: Mat<'_, S::T>, x: &[S::T], beta: S::T, y: &mut [S::T]) {
    let (rows, cols) = a.extents();
    assert!(x.len() == cols && y.len() == rows, "{rows}x{cols} times {} into {}", x.len(), y.len());
    let view = |_| unreachable!("a vector of that length");
    let b = Mat::new(x, 0, (cols, 1), (1, 1)).unwrap_or_else(view);
    let c = MatMut::new(y, 0, (rows, 1), (1, 1)).unwrap_or_else(|_| unreachable!("a vector of that length"));
    let pool = Pool::global();
    gemm_with::<S>(Job { a, b, c, alpha, beta }, pool, pool.threads(), &mut Scratch::new());
}

/// A += alpha · x · yᵀ, A by rows.
pub fn ger<T: Element>(alpha: T, x: &[T], y: &[T], a: &mut [T]) {
    assert_eq!(x.len() * y.len(), a.len(), "a matrix of another size");
    for (x, row) in x.iter().zip(a.chunks_exact_mut(y.len().max(1))) {
        axpy(alpha.mul(*x), y, row);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::portable::Portable;

    #[test]
    fn vectors_by_hand() {
        let x: Vec<f64> = (0..100).map(f64::from).collect();
        assert_eq!(dot(&x, &x), 328_350.0);
        let mut y = vec![1.0; 100];
        axpy(2.0, &x, &mut y);
        assert_eq!((y[0], y[99]), (1.0, 199.0));
        scal(0.5, &mut y);
        assert_eq!(y[99], 99.5);
        assert!((nrm2(&[3e200, 4e200]) / 5e200 - 1.0f64).abs() < 1e-15);
        assert!(nrm2(&[f64::NAN, 1.0]).is_nan() && nrm2::<f32>(&[]) == 0.0);
        let mut a = [1f32; 6];
        ger(1.0, &[1.0, 2.0], &[3.0, 4.0, 5.0], &mut a);
        assert_eq!(a, [4.0, 5.0, 6.0, 7.0, 9.0, 11.0]);
        let mut y = [1f32; 2];
        let a = Mat::row_major(&a, 2, 3).unwrap();
        gemv::<Portable<f32>>(2.0, a, &[1.0, 0.0, 1.0], 1.0, &mut y);
        assert_eq!(y, [21.0, 37.0]);
    }
}
