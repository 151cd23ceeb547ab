//! The ways through a product: which operand is streamed, which is packed, what a thread takes.
//!
//! However it is cut, the sum of an element runs over k ascending in blocks that the product alone
//! determines, so the same product has the same bits for any number of threads.

use crate::blocked::{blocked, packed_columns};
use crate::dot;
use crate::matrix::{Mat, MatMut};
use crate::micro::{LyingFn, Out, TileFn, lying, tile};
use crate::packed::PackedJob;
use crate::pool::Pool;
use crate::scratch::Scratch;
use crate::simd::portable::Portable;
use crate::simd::{Element, Simd};
use crate::split::{parts, split};
use crate::target::Target;
use crate::wide;

/// C = alpha · A · B + beta · C; with beta = 0 nothing of C is read.
pub struct Job<'a, T> {
    /// \[m, k\].
    pub a: Mat<'a, T>,
    /// \[k, n\].
    pub b: Mat<'a, T>,
    /// \[m, n\].
    pub c: MatMut<'a, T>,
    #[allow(missing_docs)]
    pub alpha: T,
    #[allow(missing_docs)]
    pub beta: T,
}

impl<T: Element> Job<'_, T> {
    /// The same product of the transposed matrices.
    fn transposed(self) -> Self {
        Job { a: self.b.transposed(), b: self.a.transposed(), c: self.c.transposed(), ..self }
    }

    /// # Panics
    /// If the extents do not belong together.
    fn check(&self) {
        let (a, b, c) = (self.a.extents(), self.b.extents(), self.c.extents());
        assert!(a.1 == b.0 && a.0 == c.0 && b.1 == c.1, "{a:?} times {b:?} is not {c:?}");
    }

    /// C as it must not be confused with an operand: written by several threads, each its own part.
    pub(crate) fn target(&self) -> Target<T> {
        let MatMut { ptr, row, col, .. } = self.c;
        Target { ptr, row, col, alpha: self.alpha, beta: self.beta }
    }
}

/// Tiles of an instruction set: rows broadcast by vectors side by side.
pub trait Tiles: Simd {
    /// Rows of the highest tile.
    const HEIGHT: usize;
    /// Columns of a panel.
    const PANEL: usize;
    /// The tiles of large products, and of weights packed before, on cores with few slots (`wide_core`), where they are
    /// others.
    type Large: Tiles<T = Self::T>;
    /// Those of wide cores, with panels as wide as these.
    type Wide: Tiles<T = Self::T>;
    /// The tile of so many rows, 1 to `HEIGHT`, and vectors, at most a panel's, for a strip that was laid out.
    fn tile(rows: usize, vectors: usize) -> TileFn<Self::T>;
    /// The tile of so many rows, an even number of them, where they lie.
    fn lying(rows: usize, vectors: usize) -> LyingFn<Self::T>;
}

/// The core begins five instructions and more in a cycle, as since Ice Lake and Zen 4: high tiles, which broadcast more and
/// read less, are faster there than wide ones.
pub fn wide_core() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("avx512vbmi2");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Columns of a panel of large products, and of weights packed before.
pub fn large_panel<S: Tiles>() -> usize {
    if wide_core() { S::PANEL } else { S::Large::PANEL }
}

/// Tables of tiles by vectors and by height, 2, 4, ... rows.
macro_rules! tiles {
    ($simd:ty, $most:literal rows, panels of $panel:expr, large $large:ty, wide $wide:ty, laid $($laid:expr),+; lying $($lying:expr),+) => {
        impl Tiles for $simd {
            const HEIGHT: usize = $most;
            const PANEL: usize = $panel;
            type Large = $large;
            type Wide = $wide;

            fn tile(rows: usize, vectors: usize) -> TileFn<Self::T> {
                static ALL: [[TileFn<<$simd as Simd>::T>; $most / 2]; $panel / <$simd as Simd>::LANES] = [$($laid),+];
                ALL[vectors - 1][(rows - 1) / 2]
            }

            fn lying(rows: usize, vectors: usize) -> LyingFn<Self::T> {
                static ALL: [[LyingFn<<$simd as Simd>::T>; $most / 2]; $panel / <$simd as Simd>::LANES] = [$($lying),+];
                ALL[vectors - 1][(rows - 1) / 2]
            }
        }
    };
    ($simd:ty, $most:literal rows, panels of $panel:literal, vectors [$($vectors:literal)+], heights $heights:tt) => {
        tiles!(
            $simd, $most rows, panels of $panel, large Self, wide Self,
            laid $(tiles!(tile, $simd, $vectors, $panel, $heights)),+;
            lying $(tiles!(lying, $simd, $vectors, $panel, $heights)),+
        );
    };
    ($tile:ident, $simd:ty, $vectors:literal, $panel:literal, [$($height:literal)+]) => {
        [$($tile::<$simd, $height, $vectors, $panel>),+]
    };
}

