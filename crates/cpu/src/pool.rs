//! Threads that wait for products. Work is claimed piece by piece through a counter inside the task, so
//! a product is right whatever number of threads comes, and a slow core holds nobody up.

use crate::seat::{Cores, Seat};
use crate::stay::numbers;
use std::any::Any;
use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, TryLockError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

type Task = dyn Fn(usize) + Sync + 'static;

/// The task of the moment, with the number of threads that may take part in it. It changes only while nobody has joined
/// and the door is closed, and only who has joined reads it: so nobody waits for it.
struct Current(UnsafeCell<Option<(*const Task, usize)>>);
// SAFETY: the closure is `Sync`; `Pool::run` writes before the door opens and returns after the last has left.
unsafe impl Send for Current {}
// SAFETY: as above.
unsafe impl Sync for Current {}

/// On a line of its own: what one thread looks at all the time is not what others write.
#[repr(align(64))]
struct Apart<T>(T);

struct Shared {
    /// Counts tasks, so that a worker knows a new one. Written by who has the turn alone.
    sequence: Apart<AtomicUsize>,
    door: Apart<Door>,
    panicked: Mutex<Option<Box<dyn Any + Send>>>,
    stop: AtomicBool,
    /// Workers that sleep or are about to, so that those who are awake need not be woken.
    asleep: Vec<Apart<AtomicBool>>,
    /// Of the workers, where there is one for every core; none where they are kept on some.
    seats: Vec<Seat>,
}

struct Door {
    /// [`OPEN`] while workers may join, and twice the number of those that have.
    state: AtomicUsize,
    task: Current,
}

const OPEN: usize = 1;
const JOINED: usize = 2;

/// Turns of waiting before a thread sleeps: about a tenth of a millisecond, so that products that follow
/// one another find it awake and an idle program burns nothing.
const TURNS: u32 = 2000;
/// Turns after it has said so: a task that came at that moment is seen by then, so that its caller need not wait until
/// every core knows of it before looking who sleeps.
const LAST_TURNS: u32 = 40;

/// The first sleeps. A wake-up for a task that was seen without it ends one of them at once, so there are two.
const SHORT_SLEEP: Duration = Duration::from_millis(1);
const SHORT_SLEEPS: u32 = 2;

/// A fixed number of threads, the caller's among them.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// One task at a time; whoever finds it taken works alone.
    turn: Mutex<()>,
}

impl Pool {
    /// So many threads; one at least. The system decides where they run.
    pub fn new(threads: usize) -> Pool {
        Pool::placed(threads, Vec::new())
    }

    /// A thread for each of these cores, by the system's numbers, each kept on its own; the caller's, which counts as
    /// the first, is left where it is. Where the system has no such thing, or not that core, threads run anywhere.
    pub fn on_cores(cores: &[usize]) -> Pool {
        Pool::placed(cores.len(), cores.to_vec())
    }

    fn placed(threads: usize, cores: Vec<usize>) -> Pool {
        let allowed = Cores::allowed();
        let covers = (1..=threads).contains(&allowed.count());
        let seats = if cores.is_empty() && covers { threads.saturating_sub(1) } else { 0 };
        let shared = Arc::new(Shared {
            sequence: Apart(AtomicUsize::new(0)),
            door: Apart(Door { state: AtomicUsize::new(0), task: Current(UnsafeCell::new(None)) }),
            panicked: Mutex::new(None),
            stop: AtomicBool::new(false),
            asleep: (1..threads).map(|_| Apart(AtomicBool::new(false))).collect(),
            seats: (0..seats).map(|_| Seat::new(allowed)).collect(),
        });
        let worker = |index: usize| {
            let shared = Arc::clone(&shared);
            let (name, core) = (format!("gemwright-{index}"), cores.get(index).copied());
            thread::Builder::new().name(name).spawn(move || {
                if let Some(core) = core {
                    Cores::only(core).keep(0);
                }
                work(&shared, index);
            })
        };
        // Where the system gives no more threads, those that are there do.
        let workers = (1..threads.max(1)).map_while(|index| worker(index).ok()).collect();
        Pool { shared, workers, turn: Mutex::new(()) }
    }

