//! GPU time by the module of the model that asked for it, forward and backward.

use super::number;
use crate::analysis::Analysis;
use crate::backward::pairs;
use crate::event::Category;
use crate::fast::{Map, Set};
use crate::interval::Time;
use crate::nest::NONE;
use crate::scan::unescaped;
use gemwright_core::{Cell, Table};

/// What the profiler writes before the name of a module.
pub const MODULE: &str = "nn.Module: ";
/// The row of what no module is around.
const OUTSIDE: &str = "(outside of modules)";

#[derive(Default)]
struct Row {
    instances: Set<u32>,
    count: [u64; 2],
    nanoseconds: [i64; 2],
}

/// By the classes of the modules around an operation, the outermost first. What runs backward belongs to the
/// module of the forward operation it undoes.
pub fn by_module<T: Time>(analysis: &Analysis<'_, T>) -> Table {
    let trace = analysis.trace;
    let forward: Map<u32, u32> = pairs(trace).into_iter().map(|pair| (pair.backward, pair.forward)).collect();
    let mut rows: Map<String, Row> = Map::default();
    let mut known: Map<u32, (String, u32)> = Map::default();
    for &gpu in &analysis.links.order {
        let (mut above, mut backward) = (analysis.links.launcher[gpu as usize], false);
        while above != NONE && trace.events[above as usize].category != Category::Module {
            match forward.get(&above) {
                Some(undone) if !backward => (above, backward) = (*undone, true),
                _ => above = analysis.parent[above as usize],
            }
        }
        let (path, instance) = known.entry(above).or_insert_with(|| path(analysis, above)).clone();
        let row = rows.entry(path).or_default();
        row.instances.insert(instance);
        row.count[usize::from(backward)] += 1;
        row.nanoseconds[usize::from(backward)] += analysis.nanoseconds(gpu);
    }
    let mut rows: Vec<(String, Row)> = rows.into_iter().collect();
    let time = |row: &Row| row.nanoseconds[0] + row.nanoseconds[1];
    rows.sort_by(|x, y| time(&y.1).cmp(&time(&x.1)).then_with(|| x.0.cmp(&y.0)));
    let all: i64 = rows.iter().map(|(_, row)| time(row)).sum();
    let names = [
        "module",
        ">instances",
        ">kernels",
        ">forward_kernel_time_ms",
        ">backward_kernel_time_ms",
        ">kernel_time_ms",
        ">Percentage (%)",
    ];
    let mut table = Table::new(&names);
    for (path, row) in &rows {
        let milliseconds = |ns: i64| number(ns as f64 / 1e6);
        table.row(vec![
            path.as_str().into(),
            (row.instances.len() as u64).into(),
            (row.count[0] + row.count[1]).into(),
            milliseconds(row.nanoseconds[0]),
            milliseconds(row.nanoseconds[1]),
            milliseconds(time(row)),
            if all > 0 { number(time(row) as f64 / all as f64 * 100.0) } else { Cell::Empty },
        ]);
    }
    table
}

/// Classes from the outermost to this one, and the innermost's own name.
fn path<T: Time>(analysis: &Analysis<'_, T>, innermost: u32) -> (String, u32) {
    let mut classes = Vec::new();
    let mut above = innermost;
    while above != NONE {
        let event = &analysis.trace.events[above as usize];
        if event.category == Category::Module {
            let name = unescaped(analysis.trace.name(above));
            let name = name.strip_prefix(MODULE).unwrap_or(&name);
            // `Linear_12` is the thirteenth of its class.
            let class =
                name.rsplit_once('_').filter(|(_, n)| n.bytes().all(|c| c.is_ascii_digit())).map_or(name, |(c, _)| c);
            classes.push(class.to_string());
        }
        above = analysis.parent[above as usize];
    }
    classes.reverse();
    match analysis.trace.events.get(innermost as usize) {
        Some(event) => (classes.join("."), event.name),
        None => (OUTSIDE.into(), NONE),
    }
}
