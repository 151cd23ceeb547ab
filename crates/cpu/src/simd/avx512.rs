//! AVX-512: 512 bits, edges by masks.

// SAFETY of every block below: it is one intrinsic of the instruction set that `Simd`'s functions ask for, and a
// pointer it is given is as the function's own contract says. The comment stands once, not twenty times.
#![allow(clippy::undocumented_unsafe_blocks)]

use super::{Simd, Widen, first};
use std::arch::x86_64::*;

/// The lowest `count` bits; of sixteen or more all.
#[inline(always)]
fn mask(count: usize) -> u32 {
    (1u32 << count.min(16)) - 1
}

/// Rows for columns: pairs, then quarters of a register, then registers.
#[inline(always)]
unsafe fn turned_16(r: [__m512; 16]) -> [__m512; 16] {
    let (mut t, mut u, mut out) = (r, r, r);
    for i in 0..8 {
        t[2 * i] = unsafe { _mm512_unpacklo_ps(r[2 * i], r[2 * i + 1]) };
        t[2 * i + 1] = unsafe { _mm512_unpackhi_ps(r[2 * i], r[2 * i + 1]) };
    }
    for g in 0..4 {
        for half in 0..2 {
            let (x, y) = unsafe { (_mm512_castps_pd(t[4 * g + half]), _mm512_castps_pd(t[4 * g + 2 + half])) };
            u[4 * g + 2 * half] = unsafe { _mm512_castpd_ps(_mm512_unpacklo_pd(x, y)) };
            u[4 * g + 2 * half + 1] = unsafe { _mm512_castpd_ps(_mm512_unpackhi_pd(x, y)) };
        }
    }
    for c in 0..4 {
        let quarters = unsafe {
            let (a, b) =
                (_mm512_shuffle_f32x4::<0x88>(u[c], u[4 + c]), _mm512_shuffle_f32x4::<0x88>(u[8 + c], u[12 + c]));
            let (d, e) =
                (_mm512_shuffle_f32x4::<0xdd>(u[c], u[4 + c]), _mm512_shuffle_f32x4::<0xdd>(u[8 + c], u[12 + c]));
            [
                _mm512_shuffle_f32x4::<0x88>(a, b),
                _mm512_shuffle_f32x4::<0x88>(d, e),
                _mm512_shuffle_f32x4::<0xdd>(a, b),
                _mm512_shuffle_f32x4::<0xdd>(d, e),
            ]
        };
        for (l, quarter) in quarters.into_iter().enumerate() {
            out[4 * l + c] = quarter;
        }
    }
    out
}

/// Eight rows of sixteen for sixteen of eight, two of these in a register.
#[inline(always)]
unsafe fn turned_8_of_16(r: [__m512; 8]) -> [__m512; 8] {
    let (mut t, mut out) = (r, r);
    for g in 0..2 {
        let pairs = |i: usize| unsafe {
            let (x, y) = (r[4 * g + 2 * i], r[4 * g + 2 * i + 1]);
            (_mm512_castps_pd(_mm512_unpacklo_ps(x, y)), _mm512_castps_pd(_mm512_unpackhi_ps(x, y)))
        };
        let ((a, b), (c, d)) = (pairs(0), pairs(1));
        let four = unsafe {
            [_mm512_unpacklo_pd(a, c), _mm512_unpackhi_pd(a, c), _mm512_unpacklo_pd(b, d), _mm512_unpackhi_pd(b, d)]
        };
        for (i, x) in four.into_iter().enumerate() {
            // Quarter l has step 4 l + i of four rows; where the other four go is in between.
            t[2 * i + g] = unsafe { _mm512_castpd_ps(x) };
        }
    }
    for half in 0..2 {
        let quarters = unsafe {
            let x = &t[4 * half..];
            let (a, b) = (_mm512_shuffle_f32x4::<0x88>(x[0], x[1]), _mm512_shuffle_f32x4::<0x88>(x[2], x[3]));
            let (c, d) = (_mm512_shuffle_f32x4::<0xdd>(x[0], x[1]), _mm512_shuffle_f32x4::<0xdd>(x[2], x[3]));
            [
                _mm512_shuffle_f32x4::<0x88>(a, b),
                _mm512_shuffle_f32x4::<0x88>(c, d),
                _mm512_shuffle_f32x4::<0xdd>(a, b),
                _mm512_shuffle_f32x4::<0xdd>(c, d),
            ]
        };
        for (l, quarter) in quarters.into_iter().enumerate() {
            out[2 * l + half] = quarter;
        }
    }
    out
}

