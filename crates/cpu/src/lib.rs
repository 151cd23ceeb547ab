//! Matrix products on CPUs, in stable Rust: C = alpha · A · B + beta · C over strided views of f32 and
//! f64, with the widest instructions the machine has, chosen at run time.
//!
//! The way of the data: [`Kernel::all`] lists what can run here; [`gemm`] picks a way through a
//! product (few rows, matrix times vector, small, large) and hands tiles to threads of a [`Pool`];
//! `pack` lays a block of one operand out as the micro-kernel wants it; `micro` multiplies tiles.
//! Intrinsics live in `simd/`, one file an instruction set; everything above is written once.

mod cache;
mod dot;
mod gemm;
mod kernel;
mod limits;
mod matrix;
mod micro;
mod pack;
mod pool;
mod scratch;
mod simd;
mod target;

pub use cache::Caches;
pub use gemm::{Job, gemm, gemm_with};
pub use kernel::{Isa, Kernel, KernelError};
pub use limits::{fma_loop, read_loop};
pub use matrix::{Mat, MatMut, ViewError};
pub use pool::Pool;
pub use scratch::Scratch;
pub use simd::Element;
