//! What `gemwright tune` measures on the CPU: kernels of ours and libraries, each in all its ways.

use super::tune_worker::{self, Done, Measures, Task, timed};
use crate::error::Error;
use gemwright_core::{DType, Timed};
use gemwright_engine::bench::{Measured, Method, Stage, Times, measure};
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

    fn measure(&mut self, task: &Task, told: &mut dyn FnMut(tune_worker::Stage)) -> Result<Done, Error> {
        let (problem, types) = (&task.problem, (task.problem.dtype, task.problem.out_dtype));
        let wanted = self.all.iter().filter(|c| task.wants(c.name()) && c.contract().dtypes.contains(&types));
        let mut variants: Vec<Variant<'_>> = wanted.flat_map(|c| Variant::all(&**c, problem)).collect();
        // A look at the default is at the weights as they lie.
        variants.retain(|v| (task.only.is_none() || !v.runner.packed) && task.wants_way(&v.runner));
        let refs: Vec<&dyn Candidate> = variants.iter().map(|variant| variant as &dyn Candidate).collect();
        let (rounds, threads) = (task.rounds, self.threads);
        // With the weight as it lies, and the epilogue fused where it can be.
        let of_default = |v: &&Variant<'_>| Some(&v.runner.candidate) == task.default.as_ref() && !v.runner.packed;
        let always = variants.iter().find(of_default).map(Candidate::name);
        let method = Method { rounds, threads, rounds_of_long: rounds.min(5), hopeless: HOPELESS, always };
        let mut tell = |stage: Stage<'_>| {
            match stage {
                Stage::Begins(name) => told(tune_worker::Stage::Candidate(name.into())),
                // What may fail there is the product's fault, such as memory that is not there.
                Stage::Operands => told(tune_worker::Stage::operands()),
                Stage::Round(..) => {}
            }
        };
        let mut measured = measure(problem, &refs, &mut [], &method, &mut tell);
        // Who may be the fastest runs once more, all of them in one rotation again: one disturbed minute must not decide.
        let again = contenders(&measured.times);
        if task.only.is_none() && task.among.is_empty() && again.len() > 1 {
            let refs: Vec<&dyn Candidate> = refs.into_iter().filter(|c| again.contains(&c.name().into())).collect();
            for further in measure(problem, &refs, &mut [], &method, &mut tell).times {
                let known = measured.times.iter_mut().find(|times| times.name == further.name);
                known.into_iter().for_each(|times| times.values.extend(&further.values));
            }
        }
        Ok(done(measured, &variants))
    }
}

/// Within this of the fastest.
const NEAR: f64 = 1.1;
/// The same for whose times are far apart.
const NEAR_IF_DISTURBED: f64 = 1.4;
const DISTURBED: f64 = 0.1;

/// Who may be the fastest.
fn contenders(times: &[Times]) -> Vec<String> {
    let least = |times: &Times| times.quantile(0.0);
    let best = times.iter().map(least).filter(|x| x.is_finite()).fold(f64::INFINITY, f64::min);
    let near = |times: &&Times| {
        let disturbed = times.quantile(0.75) - times.quantile(0.25) > DISTURBED * times.quantile(0.5);
        least(times) <= best * if disturbed { NEAR_IF_DISTURBED } else { NEAR }
    };
    times.iter().filter(near).map(|times| times.name.clone()).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_runs_once_more() {
        let times = |name: &str, values: &[f64]| Times { name: name.into(), own: false, values: values.to_vec() };
        let all = [
            times("best", &[1.0, 1.01, 1.02, 1.03]),
            times("near", &[1.05, 1.06, 1.07, 1.08]),
            times("far", &[1.3, 1.31, 1.32, 1.33]),
            times("disturbed", &[1.3, 1.35, 1.6, 1.9]),
            times("none", &[]),
        ];
        assert_eq!(contenders(&all), ["best", "near", "disturbed"]);
    }
}
