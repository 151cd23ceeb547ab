//! A trace, read from a file or from stdin, with a bar for large ones.

use crate::error::Error;
use gemwright_core::{Source, Workload};
use gemwright_trace::tables::Timeline;
use gemwright_trace::{Analysis, Mode, Reading, Trace, calls, read};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;
use std::io::{IsTerminal, Read};
use std::path::Path;

/// Bytes of a file that takes long enough for a bar.
const LARGE: u64 = 8 << 20;

/// Reads the trace at `path`; `-` is stdin.
pub fn observe(path: &Path, reading: Reading, quiet: bool) -> Result<Trace, Error> {
    let wrong = |why: String| Error::File { path: path.display().to_string(), why };
    if path == Path::new("-") {
        return read(std::io::stdin(), reading).map_err(|e| wrong(e.to_string()));
    }
    let file = std::fs::File::open(path).map_err(|e| wrong(e.to_string()))?;
    let length = file.metadata().map_or(0, |m| m.len());
    if quiet || length < LARGE || !std::io::stderr().is_terminal() {
        return read(file, reading).map_err(|e| wrong(e.to_string()));
    }
    let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("{wide_bar} {bytes} of {total_bytes}, {eta}") {
        bar.set_style(style);
    }
    let source: Box<dyn Read + Send> = Box::new(bar.wrap_read(file));
    let trace = read(source, reading).map_err(|e| wrong(e.to_string()));
    bar.finish_and_clear();
    trace
}

/// The calls of a trace as a workload of that file.
pub fn workload(path: &Path, analysis: &Analysis<'_, i64>) -> Workload {
    let trace = analysis.trace;
    let name = path.file_name().map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into_owned());
    let mut facts = vec![("trace".to_string(), json!(name)), ("events".to_string(), json!(trace.count))];
    if let Some(device) = trace.devices.first() {
        facts.push(("device".into(), json!(device.name)));
        facts.push(("devices".into(), json!(trace.devices.len())));
        facts.extend(device.units.map(|units| ("units".to_string(), json!(units))));
        facts.extend(device.memory.map(|bytes| ("memory".to_string(), json!(bytes))));
    }
    let timeline = Timeline::of(analysis);
    if timeline.total > 0.0 {
        facts.push(("gpu_seconds".into(), json!(timeline.total * 1e-6)));
    }
    let problems = analysis.problems.list();
    let mut workload = calls::workload(analysis, Source { kind: "trace".into(), facts });
    workload.warnings.extend(problems.iter().map(|p| format!("{} ({} times): {}", p.severity.name(), p.count, p.what)));
    workload
}

/// The calls of the trace at `path`.
pub fn workload_of(path: &Path, quiet: bool) -> Result<Workload, Error> {
    let trace = observe(path, Reading::default(), quiet)?;
    Ok(workload(path, &Analysis::new(&trace, Mode::Exact)))
}
