//! A candidate that has no epilogue, offered again with the epilogue split off: its product, then a pass over the
//! result.

use crate::candidate::{Candidate, CpuQueue, Operand, Operands, Plan, Queue, Region, RunError};
use crate::contract::{Contract, Fusion, Refusal};
use crate::epilogue::Epilogue;
use crate::own::{epilogue, result};
use crate::problem::Problem;
use gemwright_core::DType;
use gemwright_cpu::half::bf16;
use gemwright_cpu::{Finish, finish};

/// Another candidate, and a pass of ours.
pub struct Split<'a> {
    inner: &'a dyn Candidate,
    contract: Contract,
}

impl<'a> Split<'a> {
    /// Of any candidate; one that fuses does so no more.
    pub fn of(inner: &'a dyn Candidate) -> Split<'a> {
        Split { inner, contract: Contract { fusion: Fusion::Split, ..*inner.contract() } }
    }
}

fn bare(problem: &Problem) -> Problem {
    Problem { epilogue: Epilogue::default(), ..*problem }
}

impl Candidate for Split<'_> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn origin(&self) -> String {
        self.inner.origin()
    }

    fn contract(&self) -> &Contract {
        &self.contract
    }

    fn is_own(&self) -> bool {
        self.inner.is_own()
    }

    fn prepare(&self, problem: &Problem) -> Result<Box<dyn Plan>, Refusal> {
        self.contract.admits(problem)?;
        let product = self.inner.prepare(&bare(problem))?;
        Ok(Box::new(SplitPlan { product, contract: self.contract, problem: *problem }))
    }

    unsafe fn prepare_packed(&self, problem: &Problem, b: &Operand) -> Result<Box<dyn Plan>, Refusal> {
        self.contract.admits(problem)?;
        // SAFETY: by the contract.
        let product = unsafe { self.inner.prepare_packed(&bare(problem), b) }?;
        Ok(Box::new(SplitPlan { product, contract: self.contract, problem: *problem }))
    }

    fn starts_threads(&self) -> bool {
        self.inner.starts_threads()
    }

    fn set_threads(&self, threads: usize) {
        self.inner.set_threads(threads);
    }
}

struct SplitPlan {
    product: Box<dyn Plan>,
    contract: Contract,
    problem: Problem,
}

impl Plan for SplitPlan {
    fn problem(&self) -> &Problem {
        &self.problem
    }

    fn for_rows(&self, problem: &Problem) -> Option<Box<dyn Plan>> {
        let (product, contract) = (self.product.for_rows(&bare(problem))?, self.contract);
        let same = self.problem.same_weights(problem) && contract.admits(problem).is_ok();
        same.then(|| Box::new(SplitPlan { product, contract, problem: *problem }) as _)
    }

    fn holds_weights(&self) -> bool {
        self.product.holds_weights()
    }

    fn workspace(&self, queue: &dyn Queue) -> usize {
        self.product.workspace(queue)
    }

    unsafe fn run(&self, queue: &dyn Queue, operands: &Operands, workspace: Region) -> Result<(), RunError> {
        let host = CpuQueue::of(queue)?;
        // SAFETY: by the contract; the host has done the product when its `run` returns.
        unsafe {
            self.product.run(queue, operands, workspace)?;
            match self.problem.out_dtype {
                DType::F64 => self.finish::<f64>(host, operands),
                DType::Bf16 => self.finish::<bf16>(host, operands),
                _ => self.finish::<f32>(host, operands),
            }
        }
        Ok(())
    }
}

impl SplitPlan {
    /// # Safety
    /// As for [`Plan::run`]; U is the result's type.
    unsafe fn finish<U: Finish>(&self, queue: &CpuQueue, operands: &Operands) {
        for i in 0..self.problem.product.batch {
            // SAFETY: by the contract.
            let (mut c, epilogue) =
                unsafe { (result::<U>(&self.problem, operands, i), epilogue::<U>(&self.problem, operands, i)) };
            finish(&mut c, &epilogue, &queue.pool, queue.threads);
        }
    }
}
