//! A linear layer: y = x · wᵀ + b.

use crate::backend::{Backend, dtype};
use crate::error::{LayerError, reaches, sized};
use gemwright_cpu::Number;
use gemwright_engine::{Epilogue, Layout, Part, Parts, Problem};

/// Weights \[out, in\] and a bias.
#[derive(Debug, Clone, PartialEq)]
pub struct Linear<T> {
    outputs: usize,
    inputs: usize,
    weight: Vec<T>,
    bias: Option<Vec<T>>,
}

/// What comes back through a layer.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub struct Gradients<T> {
    /// \[rows, in\].
    pub input: Vec<T>,
    /// \[out, in\].
    pub weight: Vec<T>,
    /// \[out\], where there is a bias.
    pub bias: Option<Vec<T>>,
}

impl<T: Number> Linear<T> {
    /// Of a weight \[outputs, inputs\], row after row.
    ///
    /// # Errors
    /// Sizes that do not fit.
    pub fn new(outputs: usize, inputs: usize, weight: Vec<T>, bias: Option<Vec<T>>) -> Result<Linear<T>, LayerError> {
        sized("the weight", weight.len(), outputs.checked_mul(inputs))?;
        if let Some(bias) = &bias {
            sized("the bias", bias.len(), Some(outputs))?;
        }
        Ok(Linear { outputs, inputs, weight, bias })
    }

    /// Several layers over the same input as one, their outputs side by side: q, k and v, or gate and up. Each output is
    /// the sum it was before; its last bits may differ where a kernel orders sums by the number of outputs.
    ///
    /// ```
    /// use gemwright_nn::{Backend, Linear};
    ///
    /// let backend = Backend::new(1);
    /// let layer = |outputs, weight: &[f32]| Linear::new(outputs, 2, weight.to_vec(), None);
    /// let (q, k, v) = (layer(2, &[1.0, 0.0, 0.0, 1.0])?, layer(1, &[1.0, 1.0])?, layer(1, &[1.0, -1.0])?);
    /// let qkv = Linear::stacked(&[&q, &k, &v])?;
    /// // A row of each token: two of q, one of k, one of v.
    /// assert_eq!(qkv.forward(&backend, &[2.0, 3.0, 0.0, 1.0])?, [2.0, 3.0, 5.0, -1.0, 0.0, 1.0, 1.0, -1.0]);
    ///
    /// let (gate, up) = (layer(1, &[2.0, -1.0])?, layer(1, &[0.5, 0.5])?);
    /// let row = Linear::stacked(&[&gate, &up])?.forward(&backend, &[2.0, 4.0])?;
    /// // The gate is 0, its SiLU too, and so is what comes through it.
    /// assert_eq!(row, [0.0, 3.0]);
    /// assert_eq!(row[0] / (1.0 + (-row[0]).exp()) * row[1], 0.0);
    /// # Ok::<(), gemwright_nn::LayerError>(())
    /// ```
    ///
    /// # Errors
    /// None at all, different inputs, or a bias in some of them only.
    pub fn stacked(layers: &[&Linear<T>]) -> Result<Linear<T>, LayerError> {
        let shape = |why: &str| LayerError::Shape(format!("layers cannot be one: {why}"));
        let first = layers.first().ok_or_else(|| shape("there are none"))?;
        if layers.iter().any(|layer| layer.inputs != first.inputs) {
            return Err(shape("their inputs differ"));
        }
        let biases: Vec<&Vec<T>> = layers.iter().filter_map(|layer| layer.bias.as_ref()).collect();
        let bias = match biases.len() {
            0 => None,
            n if n == layers.len() => Some(biases.into_iter().flatten().copied().collect()),
            _ => return Err(shape("some have a bias, some have none")),
        };
        let outputs = layers.iter().try_fold(0usize, |sum, layer| sum.checked_add(layer.outputs));
        let outputs = outputs.ok_or_else(|| shape("their outputs are too many"))?;
        let weight = layers.iter().flat_map(|layer| &layer.weight).copied().collect();
        Linear::new(outputs, first.inputs, weight, bias)
    }

    /// The opposite: as many layers, with the outputs in their order.
    pub(crate) fn parted(self, count: usize) -> Vec<Linear<T>> {
        let outputs = self.outputs / count;
        let of = |i: usize| {
            let weight = self.weight[i * outputs * self.inputs..][..outputs * self.inputs].to_vec();
            let bias = self.bias.as_ref().map(|bias| bias[i * outputs..][..outputs].to_vec());
            Linear { outputs, inputs: self.inputs, weight, bias }
        };
        if count == 1 { vec![self] } else { (0..count).map(of).collect() }
    }

