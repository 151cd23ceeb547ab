//! GPU time by kernel.

use super::{Timeline, number};
use crate::analysis::{Analysis, Mode, UNLINKED};
use crate::event::Category;
use crate::fast::Map;
use crate::interval::{Time, order};
use crate::nest::NONE;
use crate::scan::unescaped;
use gemwright_core::{Cell, Table};

/// Operation above, kernel and stream.
type Key = (Option<&'static str>, Option<u32>, u32, Option<i64>);

struct Row {
    key: Key,
    sum: f64,
    count: u64,
    least: f64,
    largest: f64,
}

/// By operation, kernel and stream; kernels whose launch is unknown have no operation.
pub fn kernel_summary<T: Time>(analysis: &Analysis<'_, T>, timeline: &Timeline) -> Table {
    let events = &analysis.trace.events;
    let mut places: Map<Key, usize> = Map::default();
    let mut rows: Vec<Row> = Vec::new();
    for (i, event) in events.iter().enumerate().filter(|(_, e)| e.category == Category::Kernel) {
        let (category, operation) = parent(analysis, i as u32);
        let key = (category, operation, event.name, analysis.trace.queue(event).stream.get());
        let time = analysis.took(i as u32);
        let place = *places.entry(key).or_insert_with(|| {
            rows.push(Row { key, sum: 0.0, count: 0, least: f64::INFINITY, largest: f64::NEG_INFINITY });
            rows.len() - 1
        });
        let row = &mut rows[place];
        row.sum += time;
        row.count += 1;
        row.least = row.least.min(time);
        row.largest = row.largest.max(time);
    }
    rows.sort_by(|x, y| order(&y.sum, &x.sum));
    let all: f64 = rows.iter().map(|row| row.sum).sum();
    let with_operations = analysis.trace.has_operations();
    let mut names = vec!["Parent op category"];
    if with_operations {
        names.push("Parent cpu_op");
    }
    names.extend([
        "Kernel name",
        ">Kernel stream",
        ">Kernel duration (µs)_sum",
        ">Kernel duration (µs)_count",
        ">Kernel duration (µs)_mean",
        ">Kernel duration (µs)_min",
        ">Kernel duration (µs)_max",
        ">Percent of kernels time (%)",
        ">Percent of total time (%)",
    ]);
    let mut table = Table::new(&names);
    for row in rows {
        let (category, operation, kernel, stream) = row.key;
        // TraceLens says nothing of those it could not tie.
        let unknown = (analysis.mode == Mode::Exact && with_operations).then_some(UNLINKED);
        let mut cells: Vec<Cell> = vec![category.or(unknown).into()];
        if with_operations {
            let name = operation.map(|name| unescaped(&analysis.trace.texts[name as usize]));
            cells.push(name.or(unknown.map(str::to_string)).into());
        }
        cells.push(Cell::Text(unescaped(&analysis.trace.texts[kernel as usize])));
        cells.push(stream.map_or(Cell::Empty, |s| Cell::Text(s.to_string())));
        cells.extend([number(row.sum), row.count.into(), number(row.sum / row.count as f64)]);
        cells.extend([number(row.least), number(row.largest)]);
        cells.extend([number(row.sum / all * 100.0), number(row.sum / timeline.total * 100.0)]);
        table.row(cells);
    }
    table
}

/// The innermost operation, or the call that launched without one.
fn parent<T: Time>(analysis: &Analysis<'_, T>, gpu: u32) -> (Option<&'static str>, Option<u32>) {
    let events = &analysis.trace.events;
    if let Some(operation) = analysis.operation_above(gpu) {
        return (Some(analysis.category_of(operation)), Some(events[operation as usize].name));
    }
    let call = analysis.links.launcher[gpu as usize];
    if call == NONE {
        return (None, None);
    }
    let name = events[call as usize].name;
    let lower = String::from_utf8_lossy(analysis.trace.name(call)).to_lowercase();
    let graph = lower.contains("cudagraph") || lower.contains("graphlaunch");
    (Some(if graph { "graph" } else { "runtime" }), Some(name))
}
