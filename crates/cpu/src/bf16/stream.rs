//! Few rows against columns that lie along k: weights are read once, as they lie, and widened on the way into registers.

use crate::matrix::Mat;
use crate::pool::{Counter, Pool};
use crate::scratch::Space;
use crate::simd::Widen;
use half::bf16;

/// Rows that are worth it.
pub const MOST_ROWS: usize = 32;
/// Rows that share what is in registers.
const GROUP: usize = 8;
/// Columns that stay in the cache for all rows.
const BLOCK: usize = 8;
/// Bytes of weights that a thread takes at a time.
const PIECE: usize = 256 << 10;

/// Rows of f32, k elements each, and how many there are.
#[derive(Clone, Copy)]
pub struct Rows {
    pub first: Space<f32>,
    pub count: usize,
}

/// Sums of every row with every column; `columns` are rows here, contiguous along k. `sums` has as many rows as `rows`, each
/// as long as there are columns. The instruction set of `S` is there.
pub fn stream<S: Widen>(rows: Rows, columns: Mat<'_, bf16>, sums: Space<f32>, pool: &Pool, threads: usize) {
    let (n, k) = columns.extents();
    let taken = (PIECE / size_of::<bf16>() / k.max(1)).max(1).next_multiple_of(BLOCK);
    let counter = Counter::new(n.div_ceil(taken));
    pool.run(threads, &|_| {
        while let Some(piece) = counter.claim() {
            let end = n.min((piece + 1) * taken);
            for from in (piece * taken..end).step_by(BLOCK) {
                let to = end.min(from + BLOCK);
                for first in (0..rows.count).step_by(GROUP) {
                    // SAFETY: rows and columns are there; the claimed columns of the sums are this thread's.
                    unsafe {
                        let (a, out) = (rows.first.from(first * k), sums.from(first * n));
                        match rows.count - first {
                            1 => S::vectorize(|| group::<S, 1, 8>(a, &columns, (from, to), out)),
                            2 => S::vectorize(|| group::<S, 2, 4>(a, &columns, (from, to), out)),
                            3 => S::vectorize(|| group::<S, 3, 4>(a, &columns, (from, to), out)),
                            4 => S::vectorize(|| group::<S, 4, 4>(a, &columns, (from, to), out)),
                            5 => S::vectorize(|| group::<S, 5, 2>(a, &columns, (from, to), out)),
                            6 => S::vectorize(|| group::<S, 6, 2>(a, &columns, (from, to), out)),
                            7 => S::vectorize(|| group::<S, 7, 2>(a, &columns, (from, to), out)),
                            _ => S::vectorize(|| group::<S, GROUP, 2>(a, &columns, (from, to), out)),
                        }
                    }
                }
            }
        }
    });
}

/// M rows against some of the columns, R at a time.
///
/// # Safety
/// `S` is available and this is inlined into code compiled for it; `a` has M rows of k elements, `columns` the columns,
/// each contiguous; those of the M rows of `out` are this thread's.
#[inline(always)]
unsafe fn group<S: Widen, const M: usize, const R: usize>(
    a: *const f32,
    columns: &Mat<'_, bf16>,
    (from, to): (usize, usize),
    out: *mut f32,
) {
    let (n, k) = columns.extents();
    for j in (from..to).step_by(R) {
        let there = R.min(to - j);
        // SAFETY: columns that are not there are read as the last that is; the rest by the contract.
        unsafe {
            let right: [*const bf16; R] = std::array::from_fn(|r| columns.at(j + r.min(there - 1), 0));
            let mut sums = [[S::splat(0.0); R]; M];
            let mut s = 0;
            while s + S::LANES <= k {
                let rights: [S::V; R] = std::array::from_fn(|r| S::widen(right[r].add(s)));
                for i in 0..M {
                    let x = S::load(a.add(i * k + s));
                    for r in 0..R {
                        sums[i][r] = S::fma(x, rights[r], sums[i][r]);
                    }
                }
                s += S::LANES;
            }
            if s < k {
                let rights: [S::V; R] = std::array::from_fn(|r| S::widen_part(right[r].add(s), k - s));
                for i in 0..M {
                    let x = S::load_part(a.add(i * k + s), k - s);
                    for r in 0..R {
                        sums[i][r] = S::fma(x, rights[r], sums[i][r]);
                    }
                }
            }
            for i in 0..M {
                for r in 0..there {
                    *out.add(i * n + j + r) = S::sum(sums[i][r]);
                }
            }
        }
    }
}
