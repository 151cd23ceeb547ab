//! The process that measures for `gemwright tune`: whatever a candidate does there, the tuner lives on. Problems come in on
//! standard input, a line each; what is going on and what came out goes to standard output.

use crate::error::Error;
use gemwright_core::{DType, Product, Runner, Timed};
use gemwright_engine::bench::Times;
use gemwright_engine::{Epilogue, Layout, Problem};
use gemwright_exchange::tuned::runner_word;
use serde_json::{Value, json};
use std::io::{BufRead, Write};

/// A problem as a line.
fn problem_line(problem: &Problem) -> Value {
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
pub struct Task {
    pub problem: Problem,
    /// Candidates that have been dropped.
    pub without: Vec<String>,
    /// Only this one, to see what there is to gain.
    pub only: Option<String>,
    /// Only these runners, as tables write them; all where empty.
    pub among: Vec<String>,
    /// Whose time tells what is gained: it is measured even where it cannot win.
    pub default: Option<String>,
    pub rounds: usize,
}

impl Task {
    pub fn line(&self) -> String {
        let Task { problem, without, only, among, default, rounds } = self;
        let problem = problem_line(problem);
        json!({
            "problem": problem, "without": without, "only": only, "among": among, "default": default, "rounds": rounds,
        })
        .to_string()
    }

    fn parse(line: &str) -> Option<Task> {
        let value: Value = serde_json::from_str(line).ok()?;
        let word = |value: &Value| value.as_str().map(str::to_string);
        let words = |list: &Value| list.as_array()?.iter().map(word).collect::<Option<Vec<_>>>();
        Some(Task {
            problem: problem_of(&value["problem"])?,
            without: words(&value["without"])?,
            only: word(&value["only"]),
            among: words(&value["among"])?,
            default: word(&value["default"]),
            rounds: value["rounds"].as_u64()? as usize,
        })
    }

    /// Whether a candidate takes part.
    pub fn wants(&self, candidate: &str) -> bool {
        match &self.only {
            Some(name) => candidate == name,
            None => !self.without.iter().any(|dropped| dropped == candidate),
        }
    }

    /// Whether one of its ways does.
    pub fn wants_way(&self, runner: &Runner) -> bool {
        self.among.is_empty() || self.among.contains(&runner_word(runner))
    }
}

/// What came out of a task.
#[derive(Default)]
pub struct Done {
    pub times: Vec<Timed>,
    /// Who was left out, or wrong, and why.
    pub dropped: Vec<(String, String)>,
    /// What the device can do, in FLOP/s and bytes/s; 0 where that is not known.
    pub limits: [f64; 2],
}

/// What the worker says.
pub enum Said {
    /// Who is here, with versions.
    Here(Vec<(String, String)>),
    Begins(Stage),
    Done(Done),
    /// Why the process ends.
    Failed(String),
}

/// What is going on.
#[derive(Debug, Clone, PartialEq)]
pub enum Stage {
    /// A candidate runs.
    Candidate(String),
    /// Something that is nobody's fault, and may take long: compiling, several candidates together.
    Else(&'static str),
}

impl Stage {
    const COMPILER: &'static str = "the compiler";
    const TOGETHER: &'static str = "the fastest together";
    const OPERANDS: &'static str = "laying out operands, which may need more memory than there is,";

    pub fn compiling() -> Stage {
        Stage::Else(Stage::COMPILER)
    }

    pub fn together() -> Stage {
        Stage::Else(Stage::TOGETHER)
    }

    pub fn operands() -> Stage {
        Stage::Else(Stage::OPERANDS)
    }

    fn named(name: &str) -> Stage {
        let all = [Stage::COMPILER, Stage::TOGETHER, Stage::OPERANDS];
        let known = all.into_iter().find(|known| *known == name);
        known.map_or_else(|| Stage::Candidate(name.into()), Stage::Else)
    }

    pub fn name(&self) -> &str {
        match self {
            Stage::Candidate(name) => name,
            Stage::Else(name) => name,
        }
    }
}

impl Said {
    pub fn parse(line: &str) -> Option<Said> {
        let value: Value = serde_json::from_str(line).ok()?;
        let pairs = |list: &Value| -> Option<Vec<(String, String)>> {
            let pair = |one: &Value| Some((one[0].as_str()?.to_string(), one[1].as_str()?.to_string()));
            list.as_array()?.iter().map(pair).collect()
        };
        if let Some(name) = value["begins"].as_str() {
            return Some(Said::Begins(Stage::named(name)));
        }
        if let Some(why) = value["failed"].as_str() {
            return Some(Said::Failed(why.into()));
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
        Some(Said::Done(Done {
            times: value["times"].as_array()?.iter().map(timed).collect::<Option<_>>()?,
            dropped: pairs(&value["dropped"])?,
            limits: [value["flops"].as_f64()?, value["bytes"].as_f64()?],
        }))
    }
}

fn done_line(done: &Done) -> Value {
    let timed = |timed: &Timed| {
        let Timed { runner, seconds, spread } = timed;
        json!({
            "candidate": runner.candidate, "packed": runner.packed, "split": runner.split, "seconds": seconds, "spread": spread,
        })
    };
    json!({
        "times": done.times.iter().map(timed).collect::<Vec<_>>(), "dropped": done.dropped, "flops": done.limits[0],
        "bytes": done.limits[1],
    })
}

/// A runner's times as one; `None` where there are none.
pub fn timed(runner: Runner, times: &Times) -> Option<Timed> {
    // What else the machine does only adds: of five the least, of ten the second.
    let seconds = times.quantile(0.1);
    // Between the quartiles, as a part of the median.
    let spread = (times.quantile(0.75) - times.quantile(0.25)) / times.quantile(0.5).max(1e-12);
    seconds.is_finite().then_some(Timed { runner, seconds, spread })
}

fn say(value: &Value) -> Result<(), Error> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{value}").and_then(|()| out.flush()).map_err(|_| Error::Closed)
}

/// Candidates of a device, measured task by task.
pub trait Measures {
    /// Who is here, with versions.
    fn here(&self) -> Vec<(String, String)>;

    /// Does a task; `told` hears who begins, since that may be the last that is heard.
    fn measure(&mut self, task: &Task, told: &mut dyn FnMut(Stage)) -> Result<Done, Error>;
}

/// Measures until nobody asks any more.
pub fn serve(device: &mut dyn Measures) -> Result<(), Error> {
    say(&json!({"here": device.here()}))?;
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|e| Error::Failed(e.to_string()))?;
        let task = Task::parse(&line).ok_or_else(|| Error::Failed(format!("no task: {line}")))?;
        // Who does not listen any more will not ask again.
        match device.measure(&task, &mut |stage| drop(say(&json!({"begins": stage.name()})))) {
            Ok(done) => say(&done_line(&done))?,
            Err(why) => {
                say(&json!({"failed": why.to_string()}))?;
                return Err(why);
            }
        }
    }
    Ok(())
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
        let (without, among) = (vec!["mkl".into()], vec!["blis:packed".into()]);
        let task = Task { problem, without, only: None, among, default: Some("own".into()), rounds: 9 };
        let back = Task::parse(&task.line()).unwrap();
        assert_eq!((back.problem, back.default.as_deref(), back.rounds), (problem, Some("own"), 9));
        assert!(back.wants("openblas") && !back.wants("mkl"));
        let way = |packed| Runner { candidate: "blis".into(), packed, split: false };
        assert!(back.wants_way(&way(true)) && !back.wants_way(&way(false)));
    }

    #[test]
    fn what_is_no_answer_is_none() {
        assert!(Said::parse("warning: something a library prints").is_none());
        assert_eq!(Stage::named(Stage::together().name()), Stage::together());
        assert!(
            matches!(Said::parse("{\"begins\": \"mkl\"}"), Some(Said::Begins(Stage::Candidate(name))) if name == "mkl")
        );
    }
}
