//! Groups of rows, each with weights of its own, in one call: the experts of a layer.

use super::{MixedJob, Right, RunMixed};
use crate::epilogue::{Epilogue, Finish};
use crate::matrix::{Mat, MatMut};
use crate::pool::Pool;
use crate::scratch::Scratch;
use half::bf16;

/// Rows `ends[g - 1]..ends[g]` of C = alpha · (the same rows of A) · (weights g) + beta · C, for every group g; the first
/// begins with row 0. A group may be empty; rows after the last are left alone.
pub struct GroupedJob<'a, U> {
    /// \[rows, k\].
    pub a: Mat<'a, bf16>,
    /// \[k, n\] each.
    pub weights: &'a [Right<'a>],
    /// The row after a group's last, ascending.
    pub ends: &'a [usize],
    /// \[rows, n\].
    pub c: MatMut<'a, U>,
    #[allow(missing_docs)]
    pub alpha: f32,
    #[allow(missing_docs)]
    pub beta: f32,
}

/// Multiplies group after group, each on all threads: weights of a group are what takes time, and all threads read them.
///
/// # Panics
/// If there are not as many ends as weights, they do not ascend or leave A, or extents do not belong together.
pub fn gemm_grouped<U: Finish<Sum = f32>>(
    job: GroupedJob<'_, U>,
    run: RunMixed<U>,
    pool: &Pool,
    threads: usize,
    scratch: &mut Scratch,
) {
    let ((rows, _), (c_rows, n)) = (job.a.extents(), job.c.extents());
    assert!(job.ends.len() == job.weights.len(), "{} ends for {} weights", job.ends.len(), job.weights.len());
    assert!(job.ends.is_sorted() && job.ends.last().is_none_or(|end| *end <= rows.min(c_rows)), "{:?}", job.ends);
    let mut first = 0;
    for (b, end) in job.weights.iter().zip(job.ends) {
        if *end > first {
            let c = job.c.ptr.wrapping_offset(first as isize * job.c.row);
            // SAFETY: these rows are inside C, which the job has to itself, and no other group's.
            let c = unsafe { MatMut::from_raw(c, (end - first, n), (job.c.row, job.c.col)) };
            let (a, epilogue) = (job.a.rows_from(first, end - first), Epilogue::default());
            run(MixedJob { a, b: *b, c, alpha: job.alpha, beta: job.beta, epilogue }, pool, threads, scratch);
        }
        first = *end;
    }
}
