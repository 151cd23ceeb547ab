//! Large products: blocks of columns packed into panels, strips of rows of A against them, block after block.
//!
//! Threads form groups, each with columns of its own, so that what it packs stays in its caches; strips of A, laid out
//! once for each block of k by whoever comes first, serve all groups.

use crate::blocked::{Source, ahead_of, share_of_cache};
use crate::gemm::Tiles;
use crate::matrix::Mat;
use crate::micro::{Ahead, Shares};
use crate::pack::pack_columns;
use crate::pool::{Groups, Pool, pause};
use crate::scratch::{Scratch, Space};
use crate::simd::Element;
use crate::strip::{Left, Strips, against, lay, room};
use crate::target::Target;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Columns of a block at most, whole panels of every tile.
const MOST_COLUMNS: usize = 576;
/// Panels that a group must have, or strips of A would be read too often for what is done with them.
const LEAST_PANELS: usize = 4;
/// Strips that are laid out at once where their rows lie side by side and share their lines.
const TOGETHER: usize = 8;

/// Strips of a turn, its last ones, whose tiles ask for columns of the next turn: as many as every other tile of them needs
/// for all columns. Earlier, what comes by meanwhile would push them out of the second-level cache again.
const fn asking(panel: usize) -> usize {
    (2 * panel).div_ceil(COLUMNS)
}

/// Columns that a tile asks for where they lie, line by line at the pace of its own steps.
const COLUMNS: usize = 4;

/// Into how many groups with columns of their own the threads are divided, all of the same size.
fn groups(threads: usize, panels: usize) -> usize {
    (1..=threads).rev().find(|groups| threads.is_multiple_of(*groups) && panels >= groups * LEAST_PANELS).unwrap_or(1)
}

