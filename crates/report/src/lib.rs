//! Tables and workloads as bytes. Nothing is computed here: what is printed comes from `core`.

mod columns;
mod dots;
mod explanation;
mod number;
mod page;
mod picture;
mod render;
mod roofline;
mod timeline;
mod workload_json;
mod xlsx;

pub use columns::{from_parquet, parquet};
pub use dots::{DotRow, dots_svg};
pub use explanation::{explanation_json, explanation_text};
pub use number::{bytes, count, flops, operations, percent, seconds, significant};
pub use page::{Axis, Curve, Dot, Measure, Page, PagePoint, Plot, Scale, page};
pub use picture::{png, stacked};
pub use render::{csv, json_rows, markdown, terminal};
pub use roofline::{PlotChip, PlotPoint, roofline_svg};
pub use timeline::{Part, Segment, timeline_svg};
pub use workload_json::workload_json;
pub use xlsx::xlsx;
