//! Large products: columns of B packed into panels, strips of rows of A against them, tile by tile.
//!
//! What is small decides. Few columns: packed once for all of k, so that a strip runs along all of it. Few rows and
//! columns that were packed before: rows are laid out once, and threads take columns. What stays in the second-level
//! cache goes to [`small`], everything else to [`large`].

use crate::cache::Caches;
use crate::gemm::{Job, Tiles, wide_core};
use crate::large::large;
use crate::matrix::Mat;
use crate::micro::{Ahead, Out, Shares, write};
use crate::pack::pack_columns;
use crate::packed::PackedJob;
use crate::pool::{Pool, Rounds};
use crate::scratch::{Scratch, Space};
use crate::simd::Element;
use crate::small::{is_small, small};
use crate::strip::{Left, Strips, against, lay, left, lying_height, room};

/// Steps of k in a block at most: long, since every block reads and writes the sums anew, and a strip of A must
/// stay in the first two caches while panels of B go by.
const fn most_steps<T>() -> usize {
    4096 / size_of::<T>()
}

/// Steps of a block of k: equal blocks, by k alone, since they decide the order of sums.
pub fn steps<T>(k: usize) -> usize {
    equal(k, most_steps::<T>())
}

/// The size of equal parts of `whole`, none above `most`.
fn equal(whole: usize, most: usize) -> usize {
    whole.div_ceil(whole.div_ceil(most).max(1)).max(1)
}

/// Bytes of the second-level cache that packed columns may take where rows need as much.
pub fn share_of_cache() -> usize {
    Caches::of_this_machine().l2 / 2
}

/// Packs B by columns and lays strips of A against them.
pub fn blocked<S: Tiles>(job: Job<'_, S::T>, pool: &Pool, threads: usize, scratch: &mut Scratch) {
    let (n, k) = job.b.transposed().extents();
    if is_small::<S>(&job.a, n, threads) {
        return small::<S>(job.a, &Source::Plain(job.b), (job.target(), n), (pool, threads), scratch);
    }
    let bytes = k * n.next_multiple_of(S::PANEL) * size_of::<S::T>();
    if bytes <= share_of_cache() && (n <= MOST_PANELS * S::PANEL && k > most_steps::<S::T>() || job.c.col != 1) {
        few_columns::<S>(job, pool, threads, scratch);
    } else {
        let (kc, source) = (steps::<S::T>(k), Source::Plain(job.b));
        // Of a few columns wider panels would leave too much to tiles of a single vector.
        let multiply = match wide_core() {
            true => large::<S::Wide>,
            false if n < 3 * S::PANEL => large::<S>,
            false => large::<S::Large>,
        };
        multiply(job.a, &source, (job.target(), n, kc), (pool, threads), scratch);
    }
}

/// Panels up to which all of k is packed at once.
const MOST_PANELS: usize = 4;

/// Columns that somebody packed before.
pub fn packed_columns<S: Tiles>(job: PackedJob<'_, S::T>, pool: &Pool, threads: usize, scratch: &mut Scratch) {
    let (n, (m, k), kc) = (job.c.extents().1, job.a.extents(), job.b.steps());
    if is_small::<S>(&job.a, n, threads) && k <= kc {
        return small::<S>(job.a, &Source::Packed(job.b), (job.target(), n), (pool, threads), scratch);
    }
    let all = m * k * size_of::<S::T>();
    if m <= MOST_ROWS && all <= share_of_cache() * 3 / 2 {
        few_rows::<S>(job, pool, threads, scratch);
    } else {
        let source = Source::Packed(job.b);
        large::<S>(job.a, &source, (job.target(), n, kc), (pool, threads), scratch);
    }
}

/// Rows up to which they are laid out once and columns are streamed past them.
const MOST_ROWS: usize = 96;

