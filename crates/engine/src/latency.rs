//! What a product costs beside its sums: waking threads, and the way to a kernel and back.

use crate::bench::quantile;
use crate::problem::Problem;
use crate::safe::Multiply;
use gemwright_core::DType;
use gemwright_cpu::Pool;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Tasks that are timed.
const TASKS: usize = 1000;
/// Between two of them: threads are awake, but wait.
const BETWEEN: Duration = Duration::from_micros(20);
/// Runs of a product that are timed together, and how often.
const RUNS: u32 = 100;
const TURNS: usize = 100;

/// Seconds until so many threads of a pool that has just been at work have come to a task, in the middle of many; none
/// where they never all came.
pub fn waking(pool: &Pool, threads: usize) -> Option<f64> {
    let all: Vec<f64> = (0..TASKS).filter_map(|_| until_all_come(pool, threads)).collect();
    (!all.is_empty()).then(|| quantile(all, 0.5))
}

fn until_all_come(pool: &Pool, threads: usize) -> Option<f64> {
    let begin = Instant::now();
    while begin.elapsed() < BETWEEN {
        std::hint::spin_loop();
    }
    let (come, begin) = (AtomicUsize::new(0), Instant::now());
    let all_come = || come.load(Ordering::Relaxed) >= threads;
    pool.run(threads, &|_| {
        come.fetch_add(1, Ordering::Relaxed);
        while !all_come() && begin.elapsed() < Duration::from_millis(1) {
            std::hint::spin_loop();
        }
    });
    let taken = begin.elapsed().as_secs_f64();
    all_come().then_some(taken)
}

/// Seconds that a product of two numbers takes by the safe front, the least of many turns.
pub fn smallest_product() -> Option<f64> {
    let multiply = Multiply::new(Problem::linear(1, 1, 1, DType::F32), 1).ok()?;
    let mut out = [0f32];
    let turn = |_| {
        let begin = Instant::now();
        (0..RUNS).for_each(|_| drop(multiply.run(&[1f32], &[1f32], &mut out)));
        begin.elapsed().as_secs_f64() / f64::from(RUNS)
    };
    (0..TURNS).map(turn).reduce(f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_short_times() {
        let waking = waking(&Pool::new(2), 2);
        assert!(waking.is_some_and(|seconds| seconds > 1e-8 && seconds < 1e-3), "{waking:?}");
        assert!(smallest_product().is_some_and(|seconds| seconds > 1e-9 && seconds < 1e-4));
    }
}
