//! Our CPU kernels as candidates: one loop over the list that the kernels themselves give.

use crate::candidate::{Candidate, CpuQueue, Operand, Operands, Plan, Queue, Region, RunError};
use crate::contract::{Contract, Determinism, Refusal, Strides};
use crate::problem::{Layout, Problem};
use gemwright_core::DType;
use gemwright_cpu::{Element, Job, Kernel, Mat, MatMut, Scratch};
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
            prepacks: false,
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
        Ok(Box::new(OwnPlan { kernel: self.kernel, problem: *problem, scratch: Mutex::new(Scratch::new()) }))
    }
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
        let Some(queue) = queue.as_any().downcast_ref::<CpuQueue>() else {
            return Err(RunError::Queue(queue.name().into()));
        };
        let mut own = self.scratch.try_lock().ok();
        let mut other = Scratch::new();
        let scratch = own.as_deref_mut().unwrap_or(&mut other);
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
    let first = |operand: &Operand, layout: &Layout, i: u64| {
        let steps = operand.first as isize + i as isize * layout.batch as isize;
        operand.region.address.cast::<T>().wrapping_offset(steps)
    };
    let steps = |layout: &Layout| (layout.row as isize, layout.col as isize);
    let [m, n, k] = [p.m, p.n, p.k].map(|x| x as usize);
    for i in 0..p.batch {
        // SAFETY: every element lies inside its region, and the result's are this run's alone.
        let (a, b, c) = unsafe {
            (
                Mat::from_raw(first(&operands.a, &problem.a, i), (m, k), steps(&problem.a)),
                Mat::from_raw(first(&operands.b, &problem.b, i), (k, n), steps(&problem.b)),
                MatMut::from_raw(first(&operands.out, &problem.out, i), (m, n), steps(&problem.out)),
            )
        };
        run(Job { a, b, c, alpha: T::from_f64(problem.alpha), beta: T::from_f64(problem.beta) });
    }
}
