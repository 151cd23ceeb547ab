//! The calling thread on one core or anywhere, for measurements.

use crate::seat::Cores;

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
}
