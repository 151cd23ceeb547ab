//! Matrix products on CPUs, in stable Rust: C = alpha · A · B + beta · C over strided views of f32, f64 and
//! bf16, with the widest instructions the machine has, chosen at run time.
//!
//! The way of the data: [`Kernel::all`] lists what can run here; [`gemm()`] picks a way through a
//! product (few rows, matrix times vector, small, large) and hands tiles to threads of a [`Pool`];
//! `pack` lays a block of one operand out as the micro-kernel wants it; `micro` multiplies tiles.
//! Intrinsics live in `simd/`, one file an instruction set; everything above is written once.

mod activation;
#[cfg(target_arch = "x86_64")]
mod amx;
mod bf16;
mod blocked;
mod cache;
mod dot;
mod epilogue;
mod gemm;
mod kernel;
mod large;
mod level1;
mod limits;
mod matrix;
mod micro;
mod pack;
mod packed;
mod pool;
mod scratch;
mod seat;
mod simd;
mod small;
mod split;
mod stay;
mod strip;
mod target;
mod wide;

pub use activation::{STEEPEST, UNITS, exact as activation};
#[cfg(target_arch = "x86_64")]
pub use amx::amx_loop;
pub use bf16::{GroupedJob, MixedJob, PackedTiles, Right, RunMixed, gemm_grouped};
pub use cache::Caches;
pub use epilogue::{Epilogue, Finish, finish};
pub use gemm::{Job, Tiles, gemm, gemm_packed, gemm_with};
pub use half;
pub use kernel::{Isa, Kernel, KernelError, Mixed, RunPacked, WithPacked, instructions};
pub use level1::{axpy, dot, gemv, ger, nrm2, scal};
pub use limits::{fma_loop, read_loop};
pub use matrix::{Mat, MatMut, ViewError};
pub use packed::{Packed, PackedJob};
pub use pool::{Counter, Pool, asked_cores};
pub use scratch::Scratch;
pub use simd::{Element, Number};
pub use stay::{Caller, cores_of_this_machine, keep_to, keep_to_fastest};

/// The instruction sets, for callers that choose one themselves.
pub mod simd_of {
    #[cfg(target_arch = "x86_64")]
    pub use crate::simd::avx2::{F32x8 as Avx2F32, F64x4 as Avx2F64};
    #[cfg(target_arch = "x86_64")]
    pub use crate::simd::avx512::{F32x16 as Avx512F32, F64x8 as Avx512F64};
    pub use crate::simd::portable::Portable;
}
