//! The part of a layer that works on each token alone.

use super::{join, linear};
use crate::architecture::{Mlp, Up};
use crate::tape::{Tape, Var};
use gemwright_core::DType;

/// Up, activation, down, for the layer at `path`.
pub fn mlp(tape: &mut Tape, x: Var, mlp: &Mlp, path: &str, dtype: DType) -> Var {
    let path = join(path, &mlp.at);
    let at = |name: &str| join(&path, name);
    let inner = match &mlp.up {
        Up::Gated { gate, up } => {
            let gate = linear(tape, x, gate, &at(&gate.at), dtype);
            let gate = tape.map(gate);
            let up = linear(tape, x, up, &at(&up.at), dtype);
            tape.mul(gate, up)
        }
        Up::Fused(both) => {
            let out = linear(tape, x, both, &at(&both.at), dtype);
            let last = tape.view(out).rank() - 1;
            let pieces = tape.split(out, last, &[both.outputs / 2; 2]);
            let gate = tape.map(pieces[0]);
            tape.mul(pieces[1], gate)
        }
        Up::Plain(up) => {
            let up = linear(tape, x, up, &at(&up.at), dtype);
            tape.map(up)
        }
    };
    linear(tape, inner, &mlp.down, &at(&mlp.down.at), dtype)
}
