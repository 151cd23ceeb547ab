//! Exchanges of several ranks put side by side: who waited for whom, and how fast they were.

use crate::category::is_communication;
use crate::event::{Category, Trace};
use crate::interval::order;
use crate::number::microseconds;
use crate::python::literal;
use crate::scan::unescaped;
use crate::tables::{Frame, Statistics, number};
use gemwright_core::{Cell, Table};
use std::collections::BTreeMap;

/// One exchange on one rank.
#[derive(Debug, Clone)]
struct Exchange {
    rank: usize,
    /// Group, ranks, kind, size of the group, type, elements in and out, splits in and out.
    facts: [Option<String>; 9],
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

impl Ranks {
    /// Of traces, each with its rank.
    pub fn of(traces: &[(usize, &Trace)]) -> Ranks {
        let mut exchanges = Vec::new();
        for (rank, trace) in traces {
            exchanges.extend(exchanges_of(*rank, trace));
        }
        let mut ranks = Ranks { exchanges, per_node: traces.first().map(|(_, t)| t.devices.len()).filter(|n| *n > 0) };
        ranks.name();
        ranks
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
                ("dur_sum", number(s.sum)),
                ("dur_mean", number(s.mean)),
                ("dur_std", cell(s.sample_deviation)),
                ("dur_min", number(s.least)),
                ("dur_max", number(s.largest)),
                ("operation_count", (list.len() as u64).into()),
            ]));
            self.with_nodes(&mut row, Some(rank), Some(Some(&facts[RANKS])));
            frame.row(row);
        }
        frame.table(&[])
    }

    /// Exchanges in which all wait for the last: each with its waits and its speed.
    fn synced(&self) -> Vec<Synced<'_>> {
        let all = self.together().into_iter();
        all.filter_map(|ranks| ranks[0].class().map(|class| Synced::of(class, ranks))).collect()
    }

    fn implicit_sync(&self) -> Table {
        let mut frame = Frame::default();
        let mut general: Vec<&str> = vec!["collective_id"];
        general.extend(&FACTS[..OUT + 1]);
        general.extend(["In msg size (MB)", "Out msg size (MB)", "Full msg size (MB)", "comm_latency"]);
        general.extend(["skew in start time", "earliest arrival rank", "avg_wait_time", "skew in end time"]);
        general.extend(["algo bw (GB/s)", "bus bw (GB/s)"]);
        let mut spans = Vec::new();
        for s in self.synced() {
            let first = s.ranks[0];
            let mut row = named(vec![("collective_id", first.id.as_str().into())]);
            row.extend((0..=OUT).map(|which| (FACTS[which].to_string(), first.fact(which))));
            row.extend(named(vec![
                ("In msg size (MB)", cell(first.megabytes(IN))),
                ("Out msg size (MB)", cell(first.megabytes(OUT))),
            ]));
            for e in &s.ranks {
                row.push((format!("rank_{}_ts", e.rank), number(e.start)));
                row.push((format!("rank_{}_dur", e.rank), number(e.time)));
            }
            row.push(("comm_latency".into(), number(s.latency)));
            for (e, wait) in s.ranks.iter().zip(&s.waits) {
                row.push((format!("rank_{}_wait_time", e.rank), number(*wait)));
            }
            row.extend(named(vec![
                ("skew in start time", number(s.start_skew)),
                ("earliest arrival rank", (s.earliest as u64).into()),
                ("avg_wait_time", number(s.waits.iter().sum::<f64>() / s.waits.len() as f64)),
                ("skew in end time", number(s.end_skew)),
                ("Full msg size (MB)", cell(s.full)),
                ("algo bw (GB/s)", cell(s.speed)),
                ("bus bw (GB/s)", cell(s.bus_speed)),
            ]));
            spans.push(self.span(first.facts[RANKS].as_deref()));
            frame.row(row);
        }
        let mut table = frame.table(&general);
        if self.per_node.is_some() && !table.rows.is_empty() {
            table.columns.push(gemwright_core::Column { name: "node_span".into(), align: gemwright_core::Align::Left });
            for (row, span) in table.rows.iter_mut().zip(spans) {
                row.push(span.into());
            }
        }
        table
    }

    fn summary_implicit_sync(&self) -> Table {
        let synced = self.synced();
        let mut groups: BTreeMap<[String; 3], Vec<&Synced>> = BTreeMap::new();
        for s in &synced {
            let key =
                [KIND, DTYPE, IN].map(|which| s.ranks[0].facts[which].clone().unwrap_or_else(|| "Unknown".into()));
            groups.entry(key).or_default().push(s);
        }
        let total = |list: &[&Synced]| list.iter().map(|s| s.latency).sum::<f64>() / 1000.0;
        let mut groups: Vec<_> = groups.into_iter().collect();
        groups.sort_by(|x, y| order(&total(&y.1), &total(&x.1)));
        let any = |get: fn(&Synced) -> Option<f64>| synced.iter().any(|s| get(s).is_some());
        let mut frame = Frame::default();
        for (key, list) in groups {
            let first = list[0].ranks[0];
            let mut row = named(vec![
                ("Collective name", key[0].as_str().into()),
                ("dtype", key[1].as_str().into()),
                ("In msg nelems", key[2].as_str().into()),
                ("Process Group Name", first.fact(GROUP)),
                ("Group size", first.fact(GROUP_SIZE)),
                ("Full msg size (MB)", cell(list[0].full)),
            ]);
            let mut add = |name: &str, get: fn(&Synced) -> Option<f64>| {
                let s = Statistics::of_numbers(list.iter().filter_map(|s| get(s)));
                let of = |get: fn(&Statistics) -> f64| cell(s.as_ref().map(get));
                for (end, value) in [
                    ("mean", of(|s| s.mean)),
                    ("median", of(|s| s.median)),
                    ("min", of(|s| s.least)),
                    ("max", of(|s| s.largest)),
                ] {
                    row.push((format!("{name}_{end}"), value));
                }
            };
            add("comm_latency", |s| Some(s.latency));
            add("skew in start time", |s| Some(s.start_skew));
            add("skew in end time", |s| Some(s.end_skew));
            if any(|s| s.speed) {
                add("algo bw (GB/s)", |s| s.speed);
            }
            if any(|s| s.bus_speed) {
                add("bus bw (GB/s)", |s| s.bus_speed);
            }
            row.extend(named(vec![
                ("count", (list.len() as u64).into()),
                ("Total comm latency (ms)", number(total(&list))),
            ]));
            frame.row(row);
        }
        frame.table(&[])
    }

    /// Exchanges in which every rank sends as much as it likes.
    fn unevens(&self) -> Vec<Uneven<'_>> {
        let uneven = |ranks: &Vec<&Exchange>| ranks[0].facts[KIND].as_deref() == Some("all_to_allv");
        let mut found: Vec<Uneven> = self.together().into_iter().filter(uneven).map(Uneven::of).collect();
        found.sort_by(|x, y| order(&y.megabytes, &x.megabytes));
        found
    }

    fn uneven(&self) -> Table {
        let mut frame = Frame::default();
        let general = [
            "collective_id",
            "Process Group Name",
            "Process Group Ranks",
            "Collective name",
            "Group size",
            "dtype",
            "stream",
            "total data communicated (MB)",
            "total nelems communicated",
            "wall_time (us)",
            "max_rank_dur (us)",
            "min_rank_dur (us)",
            "avg_rank_dur (us)",
            "throughput (GB/s)",
            "max_rank_throughput (GB/s)",
            "min_rank_throughput (GB/s)",
            "size_imbalance",
            "skew in start time",
            "skew in end time",
        ];
        let mut spans = Vec::new();
        let found = self.unevens();
        for u in &found {
            let first = u.ranks[0];
            let s = Statistics::of(&u.ranks.iter().map(|e| e.time).collect::<Vec<_>>());
            let mut row = named(vec![("collective_id", first.id.as_str().into())]);
            row.extend((GROUP..=DTYPE).map(|which| (FACTS[which].to_string(), first.fact(which))));
            row.extend(named(vec![
                ("stream", first.stream.map(|s| s.to_string()).into()),
                ("total data communicated (MB)", number(u.megabytes)),
                ("total nelems communicated", number(u.ranks.iter().filter_map(|e| e.number(IN)).sum())),
                ("wall_time (us)", number(u.wall)),
                ("max_rank_dur (us)", number(s.largest)),
                ("min_rank_dur (us)", number(s.least)),
                ("avg_rank_dur (us)", number(s.mean)),
                ("throughput (GB/s)", cell(u.speed())),
                ("max_rank_throughput (GB/s)", cell(u.speeds().max_by(order))),
                ("min_rank_throughput (GB/s)", cell(u.speeds().min_by(order))),
                ("size_imbalance", cell(u.imbalance())),
                ("skew in start time", number(u.start_skew)),
                ("skew in end time", number(u.end_skew)),
            ]));
            for e in &u.ranks {
                let mut add = |name: &str, cell: Cell| row.push((format!("rank_{}_{name}", e.rank), cell));
                add("ts", number(e.start));
                add("dur", number(e.time));
                add("In msg nelems", e.fact(IN));
                add("Out msg nelems", e.fact(OUT));
                add("In msg size (MB)", cell(e.megabytes(IN)));
                add("Out msg size (MB)", cell(e.megabytes(OUT)));
                add("In split size", e.fact(7));
                add("Out split size", e.fact(8));
            }
            for e in &u.ranks {
                row.push((format!("rank_{}_skew in start time", e.rank), number(e.start - u.first)));
                row.push((format!("rank_{}_skew in end time", e.rank), number(u.last - e.end())));
            }
            spans.push(self.span(first.facts[RANKS].as_deref()));
            frame.row(row);
        }
        let mut table = frame.table(&general);
        if self.per_node.is_some() && !table.rows.is_empty() {
            table.columns.push(gemwright_core::Column { name: "node_span".into(), align: gemwright_core::Align::Left });
            for (row, span) in table.rows.iter_mut().zip(spans) {
                row.push(span.into());
            }
        }
        table
    }

    fn summary_uneven(&self) -> Table {
        let found = self.unevens();
        let mut groups: BTreeMap<[Option<String>; 2], Vec<&Uneven>> = BTreeMap::new();
        for u in &found {
            groups.entry([GROUP, DTYPE].map(|which| u.ranks[0].facts[which].clone())).or_default().push(u);
        }
        let total = |list: &[&Uneven]| list.iter().map(|u| u.wall).sum::<f64>();
        let mut groups: Vec<_> = groups.into_iter().collect();
        groups.sort_by(|x, y| order(&total(&y.1), &total(&x.1)));
        let mut frame = Frame::default();
        for ([group, dtype], list) in groups {
            let first = list[0].ranks[0];
            let mut row = named(vec![("Process Group Name", group.into()), ("dtype", dtype.into())]);
            let mut add = |name: &str, ends: &[&str], values: Vec<f64>| {
                let s = Statistics::of_numbers(values.into_iter());
                for end in ends {
                    let value = s.as_ref().map(|s| match *end {
                        "mean" => s.mean,
                        "median" => s.median,
                        "min" => s.least,
                        _ => s.largest,
                    });
                    row.push((format!("{name}_{end}"), cell(value)));
                }
            };
            const ALL: [&str; 4] = ["mean", "median", "min", "max"];
            const ENDS: [&str; 2] = ["mean", "max"];
            let of = |get: fn(&Uneven) -> f64| list.iter().map(|u| get(u)).collect::<Vec<f64>>();
            add("total data communicated (MB)", &ALL, of(|u| u.megabytes));
            add("wall_time (us)", &ALL, of(|u| u.wall));
            add("throughput (GB/s)", &ALL, of(|u| u.speed().unwrap_or(f64::NAN)));
            add("size_imbalance", &ENDS, of(|u| u.imbalance().unwrap_or(f64::NAN)));
            add("max_rank_dur (us)", &ENDS, of(|u| u.ranks.iter().map(|e| e.time).fold(f64::MIN, f64::max)));
            add("skew in start time", &ENDS, of(|u| u.start_skew));
            add("skew in end time", &ENDS, of(|u| u.end_skew));
            // The sum stands behind the other figures of the wall time.
            let behind = row.iter().position(|(name, _)| name == "wall_time (us)_max").map_or(row.len(), |i| i + 1);
            row.insert(behind, ("Total wall_time (us)".into(), number(total(&list))));
            row.push(("count".into(), (list.len() as u64).into()));
            row.extend([RANKS, KIND, GROUP_SIZE].map(|which| (FACTS[which].to_string(), first.fact(which))));
            row.push(("Total wall_time (ms)".into(), number(total(&list) / 1000.0)));
            self.with_nodes(&mut row, None, Some(first.facts[RANKS].as_deref()));
            frame.row(row);
        }
        frame.table(&[])
    }

    fn stragglers(&self) -> Table {
        let synced = self.synced();
        let mut ranks: Vec<usize> = synced.iter().flat_map(|s| s.ranks.iter().map(|e| e.rank)).collect();
        ranks.sort_unstable();
        ranks.dedup();
        let tenth = |value: f64| format!("{value:.1}").parse().unwrap_or(value);
        let mut rows: Vec<(f64, Vec<(String, Cell)>)> = Vec::new();
        for rank in ranks {
            let waits: Vec<f64> = synced.iter().filter_map(|s| s.wait_of(rank)).collect();
            let last = synced.iter().filter(|s| s.latest() == rank).count();
            let first = synced.iter().filter(|s| s.earliest == rank).count();
            let sum: f64 = waits.iter().sum();
            let all: f64 = self.exchanges.iter().filter(|e| e.rank == rank).map(|e| e.time).sum();
            let mut row = named(vec![
                ("rank", (rank as u64).into()),
                ("total_wait_time_us", number(tenth(sum))),
                ("mean_wait_time_us", number(tenth(sum / waits.len() as f64))),
                ("times_arrived_last", (last as u64).into()),
                ("times_arrived_first", (first as u64).into()),
                ("pct_arrived_last", number(tenth(100.0 * last as f64 / synced.len() as f64))),
                ("num_collectives", (synced.len() as u64).into()),
                ("total_nccl_dur_us", number(tenth(all))),
            ]);
            self.with_nodes(&mut row, Some(rank), None);
            rows.push((tenth(sum), row));
        }
        rows.sort_by(|x, y| order(&x.0, &y.0));
        let mut frame = Frame::default();
        rows.into_iter().for_each(|(_, row)| frame.row(row));
        frame.table(&[])
    }
}

