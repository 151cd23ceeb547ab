//! Who multiplies for layers.

use crate::error::LayerError;
use gemwright_core::{DType, Runner, TunedDevice};
use gemwright_cpu::{Number, Pool};
use gemwright_engine::{
    Candidate, Contract, CpuQueue, Dispatcher, Fusion, Multiply, MultiplyError, Problem, RefusedTable, Variant,
    candidates, cpu_name,
};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

/// The candidates of this machine, threads for them, and tables that say who is to multiply what.
pub struct Backend {
    candidates: Vec<Box<dyn Candidate>>,
    dispatcher: Dispatcher,
    refused: Vec<RefusedTable>,
    pool: Arc<Pool>,
    threads: usize,
    /// Products that have been asked for, ready to run.
    ready: Mutex<HashMap<String, Arc<Multiply>>>,
    /// Who prepared one.
    used: Mutex<BTreeSet<String>>,
}

impl Backend {
    /// On up to so many threads, with the tables that `GEMWRIGHT_TABLE` names.
    pub fn new(threads: usize) -> Backend {
        let threads = threads.max(1);
        let versions = vec![("gemwright".to_string(), env!("CARGO_PKG_VERSION").to_string())];
        let here = TunedDevice { name: cpu_name(), units: threads as u64, flops: 1.0, bytes: 1.0, versions };
        let (dispatcher, refused) = Dispatcher::of_environment(&here, "");
        Backend::with(dispatcher, refused, threads)
    }

    fn with(dispatcher: Dispatcher, refused: Vec<RefusedTable>, threads: usize) -> Backend {
        let (candidates, _) = candidates();
        for candidate in &candidates {
            candidate.set_threads(threads);
        }
        let pool = Arc::new(Pool::new(threads));
        Backend { candidates, dispatcher, refused, pool, threads, ready: Mutex::default(), used: Mutex::default() }
    }

    /// With a dispatcher of the caller's.
    pub fn dispatched(dispatcher: Dispatcher, threads: usize) -> Backend {
        Backend::with(dispatcher, Vec::new(), threads.max(1))
    }

    /// Tables that were asked for and not taken, with the reason.
    pub fn refused_tables(&self) -> &[RefusedTable] {
        &self.refused
    }

    /// Who multiplies the products that were asked for so far, as tables name them: `own.avx2-f32`, `mkl:packed`.
    pub fn used(&self) -> Vec<String> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    fn uses(&self, name: &str) {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).insert(name.into());
    }

    fn queue(&self) -> CpuQueue {
        CpuQueue { pool: self.pool.clone(), threads: self.threads }
    }

    /// Runs something on every thread.
    pub(crate) fn on_threads(&self, task: &(dyn Fn() + Sync)) {
        self.pool.run(self.threads, &|_| task());
    }

    /// A product for one thread, by one of ours: small ones, of which threads take many.
    pub(crate) fn on_one_thread(&self, problem: &Problem) -> Result<Multiply, LayerError> {
        let queue = CpuQueue { pool: self.pool.clone(), threads: 1 };
        let types = (problem.dtype, problem.out_dtype);
        let own = self.candidates.iter().find(|c| c.is_own() && c.contract().dtypes.contains(&types));
        let own = own.ok_or(MultiplyError::None(problem.dtype))?;
        let found = Multiply::with(&**own, *problem, queue)?;
        self.uses(own.name());
        Ok(found)
    }

    /// Whom the tables say for a product whose weight may be laid out, if by a layout: its name, with which it is split.
    /// Where no table knows, the first of ours that lays weights of this type out.
    pub(crate) fn layout(&self, problem: &Problem) -> Option<Runner> {
        let answer = self.dispatcher.choose(&Problem { prepacked: true, ..*problem });
        let splits = |of: &Contract| of.fusion == Fusion::None && !problem.epilogue.is_none();
        // What no table knows has no time.
        if !answer.seconds.is_nan() {
            let named = self.candidates.iter().find(|c| c.name() == answer.runner.candidate)?;
            let split = answer.runner.split || splits(named.contract());
            return answer.runner.packed.then(|| Runner { split, ..answer.runner.clone() });
        }
        let types = (problem.dtype, problem.out_dtype);
        let lays_out = |of: &Contract| of.dtypes.contains(&types) && of.prepacks.contains(&problem.dtype);
        let own = self.candidates.iter().find(|c| c.is_own() && lays_out(c.contract()))?;
        Some(Runner { candidate: own.name().into(), packed: true, split: splits(own.contract()) })
    }

    /// A product whose weight is laid out now, by whom `layout` said; none where that one is not here or refuses.
    pub(crate) fn laid_out<T: Number>(&self, runner: &Runner, problem: &Problem, weight: &[T]) -> Option<Multiply> {
        let candidate = self.candidates.iter().find(|c| c.name() == runner.candidate)?;
        let way = Variant::new(&**candidate, runner.split, true);
        let found = Multiply::packed(&way, Problem { prepacked: true, ..*problem }, weight, self.queue()).ok()?;
        self.uses(way.name());
        Some(found)
    }

    /// A product ready to run: by whom the tables say; where that one is not here or refuses, by one of ours.
    pub(crate) fn product(&self, problem: &Problem) -> Result<Arc<Multiply>, LayerError> {
        let key = format!("{problem:?}");
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = ready.get(&key) {
            return Ok(known.clone());
        }
        let answer = self.dispatcher.choose(problem);
        let types = (problem.dtype, problem.out_dtype);
        let named = self.candidates.iter().find(|c| c.name() == answer.runner.candidate);
        let own = self.candidates.iter().filter(|c| c.is_own() && c.contract().dtypes.contains(&types));
        let mut last = MultiplyError::None(problem.dtype);
        for (candidate, split) in named.map(|c| (c, answer.runner.split)).into_iter().chain(own.map(|c| (c, false))) {
            let ways = Variant::all(&**candidate, problem);
            let Some(way) = ways.iter().find(|way| way.runner.split == split).or(ways.first()) else { continue };
            match Multiply::with(way, *problem, self.queue()) {
                Ok(found) => {
                    let found = Arc::new(found);
                    ready.insert(key, found.clone());
                    self.uses(way.name());
                    return Ok(found);
                }
                Err(why) => last = why,
            }
        }
        Err(last.into())
    }
}

/// The element type of slices.
pub(crate) fn dtype<T: gemwright_cpu::Number>() -> DType {
    DType::parse(T::NAME).unwrap_or(DType::F32)
}
