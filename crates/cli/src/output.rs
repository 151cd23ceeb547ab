//! Where the answer goes and in which form.

use crate::error::Error;
use clap::{Args, ValueEnum};
use gemwright_core::Table;
use gemwright_report as report;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Table,
    Json,
    Csv,
    Md,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Output")]
pub struct OutputArgs {
    /// Form of the answer
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
    /// Write the answer to a file
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Say nothing beside the answer
    #[arg(short, long)]
    pub quiet: bool,
}

impl OutputArgs {
    /// Writes the answer, whole.
    pub fn write(&self, text: &str) -> Result<(), Error> {
        let text = text.trim_end_matches('\n');
        match &self.output {
            Some(path) => std::fs::write(path, format!("{text}\n"))
                .map_err(|e| Error::File { path: path.display().to_string(), why: e.to_string() }),
            None => print_out(text),
        }
    }

    /// The table in a form that is not JSON.
    pub fn table(&self, table: &Table) -> String {
        match self.format {
            Format::Csv => report::csv(table),
            Format::Md => report::markdown(table),
            Format::Table | Format::Json => report::terminal(table, self.width()),
        }
    }

    /// Columns of the terminal, where the answer goes to one.
    fn width(&self) -> Option<u16> {
        let to_terminal = self.output.is_none() && std::io::stdout().is_terminal();
        to_terminal.then(|| terminal_size::terminal_size().map(|(width, _)| width.0)).flatten()
    }

    /// Warnings go to stderr, unless the answer itself carries them.
    pub fn warn(&self, warnings: &[String]) {
        if !self.quiet && self.format != Format::Json {
            for warning in warnings {
                eprintln!("warning: {warning}");
            }
        }
    }
}

/// Prints to stdout; a reader that went away ends the program in silence.
pub fn print_out(text: &str) -> Result<(), Error> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).map_err(|e| match e.kind() {
        std::io::ErrorKind::BrokenPipe => Error::Closed,
        _ => Error::File { path: "stdout".into(), why: e.to_string() },
    })
}

/// A file, or why it cannot be written.
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    std::fs::write(path, bytes).map_err(|e| Error::File { path: path.display().to_string(), why: e.to_string() })
}
