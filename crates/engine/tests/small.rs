//! What a small product costs beside its sums: no memory is asked for, and little time passes.
#![allow(clippy::unwrap_used, missing_docs)]

use gemwright_core::DType;
use gemwright_cpu::Number;
use gemwright_cpu::half::bf16;
use gemwright_engine::{Multiply, Problem};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Counts how often memory is asked for, by whichever thread.
struct Counting;

static ASKED: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is the system's own.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ASKED.fetch_add(1, Ordering::Relaxed);
        // SAFETY: by the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: by the contract.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Runs of a product after it has run twice: how often they ask for memory, and the least seconds of one.
fn runs<T: Number>(problem: Problem, threads: usize) -> (usize, f64) {
    let p = problem.product;
    let numbers = |count: u64| vec![T::from_f64(0.5); count as usize];
    let (a, b, mut out) = (numbers(p.m * p.k), numbers(p.k * p.n), numbers(p.m * p.n));
    let multiply = Multiply::new(problem, threads).unwrap();
    (0..2).for_each(|_| multiply.run(&a, &b, &mut out).unwrap());
    // Threads that were started ask for some of their own.
    std::thread::sleep(Duration::from_millis(5 * (threads as u64 - 1)));
    let (before, mut least) = (ASKED.load(Ordering::Relaxed), f64::INFINITY);
    for _ in 0..100 {
        let begin = Instant::now();
        (0..20).for_each(|_| multiply.run(&a, &b, &mut out).unwrap());
        least = least.min(begin.elapsed().as_secs_f64() / 20.0);
    }
    (ASKED.load(Ordering::Relaxed) - before, least)
}

/// Seconds that a product of two numbers may take; twice as many where the program is not optimised as a whole.
const MOST: f64 = if cfg!(debug_assertions) { 400e-9 } else { 200e-9 };

#[test]
fn small_products_ask_for_no_memory_and_little_time() {
    for threads in [1, 2] {
        for n in [1, 2, 5, 16, 33, 64, 100, 128] {
            let asked = [
                runs::<f32>(Problem::linear(n, n, n, DType::F32), threads),
                runs::<f64>(Problem::linear(n, n, n, DType::F64), threads),
                runs::<bf16>(Problem::linear(n, n, n, DType::Bf16), threads),
            ];
            assert!(asked.iter().all(|(asked, _)| *asked == 0), "{n} cubed on {threads} threads: {asked:?}");
        }
    }
    let one = [
        runs::<f32>(Problem::linear(1, 1, 1, DType::F32), 1).1,
        runs::<f64>(Problem::linear(1, 1, 1, DType::F64), 1).1,
    ];
    assert!(one.iter().all(|seconds| *seconds < MOST), "{one:?}");
}
