//! Products that a compiler changed: extents padded up to a multiple of 8, operands laid out
//! otherwise, a bias taken out into another kernel.

use crate::comparison::{How, Row};
use crate::seen::Seen;
use gemwright_core::{DType, Op, Operands, Product};

/// Compilers pad to this.
const PADDED_TO: u64 = 8;

/// A plain product by its extents; what is batched of one is none.
fn plain(seen: &Seen) -> Option<(Product, DType)> {
    let call = &seen.call;
    let multiplies = matches!(call.op, Op::Mm | Op::Addmm | Op::Bmm | Op::Baddbmm);
    let (Operands::Product { .. }, true) = (&call.operands, multiplies && call.scales.is_none()) else { return None };
    Some((call.product()?, call.dtype()))
}

/// Every extent as it is or padded.
fn is_padded(from: &Product, to: &Product) -> bool {
    let pads = |x: u64, y: u64| x == y || x.next_multiple_of(PADDED_TO) == y;
    from.batch == to.batch && pads(from.m, to.m) && pads(from.n, to.n) && pads(from.k, to.k)
}

/// How the compiler's product stands for the other's, if it does.
fn stands_for(other: &Seen, compiled: &Seen) -> Option<How> {
    let ((from, kind), (to, other_kind)) = (plain(other)?, plain(compiled)?);
    if kind != other_kind {
        return None;
    }
    if from == to { Some(How::Relaid) } else { is_padded(&from, &to).then_some(How::Padded) }
}

/// Pairs what is left of both sides; `compiled` is the side whose products a compiler may have changed.
/// Repetitions of one may stand for several of the other.
pub fn pair(left: &mut [Vec<Seen>; 2], compiled: usize) -> Vec<Row> {
    let mut rows = Vec::new();
    for wanted in [How::Relaid, How::Padded] {
        for at in 0..left[1 - compiled].len() {
            while left[1 - compiled][at].call.count > 0 {
                let other = &left[1 - compiled][at];
                let fits = |seen: &&Seen| seen.call.count > 0 && stands_for(other, seen) == Some(wanted);
                // Best with as many repetitions, or else with any.
                let all: Vec<&Seen> = left[compiled].iter().filter(fits).collect();
                let Some(best) = all.iter().find(|s| s.call.count == other.call.count).or(all.first()) else { break };
                let place = left[compiled].iter().position(|s| std::ptr::eq(s, *best)).unwrap_or(0);
                let count = other.call.count.min(best.call.count);
                let taken = left[1 - compiled][at].take(count);
                let stands = left[compiled][place].take(count);
                let mut sides = [Some(taken), Some(stands)];
                if compiled == 0 {
                    sides.swap(0, 1);
                }
                rows.push(Row { how: wanted, sides });
            }
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Comparison;
    use gemwright_core::{Call, Measured, Source, View, Workload};
    use std::slice::from_ref;

    fn mm(op: Op, a: View, b: View, count: u64) -> Call {
        let out = View::contiguous(&[a.size[0], b.size[1]], a.dtype);
        let bias = (op == Op::Addmm).then(|| View::contiguous(&[out.size[1]], a.dtype));
        let operands = Operands::Product { a, b, bias, out, alpha: 1.0, beta: 1.0 };
        Call { count, ..Call::once(op, operands) }
    }

    fn rows(m: i64, n: i64) -> View {
        View::contiguous(&[m, n], DType::Bf16)
    }

    fn workload(compiled: bool, calls: &[Call]) -> Workload {
        let mut workload = Workload::default();
        workload.source = Source { kind: "trace".into(), facts: vec![("compiled".into(), compiled.into())] };
        calls.iter().for_each(|call| workload.push(call));
        workload
    }

    fn found(compiled: bool, a: &[Call], b: &[Call]) -> Vec<(How, Option<u64>, Option<u64>)> {
        let (a, b) = (workload(false, a), workload(compiled, b));
        let count = |seen: &Option<Seen>| seen.as_ref().map(|s| s.call.count);
        let rows = Comparison::of([&a, &b]).rows;
        rows.iter().map(|row| (row.how, count(&row.sides[0]), count(&row.sides[1]))).collect()
    }

    #[test]
    fn a_compiler_may_lay_out_otherwise_and_nobody_else() {
        let (eager, relaid) = (rows(16, 8).transpose(0, 1), rows(8, 16));
        let (a, b) = (mm(Op::Addmm, eager, rows(16, 32), 3), mm(Op::Mm, relaid, rows(16, 32), 3));
        assert_eq!(found(true, from_ref(&a), from_ref(&b)), [(How::Relaid, Some(3), Some(3))]);
        assert_eq!(found(false, &[a], &[b]), [(How::Same, Some(3), None), (How::Same, None, Some(3))]);
    }

    #[test]
    fn one_kind_may_stand_for_two_and_the_rest_is_left() {
        let first = mm(Op::Mm, rows(16, 8).transpose(0, 1), rows(16, 32), 2);
        let second = mm(Op::Mm, rows(8, 16), rows(32, 16).transpose(0, 1), 3);
        let mut compiled = mm(Op::Mm, rows(8, 16), rows(16, 32), 6);
        compiled.measured = Some(Box::new(Measured { nanoseconds: 600, launches: 6, kernels: Vec::new() }));
        let (a, b) = (workload(false, &[first, second]), workload(true, &[compiled]));
        let rows = Comparison::of([&a, &b]).rows;
        let times: Vec<Option<u64>> = rows
            .iter()
            .map(|row| row.sides[1].as_ref().and_then(|s| s.call.measured.as_ref()).map(|m| m.nanoseconds))
            .collect();
        assert_eq!(times, [Some(200), Some(300), Some(100)]);
        assert_eq!(rows.iter().filter(|row| row.difference().is_none()).count(), 2);
    }

    #[test]
    fn padding_goes_up_to_the_next_eight() {
        let odd = mm(Op::Mm, rows(16, 13), rows(13, 24), 1);
        let padded = |k: i64| mm(Op::Mm, rows(16, k), rows(k, 24), 1);
        assert_eq!(found(true, from_ref(&odd), &[padded(16)]), [(How::Padded, Some(1), Some(1))]);
        assert_eq!(found(true, from_ref(&odd), &[padded(24)]).len(), 2);
        // Not down, and not by whoever did not compile.
        assert_eq!(found(true, &[padded(16)], &[odd]).len(), 2);
    }
}
