//! More than 16 columns: block after block of the result, in each block after block of k, in each a panel of 32 rows
//! against all bands of column tiles.
//!
//! A panel of rows is read where it lies, by 32 streams at a time, from memory by the first band and from the second-level
//! cache by the others; the first leaves rows that do not lie on lines of the cache as tiles for the others. Rows that lie
//! across k and are used often are laid out before. Weights laid out beforehand are rows whose tiles are pairs of steps:
//! operands are swapped then, columns are lines, and sums are transposed, which makes them lines of the result.
//! Second-level cache: the panel, the columns of a block of k, and the sums of the block of the result where k has several; a
//! short panel, of a few steps, stays in the first level. Finished sums are written to their place between the products of
//! the next piece, or stored there by the tiles where they are the result.

use super::ahead::Ahead;
use super::amx::{Columns, Rows};
use super::blocks::{Band, Blocks, Part};
use super::few::panel_tiles;
use super::output::{Output, Sink};
use super::packed::{PANEL, STEP};
use super::piece::{self, Leaving, Piece};
use super::tile::{self, ROWS, TILE};
use super::words::along;
use crate::pool::{Groups, Pool, Rounds};
use crate::scratch::{Scratch, Space};
use half::bf16;
use std::arch::x86_64::_mm_sfence;

/// Bytes of a step of a panel of rows: two tiles.
const PAIR: usize = 2 * TILE;
/// Bytes of the most sums of a piece.
const SUMS: usize = piece::SUMS * size_of::<f32>();
/// Bytes of a line of the cache.
const LINE: usize = 64;
/// Panels of which a thread lays out a step at a time.
const BUNDLE: usize = 16;
/// Bytes of a result from which on it would only push other things out of the caches.
const LARGE: usize = 1 << 20;

/// What the threads share.
struct Shared<'a, U> {
    rows: Rows<'a>,
    columns: Columns<'a>,
    sink: Sink<'a, U>,
    blocks: Blocks,
    /// Columns as tiles, block of k after block of k, in each band after band, in each step after step.
    laid: Space<u8>,
    /// Rows as tiles, panel after panel, in each step after step, where they are laid out beforehand.
    laid_rows: Space<u8>,
}

impl<U> Shared<'_, U> {
    /// All steps of k.
    fn steps(&self) -> usize {
        self.columns.extents().1.div_ceil(STEP)
    }

    /// The tiles of a band in a block of k.
    fn columns(&self, block: usize, band: Band) -> *const u8 {
        match &self.columns {
            // In one block of k, and bands of two.
            Columns::Packed(packed) => packed.tiles(band.first * ROWS / PANEL, 0),
            // SAFETY: inside.
            Columns::Plain(_) => unsafe { self.laid.from(self.place(block, band)) },
        }
    }

    /// Where in `laid` the tiles of a band begin in a block of k.
    fn place(&self, block: usize, band: Band) -> usize {
        (block * self.blocks.all_strips + band.first) * self.blocks.steps * TILE
    }

    /// Rows that are tiles already: those of a panel from a step on.
    fn tiles(&self, panel: usize, step: usize) -> Option<*const u8> {
        match &self.rows {
            Rows::Packed(packed) => Some(packed.tiles(panel, step)),
            Rows::Plain(_) if self.blocks.laid_rows => {
                // SAFETY: where it begins.
                let first = unsafe { self.laid_rows.from(0) };
                Some(first.wrapping_add((panel * self.steps() + step) * PAIR))
            }
            Rows::Plain(_) => None,
        }
    }
}

/// What a thread has to itself.
#[derive(Clone, Copy)]
struct Own {
    /// A panel of rows as tiles.
    panel: *mut u8,
    /// Two places for a finished piece.
    staged: *mut f32,
    /// The sums of a block of the result.
    sums: *mut f32,
}

