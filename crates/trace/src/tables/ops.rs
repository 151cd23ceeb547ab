//! GPU time by operation and by category of operations.

use super::{Timeline, number};
use crate::analysis::{Analysis, Launcher, Mode};
use crate::fast::Map;
use crate::interval::{Time, order};
use crate::scan::unescaped;
use gemwright_core::{Cell, Table};
use std::collections::BTreeSet;

/// Shares of rows: of their own sum, the running sum of that, and, where they are right, of all GPUs' time.
pub(super) struct Shares<R> {
    pub row: R,
    share: f64,
    running: f64,
    of_total: Option<f64>,
}

/// Columns of [`Shares::cells`].
pub(super) fn share_names(mode: Mode) -> &'static [&'static str] {
    const NAMES: [&str; 4] = [
        ">Percentage (%)",
        ">Cumulative Percentage (%)",
        // Each instant of the busy time in one row: these add up to busy_time of the timeline.
        ">busy_time_ms",
        ">Percent of total time (%)",
    ];
    if mode == Mode::TraceLens { &NAMES[..2] } else { &NAMES }
}

impl<R> Shares<R> {
    pub fn cells(&self, alone: f64) -> Vec<Cell> {
        let mut cells = vec![number(self.share), number(self.running)];
        if let Some(of_total) = self.of_total {
            cells.extend([number(alone / 1e3), number(of_total)]);
        }
        cells
    }
}

/// The longest rows first. TraceLens takes shares of the sum of the rows' times, in which what runs at
/// once counts twice; else they are shares of the busy time.
pub(super) fn with_shares<R>(
    mut rows: Vec<R>,
    mode: Mode,
    timeline: &Timeline,
    time: impl Fn(&R) -> f64,
    alone: impl Fn(&R) -> f64,
) -> Vec<Shares<R>> {
    let part = |row: &R| if mode == Mode::TraceLens { time(row) } else { alone(row) };
    rows.sort_by(|x, y| order(&part(y), &part(x)).then_with(|| order(&time(y), &time(x))));
    let sum: f64 = rows.iter().map(part).sum();
    let mut running = 0.0;
    rows.into_iter()
        .map(|row| {
            let share = if sum > 0.0 { part(&row) / sum * 100.0 } else { f64::NAN };
            running += share;
            let of_total = (mode == Mode::Exact).then(|| alone(&row) / timeline.total * 100.0);
            Shares { row, share, running, of_total }
        })
        .collect()
}

struct Row<'n> {
    name: &'n [u8],
    direct: f64,
    subtree: f64,
    alone: f64,
    count: u64,
    categories: BTreeSet<&'static str>,
}

/// One row for each key, in order of first appearance.
fn rows<'n, T: Time, K: Eq + std::hash::Hash>(
    analysis: &'n Analysis<'_, T>,
    key: impl Fn(&'n Launcher) -> (K, &'n [u8]),
) -> Vec<Row<'n>> {
    let mut places: Map<K, usize> = Map::default();
    let mut rows: Vec<Row> = Vec::new();
    for launcher in &analysis.launchers {
        let (key, name) = key(launcher);
        let place = *places.entry(key).or_insert_with(|| {
            rows.push(Row { name, direct: 0.0, subtree: 0.0, alone: 0.0, count: 0, categories: BTreeSet::new() });
            rows.len() - 1
        });
        let row = &mut rows[place];
        row.direct += launcher.direct_time;
        row.subtree += launcher.subtree_time;
        row.alone += launcher.alone_time;
        row.count += 1;
        row.categories.insert(launcher.category);
    }
    rows
}

/// By category.
pub fn ops_summary_by_category<T: Time>(analysis: &Analysis<'_, T>, timeline: &Timeline) -> Table {
    let mut names = vec!["op category", ">Count", ">total_direct_kernel_time_ms"];
    names.extend(share_names(analysis.mode));
    let mut table = Table::new(&names);
    let rows = rows(analysis, |launcher| (launcher.category, launcher.category.as_bytes()));
    for shares in with_shares(rows, analysis.mode, timeline, |row| row.direct, |row| row.alone) {
        let row = &shares.row;
        let mut cells = vec![unescaped(row.name).into(), row.count.into(), number(row.direct / 1e3)];
        cells.extend(shares.cells(row.alone));
        table.row(cells);
    }
    table
}

/// By name.
pub fn ops_summary<T: Time>(analysis: &Analysis<'_, T>, timeline: &Timeline) -> Table {
    let mut names = vec![
        "name",
        ">total_direct_kernel_time_sum",
        ">total_subtree_kernel_time_sum",
        ">total_direct_kernel_time_ms",
        ">total_subtree_kernel_time_ms",
        ">Count",
        "Categories",
    ];
    names.extend(share_names(analysis.mode));
    let mut table = Table::new(&names);
    let rows = rows(analysis, |launcher| (analysis.event(launcher).map(|e| e.name), analysis.name(launcher)));
    for shares in with_shares(rows, analysis.mode, timeline, |row| row.direct, |row| row.alone) {
        let row = &shares.row;
        let categories: Vec<String> = row.categories.iter().map(|c| format!("'{c}'")).collect();
        let mut cells = vec![
            Cell::Text(unescaped(row.name)),
            number(row.direct),
            number(row.subtree),
            number(row.direct / 1e3),
            number(row.subtree / 1e3),
            row.count.into(),
            format!("[{}]", categories.join(", ")).into(),
        ];
        cells.extend(shares.cells(row.alone));
        table.row(cells);
    }
    table
}