    /// One for the whole program, with as many threads as the machine runs at once, as `GEMWRIGHT_THREADS` says, or on
    /// the cores of `GEMWRIGHT_CORES`, a list like `0,2,4`. What cannot be read as a number counts as not said.
    pub fn global() -> &'static Pool {
        static POOL: OnceLock<Pool> = OnceLock::new();
        POOL.get_or_init(|| {
            let all = || thread::available_parallelism().map_or(1, usize::from);
            let asked = || std::env::var("GEMWRIGHT_THREADS").ok()?.trim().parse().ok();
            match asked_cores() {
                Some(cores) => Pool::on_cores(&cores),
                None => Pool::new(asked().unwrap_or_else(all)),
            }
        })
    }

    /// How many threads there are.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Runs `task` on up to `most` threads, the caller's as number 0, and returns when none is in it
    /// any more. Threads that come too late, and all of them while another caller has the pool, stay out:
    /// a task claims its pieces and must be complete when any one thread returns from it.
    pub fn run(&self, most: usize, task: &(dyn Fn(usize) + Sync)) {
        if most <= 1 || self.workers.is_empty() {
            return task(0);
        }
        let _turn = match self.turn.try_lock() {
            Ok(turn) => turn,
            // A task that panicked has left nothing behind.
            Err(TryLockError::Poisoned(turn)) => turn.into_inner(),
            Err(TryLockError::WouldBlock) => return task(0),
        };
        // SAFETY: only the lifetime changes; below nobody is left in the task before this returns.
        let current = unsafe { std::mem::transmute::<&(dyn Fn(usize) + Sync), &'static Task>(task) };
        let door = &self.shared.door.0;
        // SAFETY: the door is closed and nobody is in, and this caller has the turn.
        unsafe { *door.task.0.get() = Some((current, most)) };
        door.state.store(OPEN, Ordering::Release);
        self.next_task();
        let mut taken = None;
        for (index, worker) in self.workers.iter().enumerate().take(most - 1) {
            // Who falls asleep at this very moment and is taken for awake misses this task, which is complete without it.
            if self.shared.asleep[index].0.load(Ordering::Acquire) {
                if let Some(seat) = self.shared.seats.get(index) {
                    seat.make_room(taken.get_or_insert_with(Cores::here));
                }
                worker.thread().unpark();
            }
        }
        let own = catch_unwind(AssertUnwindSafe(|| task(0)));
        door.state.fetch_and(!OPEN, Ordering::AcqRel);
        while door.state.load(Ordering::Acquire) != 0 {
            std::hint::spin_loop();
        }
        let theirs = self.shared.panicked.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(cause) = own.err().or(theirs) {
            resume_unwind(cause);
        }
    }

    /// Workers see that there is something. One thread at a time calls it, so it need not count in one go, which would wait
    /// for what was written before.
    fn next_task(&self) {
        let sequence = &self.shared.sequence.0;
        sequence.store(sequence.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
    }
}

/// The cores of `GEMWRIGHT_CORES`, a list like `0,2,4` or `0-3,8`; none where that is not said or cannot be read so.
pub fn asked_cores() -> Option<Vec<usize>> {
    numbers(&std::env::var("GEMWRIGHT_CORES").ok()?)
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.next_task();
        for worker in self.workers.drain(..) {
            worker.thread().unpark();
            let _ = worker.join();
        }
    }
}

fn work(shared: &Shared, index: usize) {
    let (sequence, asleep) = (&shared.sequence.0, &shared.asleep[index - 1].0);
    let mut seen = 0;
    loop {
        let mut turns = 0;
        while sequence.load(Ordering::Acquire) == seen {
            turns += 1;
            if turns == TURNS {
                shared.seats.get(index - 1).inspect(|seat| seat.sleeps());
                asleep.store(true, Ordering::SeqCst);
            }
            if turns < TURNS + LAST_TURNS {
                std::hint::spin_loop();
            } else if turns < TURNS + LAST_TURNS + SHORT_SLEEPS {
                // On a machine whose turns are short a task may still have come unseen: it is seen after this.
                thread::park_timeout(SHORT_SLEEP);
            } else {
                // A wake-up that came in between is kept for the thread: this returns at once then.
                thread::park();
            }
        }
        if turns >= TURNS {
            asleep.store(false, Ordering::Relaxed);
            shared.seats.get(index - 1).inspect(|seat| seat.wakes());
        }
        seen = sequence.load(Ordering::Acquire);
        if shared.stop.load(Ordering::Acquire) {
            return;
        }
        let door = &shared.door.0;
        if join(door) {
            // SAFETY: joined while it was open, so it is not written, and `run` waits for this thread to leave.
            if let Some((task, most)) = unsafe { *door.task.0.get() }
                && index < most
            {
                // SAFETY: as above.
                let done = catch_unwind(AssertUnwindSafe(|| unsafe { (*task)(index) }));
                if let Err(cause) = done {
                    *shared.panicked.lock().unwrap_or_else(PoisonError::into_inner) = Some(cause);
                }
            }
            door.state.fetch_sub(JOINED, Ordering::Release);
        }
    }
}

