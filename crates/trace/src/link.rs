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

/// The correlation, or the external id where the first launch has none.
fn key_of(trace: &Trace) -> fn(&Event) -> Option<i64> {
    let launches = |name: &[u8]| name.to_ascii_lowercase().windows(6).any(|w| w == b"launch");
    let launch = |e: &&Event| e.category.is_call() && launches(&trace.texts[e.name as usize]);
    match trace.events.iter().find(launch) {
        Some(first) if first.correlation != Tie::NONE => |e| e.correlation.get(),
        _ => |e| e.external.get(),
    }
}

/// The numbers of the calls that run graphs.
fn graph_launches(trace: &Trace, key: fn(&Event) -> Option<i64>) -> Set<i64> {
    let named: Vec<bool> = trace.texts.iter().map(|name| is_graph_launch(name)).collect();
    trace.events.iter().filter(|e| e.category.is_call() && named[e.name as usize]).filter_map(key).collect()
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
    for (i, event) in trace.events.iter().enumerate().filter(|(_, e)| e.category.is_call()) {
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

/// By correlation alone. A GPU event whose call was not recorded goes to the operation of its external id.
fn by_correlation(trace: &Trace, problems: &mut Problems) -> Links {
    let calls = Calls::of(trace);
    let owners = calls.owners(trace);
    let mut links = Links { launcher: vec![NONE; trace.events.len()], order: Vec::new() };
    let mut left: Vec<u32> = Vec::new();
    for (i, event) in trace.events.iter().enumerate().filter(|(_, e)| e.category.on_gpu()) {
        match calls.launching(trace, event, &owners) {
            Some(call) => {
                links.launcher[i] = call;
                links.order.push(i as u32);
            }
            None => left.push(i as u32),
        }
    }
    let unlinked = by_external_id(trace, &left, &mut links);
    problems.add_times(
        Severity::Warning,
        "a GPU event was launched outside the recording: no operation is known",
        unlinked,
    );
    // As the calls come in the file.
    links.order.sort_by_key(|gpu| links.launcher[*gpu as usize]);
    links
}

/// Ties what is left to operations of the same external id; gives how many have none.
fn by_external_id(trace: &Trace, left: &[u32], links: &mut Links) -> u64 {
    let id_of = |gpu: &u32| trace.events[*gpu as usize].external.get();
    let wanted: Set<i64> = left.iter().filter_map(id_of).collect();
    let mut operations: Map<i64, u32> = Map::default();
    if !wanted.is_empty() {
        for (i, event) in trace.events.iter().enumerate().filter(|(_, e)| e.category == Category::CpuOp) {
            if let Some(id) = event.external.get().filter(|id| wanted.contains(id)) {
                operations.insert(id, i as u32);
            }
        }
    }
    let mut unlinked = 0;
    for gpu in left {
        match id_of(gpu).and_then(|id| operations.get(&id)) {
            Some(operation) => {
                links.launcher[*gpu as usize] = *operation;
                links.order.push(*gpu);
            }
            None => unlinked += 1,
        }
    }
    unlinked
}

/// Calls by correlation.
struct Calls {
    first: Map<i64, u32>,
    /// All calls of a number that several have: a call inside a call, or processes that count alike.
    several: Map<i64, Vec<u32>>,
}

/// The process on the host behind the one that a GPU event is filed under.
type Owners = Map<u32, u32>;

impl Calls {
    fn of(trace: &Trace) -> Calls {
        let mut calls = Calls { first: Map::default(), several: Map::default() };
        for (i, event) in trace.events.iter().enumerate().filter(|(_, e)| e.category.is_call()) {
            let Some(link) = event.correlation.get() else { continue };
            match calls.first.entry(link) {
                std::collections::hash_map::Entry::Vacant(free) => {
                    free.insert(i as u32);
                }
                std::collections::hash_map::Entry::Occupied(first) => {
                    calls.several.entry(link).or_insert_with(|| vec![*first.get()]).push(i as u32);
                }
            }
        }
        calls
    }

    /// Where processes of one file use the same numbers, which of them launches on which GPU. Both come in
    /// the same order in a file, whether its parts were put together or mixed; the strongest claim goes first.
    fn owners(&self, trace: &Trace) -> Owners {
        let mut gpus: Map<i64, Vec<u32>> = Map::default();
        for event in trace.events.iter().filter(|e| e.category.on_gpu()) {
            if let Some(link) = event.correlation.get().filter(|link| self.several.contains_key(link)) {
                once(gpus.entry(link).or_default(), trace.process(event.lane));
            }
        }
        let mut claims: Map<(u32, u32), u64> = Map::default();
        for (link, gpus) in gpus {
            let mut hosts = Vec::new();
            for call in &self.several[&link] {
                once(&mut hosts, trace.process(trace.events[*call as usize].lane));
            }
            for (i, gpu) in gpus.iter().enumerate() {
                for (j, host) in hosts.iter().enumerate() {
                    *claims.entry((*gpu, *host)).or_default() += if i == j { 2 } else { 1 };
                }
            }
        }
        let mut claims: Vec<((u32, u32), u64)> = claims.into_iter().collect();
        // Numbers of texts are in order of first appearance.
        claims.sort_by_key(|(pair, strength)| (std::cmp::Reverse(*strength), *pair));
        let mut owners = Owners::default();
        let mut taken: Set<u32> = Set::default();
        for alone in [true, false] {
            for ((gpu, host), _) in &claims {
                if owners.contains_key(gpu) || (alone && taken.contains(host)) {
                    continue;
                }
                owners.insert(*gpu, *host);
                taken.insert(*host);
            }
        }
        owners
    }

    /// The call of the process that owns the GPU; of several the one that began last before the event.
    fn launching(&self, trace: &Trace, event: &Event, owners: &Owners) -> Option<u32> {
        let link = event.correlation.get()?;
        let Some(calls) = self.several.get(&link) else { return self.first.get(&link).copied() };
        let owner = owners.get(&trace.process(event.lane));
        let call = |place: &u32| &trace.events[*place as usize];
        let own = |place: &&u32| owner.is_none_or(|owner| trace.process(call(place).lane) == *owner);
        let before = calls.iter().filter(own).filter(|place| call(place).start <= event.start);
        before.max_by_key(|place| call(place).start).or_else(|| calls.iter().find(own)).copied()
    }
}

/// Puts a number at the end of a list that does not have it.
fn once(list: &mut Vec<u32>, number: u32) {
    if !list.contains(&number) {
        list.push(number);
    }
}
