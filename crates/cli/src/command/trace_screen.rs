//! The answer of `gemwright trace` on one screen.

use crate::output::OutputArgs;
use gemwright_core::{Cell, Table};
use gemwright_report as report;
use gemwright_trace::tables::Timeline;
use gemwright_trace::{Analysis, Mode, Time};

/// Of each table the columns that answer: name in the table, name on the screen.
const SHOWN: [(&str, &[(&str, &str)]); 5] = [
    ("ops_summary_by_category", &[("op category", "category"), ("Count", "count"), TIME, OWN_TIME, SHARE]),
    ("ops_summary", &[("name", "operation"), ("Count", "count"), TIME, OWN_TIME, SHARE]),
    (
        "kernel_summary",
        &[
            ("Kernel name", "kernel"),
            ("Parent cpu_op", "operation"),
            ("Kernel duration (µs)_count", "count"),
            ("Kernel duration (µs)_sum", "µs"),
            ("Percent of kernels time (%)", "%"),
        ],
    ),
    (
        "by_module",
        &[
            ("module", "module"),
            ("instances", "instances"),
            ("forward_kernel_time_ms", "forward, ms"),
            ("backward_kernel_time_ms", "backward, ms"),
            ("Percentage (%)", "%"),
        ],
    ),
    ("host_ops", &[("name", "on the host"), ("Count", "count"), ("self_host_time_ms", "ms"), ("Percentage (%)", "%")]),
];
/// What an operation took, or where that is known its own part of the busy time.
const TIME: (&str, &str) = ("total_direct_kernel_time_ms", "ms");
const OWN_TIME: (&str, &str) = ("busy_time_ms", "ms");
const SHARE: (&str, &str) = ("Percentage (%)", "%");
const ROWS: usize = 6;

/// How long, how busy, on what, which operations, which kernels, what is suspicious.
pub fn screen<T: Time>(output: &OutputArgs, analysis: &Analysis<'_, T>, tables: &[(String, Table)]) -> String {
    let timeline = Timeline::of(analysis);
    let mut parts = vec![headline(analysis, &timeline)];
    let has_gpu = timeline.total > 0.0;
    for (name, columns) in SHOWN {
        let found = tables.iter().find(|(other, _)| other == name);
        // Host times are for those who have no other.
        if let Some((_, table)) = found.filter(|_| name != "host_ops" || !has_gpu) {
            parts.push(output.table(&shortened(table, columns)));
        }
    }
    if let Some(table) = recoverable(tables) {
        parts.push(output.table(&table));
    }
    let suspicious: Vec<String> = problems(analysis).into_iter().chain(findings(&timeline, tables)).collect();
    if !suspicious.is_empty() {
        parts.push(format!("What is suspicious\n  {}", suspicious.join("\n  ")));
    }
    parts.join("\n")
}

/// What was wrong with the file, a line each.
pub fn problems<T: Time>(analysis: &Analysis<'_, T>) -> Vec<String> {
    let line = |p: &gemwright_trace::Problem| format!("{}: {} ({} times)", p.severity.name(), p.what, p.count);
    analysis.problems.list().iter().map(line).collect()
}

/// The operations whose distance from the roof costs most.
fn recoverable(tables: &[(String, Table)]) -> Option<Table> {
    let (_, table) = tables.iter().find(|(name, _)| name == "unified_perf_summary")?;
    let place = |name: &str| table.columns.iter().position(|c| c.name == name);
    let lost = place("recoverable_time_ms")?;
    let value = |row: &[Cell]| if let Cell::Shown { value, .. } = row[lost] { value } else { 0.0 };
    let mut rows: Vec<&Vec<Cell>> = table.rows.iter().filter(|row| value(row) > 0.0).collect();
    rows.sort_by(|x, y| value(y).total_cmp(&value(x)));
    let sorted = Table { columns: table.columns.clone(), rows: rows.into_iter().take(ROWS).cloned().collect() };
    let columns = [
        ("name", "far from the roof"),
        ("Input Dims", "sizes"),
        ("operation_count", "count"),
        ("Kernel Time (µs)_mean", "µs each"),
        ("Roofline Time (µs)", "roof, µs"),
        ("Pct Roofline", "% of it"),
        ("recoverable_time_ms", "lost, ms"),
    ];
    (!sorted.rows.is_empty()).then(|| shortened(&sorted, &columns))
}

/// From which share on something is worth a word.
const IDLE: f64 = 0.1;
const EXPOSED: f64 = 0.05;
const SHORT: f64 = 0.2;

