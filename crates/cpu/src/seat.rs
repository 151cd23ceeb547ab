//! Where sleeping threads wake up.
//!
//! A system that sees a machine as busy wakes a thread on the core of whoever wakes it, without looking for an idle one:
//! both then share a core, and the one that was woken may wait for milliseconds. So where a pool has a thread for every
//! core, a thread sleeps on a core of its own, and who wakes it sends it to another if it is there itself; once awake it
//! may go anywhere. Where there are more cores than threads the system knows better.

#[cfg(all(target_os = "linux", not(miri)))]
pub use linux::{Cores, Seat};

#[cfg(all(target_os = "linux", not(miri)))]
mod linux {
    use crate::pool::pause;
    use libc::{CPU_ISSET, CPU_SET, CPU_SETSIZE, cpu_set_t, sched_getaffinity, sched_getcpu, sched_setaffinity};
    use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

    /// A set of cores.
    #[derive(Clone, Copy)]
    pub struct Cores(cpu_set_t);

    const SIZE: usize = size_of::<cpu_set_t>();

    impl Cores {
        fn none() -> Cores {
            // SAFETY: a set of bits, for which all 0 is empty.
            Cores(unsafe { std::mem::zeroed() })
        }

        /// One core; none where there is no such number.
        pub fn only(core: usize) -> Cores {
            let mut cores = Cores::none();
            cores.add(core);
            cores
        }

        /// Those the calling thread may use.
        pub fn allowed() -> Cores {
            let mut cores = Cores::none();
            // SAFETY: it writes a set of the size that is said, or nothing.
            unsafe { sched_getaffinity(0, SIZE, &mut cores.0) };
            cores
        }

        /// The one the calling thread is on, if that is known.
        pub fn here() -> Cores {
            // SAFETY: it only answers.
            Cores::only(usize::try_from(unsafe { sched_getcpu() }).unwrap_or(usize::MAX))
        }

        /// Several.
        pub fn of(numbers: &[usize]) -> Cores {
            let mut cores = Cores::none();
            numbers.iter().for_each(|core| cores.add(*core));
            cores
        }

        /// The system's numbers of them.
        pub fn numbers(&self) -> Vec<usize> {
            (0..CPU_SETSIZE as usize).filter(|core| self.has(*core)).collect()
        }

        /// How many.
        pub fn count(&self) -> usize {
            self.numbers().len()
        }

        /// The first of them alone.
        pub fn first(&self) -> Cores {
            Cores::only(self.numbers().first().copied().unwrap_or(usize::MAX))
        }

        fn has(&self, core: usize) -> bool {
            // SAFETY: inside the set.
            core < CPU_SETSIZE as usize && unsafe { CPU_ISSET(core, &self.0) }
        }

        fn add(&mut self, core: usize) {
            if core < CPU_SETSIZE as usize {
                // SAFETY: inside the set.
                unsafe { CPU_SET(core, &mut self.0) };
            }
        }

        /// Keeps a thread on them, the calling one by 0, if the system lets it.
        pub fn keep(&self, thread: i32) {
            // SAFETY: it reads a set of the size that is said.
            unsafe { sched_setaffinity(thread, SIZE, &self.0) };
        }
    }

    /// What is known of a thread that may sleep.
    pub struct Seat {
        /// The system's number of it.
        thread: AtomicI32,
        /// The core it fell asleep on, while it does.
        core: AtomicUsize,
        allowed: Cores,
    }

    const AWAKE: usize = usize::MAX;
    const BEING_SENT: usize = usize::MAX - 1;

    impl Seat {
        /// Of a thread that may use these cores.
        pub fn new(allowed: Cores) -> Seat {
            Seat { thread: AtomicI32::new(0), core: AtomicUsize::new(AWAKE), allowed }
        }

        /// Said by the thread itself before it sleeps.
        pub fn sleeps(&self) {
            // SAFETY: they only answer.
            let (thread, core) = unsafe { (libc::gettid(), sched_getcpu()) };
            if let Ok(core) = usize::try_from(core) {
                Cores::only(core).keep(thread);
                self.thread.store(thread, Ordering::Relaxed);
                self.core.store(core, Ordering::Release);
            }
        }

        /// Said by the thread itself when it is awake again: once nobody is about to send it elsewhere it may go anywhere.
        pub fn wakes(&self) {
            pause(|| {
                let core = self.core.load(Ordering::Acquire);
                let awake = || self.core.compare_exchange(core, AWAKE, Ordering::AcqRel, Ordering::Relaxed);
                core != BEING_SENT && awake().is_ok()
            });
            self.allowed.keep(0);
        }

        /// Said by who will wake it, with the cores in use, to which its own is added.
        pub fn make_room(&self, taken: &mut Cores) {
            let core = self.core.load(Ordering::Acquire);
            if core == AWAKE {
                return;
            }
            if !taken.has(core) {
                return taken.add(core);
            }
            let free = (0..CPU_SETSIZE as usize).find(|core| self.allowed.has(*core) && !taken.has(*core));
            let Some(free) = free else { return };
            let sends = self.core.compare_exchange(core, BEING_SENT, Ordering::AcqRel, Ordering::Relaxed);
            if sends.is_ok() {
                taken.add(free);
                Cores::only(free).keep(self.thread.load(Ordering::Relaxed));
                self.core.store(free, Ordering::Release);
            }
        }
    }
}

/// Nothing is known, and nothing done; Miri knows no cores either.
#[cfg(not(all(target_os = "linux", not(miri))))]
#[derive(Clone, Copy)]
pub struct Cores;

#[cfg(not(all(target_os = "linux", not(miri))))]
impl Cores {
    pub fn allowed() -> Cores {
        Cores
    }
    pub fn here() -> Cores {
        Cores
    }
    pub fn only(_: usize) -> Cores {
        Cores
    }
    pub fn of(_: &[usize]) -> Cores {
        Cores
    }
    pub fn numbers(&self) -> Vec<usize> {
        Vec::new()
    }
    pub fn count(&self) -> usize {
        usize::MAX
    }
    pub fn first(&self) -> Cores {
        Cores
    }
    pub fn keep(&self, _: i32) {}
}

/// As above.
#[cfg(not(all(target_os = "linux", not(miri))))]
pub struct Seat;

#[cfg(not(all(target_os = "linux", not(miri))))]
impl Seat {
    pub fn new(_: Cores) -> Seat {
        Seat
    }
    pub fn sleeps(&self) {}
    pub fn wakes(&self) {}
    pub fn make_room(&self, _: &mut Cores) {}
}
