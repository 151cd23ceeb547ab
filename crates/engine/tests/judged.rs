//! Everything through the judge: our kernels, the libraries that are here, and candidates that are wrong
//! on purpose.
#![allow(clippy::unwrap_used, missing_docs)]

use gemwright_core::DType;
use gemwright_cpu::Kernel;
use gemwright_engine::judge::{EDGES, cases, judge};
use gemwright_engine::{
    Candidate, Contract, CpuQueue, Epilogue, Fusion, Operands, OwnKernel, Plan, Problem, Queue, Refusal, Region,
    RunError, Split, vendor,
};
use std::any::Any;
use std::sync::Mutex;

fn all_cases(contract: &Contract) -> Vec<Problem> {
    contract.dtypes.iter().flat_map(|types| cases(*types, &EDGES, 11)).collect()
}

/// Kernels that must have run where the machine has their instructions.
#[test]
fn every_kernel_is_right_wherever_its_contract_admits() {
    let queue = CpuQueue::new(2);
    let mut ran = Vec::new();
    for kernel in Kernel::all() {
        if !kernel.is_present() {
            assert!(Kernel::named(kernel.name).is_err(), "an absent kernel must not be given");
            continue;
        }
        let candidate = OwnKernel::of(kernel);
        let verdict = judge(&candidate, &queue, &all_cases(candidate.contract()), 1);
        assert!(verdict.passed(), "{}: {:?}", candidate.name(), verdict.failures.first());
        assert!(verdict.right > 300, "{}: only {} cases", candidate.name(), verdict.right);
        ran.push(kernel.name);
    }
    let mut must: Vec<&str> = vec!["portable-f32", "portable-f64", "portable-bf16"];
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            must.extend(["avx2-f32", "avx2-f64", "avx2-bf16"]);
        }
        if is_x86_feature_detected!("avx512f") {
            must.extend(["avx512-f32", "avx512-f64", "avx512-bf16"]);
        }
        // Where the limit loop runs on tiles, products must too.
        if gemwright_cpu::amx_loop(&queue.pool, 1).is_some() && is_x86_feature_detected!("avx512bf16") {
            must.push("amx-bf16");
        }
    }
    assert!(must.iter().all(|name| ran.contains(name)), "{ran:?} lacks one of {must:?}");
}

#[test]
fn epilogues_that_are_split_off_are_right_too() {
    let queue = CpuQueue::new(2);
    for name in ["portable-f32", "portable-f64", "portable-bf16"] {
        let kernel = OwnKernel::of(Kernel::named(name).unwrap());
        let split = Split::of(&kernel);
        let verdict = judge(&split, &queue, &all_cases(split.contract()), 7);
        assert!(verdict.passed(), "{name}: {:?}", verdict.failures.first());
    }
}

#[test]
fn libraries_that_are_here_are_right_and_others_are_named() {
    let queue = CpuQueue::new(2);
    let (found, absent) = vendor::vendors();
    for candidate in &found {
        candidate.set_threads(2);
        let verdict = judge(&**candidate, &queue, &all_cases(candidate.contract()), 2);
        assert!(verdict.passed(), "{} {}: {:?}", candidate.name(), candidate.origin(), verdict.failures.first());
        assert!(verdict.refused > 0, "{}: odd strides are outside its contract", candidate.name());
    }
    assert_eq!(found.len() + absent.len(), 7);
    assert!(absent.iter().all(|a| !a.how.is_empty() && !a.why.is_empty()));
}

/// What a wrong kernel does.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// One element is a little off.
    Element,
    /// The result is read although beta is 0.
    ReadsResult,
    /// One element behind the result is written.
    Outside,
    /// It takes what its contract does not admit.
    TakesAll,
    /// It says that it has epilogues, and leaves them out.
    NoEpilogue,
}

struct Wrong {
    right: OwnKernel,
    fault: Fault,
    contract: Contract,
}

struct WrongPlan {
    right: Box<dyn Plan>,
    fault: Fault,
}

impl Candidate for Wrong {
    fn name(&self) -> &'static str {
        "wrong"
    }

    fn origin(&self) -> String {
        String::new()
    }

    fn contract(&self) -> &Contract {
        &self.contract
    }

    fn prepare(&self, problem: &Problem) -> Result<Box<dyn Plan>, Refusal> {
        if !matches!(self.fault, Fault::TakesAll) {
            self.contract.admits(problem)?;
        }
        let bare = Problem { epilogue: Epilogue::default(), ..*problem };
        let problem = if matches!(self.fault, Fault::NoEpilogue) { &bare } else { problem };
        Ok(Box::new(WrongPlan { right: self.right.prepare(problem)?, fault: self.fault }))
    }
}

