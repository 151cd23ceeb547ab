//! What `gemwright tune` measures on the CPU: kernels of ours and libraries, each in all its ways.

use super::tune_worker::{Done, Measures, Task, timed};
use crate::error::Error;
use gemwright_core::{DType, Timed};
use gemwright_engine::bench::{Measured, Method, Stage, measure};
use gemwright_engine::{Candidate, Variant, candidates};

/// Who takes so many times as long as the fastest will not win.
const HOPELESS: f64 = 3.0;

pub struct OnCpu {
    all: Vec<Box<dyn Candidate>>,
    threads: usize,
}

impl OnCpu {
    pub fn new(threads: usize) -> OnCpu {
        OnCpu { all: candidates().0, threads }
    }
}

impl Measures for OnCpu {
    fn here(&self) -> Vec<(String, String)> {
        self.all.iter().map(|c| (c.name().to_string(), c.origin())).collect()
    }

    fn measure(&mut self, task: &Task, told: &mut dyn FnMut(&str)) -> Result<Done, Error> {
        let (problem, types) = (&task.problem, (task.problem.dtype, task.problem.out_dtype));
        let wanted = self.all.iter().filter(|c| task.wants(c.name()) && c.contract().dtypes.contains(&types));
        let mut variants: Vec<Variant<'_>> = wanted.flat_map(|c| Variant::all(&**c, problem)).collect();
        // A look at the default is at the weights as they lie.
        variants.retain(|variant| task.only.is_none() || !variant.runner.packed);
        let refs: Vec<&dyn Candidate> = variants.iter().map(|variant| variant as &dyn Candidate).collect();
        let (rounds, threads) = (task.rounds, self.threads);
        let method = Method { rounds, threads, rounds_of_long: rounds.min(5), hopeless: HOPELESS };
        let mut tell = |stage: Stage<'_>| {
            if let Stage::Begins(name) = stage {
                told(name);
            }
        };
        let measured = measure(problem, &refs, &mut [], &method, &mut tell);
        Ok(done(measured, &variants))
    }
}

fn done(measured: Measured, variants: &[Variant<'_>]) -> Done {
    let runner = |name: &str| variants.iter().find(|variant| variant.name() == name).map(|v| v.runner.clone());
    let times: Vec<Timed> = measured.times.iter().filter_map(|times| timed(runner(&times.name)?, times)).collect();
    let rate = |name: &str| {
        let found = measured.limits.iter().find(|limit| limit.name.starts_with(name));
        found.map_or(0.0, |limit| limit.quantile(0.9))
    };
    let flops = rate("limit.fma").max(if measured.problem.dtype == DType::Bf16 { rate("limit.amx") } else { 0.0 });
    Done { times, dropped: measured.left_out, limits: [flops, rate("limit.read")] }
}
