//! From an ATen operation to the call PyTorch 2.11 hands to the vendor's library, with the copies it
//! forces. Held to cuBLAS's own log of an H200 (tests/blas.rs); the ROCm side is read from the source.
//!
//! BLAS is column-major and PyTorch row-major, so a product is sent as its transpose,
//! C^T = B^T · A^T: the library's A is our second operand, its m our N.

mod attention;
mod batched;
mod lower;
mod matrix;
mod vector;

pub use attention::{Backend, Query, attention_backend};
pub use lower::{Lowered, lower_linear, lower_matmul};

use crate::{DType, View};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

/// Which vendor's stack PyTorch was built for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Stack {
    /// cuBLAS and cuBLASLt, verified.
    #[default]
    Cuda,
    /// hipBLASLt and hipBLAS, read from PyTorch's source and not verified.
    Rocm,
}

/// What decides the library beside the operands.
#[derive(Debug, Clone, Copy, Default)]
pub struct Settings {
    /// The vendor.
    pub stack: Stack,
    /// `torch.backends.cuda.preferred_blas_library("cublaslt")`.
    pub prefer_lt: bool,
}

/// An ATen operation that becomes one library call at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum LeafOp {
    Mm,
    Addmm,
    AddmmActivation(Activation),
    Bmm,
    Baddbmm,
    /// `addmv` too: with an addend it is copied first.
    Mv,
    Dot,
    ScaledMm,
    IntMm,
}

/// An activation that cuBLASLt fuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Activation {
    Relu,
    Gelu,
}

/// A leaf with its operands.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Leaf {
    /// What it is.
    pub op: LeafOp,
    /// First operand: matrix, batch of matrices, or vector.
    pub a: View,
    /// Second operand.
    pub b: View,
    /// The addend of addmm, baddbmm, addmv; the bias of a scaled product.
    pub addend: Option<View>,
    /// A given result (`out=`); else a fresh row-major one.
    pub out: Option<View>,
    /// The addend is the result itself.
    pub in_place: bool,
    /// Factor of the addend.
    pub beta: f64,
    /// Half-precision operands with an f32 result (`out_dtype=`).
    pub wide_out: bool,
}

impl Leaf {
    /// A leaf with a fresh result.
    pub fn new(op: LeafOp, a: View, b: View, addend: Option<View>) -> Leaf {
        Leaf { op, a, b, addend, out: None, in_place: false, beta: 1.0, wide_out: false }
    }

    /// The ATen name.
    pub fn name(&self) -> &'static str {
        match self.op {
            LeafOp::Mm => "aten::mm",
            LeafOp::Addmm => "aten::addmm",
            LeafOp::AddmmActivation(_) => "aten::_addmm_activation",
            LeafOp::Bmm => "aten::bmm",
            LeafOp::Baddbmm => "aten::baddbmm",
            LeafOp::Mv if self.addend.is_some() => "aten::addmv",
            LeafOp::Mv => "aten::mv",
            LeafOp::Dot => "aten::dot",
            LeafOp::ScaledMm => "aten::_scaled_mm",
            LeafOp::IntMm => "aten::_int_mm",
        }
    }

    /// What it does, in order: copies, then at most one library call.
    pub fn steps(&self, settings: Settings) -> Vec<Step> {
        match self.op {
            LeafOp::Mm | LeafOp::Addmm | LeafOp::AddmmActivation(_) => matrix::steps(self, settings),
            LeafOp::ScaledMm | LeafOp::IntMm => matrix::quantised_steps(self, settings),
            LeafOp::Bmm | LeafOp::Baddbmm => batched::steps(self, settings),
            LeafOp::Mv => vector::matrix_vector(self, settings),
            LeafOp::Dot => vector::dot(self, settings),
        }
    }
}

/// One thing a leaf does.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// A tensor is copied first, and why.
    Copy {
        /// Which one, by its name in the operation's signature.
        operand: &'static str,
        /// The reason.
        why: String,
    },
    /// No product at all: the result is filled.
    Fill,
    /// The library call.
    Blas(BlasCall),
}

/// How an operand is handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[allow(missing_docs)]
pub enum Trans {
    N,
    T,
}

impl Trans {
    pub(crate) fn when(transposed: bool) -> Trans {
        if transposed { Trans::T } else { Trans::N }
    }
}

/// Strides and count of a batched call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Batch {
    pub a: i64,
    pub b: i64,
    pub c: i64,
    pub count: i64,
}

/// The arguments of a matrix product, column-major.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub struct Gemm {
    pub transa: Trans,
    pub transb: Trans,
    pub m: i64,
    pub n: i64,
    pub k: i64,
    pub lda: i64,
    pub ldb: i64,
    pub ldc: i64,
    pub batch: Option<Batch>,
    /// cuBLASLt's name of what follows the product.
    pub epilogue: Option<String>,
    pub beta: f64,
    /// As the library's log names it; absent where the routine implies it.
    pub compute_type: Option<&'static str>,
}

impl Gemm {
    /// The leading dimensions a wrapper replaces where an extent is 1 and the stride means nothing.
    fn settle_leading_dimensions(&mut self) {
        let (m, n, k) = (self.m.max(1), self.n.max(1), self.k.max(1));
        if self.n <= 1 {
            self.ldc = m;
        }
        match self.transa {
            Trans::T if self.m <= 1 => self.lda = k,
            Trans::N if self.k <= 1 => self.lda = m,
            _ => {}
        }
        match self.transb {
            Trans::T if self.k <= 1 => self.ldb = n,
            Trans::N if self.n <= 1 => self.ldb = k,
            _ => {}
        }
    }
}

/// The arguments of a call.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub enum Arguments {
    Gemm(Gemm),
    Gemv { trans: Trans, m: i64, n: i64, lda: i64, incx: i64, incy: i64 },
    Dot { n: i64, incx: i64, incy: i64 },
}

