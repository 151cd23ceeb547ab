//! Tables and workloads as bytes. Nothing is computed here: what is printed comes from `core`.

mod number;
mod render;
mod workload_json;

pub use number::{bytes, count, flops, operations, percent, seconds, significant};
pub use render::{csv, json_rows, markdown, terminal};
pub use workload_json::workload_json;
