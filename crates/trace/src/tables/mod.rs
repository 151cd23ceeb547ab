//! The tables, by the names TraceLens's users know.

mod backward;
mod host;
mod kernels;
mod ops;
mod short;
mod statistics;
mod timeline;
mod unique;

pub use backward::ops_backward;
pub use host::host_ops;
pub use kernels::kernel_summary;
pub use ops::{ops_summary, ops_summary_by_category};
pub use short::{short_kernel_histogram, short_kernels_summary};
pub use timeline::{Timeline, gpu_timeline, gpu_timeline_by_device};
pub use unique::ops_unique_args;

use crate::analysis::{Analysis, Mode};
use crate::interval::Time;
use gemwright_core::{Cell, Table};

/// A number; what is none is empty.
fn number(value: f64) -> Cell {
    if value.is_nan() { Cell::Empty } else { Cell::Shown { value, text: crate::python::float(value) } }
}

/// All tables of a trace that have rows, with their names, in the order they are written.
pub fn all<T: Time>(analysis: &Analysis<'_, T>) -> Vec<(&'static str, Table)> {
    let timeline = Timeline::of(analysis);
    let mut list = vec![("gpu_timeline", gpu_timeline(&timeline))];
    if analysis.mode == Mode::Exact {
        list.push(("gpu_timeline_by_device", gpu_timeline_by_device(analysis)));
    }
    std::thread::scope(|scope| {
        let unique = scope.spawn(|| analysis.trace.has_operations().then(|| ops_unique_args(analysis, &timeline)));
        let kernels = [
            ("kernel_summary", kernel_summary(analysis, &timeline)),
            ("short_kernel_histogram", short_kernel_histogram(analysis)),
            ("short_kernels_summary", short_kernels_summary(analysis, &timeline)),
        ];
        if analysis.trace.has_operations() {
            list.push(("ops_summary_by_category", ops_summary_by_category(analysis, &timeline)));
            list.push(("ops_summary", ops_summary(analysis, &timeline)));
        }
        list.extend(unique.join().ok().flatten().map(|table| ("ops_unique_args", table)));
        list.extend(kernels);
        if analysis.mode == Mode::Exact {
            list.push(("ops_backward", ops_backward(analysis)));
            list.push(("host_ops", host_ops(analysis)));
        }
    });
    // TraceLens writes its study of short kernels even where there are none.
    let kept = |name: &str| analysis.mode == Mode::TraceLens && name.starts_with("short_");
    list.retain(|(name, table)| !table.rows.is_empty() || kept(name));
    list
}
