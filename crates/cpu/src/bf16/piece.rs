//! A piece of the result, a panel of rows by a band of columns: where its sums go, at once or between the products of the
//! next one.

use super::ahead::Pace;
use super::output::{Layout, Output, Sink};
use super::packed::PANEL;
use super::tile::{self, ROWS};

/// The most sums of a piece.
pub const SUMS: usize = PANEL * 3 * ROWS;

/// How the sums of a piece lie, as the tiles leave them: those of the first rows by all columns, then those of the last;
/// where operands are swapped each is transposed, and the result has columns for rows.
pub const fn layout(wide: usize, swapped: bool) -> Layout {
    match swapped {
        false => Layout { rows: PANEL / ROWS, cols: wide, down: wide, right: 1 },
        true => Layout { rows: wide, cols: PANEL / ROWS, down: 1, right: wide },
    }
}

/// A finished piece that is not yet where it belongs: its sums, and its first row and column of the result.
#[derive(Clone, Copy)]
pub struct Piece {
    pub sums: *mut f32,
    pub layout: Layout,
    pub at: (usize, usize),
}

impl Piece {
    /// To its place.
    ///
    /// # Safety
    /// As for [`Sink::put`], of all of it.
    pub unsafe fn put<U: Output>(&self, sink: &Sink<'_, U>) {
        for tile in 0..self.layout.rows * self.layout.cols {
            // SAFETY: by the contract.
            unsafe { sink.put_tile(self.sums, &self.layout, self.at, tile) };
        }
    }
}

/// The sums in the tiles to their place if they are the result as they are, and otherwise to `staged`, from where they go
/// later.
///
/// # Safety
/// Tiles are configured; the place is this thread's; `staged` has room for [`SUMS`].
#[inline(always)]
pub unsafe fn leave<const WIDE: usize, const SWAPPED: bool, U: Output>(
    sink: &Sink<'_, U>,
    at: (usize, usize),
    staged: *mut f32,
) -> Option<Piece> {
    let layout = const { layout(WIDE, SWAPPED) };
    // SAFETY: by the contract.
    unsafe {
        if let Some((to, apart)) = sink.direct(at, layout.extents()) {
            tile::store_apart::<WIDE, SWAPPED>(to, apart);
            None
        } else {
            tile::store::<WIDE>(staged);
            Some(Piece { sums: staged, layout, at })
        }
    }
}

/// A finished piece on its way to its place, a little after every step of the next one.
pub struct Leaving {
    piece: Option<Piece>,
    /// By lines, or by tiles.
    lines: bool,
    done: usize,
    pace: Pace,
}

impl Leaving {
    /// In so many steps.
    pub fn of<U: Output>(sink: &Sink<'_, U>, piece: Option<Piece>, steps: usize) -> Leaving {
        let lines = piece.is_some_and(|piece| sink.by_lines(piece.at, piece.layout.extents()));
        let parts = piece.map_or(0, |piece| match lines {
            true => sink.lines(&piece.layout),
            false => piece.layout.rows * piece.layout.cols,
        });
        Leaving { piece, lines, done: 0, pace: Pace::new(parts, steps) }
    }

    /// What is due of it.
    ///
    /// # Safety
    /// As for [`Piece::put`]; the sums are writable, and `sink` is the one that [`Leaving::of`] was given.
    #[inline(always)]
    pub unsafe fn some<U: Output>(&mut self, sink: &Sink<'_, U>) {
        let Some(piece) = &self.piece else { return };
        self.pace.turn();
        while self.pace.due() {
            // SAFETY: by the contract.
            unsafe {
                match self.lines {
                    true => sink.put_line(piece.sums, &piece.layout, piece.at, self.done),
                    false => sink.put_tile(piece.sums, &piece.layout, piece.at, self.done),
                }
            }
            self.done += 1;
        }
    }

    /// All of it has left.
    pub fn is_done(&self) -> bool {
        self.piece.is_none() || self.pace.is_done(self.done)
    }
}
