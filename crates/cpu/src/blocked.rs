//! Large products: columns of B packed into panels, strips of rows of A against them, tile by tile.
//!
//! Three ways, by what is small. Many columns: block after block of them is packed by all threads together, and
//! threads take strips. Few columns: packed once for all of k, so that a strip runs along all of it. Few rows and
//! columns that were packed before: rows are laid out once, and threads take columns.

use crate::cache::Caches;
use crate::gemm::{Job, Tiles};
use crate::matrix::Mat;
use crate::micro::{Ahead, Out, write};
use crate::pack::pack_columns;
use crate::packed::PackedJob;
use crate::pool::{Pool, Rounds};
use crate::scratch::{Scratch, Space};
use crate::simd::Element;
use crate::small::{is_small, small};
use crate::strip::{Left, against, height, lay, left, lying_height, room};
use crate::target::Target;

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

/// Bytes that packed columns may take of the second-level cache.
fn share_of_cache() -> usize {
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
        by_blocks::<S>(job.a, &source, (job.target(), n, kc), (pool, threads), scratch);
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
    let all = m.next_multiple_of(height(m, S::HEIGHT)) * k * size_of::<S::T>();
    if m <= MOST_ROWS && all <= share_of_cache() * 3 / 2 {
        few_rows::<S>(job, pool, threads, scratch);
    } else {
        let source = Source::Packed(job.b);
        by_blocks::<S>(job.a, &source, (job.target(), n, kc), (pool, threads), scratch);
    }
}

/// Rows up to which they are laid out once and columns are streamed past them.
const MOST_ROWS: usize = 96;

