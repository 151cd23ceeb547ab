//! Norms. They issue no product, but a gradient passes through their layout.

use crate::declaration::NormKind;
use crate::tape::{Tape, Var};
use gemwright_core::{DType, View};

/// A norm over the last dimension.
pub fn norm(tape: &mut Tape, x: Var, kind: NormKind) -> Var {
    let dtype = tape.view(x).dtype;
    match kind {
        NormKind::Layer => tape.rows(x, dtype),
        NormKind::Rms | NormKind::LayerWithoutBias => by_hand(tape, x, dtype),
    }
}

/// weight · x / root of the mean of squares, in f32 until the weight.
fn by_hand(tape: &mut Tape, x: Var, dtype: DType) -> Var {
    let wide = tape.cast(x, DType::F32.promote(dtype));
    let squares = tape.map(wide);
    let mean = tape.mean(squares);
    let guarded = tape.scale(mean);
    let inverse_root = tape.map(guarded);
    let normed = tape.mul(wide, inverse_root);
    let normed = tape.cast(normed, dtype);
    let view = tape.view(x);
    let weight = tape.input(View::contiguous(&view.size[view.rank() - 1..], dtype));
    tape.mul(weight, normed)
}
