//! The products of a step on a tape: everything is a matrix of a row a token.

use super::parts::{Absorbed, Part, Stacked, What, Who};
use super::{Engine, Rows};
use crate::blocks::linear;
use crate::tape::Tape;
use gemwright_core::{DType, View, Workload};

/// Issues the products of `parts`.
pub fn issue(parts: &[Part], rows: Rows, decode: bool, engine: Engine, dtype: DType, workload: &mut Workload) {
    for part in parts {
        let mut tape = Tape::new(false);
        let module = part.module.as_str().into();
        match &part.what {
            What::Linear(_, Who::Prefill) if decode => continue,
            What::Absorbed(absorbed) if !decode && !absorbed.always => continue,
            What::Linear(layer, who) => {
                let count = if *who == Who::Sampled { rows.sampled } else { rows.tokens };
                let x = tape.input(View::contiguous(&[count, layer.inputs], dtype));
                linear(&mut tape, x, layer, &module, dtype);
            }
            What::Absorbed(absorbed) => {
                tape.enter(&module);
                by_head(&mut tape, absorbed, rows.tokens, engine, dtype);
            }
            What::Stacked(stacked) => {
                tape.enter(&module);
                grouped(&mut tape, stacked, rows.tokens, dtype);
            }
        }
        for call in tape.calls() {
            workload.push_times(call, part.count);
        }
    }
}

/// Each head's queries taken into the latent, and what it found there taken out.
fn by_head(tape: &mut Tape, facts: &Absorbed, tokens: i64, engine: Engine, dtype: DType) {
    let Absorbed { heads, rank, plain, rotated, value, .. } = *facts;
    let (into, out) = match engine {
        // Views of the weight that expands the latent, as it was loaded.
        Engine::Vllm => {
            let weight = tape.input(View::contiguous(&[heads, plain + value, rank], dtype));
            let halves = tape.split(weight, 1, &[plain, value]);
            (halves[0], tape.transpose(halves[1], 1, 2))
        }
        // Copies, one for each side.
        Engine::Sglang => {
            let keys = tape.input(View::contiguous(&[heads, rank, plain], dtype));
            let values = tape.input(View::contiguous(&[heads, value, rank], dtype));
            (tape.transpose(keys, 1, 2), tape.transpose(values, 1, 2))
        }
    };
    let queries = tape.input(View::contiguous(&[tokens, heads, plain + rotated], dtype));
    let queries = tape.narrow(queries, 2, plain);
    let queries = tape.transpose(queries, 0, 1);
    tape.bmm(queries, into);
    let found = tape.input(View::contiguous(&[tokens, heads, rank], dtype));
    let found = tape.transpose(found, 0, 1);
    tape.bmm(found, out);
}

/// Every token's experts: rows sorted by expert.
fn grouped(tape: &mut Tape, facts: &Stacked, tokens: i64, dtype: DType) {
    let rows = tape.input(View::contiguous(&[tokens * facts.chosen, facts.inputs], dtype));
    let weights = tape.input(View::contiguous(&[facts.count, facts.outputs, facts.inputs], dtype));
    let weights = tape.transpose(weights, 1, 2);
    // All alike: how many of those here are chosen by one of so many tokens.
    let missed = (1.0 - facts.chosen as f64 / facts.of as f64).powf(tokens as f64);
    tape.grouped_mm(rows, weights, facts.count as f64 * (1.0 - missed));
}