/// What the figures say.
pub fn findings(timeline: &Timeline, tables: &[(String, Table)]) -> Vec<String> {
    let total = timeline.total;
    if total <= 0.0 {
        return vec!["there is no GPU event: the times are the host's".into()];
    }
    let mut found = Vec::new();
    let mut say = |us: f64, least: f64, what: &str| {
        if us / total >= least {
            found.push(format!("{} of the time {what}", report::percent(us / total)));
        }
    };
    say(total - timeline.busy, IDLE, "the GPU is idle: it waits for the host");
    say(timeline.exposed_communication, EXPOSED, "it only communicates: nothing is computed meanwhile");
    say(timeline.exposed_copies, EXPOSED, "it only copies");
    let short = tables.iter().find(|(name, _)| name == "short_kernels_summary");
    let sum = |(_, table): &(String, Table)| {
        let column = table.columns.iter().position(|c| c.name == "Short Kernel duration (µs) sum")?;
        let value = |row: &Vec<Cell>| if let Cell::Shown { value, .. } = row[column] { value } else { 0.0 };
        Some(table.rows.iter().map(value).sum::<f64>())
    };
    say(short.and_then(sum).unwrap_or(0.0), SHORT, "runs kernels shorter than 10 µs: launching costs as much");
    found.extend(without_model(tables));
    found
}

/// How much of the GPU's time has no cost model, and what that mostly is.
fn without_model(tables: &[(String, Table)]) -> Option<String> {
    let (_, table) = tables.iter().find(|(name, _)| name == "unmodelled")?;
    let value = |cell: &Cell| if let Cell::Shown { value, .. } = cell { *value } else { 0.0 };
    let share: f64 = table.rows.iter().map(|row| value(&row[3])).sum();
    let [Cell::Text(name), _, _, largest, Cell::Text(why)] = table.rows.first()?.as_slice() else { return None };
    let of = |share: f64| report::percent(share / 100.0);
    (share >= 1.0).then(|| {
        format!("{} of the kernels' time has no cost model; {} is {name}: {why}", of(share), of(value(largest)))
    })
}

fn headline<T: Time>(analysis: &Analysis<'_, T>, timeline: &Timeline) -> String {
    let trace = analysis.trace;
    let devices: Vec<&str> = trace.devices.iter().map(|d| d.name.as_str()).collect();
    let on = devices.first().map_or(String::new(), |name| format!(", {} x {name}", devices.len()));
    let share = |us: f64, of: f64| report::percent(if of > 0.0 { us / of } else { 0.0 });
    let line =
        |name: &str, us: f64| format!("{name:<22}{:>10}{:>10}", report::seconds(us * 1e-6), share(us, timeline.total));
    let mut lines = vec![format!("{} events{on}", trace.count)];
    let gpus = Timeline::by_gpu(analysis);
    if timeline.total > 0.0 {
        let all = if gpus.len() > 1 && analysis.mode == Mode::Exact { ", all GPUs" } else { "" };
        lines.extend([
            line(&format!("first to last{all}"), timeline.total),
            line("  computing", timeline.computation),
            line("  only communicating", timeline.exposed_communication),
            line("  only copying", timeline.exposed_copies),
            line("  idle", timeline.total - timeline.busy),
        ]);
    }
    for (name, one) in gpus.iter().filter(|_| gpus.len() > 1) {
        let (busy, idle) = (share(one.busy, one.total), share(one.total - one.busy, one.total));
        lines.push(format!("  GPU {name}: busy {busy}, idle {idle}"));
    }
    lines.join("\n") + "\n"
}

/// The first rows of some columns, numbers rounded and names cut.
fn shortened(table: &Table, columns: &[(&str, &str)]) -> Table {
    let place = |name: &str| table.columns.iter().position(|c| c.name == name);
    let mut kept: Vec<(usize, &str)> =
        columns.iter().filter_map(|(name, shown)| Some((place(name)?, *shown))).collect();
    kept.dedup_by(|next, before| {
        let same = next.1 == before.1;
        if same {
            before.0 = next.0;
        }
        same
    });
    let names = kept.iter().map(|(i, shown)| {
        let mark = if table.columns[*i].align == gemwright_core::Align::Right { ">" } else { "" };
        format!("{mark}{shown}")
    });
    let names: Vec<String> = names.collect();
    let mut out = Table::new(&names.iter().map(String::as_str).collect::<Vec<_>>());
    for row in table.rows.iter().take(ROWS) {
        out.row(kept.iter().map(|(i, _)| short_cell(&row[*i])).collect());
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
