//! bmm and baddbmm. Their operands are judged by raw strides, without the test for density that mm
//! makes first, and a result of one column is not transposed.

use super::{Batch, BlasCall, Gemm, Leaf, Settings, Step, Trans};
use crate::{Dims, View};

struct Prepared {
    transposed: bool,
    leading: i64,
    batch_stride: i64,
    copied: bool,
}

/// `swapped`: the result is sent as its transpose; `rows` and `columns` as the library sees the
/// operand untransposed.
fn prepare(view: &View, swapped: bool, rows: i64, columns: i64) -> Prepared {
    let stride = &view.stride;
    let (fast, lead) = if swapped { (2, 1) } else { (1, 2) };
    let as_it_is = |transposed, leading| Prepared { transposed, leading, batch_stride: stride[0], copied: false };
    if stride[fast] == 1 && stride[lead] >= rows.max(1) {
        return as_it_is(false, stride[lead]);
    }
    if stride[lead] == 1 && stride[fast] >= columns.max(1) {
        return as_it_is(true, stride[fast]);
    }
    if view.is_contiguous() && stride[1] != 0 && stride[2] != 0 {
        return as_it_is(!swapped, stride[1]);
    }
    let packed = View::contiguous(&view.size, view.dtype);
    Prepared { transposed: !swapped, leading: packed.stride[1], batch_stride: packed.stride[0], copied: true }
}

/// bmm, baddbmm.
pub(super) fn steps(leaf: &Leaf, settings: Settings) -> Vec<Step> {
    let (a, b) = (&leaf.a, &leaf.b);
    let size = [a.size[0], a.size[1], b.size[2]];
    if size.contains(&0) {
        return Vec::new();
    }
    let mut steps = Vec::new();
    let adds = leaf.addend.is_some() && leaf.beta != 0.0;
    if adds && !leaf.in_place {
        steps.push(Step::Copy { operand: "self", why: "into the result, which the product is added to".into() });
    }
    if a.size[2] == 0 {
        steps.push(Step::Fill);
        return steps;
    }
    let mut out = leaf.out.unwrap_or_else(|| View::contiguous(&size, a.dtype));
    let stride = out.stride;
    let plain = stride[1] == 1 && (size[2] == 1 || stride[2] >= size[1].max(1));
    let swapped = !plain && stride[2] == 1 && (size[1] == 1 || stride[1] >= size[2].max(1));
    let result_copied = !plain && !swapped;
    if result_copied {
        out.stride = Dims::new(&[size[1] * size[2], 1, size[1]]);
    }
    let lead = if swapped { 1 } else { 2 };
    let (m, n) = (size[if swapped { 2 } else { 1 }], size[lead]);
    let (first, second, names) = if swapped { (b, a, ["batch2", "batch1"]) } else { (a, b, ["batch1", "batch2"]) };
    let k = first.size[lead];
    let (left, right) = (prepare(first, swapped, m, k), prepare(second, swapped, k, n));
    for (operand, prepared) in names.into_iter().zip([&left, &right]) {
        if prepared.copied {
            let why = "neither of its last two strides is a leading dimension the library takes".into();
            steps.push(Step::Copy { operand, why });
        }
    }
    if result_copied {
        let why = "neither of its last two strides is 1, so it is computed elsewhere".into();
        steps.push(Step::Copy { operand: "result", why });
    }
    let mut gemm = Gemm {
        transa: Trans::when(left.transposed),
        transb: Trans::when(right.transposed),
        m,
        n,
        k,
        lda: left.leading,
        ldb: right.leading,
        ldc: out.stride[lead],
        batch: None,
        epilogue: None,
        beta: if adds { leaf.beta } else { 0.0 },
        compute_type: None,
    };
    gemm.settle_leading_dimensions();
    // A batch of one goes to the routine without a batch.
    gemm.batch = (size[0] != 1).then_some(Batch {
        a: left.batch_stride,
        b: right.batch_stride,
        c: out.stride[0],
        count: size[0],
    });
    steps.push(Step::Blas(BlasCall::gemm(&gemm, a.dtype, settings)));
    if result_copied {
        steps.push(Step::Copy { operand: "result", why: "and copied back".into() });
    }
    steps
}
