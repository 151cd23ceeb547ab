//! Small results with long sums: parts of k are summed apart and added in order.
//!
//! How many parts there are follows from the product alone, so bits do not depend on the number of threads.

use crate::gemm::{Job, Tiles, whole};
use crate::matrix::{Mat, MatMut};
use crate::pool::{Pool, Rounds};
use crate::scratch::{Scratch, Space};
use crate::simd::Element;
use std::cell::RefCell;

/// Tiles from which on there is enough to share without cutting sums.
const ENOUGH_TILES: usize = 16;
/// Steps of k that are worth a part of their own.
const LEAST_STEPS: usize = 4096;
const MOST_PARTS: usize = 16;

/// Into how many parts the sums of a product are cut.
pub fn parts<S: Tiles>((m, n, k): (usize, usize, usize)) -> usize {
    let tiles = m.div_ceil(S::HEIGHT).saturating_mul(n.div_ceil(S::PANEL));
    if tiles >= ENOUGH_TILES { 1 } else { (k / LEAST_STEPS).clamp(1, MOST_PARTS) }
}

thread_local! {
    /// What a thread packs its parts into, kept between products.
    static OWN: RefCell<Scratch> = const { RefCell::new(Scratch::new()) };
}

/// Sums `parts` parts of k, each as a product of its own, then adds them in order.
pub fn split<S: Tiles>(job: Job<'_, S::T>, parts: usize, pool: &Pool, threads: usize, scratch: &mut Scratch) {
    let ((m, k), n) = (job.a.extents(), job.b.extents().1);
    let each = (m * n).next_multiple_of(64 / size_of::<S::T>());
    scratch.reserve(parts * each * size_of::<S::T>());
    let (space, target, a, b) = (Space::<S::T>::of(scratch), job.target(), job.a, job.b);
    let (summing, adding) = (Rounds::new(parts, threads), Rounds::new(m, threads));
    pool.run(threads, &|thread| {
        while let Some(part) = summing.claim(thread, 0) {
            let (from, to) = (part * k / parts, (part + 1) * k / parts);
            // SAFETY: the steps are inside A and B; the sums have a place of their own.
            let part = unsafe {
                Job {
                    a: Mat::from_raw(a.at(0, from), (m, to - from), (a.row, a.col)),
                    b: Mat::from_raw(b.at(from, 0), (to - from, n), (b.row, b.col)),
                    c: MatMut::from_raw(space.from(part * each), (m, n), (n as isize, 1)),
                    alpha: S::T::ONE,
                    beta: S::T::ZERO,
                }
            };
            OWN.with_borrow_mut(|own| whole::<S>(part, pool, 1, own));
            summing.finish();
        }
        summing.wait(1);
        while let Some(i) = adding.claim(thread, 0) {
            for j in 0..n {
                // SAFETY: all parts are there; the element of C is this thread's, having been claimed.
                unsafe {
                    let mut sum = *space.from(i * n + j);
                    for part in 1..parts {
                        sum = sum.add(*space.from(part * each + i * n + j));
                    }
                    let out = target.part(i, j, 0);
                    out.put(out.ptr, sum);
                }
            }
            adding.finish();
        }
        adding.wait(1);
    });
}