/// What the framework hands to the library.
#[derive(Debug, Clone, PartialEq)]
pub struct BlasCall {
    /// cuBLAS, cuBLASLt, hipBLAS, hipBLASLt, rocBLAS.
    pub library: &'static str,
    /// The function's name without its version suffix.
    pub routine: &'static str,
    /// The arguments.
    pub arguments: Arguments,
}

impl BlasCall {
    fn gemm(gemm: &Gemm, dtype: DType, settings: Settings) -> BlasCall {
        let batched = gemm.batch.is_some();
        let (library, routine) = gemm_routine(dtype, batched, settings);
        let lt = library.ends_with("Lt");
        let compute_type = match routine {
            _ if lt => Some(lt_compute_type(dtype)),
            "cublasGemmEx" | "cublasGemmStridedBatchedEx" => Some("CUBLAS_COMPUTE_32F"),
            "hipblasGemmEx" | "hipblasGemmStridedBatchedEx" => Some("HIPBLAS_COMPUTE_32F"),
            _ => None,
        };
        let epilogue = lt.then(|| "EPILOGUE_DEFAULT".to_string());
        BlasCall { library, routine, arguments: Arguments::Gemm(Gemm { compute_type, epilogue, ..gemm.clone() }) }
    }

    fn lt(gemm: Gemm, stack: Stack) -> BlasCall {
        let (library, routine) = match stack {
            Stack::Cuda => ("cuBLASLt", "cublasLtMatmul"),
            Stack::Rocm => ("hipBLASLt", "hipblasLtMatmul"),
        };
        BlasCall { library, routine, arguments: Arguments::Gemm(gemm) }
    }
}

/// The compute type the Lt libraries are asked for.
fn lt_compute_type(dtype: DType) -> &'static str {
    if dtype == DType::F64 { "COMPUTE_64F" } else { "COMPUTE_32F" }
}

/// Library and routine of a plain or batched product.
fn gemm_routine(dtype: DType, batched: bool, settings: Settings) -> (&'static str, &'static str) {
    let pick = |one: &'static str, many: &'static str| if batched { many } else { one };
    let in_lt = matches!(dtype, DType::F32 | DType::F16 | DType::Bf16);
    match settings.stack {
        Stack::Cuda if settings.prefer_lt => ("cuBLASLt", "cublasLtMatmul"),
        Stack::Cuda => {
            let routine = match dtype {
                DType::F64 => pick("cublasDgemm", "cublasDgemmStridedBatched"),
                DType::F32 => pick("cublasSgemm", "cublasSgemmStridedBatched"),
                DType::C64 => pick("cublasCgemm", "cublasCgemmStridedBatched"),
                DType::C128 => pick("cublasZgemm", "cublasZgemmStridedBatched"),
                _ => pick("cublasGemmEx", "cublasGemmStridedBatchedEx"),
            };
            ("cuBLAS", routine)
        }
        Stack::Rocm if in_lt => ("hipBLASLt", "hipblasLtMatmul"),
        Stack::Rocm => {
            let routine = match dtype {
                DType::F64 => pick("hipblasDgemm", "hipblasDgemmStridedBatched"),
                DType::C64 => pick("hipblasCgemm", "hipblasCgemmStridedBatched"),
                DType::C128 => pick("hipblasZgemm", "hipblasZgemmStridedBatched"),
                _ => pick("hipblasGemmEx", "hipblasGemmStridedBatchedEx"),
            };
            ("hipBLAS", routine)
        }
    }
}

impl Serialize for BlasCall {
    /// The field names of the libraries' logs.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut out = serializer.serialize_map(None)?;
        out.serialize_entry("library", self.library)?;
        out.serialize_entry("routine", self.routine)?;
        match &self.arguments {
            Arguments::Gemm(g) => {
                out.serialize_entry("transa", &g.transa)?;
                out.serialize_entry("transb", &g.transb)?;
                let numbers = [("m", g.m), ("n", g.n), ("k", g.k), ("lda", g.lda), ("ldb", g.ldb), ("ldc", g.ldc)];
                for (name, value) in numbers {
                    out.serialize_entry(name, &value)?;
                }
                if let Some(batch) = &g.batch {
                    let lt = self.library.ends_with("Lt");
                    let names = if lt {
                        ["stridedBatchOffsetA", "stridedBatchOffsetB", "stridedBatchOffsetD", "batchCountA"]
                    } else {
                        ["strideA", "strideB", "strideC", "batchCount"]
                    };
                    for (name, value) in names.into_iter().zip([batch.a, batch.b, batch.c, batch.count]) {
                        out.serialize_entry(name, &value)?;
                    }
                }
                if let Some(compute_type) = g.compute_type {
                    out.serialize_entry("computeType", compute_type)?;
                }
                if let Some(epilogue) = &g.epilogue {
                    out.serialize_entry("epilogue", epilogue)?;
                }
                // A whole number without a point, as the logs have it.
                if g.beta.fract() == 0.0 {
                    out.serialize_entry("beta", &(g.beta as i64))?;
                } else {
                    out.serialize_entry("beta", &g.beta)?;
                }
            }
            Arguments::Gemv { trans, m, n, lda, incx, incy } => {
                out.serialize_entry("trans", trans)?;
                for (name, value) in [("m", m), ("n", n), ("lda", lda), ("incx", incx), ("incy", incy)] {
                    out.serialize_entry(name, value)?;
                }
            }
            Arguments::Dot { n, incx, incy } => {
                for (name, value) in [("n", n), ("incx", incx), ("incy", incy)] {
                    out.serialize_entry(name, value)?;
                }
            }
        }
        out.end()
    }
}
