//! A router, the experts it chooses, and an expert that every token passes.

use super::{Run, join, linear, mlp};
use crate::architecture::{Experts, Linear};
use crate::declaration::Stored;
use crate::options::ExpertsWay;
use crate::tape::{Tape, Var};
use gemwright_core::{DType, View};

/// The experts of the layer at `path`, for the hidden state of all tokens.
pub fn experts(tape: &mut Tape, x: Var, facts: &Experts, path: &str, run: &Run) -> Var {
    let path = join(path, &facts.at);
    let size = tape.view(x).size;
    let (tokens, hidden) = (run.batch * run.queries, size[2]);
    let rows = tape.reshape(x, &[tokens, hidden]);
    let shared = |tape: &mut Tape, x: Var| facts.shared.as_ref().map(|s| mlp(tape, x, &s.mlp, &path, run.dtype));
    let first = facts.shared.as_ref().is_some_and(|s| s.first);
    let mut beside = if first { shared(tape, rows) } else { None };
    let scores = route(tape, rows, facts, &path, run);
    tape.enter(&join(&path, &facts.stacked));
    let found = match run.experts {
        ExpertsWay::Grouped => grouped(tape, rows, facts, run),
        ExpertsWay::Batched => batched(tape, rows, facts, run),
    };
    let mut out = tape.gather(&[found, scores], &[tokens, hidden]);
    if !first {
        out = tape.reshape(out, &size);
        beside = shared(tape, x);
    }
    if let Some(beside) = beside {
        let gate = facts.shared.as_ref().and_then(|s| s.gate.as_ref());
        let beside = gate.map_or(beside, |gate| gated(tape, rows, beside, gate, &path, run));
        out = tape.add(out, beside);
    }
    tape.reshape(out, &size)
}

/// sigmoid(gate(x)) · what the shared expert gave.
fn gated(tape: &mut Tape, x: Var, beside: Var, gate: &Linear, path: &str, run: &Run) -> Var {
    let open = linear(tape, x, gate, &join(path, &gate.at), run.dtype);
    let open = tape.map(open);
    tape.mul(open, beside)
}

/// A score for each token and expert.
fn route(tape: &mut Tape, rows: Var, facts: &Experts, path: &str, run: &Run) -> Var {
    let module = join(path, &facts.router.at);
    if facts.router_in_f32 {
        let wide = DType::F32.promote(run.dtype);
        let rows = tape.cast(rows, wide);
        return linear(tape, rows, &facts.router, &module, wide);
    }
    linear(tape, rows, &facts.router, &module, run.dtype)
}

/// Experts expected to get one of `tokens`, each choosing for itself.
fn touched(facts: &Experts, tokens: i64) -> f64 {
    let hit = |chance: f64| 1.0 - (1.0 - chance).powf(tokens as f64);
    match &facts.chances {
        Some(chances) => chances.iter().copied().map(hit).sum(),
        None => facts.count as f64 * hit(facts.chosen as f64 / facts.count as f64),
    }
}

fn stacked(facts: &Experts, count: i64, inputs: i64, outputs: i64, dtype: DType) -> View {
    match facts.stored {
        Stored::OutIn => View::contiguous(&[count, outputs, inputs], dtype),
        Stored::InOut => View::contiguous(&[count, inputs, outputs], dtype),
    }
}

/// Rows sorted by expert, two grouped products.
fn grouped(tape: &mut Tape, rows: Var, facts: &Experts, run: &Run) -> Var {
    let (tokens, hidden) = (tape.size(rows, 0), tape.size(rows, 1));
    let product = |tape: &mut Tape, x: Var, inputs: i64, outputs: i64| {
        let stored = stacked(facts, facts.count, inputs, outputs, facts.weight.map_or(run.dtype, |f| f.dtype()));
        let weights = tape.input(if facts.stored == Stored::OutIn { stored.t() } else { stored });
        let out = tape.grouped_mm(x, weights, touched(facts, tokens));
        if let Some(format) = facts.weight {
            tape.scaled_weight(format.scales(&[facts.count, outputs, inputs], run.dtype));
        }
        // Rows of other ranks are masked, which also packs them.
        tape.scale(out)
    };
    let sorted = tape.gather(&[rows], &[tokens * facts.chosen, hidden]);
    let inner = product(tape, sorted, hidden, 2 * facts.inner);
    let inner = activate(tape, inner, facts);
    product(tape, inner, facts.inner, hidden)
}

/// Every token's experts gathered, two batched products.
fn batched(tape: &mut Tape, rows: Var, facts: &Experts, run: &Run) -> Var {
    let hidden = tape.size(rows, 1);
    let pairs = tape.size(rows, 0) * facts.chosen;
    let product = |tape: &mut Tape, x: Var, inputs: i64, outputs: i64| {
        let weights = tape.input(stacked(facts, pairs, inputs, outputs, run.dtype));
        let out = match facts.stored {
            Stored::OutIn => {
                let column = tape.unsqueeze(x, 2);
                tape.bmm(weights, column)
            }
            Stored::InOut => {
                let row = tape.unsqueeze(x, 1);
                tape.bmm(row, weights)
            }
        };
        tape.reshape(out, &[pairs, outputs])
    };
    let repeated = tape.gather(&[rows], &[pairs, hidden]);
    let inner = product(tape, repeated, hidden, 2 * facts.inner);
    let inner = activate(tape, inner, facts);
    product(tape, inner, facts.inner, hidden)
}

/// activation(gate) · up: halves of a row, or its neighbours.
fn activate(tape: &mut Tape, x: Var, facts: &Experts) -> Var {
    let (gate, up) = match facts.stored {
        Stored::OutIn => {
            let halves = tape.split(x, 1, &[facts.inner; 2]);
            (halves[0], halves[1])
        }
        Stored::InOut => (tape.every_second(x), tape.every_second(x)),
    };
    let gate = tape.map(gate);
    tape.mul(gate, up)
}
