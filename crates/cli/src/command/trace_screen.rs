//! The answer of `gemwright trace` on one screen.

use crate::output::OutputArgs;
use gemwright_core::{Cell, Table};
use gemwright_report as report;
use gemwright_trace::tables::Timeline;
use gemwright_trace::{Analysis, Time, Trace};

/// How long, how busy, on what, which operations, which kernels, what is suspicious.
pub fn screen<T: Time>(output: &OutputArgs, analysis: &Analysis<'_, T>, tables: &[(&'static str, Table)]) -> String {
    let mut parts = vec![headline(analysis.trace, &Timeline::of(analysis))];
    for (name, columns, rows) in [
        ("ops_summary_by_category", &[0, 1, 2, 3][..], 8),
        ("ops_summary", &[0, 5, 3, 7][..], 8),
        ("kernel_summary", &[][..], 8),
    ] {
        if let Some((_, table)) = tables.iter().find(|(other, _)| *other == name) {
            parts.push(output.table(&shortened(table, columns, rows)));
        }
    }
    let problems = analysis.problems.list();
    if !problems.is_empty() {
        let line = |p: &gemwright_trace::Problem| format!("  {}: {} ({} times)", p.severity.name(), p.what, p.count);
        parts.push(format!("What is suspicious\n{}", problems.iter().map(line).collect::<Vec<_>>().join("\n")));
    }
    parts.join("\n")
}

fn headline(trace: &Trace, timeline: &Timeline) -> String {
    let devices: Vec<&str> = trace.devices.iter().map(|d| d.name.as_str()).collect();
    let on = devices.first().map_or(String::new(), |name| format!(", {} x {name}", devices.len()));
    let time = |us: f64| report::seconds(us * 1e-6);
    let share = |us: f64| report::percent(if timeline.total > 0.0 { us / timeline.total } else { 0.0 });
    let line = |name: &str, us: f64| format!("{name:<22}{:>10}{:>10}", time(us), share(us));
    [
        format!("{} events{on}", trace.count),
        line("from first to last", timeline.total),
        line("  computing", timeline.computation),
        line("  only communicating", timeline.exposed_communication),
        line("  only copying", timeline.exposed_copies),
        line("  idle", timeline.total - timeline.busy),
    ]
    .join("\n")
        + "\n"
}

/// The first rows, some columns (all where none are named), numbers rounded and names cut.
fn shortened(table: &Table, columns: &[usize], rows: usize) -> Table {
    let kept: Vec<usize> = match columns {
        [] => (0..table.columns.len()).filter(|i| *i != 0 && *i != 3 && !(6..=8).contains(i)).collect(),
        some => some.to_vec(),
    };
    let names = kept.iter().map(|i| {
        let mark = if table.columns[*i].align == gemwright_core::Align::Right { ">" } else { "" };
        format!("{mark}{}", table.columns[*i].name)
    });
    let names: Vec<String> = names.collect();
    let mut out = Table::new(&names.iter().map(String::as_str).collect::<Vec<_>>());
    for row in table.rows.iter().take(rows) {
        out.row(kept.iter().filter_map(|i| row.get(*i)).map(short_cell).collect());
    }
    out
}

fn short_cell(cell: &Cell) -> Cell {
    match cell {
        Cell::Shown { value, .. } => Cell::shown(*value, report::significant(*value, 4)),
        Cell::Text(text) if text.chars().count() > 60 => {
            Cell::Text(text.chars().take(57).chain("...".chars()).collect())
        }
        other => other.clone(),
    }
}
