//! Sums in f32 on their way to a result of either type.

use super::MixedJob;
use super::tile::ROWS;
use super::words::{mask16, turn, turn_each};
use crate::epilogue::{Beside, Epilogue, Finish, LANES};
use crate::matrix::Mat;
use half::bf16;
use std::arch::x86_64::*;

/// Bytes apart at which lines have the same place in the first-level cache.
const PAGE: isize = 4096;

/// Lines of 32 by 32 sums.
pub const LINES: usize = 64;

/// An element of a result.
pub trait Output: Finish<Sum = f32> {
    /// The type of the sums: tiles can be stored as they are, and sixteen fill a line of the cache, which can then be
    /// written past it.
    const AS_SUMS: bool;

    /// Sixteen as f32; those that the mask leaves out are not read.
    ///
    /// # Safety
    /// AVX-512 F, BW, VL and BF16 are there; the others are readable.
    unsafe fn load(from: *const Self, mask: __mmask16) -> __m512;

    /// Sixteen rounded to the type; those that the mask leaves out are not written.
    ///
    /// # Safety
    /// As for `load`, writable.
    unsafe fn store(to: *mut Self, mask: __mmask16, values: __m512);
}

impl Output for f32 {
    const AS_SUMS: bool = true;

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
    unsafe fn load(from: *const f32, mask: __mmask16) -> __m512 {
        // SAFETY: by the contract.
        unsafe { _mm512_maskz_loadu_ps(mask, from) }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
    unsafe fn store(to: *mut f32, mask: __mmask16, values: __m512) {
        // SAFETY: by the contract.
        unsafe { _mm512_mask_storeu_ps(to, mask, values) };
    }
}

impl Output for bf16 {
    const AS_SUMS: bool = false;

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
    unsafe fn load(from: *const bf16, mask: __mmask16) -> __m512 {
        // SAFETY: by the contract.
        let bits = _mm512_cvtepu16_epi32(unsafe { _mm256_maskz_loadu_epi16(mask, from.cast()) });
        _mm512_castsi512_ps(_mm512_slli_epi32::<16>(bits))
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
    unsafe fn store(to: *mut bf16, mask: __mmask16, values: __m512) {
        // SAFETY: both are 256 bits of numbers.
        let rounded: __m256i = unsafe { std::mem::transmute(_mm512_cvtneps_pbh(values)) };
        // SAFETY: by the contract.
        unsafe { _mm256_mask_storeu_epi16(to.cast(), mask, rounded) };
    }
}

/// Where sums go, with rows and columns as the sums have them.
#[derive(Clone, Copy)]
pub struct Sink<'a, U> {
    pub ptr: *mut U,
    pub row: isize,
    pub col: isize,
    /// Extents of the whole result.
    pub rows: usize,
    pub cols: usize,
    pub alpha: f32,
    pub beta: f32,
    /// Whole lines are written past the caches; whoever does so fences in the end.
    pub streams: bool,
    /// Of its own extents: transposed with it; none where the sums are the result.
    pub epilogue: Option<Epilogue<'a, U>>,
}
// SAFETY: a plain address; whoever writes through it argues that elements are its own.
unsafe impl<U> Send for Sink<'_, U> {}
// SAFETY: as above.
unsafe impl<U> Sync for Sink<'_, U> {}

impl<'a, U: Output> Sink<'a, U> {
    /// The result of a job.
    pub fn of(job: &MixedJob<'a, U>) -> Sink<'a, U> {
        let (c, (rows, cols)) = (&job.c, job.c.extents());
        let epilogue = (!job.epilogue.is_none()).then_some(job.epilogue);
        let (alpha, beta) = (job.alpha, job.beta);
        Sink { ptr: c.ptr, row: c.row, col: c.col, rows, cols, alpha, beta, streams: false, epilogue }
    }

    /// The same, transposed.
    pub fn transposed(self) -> Sink<'a, U> {
        let epilogue = self.epilogue.map(Epilogue::transposed);
        Sink { row: self.col, col: self.row, rows: self.cols, cols: self.rows, epilogue, ..self }
    }

    /// Past the caches where whole lines are written and nothing is read.
    pub fn streaming(self) -> Sink<'a, U> {
        let (apart, along) = if self.col == 1 { (self.row, self.cols) } else { (self.col, self.rows) };
        let aligned = self.ptr.addr().is_multiple_of(64) && apart.unsigned_abs().is_multiple_of(ROWS);
        let one = self.col == 1 || self.row == 1;
        Sink { streams: U::AS_SUMS && self.beta == 0.0 && aligned && one && along >= ROWS, ..self }
    }