/// Rows by columns, lines of k; the result is as `sink` says, with columns for rows where these are packed. Columns that are
/// packed are not laid out, so they want rows that are not, and that stay in a cache ([`super::blocks::near`]).
pub fn blocked<U: Output>(
    rows: Rows<'_>,
    columns: Columns<'_>,
    sink: Sink<'_, U>,
    pool: &Pool,
    threads: usize,
    scratch: &mut Scratch,
) {
    let blocks = Blocks::new(&rows, columns.extents(), threads);
    let block_sums = if blocks.all_k > 1 { blocks.panels * blocks.bands * SUMS } else { 0 };
    let own = blocks.steps * PAIR + 2 * SUMS + block_sums;
    let all_steps = columns.extents().1.div_ceil(STEP);
    let there = matches!(columns, Columns::Packed(_));
    assert!(!there || blocks.near_rows && matches!(rows, Rows::Plain(_)), "packed columns are used as they are");
    let all_rows = if blocks.laid_rows { blocks.all_panels * all_steps * PAIR } else { 0 };
    // Columns that are one and the same may be larger than memory.
    let of_columns = || blocks.all_k.checked_mul(blocks.all_strips)?.checked_mul(blocks.steps)?.checked_mul(TILE);
    let all_columns = if there { 0 } else { of_columns().expect("sizes that fit the address space") };
    scratch.reserve(all_columns.checked_add(all_rows + threads * own).expect("sizes that fit the address space"));
    let laid = Space::<u8>::of(scratch);
    // SAFETY: inside.
    let laid_rows = unsafe { laid.part(all_columns) };
    let large = sink.rows * sink.cols * size_of::<U>() > LARGE;
    let shared = Shared { rows, columns, sink: if large { sink.streaming() } else { sink }, blocks, laid, laid_rows };
    let (groups, members) = (blocks.groups, threads.div_ceil(blocks.groups));
    let items = if blocks.near_rows { 0 } else { blocks.all_k * blocks.group_bands };
    let laying = Groups::new(groups, items, members);
    let bundles = if blocks.laid_rows { blocks.all_panels.div_ceil(BUNDLE) } else { 0 };
    let laying_rows = Rounds::new(bundles * all_steps, threads);
    let working = Groups::new(groups, blocks.count_of_group(), members);
    pool.run(threads, &|thread| {
        // SAFETY: `gemm_amx` has asked for the instructions; pieces of the columns and blocks of the result are whose who
        // claimed them, those of near rows with the columns that they lay out; nobody reads columns of others before all are
        // laid out; `thread` < `threads`, so its part is its own.
        unsafe {
            let panel = shared.laid.from(all_columns + all_rows + thread * own);
            let staged = panel.add(blocks.steps * PAIR).cast::<f32>();
            let own = Own { panel, staged, sums: staged.add(2 * piece::SUMS) };
            tile::configure();
            let (mine, member) = (thread % groups, thread / groups);
            let mut finished = None;
            while let Some(item) = laying_rows.claim(thread, 0) {
                lay_rows(&shared, item / bundles, item % bundles * BUNDLE);
                laying_rows.finish();
            }
            // Who has nothing left helps another group.
            for group in (mine..groups).chain(0..mine) {
                let (laying, working) = (laying.of(group), working.of(group));
                while let Some(item) = laying.claim(member, 0) {
                    lay(&shared, group, item);
                    laying.finish();
                }
                laying.wait(1);
                laying_rows.wait(1);
                while let Some(block) = working.claim(member, 0) {
                    if blocks.near_rows && !there {
                        lay_band(&shared, 0, blocks.band(blocks.part(group, block).first_band));
                    }
                    finished = match shared.rows {
                        Rows::Packed(_) => multiply::<true, U>(&shared, (group, block), own, finished),
                        Rows::Plain(_) => multiply::<false, U>(&shared, (group, block), own, finished),
                    };
                }
            }
            if let Some(piece) = finished {
                piece.put(&shared.sink);
            }
            tile::release();
            if shared.sink.streams {
                // What went past the caches is there before anybody hears that this thread is done.
                _mm_sfence();
            }
        }
    });
}

/// Lays out the columns of a group's band in a block of k.
///
/// # Safety
/// AVX-512 F, BW and VL are there; the place is this thread's.
unsafe fn lay<U>(shared: &Shared<'_, U>, group: usize, item: usize) {
    let blocks = &shared.blocks;
    let (first, end) = blocks.bands_of(group);
    let (block, band) = (item / blocks.group_bands, first + item % blocks.group_bands);
    if band < end {
        // SAFETY: by the contract.
        unsafe { lay_band(shared, block, blocks.band(band)) };
    }
}

/// Lays out the columns of a band in a block of k.
///
/// # Safety
/// As for [`lay`].
unsafe fn lay_band<U>(shared: &Shared<'_, U>, block: usize, band: Band) {
    let blocks = &shared.blocks;
    for step in 0..blocks.steps.min(shared.steps() - block * blocks.steps) {
        // SAFETY: by the contract.
        unsafe { lay_step(shared, block, band, step) };
    }
}

/// Lays out a step of the columns of a band in a block of k.
///
/// # Safety
/// As for [`lay`]; the step is there.
#[inline]
unsafe fn lay_step<U>(shared: &Shared<'_, U>, block: usize, band: Band, step: usize) {
    let place = shared.place(block, band) + step * band.wide * TILE;
    for strip in 0..band.wide {
        let j = (band.first + strip) * ROWS;
        // Columns that are not there leave what was there, for sums that nobody takes.
        if j < shared.columns.extents().0 {
            // SAFETY: by the contract.
            unsafe {
                let to = shared.laid.from(place + strip * TILE);
                let swapped = matches!(shared.rows, Rows::Packed(_));
                shared.columns.tile(j, block * shared.blocks.steps + step, to, swapped);
            }
        }
    }
}

