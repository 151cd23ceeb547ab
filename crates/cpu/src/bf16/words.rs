//! Tiles made of a matrix: words of two steps of k, sixteen to a register, turned in registers where they lie the
//! other way round.

use super::tile::{ROWS, TILE};
use crate::matrix::Mat;
use half::bf16;
use std::arch::x86_64::*;

/// Whether steps of k are neighbours.
pub fn along(lines: &Mat<'_, bf16>) -> bool {
    lines.col == 1 || lines.cols <= 1
}

/// The lowest `count` bits.
#[inline]
pub fn mask16(count: usize) -> __mmask16 {
    if count >= 16 { !0 } else { (1 << count) - 1 }
}

#[inline]
fn mask32(count: usize) -> __mmask32 {
    if count >= 32 { !0 } else { (1 << count) - 1 }
}

/// The tile of rows: row i.. (up to 16) of `lines`, steps k.. (up to 32) of it, 64 bytes a row.
///
/// # Safety
/// AVX-512 F, BW and VL are there; line i and step k are inside; 1 KB is writable at `to`.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub unsafe fn rows_tile(lines: &Mat<'_, bf16>, i: usize, k: usize, to: *mut u8) {
    // SAFETY: by the contract.
    unsafe {
        match along(lines) {
            true => put(by_lines(lines, i, k), to),
            false if lines.row == 1 => {
                put(by_pairs(lines, i, k), to);
                turn(to, 64, to);
            }
            false => put(gathered(lines, i, k), to),
        }
    }
}

/// Two tiles of rows at once, 32 whole lines that are neighbours, by 32 whole steps: every line of the cache is read once.
///
/// # Safety
/// As for [`rows_tile`]; 2 KB are writable at `to`.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub unsafe fn rows_tiles_turned(lines: &Mat<'_, bf16>, i: usize, k: usize, to: *mut u8) {
    // Words of both steps for the first sixteen lines, and for the others.
    let first = _mm512_set_epi32(
        0x2f_000f, 0x2e_000e, 0x2d_000d, 0x2c_000c, 0x2b_000b, 0x2a_000a, 0x29_0009, 0x28_0008, 0x27_0007, 0x26_0006,
        0x25_0005, 0x24_0004, 0x23_0003, 0x22_0002, 0x21_0001, 0x20_0000,
    );
    let others = _mm512_add_epi16(first, _mm512_set1_epi16(16));
    // SAFETY: by the contract.
    unsafe {
        for pair in 0..16 {
            let step = |s: usize| _mm512_loadu_si512(lines.at(i, k + 2 * pair + s).cast());
            let (x, y) = (step(0), step(1));
            let put = |half: usize, words: __m512i| _mm512_storeu_si512(to.add(half * TILE + pair * 64).cast(), words);
            put(0, _mm512_permutex2var_epi16(x, first, y));
            put(1, _mm512_permutex2var_epi16(x, others, y));
        }
        for half in 0..2 {
            turn(to.add(half * TILE), 64, to.add(half * TILE));
        }
    }
}

/// The tile of columns: lines i.. (up to 16) side by side, each word two steps of one of them.
///
/// # Safety
/// As for [`rows_tile`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub unsafe fn columns_tile(lines: &Mat<'_, bf16>, i: usize, k: usize, to: *mut u8) {
    // SAFETY: by the contract.
    unsafe {
        match along(lines) {
            true if lines.rows - i >= ROWS && lines.cols - k >= 32 => {
                return turn(lines.at(i, k).cast(), lines.row * size_of::<bf16>() as isize, to);
            }
            true => put(by_lines(lines, i, k), to),
            false if lines.row == 1 => return put(by_pairs(lines, i, k), to),
            false => put(gathered(lines, i, k), to),
        }
        turn(to, 64, to);
    }
}

/// # Safety
/// 1 KB is writable.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn put(words: [__m512i; 16], to: *mut u8) {
    for (row, word) in words.into_iter().enumerate() {
        // SAFETY: by the contract.
        unsafe { _mm512_storeu_si512(to.add(row * 64).cast(), word) };
    }
}

/// A register a line, its steps side by side; what is not there is 0.
///
/// # Safety
/// As for [`rows_tile`]; steps are neighbours.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn by_lines(lines: &Mat<'_, bf16>, i: usize, k: usize) -> [__m512i; 16] {
    let (there, mask) = (lines.rows - i, mask32(lines.cols - k));
    let mut words = [_mm512_setzero_si512(); 16];
    for (r, word) in words.iter_mut().enumerate().take(there.min(ROWS)) {
        // SAFETY: line i + r is there, and as many of its steps as the mask says.
        *word = unsafe { _mm512_maskz_loadu_epi16(mask, lines.at(i + r, k).cast()) };
    }
    words
}

