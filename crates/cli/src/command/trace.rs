//! `gemwright trace`: where the GPU's time went, from a profiler's trace.

use crate::error::Error;
use crate::output::{Format, OutputArgs};
use clap::ValueEnum;
use gemwright_core::{Cell, Table};
use gemwright_report as report;
use gemwright_trace::tables::{Timeline, all};
use gemwright_trace::{Analysis, Mode, Reading, Time, Trace, read};
use serde_json::{Map, json};
use std::io::Read;
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  gemwright trace run.json.gz
  gemwright trace run.json.gz --csv tables/
  gemwright trace run.json.gz --compat tracelens --csv tables/
  zcat run.json.gz | gemwright trace - --format json";

/// Where the GPU's time went, from a PyTorch profiler trace
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// A trace: .json, .json.gz, .json.zst, or - for stdin
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Write every table into this folder, one CSV file each
    #[arg(long, value_name = "DIR")]
    csv: Option<PathBuf>,
    /// Read with one thread and little memory
    #[arg(long)]
    low_memory: bool,
    /// Follow another tool's rules, its mistakes among them
    #[arg(long, value_enum, value_name = "TOOL")]
    compat: Option<Compat>,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Compat {
    Tracelens,
}

pub fn run(args: &Args) -> Result<(), Error> {
    let wrong = |why: String| Error::File { path: args.file.display().to_string(), why };
    let reading = Reading { arrows: args.compat.is_some(), low_memory: args.low_memory };
    let trace = read(source(&args.file)?, reading).map_err(|e| wrong(e.to_string()))?;
    match args.compat {
        Some(Compat::Tracelens) => answer(args, &Analysis::<f64>::new(&trace, Mode::TraceLens)),
        None => answer(args, &Analysis::<i64>::new(&trace, Mode::Exact)),
    }
}

fn source(file: &Path) -> Result<Box<dyn Read + Send>, Error> {
    if file == Path::new("-") {
        return Ok(Box::new(std::io::stdin()));
    }
    let wrong = |e: std::io::Error| Error::File { path: file.display().to_string(), why: e.to_string() };
    Ok(Box::new(std::fs::File::open(file).map_err(wrong)?))
}

fn answer<T: Time>(args: &Args, analysis: &Analysis<'_, T>) -> Result<(), Error> {
    let tables = all(analysis);
    if let Some(folder) = &args.csv {
        let wrong =
            |path: &Path, e: std::io::Error| Error::File { path: path.display().to_string(), why: e.to_string() };
        std::fs::create_dir_all(folder).map_err(|e| wrong(folder, e))?;
        for (name, table) in &tables {
            let path = folder.join(format!("{name}.csv"));
            let text = if table.columns.is_empty() { "\n".into() } else { report::csv(table) };
            std::fs::write(&path, text).map_err(|e| wrong(&path, e))?;
        }
    }
    let problems = analysis.problems.list();
    match args.output.format {
        Format::Json => {
            let rows = tables.iter().map(|(name, table)| ((*name).to_string(), report::json_rows(table)));
            let devices = analysis.trace.devices.iter().map(|d| json!({"id": d.id, "name": d.name, "units": d.units}));
            let problems =
                problems.iter().map(|p| json!({"severity": p.severity.name(), "what": p.what, "count": p.count}));
            let answer = json!({
                "events": analysis.trace.count,
                "devices": devices.collect::<Vec<_>>(),
                "problems": problems.collect::<Vec<_>>(),
                "tables": rows.collect::<Map<_, _>>(),
            });
            args.output.write(&answer.to_string())
        }
        Format::Csv => Err(Error::Usage("several tables do not fit into one CSV: give --csv DIR".into())),
        Format::Table | Format::Md => args.output.write(&screen(args, analysis, &tables)),
    }
}

/// How long, how busy, on what, which operations, which kernels, what is suspicious.
fn screen<T: Time>(args: &Args, analysis: &Analysis<'_, T>, tables: &[(&'static str, Table)]) -> String {
    let mut parts = vec![headline(analysis.trace, &Timeline::of(analysis))];
    for (name, columns, rows) in [
        ("ops_summary_by_category", &[0, 1, 2, 3][..], 8),
        ("ops_summary", &[0, 5, 3, 7][..], 8),
        ("kernel_summary", &[][..], 8),
    ] {
        if let Some((_, table)) = tables.iter().find(|(other, _)| *other == name) {
            parts.push(args.output.table(&shortened(table, columns, rows)));
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
