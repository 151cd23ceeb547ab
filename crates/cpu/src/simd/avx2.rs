//! AVX2 with FMA: 256 bits, edges by masked moves.

// SAFETY of every block below: it is one intrinsic of the instruction set that `Simd`'s functions ask for, and a
// pointer it is given is as the function's own contract says. The comment stands once, not twenty times.
#![allow(clippy::undocumented_unsafe_blocks)]

use super::{Simd, Widen, first};
use std::arch::x86_64::*;

/// The first `count` of eight lanes.
#[inline(always)]
unsafe fn mask8(count: usize) -> __m256i {
    unsafe { _mm256_cmpgt_epi32(_mm256_set1_epi32(count as i32), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)) }
}

/// The first `count` of four lanes.
#[inline(always)]
unsafe fn mask4(count: usize) -> __m256i {
    unsafe { _mm256_cmpgt_epi64(_mm256_set1_epi64x(count as i64), _mm256_setr_epi64x(0, 1, 2, 3)) }
}

macro_rules! vectors {
    ($name:ident, $element:ty, $vector:ty, $lanes:literal, $mask:ident, $splat:ident, $load:ident, $load_part:ident,
     $store:ident, $store_part:ident, $mul:ident, $add:ident, $fma:ident) => {
        #[doc = concat!(stringify!($lanes), " elements of ", stringify!($element), ".")]
        #[derive(Clone, Copy)]
        pub struct $name;

        // SAFETY: the intrinsics need AVX2 and FMA, which `available` asks for; pointers are used as the trait allows.
        unsafe impl Simd for $name {
            type T = $element;
            type V = $vector;
            const LANES: usize = $lanes;

            fn available() -> bool {
                is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")
            }

            #[target_feature(enable = "avx2,fma")]
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
                unsafe { $load_part(from, $mask(count)) }
            }

            #[inline(always)]
            unsafe fn store(to: *mut $element, v: $vector) {
                unsafe { $store(to, v) };
            }

            #[inline(always)]
            unsafe fn store_part(to: *mut $element, v: $vector, count: usize) {
                unsafe { $store_part(to, $mask(count), v) };
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
                let mut lanes = [0.0; $lanes];
                unsafe { $store(lanes.as_mut_ptr(), x) };
                let mut width = $lanes / 2;
                while width > 0 {
                    for i in 0..width {
                        lanes[i] += lanes[i + width];
                    }
                    width /= 2;
                }
                lanes[0]
            }

            #[inline(always)]
            unsafe fn prefetch(from: *const $element) {
                unsafe { _mm_prefetch::<_MM_HINT_T0>(from.cast()) };
            }
        }
    };
}

vectors!(
    F32x8,
    f32,
    __m256,
    8,
    mask8,
    _mm256_set1_ps,
    _mm256_loadu_ps,
    _mm256_maskload_ps,
    _mm256_storeu_ps,
    _mm256_maskstore_ps,
    _mm256_mul_ps,
    _mm256_add_ps,
    _mm256_fmadd_ps
);
vectors!(
    F64x4,
    f64,
    __m256d,
    4,
    mask4,
    _mm256_set1_pd,
    _mm256_loadu_pd,
    _mm256_maskload_pd,
    _mm256_storeu_pd,
    _mm256_maskstore_pd,
    _mm256_mul_pd,
    _mm256_add_pd,
    _mm256_fmadd_pd
);

// SAFETY: AVX2, which `available` asks for.
unsafe impl Widen for F32x8 {
    #[inline(always)]
    unsafe fn widen(from: *const half::bf16) -> __m256 {
        unsafe { _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast())))) }
    }

    #[inline(always)]
    unsafe fn widen_part(from: *const half::bf16, count: usize) -> __m256 {
        unsafe { Self::widen(first::<8>(from, count).as_ptr()) }
    }
}