#[cfg(target_arch = "x86_64")]
mod tiles_x86 {
    use super::*;
    use crate::simd::avx2::{F32x8, F64x4};
    use crate::simd::avx512::{F32x16, F32x16By3, F32x16Long, F64x8, F64x8By3, F64x8Long};
    use crate::simd::avx512_tiles::*;

    macro_rules! assembled {
        ($simd:ty, panels of $panel:literal, large $large:ty, wide $wide:ty, $one:ident, $two:ident; lying $lying_one:ident, $lying_two:ident) => {
            tiles!(
                $simd, 14 rows, panels of $panel, large $large, wide $wide,
                laid assembled!(rows, $one), assembled!(rows, $two);
                lying assembled!(lying, $lying_one), assembled!(lying, $lying_two)
            );
        };
        ($simd:ty, panels of $panel:literal, $one:ident, $two:ident, $three:ident) => {
            tiles!(
                $simd, 8 rows, panels of $panel, large Self, wide Self,
                laid assembled!(low rows, $one), assembled!(low rows, $two), assembled!(low rows, $three);
                lying assembled!(low lying, $one), assembled!(low lying, $two), assembled!(low lying, $three)
            );
        };
        (rows, $m:ident) => {
            [$m::rows2, $m::rows4, $m::rows6, $m::rows8, $m::rows10, $m::rows12, $m::rows14]
        };
        (lying, $m:ident) => {
            [$m::lying2, $m::lying4, $m::lying6, $m::lying8, $m::lying10, $m::lying12, $m::lying14]
        };
        (low rows, $m:ident) => {
            [$m::rows2, $m::rows4, $m::rows6, $m::rows8]
        };
        (low lying, $m:ident) => {
            [$m::lying2, $m::lying4, $m::lying6, $m::lying8]
        };
    }
    assembled!(F32x16, panels of 32, large F32x16By3, wide F32x16Long, one_f32, two_f32; lying one_f32, two_f32);
    assembled!(F64x8, panels of 16, large F64x8By3, wide F64x8Long, one_f64, two_f64; lying one_f64, two_f64);
    assembled!(F32x16Long, panels of 32, large Self, wide Self, long_one_f32, long_two_f32; lying one_f32, two_f32);
    assembled!(F64x8Long, panels of 16, large Self, wide Self, long_one_f64, long_two_f64; lying one_f64, two_f64);
    assembled!(F32x16By3, panels of 48, wide_one_f32, wide_two_f32, wide_three_f32);
    assembled!(F64x8By3, panels of 24, wide_one_f64, wide_two_f64, wide_three_f64);
    tiles!(F32x8, 6 rows, panels of 16, vectors [1 2], heights [2 4 6]);
    tiles!(F64x4, 6 rows, panels of 8, vectors [1 2], heights [2 4 6]);
}
tiles!(Portable<f32>, 4 rows, panels of 8, vectors [1], heights [2 4]);
tiles!(Portable<f64>, 4 rows, panels of 8, vectors [1], heights [2 4]);

/// Multiplies on all threads of the program's pool, with memory of its own.
pub fn gemm<S: Tiles>(job: Job<'_, S::T>) {
    let pool = Pool::global();
    gemm_with::<S>(job, pool, pool.threads(), &mut Scratch::new());
}

/// Rows up to which sums run along k in vectors.
const FEW_ROWS: usize = 8;
/// Rows up to which the other operand is better streamed than packed.
const SOME_ROWS: usize = 96;
/// Operations from which on a second thread pays for being woken.
const WORTH_THREADS: usize = 1 << 20;

