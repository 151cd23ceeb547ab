//! What GPU queues cannot do: run a kernel past later ones of the same stream.

use crate::event::Trace;
use crate::fast::Map;
use crate::interval::Span;
use crate::problems::{Problems, Severity};
use std::collections::BinaryHeap;

/// Cuts off the end of an event that still seems to run when a later one of its stream has begun and
/// ended: its end was recorded wrongly. Two that merely touch are left alone, since a kernel may begin
/// while the one before drains; so are those of one graph launch, whose branches run side by side.
pub fn clip(trace: &Trace, spans: &mut [Span<i64>], problems: &mut Problems) {
    let mut queues: Map<(u32, u32), Vec<u32>> = Map::default();
    for (i, event) in trace.events.iter().enumerate().filter(|(_, e)| e.category.on_gpu()) {
        queues.entry((trace.process(event.lane), event.queue)).or_default().push(i as u32);
    }
    let (mut times, mut cut) = (0, 0);
    for mut list in queues.into_values() {
        list.sort_by_key(|i| spans[*i as usize].start);
        // What has begun, the one that ends last on top.
        let mut begun: BinaryHeap<(i64, u32)> = BinaryHeap::new();
        for i in list {
            let now = spans[i as usize];
            while let Some(&(end, outer)) = begun.peek()
                && end > now.end
                && now.end > now.start
            {
                begun.pop();
                let graph = trace.events[outer as usize].correlation == trace.events[i as usize].correlation;
                if !graph {
                    times += 1;
                    cut += end - now.start;
                    spans[outer as usize].end = now.start;
                }
            }
            begun.push((now.end, i));
        }
    }
    if times > 0 {
        let what = format!(
            "a GPU event ran past later ones of its stream: its end was cut ({:.3} ms in all)",
            cut as f64 / 1e6
        );
        problems.add_times(Severity::Warning, &what, times);
    }
}
