//! A linear layer whose weight is laid out once, where that pays.

use crate::backend::Backend;
use crate::error::LayerError;
use crate::linear::Linear;
use gemwright_core::Runner;
use gemwright_cpu::Number;
use gemwright_engine::{Multiply, Problem};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// A layer that may keep its weight a second time, as a kernel reads it fastest. Which, and from how many rows on, the
/// tables say; without one it is a kernel of ours. There is one layout: rows for which the tables want another get the
/// weight as it lies.
///
/// ```
/// use gemwright_nn::{Backend, Linear, PackedLinear};
///
/// let backend = Backend::new(1);
/// let layer = Linear::new(2, 3, vec![1f32, 0.0, 0.0, 0.0, 1.0, 1.0], Some(vec![0.5, -1.0]))?;
/// let packed = PackedLinear::new(layer);
/// assert_eq!(packed.laid_out_by(), None);
/// // The first call lays the weight out; later ones, of any number of rows, take it from there.
/// assert_eq!(packed.forward(&backend, &[1.0, 2.0, 3.0])?, [1.5, 4.0]);
/// assert_eq!(packed.forward(&backend, &[1.0, 2.0, 3.0, 0.0, 0.0, 1.0])?, [1.5, 4.0, 0.5, 0.0]);
/// // Without a table a kernel of ours, such as `own.avx2-f32`.
/// assert!(packed.laid_out_by().is_some_and(|who| who.starts_with("own.")));
/// # Ok::<(), gemwright_nn::LayerError>(())
/// ```
pub struct PackedLinear<T> {
    layer: Linear<T>,
    ready: Mutex<Ready>,
}

#[derive(Default)]
struct Ready {
    /// Who laid it out, and the product for which that was done.
    layout: Option<(Runner, Arc<Multiply>)>,
    /// By the number of rows; `None`: as it lies.
    by_rows: HashMap<usize, Option<Arc<Multiply>>>,
}

impl<T: Number> PackedLinear<T> {
    /// Nothing is laid out before it is needed.
    pub fn new(layer: Linear<T>) -> PackedLinear<T> {
        PackedLinear { layer, ready: Mutex::default() }
    }

    /// The layer as it was.
    pub fn layer(&self) -> &Linear<T> {
        &self.layer
    }

    /// Who laid the weight out, if anybody did.
    pub fn laid_out_by(&self) -> Option<String> {
        let ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        ready.layout.as_ref().map(|(runner, _)| runner.candidate.clone())
    }

    /// The output of rows of inputs. One backend is meant for all calls: whose first call lays out, lays out for all.
    ///
    /// # Errors
    /// A number of elements that makes no rows.
    pub fn forward(&self, backend: &Backend, x: &[T]) -> Result<Vec<T>, LayerError> {
        let rows = self.layer.rows("x", x.len(), self.layer.inputs())?;
        let Some(product) = self.product(backend, rows) else { return self.layer.forward(backend, x) };
        let mut y = vec![T::from_f64(0.0); rows * self.layer.outputs()];
        product.run_packed(x, &mut y, self.layer.parts())?;
        Ok(y)
    }

    fn product(&self, backend: &Backend, rows: usize) -> Option<Arc<Multiply>> {
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = ready.by_rows.get(&rows) {
            return known.clone();
        }
        let problem = self.layer.problem(rows);
        let wanted = backend.layout(&problem);
        let found = wanted.and_then(|wanted| match &ready.layout {
            Some((runner, first)) if *runner == wanted => {
                let problem = Problem { prepacked: true, ..problem };
                first.for_rows(&problem).map(Arc::new)
            }
            Some(_) => None,
            None => {
                let laid_out = Arc::new(backend.laid_out(&wanted, &problem, self.layer.weight())?);
                ready.layout = Some((wanted, laid_out.clone()));
                Some(laid_out)
            }
        });
        ready.by_rows.insert(rows, found.clone());
        found
    }
}