/// Goes in, if the door is open.
fn join(door: &Door) -> bool {
    let open = |state: usize| (state & OPEN != 0).then_some(state + JOINED);
    door.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, open).is_ok()
}

/// Hands out the numbers `0..end` once each, to any number of threads.
pub struct Counter {
    next: AtomicUsize,
    end: usize,
}

impl Counter {
    /// Of so many.
    pub fn new(end: usize) -> Counter {
        Counter { next: AtomicUsize::new(0), end }
    }

    /// The next one, while there are any.
    pub fn claim(&self) -> Option<usize> {
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        (index < self.end).then_some(index)
    }
}

/// Rounds of work, each of the same number of pieces, that all threads go through in order. Every thread has a share
/// of its own, the same in every round, so that what it touched before is in its caches; who has finished takes from
/// the others' shares.
pub struct Rounds {
    pieces: usize,
    shares: usize,
    /// Pieces taken of each share, in all rounds.
    taken: [Share; MOST_SHARES],
    done: AtomicUsize,
}

/// On a line of its own.
#[repr(align(64))]
struct Share(AtomicUsize);

/// More threads than this share shares.
const MOST_SHARES: usize = 16;
/// Turns of waiting for another thread before the core is offered to others.
const PATIENCE: u32 = 4000;

impl Rounds {
    /// So many pieces in each round.
    pub fn new(pieces: usize, threads: usize) -> Rounds {
        let taken = [const { Share(AtomicUsize::new(0)) }; MOST_SHARES];
        Rounds { pieces, shares: threads.clamp(1, MOST_SHARES), taken, done: AtomicUsize::new(0) }
    }

    /// A piece of this round that nobody has taken, if there is one. All rounds before must have been taken.
    pub fn claim(&self, thread: usize, round: usize) -> Option<usize> {
        if self.pieces == 0 {
            // What others wrote last is slow to read.
            return None;
        }
        (0..self.shares).map(|next| (thread + next) % self.shares).find_map(|share| {
            let (from, to) = (share * self.pieces / self.shares, (share + 1) * self.pieces / self.shares);
            let (before, end) = (round * (to - from), (round + 1) * (to - from));
            let more = |taken: usize| (taken < end).then_some(taken + 1);
            let taken = self.taken[share].0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
            Some(from + taken - before)
        })
    }

    /// A claimed piece is done.
    pub fn finish(&self) {
        self.done.fetch_add(1, Ordering::Release);
    }

    /// Waits until so many rounds are done. All their pieces must have been claimed, by whomever.
    pub fn wait(&self, rounds: usize) {
        if self.pieces > 0 {
            pause(|| self.done.load(Ordering::Acquire) >= rounds * self.pieces);
        }
    }
}

/// [`Rounds`] for each of several groups of threads; the first, which is often the only one, where the caller has it.
pub struct Groups {
    first: Rounds,
    others: Vec<Rounds>,
}

impl Groups {
    /// So many pieces for each group, of so many threads.
    pub fn new(groups: usize, pieces: usize, members: usize) -> Groups {
        Groups {
            first: Rounds::new(pieces, members),
            others: (1..groups).map(|_| Rounds::new(pieces, members)).collect(),
        }
    }

    /// Of one group.
    pub fn of(&self, group: usize) -> &Rounds {
        if group == 0 { &self.first } else { &self.others[group - 1] }
    }

    /// Of all.
    pub fn all(&self) -> impl Iterator<Item = &Rounds> {
        std::iter::once(&self.first).chain(&self.others)
    }
}

