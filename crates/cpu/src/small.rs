//! Products that stay in the second-level cache: a thread takes a panel of columns and goes down all rows of A, which
//! are read where they lie. Nobody waits for anybody.

use crate::blocked::{LYING_BYTES, Source};
use crate::cache::Caches;
use crate::gemm::Tiles;
use crate::matrix::Mat;
use crate::micro::Ahead;
use crate::pack::pack_columns;
use crate::pool::{Pool, Rounds};
use crate::scratch::{Scratch, Space};
use crate::strip::{Strips, against, left, room};
use crate::target::Target;

/// A panel of columns stays in the first-level cache, A in the second, and every thread has columns.
pub fn is_small<S: Tiles>(a: &Mat<'_, S::T>, n: usize, threads: usize) -> bool {
    let (caches, (m, k)) = (Caches::of_this_machine(), a.extents());
    let size = size_of::<S::T>();
    // Other ways go through so many steps at once too: bits must not depend on the number of threads.
    let at_once = k * size <= LYING_BYTES;
    let fits = at_once && k * S::PANEL * size <= caches.l1 / 2 && m * k * size <= caches.l2 / 2;
    a.col == 1 && fits && n.div_ceil(S::PANEL) >= threads
}

/// Panel after panel against all rows, as [`is_small`] allows.
pub fn small<S: Tiles>(
    a: Mat<'_, S::T>,
    source: &Source<'_, S::T>,
    (target, n): (Target<S::T>, usize),
    (pool, threads): (&Pool, usize),
    scratch: &mut Scratch,
) {
    let (m, k) = a.extents();
    // Every thread goes down all of them.
    let strips = Strips::new(m, S::HEIGHT, 1);
    let own = (k * S::PANEL + room(S::HEIGHT, k)).next_multiple_of(1024);
    scratch.reserve(threads * own * size_of::<S::T>());
    // Shares that stay the same: what a thread wrote before is in its cache.
    let (space, panels) = (Space::<S::T>::of(scratch), Rounds::new(n.div_ceil(S::PANEL), threads));
    pool.run(threads, &|thread| {
        while let Some(panel) = panels.claim(thread, 0) {
            let (j, cols) = (panel * S::PANEL, S::PANEL.min(n - panel * S::PANEL));
            // SAFETY: 1 whoever calls has asked for the instruction set. 2 `thread` < `threads`, so its memory is inside and
            // its own; columns, rows and steps are inside B and A. 3 the claimed columns of C are this thread's.
            unsafe {
                let buffer = space.from(thread * own);
                let packed = match source {
                    Source::Packed(packed) => packed.block(0, j),
                    Source::Plain(b) => {
                        S::vectorize(|| pack_columns::<S>(b, (0, k), (j, cols), S::PANEL, buffer));
                        buffer.cast_const()
                    }
                };
                for strip in 0..strips.count {
                    let (i, rows) = strips.part(strip);
                    let left = left::<S>(&a, (i, rows), (0, k), buffer.add(k * S::PANEL));
                    against::<S>((left, rows), k, (packed, cols), |_| Ahead::nothing(packed), |_| target.part(i, j, 0));
                }
            }
        }
    });
}
