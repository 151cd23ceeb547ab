//! Whatever can multiply, behind one contract.
//!
//! A [`Problem`] is what is asked; a [`Candidate`] is one of our kernels or somebody's library, with a
//! [`Contract`] that says what it takes and promises; it refuses with a reason or prepares a [`Plan`],
//! which runs on a [`Queue`] and never waits on the host. [`mod@judge`] holds every candidate against sums in
//! higher precision, over everything its contract admits; [`mod@bench`] measures them in turns.

pub mod bench;
mod candidate;
mod contract;
pub mod cuda;
mod device;
mod dispatch;
mod epilogue;
pub mod judge;
pub mod latency;
pub mod limit;
mod mapped;
mod oracle;
mod own;
mod problem;
mod safe;
mod sample;
mod split;
pub mod tuned_files;
mod variant;
pub mod vendor;
mod worker;

pub use candidate::{Candidate, CpuQueue, Operand, Operands, Plan, Queue, Region, RunError};
pub use contract::{Contract, Determinism, Fusion, Refusal, Strides, Types};
pub use device::cpu_name;
pub use dispatch::{Dispatcher, RefusedTable, TABLES};
pub use epilogue::{Epilogue, Part, Parts};
pub use mapped::{Mapped, MappedError};
pub use own::{OwnKernel, own};
pub use problem::{Groups, Layout, Problem, Scaling};
pub use safe::{Multiply, MultiplyError};
pub use split::Split;
pub use variant::Variant;
pub use worker::{PYTORCH, SPINS, Worker};

/// Every candidate that can run here, ours first; libraries that are not here are among the absent.
pub fn candidates() -> (Vec<Box<dyn Candidate>>, Vec<vendor::Absent>) {
    let mut all = own();
    let (found, absent) = vendor::vendors();
    all.extend(found);
    (all, absent)
}
