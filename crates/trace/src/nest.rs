//! Host events nested by time: the parent of each.

use crate::event::Trace;
use crate::interval::{Span, Time, order};

/// Nobody.
pub const NONE: u32 = u32::MAX;

/// How host events lie in one another.
#[derive(Default)]
pub struct Nest {
    /// The parent of each event, by its place; `NONE` for those at the top, on the GPU, or that fit nowhere.
    pub parent: Vec<u32>,
    /// Those that begin inside another and end outside of it: they are nobody's child or parent.
    pub misfits: Vec<u32>,
}

/// Nests them.
pub fn nest<T: Time>(trace: &Trace, spans: &[Span<T>]) -> Nest {
    let mut misfits = Vec::new();
    let mut parent = vec![NONE; trace.events.len()];
    let host = (0..trace.events.len() as u32).filter(|i| trace.events[*i as usize].category.on_host());
    let mut sorted: Vec<u32> = host.collect();
    // Stable: of two that begin together the first in the file is the outer.
    sorted.sort_by(|x, y| order(&spans[*x as usize].start, &spans[*y as usize].start));
    let mut stacks: Vec<Vec<u32>> = vec![Vec::new(); trace.lanes.len()];
    for i in sorted {
        let span = spans[i as usize];
        let stack = &mut stacks[trace.events[i as usize].lane as usize];
        let end_of = |place: u32| spans[place as usize].end;
        while stack.last().is_some_and(|top| span.start >= end_of(*top)) {
            stack.pop();
        }
        if let Some(&top) = stack.last()
            && span.end > end_of(top)
        {
            // It begins inside and ends outside: forgiven where clocks blur, else it is nobody's child.
            if end_of(top) - span.start < T::MICROSECOND && stack.len() >= 2 {
                stack.pop();
            } else {
                misfits.push(i);
                continue;
            }
        }
        parent[i as usize] = stack.last().copied().unwrap_or(NONE);
        stack.push(i);
    }
    Nest { parent, misfits }
}
