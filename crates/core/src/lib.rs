//! The vocabulary of gemwright, as plain data: what a framework multiplies ([`View`], [`Call`],
//! [`Workload`]), what could multiply it ([`Chip`]) and how fast that could go at best ([`Roof`]).
//!
//! Pure: no threads, no clocks, no files, no unsafe code. Everything else depends on this crate and
//! this crate on nothing of ours.

pub mod blas;
mod call;
mod chip;
mod collective;
mod decode_choice;
mod decode_direct;
mod decode_ring;
mod dims;
mod dtype;
mod epilogue;
mod explain;
mod gradient;
mod kernel_cost;
pub mod kernel_name;
mod kernel_tile;
mod measured;
mod nearest;
mod reach;
mod roof;
pub mod saved;
mod summary;
mod table;
mod tiles;
mod tuned;
mod view;
mod workload;

pub use call::{Attention, Call, Convolution, Kernel, Op, Operands, Pass, Product};
pub use chip::{Attainable, Catalog, Chip, ChipError, Figure, Memory, Reached, ReachedAligned, Units};
pub use collective::{Collective, CollectiveKind};
pub use decode_choice::DecodeChoice;
pub use decode_direct::DirectChoice;
pub use decode_ring::RingChoice;
pub use dims::Dims;
pub use dtype::DType;
pub use epilogue::Activation;
pub use explain::{Explanation, Happening, Section, Subject};
pub use gradient::{GradientProduct, batch_gradients, grouped_gradients, matrix_gradients};
pub use kernel_cost::{Added, Feed, KernelChip, KernelChoice};
pub use kernel_tile::{BLOCK_K, Cluster, KernelTile, SHARED_MEMORY, Schedule, clusters_at_once};
pub use measured::{Launched, LaunchedKernel, Measured, MeasuredKernel};
pub use nearest::nearest;
pub use reach::{Reach, WHOLE, alignment, misaligned_extents};
pub use roof::{Bound, Roof, RoofError};
pub use summary::{Summary, Totals, Utilisation};
pub use table::{Align, Cell, Column, Table};
pub use tiles::{Tile, WarpTile, Waves};
pub use tuned::{
    Answer, PICKED, Runner, Threshold, Timed, TunedDevice, TunedKey, TunedKind, TunedRow, TunedTable, Way,
};
pub use view::View;
pub use workload::{Source, Workload};
