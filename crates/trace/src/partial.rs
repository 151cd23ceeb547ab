//! What is needed of one rank's trace to put ranks together: small, and the same whichever machine made it.
//! Groups keep the multiset of their durations in whole nanoseconds, so ranks can be joined in any order.

use crate::analysis::Analysis;
use crate::event::Category;
use crate::fast::Map;
use crate::kept::{table_of, text_of};
use crate::ranks::{Ranks, facts_of};
use crate::scan::unescaped;
use crate::tables::{Frame, Timeline, number};
use gemwright_core::{Cell, Table};
use std::collections::BTreeMap;

/// One fact about one rank.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Record {
    kind: String,
    rank: u64,
    key: Vec<Option<String>>,
    start: i64,
    duration: i64,
    count: u64,
}

/// Kinds of records.
const EXCHANGE: &str = "exchange";
const OPERATION: &str = "operation";
const KERNEL: &str = "kernel";
const TIMELINE: &str = "timeline";
const GPUS: &str = "gpus";
/// A table of the rank's own: its folder, its place, its name, itself.
const TABLE: &str = "table";

/// What one rank, or several, have to tell.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Partial {
    records: Vec<Record>,
}

const COLUMNS: [&str; 6] = ["kind", ">rank", "key", ">start_ns", ">duration_ns", ">count"];

impl Partial {
    /// Of one rank.
    pub fn of(rank: usize, analysis: &Analysis<'_, i64>) -> Partial {
        let (trace, rank) = (analysis.trace, rank as u64);
        let mut records = Vec::new();
        let mut push = |kind: &str, key: Vec<Option<String>>, start: i64, duration: i64, count: u64| {
            records.push(Record { kind: kind.into(), rank, key, start, duration, count });
        };
        push(GPUS, Vec::new(), 0, 0, trace.devices.len() as u64);
        for (name, microseconds) in Timeline::of(analysis).rows() {
            push(TIMELINE, vec![Some(name.into())], 0, (microseconds * 1e3).round() as i64, 1);
        }
        for (event, facts) in facts_of(trace) {
            let stream = trace.queue(event).stream.get().map(|s| s.to_string());
            let key = facts.into_iter().chain([stream]).collect();
            push(EXCHANGE, key, event.start, event.duration, 1);
        }
        let mut groups: Map<(&str, u32, u32, i64), u64> = Map::default();
        let mut names: Map<(u32, u32), [String; 2]> = Map::default();
        for launcher in &analysis.launchers {
            let name = analysis.event(launcher).map_or(u32::MAX, |e| e.name);
            let time = (launcher.direct_time * 1e3).round() as i64;
            *groups.entry((launcher.category, name, u32::MAX, time)).or_default() += 1;
            names.entry((name, u32::MAX)).or_insert_with(|| [unescaped(analysis.name(launcher)), String::new()]);
        }
        for ((category, name, _, time), count) in groups {
            let key = vec![Some(names[&(name, u32::MAX)][0].clone()), Some(category.to_string())];
            push(OPERATION, key, 0, time, count);
        }
        let mut kernels: Map<(u32, i64), u64> = Map::default();
        for (i, event) in trace.events.iter().enumerate().filter(|(_, e)| e.category == Category::Kernel) {
            *kernels.entry((event.name, analysis.nanoseconds(i as u32))).or_default() += 1;
        }
        for ((name, time), count) in kernels {
            push(KERNEL, vec![Some(unescaped(&trace.texts[name as usize]))], 0, time, count);
        }
        records.sort();
        Partial { records }
    }

    /// The rank it is of.
    pub fn rank(&self) -> Option<u64> {
        self.records.first().map(|record| record.rank)
    }

    /// With the tables of the rank's own, and the folder they belong into.
    pub fn with_tables(mut self, folder: &str, tables: &[(String, Table)]) -> Partial {
        let rank = self.rank().unwrap_or(0);
        for (place, (name, table)) in tables.iter().enumerate() {
            let key = [folder.to_string(), format!("{place:04}"), name.clone(), text_of(table)].map(Some).to_vec();
            self.records.push(Record { kind: TABLE.into(), rank, key, start: 0, duration: 0, count: 1 });
        }
        self
    }

    /// As a table, to be kept.
    pub fn table(&self) -> Table {
        let mut table = Table::new(&COLUMNS);
        for record in &self.records {
            let key = serde_json::to_string(&record.key).unwrap_or_default();
            table.row(vec![
                record.kind.as_str().into(),
                record.rank.into(),
                key.into(),
                Cell::Text(record.start.to_string()),
                Cell::Text(record.duration.to_string()),
                record.count.into(),
            ]);
        }
        table
    }

