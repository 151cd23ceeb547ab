//! Our kernels of mma.sync as a candidate: every GPU from compute capability 8.0 on, and any leading dimension.

use super::own::{adds_by_residual, part_ways, rows_out, told};
use super::queue::CudaQueue;
use crate::candidate::{Candidate, Operands, Plan, Queue, Region, RunError};
use crate::contract::{Contract, Refusal, Strides, Types};
use crate::problem::{Layout, Problem};
use gemwright_core::DType;
use gemwright_cuda::{Device, Layouts, MmaConfig, MmaGemm, MmaTile};
use std::sync::Arc;

const CONTRACT: Contract = Contract {
    strides: Strides::Blas,
    largest: (1 << 30) - 1,
    gates: false,
    groups: false,
    weights: &[],
    scales: false,
    dtypes: DTYPES,
    ..super::own::CONTRACT
};
const DTYPES: &[Types] =
    &[(DType::Bf16, DType::Bf16), (DType::Bf16, DType::F32), (DType::F16, DType::F16), (DType::F16, DType::F32)];

/// Our kernels of mma.sync on a device.
pub struct OwnMma {
    device: Arc<Device>,
    /// Always this one, rather than what fits the product.
    forced: Option<MmaTile>,
    name: String,
}

impl OwnMma {
    /// The tile that fits each problem, or always the one that is forced.
    pub fn new(device: &Arc<Device>, forced: Option<MmaTile>) -> OwnMma {
        let name = forced.map_or_else(|| "own.mma".to_string(), |tile| format!("own.{tile}"));
        OwnMma { device: device.clone(), forced, name }
    }
}

/// What is compiled for a problem with a tile, or the one that fits it.
pub(super) fn config(problem: &Problem, forced: Option<MmaTile>, multiprocessors: u32) -> Result<MmaConfig, Refusal> {
    CONTRACT.admits(problem)?;
    let problem = &rows_out(problem);
    let adds = problem.beta != 0.0;
    if adds && (problem.beta != 1.0 || !problem.epilogue.is_none()) {
        return Err(Refusal::Factor);
    }
    let p = problem.product;
    let tile = forced.unwrap_or_else(|| MmaTile::pick(&p, multiprocessors));
    let (a_mn, b_mn) = (problem.a.col != 1 && p.k > 1, problem.b.row != 1 && p.k > 1);
    Ok(MmaConfig {
        layouts: Layouts { a_mn, b_mn },
        grains: [
            grain(&problem.a, a_mn, (p.m, p.k), p.batch).min(problem.bases[0] as u32),
            grain(&problem.b, !b_mn, (p.k, p.n), p.batch).min(problem.bases[1] as u32),
        ],
        dtype: problem.dtype,
        out_dtype: problem.out_dtype,
        add: adds && !adds_by_residual(problem),
        activation: problem.epilogue.activation,
        parts: part_ways(problem, false, true),
        kept: problem.epilogue.kept.is_some(),
        scaled: problem.alpha != 1.0,
        ..MmaConfig::new(tile)
    })
}

/// Bytes that every line of an operand of 16-bit elements begins on, up to 16; `turned`: lines are columns.
fn grain(layout: &Layout, turned: bool, (rows, cols): (u64, u64), batch: u64) -> u32 {
    let (step, lines) = if turned { (layout.col, cols) } else { (layout.row, rows) };
    let steps = [(step, lines), (layout.batch, batch)];
    let fits = |grain: i64| steps.iter().all(|(step, count)| *count <= 1 || step * 2 % grain == 0);
    [16, 8, 4].into_iter().find(|grain| fits(*grain)).unwrap_or(2) as u32
}

impl Candidate for OwnMma {
    fn name(&self) -> &str {
        &self.name
    }

    fn origin(&self) -> String {
        format!("gemwright {} on {}", env!("CARGO_PKG_VERSION"), self.device.properties.name)
    }

    fn contract(&self) -> &Contract {
        &CONTRACT
    }

    fn is_own(&self) -> bool {
        true
    }

    fn prepare(&self, problem: &Problem) -> Result<Box<dyn Plan>, Refusal> {
        let config = config(problem, self.forced, self.device.properties.multiprocessors)?;
        let rows = rows_out(problem);
        let gemm = MmaGemm::new(&self.device, config, rows.product).map_err(|why| Refusal::Library(why.to_string()))?;
        Ok(Box::new(MmaPlan { problem: *problem, rows, gemm }))
    }
}

struct MmaPlan {
    problem: Problem,
    /// With the result row by row.
    rows: Problem,
    gemm: MmaGemm,
}

impl Plan for MmaPlan {
    fn problem(&self) -> &Problem {
        &self.problem
    }

    fn workspace(&self, _: &dyn Queue) -> usize {
        0
    }

    unsafe fn run(&self, queue: &dyn Queue, operands: &Operands, _: Region) -> Result<(), RunError> {
        let queue = CudaQueue::of(queue)?;
        let told = told(&self.problem, &self.rows, operands);
        // SAFETY: the caller's promises are those of the kernel.
        unsafe { self.gemm.launch(&queue.stream, &told) }.map_err(|why| RunError::Library(why.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_lines_are_read_in_small_pieces() {
        let grain = |row, batch| grain(&Layout { row, col: 1, batch }, false, (4, 8), 2);
        assert_eq!([grain(64, 256), grain(60, 240), grain(62, 248), grain(63, 252)], [16, 8, 4, 2]);
        assert_eq!(grain(64, 257), 2);
    }
}
