//! The way through a product on tiles: which operand is rows, which is columns.

use super::blocked::blocked;
use super::blocks::near;
use super::dot::single;
use super::few::few;
use super::output::{Output, Sink};
use super::packed::{PANEL, STEP};
use super::tile::ROWS;
use super::words::{along, columns_tile, rows_tile};
use super::{MixedJob, PackedTiles, Right};
use crate::cache::Caches;
use crate::matrix::Mat;
use crate::pool::Pool;
use crate::scratch::Scratch;
use half::bf16;

/// Tiles and the instructions around them are here, and may be used.
pub fn available() -> bool {
    super::dot::available() && crate::amx::available()
}

/// Where rows come from: a matrix of lines of k, or tiles laid out before, with which operands are swapped.
#[derive(Clone, Copy)]
pub enum Rows<'a> {
    Plain(Mat<'a, bf16>),
    Packed(&'a PackedTiles),
}

impl Rows<'_> {
    /// How many there are.
    pub fn count(&self) -> usize {
        match self {
            Rows::Plain(lines) => lines.rows,
            Rows::Packed(packed) => packed.extents().1,
        }
    }
}

/// Where columns come from: a matrix of lines of k that is laid out, or weights that are already.
#[derive(Clone, Copy)]
pub enum Columns<'a> {
    Plain(Mat<'a, bf16>),
    Packed(&'a PackedTiles),
}

impl Columns<'_> {
    /// How many there are, and the steps of k.
    pub fn extents(&self) -> (usize, usize) {
        match self {
            Columns::Plain(lines) => lines.extents(),
            Columns::Packed(packed) => (packed.extents().1, packed.extents().0),
        }
    }

    /// The tile of columns j.. (up to 16), steps from 32 · `step` on (up to 32): pairs of steps, or lines where operands are
    /// swapped.
    ///
    /// # Safety
    /// AVX-512 F, BW and VL are there; column j, a multiple of 16, and the step are inside; 1 KB is writable at `to`.
    pub unsafe fn tile(&self, j: usize, step: usize, to: *mut u8, swapped: bool) {
        // SAFETY: by the contract.
        unsafe {
            match self {
                Columns::Plain(lines) if swapped => rows_tile(lines, j, step * STEP, to),
                Columns::Plain(lines) => columns_tile(lines, j, step * STEP, to),
                Columns::Packed(_) => unreachable!("packed columns are used as they are"),
            }
        }
    }
}

/// Operations from which on a second thread pays for being woken.
const WORTH_THREADS: usize = 1 << 20;

/// Multiplies on up to `threads` threads of `pool`.
///
/// # Panics
/// If the extents do not belong together, or the machine has no tiles.
pub fn gemm_amx<U: Output>(job: MixedJob<'_, U>, pool: &Pool, threads: usize, scratch: &mut Scratch) {
    assert!(available(), "the machine has no tiles of bf16, or may not use them");
    let (m, n, k) = job.extents();
    if m == 0 || n == 0 {
        return;
    }
    if k == 0 || job.alpha == 0.0 {
        return job.write(0..m, |_, _| 0.0);
    }
    let threads = if m.saturating_mul(n).saturating_mul(k) < WORTH_THREADS { 1 } else { threads.max(1) };
    if single(&job, pool, threads, scratch) {
        return;
    }
    let (a, sink) = (job.a, Sink::of(&job));
    let b = match job.b {
        // Few enough rows to stay in a cache are read as they lie, past weights that stay in one too, of which there is
        // something for every thread.
        Right::Packed(packed)
            if along(&a)
                && m > ROWS
                && near(m, k)
                && n.div_ceil(PANEL) >= threads
                && n * k * size_of::<bf16>() <= Caches::of_this_machine().l2 / 2 =>
        {
            return blocked(Rows::Plain(a), Columns::Packed(packed), sink, pool, threads, scratch);
        }
        Right::Packed(packed) => return multiply(Rows::Packed(packed), a, sink, pool, threads, scratch),
        Right::Plain(b) => b.transposed(),
    };
    // Rows are read as they lie, so rows are what lies well, then what is larger.
    let turned = match (along(&a), along(&b)) {
        (true, false) => false,
        (false, true) => true,
        _ => n > m,
    };
    match turned {
        true => multiply(Rows::Plain(b), a, sink.transposed(), pool, threads, scratch),
        false => multiply(Rows::Plain(a), b, sink, pool, threads, scratch),
    }
}

/// The result has rows for rows, or, where they are packed, columns for rows.
fn multiply<U: Output>(
    rows: Rows<'_>,
    columns: Mat<'_, bf16>,
    sink: Sink<'_, U>,
    pool: &Pool,
    threads: usize,
    scratch: &mut Scratch,
) {
    match columns.rows <= ROWS {
        true => few(rows, columns, sink, pool, threads, scratch),
        false => blocked(rows, Columns::Plain(columns), sink, pool, threads, scratch),
    }
}
