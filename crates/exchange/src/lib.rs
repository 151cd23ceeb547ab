//! Lists of products as other tools write and read them. Out: a [`Workload`](gemwright_core::Workload) becomes [`Row`]s,
//! the library's arguments of each product, and a [`Format`] writes them, naming what it cannot hold. In: [`read()`] finds
//! out what a file or a log is and gives rows back, which are calls again.

mod aiter;
mod bench_lines;
mod cublas;
mod experts;
mod export;
mod lint;
mod nvidia;
mod overrides;
mod read;
mod row;
mod tunableop;
pub mod tuned;
mod words;

pub use aiter::usable as usable_by_aiter;
pub use export::{Export, Format, LeftOut, export};
pub use lint::{Device, Fault, Finding, kind as table_kind, lint};
pub use read::{Found, read};
pub use row::Row;
