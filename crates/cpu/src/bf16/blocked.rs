//! More than 16 columns: block after block of the result, in each block after block of k, in each a panel of 32 rows
//! against all pairs of column tiles.
//!
//! The first pair of columns reads a panel of rows where it lies, by 32 streams at a time, and leaves it as tiles, which the
//! others read; so rows are read from memory once in a block of the result. Rows that lie across k and are used often are
//! laid out before. Second-level cache: the panel, the columns of a block of k, and the sums of the block of the result
//! where k has several; a short panel, of a few steps, stays in the first level. Finished sums are written to their place
//! between the products of the next piece, or stored there by the tiles where they are the result.

use super::ahead::{Ahead, Pace};
use super::amx::{Columns, Rows};
use super::blocks::{Blocks, Part};
use super::few::panel_tiles;
use super::output::{LINES, Output, Sink};
use super::packed::{PANEL, STEP};
use super::tile::{self, ROWS, TILE};
use super::words::along;
use crate::pool::{Groups, Pool, Rounds};
use crate::scratch::{Scratch, Space};
use half::bf16;
use std::arch::x86_64::_mm_sfence;

/// Bytes of two tiles.
const PAIR: usize = 2 * TILE;
/// Sums of a piece, 32 by 32.
const PIECE: usize = PANEL * PANEL;
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
    /// Columns as tiles, block of k after block of k, in each pair after pair.
    laid: Space<u8>,
    /// Rows as tiles, panel after panel, in each step after step, where they are laid out beforehand.
    laid_rows: Space<u8>,
}

impl<U> Shared<'_, U> {
    /// All steps of k.
    fn steps(&self) -> usize {
        self.columns.extents().1.div_ceil(STEP)
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
    /// Two finished pieces.
    staged: *mut f32,
    /// The sums of a block of the result.
    sums: *mut f32,
}

/// A finished piece that is not yet where it belongs: its sums, and its first row and column.
#[derive(Clone, Copy)]
struct Piece {
    sums: *mut f32,
    i: usize,
    j: usize,
}

/// Rows by columns, lines of k; the result is as `sink` says.
pub fn blocked<U: Output>(
    rows: Rows<'_>,
    columns: Columns<'_>,
    sink: Sink<'_, U>,
    pool: &Pool,
    threads: usize,
    scratch: &mut Scratch,
) {
    let blocks = Blocks::new(&rows, columns.extents(), threads);
    let block_sums = if blocks.all_k > 1 { blocks.panels * blocks.pairs * PIECE * size_of::<f32>() } else { 0 };
    let own = blocks.steps * PAIR + 2 * PIECE * size_of::<f32>() + block_sums;
    let all_steps = columns.extents().1.div_ceil(STEP);
    let all_rows = if blocks.laid_rows { blocks.all_panels * all_steps * PAIR } else { 0 };
    // Columns that are one and the same may be larger than memory.
    let of_columns = || blocks.all_k.checked_mul(blocks.all_pairs)?.checked_mul(blocks.steps)?.checked_mul(PAIR);
    let all_columns = of_columns().expect("sizes that fit the address space");
    scratch.reserve(all_columns.checked_add(all_rows + threads * own).expect("sizes that fit the address space"));
    let laid = Space::<u8>::of(scratch);
    // SAFETY: inside.
    let laid_rows = unsafe { laid.part(all_columns) };
    let large = sink.rows * sink.cols * size_of::<U>() > LARGE;
    let shared = Shared { rows, columns, sink: if large { sink.streaming() } else { sink }, blocks, laid, laid_rows };
    let (groups, members) = (blocks.groups, threads.div_ceil(blocks.groups));
    let items = if blocks.near_rows { 0 } else { blocks.all_k * blocks.group_pairs };
    let laying = Groups::new(groups, items, members);
    let bundles = if blocks.laid_rows { blocks.all_panels.div_ceil(BUNDLE) } else { 0 };
    let laying_rows = Rounds::new(bundles * all_steps, threads);
    let working = Groups::new(groups, blocks.count_of_group(), members);
    pool.run(threads, &|thread| {
        // SAFETY: `gemm_amx` has asked for the instructions; pieces of the columns and blocks of the result are whose who
        // claimed them; nobody reads columns before all are laid out; `thread` < `threads`, so its part is its own.
        unsafe {
            let panel = shared.laid.from(all_columns + all_rows + thread * own);
            let staged = panel.add(blocks.steps * PAIR).cast::<f32>();
            let own = Own { panel, staged, sums: staged.add(2 * PIECE) };
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
                    if blocks.near_rows {
                        lay(&shared, group, blocks.part(group, block).first_pair);
                    }
                    finished = multiply(&shared, (group, block), own, finished);
                }
            }
            if let Some(piece) = finished {
                (0..4).for_each(|tile| write(&shared.sink, &piece, tile));
            }
            tile::release();
            if shared.sink.streams {
                // What went past the caches is there before anybody hears that this thread is done.
                _mm_sfence();
            }
        }
    });
}

