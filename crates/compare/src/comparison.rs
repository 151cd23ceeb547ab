//! Two workloads side by side.

use crate::key::Key;
use crate::pair::pair;
use crate::seen::{Seen, gather};
use gemwright_core::kernel_name::role;
use gemwright_core::{Call, MeasuredKernel, Workload};
use std::collections::HashMap;
use std::sync::Arc;

/// Why two sides of a row belong together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// Everything of the key is equal; or there is one side only.
    Same,
    /// A compiler padded an extent up to a multiple of 8.
    Padded,
    /// The same extents, which a compiler laid out or issued otherwise.
    Relaid,
    /// Kernels of a captured graph, by order, kind, type, flags and tile.
    Replayed,
}

impl How {
    /// The name used in all output.
    pub fn name(self) -> &'static str {
        match self {
            How::Same => "same",
            How::Padded => "padded",
            How::Relaid => "relaid",
            How::Replayed => "replayed",
        }
    }
}

/// What is wrong with a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Difference {
    /// Only the first side has it.
    Missing,
    /// Only the second side has it.
    New,
    /// Both have it, one more often.
    Count,
}

impl Difference {
    /// The name used in all output, and by `--fail-on`.
    pub fn name(self) -> &'static str {
        match self {
            Difference::Missing => "missing",
            Difference::New => "new",
            Difference::Count => "count",
        }
    }
}

/// One product.
#[derive(Debug, Clone)]
pub struct Row {
    /// Why the sides belong together.
    pub how: How,
    /// As each side has it.
    pub sides: [Option<Seen>; 2],
}

impl Row {
    /// What is wrong, if anything.
    pub fn difference(&self) -> Option<Difference> {
        match &self.sides {
            [Some(a), Some(b)] => (a.call.count != b.call.count).then_some(Difference::Count),
            [Some(_), None] => Some(Difference::Missing),
            _ => Some(Difference::New),
        }
    }

    /// The product, as the first side has it, else the second.
    pub fn call(&self) -> &Call {
        let [a, b] = &self.sides;
        &a.as_ref().or(b.as_ref()).expect("a row has a side").call
    }
}

/// Replays of a captured graph, each of which is as much as the whole other side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replays {
    /// Which side.
    pub side: usize,
    /// How many; the side's counts and times are of one.
    pub count: u64,
}

/// Kernels that multiply and could be given to no product.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct Unmatched {
    pub side: usize,
    pub name: Arc<str>,
    pub why: &'static str,
    pub count: u64,
    pub nanoseconds: u64,
}

/// The time of kernels that multiply, by their names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KernelTime {
    /// All of them.
    pub all: u64,
    /// Those of products that both sides have.
    pub matched: u64,
}

impl KernelTime {
    /// 0 to 1.
    pub fn share(&self) -> f64 {
        if self.all == 0 { 0.0 } else { self.matched as f64 / self.all as f64 }
    }
}

/// The answer.
#[derive(Debug, Default)]
pub struct Comparison {
    /// Products, in order of the first side, then what only the second has.
    pub rows: Vec<Row>,
    /// A side that is several replays of what the other side is once.
    pub replays: Option<Replays>,
    /// By name, longest first.
    pub unmatched: Vec<Unmatched>,
    /// Of each side that was observed.
    pub kernels: [Option<KernelTime>; 2],
}

/// The source says that a compiler made it.
fn is_compiled(workload: &Workload) -> bool {
    workload.source.facts.iter().any(|(name, value)| name == "compiled" && value.as_bool() == Some(true))
}

impl Comparison {
    /// Of two workloads. What a graph hides is matched where the other side kept its order.
    pub fn of(workloads: [&Workload; 2]) -> Comparison {
        let [(list, which), (other, other_which)] = workloads.map(gather);
        let mut rows: Vec<Row> = Vec::new();
        let mut at_b: HashMap<Key, Seen> = other.iter().cloned().collect();
        let mut left: [Vec<Seen>; 2] = [Vec::new(), Vec::new()];
        for (key, seen) in &list {
            match at_b.remove(key) {
                Some(b) => rows.push(Row { how: How::Same, sides: [Some(seen.clone()), Some(b)] }),
                None => left[0].push(seen.clone()),
            }
        }
        left[1].extend(other.iter().filter(|(key, _)| at_b.contains_key(key)).map(|(_, seen)| seen.clone()));
        for side in [1, 0] {
            if is_compiled(workloads[side]) {
                rows.extend(pair(&mut left, side));
            }
        }
        let [left_a, left_b] = left;
        let alone = |seen: &Seen| seen.call.count > 0;
        rows.extend(left_a.into_iter().filter(alone).map(|a| Row { how: How::Same, sides: [Some(a), None] }));
        rows.extend(left_b.into_iter().filter(alone).map(|b| Row { how: How::Same, sides: [None, Some(b)] }));
        let mut comparison = Comparison { rows, ..Comparison::default() };
        for (side, which) in [(0, &other_which), (1, &which)] {
            comparison.match_graphs(side, workloads, which);
        }
        comparison.unmatched.sort_by_key(|kernel| std::cmp::Reverse(kernel.nanoseconds));
        comparison.kernels = [0, 1].map(|side| comparison.kernel_time(side));
        comparison
    }

    fn kernel_time(&self, side: usize) -> Option<KernelTime> {
        let multiplies = |k: &&MeasuredKernel| role(&k.name).is_some();
        let mut time = KernelTime::default();
        for row in &self.rows {
            let measured = row.sides[side].as_ref().and_then(|seen| seen.call.measured.as_ref());
            let own: u64 =
                measured.iter().flat_map(|m| m.kernels.iter().filter(multiplies)).map(|k| k.nanoseconds).sum();
            time.all += own;
            time.matched += if row.sides[1 - side].is_some() { own } else { 0 };
        }
        time.all += self.unmatched.iter().filter(|u| u.side == side).map(|u| u.nanoseconds).sum::<u64>();
        (time.all > 0).then_some(time)
    }

    /// Rows that differ.
    pub fn differences(&self) -> impl Iterator<Item = (&Row, Difference)> {
        self.rows.iter().filter_map(|row| row.difference().map(|difference| (row, difference)))
    }

    /// How much of both sides is in both, single calls counted: 1 where nothing differs.
    pub fn agreement(&self) -> f64 {
        let counts = |row: &Row| [0, 1].map(|side| row.sides[side].as_ref().map_or(0, |seen| seen.call.count));
        let (mut both, mut all) = (0u64, 0u64);
        for [a, b] in self.rows.iter().map(counts) {
            both += 2 * a.min(b);
            all += a + b;
        }
        if all == 0 { 0.0 } else { both as f64 / all as f64 }
    }
}
