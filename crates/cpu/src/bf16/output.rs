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

/// How sums lie that are several tiles: of how many rows and columns of tiles they are, and how many tiles after one of them
/// the next one below and to the right comes.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    pub rows: usize,
    pub cols: usize,
    pub down: usize,
    pub right: usize,
}

impl Layout {
    /// Where the sums of a tile begin.
    fn tile(&self, row: usize, col: usize) -> usize {
        (row * self.down + col * self.right) * ROWS * ROWS
    }

    /// Rows and columns.
    pub fn extents(&self) -> (usize, usize) {
        (self.rows * ROWS, self.cols * ROWS)
    }
}

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

    /// Where so many rows and columns of sums from row i, column j on can be stored by the tiles themselves, and the bytes from
    /// row to row: where they are the result as they are, and its rows do not push one another out of the first-level cache.
    #[inline]
    pub fn direct(&self, (i, j): (usize, usize), (rows, cols): (usize, usize)) -> Option<(*mut f32, isize)> {
        let plain = self.alpha == 1.0 && self.beta == 0.0 && self.epilogue.is_none() && !self.streams;
        let (inside, apart) = (i + rows <= self.rows && j + cols <= self.cols, self.row * size_of::<U>() as isize);
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

    /// Whether so many rows and columns of sums from row i, column j on can be written line by line ([`Sink::put_line`]).
    #[inline]
    pub fn by_lines(&self, (i, j): (usize, usize), (rows, cols): (usize, usize)) -> bool {
        let plain = self.beta == 0.0 && self.epilogue.is_none() && (self.col == 1 || self.row == 1);
        plain && i + rows <= self.rows && j + cols <= self.cols
    }

    /// Row `across` of the result, or column where columns are what is contiguous, of sums of several tiles whose first is
    /// row i, column j. They come in order: tiles that lie the other way are turned where they lie when the first comes.
    ///
    /// # Safety
    /// As for [`Sink::put`], of all the tiles, which are writable; [`Sink::by_lines`] has said yes.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
    pub unsafe fn put_line(&self, sums: *mut f32, layout: &Layout, (i, j): (usize, usize), across: usize) {
        let (side, within) = (across / ROWS, across % ROWS);
        let (first, apart, count) = match self.col == 1 {
            true => (layout.tile(side, 0), layout.right, layout.cols),
            false => (layout.tile(0, side), layout.down, layout.rows),
        };
        let (i, j) = if self.col == 1 { (i + across, j) } else { (i, j + across) };
        let at = self.ptr.wrapping_offset(i as isize * self.row + j as isize * self.col);
        let alpha = _mm512_set1_ps(self.alpha);
        // SAFETY: by the contract.
        unsafe {
            if self.col != 1 && within == 0 {
                for part in 0..count {
                    let tile = sums.add(first + part * apart * ROWS * ROWS).cast();
                    turn(tile, 64, tile);
                }
            }
            let from = sums.add(first + within * ROWS);
            for part in 0..count {
                let values = _mm512_mul_ps(alpha, _mm512_load_ps(from.add(part * apart * ROWS * ROWS)));
                let at = at.add(part * ROWS);
                if self.streams { _mm512_stream_ps(at.cast(), values) } else { U::store(at, !0, values) }
            }
        }
    }

    /// How many of them there are.
    pub fn lines(&self, layout: &Layout) -> usize {
        if self.col == 1 { layout.rows * ROWS } else { layout.cols * ROWS }
    }

    /// Tile `tile` of sums of several whose first is row i, column j.
    ///
    /// # Safety
    /// As for [`Sink::put`].
    #[inline]
    pub unsafe fn put_tile(&self, sums: *const f32, layout: &Layout, (i, j): (usize, usize), tile: usize) {
        let (row, col) = (tile / layout.cols, tile % layout.cols);
        // SAFETY: by the contract.
        unsafe { self.put(sums.add(layout.tile(row, col)), i + row * ROWS, j + col * ROWS) };
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

    /// Asks for what the epilogue will read for so many rows and columns from row i, column j on.
    #[inline]
    pub fn ask(&self, (i, j): (usize, usize), (rows, cols): (usize, usize)) {
        let Some(epilogue) = &self.epilogue else { return };
        for part in [&epilogue.times, &epilogue.residual].into_iter().flatten() {
            // Neighbours share lines.
            let side = 64 / size_of::<U>();
            let (down, right) = if part.col == 1 { (1, side) } else { (side, 1) };
            for r in (0..rows).step_by(down) {
                for c in (0..cols).step_by(right) {
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
