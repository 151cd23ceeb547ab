//! A few rows of A, laid out in the first-level cache as the micro-kernel reads them.

use crate::gemm::Tiles;
use crate::matrix::Mat;
use crate::micro::{Ahead, Out, Rows, Sums, write};
use crate::pack::pack_columns;
use crate::simd::Element;
use std::mem::MaybeUninit;

/// Equal strips of `rows`, none higher than `most`, each of an even number but the last.
pub fn height(rows: usize, most: usize) -> usize {
    rows.div_ceil(rows.div_ceil(most).max(1)).next_multiple_of(2).max(2)
}

/// Rows, `row` elements apart, that may be read side by side where they lie: of those that fall on one another in the
/// first-level cache no more than it holds beside what else goes through it.
pub fn lying_height<S: Tiles>(row: isize) -> usize {
    const WAY: usize = 4096;
    const TOGETHER: usize = 8;
    let apart = (row.unsigned_abs() * size_of::<S::T>()).max(1);
    // The largest power of two in the distance, at least a line: how many different places there are.
    let places = WAY / (1 << apart.trailing_zeros().min(12)).clamp(64, WAY);
    S::HEIGHT.min(TOGETHER * places)
}

/// Elements a strip of `rows` rows and `kc` steps takes.
pub fn room(rows: usize, kc: usize) -> usize {
    rows.next_multiple_of(2) * kc
}

/// Lays rows first..end of A out at `to`, in strips of `mr` rows one after the other, steps k0.. (`kc` of them).
///
/// # Safety
/// Rows and steps are inside A; `to` has [`room`] for every strip; `S` is available.
pub unsafe fn lay<S: Tiles>(
    a: &Mat<'_, S::T>,
    (first, end, mr): (usize, usize, usize),
    (k0, kc): (usize, usize),
    to: *mut S::T,
) {
    let turned = a.transposed();
    // Where rows lie side by side a few steps of all strips are taken at a time, so that each line is read once.
    let at_once = if a.row == 1 { STEPS_AT_ONCE } else { kc };
    for k in (0..kc).step_by(at_once) {
        for i in (first..end).step_by(mr) {
            let (rows, steps) = (mr.min(end - i), at_once.min(kc - k));
            let width = rows.next_multiple_of(2);
            // SAFETY: by the contract; strips begin `room` apart, and steps `width` apart in them.
            unsafe {
                let to = to.add((i - first) / mr * room(mr, kc) + k * width);
                S::vectorize(|| pack_columns::<S>(&turned, (k0 + k, steps), (i, rows), width, to));
            }
        }
    }
}

/// Steps whose lines stay in the first-level cache while all strips of a group take what they need.
const STEPS_AT_ONCE: usize = 16;

/// Room for the sums of a tile, as large as any.
#[repr(align(64))]
struct Aside([MaybeUninit<u8>; MOST_SUMS]);
const MOST_SUMS: usize = 16 * 128;

/// Rows of A as a tile takes them.
#[derive(Clone, Copy)]
pub enum Left<T> {
    /// Laid out as a strip.
    Laid(*const T),
    /// Where they lie.
    Lying(Rows<T>),
}

/// Rows i.. of A, steps k0.., as a tile takes them: where they lie if that can be, else laid out at `to`.
///
/// # Safety
/// As for [`lay`], with room for one strip.
pub unsafe fn left<S: Tiles>(
    a: &Mat<'_, S::T>,
    (i, rows): (usize, usize),
    (k0, kc): (usize, usize),
    to: *mut S::T,
) -> Left<S::T> {
    if a.col == 1 && rows.is_multiple_of(2) {
        return Left::Lying(Rows { ptr: a.at(i, k0), row: a.row });
    }
    // SAFETY: by the contract.
    unsafe { lay::<S>(a, (i, i + rows, rows), (k0, kc), to) };
    Left::Laid(to)
}

/// A strip against packed columns, panel by panel; `out` gives where a column goes, `ahead` what each panel asks for.
///
/// # Safety
/// 1. `S` is available; a strip that was laid out has `rows` rows and kc steps; rows that lie in A are as many, of an
///    even number, with kc steps each.
/// 2. `packed` holds kc steps of `cols` columns in panels.
/// 3. What `out` gives for a column is the thread's own for all rows, as [`write()`] asks.
pub unsafe fn against<S: Tiles>(
    (left, rows): (Left<S::T>, usize),
    kc: usize,
    (packed, cols): (*const S::T, usize),
    ahead: impl Fn(usize) -> Ahead,
    out: impl Fn(usize) -> Out<S::T>,
) {
    const { assert!(S::HEIGHT * S::PANEL * size_of::<S::T>() <= MOST_SUMS) };
    let mut aside = Aside([const { MaybeUninit::uninit() }; MOST_SUMS]);
    let aside = Sums { ptr: aside.0.as_mut_ptr().cast::<S::T>(), row: S::PANEL as isize, adds: false };
    let even = rows.is_multiple_of(2);
    for j in (0..cols).step_by(S::PANEL) {
        let width = S::PANEL.min(cols - j);
        let (wide, next, out) = (width > S::LANES, j + S::PANEL, out(j));
        if next < cols {
            // SAFETY: `S` is available; what is asked for need not be there.
            unsafe { S::vectorize(|| ask::<S>(&out, (rows, S::PANEL))) };
        }
        // A whole tile whose sums are the result goes there at once.
        let whole = even && (width == S::PANEL || width == S::LANES);
        let plain = out.col == 1 && out.alpha == S::T::ONE && (out.beta == S::T::ZERO || out.beta == S::T::ONE);
        // SAFETY: by the contract; j · kc is where the panel begins; there is room for the sums of any tile.
        unsafe {
            let panel = packed.add(j * kc);
            let direct = whole && plain;
            let sums = match direct {
                true => Sums { ptr: out.ptr, row: out.row, adds: out.beta != S::T::ZERO },
                false => aside,
            };
            match left {
                Left::Laid(strip) => S::tile(rows, wide)(kc, strip, panel, &ahead(j), sums),
                Left::Lying(lying) => S::lying(rows, wide)(kc, lying, panel, sums),
            }
            if !direct {
                write::<S>(aside.ptr, S::PANEL, (rows, width), out);
            }
        }
    }
}

/// Asks for the lines of C right of a tile, where the next one goes.
///
/// # Safety
/// `S` is available, and this is inlined into code compiled for it.
#[inline(always)]
unsafe fn ask<S: Tiles>(out: &Out<S::T>, (rows, width): (usize, usize)) {
    if out.col == 1 {
        for i in 0..rows {
            let row = out.ptr.cast_const().wrapping_offset(i as isize * out.row).wrapping_add(width);
            for line in 0..width * size_of::<S::T>() / 64 {
                // SAFETY: by the contract.
                unsafe { S::prefetch(row.wrapping_add(line * 64 / size_of::<S::T>())) };
            }
        }
    }
}