/// Lays out a step of a bundle of panels from one on: lines of k are read in long runs that way.
///
/// # Safety
/// AVX-512 F, BW and VL are there; the place is this thread's.
unsafe fn lay_rows<U>(shared: &Shared<'_, U>, step: usize, first: usize) {
    let Rows::Plain(lines) = &shared.rows else { return };
    for panel in first..shared.blocks.all_panels.min(first + BUNDLE) {
        // SAFETY: by the contract; the panel and the step are inside.
        unsafe {
            let to = shared.laid_rows.from((panel * shared.steps() + step) * PAIR);
            panel_tiles(lines, panel * PANEL, step, to);
        }
    }
}

/// A block of the result. Takes the piece that is not yet written, and gives back its own last one.
///
/// # Safety
/// AVX-512 F, BW, VL and BF16 are there, tiles configured, columns laid out: of near rows those of the block's first band,
/// while the place of the others' is this thread's. The block of the result and `own` are this thread's, and so is what is
/// `finished`, with its sums in one of the two places; operands are `SWAPPED` where rows are packed.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
unsafe fn multiply<const SWAPPED: bool, U: Output>(
    shared: &Shared<'_, U>,
    (group, block): (usize, usize),
    own: Own,
    mut finished: Option<Piece>,
) -> Option<Piece> {
    let blocks = &shared.blocks;
    let Part { first_panel, panels, first_band, bands } = blocks.part(group, block);
    // The panel after this block, unless somebody else claims it. Tiles come one after the other, so they are asked for;
    // rows as they lie are as many streams, which the machine foresees.
    let following = (block + 1 < blocks.count_of_group())
        .then(|| blocks.part(group, block + 1).first_panel)
        .filter(|panel| shared.tiles(*panel, 0).is_some());
    if bands == 0 {
        return finished;
    }
    let lays = blocks.near_rows && matches!(shared.columns, Columns::Plain(_));
    let all_steps = shared.steps();
    for k in 0..blocks.all_k {
        let steps = blocks.steps.min(all_steps - k * blocks.steps);
        for panel in 0..panels {
            // SAFETY: by the contract.
            let source = unsafe { Source::of(shared, first_panel + panel, k * blocks.steps, steps, own.panel) };
            let after = match (panel + 1 < panels, k + 1 < blocks.all_k) {
                (true, _) => Some((first_panel + panel + 1, k)),
                (_, true) => Some((first_panel, k + 1)),
                _ => following.map(|panel| (panel, 0)),
            };
            let mut next = after.map_or(Ahead::nothing(), |after| next(shared, after, bands * steps));
            for band in 0..bands {
                let turn = Turn {
                    k,
                    steps,
                    panel: first_panel + panel,
                    band: blocks.band(first_band + band),
                    first: band == 0,
                    // Who needs columns alone lays the next band out while the first panel goes by this one.
                    lays: (lays && panel == 0 && band + 1 < bands).then(|| blocks.band(first_band + band + 1)),
                    // The piece before has left its place by the end of this one's steps, so either would do.
                    own: Own {
                        sums: own.sums.wrapping_add((panel * bands + band) * piece::SUMS),
                        staged: own.staged.wrapping_add(band % 2 * piece::SUMS),
                        ..own
                    },
                };
                // SAFETY: by the contract; every piece of sums has its place.
                finished = unsafe {
                    match turn.band.wide {
                        3 => go::<3, SWAPPED, U>(shared, &turn, &source, &mut next, finished),
                        _ => go::<2, SWAPPED, U>(shared, &turn, &source, &mut next, finished),
                    }
                };
            }
        }
    }
    finished
}

/// A panel of rows by a band of columns in a block of k.
struct Turn {
    k: usize,
    steps: usize,
    panel: usize,
    band: Band,
    /// The first band of its panel.
    first: bool,
    /// The band that is laid out meanwhile.
    lays: Option<Band>,
    /// The places of this piece.
    own: Own,
}

