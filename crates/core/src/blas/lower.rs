//! linear and matmul: which leaf operations they become, and what that copies.

use super::{Leaf, LeafOp};
use crate::View;

/// One thing a composite operation does.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, clippy::large_enum_variant)] // a handful at a time
pub enum Lowered {
    /// A tensor is copied so that it can be flattened.
    Copy {
        operand: &'static str,
        why: String,
    },
    Leaf(Leaf),
    /// The bias is added by a kernel of its own.
    Add(View),
}

/// Reshaped, with whether that copied; an empty tensor never copies.
fn flat(view: &View, size: &[i64]) -> (View, bool) {
    if view.size.contains(&0) { (View::contiguous(size, view.dtype), false) } else { view.reshape(size) }
}

/// `torch.nn.functional.linear(x, w, bias)`, the weight as stored. `trained`: the weight, or what it
/// is a view of, requires a gradient; that decides even where no gradient is computed.
pub fn lower_linear(x: &View, w: &View, bias: Option<&View>, trained: bool) -> Vec<Lowered> {
    let wt = w.t();
    if let Some(bias) = bias {
        let one_wide = bias.rank() == 1 || bias.size.iter().filter(|&&n| n != 1).count() == 1;
        if x.rank() == 2 {
            return vec![Lowered::Leaf(Leaf::new(LeafOp::Addmm, *x, wt, Some(*bias)))];
        }
        if one_wide && bias.is_contiguous() && is_contiguous(x) {
            let last = x.rank() - 1;
            let rows = x.size[..last].iter().product();
            let (flat, _) = flat(x, &[rows, x.size[last]]);
            return vec![Lowered::Leaf(Leaf::new(LeafOp::Addmm, flat, wt, Some(*bias)))];
        }
    }
    let mut lowered = lower_matmul(x, &wt, false, trained);
    lowered.extend(bias.map(|bias| Lowered::Add(*bias)));
    lowered
}

/// An empty tensor is contiguous too.
fn is_contiguous(view: &View) -> bool {
    view.size.contains(&0) || view.is_contiguous()
}

/// `torch.matmul(a, b)`. `a_trained`, `b_trained`: the operand requires a gradient.
pub fn lower_matmul(a: &View, b: &View, a_trained: bool, b_trained: bool) -> Vec<Lowered> {
    let leaf = |op, a: View, b: View| vec![Lowered::Leaf(Leaf::new(op, a, b, None))];
    match (a.rank(), b.rank()) {
        (1, 1) => return leaf(LeafOp::Dot, *a, *b),
        (2, 1) => return leaf(LeafOp::Mv, *a, *b),
        (1, 2) => return leaf(LeafOp::Mm, a.unsqueeze(0), *b),
        (2, 2) => return leaf(LeafOp::Mm, *a, *b),
        _ => {}
    }
    let swap = b.rank() > a.rank();
    let (big, small) = if swap { (b.t(), *a) } else { (*a, *b) };
    if big.rank() >= 3 && small.rank() <= 2 && folds(a, &big, if swap { a_trained } else { b_trained }) {
        return fold(&big, &small, swap);
    }
    if a.rank() == 3 && b.rank() == 3 && a.size[0] != b.size[0] {
        // A trained matrix in a batch of one is taken out of it, so that it folds.
        if a.size[0] == 1 && a_trained {
            return lower_matmul(&a.select(0), b, a_trained, b_trained);
        }
        if b.size[0] == 1 && b_trained {
            return lower_matmul(a, &b.select(0), a_trained, b_trained);
        }
    }
    batched(a, b)
}

/// Whether one product over all rows is made of it.
fn folds(a: &View, big: &View, small_is_trained: bool) -> bool {
    if small_is_trained {
        return true;
    }
    if a.rank() == 2 {
        return false;
    }
    let nested = |i: usize| big.stride[i] == big.stride[i + 1] * big.size[i + 1];
    big.size.contains(&0) || (0..big.rank() - 2).all(nested)
}

fn fold(big: &View, small: &View, swap: bool) -> Vec<Lowered> {
    let last = big.rank() - 1;
    let rows = big.size[..last].iter().product();
    let (flat, copied) = flat(big, &[rows, big.size[last]]);
    let mut out = Vec::new();
    if copied {
        let operand = if swap { "b" } else { "a" };
        out.push(Lowered::Copy { operand, why: "its leading dimensions do not nest, so flattening copies it".into() });
    }
    let second = if swap && small.rank() == 2 { small.t() } else { *small };
    let op = if second.rank() == 2 { LeafOp::Mm } else { LeafOp::Mv };
    out.push(Lowered::Leaf(Leaf::new(op, flat, second, None)));
    if swap && second.rank() == 2 {
        out.push(Lowered::Copy { operand: "result", why: "it was computed transposed".into() });
    }
    out
}

/// Leading dimensions repeated to one another's, then one bmm over all of them.
fn batched(a: &View, b: &View) -> Vec<Lowered> {
    let lead = |x: &View| x.rank().saturating_sub(2);
    let count = lead(a).max(lead(b));
    let at = |x: &View, d: usize| {
        let missing = count - lead(x);
        if d < missing { 1 } else { x.size[d - missing] }
    };
    let widest = |(x, y): (i64, i64)| if x == 0 || y == 0 { 0 } else { x.max(y) };
    let batch: Vec<i64> = (0..count).map(|d| widest((at(a, d), at(b, d)))).collect();
    let all: i64 = batch.iter().product();
    let spread = |x: &View, own: &[i64]| flat(&x.expand(&[&batch[..], own].concat()), &[&[all], own].concat());
    let columns = a.size[a.rank() - 1];
    let rows = if a.rank() > 1 { a.size[a.rank() - 2] } else { 1 };
    let (left, left_copied) =
        if a.rank() == 1 { spread(&a.unsqueeze(0), &[1, columns]) } else { spread(a, &[rows, columns]) };
    let (right, right_copied) = if b.rank() == 1 {
        let (vector, copied) = spread(b, &[b.size[0]]);
        (View { size: vector.size.with(2, 1), stride: vector.stride.with(2, 1), ..vector }, copied)
    } else {
        spread(b, &b.size[b.rank() - 2..])
    };
    let mut out = Vec::new();
    for (operand, copied) in [("a", left_copied), ("b", right_copied)] {
        if copied {
            let why = "its leading dimensions do not merge into one batch without a copy".into();
            out.push(Lowered::Copy { operand, why });
        }
    }
    out.push(Lowered::Leaf(Leaf::new(LeafOp::Bmm, left, right, None)));
    out
}
