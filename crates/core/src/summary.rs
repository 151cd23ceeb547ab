//! What a workload adds up to, and where decoding leaves the memory roof.

use crate::{Bound, Call, Chip, Operands, Roof, RoofError, Workload};

/// Sums over calls, repetitions counted.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[allow(missing_docs)]
pub struct Totals {
    pub calls: u64,
    pub flops: u128,
    /// With only the part of attention that a causal mask leaves.
    pub flops_causal: u128,
    pub bytes: u128,
}

impl Totals {
    /// The sums over `calls`.
    pub fn of<'a>(calls: impl IntoIterator<Item = &'a Call>) -> Totals {
        calls.into_iter().fold(Totals::default(), |sum, call| {
            let count = u128::from(call.count);
            Totals {
                calls: sum.calls + call.count,
                flops: sum.flops + call.flops() * count,
                flops_causal: sum.flops_causal + call.flops_causal() * count,
                bytes: sum.bytes + call.bytes() * count,
            }
        })
    }
}

/// The least time of a workload on a chip: every call at its own roof, one after the other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// The sums.
    pub totals: Totals,
    /// Least time of all calls.
    pub seconds: f64,
    /// The part of it in calls bound by memory.
    pub memory_seconds: f64,
}

impl Summary {
    /// Adds up the roofs of all calls.
    pub fn of(workload: &Workload, chip: &Chip) -> Result<Summary, RoofError> {
        let (mut seconds, mut memory_seconds) = (0.0, 0.0);
        for call in workload.calls() {
            let roof = Roof::of(call, chip)?;
            let time = roof.seconds * call.count as f64;
            seconds += time;
            if roof.bound == Bound::Memory {
                memory_seconds += time;
            }
        }
        Ok(Summary { totals: Totals::of(workload.calls()), seconds, memory_seconds })
    }

    /// What most of the least time is made of.
    pub fn bound(&self) -> Bound {
        if self.memory_seconds * 2.0 > self.seconds { Bound::Memory } else { Bound::Compute }
    }

    /// Share of the least time in calls of that bound, 0 to 1.
    pub fn share(&self, bound: Bound) -> f64 {
        let memory = if self.seconds > 0.0 { self.memory_seconds / self.seconds } else { 0.0 };
        match bound {
            Bound::Memory => memory,
            Bound::Compute => 1.0 - memory,
        }
    }

    /// The smallest batch at which the products with weights of a decode step take longer to
    /// multiply than to move, or `None` where no batch does.
    ///
    /// `step` is one decode step at batch 1. `cache_bytes` of each further sequence are moved too:
    /// where they grow as fast as the arithmetic, no batch is large enough.
    pub fn leaves_memory_roof(step: &Workload, cache_bytes: u128, chip: &Chip) -> Result<Option<u64>, RoofError> {
        let missing = RoofError { chip: chip.id.clone(), what: "memory bandwidth".into() };
        let bandwidth = chip.bandwidth().ok_or(missing)?;
        let (mut compute, mut moved, mut weights) = (0.0, cache_bytes as f64, 0.0);
        for call in step.calls().iter().filter(|c| c.has_weight()) {
            let count = call.count as f64;
            let peak = Roof::of(call, chip)?.ridge * bandwidth;
            compute += count * call.flops() as f64 / peak;
            if let Operands::Product { a, b, bias, out, .. } = &call.operands {
                moved += count * (a.bytes() + out.bytes()) as f64;
                weights += count * (b.bytes() + bias.map_or(0, |v| v.bytes())) as f64;
            }
        }
        let gained = compute - moved / bandwidth;
        if gained <= 0.0 {
            return Ok(None);
        }
        Ok(Some((weights / bandwidth / gained).ceil().max(1.0) as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Catalog, DType, Op, Pass, View};

    fn linear(m: i64, n: i64, k: i64) -> Workload {
        let view = |size: &[i64]| View::contiguous(size, DType::Bf16);
        let operands = Operands::Product {
            a: view(&[m, k]),
            b: view(&[k, n]),
            bias: None,
            out: view(&[m, n]),
            alpha: 1.0,
            beta: 1.0,
        };
        let mut workload = Workload::default();
        workload.push(&Call { op: Op::Mm, pass: Pass::Forward, module: "m".into(), operands, inside: false, count: 3 });
        workload
    }

    #[test]
    fn the_crossing_batch_is_the_first_that_is_bound_by_arithmetic() {
        let catalog = Catalog::builtin();
        let chip = catalog.find("h200").unwrap();
        let batch = Summary::leaves_memory_roof(&linear(1, 4096, 4096), 0, chip).unwrap().unwrap() as i64;
        let bound = |m| Summary::of(&linear(m, 4096, 4096), chip).unwrap().bound();
        assert_eq!((bound(batch - 1), bound(batch)), (Bound::Memory, Bound::Compute));
    }

    #[test]
    fn a_large_cache_keeps_decoding_on_the_memory_roof() {
        let catalog = Catalog::builtin();
        let chip = catalog.find("h200").unwrap();
        assert_eq!(Summary::leaves_memory_roof(&linear(1, 4096, 4096), 1 << 30, chip).unwrap(), None);
    }
}
