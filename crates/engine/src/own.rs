//! Our CPU kernels as candidates: one loop over the list that the kernels themselves give.

use crate::candidate::{Candidate, CpuQueue, Operand, Operands, Plan, Queue, Region, RunError, address};
use crate::contract::{Contract, Determinism, Fusion, Refusal, Strides, Types};
use crate::epilogue::Part;
use crate::problem::{Layout, Problem};
use gemwright_core::DType;
use gemwright_cpu::{
    Element, Epilogue, Finish, Isa, Job, Kernel, Mat, MatMut, Mixed, MixedJob, Number, Packed, PackedJob, PackedTiles,
    Right, RunMixed, Scratch, WithPacked,
};
use std::sync::{Arc, Mutex};

/// Extents whose products still fit an address.
const LARGEST: u64 = 1 << 40;

/// One of our kernels.
pub struct OwnKernel {
    kernel: &'static Kernel,
    name: String,
    contract: Contract,
}

/// Those this machine can run.
pub fn own() -> Vec<Box<dyn Candidate>> {
    Kernel::present().map(|kernel| Box::new(OwnKernel::of(kernel)) as Box<dyn Candidate>).collect()
}

impl OwnKernel {
    /// A kernel that is present.
    pub fn of(kernel: &'static Kernel) -> OwnKernel {
        let (dtypes, prepacks): (&'static [Types], &'static [DType]) = match kernel.dtype {
            DType::F64 => (&[(DType::F64, DType::F64)], &[DType::F64]),
            // Without tiles there is nothing to gain by another layout.
            DType::Bf16 => (
                &[(DType::Bf16, DType::Bf16), (DType::Bf16, DType::F32)],
                if kernel.isa == Isa::Amx { &[DType::Bf16] } else { &[] },
            ),
            _ => (&[(DType::F32, DType::F32)], &[DType::F32]),
        };
        let contract = Contract {
            dtypes,
            strides: Strides::Any,
            largest: LARGEST,
            batches: true,
            prepacks,
            determinism: Determinism::Always,
            // Tiles, and dot products of bf16, take numbers below the smallest normal one for 0.
            denormals: !(kernel.dtype == DType::Bf16 && matches!(kernel.isa, Isa::Amx | Isa::Avx512)),
            fusion: if kernel.mixed().is_some() { Fusion::Fused } else { Fusion::None },
            gates: false,
            keeps: false,
            groups: false,
            weights: &[],
            scales: false,
        };
        OwnKernel { kernel, name: format!("own.{}", kernel.name), contract }
    }
}

impl Candidate for OwnKernel {
    fn name(&self) -> &str {
        &self.name
    }

    fn origin(&self) -> String {
        format!("gemwright {}", env!("CARGO_PKG_VERSION"))
    }

    fn contract(&self) -> &Contract {
        &self.contract
    }

    fn is_own(&self) -> bool {
        true
    }

    fn prepare(&self, problem: &Problem) -> Result<Box<dyn Plan>, Refusal> {
        self.contract.admits(problem)?;
        // Weights that are laid out beforehand must be given.
        if problem.prepacked {
            return Err(Refusal::Prepack);
        }
        if let Some(runs) = self.kernel.mixed() {
            let (contract, problem) = (self.contract, *problem);
            return Ok(Box::new(MixedPlan { runs, contract, problem, weights: None, scratch: Kept::default() }));
        }
        Ok(Box::new(OwnPlan { kernel: self.kernel, problem: *problem, scratch: Kept::default() }))
    }

    unsafe fn prepare_packed(&self, problem: &Problem, b: &Operand) -> Result<Box<dyn Plan>, Refusal> {
        self.contract.admits(problem)?;
        let problem = *problem;
        // SAFETY: by the contract of `prepare_packed`.
        Ok(unsafe {
            if let Some(runs) = self.kernel.mixed() {
                let weights = Some(Arc::new(weights(&problem, b, PackedTiles::new)));
                let contract = self.contract;
                return Ok(Box::new(MixedPlan { runs, contract, problem, weights, scratch: Kept::default() }));
            }
            match (self.kernel.packed_f32(), self.kernel.packed_f64()) {
                (Some(with), _) => Box::new(PackedPlan::new(with, self.contract, problem, b)) as Box<dyn Plan>,
                (_, Some(with)) => Box::new(PackedPlan::new(with, self.contract, problem, b)),
                _ => return Err(Refusal::Prepack),
            }
        })
    }
}

/// A problem with its weights laid out, one matrix of the batch after the other.
struct PackedPlan<T> {
    with: WithPacked<T>,
    contract: Contract,
    problem: Problem,
    weights: Arc<Vec<Packed<T>>>,
    scratch: Kept,
}