/// An exchange in which every rank waits for the last.
struct Synced<'e> {
    ranks: Vec<&'e Exchange>,
    waits: Vec<f64>,
    latency: f64,
    start_skew: f64,
    end_skew: f64,
    earliest: usize,
    full: Option<f64>,
    speed: Option<f64>,
    bus_speed: Option<f64>,
}

impl<'e> Synced<'e> {
    fn of(class: Class, ranks: Vec<&'e Exchange>) -> Synced<'e> {
        let latest = ranks.iter().map(|e| e.start).fold(f64::MIN, f64::max);
        let waits: Vec<f64> = ranks.iter().map(|e| latest - e.start).collect();
        let latency = ranks.iter().map(|e| e.time).fold(f64::MAX, f64::min);
        let ends = || ranks.iter().map(|e| e.end());
        let end_skew = ends().fold(f64::MIN, f64::max) - ends().fold(f64::MAX, f64::min);
        let start_skew = waits.iter().copied().fold(f64::MIN, f64::max);
        let among = ranks.iter().zip(&waits).filter(|(_, wait)| **wait == start_skew);
        let earliest = among.map(|(e, _)| e.rank).max().unwrap_or(0);
        let first = ranks[0];
        let full = if class == Class::AllGather { first.megabytes(OUT) } else { first.megabytes(IN) };
        let speed = full.filter(|_| latency > 0.0).map(|full| (full / 1024.0) / (latency / 1e6));
        let members = first.number(GROUP_SIZE);
        let bus_speed = speed.zip(members).map(|(speed, n)| {
            let share = (n - 1.0) / n;
            speed * if class == Class::AllReduce { 2.0 * share } else { share }
        });
        Synced { ranks, waits, latency, start_skew, end_skew, earliest, full, speed, bus_speed }
    }

    fn wait_of(&self, rank: usize) -> Option<f64> {
        self.ranks.iter().position(|e| e.rank == rank).map(|i| self.waits[i])
    }

    /// The rank that waited least.
    fn latest(&self) -> usize {
        let mut best = 0;
        for i in 1..self.ranks.len() {
            if self.waits[i] < self.waits[best] {
                best = i;
            }
        }
        self.ranks[best].rank
    }
}

/// An exchange of different sizes.
struct Uneven<'e> {
    ranks: Vec<&'e Exchange>,
    megabytes: f64,
    first: f64,
    last: f64,
    wall: f64,
    start_skew: f64,
    end_skew: f64,
}

