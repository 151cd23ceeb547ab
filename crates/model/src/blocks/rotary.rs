//! Rotary positions: a product for the angles, and pointwise work that decides the layout of q and k.

use super::{Run, join};
use crate::architecture::Rotary;
use crate::declaration::{RotaryKind, RotaryPrecision};
use crate::tape::{Tape, Var};
use gemwright_core::{DType, View};

/// Frequencies times positions, once per model call: \[rows, dim/2, 1\] x \[rows, 1, tokens\] in f32.
pub fn angles(tape: &mut Tape, rotary: &Rotary, run: &Run) {
    let Some(at) = &rotary.at else { return };
    tape.enter(&join("", at));
    let (rows, half) = (position_rows(run), rotary.dim / 2);
    let frequencies = View::contiguous(&[1, half, 1], DType::F32).expand(&[rows, half, 1]);
    let positions = View::contiguous(&[rows, 1, run.queries], DType::F32);
    let (frequencies, positions) = (tape.constant(frequencies), tape.constant(positions));
    tape.matmul(frequencies, positions);
}

fn position_rows(run: &Run) -> i64 {
    if run.own_positions { run.batch } else { 1 }
}

/// Rotates the heads of q or k.
pub fn rotate(tape: &mut Tape, x: Var, rotary: &Rotary, run: &Run) -> Var {
    let dtype = tape.view(x).dtype;
    let last = tape.view(x).rank() - 1;
    let x = if rotary.precision == RotaryPrecision::F32Heads { tape.cast(x, DType::F32.promote(dtype)) } else { x };
    if rotary.kind == RotaryKind::HalvesApart {
        // Each half is turned and both are put together: a copy forward, and one backward.
        return tape.rows(x, dtype);
    }
    let whole = matches!(rotary.kind, RotaryKind::Halves | RotaryKind::Pairs);
    let turned = if whole {
        turn(tape, x, rotary, run, dtype)
    } else {
        let part = tape.narrow(x, last, rotary.dim);
        let rest = tape.narrow(x, last, tape.size(x, last) - rotary.dim);
        let part = turn(tape, part, rotary, run, dtype);
        tape.cat(&[part, rest], last)
    };
    tape.cast(turned, dtype)
}

/// x · cos + rotated(x) · sin.
fn turn(tape: &mut Tape, x: Var, rotary: &Rotary, run: &Run, dtype: DType) -> Var {
    let (rows, tokens, dim) = (position_rows(run), run.queries, rotary.dim);
    let dtype = if rotary.precision == RotaryPrecision::F32Angles { DType::F32.promote(dtype) } else { dtype };
    let table = match rotary.kind {
        RotaryKind::PartPairsUnmoved => View::contiguous(&[rows, tokens, dim], dtype).unsqueeze(2),
        _ => View::contiguous(&[rows, tokens, dim], dtype).unsqueeze(1),
    };
    let (cos, sin) = (tape.constant(table), tape.constant(table));
    let straight = tape.mul(x, cos);
    let rotated = match rotary.kind {
        RotaryKind::Halves | RotaryKind::PartHalves => rotate_halves(tape, x),
        _ => rotate_pairs(tape, x),
    };
    let across = tape.mul(rotated, sin);
    tape.add(straight, across)
}

fn rotate_halves(tape: &mut Tape, x: Var) -> Var {
    let last = tape.view(x).rank() - 1;
    let half = tape.size(x, last) / 2;
    let (first, second) = (tape.narrow(x, last, half), tape.narrow(x, last, half));
    let second = tape.neg(second);
    tape.cat(&[second, first], last)
}

fn rotate_pairs(tape: &mut Tape, x: Var) -> Var {
    let size = tape.view(x).size;
    let (even, odd) = (tape.every_second(x), tape.every_second(x));
    let odd = tape.neg(odd);
    let rank = size.len();
    let (odd, even) = (tape.unsqueeze(odd, rank), tape.unsqueeze(even, rank));
    let stacked = tape.cat(&[odd, even], rank);
    tape.reshape(stacked, &size)
}
