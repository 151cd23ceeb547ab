//! AVX-512: 512 bits, edges by masks.

// SAFETY of every block below: it is one intrinsic of the instruction set that `Simd`'s functions ask for, and a
// pointer it is given is as the function's own contract says. The comment stands once, not twenty times.
#![allow(clippy::undocumented_unsafe_blocks)]

use super::Simd;
use std::arch::x86_64::*;

/// The lowest `count` bits; of sixteen or more all.
#[inline(always)]
fn mask(count: usize) -> u32 {
    (1u32 << count.min(16)) - 1
}

macro_rules! vectors {
    ($name:ident, $element:ty, $vector:ty, $lanes:literal, $mask:ty, $splat:ident, $load:ident, $load_part:ident,
     $store:ident, $store_part:ident, $mul:ident, $add:ident, $fma:ident, $sum:ident) => {
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
            unsafe fn prefetch(from: *const $element) {
                unsafe { _mm_prefetch::<_MM_HINT_T0>(from.cast()) };
            }
        }
    };
}

vectors!(
    F32x16,
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
    _mm512_reduce_add_ps
);
vectors!(
    F64x8,
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
    _mm512_reduce_add_pd
);
