//! Element types, named as in the recorded truth and in every output.

use serde::{Deserialize, Serialize};

/// The element type of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum DType {
    F64,
    F32,
    F16,
    Bf16,
    #[serde(rename = "f8e4m3")]
    F8E4m3,
    #[serde(rename = "f8e5m2")]
    F8E5m2,
    C64,
    C128,
    I4,
    I8,
    I32,
    Bool,
}

impl DType {
    /// Every dtype a model can be run in, in the order they are offered.
    pub const FLOATS: [DType; 4] = [DType::Bf16, DType::F16, DType::F32, DType::F64];

    /// Bits of one element.
    pub fn bits(self) -> u64 {
        match self {
            DType::C128 => 128,
            DType::F64 | DType::C64 => 64,
            DType::F32 | DType::I32 => 32,
            DType::F16 | DType::Bf16 => 16,
            DType::F8E4m3 | DType::F8E5m2 | DType::I8 | DType::Bool => 8,
            DType::I4 => 4,
        }
    }

    /// Bytes that hold one element.
    pub fn bytes(self) -> u64 {
        self.bits().div_ceil(8)
    }

    /// The name used in all output.
    pub fn name(self) -> &'static str {
        match self {
            DType::F64 => "f64",
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::Bf16 => "bf16",
            DType::F8E4m3 => "f8e4m3",
            DType::F8E5m2 => "f8e5m2",
            DType::C64 => "c64",
            DType::C128 => "c128",
            DType::I4 => "i4",
            DType::I8 => "i8",
            DType::I32 => "i32",
            DType::Bool => "bool",
        }
    }

    /// Reads our own names and PyTorch's (`bfloat16`, `torch.float16`).
    pub fn parse(text: &str) -> Option<DType> {
        match text.strip_prefix("torch.").unwrap_or(text) {
            "f64" | "float64" | "double" => Some(DType::F64),
            "f32" | "float32" | "float" => Some(DType::F32),
            "f16" | "float16" | "half" => Some(DType::F16),
            "bf16" | "bfloat16" => Some(DType::Bf16),
            _ => None,
        }
    }

    /// Half precision: f16 or bf16.
    pub fn is_half(self) -> bool {
        matches!(self, DType::F16 | DType::Bf16)
    }

    /// The type PyTorch computes in when a tensor of each meets in a pointwise operation.
    pub fn promote(self, other: DType) -> DType {
        let rank = |d: DType| match d {
            DType::Bool | DType::I4 | DType::I8 | DType::I32 => 0,
            DType::F8E4m3 | DType::F8E5m2 | DType::F16 | DType::Bf16 => 1,
            DType::F32 => 2,
            DType::F64 => 3,
            DType::C64 => 4,
            DType::C128 => 5,
        };
        match rank(self).cmp(&rank(other)) {
            std::cmp::Ordering::Less => other,
            std::cmp::Ordering::Greater => self,
            std::cmp::Ordering::Equal if self != other => DType::F32,
            std::cmp::Ordering::Equal => self,
        }
    }
}

impl std::fmt::Display for DType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for d in DType::FLOATS {
            assert_eq!(DType::parse(d.name()), Some(d));
        }
        assert_eq!(DType::parse("torch.bfloat16"), Some(DType::Bf16));
        assert_eq!(DType::parse("int4"), None);
    }

    #[test]
    fn the_two_halves_meet_in_f32() {
        assert_eq!(DType::F16.promote(DType::Bf16), DType::F32);
        assert_eq!(DType::Bf16.promote(DType::F32), DType::F32);
        assert_eq!(DType::Bool.promote(DType::F16), DType::F16);
    }
}
