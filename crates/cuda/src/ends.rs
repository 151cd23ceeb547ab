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