    /// A table that was kept.
    pub fn from_table(table: &Table) -> Result<Partial, String> {
        let heads: Vec<&str> = table.columns.iter().map(|c| c.name.as_str()).collect();
        if heads != COLUMNS.map(|name| name.trim_start_matches('>')) {
            return Err(format!("its columns are {}, not those of a part", heads.join(", ")));
        }
        let text = |cell: &Cell| match cell {
            Cell::Text(text) => text.clone(),
            Cell::Integer(value) => value.to_string(),
            Cell::Shown { text, .. } => text.clone(),
            Cell::Empty => String::new(),
        };
        let wrong = |row: usize, what: &str| format!("row {}: its {what} is no number", row + 1);
        let mut records = Vec::new();
        for (i, row) in table.rows.iter().enumerate() {
            let number = |at: usize| text(&row[at]).parse::<i64>().map_err(|_| wrong(i, heads[at]));
            records.push(Record {
                kind: text(&row[0]),
                rank: number(1)?.max(0) as u64,
                key: serde_json::from_str(&text(&row[2])).map_err(|e| format!("row {}: its key: {e}", i + 1))?,
                start: number(3)?,
                duration: number(4)?,
                count: number(5)?.max(0) as u64,
            });
        }
        Ok(Partial { records })
    }
}

/// What ranks have to tell together.
#[derive(Debug, Clone, Default)]
pub struct Joined {
    /// Tables of all of them.
    pub tables: Vec<(String, Table)>,
    /// Tables of each, where its part has them, with the folder they belong into.
    pub ranks: Vec<(String, Vec<(String, Table)>)>,
}

/// Ranks put together, whatever the order they come in.
pub fn join(partials: Vec<Partial>) -> Joined {
    let mut records: Vec<Record> = partials.into_iter().flat_map(|partial| partial.records).collect();
    records.sort();
    let mut list = exchanges(&records).tables();
    list.push(("gpu_timeline_by_rank".into(), timelines(&records)));
    list.push(("ops_by_rank".into(), spread(&records, OPERATION, &["name", "op category"])));
    list.push(("kernels_by_rank".into(), spread(&records, KERNEL, &["Kernel name"])));
    list.retain(|(_, table)| !table.rows.is_empty());
    let ranks = by_rank(of(&records, TABLE)).into_values().flat_map(|list| own_tables(&list)).collect();
    Joined { tables: list, ranks }
}

/// The tables one rank brought along, in their order.
fn own_tables(records: &[&Record]) -> Vec<(String, Vec<(String, Table)>)> {
    let mut folders: BTreeMap<&str, Vec<(String, Table)>> = BTreeMap::new();
    for record in records {
        let [Some(folder), _, Some(name), Some(text)] = record.key.as_slice() else { continue };
        folders.entry(folder).or_default().extend(table_of(text).map(|table| (name.clone(), table)));
    }
    folders.into_iter().map(|(folder, tables)| (folder.to_string(), tables)).collect()
}

fn of<'r>(records: &'r [Record], kind: &'static str) -> impl Iterator<Item = &'r Record> {
    records.iter().filter(move |record| record.kind == kind)
}

fn exchanges(records: &[Record]) -> Ranks {
    let zero = of(records, EXCHANGE).map(|record| record.start).min().unwrap_or(0);
    let gpus = of(records, GPUS).next().map(|record| record.count as usize);
    let mut ranks = Ranks::with_gpus(gpus.filter(|n| *n > 0));
    // As the clock has them, so that equal facts stand in the order they happened.
    let mut found: Vec<&Record> = of(records, EXCHANGE).collect();
    found.sort_by_key(|record| (record.rank, record.start));
    for record in found {
        let mut facts: [Option<String>; 9] = Default::default();
        for (place, fact) in facts.iter_mut().zip(&record.key) {
            place.clone_from(fact);
        }
        let stream = record.key.get(9).cloned().flatten().and_then(|text| text.parse().ok());
        ranks.push(record.rank as usize, facts, stream, record.start - zero, record.duration);
    }
    ranks.finish()
}

