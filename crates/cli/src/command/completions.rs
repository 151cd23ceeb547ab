//! `gemwright completions SHELL`: for the shell to read.

use crate::error::Error;
use clap::CommandFactory;

/// Completions for a shell, to be read by it
#[derive(clap::Args)]
#[command(after_help = "Example:\n  gemwright completions bash > /etc/bash_completion.d/gemwright")]
pub struct Args {
    #[arg(value_enum)]
    shell: clap_complete::Shell,
}

pub fn run(args: &Args) -> Result<(), Error> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut crate::Cli::command(), "gemwright", &mut text);
    crate::output::print_out(String::from_utf8_lossy(&text).trim_end())
}
