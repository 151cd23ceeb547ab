//! mv, addmv and dot.

use super::{Arguments, BlasCall, Gemm, Leaf, Settings, Stack, Step, Trans};
use crate::{DType, View};

/// matrix · vector; half precision has no gemv and becomes a product with m = 1.
pub(super) fn matrix_vector(leaf: &Leaf, settings: Settings) -> Vec<Step> {
    let (matrix, vector) = (&leaf.a, &leaf.b);
    let (rows, columns) = (matrix.size[0], matrix.size[1]);
    let mut steps = Vec::new();
    if leaf.addend.is_some() && !leaf.in_place {
        steps.push(Step::Copy { operand: "self", why: "into the result, which the product is added to".into() });
    }
    if rows == 0 || columns == 0 {
        steps.push(Step::Fill);
        return steps;
    }
    let mut incx = vector.stride[0];
    if incx == 0 {
        if vector.size[0] > 1 {
            steps.push(Step::Copy { operand: "vec", why: "a stride of 0 repeats one element".into() });
        }
        incx = 1;
    }
    let stride = &matrix.stride;
    let (trans, m, n, lda) = if stride[0] == 1 && stride[1] >= rows.max(1) {
        (Trans::N, rows, columns, stride[1])
    } else if stride[1] == 1 && stride[0] >= columns.max(1) {
        (Trans::T, columns, rows, stride[0])
    } else {
        if !matrix.is_contiguous() {
            let why = "neither of its strides is a leading dimension the library takes".into();
            steps.push(Step::Copy { operand: "mat", why });
        }
        (Trans::T, columns, rows, columns.max(1))
    };
    let call = match (matrix.dtype, settings.stack) {
        (DType::F32 | DType::F64 | DType::C64 | DType::C128, stack) => {
            let lda = if n <= 1 { m.max(1) } else { lda };
            let (library, routine) = gemv_routine(matrix.dtype, stack);
            BlasCall { library, routine, arguments: Arguments::Gemv { trans, m, n, lda, incx, incy: 1 } }
        }
        (dtype, _) => {
            let (outputs, inputs) = if trans == Trans::T { (n, m) } else { (m, n) };
            let transb = if trans == Trans::T { Trans::N } else { Trans::T };
            let mut gemm = Gemm {
                transa: Trans::N,
                transb,
                m: 1,
                n: outputs,
                k: inputs,
                lda: incx,
                ldb: lda,
                ldc: 1,
                batch: None,
                epilogue: None,
                beta: leaf.addend.map_or(0.0, |_| leaf.beta),
                compute_type: None,
            };
            gemm.settle_leading_dimensions();
            BlasCall::gemm(&gemm, dtype, settings)
        }
    };
    steps.push(Step::Blas(call));
    steps
}

fn gemv_routine(dtype: DType, stack: Stack) -> (&'static str, &'static str) {
    match (stack, dtype) {
        (Stack::Cuda, DType::F64) => ("cuBLAS", "cublasDgemv"),
        (Stack::Cuda, DType::C64) => ("cuBLAS", "cublasCgemv"),
        (Stack::Cuda, DType::C128) => ("cuBLAS", "cublasZgemv"),
        (Stack::Cuda, _) => ("cuBLAS", "cublasSgemv"),
        (Stack::Rocm, DType::F64) => ("hipBLAS", "hipblasDgemv"),
        (Stack::Rocm, DType::C64) => ("hipBLAS", "hipblasCgemv"),
        (Stack::Rocm, DType::C128) => ("hipBLAS", "hipblasZgemv"),
        (Stack::Rocm, _) => ("hipBLAS", "hipblasSgemv"),
    }
}

/// The inner product of two vectors.
pub(super) fn dot(leaf: &Leaf, settings: Settings) -> Vec<Step> {
    let n = leaf.a.size[0];
    let increment = |view: &View| if n == 1 { 1 } else { view.stride[0] };
    let (incx, incy) = (increment(&leaf.a), increment(&leaf.b));
    let (library, routine) = match (settings.stack, leaf.a.dtype) {
        (Stack::Cuda, DType::F64) => ("cuBLAS", "cublasDdot"),
        (Stack::Cuda, DType::F32) => ("cuBLAS", "cublasSdot"),
        (Stack::Cuda, DType::C64) => ("cuBLAS", "cublasCdotu"),
        (Stack::Cuda, DType::C128) => ("cuBLAS", "cublasZdotu"),
        (Stack::Cuda, _) => ("cuBLAS", "cublasDotEx"),
        (Stack::Rocm, DType::F64) => ("hipBLAS", "hipblasDdot"),
        (Stack::Rocm, DType::F32) => ("hipBLAS", "hipblasSdot"),
        (Stack::Rocm, DType::C64) => ("hipBLAS", "hipblasCdotu"),
        (Stack::Rocm, DType::C128) => ("hipBLAS", "hipblasZdotu"),
        (Stack::Rocm, _) => ("hipBLAS", "hipblasDotEx"),
    };
    vec![Step::Blas(BlasCall { library, routine, arguments: Arguments::Dot { n, incx, incy } })]
}
