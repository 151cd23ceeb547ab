//! Exchanges of several ranks put side by side: who waited for whom, and how fast they were.

use crate::category::is_communication;
use crate::event::{Category, Event, Trace};
use crate::interval::order;
use crate::number::microseconds;
use crate::python::literal;
use crate::scan::unescaped;
use crate::tables::{Frame, Statistics, number};
use gemwright_core::{Align, Cell, Column, Table};
use std::collections::BTreeMap;

mod single;
mod synced;
mod uneven;

pub use single::{coll_analysis, collectives};

/// Group, ranks, kind, size of the group, type, elements in and out, splits in and out.
pub(crate) type Facts = [Option<String>; 9];

/// One exchange on one rank.
#[derive(Debug, Clone)]
struct Exchange {
    rank: usize,
    facts: Facts,
    stream: Option<i64>,
    start: f64,
    time: f64,
    /// Of the file, for the order in a group.
    index: usize,
    id: String,
}

const GROUP: usize = 0;
const RANKS: usize = 1;
const KIND: usize = 2;
const GROUP_SIZE: usize = 3;
const DTYPE: usize = 4;
const IN: usize = 5;
const OUT: usize = 6;
const FACTS: [&str; 9] = [
    "Process Group Name",
    "Process Group Ranks",
    "Collective name",
    "Group size",
    "dtype",
    "In msg nelems",
    "Out msg nelems",
    "In split size",
    "Out split size",
];

/// Bytes of an element, as the profiler names its type here.
pub(crate) fn element_size(dtype: &str) -> Option<f64> {
    Some(match dtype {
        "Float" | "Int" => 4.0,
        "Long" | "Double" => 8.0,
        "BFloat16" | "Half" | "Short" => 2.0,
        "Bool" | "Byte" => 1.0,
        _ => return None,
    })
}

/// A value as Python prints it: text plain, lists as tuples.
pub(crate) fn plain(json: &[u8]) -> String {
    match json {
        [b'"', inner @ .., b'"'] => unescaped(inner),
        other => literal(other),
    }
}

impl Exchange {
    fn fact(&self, which: usize) -> Cell {
        self.facts[which].clone().into()
    }

    fn number(&self, which: usize) -> Option<f64> {
        self.facts[which].as_ref().and_then(|text| text.parse().ok())
    }

    /// Mebibytes in or out, which TraceLens calls MB.
    fn megabytes(&self, which: usize) -> Option<f64> {
        let size = self.facts[DTYPE].as_deref().and_then(element_size)?;
        self.number(IN)?;
        Some(self.number(which)? * size / (1024.0 * 1024.0))
    }

    fn end(&self) -> f64 {
        self.start + self.time
    }

