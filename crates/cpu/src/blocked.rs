//! Large products: columns of B packed into panels, rows of A against them, tile by tile.

use crate::cache::Caches;
use crate::gemm::Job;
use crate::matrix::Mat;
use crate::micro::{Out, Rows, tile, tile_packed};
use crate::pack::pack_columns;
use crate::packed::PackedJob;
use crate::pool::{Counter, Phase, Pool};
use crate::scratch::Scratch;
use crate::simd::{Element, Simd};
use crate::target::Target;

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

/// Steps of a block of k: equal blocks, by k and the element type alone, since they decide the order of sums.
pub fn steps<T>(k: usize) -> usize {
    let most = KC * 4 / size_of::<T>();
    k.div_ceil(k.div_ceil(most).max(1)).max(1)
}

impl Blocks {
    fn of<T>((m, n, k): (usize, usize, usize), mr: usize, nr: usize, threads: usize) -> Blocks {
        let bytes = size_of::<T>();
        let kc = steps::<T>(k);
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
pub fn blocked<S: Simd, const MR: usize, const NV: usize>(
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

/// Columns that somebody packed before: threads take blocks of them, and nothing is packed.
pub fn packed_columns<S: Simd, const MR: usize, const NV: usize>(
    job: PackedJob<'_, S::T>,
    pool: &Pool,
    threads: usize,
    scratch: &mut Scratch,
) {
    let (n, (m, k), b) = (job.c.extents().1, job.a.extents(), job.b);
    let blocks = Blocks { kc: job.b.steps(), ..Blocks::of::<S::T>((m, n, k), MR, NV * S::LANES, threads) };
    let panels = |part: Part, _: *mut S::T| b.block(part.k0, part.j0);
    by_columns::<S, MR, NV>((job.a, n, job.target()), (blocks, 0), (pool, threads), scratch, &panels);
}

/// Many columns: each thread packs a block of them for itself and runs all rows against it.
fn own_columns<S: Simd, const MR: usize, const NV: usize>(
    job: Job<'_, S::T>,
    blocks: Blocks,
    pool: &Pool,
    threads: usize,
    scratch: &mut Scratch,
) {
    let (n, b) = (job.b.cols, job.b);
    let panels = |Part { k0, kc, j0, nb }: Part, to: *mut S::T| {
        // SAFETY: the block is inside B, and `to` has room for kc · nb elements.
        unsafe { pack_columns(&b, (k0, kc), (j0, nb), NV * S::LANES, to) };
        to.cast_const()
    };
    let room = blocks.kc * blocks.nb;
    by_columns::<S, MR, NV>((job.a, n, job.target()), (blocks, room), (pool, threads), scratch, &panels);
}

/// Steps k0.. (kc of them) of columns j0.. (nb of them).
#[derive(Clone, Copy)]
struct Part {
    k0: usize,
    kc: usize,
    j0: usize,
    nb: usize,
}

/// All rows of A against blocks of columns, which threads take in turn. `panels` gives the packed columns of a
/// part; it may write them to the `room` elements that it is handed.
fn by_columns<S: Simd, const MR: usize, const NV: usize>(
    (a, n, target): (Mat<'_, S::T>, usize, Target<S::T>),
    (blocks, room): (Blocks, usize),
    (pool, threads): (&Pool, usize),
    scratch: &mut Scratch,
    panels: &(impl Fn(Part, *mut S::T) -> *const S::T + Sync),
) {
    let (m, k) = a.extents();
    let per_thread = (room + blocks.kc * MR).next_multiple_of(1024);
    scratch.reserve(threads * per_thread * size_of::<S::T>());
    let space = Space(scratch.as_mut_ptr().cast::<S::T>());
    let counter = Counter::new(n.div_ceil(blocks.nb));
    pool.run(threads, &|thread| {
        // SAFETY: `thread` < `threads`, so the part is inside and this thread's own.
        let own = unsafe { space.from(thread * per_thread) };
        while let Some(block) = counter.claim() {
            let j0 = block * blocks.nb;
            let nb = blocks.nb.min(n - j0);
            for k0 in (0..k).step_by(blocks.kc) {
                let kc = blocks.kc.min(k - k0);
                // SAFETY: 1 whoever calls has asked for the instruction set. 2 the part is inside B; `room` elements and
                // then kc · MR are the thread's own. 3 columns j0.. of C are this thread's alone, having been claimed.
                unsafe {
                    S::vectorize(|| {
                        let packed = panels(Part { k0, kc, j0, nb }, own);
                        rows_against::<S, MR, NV>(&a, (0, m), (k0, kc), packed, nb, own.add(room), |i, j| {
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
