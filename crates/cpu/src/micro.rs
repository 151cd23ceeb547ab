//! The micro-kernel: one tile of C in registers, for any instruction set.

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

/// The rows of A of a tile.
#[derive(Clone, Copy)]
pub struct Rows<T> {
    pub ptr: *const T,
    /// Elements from one row to the next; from one k to the next there is one.
    pub row: isize,
    /// Rows that are there; others are not read.
    pub count: usize,
    /// Rows the next tile will want, asked for meanwhile.
    pub next: *const T,
}

/// C\[rows x cols\] = alpha · A · B + beta · C over `kc` steps, rows <= MR, cols <= NV · LANES.
///
/// Sums run over k ascending, one fused step each, in the element type.
///
/// # Safety
/// 1. `S::available()` has returned true, and this is inlined into code compiled for `S`.
/// 2. `a.ptr + i·a.row + k` is readable for i < a.count, k < kc, and a.count >= 1.
/// 3. `b` has kc · NV · LANES readable elements: for each k those of all columns, padded by anything.
/// 4. `out.ptr + i·out.row + j·out.col` is writable for i < a.count, j < cols, by this thread alone,
///    and overlaps neither operand; initialised where beta is not 0.
#[inline(always)]
pub unsafe fn tile<S: Simd, const MR: usize, const NV: usize>(
    kc: usize,
    a: Rows<S::T>,
    b: *const S::T,
    cols: usize,
    out: Out<S::T>,
) {
    // SAFETY: by the contract; rows that are not there are read as the last that is.
    unsafe {
        let rows: [*const S::T; MR] =
            std::array::from_fn(|i| a.ptr.wrapping_offset(i.min(a.count - 1) as isize * a.row));
        let mut sums = [[S::splat(S::T::ZERO); NV]; MR];
        let mut b = b;
        let line = 64 / size_of::<S::T>();
        let mut k = 0;
        while k < kc {
            let end = (k + line).min(kc);
            S::prefetch(a.next.wrapping_add(k));
            while k < end {
                let right: [S::V; NV] = std::array::from_fn(|v| S::load(b.add(v * S::LANES)));
                for i in 0..MR {
                    let left = S::splat(*rows[i].add(k));
                    for v in 0..NV {
                        sums[i][v] = S::fma(left, right[v], sums[i][v]);
                    }
                }
                b = b.add(NV * S::LANES);
                k += 1;
            }
        }
        store::<S, MR, NV>(&sums, a.count, cols, out);
    }
}

/// The same with A packed: for each k the MR elements of all rows, padded by anything.
///
/// # Safety
/// As for [`tile`], but for 2: `a` has kc · MR readable elements, `count` of each MR are rows.
#[inline(always)]
pub unsafe fn tile_packed<S: Simd, const MR: usize, const NV: usize>(
    kc: usize,
    a: *const S::T,
    count: usize,
    b: *const S::T,
    cols: usize,
    out: Out<S::T>,
) {
    // SAFETY: by the contract.
    unsafe {
        let mut sums = [[S::splat(S::T::ZERO); NV]; MR];
        let (mut a, mut b) = (a, b);
        for _ in 0..kc {
            let right: [S::V; NV] = std::array::from_fn(|v| S::load(b.add(v * S::LANES)));
            for i in 0..MR {
                let left = S::splat(*a.add(i));
                for v in 0..NV {
                    sums[i][v] = S::fma(left, right[v], sums[i][v]);
                }
            }
            (a, b) = (a.add(MR), b.add(NV * S::LANES));
        }
        store::<S, MR, NV>(&sums, count, cols, out);
    }
}

/// # Safety
/// As point 4 of [`tile`].
#[inline(always)]
unsafe fn store<S: Simd, const MR: usize, const NV: usize>(
    sums: &[[S::V; NV]; MR],
    rows: usize,
    cols: usize,
    out: Out<S::T>,
) {
    // SAFETY: only elements of rows and columns that are there are touched.
    unsafe {
        if out.col != 1 {
            // A copy: the address of the sums themselves would keep them out of registers.
            let copy = *sums;
            return scatter::<S, MR, NV>(&copy, rows, cols, out);
        }
        let (alpha, beta) = (S::splat(out.alpha), S::splat(out.beta));
        let reads = out.beta != S::T::ZERO;
        for i in 0..MR {
            if i >= rows {
                break;
            }
            let to = out.ptr.offset(i as isize * out.row);
            for v in 0..NV {
                let at = to.add(v * S::LANES);
                let value = S::mul(alpha, sums[i][v]);
                if cols >= (v + 1) * S::LANES {
                    let value = if reads { S::fma(beta, S::load(at), value) } else { value };
                    S::store(at, value);
                } else if cols > v * S::LANES {
                    let count = cols - v * S::LANES;
                    let value = if reads { S::fma(beta, S::load_part(at, count), value) } else { value };
                    S::store_part(at, value, count);
                }
            }
        }
    }
}

/// Columns that are not neighbours, one element at a time.
///
/// # Safety
/// As point 4 of [`tile`].
#[inline(never)]
unsafe fn scatter<S: Simd, const MR: usize, const NV: usize>(
    sums: &[[S::V; NV]; MR],
    rows: usize,
    cols: usize,
    out: Out<S::T>,
) {
    let lanes = |i: usize, j: usize| {
        // SAFETY: a vector is LANES elements without padding; j / LANES < NV since j < cols.
        unsafe { *(&raw const sums[i][j / S::LANES]).cast::<S::T>().add(j % S::LANES) }
    };
    for j in 0..cols {
        for i in 0..rows {
            let to = out.ptr.wrapping_offset(i as isize * out.row).wrapping_offset(j as isize * out.col);
            // SAFETY: i < rows and j < cols.
            unsafe { out.put(to, lanes(i, j)) };
        }
    }
}
