//! What a product on a device reads and writes, and what the epilogue in kernels/epilogue.cuh is told of it.

use crate::config::PartWay;
use crate::error::CudaError;
use gemwright_core::DType;

/// A matrix on the device: the first element, and elements from row to row, column to column, matrix to matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Matrix {
    pub address: u64,
    pub row: i64,
    pub col: i64,
    pub batch: i64,
}

impl Matrix {
    /// The same from the element on that is so many further, of so many bytes each.
    pub fn further(self, elements: i64, bytes: u64) -> Matrix {
        Matrix { address: self.address.wrapping_add_signed(elements * bytes as i64), ..self }
    }

    pub(crate) fn transposed(self) -> Matrix {
        Matrix { row: self.col, col: self.row, ..self }
    }
}

/// What a run reads and writes: a \[M, K\], b \[K, N\], out and the parts of the epilogue \[M, N\].
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(missing_docs)]
pub struct Operands {
    pub a: Matrix,
    pub b: Matrix,
    pub out: Matrix,
    /// Scale, bias, times, residual.
    pub parts: [Option<Matrix>; 4],
    /// What goes into the activation; of a gate \[M, 2N\].
    pub kept: Option<Matrix>,
    pub alpha: f32,
    /// Of a product of groups: the address of where each ends, numbers of 32 bits.
    pub group_ends: Option<u64>,
    /// Of a and of b: factors of f32.
    pub scales: [Option<Factors>; 2],
}

impl Operands {
    /// What rows from `first` on read and write; elements of a and of the result have so many bytes.
    pub(crate) fn rows_from(&self, first: u64, bytes: u64, out_bytes: u64) -> Operands {
        let rows = |matrix: Matrix, bytes| matrix.further(first as i64 * matrix.row, bytes);
        let [mut of_a, of_b] = self.scales;
        if let Some(factors) = of_a.as_mut().filter(|factors| !factors.one_for_all) {
            factors.address += 4 * first;
        }
        Operands {
            a: rows(self.a, bytes),
            out: rows(self.out, out_bytes),
            parts: self.parts.map(|part| part.map(|part| rows(part, out_bytes))),
            kept: self.kept.map(|kept| rows(kept, out_bytes)),
            scales: [of_a, of_b],
            ..*self
        }
    }
}

/// Factors of an operand's lines along k, or one for all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Factors {
    pub address: u64,
    pub one_for_all: bool,
}

/// `Matrix` of kernels/epilogue.cuh.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct MatrixParam {
    first: u64,
    row: i64,
    col: i64,
    batch: i64,
}

/// `Ends` of kernels/epilogue.cuh.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Ends {
    out: MatrixParam,
    keep: MatrixParam,
    parts: [MatrixParam; 4],
    m: i32,
    n: i32,
    second: i32,
    alpha: f32,
    scales: [u64; 2],
    steps: [i32; 2],
}

/// What they are made of, beside the operands.
pub(crate) struct EndsOf {
    /// Rows and columns of the sums.
    pub extents: (u64, u64),
    /// The sums are the result transposed.
    pub turned: bool,
    pub parts: [PartWay; 4],
    /// Of the result and the parts.
    pub dtype: DType,
}

impl EndsOf {
    pub fn told(&self, operands: &Operands) -> Result<Ends, CudaError> {
        let pair = 2 * self.dtype.bytes();
        for (way, matrix) in self.parts.iter().zip(&operands.parts) {
            let Some(matrix) = matrix else { continue };
            // Kernels count inside of a tile in 32 bits.
            if matrix.row.unsigned_abs().max(matrix.col.unsigned_abs()) >= 1 << 22 {
                return Err(CudaError::Refused("rows of a matrix of the epilogue lie too far apart".into()));
            }
            if *way == PartWay::PerPair && !matrix.address.is_multiple_of(pair) {
                return Err(CudaError::Refused(format!("a matrix of the epilogue must begin on {pair} bytes")));
            }
        }
        let part = |matrix: Matrix| {
            let Matrix { address, row, col, batch } = if self.turned { matrix.transposed() } else { matrix };
            MatrixParam { first: address, row, col, batch }
        };
        let or_none = |matrix: Option<Matrix>| matrix.map_or_else(MatrixParam::default, part);
        let (m, n) = self.extents;
        let mut scales = operands.scales;
        if self.turned {
            scales.reverse();
        }
        Ok(Ends {
            out: part(operands.out),
            keep: or_none(operands.kept),
            parts: operands.parts.map(or_none),
            m: m as i32,
            n: n as i32,
            // Only what is not turned has a gate.
            second: n as i32,
            alpha: operands.alpha,
            scales: scales.map(|factors| factors.map_or(0, |factors| factors.address)),
            steps: scales.map(|factors| i32::from(factors.is_some_and(|factors| !factors.one_for_all))),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_from_one_on_begin_where_it_lies() {
        let at = |address, row| Matrix { address, row, col: 1, batch: 0 };
        let all = Operands {
            a: at(1000, 64),
            b: at(2000, 1),
            out: at(3000, -32),
            parts: [None, Some(at(4000, 0)), None, Some(at(5000, 8))],
            kept: Some(at(6000, 16)),
            alpha: 1.0,
            group_ends: None,
            scales: [false, true].map(|one_for_all| Some(Factors { address: 7000, one_for_all })),
        };
        let rest = all.rows_from(3, 2, 4);
        assert_eq!([rest.a, rest.b, rest.out].map(|matrix| matrix.address), [1384, 2000, 2616]);
        assert_eq!(rest.parts.map(|part| part.map(|part| part.address)), [None, Some(4000), None, Some(5096)]);
        assert_eq!(rest.kept.map(|kept| kept.address), Some(6192));
        assert_eq!(rest.scales.map(|factors| factors.map(|factors| factors.address)), [Some(7012), Some(7000)]);
        let shared = Operands { scales: [all.scales[1], all.scales[0]], ..all }.rows_from(3, 2, 4);
        assert_eq!(shared.scales.map(|factors| factors.map(|factors| factors.address)), [Some(7000), Some(7000)]);
    }
}
