//! A linear layer: when it flattens, when it copies, when its bias is part of the product.

use crate::architecture::Linear;
use crate::declaration::LinearWay;
use crate::tape::{Tape, Var};
use gemwright_core::{DType, View};
use std::sync::Arc;

/// x · W^T + bias over the last dimension of `x`, issued by `module`.
pub fn linear(tape: &mut Tape, x: Var, layer: &Linear, module: &Arc<str>, dtype: DType) -> Var {
    tape.enter(module);
    let view = tape.view(x);
    let rows = view.elements() / layer.inputs;
    let mut out_size = view.size;
    let last = out_size.len() - 1;
    out_size[last] = layer.outputs;

    let stored = match layer.way {
        LinearWay::Conv1d => View::contiguous(&[layer.inputs, layer.outputs], dtype),
        _ => View::contiguous(&[layer.outputs, layer.inputs], dtype).t(),
    };
    let weight = tape.input(stored);
    let bias = layer.bias.then(|| tape.input(View::contiguous(&[layer.outputs], dtype)));
    // `linear` takes the bias into the product only where it need not copy to flatten.
    let fused = match layer.way {
        LinearWay::Linear => view.is_contiguous(),
        LinearWay::Matmul => false,
        LinearWay::Conv1d => true,
    };
    let flat = tape.reshape(x, &[rows, layer.inputs]);
    match bias {
        Some(bias) if fused => {
            let out = tape.addmm(bias, flat, weight);
            tape.reshape(out, &out_size)
        }
        _ => {
            let out = tape.mm(flat, weight);
            let out = tape.reshape(out, &out_size);
            bias.map_or(out, |bias| tape.add(out, bias))
        }
    }
}
