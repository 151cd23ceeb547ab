//! More than 16 columns: block after block of the result, in each block after block of k, in each a panel of 32 rows
//! against all pairs of column tiles.
//!
//! First-level cache: the panel of rows in use, 32 by 256, 16 KB. The first pair of columns reads it where it lies and
//! leaves it as tiles, which the others read; so rows are read from memory once in a block of the result, by 32 streams
//! at a time. Second level: the columns of a block of k, and the sums of the block of the result. Finished sums are
//! written to their place between the products of the next piece, or stored there by the tiles where they are the result.

use super::amx::{Columns, Rows};
use super::blocks::{Blocks, Part};
use super::few::panel_tiles;
use super::output::{Output, Sink};
use super::packed::{PANEL, STEP};
use super::tile::{self, ROWS, TILE};
use super::words::along;
use crate::pool::{Groups, Pool};
use crate::scratch::{Scratch, Space};
use half::bf16;
use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch, _mm_sfence};

/// Bytes of two tiles.
const PAIR: usize = 2 * TILE;
/// Sums of a piece, 32 by 32.
const PIECE: usize = PANEL * PANEL;
/// Pairs up to which rows come from memory faster than they are used, and are asked for ahead.
const FEW_PAIRS: usize = 8;
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
    sums: *const f32,
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
    let all_columns = blocks.all_k * blocks.all_pairs * blocks.steps * PAIR;
    let block_sums = if blocks.all_k > 1 { blocks.panels * blocks.pairs * PIECE * size_of::<f32>() } else { 0 };
    let own = blocks.steps * PAIR + 2 * PIECE * size_of::<f32>() + block_sums;
    scratch.reserve(all_columns + threads * own);
    let laid = Space::<u8>::of(scratch);
    let large = sink.rows * sink.cols * size_of::<U>() > LARGE;
    let shared = Shared { rows, columns, sink: if large { sink.streaming() } else { sink }, blocks, laid };
    let (groups, members) = (blocks.groups, threads.div_ceil(blocks.groups));
    let items = if blocks.near_rows { 0 } else { blocks.all_k * blocks.group_pairs };
    let laying = Groups::new(groups, items, members);
    let working = Groups::new(groups, blocks.count_of_group(), members);
    pool.run(threads, &|thread| {
        // SAFETY: `gemm_amx` has asked for the instructions; pieces of the columns and blocks of the result are whose who
        // claimed them; nobody reads columns before all are laid out; `thread` < `threads`, so its part is its own.
        unsafe {
            let panel = shared.laid.from(all_columns + thread * own);
            let staged = panel.add(blocks.steps * PAIR).cast::<f32>();
            let own = Own { panel, staged, sums: staged.add(2 * PIECE) };
            tile::configure();
            let (mine, member) = (thread % groups, thread / groups);
            let mut finished = None;
            // Who has nothing left helps another group.
            for group in (mine..groups).chain(0..mine) {
                let (laying, working) = (laying.of(group), working.of(group));
                while let Some(item) = laying.claim(member, 0) {
                    lay(&shared, group, item);
                    laying.finish();
                }
                laying.wait(1);
                while let Some(block) = working.claim(member, 0) {
                    if blocks.near_rows {
                        let part = blocks.part(group, block);
                        (part.first_pair..part.first_pair + part.pairs).for_each(|pair| lay(&shared, group, pair));
                    }
                    finished = multiply(&shared, (group, block), own, finished);
                }
            }
            if let Some(piece) = finished {
                write(&shared.sink, &piece, 0, 4);
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
    let (blocks, (q, k)) = (&shared.blocks, shared.columns.extents());
    let (block, pair) = (item / blocks.group_pairs, group * blocks.group_pairs + item % blocks.group_pairs);
    let (all, place) = (blocks.steps, block * blocks.all_pairs + pair);
    for step in 0..all.min(k.div_ceil(STEP) - block * all) {
        for half in 0..2 {
            let j = pair * PANEL + half * ROWS;
            // SAFETY: by the contract; columns that are not there leave what was there, for sums that nobody takes.
            unsafe {
                if j < q {
                    let to = shared.laid.from(place * all * PAIR + step * PAIR + half * TILE);
                    shared.columns.tile(j, block * all + step, to);
                }
            }
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
    let all_steps = shared.columns.extents().1.div_ceil(STEP);
    for k in 0..blocks.all_k {
        let steps = blocks.steps.min(all_steps - k * blocks.steps);
        let keeps = blocks.group_pairs > 1 && !blocks.near_rows;
        for panel in 0..panels {
            // SAFETY: by the contract; every piece of sums has its place, and the staged ones take turns.
            unsafe {
                let source = Source::of(&shared.rows, first_panel + panel, k * blocks.steps, steps, own.panel);
                let (next_panel, next_k) = if panel + 1 < panels { (panel + 1, k) } else { (0, k + 1) };
                let next = Next::of(shared, first_panel + next_panel, next_k * blocks.steps);
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
                    for step in 0..steps {
                        let columns = columns.add(step * PAIR);
                        next.ask(pair * steps + step, pairs * steps);
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
                        if let Some(piece) = &finished {
                            write(&shared.sink, piece, step * 4 / steps, (step + 1) * 4 / steps);
                        }
                    }
                    finished = None;
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
    unsafe fn of(rows: &Rows<'_>, panel: usize, first: usize, steps: usize, kept: *mut u8) -> Source {
        let lines = match rows {
            Rows::Packed(packed) => return Source { tiles: packed.tiles(panel, first), lying: None },
            Rows::Plain(lines) => lines,
        };
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

/// Tiles `from..to` of the four of a piece to their place.
///
/// # Safety
/// As for [`Sink::put`].
#[inline]
unsafe fn write<U: Output>(sink: &Sink<'_, U>, piece: &Piece, from: usize, to: usize) {
    for tile in from..to {
        let (row, column) = (tile / 2 * ROWS, tile % 2 * ROWS);
        // SAFETY: by the contract.
        unsafe { sink.put(piece.sums.add(tile * ROWS * ROWS), piece.i + row, piece.j + column) };
    }
}

/// The panel of rows that comes next, asked for while another is in use.
struct Next {
    at: *const u8,
    /// Bytes from row to row.
    apart: isize,
    rows: usize,
    /// Lines of a row, none where nothing is asked for.
    lines: usize,
}

impl Next {
    /// From a step on; where that is past the end nothing is asked for.
    fn of<U>(shared: &Shared<'_, U>, panel: usize, first: usize) -> Next {
        let Blocks { steps, pairs, .. } = shared.blocks;
        let there = !shared.blocks.near_rows && (first + steps) * STEP <= shared.columns.extents().1;
        let (few, size) = (pairs <= FEW_PAIRS, size_of::<bf16>() as isize);
        match &shared.rows {
            // The same lines in another order.
            Rows::Packed(packed) => {
                let lines = if there && few { steps } else { 0 };
                Next { at: packed.tiles(panel, first), apart: (steps * 64) as isize, rows: PANEL, lines }
            }
            Rows::Plain(rows) => {
                let (i, at) = (panel * PANEL, rows.at(panel * PANEL, first * STEP).cast());
                let there = there && i + PANEL <= rows.rows;
                match along(rows) {
                    true => {
                        Next { at, apart: rows.row * size, rows: PANEL, lines: if there && few { steps } else { 0 } }
                    }
                    // What is turned lies step by step, where nothing else foresees what comes.
                    false => Next { at, apart: rows.col * size, rows: steps * STEP, lines: usize::from(there) },
                }
            }
        }
    }

    /// Part `part` of `parts` of its lines, to the second-level cache.
    #[inline(always)]
    fn ask(&self, part: usize, parts: usize) {
        let all = self.lines * self.rows;
        if all == 0 {
            return;
        }
        for line in part * all / parts..(part + 1) * all / parts {
            let (row, line) = (line / self.lines, line % self.lines);
            let at = self.at.wrapping_offset(row as isize * self.apart).wrapping_add(line * 64);
            // SAFETY: what is asked for need not be there.
            unsafe { _mm_prefetch::<_MM_HINT_T1>(at.cast()) };
        }
    }
}
