//! What an engine is asked: a product with layouts and factors.

use crate::contract::blas_order;
use crate::epilogue::Epilogue;
use gemwright_core::{Activation, Call, DType, Operands, Product, View};

/// Elements from row to row, from column to column, from one matrix of a batch to the next. Zero repeats,
/// negative steps go backwards from the first element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub struct Layout {
    pub row: i64,
    pub col: i64,
    pub batch: i64,
}

impl Layout {
    /// Rows one after the other, matrix after matrix.
    pub fn row_major(rows: u64, cols: u64) -> Layout {
        Layout { row: cols as i64, col: 1, batch: (rows * cols) as i64 }
    }

    /// Columns one after the other: a row-major matrix seen transposed.
    pub fn column_major(rows: u64, cols: u64) -> Layout {
        Layout { row: 1, col: rows as i64, batch: (rows * cols) as i64 }
    }

    /// The least and the greatest element of such matrices, counted from the first; `None` where that is
    /// no number, or nothing is there.
    pub fn reach(&self, batch: u64, rows: u64, cols: u64) -> Option<(i64, i64)> {
        let (mut least, mut most) = (0i64, 0i64);
        for (extent, step) in [(batch, self.batch), (rows, self.row), (cols, self.col)] {
            let far = i64::try_from(extent.checked_sub(1)?).ok()?.checked_mul(step)?;
            (least, most) = (least.checked_add(far.min(0))?, most.checked_add(far.max(0))?);
        }
        Some((least, most))
    }
}

/// out = epilogue(alpha · a · b + beta · out), `batch` times. With beta = 0 nothing of out is read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Problem {
    /// Batch, M, N, K.
    pub product: Product,
    /// Of a and b.
    pub dtype: DType,
    /// Of out.
    pub out_dtype: DType,
    /// \[M, K\].
    pub a: Layout,
    /// \[K, N\]; of a gated epilogue \[K, 2N\].
    pub b: Layout,
    /// \[M, N\].
    pub out: Layout,
    #[allow(missing_docs)]
    pub alpha: f64,
    #[allow(missing_docs)]
    pub beta: f64,
    /// Bytes that the first elements of a, b and out lie on multiples of: 16 where they are whole tensors, less for views
    /// that begin inside one. Only kernels of a GPU ask.
    pub bases: [u64; 3],
    /// b is a weight that may be laid out anew once and used many times.
    pub prepacked: bool,
    /// What becomes of the sums before they are written.
    pub epilogue: Epilogue,
}

impl Problem {
    /// A plain product of row-major matrices.
    pub fn new(m: u64, n: u64, k: u64, dtype: DType) -> Problem {
        Problem {
            product: Product { batch: 1, m, n, k },
            dtype,
            out_dtype: dtype,
            a: Layout::row_major(m, k),
            b: Layout::row_major(k, n),
            out: Layout::row_major(m, n),
            alpha: 1.0,
            beta: 0.0,
            bases: [16; 3],
            prepacked: false,
            epilogue: Epilogue::default(),
        }
    }

    /// A linear layer: the weight lies as \[N, K\].
    pub fn linear(m: u64, n: u64, k: u64, dtype: DType) -> Problem {
        Problem { b: Layout::column_major(k, n), ..Problem::new(m, n, k, dtype) }
    }

    /// The gradient of a linear layer's weight: a lies as \[K, M\].
    pub fn grad_weight(m: u64, n: u64, k: u64, dtype: DType) -> Problem {
        Problem { a: Layout::column_major(m, k), ..Problem::new(m, n, k, dtype) }
    }

    /// A linear layer whose weight is two, \[2N, K\]: out = activation(x · gateᵀ) · (x · upᵀ).
    pub fn gated(m: u64, n: u64, k: u64, dtype: DType, activation: Activation) -> Problem {
        let epilogue = Epilogue { gated: true, activation, ..Epilogue::default() };
        Problem { b: Layout::column_major(k, 2 * n), epilogue, ..Problem::new(m, n, k, dtype) }
    }

    /// Columns of b.
    pub fn weight_cols(&self) -> u64 {
        self.product.n * self.epilogue.weights()
    }

    /// Another problem differs from this one in its rows alone, and in how they lie.
    pub fn same_weights(&self, other: &Problem) -> bool {
        let of = |x: &Problem| (x.product.batch, x.product.n, x.product.k, x.b, x.dtype, x.out_dtype, x.prepacked);
        let factors = |x: &Problem| (x.alpha, x.beta, x.epilogue.gated, x.epilogue.kept.is_some());
        of(self) == of(other)
            && factors(self) == factors(other)
            && self.epilogue.activation == other.epilogue.activation
            && self.epilogue.parts.map(|part| part.is_some()) == other.epilogue.parts.map(|part| part.is_some())
    }

    /// Multiplications and additions of the products.
    pub fn flops(&self) -> u128 {
        Product { n: self.weight_cols(), ..self.product }.flops()
    }

    /// Bytes moved where every operand is touched once.
    pub fn bytes(&self) -> u128 {
        let Product { batch, m, n, k } = self.product;
        let [a, b, out] = [m * k, k * self.weight_cols(), m * n].map(|x| u128::from(x) * u128::from(batch));
        let kept = if self.epilogue.kept.is_some() { u128::from(self.epilogue.weights()) } else { 0 };
        let reads_out = if self.beta == 0.0 { 1 } else { 2 };
        // Vectors of an epilogue are next to nothing.
        let matrices = self.epilogue.parts.iter().flatten().filter(|part| part.row != 0 && part.col != 0).count();
        (a + b) * u128::from(self.dtype.bytes())
            + out * u128::from(self.out_dtype.bytes()) * (reads_out + matrices as u128 + kept)
    }
}

impl Problem {
    /// The product of a call, in an element type of the caller's choice; `None` for what is no plain product.
    /// A bias is left out: what is compared is the product.
    pub fn of(call: &Call, dtype: DType) -> Option<Problem> {
        let Operands::Product { a, b, out, alpha, .. } = &call.operands else { return None };
        let layout = |view: &View| {
            let last = view.rank() - 1;
            let batch = if view.rank() == 3 { view.stride[0] } else { 0 };
            Layout { row: view.stride[last - 1], col: view.stride[last], batch }
        };
        Some(Problem {
            product: call.product()?,
            dtype,
            out_dtype: dtype,
            a: layout(a),
            b: layout(b),
            out: layout(out),
            alpha: *alpha,
            beta: 0.0,
            bases: [16; 3],
            prepacked: false,
            epilogue: Epilogue::default(),
        })
    }

    /// The letters of the column-major call, as libraries name it; `?` for what has none.
    pub fn letters(&self) -> String {
        let p = self.product;
        // The library's first operand is our b.
        let letter = |layout: &Layout, rows: u64, cols: u64| match blas_order(layout, rows, cols) {
            Some((false, _)) => 'N',
            Some((true, _)) => 'T',
            None => '?',
        };
        [letter(&self.b, p.k, p.n), letter(&self.a, p.m, p.k)].iter().collect()
    }
}
