//! The process that measures for `gemwright tune`: whatever a candidate does there, the tuner lives on. Problems come in on
//! standard input, a line each; what is going on and what came out goes to standard output.

use super::bench::Asked;
use crate::error::Error;
use gemwright_core::{DType, Product, Runner, Timed};
use gemwright_engine::bench::{Measured, Method, Stage, Times, measure};
use gemwright_engine::{Candidate, Epilogue, Layout, Problem, Variant, candidates};
use serde_json::{Value, json};
use std::io::{BufRead, Write};

/// A problem as a line.
pub fn problem_line(problem: &Problem) -> Value {
    let layout = |l: &Layout| json!([l.row, l.col, l.batch]);
    let Product { batch, m, n, k } = problem.product;
    json!({
        "extents": [batch, m, n, k], "dtype": problem.dtype.name(), "out_dtype": problem.out_dtype.name(),
        "a": layout(&problem.a), "b": layout(&problem.b), "out": layout(&problem.out), "alpha": problem.alpha,
        "epilogue": problem.epilogue.names(), "prepacked": problem.prepacked,
    })
}

fn problem_of(line: &Value) -> Option<Problem> {
    let numbers = |value: &Value| -> Option<Vec<i64>> { value.as_array()?.iter().map(Value::as_i64).collect() };
    let layout = |value: &Value| match numbers(value)?[..] {
        [row, col, batch] => Some(Layout { row, col, batch }),
        _ => None,
    };
    let [batch, m, n, k] = numbers(&line["extents"])?[..] else { return None };
    let [batch, m, n, k] = [batch, m, n, k].map(|x| x as u64);
    let dtype = |name: &str| DType::parse(line[name].as_str()?);
    let names: Vec<&str> = line["epilogue"].as_array()?.iter().filter_map(Value::as_str).collect();
    Some(Problem {
        product: Product { batch, m, n, k },
        out_dtype: dtype("out_dtype")?,
        a: layout(&line["a"])?,
        b: layout(&line["b"])?,
        out: layout(&line["out"])?,
        alpha: line["alpha"].as_f64()?,
        epilogue: Epilogue::named(names.into_iter(), (m, n)).ok()?,
        prepacked: line["prepacked"].as_bool()?,
        ..Problem::new(m, n, k, dtype("dtype")?)
    })
}

/// What is to be measured.
pub struct Task<'a> {
    pub asked: &'a Asked,
    /// Candidates that have been dropped.
    pub without: &'a [String],
    /// Only this one, to see what there is to gain.
    pub only: Option<&'a str>,
    pub rounds: usize,
}

impl Task<'_> {
    pub fn line(&self) -> String {
        json!({
            "problem": problem_line(&self.asked.problem), "without": self.without, "only": self.only, "rounds": self.rounds,
        })
        .to_string()
    }
}

/// What the worker says.
pub enum Said {
    /// Who is here, with versions.
    Here(Vec<(String, String)>),
    Begins(String),
    Done {
        times: Vec<Timed>,
        dropped: Vec<(String, String)>,
        limits: [f64; 2],
    },
}

impl Said {
    pub fn parse(line: &str) -> Option<Said> {
        let value: Value = serde_json::from_str(line).ok()?;
        let pairs = |list: &Value| -> Option<Vec<(String, String)>> {
            let pair = |one: &Value| Some((one[0].as_str()?.to_string(), one[1].as_str()?.to_string()));
            list.as_array()?.iter().map(pair).collect()
        };
        if let Some(name) = value["begins"].as_str() {
            return Some(Said::Begins(name.into()));
        }
        if value["here"].is_array() {
            return Some(Said::Here(pairs(&value["here"])?));
        }
        let timed = |one: &Value| -> Option<Timed> {
            let runner = Runner {
                candidate: one["candidate"].as_str()?.into(),
                packed: one["packed"].as_bool()?,
                split: one["split"].as_bool()?,
            };
            Some(Timed { runner, seconds: one["seconds"].as_f64()?, spread: one["spread"].as_f64()? })
        };
        Some(Said::Done {
            times: value["times"].as_array()?.iter().map(timed).collect::<Option<_>>()?,
            dropped: pairs(&value["dropped"])?,
            limits: [value["flops"].as_f64()?, value["bytes"].as_f64()?],
        })
    }
}

