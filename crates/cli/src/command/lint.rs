//! `gemwright lint`: what is wrong with a tuned table.

use crate::chips::chips;
use crate::error::Error;
use crate::output::{Format, OutputArgs};
use crate::subject::{ModelOptions, small_text};
use crate::workload::workload;
use gemwright_core::blas::{Settings, Stack};
use gemwright_core::{Cell, Chip, Table};
use gemwright_exchange::{Device, Row, lint, table_kind};
use gemwright_report as report;
use serde_json::json;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  gemwright lint bf16_tuned_gemm.csv --on mi300x
  gemwright lint bf16_tuned_gemm.csv --workload server.log                 a log of what was not found
  gemwright lint tuned.csv --workload llama-3.1-8b --engine vllm --tp 8 --tokens 64
  gemwright lint tunableop_results0.csv --workload run.json.gz

Exit code 1 where something is wrong.";

/// What is wrong with a tuned table of aiter, TunableOp, hipBLASLt or rocBLAS: rows nobody finds, calls without a row,
/// doubled or foreign ones
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The table
    #[arg(value_name = "TABLE.csv")]
    table: PathBuf,
    /// Calls that are to find its rows: a preset, a config.json, a trace, a list, a log
    #[arg(long, value_name = "WORKLOAD")]
    workload: Option<String>,
    /// The GPU it is for
    #[arg(long, value_name = "CHIP")]
    on: Option<String>,
    #[command(flatten)]
    options: ModelOptions,
    #[command(flatten)]
    output: OutputArgs,
}

pub fn run(args: &Args) -> Result<(), Error> {
    let text = small_text(&args.table)?;
    let wrong = |why: &str| Error::File { path: args.table.display().to_string(), why: why.into() };
    let Some(kind) = table_kind(&text) else {
        return Err(wrong("is no tuned table of aiter (with cu_num), TunableOp, hipBLASLt or rocBLAS"));
    };
    let device = match &args.on {
        Some(name) => chips(std::slice::from_ref(name))?.first().and_then(device),
        None => None,
    };
    let calls: Option<Vec<Row>> = match &args.workload {
        Some(name) => {
            let workload = workload(name, &args.options, args.output.quiet)?;
            let settings = Settings { stack: Stack::Rocm, ..Settings::default() };
            Some(workload.calls().iter().filter_map(|call| Row::of(call, settings).ok()).collect())
        }
        None => None,
    };
    let found = lint(&text, kind, device.as_ref(), calls.as_deref());
    if args.output.format == Format::Json {
        let list = found.iter().map(|finding| {
            json!({"line": finding.line, "kind": finding.kind.to_string(), "what": finding.what, "cure": finding.cure})
        });
        args.output.write(&json!({"format": 1, "findings": list.collect::<Vec<_>>()}).to_string())?;
    } else {
        let mut table = Table::new(&[">line", "kind", "what", "to do"]);
        for finding in &found {
            let line = finding.line.map_or(Cell::Empty, |line| Cell::from(line as u64));
            let kind = finding.kind.to_string();
            table.row(vec![line, kind.as_str().into(), finding.what.as_str().into(), finding.cure.as_str().into()]);
        }
        let text = if found.is_empty() { "nothing is wrong".to_string() } else { args.output.table(&table) };
        args.output.write(&if args.output.format == Format::Csv { report::csv(&table) } else { text })?;
    }
    match found.len() {
        0 => Ok(()),
        count => Err(Error::Failed(format!("{count} findings"))),
    }
}

/// As aiter knows a GPU.
fn device(chip: &Chip) -> Option<Device> {
    let units = chip.units.as_ref()?.count.value as i64;
    Some(Device { gfx: chip.arch.rsplit(' ').next().unwrap_or(&chip.arch).to_string(), units })
}
