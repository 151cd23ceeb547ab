//! What makes two calls the same product: the operation, sizes, strides and element types. A trace
//! cannot tell the module, so it does not count; attention is the same whatever its strides.

use gemwright_core::{Attention, Call, Convolution, Dims, Op, Operands, View};

/// Equal for calls that are the same product.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Key {
    op: Op,
    views: Vec<Option<View>>,
    /// Of a convolution: stride, padding, dilation.
    steps: Vec<Dims>,
    /// Of a convolution, its groups; of attention, whether it is causal.
    number: i64,
}

impl Key {
    /// Of a call.
    pub fn of(call: &Call) -> Key {
        let plain = |views: Vec<Option<View>>| Key { op: call.op, views, steps: Vec::new(), number: 0 };
        match &call.operands {
            Operands::Product { a, b, bias, .. } => plain(vec![Some(*a), Some(*b), *bias, call.scales]),
            Operands::Grouped { a, b, offs, .. } => plain(vec![Some(*a), Some(*b), Some(*offs), call.scales]),
            Operands::Convolution(Convolution {
                input, weight, bias, out, stride, padding, dilation, groups, ..
            }) => {
                let grad = (call.op == Op::ConvolutionBackward).then_some(*out);
                let views = vec![Some(*input), Some(*weight), *bias, grad];
                Key { op: call.op, views, steps: vec![*stride, *padding, *dilation], number: *groups }
            }
            Operands::Attention(Attention { q, k, v, mask, is_causal, .. }) => {
                let sized = |view: &View| View::contiguous(&view.size, view.dtype);
                let views = vec![Some(sized(q)), Some(sized(k)), Some(sized(v)), mask.as_ref().map(sized)];
                Key { op: call.op, views, steps: Vec::new(), number: i64::from(*is_causal) }
            }
        }
    }
}
