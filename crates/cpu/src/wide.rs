//! Few rows of A against rows of B that are contiguous: B is read once, as it lies, four steps of k at a
//! time, and sums wait in the first-level cache.

use crate::gemm::Job;
use crate::matrix::Mat;
use crate::pool::{Counter, Pool};
use crate::scratch::{Scratch, Space};
use crate::simd::{Element, Simd};
use crate::target::Target;

/// Elements of all sums of a piece.
const PIECE: usize = 4096;
/// Steps of k at a time.
const STEPS: usize = 4;

/// Up to eight rows of A.
pub fn few_rows_wide<S: Simd>(job: Job<'_, S::T>, pool: &Pool, threads: usize, scratch: &mut Scratch) {
    let (m, n) = (job.a.rows, job.b.cols);
    scratch.reserve(threads * PIECE * size_of::<S::T>());
    let sums = Space::<S::T>::of(scratch);
    let (a, b, target) = (job.a, job.b, job.target());
    let columns = PIECE / m / S::LANES * S::LANES;
    let counter = Counter::new(n.div_ceil(columns));
    pool.run(threads, &|thread| {
        while let Some(piece) = counter.claim() {
            let (from, to) = (piece * columns, n.min((piece + 1) * columns));
            // SAFETY: `gemm_with` has asked for the instruction set; `thread` < `threads` has memory of its own; rows
            // of A and columns of B are inside, and the claimed columns of C are this thread's.
            unsafe {
                let sums = sums.from(thread * PIECE);
                match m {
                    1 => S::vectorize(|| add::<S, 1>(&a, &b, from, to, sums, &target)),
                    2 => S::vectorize(|| add::<S, 2>(&a, &b, from, to, sums, &target)),
                    3 => S::vectorize(|| add::<S, 3>(&a, &b, from, to, sums, &target)),
                    4 => S::vectorize(|| add::<S, 4>(&a, &b, from, to, sums, &target)),
                    5 => S::vectorize(|| add::<S, 5>(&a, &b, from, to, sums, &target)),
                    6 => S::vectorize(|| add::<S, 6>(&a, &b, from, to, sums, &target)),
                    7 => S::vectorize(|| add::<S, 7>(&a, &b, from, to, sums, &target)),
                    _ => S::vectorize(|| add::<S, 8>(&a, &b, from, to, sums, &target)),
                }
            }
        }
    });
}

/// M rows of A against columns `from..to` of B.
///
/// # Safety
/// `S` is available and this is inlined into code compiled for it; a has M rows, `to` <= columns of b, whose
/// rows are contiguous; `sums` has M · (to - from) elements; the columns of C are this thread's.
#[inline(always)]
unsafe fn add<S: Simd, const M: usize>(
    a: &Mat<'_, S::T>,
    b: &Mat<'_, S::T>,
    from: usize,
    to: usize,
    sums: *mut S::T,
    target: &Target<S::T>,
) {
    let (k, width) = (a.cols, to - from);
    // SAFETY: s + t < k, j < width, i < M throughout.
    unsafe {
        for at in 0..M * width {
            *sums.add(at) = S::T::ZERO;
        }
        let mut s = 0;
        while s + STEPS <= k {
            steps::<S, M, STEPS>(a, b, s, from, width, sums);
            s += STEPS;
        }
        while s < k {
            steps::<S, M, 1>(a, b, s, from, width, sums);
            s += 1;
        }
        for i in 0..M {
            for j in 0..width {
                let out = target.part(i, from + j, 0);
                out.put(out.ptr, *sums.add(i * width + j));
            }
        }
    }
}

/// T steps of k from s on, added to the sums.
///
/// # Safety
/// As for [`add`]; s + T <= k.
#[inline(always)]
unsafe fn steps<S: Simd, const M: usize, const T: usize>(
    a: &Mat<'_, S::T>,
    b: &Mat<'_, S::T>,
    s: usize,
    from: usize,
    width: usize,
    sums: *mut S::T,
) {
    // SAFETY: rows s.. of B and columns s.. of A are there; the last vector is loaded in part.
    unsafe {
        let rows: [*const S::T; T] = std::array::from_fn(|t| b.at(s + t, from));
        let factors: [[S::V; T]; M] = std::array::from_fn(|i| std::array::from_fn(|t| S::splat(*a.at(i, s + t))));
        let mut j = 0;
        while j + S::LANES <= width {
            let rights: [S::V; T] = std::array::from_fn(|t| S::load(rows[t].add(j)));
            for i in 0..M {
                let at = sums.add(i * width + j);
                let mut sum = S::load(at);
                for t in 0..T {
                    sum = S::fma(factors[i][t], rights[t], sum);
                }
                S::store(at, sum);
            }
            j += S::LANES;
        }
        if j < width {
            let count = width - j;
            let rights: [S::V; T] = std::array::from_fn(|t| S::load_part(rows[t].add(j), count));
            for i in 0..M {
                let at = sums.add(i * width + j);
                let mut sum = S::load_part(at, count);
                for t in 0..T {
                    sum = S::fma(factors[i][t], rights[t], sum);
                }
                S::store_part(at, sum, count);
            }
        }
    }
}
