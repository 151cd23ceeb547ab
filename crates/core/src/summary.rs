//! What a workload adds up to, and where decoding leaves the memory roof.

use crate::{Bound, Call, Chip, Op, Operands, Pass, Roof, RoofError, Workload};

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
            weights += count * call.scales.map_or(0, |v| v.bytes()) as f64;
            match &call.operands {
                Operands::Product { a, b, bias, out, .. } => {
                    moved += count * (a.bytes() + out.bytes()) as f64;
                    weights += count * (b.bytes() + bias.map_or(0, |v| v.bytes())) as f64;
                }
                // A large batch touches every expert, so all of them are read.
                Operands::Grouped { a, b, out, .. } => {
                    moved += count * (a.bytes() + out.bytes()) as f64;
                    weights += count * b.bytes() as f64;
                }
                Operands::Convolution(_) | Operands::Attention(_) => {}
            }
        }
        let gained = compute - moved / bandwidth;
        if gained <= 0.0 {
            return Ok(None);
        }
        Ok(Some((weights / bandwidth / gained).ceil().max(1.0) as u64))
    }
}

/// Share of a chip's peak that a step of measured length uses.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Utilisation {
    /// Model FLOPs: no recomputation, four products in attention's backward.
    pub mfu: f64,
    /// The same with only the part of attention that a causal mask leaves.
    pub mfu_causal: f64,
    /// Hardware FLOPs: everything that is run, five products in attention's backward.
    pub hfu: f64,
    /// The same with only the part of attention that a causal mask leaves.
    pub hfu_causal: f64,
}

impl Utilisation {
    /// Of a workload that took `seconds`; each call counts against the peak of its own element type.
    pub fn of(workload: &Workload, seconds: f64, chip: &Chip) -> Result<Utilisation, RoofError> {
        let mut sum = [0.0; 4];
        for call in workload.calls() {
            let peak_time =
                |flops: u128| Roof::new(flops, 0, call.dtype(), chip).map(|r| r.seconds * call.count as f64);
            let (full, causal) = (peak_time(call.flops())?, peak_time(call.flops_causal())?);
            let in_model = match (call.pass, call.op) {
                (Pass::Recompute, _) => 0.0,
                (_, Op::AttentionBackward) => 4.0 / 5.0,
                _ => 1.0,
            };
            for (total, part) in sum.iter_mut().zip([full * in_model, causal * in_model, full, causal]) {
                *total += part;
            }
        }
        let [mfu, mfu_causal, hfu, hfu_causal] = sum.map(|time| time / seconds);
        Ok(Utilisation { mfu, mfu_causal, hfu, hfu_causal })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Catalog, DType, View};

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
        workload.push(&Call {
            op: Op::Mm,
            pass: Pass::Forward,
            module: "m".into(),
            operands,
            scales: None,
            inside: false,
            count: 3,
            measured: None,
        });
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
    fn a_step_at_its_compute_roof_uses_all_of_the_peak() {
        let catalog = Catalog::builtin();
        let chip = catalog.find("h200").unwrap();
        let workload = linear(8192, 4096, 4096);
        let seconds = Summary::of(&workload, chip).unwrap().seconds;
        let used = Utilisation::of(&workload, 2.0 * seconds, chip).unwrap();
        assert!((used.mfu - 0.5).abs() < 1e-12 && used.mfu == used.hfu && used.mfu == used.mfu_causal);
    }

    #[test]
    fn a_large_cache_keeps_decoding_on_the_memory_roof() {
        let catalog = Catalog::builtin();
        let chip = catalog.find("h200").unwrap();
        assert_eq!(Summary::leaves_memory_roof(&linear(1, 4096, 4096), 1 << 30, chip).unwrap(), None);
    }
}