fn timelines(records: &[Record]) -> Table {
    let mut frame = Frame::default();
    for (rank, list) in by_rank(of(records, TIMELINE)) {
        let part = |record: &&Record| record.key.first().cloned().flatten().unwrap_or_default();
        let total = list.iter().find(|record| part(record) == "total_time").map_or(0, |record| record.duration);
        for record in list {
            let share = if total > 0 { number(record.duration as f64 / total as f64 * 100.0) } else { Cell::Empty };
            frame.row(vec![
                ("rank".into(), rank.into()),
                ("type".into(), part(&record).into()),
                ("time ms".into(), number(record.duration as f64 / 1e6)),
                ("percent".into(), share),
            ]);
        }
    }
    frame.table(&[])
}

fn by_rank<'r>(records: impl Iterator<Item = &'r Record>) -> BTreeMap<u64, Vec<&'r Record>> {
    let mut found: BTreeMap<u64, Vec<&Record>> = BTreeMap::new();
    for record in records {
        found.entry(record.rank).or_default().push(record);
    }
    found
}

/// Durations with how often each occurs, sorted.
struct Multiset(Vec<(i64, u64)>);

impl Multiset {
    fn of(records: &[&Record]) -> Multiset {
        let mut counts: BTreeMap<i64, u64> = BTreeMap::new();
        for record in records {
            *counts.entry(record.duration).or_default() += record.count;
        }
        Multiset(counts.into_iter().collect())
    }

    fn count(&self) -> u64 {
        self.0.iter().map(|(_, count)| count).sum()
    }

    fn sum(&self) -> i128 {
        self.0.iter().map(|(duration, count)| i128::from(*duration) * i128::from(*count)).sum()
    }

    /// The duration at a place of the sorted list.
    fn at(&self, place: u64) -> i64 {
        let mut left = place;
        for (duration, count) in &self.0 {
            if left < *count {
                return *duration;
            }
            left -= count;
        }
        self.0.last().map_or(0, |(duration, _)| *duration)
    }

    fn median(&self) -> f64 {
        let count = self.count();
        let middle = self.at(count / 2);
        if count % 2 == 1 { middle as f64 } else { (self.at(count / 2 - 1) as f64 + middle as f64) / 2.0 }
    }
}

/// Groups over all ranks, with the rank that spends most on each.
fn spread(records: &[Record], kind: &'static str, keys: &[&str]) -> Table {
    let mut groups: BTreeMap<&[Option<String>], Vec<&Record>> = BTreeMap::new();
    for record in of(records, kind) {
        groups.entry(&record.key).or_default().push(record);
    }
    let total = |list: &[&Record]| Multiset::of(list).sum();
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by(|x, y| total(&y.1).cmp(&total(&x.1)).then_with(|| x.0.cmp(y.0)));
    let all: i128 = groups.iter().map(|(_, list)| total(list)).sum();
    let mut frame = Frame::default();
    for (key, list) in groups {
        let times = Multiset::of(&list);
        let (count, sum) = (times.count(), times.sum());
        let ranks: Vec<(u64, i128)> =
            by_rank(list.iter().copied()).into_iter().map(|(rank, list)| (rank, total(&list))).collect();
        // Of equals the first.
        let slowest = ranks.iter().rev().max_by_key(|(_, sum)| *sum).copied().unwrap_or_default();
        let fastest = ranks.iter().min_by_key(|(_, sum)| *sum).copied().unwrap_or_default();
        let mut row: Vec<(String, Cell)> =
            keys.iter().zip(key).map(|(name, value)| ((*name).to_string(), value.clone().into())).collect();
        let microseconds = |ns: f64| number(ns / 1e3);
        row.extend([
            ("ranks".into(), (ranks.len() as u64).into()),
            ("Count".into(), count.into()),
            ("kernel_time_ms".into(), number(sum as f64 / 1e6)),
            ("mean_us".into(), microseconds(sum as f64 / count as f64)),
            ("median_us".into(), microseconds(times.median())),
            ("min_us".into(), microseconds(times.at(0) as f64)),
            ("max_us".into(), microseconds(times.at(count.saturating_sub(1)) as f64)),
            ("slowest_rank".into(), slowest.0.into()),
            ("slowest_rank_ms".into(), number(slowest.1 as f64 / 1e6)),
            ("fastest_rank_ms".into(), number(fastest.1 as f64 / 1e6)),
            ("Percentage (%)".into(), if all > 0 { number(sum as f64 / all as f64 * 100.0) } else { Cell::Empty }),
        ]);
        frame.row(row);
    }
    frame.table(&[])
}
