//! Products of slices, for callers that want no unsafe code: every extent is checked.

use crate::candidate::{Candidate, CpuQueue, Operand, Operands, Plan, Region, RunError};
use crate::contract::{Fusion, Refusal};
use crate::epilogue::{Part, Parts};
use crate::own::own;
use crate::problem::{Layout, Problem};
use crate::split::Split;
use gemwright_core::DType;
use gemwright_cpu::Number;

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
    #[error("the epilogue of this problem {0}")]
    Part(String),
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
    needs: Needs,
}

/// The elements that operands have to have, worked out once: a small product takes less time than that.
struct Needs {
    a: Need,
    b: Need,
    out: Need,
    parts: Parts<Need>,
}

/// So many elements from the first on.
#[derive(Clone, Copy)]
struct Need {
    /// More than any slice has where some would lie before the first.
    elements: usize,
    /// What is said to who gives fewer.
    span: i128,
}

impl Needs {
    fn of(problem: &Problem) -> Needs {
        let (p, e) = (problem.product, &problem.epilogue);
        let need = |layout: &Layout, rows, cols| Need::of(layout, (p.batch, rows, cols));
        Needs {
            a: need(&problem.a, p.m, p.k),
            b: need(&problem.b, p.k, p.n),
            out: need(&problem.out, p.m, p.n),
            parts: e.parts.map(|part| part.map(|layout| need(&layout, p.m, p.n))),
        }
    }
}

impl Need {
    fn of(layout: &Layout, (batch, rows, cols): (u64, u64, u64)) -> Need {
        if batch == 0 || rows == 0 || cols == 0 {
            return Need { elements: 0, span: 0 };
        }
        let (least, most) = layout.reach(batch, rows, cols).unwrap_or((-1, i64::MAX - 1));
        let span = i128::from(most) - i128::from(least) + 1;
        let elements = if least == 0 { usize::try_from(span).unwrap_or(usize::MAX) } else { usize::MAX };
        Need { elements, span }
    }

    fn met_by(&self, operand: &'static str, given: usize) -> Result<(), MultiplyError> {
        match given >= self.elements {
            true => Ok(()),
            false => Err(MultiplyError::Short { operand, given, needed: self.span }),
        }
    }
}

impl Multiply {
    /// On up to so many threads.
    pub fn new(problem: Problem, threads: usize) -> Result<Multiply, MultiplyError> {
        let kernels = own();
        let fits =
            |candidate: &&dyn Candidate| candidate.contract().dtypes.contains(&(problem.dtype, problem.out_dtype));
        let found = kernels.iter().map(|candidate| &**candidate).find(fits);
        let candidate = found.ok_or(MultiplyError::None(problem.dtype))?;
        let queue = CpuQueue::new(threads);
        match candidate.contract().fusion {
            Fusion::None if !problem.epilogue.is_none() => Multiply::with(&Split::of(candidate), problem, queue),
            _ => Multiply::with(candidate, problem, queue),
        }
    }

    /// With a candidate and a queue of the caller's choice.
    pub fn with(candidate: &dyn Candidate, problem: Problem, queue: CpuQueue) -> Result<Multiply, MultiplyError> {
        Ok(Multiply::of(candidate.prepare(&problem)?, queue))
    }

    fn of(plan: Box<dyn Plan>, queue: CpuQueue) -> Multiply {
        let needs = Needs::of(plan.problem());
        Multiply { plan, queue, needs }
    }

    /// The same with weights that are laid out now, in memory of its own: `b` is not needed any more.
    pub fn packed<T: Number>(
        candidate: &dyn Candidate,
        problem: Problem,
        b: &[T],
        queue: CpuQueue,
    ) -> Result<Multiply, MultiplyError> {
        if T::NAME != problem.dtype.name() {
            return Err(MultiplyError::DType(T::NAME));
        }
        Needs::of(&problem).b.met_by("b", b.len())?;
        // SAFETY: every element was shown to lie inside of it.
        let plan = unsafe { candidate.prepare_packed(&problem, &Operand::at_start(Region::of(b))) }?;
        match plan.holds_weights() {
            true => Ok(Multiply::of(plan, queue)),
            false => Err(MultiplyError::Refused(Refusal::Prepack)),
        }
    }

