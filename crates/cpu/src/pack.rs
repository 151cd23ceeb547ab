//! A block of an operand laid out as the micro-kernel reads it.

use crate::matrix::Mat;
use crate::simd::Element;

/// Columns of B side by side for each k, `width` to a panel, panel after panel; what is missing of the
/// last panel is 0. Rows k0.. of B (kc of them), columns j0.. (nc of them).
///
/// # Safety
/// 1. k0 + kc <= b.rows, j0 + nc <= b.cols.
/// 2. `to` has kc · nc.next_multiple_of(width) writable elements.
#[inline(always)]
pub unsafe fn pack_columns<T: Element>(
    b: &Mat<'_, T>,
    (k0, kc): (usize, usize),
    (j0, nc): (usize, usize),
    width: usize,
    to: *mut T,
) {
    for panel in (0..nc).step_by(width) {
        let cols = width.min(nc - panel);
        // SAFETY: panel <= nc, so this is inside the kc · nc.next_multiple_of(width) elements of 2.
        let to = unsafe { to.add(panel * kc) };
        let from = b.at(k0, j0 + panel);
        // SAFETY: by 1 the panel lies in B; by 2 there is room for kc · width.
        unsafe {
            if b.col == 1 {
                copy_rows(from, b.row, kc, cols, width, to);
            } else if b.row == 1 {
                turn(from, b.col, kc, cols, width, to);
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
unsafe fn copy_rows<T: Element>(from: *const T, step: isize, kc: usize, cols: usize, width: usize, to: *mut T) {
    for k in 0..kc {
        // SAFETY: as above.
        unsafe {
            let (from, to) = (from.offset(k as isize * step), to.add(k * width));
            if cols == width {
                std::ptr::copy_nonoverlapping(from, to, width);
            } else {
                for j in 0..width {
                    *to.add(j) = if j < cols { *from.add(j) } else { T::ZERO };
                }
            }
        }
    }
}

/// Steps of k that are turned at a time: a line of each column.
const AT_ONCE: usize = 16;

/// Each column is contiguous along k: blocks of 16 by 16 are turned.
///
/// # Safety
/// `from + k + j·step` is readable for k < kc, j < cols; `to` has kc · width elements.
#[inline(always)]
unsafe fn turn<T: Element>(from: *const T, step: isize, kc: usize, cols: usize, width: usize, to: *mut T) {
    let mut k = 0;
    while k < kc {
        let steps = AT_ONCE.min(kc - k);
        let mut j = 0;
        while j < width {
            let block = AT_ONCE.min(width - j);
            let there = cols.saturating_sub(j).min(block);
            if steps == AT_ONCE && there == AT_ONCE {
                let mut lines = [[T::ZERO; AT_ONCE]; AT_ONCE];
                for (c, line) in lines.iter_mut().enumerate() {
                    // SAFETY: j + c < cols, k + 16 <= kc.
                    *line =
                        unsafe { from.offset((j + c) as isize * step).add(k).cast::<[T; AT_ONCE]>().read_unaligned() };
                }
                for s in 0..AT_ONCE {
                    let turned: [T; AT_ONCE] = std::array::from_fn(|c| lines[c][s]);
                    // SAFETY: (k + s) · width + j + 16 <= kc · width.
                    unsafe { to.add((k + s) * width + j).cast::<[T; AT_ONCE]>().write_unaligned(turned) };
                }
            } else {
                for s in 0..steps {
                    for c in 0..block {
                        // SAFETY: c < there means j + c < cols; k + s < kc.
                        unsafe {
                            let value =
                                if c < there { *from.offset((j + c) as isize * step).add(k + s) } else { T::ZERO };
                            *to.add((k + s) * width + j + c) = value;
                        }
                    }
                }
            }
            j += block;
        }
        k += steps;
    }
}

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