/// Multiplies in blocks of `kc` steps. In a turn every group packs a block of columns while strips of the turn before
/// are still at work, then takes strips; who has nothing left helps another group.
pub fn large<S: Tiles>(
    a: Mat<'_, S::T>,
    source: &Source<'_, S::T>,
    (target, n, kc): (Target<S::T>, usize, usize),
    (pool, threads): (&Pool, usize),
    scratch: &mut Scratch,
) {
    let (m, k) = a.extents();
    // Half of the second-level cache: the strip that is at work, the next, and what is asked for have the other.
    let room_for_block = share_of_cache() / size_of::<S::T>();
    let most = (room_for_block / kc / S::PANEL).clamp(1, MOST_COLUMNS / S::PANEL);
    // Equal blocks of whole panels, as many for each group.
    let panels = n.div_ceil(S::PANEL);
    let groups = groups(threads, panels);
    let turns = panels.div_ceil(most * groups);
    let per_block = panels.div_ceil(turns * groups);
    let nb = per_block * S::PANEL;
    let strips = Strips::new(m, S::HEIGHT, threads);
    let bundle = if a.col == 1 { 1 } else { TOGETHER.min(strips.count) };
    let bundles = strips.count.div_ceil(bundle);
    let each = bundle * room(strips.height, kc);
    let buffer = if matches!(source, Source::Plain(_)) { (kc * nb).next_multiple_of(1024) } else { 0 };
    let all = turns * k.div_ceil(kc);
    // A single thread packs when nobody is at work: into the same memory, which is in its cache, with columns that it asked for
    // before. Of several each would ask for what others pack too, and what is packed has to stay while they are at work.
    let alone = threads == 1;
    let buffers = if alone { 1 } else { all.min(2) };
    let kept = (turns > 1 || groups > 1).then(|| Laid::new(bundles));
    let places = groups * buffers * buffer;
    scratch.reserve((places + each * if kept.is_some() { bundles } else { threads }) * size_of::<S::T>());
    let space = Space::<S::T>::of(scratch);
    let members = threads / groups;
    let (packing, working) = (Groups::new(groups, per_block, members), Groups::new(groups, bundles, members));
    pool.run(threads, &|thread| {
        let (own, member) = (thread % groups, thread / groups);
        let part_of = |turn: usize, group: usize| {
            let (k0, j0) = (turn / turns * kc, (turn % turns * groups + group) * nb);
            Block { k0, steps: kc.min(k - k0), j0, cols: nb.min(n.saturating_sub(j0)) }
        };
        for turn in 0..all {
            let block = turn / turns;
            for group in (own..groups).chain(0..own) {
                let part = part_of(turn, group);
                let Block { k0, steps, j0, .. } = part;
                let coming = match source {
                    Source::Plain(b) if alone && turn + 1 < all => Coming::new(b, part_of(turn + 1, group)),
                    _ => None,
                };
                // SAFETY: inside; a buffer's last user was two turns before, over when `working` was waited for, or this thread.
                let to = unsafe { space.from((group * buffers + turn % buffers) * buffer) };
                let packed = match source {
                    Source::Packed(packed) => packed.block(k0, j0.min(n)),
                    Source::Plain(b) => {
                        while let Some(panel) = packing.of(group).claim(member, turn) {
                            // SAFETY: 1 whoever calls has asked for the instruction set. 2 the panel's place in the buffer is
                            // this thread's alone.
                            unsafe { part.pack::<S>(b, panel, to) };
                            packing.of(group).finish();
                        }
                        packing.of(group).wait(turn + 1);
                        to.cast_const()
                    }
                };
                // The same rows of C are added to in the order of k.
                working.of(group).wait(turn);
                if turn % turns == 0 {
                    // Strips of the block of k before are in nobody's hands.
                    working.all().for_each(|group| group.wait(turn));
                }
                while let Some(piece) = working.of(group).claim(member, turn) {
                    // Groups begin with different strips: what one lays out the others find.
                    let this = (piece + group * bundles / groups) % bundles;
                    let some = this * bundle..strips.count.min((this + 1) * bundle);
                    let after = (this + 1) % bundles;
                    let there = kept.as_ref().is_some_and(|kept| kept.has(after, block));
                    // SAFETY: 1 as above. 2 rows and steps are inside A; the place is this bundle's, which one thread lays
                    // out, or this thread's, whose number is below `threads`; all panels are packed. 3 these strips of
                    // these columns of C are this thread's until it has finished.
                    unsafe {
                        let laid = space.from(places + each * if kept.is_some() { this } else { thread });
                        let lay = || lay::<S>(&a, (&strips, some.clone()), (k0, steps), laid);
                        match &kept {
                            Some(kept) => kept.once(this, block, lay),
                            None => lay(),
                        }
                        let after = there.then(|| space.from(places + each * after).cast_const());
                        part.multiply::<S>(&a, (&strips, some), (laid, after), (packed, coming.as_ref()), &target);
                    }
                    working.of(group).finish();
                }
            }
        }
    });
}

/// Columns j0.. of a block of k, `steps` from k0 on.
struct Block {
    k0: usize,
    steps: usize,
    j0: usize,
    cols: usize,
}

impl Block {
    /// Packs a panel of these columns, unless it lies past the last.
    ///
    /// # Safety
    /// `S` is available; the block is inside B, and `to` has room for its panels, this one's nobody else's.
    unsafe fn pack<S: Tiles>(&self, b: &Mat<'_, S::T>, panel: usize, to: *mut S::T) {
        let j = panel * S::PANEL;
        if j < self.cols {
            // SAFETY: by the contract.
            unsafe {
                let (columns, to) = ((self.j0 + j, S::PANEL.min(self.cols - j)), to.add(j * self.steps));
                S::vectorize(|| pack_columns::<S>(b, (self.k0, self.steps), columns, S::PANEL, to));
            }
        }
    }

