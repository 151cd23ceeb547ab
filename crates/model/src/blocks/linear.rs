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

    let held = layer.stored.map_or(dtype, |format| format.dtype());
    let stored = match layer.way {
        LinearWay::Conv1d => View::contiguous(&[layer.inputs, layer.outputs], held),
        _ => View::contiguous(&[layer.outputs, layer.inputs], held).t(),
    };
    let weight = tape.input(stored);
    let bias = layer.bias.then(|| tape.input(View::contiguous(&[layer.outputs], dtype)));
    // `linear` takes the bias into the product where there is nothing to flatten, or flattening needs no copy.
    let fused = match layer.way {
        LinearWay::Linear => view.rank() == 2 || view.is_contiguous(),
        LinearWay::Matmul => false,
        LinearWay::Conv1d => true,
    };
    // A matrix is passed as it is: a reshape would rewrite the stride of its only row.
    let matrix = view.rank() == 2 && layer.way != LinearWay::Conv1d;
    let flat = if matrix { x } else { tape.reshape(x, &[rows, layer.inputs]) };
    let scales = layer.stored.map(|format| format.scales(&[layer.outputs, layer.inputs], dtype));
    let product = |tape: &mut Tape, bias: Option<Var>| {
        let out = match bias {
            Some(bias) => tape.addmm(bias, flat, weight),
            None => tape.mm(flat, weight),
        };
        scales.into_iter().for_each(|scales| tape.scaled_weight(scales));
        out
    };
    match bias {
        Some(bias) if fused => {
            let out = product(tape, Some(bias));
            tape.reshape(out, &out_size)
        }
        _ => {
            let out = product(tape, None);
            let out = tape.reshape(out, &out_size);
            bias.map_or(out, |bias| tape.add(out, bias))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gemwright_core::blas::{Lowered, lower_linear};
    use gemwright_core::{Op, Operands};

    /// What stands here and what `core` says of `linear` in general must not drift apart.
    #[test]
    fn a_layer_issues_what_linear_becomes() {
        let contiguous = |size: &[i64]| View::contiguous(size, DType::Bf16);
        let inputs = [
            contiguous(&[6, 8]),
            contiguous(&[2, 3, 8]),
            contiguous(&[2, 3, 8]).narrow(1, 1),
            contiguous(&[3, 2, 8]).transpose(0, 1),
            contiguous(&[1, 1, 8]),
            contiguous(&[4, 3, 8]).select(1),
            contiguous(&[1, 3, 8]).select(1),
        ];
        for x in inputs {
            for bias in [false, true] {
                let way = LinearWay::Linear;
                let layer = Linear { at: "l".into(), inputs: 8, outputs: 5, bias, way, stored: None };
                let mut tape = Tape::new(false);
                let input = tape.input(x);
                linear(&mut tape, input, &layer, &"l".into(), DType::Bf16);
                let bias_view = contiguous(&[5]);
                let lowered = lower_linear(&x, &contiguous(&[5, 8]), bias.then_some(&bias_view), true);
                let leaf = lowered.iter().find_map(|step| match step {
                    Lowered::Leaf(leaf) => Some(leaf),
                    _ => None,
                });
                let leaf = leaf.expect("linear is a product");
                let call = &tape.calls()[0];
                let Operands::Product { a, b, bias, .. } = call.operands else { panic!("linear is a product") };
                assert_eq!((call.op.name(), a, b, bias), (leaf.name(), leaf.a, leaf.b, leaf.addend), "{x}");
                assert_eq!(call.op == Op::Addmm, leaf.addend.is_some());
            }
        }
    }
}
