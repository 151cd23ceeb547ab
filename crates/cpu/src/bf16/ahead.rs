//! What is asked for before it is used, and done a little at a time between products.

use super::packed::PANEL;
use std::arch::x86_64::{_MM_HINT_T0, _MM_HINT_T1, _mm_prefetch};

/// Bytes of a line of the cache.
const LINE: usize = 64;
/// Places of a piece of memory from which it is asked for at a time: more of memory is at work than for neighbours.
const STREAMS: usize = 8;

/// How often something is due that is done `all` times in `turns` turns, evenly: as one counts, since a division would take
/// longer than what is counted.
#[derive(Clone, Copy)]
pub struct Pace {
    all: usize,
    turns: usize,
    owed: usize,
}

impl Pace {
    pub fn new(all: usize, turns: usize) -> Pace {
        Pace { all, turns, owed: 0 }
    }

    /// Another turn.
    #[inline(always)]
    pub fn turn(&mut self) {
        self.owed += self.all;
    }

    /// It is due once more in this turn.
    #[inline(always)]
    pub fn due(&mut self) -> bool {
        let due = self.owed >= self.turns;
        self.owed -= if due { self.turns } else { 0 };
        due
    }

    /// All of it has been done.
    pub fn is_done(&self, done: usize) -> bool {
        done == self.all
    }
}

/// Asks for a line of each of the rows of a panel, some bytes apart, to the first-level cache. Where rows come from memory and
/// little is done with them this keeps it at work if they are those of the next step: further ahead is worth less.
#[inline(always)]
pub fn ask_panel((at, apart): (*const u8, isize)) {
    for row in 0..PANEL as isize {
        // SAFETY: what is asked for need not be there.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.wrapping_offset(row * apart).cast()) };
    }
}

/// Memory that is used next, asked for while something else is at work: line after line of all its rows.
pub struct Ahead {
    at: *const u8,
    /// Bytes from row to row.
    apart: isize,
    rows: usize,
    row: usize,
    pace: Pace,
}

impl Ahead {
    /// Nothing.
    pub fn nothing() -> Ahead {
        Ahead::rows(std::ptr::null(), (0, 1), 0, 1)
    }

    /// So many lines of rows, some bytes apart, in so many turns.
    pub fn rows(at: *const u8, (apart, rows): (isize, usize), lines: usize, turns: usize) -> Ahead {
        Ahead { at, apart, rows, row: 0, pace: Pace::new(lines * rows, turns) }
    }

    /// Bytes that lie in one piece.
    pub fn piece(at: *const u8, bytes: usize, turns: usize) -> Ahead {
        Ahead::rows(at, ((bytes / STREAMS) as isize, STREAMS), bytes / STREAMS / LINE, turns)
    }

    /// What is due of it, to the second-level cache.
    #[inline(always)]
    pub fn ask(&mut self) {
        self.pace.turn();
        while self.pace.due() {
            // SAFETY: what is asked for need not be there.
            unsafe { _mm_prefetch::<_MM_HINT_T1>(self.at.cast()) };
            (self.at, self.row) = (self.at.wrapping_offset(self.apart), self.row + 1);
            if self.row == self.rows {
                (self.at, self.row) = (self.at.wrapping_offset(LINE as isize - self.rows as isize * self.apart), 0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_due_in_time_and_evenly() {
        for (all, turns) in [(0, 1), (4, 64), (64, 64), (64, 7), (100, 3), (3, 100)] {
            let (mut pace, mut done) = (Pace::new(all, turns), 0);
            for turn in 1..=turns {
                pace.turn();
                while pace.due() {
                    done += 1;
                }
                assert_eq!(done, turn * all / turns, "{all} in {turns}, turn {turn}");
            }
        }
    }
}
