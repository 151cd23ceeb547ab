//! Products of slices, for callers that want no unsafe code: every extent is checked.

use crate::candidate::{Candidate, CpuQueue, Operand, Operands, Plan, Region, RunError};
use crate::contract::Refusal;
use crate::own::own;
use crate::problem::{Layout, Problem};
use gemwright_core::DType;
use gemwright_cpu::Element;

/// Why a product was not computed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum MultiplyError {
    #[error("{0}")]
    Refused(#[from] Refusal),
    #[error("{0}")]
    Run(#[from] RunError),
    #[error("{operand} has {given} elements, the product needs {needed}")]
    Short { operand: &'static str, given: usize, needed: i128 },
    #[error("{0} are no elements of this problem")]
    DType(&'static str),
    #[error("this machine has no kernel for {0}")]
    None(DType),
}

/// A problem with the best of our kernels, ready to run on slices of the host.
///
/// ```
/// use gemwright_core::DType;
/// use gemwright_engine::{Multiply, Problem};
///
/// let (x, w) = ([1f32, 2.0, 3.0], [1f32, 0.0, 0.0, 0.0, 1.0, 1.0]);
/// let mut y = [0f32; 2];
/// // one token through a linear layer of two features: y = x · wᵀ
/// let layer = Multiply::new(Problem::linear(1, 2, 3, DType::F32), 1)?;
/// layer.run(&x, &w, &mut y)?;
/// assert_eq!(y, [1.0, 5.0]);
/// # Ok::<(), gemwright_engine::MultiplyError>(())
/// ```
pub struct Multiply {
    plan: Box<dyn Plan>,
    queue: CpuQueue,
}

impl Multiply {
    /// On up to so many threads.
    pub fn new(problem: Problem, threads: usize) -> Result<Multiply, MultiplyError> {
        let kernels = own();
        let fits =
            |candidate: &&dyn Candidate| candidate.contract().dtypes.contains(&(problem.dtype, problem.out_dtype));
        let found = kernels.iter().map(|candidate| &**candidate).find(fits);
        let candidate = found.ok_or(MultiplyError::None(problem.dtype))?;
        Multiply::with(candidate, problem, CpuQueue::new(threads))
    }

    /// With a candidate and a queue of the caller's choice.
    pub fn with(candidate: &dyn Candidate, problem: Problem, queue: CpuQueue) -> Result<Multiply, MultiplyError> {
        Ok(Multiply { plan: candidate.prepare(&problem)?, queue })
    }

    /// Computes it. The first elements of the slices are those of row 0, column 0.
    pub fn run<T: Element>(&self, a: &[T], b: &[T], out: &mut [T]) -> Result<(), MultiplyError> {
        let problem = self.plan.problem();
        if T::NAME != problem.dtype.name() {
            return Err(MultiplyError::DType(T::NAME));
        }
        let p = problem.product;
        let operands = [
            ("a", problem.a, p.m, p.k, a.len()),
            ("b", problem.b, p.k, p.n, b.len()),
            ("out", problem.out, p.m, p.n, out.len()),
        ];
        for (operand, layout, rows, cols, given) in operands {
            inside(&layout, (p.batch, rows, cols), given).map_err(|needed| MultiplyError::Short {
                operand,
                given,
                needed,
            })?;
        }
        let operands = Operands {
            a: Operand::at_start(Region::of(a)),
            b: Operand::at_start(Region::of(b)),
            out: Operand::at_start(Region::of_mut(out)),
        };
        // SAFETY: 1 every element was shown to lie inside its slice, and a CPU queue is done when `run` returns.
        // 2 `out` is borrowed mutably, so nobody else touches it and it overlaps nothing.
        unsafe { self.plan.run(&self.queue, &operands, Region::NONE) }?;
        Ok(())
    }
}

/// All elements lie in `given` from the first on; otherwise how many it would take.
fn inside(layout: &Layout, (batch, rows, cols): (u64, u64, u64), given: usize) -> Result<(), i128> {
    if batch == 0 || rows == 0 || cols == 0 {
        return Ok(());
    }
    match layout.reach(batch, rows, cols) {
        Some((0, most)) if i128::from(most) < given as i128 => Ok(()),
        Some((least, most)) => Err(i128::from(most) - i128::from(least) + 1),
        None => Err(i128::from(i64::MAX)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_that_are_too_short_are_refused() {
        let layer = Multiply::new(Problem::linear(2, 3, 4, DType::F32), 1).unwrap();
        let (x, w) = ([0f32; 8], [0f32; 12]);
        let short = layer.run(&x, &w, &mut [0f32; 5]);
        assert_eq!(short, Err(MultiplyError::Short { operand: "out", given: 5, needed: 6 }));
        assert!(layer.run(&x[1..], &w, &mut [0f32; 6]).is_err());
        assert_eq!(layer.run(&[0f64; 8], &[0f64; 12], &mut [0f64; 6]), Err(MultiplyError::DType("f64")));
        assert!(layer.run(&x, &w, &mut [0f32; 6]).is_ok());
        assert_eq!(Multiply::new(Problem::new(1, 1, 1, DType::I8), 1).err(), Some(MultiplyError::None(DType::I8)));
    }
}