impl<T: Element> PackedPlan<T> {
    /// # Safety
    /// As for [`Candidate::prepare_packed`]; T is the problem's element type.
    unsafe fn new(with: WithPacked<T>, contract: Contract, problem: Problem, b: &Operand) -> PackedPlan<T> {
        // SAFETY: by the contract.
        let weights = Arc::new(unsafe { weights(&problem, b, with.pack) });
        PackedPlan { with, contract, problem, weights, scratch: Kept::default() }
    }
}

/// Every matrix of the batch, laid out.
///
/// # Safety
/// As for [`Candidate::prepare_packed`]; T is the problem's element type.
unsafe fn weights<T: Number, W>(problem: &Problem, b: &Operand, pack: impl Fn(Mat<'_, T>) -> W) -> Vec<W> {
    let p = problem.product;
    let extents = (p.k as usize, p.n as usize);
    let one = |i: u64| {
        let first = address::<T>(b, problem.b.batch, i);
        // SAFETY: every element lies inside the region.
        pack(unsafe { Mat::from_raw(first, extents, steps(&problem.b)) })
    };
    (0..p.batch).map(one).collect()
}

/// Memory a plan keeps between runs, so that operands are laid out where the last run laid them.
#[derive(Default)]
struct Kept(Mutex<Scratch>);

impl Kept {
    /// Whoever finds it in use takes some of their own.
    fn with<R>(&self, body: impl FnOnce(&mut Scratch) -> R) -> R {
        match self.0.try_lock() {
            Ok(mut kept) => body(&mut kept),
            Err(_) => body(&mut Scratch::new()),
        }
    }
}

impl<T: Element> Plan for PackedPlan<T> {
    fn problem(&self) -> &Problem {
        &self.problem
    }

    fn holds_weights(&self) -> bool {
        true
    }

    fn for_rows(&self, problem: &Problem) -> Option<Box<dyn Plan>> {
        let (with, contract, weights) = (self.with, self.contract, self.weights.clone());
        let same = self.problem.same_weights(problem) && contract.admits(problem).is_ok();
        same.then(|| Box::new(PackedPlan { with, contract, problem: *problem, weights, scratch: Kept::default() }) as _)
    }

    fn workspace(&self, _queue: &dyn Queue) -> usize {
        0
    }

    unsafe fn run(&self, queue: &dyn Queue, operands: &Operands, _workspace: Region) -> Result<(), RunError> {
        let queue = CpuQueue::of(queue)?;
        let problem = &self.problem;
        let (alpha, beta) = (T::from_f64(problem.alpha), T::from_f64(problem.beta));
        self.scratch.with(|scratch| {
            for (i, b) in (0..).zip(&*self.weights) {
                // SAFETY: by the contract of `run`.
                let (a, c) = unsafe { (left::<T>(problem, operands, i), result::<T>(problem, operands, i)) };
                (self.with.run)(PackedJob { a, b, c, alpha, beta }, &queue.pool, queue.threads, scratch);
            }
        });
        Ok(())
    }
}

fn steps(layout: &Layout) -> (isize, isize) {
    (layout.row as isize, layout.col as isize)
}

struct OwnPlan {
    kernel: &'static Kernel,
    problem: Problem,
    scratch: Kept,
}

impl Plan for OwnPlan {
    fn problem(&self) -> &Problem {
        &self.problem
    }

    fn workspace(&self, _queue: &dyn Queue) -> usize {
        0
    }

    unsafe fn run(&self, queue: &dyn Queue, operands: &Operands, _workspace: Region) -> Result<(), RunError> {
        let queue = CpuQueue::of(queue)?;
        let (problem, pool, threads) = (&self.problem, &queue.pool, queue.threads);
        // SAFETY: by the contract of `run`.
        self.scratch.with(|scratch| unsafe {
            match (self.kernel.run_f32(), self.kernel.run_f64()) {
                (Some(run), _) => batches(problem, operands, |job| run(job, pool, threads, scratch)),
                (_, Some(run)) => batches(problem, operands, |job| run(job, pool, threads, scratch)),
                _ => {}
            }
        });
        Ok(())
    }
}

/// Runs each matrix of the batch.
///
/// # Safety
/// As for [`Plan::run`]; T is the problem's element type.
unsafe fn batches<T: Element>(problem: &Problem, operands: &Operands, mut run: impl FnMut(Job<'_, T>)) {
    let (alpha, beta) = (T::from_f64(problem.alpha), T::from_f64(problem.beta));
    for i in 0..problem.product.batch {
        // SAFETY: by the contract.
        let (a, b, c) =
            unsafe { (left(problem, operands, i), right(problem, operands, i), result(problem, operands, i)) };
        run(Job { a, b, c, alpha, beta });
    }
}

/// A problem of bf16, with its weights laid out or not.
struct MixedPlan {
    runs: Mixed,
    contract: Contract,
    problem: Problem,
    weights: Option<Arc<Vec<PackedTiles>>>,
    scratch: Kept,
}

impl Plan for MixedPlan {
    fn problem(&self) -> &Problem {
        &self.problem
    }

    fn holds_weights(&self) -> bool {
        self.weights.is_some()
    }

    fn for_rows(&self, problem: &Problem) -> Option<Box<dyn Plan>> {
        let (runs, contract, weights) = (self.runs, self.contract, self.weights.clone());
        let same = weights.is_some() && self.problem.same_weights(problem) && contract.admits(problem).is_ok();
        same.then(|| Box::new(MixedPlan { runs, contract, problem: *problem, weights, scratch: Kept::default() }) as _)
    }

    fn workspace(&self, _queue: &dyn Queue) -> usize {
        0
    }

    unsafe fn run(&self, queue: &dyn Queue, operands: &Operands, _workspace: Region) -> Result<(), RunError> {
        let queue = CpuQueue::of(queue)?;
        // SAFETY: by the contract of `run`.
        unsafe {
            match self.problem.out_dtype {
                DType::Bf16 => self.batches(queue, operands, self.runs.to_bf16),
                _ => self.batches(queue, operands, self.runs.to_f32),
            }
        }
        Ok(())
    }
}

impl MixedPlan {
    /// # Safety
    /// As for [`Plan::run`]; U is the result's element type.
    unsafe fn batches<U: Finish>(&self, queue: &CpuQueue, operands: &Operands, run: RunMixed<U>) {
        let problem = &self.problem;
        let (alpha, beta) = (problem.alpha as f32, problem.beta as f32);
        self.scratch.with(|scratch| {
            for i in 0..problem.product.batch {
                // SAFETY: by the contract; weights that were laid out are as many as the batch.
                let job = unsafe {
                    let b = match &self.weights {
                        Some(weights) => Right::Packed(&weights[i as usize]),
                        None => Right::Plain(right(problem, operands, i)),
                    };
                    let (a, c) = (left(problem, operands, i), result::<U>(problem, operands, i));
                    MixedJob { a, b, c, alpha, beta, epilogue: epilogue(problem, operands, i) }
                };
                run(job, &queue.pool, queue.threads, scratch);
            }
        });
    }
}

/// A of one matrix of the batch.
///
/// # Safety
/// As for [`Plan::run`]; T is the operands' element type.
unsafe fn left<'a, T>(problem: &Problem, operands: &Operands, i: u64) -> Mat<'a, T> {
    let p = problem.product;
    // SAFETY: every element lies inside its region.
    unsafe { Mat::from_raw(address(&operands.a, problem.a.batch, i), (p.m as usize, p.k as usize), steps(&problem.a)) }
}

/// B of one matrix of the batch.
///
/// # Safety
/// As for [`left`].
unsafe fn right<'a, T>(problem: &Problem, operands: &Operands, i: u64) -> Mat<'a, T> {
    let p = problem.product;
    // SAFETY: every element lies inside its region.
    unsafe { Mat::from_raw(address(&operands.b, problem.b.batch, i), (p.k as usize, p.n as usize), steps(&problem.b)) }
}

/// The result of one matrix of the batch.
///
/// # Safety
/// As for [`left`], of the result's element type; nobody else has its elements.
pub unsafe fn result<'a, U>(problem: &Problem, operands: &Operands, i: u64) -> MatMut<'a, U> {
    let p = problem.product;
    // SAFETY: every element lies inside its region, and is this run's alone.
    unsafe {
        MatMut::from_raw(
            address(&operands.out, problem.out.batch, i),
            (p.m as usize, p.n as usize),
            steps(&problem.out),
        )
    }
}

/// The epilogue of one matrix of the batch.
///
/// # Safety
/// As for [`left`], of the result's element type.
pub unsafe fn epilogue<'a, U: Finish>(problem: &Problem, operands: &Operands, i: u64) -> Epilogue<'a, U> {
    let extents = (problem.product.m as usize, problem.product.n as usize);
    let part = |part: Part| {
        let (layout, operand) = (problem.epilogue.parts[part as usize]?, operands.parts[part as usize].as_ref()?);
        // SAFETY: every element lies inside its region.
        Some(unsafe { Mat::from_raw(address(operand, layout.batch, i), extents, steps(&layout)) })
    };
    Epilogue {
        scale: part(Part::Scale),
        bias: part(Part::Bias),
        activation: problem.epilogue.activation,
        times: part(Part::Times),
        residual: part(Part::Residual),
    }
}
