//! mm, addmm and their quantised kin: one two-dimensional product.

use super::{Activation, BlasCall, Gemm, Leaf, LeafOp, Settings, Stack, Step, Trans, lt_compute_type};
use crate::{DType, View};

/// A two-dimensional operand as the library can take it.
struct Prepared {
    row_major: bool,
    view: View,
    copied: Option<String>,
}

/// Row-major, column-major, or a row-major copy.
fn prepare(view: &View) -> Prepared {
    let (size, stride) = (&view.size, &view.stride);
    let as_it_is = |row_major| Prepared { row_major, view: *view, copied: None };
    if is_dense(view) {
        return as_it_is(view.is_contiguous());
    }
    if stride[0] == 1 && stride[1] >= size[0].max(1) {
        return as_it_is(false);
    }
    if stride[1] == 1 && stride[0] >= size[1].max(1) {
        return as_it_is(true);
    }
    let why = match (stride[0], stride[1]) {
        (0, _) | (_, 0) => "a stride of 0 repeats elements, which a leading dimension cannot say",
        (1, _) | (_, 1) => "its rows overlap: the leading dimension would be shorter than a row",
        _ => "neither stride is 1, and the library steps over one dimension only",
    };
    Prepared { row_major: true, view: View::contiguous(size, view.dtype), copied: Some(why.into()) }
}

/// Dense in some order of the dimensions; an empty tensor is.
fn is_dense(view: &View) -> bool {
    view.size.contains(&0) || view.is_contiguous() || view.is_dense()
}

/// The arguments of a product, and the copies before it. `out` is the result.
struct Product {
    gemm: Gemm,
    copies: Vec<Step>,
    result_copied: bool,
}

