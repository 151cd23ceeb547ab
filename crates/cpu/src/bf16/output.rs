//! Sums in f32 on their way to a result of either type.

use super::tile::ROWS;
use super::words::{mask16, turned};
use crate::simd::Number;
use half::bf16;
use std::arch::x86_64::*;

/// An element of a result.
pub trait Output: Number {
    /// Sixteen of them fill a line of the cache, which can then be written past it.
    const FILLS_LINE: bool;

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
    const FILLS_LINE: bool = true;

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
    const FILLS_LINE: bool = false;

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
pub struct Sink<U> {
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
}
// SAFETY: a plain address; whoever writes through it argues that elements are its own.
unsafe impl<U> Send for Sink<U> {}
// SAFETY: as above.
unsafe impl<U> Sync for Sink<U> {}

impl<U: Output> Sink<U> {
    /// The same, transposed.
    pub fn transposed(self) -> Sink<U> {
        Sink { row: self.col, col: self.row, rows: self.cols, cols: self.rows, ..self }
    }

    /// Past the caches where whole lines are written and nothing is read.
    pub fn streaming(self) -> Sink<U> {
        let (apart, along) = if self.col == 1 { (self.row, self.cols) } else { (self.col, self.rows) };
        let aligned = self.ptr.addr().is_multiple_of(64) && apart.unsigned_abs().is_multiple_of(ROWS);
        let one = self.col == 1 || self.row == 1;
        Sink { streams: U::FILLS_LINE && self.beta == 0.0 && aligned && one && along >= ROWS, ..self }
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
        // SAFETY: by the contract.
        unsafe {
            if self.col == 1 || self.cols == 1 {
                for r in 0..rows {
                    self.line(at.wrapping_offset(r as isize * self.row), _mm512_load_ps(tile.add(r * ROWS)), cols);
                }
            } else if self.row == 1 || self.rows == 1 {
                let mut words = [_mm512_setzero_si512(); 16];
                for (r, word) in words.iter_mut().enumerate() {
                    *word = _mm512_castps_si512(_mm512_load_ps(tile.add(r * ROWS)));
                }
                for (c, word) in turned(words).into_iter().enumerate().take(cols) {
                    self.line(at.wrapping_offset(c as isize * self.col), _mm512_castsi512_ps(word), rows);
                }
            } else {
                for r in 0..rows {
                    for c in 0..cols {
                        let at = at.wrapping_offset(r as isize * self.row + c as isize * self.col);
                        self.line(at, _mm512_set1_ps(*tile.add(r * ROWS + c)), 1);
                    }
                }
            }
        }
    }

    /// One sum to row i of the first column.
    ///
    /// # Safety
    /// As for [`Sink::put`].
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
    pub unsafe fn put_one(&self, sum: f32, i: usize) {
        // SAFETY: by the contract.
        unsafe { self.line(self.ptr.wrapping_offset(i as isize * self.row), _mm512_set1_ps(sum), 1) };
    }

    /// The first `count` sums of a register to neighbours.
    ///
    /// # Safety
    /// As for [`Sink::put`].
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
    unsafe fn line(&self, at: *mut U, sums: __m512, count: usize) {
        let mut values = _mm512_mul_ps(_mm512_set1_ps(self.alpha), sums);
        // SAFETY: by the contract.
        unsafe {
            if self.beta != 0.0 {
                values = _mm512_fmadd_ps(_mm512_set1_ps(self.beta), U::load(at, mask16(count)), values);
            }
            if self.streams && count == ROWS {
                _mm512_stream_ps(at.cast(), values);
            } else {
                U::store(at, mask16(count), values);
            }
        }
    }
}
