//! `gemwright export`: a workload as other tools' lists.

use crate::chips::chips;
use crate::error::Error;
use crate::output::{print_out, write_file};
use crate::subject::{ModelOptions, parse_share};
use crate::workload::workload;
use clap::ValueEnum;
use gemwright_core::{Call, Chip, Roof, Workload};
use gemwright_exchange::{Format, export, usable_by_aiter};
use gemwright_report as report;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  gemwright export llama-3.1-8b --engine vllm --tp 8 --tokens ladder --to aiter -o bf16_untuned_gemm.csv
  gemwright export run.json.gz --to hipblaslt-bench --top 95% --on mi300x
  gemwright export qwen3-8b --phase prefill --to tunableop -o tunableop_untuned0.csv
  gemwright export tuned.csv --to aiter-tuned -o bf16_tuned_gemm.csv
  gemwright export qwen3-30b-a3b --engine vllm --tp 4 --tokens 64 --to vllm-moe --on h200";

/// A workload as a list for another tool
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// A preset, a config.json, a folder, a trace, a saved workload, another tool's list or log
    #[arg(value_name = "WORKLOAD")]
    subject: String,
    /// Whose list
    #[arg(long, value_enum, value_name = "TOOL")]
    to: To,
    /// YAML rather than command lines (hipblaslt-bench, rocblas-bench)
    #[arg(long)]
    yaml: bool,
    /// Only the products that make up this share of the time at the roof, the largest first
    #[arg(long, value_parser = parse_share, value_name = "SHARE")]
    top: Option<f64>,
    /// The chip of that roof, and of names of files [default: mi300x; h200 for NVIDIA's tools and for experts]
    #[arg(long, value_name = "CHIP")]
    on: Option<String>,
    /// Write it to a file
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Say nothing of what is left out
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    options: ModelOptions,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum To {
    Aiter,
    /// The rows of a tuned table whose library aiter has
    AiterTuned,
    Tunableop,
    HipblasltBench,
    RocblasBench,
    Nvmatmulheuristics,
    CutlassProfiler,
    VllmMoe,
    SglangMoe,
}

pub fn run(args: &Args) -> Result<(), Error> {
    if args.to == To::AiterTuned {
        return aiter_tuned(args);
    }
    let format = match (args.to, args.yaml) {
        (To::HipblasltBench, true) => Format::HipblasltYaml,
        (To::HipblasltBench, false) => Format::HipblasltBench,
        (To::RocblasBench, true) => Format::RocblasYaml,
        (To::RocblasBench, false) => Format::RocblasBench,
        (_, true) => return Err(Error::Usage("--yaml goes with hipblaslt-bench and rocblas-bench".into())),
        (To::Aiter | To::AiterTuned, _) => Format::Aiter,
        (To::Tunableop, _) => Format::TunableOp,
        (To::Nvmatmulheuristics, _) => Format::NvMatmulHeuristics,
        (To::CutlassProfiler, _) => Format::CutlassProfiler,
        (To::VllmMoe, _) => Format::VllmMoe,
        (To::SglangMoe, _) => Format::SglangMoe,
    };
    let default = match args.to {
        To::Aiter | To::Tunableop | To::HipblasltBench | To::RocblasBench => "mi300x",
        _ => "h200",
    };
    let name = args.on.clone().unwrap_or_else(|| default.into());
    let found = chips(&[name])?;
    let Some(chip) = found.first() else { return Err(Error::Usage("--on names no chip".into())) };
    let whole = workload(&args.subject, &args.options, args.quiet)?;
    let (kept, share) = match args.top {
        Some(share) => worth_tuning(&whole, chip, share)?,
        None => (whole.clone(), 1.0),
    };
    let out = export(&kept, format, &device(chip));
    match &args.output {
        Some(path) => write_file(path, out.text.as_bytes())?,
        None => print_out(out.text.trim_end())?,
    }
    if !args.quiet {
        if args.top.is_some() {
            let (few, all) = (kept.calls().len(), whole.calls().len());
            eprintln!(
                "{few} of {all} products are {} of the time at the roof of {}",
                report::percent(share),
                chip.name
            );
        }
        eprintln!("{} rows", out.rows);
        if out.without_bias > 0 {
            eprintln!("left out: the bias of {} rows: rocBLAS has none, they are the bare products", out.without_bias);
        }
        for left in &out.left_out {
            eprintln!("left out: {} products, {} runs: {}", left.products, left.runs, left.why);
        }
    }
    Ok(())
}

/// A table that aiter can be given.
fn aiter_tuned(args: &Args) -> Result<(), Error> {
    if args.yaml || args.top.is_some() || args.on.is_some() {
        return Err(Error::Usage("--yaml, --top and --on do not go with aiter-tuned".into()));
    }
    let failed = |why: String| Error::File { path: args.subject.clone(), why };
    let text = std::fs::read_to_string(&args.subject).map_err(|e| failed(e.to_string()))?;
    let (out, left) =
        usable_by_aiter(&text).map_err(|why| failed(format!("{why}; a tuned table in aiter's columns is wanted")))?;
    match &args.output {
        Some(path) => write_file(path, out.as_bytes())?,
        None => print_out(out.trim_end())?,
    }
    if !args.quiet {
        eprintln!("{} rows", out.lines().count() - 1);
        if left > 0 {
            eprintln!(
                "left out: {left} rows: of libraries that aiter does not have, without a time, or slower ones with the same key"
            );
        }
    }
    Ok(())
}

/// The largest that come to that share of the time at the roof, in the order of the list.
fn worth_tuning(workload: &Workload, chip: &Chip, share: f64) -> Result<(Workload, f64), Error> {
    let mut times: Vec<(usize, f64)> = Vec::new();
    for (i, call) in workload.calls().iter().enumerate() {
        times.push((i, Roof::of(call, chip)?.seconds * call.count as f64));
    }
    let all: f64 = times.iter().map(|(_, seconds)| seconds).sum();
    times.sort_by(|x, y| y.1.total_cmp(&x.1));
    let (mut kept, mut sum) = (Vec::new(), 0.0);
    for (i, seconds) in times {
        if sum >= share * all {
            break;
        }
        sum += seconds;
        kept.push(i);
    }
    kept.sort_unstable();
    let mut out = Workload::default();
    let calls: Vec<&Call> = kept.iter().map(|i| &workload.calls()[*i]).collect();
    calls.into_iter().for_each(|call| out.push(call));
    Ok((out, if all > 0.0 { sum / all } else { 1.0 }))
}

/// The GPU as its driver names it, in names of files.
fn device(chip: &Chip) -> String {
    let first = chip.name.split(' ').next().unwrap_or_default();
    if chip.name.starts_with("MI") { format!("AMD_Instinct_{first}") } else { format!("NVIDIA_{first}") }
}
