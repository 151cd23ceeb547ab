//! GPU time by operation and by category of operations.

use super::number;
use crate::analysis::Analysis;
use crate::fast::Map;
use crate::interval::{Time, order};
use crate::scan::unescaped;
use gemwright_core::{Cell, Table};
use std::collections::BTreeSet;

/// Rows with shares and running shares of the sum of `time`, the longest first.
pub(super) fn with_shares<R>(mut rows: Vec<R>, time: impl Fn(&R) -> f64) -> Vec<(R, f64, f64)> {
    rows.sort_by(|x, y| order(&time(y), &time(x)));
    let total: f64 = rows.iter().map(&time).sum();
    let mut running = 0.0;
    rows.into_iter()
        .map(|row| {
            let share = if total > 0.0 { time(&row) / total * 100.0 } else { f64::NAN };
            running += share;
            (row, share, running)
        })
        .collect()
}

/// By category.
pub fn ops_summary_by_category<T: Time>(analysis: &Analysis<'_, '_, T>) -> Table {
    let mut places: Map<&str, usize> = Map::default();
    let mut rows: Vec<(&str, u64, f64)> = Vec::new();
    for launcher in &analysis.launchers {
        let place = *places.entry(launcher.category).or_insert_with(|| {
            rows.push((launcher.category, 0, 0.0));
            rows.len() - 1
        });
        rows[place].1 += 1;
        rows[place].2 += launcher.direct_time;
    }
    let names =
        ["op category", ">Count", ">total_direct_kernel_time_ms", ">Percentage (%)", ">Cumulative Percentage (%)"];
    let mut table = Table::new(&names);
    for ((category, count, time), share, running) in with_shares(rows, |row| row.2) {
        table.row(vec![category.into(), count.into(), number(time / 1e3), number(share), number(running)]);
    }
    table
}

struct Row {
    name: u32,
    direct: f64,
    subtree: f64,
    count: u64,
    categories: BTreeSet<&'static str>,
}

/// By name.
pub fn ops_summary<T: Time>(analysis: &Analysis<'_, '_, T>) -> Table {
    let mut places: Map<u32, usize> = Map::default();
    let mut rows: Vec<Row> = Vec::new();
    for launcher in &analysis.launchers {
        let name = analysis.trace.events[launcher.event as usize].name;
        let place = *places.entry(name).or_insert_with(|| {
            rows.push(Row { name, direct: 0.0, subtree: 0.0, count: 0, categories: BTreeSet::new() });
            rows.len() - 1
        });
        let row = &mut rows[place];
        row.direct += launcher.direct_time;
        row.subtree += launcher.subtree_time;
        row.count += 1;
        row.categories.insert(launcher.category);
    }
    let names = [
        "name",
        ">total_direct_kernel_time_sum",
        ">total_subtree_kernel_time_sum",
        ">total_direct_kernel_time_ms",
        ">total_subtree_kernel_time_ms",
        ">Count",
        "Categories",
        ">Percentage (%)",
        ">Cumulative Percentage (%)",
    ];
    let mut table = Table::new(&names);
    for (row, share, running) in with_shares(rows, |row| row.direct) {
        let categories: Vec<String> = row.categories.iter().map(|c| format!("'{c}'")).collect();
        table.row(vec![
            Cell::Text(unescaped(analysis.trace.texts[row.name as usize])),
            number(row.direct),
            number(row.subtree),
            number(row.direct / 1e3),
            number(row.subtree / 1e3),
            row.count.into(),
            format!("[{}]", categories.join(", ")).into(),
            number(share),
            number(running),
        ]);
    }
    table
}