/// Waits for what another thread is about to do.
pub fn pause(until: impl Fn() -> bool) {
    let mut turns = 0;
    while !until() {
        turns += 1;
        if turns % PATIENCE == 0 { thread::yield_now() } else { std::hint::spin_loop() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;
    use std::time::Instant;

    fn sum(pool: &Pool) -> u64 {
        let (counter, total) = (Counter::new(1000), AtomicU64::new(0));
        pool.run(pool.threads(), &|_| {
            while let Some(i) = counter.claim() {
                total.fetch_add(i as u64, Ordering::Relaxed);
            }
        });
        total.into_inner()
    }

    #[test]
    fn every_piece_is_done_once_whoever_calls() {
        let pool = Pool::new(3);
        for _ in 0..200 {
            assert_eq!(sum(&pool), 499_500);
        }
        // Several callers at once: who finds the pool taken works alone.
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..200).for_each(|_| assert_eq!(sum(&pool), 499_500)));
            }
        });
    }

    #[test]
    fn no_more_threads_come_than_are_asked_for_and_a_panic_is_forgotten() {
        let pool = Pool::new(4);
        for round in 0..2000 {
            // Those of the task before are still awake.
            let (most, seen) = (2 + round % 3, AtomicUsize::new(0));
            pool.run(most, &|thread| {
                seen.fetch_max(thread, Ordering::Relaxed);
                (0..50).for_each(|_| std::hint::spin_loop());
            });
            assert!(seen.into_inner() < most);
        }
        let panics = catch_unwind(AssertUnwindSafe(|| pool.run(2, &|_| panic!("on purpose"))));
        assert!(panics.is_err() && sum(&pool) == 499_500);
        let others = AtomicUsize::new(0);
        while others.load(Ordering::Relaxed) == 0 {
            pool.run(2, &|thread| {
                others.fetch_add(thread, Ordering::Relaxed);
                thread::sleep(std::time::Duration::from_micros(100));
            });
        }
    }

    #[test]
    fn rounds_are_gone_through_in_order_and_shares_are_taken_over() {
        let rounds = Rounds::new(7, 3);
        // One thread alone: its own share first, then the others'.
        let alone: Vec<usize> = std::iter::from_fn(|| rounds.claim(1, 0)).collect();
        assert_eq!(alone, [2, 3, 4, 5, 6, 0, 1]);
        (0..7).for_each(|_| rounds.finish());
        rounds.wait(1);
        assert_eq!((rounds.claim(0, 1), rounds.claim(2, 1), rounds.claim(2, 1)), (Some(0), Some(4), Some(5)));
        let (pool, rounds, last) = (Pool::new(3), Rounds::new(5, 3), AtomicU64::new(0));
        pool.run(3, &|thread| {
            for round in 0..50 {
                rounds.wait(round);
                while rounds.claim(thread, round).is_some() {
                    assert!(last.load(Ordering::Relaxed) / 5 >= round as u64);
                    last.fetch_add(1, Ordering::Relaxed);
                    rounds.finish();
                }
            }
        });
        assert_eq!(last.into_inner(), 250);
    }

    #[test]
    fn threads_that_sleep_are_woken_by_all_tasks_and_by_the_end() {
        let pool = Pool::new(3);
        for _ in 0..20 {
            thread::sleep(Duration::from_millis(3));
            let (come, begin) = (AtomicUsize::new(0), Instant::now());
            pool.run(3, &|_| {
                come.fetch_add(1, Ordering::Relaxed);
                while come.load(Ordering::Relaxed) < 3 && begin.elapsed() < Duration::from_secs(10) {
                    thread::yield_now();
                }
            });
            assert_eq!(come.into_inner(), 3);
        }
        thread::sleep(Duration::from_millis(3));
        drop(pool);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn threads_stay_on_the_cores_they_are_given() {
        // Of cores this process may use, the last; one that no machine has changes nothing.
        let allowed = || {
            // SAFETY: a set of bits of the size that is said.
            unsafe {
                let mut set: libc::cpu_set_t = std::mem::zeroed();
                libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set);
                (0..libc::CPU_SETSIZE as usize).filter(|core| libc::CPU_ISSET(*core, &set)).collect::<Vec<_>>()
            }
        };
        let here = allowed();
        let last = here[here.len() - 1];
        let pool = Pool::on_cores(&[0, last, usize::MAX]);
        let seen: [Mutex<Vec<usize>>; 3] = Default::default();
        while seen.iter().any(|seen| seen.lock().unwrap().is_empty()) {
            pool.run(3, &|thread| {
                *seen[thread].lock().unwrap() = allowed();
                // Others have the time to come.
                thread::sleep(std::time::Duration::from_millis(1));
            });
        }
        assert_eq!(seen.map(|seen| seen.into_inner().unwrap()), [here.clone(), vec![last], here]);
    }

    #[test]
    fn a_task_may_call_the_pool_again() {
        let pool = Pool::new(2);
        let outer = Counter::new(8);
        pool.run(2, &|_| {
            while outer.claim().is_some() {
                assert_eq!(sum(&pool), 499_500);
            }
        });
    }

    #[test]
    fn a_panic_comes_back_to_the_caller_and_the_pool_lives_on() {
        let pool = Pool::new(2);
        let counter = Counter::new(2);
        let failed = catch_unwind(AssertUnwindSafe(|| {
            pool.run(2, &|_| {
                while let Some(i) = counter.claim() {
                    assert!(i != 1, "planted");
                }
            });
        }));
        assert!(failed.is_err());
        assert_eq!(sum(&pool), 499_500);
    }
}