    /// Strips `some`, laid out at `laid`, against these columns. What comes `after` them, if it is laid out already, or
    /// rows of A are asked for meanwhile, and at last the columns that are `coming`.
    ///
    /// # Safety
    /// `S` is available; the strips of A are laid out, all panels of the block are packed, and these strips of these
    /// columns of C are this thread's.
    unsafe fn multiply<S: Tiles>(
        &self,
        a: &Mat<'_, S::T>,
        (strips, some): (&Strips, Range<usize>),
        (laid, after): (*const S::T, Option<*const S::T>),
        (packed, coming): (*const S::T, Option<&Coming<'_, '_, S::T>>),
        target: &Target<S::T>,
    ) {
        let &Block { k0, steps, j0, cols } = self;
        let (room, last, panels) = (room(strips.height, steps), some.end - 1, cols.div_ceil(S::PANEL));
        let [every, every_other] = [panels, panels / 2].map(|parts| Shares::new::<S::T>(room, parts, steps));
        for strip in some.clone() {
            let (i, rows) = strips.part(strip);
            let begun = strip.checked_sub(strips.count.saturating_sub(asking(S::PANEL)));
            let coming = coming.zip(begun).filter(|_| panels > 1);
            // SAFETY: strips are laid out one after another.
            let laid = unsafe { laid.add((strip - some.start) * room) };
            let after = if strip < last { Some(laid.wrapping_add(room)) } else { after };
            let next = |j: usize| match (j / S::PANEL, coming, after) {
                // Every other tile has one of the two to ask for.
                (panel, Some((coming, begun)), _) if panel % 2 == 0 => {
                    coming.ask(begun * panels.div_ceil(2) + panel / 2)
                }
                (panel, Some(_), Some(after)) => every_other.of(after, panel / 2),
                (panel, None, Some(after)) => every.of(after, panel),
                (panel, _, None) => ahead_of::<S>(a, (i + rows, strips.rows), k0, (panel, panels)),
            };
            // SAFETY: by the contract.
            unsafe {
                against::<S>((Left::Laid(laid), rows), steps, (packed, cols), next, |j| target.part(i, j0 + j, k0));
            }
        }
    }
}

/// Columns that are packed next, each contiguous along k: otherwise no single tile has the time for a whole one.
struct Coming<'a, 'b, T> {
    b: &'a Mat<'b, T>,
    block: Block,
}

impl<'a, 'b, T: Element> Coming<'a, 'b, T> {
    fn new(b: &'a Mat<'b, T>, block: Block) -> Option<Self> {
        (b.row == 1 && block.cols > 0).then_some(Coming { b, block })
    }

    /// What the tile of this number asks for.
    fn ask(&self, tile: usize) -> Ahead {
        let Block { k0, j0, cols, .. } = self.block;
        let j = tile * COLUMNS;
        let first = self.b.at(k0, j0 + j.min(cols - 1));
        if j + COLUMNS > cols { Ahead::nothing(first) } else { Ahead::steps(first, self.b.col) }
    }
}

/// Which bundles of strips have been laid out for which block of k: 2 · blocks done, one more while one is at it.
struct Laid(Vec<AtomicUsize>);

impl Laid {
    fn new(bundles: usize) -> Laid {
        Laid((0..bundles).map(|_| AtomicUsize::new(0)).collect())
    }

    fn has(&self, bundle: usize, block: usize) -> bool {
        self.0[bundle].load(Ordering::Acquire) >= 2 * block + 2
    }

    /// Runs `lay` unless it was run for this block; returns when somebody has done it.
    fn once(&self, bundle: usize, block: usize, lay: impl FnOnce()) {
        let state = &self.0[bundle];
        match state.compare_exchange(2 * block, 2 * block + 1, Ordering::Acquire, Ordering::Acquire) {
            Ok(_) => {
                lay();
                state.store(2 * block + 2, Ordering::Release);
            }
            Err(_) => pause(|| self.has(bundle, block)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_form_equal_groups_that_have_columns_enough() {
        assert_eq!([groups(1, 100), groups(2, 8), groups(2, 7), groups(6, 13), groups(6, 100)], [1, 2, 1, 3, 6]);
    }

    #[test]
    fn a_bundle_is_laid_out_once_for_each_block() {
        let (laid, count) = (Laid::new(2), AtomicUsize::new(0));
        let pool = Pool::new(3);
        pool.run(3, &|_| {
            for block in 0..3 {
                laid.once(1, block, || {
                    count.fetch_add(1, Ordering::Relaxed);
                });
                assert!(laid.has(1, block) && !laid.has(0, block));
            }
        });
        assert_eq!(count.into_inner(), 3);
    }
}
