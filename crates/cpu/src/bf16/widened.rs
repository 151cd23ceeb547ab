//! Products of bf16 where there are no tiles: few rows read the weights as they lie (`stream`); otherwise operands become
//! f32, the weights some columns at a time, and the result is rounded in the end.

use super::stream::{MOST_ROWS, Rows, stream};
use super::{MixedJob, Right};
use crate::epilogue::Finish;
use crate::gemm::{Job, Tiles, gemm_with};
use crate::matrix::{Mat, MatMut};
use crate::pool::{Counter, Pool};
use crate::scratch::{Scratch, Space};
use crate::simd::Widen;
use half::bf16;

/// Columns of weights that are f32 at a time: whatever the number of threads, so that sums do not depend on it.
const CHUNK: usize = 512;
/// Rows of results that a thread finishes at a time.
const FINISHED: usize = 4;

/// Multiplies on up to `threads` threads of `pool`, with the f32 tiles of `S`.
///
/// # Panics
/// If the extents do not belong together, or the instruction set is not there.
pub fn gemm_widened<S: Tiles<T = f32> + Widen, U: Finish<Sum = f32>>(
    job: MixedJob<'_, U>,
    pool: &Pool,
    threads: usize,
    scratch: &mut Scratch,
) {
    assert!(S::available(), "the machine lacks the kernel's instructions");
    let (m, n, k) = job.extents();
    if k == 0 || job.alpha == 0.0 {
        return job.write(0..m, |_, _| 0.0);
    }
    if m == 0 || n == 0 {
        return;
    }
    scratch.with_beside(|scratch, beside| {
        // Operands whose rows are one may be larger than memory.
        let bytes = || {
            let (of_a, of_chunk, of_sums) = (m.checked_mul(k)?, CHUNK.min(n).checked_mul(k)?, m.checked_mul(n)?);
            of_a.checked_add(of_chunk)?.checked_add(of_sums)?.checked_mul(size_of::<f32>())
        };
        beside.reserve(bytes().expect("sizes that fit the address space"));
        let (of_a, of_chunk) = (m * k, CHUNK.min(n) * k);
        let space = Space::<f32>::of(beside);
        // SAFETY: as much was reserved.
        let [chunk, sums] = unsafe { [space.part(of_a), space.part(of_a + of_chunk)] };
        let along_k = |b: &Mat<'_, bf16>| b.row == 1 || b.rows <= 1;
        match job.b {
            Right::Plain(b) if m <= MOST_ROWS && along_k(&b) => {
                lines::<S>(&job.a, space, pool, threads);
                stream::<S>(Rows { first: space, count: m }, b.transposed(), sums, pool, threads);
            }
            _ => {
                let a = widened::<S>(&job.a, space, pool, threads);
                for first in (0..n).step_by(CHUNK) {
                    let count = CHUNK.min(n - first);
                    let b = match &job.b {
                        Right::Plain(b) => {
                            let columns = b.transposed().rows_from(first, count).transposed();
                            widened::<S>(&columns, chunk, pool, threads)
                        }
                        Right::Packed(packed) => {
                            for (i, s) in (0..count).flat_map(|i| (0..k).map(move |s| (i, s))) {
                                // SAFETY: inside the weights, and inside what was reserved.
                                unsafe { *chunk.from(i * k + s) = (*packed.at(s, first + i)).to_f32() };
                            }
                            // SAFETY: just written.
                            unsafe { Mat::from_raw(chunk.from(0), (count, k), (k as isize, 1)) }.transposed()
                        }
                    };
                    // SAFETY: columns of the sums, which nobody else has.
                    let c = unsafe { MatMut::from_raw(sums.from(first), (m, count), (n as isize, 1)) };
                    gemm_with::<S>(Job { a, b, c, alpha: 1.0, beta: 0.0 }, pool, threads, scratch);
                }
            }
        }
        let (job, rows) = (Shared(&job), Counter::new(m.div_ceil(FINISHED)));
        pool.run(threads, &|_| {
            while let Some(taken) = rows.claim() {
                let job = &job;
                // SAFETY: the sums of all rows have been written.
                let sum = |i: usize, j: usize| job.0.alpha * unsafe { *sums.from(i * n + j) };
                job.0.write(taken * FINISHED..m.min((taken + 1) * FINISHED), sum);
            }
        });
    });
}

/// A job whose rows several threads finish.
struct Shared<'a, 'b, U>(&'a MixedJob<'b, U>);

// SAFETY: each thread writes rows of its own, and reads only them and what nobody writes.
unsafe impl<U> Sync for Shared<'_, '_, U> {}

/// A matrix as f32, its elements in the order in which they lie.
fn widened<'a, S: Widen>(view: &Mat<'_, bf16>, to: Space<f32>, pool: &Pool, threads: usize) -> Mat<'a, f32> {
    let turned = view.col != 1 && view.row == 1;
    let view = if turned { view.transposed() } else { *view };
    lines::<S>(&view, to, pool, threads);
    let (rows, cols) = view.extents();
    // SAFETY: every element was written just now.
    let wide = unsafe { Mat::from_raw(to.from(0).cast_const(), (rows, cols), (cols as isize, 1)) };
    if turned { wide.transposed() } else { wide }
}

/// Rows one after the other, as f32.
fn lines<S: Widen>(view: &Mat<'_, bf16>, to: Space<f32>, pool: &Pool, threads: usize) {
    let (rows, cols) = view.extents();
    let counter = Counter::new(rows);
    let line = |i: usize| {
        // SAFETY: inside the view; the row's place is this thread's.
        unsafe {
            let (from, to) = (view.at(i, 0), to.from(i * cols));
            if view.col == 1 || cols <= 1 {
                let whole = cols / S::LANES * S::LANES;
                for s in (0..whole).step_by(S::LANES) {
                    S::store(to.add(s), S::widen(from.add(s)));
                }
                S::store_part(to.add(whole), S::widen_part(from.add(whole), cols - whole), cols - whole);
            } else {
                (0..cols).for_each(|s| *to.add(s) = (*view.at(i, s)).to_f32());
            }
        }
    };
    // Waking threads takes longer than a few rows.
    let threads = if rows * cols < 1 << 16 { 1 } else { threads };
    pool.run(threads, &|_| {
        while let Some(i) = counter.claim() {
            // SAFETY: whoever calls has asked for the instruction set.
            unsafe { S::vectorize(|| line(i)) };
        }
    });
}
