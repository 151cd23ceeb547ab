//! `gemwright man [COMMAND]`: the man page.

use crate::error::Error;
use clap::CommandFactory;

/// The man page, of the program or of one command
#[derive(clap::Args)]
#[command(after_help = "Example:\n  gemwright man model | man -l -")]
pub struct Args {
    /// A command's own page
    command: Option<String>,
}

pub fn run(args: &Args) -> Result<(), Error> {
    let mut page = crate::Cli::command();
    page.build();
    if let Some(name) = &args.command {
        let known: Vec<String> = page.get_subcommands().map(|c| c.get_name().to_string()).collect();
        page = page
            .find_subcommand(name)
            .cloned()
            .ok_or_else(|| Error::Usage(format!("no command `{name}`; known are {}", known.join(", "))))?;
    }
    let mut text = Vec::new();
    clap_mangen::Man::new(page)
        .render(&mut text)
        .map_err(|e| Error::File { path: "man page".into(), why: e.to_string() })?;
    crate::output::print_out(String::from_utf8_lossy(&text).trim_end())
}
