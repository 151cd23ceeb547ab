//! Operands that TMA cannot read where they lie: rows, or their first element, that do not begin on 16 bytes. They are
//! copied into the workspace first, onto rows that do.

use crate::contract::blas_order;
use crate::problem::{Layout, Problem};
use gemwright_cuda::{Matrix, Operands, Padded};

/// A problem as the kernel reads it, and what is copied for that.
#[derive(Debug, Clone, Copy)]
pub(super) struct Copies {
    /// With the copies' layouts.
    pub problem: Problem,
    /// Of a and of b.
    of: [Option<Padded>; 2],
    /// Of what must be copied something cannot.
    pub refused: bool,
}

impl Copies {
    /// Of a problem whose operands lie as the C BLAS has them.
    pub fn of(problem: &Problem) -> Copies {
        let p = problem.product;
        let mut copies = Copies { problem: *problem, of: [None; 2], refused: false };
        let extents = [(p.m, p.k), (p.k, problem.weight_cols())];
        for (i, (rows, cols)) in extents.into_iter().enumerate() {
            let layout = [problem.a, problem.b][i];
            let Some((turned, step)) = blas_order(&layout, rows, cols) else { continue };
            let per = 16 / [problem.dtype, problem.weight_dtype][i].bytes() as i64;
            let (lines, length) = if turned { (cols, rows) } else { (rows, cols) };
            let several = p.batch > 1 && layout.batch != 0;
            let readable =
                (lines <= 1 || step % per == 0) && (!several || layout.batch % per == 0) && problem.bases[i] >= 16;
            // Of nothing nothing is read.
            if readable || p.batch * p.m * p.n * p.k == 0 {
                continue;
            }
            // Only elements of 16 bits are copied.
            if problem.dtype.bytes() != 2 || problem.weight_dtype.bytes() != 2 {
                copies.refused = true;
                continue;
            }
            let batch = if several { p.batch } else { 1 };
            let padded = Padded { batch, rows: lines, columns: length, row: step, next: layout.batch };
            let (to_row, next) = (padded.to_row() as i64, if several { padded.to_next() as i64 } else { 0 });
            let to = match turned {
                true => Layout { row: 1, col: to_row, batch: next },
                false => Layout { row: to_row, col: 1, batch: next },
            };
            *[&mut copies.problem.a, &mut copies.problem.b][i] = to;
            copies.problem.bases[i] = 16;
            copies.of[i] = Some(padded);
        }
        copies
    }

    /// Bytes of the workspace; copies begin on multiples of 256.
    pub fn bytes(&self) -> usize {
        self.of.iter().flatten().map(|padded| padded.bytes().next_multiple_of(256)).sum::<usize>()
            + if self.of == [None; 2] { 0 } else { 256 }
    }

    /// What is to be copied before a run, which is told of the copies instead.
    pub fn placed(&self, operands: &mut Operands, workspace: u64) -> Vec<(Padded, u64, u64)> {
        let mut at = workspace.next_multiple_of(256);
        let mut list = Vec::new();
        let sides = [(&mut operands.a, self.problem.a), (&mut operands.b, self.problem.b)];
        for ((matrix, layout), padded) in sides.into_iter().zip(&self.of) {
            let Some(padded) = padded else { continue };
            list.push((*padded, matrix.address, at));
            *matrix = Matrix { address: at, row: layout.row, col: layout.col, batch: layout.batch };
            at += (padded.bytes() as u64).next_multiple_of(256);
        }
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gemwright_core::{DType, Product};

    #[test]
    fn only_what_tma_cannot_read_is_copied() {
        let of = |problem: Problem| Copies::of(&problem).of.map(|padded| padded.map(|p| (p.rows, p.columns)));
        let bf16 = DType::Bf16;
        assert_eq!(of(Problem::linear(64, 50257, 2048, bf16)), [None, None]);
        assert_eq!(of(Problem::linear(64, 100, 771, bf16)), [Some((64, 771)), Some((100, 771))]);
        // dX = dY W and dW = dYT X of a vocabulary that is odd: only dY is.
        assert_eq!(of(Problem::new(64, 2048, 50257, bf16)), [Some((64, 50257)), None]);
        assert_eq!(of(Problem::grad_weight(50257, 2048, 64, bf16)), [Some((64, 50257)), None]);
        // A base in the middle of 16 bytes.
        assert_eq!(of(Problem { bases: [2, 16, 2], ..Problem::linear(64, 64, 64, bf16) }), [Some((64, 64)), None]);
        let batch = Problem { product: Product { batch: 3, m: 8, n: 8, k: 7 }, ..Problem::linear(8, 8, 7, bf16) };
        let copies = Copies::of(&batch);
        assert_eq!((copies.problem.a.row, copies.problem.b.col), (64, 64));
        // Nothing is multiplied where an extent is 0.
        assert_eq!(of(Problem::linear(0, 8, 7, bf16)), [None, None]);
    }
}
