//! Forward operations tied to their backward by the sequence number autograd gives both.

use crate::event::Trace;
use crate::fast::Map;
use crate::nest::NONE;

/// What autograd's engine calls an event that runs one node of the backward graph.
pub const NODE: &[u8] = b"autograd::engine::evaluate_function: ";

/// A node of the backward graph and the innermost forward operation it undoes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Pair {
    pub forward: u32,
    pub backward: u32,
}

/// Pairs in order of the backward. The first node of a number is its backward; its forward is, of the
/// events with that number on other threads, the one that begins last.
pub fn pairs(trace: &Trace) -> Vec<Pair> {
    let is_node: Vec<bool> = trace.texts.iter().map(|name| name.starts_with(NODE)).collect();
    let mut backward: Map<i64, u32> = Map::default();
    for (i, event) in trace.events.iter().enumerate().filter(|(_, e)| is_node[e.name as usize]) {
        if let Some(number) = event.sequence.get() {
            backward.entry(number).or_insert(i as u32);
        }
    }
    let mut forward: Map<i64, u32> = Map::default();
    for (i, event) in trace.events.iter().enumerate() {
        let Some(number) = event.sequence.get() else { continue };
        let Some(node) = backward.get(&number) else { continue };
        if trace.events[*node as usize].lane == event.lane || is_node[event.name as usize] {
            continue;
        }
        let latest = forward.entry(number).or_insert(NONE);
        if *latest == NONE || trace.events[*latest as usize].start < event.start {
            *latest = i as u32;
        }
    }
    let pair = |(number, forward): (i64, u32)| Pair { forward, backward: backward[&number] };
    let mut pairs: Vec<Pair> = forward.into_iter().map(pair).collect();
    pairs.sort_by_key(|pair| (trace.events[pair.backward as usize].start, pair.backward));
    pairs
}

/// The nodes of each forward event, those of events inside it too; only events that have one themselves are
/// in it. `parent` is the host event around each.
pub fn nodes_behind(trace: &Trace, parent: &[u32]) -> Map<u32, Vec<u32>> {
    let pairs = pairs(trace);
    let mut all: Map<u32, Vec<u32>> = pairs.iter().map(|pair| (pair.forward, Vec::new())).collect();
    for pair in &pairs {
        let mut above = pair.forward;
        while above != NONE {
            if let Some(list) = all.get_mut(&above) {
                list.push(pair.backward);
            }
            above = parent[above as usize];
        }
    }
    all
}
