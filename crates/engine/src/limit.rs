//! What the machine itself can do, measured beside the candidates: a share of a limit means something only
//! if the limit ran in the same minute.

use gemwright_core::DType;
#[cfg(target_arch = "x86_64")]
use gemwright_cpu::amx_loop;
use gemwright_cpu::{Isa, Kernel, Pool, fma_loop, read_loop};

/// A loop that does nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Fused steps on registers, in FLOP/s of an element type.
    Fma(DType),
    /// Reading memory that no cache holds, in bytes/s.
    Read,
    /// Products of bf16 tiles, in FLOP/s; 0 where there are none.
    Amx,
}

impl Limit {
    /// The name used in all output.
    pub fn name(self) -> String {
        match self {
            Limit::Fma(dtype) => format!("limit.fma-{dtype}"),
            Limit::Read => "limit.read".into(),
            Limit::Amx => "limit.amx-bf16".into(),
        }
    }

    /// That of the unit that multiplies numbers of a type.
    pub fn of(dtype: DType) -> Limit {
        match Kernel::best(dtype) {
            Some(kernel) if kernel.isa == Isa::Amx => Limit::Amx,
            _ => Limit::Fma(if dtype == DType::F64 { dtype } else { DType::F32 }),
        }
    }

    /// FLOPs or bytes a second, on so many threads, over about a millisecond.
    pub fn measure(self, pool: &Pool, threads: usize, memory: &[f32]) -> f64 {
        match self {
            Limit::Fma(dtype) => fma_loop(dtype, pool, threads),
            Limit::Read => read_loop(memory, pool, threads),
            #[cfg(target_arch = "x86_64")]
            Limit::Amx => amx_loop(pool, threads).unwrap_or(0.0),
            #[cfg(not(target_arch = "x86_64"))]
            Limit::Amx => 0.0,
        }
    }
}
