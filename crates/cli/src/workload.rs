//! WORKLOAD on the command line: a preset, a config.json, a folder, a saved list, a trace.

use crate::error::Error;
use crate::observed;
use crate::subject::{ModelOptions, model};
use gemwright_core::{Workload, saved};
use std::io::Read;
use std::path::Path;

/// What a file seems to be, by its beginning.
#[derive(Debug, PartialEq, Eq)]
enum Kind {
    Trace,
    Saved,
    Config,
    /// Another tool's list or log.
    Foreign,
}

/// Bytes that are looked at.
const BEGINNING: u64 = 1 << 16;

fn kind(path: &Path) -> Kind {
    let mut start = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(BEGINNING).read_to_end(&mut start));
    if read.is_err() {
        return Kind::Config;
    }
    let holds = |word: &str| start.windows(word.len()).any(|part| part == word.as_bytes());
    let packed = start.starts_with(&[0x1f, 0x8b]) || start.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]);
    if holds("\"dtype_a\"") && holds("\"layout\"") {
        // nvMatmulHeuristics has a bare list, as some traces are.
        Kind::Foreign
    } else if packed || start.trim_ascii_start().starts_with(b"[") || holds("\"traceEvents\"") {
        Kind::Trace
    } else if holds("\"gemwright\"") && holds("\"workload\"") {
        Kind::Saved
    } else if start.trim_ascii_start().starts_with(b"{") || path.extension().is_some_and(|end| end == "gguf") {
        Kind::Config
    } else {
        Kind::Foreign
    }
}

/// Another tool's list or log.
fn foreign(path: &Path) -> Result<Workload, Error> {
    let wrong = |why: String| Error::File { path: path.display().to_string(), why };
    let bytes = std::fs::read(path).map_err(|e| wrong(e.to_string()))?;
    match gemwright_exchange::read(&String::from_utf8_lossy(&bytes)).map_err(wrong)? {
        Some(found) => {
            let mut workload = found.workload();
            workload.warnings.push(format!("read as {}", found.kind));
            if found.other_lines > 0 {
                workload.warnings.push(format!("{} lines name no product", found.other_lines));
            }
            Ok(workload)
        }
        None => Err(wrong(
            "is no config, trace or saved workload, and no list or log that is known: aiter, TunableOp, hipblaslt-bench, \
             rocblas-bench, CUTLASS's profiler, nvMatmulHeuristics, cuBLAS"
                .into(),
        )),
    }
}

/// The file of this name is a list by itself, a trace's or a saved one, and no model.
pub fn holds_list(name: &str) -> bool {
    let path = Path::new(name);
    path.is_file() && kind(path) != Kind::Config
}

/// The workload that `name` means; the options are those of a model.
pub fn workload(name: &str, options: &ModelOptions, quiet: bool) -> Result<Workload, Error> {
    let path = Path::new(name);
    if !path.is_file() {
        return Ok(model(name)?.predict(&options.options())?.workload);
    }
    let wrong = |why: String| Error::File { path: name.into(), why };
    match kind(path) {
        Kind::Trace => observed::workload_of(path, quiet),
        Kind::Saved => {
            let text = std::fs::read_to_string(path).map_err(|e| wrong(e.to_string()))?;
            saved::workload(&text).map_err(|e| wrong(e.to_string()))
        }
        Kind::Config => Ok(model(name)?.predict(&options.options())?.workload),
        Kind::Foreign => foreign(path),
    }
}

/// What the source says, as a title: model, phase, batch and lengths.
pub fn describe(workload: &Workload) -> String {
    let fact = |name: &str| {
        let found = workload.source.facts.iter().find(|(key, _)| key == name);
        found.map(|(key, value)| value.as_str().map_or(format!("{key} {value}"), str::to_string))
    };
    ["model", "trace", "device", "phase", "batch", "seq", "past", "steps", "dtype"]
        .into_iter()
        .filter_map(fact)
        .collect::<Vec<_>>()
        .join(", ")
}