    /// Where `side` by `side` sums from row i, column j on can be stored by the tiles themselves, and the bytes from row to
    /// row: where they are the result as they are, and its rows do not push one another out of the first-level cache.
    #[inline]
    pub fn direct(&self, i: usize, j: usize, side: usize) -> Option<(*mut f32, isize)> {
        let plain = self.alpha == 1.0 && self.beta == 0.0 && self.epilogue.is_none() && !self.streams;
        let (inside, apart) = (i + side <= self.rows && j + side <= self.cols, self.row * size_of::<U>() as isize);
        let lies = self.col == 1 && apart % PAGE != 0;
        let at = self.ptr.wrapping_offset(i as isize * self.row + j as isize * self.col);
        (U::AS_SUMS && plain && inside && lies).then_some((at.cast(), apart))
    }

    /// A tile of sums, 16 by 16 in one piece, whose first is row i, column j.
    ///
    /// # Safety
    /// AVX-512 F, BW, VL and BF16 are there; the tile is readable, aligned to a line; its elements of the result are this
    /// thread's, and initialised where beta is not 0.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
    pub unsafe fn put(&self, tile: *const f32, i: usize, j: usize) {
        if i >= self.rows || j >= self.cols {
            return;
        }
        let (rows, cols) = ((self.rows - i).min(ROWS), (self.cols - j).min(ROWS));
        let at = self.ptr.wrapping_offset(i as isize * self.row + j as isize * self.col);
        let plain = self.beta == 0.0 && self.epilogue.is_none() && (self.col == 1 || self.row == 1);
        // SAFETY: by the contract.
        unsafe {
            if plain && (rows, cols) == (ROWS, ROWS) {
                self.whole(tile, at);
            } else if self.col == 1 || self.cols == 1 {
                for r in 0..rows {
                    let at =
                        Line { at: at.wrapping_offset(r as isize * self.row), i: i + r, j, count: cols, down: false };
                    self.line(at, _mm512_load_ps(tile.add(r * ROWS)));
                }
            } else if self.row == 1 || self.rows == 1 {
                turn_each(tile.cast(), 64, |c, sums| {
                    if c < cols {
                        let at = at.wrapping_offset(c as isize * self.col);
                        self.line(Line { at, i, j: j + c, count: rows, down: true }, _mm512_castsi512_ps(sums));
                    }
                });
            } else {
                for r in 0..rows {
                    for c in 0..cols {
                        self.one(*tile.add(r * ROWS + c), i + r, j + c);
                    }
                }
            }
        }
    }

    /// Whether 32 by 32 sums from row i, column j on can be written line by line ([`Sink::put_line`]).
    #[inline]
    pub fn by_lines(&self, i: usize, j: usize) -> bool {
        let plain = self.beta == 0.0 && self.epilogue.is_none() && (self.col == 1 || self.row == 1);
        plain && i + 2 * ROWS <= self.rows && j + 2 * ROWS <= self.cols
    }

    /// Line `line` of the [`LINES`] of 32 by 32 sums, four tiles in one piece whose first sum is row i, column j: sixteen
    /// neighbours of the result, which is written row by row. Lines come in order: tiles whose lines are columns are turned
    /// where they lie when the first of them comes.
    ///
    /// # Safety
    /// As for [`Sink::put`], of all four tiles, which are writable; [`Sink::by_lines`] has said yes.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
    pub unsafe fn put_line(&self, sums: *mut f32, (i, j): (usize, usize), line: usize) {
        const SUMS: usize = ROWS * ROWS;
        let (across, half) = (line / 2, line % 2);
        let (side, within) = (across / ROWS, across % ROWS);
        // SAFETY: by the contract.
        unsafe {
            let (from, at) = if self.col == 1 {
                let at = self.ptr.wrapping_offset((i + across) as isize * self.row + (j + half * ROWS) as isize);
                (sums.add((2 * side + half) * SUMS + within * ROWS), at)
            } else {
                if within == 0 && half == 0 {
                    for tile in [side, side + 2] {
                        let tile = sums.add(tile * SUMS).cast();
                        turn(tile, 64, tile);
                    }
                }
                let at = self.ptr.wrapping_offset((i + half * ROWS) as isize + (j + across) as isize * self.col);
                (sums.add((2 * half + side) * SUMS + within * ROWS), at)
            };
            let values = _mm512_mul_ps(_mm512_set1_ps(self.alpha), _mm512_load_ps(from));
            if self.streams { _mm512_stream_ps(at.cast(), values) } else { U::store(at, !0, values) }
        }
    }