/// Where packed columns come from.
pub enum Source<'a, T> {
    Plain(Mat<'a, T>),
    Packed(&'a crate::packed::Packed<T>),
}

/// Block after block of steps and columns. Threads pack a block of columns together while the last strips of the
/// block before are still at work, then take strips; a strip is laid out for the first block of columns and kept for
/// the others.
fn by_blocks<S: Tiles>(
    a: Mat<'_, S::T>,
    source: &Source<'_, S::T>,
    (target, n, kc): (Target<S::T>, usize, usize),
    (pool, threads): (&Pool, usize),
    scratch: &mut Scratch,
) {
    let (m, k) = a.extents();
    let most = (share_of_cache() / size_of::<S::T>() / kc / S::PANEL).clamp(1, MOST_COLUMNS / S::PANEL);
    // Equal blocks of whole panels.
    let panels = n.div_ceil(S::PANEL);
    let per_block = panels.div_ceil(panels.div_ceil(most));
    let nb = per_block * S::PANEL;
    let (blocks_n, blocks_k) = (n.div_ceil(nb), k.div_ceil(kc));
    let mr = height(m, S::HEIGHT);
    let strips = m.div_ceil(mr);
    // Rows that lie side by side share their lines: several strips are laid out at once.
    let group = if a.col == 1 { 1 } else { GROUP.min(strips) };
    let groups = strips.div_ceil(group);
    let each = group * room(mr, kc);
    let buffer = if matches!(source, Source::Plain(_)) { (kc * nb).next_multiple_of(1024) } else { 0 };
    let buffers = if blocks_n * blocks_k > 1 { 2 } else { 1 };
    let kept = blocks_n > 1;
    scratch.reserve((buffers * buffer + each * if kept { groups } else { threads }) * size_of::<S::T>());
    let space = Space::<S::T>::of(scratch);
    let (packing, working) = (Rounds::new(per_block, threads), Rounds::new(groups, threads));
    pool.run(threads, &|thread| {
        for turn in 0..blocks_n * blocks_k {
            let (k0, j0) = (turn / blocks_n * kc, turn % blocks_n * nb);
            let (cols, steps) = (nb.min(n - j0), kc.min(k - k0));
            // SAFETY: inside; a buffer's last user was two turns before, over when `working` was waited for.
            let to = unsafe { space.from(turn % buffers * buffer) };
            let packed = match source {
                Source::Packed(packed) => packed.block(k0, j0),
                Source::Plain(b) => {
                    while let Some(panel) = packing.claim(thread, turn) {
                        let j = panel * S::PANEL;
                        if j < cols {
                            // SAFETY: 1 whoever calls has asked for the instruction set. 2 the panel is inside B, and its
                            // place in the buffer this thread's alone.
                            unsafe {
                                let (width, to) = (S::PANEL.min(cols - j), to.add(j * steps));
                                S::vectorize(|| pack_columns::<S>(b, (k0, steps), (j0 + j, width), S::PANEL, to));
                            }
                        }
                        packing.finish();
                    }
                    packing.wait(turn + 1);
                    to.cast_const()
                }
            };
            // The same rows of C are added to in the order of k.
            working.wait(turn);
            while let Some(this) = working.claim(thread, turn) {
                let (first, end) = (this * group * mr, m.min((this + 1) * group * mr));
                // SAFETY: 1 as above. 2 rows and steps are inside A; the place is this group's, or this thread's, whose
                // number is below `threads`; all panels are packed. 3 rows first.. of C are this thread's until it has
                // finished.
                unsafe {
                    let strips = space.from(buffers * buffer + each * if kept { this } else { thread });
                    if j0 == 0 {
                        lay::<S>(&a, (first, end, mr), (k0, steps), strips);
                    }
                    for i in (first..end).step_by(mr) {
                        let (strip, rows) = (strips.add((i - first) / mr * room(mr, steps)), mr.min(end - i));
                        let next = |j: usize| match j0 {
                            0 => ahead_of::<S>(&a, (i + mr, m), k0, cols, j),
                            _ => {
                                let panels = (j / S::PANEL, cols.div_ceil(S::PANEL));
                                Ahead::share(strip.add(room(mr, steps)), room(mr, steps), panels, steps)
                            }
                        };
                        against::<S>((Left::Laid(strip), rows), steps, (packed, cols), next, |j| {
                            target.part(i, j0 + j, k0)
                        });
                    }
                }
                working.finish();
            }
        }
    });
}

/// Strips that are laid out at once where their rows lie side by side.
const GROUP: usize = 8;
/// Columns of a block at most.
const MOST_COLUMNS: usize = 512;

/// What the panel at column j asks for: its share of the strip that comes next, from row `from` on, below `to`.
fn ahead_of<S: Tiles>(a: &Mat<'_, S::T>, (from, to): (usize, usize), k0: usize, cols: usize, j: usize) -> Ahead {
    // Rows that lie side by side would fall upon one another in the cache.
    let rows = if a.col == 1 { to.saturating_sub(from).min(S::HEIGHT) } else { 0 };
    let (panel, panels) = (j / S::PANEL, cols.div_ceil(S::PANEL));
    let (first, last) = (panel * rows / panels, (panel + 1) * rows / panels);
    Ahead::rows(a.at(from + first, k0), a.row, last - first)
}

/// Few columns: they are packed once for all of k, and a strip of A, read where it lies if that can be, runs along all
/// of it. Where columns of C are not neighbours the strip's result is computed aside and turned at the end.
fn few_columns<S: Tiles>(job: Job<'_, S::T>, pool: &Pool, threads: usize, scratch: &mut Scratch) {
    let (m, n, k) = (job.a.rows, job.b.cols, job.a.cols);
    let (a, b) = (job.a, job.b);
    let width = n.next_multiple_of(S::PANEL);
    // Rows that lie where they lie must not push one another out of the first-level cache.
    let (kc, mr) = match a.col == 1 {
        true => (equal(k, LYING_BYTES / size_of::<S::T>()), height(m, lying_height::<S>(a.row))),
        false => (steps::<S::T>(k), height(m, S::HEIGHT)),
    };
    let aside = if job.c.col == 1 { 0 } else { mr * width };
    let columns = (k * width).next_multiple_of(1024);
    let own = (room(mr, kc) + aside).next_multiple_of(1024);
    scratch.reserve((columns + threads * own) * size_of::<S::T>());
    let (space, target) = (Space::<S::T>::of(scratch), job.target());
    let (packing, working) =
        (Rounds::new(k.div_ceil(kc) * (width / S::PANEL), threads), Rounds::new(m.div_ceil(mr), threads));
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
        let sums = unsafe { strip.add(room(mr, kc)) };
        while let Some(block) = working.claim(thread, 0) {
            let i = block * mr;
            let rows = mr.min(m - i);
            for k0 in (0..k).step_by(kc) {
                let kc = kc.min(k - k0);
                // SAFETY: 1 as above. 2 all columns are packed. 3 rows i.. of C, and the memory aside, are this thread's.
                unsafe {
                    let left = left::<S>(&a, (i, rows), (k0, kc), strip);
                    if matches!(left, Left::Lying(_)) {
                        S::vectorize(|| ask_rows::<S>(&a, (i + mr, m.min(i + 2 * mr)), (k0, kc)));
                    }
                    // The same rows further on, or the next ones from their beginning.
                    let next = |j: usize| match k0 + kc < k {
                        true => ahead_of::<S>(&a, (i, m), k0 + kc, n, j),
                        false => ahead_of::<S>(&a, (i + mr, m), 0, n, j),
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
const LYING_BYTES: usize = 2048;
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
    let mr = height(m, S::HEIGHT);
    let (strips, blocks) = (m.div_ceil(mr), k.div_ceil(kc));
    let each = room(mr, kc).next_multiple_of(16);
    scratch.reserve(strips * blocks * each * size_of::<S::T>());
    let (space, target, a) = (Space::<S::T>::of(scratch), job.target(), job.a);
    let laying = Rounds::new(strips * blocks, threads);
    let streaming = Rounds::new(n.div_ceil(S::PANEL), threads);
    let place = |block: usize, strip: usize| (block * strips + strip) * each;
    let part = |strip: usize| (strip * mr, mr.min(m - strip * mr));
    pool.run(threads, &|thread| {
        while let Some(piece) = laying.claim(thread, 0) {
            let (block, strip) = (piece / strips, piece % strips);
            let k0 = block * kc;
            let (i, rows) = part(strip);
            // SAFETY: 1 whoever calls has asked for the instruction set. 2 inside A; the place is this piece's alone.
            unsafe { lay::<S>(&a, (i, i + rows, mr), (k0, kc.min(k - k0)), space.from(place(block, strip))) };
            laying.finish();
        }
        laying.wait(1);
        while let Some(panel) = streaming.claim(thread, 0) {
            let j = panel * S::PANEL;
            let cols = S::PANEL.min(n - j);
            for block in 0..blocks {
                let k0 = block * kc;
                let steps = kc.min(k - k0);
                let panel = b.block(k0, j);
                for strip in 0..strips {
                    let (i, rows) = part(strip);
                    // The columns that come next: the same further along k, or this thread's next ones.
                    let next = if block + 1 < blocks { b.block(k0 + kc, j) } else { b.block(0, j + S::PANEL) };
                    let next = |_| Ahead::share(next, kc * S::PANEL, (strip, strips), steps);
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
