//! What the program says when it cannot answer, and the exit code that goes with it.

use gemwright_core::{ChipError, RoofError};
use gemwright_model::ModelError;
use std::process::ExitCode;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Model(#[from] ModelError),
    #[error(transparent)]
    Chip(#[from] ChipError),
    #[error("{0}; `gemwright chips` lists the figures, and a TOML file of your own can give them")]
    Roof(#[from] RoofError),
    #[error("{path}: {why}")]
    File { path: String, why: String },
    #[error("{0}")]
    Usage(String),
    /// A check that was asked for failed; the answer was printed all the same.
    #[error("{0}")]
    Failed(String),
    /// This machine lacks something.
    #[error("{0}")]
    Missing(String),
    /// The reader of our output went away; there is nobody to tell.
    #[error("output closed")]
    Closed,
}

impl Error {
    /// Prints the message and gives the exit code.
    pub fn report(&self) -> ExitCode {
        match self {
            Error::Closed => ExitCode::SUCCESS,
            Error::Failed(_) => {
                eprintln!("failed: {self}");
                ExitCode::from(1)
            }
            Error::Missing(_) => {
                eprintln!("error: {self}");
                ExitCode::from(3)
            }
            _ => {
                eprintln!("error: {self}");
                ExitCode::from(2)
            }
        }
    }
}
