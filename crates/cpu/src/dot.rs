//! Few rows of A against columns of B that are contiguous along k: the wide operand is read once, as it
//! lies, and sums run along k in vectors.

use crate::gemm::Job;
use crate::matrix::Mat;
use crate::pool::{Counter, Pool};
use crate::scratch::Scratch;
use crate::simd::{Element, Simd};
use crate::target::Target;

/// Bytes of B that a thread takes at a time.
const PIECE: usize = 256 << 10;

/// Bytes ahead at which a row is asked for: what the machine does by itself begins anew on every page.
const AHEAD: usize = 512;

/// Up to eight rows of A.
pub fn few_rows<S: Simd>(job: Job<'_, S::T>, pool: &Pool, threads: usize, scratch: &mut Scratch) {
    let (m, k, n) = (job.a.rows, job.a.cols, job.b.cols);
    let mut a = job.a;
    if a.col != 1 {
        // Rows that are not contiguous are few: copied once.
        scratch.reserve(m * k * size_of::<S::T>());
        let to = scratch.as_mut_ptr().cast::<S::T>();
        for i in 0..m {
            for s in 0..k {
                // SAFETY: inside A; the memory has m · k elements.
                unsafe { *to.add(i * k + s) = *a.at(i, s) };
            }
        }
        // SAFETY: just written, and the scratch memory outlives the product.
        a = unsafe { Mat::from_raw(to, (m, k), (k as isize, 1)) };
    }
    let (b, target) = (job.b.transposed(), job.target());
    let columns = (PIECE / size_of::<S::T>() / k).max(1).next_multiple_of(8);
    let counter = Counter::new(n.div_ceil(columns));
    pool.run(threads, &|_| {
        while let Some(piece) = counter.claim() {
            let (from, to) = (piece * columns, n.min((piece + 1) * columns));
            // SAFETY: `gemm_with` has asked for the instruction set; rows of A and columns of B are inside, and
            // the claimed columns of C are this thread's.
            unsafe {
                // One closure for each number of rows: each is small enough to be compiled for the instruction set.
                match m {
                    1 => S::vectorize(|| sums::<S, 1, 8>(&a, &b, from, to, &target)),
                    2 => S::vectorize(|| sums::<S, 2, 6>(&a, &b, from, to, &target)),
                    3 => S::vectorize(|| sums::<S, 3, 4>(&a, &b, from, to, &target)),
                    4 => S::vectorize(|| sums::<S, 4, 4>(&a, &b, from, to, &target)),
                    5 => S::vectorize(|| sums::<S, 5, 3>(&a, &b, from, to, &target)),
                    6 => S::vectorize(|| sums::<S, 6, 3>(&a, &b, from, to, &target)),
                    7 => S::vectorize(|| sums::<S, 7, 2>(&a, &b, from, to, &target)),
                    _ => S::vectorize(|| sums::<S, 8, 2>(&a, &b, from, to, &target)),
                }
            }
        }
    });
}

/// M rows of A against `from..to` of the columns, which are rows here, R at a time.
///
/// # Safety
/// `S` is available and this is inlined into code compiled for it; a has M rows, `to` <= rows of b, both
/// contiguous along k; the columns of C are this thread's.
#[inline(always)]
unsafe fn sums<S: Simd, const M: usize, const R: usize>(
    a: &Mat<'_, S::T>,
    b: &Mat<'_, S::T>,
    from: usize,
    to: usize,
    target: &Target<S::T>,
) {
    let k = a.cols;
    let mut j = from;
    while j < to {
        let there = R.min(to - j);
        // SAFETY: columns that are not there are read as the last that is; the rest by the contract.
        unsafe {
            let right: [*const S::T; R] = std::array::from_fn(|r| b.at(j + r.min(there - 1), 0));
            let left: [*const S::T; M] = std::array::from_fn(|i| a.at(i, 0));
            let mut sums = [[S::splat(S::T::ZERO); R]; M];
            let mut s = 0;
            while s + S::LANES <= k {
                let rights: [S::V; R] = std::array::from_fn(|r| {
                    let at = right[r].add(s);
                    S::prefetch(at.wrapping_add(AHEAD / size_of::<S::T>()));
                    S::load(at)
                });
                for i in 0..M {
                    let x = S::load(left[i].add(s));
                    for r in 0..R {
                        sums[i][r] = S::fma(x, rights[r], sums[i][r]);
                    }
                }
                s += S::LANES;
            }
            if s < k {
                let rights: [S::V; R] = std::array::from_fn(|r| S::load_part(right[r].add(s), k - s));
                for i in 0..M {
                    let x = S::load_part(left[i].add(s), k - s);
                    for r in 0..R {
                        sums[i][r] = S::fma(x, rights[r], sums[i][r]);
                    }
                }
            }
            for i in 0..M {
                for r in 0..R {
                    if r < there {
                        let out = target.part(i, j + r, 0);
                        out.put(out.ptr, S::sum(sums[i][r]));
                    }
                }
            }
        }
        j += R;
    }
}
