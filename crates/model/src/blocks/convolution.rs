//! A convolution and its parameters.

use crate::architecture::Convolution as Facts;
use crate::tape::{Tape, Var};
use gemwright_core::{Convolution, DType, Dims, View};
use std::sync::Arc;

/// `x` is \[images, channels, height, width\] or \[sequences, channels, length\].
pub fn convolution(tape: &mut Tape, x: Var, facts: &Facts, module: &Arc<str>, dtype: DType) -> Var {
    tape.enter(module);
    let input = tape.view(x);
    let places = input.rank() - 2;
    let all = |n: i64| Dims::filled(places, n);
    let size = [&[facts.outputs, facts.inputs / facts.groups], &all(facts.kernel)[..]].concat();
    let weight = View::contiguous(&size, dtype);
    let bias = facts.bias.then(|| View::contiguous(&[facts.outputs], dtype));
    let operands = Convolution {
        input,
        weight,
        bias,
        out: input,
        stride: all(facts.stride),
        padding: all(facts.padding),
        dilation: all(1),
        groups: facts.groups,
        wanted: [false; 3],
    };
    let weight = tape.input(weight);
    let bias = bias.map(|bias| tape.input(bias));
    tape.convolution(x, weight, bias, operands)
}
