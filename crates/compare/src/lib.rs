//! Two workloads held against each other, product by product: what is in both, what in one of them,
//! how long it takes, and which changes would save most.
//!
//! The way of the data: [`Comparison::of`] groups each side by [`Key`], pairs equal keys, then what a
//! compiler padded or laid out otherwise, then the kernels of captured graphs by their order
//! and what their names and grids tell; [`figures`] holds rows against a chip, [`changes`] ranks what would save time,
//! [`Verdict`] says whether a check that was asked for failed. Nothing here knows where a workload
//! came from: variants of a model to try come in from outside, and [`Comparison::agreement`] says
//! how well each fits, [`likeness()`] whether it comes nearer.

mod align;
mod change;
mod comparison;
mod figure;
mod fit;
mod graph;
mod key;
mod likeness;
mod pair;
mod replay;
mod seen;
mod verdict;

pub use change::{Change, changes};
pub use comparison::{Comparison, Difference, How, KernelTime, Replays, Row, Unmatched};
pub use figure::{Figures, figures};
pub use key::Key;
pub use likeness::likeness;
pub use seen::Seen;
pub use verdict::{FailOn, Verdict};