impl<'e> Uneven<'e> {
    fn of(ranks: Vec<&'e Exchange>) -> Uneven<'e> {
        let starts = || ranks.iter().map(|e| e.start);
        let ends = || ranks.iter().map(|e| e.end());
        let (first, last) = (starts().fold(f64::MAX, f64::min), ends().fold(f64::MIN, f64::max));
        let start_skew = starts().fold(f64::MIN, f64::max) - first;
        let end_skew = last - ends().fold(f64::MAX, f64::min);
        let megabytes = ranks.iter().filter_map(|e| e.megabytes(IN)).sum();
        Uneven { ranks, megabytes, first, last, wall: last - first, start_skew, end_skew }
    }

    fn speed(&self) -> Option<f64> {
        (self.wall > 0.0).then(|| (self.megabytes / 1024.0) / (self.wall / 1e6))
    }

    fn speeds(&self) -> impl Iterator<Item = f64> + '_ {
        let moved = self.ranks.iter().filter_map(|e| e.megabytes(IN).map(|size| (size, e.time)));
        moved.filter(|(size, time)| *size > 0.0 && *time > 0.0).map(|(size, time)| (size / 1024.0) / (time / 1e6))
    }

    fn imbalance(&self) -> Option<f64> {
        let mean = self.megabytes / self.ranks.len() as f64;
        let largest = self.ranks.iter().filter_map(|e| e.megabytes(IN)).fold(f64::MIN, f64::max);
        (mean > 0.0).then(|| largest / mean)
    }
}

