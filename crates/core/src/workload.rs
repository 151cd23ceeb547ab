//! The list that joins prediction, observation, execution and choice.

use crate::{Call, Collective, Launched};
use std::collections::HashMap;
use std::hash::Hasher;

/// Where a workload came from: a model with its options, as written in the output.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Source {
    /// Kind of source: `model` for a prediction, `trace` for what was observed.
    pub kind: String,
    /// Further facts in the order they are printed.
    pub facts: Vec<(String, serde_json::Value)>,
}

/// Calls in order of first issue, equal ones merged.
#[derive(Debug, Clone, Default)]
pub struct Workload {
    /// What was asked.
    pub source: Source,
    /// Parameters of the model, a tied one counted once.
    pub parameters: Option<u64>,
    /// What was odd about the input but readable.
    pub warnings: Vec<String>,
    /// What ranks exchange, in order of first issue.
    pub collectives: Vec<Collective>,
    /// Kernels that multiply and belong to no call, where the workload was observed.
    pub launched: Vec<Launched>,
    /// Where it is kept, the place in `calls` of every single call, as issued.
    order: Option<Vec<u32>>,
    calls: Vec<Call>,
    /// Hash of a call's key -> its position in `calls`; the next free number where two keys meet.
    places: HashMap<u64, usize>,
}

/// Single calls of which the order is kept; of more it is not.
const LONGEST_ORDER: usize = 1 << 25;

impl Workload {
    /// One that remembers in which order single calls came, merged or not.
    pub fn in_order() -> Workload {
        Workload { order: Some(Vec::new()), ..Workload::default() }
    }

    /// The place in [`Workload::calls`] of every single call, in order, where it was kept.
    pub fn order(&self) -> Option<&[u32]> {
        self.order.as_deref()
    }

    /// Adds the call at `at` to the order, `count` times.
    fn keep_order(&mut self, at: usize, count: u64) {
        let Some(order) = &mut self.order else { return };
        if count > (LONGEST_ORDER - order.len()) as u64 {
            self.order = None;
        } else {
            order.extend(std::iter::repeat_n(at as u32, count as usize));
        }
    }

    /// The calls, in order of first issue.
    pub fn calls(&self) -> &[Call] {
        &self.calls
    }

    /// Adds a call, or its count to an equal one.
    pub fn push(&mut self, call: &Call) {
        self.push_times(call, 1);
    }

    /// Adds a call so many times over.
    pub fn push_times(&mut self, call: &Call, times: u64) {
        let count = call.count * times;
        if count == 0 {
            return;
        }
        let mut hasher = Mix(0);
        call.hash_key(&mut hasher);
        let mut key = hasher.finish();
        while let Some(&at) = self.places.get(&key) {
            if self.calls[at].same(call) {
                self.calls[at].count += count;
                if let (Some(own), Some(other)) = (&mut self.calls[at].measured, &call.measured) {
                    own.join(other);
                } else if call.measured.is_some() {
                    self.calls[at].measured.clone_from(&call.measured);
                }
                self.keep_order(at, count);
                return;
            }
            key = key.wrapping_add(1);
        }
        self.places.insert(key, self.calls.len());
        self.keep_order(self.calls.len(), count);
        self.calls.push(Call { count, ..call.clone() });
    }
}

impl Workload {
    /// Adds an exchange so many times over.
    pub fn push_collective(&mut self, collective: &Collective, times: u64) {
        let count = collective.count * times;
        let same = |other: &&mut Collective| Collective { count: collective.count, ..(**other).clone() } == *collective;
        match self.collectives.iter_mut().find(same) {
            Some(other) => other.count += count,
            None => self.collectives.push(Collective { count, ..collective.clone() }),
        }
    }
}

/// A quick hash for keys that nobody chooses to make us slow: a wrong guess costs one comparison.
struct Mix(u64);

impl Hasher for Mix {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.0 = (self.0.rotate_left(5) ^ u64::from_le_bytes(word)).wrapping_mul(0x517c_c1b7_2722_0a95);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, Op, Operands, Pass, View};

    #[test]
    fn a_kept_order_has_every_single_call() {
        let view = |n: i64| View::contiguous(&[n, n], DType::Bf16);
        let mm = |n: i64| {
            let operands =
                Operands::Product { a: view(n), b: view(n), bias: None, out: view(n), alpha: 1.0, beta: 1.0 };
            Call::once(Op::Mm, operands)
        };
        let mut workload = Workload::in_order();
        for n in [4, 5, 4] {
            workload.push_times(&mm(n), 2);
        }
        assert_eq!(workload.order(), Some(&[0, 0, 1, 1, 0, 0][..]));
        workload.push_times(&mm(6), u64::MAX);
        assert_eq!((workload.order(), Workload::default().order()), (None, None));
    }

    #[test]
    fn equal_calls_merge_and_keep_the_order_of_first_issue() {
        let mm = |n: i64, count| {
            let view = |size: &[i64]| View::contiguous(size, DType::Bf16);
            let (a, b, out) = (view(&[2, 3]), view(&[3, n]), view(&[2, n]));
            let operands = Operands::Product { a, b, bias: None, out, alpha: 1.0, beta: 1.0 };
            Call {
                op: Op::Mm,
                pass: Pass::Forward,
                module: "m".into(),
                operands,
                scales: None,
                inside: false,
                count,
                measured: None,
            }
        };
        let mut workload = Workload::default();
        for call in [mm(4, 1), mm(5, 2), mm(4, 3), mm(6, 0)] {
            workload.push(&call);
        }
        let counts: Vec<u64> = workload.calls().iter().map(|c| c.count).collect();
        assert_eq!(counts, [4, 2]);
    }
}