/// Multiplies on up to `threads` threads of `pool`.
///
/// # Panics
/// If the extents do not belong together, or the instruction set is not there.
pub fn gemm_with<S: Tiles>(job: Job<'_, S::T>, pool: &Pool, threads: usize, scratch: &mut Scratch) {
    job.check();
    assert!(S::available(), "the machine lacks the kernel's instructions");
    let (m, n) = job.c.extents();
    let k = job.a.cols;
    if m == 0 || n == 0 {
        return;
    }
    if k == 0 || job.alpha == S::T::ZERO {
        return scale(&job.target(), (m, n));
    }
    let threads = if m.saturating_mul(n).saturating_mul(k) < WORTH_THREADS { 1 } else { threads.max(1) };
    match parts::<S>((m, n, k)) {
        1 => whole::<S>(job, pool, threads, scratch),
        parts => split::<S>(job, parts, pool, threads, scratch),
    }
}

/// Multiplies without cutting sums, by the way that suits the extents, none of which is 0.
pub(crate) fn whole<S: Tiles>(job: Job<'_, S::T>, pool: &Pool, threads: usize, scratch: &mut Scratch) {
    let (m, n) = job.c.extents();
    let contiguous = |mat: &Mat<'_, S::T>| mat.col == 1 || mat.cols <= 1;
    // Few rows on either side, the other operand contiguous along k.
    if m <= FEW_ROWS && contiguous(&job.b.transposed()) {
        return dot::few_rows::<S>(job, pool, threads, scratch);
    }
    if n <= FEW_ROWS && contiguous(&job.a) {
        return dot::few_rows::<S>(job.transposed(), pool, threads, scratch);
    }
    if m <= FEW_ROWS && contiguous(&job.b) {
        return wide::few_rows_wide::<S>(job, pool, threads, scratch);
    }
    if n <= FEW_ROWS && contiguous(&job.a.transposed()) {
        return wide::few_rows_wide::<S>(job.transposed(), pool, threads, scratch);
    }
    // Columns of a tile are vectors of C: its contiguous direction, unless few rows meet a wide operand
    // that is best read as it lies.
    let stream_b = m <= SOME_ROWS && n > 2 * m && contiguous(&job.b.transposed());
    let turned = if job.c.col == 1 { stream_b } else { job.c.row == 1 && !stream_b };
    blocked::<S>(if turned { job.transposed() } else { job }, pool, threads, scratch);
}

/// C = beta · C.
fn scale<T: Element>(target: &Target<T>, (rows, cols): (usize, usize)) {
    for i in 0..rows {
        for j in 0..cols {
            let Out { ptr, beta, .. } = target.part(i, j, 0);
            // SAFETY: i and j are inside C, which the job has to itself.
            unsafe { *ptr = if beta == T::ZERO { T::ZERO } else { beta.mul(*ptr) } };
        }
    }
}

/// Multiplies with weights that were packed for this instruction set: C = alpha · A · B + beta · C.
///
/// # Panics
/// If the extents do not belong together, the weights were packed for another kernel, or the instruction
/// set is not there.
pub fn gemm_packed<S: Tiles>(job: PackedJob<'_, S::T>, pool: &Pool, threads: usize, scratch: &mut Scratch) {
    const { assert!(S::PANEL == <S::Wide as Tiles>::PANEL, "weights are laid out for either kind of tile") };
    assert!(S::available(), "the machine lacks the kernel's instructions");
    let (a, b, c) = (job.a.extents(), job.b.extents(), job.c.extents());
    assert!(a.1 == b.0 && a.0 == c.0 && b.1 == c.1, "{a:?} times {b:?} is not {c:?}");
    assert_eq!(job.b.panel(), large_panel::<S>(), "weights packed for another kernel");
    if c.0 == 0 || c.1 == 0 {
        return;
    }
    if a.1 == 0 || job.alpha == S::T::ZERO {
        return scale(&job.target(), c);
    }
    let multiply = if wide_core() { packed_columns::<S::Wide> } else { packed_columns::<S::Large> };
    multiply(job, pool, threads.max(1), scratch);
}
