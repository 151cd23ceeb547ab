//! Products of bf16: sums in f32, results in bf16 or f32.
//!
//! On machines with AMX a product is cut into pieces of 32 by 48 or 32. One operand, the *rows*, is used as it lies where its
//! steps of k are neighbours: a tile of 16 rows by 32 steps is a plain copy of memory. The other, the *columns*, is laid
//! out once in pairs of steps, as the instruction wants it. Which operand is which follows from what lies how, and then
//! from size: the columns are the smaller ones. So a linear layer's weights are read straight from memory, and the
//! result is computed transposed where that suits them. Weights laid out beforehand are in pairs of steps, and
//! whatever they are multiplied with is copied, or used as it lies, and turned only where it lies across k.
//!
//! `words` makes tiles, `tile` has the instructions, `few` and `blocked` (cut by `blocks`) are the ways, `dot` that of a
//! single row, `piece` and `output` bring sums to their place; machines without tiles go through f32 (`widened`), but for
//! few rows (`stream`).

#[cfg(target_arch = "x86_64")]
mod ahead;
#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "x86_64")]
mod blocked;
#[cfg(target_arch = "x86_64")]
mod blocks;
#[cfg(target_arch = "x86_64")]
mod dot;
#[cfg(target_arch = "x86_64")]
mod few;
mod grouped;
#[cfg(target_arch = "x86_64")]
mod output;
mod packed;
#[cfg(target_arch = "x86_64")]
mod piece;
mod stream;
#[cfg(target_arch = "x86_64")]
pub mod tile;
mod widened;
#[cfg(target_arch = "x86_64")]
mod words;

use crate::epilogue::{Epilogue, Finish, LANES};
use crate::matrix::{Mat, MatMut};
use crate::pool::Pool;
use crate::scratch::Scratch;
use half::bf16;

#[cfg(target_arch = "x86_64")]
pub use amx::{available as tiles_available, gemm_amx};
#[cfg(target_arch = "x86_64")]
pub use dot::gemm_dots;
pub use grouped::{GroupedJob, gemm_grouped};
pub use packed::PackedTiles;
pub use widened::gemm_widened;

/// C = epilogue(alpha · A · B + beta · C) with sums in f32; with beta = 0 nothing of C is read.
pub struct MixedJob<'a, U> {
    /// \[m, k\].
    pub a: Mat<'a, bf16>,
    /// \[k, n\].
    pub b: Right<'a>,
    /// \[m, n\].
    pub c: MatMut<'a, U>,
    #[allow(missing_docs)]
    pub alpha: f32,
    #[allow(missing_docs)]
    pub beta: f32,
    #[allow(missing_docs)]
    pub epilogue: Epilogue<'a, U>,
}

/// The second operand: as it lies, or laid out before.
#[derive(Clone, Copy)]
#[allow(missing_docs)]
pub enum Right<'a> {
    Plain(Mat<'a, bf16>),
    Packed(&'a PackedTiles),
}

impl Right<'_> {
    /// K and N.
    pub fn extents(&self) -> (usize, usize) {
        match self {
            Right::Plain(b) => b.extents(),
            Right::Packed(packed) => packed.extents(),
        }
    }
}

impl<U: Finish<Sum = f32>> MixedJob<'_, U> {
    /// M, N and K.
    ///
    /// # Panics
    /// If the extents do not belong together.
    fn extents(&self) -> (usize, usize, usize) {
        let (a, b, c) = (self.a.extents(), self.b.extents(), self.c.extents());
        assert!(a.1 == b.0 && a.0 == c.0 && b.1 == c.1, "{a:?} times {b:?} is not {c:?}");
        self.epilogue.check(c);
        (c.0, c.1, a.1)
    }

    /// C = epilogue(sum + beta · C), element by element, for some of its rows.
    fn write(&self, rows: std::ops::Range<usize>, sum: impl Fn(usize, usize) -> f32) {
        let (_, n) = self.c.extents();
        let c = |i: usize, j: usize| self.c.ptr.wrapping_offset(i as isize * self.c.row + j as isize * self.c.col);
        // SAFETY: inside C, which the job has to itself; it is read only where beta is not 0.
        let old = |i: usize, j: usize| if self.beta == 0.0 { 0.0 } else { self.beta * unsafe { *c(i, j) }.widen() };
        for i in rows {
            for j in (0..n).step_by(LANES) {
                let count = LANES.min(n - j);
                let one = |lane: usize| if lane < count { sum(i, j + lane) + old(i, j + lane) } else { 0.0 };
                // SAFETY: inside C, and inside whatever has its extents.
                unsafe {
                    let mut results = std::array::from_fn(one);
                    self.epilogue.row(&mut results, (i, j), count);
                    for (lane, result) in results.into_iter().enumerate().take(count) {
                        *c(i, j + lane) = U::narrow(result);
                    }
                }
            }
        }
    }
}

/// A function that multiplies into one type of result.
pub type RunMixed<U> = fn(MixedJob<'_, U>, &Pool, usize, &mut Scratch);
