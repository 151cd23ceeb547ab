//! The start of a vision model.

use super::{Run, join};
use crate::architecture::Patches;
use crate::tape::{Tape, Var};
use gemwright_core::{Convolution, View};

/// An image as tokens: a convolution whose steps are as wide as its kernel, a token before them, positions.
pub fn cut_image(tape: &mut Tape, patches: &Patches, hidden: i64, run: &Run) -> (Var, Var) {
    tape.enter(&join("", &patches.at));
    let side = patches.side;
    let along = run.image / side;
    let view = |size: &[i64]| View::contiguous(size, run.dtype);
    let input = view(&[run.batch, patches.channels, run.image, run.image]);
    let (weight, bias) = (view(&[hidden, patches.channels, side, side]), view(&[hidden]));
    let out = view(&[run.batch, hidden, along, along]);
    let convolution = Convolution {
        input,
        weight,
        bias: Some(bias),
        out,
        stride: [side; 2],
        padding: [0; 2],
        dilation: [1; 2],
        groups: 1,
        wanted: [false; 3],
    };
    let (weight, bias) = (tape.input(weight), tape.input(bias));
    let image = tape.constant(input);
    let cut = tape.convolution(weight, Some(bias), convolution);
    let cut = tape.reshape(cut, &[run.batch, hidden, along * along]);
    let cut = tape.transpose(cut, 1, 2);
    let whole = tape.input(view(&[1, 1, hidden]).expand(&[run.batch, 1, hidden]));
    let tokens = tape.cat(&[whole, cut], 1);
    let positions = tape.input(view(&[1, run.queries, hidden]));
    (image, tape.add(tokens, positions))
}
