//! What the formats have in common: names of types, and texts of `name value` pairs.

use gemwright_core::DType;
use gemwright_core::blas::Trans;

/// Names of element types; the first is how it is written.
pub type Names = &'static [(DType, &'static str)];

/// As hipBLASLt and rocBLAS write them.
pub const ROC: Names = &[
    (DType::Bf16, "bf16_r"),
    (DType::F16, "f16_r"),
    (DType::F32, "f32_r"),
    (DType::F64, "f64_r"),
    (DType::F8E4m3, "f8_r"),
    (DType::F8E5m2, "bf8_r"),
    (DType::I8, "i8_r"),
    (DType::I32, "i32_r"),
];

/// As PyTorch's classes are called.
pub const TORCH: Names = &[
    (DType::Bf16, "torch.bfloat16"),
    (DType::F16, "torch.float16"),
    (DType::F32, "torch.float32"),
    (DType::F64, "torch.float64"),
];

/// As TunableOp names the types of its operations.
pub const TUNABLE: Names =
    &[(DType::Bf16, "BFloat16"), (DType::F16, "Half"), (DType::F32, "float"), (DType::F64, "double")];

/// As CUTLASS and nvMatmulHeuristics write them.
pub const CUTLASS: Names = &[
    (DType::Bf16, "bf16"),
    (DType::F16, "f16"),
    (DType::F32, "f32"),
    (DType::F64, "f64"),
    (DType::F8E4m3, "e4m3"),
    (DType::F8E5m2, "e5m2"),
];

/// The name of a type, where there is one.
pub fn named(names: Names, dtype: DType) -> Option<&'static str> {
    names.iter().find(|(known, _)| *known == dtype).map(|(_, name)| *name)
}

/// The type of a name.
pub fn typed(names: Names, name: &str) -> Option<DType> {
    names.iter().find(|(_, known)| *known == name).map(|(dtype, _)| *dtype)
}

/// `N` or `T`.
pub fn letter(trans: Trans) -> char {
    if trans == Trans::T { 'T' } else { 'N' }
}

/// Of `N` or `T`, in either case; `C` is a conjugate, which no real matrix notices.
pub fn flag(text: &str) -> Option<Trans> {
    match text {
        "N" | "n" => Some(Trans::N),
        "T" | "t" | "C" | "c" => Some(Trans::T),
        _ => None,
    }
}