    /// The same laid out weights for another number of rows; none where their layout depends on it.
    pub fn for_rows(&self, problem: &Problem) -> Option<Multiply> {
        let queue = CpuQueue { pool: self.queue.pool.clone(), threads: self.queue.threads };
        Some(Multiply::of(self.plan.for_rows(problem)?, queue))
    }

    /// Computes it with the weights that are laid out.
    pub fn run_packed<T: Number, U: Number>(
        &self,
        a: &[T],
        out: &mut [U],
        parts: Parts<&[U]>,
    ) -> Result<(), MultiplyError> {
        if !self.plan.holds_weights() {
            return Err(MultiplyError::Refused(Refusal::Prepack));
        }
        self.run_on(a, None, out, parts)
    }

    /// Computes it. The first elements of the slices are those of row 0, column 0.
    pub fn run<T: Number, U: Number>(&self, a: &[T], b: &[T], out: &mut [U]) -> Result<(), MultiplyError> {
        self.run_with(a, b, out, Parts::default())
    }

    /// The same with what the problem's epilogue takes, in the order of [`Part::ALL`].
    pub fn run_with<T: Number, U: Number>(
        &self,
        a: &[T],
        b: &[T],
        out: &mut [U],
        parts: Parts<&[U]>,
    ) -> Result<(), MultiplyError> {
        self.run_on(a, Some(b), out, parts)
    }

    fn run_on<T: Number, U: Number>(
        &self,
        a: &[T],
        b: Option<&[T]>,
        out: &mut [U],
        parts: Parts<&[U]>,
    ) -> Result<(), MultiplyError> {
        let problem = self.plan.problem();
        for (given, wanted) in [(T::NAME, problem.dtype), (U::NAME, problem.out_dtype)] {
            if given != wanted.name() {
                return Err(MultiplyError::DType(given));
            }
        }
        self.needs.a.met_by("a", a.len())?;
        if let Some(b) = b {
            self.needs.b.met_by("b", b.len())?;
        }
        self.needs.out.met_by("out", out.len())?;
        let b = b.map_or(Region::NONE, Region::of);
        let mut operands = Operands::new(
            Operand::at_start(Region::of(a)),
            Operand::at_start(b),
            Operand::at_start(Region::of_mut(out)),
        );
        for part in Part::ALL {
            match (&self.needs.parts[part as usize], parts[part as usize]) {
                (None, None) => {}
                (Some(need), Some(given)) => {
                    need.met_by(part.name(), given.len())?;
                    operands.parts[part as usize] = Some(Operand::at_start(Region::of(given)));
                }
                (need, _) => return Err(wrong_part(part, need.is_some())),
            }
        }
        // SAFETY: 1 every element was shown to lie inside its slice, weights that are laid out are not looked at again, and
        // a CPU queue is done when `run` returns.
        // 2 `out` is borrowed mutably, so nobody else touches it and it overlaps nothing.
        Ok(unsafe { self.plan.run(&self.queue, &operands, Region::NONE) }?)
    }
}

