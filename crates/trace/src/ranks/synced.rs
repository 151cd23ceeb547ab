//! Exchanges in which every rank waits for the last: waits, speeds, stragglers.

use super::{Class, DTYPE, Exchange, FACTS, GROUP, GROUP_SIZE, IN, KIND, OUT, RANKS, Ranks, cell, named};
use crate::interval::order;
use crate::tables::{Frame, Statistics, number};
use gemwright_core::{Cell, Table};
use std::collections::BTreeMap;

impl Ranks {
    /// Exchanges in which all wait for the last: each with its waits and its speed.
    fn synced(&self) -> Vec<Synced<'_>> {
        let all = self.together().into_iter();
        all.filter_map(|ranks| ranks[0].class().map(|class| Synced::of(class, ranks))).collect()
    }

    pub(super) fn implicit_sync(&self) -> Table {
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
        self.with_spans(frame.table(&general), spans)
    }

    pub(super) fn summary_implicit_sync(&self) -> Table {
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

    pub(super) fn stragglers(&self) -> Table {
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
