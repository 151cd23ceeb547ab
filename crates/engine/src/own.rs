//! Our CPU kernels as candidates: one loop over the list that the kernels themselves give.

use crate::candidate::{Candidate, CpuQueue, Operand, Operands, Plan, Queue, Region, RunError};
use crate::contract::{Contract, Determinism, Refusal, Strides};
use crate::problem::{Layout, Problem};
use gemwright_core::DType;
use gemwright_cpu::{Element, Job, Kernel, Mat, MatMut, Packed, PackedJob, Scratch, WithPacked};
use std::sync::Mutex;

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
        let dtypes: &'static [DType] = match kernel.dtype {
            DType::F64 => &[DType::F64],
            _ => &[DType::F32],
        };
        let contract = Contract {
            dtypes,
            strides: Strides::Any,
            largest: LARGEST,
            batches: true,
            prepacks: dtypes,
            determinism: Determinism::Always,
            denormals: true,
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
        Ok(Box::new(OwnPlan { kernel: self.kernel, problem: *problem, scratch: Mutex::new(Scratch::new()) }))
    }

    unsafe fn prepare_packed(&self, problem: &Problem, b: &Operand) -> Result<Box<dyn Plan>, Refusal> {
        self.contract.admits(problem)?;
        let problem = *problem;
        // SAFETY: by the contract of `prepare_packed`.
        Ok(unsafe {
            match (self.kernel.packed_f32(), self.kernel.packed_f64()) {
                (Some(with), _) => Box::new(PackedPlan::new(with, problem, b)) as Box<dyn Plan>,
                (_, Some(with)) => Box::new(PackedPlan::new(with, problem, b)),
                _ => return Err(Refusal::Prepack),
            }
        })
    }
}

/// A problem with its weights laid out, one matrix of the batch after the other.
struct PackedPlan<T> {
    with: WithPacked<T>,
    problem: Problem,
    weights: Vec<Packed<T>>,
    scratch: Mutex<Scratch>,
}

impl<T: Element> PackedPlan<T> {
    /// # Safety
    /// As for [`Candidate::prepare_packed`]; T is the problem's element type.
    unsafe fn new(with: WithPacked<T>, problem: Problem, b: &Operand) -> PackedPlan<T> {
        let p = problem.product;
        let extents = (p.k as usize, p.n as usize);
        let weights = (0..p.batch).map(|i| {
            let first = first::<T>(b, &problem.b, i);
            // SAFETY: every element lies inside the region.
            (with.pack)(unsafe { Mat::from_raw(first, extents, steps(&problem.b)) })
        });
        PackedPlan { with, problem, weights: weights.collect(), scratch: Mutex::new(Scratch::new()) }
    }
}

impl<T: Element> Plan for PackedPlan<T> {
    fn problem(&self) -> &Problem {
        &self.problem
    }

    fn workspace(&self, _queue: &dyn Queue) -> usize {
        0
    }

    unsafe fn run(&self, queue: &dyn Queue, operands: &Operands, _workspace: Region) -> Result<(), RunError> {
        let queue = CpuQueue::of(queue)?;
        // Whoever finds the memory in use takes some of their own.
        let (mut kept, mut other) = (self.scratch.try_lock().ok(), Scratch::new());
        let scratch = kept.as_deref_mut().unwrap_or(&mut other);
        let (problem, p) = (&self.problem, self.problem.product);
        let [m, n, k] = [p.m, p.n, p.k].map(|x| x as usize);
        let (alpha, beta) = (T::from_f64(problem.alpha), T::from_f64(problem.beta));
        for (i, weights) in (0..).zip(&self.weights) {
            // SAFETY: every element lies inside its region, and the result's are this run's alone.
            let (a, c) = unsafe {
                (
                    Mat::from_raw(first::<T>(&operands.a, &problem.a, i), (m, k), steps(&problem.a)),
                    MatMut::from_raw(first::<T>(&operands.out, &problem.out, i), (m, n), steps(&problem.out)),
                )
            };
            (self.with.run)(PackedJob { a, b: weights, c, alpha, beta }, &queue.pool, queue.threads, scratch);
        }
        Ok(())
    }
}

/// The first element of a matrix of the batch.
fn first<T>(operand: &Operand, layout: &Layout, i: u64) -> *mut T {
    let steps = operand.first as isize + i as isize * layout.batch as isize;
    operand.region.address.cast::<T>().wrapping_offset(steps)
}

fn steps(layout: &Layout) -> (isize, isize) {
    (layout.row as isize, layout.col as isize)
}

struct OwnPlan {
    kernel: &'static Kernel,
    problem: Problem,
    /// Kept between runs, so that none allocates but the first.
    scratch: Mutex<Scratch>,
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
        // Whoever finds the memory in use takes some of their own.
        let (mut kept, mut other) = (self.scratch.try_lock().ok(), Scratch::new());
        let scratch = kept.as_deref_mut().unwrap_or(&mut other);
        // SAFETY: by the contract of `run`.
        unsafe {
            match (self.kernel.run_f32(), self.kernel.run_f64()) {
                (Some(run), _) => batches(&self.problem, operands, |job| run(job, &queue.pool, queue.threads, scratch)),
                (_, Some(run)) => batches(&self.problem, operands, |job| run(job, &queue.pool, queue.threads, scratch)),
                _ => {}
            }
        }
        Ok(())
    }
}

/// Runs each matrix of the batch.
///
/// # Safety
/// As for [`Plan::run`]; T is the problem's element type.
unsafe fn batches<T: Element>(problem: &Problem, operands: &Operands, mut run: impl FnMut(Job<'_, T>)) {
    let p = problem.product;
    let [m, n, k] = [p.m, p.n, p.k].map(|x| x as usize);
    for i in 0..p.batch {
        // SAFETY: every element lies inside its region, and the result's are this run's alone.
        let (a, b, c) = unsafe {
            (
                Mat::from_raw(first::<T>(&operands.a, &problem.a, i), (m, k), steps(&problem.a)),
                Mat::from_raw(first::<T>(&operands.b, &problem.b, i), (k, n), steps(&problem.b)),
                MatMut::from_raw(first::<T>(&operands.out, &problem.out, i), (m, n), steps(&problem.out)),
            )
        };
        run(Job { a, b, c, alpha: T::from_f64(problem.alpha), beta: T::from_f64(problem.beta) });
    }
}
