//! `gemwright trace`: where the GPU's time went, from a profiler's trace.

use super::trace_files::{TableFiles, Tables, json_tables};
use super::trace_page::{trace_page, trace_picture};
use super::trace_ranks::{self, Action, rank_numbers};
use super::trace_screen::screen;
use crate::chips::chips;
use crate::error::Error;
use crate::observed::{self, observe};
use crate::output::{Format, OutputArgs, write_file};
use crate::page::write_picture;
use clap::ValueEnum;
use gemwright_core::{Catalog, Chip, Table};
use gemwright_report as report;
use gemwright_trace::tables::{all, by_module};
use gemwright_trace::{Analysis, Category, Mode, Partial, Ranks, Reading, Time, Trace, calls, join};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  gemwright trace run.json.gz
  gemwright trace run.json.gz --html report.html             a page to look at, one file
  gemwright trace run.json.gz --plot run.png                 where the time went and the roofline, for a slide
  gemwright trace run.json.gz --csv tables/ --xlsx report.xlsx
  gemwright trace run.json.gz --save run.workload.json       its products, for roof and the other commands
  gemwright trace run.json.gz --compat tracelens --csv tables/
  gemwright trace rank*.json.gz --csv tables/                 a folder for each rank, and all of them together
  gemwright trace map rank3.json.gz -o rank3.parquet          one rank where its trace is; join them with `trace join`
  zcat run.json.gz | gemwright trace - --format json";

/// Where the GPU's time went, from a PyTorch profiler trace
#[derive(clap::Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    /// Traces: .json, .json.gz, .json.zst, folders of such, or - for stdin
    #[arg(value_name = "FILE|DIR", required = true)]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    tables: TableFiles,
    /// Write a page for the browser: one file, works offline
    #[arg(long, value_name = "FILE", conflicts_with = "compat")]
    html: Option<PathBuf>,
    /// Keep the products, their counts and times as a workload, which other commands take
    #[arg(long, value_name = "FILE", conflicts_with = "compat")]
    save: Option<PathBuf>,
    /// Draw where the time went and the roofline, for slides: a name that ends in .svg or .png
    #[arg(long, value_name = "FILE", conflicts_with = "compat")]
    plot: Option<PathBuf>,
    /// Which of the two is drawn
    #[arg(long, value_enum, value_name = "WHAT", default_value = "both", requires = "plot")]
    plot_of: PlotOf,
    /// The chip it ran on, for the roofs [default: as the trace says]; the roofs of further ones are only drawn
    #[arg(long, value_delimiter = ',', value_name = "CHIP,...", conflicts_with = "compat")]
    on: Vec<String>,
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

/// What `--plot` draws.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PlotOf {
    Both,
    Roofline,
    Timeline,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Compat {
    Tracelens,
}

/// What one file gives: the screen, or JSON.
enum Answer {
    Text(String),
    Json(Value),
}

pub fn run(args: &Args) -> Result<(), Error> {
    if let Some(action) = &args.action {
        return trace_ranks::run(action);
    }
    if args.output.format == Format::Csv {
        return Err(Error::Usage("several tables do not fit into one CSV: give --csv DIR".into()));
    }
    let files = traces(&args.paths)?;
    let single = files.len() == 1;
    let of_one =
        [args.tables.xlsx.is_some(), args.save.is_some(), args.html.is_some(), args.plot.is_some()].contains(&true);
    if !single && of_one {
        return Err(Error::Usage("--xlsx, --html, --plot and --save hold one trace: give one FILE".into()));
    }
    if !single && args.compat.is_some() {
        return ranks(args, &files);
    }
    let mut answers = Vec::new();
    let mut folders = Vec::new();
    let mut parts = Vec::new();
    for (file, rank) in files.iter().zip(rank_numbers(&files)) {
        let folder = if single { PathBuf::new() } else { free_folder(&folder_of(file), &mut folders) };
        let trace = observe(file, reading(args), args.output.quiet)?;
        answers.push((file, one(args, file, &folder, &trace)?));
        if !single {
            parts.push(Partial::of(rank, &Analysis::new(&trace, Mode::Exact)));
        }
    }
    let together = join(parts).tables;
    if !single {
        args.tables.write(Path::new(""), &together)?;
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
            let answer = json!({"format": 1, "traces": list, "tables": json_tables(&together)});
            args.output.write(&answer.to_string())
        }
        _ => {
            if !single {
                text.push(trace_ranks::screen(&args.output, files.len(), &together));
            }
            args.output.write(&text.join("\n\n"))
        }
    }
}

/// TraceLens's report of many ranks: their exchanges side by side.
fn ranks(args: &Args, files: &[PathBuf]) -> Result<(), Error> {
    let mut ranks = Ranks::default();
    for (file, rank) in files.iter().zip(rank_numbers(files)) {
        ranks.add(rank, &observe(file, reading(args), args.output.quiet)?, 0);
    }
    let tables = ranks.finish().tables();
    args.tables.write(Path::new(""), &tables)?;
    match args.output.format {
        Format::Json => args.output.write(&json!({"format": 1, "tables": json_tables(&tables)}).to_string()),
        _ => args.output.write(&trace_ranks::screen(&args.output, files.len(), &tables)),
    }
}

