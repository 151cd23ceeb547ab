//! A few rows of A, laid out in the first-level cache as the micro-kernel reads them.

use crate::gemm::Tiles;
use crate::matrix::Mat;
use crate::micro::{Ahead, Out, Rows, Sums, write};
use crate::pack::pack_columns;
use crate::simd::Element;
use std::mem::MaybeUninit;
use std::ops::Range;

/// Rows cut into strips that are as equal as pairs of rows allow, so that threads with as many strips have as much to do.
#[derive(Clone, Copy)]
pub struct Strips {
    pub rows: usize,
    pub count: usize,
    /// Rows of the highest strip, rounded up to pairs.
    pub height: usize,
}

impl Strips {
    /// Strips of at most `most` rows, an even number; as many for each thread, unless they got much lower by it.
    pub fn new(rows: usize, most: usize, threads: usize) -> Strips {
        let (least, pairs) = (rows.div_ceil(most).max(1), rows.div_ceil(2).max(1));
        let shared = least.next_multiple_of(threads.max(1));
        let count = if rows * 4 >= shared * most * 3 { shared } else { least };
        Strips { rows, count, height: 2 * pairs.div_ceil(count) }
    }

    /// The first row of a strip, and how many it has.
    pub fn part(&self, strip: usize) -> (usize, usize) {
        let first = |strip: usize| self.rows.min(2 * (strip * self.rows.div_ceil(2) / self.count));
        (first(strip), first(strip + 1) - first(strip))
    }
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

/// Lays some strips of A out at `to`, each at a place of [`room`] for the highest, steps k0.. (`kc` of them).
///
/// # Safety
/// Rows and steps are inside A; `to` has that room for every strip; `S` is available.
pub unsafe fn lay<S: Tiles>(
    a: &Mat<'_, S::T>,
    (strips, some): (&Strips, Range<usize>),
    (k0, kc): (usize, usize),
    to: *mut S::T,
) {
    // Where rows lie side by side a few steps of all strips are taken at a time, so that each line is read once.
    let at_once = if a.row == 1 { STEPS_AT_ONCE } else { kc };
    for k in (0..kc).step_by(at_once) {
        if a.row == 1 {
            let ((first, _), (last, rows)) = (strips.part(some.start), strips.part(some.end - 1));
            // SAFETY: by the contract.
            unsafe { S::vectorize(|| ask_steps::<S>(a, (first, last + rows), (k0 + k + AHEAD, at_once))) };
        }
        for (place, strip) in some.clone().enumerate() {
            let (first, rows) = strips.part(strip);
            // SAFETY: by the contract.
            unsafe {
                let to = to.add(place * room(strips.height, kc) + k * rows.next_multiple_of(2));
                lay_rows::<S>(a, (first, rows), (k0 + k, at_once.min(kc - k)), to);
            }
        }
    }
}

/// Lays rows i.. of A out side by side for each step.
///
/// # Safety
/// As for [`lay`].
unsafe fn lay_rows<S: Tiles>(a: &Mat<'_, S::T>, (i, rows): (usize, usize), (k0, kc): (usize, usize), to: *mut S::T) {
    // SAFETY: by the contract.
    unsafe {
        S::vectorize(|| pack_columns::<S>(&a.transposed(), (k0, kc), (i, rows), rows.next_multiple_of(2), to));
    }
}

/// Steps whose lines stay in the first-level cache while all strips of a group take what they need.
const STEPS_AT_ONCE: usize = 8;
/// Steps ahead that lines are asked for while strips are laid out.
const AHEAD: usize = 16;

/// Asks for rows from..to of some steps, where rows lie side by side; they need not be there.
///
/// # Safety
/// `S` is available, and this is inlined into code compiled for it.
#[inline(always)]
unsafe fn ask_steps<S: Tiles>(a: &Mat<'_, S::T>, (from, to): (usize, usize), (k0, steps): (usize, usize)) {
    let line = 64 / size_of::<S::T>();
    for k in k0..k0 + steps {
        for i in (from..to).step_by(line) {
            // SAFETY: by the contract.
            unsafe { S::prefetch(a.at(i, k)) };
        }
    }
}

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
    unsafe { lay_rows::<S>(a, (i, rows), (k0, kc), to) };
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
    let ptr = aside.0.as_mut_ptr().cast::<S::T>();
    let aside = Sums { ptr, row: S::PANEL as isize, adds: false, next: ptr };
    let even = rows.is_multiple_of(2);
    for j in (0..cols).step_by(S::PANEL) {
        let width = S::PANEL.min(cols - j);
        let (vectors, out) = (width.div_ceil(S::LANES), out(j));
        // A whole tile whose sums are the result goes there at once.
        let whole = even && width.is_multiple_of(S::LANES);
        let plain = out.col == 1 && out.alpha == S::T::ONE && (out.beta == S::T::ZERO || out.beta == S::T::ONE);
        // SAFETY: by the contract; j · kc is where the panel begins; there is room for the sums of any tile.
        unsafe {
            let panel = packed.add(j * kc);
            let direct = whole && plain;
            // Sums that begin with what is there do so wherever strips end, or bits would depend on where that is.
            let begins = plain && out.beta == S::T::ONE;
            let sums = match direct {
                true => Sums { ptr: out.ptr, row: out.row, adds: begins, next: next_sums::<S>(&out, rows, (j, cols)) },
                false => Sums { adds: begins, ..aside },
            };
            if !direct && begins {
                fetch::<S>(&out, (rows, width), aside.ptr);
            }
            match left {
                Left::Laid(strip) => S::tile(rows, vectors)(kc, strip, panel, &ahead(j), sums),
                Left::Lying(lying) => S::lying(rows, vectors)(kc, lying, panel, sums),
            }
            if !direct {
                let beta = if begins { S::T::ZERO } else { out.beta };
                write::<S>(aside.ptr, S::PANEL, (rows, width), Out { beta, ..out });
            }
        }
    }
}