    /// A whole tile that nothing is added to, rows or columns of the result as neighbours.
    ///
    /// # Safety
    /// As for [`Sink::put`].
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
    unsafe fn whole(&self, tile: *const f32, at: *mut U) {
        let alpha = _mm512_set1_ps(self.alpha);
        // SAFETY: by the contract.
        let put = |at: *mut U, sums: __m512| unsafe {
            let values = _mm512_mul_ps(alpha, sums);
            if self.streams { _mm512_stream_ps(at.cast(), values) } else { U::store(at, !0, values) }
        };
        // SAFETY: by the contract.
        unsafe {
            if self.col == 1 {
                for r in 0..ROWS {
                    put(at.wrapping_offset(r as isize * self.row), _mm512_load_ps(tile.add(r * ROWS)));
                }
            } else {
                turn_each(tile.cast(), 64, |c, sums| {
                    put(at.wrapping_offset(c as isize * self.col), _mm512_castsi512_ps(sums));
                });
            }
        }
    }

    /// Asks for what the epilogue will read for `side` rows and columns from row i, column j on.
    #[inline]
    pub fn ask(&self, i: usize, j: usize, side: usize) {
        let Some(epilogue) = &self.epilogue else { return };
        for part in [&epilogue.times, &epilogue.residual].into_iter().flatten() {
            // Neighbours share lines.
            let (rows, cols) = if part.col == 1 { (side, 1) } else { (1, side) };
            for r in 0..rows {
                for c in 0..cols {
                    // SAFETY: what is asked for need not be there.
                    unsafe { _mm_prefetch::<_MM_HINT_T0>(part.at(i + r, j + c).cast()) };
                }
            }
        }
    }

    /// One sum to its place.
    ///
    /// # Safety
    /// As for [`Sink::put`].
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
    pub unsafe fn one(&self, sum: f32, i: usize, j: usize) {
        let at = self.ptr.wrapping_offset(i as isize * self.row + j as isize * self.col);
        // SAFETY: by the contract.
        unsafe { self.line(Line { at, i, j, count: 1, down: false }, _mm512_set1_ps(sum)) };
    }

    /// Sums to neighbours.
    ///
    /// # Safety
    /// As for [`Sink::put`].
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
    unsafe fn line(&self, line: Line<U>, sums: __m512) {
        let (at, mask) = (line.at, mask16(line.count));
        let mut values = _mm512_mul_ps(_mm512_set1_ps(self.alpha), sums);
        // SAFETY: by the contract.
        unsafe {
            if self.beta != 0.0 {
                values = _mm512_fmadd_ps(_mm512_set1_ps(self.beta), U::load(at, mask), values);
            }
            if let Some(epilogue) = &self.epilogue {
                values = line.finished(epilogue, values);
            }
            if self.streams && line.count == ROWS {
                _mm512_stream_ps(at.cast(), values);
            } else {
                U::store(at, mask, values);
            }
        }
    }
}

/// Neighbours of the result: the first, `count` of them, in a row or down a column.
struct Line<U> {
    at: *mut U,
    i: usize,
    j: usize,
    count: usize,
    down: bool,
}

impl<U: Output> Line<U> {
    /// What an epilogue makes of their sums.
    ///
    /// # Safety
    /// As for [`Sink::put`]; the epilogue has the result's extents.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
    unsafe fn finished(&self, epilogue: &Epilogue<'_, U>, sums: __m512) -> __m512 {
        // SAFETY: by the contract; the arrays are registers.
        unsafe {
            let beside = Beside {
                scale: self.part(&epilogue.scale),
                bias: self.part(&epilogue.bias),
                times: self.part(&epilogue.times),
                residual: self.part(&epilogue.residual),
            };
            let mut results = std::mem::transmute::<__m512, [f32; LANES]>(sums);
            epilogue.of(&mut results, &beside);
            std::mem::transmute::<[f32; LANES], __m512>(results)
        }
    }

    /// What of a part of the epilogue belongs to them; lanes that nobody takes are 0.
    ///
    /// # Safety
    /// As for [`Line::finished`].
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
    unsafe fn part(&self, part: &Option<Mat<'_, U>>) -> Option<[f32; LANES]> {
        let part = part.as_ref()?;
        let step = if self.down { part.row } else { part.col };
        let at = part.at(self.i, self.j);
        // SAFETY: by the contract.
        unsafe {
            let lanes = match step {
                1 => U::load(at, mask16(self.count)),
                0 => _mm512_set1_ps((*at).widen()),
                _ => {
                    let mut lanes = [0f32; LANES];
                    for (lane, to) in lanes.iter_mut().enumerate().take(self.count) {
                        *to = (*at.wrapping_offset(lane as isize * step)).widen();
                    }
                    return Some(lanes);
                }
            };
            Some(std::mem::transmute::<__m512, [f32; LANES]>(lanes))
        }
    }
}
