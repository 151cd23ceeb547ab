//! From a profiler's trace (Kineto, NVIDIA and AMD) to tables of where the GPU's time went.
//!
//! The way of the data: [`read()`] inflates a stream and cuts it into typed events; [`Analysis`] nests
//! host events, ties each GPU event to the call that launched it and to the operation above that; the
//! functions of [`tables`] add up, those of [`calls`] give the products as a workload.

mod analysis;
mod backward;
pub mod calls;
mod category;
mod chunk;
mod event;
mod fast;
mod head;
mod input;
mod interval;
mod kept;
mod link;
mod nest;
mod number;
mod ops;
mod part;
mod partial;
mod problems;
mod python;
mod ranks;
mod read;
mod scan;
mod streams;
pub mod tables;
mod tracelens;

pub use analysis::{Analysis, Mode};
pub use event::{Category, Device, Event, Tie, Trace};
pub use interval::Time;
pub use partial::{Joined, Partial, join};
pub use problems::{Problem, Problems, Severity};
pub use ranks::Ranks;
pub use read::{Reading, TraceError, read};
