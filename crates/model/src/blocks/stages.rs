//! Networks made of convolutions.

use super::convolution::convolution;
use super::{Run, join, linear};
use crate::architecture::{ConvLayer, ConvStep, Convolution, Stages};
use crate::tape::{Tape, Var};
use gemwright_core::View;

/// From an image to \[images, channels, height, width\] of the last stage.
pub fn stages(tape: &mut Tape, facts: &Stages, run: &Run) -> (Var, Var) {
    let size = [run.batch, facts.channels, run.image, run.image];
    let image = tape.constant(View::contiguous(&size, run.dtype));
    let mut x = steps(tape, image, &facts.stem, "", run);
    for stage in &facts.list {
        let path = join(&facts.at, "*");
        x = steps(tape, x, &stage.before, &path, run);
        for layer in 0..stage.depth {
            let facts = if layer == 0 { &stage.first } else { &stage.rest };
            x = one(tape, x, facts, &join(&path, "layers.*"), run);
        }
    }
    (image, x)
}

/// A layer: its steps, and its input added again.
fn one(tape: &mut Tape, x: Var, layer: &ConvLayer, path: &str, run: &Run) -> Var {
    let out = steps(tape, x, &layer.steps, path, run);
    let residual = match &layer.shortcut {
        Some(shortcut) => normed_convolution(tape, x, shortcut, path, run),
        None => x,
    };
    let out = tape.add(residual, out);
    if layer.activated { tape.map(out) } else { out }
}

/// Channels come second; linear layers need them last, and what follows them in a layer stays so.
fn steps(tape: &mut Tape, mut x: Var, list: &[ConvStep], path: &str, run: &Run) -> Var {
    let mut last = false;
    for (i, step) in list.iter().enumerate() {
        let before_linear = |list: &[ConvStep]| list.iter().any(|step| matches!(step, ConvStep::Linear(_)));
        match step {
            ConvStep::Convolution(facts) => x = normed_convolution(tape, x, facts, path, run),
            ConvStep::Linear(facts) => x = linear(tape, x, facts, &join(path, &facts.at), run.dtype),
            ConvStep::Norm { .. } => {
                if !last {
                    x = channels_last(tape, x);
                }
                last = before_linear(&list[i..]);
                x = tape.rows(x, run.dtype);
                if !last {
                    x = channels_second(tape, x);
                }
            }
            ConvStep::Activation => x = tape.map(x),
            ConvStep::MaxPool => {
                let size = tape.view(x).size;
                let half = |n: i64| (n - 1) / 2 + 1;
                x = tape.gather(&[x], &[size[0], size[1], half(size[2]), half(size[3])]);
            }
        }
    }
    if last { channels_second(tape, x) } else { x }
}

fn normed_convolution(tape: &mut Tape, x: Var, facts: &Convolution, path: &str, run: &Run) -> Var {
    let x = convolution(tape, x, facts, &join(path, &facts.at), run.dtype);
    if facts.norm.is_some() { tape.rows(x, run.dtype) } else { x }
}

fn channels_last(tape: &mut Tape, x: Var) -> Var {
    let x = tape.transpose(x, 1, 2);
    tape.transpose(x, 2, 3)
}

fn channels_second(tape: &mut Tape, x: Var) -> Var {
    let x = tape.transpose(x, 2, 3);
    tape.transpose(x, 1, 2)
}