impl Plan for WrongPlan {
    fn problem(&self) -> &Problem {
        self.right.problem()
    }

    fn workspace(&self, queue: &dyn Queue) -> usize {
        self.right.workspace(queue)
    }

    unsafe fn run(&self, queue: &dyn Queue, operands: &Operands, workspace: Region) -> Result<(), RunError> {
        let p = *self.problem();
        let extents = [p.product.batch, p.product.m, p.product.n];
        let out = operands.out.region.address.cast::<f32>();
        // SAFETY: by the contract of `run`; the planted faults stay inside the judge's memory.
        unsafe {
            let first = out.add(operands.out.first);
            let before = if extents.contains(&0) { 0.0 } else { *first };
            self.right.run(queue, operands, workspace)?;
            if extents.contains(&0) {
                return Ok(());
            }
            match self.fault {
                Fault::Element if p.product.k > 3 && p.alpha != 0.0 => *first += 1e-3 * p.product.k as f32,
                Fault::ReadsResult if p.beta == 0.0 => *first += 0.0 * before,
                Fault::Outside => {
                    let (_, most) = p.out.reach(extents[0], extents[1], extents[2]).unwrap();
                    *first.offset(most as isize + 1) = 7.0;
                }
                _ => {}
            }
        }
        Ok(())
    }
}

#[test]
fn planted_faults_are_caught() {
    let queue = CpuQueue::new(1);
    let kernel = Kernel::best(DType::F32).unwrap();
    for fault in [Fault::Element, Fault::ReadsResult, Fault::Outside, Fault::TakesAll, Fault::NoEpilogue] {
        let right = OwnKernel::of(kernel);
        let mut contract = *right.contract();
        if matches!(fault, Fault::TakesAll) {
            contract.strides = gemwright_engine::Strides::Blas;
        }
        if matches!(fault, Fault::NoEpilogue) {
            contract.fusion = Fusion::Fused;
        }
        let wrong = Wrong { right, fault, contract };
        let verdict = judge(&wrong, &queue, &cases((DType::F32, DType::F32), &EDGES, 3), 4);
        assert!(!verdict.passed(), "{fault:?} was not caught");
        assert!(verdict.failures.len() > 20, "{fault:?}: {}", verdict.failures.len());
    }
}

/// A device that does nothing until it is told to: what `run` puts on it is only kept.
#[derive(Default)]
struct Later {
    work: Mutex<Vec<Box<dyn FnOnce() + Send>>>,
}

impl Queue for Later {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn name(&self) -> &'static str {
        "later"
    }
}

struct LaterPlan {
    host: std::sync::Arc<Box<dyn Plan>>,
}

impl Plan for LaterPlan {
    fn problem(&self) -> &Problem {
        self.host.problem()
    }

    fn workspace(&self, _queue: &dyn Queue) -> usize {
        0
    }

    unsafe fn run(&self, queue: &dyn Queue, operands: &Operands, _workspace: Region) -> Result<(), RunError> {
        let later = queue.as_any().downcast_ref::<Later>().ok_or_else(|| RunError::Queue(queue.name().into()))?;
        let (host, operands) = (std::sync::Arc::clone(&self.host), *operands);
        later.work.lock().unwrap().push(Box::new(move || {
            // SAFETY: the caller of `run` keeps the memory until the queue has done its work.
            unsafe { host.run(&CpuQueue::new(1), &operands, Region::NONE) }.unwrap();
        }));
        Ok(())
    }
}

#[test]
fn nothing_in_a_plan_waits_on_the_host() {
    let problem = Problem::new(2, 2, 2, DType::F32);
    let host = OwnKernel::of(Kernel::best(DType::F32).unwrap()).prepare(&problem).unwrap();
    let plan = LaterPlan { host: std::sync::Arc::new(host) };
    let (a, b, mut out) = ([1f32, 2.0, 3.0, 4.0], [1f32, 0.0, 0.0, 1.0], [0f32; 4]);
    let at = |region| gemwright_engine::Operand::at_start(region);
    let operands = Operands::new(at(Region::of(&a)), at(Region::of(&b)), at(Region::of_mut(&mut out)));
    let queue = Later::default();
    // SAFETY: the arrays live to the end of the test.
    unsafe { plan.run(&queue, &operands, Region::NONE) }.unwrap();
    assert_eq!(out, [0.0; 4], "it was computed before its turn");
    queue.work.lock().unwrap().drain(..).for_each(|work| work());
    assert_eq!(out, a);
    // SAFETY: as above.
    let refused = unsafe { plan.run(&CpuQueue::new(1), &operands, Region::NONE) };
    assert_eq!(refused, Err(RunError::Queue("cpu".into())));
}