/// The chip that was asked for, or the one the trace names; a warning where neither is known.
pub fn chips_of(on: &[String], trace: &Trace, warn: impl Fn(String)) -> Result<Vec<Chip>, Error> {
    if !on.is_empty() {
        return chips(on);
    }
    let Some(device) = trace.devices.first() else { return Ok(Vec::new()) };
    let found = Catalog::builtin().recognise(&device.name, device.units, device.memory).cloned();
    if found.is_none() {
        let name = if device.name.is_empty() { "without a name" } else { device.name.as_str() };
        warn(format!("the trace's GPU ({name}) is not in the catalog: no roofs; --on CHIP gives one"));
    }
    Ok(found.into_iter().collect())
}

fn reading(args: &Args) -> Reading {
    let (arrows, modules) = (args.compat.is_some(), args.by.is_some() || args.html.is_some());
    Reading { arrows, modules, low_memory: args.low_memory, chunk: None }
}

/// The files that are named, and the traces in the folders that are, by name.
fn traces(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Error> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let wrong = |why: String| Error::File { path: path.display().to_string(), why };
        let entries = std::fs::read_dir(path).map_err(|e| wrong(e.to_string()))?;
        let ends = [".json", ".json.gz", ".json.zst"];
        let is_trace = |file: &PathBuf| ends.iter().any(|end| file.to_string_lossy().ends_with(end));
        let mut found: Vec<PathBuf> = entries.filter_map(|e| e.ok().map(|e| e.path())).filter(is_trace).collect();
        if found.is_empty() {
            return Err(wrong("no .json, .json.gz or .json.zst is in this folder".into()));
        }
        found.sort();
        files.append(&mut found);
    }
    Ok(files)
}

/// A folder for the tables of one file of several, named like it.
pub fn folder_of(file: &Path) -> String {
    let name = file.file_name().map_or("stdin".into(), |n| n.to_string_lossy().into_owned());
    name.split('.').next().filter(|s| !s.is_empty()).unwrap_or("trace").to_string()
}

/// The folder itself, or with a number where there is one of that name.
pub fn free_folder(stem: &str, taken: &mut Vec<String>) -> PathBuf {
    let numbered = std::iter::once(stem.to_string()).chain((2..).map(|i| format!("{stem}-{i}")));
    let free = numbered.into_iter().find(|name| !taken.contains(name)).unwrap_or_default();
    taken.push(free.clone());
    PathBuf::from(free)
}

/// All tables of a trace, held against a chip where there is one, and what was wrong with it.
pub fn tables_of(analysis: &Analysis<'_, i64>, chip: Option<&Chip>) -> Tables {
    let mut tables = all(analysis, chip);
    tables.extend(problem_table(analysis).map(|table| ("problems".to_string(), table)));
    tables
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
        write_file(path, format!("{text}\n").as_bytes())?;
    }
    let chips = chips_of(&args.on, trace, |text| args.output.warn(&[text]))?;
    let mut tables = tables_of(&analysis, chips.first());
    let modules = ("by_module".to_string(), by_module(&analysis));
    let has_modules = trace.events.iter().any(|e| e.category == Category::Module);
    if args.by == Some(By::Module) {
        tables.push(modules.clone());
        if !has_modules {
            let cure = "the trace has no modules: record it with with_stack=True or with_modules=True";
            args.output.warn(&[cure.to_string()]);
        }
    }
    let title = title(file);
    if let Some(path) = &args.html {
        let products = observed::workload(file, &analysis);
        let mut shown = tables.clone();
        // The page shows the time by module wherever the trace knows it.
        if args.by.is_none() && has_modules {
            shown.push(modules);
        }
        let page = trace_page(&title, &analysis, &products, &shown, &chips)?;
        write_file(path, report::page(&page).as_bytes())?;
    }
    if let Some(path) = &args.plot {
        write_picture(path, &trace_picture(&title, &analysis, &tables, &chips, args.plot_of))?;
    }
    answer(args, file, folder, &analysis, &tables)
}

/// A file's name with its folder's, which often says more.
fn title(file: &Path) -> String {
    let parts: Vec<_> = file.components().map(|part| part.as_os_str().to_string_lossy()).collect();
    if file.as_os_str() == "-" { "stdin".into() } else { parts[parts.len().saturating_sub(2)..].join("/") }
}

fn problem_table<T: Time>(analysis: &Analysis<'_, T>) -> Option<Table> {
    let mut table = Table::new(&["severity", ">count", "what"]);
    for problem in analysis.problems.list() {
        table.row(vec![problem.severity.name().into(), problem.count.into(), problem.what.into()]);
    }
    (!table.rows.is_empty()).then_some(table)
}

fn answer<T: Time>(
    args: &Args,
    file: &Path,
    folder: &Path,
    analysis: &Analysis<'_, T>,
    tables: &Tables,
) -> Result<Answer, Error> {
    args.tables.write(folder, tables)?;
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
