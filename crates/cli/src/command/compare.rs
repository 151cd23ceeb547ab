//! `gemwright compare`: two workloads held against each other.

use super::compare_answer::Answer;
use crate::error::Error;
use crate::output::{Format, OutputArgs, write_file};
use crate::reason::reason;
use crate::side::{Side, chips_of};
use gemwright_compare::{Comparison, Difference, FailOn, Verdict, changes};
use gemwright_report as report;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  gemwright compare 'llama-2-7b --phase generate --seq 597 --steps 36' run.json.gz    prediction against trace
  gemwright compare before.json.gz after.json.gz --fail-on missing,slower:5%          trace against trace
  gemwright compare llama-3.1-8b 'llama-3.1-8b --fuse qkv,gate_up' --on h200 --fail-on none
  gemwright compare config.json run.json.gz --format md -o summary.md                 for a pull request
  gemwright compare before.json.gz after.json.gz --html compared.html                 a page to look at

The key of a product is its operation, sizes, strides and element types, merged over modules; of attention its
sizes, element types, mask and causality. Exit code 1 if what --fail-on names was found.";

/// Prediction against trace, trace against trace, model against model: product by product
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The first side: a preset, a config, a trace, a saved workload, or a `model` command in quotes
    #[arg(value_name = "A")]
    a: String,
    /// The second side
    #[arg(value_name = "B")]
    b: String,
    /// What is a failure: new (only B has it), missing (only A has it), count, slower:5% (B slower by more), none
    #[arg(long, value_delimiter = ',', default_value = "new,missing,count", value_name = "WHAT,...")]
    fail_on: Vec<String>,
    /// A failure if all that was measured together reaches less of the roof, such as 40%
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    fail_under: Option<f64>,
    /// The chip of both sides, or one each [default: the trace's own]
    #[arg(long, value_delimiter = ',', value_name = "CHIP,...")]
    on: Vec<String>,
    /// Write a page for the browser: one file, works offline
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArgs,
}

/// `40%` or `0.4`.
fn parse_share(text: &str) -> Result<f64, String> {
    let number = match text.strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().map(|x| x / 100.0),
        None => text.trim().parse::<f64>(),
    };
    number.ok().filter(|x| x.is_finite() && *x >= 0.0).ok_or_else(|| "write it as 40% or 0.4".into())
}

fn fail_on(args: &Args) -> Result<FailOn, Error> {
    let mut wanted = FailOn { under: args.fail_under, ..FailOn::default() };
    for word in args.fail_on.iter().map(|word| word.trim()) {
        let known = [Difference::New, Difference::Missing, Difference::Count];
        match (known.into_iter().find(|kind| kind.name() == word), word.strip_prefix("slower:")) {
            (Some(kind), _) => wanted.differences.push(kind),
            (_, Some(share)) => {
                let share = parse_share(share).map_err(|why| Error::Usage(format!("--fail-on {word}: {why}")))?;
                wanted.slower = Some(share);
            }
            _ if word == "none" => {}
            _ => {
                let why = "known are new, missing, count, slower:5% and none";
                return Err(Error::Usage(format!("--fail-on {word}: {why}")));
            }
        }
    }
    Ok(wanted)
}

pub fn run(args: &Args) -> Result<(), Error> {
    let fail_on = fail_on(args)?;
    let quiet = args.output.quiet;
    let [mut a, mut b] = [Side::read(&args.a, quiet)?, Side::read(&args.b, quiet)?];
    for (name, side) in [("A", &a), ("B", &b)] {
        let warnings: Vec<String> = side.workload.warnings.iter().map(|why| format!("{name}: {why}")).collect();
        args.output.warn(&warnings);
    }
    if !b.workload.launched.is_empty() {
        a.keep_order()?;
    }
    if !a.workload.launched.is_empty() {
        b.keep_order()?;
    }
    let chips = chips_of([&a, &b], &args.on)?;
    let chips = [chips[0].as_ref(), chips[1].as_ref()];
    let comparison = Comparison::of([&a.workload, &b.workload]);
    let differs = comparison.differences().next().is_some();
    let reason = match (&a.model, &b.model) {
        (Some((model, options)), _) if differs => Some((0, reason(model, options, &a.workload, 0, &b.workload)?)),
        (_, Some((model, options))) if differs => Some((1, reason(model, options, &b.workload, 1, &a.workload)?)),
        _ => None,
    };
    let verdict = Verdict::of(&comparison, &fail_on, chips)?;
    let changes = changes(&comparison, chips)?;
    let answer =
        Answer { sides: [&a, &b], chips, comparison: &comparison, changes: &changes, reason, verdict: &verdict };
    if let Some(path) = &args.html {
        write_file(path, report::page(&answer.page()?).as_bytes())?;
    }
    args.output.write(&match args.output.format {
        Format::Json => answer.json()?.to_string(),
        Format::Csv => args.output.table(&answer.products(None)?),
        Format::Table | Format::Md => answer.text(&args.output)?,
    })?;
    match verdict.failures.is_empty() {
        true => Ok(()),
        false => Err(Error::Failed(verdict.failures.join("; "))),
    }
}
