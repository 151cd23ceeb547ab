//! Time on the host, by operation: what a trace without a GPU has to tell, and where launches are slow.

use super::number;
use crate::analysis::Analysis;
use crate::event::Category;
use crate::fast::Map;
use crate::interval::{Time, order};
use crate::nest::NONE;
use crate::scan::unescaped;
use gemwright_core::Table;

#[derive(Default)]
struct Row {
    count: u64,
    total: f64,
    inside: f64,
}

/// By name, as `key_averages()` counts: in all, and without what runs inside.
pub fn host_ops<T: Time>(analysis: &Analysis<'_, T>) -> Table {
    let events = &analysis.trace.events;
    let took = |i: usize| (analysis.spans[i].end - analysis.spans[i].start).microseconds();
    let mut rows: Map<u32, Row> = Map::default();
    for (i, event) in events.iter().enumerate().filter(|(_, e)| e.category.on_host()) {
        if event.category == Category::CpuOp {
            let row = rows.entry(event.name).or_default();
            row.count += 1;
            row.total += took(i);
        }
        let above = analysis.parent[i];
        if above != NONE && events[above as usize].category == Category::CpuOp {
            rows.entry(events[above as usize].name).or_default().inside += took(i);
        }
    }
    let mut rows: Vec<(u32, Row)> = rows.into_iter().collect();
    let own = |row: &Row| row.total - row.inside;
    rows.sort_by(|x, y| order(&own(&y.1), &own(&x.1)).then(x.0.cmp(&y.0)));
    let sum: f64 = rows.iter().map(|(_, row)| own(row)).sum();
    let mut table = Table::new(&["name", ">Count", ">self_host_time_ms", ">total_host_time_ms", ">Percentage (%)"]);
    for (name, row) in &rows {
        let name = unescaped(&analysis.trace.texts[*name as usize]);
        let own = own(row);
        let share = if sum > 0.0 { own / sum * 100.0 } else { f64::NAN };
        table.row(vec![name.into(), row.count.into(), number(own / 1e3), number(row.total / 1e3), number(share)]);
    }
    table
}
