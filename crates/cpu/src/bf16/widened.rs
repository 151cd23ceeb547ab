//! Products of bf16 where there are no tiles: operands become f32, and the result is rounded in the end.

use super::{MixedJob, Right};
use crate::epilogue::Finish;
use crate::gemm::{Job, Tiles, gemm_with};
use crate::matrix::{Mat, MatMut};
use crate::pool::Pool;
use crate::scratch::Scratch;
use half::bf16;

/// Multiplies on up to `threads` threads of `pool`, with the f32 tiles of `S`.
///
/// # Panics
/// If the extents do not belong together, or the instruction set is not there.
pub fn gemm_widened<S: Tiles<T = f32>, U: Finish<Sum = f32>>(
    job: MixedJob<'_, U>,
    pool: &Pool,
    threads: usize,
    scratch: &mut Scratch,
) {
    let (m, n, k) = job.extents();
    if k == 0 || job.alpha == 0.0 {
        return job.write(|_, _| 0.0);
    }
    let a = widened(m, k, |i, s| job.a.at(i, s));
    // As weights lie, steps of k side by side.
    let b = match job.b {
        Right::Plain(b) => widened(n, k, |j, s| b.at(s, j)),
        Right::Packed(packed) => widened(n, k, |j, s| packed.at(s, j)),
    };
    let mut sums = vec![0f32; m * n];
    let view = "as many as rows by columns";
    gemm_with::<S>(
        Job {
            a: Mat::row_major(&a, m, k).expect(view),
            b: Mat::row_major(&b, n, k).expect(view).transposed(),
            c: MatMut::row_major(&mut sums, m, n).expect(view),
            alpha: 1.0,
            beta: 0.0,
        },
        pool,
        threads,
        scratch,
    );
    job.write(|i, j| job.alpha * sums[i * n + j]);
}

/// All elements as f32, row by row.
fn widened(rows: usize, cols: usize, at: impl Fn(usize, usize) -> *const bf16) -> Vec<f32> {
    // SAFETY: every place is inside its operand.
    (0..rows).flat_map(|i| (0..cols).map(move |j| (i, j))).map(|(i, j)| unsafe { *at(i, j) }.to_f32()).collect()
}
