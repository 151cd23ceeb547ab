//! What steers the layers of a diffusion model: shifts, scales and gates from the time step and a class.

use super::{Run, join, linear};
use crate::architecture::{Condition, Linear};
use crate::tape::{Tape, Var};
use gemwright_core::View;

/// The rows that `projection`, at its own path, makes of the embedding of the layer at `path`: each
/// \[batch, 1, hidden\].
pub fn condition(
    tape: &mut Tape,
    facts: &Condition,
    path: &str,
    (projection, at): (&Linear, &str),
    run: &Run,
) -> Vec<Var> {
    let [first, second] = &facts.embedding;
    // The waves of the time step: nothing learns from them.
    let waves = tape.constant(View::contiguous(&[run.batch, first.inputs], run.dtype));
    let x = linear(tape, waves, first, &join(path, &first.at), run.dtype);
    let x = tape.map(x);
    let x = linear(tape, x, second, &join(path, &second.at), run.dtype);
    let class = tape.input(View::contiguous(&[run.batch, second.outputs], run.dtype));
    let x = tape.add(x, class);
    let x = tape.map(x);
    let rows = linear(tape, x, projection, &join(at, &projection.at), run.dtype);
    let count = (projection.outputs / projection.inputs) as usize;
    let rows = tape.split(rows, 1, &vec![projection.inputs; count]);
    rows.into_iter().map(|row| tape.unsqueeze(row, 1)).collect()
}

/// x · (1 + scale) + shift.
pub fn modulate(tape: &mut Tape, x: Var, shift: Var, scale: Var) -> Var {
    let scale = tape.scale(scale);
    let x = tape.mul(x, scale);
    tape.add(x, shift)
}
