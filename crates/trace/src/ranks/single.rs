//! The exchanges of one trace.

use super::{
    Class, DTYPE, Exchange, FACTS, GROUP_SIZE, IN, OUT, Ranks, cell, durations, element_size, exchanges_of, named,
};
use crate::event::Trace;
use crate::interval::order;
use crate::tables::{Frame, Statistics};
use gemwright_core::{Cell, Table};
use std::collections::BTreeMap;

/// Facts and stream.
type Key = (Vec<Option<String>>, Option<i64>);

/// Exchanges of one trace, by what was exchanged among whom. TraceLens drops what lacks any fact.
pub fn coll_analysis(trace: &Trace) -> Table {
    let mut ranks = Ranks::default();
    ranks.add(0, trace, 0);
    ranks.per_node = None;
    ranks.finish().summary_long()
}

/// The same with what lacks a fact kept, sizes in bytes, and the speed of the fastest: a rank that waits for
/// others shows less.
pub fn collectives(trace: &Trace) -> Table {
    let mut groups: BTreeMap<Key, Vec<Exchange>> = BTreeMap::new();
    for e in exchanges_of(0, trace, 0) {
        groups.entry((e.facts.to_vec(), e.stream)).or_default().push(e);
    }
    let sum = |list: &[Exchange]| list.iter().map(|e| e.time).sum::<f64>();
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by(|x, y| order(&sum(&y.1), &sum(&x.1)));
    let mut frame = Frame::default();
    for ((facts, stream), list) in groups {
        let first = &list[0];
        let s = Statistics::of(&list.iter().map(|e| e.time).collect::<Vec<_>>());
        let bytes = |which: usize| {
            let size = first.facts[DTYPE].as_deref().and_then(exact_size)?;
            first.number(which).map(|elements| elements * size)
        };
        let full = if first.class() == Some(Class::AllGather) { bytes(OUT) } else { bytes(IN) };
        let speed = full.filter(|_| s.least > 0.0).map(|full| full / (s.least * 1e3));
        let share = first.number(GROUP_SIZE).filter(|n| *n > 0.0).map(|n| (n - 1.0) / n);
        let bus = speed.zip(share).map(|(speed, share)| match first.class() {
            Some(Class::AllReduce) => speed * 2.0 * share,
            Some(_) => speed * share,
            // To one or from one: all of it passes once.
            None => speed,
        });
        let mut row: Vec<(String, Cell)> =
            FACTS.iter().zip(&facts).map(|(name, fact)| ((*name).to_string(), fact.clone().into())).collect();
        row.extend(named(vec![
            ("stream", stream.map(|s| s.to_string()).into()),
            ("In msg size (bytes)", cell(bytes(IN))),
            ("Out msg size (bytes)", cell(bytes(OUT))),
        ]));
        row.extend(durations(&s, list.len()));
        row.extend(named(vec![("algo bw (10^9 B/s)_max", cell(speed)), ("bus bw (10^9 B/s)_max", cell(bus))]));
        frame.row(row);
    }
    frame.table(&[])
}

/// Bytes of an element, of the small floats too.
fn exact_size(dtype: &str) -> Option<f64> {
    element_size(dtype).or_else(|| dtype.starts_with("Float8").then_some(1.0))
}
