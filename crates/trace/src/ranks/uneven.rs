//! Exchanges in which every rank sends as much as it likes.

use super::{DTYPE, Exchange, FACTS, GROUP, GROUP_SIZE, IN, KIND, OUT, RANKS, Ranks, cell, named};
use crate::interval::order;
use crate::tables::{Frame, Statistics, number};
use gemwright_core::{Cell, Table};
use std::collections::BTreeMap;

impl Ranks {
    fn unevens(&self) -> Vec<Uneven<'_>> {
        let uneven = |ranks: &Vec<&Exchange>| ranks[0].facts[KIND].as_deref() == Some("all_to_allv");
        let mut found: Vec<Uneven> = self.together().into_iter().filter(uneven).map(Uneven::of).collect();
        found.sort_by(|x, y| order(&y.megabytes, &x.megabytes));
        found
    }

    pub(super) fn uneven(&self) -> Table {
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
        self.with_spans(frame.table(&general), spans)
    }

    pub(super) fn summary_uneven(&self) -> Table {
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
