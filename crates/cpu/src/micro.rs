//! The micro-kernel: one tile of sums in registers, and what becomes of them.

use crate::simd::{Element, Simd};

/// Where a tile goes: `out = alpha · tile + beta · out`; with beta = 0 nothing is read there.
#[derive(Clone, Copy)]
pub struct Out<T> {
    pub ptr: *mut T,
    pub row: isize,
    pub col: isize,
    pub alpha: T,
    pub beta: T,
}

impl<T: Element> Out<T> {
    /// One element: `to` = alpha · sum + beta · `to`.
    ///
    /// # Safety
    /// `to` is writable by this thread alone, and initialised where beta is not 0.
    #[inline(always)]
    pub unsafe fn put(&self, to: *mut T, sum: T) {
        let value = self.alpha.mul(sum);
        // SAFETY: by the contract.
        unsafe { *to = if self.beta == T::ZERO { value } else { self.beta.mul_add(*to, value) } };
    }
}

/// Memory that will be wanted soon, asked for line by line meanwhile; it need not be readable.
///
/// Every four steps of k four lines `row` bytes apart are asked for, then it goes on by `jump` bytes, and every
/// sixteen steps by `back` more.
#[derive(Clone, Copy)]
pub struct Ahead {
    pub ptr: *const u8,
    pub row: isize,
    pub jump: isize,
    pub back: isize,
}

impl Ahead {
    /// The same line over and over, which costs next to nothing.
    pub fn nothing<T>(somewhere: *const T) -> Ahead {
        Ahead { ptr: somewhere.cast(), row: 0, jump: 0, back: 0 }
    }

    /// Lines of four rows, `row` elements apart, as far as a tile's steps go.
    pub fn steps<T>(ptr: *const T, row: isize) -> Ahead {
        let size = size_of::<T>() as isize;
        Ahead { ptr: ptr.cast(), row: row * size, jump: 4 * size, back: 0 }
    }

    /// Lines of `rows` rows, `row` elements apart, side by side.
    pub fn rows<T>(ptr: *const T, row: isize, rows: usize) -> Ahead {
        let row = row * size_of::<T>() as isize;
        match rows {
            0 => Ahead::nothing(ptr),
            1 => Ahead { ptr: ptr.cast(), row: 0, jump: 0, back: 64 },
            2..=4 => Ahead { ptr: ptr.cast(), row, jump: 0, back: 64 },
            _ => Ahead { ptr: ptr.cast(), row, jump: 4 * row, back: 64 - 16 * row },
        }
    }
}

/// Contiguous memory asked for by several tiles, each a share of it; divided once, since dividing takes as long as
/// several steps of a tile.
#[derive(Clone, Copy)]
pub struct Shares {
    bytes: usize,
    jump: usize,
}

impl Shares {
    /// `count` elements in `parts`, by tiles of `steps` steps, as much as these have the time for: at most four lines
    /// every four steps.
    pub fn new<T>(count: usize, parts: usize, steps: usize) -> Shares {
        let bytes = (count * size_of::<T>()).div_ceil(parts.max(1)).next_multiple_of(64);
        Shares { bytes, jump: bytes.div_ceil((steps / 4).max(1)).next_multiple_of(32).clamp(32, 256) }
    }

    /// A part of what begins at `ptr`.
    pub fn of<T>(&self, ptr: *const T, part: usize) -> Ahead {
        let row = if self.jump > 64 { 64 } else { 0 };
        Ahead { ptr: ptr.cast::<u8>().wrapping_add(part * self.bytes), row, jump: self.jump as isize, back: 0 }
    }
}

/// Where a tile's sums go as they are.
#[derive(Clone, Copy)]
pub struct Sums<T> {
    pub ptr: *mut T,
    /// Elements from one row to the next; columns are neighbours.
    pub row: isize,
    /// They begin with what is there, not with 0.
    pub adds: bool,
    /// Where those of the next tile go, rows as far apart; it need not be there.
    pub next: *const T,
}

/// Multiplies a strip of A by a panel of B: for each step of k the strip has its rows side by side, the panel
/// its columns. Sums run over k ascending, one fused step each, in the element type.
///
/// # Safety
/// The machine has its instructions; `kc` steps of the strip, as high as the tile, and of the panel are readable,
/// and the sums are writable as far as the tile goes, by this thread alone, initialised where it adds, and apart from
/// both operands.
pub type TileFn<T> = unsafe fn(kc: usize, strip: *const T, panel: *const T, ahead: &Ahead, sums: Sums<T>);

/// Rows of A where they lie, contiguous along k.
#[derive(Clone, Copy)]
pub struct Rows<T> {
    pub ptr: *const T,
    /// Elements from one row to the next.
    pub row: isize,
}

