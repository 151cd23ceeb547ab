//! The least time a call can take on a chip, and what holds it there.

use crate::{Call, Chip, DType};
use serde::Serialize;

/// What the least time is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Bound {
    /// Arithmetic.
    Compute,
    /// Memory traffic.
    Memory,
}

impl Bound {
    /// The name used in all output.
    pub fn name(self) -> &'static str {
        match self {
            Bound::Compute => "compute",
            Bound::Memory => "memory",
        }
    }
}

/// A number the chip's record does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("chip `{chip}` has no {what} on record")]
pub struct RoofError {
    /// The chip's id.
    pub chip: String,
    /// What is missing.
    pub what: String,
}

/// FLOPs and bytes held against a chip's datasheet.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Roof {
    /// What decides.
    pub bound: Bound,
    /// The least time of one repetition: max(FLOPs / peak, bytes / bandwidth).
    pub seconds: f64,
    /// FLOPs per byte at which the two are equal.
    pub ridge: f64,
}

impl Roof {
    /// The roof of `flops` multiplied in `dtype` and `bytes` moved.
    pub fn new(flops: u128, bytes: u128, dtype: DType, chip: &Chip) -> Result<Roof, RoofError> {
        let missing = |what: String| RoofError { chip: chip.id.clone(), what };
        let peak = chip.peak(dtype).ok_or_else(|| missing(format!("{} peak", Chip::peak_name(dtype))))?;
        let bandwidth = chip.bandwidth().ok_or_else(|| missing("memory bandwidth".into()))?;
        let (compute, memory) = (flops as f64 / peak, bytes as f64 / bandwidth);
        let bound = if compute >= memory { Bound::Compute } else { Bound::Memory };
        Ok(Roof { bound, seconds: compute.max(memory), ridge: peak / bandwidth })
    }

    /// The roof of one repetition of a call.
    pub fn of(call: &Call, chip: &Chip) -> Result<Roof, RoofError> {
        Roof::new(call.flops(), call.bytes(), call.dtype(), chip)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Catalog;

    #[test]
    fn the_larger_of_two_times_is_the_bound() {
        let catalog = Catalog::builtin();
        let h200 = catalog.find("h200").unwrap();
        // up_proj of Llama-2-7B for one token: one read of the weight
        let memory = Roof::new(90_177_536, 90_207_744, DType::Bf16, h200).unwrap();
        assert_eq!(memory.bound, Bound::Memory);
        assert!((memory.seconds - 1.879e-5).abs() < 1e-8);
        let compute = Roof::new(1 << 50, 1, DType::Bf16, h200).unwrap();
        assert_eq!(compute.bound, Bound::Compute);
        assert_eq!(compute.seconds, (1u64 << 50) as f64 / 989.4e12);
    }

    #[test]
    fn an_unknown_peak_is_an_error_and_not_a_guess() {
        let catalog = Catalog::builtin();
        let error = Roof::new(1, 1, DType::Bf16, catalog.find("mi308x").unwrap()).unwrap_err();
        assert_eq!(error.to_string(), "chip `mi308x` has no bf16 peak on record");
    }
}