    /// The class of exchanges in which every rank waits for the last.
    fn class(&self) -> Option<Class> {
        Some(match self.facts[KIND].as_deref()? {
            "allreduce" | "allreduce_coalesced" => Class::AllReduce,
            "reducescatter" | "_reduce_scatter_base" | "reduce_scatter_tensor_coalesced" => Class::ReduceScatter,
            "allgather"
            | "all_gather"
            | "_allgather_base"
            | "all_gather_into_tensor_coalesced"
            | "allgather_into_tensor_coalesced" => Class::AllGather,
            "all_to_all" => Class::AllToAll,
            _ => return None,
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    AllReduce,
    ReduceScatter,
    AllGather,
    AllToAll,
}

/// Exchanges of all ranks, each with its number in its group.
#[derive(Default)]
pub struct Ranks {
    exchanges: Vec<Exchange>,
    /// GPUs of a node, as the first file's head lists them.
    per_node: Option<usize>,
}

fn cell(value: Option<f64>) -> Cell {
    value.map_or(Cell::Empty, number)
}

fn named(pairs: Vec<(&str, Cell)>) -> Vec<(String, Cell)> {
    pairs.into_iter().map(|(name, cell)| (name.to_string(), cell)).collect()
}

/// Figures of so many durations.
fn durations(s: &Statistics, count: usize) -> Vec<(String, Cell)> {
    named(vec![
        ("dur_sum", number(s.sum)),
        ("dur_mean", number(s.mean)),
        ("dur_std", cell(s.sample_deviation)),
        ("dur_min", number(s.least)),
        ("dur_max", number(s.largest)),
        ("operation_count", (count as u64).into()),
    ])
}

impl Ranks {
    /// None yet; so many GPUs are in a node.
    pub(crate) fn with_gpus(per_node: Option<usize>) -> Ranks {
        Ranks { exchanges: Vec::new(), per_node }
    }

    /// One exchange more, in nanoseconds.
    pub(crate) fn push(&mut self, rank: usize, facts: Facts, stream: Option<i64>, start: i64, duration: i64) {
        let (start, time) = (microseconds(start), microseconds(duration));
        self.exchanges.push(Exchange { rank, facts, stream, start, time, index: 0, id: String::new() });
    }

    /// One rank more. Times count from `zero`, in nanoseconds: TraceLens's from the clock's own, which rounds
    /// them where that is of the day.
    pub fn add(&mut self, rank: usize, trace: &Trace, zero: i64) {
        if self.exchanges.is_empty() {
            self.per_node = Some(trace.devices.len()).filter(|n| *n > 0);
        }
        self.exchanges.extend(exchanges_of(rank, trace, zero));
    }

    /// All ranks are in: each exchange gets its name.
    pub fn finish(mut self) -> Ranks {
        self.exchanges.sort_by_key(|e| e.rank);
        self.name();
        self
    }

    /// By group and order of time in it: the n-th of a group on one rank is the n-th on every other.
    fn name(&mut self) {
        let unknown = self.exchanges.iter().all(|e| e.facts[GROUP].is_none());
        let mut streams: BTreeMap<usize, Option<i64>> = BTreeMap::new();
        let single = self.exchanges.iter().all(|e| *streams.entry(e.rank).or_insert(e.stream) == e.stream);
        let simple = unknown && single;
        for exchange in &mut self.exchanges {
            let group = exchange.facts[GROUP].take();
            let other = if simple { "all" } else { "Unknown_Group" };
            exchange.facts[GROUP] = Some(group.unwrap_or_else(|| other.into()));
        }
        let mut by_time: Vec<usize> = (0..self.exchanges.len()).collect();
        by_time.sort_by(|x, y| order(&self.exchanges[*x].start, &self.exchanges[*y].start));
        let mut next: BTreeMap<(String, usize), usize> = BTreeMap::new();
        for place in by_time {
            let exchange = &mut self.exchanges[place];
            let group = exchange.facts[GROUP].clone().unwrap_or_default();
            let count = next.entry((group.clone(), exchange.rank)).or_default();
            exchange.index = *count;
            exchange.id = if simple { count.to_string() } else { format!("{group}_{count}") };
            *count += 1;
        }
    }

    /// Each exchange with its ranks, in order of first appearance.
    fn together(&self) -> Vec<Vec<&Exchange>> {
        let mut places: BTreeMap<&str, usize> = BTreeMap::new();
        let mut found: Vec<Vec<&Exchange>> = Vec::new();
        for exchange in &self.exchanges {
            let place = *places.entry(&exchange.id).or_insert_with(|| {
                found.push(Vec::new());
                found.len() - 1
            });
            found[place].push(exchange);
        }
        found
    }

    /// Within a node or between nodes, where the ranks are known.
    fn span(&self, ranks: Option<&str>) -> Option<&'static str> {
        let per_node = self.per_node?;
        let numbers = ranks?.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse::<usize>().ok());
        let mut nodes: Vec<usize> = numbers.map(|rank| rank / per_node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        (!nodes.is_empty()).then_some(if nodes.len() == 1 { "intra_node" } else { "inter_node" })
    }

    /// A column at the end that says of each row whether it stays in a node, where that is known.
    fn with_spans(&self, mut table: Table, spans: Vec<Option<&'static str>>) -> Table {
        if self.per_node.is_some() && !table.rows.is_empty() {
            table.columns.push(Column { name: "node_span".into(), align: Align::Left });
            for (row, span) in table.rows.iter_mut().zip(spans) {
                row.push(span.into());
            }
        }
        table
    }

    fn with_nodes(&self, row: &mut Vec<(String, Cell)>, rank: Option<usize>, ranks: Option<Option<&str>>) {
        let Some(per_node) = self.per_node else { return };
        if let Some(rank) = rank {
            row.push(("node_id".into(), ((rank / per_node) as u64).into()));
        }
        if let Some(ranks) = ranks {
            row.push(("node_span".into(), self.span(ranks).into()));
        }
    }

    /// All tables that have rows.
    pub fn tables(&self) -> Vec<(String, Table)> {
        let mut list = vec![
            ("nccl_long", self.long()),
            ("nccl_summary_long", self.summary_long()),
            ("nccl_implicit_sync", self.implicit_sync()),
            ("nccl_summary_implicit_sync", self.summary_implicit_sync()),
            ("nccl_all2allv", self.uneven()),
            ("nccl_summary_all2allv", self.summary_uneven()),
            ("straggler_summary", self.stragglers()),
        ];
        list.retain(|(_, table)| !table.rows.is_empty());
        list.into_iter().map(|(name, table)| (name.to_string(), table)).collect()
    }

    fn long(&self) -> Table {
        let mut frame = Frame::default();
        for e in &self.exchanges {
            let mut row = named(vec![
                ("collective_id", e.id.as_str().into()),
                ("index_in_group", (e.index as u64).into()),
                ("rank", (e.rank as u64).into()),
            ]);
            for (which, name) in FACTS.iter().enumerate() {
                row.push(((*name).to_string(), e.fact(which)));
                match which {
                    IN => row.push(("In msg size (MB)".into(), cell(e.megabytes(IN)))),
                    OUT => row.push(("Out msg size (MB)".into(), cell(e.megabytes(OUT)))),
                    _ => {}
                }
            }
            row.extend(named(vec![
                ("stream", e.stream.map(|s| s.to_string()).into()),
                ("ts", number(e.start)),
                ("dur", number(e.time)),
            ]));
            self.with_nodes(&mut row, Some(e.rank), Some(e.facts[RANKS].as_deref()));
            frame.row(row);
        }
        frame.table(&[])
    }

    fn summary_long(&self) -> Table {
        let mut groups: BTreeMap<(usize, Vec<String>, i64), Vec<&Exchange>> = BTreeMap::new();
        for e in &self.exchanges {
            let facts: Option<Vec<String>> = e.facts.iter().cloned().collect();
            if let (Some(facts), Some(stream)) = (facts, e.stream) {
                groups.entry((e.rank, facts, stream)).or_default().push(e);
            }
        }
        let sum = |list: &[&Exchange]| list.iter().map(|e| e.time).sum::<f64>();
        let mut groups: Vec<_> = groups.into_iter().collect();
        groups.sort_by(|x, y| order(&sum(&y.1), &sum(&x.1)));
        let mut frame = Frame::default();
        for ((rank, facts, stream), list) in groups {
            let s = Statistics::of(&list.iter().map(|e| e.time).collect::<Vec<_>>());
            let mut row = named(vec![("rank", (rank as u64).into())]);
            row.extend(FACTS.iter().zip(&facts).map(|(name, fact)| ((*name).to_string(), fact.as_str().into())));
            row.extend(named(vec![
                ("stream", stream.to_string().into()),
                ("In msg size (MB)_first", cell(list.iter().find_map(|e| e.megabytes(IN)))),
                ("Out msg size (MB)_first", cell(list.iter().find_map(|e| e.megabytes(OUT)))),
            ]));
            row.extend(durations(&s, list.len()));
            self.with_nodes(&mut row, Some(rank), Some(Some(&facts[RANKS])));
            frame.row(row);
        }
        frame.table(&[])
    }
}

/// Kernels that exchange data, with what the profiler wrote of it.
pub(crate) fn facts_of(trace: &Trace) -> Vec<(&Event, Facts)> {
    let communicates: Vec<bool> = trace.texts.iter().map(|name| is_communication(name)).collect();
    let mut found = Vec::new();
    for event in trace.events.iter().filter(|e| e.category == Category::Kernel) {
        let tied = event.correlation.get().is_some() || event.external.get().is_some();
        if !tied || !communicates[event.name as usize] {
            continue;
        }
        let mut facts: Facts = std::array::from_fn(|i| trace.exchange(event, i).filter(|v| *v != b"null").map(plain));
        let name = String::from_utf8_lossy(&trace.texts[event.name as usize]).to_lowercase();
        if facts[KIND].is_none() && name.contains("cross_device_reduce") {
            facts[KIND] = Some("allreduce".into());
        }
        found.push((event, facts));
    }
    found
}

fn exchanges_of(rank: usize, trace: &Trace, zero: i64) -> Vec<Exchange> {
    let mut ranks = Ranks::default();
    for (event, facts) in facts_of(trace) {
        let stream = trace.queue(event).stream.get();
        ranks.push(rank, facts, stream, event.start.saturating_sub(zero), event.duration);
    }
    ranks.exchanges
}