/// The same with rows of A where they lie; all of a tile's rows must be there.
///
/// # Safety
/// As for [`TileFn`], with kc elements of every row in place of the strip.
pub type LyingFn<T> = unsafe fn(kc: usize, rows: Rows<T>, panel: *const T, sums: Sums<T>);

/// The tile for any instruction set: MR rows by NV vectors of panels `WIDTH` columns wide.
///
/// # Safety
/// As for [`TileFn`].
pub unsafe fn tile<S: Simd, const MR: usize, const NV: usize, const WIDTH: usize>(
    kc: usize,
    strip: *const S::T,
    panel: *const S::T,
    _: &Ahead,
    to: Sums<S::T>,
) {
    // SAFETY: by the contract; a step of a strip has its rows side by side.
    unsafe { S::vectorize(|| multiply::<S, MR, NV, WIDTH>(kc, (strip, 1, MR as isize), panel, to)) };
}

/// The tile of rows where they lie, for any instruction set.
///
/// # Safety
/// As for [`LyingFn`].
pub unsafe fn lying<S: Simd, const MR: usize, const NV: usize, const WIDTH: usize>(
    kc: usize,
    rows: Rows<S::T>,
    panel: *const S::T,
    to: Sums<S::T>,
) {
    // SAFETY: by the contract; steps of a row are neighbours.
    unsafe { S::vectorize(|| multiply::<S, MR, NV, WIDTH>(kc, (rows.ptr, rows.row, 1), panel, to)) };
}

/// Row i of A at step k is at `a + i · row + k · step`.
///
/// # Safety
/// As for [`TileFn`], and this is inlined into code compiled for S.
#[inline(always)]
unsafe fn multiply<S: Simd, const MR: usize, const NV: usize, const WIDTH: usize>(
    kc: usize,
    (mut a, row, step): (*const S::T, isize, isize),
    mut b: *const S::T,
    to: Sums<S::T>,
) {
    // SAFETY: by the contract.
    unsafe {
        let at = |i: usize, v: usize| to.ptr.offset(i as isize * to.row).add(v * S::LANES);
        let mut sums = [[S::splat(S::T::ZERO); NV]; MR];
        if to.adds {
            for i in 0..MR {
                for v in 0..NV {
                    sums[i][v] = S::load(at(i, v));
                }
            }
        }
        for _ in 0..kc {
            let right: [S::V; NV] = std::array::from_fn(|v| S::load(b.add(v * S::LANES)));
            for i in 0..MR {
                let left = S::splat(*a.offset(i as isize * row));
                for v in 0..NV {
                    sums[i][v] = S::fma(left, right[v], sums[i][v]);
                }
            }
            (a, b) = (a.wrapping_offset(step), b.add(WIDTH));
        }
        for i in 0..MR {
            for v in 0..NV {
                S::store(at(i, v), sums[i][v]);
            }
        }
    }
}

/// Rows of sums, `width` apart, brought to where they go.
///
/// # Safety
/// `S` is available; `sums` has `rows` rows of `cols` elements; `out.ptr + i·out.row + j·out.col` is writable for all
/// of them, by this thread alone, initialised where beta is not 0, and apart from the sums.
pub unsafe fn write<S: Simd>(sums: *const S::T, width: usize, (rows, cols): (usize, usize), out: Out<S::T>) {
    if out.col != 1 {
        // SAFETY: by the contract.
        return unsafe { write_turned(sums, width, (rows, cols), out) };
    }
    // SAFETY: by the contract; whole vectors as far as there are columns for them, then a part of one.
    unsafe {
        S::vectorize(|| {
            let (alpha, beta) = (S::splat(out.alpha), S::splat(out.beta));
            let reads = out.beta != S::T::ZERO;
            for i in 0..rows {
                let (from, to) = (sums.add(i * width), out.ptr.offset(i as isize * out.row));
                let mut j = 0;
                while j + S::LANES <= cols {
                    let value = S::mul(alpha, S::load(from.add(j)));
                    let value = if reads { S::fma(beta, S::load(to.add(j)), value) } else { value };
                    S::store(to.add(j), value);
                    j += S::LANES;
                }
                if j < cols {
                    let value = S::mul(alpha, S::load_part(from.add(j), cols - j));
                    let value = if reads { S::fma(beta, S::load_part(to.add(j), cols - j), value) } else { value };
                    S::store_part(to.add(j), value, cols - j);
                }
            }
        });
    }
}

/// The same to where columns are the far ones.
///
/// # Safety
/// As for [`write()`].
unsafe fn write_turned<T: Element>(sums: *const T, width: usize, (rows, cols): (usize, usize), out: Out<T>) {
    for j in 0..cols {
        let to = out.ptr.wrapping_offset(j as isize * out.col);
        for i in 0..rows {
            // SAFETY: i < rows and j < cols.
            unsafe { out.put(to.wrapping_offset(i as isize * out.row), *sums.add(i * width + j)) };
        }
    }
}
