//! The start of a model that reads an image or a spectrogram.

use super::convolution::convolution;
use super::{Run, join};
use crate::architecture::{Convolution, Features, Patches};
use crate::tape::{Tape, Var};
use gemwright_core::View;

/// An image as tokens: a convolution whose steps are as wide as its kernel, a token for the whole
/// before them, positions.
pub fn cut_image(tape: &mut Tape, patches: &Patches, hidden: i64, run: &Run) -> (Var, Var) {
    let view = |size: &[i64]| View::contiguous(size, run.dtype);
    let image = tape.constant(view(&[run.batch, patches.channels, run.image, run.image]));
    let cut = Convolution {
        at: patches.at.clone(),
        inputs: patches.channels,
        outputs: hidden,
        kernel: patches.side,
        stride: patches.side,
        padding: 0,
        groups: 1,
        bias: patches.bias,
        norm: None,
    };
    let cut = convolution(tape, image, &cut, &join("", &patches.at), run.dtype);
    let along = run.image / patches.side;
    let cut = tape.reshape(cut, &[run.batch, hidden, along * along]);
    let cut = tape.transpose(cut, 1, 2);
    if !patches.whole {
        return (image, as_tokens(tape, cut));
    }
    let whole = tape.input(view(&[1, 1, hidden]).expand(&[run.batch, 1, hidden]));
    let tokens = tape.cat(&[whole, cut], 1);
    let positions = tape.input(view(&[1, run.queries, hidden]));
    (image, tape.add(tokens, positions))
}

/// A spectrogram as tokens: convolutions along the time, each with an activation.
pub fn read_features(tape: &mut Tape, features: &Features, run: &Run) -> (Var, Var) {
    let size = [run.batch, features.channels, features.length];
    let input = tape.constant(View::contiguous(&size, run.dtype));
    let mut x = input;
    for facts in &features.convolutions {
        x = convolution(tape, x, facts, &join("", &facts.at), run.dtype);
        x = tape.map(x);
    }
    let tokens = tape.transpose(x, 1, 2);
    (input, as_tokens(tape, tokens))
}

/// Row-major, as parts of a model hand tokens on. Positions are added to them without a copy; but
/// what reads the sum is a norm, to which its layout is nothing.
fn as_tokens(tape: &mut Tape, x: Var) -> Var {
    tape.contiguous(x)
}
