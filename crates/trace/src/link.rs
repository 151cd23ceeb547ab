//! Each GPU event tied to the host call that launched it.

use crate::analysis::Mode;
use crate::event::{Category, Event, Tie, Trace};
use crate::fast::{Hash, Map, Set};
use crate::nest::NONE;
use crate::problems::{Problems, Severity};

/// Launches and what they launched.
pub struct Links {
    /// The launching call of each event, by its place.
    pub launcher: Vec<u32>,
    /// GPU events in the order of the calls that launched them.
    pub order: Vec<u32>,
}

/// A call that runs a whole captured graph.
pub fn is_graph_launch(name: &[u8]) -> bool {
    name == b"cudaGraphLaunch" || name == b"hipGraphLaunch"
}

/// Ties them.
pub fn links(trace: &Trace, mode: Mode, problems: &mut Problems) -> Links {
    match mode {
        Mode::TraceLens => by_flows(trace),
        Mode::Exact => by_correlation(trace, problems),
    }
}

fn is_call(event: &Event) -> bool {
    matches!(event.category, Category::Runtime | Category::Driver)
}

/// The correlation, or the external id where the first launch has none.
fn key_of(trace: &Trace) -> fn(&Event) -> Option<i64> {
    let launches = |name: &[u8]| name.to_ascii_lowercase().windows(6).any(|w| w == b"launch");
    let launch = |e: &&Event| is_call(e) && launches(trace.texts[e.name as usize]);
    match trace.events.iter().find(launch) {
        Some(first) if first.correlation != Tie::NONE => |e| e.correlation.get(),
        _ => |e| e.external.get(),
    }
}

/// The numbers of the calls that run graphs.
fn graph_launches(trace: &Trace, key: fn(&Event) -> Option<i64>) -> Set<i64> {
    let named: Vec<bool> = trace.texts.iter().map(|name| is_graph_launch(name)).collect();
    trace.events.iter().filter(|e| is_call(e) && named[e.name as usize]).filter_map(key).collect()
}

/// TraceLens's way: a launch and its GPU event must be the two ends of an arrow, later arrows of the
/// same number replacing earlier ones.
fn by_flows(trace: &Trace) -> Links {
    let key = key_of(trace);
    let gpu = trace.events.iter().filter(|e| e.category.on_gpu()).count();
    let mut starts = Set::with_capacity_and_hasher(gpu, Hash::default());
    let mut ends: Map<i64, u32> = Map::with_capacity_and_hasher(gpu, Hash::default());
    let mut at: Map<(u32, i64), u32> = Map::with_capacity_and_hasher(2 * gpu, Hash::default());
    let graphs: Set<i64> = graph_launches(trace, key);
    let mut of_graph: Map<i64, Vec<u32>> = Map::default();
    for (i, event) in trace.events.iter().enumerate() {
        let i = i as u32;
        match (event.category, event.correlation.get()) {
            (Category::FlowStart, Some(id)) => {
                starts.insert(id);
            }
            (Category::FlowEnd, Some(id)) => {
                ends.insert(id, event.lane);
            }
            (Category::FlowStart | Category::FlowEnd, None) => {}
            _ => {
                if let Some(link) = key(event) {
                    at.insert((event.lane, link), i);
                    if event.category.on_gpu() && graphs.contains(&link) {
                        of_graph.entry(link).or_default().push(i);
                    }
                }
            }
        }
    }
    let mut links = Links { launcher: vec![NONE; trace.events.len()], order: Vec::new() };
    for (i, event) in trace.events.iter().enumerate().filter(|(_, e)| is_call(e)) {
        let Some(link) = key(event) else { continue };
        let launched: Vec<u32> = if is_graph_launch(trace.name(i as u32)) {
            of_graph.get(&link).cloned().unwrap_or_default()
        } else {
            let lane = ends.get(&link).filter(|_| starts.contains(&link));
            lane.and_then(|lane| at.get(&(*lane, link))).copied().into_iter().collect()
        };
        for gpu in launched {
            links.launcher[gpu as usize] = i as u32;
            links.order.push(gpu);
        }
    }
    links
}

/// By correlation alone; where two processes use the same number, the call that began last before
/// the GPU event. A GPU event whose call was not recorded goes to the operation of its external id.
fn by_correlation(trace: &Trace, problems: &mut Problems) -> Links {
    let mut calls: Map<i64, Vec<u32>> = Map::default();
    let mut operations: Map<i64, u32> = Map::default();
    for (i, event) in trace.events.iter().enumerate() {
        match (event.category, event.correlation.get(), event.external.get()) {
            (Category::Runtime | Category::Driver, Some(link), _) => calls.entry(link).or_default().push(i as u32),
            (Category::CpuOp, _, Some(id)) => {
                operations.insert(id, i as u32);
            }
            _ => {}
        }
    }
    let mut links = Links { launcher: vec![NONE; trace.events.len()], order: Vec::new() };
    let mut unlinked = 0;
    for (i, event) in trace.events.iter().enumerate().filter(|(_, e)| e.category.on_gpu()) {
        let candidates = event.correlation.get().and_then(|link| calls.get(&link)).map_or(&[][..], Vec::as_slice);
        let call = match candidates {
            [one] => Some(*one),
            several => {
                let before = several.iter().copied().filter(|c| trace.events[*c as usize].start <= event.start);
                before.max_by_key(|c| trace.events[*c as usize].start)
            }
        };
        let found = call.or_else(|| event.external.get().and_then(|id| operations.get(&id)).copied());
        match found {
            Some(call) => {
                links.launcher[i] = call;
                links.order.push(i as u32);
            }
            None => unlinked += 1,
        }
    }
    problems.add_times(
        Severity::Warning,
        "a GPU event was launched outside the recording: no operation is known",
        unlinked,
    );
    // As the calls come in the file.
    links.order.sort_by_key(|gpu| links.launcher[*gpu as usize]);
    links
}