/// What [`Simd::turn_eight`] does.
#[inline(always)]
unsafe fn eight_f32((from, step): (*const f32, isize), to: *mut f32) -> bool {
    let mut lines = [unsafe { _mm512_setzero_ps() }; 8];
    for c in 0..8 {
        lines[c] = unsafe { _mm512_loadu_ps(from.wrapping_offset(c as isize * step)) };
    }
    for (two, line) in unsafe { turned_8_of_16(lines) }.into_iter().enumerate() {
        unsafe { _mm512_storeu_ps(to.wrapping_add(16 * two), line) };
    }
    true
}

/// Of f64 eight columns are a whole block.
#[inline(always)]
unsafe fn eight_f64(_: (*const f64, isize), _: *mut f64) -> bool {
    false
}

/// Rows for columns of eight by eight.
#[inline(always)]
unsafe fn turned_8(r: [__m512d; 8]) -> [__m512d; 8] {
    let (mut t, mut out) = (r, r);
    for i in 0..4 {
        t[2 * i] = unsafe { _mm512_unpacklo_pd(r[2 * i], r[2 * i + 1]) };
        t[2 * i + 1] = unsafe { _mm512_unpackhi_pd(r[2 * i], r[2 * i + 1]) };
    }
    for c in 0..2 {
        let quarters = unsafe {
            let (a, b) =
                (_mm512_shuffle_f64x2::<0x88>(t[c], t[2 + c]), _mm512_shuffle_f64x2::<0x88>(t[4 + c], t[6 + c]));
            let (d, e) =
                (_mm512_shuffle_f64x2::<0xdd>(t[c], t[2 + c]), _mm512_shuffle_f64x2::<0xdd>(t[4 + c], t[6 + c]));
            [
                _mm512_shuffle_f64x2::<0x88>(a, b),
                _mm512_shuffle_f64x2::<0x88>(d, e),
                _mm512_shuffle_f64x2::<0xdd>(a, b),
                _mm512_shuffle_f64x2::<0xdd>(d, e),
            ]
        };
        for (l, quarter) in quarters.into_iter().enumerate() {
            out[2 * l + c] = quarter;
        }
    }
    out
}

