//! A block of an operand laid out as the micro-kernel reads it.

use crate::matrix::Mat;
use crate::simd::{Element, Simd};

/// Columns of B side by side for each k, `width` to a panel, panel after panel; what is missing of the
/// last panel is 0. Rows k0.. of B (kc of them), columns j0.. (nc of them).
///
/// # Safety
/// 0. `S` is available and this is inlined into code compiled for it.
/// 1. k0 + kc <= b.rows, j0 + nc <= b.cols.
/// 2. `to` has kc · nc.next_multiple_of(width) writable elements.
#[inline(always)]
pub unsafe fn pack_columns<S: Simd>(
    b: &Mat<'_, S::T>,
    (k0, kc): (usize, usize),
    (j0, nc): (usize, usize),
    width: usize,
    to: *mut S::T,
) {
    for panel in (0..nc).step_by(width) {
        let cols = width.min(nc - panel);
        // SAFETY: panel <= nc, so this is inside the kc · nc.next_multiple_of(width) elements of 2.
        let to = unsafe { to.add(panel * kc) };
        let from = b.at(k0, j0 + panel);
        // SAFETY: by 1 the panel lies in B; by 2 there is room for kc · width.
        unsafe {
            if b.col == 1 {
                copy_rows::<S>(from, b.row, kc, cols, width, to);
            } else if b.row == 1 {
                turn::<S>(from, b.col, kc, cols, width, to);
            } else {
                gather(from, (b.row, b.col), kc, cols, width, to);
            }
        }
    }
}

/// Rows are neighbours in memory: each k is a copy.
///
/// # Safety
/// `from + k·step + j` is readable for k < kc, j < cols; `to` has kc · width elements.
#[inline(always)]
unsafe fn copy_rows<S: Simd>(from: *const S::T, step: isize, kc: usize, cols: usize, width: usize, to: *mut S::T) {
    for k in 0..kc {
        let (from, to) = (from.wrapping_offset(k as isize * step), to.wrapping_add(k * width));
        let mut j = 0;
        while j < width {
            let (there, room) = (cols.saturating_sub(j).min(S::LANES), S::LANES.min(width - j));
            // SAFETY: `there` columns are readable from j on, `room` places writable.
            unsafe {
                if there == S::LANES {
                    S::store(to.add(j), S::load(from.add(j)));
                } else {
                    S::store_part(to.add(j), S::load_part(from.wrapping_add(j), there), room);
                }
            }
            j += S::LANES;
        }
    }
}

/// Each column is contiguous along k: blocks of a vector's width are turned in registers.
///
/// # Safety
/// `from + k + j·step` is readable for k < kc, j < cols; `to` has kc · width elements.
#[inline(always)]
unsafe fn turn<S: Simd>(from: *const S::T, step: isize, kc: usize, cols: usize, width: usize, to: *mut S::T) {
    // Few columns at a time: more than the machine follows side by side would come late.
    for j in (0..width).step_by(S::LANES) {
        let there = cols.saturating_sub(j).min(S::LANES);
        for k in (0..kc).step_by(S::LANES) {
            let steps = S::LANES.min(kc - k);
            // SAFETY: columns j.. and steps k.. are inside as far as they are there; so are their places. What is asked for
            // need not be there.
            unsafe {
                let (from, to) = (from.wrapping_offset(j as isize * step).wrapping_add(k), to.add(k * width + j));
                for c in 0..there {
                    S::prefetch(from.wrapping_offset(c as isize * step).wrapping_add(AHEAD * S::LANES));
                }
                if (there, width, steps) == (8, 8, S::LANES) && S::turn_eight((from, step), to) {
                    continue;
                }
                S::turn((from, step), (there, steps), (to, width), S::LANES.min(width - j));
            }
        }
    }
}

/// Vectors ahead that columns are asked for while they are turned.
const AHEAD: usize = 4;

/// Any strides.
///
/// # Safety
/// `from + k·steps.0 + j·steps.1` is readable for k < kc, j < cols; `to` has kc · width elements.
#[inline(always)]
unsafe fn gather<T: Element>(from: *const T, steps: (isize, isize), kc: usize, cols: usize, width: usize, to: *mut T) {
    for k in 0..kc {
        for j in 0..width {
            // SAFETY: as above.
            unsafe {
                let at = from.wrapping_offset(k as isize * steps.0).wrapping_offset(j as isize * steps.1);
                *to.add(k * width + j) = if j < cols { *at } else { T::ZERO };
            }
        }
    }
}
