//! A state that runs over the tokens, in place of attention: Mamba, and its successor with heads.
//! As transformers runs them without kernels of their own.

use super::convolution::convolution;
use super::{Run, join, linear};
use crate::architecture::{Convolution, Linear, Scan, StateSpace};
use crate::tape::{Tape, Var};
use gemwright_core::View;

/// Input projection, convolution, scan, output projection.
pub fn state_space(tape: &mut Tape, x: Var, facts: &StateSpace, path: &str, run: &Run) -> Var {
    let path = join(path, &facts.at);
    let out = match &facts.scan {
        Scan::Channels { x: narrow, dt } => by_channel(tape, x, facts, narrow, dt, &path, run),
        Scan::Heads { heads, .. } => by_head(tape, x, facts, *heads, &path, run),
    };
    linear(tape, out, &facts.out, &join(&path, "out_proj"), run.dtype)
}

/// One new token against a state that was kept.
fn steps(run: &Run) -> bool {
    run.cache.is_some() && run.past > 0 && run.queries == 1
}

/// \[batch, channels, tokens\] after the convolution along the tokens.
fn convolve(tape: &mut Tape, x: Var, facts: &StateSpace, path: &str, run: &Run) -> Var {
    let size = tape.view(x).size;
    let kept = |length: i64| View::contiguous(&size.set(2, length), run.dtype);
    let (mut x, mut padding, mut length) = (x, facts.kernel - 1, run.queries);
    if steps(run) {
        x = tape.constant(kept(facts.kernel + 1));
        padding = 0;
    } else if run.cache.is_some() && run.queries < facts.kernel {
        // A short prompt is filled up to the length of the state.
        length = facts.kernel;
        x = tape.constant(kept(length));
    }
    let operands = Convolution {
        at: String::new(),
        inputs: facts.convolved,
        outputs: facts.convolved,
        kernel: facts.kernel,
        stride: 1,
        padding,
        groups: facts.convolved,
        bias: facts.convolution_bias,
        norm: None,
    };
    let out = convolution(tape, x, &operands, &join(path, ""), run.dtype);
    let out = tape.narrow(out, 2, length);
    let out = tape.map(out);
    tape.narrow(out, 2, run.queries)
}

/// Each channel has a time step of its own, and its state is read out by a product for every token.
fn by_channel(tape: &mut Tape, x: Var, facts: &StateSpace, narrow: &Linear, dt: &Linear, path: &str, run: &Run) -> Var {
    let projected = linear(tape, x, &facts.input, &join(path, "in_proj"), run.dtype);
    let projected = tape.transpose(projected, 1, 2);
    let pieces = tape.split(projected, 1, &[facts.inner; 2]);
    let (inner, gate) = (pieces[0], pieces[1]);
    let inner = convolve(tape, inner, facts, path, run);
    let tokens = tape.transpose(inner, 1, 2);
    let parameters = linear(tape, tokens, narrow, &join(path, "x_proj"), run.dtype);
    let parts = tape.split(parameters, 2, &[dt.inputs, facts.state, facts.state]);
    // The weight times the steps, without the module and its bias: matmul turns it into this.
    let without_bias = Linear { bias: false, ..dt.clone() };
    let times = linear(tape, parts[0], &without_bias, &join(path, ""), run.dtype);
    let times = tape.transpose(times, 1, 2);
    let state_size = [run.batch, facts.inner, facts.state];
    let state = tape.gather(&[times, parts[1], inner], &state_size);
    let read = tape.select(parts[2], 1);
    let read = tape.unsqueeze(read, 2);
    let column = tape.repeated(run.queries, |tape| tape.matmul(state, read));
    let out = tape.gather(&[column], &[run.batch, facts.inner, run.queries]);
    let skipped = tape.map(inner);
    let out = tape.add(out, skipped);
    let gate = tape.map(gate);
    let out = tape.mul(out, gate);
    tape.transpose(out, 1, 2)
}

/// Each head has one time step. A prompt is scanned by pointwise operations; a step is a product.
fn by_head(tape: &mut Tape, x: Var, facts: &StateSpace, heads: i64, path: &str, run: &Run) -> Var {
    let projected = linear(tape, x, &facts.input, &join(path, "in_proj"), run.dtype);
    let pieces = tape.split(projected, 2, &[facts.inner, facts.convolved, heads]);
    let inner = tape.transpose(pieces[1], 1, 2);
    let inner = convolve(tape, inner, facts, path, run);
    let size = [run.batch, run.queries, facts.inner];
    if !steps(run) {
        return tape.gather(&[inner, pieces[0], pieces[2]], &size);
    }
    let view = |size: &[i64]| View::contiguous(size, run.dtype);
    let flat = run.batch * heads;
    let state = tape.constant(view(&[flat, facts.inner / heads, facts.state]));
    let read = tape.constant(view(&[flat, facts.state, 1]));
    let column = tape.bmm(state, read);
    tape.reshape(column, &size)
}
