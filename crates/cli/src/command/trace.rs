//! `gemwright trace`: where the GPU's time went, from a profiler's trace.

use super::trace_screen::screen;
use crate::chips::chips;
use crate::error::Error;
use crate::observed::{self, observe};
use crate::output::{Format, OutputArgs};
use clap::ValueEnum;
use gemwright_core::{Catalog, Chip, Table};
use gemwright_report as report;
use gemwright_trace::tables::{all, by_module};
use gemwright_trace::{Analysis, Category, Mode, Ranks, Reading, Time, Trace, calls};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  gemwright trace run.json.gz
  gemwright trace run.json.gz --csv tables/ --xlsx report.xlsx
  gemwright trace run.json.gz --save run.workload.json       its products, for roof and the other commands
  gemwright trace run.json.gz --compat tracelens --csv tables/
  gemwright trace rank*.json.gz --csv tables/                 a folder for each file
  zcat run.json.gz | gemwright trace - --format json";

/// Where the GPU's time went, from a PyTorch profiler trace
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Traces: .json, .json.gz, .json.zst, or - for stdin
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Write every table into this folder, one CSV file each
    #[arg(long, value_name = "DIR")]
    csv: Option<PathBuf>,
    /// Write every table into this workbook, one sheet each
    #[arg(long, value_name = "FILE")]
    xlsx: Option<PathBuf>,
    /// Write every table into this folder, one parquet file each
    #[arg(long, value_name = "DIR")]
    parquet: Option<PathBuf>,
    /// Keep the products, their counts and times as a workload, which other commands take
    #[arg(long, value_name = "FILE", conflicts_with = "compat")]
    save: Option<PathBuf>,
    /// The chip it ran on, for the roofs [default: as the trace says]
    #[arg(long, value_name = "CHIP", conflicts_with = "compat")]
    on: Option<String>,
    /// GPU time by module too, where the trace has Python stacks
    #[arg(long, value_enum, value_name = "WHAT", conflicts_with = "compat")]
    by: Option<By>,
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
enum By {
    Module,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Compat {
    Tracelens,
}

/// Tables with their names.
type Tables = Vec<(String, Table)>;

/// What one file gives: the screen, or JSON.
enum Answer {
    Text(String),
    Json(Value),
}

pub fn run(args: &Args) -> Result<(), Error> {
    if args.output.format == Format::Csv {
        return Err(Error::Usage("several tables do not fit into one CSV: give --csv DIR".into()));
    }
    let single = args.files.len() == 1;
    if !single && (args.xlsx.is_some() || args.save.is_some()) {
        return Err(Error::Usage("--xlsx and --save hold one trace: give one FILE".into()));
    }
    if !single && args.compat.is_some() {
        return ranks(args);
    }
    let mut answers = Vec::new();
    let mut folders = Vec::new();
    let mut ranks = Ranks::default();
    let mut zero = None;
    for (file, rank) in args.files.iter().zip(rank_numbers(&args.files)) {
        let folder = if single { PathBuf::new() } else { folder_of(file, &mut folders) };
        let trace = observe(file, reading(args), args.output.quiet)?;
        answers.push((file, one(args, file, &folder, &trace)?));
        if !single {
            let first = trace.events.first().map_or(0, |e| e.start);
            ranks.add(rank, &trace, *zero.get_or_insert(first));
        }
    }
    let exchanges = ranks.finish().tables();
    if !single {
        write_tables(args, Path::new(""), &exchanges)?;
    }
    let mut text = Vec::new();
    let mut list = Vec::new();
    for (file, answer) in answers {
        match answer {
            Answer::Json(value) => list.push(value),
            Answer::Text(screen) if single => text.push(screen),
            Answer::Text(screen) => text.push(format!("{}\n{screen}", file.display())),
        }
    }
    match (args.output.format, list) {
        (Format::Json, mut list) if single => args.output.write(&list.remove(0).to_string()),
        (Format::Json, list) => {
            let answer = json!({"format": 1, "traces": list, "tables": json_tables(&exchanges)});
            args.output.write(&answer.to_string())
        }
        _ => {
            if !exchanges.is_empty() {
                text.push(joined(args, &exchanges));
            }
            args.output.write(&text.join("\n\n"))
        }
    }
}

/// TraceLens's report of many ranks: their exchanges side by side.
fn ranks(args: &Args) -> Result<(), Error> {
    let mut ranks = Ranks::default();
    for (file, rank) in args.files.iter().zip(rank_numbers(&args.files)) {
        ranks.add(rank, &observe(file, reading(args), args.output.quiet)?, 0);
    }
    let tables = ranks.finish().tables();
    write_tables(args, Path::new(""), &tables)?;
    match args.output.format {
        Format::Json => args.output.write(&json!({"format": 1, "tables": json_tables(&tables)}).to_string()),
        _ => args.output.write(&joined(args, &tables)),
    }
}

fn json_tables(tables: &Tables) -> Map<String, Value> {
    tables.iter().map(|(name, table)| (name.clone(), report::json_rows(table))).collect()
}

/// Who waits for whom, and what the exchanges take.
fn joined(args: &Args, tables: &Tables) -> String {
    let shown = tables.iter().filter(|(name, _)| name == "straggler_summary" || name == "nccl_summary_implicit_sync");
    let text: Vec<String> = shown.map(|(_, table)| args.output.table(table)).collect();
    format!("{} ranks\n\n{}", args.files.len(), text.join("\n"))
}

/// The rank of each file: the last number in its name, where those are all different; else its place.
fn rank_numbers(files: &[PathBuf]) -> Vec<usize> {
    let number = |file: &PathBuf| {
        let name = file.file_name()?.to_string_lossy().into_owned();
        let stem = name.split(".json").next().unwrap_or(&name).to_string();
        stem.split(|c: char| !c.is_ascii_digit()).rfind(|word| !word.is_empty())?.parse().ok()
    };
    let found: Option<Vec<usize>> = files.iter().map(number).collect();
    let different = |list: &Vec<usize>| list.iter().collect::<std::collections::HashSet<_>>().len() == list.len();
    found.filter(different).unwrap_or_else(|| (0..files.len()).collect())
}

/// The chip that was asked for, or the one the trace names; a warning where neither is known.
fn chip(args: &Args, trace: &Trace) -> Result<Option<Chip>, Error> {
    if let Some(name) = &args.on {
        return Ok(chips(std::slice::from_ref(name))?.into_iter().next());
    }
    let Some(device) = trace.devices.first() else { return Ok(None) };
    let found = Catalog::builtin().recognise(&device.name, device.units, device.memory).cloned();
    if found.is_none() {
        let name = if device.name.is_empty() { "without a name" } else { device.name.as_str() };
        args.output.warn(&[format!("the trace's GPU ({name}) is not in the catalog: no roofs; --on CHIP gives one")]);
    }
    Ok(found)
}

fn reading(args: &Args) -> Reading {
    Reading { arrows: args.compat.is_some(), modules: args.by.is_some(), low_memory: args.low_memory, chunk: None }
}

/// A folder for the tables of one file of several, named like it.
fn folder_of(file: &Path, taken: &mut Vec<String>) -> PathBuf {
    let name = file.file_name().map_or("stdin".into(), |n| n.to_string_lossy().into_owned());
    let stem = name.split('.').next().filter(|s| !s.is_empty()).unwrap_or("trace").to_string();
    let numbered = std::iter::once(stem.clone()).chain((2..).map(|i| format!("{stem}-{i}")));
    let free = numbered.into_iter().find(|name| !taken.contains(name)).unwrap_or(stem);
    taken.push(free.clone());
    PathBuf::from(free)
}

fn one(args: &Args, file: &Path, folder: &Path, trace: &Trace) -> Result<Answer, Error> {
    if args.compat == Some(Compat::Tracelens) {
        let analysis = Analysis::<f64>::new(trace, Mode::TraceLens);
        return answer(args, file, folder, &analysis, &all(&analysis, None));
    }
    let analysis = Analysis::<i64>::new(trace, Mode::Exact);
    if let Some(path) = &args.save {
        let workload = observed::workload(file, &analysis);
        let text = report::workload_json(&workload, None, None, calls::settings(&analysis))?;
        write(path, format!("{text}\n").as_bytes())?;
    }
    let chip = chip(args, trace)?;
    let mut tables = all(&analysis, chip.as_ref());
    if args.by == Some(By::Module) {
        tables.push(("by_module".into(), by_module(&analysis)));
        if !trace.events.iter().any(|e| e.category == Category::Module) {
            let cure = "the trace has no modules: record it with with_stack=True or with_modules=True";
            args.output.warn(&[cure.to_string()]);
        }
    }
    tables.extend(problem_table(&analysis).map(|table| ("problems".to_string(), table)));
    answer(args, file, folder, &analysis, &tables)
}

fn problem_table<T: Time>(analysis: &Analysis<'_, T>) -> Option<Table> {
    let mut table = Table::new(&["severity", ">count", "what"]);
    for problem in analysis.problems.list() {
        table.row(vec![problem.severity.name().into(), problem.count.into(), problem.what.into()]);
    }
    (!table.rows.is_empty()).then_some(table)
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    std::fs::write(path, bytes).map_err(|e| Error::File { path: path.display().to_string(), why: e.to_string() })
}

/// One file a table, in a folder that is made where it is missing.
fn write_all(
    folder: &Path,
    end: &str,
    tables: &Tables,
    bytes: impl Fn(&Table) -> Result<Vec<u8>, String>,
) -> Result<(), Error> {
    let wrong = |path: &Path, why: String| Error::File { path: path.display().to_string(), why };
    std::fs::create_dir_all(folder).map_err(|e| wrong(folder, e.to_string()))?;
    for (name, table) in tables {
        let path = folder.join(format!("{name}.{end}"));
        write(&path, &bytes(table).map_err(|why| wrong(&path, why))?)?;
    }
    Ok(())
}

/// Into every folder and file that was asked for.
fn write_tables(args: &Args, folder: &Path, tables: &Tables) -> Result<(), Error> {
    if let Some(base) = &args.csv {
        // What pandas writes of a table without columns.
        let text = |table: &Table| if table.columns.is_empty() { "\n".into() } else { report::csv(table) };
        write_all(&base.join(folder), "csv", tables, |table| Ok(text(table).into_bytes()))?;
    }
    if let Some(base) = &args.parquet {
        write_all(&base.join(folder), "parquet", tables, report::parquet)?;
    }
    if let Some(path) = &args.xlsx {
        let sheets: Vec<(&str, &Table)> = tables.iter().map(|(name, table)| (name.as_str(), table)).collect();
        let wrong = |why: String| Error::File { path: path.display().to_string(), why };
        write(path, &report::xlsx(&sheets).map_err(wrong)?)?;
    }
    Ok(())
}

fn answer<T: Time>(
    args: &Args,
    file: &Path,
    folder: &Path,
    analysis: &Analysis<'_, T>,
    tables: &Tables,
) -> Result<Answer, Error> {
    write_tables(args, folder, tables)?;
    if args.output.format != Format::Json {
        return Ok(Answer::Text(screen(&args.output, analysis, tables)));
    }
    let rows = tables.iter().filter(|(name, _)| name != "problems");
    let rows = rows.map(|(name, table)| (name.clone(), report::json_rows(table)));
    let devices = analysis.trace.devices.iter().map(|d| json!({"id": d.id, "name": d.name, "units": d.units}));
    let problems = analysis.problems.list();
    let problems = problems.iter().map(|p| json!({"severity": p.severity.name(), "what": p.what, "count": p.count}));
    Ok(Answer::Json(json!({
        "format": 1,
        "trace": file.display().to_string(),
        "events": analysis.trace.count,
        "devices": devices.collect::<Vec<_>>(),
        "problems": problems.collect::<Vec<_>>(),
        "tables": rows.collect::<Map<_, _>>(),
    })))
}
