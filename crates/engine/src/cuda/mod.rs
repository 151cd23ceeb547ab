//! Products on an NVIDIA GPU: our kernels and cuBLASLt on one stream, chosen, checked and measured.

pub mod bench;
pub mod chain;
mod check;
mod check_chain;
mod choose;
pub mod contest;
mod copies;
mod cublaslt;
mod kernel;
mod own;
mod own_decode;
mod own_mma;
mod queue;
mod routing;
mod tabled;
pub mod tune;

pub use check::{Case, Verdict, cases, check, check_all, check_bias_gradients};
pub use check_chain::check_chains;
pub use choose::{choose, ranked};
pub use cublaslt::CublasLt;
pub use kernel::{Build, Kernel};
pub use own::OwnCuda;
pub use own_decode::OwnDecode;
pub use own_mma::OwnMma;
pub use queue::CudaQueue;
pub use routing::Routing;
pub use tabled::{TABLE, Tabled};