fn product(a: &View, b: &View, out: &View) -> Product {
    let result = prepare(out);
    // A row-major result is a column-major transpose: the operands change places.
    let (first, second, names) = if result.row_major { (b, a, ["mat2", "mat1"]) } else { (a, b, ["mat1", "mat2"]) };
    let (left, right) = (prepare(first), prepare(second));
    let transposed = |x: &Prepared| x.row_major != result.row_major;
    let leading = |x: &Prepared| if x.row_major { x.view.stride[0] } else { x.view.stride[1] };
    let (m, k, n) = if result.row_major {
        (first.size[1], first.size[0], second.size[0])
    } else {
        (first.size[0], first.size[1], second.size[1])
    };
    let gemm = Gemm {
        transa: Trans::when(transposed(&left)),
        transb: Trans::when(transposed(&right)),
        m,
        n,
        k,
        lda: leading(&left),
        ldb: leading(&right),
        ldc: leading(&result),
        batch: None,
        epilogue: None,
        beta: 0.0,
        compute_type: None,
    };
    let copy = |(operand, prepared): (&'static str, Prepared)| prepared.copied.map(|why| Step::Copy { operand, why });
    let copies = names.into_iter().zip([left, right]).filter_map(copy).collect();
    Product { gemm, copies, result_copied: result.copied.is_some() }
}

/// Whether addmm goes to the Lt library, and whether its bias becomes an epilogue there.
struct LtPath {
    taken: bool,
    fused: bool,
}

fn lt_path(leaf: &Leaf, out: &View, settings: Settings) -> LtPath {
    let no = LtPath { taken: false, fused: false };
    let Some(bias) = leaf.addend else { return no };
    let dtype = leaf.a.dtype;
    let known = match settings.stack {
        Stack::Cuda => matches!(dtype, DType::F64 | DType::F32 | DType::F16 | DType::Bf16),
        Stack::Rocm => matches!(dtype, DType::F32 | DType::F16 | DType::Bf16),
    };
    let (k, n) = (leaf.b.size[0], leaf.b.size[1]);
    if leaf.beta != 1.0 || !known || leaf.in_place || !out.is_contiguous() || k <= 1 || n <= 1 {
        return no;
    }
    let last = bias.size.last().copied().unwrap_or(0);
    let one_wide = bias.rank() == 1 || bias.size.iter().filter(|&&x| x != 1).count() == 1;
    let vector = bias.is_contiguous() && one_wide && last == n;
    let activated = matches!(leaf.op, LeafOp::AddmmActivation(_)) && bias.rank() == 2;
    match settings.stack {
        Stack::Cuda => {
            let taken = vector || activated;
            LtPath { taken, fused: taken && bias.rank() == 1 && !leaf.wide_out }
        }
        // Only a true vector is fused on ROCm, and never into a wider result.
        Stack::Rocm => {
            let taken = vector && bias.rank() == 1 && !leaf.wide_out;
            LtPath { taken, fused: taken }
        }
    }
}

/// mm, addmm, _addmm_activation.
pub(super) fn steps(leaf: &Leaf, settings: Settings) -> Vec<Step> {
    let size = [leaf.a.size[0], leaf.b.size[1]];
    let out = leaf.out.unwrap_or_else(|| View::contiguous(&size, leaf.a.dtype));
    let lt = lt_path(leaf, &out, settings);
    let adds = leaf.addend.is_some() && leaf.beta != 0.0;
    let mut steps = Vec::new();
    if adds && !lt.fused && !leaf.in_place {
        let why = bias_copy_reason(leaf, &lt);
        steps.push(Step::Copy { operand: "self", why });
    }
    if size.contains(&0) {
        return steps;
    }
    if leaf.a.size[1] == 0 {
        steps.push(Step::Fill);
        return steps;
    }
    let mut product = product(&leaf.a, &leaf.b, &out);
    steps.append(&mut product.copies);
    let mut gemm = product.gemm;
    gemm.beta = if adds && !lt.fused { leaf.beta } else { 0.0 };
    let call = if lt.taken {
        gemm.epilogue = Some(epilogue(leaf, lt.fused));
        gemm.compute_type = Some(lt_compute_type(leaf.a.dtype));
        BlasCall::lt(gemm, settings.stack)
    } else {
        gemm.settle_leading_dimensions();
        BlasCall::gemm(&gemm, leaf.a.dtype, settings)
    };
    if product.result_copied {
        let why = "neither of its strides is 1, so it is computed elsewhere".into();
        steps.push(Step::Copy { operand: "result", why });
    }
    steps.push(Step::Blas(call));
    if product.result_copied {
        steps.push(Step::Copy { operand: "result", why: "and copied back".into() });
    }
    steps
}

fn epilogue(leaf: &Leaf, fused: bool) -> String {
    let mut name = "EPILOGUE".to_string();
    if let LeafOp::AddmmActivation(activation) = leaf.op {
        name += match activation {
            Activation::Relu => "_RELU",
            Activation::Gelu => "_GELU",
        };
    }
    if fused {
        name += "_BIAS";
    }
    if name == "EPILOGUE" { "EPILOGUE_DEFAULT".into() } else { name }
}

fn bias_copy_reason(leaf: &Leaf, lt: &LtPath) -> String {
    let (k, n) = (leaf.b.size[0], leaf.b.size[1]);
    let why = match leaf.addend {
        _ if lt.taken => "a bias with two dimensions is added as C, not by the epilogue",
        _ if leaf.beta != 1.0 => "beta is not 1, so the bias is added as C",
        _ if n <= 1 || k <= 1 => "with N = 1 or K = 1 PyTorch does not use the bias epilogue",
        Some(bias) if !bias.is_contiguous() => "the bias has gaps, so it is added as C",
        _ => "only a bias of N values becomes an epilogue",
    };
    format!("into the result: {why}")
}

/// `_scaled_mm` and `_int_mm`: always the Lt library.
pub(super) fn quantised_steps(leaf: &Leaf, settings: Settings) -> Vec<Step> {
    let size = [leaf.a.size[0], leaf.b.size[1]];
    if size.contains(&0) || leaf.a.size[1] == 0 {
        return Vec::new();
    }
    let product = product(&leaf.a, &leaf.b, &View::contiguous(&size, leaf.a.dtype));
    let mut gemm = product.gemm;
    let integer = leaf.op == LeafOp::IntMm;
    let biased = !integer && leaf.addend.is_some_and(|bias| bias.rank() == 1);
    gemm.epilogue = Some(if biased { "EPILOGUE_BIAS" } else { "EPILOGUE_DEFAULT" }.into());
    gemm.compute_type = Some(if integer { "COMPUTE_32I" } else { "COMPUTE_32F" });
    let mut steps = product.copies;
    steps.push(Step::Blas(BlasCall::lt(gemm, settings.stack)));
    steps
}