/// Lays out the columns of a group's pair in a block of k.
///
/// # Safety
/// AVX-512 F, BW and VL are there; the place is this thread's.
unsafe fn lay<U>(shared: &Shared<'_, U>, group: usize, item: usize) {
    let blocks = &shared.blocks;
    let (block, pair) = (item / blocks.group_pairs, group * blocks.group_pairs + item % blocks.group_pairs);
    for step in 0..blocks.steps.min(shared.steps() - block * blocks.steps) {
        // SAFETY: by the contract.
        unsafe { lay_step(shared, (block, pair), step) };
    }
}

/// Lays out a step of the columns of a pair in a block of k.
///
/// # Safety
/// AVX-512 F, BW and VL are there; the step is; the place is this thread's.
#[inline]
unsafe fn lay_step<U>(shared: &Shared<'_, U>, (block, pair): (usize, usize), step: usize) {
    let blocks = &shared.blocks;
    let place = ((block * blocks.all_pairs + pair) * blocks.steps + step) * PAIR;
    for half in 0..2 {
        let j = pair * PANEL + half * ROWS;
        // Columns that are not there leave what was there, for sums that nobody takes.
        if j < shared.columns.extents().0 {
            // SAFETY: by the contract.
            unsafe { shared.columns.tile(j, block * blocks.steps + step, shared.laid.from(place + half * TILE)) };
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
/// Tiles are configured, columns laid out; the block of the result and `own` are this thread's.
unsafe fn multiply<U: Output>(
    shared: &Shared<'_, U>,
    (group, block): (usize, usize),
    own: Own,
    mut finished: Option<Piece>,
) -> Option<Piece> {
    let blocks = &shared.blocks;
    let Part { first_panel, panels, first_pair, pairs } = blocks.part(group, block);
    // The panel after this block, unless somebody else claims it. Tiles come one after the other, so they are asked for; rows
    // as they lie are as many streams, which the machine foresees.
    let following = (block + 1 < blocks.count_of_group())
        .then(|| blocks.part(group, block + 1).first_panel)
        .filter(|panel| shared.tiles(*panel, 0).is_some());
    let all_steps = shared.steps();
    for k in 0..blocks.all_k {
        let steps = blocks.steps.min(all_steps - k * blocks.steps);
        let keeps = blocks.group_pairs > 1 && !blocks.near_rows;
        for panel in 0..panels {
            // SAFETY: by the contract; every piece of sums has its place, and the staged ones take turns.
            unsafe {
                let source = Source::of(shared, first_panel + panel, k * blocks.steps, steps, own.panel);
                let after = match (panel + 1 < panels, k + 1 < blocks.all_k) {
                    (true, _) => Some((first_panel + panel + 1, k)),
                    (_, true) => Some((first_panel, k + 1)),
                    _ => following.map(|panel| (panel, 0)),
                };
                let mut next = after.map_or(Ahead::nothing(), |after| next(shared, after, pairs * steps));
                for pair in 0..pairs {
                    let columns = shared.laid.from((k * blocks.all_pairs + first_pair + pair) * blocks.steps * PAIR);
                    let sums = own.sums.wrapping_add((panel * pairs + pair) * PIECE);
                    if k == 0 {
                        tile::clear();
                    } else {
                        tile::load(sums);
                    }
                    if k + 1 == blocks.all_k {
                        shared.sink.ask((first_panel + panel) * PANEL, (first_pair + pair) * PANEL, PANEL);
                    }
                    let mut leaving = Leaving::of(&shared.sink, finished.take(), steps);
                    // Who needs columns alone lays the next pair out while the first panel goes by this one.
                    let lays = blocks.near_rows && panel == 0 && pair + 1 < pairs;
                    for step in 0..steps {
                        let columns = columns.add(step * PAIR);
                        next.ask();
                        match source.lying {
                            Some((rows, apart, whole)) if !keeps && step < whole => {
                                tile::step((rows.add(step * 64), apart), columns);
                            }
                            Some((rows, apart, whole)) if pair == 0 && step < whole => {
                                let kept = own.panel.add(step * PAIR);
                                tile::step_keeping((rows.add(step * 64), apart), columns, kept);
                            }
                            _ => tile::step(tile::tiles(source.tiles.add(step * PAIR)), columns),
                        }
                        leaving.some(&shared.sink);
                        if lays {
                            lay_step(shared, (0, first_pair + pair + 1), step);
                        }
                    }
                    let (i, j) = ((first_panel + panel) * PANEL, (first_pair + pair) * PANEL);
                    if k + 1 < blocks.all_k {
                        tile::store(sums);
                    } else if let Some((at, apart)) = shared.sink.direct(i, j, PANEL) {
                        tile::store_apart(at, apart);
                    } else {
                        let staged = own.staged.add(pair % 2 * PIECE);
                        tile::store(staged);
                        finished = Some(Piece { sums: staged, i, j });
                    }
                }
            }
        }
    }
    finished
}

/// A panel of rows in a block of k.
struct Source {
    /// As tiles.
    tiles: *const u8,
    /// Where they lie, the bytes between them, and how many steps can be read there.
    lying: Option<(*const u8, isize, usize)>,
}

impl Source {
    /// Steps that cannot be read where they lie are made into tiles at `kept`.
    ///
    /// # Safety
    /// AVX-512 F, BW and VL are there; the panel and the steps are; `kept` has room for them.
    unsafe fn of<U>(shared: &Shared<'_, U>, panel: usize, first: usize, steps: usize, kept: *mut u8) -> Source {
        if let Some(tiles) = shared.tiles(panel, first) {
            return Source { tiles, lying: None };
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
        Source { tiles: kept, lying: Some((lines.at(i, first * STEP).cast(), apart, whole)) }
    }
}

/// A finished piece on its way to its place, a little after every step of the next one.
struct Leaving {
    piece: Option<Piece>,
    /// By lines, or by tiles.
    lines: bool,
    done: usize,
    pace: Pace,
}

impl Leaving {
    fn of<U: Output>(sink: &Sink<'_, U>, piece: Option<Piece>, steps: usize) -> Leaving {
        let lines = piece.is_some_and(|piece| sink.by_lines(piece.i, piece.j));
        Leaving { piece, lines, done: 0, pace: Pace::new(if lines { LINES } else { 4 }, steps) }
    }

    /// What is due of it.
    ///
    /// # Safety
    /// As for [`Sink::put`].
    #[inline(always)]
    unsafe fn some<U: Output>(&mut self, sink: &Sink<'_, U>) {
        let Some(piece) = &self.piece else { return };
        self.pace.turn();
        while self.pace.due() {
            // SAFETY: by the contract.
            unsafe {
                match self.lines {
                    true => sink.put_line(piece.sums, (piece.i, piece.j), self.done),
                    false => write(sink, piece, self.done),
                }
            }
            self.done += 1;
        }
    }
}

/// Tile `tile` of the four of a piece to its place.
///
/// # Safety
/// As for [`Sink::put`].
#[inline]
unsafe fn write<U: Output>(sink: &Sink<'_, U>, piece: &Piece, tile: usize) {
    let (row, column) = (tile / 2 * ROWS, tile % 2 * ROWS);
    // SAFETY: by the contract.
    unsafe { sink.put(piece.sums.add(tile * ROWS * ROWS), piece.i + row, piece.j + column) };
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
