//! A single column: its products with rows that are read once, as they lie.

use super::output::{Output, Sink};
use super::packed::STEP;
use super::widened::gemm_widened;
use super::words::along;
use super::{MixedJob, Right};
use crate::matrix::Mat;
use crate::pool::{Pool, Rounds};
use crate::scratch::{Scratch, Space};
use crate::simd::avx512::F32x16;
use half::bf16;
use std::arch::x86_64::*;

/// Rows a thread takes at a time.
const CHUNK: usize = 64;
/// Rows that are read side by side.
const SIDE: usize = 4;
/// Bytes that are asked for ahead in each of them.
const AHEAD: usize = 1024;

/// The instructions of this file are here.
pub fn available() -> bool {
    is_x86_feature_detected!("avx512bf16")
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
}

/// Computes a job with a single row or column whose other operand lies along k, if it is one, and says so. There is
/// something to sum, and [`available`] has returned true.
pub fn single<U: Output>(job: &MixedJob<'_, U>, pool: &Pool, threads: usize, scratch: &mut Scratch) -> bool {
    let (a, Right::Plain(b), (m, n)) = (job.a, job.b, job.c.extents()) else { return false };
    let b = b.transposed();
    if m == 1 && along(&b) {
        dot(a, b, Sink::of(job).transposed(), pool, threads, scratch);
    } else if n == 1 && along(&a) {
        dot(b, a, Sink::of(job), pool, threads, scratch);
    } else {
        return false;
    }
    true
}

/// Products where there are no tiles: a single row or column by dot products of bf16, where the machine has them, and
/// everything else through f32.
///
/// # Panics
/// If the extents do not belong together, or the machine has no AVX-512.
pub fn gemm_dots<U: Output>(job: MixedJob<'_, U>, pool: &Pool, threads: usize, scratch: &mut Scratch) {
    let (m, n, k) = job.extents();
    let threads = threads.max(1);
    let something = m > 0 && n > 0 && k > 0 && job.alpha != 0.0;
    if !(something && available() && single(&job, pool, threads, scratch)) {
        gemm_widened::<F32x16, U>(job, pool, threads, scratch);
    }
}

/// `column` is one line of k, `rows` lie along k; element i of the result is row i of `sink`.
fn dot<U: Output>(
    column: Mat<'_, bf16>,
    rows: Mat<'_, bf16>,
    sink: Sink<'_, U>,
    pool: &Pool,
    threads: usize,
    scratch: &mut Scratch,
) {
    let (n, k) = rows.extents();
    let whole = k.next_multiple_of(STEP);
    scratch.reserve(whole * size_of::<bf16>());
    let space = Space::<bf16>::of(scratch);
    for s in 0..whole {
        // SAFETY: inside the memory; s < k inside the column. What is beyond is 0.
        unsafe { *space.from(s) = if s < k { *column.at(0, s) } else { bf16::ZERO } };
    }
    let chunks = Rounds::new(n.div_ceil(CHUNK), threads);
    pool.run(threads, &|thread| {
        while let Some(chunk) = chunks.claim(thread, 0) {
            for i in (chunk * CHUNK..n.min((chunk + 1) * CHUNK)).step_by(SIDE) {
                // SAFETY: whoever calls has asked for the instructions; rows are there, and the claimed elements of the result
                // this thread's.
                unsafe { side(&rows, i, space.from(0), &sink) };
            }
        }
    });
}

/// Up to [`SIDE`] rows from row i on.
///
/// # Safety
/// AVX-512 BF16 is there; row i is; the column has all steps, then zeros up to a whole register.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
unsafe fn side<U: Output>(rows: &Mat<'_, bf16>, i: usize, column: *const bf16, sink: &Sink<'_, U>) {
    let (n, k) = rows.extents();
    let there = SIDE.min(n - i);
    // Rows that are not there are read as the last that is.
    let lines: [*const bf16; SIDE] = std::array::from_fn(|r| rows.at(i + r.min(there - 1), 0));
    let mut sums = [_mm512_setzero_ps(); SIDE];
    // SAFETY: whole registers as far as they go, then the rest of the steps by a mask.
    unsafe {
        let numbers = |bits: __m512i| std::mem::transmute::<__m512i, __m512bh>(bits);
        let mut s = 0;
        while s + STEP <= k {
            let x = numbers(_mm512_loadu_si512(column.add(s).cast()));
            for r in 0..SIDE {
                let at = lines[r].add(s);
                _mm_prefetch::<_MM_HINT_T0>(at.cast::<i8>().wrapping_add(AHEAD));
                sums[r] = _mm512_dpbf16_ps(sums[r], numbers(_mm512_loadu_si512(at.cast())), x);
            }
            s += STEP;
        }
        if s < k {
            let mask = (1u32 << (k - s)) - 1;
            let x = numbers(_mm512_loadu_si512(column.add(s).cast()));
            for r in 0..SIDE {
                let row = numbers(_mm512_maskz_loadu_epi16(mask, lines[r].add(s).cast()));
                sums[r] = _mm512_dpbf16_ps(sums[r], row, x);
            }
        }
        for (r, sum) in sums.into_iter().enumerate().take(there) {
            sink.one(_mm512_reduce_add_ps(sum), i + r, 0);
        }
    }
}
