//! Weights laid out once and used for every number of rows.

use crate::blocked::steps;
use crate::gemm::{Tiles, wide_core};
use crate::matrix::{Mat, MatMut};
use crate::pack::pack_columns;
use crate::scratch::filled;
use crate::simd::Element;
use crate::target::Target;
use std::marker::PhantomData;

/// B as the tiles of one kernel read it: blocks of k, in each the panels of columns side by side.
#[derive(Debug, Clone)]
pub struct Packed<T> {
    lines: Vec<Line>,
    of: PhantomData<T>,
    k: usize,
    n: usize,
    panel: usize,
}

/// A line of the cache: vectors that reach over two of them take twice the accesses.
#[derive(Debug, Clone)]
#[repr(C, align(64))]
struct Line([u8; 64]);

impl<T: Element> Packed<T> {
    /// Packs for the kernels of `S`.
    ///
    /// # Panics
    /// If the machine lacks their instructions.
    pub fn new<S: Tiles<T = T>>(b: Mat<'_, T>) -> Packed<T> {
        assert!(S::available(), "the machine lacks the kernel's instructions");
        if wide_core() { Packed::of_tiles::<S>(b) } else { Packed::of_tiles::<S::Large>(b) }
    }

    fn of_tiles<S: Tiles<T = T>>(b: Mat<'_, T>) -> Packed<T> {
        let (k, n) = b.extents();
        let width = n.next_multiple_of(S::PANEL);
        // Bits of zero are numbers of zero.
        let mut lines = filled(Line([0; 64]), (k * width * size_of::<T>()).div_ceil(size_of::<Line>()));
        let kc = steps::<T>(k);
        for k0 in (0..k).step_by(kc) {
            // SAFETY: the instructions are there; the block is inside B, and k0 · width + kc · width <= k · width.
            unsafe {
                let to = lines.as_mut_ptr().cast::<T>().add(k0 * width);
                S::vectorize(|| pack_columns::<S>(&b, (k0, kc.min(k - k0)), (0, n), S::PANEL, to));
            }
        }
        Packed { lines, of: PhantomData, k, n, panel: S::PANEL }
    }

    /// K and N.
    pub fn extents(&self) -> (usize, usize) {
        (self.k, self.n)
    }

    /// Columns of a panel.
    pub fn panel(&self) -> usize {
        self.panel
    }

    /// Bytes it takes beside the weights themselves.
    pub fn bytes(&self) -> usize {
        self.lines.len() * size_of::<Line>()
    }

    /// Steps of a block of k.
    pub(crate) fn steps(&self) -> usize {
        steps::<T>(self.k)
    }

    /// The panels from column j0 on in the block that begins at k0; j0 is a multiple of a panel's columns.
    pub(crate) fn block(&self, k0: usize, j0: usize) -> *const T {
        let kc = self.steps().min(self.k - k0);
        self.lines.as_ptr().cast::<T>().wrapping_add(k0 * self.n.next_multiple_of(self.panel) + j0 * kc)
    }
}

/// C = alpha · A · B + beta · C with packed weights.
#[allow(missing_docs)]
pub struct PackedJob<'a, T> {
    pub a: Mat<'a, T>,
    pub b: &'a Packed<T>,
    pub c: MatMut<'a, T>,
    pub alpha: T,
    pub beta: T,
}

impl<T: Element> PackedJob<'_, T> {
    pub(crate) fn target(&self) -> Target<T> {
        let MatMut { ptr, row, col, .. } = self.c;
        Target { ptr, row, col, alpha: self.alpha, beta: self.beta }
    }
}

#[cfg(test)]
#[cfg(target_arch = "x86_64")]
mod tests {
    use super::*;
    use crate::blocked::{Source, packed_columns};
    use crate::large::large;
    use crate::pool::Pool;
    use crate::scratch::Scratch;
    use crate::simd::Simd;
    use crate::simd::avx512::{F32x16, F64x8};

    /// A product whose sums are exact, weights as they lie and laid out.
    fn exact<S: Tiles>((m, n, k): (usize, usize, usize))
    where
        S::T: From<i16> + PartialEq,
    {
        let at = |i: usize, j: usize| ((i * 5 + j * 3) % 7) as i16 - 3;
        let matrix = |rows: usize, cols: usize| -> Vec<S::T> {
            (0..rows * cols).map(|x| S::T::from(at(x / cols, x % cols))).collect()
        };
        let sum = |i: usize, j: usize| S::T::from((0..k).map(|s| at(i, s) * at(s, j)).sum::<i16>());
        let expected: Vec<S::T> = (0..m * n).map(|x| sum(x / n, x % n)).collect();
        let (left, right) = (matrix(m, k), matrix(k, n));
        let (a, b) = (Mat::row_major(&left, m, k).unwrap(), Mat::row_major(&right, k, n).unwrap());
        let (pool, packed) = (Pool::new(2), Packed::of_tiles::<S>(b));
        for threads in 1..3 {
            let [mut plain, mut laid] = [(); 2].map(|()| vec![S::T::ZERO; m * n]);
            let (ptr, row, alpha, beta) = (plain.as_mut_ptr(), n as isize, S::T::from(1), S::T::ZERO);
            let target = Target { ptr, row, col: 1, alpha, beta };
            large::<S>(a, &Source::Plain(b), (target, n, steps::<S::T>(k)), (&pool, threads), &mut Scratch::new());
            let c = MatMut::row_major(&mut laid, m, n).unwrap();
            packed_columns::<S>(PackedJob { a, b: &packed, c, alpha, beta }, &pool, threads, &mut Scratch::new());
            assert!(expected == plain && expected == laid, "{m}x{n}x{k}, panels of {}", S::PANEL);
        }
    }

    #[test]
    fn tiles_of_either_kind_of_core_are_right() {
        if !F32x16::available() {
            return;
        }
        for extents in [(150, 200, 90), (31, 130, 1100), (13, 47, 64), (470, 100, 300), (3, 47, 15), (7, 40, 33)] {
            exact::<F32x16>(extents);
            exact::<<F32x16 as Tiles>::Large>(extents);
            exact::<<F32x16 as Tiles>::Wide>(extents);
            exact::<F64x8>(extents);
            exact::<<F64x8 as Tiles>::Large>(extents);
            exact::<<F64x8 as Tiles>::Wide>(extents);
        }
    }
}
