//! Several tuned tables as one, and what a table says as a whole.

use super::tune::{failed, unix_seconds};
use crate::error::Error;
use gemwright_core::{Runner, Threshold, TunedKind, TunedTable};
use gemwright_engine::tuned_files::{self, Journal};
use gemwright_exchange::tuned;
use serde_json::json;
use std::path::{Path, PathBuf};

pub fn merge(tables: &[PathBuf], path: &Path) -> Result<(), Error> {
    // However its name is written.
    let place = |path: &Path| path.canonicalize().ok();
    if tuned_files::exists(path)
        && !tables.iter().any(|name| name == path || place(name).is_some_and(|at| Some(at) == place(path)))
    {
        return Err(failed(path, &"it is there already; name it among those of --merge, or give another -o"));
    }
    let [first, ..] = tables else { return Ok(()) };
    // The lock first: whoever has it may be about to write one of them.
    let (journal, open) = Journal::open(path, &load(first)?.device).map_err(|why| failed(path, &why))?;
    let stored = together(tables).and_then(|all| {
        let facts = json!({
            "merged": tables, "gemwright": env!("CARGO_PKG_VERSION"), "unix_seconds": unix_seconds(),
            "thresholds": thresholds(&all),
        });
        tuned_files::store(path, &tuned::write(&all, &facts)).map_err(|why| failed(path, &why))?;
        Ok(all.rows().len())
    });
    if open.is_empty() {
        journal.done();
    }
    eprintln!("{} rows in {}", stored?, path.display());
    Ok(())
}

/// One of ours.
fn load(name: &Path) -> Result<TunedTable, Error> {
    let table = tuned_files::load(name).map_err(|why| failed(name, &why))?;
    match tuned_files::is_foreign(&table.device) {
        true => Err(failed(name, &"it is another tool's, which says nothing of the device; explain --table reads it")),
        false => Ok(table),
    }
}

/// Where two have a row, the later one counts.
fn together(tables: &[PathBuf]) -> Result<TunedTable, Error> {
    let mut all = load(&tables[0])?;
    for name in &tables[1..] {
        let table = load(name)?;
        if let Some(why) = tuned_files::other_device(&table.device, &all.device) {
            return Err(failed(name, &why));
        }
        // One whose description is lost knows neither rates nor versions.
        all.device.flops = all.device.flops.max(table.device.flops);
        all.device.bytes = all.device.bytes.max(table.device.bytes);
        if all.device.versions.is_empty() {
            all.device.versions.clone_from(&table.device.versions);
        }
        table.rows().iter().for_each(|row| all.insert(row.clone()));
    }
    Ok(all)
}

fn threshold(of: &Threshold) -> serde_json::Value {
    json!({
        "flags": of.kind.flags, "batch": of.kind.batch, "dtype": of.kind.dtype.name(), "out_dtype": of.kind.out_dtype.name(),
        "epilogue": of.kind.epilogue, "n": of.n, "k": of.k, "from_m": of.from,
    })
}

/// From which M on weights laid out beforehand win, and a split epilogue does, for every N and K.
pub fn thresholds(table: &TunedTable) -> serde_json::Value {
    let list = |of: &dyn Fn(&TunedKind) -> bool, wins: &dyn Fn(&Runner) -> bool| -> Vec<serde_json::Value> {
        let all = table.thresholds(of, wins).into_iter();
        all.map(|t| threshold(&t)).collect()
    };
    json!({
        "prepacked": list(&|kind| kind.prepacked, &|runner| runner.packed),
        "split_epilogue": list(&|kind| !kind.epilogue.is_empty() && !kind.prepacked, &|runner| runner.split),
    })
}
