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

/// Rows, or k, that belong to one group after the other, such as the tokens of experts. Where groups end is known when a
/// product runs, not before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Groups {
    #[default]
    #[allow(missing_docs)]
    None,
    /// Rows of a and out are of so many groups: each has a matrix b of its own, `b.batch` elements after the one before.
    Rows(u64),
    /// k is of so many groups: each has a result of its own, `out.batch` elements after the one before.
    K(u64),
}

impl Groups {
    /// How many there are.
    pub fn count(self) -> Option<u64> {
        match self {
            Groups::None => None,
            Groups::Rows(count) | Groups::K(count) => Some(count),
        }
    }
}

/// out = epilogue(alpha · a · b + beta · out), `batch` times. With beta = 0 nothing of out is read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Problem {
    /// Batch, M, N, K.
    pub product: Product,
    /// Of a.
    pub dtype: DType,
    /// Of b: that of a, or e4m3.
    pub weight_dtype: DType,
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
    /// The batch is one then.
    pub groups: Groups,
    /// Factors of a and of b, with which quantised numbers become what they stand for.
    pub scales: [Scaling; 2],
    /// Sums of e4m3, of which tensor cores keep some 14 bits, are added up in f32 every 128 k.
    pub promoted: bool,
}

/// Factors of an operand, of f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Scaling {
    #[default]
    #[allow(missing_docs)]
    None,
    /// One for all.
    Tensor,
    /// One for each row of a, or each column of b: each row of a weight \[N, K\]. All matrices of a batch have the same.
    Rows,
}

impl Problem {
    /// A plain product of row-major matrices.
    pub fn new(m: u64, n: u64, k: u64, dtype: DType) -> Problem {
        Problem {
            product: Product { batch: 1, m, n, k },
            dtype,
            weight_dtype: dtype,
            out_dtype: dtype,
            a: Layout::row_major(m, k),
            b: Layout::row_major(k, n),
            out: Layout::row_major(m, n),
            alpha: 1.0,
            beta: 0.0,
            bases: [16; 3],
            prepacked: false,
            epilogue: Epilogue::default(),
            groups: Groups::None,
            scales: [Scaling::None; 2],
            promoted: false,
        }
    }

    /// The same with both operands of e4m3, and a result of bf16.
    pub fn of_eight_bits(self, scales: [Scaling; 2], promoted: bool) -> Problem {
        let (dtype, out_dtype) = (DType::F8E4m3, DType::Bf16);
        Problem { dtype, weight_dtype: dtype, out_dtype, scales, promoted, ..self }
    }

    /// The same with weights of e4m3.
    pub fn with_small_weights(self, scaling: Scaling) -> Problem {
        Problem { weight_dtype: DType::F8E4m3, scales: [Scaling::None, scaling], ..self }
    }

    /// The same with weights of the activations' type, where they have another.
    pub fn with_whole_weights(self) -> Problem {
        match self.weight_dtype == self.dtype {
            true => self,
            false => Problem { weight_dtype: self.dtype, scales: [self.scales[0], Scaling::None], ..self },
        }
    }

    /// The same with rows that belong to so many groups, each with weights of its own.
    pub fn with_groups_of_rows(self, groups: u64) -> Problem {
        let batch = (self.product.k * self.weight_cols()) as i64;
        Problem { groups: Groups::Rows(groups), b: Layout { batch, ..self.b }, ..self }
    }

    /// The same with a k that belongs to so many groups, each with a result of its own.
    pub fn with_groups_of_k(self, groups: u64) -> Problem {
        let batch = (self.product.m * self.product.n) as i64;
        Problem { groups: Groups::K(groups), out: Layout { batch, ..self.out }, ..self }
    }

    /// Matrices that a, b and out are.
    pub fn matrices(&self) -> [u64; 3] {
        let batch = self.product.batch;
        match self.groups {
            Groups::None => [batch; 3],
            Groups::Rows(groups) => [batch, groups, batch],
            Groups::K(groups) => [batch, batch, groups],
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
        let eight = |x: &Problem| (x.weight_dtype, x.scales, x.promoted);
        let factors = |x: &Problem| (x.alpha, x.beta, x.epilogue.gated, x.epilogue.kept.is_some());
        of(self) == of(other)
            && factors(self) == factors(other)
            && (self.groups, eight(self)) == (other.groups, eight(other))
            && self.epilogue.activation == other.epilogue.activation
            && self.epilogue.parts.map(|part| part.is_some()) == other.epilogue.parts.map(|part| part.is_some())
    }

    /// Multiplications and additions of the products.
    pub fn flops(&self) -> u128 {
        Product { n: self.weight_cols(), ..self.product }.flops()
    }

    /// Bytes moved where every operand is touched once.
    pub fn bytes(&self) -> u128 {
        let Product { m, n, k, .. } = self.product;
        let of = |x: u64, matrices: u64| u128::from(x) * u128::from(matrices);
        let [of_a, of_b, of_out] = self.matrices();
        let [a, b, out] = [of(m * k, of_a), of(k * self.weight_cols(), of_b), of(m * n, of_out)];
        let kept = if self.epilogue.kept.is_some() { u128::from(self.epilogue.weights()) } else { 0 };
        let reads_out = if self.beta == 0.0 { 1 } else { 2 };
        // Vectors of an epilogue are next to nothing.
        let matrices = self.epilogue.parts.iter().flatten().filter(|part| part.row != 0 && part.col != 0).count();
        a * u128::from(self.dtype.bytes())
            + b * u128::from(self.weight_dtype.bytes())
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
            weight_dtype: dtype,
            out_dtype: dtype,
            a: layout(a),
            b: layout(b),
            out: layout(out),
            alpha: *alpha,
            beta: 0.0,
            bases: [16; 3],
            prepacked: false,
            epilogue: Epilogue::default(),
            groups: Groups::None,
            scales: [Scaling::None; 2],
            promoted: false,
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