#[cold]
fn wrong_part(part: Part, wanted: bool) -> MultiplyError {
    let name = part.name();
    MultiplyError::Part(if wanted { format!("takes a {name}, which is not given") } else { format!("takes no {name}") })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::epilogue::Epilogue;
    use gemwright_cpu::half::bf16;

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

    #[test]
    fn weights_laid_out_once_serve_any_number_of_rows() {
        let kernels = own();
        let kernel = &**kernels.iter().find(|c| c.contract().prepacks.contains(&DType::F32)).unwrap();
        let (x, w) = ([1f32, 2.0, 3.0, 4.0, 5.0, 6.0], [1f32, 0.0, 0.0, 0.0, 1.0, 1.0]);
        let problem = |rows| Problem { prepacked: true, ..Problem::linear(rows, 2, 3, DType::F32) };
        let one = Multiply::packed(kernel, problem(1), &w, CpuQueue::new(1)).unwrap();
        let (mut y, mut two_rows) = ([0f32; 2], [0f32; 4]);
        one.run_packed(&x[..3], &mut y, Parts::default()).unwrap();
        let two = one.for_rows(&problem(2)).unwrap();
        two.run_packed(&x, &mut two_rows, Parts::default()).unwrap();
        assert_eq!((y, two_rows), ([1.0, 5.0], [1.0, 5.0, 4.0, 11.0]));
        // Rows on top of one another, other columns, weights that are not laid out: refused.
        let flat = Problem { out: Layout { row: 0, col: 1, batch: 0 }, ..problem(2) };
        assert!(one.for_rows(&flat).is_none() && one.for_rows(&Problem::linear(2, 3, 3, DType::F32)).is_none());
        let plain = Multiply::with(kernel, Problem::linear(1, 2, 3, DType::F32), CpuQueue::new(1)).unwrap();
        assert!(plain.run_packed(&x[..3], &mut y, Parts::default()).is_err());
        let as_it_lies = crate::variant::Variant::new(kernel, false, false);
        assert!(Multiply::packed(&as_it_lies, problem(1), &w, CpuQueue::new(1)).is_err());
        assert!(Multiply::packed(kernel, problem(1), &w[1..], CpuQueue::new(1)).is_err());
    }

    #[test]
    fn what_only_a_gpu_does_is_refused() {
        for dtype in [DType::F32, DType::Bf16] {
            let gated = Problem::gated(2, 3, 4, dtype, gemwright_core::Activation::Silu);
            assert_eq!(Multiply::new(gated, 1).err(), Some(MultiplyError::Refused(Refusal::GateOrKeep)));
            let kept = Epilogue { kept: Some(Layout::row_major(2, 3)), ..Epilogue::default() };
            let kept = Problem { epilogue: kept, ..Problem::linear(2, 3, 4, dtype) };
            assert_eq!(Multiply::new(kept, 1).err(), Some(MultiplyError::Refused(Refusal::GateOrKeep)));
        }
    }

    #[test]
    fn epilogues_take_what_they_say_and_nothing_else() {
        let epilogue = Epilogue::named(["bias", "relu"].into_iter(), (1, 2)).unwrap();
        for dtype in [DType::F32, DType::Bf16] {
            let problem = Problem { epilogue, out_dtype: DType::F32, ..Problem::linear(1, 2, 3, dtype) };
            let layer = Multiply::new(problem, 1).unwrap();
            let run = |parts: Parts<&[f32]>| {
                let (x, w, mut y) = ([1.0, 2.0, 3.0], [1.0, 0.0, 0.0, 0.0, 1.0, 1.0], [0f32; 2]);
                match dtype {
                    DType::F32 => layer.run_with(&x.map(|x| x as f32), &w.map(|w| w as f32), &mut y, parts)?,
                    _ => layer.run_with(&x.map(bf16::from_f64), &w.map(bf16::from_f64), &mut y, parts)?,
                }
                Ok::<_, MultiplyError>(y)
            };
            assert_eq!(run([None, Some(&[0.5, -7.0]), None, None]), Ok([1.5, 0.0]));
            assert!(run([None, Some(&[0.5]), None, None]).unwrap_err().to_string().contains("bias has 1 elements"));
            assert!(run(Parts::default()).unwrap_err().to_string().contains("takes a bias"));
            assert!(run([None, Some(&[0.5, -7.0]), None, Some(&[0.0; 2])]).is_err());
        }
    }
}
