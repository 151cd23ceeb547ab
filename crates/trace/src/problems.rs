//! What was wrong with a file but did not keep it from being read.

use std::collections::BTreeMap;

/// How much it matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Nothing is lost.
    Note,
    /// Some figures may be off.
    Warning,
    /// A part of the file is lost.
    Loss,
}

impl Severity {
    /// The word in all output.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Loss => "loss",
        }
    }
}

/// One kind of trouble.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// How much it matters.
    pub severity: Severity,
    /// In words.
    pub what: String,
    /// How often.
    pub count: u64,
}

/// All kinds, each once.
#[derive(Debug, Clone, Default)]
pub struct Problems(BTreeMap<(std::cmp::Reverse<Severity>, String), u64>);

impl Problems {
    /// One more of a kind.
    pub fn add(&mut self, severity: Severity, what: &str) {
        self.add_times(severity, what, 1);
    }

    /// So many more of a kind.
    pub fn add_times(&mut self, severity: Severity, what: &str, times: u64) {
        if times > 0 {
            *self.0.entry((std::cmp::Reverse(severity), what.into())).or_default() += times;
        }
    }

    /// Those of another part of the file too.
    pub fn join(&mut self, other: Problems) {
        for ((severity, what), count) in other.0 {
            *self.0.entry((severity, what)).or_default() += count;
        }
    }

    /// The worst first.
    pub fn list(&self) -> Vec<Problem> {
        let one = |((severity, what), count): (&(std::cmp::Reverse<Severity>, String), &u64)| Problem {
            severity: severity.0,
            what: what.clone(),
            count: *count,
        };
        self.0.iter().map(one).collect()
    }
}
