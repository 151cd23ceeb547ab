//! Other people's libraries, opened where they lie when the program runs. One that is not there is listed
//! with how to get it; nothing is linked.

mod cblas;
mod find;
mod onednn;
mod onednn_matmul;

use crate::candidate::Candidate;
use gemwright_cpu::Caller;

/// A library that was not found, or could not be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Absent {
    /// Its name as a candidate.
    pub name: &'static str,
    /// What happened.
    pub why: String,
    /// How to get it.
    pub how: &'static str,
}

/// Those that are here, and those that are not.
pub fn vendors() -> (Vec<Box<dyn Candidate>>, Vec<Absent>) {
    // A library that keeps its threads on cores does so with the thread that opens it; that one is not its own.
    let _caller = Caller::new();
    let (mut found, mut absent) = (Vec::new(), Vec::new());
    for library in &cblas::LIBRARIES {
        match cblas::Cblas::open(library) {
            Ok(candidate) => found.push(Box::new(candidate) as Box<dyn Candidate>),
            Err(why) => absent.push(Absent { name: library.name, why, how: library.how }),
        }
    }
    match onednn::OneDnn::open() {
        Ok(candidate) => found.push(Box::new(candidate)),
        Err(why) => absent.push(Absent { name: onednn::NAME, why, how: onednn::HOW }),
    }
    (found, absent)
}
