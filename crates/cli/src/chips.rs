//! Chips by name: of the catalog, of a user's own file, or this machine.

use crate::error::Error;
use gemwright_core::{Catalog, Chip};
use std::path::Path;

pub mod host;

/// The chips of a list such as `h200,my-chip.toml,host`.
pub fn chips(names: &[String]) -> Result<Vec<Chip>, Error> {
    let catalog = Catalog::builtin();
    let mut chips = Vec::new();
    for name in names {
        if name == "host" {
            chips.push(host::read()?);
        } else if name.ends_with(".toml") {
            chips.extend(own(name)?.chips);
        } else {
            chips.push(catalog.find(name)?.clone());
        }
    }
    Ok(chips)
}

/// The catalog of a user's own file.
pub fn own(path: &str) -> Result<Catalog, Error> {
    let text =
        std::fs::read_to_string(Path::new(path)).map_err(|e| Error::File { path: path.into(), why: e.to_string() })?;
    Catalog::parse(&text).map_err(|e| Error::File { path: path.into(), why: e.to_string() })
}