/// Where the tile after the one at column j begins: beside it, or where the strip below does.
fn next_sums<S: Tiles>(out: &Out<S::T>, rows: usize, (j, cols): (usize, usize)) -> *const S::T {
    match j + S::PANEL < cols {
        true => out.ptr.wrapping_add(S::PANEL),
        false => out.ptr.wrapping_offset(rows as isize * out.row).wrapping_sub(j),
    }
}

/// A part of a result to where a tile's sums are, 0 around it.
///
/// # Safety
/// The part is readable, and there is room for a whole tile of as many rows, rounded up to pairs.
unsafe fn fetch<S: Tiles>(from: &Out<S::T>, (rows, width): (usize, usize), to: *mut S::T) {
    for i in 0..rows.next_multiple_of(2) {
        for j in 0..S::PANEL {
            // SAFETY: by the contract.
            unsafe {
                let at = from.ptr.wrapping_offset(i as isize * from.row + j as isize * from.col);
                *to.add(i * S::PANEL + j) = if i < rows && j < width { *at } else { S::T::ZERO };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strips_cover_all_rows_and_are_nearly_equal() {
        for (rows, most, threads) in [(1, 14, 2), (15, 14, 1), (597, 14, 2), (512, 14, 2), (30, 14, 2), (256, 8, 3)] {
            let strips = Strips::new(rows, most, threads);
            let parts: Vec<_> = (0..strips.count).map(|strip| strips.part(strip)).collect();
            assert!(parts.windows(2).all(|two| two[0].0 + two[0].1 == two[1].0), "{parts:?}");
            assert_eq!(parts.iter().map(|part| part.1).sum::<usize>(), rows);
            let (least, largest) = (parts.iter().map(|p| p.1).min().unwrap(), parts.iter().map(|p| p.1).max().unwrap());
            assert!(largest <= strips.height && strips.height <= most && largest - least <= 3, "{parts:?}");
        }
        // As many for each thread, unless they got much lower by it.
        assert_eq!([Strips::new(597, 14, 2).count, Strips::new(30, 14, 2).count], [44, 3]);
    }
}
