//! Traces of many ranks: each reduced on its own, and put together.

use super::trace::{chips_of, folder_of, free_folder, tables_of};
use super::trace_files::{TableFiles, Tables, json_tables};
use crate::error::Error;
use crate::observed::observe;
use crate::output::{Format, OutputArgs, write_file};
use gemwright_report as report;
use gemwright_trace::{Analysis, Joined, Mode, Partial, Reading, join};
use serde_json::json;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

#[derive(clap::Subcommand)]
pub enum Action {
    /// Reduce one rank's trace to a part that can be joined with those of other ranks
    Map(MapArgs),
    /// Put the parts of ranks together, in any order
    Join(JoinArgs),
}

#[derive(clap::Args)]
#[command(after_help = "Example:\n  gemwright trace map rank3.json.gz -o rank3.parquet")]
pub struct MapArgs {
    /// A trace: .json, .json.gz, .json.zst, or - for stdin
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The rank it is of [default: the last number in the file's name, else 0]
    #[arg(long, value_name = "N")]
    rank: Option<usize>,
    /// The chip it ran on, for the roofs [default: as the trace says]
    #[arg(long, value_name = "CHIP")]
    on: Option<String>,
    /// Where the part goes
    #[arg(short, long, value_name = "PART.parquet")]
    output: PathBuf,
    /// Say nothing
    #[arg(short, long)]
    quiet: bool,
}

#[derive(clap::Args)]
#[command(after_help = "Example:\n  gemwright trace join rank*.parquet --csv tables/")]
pub struct JoinArgs {
    /// Parts that `trace map` made
    #[arg(value_name = "PART", required = true)]
    parts: Vec<PathBuf>,
    #[command(flatten)]
    files: TableFiles,
    #[command(flatten)]
    output: OutputArgs,
}

pub fn run(action: &Action) -> Result<(), Error> {
    match action {
        Action::Map(args) => map(args),
        Action::Join(args) => joined(args),
    }
}

fn map(args: &MapArgs) -> Result<(), Error> {
    let trace = observe(&args.file, Reading { low_memory: true, ..Reading::default() }, args.quiet)?;
    let rank = args.rank.or_else(|| rank_of(&args.file)).unwrap_or(0);
    let analysis = Analysis::new(&trace, Mode::Exact);
    let warn = |text: String| {
        if !args.quiet {
            eprintln!("warning: {text}");
        }
    };
    let tables = tables_of(&analysis, chips_of(args.on.as_slice(), &trace, warn)?.first());
    let part = Partial::of(rank, &analysis).with_tables(&folder_of(&args.file), &tables);
    let wrong = |why: String| Error::File { path: args.output.display().to_string(), why };
    write_file(&args.output, &report::parquet(&part.table()).map_err(wrong)?)
}

fn joined(args: &JoinArgs) -> Result<(), Error> {
    let (mut parts, mut ranks) = (Vec::new(), HashMap::new());
    for path in &args.parts {
        let wrong = |why: String| Error::File { path: path.display().to_string(), why };
        let bytes = std::fs::read(path).map_err(|e| wrong(e.to_string()))?;
        let table = report::from_parquet(bytes).map_err(wrong)?;
        let part = Partial::from_table(&table).map_err(wrong)?;
        // Two of one rank would be counted as one.
        if let Some((rank, other)) = part.rank().and_then(|rank| Some((rank, ranks.insert(rank, path)?))) {
            let cure = "map one of them again with --rank";
            return Err(wrong(format!("is of rank {rank}, like {}: {cure}", other.display())));
        }
        parts.push(part);
    }
    let Joined { tables, ranks } = join(parts);
    // One rank alone has nothing beside its own tables, as when its trace is read.
    let alone = ranks.len() == 1 && args.parts.len() == 1;
    if args.files.xlsx.is_some() && !alone {
        return Err(Error::Usage("--xlsx holds one trace: give one PART, or --csv DIR".into()));
    }
    let mut folders = Vec::new();
    for (folder, own) in &ranks {
        let folder = if alone { PathBuf::new() } else { free_folder(folder, &mut folders) };
        args.files.write(&folder, own)?;
    }
    if !alone {
        args.files.write(Path::new(""), &tables)?;
    }
    match args.output.format {
        Format::Json => args.output.write(&json!({"format": 1, "tables": json_tables(&tables)}).to_string()),
        _ => args.output.write(&screen(&args.output, args.parts.len(), &tables)),
    }
}

/// Who waits for whom, and what the exchanges take.
pub fn screen(output: &OutputArgs, ranks: usize, tables: &Tables) -> String {
    let shown = ["straggler_summary", "nccl_summary_implicit_sync"];
    let found = tables.iter().filter(|(name, _)| shown.contains(&name.as_str()));
    let text: Vec<String> = found.map(|(_, table)| output.table(table)).collect();
    format!("{ranks} ranks\n\n{}", text.join("\n"))
}

/// The last number in a file's name.
fn rank_of(file: &Path) -> Option<usize> {
    let name = file.file_name()?.to_string_lossy().into_owned();
    let stem = name.split(".json").next().unwrap_or(&name).to_string();
    stem.split(|c: char| !c.is_ascii_digit()).rfind(|word| !word.is_empty())?.parse().ok()
}

/// The rank of each file by its name, where those are all different; else its place.
pub fn rank_numbers(files: &[PathBuf]) -> Vec<usize> {
    let found: Option<Vec<usize>> = files.iter().map(|file| rank_of(file)).collect();
    let different = |list: &Vec<usize>| list.iter().collect::<std::collections::HashSet<_>>().len() == list.len();
    found.filter(different).unwrap_or_else(|| (0..files.len()).collect())
}