/// The products of a piece, with whatever else is done between them. Takes and gives back as [`multiply`] does.
///
/// # Safety
/// As for [`multiply`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
unsafe fn go<const WIDE: usize, const SWAPPED: bool, U: Output>(
    shared: &Shared<'_, U>,
    turn: &Turn,
    source: &Source,
    next: &mut Ahead,
    finished: Option<Piece>,
) -> Option<Piece> {
    let (own, last) = (turn.own, turn.k + 1 == shared.blocks.all_k);
    let (i, j) = (turn.panel * PANEL, turn.band.first * ROWS);
    let at = if SWAPPED { (j, i) } else { (i, j) };
    // SAFETY: by the contract.
    unsafe {
        let columns = shared.columns(turn.k, turn.band);
        if turn.k == 0 {
            tile::clear::<WIDE>();
        } else {
            tile::load::<WIDE>(own.sums);
        }
        if last {
            shared.sink.ask(at, const { piece::layout(WIDE, SWAPPED) }.extents());
        }
        let mut leaving = Leaving::of(&shared.sink, finished, turn.steps);
        for step in 0..turn.steps {
            let columns = columns.add(step * WIDE * TILE);
            next.ask();
            match source.lying {
                Some((rows, apart, whole)) if !source.keeps && step < whole => {
                    tile::step::<WIDE, SWAPPED>((rows.add(step * 64), apart), columns);
                }
                Some((rows, apart, whole)) if turn.first && step < whole => {
                    let kept = Some(own.panel.add(step * PAIR));
                    tile::step_keeping::<WIDE, SWAPPED>((rows.add(step * 64), apart), columns, kept);
                }
                _ => tile::step::<WIDE, SWAPPED>(tile::tiles(source.tiles.add(step * PAIR)), columns),
            }
            leaving.some(&shared.sink);
            if let Some(band) = turn.lays {
                lay_step(shared, 0, band, step);
            }
        }
        debug_assert!(leaving.is_done(), "the place of the piece before is written again");
        if last {
            return piece::leave::<WIDE, SWAPPED, U>(&shared.sink, at, own.staged);
        }
        tile::store::<WIDE>(own.sums);
        None
    }
}

/// A panel of rows in a block of k.
struct Source {
    /// As tiles.
    tiles: *const u8,
    /// Where they lie, the bytes between them, and how many steps can be read there.
    lying: Option<(*const u8, isize, usize)>,
    /// The first band leaves them as tiles for the others: they do not lie on lines of the cache, of which each row of a tile
    /// would be read from two every time.
    keeps: bool,
}

impl Source {
    /// Steps that cannot be read where they lie are made into tiles at `kept`.
    ///
    /// # Safety
    /// AVX-512 F, BW and VL are there; the panel and the steps are; `kept` has room for them.
    unsafe fn of<U>(shared: &Shared<'_, U>, panel: usize, first: usize, steps: usize, kept: *mut u8) -> Source {
        if let Some(tiles) = shared.tiles(panel, first) {
            return Source { tiles, lying: None, keeps: false };
        }
        let Rows::Plain(lines) = &shared.rows else { unreachable!("packed rows are tiles") };
        let i = panel * PANEL;
        let readable = if along(lines) && lines.rows - i >= PANEL { lines.cols / STEP } else { 0 };
        let whole = readable.saturating_sub(first).min(steps);
        for step in whole..steps {
            // SAFETY: by the contract.
            unsafe { panel_tiles(lines, i, first + step, kept.add(step * PAIR)) };
        }
        let apart = lines.row * size_of::<bf16>() as isize;
        let at: *const u8 = lines.at(i, first * STEP).cast();
        let on_lines = at.addr().is_multiple_of(LINE) && apart.unsigned_abs().is_multiple_of(LINE);
        let keeps = !on_lines && shared.blocks.group_bands > 1 && !shared.blocks.near_rows;
        Source { tiles: kept, lying: Some((at, apart, whole)), keeps }
    }
}

/// The panel of rows that comes next, in a block of k, asked for in so many turns while another is in use.
fn next<U>(shared: &Shared<'_, U>, (panel, k): (usize, usize), turns: usize) -> Ahead {
    let (blocks, first) = (&shared.blocks, k * shared.blocks.steps);
    if blocks.near_rows {
        return Ahead::nothing();
    }
    let steps = blocks.steps.min(shared.steps() - first);
    if let Some(at) = shared.tiles(panel, first) {
        return Ahead::piece(at, steps * PAIR, turns);
    }
    if (first + steps) * STEP > shared.columns.extents().1 {
        return Ahead::nothing();
    }
    match &shared.rows {
        Rows::Plain(rows) if (panel + 1) * PANEL <= rows.rows => {
            let (at, size) = (rows.at(panel * PANEL, first * STEP).cast(), size_of::<bf16>() as isize);
            match along(rows) {
                true => Ahead::rows(at, (rows.row * size, PANEL), steps, turns),
                // What is turned lies step by step, where nothing else foresees what comes.
                false => Ahead::rows(at, (rows.col * size, steps * STEP), 1, turns),
            }
        }
        _ => Ahead::nothing(),
    }
}
