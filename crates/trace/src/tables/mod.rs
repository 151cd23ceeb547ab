//! The tables, by the names TraceLens's users know.

mod backward;
mod costs;
mod frame;
mod host;
mod kernels;
mod modules;
mod ops;
mod roofs;
mod sheets;
mod short;
mod statistics;
mod timeline;
mod unified;
mod unique;

pub use backward::ops_backward;
pub(crate) use frame::Frame;
pub use host::host_ops;
pub use kernels::kernel_summary;
pub use modules::by_module;
pub use ops::{ops_summary, ops_summary_by_category};
pub use roofs::Roofs;
pub use short::{short_kernel_histogram, short_kernels_summary};
pub(crate) use statistics::Statistics;
pub use timeline::{Timeline, gpu_timeline, gpu_timeline_by_device};
pub use unique::ops_unique_args;

use crate::analysis::{Analysis, Mode};
use crate::interval::Time;
use gemwright_core::{Cell, Chip, Table};

/// A number; what is none is empty.
pub(crate) fn number(value: f64) -> Cell {
    if value.is_nan() { Cell::Empty } else { Cell::Shown { value, text: crate::python::float(value) } }
}

/// All tables of a trace that have rows, with their names, in the order they are written.
/// `chip` is the one it ran on, for how far things are from its roof.
pub fn all<T: Time>(analysis: &Analysis<'_, T>, chip: Option<&Chip>) -> Vec<(String, Table)> {
    let timeline = Timeline::of(analysis);
    let with_operations = analysis.trace.has_operations();
    let (list, models) = std::thread::scope(|scope| {
        let models = scope.spawn(|| match analysis.mode {
            Mode::TraceLens if with_operations => modelled(analysis),
            Mode::TraceLens => Vec::new(),
            Mode::Exact => {
                let roofs = Roofs::of(analysis, &timeline, chip);
                let mut list = vec![
                    ("unified_perf_summary".into(), roofs.unified),
                    ("unmodelled".into(), roofs.unmodelled),
                    ("coll_analysis".into(), crate::ranks::collectives(analysis.trace)),
                ];
                list.extend(roofs.families.into_iter().map(|(name, table)| (name.to_string(), table)));
                list
            }
        });
        (plain(analysis, &timeline, with_operations), models.join().unwrap_or_default())
    });
    let mut list: Vec<(String, Table)> = list.into_iter().map(|(name, table)| (name.to_string(), table)).collect();
    list.extend(models);
    // TraceLens writes its study of short kernels even where there are none.
    let kept = |name: &str| analysis.mode == Mode::TraceLens && name.starts_with("short_");
    list.retain(|(name, table)| !table.rows.is_empty() || kept(name));
    list
}

/// Tables that need no cost model.
fn plain<T: Time>(
    analysis: &Analysis<'_, T>,
    timeline: &Timeline,
    with_operations: bool,
) -> Vec<(&'static str, Table)> {
    let mut list = vec![("gpu_timeline", gpu_timeline(analysis, timeline))];
    if analysis.mode == Mode::Exact {
        list.push(("gpu_timeline_by_device", gpu_timeline_by_device(analysis)));
    }
    if with_operations {
        list.push(("ops_summary_by_category", ops_summary_by_category(analysis, timeline)));
        list.push(("ops_summary", ops_summary(analysis, timeline)));
        list.push(("ops_unique_args", ops_unique_args(analysis, timeline)));
    }
    list.push(("kernel_summary", kernel_summary(analysis, timeline)));
    list.push(("short_kernel_histogram", short_kernel_histogram(analysis)));
    list.push(("short_kernels_summary", short_kernels_summary(analysis, timeline)));
    if analysis.mode == Mode::Exact {
        list.push(("ops_backward", ops_backward(analysis)));
        list.push(("host_ops", host_ops(analysis)));
    }
    list
}

/// Tables that say what was computed and moved.
fn modelled<T: Time>(analysis: &Analysis<'_, T>) -> Vec<(String, Table)> {
    let mut list = std::thread::scope(|scope| {
        let unified = scope.spawn(|| unified::unified_perf_summary(&mut costs::Costs::new(analysis)));
        let sheets = sheets::sheets(&mut costs::Costs::new(analysis));
        let unified = unified.join().ok().map(|table| ("unified_perf_summary".to_string(), table));
        unified.into_iter().chain(sheets).collect::<Vec<_>>()
    });
    list.push(("coll_analysis".into(), crate::ranks::coll_analysis(analysis.trace)));
    list
}
