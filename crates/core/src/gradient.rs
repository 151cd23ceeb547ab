//! The two products of a product's backward pass, as PyTorch's derivative formulas write them.

use crate::View;

/// first · second, and whether the gradient is that result transposed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct GradientProduct {
    pub first: View,
    pub second: View,
    pub transposed: bool,
}

/// The gradients of `a` and of `b` in a · b, two matrices, for the gradient `g` of the result.
///
/// That of a column-major operand is computed transposed, so that it comes out column-major too:
/// this is why a linear layer's dW is g^T · x.
pub fn matrix_gradients(a: &View, b: &View, g: &View) -> [GradientProduct; 2] {
    let column_major = |x: &View| x.stride[0] == 1 && x.stride[1] == x.size[0];
    let product = |first, second, transposed| GradientProduct { first, second, transposed };
    let of_a = if column_major(a) { product(*b, g.t(), true) } else { product(*g, b.t(), false) };
    let of_b = if column_major(b) { product(g.t(), *a, true) } else { product(a.t(), *g, false) };
    [of_a, of_b]
}

/// The same for batches of matrices, which are never computed transposed.
pub fn batch_gradients(a: &View, b: &View, g: &View) -> [GradientProduct; 2] {
    let product = |first, second| GradientProduct { first, second, transposed: false };
    [product(*g, b.t()), product(a.t(), *g)]
}

/// The gradients of the rows `a` and of the stacked matrices `b` of a grouped product.
pub fn grouped_gradients(a: &View, b: &View, g: &View) -> [GradientProduct; 2] {
    let column_major = b.stride[1] == 1 && b.stride[2] == b.size[1];
    let of_b = if column_major { (g.t(), *a) } else { (a.t(), *g) };
    let product = |(first, second), transposed| GradientProduct { first, second, transposed };
    [product((*g, b.t()), false), product(of_b, column_major)]
}
