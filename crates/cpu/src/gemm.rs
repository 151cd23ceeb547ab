//! The ways through a product: which operand is streamed, which is packed, what a thread takes.
//!
//! However it is cut, the sum of an element runs over k ascending in blocks that the product alone
//! determines, so the same product has the same bits for any number of threads.

use crate::cache::Caches;
use crate::dot;
use crate::matrix::{Mat, MatMut};
use crate::micro::{Out, Rows, tile, tile_packed};
use crate::pack::pack_columns;
use crate::pool::{Counter, Phase, Pool};
use crate::scratch::Scratch;
use crate::simd::{Element, Simd};
use crate::target::Target;

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

/// A pointer into scratch memory that several threads use, each its own part or after a phase.
#[derive(Clone, Copy)]
struct Space<T>(*mut T);
// SAFETY: a plain address, as for `Target`.
unsafe impl<T> Send for Space<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Space<T> {}

impl<T> Space<T> {
    /// From the element `at` on.
    ///
    /// # Safety
    /// It lies inside the memory.
    unsafe fn from(&self, at: usize) -> *mut T {
        // SAFETY: by the contract.
        unsafe { self.0.add(at) }
    }
}

/// Tile shapes of an instruction set: rows broadcast by vectors side by side.
pub trait Tiles: Simd {
    /// Runs the job with the tile shape that suits `n` columns.
    fn blocked(job: Job<'_, Self::T>, pool: &Pool, threads: usize, scratch: &mut Scratch);
    /// Runs few rows of A against columns of B that are contiguous along k.
    fn few_rows(job: Job<'_, Self::T>, pool: &Pool, threads: usize, scratch: &mut Scratch);
}

macro_rules! tiles {
    ($simd:ty, $(($most:expr, $mr:literal, $nv:literal)),+; $rest_mr:literal, $rest_nv:literal) => {
        impl Tiles for $simd {
            fn blocked(job: Job<'_, Self::T>, pool: &Pool, threads: usize, scratch: &mut Scratch) {
                let n = job.c.extents().1;
                $(if n <= $most {
                    return blocked::<$simd, $mr, $nv>(job, pool, threads, scratch);
                })+
                blocked::<$simd, $rest_mr, $rest_nv>(job, pool, threads, scratch);
            }

            fn few_rows(job: Job<'_, Self::T>, pool: &Pool, threads: usize, scratch: &mut Scratch) {
                dot::few_rows::<$simd>(job, pool, threads, scratch);
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod tiles_x86 {
    use super::*;
    use crate::simd::{avx2, avx512};
    tiles!(avx512::F32x16, (16, 16, 1), (32, 12, 2), (48, 8, 3), (64, 6, 4); 8, 3);
    tiles!(avx512::F64x8, (8, 16, 1), (16, 12, 2), (24, 8, 3), (32, 6, 4); 8, 3);
    tiles!(avx2::F32x8, (8, 8, 1), (16, 6, 2); 4, 3);
    tiles!(avx2::F64x4, (4, 8, 1), (8, 6, 2); 4, 3);
}
tiles!(crate::simd::portable::Portable<f32>, (8, 4, 1); 4, 1);
tiles!(crate::simd::portable::Portable<f64>, (8, 4, 1); 4, 1);

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
        return scale(job);
    }
    let threads = if m.saturating_mul(n).saturating_mul(k) < WORTH_THREADS { 1 } else { threads };
    let contiguous = |mat: &Mat<'_, S::T>| mat.col == 1 || mat.cols <= 1;
    // Few rows on either side, the other operand contiguous along k.
    if m <= FEW_ROWS && contiguous(&job.b.transposed()) {
        return S::few_rows(job, pool, threads, scratch);
    }
    if n <= FEW_ROWS && contiguous(&job.a) {
        return S::few_rows(job.transposed(), pool, threads, scratch);
    }
    // Columns of a tile are vectors of C: its contiguous direction, unless few rows meet a wide operand
    // that is best read as it lies.
    let stream_b = m <= SOME_ROWS && n > 2 * m && contiguous(&job.b.transposed());
    let turned = if job.c.col == 1 { stream_b } else { job.c.row == 1 && !stream_b };
    S::blocked(if turned { job.transposed() } else { job }, pool, threads, scratch);
}

/// C = beta · C.
fn scale<T: Element>(job: Job<'_, T>) {
    let target = job.target();
    for i in 0..job.c.rows {
        for j in 0..job.c.cols {
            let Out { ptr, beta, .. } = target.part(i, j, 0);
            // SAFETY: i and j are inside C, which this job has to itself.
            unsafe { *ptr = if beta == T::ZERO { T::ZERO } else { beta.mul(*ptr) } };
        }
    }
}

/// How a product is cut.
#[derive(Debug, Clone, Copy)]
struct Blocks {
    /// Steps of k in a block; the packed part of B must stay in the second-level cache beside the rest.
    kc: usize,
    /// Columns that are packed at a time, a multiple of a tile's.
    nb: usize,
    /// Rows that a thread takes at a time.
    mb: usize,
}

/// Steps of k whose rows of a tile stay in the first-level cache.
const KC: usize = 512;

impl Blocks {
    fn of<T>((m, n, k): (usize, usize, usize), mr: usize, nr: usize, threads: usize) -> Blocks {
        let bytes = size_of::<T>();
        let most = KC * 4 / bytes;
        let kc = k.div_ceil(k.div_ceil(most));
        let room = (Caches::of_this_machine().l2 / 2 / bytes / kc).max(nr) / nr * nr;
        let columns = n.next_multiple_of(nr);
        // Equal parts, so that no thread is left with a sliver, and several for each.
        let wanted = if threads > 1 { PARTS * threads } else { 1 };
        let parts = columns.div_ceil(room.min(MOST_PANELS * nr)).max(wanted.min(columns.div_ceil(2 * nr)));
        let nb = columns.div_ceil(parts).next_multiple_of(nr);
        let mb = m.div_ceil(m.div_ceil(MOST_TILES * mr)).next_multiple_of(mr);
        Blocks { kc, nb, mb }
    }
}

/// Parts for each thread: one that is slowed down hands over what it has not begun.
const PARTS: usize = 4;
/// Panels of columns and tiles of rows in a part.
const MOST_PANELS: usize = 8;
const MOST_TILES: usize = 16;

/// Packs B by columns and streams or packs rows of A.
fn blocked<S: Simd, const MR: usize, const NV: usize>(
    job: Job<'_, S::T>,
    pool: &Pool,
    threads: usize,
    scratch: &mut Scratch,
) {
    let (m, n, k) = (job.a.rows, job.b.cols, job.a.cols);
    let nr = NV * S::LANES;
    let blocks = Blocks::of::<S::T>((m, n, k), MR, nr, threads);
    // Where all columns fit, they are packed once for all rows.
    if n <= MOST_PANELS * nr && k * n.next_multiple_of(nr) * size_of::<S::T>() <= Caches::of_this_machine().l2 {
        shared_columns::<S, MR, NV>(job, blocks, pool, threads, scratch);
    } else {
        own_columns::<S, MR, NV>(job, blocks, pool, threads, scratch);
    }
}

/// Many columns: each thread packs a block of them for itself and runs all rows against it.
fn own_columns<S: Simd, const MR: usize, const NV: usize>(
    job: Job<'_, S::T>,
    blocks: Blocks,
    pool: &Pool,
    threads: usize,
    scratch: &mut Scratch,
) {
    let (m, n, k) = (job.a.rows, job.b.cols, job.a.cols);
    let per_thread = (blocks.kc * blocks.nb + blocks.kc * MR).next_multiple_of(1024);
    scratch.reserve(threads * per_thread * size_of::<S::T>());
    let (space, target) = (Space(scratch.as_mut_ptr().cast::<S::T>()), job.target());
    let (a, b) = (job.a, job.b);
    let counter = Counter::new(n.div_ceil(blocks.nb));
    pool.run(threads, &|thread| {
        // SAFETY: `thread` < `threads`, so the part is inside and this thread's own.
        let packed = unsafe { space.from(thread * per_thread) };
        while let Some(block) = counter.claim() {
            let j0 = block * blocks.nb;
            let nb = blocks.nb.min(n - j0);
            for k0 in (0..k).step_by(blocks.kc) {
                let kc = blocks.kc.min(k - k0);
                // SAFETY: 1 `gemm_with` has asked for the instruction set. 2 the block is inside B and fits the
                // thread's memory. 3 columns j0.. of C are this thread's alone, having been claimed.
                unsafe {
                    S::vectorize(|| {
                        pack_columns(&b, (k0, kc), (j0, nb), NV * S::LANES, packed);
                        let rows = packed.add(blocks.kc * blocks.nb);
                        rows_against::<S, MR, NV>(&a, (0, m), (k0, kc), packed, nb, rows, |i, j| {
                            target.part(i, j0 + j, k0)
                        });
                    });
                }
            }
        }
    });
}

/// Few columns: they are packed once for all, and threads take rows. Where columns of C are not
/// neighbours the block is computed aside and turned at the end.
fn shared_columns<S: Simd, const MR: usize, const NV: usize>(
    job: Job<'_, S::T>,
    blocks: Blocks,
    pool: &Pool,
    threads: usize,
    scratch: &mut Scratch,
) {
    let (m, n, k) = (job.a.rows, job.b.cols, job.a.cols);
    let nr = NV * S::LANES;
    let width = n.next_multiple_of(nr);
    let aside = if job.c.col == 1 { 0 } else { blocks.mb * width };
    let per_thread = (blocks.kc * MR + aside).next_multiple_of(1024);
    let columns = (k * width).next_multiple_of(1024);
    scratch.reserve((columns + threads * per_thread) * size_of::<S::T>());
    let (space, target) = (Space(scratch.as_mut_ptr().cast::<S::T>()), job.target());
    let (a, b) = (job.a, job.b);
    let packing = Phase::new(k.div_ceil(blocks.kc));
    let counter = Counter::new(m.div_ceil(blocks.mb));
    pool.run(threads, &|thread| {
        packing.run(|block| {
            let k0 = block * blocks.kc;
            let kc = blocks.kc.min(k - k0);
            // SAFETY: the block is inside B; its place in the memory is its own.
            unsafe { S::vectorize(|| pack_columns(&b, (k0, kc), (0, n), nr, space.from(k0 * width))) };
        });
        // SAFETY: `thread` < `threads`, so the part is inside and this thread's own.
        let rows = unsafe { space.from(columns + thread * per_thread) };
        while let Some(block) = counter.claim() {
            let i0 = block * blocks.mb;
            let mb = blocks.mb.min(m - i0);
            for k0 in (0..k).step_by(blocks.kc) {
                let kc = blocks.kc.min(k - k0);
                // SAFETY: 1 `gemm_with` has asked for the instruction set. 2 `packing` is over, so the columns are
                // there. 3 rows i0.. of C, and the memory aside, are this thread's alone.
                unsafe {
                    let packed = space.from(k0 * width);
                    let turned = rows.add(blocks.kc * MR);
                    S::vectorize(|| {
                        rows_against::<S, MR, NV>(&a, (i0, mb), (k0, kc), packed, n, rows, |i, j| match aside {
                            0 => target.part(i, j, k0),
                            _ => {
                                let beta = if k0 == 0 { S::T::ZERO } else { S::T::ONE };
                                let ptr = turned.add((i - i0) * width + j);
                                Out { ptr, row: width as isize, col: 1, alpha: S::T::ONE, beta }
                            }
                        });
                    });
                }
            }
            if aside > 0 {
                // SAFETY: the block was computed by this thread, and its rows of C are its own.
                unsafe { write_turned(rows.add(blocks.kc * MR), width, (mb, n), target.part(i0, 0, 0)) };
            }
        }
    });
}

/// Rows i0.. (count of them) of A against packed columns.
///
/// # Safety
/// 1. `S` is available and this is inlined into code compiled for it.
/// 2. Rows and steps are inside A; `packed` holds kc steps of `nb` columns; `rows` has kc · MR elements.
/// 3. What `out` gives for a row and a column is the thread's own, as [`tile`] asks.
#[inline(always)]
unsafe fn rows_against<S: Simd, const MR: usize, const NV: usize>(
    a: &Mat<'_, S::T>,
    (i0, count): (usize, usize),
    (k0, kc): (usize, usize),
    packed: *const S::T,
    nb: usize,
    rows: *mut S::T,
    out: impl Fn(usize, usize) -> Out<S::T>,
) {
    let nr = NV * S::LANES;
    let mut i = i0;
    while i < i0 + count {
        let mr = MR.min(i0 + count - i);
        // SAFETY: as above; the next rows are only asked for.
        unsafe {
            if a.col == 1 {
                let panels = nb.div_ceil(nr);
                for panel in 0..panels {
                    // Each panel asks for its share of the rows that come next.
                    let ahead = i + MR + panel * MR / panels;
                    let left = Rows { ptr: a.at(i, k0), row: a.row, count: mr, next: a.at(ahead, k0) };
                    let j = panel * nr;
                    tile::<S, MR, NV>(kc, left, packed.add(j * kc), nr.min(nb - j), out(i, j));
                }
            } else {
                let turned = a.transposed();
                pack_columns(&turned, (k0, kc), (i, mr), MR, rows);
                for j in (0..nb).step_by(nr) {
                    tile_packed::<S, MR, NV>(kc, rows, mr, packed.add(j * kc), nr.min(nb - j), out(i, j));
                }
            }
        }
        i += MR;
    }
}

/// Writes a block that lies by rows of `width` to where columns are the far ones.
///
/// # Safety
/// `from` holds extents.0 rows; `out` may be written for all of them, as [`tile`] asks.
unsafe fn write_turned<T: Element>(from: *const T, width: usize, (rows, cols): (usize, usize), out: Out<T>) {
    for j in 0..cols {
        let to = out.ptr.wrapping_offset(j as isize * out.col);
        for i in 0..rows {
            // SAFETY: i < rows and j < cols.
            unsafe { out.put(to.offset(i as isize * out.row), *from.add(i * width + j)) };
        }
    }
}