macro_rules! vectors {
    ([$($name:ident),+], $element:ty, $vector:ty, $lanes:literal, $mask:ty, $splat:ident, $load:ident, $load_part:ident,
     $store:ident, $store_part:ident, $mul:ident, $add:ident, $fma:ident, $sum:ident, $turn:ident, $eight:ident) => {
        $(
        #[doc = concat!(stringify!($lanes), " elements of ", stringify!($element), ".")]
        #[derive(Clone, Copy)]
        pub struct $name;

        // SAFETY: the intrinsics need AVX-512F, which `available` asks for; pointers are used as the trait allows.
        unsafe impl Simd for $name {
            type T = $element;
            type V = $vector;
            const LANES: usize = $lanes;

            fn available() -> bool {
                is_x86_feature_detected!("avx512f")
            }

            #[target_feature(enable = "avx512f,avx2,fma")]
            #[inline]
            unsafe fn vectorize<R>(body: impl FnOnce() -> R) -> R {
                body()
            }

            #[inline(always)]
            unsafe fn splat(x: $element) -> $vector {
                unsafe { $splat(x) }
            }

            #[inline(always)]
            unsafe fn load(from: *const $element) -> $vector {
                unsafe { $load(from) }
            }

            #[inline(always)]
            unsafe fn load_part(from: *const $element, count: usize) -> $vector {
                unsafe { $load_part(mask(count) as $mask, from) }
            }

            #[inline(always)]
            unsafe fn store(to: *mut $element, v: $vector) {
                unsafe { $store(to, v) };
            }

            #[inline(always)]
            unsafe fn store_part(to: *mut $element, v: $vector, count: usize) {
                unsafe { $store_part(to, mask(count) as $mask, v) };
            }

            #[inline(always)]
            unsafe fn mul(x: $vector, y: $vector) -> $vector {
                unsafe { $mul(x, y) }
            }

            #[inline(always)]
            unsafe fn add(x: $vector, y: $vector) -> $vector {
                unsafe { $add(x, y) }
            }

            #[inline(always)]
            unsafe fn fma(x: $vector, y: $vector, z: $vector) -> $vector {
                unsafe { $fma(x, y, z) }
            }

            #[inline(always)]
            unsafe fn sum(x: $vector) -> $element {
                unsafe { $sum(x) }
            }

            #[inline(always)]
            unsafe fn turn_eight(from: (*const $element, isize), to: *mut $element) -> bool {
                unsafe { $eight(from, to) }
            }

            #[inline(always)]
            unsafe fn turn(
                (from, step): (*const $element, isize),
                (columns, steps): (usize, usize),
                (to, width): (*mut $element, usize),
                block: usize,
            ) {
                // Columns that are not there are read as the first, at a mask that reads nothing.
                let mut lines = [unsafe { $splat(0.0) }; $lanes];
                for c in 0..$lanes {
                    let (at, there) = if c < columns { (c as isize * step, mask(steps)) } else { (0, 0) };
                    lines[c] = unsafe { $load_part(there as $mask, from.wrapping_offset(at)) };
                }
                let lines = unsafe { $turn(lines) };
                let there = mask(block) as $mask;
                if steps == $lanes {
                    for s in 0..$lanes {
                        unsafe { $store_part(to.wrapping_add(s * width), there, lines[s]) };
                    }
                } else {
                    for s in 0..$lanes {
                        let there = if s < steps { there } else { 0 };
                        unsafe { $store_part(to.wrapping_add(s * width), there, lines[s]) };
                    }
                }
            }

            #[inline(always)]
            unsafe fn prefetch(from: *const $element) {
                unsafe { _mm_prefetch::<_MM_HINT_T0>(from.cast()) };
            }
        }
        )+
    };
}

// The others of each are the same for other tiles.
vectors!(
    [F32x16, F32x16By3, F32x16Long],
    f32,
    __m512,
    16,
    u16,
    _mm512_set1_ps,
    _mm512_loadu_ps,
    _mm512_maskz_loadu_ps,
    _mm512_storeu_ps,
    _mm512_mask_storeu_ps,
    _mm512_mul_ps,
    _mm512_add_ps,
    _mm512_fmadd_ps,
    _mm512_reduce_add_ps,
    turned_16,
    eight_f32
);
vectors!(
    [F64x8, F64x8By3, F64x8Long],
    f64,
    __m512d,
    8,
    u8,
    _mm512_set1_pd,
    _mm512_loadu_pd,
    _mm512_maskz_loadu_pd,
    _mm512_storeu_pd,
    _mm512_mask_storeu_pd,
    _mm512_mul_pd,
    _mm512_add_pd,
    _mm512_fmadd_pd,
    _mm512_reduce_add_pd,
    turned_8,
    eight_f64
);

// SAFETY: AVX-512 F, which `available` asks for.
unsafe impl Widen for F32x16 {
    #[inline(always)]
    unsafe fn widen(from: *const half::bf16) -> __m512 {
        unsafe { _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast())))) }
    }

    #[inline(always)]
    unsafe fn widen_part(from: *const half::bf16, count: usize) -> __m512 {
        unsafe { Self::widen(first::<16>(from, count).as_ptr()) }
    }
}