/// Where packed columns come from.
pub enum Source<'a, T> {
    Plain(Mat<'a, T>),
    Packed(&'a crate::packed::Packed<T>),
}

/// What one of so many panels asks for: its share of the strip that comes next, from row `from` on, below `to`.
pub fn ahead_of<S: Tiles>(
    a: &Mat<'_, S::T>,
    (from, to): (usize, usize),
    k0: usize,
    (panel, panels): (usize, usize),
) -> Ahead {
    // Rows that lie side by side would fall upon one another in the cache.
    let rows = if a.col == 1 { to.saturating_sub(from).min(S::HEIGHT) } else { 0 };
    // Short divisions, which take half as long: a tile waits for them.
    let share = |panel: usize| (panel * rows) as u32 / panels as u32;
    let (first, last) = (share(panel) as usize, share(panel + 1) as usize);
    Ahead::rows(a.at(from + first, k0), a.row, last - first)
}

/// Few columns: they are packed once for all of k, and a strip of A, read where it lies if that can be, runs along all
/// of it. Where columns of C are not neighbours the strip's result is computed aside and turned at the end.
fn few_columns<S: Tiles>(job: Job<'_, S::T>, pool: &Pool, threads: usize, scratch: &mut Scratch) {
    let (m, n, k) = (job.a.rows, job.b.cols, job.a.cols);
    let (a, b) = (job.a, job.b);
    let width = n.next_multiple_of(S::PANEL);
    // Rows that lie where they lie must not push one another out of the first-level cache.
    let (kc, most) = match a.col == 1 {
        true => (equal(k, LYING_BYTES / size_of::<S::T>()), lying_height::<S>(a.row)),
        false => (steps::<S::T>(k), S::HEIGHT),
    };
    let strips = Strips::new(m, most, threads);
    let aside = if job.c.col == 1 { 0 } else { strips.height * width };
    let columns = (k * width).next_multiple_of(1024);
    let own = (room(strips.height, kc) + aside).next_multiple_of(1024);
    scratch.reserve((columns + threads * own) * size_of::<S::T>());
    let (space, target) = (Space::<S::T>::of(scratch), job.target());
    let (packing, working) =
        (Rounds::new(k.div_ceil(kc) * (width / S::PANEL), threads), Rounds::new(strips.count, threads));
    pool.run(threads, &|thread| {
        while let Some(piece) = packing.claim(thread, 0) {
            let (k0, j) = (piece / (width / S::PANEL) * kc, piece % (width / S::PANEL) * S::PANEL);
            let kc = kc.min(k - k0);
            // SAFETY: 1 whoever calls has asked for the instruction set. 2 the panel is inside B, its place this thread's.
            unsafe {
                let to = space.from(k0 * width + j * kc);
                S::vectorize(|| pack_columns::<S>(&b, (k0, kc), (j, S::PANEL.min(n - j)), S::PANEL, to));
            }
            packing.finish();
        }
        packing.wait(1);
        // SAFETY: `thread` < `threads`, so the part is inside and this thread's own.
        let strip = unsafe { space.from(columns + thread * own) };
        // SAFETY: as above; strips have room before it.
        let sums = unsafe { strip.add(room(strips.height, kc)) };
        while let Some(block) = working.claim(thread, 0) {
            let (i, rows) = strips.part(block);
            for k0 in (0..k).step_by(kc) {
                let kc = kc.min(k - k0);
                // SAFETY: 1 as above. 2 all columns are packed. 3 rows i.. of C, and the memory aside, are this thread's.
                unsafe {
                    let left = left::<S>(&a, (i, rows), (k0, kc), strip);
                    if matches!(left, Left::Lying(_)) {
                        S::vectorize(|| ask_rows::<S>(&a, (i + rows, m.min(i + 2 * rows)), (k0, kc)));
                    }
                    // The same rows further on, or the next ones from their beginning.
                    let next = |j: usize| match k0 + kc < k {
                        true => ahead_of::<S>(&a, (i, m), k0 + kc, (j / S::PANEL, width / S::PANEL)),
                        false => ahead_of::<S>(&a, (i + rows, m), 0, (j / S::PANEL, width / S::PANEL)),
                    };
                    against::<S>((left, rows), kc, (space.from(k0 * width), n), next, |j| match aside {
                        0 => target.part(i, j, k0),
                        _ => {
                            let (row, alpha, beta) =
                                (width as isize, S::T::ONE, if k0 == 0 { S::T::ZERO } else { S::T::ONE });
                            Out { ptr: sums.add(j), row, col: 1, alpha, beta }
                        }
                    });
                }
            }
            if aside > 0 {
                // SAFETY: the strip was computed by this thread, and its rows of C are its own.
                unsafe { write::<S>(sums, width, (rows, n), target.part(i, 0, 0)) };
            }
            working.finish();
        }
    });
}

/// Bytes along k of a block of rows that are read where they lie.
pub const LYING_BYTES: usize = 2048;
/// Bytes of a row that a tile asks for ahead of what it reads, so that the first ones of a row are nobody's.
const FIRST_BYTES: usize = 512;

/// Asks for the first lines of rows, all of them in the course of k: a share for the block k0.. of `kc` steps.
///
/// # Safety
/// `S` is available, and this is inlined into code compiled for it.
#[inline(always)]
unsafe fn ask_rows<S: Tiles>(a: &Mat<'_, S::T>, (from, to): (usize, usize), (k0, kc): (usize, usize)) {
    let line = 64 / size_of::<S::T>();
    let lines = FIRST_BYTES / 64;
    for i in from..to {
        for at in k0 * lines / a.cols..(k0 + kc) * lines / a.cols {
            // SAFETY: by the contract; what is asked for need not be there.
            unsafe { S::prefetch(a.at(i, 0).wrapping_add(at * line)) };
        }
    }
}

/// Few rows: they are laid out once, strip by strip for each block of k, and threads stream packed columns past them.
fn few_rows<S: Tiles>(job: PackedJob<'_, S::T>, pool: &Pool, threads: usize, scratch: &mut Scratch) {
    let (n, (m, k), b, kc) = (job.c.extents().1, job.a.extents(), job.b, job.b.steps());
    let (strips, blocks) = (Strips::new(m, S::HEIGHT, 1), k.div_ceil(kc));
    let each = room(strips.height, kc).next_multiple_of(16);
    scratch.reserve(strips.count * blocks * each * size_of::<S::T>());
    let (space, target, a) = (Space::<S::T>::of(scratch), job.target(), job.a);
    let laying = Rounds::new(strips.count * blocks, threads);
    let streaming = Rounds::new(n.div_ceil(S::PANEL), threads);
    let place = |block: usize, strip: usize| (block * strips.count + strip) * each;
    pool.run(threads, &|thread| {
        while let Some(piece) = laying.claim(thread, 0) {
            let (block, strip) = (piece / strips.count, piece % strips.count);
            let k0 = block * kc;
            // SAFETY: 1 whoever calls has asked for the instruction set. 2 inside A; the place is this piece's alone.
            unsafe { lay::<S>(&a, (&strips, strip..strip + 1), (k0, kc.min(k - k0)), space.from(place(block, strip))) };
            laying.finish();
        }
        laying.wait(1);
        while let Some(panel) = streaming.claim(thread, 0) {
            let j = panel * S::PANEL;
            let cols = S::PANEL.min(n - j);
            for block in 0..blocks {
                let k0 = block * kc;
                let steps = kc.min(k - k0);
                let shares = Shares::new::<S::T>(kc * S::PANEL, strips.count, steps);
                let panel = b.block(k0, j);
                for strip in 0..strips.count {
                    let (i, rows) = strips.part(strip);
                    // The columns that come next: the same further along k, or this thread's next ones.
                    let next = if block + 1 < blocks { b.block(k0 + kc, j) } else { b.block(0, j + S::PANEL) };
                    let next = |_| shares.of(next, strip);
                    // SAFETY: 1 as above. 2 laid out before, by whomever. 3 columns j.. of C are this thread's.
                    unsafe {
                        let laid = space.from(place(block, strip));
                        against::<S>((Left::Laid(laid), rows), steps, (panel, cols), next, |_| target.part(i, j, k0));
                    }
                }
            }
            streaming.finish();
        }
    });
}