/// Between the quartiles, as a part of the median.
fn spread(times: &Times) -> f64 {
    (times.quantile(0.75) - times.quantile(0.25)) / times.quantile(0.5).max(1e-12)
}

fn say(value: &Value) -> Result<(), Error> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{value}").and_then(|()| out.flush()).map_err(|_| Error::Closed)
}

/// Who takes so many times as long as the fastest will not win.
const HOPELESS: f64 = 3.0;

/// Measures until nobody asks any more.
pub fn run(threads: usize) -> Result<(), Error> {
    let (all, _) = candidates();
    say(&json!({"here": all.iter().map(|c| json!([c.name(), c.origin()])).collect::<Vec<_>>()}))?;
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|e| Error::Failed(e.to_string()))?;
        let task: Value = serde_json::from_str(&line).map_err(|e| Error::Failed(e.to_string()))?;
        let problem = problem_of(&task["problem"]).ok_or_else(|| Error::Failed(format!("no problem: {line}")))?;
        let dropped = |name: &str| task["without"].as_array().is_some_and(|list| list.iter().any(|one| one == name));
        let wanted = |c: &dyn Candidate| match task["only"].as_str() {
            Some(name) => c.name() == name,
            None => !dropped(c.name()) && c.contract().dtypes.contains(&(problem.dtype, problem.out_dtype)),
        };
        let chosen: Vec<&dyn Candidate> = all.iter().map(|c| &**c).filter(|c| wanted(*c)).collect();
        let variants: Vec<Variant<'_>> = chosen.iter().flat_map(|c| Variant::all(*c, &problem)).collect();
        let variants: Vec<Variant<'_>> =
            if task["only"].is_null() { variants } else { variants.into_iter().filter(|v| !v.runner.packed).collect() };
        let refs: Vec<&dyn Candidate> = variants.iter().map(|variant| variant as &dyn Candidate).collect();
        let rounds = task["rounds"].as_u64().unwrap_or(5) as usize;
        let method = Method { rounds, threads, rounds_of_long: rounds.min(5), hopeless: HOPELESS };
        let mut told = |stage: Stage<'_>| {
            if let Stage::Begins(name) = stage {
                // Who does not listen any more will not ask again.
                let _ = say(&json!({"begins": name}));
            }
        };
        let measured = measure(&problem, &refs, &mut [], &method, &mut told);
        say(&answer(&measured, &variants))?;
    }
    Ok(())
}

fn answer(measured: &Measured, variants: &[Variant<'_>]) -> Value {
    let timed = |times: &Times| {
        let runner = &variants.iter().find(|variant| variant.name() == times.name)?.runner;
        // What else the machine does only adds.
        let seconds = times.quantile(0.25);
        seconds.is_finite().then(|| {
            json!({
                "candidate": runner.candidate, "packed": runner.packed, "split": runner.split, "seconds": seconds,
                "spread": spread(times),
            })
        })
    };
    let rate = |name: &str| {
        let found = measured.limits.iter().find(|limit| limit.name.starts_with(name));
        found.map_or(0.0, |limit| limit.quantile(0.9))
    };
    json!({
        "times": measured.times.iter().filter_map(timed).collect::<Vec<_>>(), "dropped": measured.left_out,
        "flops": rate("limit.fma").max(if measured.problem.dtype == DType::Bf16 { rate("limit.amx") } else { 0.0 }),
        "bytes": rate("limit.read"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_comes_back() {
        let names = ["bias", "silu"];
        let epilogue = Epilogue::named(names.into_iter(), (5, 7)).unwrap();
        let problem = Problem { prepacked: true, epilogue, alpha: 0.5, ..Problem::linear(5, 7, 9, DType::Bf16) };
        assert_eq!(problem_of(&problem_line(&problem)), Some(problem));
        assert_eq!(problem_of(&json!({"extents": [1]})), None);
    }

    #[test]
    fn what_is_no_answer_is_none() {
        assert!(Said::parse("warning: something a library prints").is_none());
        assert!(matches!(Said::parse("{\"begins\": \"mkl\"}"), Some(Said::Begins(name)) if name == "mkl"));
    }
}