fn exchanges_of(rank: usize, trace: &Trace) -> Vec<Exchange> {
    let communicates: Vec<bool> = trace.texts.iter().map(|name| is_communication(name)).collect();
    let mut found = Vec::new();
    for event in trace.events.iter().filter(|e| e.category == Category::Kernel) {
        let tied = event.correlation.get().is_some() || event.external.get().is_some();
        if !tied || !communicates[event.name as usize] {
            continue;
        }
        let mut facts: [Option<String>; 9] =
            std::array::from_fn(|i| trace.exchange(event, i).filter(|v| *v != b"null").map(plain));
        let name = String::from_utf8_lossy(&trace.texts[event.name as usize]).to_lowercase();
        if facts[KIND].is_none() && name.contains("cross_device_reduce") {
            facts[KIND] = Some("allreduce".into());
        }
        found.push(Exchange {
            rank,
            facts,
            stream: trace.queue(event).stream.get(),
            start: microseconds(event.start),
            time: microseconds(event.duration),
            index: 0,
            id: String::new(),
        });
    }
    found
}

/// Exchanges of one trace, by what was exchanged among whom. TraceLens drops what lacks any fact.
pub fn coll_analysis(trace: &Trace) -> Table {
    let mut ranks = Ranks::of(&[(0, trace)]);
    ranks.per_node = None;
    ranks.summary_long()
}
