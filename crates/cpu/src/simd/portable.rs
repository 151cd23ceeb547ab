//! Arrays that the compiler vectorises with what every machine of the target has.

use super::{Element, Simd, Widen, first};
use std::marker::PhantomData;

/// Eight elements at a time.
#[derive(Clone, Copy)]
pub struct Portable<T>(PhantomData<T>);

const LANES: usize = 8;

// SAFETY: plain Rust, available everywhere; pointers are used as the trait allows.
unsafe impl<T: Element> Simd for Portable<T> {
    type T = T;
    type V = [T; LANES];
    const LANES: usize = LANES;

    fn available() -> bool {
        true
    }

    #[inline(always)]
    unsafe fn vectorize<R>(body: impl FnOnce() -> R) -> R {
        body()
    }

    #[inline(always)]
    unsafe fn splat(x: T) -> Self::V {
        [x; LANES]
    }

    #[inline(always)]
    unsafe fn load(from: *const T) -> Self::V {
        // SAFETY: the caller gives LANES readable elements.
        unsafe { from.cast::<[T; LANES]>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn load_part(from: *const T, count: usize) -> Self::V {
        let mut v = [T::ZERO; LANES];
        for (i, lane) in v.iter_mut().enumerate().take(count) {
            // SAFETY: i < count.
            *lane = unsafe { *from.add(i) };
        }
        v
    }

    #[inline(always)]
    unsafe fn store(to: *mut T, v: Self::V) {
        // SAFETY: the caller gives LANES writable elements.
        unsafe { to.cast::<[T; LANES]>().write_unaligned(v) };
    }

    #[inline(always)]
    unsafe fn store_part(to: *mut T, v: Self::V, count: usize) {
        for (i, lane) in v.iter().enumerate().take(count) {
            // SAFETY: i < count.
            unsafe { *to.add(i) = *lane };
        }
    }

    #[inline(always)]
    unsafe fn mul(x: Self::V, y: Self::V) -> Self::V {
        std::array::from_fn(|i| x[i].mul(y[i]))
    }

    #[inline(always)]
    unsafe fn add(x: Self::V, y: Self::V) -> Self::V {
        std::array::from_fn(|i| x[i].add(y[i]))
    }

    #[inline(always)]
    unsafe fn fma(x: Self::V, y: Self::V, z: Self::V) -> Self::V {
        std::array::from_fn(|i| x[i].mul_add(y[i], z[i]))
    }

    #[inline(always)]
    unsafe fn sum(x: Self::V) -> T {
        let [a, b, c, d, e, f, g, h] = x;
        a.add(b).add(c.add(d)).add(e.add(f).add(g.add(h)))
    }

    #[inline(always)]
    unsafe fn prefetch(_: *const T) {}
}

// SAFETY: plain Rust.
unsafe impl Widen for Portable<f32> {
    #[inline(always)]
    unsafe fn widen(from: *const half::bf16) -> [f32; LANES] {
        // SAFETY: the caller gives LANES readable elements.
        unsafe { Self::widen_part(from, LANES) }
    }

    #[inline(always)]
    unsafe fn widen_part(from: *const half::bf16, count: usize) -> [f32; LANES] {
        // SAFETY: the caller gives `count` readable elements.
        unsafe { first::<LANES>(from, count) }.map(|x| f32::from_bits(u32::from(x.to_bits()) << 16))
    }
}