/// A register for each pair of steps, its lines side by side.
///
/// # Safety
/// As for [`rows_tile`]; lines are neighbours.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn by_pairs(lines: &Mat<'_, bf16>, i: usize, k: usize) -> [__m512i; 16] {
    let (steps, mask) = (lines.cols - k, mask16(lines.rows - i));
    let mut words = [_mm512_setzero_si512(); 16];
    for (pair, word) in words.iter_mut().enumerate() {
        let step = |s: usize| {
            let found = match s < steps {
                // SAFETY: the step is there, and as many lines as the mask says.
                true => unsafe { _mm256_maskz_loadu_epi16(mask, lines.at(i, k + s).cast()) },
                false => _mm256_setzero_si256(),
            };
            _mm512_cvtepu16_epi32(found)
        };
        *word = _mm512_or_si512(step(2 * pair), _mm512_slli_epi32::<16>(step(2 * pair + 1)));
    }
    words
}

/// Any strides: one by one.
///
/// # Safety
/// As for [`rows_tile`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn gathered(lines: &Mat<'_, bf16>, i: usize, k: usize) -> [__m512i; 16] {
    let mut words = [_mm512_setzero_si512(); 16];
    for (r, word) in words.iter_mut().enumerate().take((lines.rows - i).min(ROWS)) {
        let mut steps = [0u16; 32];
        for (s, step) in steps.iter_mut().enumerate().take(lines.cols - k) {
            // SAFETY: inside.
            *step = unsafe { *lines.at(i + r, k + s) }.to_bits();
        }
        // SAFETY: 64 bytes.
        *word = unsafe { _mm512_loadu_si512(steps.as_ptr().cast()) };
    }
    words
}

/// Rows for columns of 16 by 16 words in memory, rows `apart` bytes apart; the result is in one piece, where the words were
/// for instance: all are read before any is written.
///
/// # Safety
/// AVX-512 F is there; 64 bytes of every row are readable, and 1 KB is writable at `to`.
#[target_feature(enable = "avx512f")]
pub unsafe fn turn(first: *const u8, apart: isize, to: *mut u8) {
    // SAFETY: by the contract.
    unsafe { turn_each(first, apart, |row, words| _mm512_storeu_si512(to.add(row * 64).cast(), words)) };
}

/// The same, row by row to whoever takes them. Quarters of rows are put side by side as they are loaded: turning them in
/// registers takes twice as many shuffles, and one port of the machine has them all.
///
/// # Safety
/// AVX-512 F is there; 64 bytes of every row are readable.
#[inline]
#[target_feature(enable = "avx512f")]
pub unsafe fn turn_each(first: *const u8, apart: isize, mut take: impl FnMut(usize, __m512i)) {
    let mut t = [_mm512_setzero_si512(); 16];
    for quarter in 0..4 {
        // Row r + 4 · lane in each quarter of a register.
        let side = |r: isize| {
            let at =
                |lane: isize| first.wrapping_offset((r + 4 * lane) * apart + 16 * quarter as isize).cast::<__m128i>();
            // SAFETY: by the contract.
            unsafe {
                let x = _mm512_castsi128_si512(_mm_loadu_si128(at(0)));
                let x = _mm512_mask_broadcast_i32x4(x, 0x00f0, _mm_loadu_si128(at(1)));
                let x = _mm512_mask_broadcast_i32x4(x, 0x0f00, _mm_loadu_si128(at(2)));
                _mm512_mask_broadcast_i32x4(x, 0xf000, _mm_loadu_si128(at(3)))
            }
        };
        let r = [side(0), side(1), side(2), side(3)];
        let (low, high) = (_mm512_unpacklo_epi32(r[0], r[1]), _mm512_unpackhi_epi32(r[0], r[1]));
        let (low2, high2) = (_mm512_unpacklo_epi32(r[2], r[3]), _mm512_unpackhi_epi32(r[2], r[3]));
        t[4 * quarter] = _mm512_unpacklo_epi64(low, low2);
        t[4 * quarter + 1] = _mm512_unpackhi_epi64(low, low2);
        t[4 * quarter + 2] = _mm512_unpacklo_epi64(high, high2);
        t[4 * quarter + 3] = _mm512_unpackhi_epi64(high, high2);
    }
    t.into_iter().enumerate().for_each(|(row, words)| take(row, words));
}
