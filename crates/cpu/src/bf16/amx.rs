//! The way through a product on tiles: which operand is rows, which is columns.

use super::blocked::blocked;
use super::dot::single;
use super::few::few;
use super::output::{Output, Sink};
use super::tile::ROWS;
use super::words::along;
use super::{MixedJob, PackedTiles, Right};
use crate::matrix::Mat;
use crate::pool::Pool;
use crate::scratch::Scratch;
use half::bf16;

/// Tiles and the instructions around them are here, and may be used.
pub fn available() -> bool {
    super::dot::available() && crate::amx::available()
}

/// Where rows come from: a matrix of lines of k, or tiles laid out before.
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
        Right::Packed(packed) => {
            return multiply(Rows::Packed(packed), a, sink.transposed(), pool, threads, scratch);
        }
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
        false => blocked(rows, columns, sink, pool, threads, scratch),
    }
}
