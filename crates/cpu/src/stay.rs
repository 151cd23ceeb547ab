//! The calling thread on one core or anywhere, for measurements.

use crate::seat::Cores;
use std::collections::HashSet;

/// Libraries keep their threads on cores from the second on, and with them the caller's on the first: there it must stay
/// while it calls them. Who starts threads in every call has them inherit where the caller may be, so it must roam.
/// Where the system has no such thing, nothing happens.
pub struct Caller(Cores);

impl Caller {
    /// The calling thread, as it is now. It roams again when this is dropped.
    pub fn new() -> Caller {
        Caller(Cores::allowed())
    }

    /// It stays on the first of the cores it might use.
    pub fn stays(&self) {
        self.0.first().keep(0);
    }

    /// It may use all that it might, whatever others have done to it.
    pub fn roams(&self) {
        self.0.keep(0);
    }
}

/// Turns of a rate, of which the best counts: the first tells how long a core takes to get going.
const TURNS: usize = 4;

/// Keeps the calling thread, and whatever it starts from now on, on so many of the cores it may use, those where `rate` is
/// the highest now: on a machine that is shared some are slow for seconds at a time, because of who runs beside them. Two
/// that are one core's come together only where there are no others. Gives the numbers of those that are allowed then.
pub fn keep_to_fastest(count: usize, rate: &dyn Fn() -> f64) -> Vec<usize> {
    let allowed = Cores::allowed().numbers();
    if allowed.len() <= count {
        return allowed;
    }
    let mut rated: Vec<(f64, usize)> = allowed
        .into_iter()
        .map(|core| {
            Cores::only(core).keep(0);
            ((0..TURNS).map(|_| rate()).fold(0.0, f64::max), core)
        })
        .collect();
    rated.sort_by(|x, y| y.0.total_cmp(&x.0));
    let mut seen = HashSet::new();
    let (first, others): (Vec<_>, Vec<_>) =
        rated.iter().map(|(_, core)| *core).partition(|core| siblings(*core).is_none_or(|one| seen.insert(one)));
    let fastest: Vec<usize> = first.into_iter().chain(others).take(count.max(1)).collect();
    keep_to(&fastest)
}

/// What threads of one core have in common, where the system tells.
fn siblings(core: usize) -> Option<String> {
    std::fs::read_to_string(format!("/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list")).ok()
}

/// Keeps the calling thread, and whatever it starts from now on, on these cores, if the system lets it. Gives the numbers
/// of those that are allowed then.
pub fn keep_to(cores: &[usize]) -> Vec<usize> {
    Cores::of(cores).keep(0);
    Cores::allowed().numbers()
}

/// How many the machine has, whatever this process may use.
pub fn cores_of_this_machine() -> usize {
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").ok();
    let usable = || std::thread::available_parallelism().map_or(1, usize::from);
    online.and_then(|list| numbers(&list)).map_or_else(usable, |all| all.len())
}

/// The numbers of a list like `0-3,8`.
pub fn numbers(list: &str) -> Option<Vec<usize>> {
    let mut all = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let [first, last] = [first, last].map(|number| number.trim().parse::<usize>().ok().filter(|n| *n < MOST));
        all.extend(first?..=last?);
    }
    Some(all)
}

/// More cores than any machine has.
const MOST: usize = 1 << 16;

impl Default for Caller {
    fn default() -> Caller {
        Caller::new()
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.roams();
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_stays_and_may_go_again() {
        std::thread::spawn(|| {
            let before = Cores::allowed().count();
            let caller = Caller::new();
            caller.stays();
            assert_eq!(Cores::allowed().count(), 1);
            drop(caller);
            assert_eq!(Cores::allowed().count(), before);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn the_core_with_the_highest_rate_is_kept() {
        std::thread::spawn(|| {
            let Some(fast) = Cores::allowed().numbers().pop() else { return };
            let kept = keep_to_fastest(1, &|| f64::from(u8::from(Cores::here().numbers() == [fast])));
            assert_eq!((kept, Cores::allowed().numbers()), (vec![fast], vec![fast]));
            // Where there are no more than are wanted nobody is asked.
            assert_eq!(keep_to_fastest(1, &|| panic!("asked")), vec![fast]);
            // A core that no machine has changes nothing.
            assert_eq!(keep_to(&[usize::MAX]), vec![fast]);
        })
        .join()
        .unwrap();
        assert!(cores_of_this_machine() >= 1);
        assert_eq!([numbers("0"), numbers("0-2, 8\n"), numbers("")], [Some(vec![0]), Some(vec![0, 1, 2, 8]), None]);
        assert!(numbers("0-x").is_none() && numbers("0-99999999999").is_none() && numbers("-1").is_none());
    }
}
