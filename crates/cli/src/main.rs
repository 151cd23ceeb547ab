//! `gemwright`: the matrix products of AI models, from a config to a roof.
#![allow(missing_docs)]

mod chips;
mod command;
mod error;
mod folder;
mod observed;
mod output;
mod page;
mod products;
mod reason;
mod side;
mod subject;
mod versus;
mod workload;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Which matrix products does my model run, how fast could they be, how fast are they, what runs them fastest?
#[derive(Parser)]
#[command(name = "gemwright", version, about, arg_required_else_help = true, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  gemwright model llama-3.1-8b --phase decode --on h200    the products of one decode step and their roof
  gemwright model ./config.json --phase train --format json
  gemwright roof 597 11008 4096 --on h200,mi300x           one product against two chips
  gemwright explain \"597x4096 @ 4096x11008^T\"             one product through every layer of the stack
  gemwright trace run.json.gz                              where the GPU's time went
  gemwright compare 'llama-2-7b --seq 597' run.json.gz     prediction against trace, product by product
  gemwright export llama-3.1-8b --engine vllm --to aiter   a list for another tool
  gemwright bench 597 4096 4096 --dtype f32                our kernels beside the libraries of this machine
  gemwright doctor                                         what this machine has, measured and checked
  gemwright chips mi300x                                   a chip's figures with their sources

Exit codes: 0 done; 1 a check that was asked for failed; 2 the input or the command is at fault;
3 this machine lacks something.";

#[derive(Subcommand)]
enum Command {
    Model(command::model::Args),
    Roof(command::roof::Args),
    Explain(command::explain::Args),
    Trace(command::trace::Args),
    Compare(command::compare::Args),
    Export(command::export::Args),
    Lint(command::lint::Args),
    Bench(command::bench::Args),
    Tune(command::tune::Args),
    Doctor(command::doctor::Args),
    Chips(command::chips::Args),
    Completions(command::completions::Args),
    Man(command::man::Args),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version come here too; a closed pipe is nobody's fault.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
        }
    };
    let done = match &cli.command {
        Command::Model(args) => command::model::run(args),
        Command::Roof(args) => command::roof::run(args),
        Command::Explain(args) => command::explain::run(args),
        Command::Trace(args) => command::trace::run(args),
        Command::Compare(args) => command::compare::run(args),
        Command::Export(args) => command::export::run(args),
        Command::Lint(args) => command::lint::run(args),
        Command::Bench(args) => command::bench::run(args),
        Command::Tune(args) => command::tune::run(args),
        Command::Doctor(args) => command::doctor::run(args),
        Command::Chips(args) => command::chips::run(args),
        Command::Completions(args) => command::completions::run(args),
        Command::Man(args) => command::man::run(args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.report(),
    }
}
