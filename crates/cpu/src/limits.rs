//! Loops that do one thing as fast as the machine can, to hold kernels against.

use crate::pool::Pool;
use crate::simd::{Number, Simd, portable};
#[cfg(target_arch = "x86_64")]
use crate::simd::{avx2, avx512};
use gemwright_core::DType;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

/// Fused steps of a turn of each thread.
const STEPS: usize = 1 << 16;
/// Independent sums: enough to cover the latency of both units.
const SUMS: usize = 16;

/// FLOP/s of fused steps on registers.
pub fn fma_loop(dtype: DType, pool: &Pool, threads: usize) -> f64 {
    #[cfg(target_arch = "x86_64")]
    {
        if dtype == DType::F64 && avx512::F64x8::available() {
            return fma::<avx512::F64x8>(pool, threads);
        }
        if dtype == DType::F64 && avx2::F64x4::available() {
            return fma::<avx2::F64x4>(pool, threads);
        }
        if avx512::F32x16::available() {
            return fma::<avx512::F32x16>(pool, threads);
        }
        if avx2::F32x8::available() {
            return fma::<avx2::F32x8>(pool, threads);
        }
    }
    match dtype {
        DType::F64 => fma::<portable::Portable<f64>>(pool, threads),
        _ => fma::<portable::Portable<f32>>(pool, threads),
    }
}

fn fma<S: Simd>(pool: &Pool, threads: usize) -> f64 {
    let pieces = AtomicUsize::new(0);
    let (sink, all) = (AtomicU64::new(0), 4 * threads);
    let begin = Instant::now();
    pool.run(threads, &|_| {
        while pieces.fetch_add(1, Ordering::Relaxed) < all {
            // SAFETY: the caller has asked for the instruction set.
            let sum = unsafe { S::vectorize(|| steps::<S>()) };
            sink.fetch_add(sum.to_f64().to_bits() & 1, Ordering::Relaxed);
        }
    });
    let taken = begin.elapsed().as_secs_f64();
    std::hint::black_box(sink.into_inner());
    (2 * all * STEPS * SUMS * S::LANES) as f64 / taken
}

/// # Safety
/// `S` is available, and this is inlined into code compiled for it.
#[inline(always)]
unsafe fn steps<S: Simd>() -> S::T {
    // SAFETY: by the contract.
    unsafe {
        let x = std::hint::black_box(S::splat(S::T::from_f64(0.999)));
        let mut sums = [x; SUMS];
        for _ in 0..STEPS {
            for sum in &mut sums {
                *sum = S::fma(*sum, x, x);
            }
        }
        let mut all = sums[0];
        for sum in &sums[1..] {
            all = S::add(all, *sum);
        }
        S::sum(all)
    }
}

/// Bytes/s of reading memory once; as much of it as a turn of a few milliseconds takes, from a place
/// that moves on.
pub fn read_loop(memory: &[f32], pool: &Pool, threads: usize) -> f64 {
    static PLACE: AtomicUsize = AtomicUsize::new(0);
    const PIECE: usize = 1 << 18;
    const TURN: usize = 32 << 20;
    let pieces = (memory.len() / PIECE).max(1);
    let all = (TURN / size_of::<f32>() / PIECE).min(pieces);
    let start = PLACE.fetch_add(all, Ordering::Relaxed);
    let (next, sink) = (AtomicUsize::new(0), AtomicU64::new(0));
    let piece = PIECE.min(memory.len());
    let begin = Instant::now();
    pool.run(threads, &|_| {
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            if i >= all {
                break;
            }
            let at = (start + i) % pieces * PIECE;
            let sum = read(&memory[at..at + piece]);
            sink.fetch_add(u64::from(sum.to_bits()) & 1, Ordering::Relaxed);
        }
    });
    let taken = begin.elapsed().as_secs_f64();
    std::hint::black_box(sink.into_inner());
    (all * piece * size_of::<f32>()) as f64 / taken
}

fn read(memory: &[f32]) -> f32 {
    #[cfg(target_arch = "x86_64")]
    if avx512::F32x16::available() {
        // SAFETY: the instruction set is there.
        return unsafe { avx512::F32x16::vectorize(|| added::<avx512::F32x16>(memory)) };
    }
    // SAFETY: plain Rust.
    unsafe { added::<portable::Portable<f32>>(memory) }
}

/// Four streams side by side keep more misses in flight than one.
///
/// # Safety
/// `S` is available, and this is inlined into code compiled for it.
#[inline(always)]
unsafe fn added<S: Simd<T = f32>>(memory: &[f32]) -> f32 {
    let quarter = memory.len() / 4 / S::LANES * S::LANES;
    // SAFETY: every place is below 4 · quarter <= the length.
    unsafe {
        let mut sums = [S::splat(0.0); 4];
        for i in (0..quarter).step_by(S::LANES) {
            for (stream, sum) in sums.iter_mut().enumerate() {
                *sum = S::add(*sum, S::load(memory.as_ptr().add(stream * quarter + i)));
            }
        }
        S::sum(S::add(S::add(sums[0], sums[1]), S::add(sums[2], sums[3])))
    }
}
