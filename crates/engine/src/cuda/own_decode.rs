//! Our kernels for a few rows as a candidate: weights that lie row by row along K are streamed once.

use super::own::{factors_are_given, one_for_batch, part_ways, told, turned};
use super::queue::CudaQueue;
use crate::candidate::{Candidate, Operands, Plan, Queue, Region, RunError};
use crate::contract::{Contract, Refusal};
use crate::problem::{Layout, Problem, Scaling};
use gemwright_core::{DType, DecodeChoice};
use gemwright_cuda::{Decode, DecodeConfig, Device};
use std::sync::Arc;

const CONTRACT: Contract = Contract { largest: (1 << 30) - 1, groups: false, ..super::own::CONTRACT };

/// Rows that more kernels take than `DecodeChoice::ROWS`.
const FEWER: u64 = 16;

/// The same problem with the few rows on the side of a.
pub(super) fn few_rows(problem: &Problem) -> Problem {
    let p = problem.product;
    let fewer = |rows: u64| p.m > rows && p.n <= rows;
    let turns = fewer(FEWER) || fewer(DecodeChoice::ROWS);
    if turns && !problem.epilogue.gated { turned(problem) } else { *problem }
}

/// What is compiled for a problem.
pub(super) fn config(problem: &Problem, choice: DecodeChoice) -> Result<DecodeConfig, Refusal> {
    CONTRACT.admits(problem)?;
    let problem = &few_rows(problem);
    let p = problem.product;
    if !problem.dtype.is_half() {
        let (asked, taken) = (problem.dtype.to_string(), "bf16, f16".into());
        return Err(Refusal::DType { asked, taken });
    }
    if p.m > DecodeChoice::ROWS {
        return Err(Refusal::Extent(p.m));
    }
    if p.k > 1 && problem.b.row != 1 {
        return Err(Refusal::Strides { operand: "b" });
    }
    if p.k > 1 && problem.a.col != 1 {
        return Err(Refusal::Strides { operand: "a" });
    }
    let adds = problem.beta != 0.0;
    if adds && (problem.beta != 1.0 || !problem.epilogue.is_none()) {
        return Err(Refusal::Factor);
    }
    // Rows are lines of K; a step over an extent of one is never taken.
    let shifted = |dtype: DType, base: u64, step: i64, lines: u64, layout: Layout| {
        let per = 16 / dtype.bytes() as i64;
        base < 16 || (lines > 1 && step % per != 0) || (p.batch > 1 && layout.batch % per != 0)
    };
    let config = DecodeConfig {
        dtype: problem.dtype,
        weight_dtype: problem.weight_dtype,
        scales: problem.scales != [Scaling::None; 2],
        out_dtype: problem.out_dtype,
        shifted: [
            shifted(problem.dtype, problem.bases[0], problem.a.row, p.m, problem.a),
            shifted(problem.weight_dtype, problem.bases[1], problem.b.col, problem.weight_cols(), problem.b),
        ],
        tail: !p.k.is_multiple_of(8),
        gated: problem.epilogue.gated,
        add: adds && problem.out_dtype == DType::F32,
        activation: problem.epilogue.activation,
        parts: part_ways(problem, false, false),
        kept: problem.epilogue.kept.is_some(),
        scaled: problem.alpha != 1.0,
        ..DecodeConfig::new(choice)
    };
    let of_rows = |x_rows: u32| DecodeConfig { x_rows, ..config }.of_length(p.k);
    let all_at_once = of_rows((p.m as u32).next_power_of_two());
    let Some(why) = all_at_once.refuses(&p) else { return Ok(all_at_once) };
    // As many at a time as there is room for, where rows may take turns.
    let fewer = std::iter::successors(Some(all_at_once.x_rows / 2), |rows| Some(rows / 2)).take_while(|rows| *rows > 0);
    let mut in_turns = fewer.map(of_rows).filter(|config| config.turns(p.m) > 1);
    in_turns.find(|config| config.refuses(&p).is_none()).ok_or(Refusal::Library(why.into()))
}

/// A kernel that streams weights, on a device.
pub struct OwnDecode {
    device: Arc<Device>,
    choice: DecodeChoice,
    name: String,
}

impl OwnDecode {
    #[allow(missing_docs)]
    pub fn new(device: &Arc<Device>, choice: DecodeChoice) -> OwnDecode {
        OwnDecode { device: device.clone(), choice, name: format!("own.{choice}") }
    }
}

impl Candidate for OwnDecode {
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
        let (config, few) = (config(problem, self.choice)?, few_rows(problem));
        let decode = Decode::new(&self.device, config, few.product);
        let decode = decode.map_err(|why| Refusal::Library(why.to_string()))?;
        Ok(Box::new(DecodePlan { problem: *problem, few, decode }))
    }
}

struct DecodePlan {
    problem: Problem,
    /// With the few rows on the side of a.
    few: Problem,
    decode: Decode,
}

impl Plan for DecodePlan {
    fn problem(&self) -> &Problem {
        &self.problem
    }

    fn workspace(&self, _: &dyn Queue) -> usize {
        0
    }

    unsafe fn run(&self, queue: &dyn Queue, operands: &Operands, _: Region) -> Result<(), RunError> {
        let queue = CudaQueue::of(queue)?;
        factors_are_given(&self.problem, operands)?;
        let told = told(&self.problem, &self.few, operands);
        // Where sides were changed the weight is what the caller calls a.
        let constant = queue.constant_weights && self.few == self.problem && one_for_batch(&self.problem);
        // SAFETY: the caller's promises are those of the kernel; that weights are constant is the queue's.
        unsafe { self.decode.launch(&queue.stream, &told, queue.early, constant) }
            .map_err(|why| RunError::Library(why.to_string()))
    }
}
