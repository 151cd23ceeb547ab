//! A product as a library is called for it, and back again.

use gemwright_core::blas::{Arguments, Batch, Gemm, Settings, Trans};
use gemwright_core::{Call, DType, Measured, MeasuredKernel, Op, Operands, View};

/// A matrix product by the library's arguments, column-major: its A is our second operand, its m our N.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub struct Row {
    pub gemm: Gemm,
    pub dtype: DType,
    pub out_dtype: DType,
    /// A row is added to every row of the result.
    pub bias: bool,
    pub count: u64,
    /// What the library was asked for where that was a product with a vector.
    pub asked: Option<Arguments>,
    /// What a tuned table says of it: seconds, and by what.
    pub tuned: Option<(f64, String)>,
    /// Its weights are laid out beforehand.
    pub prepacked: bool,
}

impl Row {
    /// One run of a product and nothing more.
    pub fn new(gemm: Gemm, dtype: DType, out_dtype: DType) -> Row {
        Row { gemm, dtype, out_dtype, bias: false, count: 1, asked: None, tuned: None, prepacked: false }
    }

    /// The call's product; otherwise why there is none.
    pub fn of(call: &Call, settings: Settings) -> Result<Row, &'static str> {
        let (bias, out_dtype) = match &call.operands {
            Operands::Product { bias, out, .. } => (bias.is_some_and(|bias| bias.rank() == 1), out.dtype),
            Operands::Grouped { .. } => return Err("experts with rows of their own are no single product"),
            Operands::Convolution(_) => return Err("a convolution is no matrix product of a library"),
            Operands::Attention(_) => return Err("attention is no matrix product of a library"),
        };
        if call.scales.is_some() {
            return Err("weights in fewer bits are no operand of such a product");
        }
        let gemm = call.gemm(settings).ok_or("the library is not called for a matrix product here")?;
        Ok(Row { bias, count: call.count, ..Row::new(gemm, call.dtype(), out_dtype) })
    }

    /// The same product whatever its count.
    pub fn same(&self, other: &Row) -> bool {
        let plain = |gemm: &Gemm| Gemm { epilogue: None, compute_type: None, beta: 0.0, ..gemm.clone() };
        plain(&self.gemm) == plain(&other.gemm)
            && self.asked == other.asked
            && (self.dtype, self.out_dtype, self.bias) == (other.dtype, other.out_dtype, other.bias)
    }

    /// Operands lie as a linear layer has them, without gaps: rows of K, weights \[N, K\], one matrix.
    pub fn is_plain_linear(&self) -> bool {
        let Gemm { transa, transb, m, k, lda, ldb, ldc, batch, .. } = &self.gemm;
        (*transa, *transb) == (Trans::T, Trans::N) && batch.is_none() && (lda, ldb, ldc) == (k, k, m)
    }

    /// Nothing lies between the rows or columns of an operand, or between matrices.
    pub fn is_dense(&self) -> bool {
        let Gemm { transa, transb, m, n, k, lda, ldb, ldc, batch, .. } = &self.gemm;
        let a = if *transa == Trans::T { k } else { m };
        let b = if *transb == Trans::T { n } else { k };
        let apart = batch.is_none_or(|batch| batch == dense_batch([*m, *n, *k], batch.count));
        (lda, ldb, ldc) == (a, b, m) && apart
    }

    fn measured(&self) -> Option<Measured> {
        let (seconds, name) = self.tuned.as_ref()?;
        let nanoseconds = (seconds * 1e9 * self.count as f64).round() as u64;
        let kernel = MeasuredKernel { name: name.as_str().into(), nanoseconds, count: self.count };
        Some(Measured { nanoseconds, launches: self.count, kernels: vec![kernel] })
    }

    /// The operation that makes such a call.
    pub fn call(&self) -> Call {
        let Gemm { transa, transb, m, n, k, lda, ldb, ldc, batch, beta, .. } = &self.gemm;
        let view = |size: [i64; 2], stride: [i64; 2], apart: Option<i64>, dtype: DType| match (batch, apart) {
            (Some(batch), Some(apart)) => {
                View::strided(&[batch.count, size[0], size[1]], &[apart, stride[0], stride[1]], dtype)
            }
            _ => View::strided(&size, &stride, dtype),
        };
        let a = view(
            [*n, *k],
            if *transb == Trans::N { [*ldb, 1] } else { [1, *ldb] },
            batch.map(|batch| batch.b),
            self.dtype,
        );
        let b = view(
            [*k, *m],
            if *transa == Trans::T { [1, *lda] } else { [*lda, 1] },
            batch.map(|batch| batch.a),
            self.dtype,
        );
        let out = view([*n, *m], [*ldc, 1], batch.map(|batch| batch.c), self.out_dtype);
        let bias = self.bias.then(|| View::contiguous(&[*m], self.out_dtype));
        let op = match (batch, self.bias) {
            (Some(_), _) => Op::Bmm,
            (None, true) => Op::Addmm,
            (None, false) => Op::Mm,
        };
        let beta = if self.bias { 1.0 } else { *beta };
        let call = Call::once(op, Operands::Product { a, b, bias, out, alpha: 1.0, beta });
        Call { count: self.count, measured: self.measured().map(Box::new), ..call }
    }
}

/// A matrix product without more than its extents and leading dimensions.
pub(crate) fn gemm(trans: [Trans; 2], [m, n, k]: [i64; 3], [lda, ldb, ldc]: [i64; 3]) -> Gemm {
    Gemm {
        transa: trans[0],
        transb: trans[1],
        m,
        n,
        k,
        lda,
        ldb,
        ldc,
        batch: None,
        epilogue: None,
        beta: 0.0,
        compute_type: None,
    }
}

/// Matrices one behind the other; what is read may be of any size.
pub(crate) fn dense_batch([m, n, k]: [i64; 3], count: i64) -> Batch {
    Batch { a: m.saturating_mul(k), b: k.saturating_mul(n), c: m.saturating_mul(n), count }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_and_its_row_are_the_same() {
        for transa in [Trans::N, Trans::T] {
            for transb in [Trans::N, Trans::T] {
                for batch in [None, Some(Batch { a: 96 * 64, b: 64 * 32, c: 96 * 32, count: 4 })] {
                    let lda = if transa == Trans::T { 64 } else { 96 };
                    let ldb = if transb == Trans::T { 32 } else { 64 };
                    let gemm = Gemm { batch, ..gemm([transa, transb], [96, 32, 64], [lda, ldb, 96]) };
                    let row = Row { count: 3, ..Row::new(gemm, DType::Bf16, DType::Bf16) };
                    let again = Row::of(&row.call(), Settings::default()).unwrap();
                    assert!(again.same(&row), "{again:?} {row:?}");
                    assert_eq!(again.count, 3);
                    assert!(row.is_dense());
                    assert_eq!(row.is_plain_linear(), transa == Trans::T && transb == Trans::N && batch.is_none());
                }
            }
        }
    }
}
