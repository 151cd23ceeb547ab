//! Weights as tiles, laid out once and used for every number of rows.

use crate::matrix::Mat;
use crate::scratch::filled;
use half::bf16;

/// Rows of a panel: two tiles.
pub const PANEL: usize = 32;
/// Steps of k in a tile.
pub const STEP: usize = 32;
/// Columns, and lines, of a tile.
const COLUMNS: usize = 16;

/// A line of the cache, so that tiles begin on one.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub struct Line([bf16; STEP]);

/// B as tiles read it, panel by panel of 32 of its columns, in each step by step of k the tile of the first 16 and that
/// of the others: lines of pairs of steps, in each those of the sixteen columns side by side. So neither the other operand
/// nor a result is turned in a product. What is beyond the matrix is 0.
#[derive(Debug, Clone)]
pub struct PackedTiles {
    lines: Vec<Line>,
    k: usize,
    n: usize,
}

impl PackedTiles {
    /// Lays B out.
    pub fn new(b: Mat<'_, bf16>) -> PackedTiles {
        let (k, n) = b.extents();
        let (panels, steps) = (n.div_ceil(PANEL), k.div_ceil(STEP));
        let mut lines = filled(Line([bf16::ZERO; STEP]), panels * steps * PANEL);
        for panel in 0..panels {
            for step in 0..steps {
                let (first, count) = (step * STEP, STEP.min(k - step * STEP));
                for j in panel * PANEL..n.min((panel + 1) * PANEL) {
                    let tile = &mut lines[line_of(steps, first, j)..][..STEP / 2];
                    for s in 0..count {
                        // SAFETY: inside B.
                        tile[s / 2].0[place_of(s, j)] = unsafe { *b.at(first + s, j) };
                    }
                }
            }
        }
        PackedTiles { lines, k, n }
    }

    /// K and N.
    pub fn extents(&self) -> (usize, usize) {
        (self.k, self.n)
    }

    /// Bytes it takes beside the weights themselves.
    pub fn bytes(&self) -> usize {
        size_of_val(self.lines.as_slice())
    }

    /// An element of B.
    pub(crate) fn at(&self, s: usize, j: usize) -> *const bf16 {
        &raw const self.lines[line_of(self.k.div_ceil(STEP), s, j)].0[place_of(s, j)]
    }

    /// The tiles of a panel from a step of k on.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn tiles(&self, panel: usize, step: usize) -> *const u8 {
        self.lines.as_ptr().wrapping_add((panel * self.k.div_ceil(STEP) + step) * PANEL).cast()
    }
}

/// The line of step s and column j, where k has so many steps of tiles.
fn line_of(steps: usize, s: usize, j: usize) -> usize {
    (j / PANEL * steps + s / STEP) * PANEL + (j % PANEL) / COLUMNS * COLUMNS + s % STEP / 2
}

/// Their place in it.
fn place_of(s: usize, j: usize) -> usize {
    j % COLUMNS * 2 + s % 2
}
