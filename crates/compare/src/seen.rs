//! One product as one side has it.

use crate::key::Key;
use gemwright_core::{Call, Measured, Workload};
use std::collections::HashMap;
use std::sync::Arc;

/// All calls of one key.
#[derive(Debug, Clone)]
pub struct Seen {
    /// The first of them, with the count and the times of all.
    pub call: Call,
    /// Where they are issued, in order, each once; a trace has none.
    pub modules: Vec<Arc<str>>,
}

impl Seen {
    fn new(call: &Call) -> Seen {
        let modules = if call.module.is_empty() { Vec::new() } else { vec![call.module.clone()] };
        Seen { call: call.clone(), modules }
    }

    fn add(&mut self, call: &Call) {
        self.call.count += call.count;
        if !call.module.is_empty() && !self.modules.contains(&call.module) {
            self.modules.push(call.module.clone());
        }
        if let Some(measured) = &call.measured {
            self.measure(measured);
        }
    }

    /// Adds times.
    pub(crate) fn measure(&mut self, other: &Measured) {
        match &mut self.call.measured {
            Some(own) => own.join(other),
            None => self.call.measured = Some(Box::new(other.clone())),
        }
    }

    /// Takes so many repetitions out, with their part of the time.
    pub(crate) fn take(&mut self, count: u64) -> Seen {
        let (whole, count) = (self.call.count, count.min(self.call.count));
        let mut taken = self.clone();
        let part = |x: u64, n: u64| (u128::from(x) * u128::from(n) / u128::from(whole.max(1))) as u64;
        for (seen, n) in [(&mut taken, count), (&mut *self, whole - count)] {
            seen.call.count = n;
            if let Some(measured) = &mut seen.call.measured {
                scale(measured, |x| part(x, n));
            }
        }
        taken
    }

    /// One of so many equal parts, if the count divides.
    pub(crate) fn divide(&mut self, parts: u64) {
        if self.call.count.is_multiple_of(parts) {
            self.call.count /= parts;
            if let Some(measured) = &mut self.call.measured {
                scale(measured, |x| x / parts);
            }
        }
    }

    /// Seconds of one repetition, where it ran.
    pub fn seconds(&self) -> Option<f64> {
        let taken = self.call.measured.as_ref()?.seconds() / self.call.count.max(1) as f64;
        Some(taken).filter(|s| *s > 0.0)
    }
}

fn scale(measured: &mut Measured, part: impl Fn(u64) -> u64) {
    measured.nanoseconds = part(measured.nanoseconds);
    measured.launches = part(measured.launches);
    for kernel in &mut measured.kernels {
        kernel.nanoseconds = part(kernel.nanoseconds);
        kernel.count = part(kernel.count);
    }
}

/// The products of a side in order of first issue, and for each of its calls which of them it is.
pub(crate) fn gather(workload: &Workload) -> (Vec<(Key, Seen)>, Vec<usize>) {
    let mut places: HashMap<Key, usize> = HashMap::new();
    let mut all: Vec<(Key, Seen)> = Vec::new();
    let mut which = Vec::new();
    for call in workload.calls() {
        let key = Key::of(call);
        match places.get(&key) {
            Some(&at) => {
                all[at].1.add(call);
                which.push(at);
            }
            None => {
                places.insert(key.clone(), all.len());
                which.push(all.len());
                all.push((key, Seen::new(call)));
            }
        }
    }
    (all, which)
}