    /// Columns of what comes out.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Columns of what goes in.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    pub(crate) fn rows(&self, what: &'static str, given: usize, of: usize) -> Result<usize, LayerError> {
        match of {
            0 => sized(what, given, Some(0)).map(|()| 0),
            _ if given.is_multiple_of(of) => Ok(given / of),
            _ => Err(LayerError::Multiple { what, given, of }),
        }
    }

    /// The output of rows of inputs.
    ///
    /// # Errors
    /// A number of elements that makes no rows.
    pub fn forward(&self, backend: &Backend, x: &[T]) -> Result<Vec<T>, LayerError> {
        let rows = self.rows("x", x.len(), self.inputs)?;
        let mut y = vec![T::from_f64(0.0); rows * self.outputs];
        backend.product(&self.problem(rows))?.run_with(x, &self.weight, &mut y, self.parts())?;
        Ok(y)
    }

    /// The output of rows that lie `x_step` elements apart, written into rows `y_step` apart: views into larger matrices.
    ///
    /// # Errors
    /// Views whose rows overlap, or lie outside of their slices.
    pub fn forward_view(
        &self,
        backend: &Backend,
        rows: usize,
        (x, x_step): (&[T], usize),
        (y, y_step): (&mut [T], usize),
    ) -> Result<(), LayerError> {
        if rows > 1 && y_step < self.outputs {
            return Err(LayerError::Shape(format!("rows of {} outputs cannot lie {y_step} apart", self.outputs)));
        }
        let most =
            rows.checked_mul(self.outputs.max(self.inputs)).filter(|_| rows.saturating_mul(self.outputs) <= y.len());
        if most.is_none() {
            let (given, needed) = (y.len(), rows.saturating_mul(self.outputs));
            return Err(LayerError::Size { what: "the output", given, needed });
        }
        let step = |row: usize| Layout { row: row as i64, col: 1, batch: 0 };
        let problem = Problem { a: step(x_step), out: step(y_step), ..self.problem(rows) };
        Ok(backend.product(&problem)?.run_with(x, &self.weight, y, self.parts())?)
    }

    /// The product of so many rows, with the bias.
    pub(crate) fn problem(&self, rows: usize) -> Problem {
        let plain = Problem::linear(rows as u64, self.outputs as u64, self.inputs as u64, dtype::<T>());
        let epilogue = match self.bias {
            Some(_) => Epilogue::default().with(Part::Bias, Layout { row: 0, col: 1, batch: 0 }),
            None => Epilogue::default(),
        };
        Problem { epilogue, ..plain }
    }

    /// What its epilogue takes.
    pub(crate) fn parts(&self) -> Parts<&[T]> {
        let mut parts: Parts<&[T]> = Parts::default();
        parts[Part::Bias as usize] = self.bias.as_deref();
        parts
    }

    pub(crate) fn weight(&self) -> &[T] {
        &self.weight
    }

    /// What comes back for an input and the gradient of its output.
    ///
    /// # Errors
    /// Numbers of elements that make no rows, or not the same.
    pub fn backward(&self, backend: &Backend, x: &[T], dy: &[T]) -> Result<Gradients<T>, LayerError> {
        let rows = self.rows("x", x.len(), self.inputs)?;
        sized("the gradient of the output", dy.len(), rows.checked_mul(self.outputs))?;
        self.backward_view(backend, rows, (x, self.inputs), (dy, self.outputs))
    }

    /// The same for rows of x that lie `x_step` elements apart, and of the gradient `dy_step` apart: views into larger
    /// matrices.
    ///
    /// # Errors
    /// Views that lie outside of their slices.
    pub fn backward_view(
        &self,
        backend: &Backend,
        rows: usize,
        (x, x_step): (&[T], usize),
        (dy, dy_step): (&[T], usize),
    ) -> Result<Gradients<T>, LayerError> {
        reaches("x", x.len(), &[(rows, x_step), (self.inputs, 1)])?;
        reaches("the gradient of the output", dy.len(), &[(rows, dy_step), (self.outputs, 1)])?;
        let zeros = |count: usize| vec![T::from_f64(0.0); count];
        let [m, n, k] = [rows, self.outputs, self.inputs].map(|x| x as u64);
        let Some(inputs) = rows.checked_mul(self.inputs) else {
            return Err(LayerError::Shape(format!("{rows} rows of {} inputs are too many", self.inputs)));
        };
        // dx [M, K] = dy [M, N] · w [N, K]; dw [N, K] = dyᵀ · x.
        let (mut input, mut weight) = (zeros(inputs), zeros(self.weight.len()));
        let step = |row: usize| Layout { row: row as i64, col: 1, batch: 0 };
        let to_input = Problem { a: step(dy_step), ..Problem::new(m, k, n, dtype::<T>()) };
        backend.product(&to_input)?.run(dy, &self.weight, &mut input)?;
        let turned = Layout { row: 1, col: dy_step as i64, batch: 0 };
        let to_weight = Problem { a: turned, b: step(x_step), ..Problem::grad_weight(n, k, m, dtype::<T>()) };
        backend.product(&to_weight)?.run(dy, x, &mut weight)?;
        let bias = self.bias.as_ref().map(|_| column_sums(dy, rows, dy_step, self.outputs));
        Ok(Gradients { input, weight, bias })
    }
}

/// Sums over the rows, in their order and in double precision.
fn column_sums<T: Number>(rows_of: &[T], rows: usize, step: usize, columns: usize) -> Vec<T> {
    let mut sums = vec![0f64; columns];
    for row in 0..if columns == 0 { 0 } else { rows } {
        for (sum, x) in sums.iter_mut().zip(rows_of.get(row * step..).unwrap_or_default()) {
            *sum += x.to_f64();
        }
    }
    sums.into_iter().map(T::from_f64).collect()
}
