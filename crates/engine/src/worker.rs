//! Candidates that live in a process of their own: they take turns with the others and time themselves.

use crate::bench::WARM;
use crate::problem::{Layout, Problem};
use crate::vendor::Absent;
use gemwright_core::DType;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// PyTorch's name as a candidate, and how to get it.
pub const PYTORCH: &str = "pytorch";
const HOW: &str = "pip install torch, in the Python environment that is active, or GEMWRIGHT_PYTHON=/path/python";
const PROGRAM: &str = include_str!("worker.py");

/// How long the threads of other libraries wait for the next call before they sleep, each in its own words: about five
/// milliseconds, long enough for calls that follow one another, well below the pause between candidates. And each on a core
/// of its own: left to itself the system wakes them on the caller's.
pub const SPINS: [(&str, &str); 4] = [
    ("KMP_BLOCKTIME", "5"),
    ("GOMP_SPINCOUNT", "100000"),
    ("OPENBLAS_THREAD_TIMEOUT", "24"),
    ("OMP_PROC_BIND", "true"),
];

fn absent(why: String) -> Absent {
    Absent { name: PYTORCH, why, how: HOW }
}

/// A process that multiplies.
pub struct Worker {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    /// Whether it could be loaded, once that is known.
    loaded: Option<Result<(), String>>,
    /// Its name as a candidate.
    pub name: &'static str,
    /// Version and where it comes from.
    pub origin: String,
}

impl Worker {
    /// Starts PyTorch, in the Python that `GEMWRIGHT_PYTHON` names, or the active environment's.
    pub fn pytorch(threads: usize) -> Result<Worker, Absent> {
        let python = python();
        let mut child = Command::new(&python)
            .args(["-c", PROGRAM])
            .envs(SPINS)
            .env("OMP_NUM_THREADS", threads.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| absent(format!("{python}: {e}")))?;
        let (input, output) = (child.stdin.take(), child.stdout.take().map(BufReader::new));
        let Some(output) = output else { return Err(absent(format!("{python} has no output"))) };
        let mut worker = Worker { child, input, output, loaded: None, name: PYTORCH, origin: String::new() };
        let hello = worker.answer().map_err(|_| absent(format!("{python} has no torch")))?;
        worker.origin = format!("{} ({python})", hello["version"].as_str().unwrap_or("version not told"));
        Ok(worker)
    }

    /// Waits until it is loaded, for who cannot do without it.
    pub fn needed(mut self) -> Result<Worker, Absent> {
        self.loaded().map_err(absent).map(|()| self)
    }

    /// Waits until it is loaded.
    fn loaded(&mut self) -> Result<(), String> {
        if self.loaded.is_none() {
            self.loaded = Some(self.answer().map(|_| ()));
        }
        self.loaded.clone().unwrap_or(Ok(()))
    }

    /// Has it build operands for a problem, `sets` of them, and check its result; [`Worker::prepared`] waits for that.
    pub fn prepare(&mut self, problem: &Problem, sets: usize, threads: usize) -> Result<(), String> {
        if problem.alpha != 1.0 || problem.beta != 0.0 {
            return Err("factors are not asked of it".into());
        }
        let p = problem.product;
        let steps = |layout: &Layout| [layout.row, layout.col, layout.batch];
        let dtype = match problem.dtype {
            DType::F64 => "float64",
            DType::Bf16 => "bfloat16",
            _ => "float32",
        };
        let request = json!({
            "do": "prepare", "dtype": dtype, "extents": [p.batch, p.m, p.n, p.k], "a": steps(&problem.a),
            "b": steps(&problem.b), "sets": sets, "prepacked": problem.prepacked, "threads": threads,
            "epilogue": problem.epilogue.names(),
        });
        // Where nobody reads any more, why it could not be loaded says more.
        match self.say(&request) {
            Ok(()) => Ok(()),
            Err(why) => self.loaded().and(Err(why)),
        }
    }

    /// Waits until it is done with what [`Worker::prepare`] has asked for, and then has it choose the fastest of its ways,
    /// for which it wants to be alone on the machine.
    pub fn prepared(&mut self) -> Result<(), String> {
        self.loaded()?;
        let ways = self.answer()?["ways"].as_u64();
        if ways > Some(1) {
            self.say(&json!({"do": "choose"}))?;
            self.answer()?;
        }
        Ok(())
    }

    /// Seconds of one run, over so many.
    pub fn turn(&mut self, repeats: usize) -> Result<f64, String> {
        self.say(&json!({"do": "turn", "repeats": repeats, "warm": WARM.as_secs_f64()}))?;
        let answer = self.answer()?;
        answer["seconds"].as_f64().ok_or_else(|| "it gave no time".into())
    }

    fn say(&mut self, request: &Value) -> Result<(), String> {
        let Some(input) = &mut self.input else { return Err("it has no input".into()) };
        writeln!(input, "{request}").and_then(|()| input.flush()).map_err(|e| e.to_string())
    }

    fn answer(&mut self) -> Result<Value, String> {
        let mut line = String::new();
        self.output.read_line(&mut line).map_err(|e| e.to_string())?;
        let answer: Value = serde_json::from_str(&line).map_err(|_| "it has ended".to_string())?;
        match answer["error"].as_str() {
            Some(error) => Err(error.into()),
            None => Ok(answer),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It ends when it has nothing more to read.
        self.input = None;
        let _ = self.child.wait();
    }
}

/// Where the user says, in the active environment, or on the path.
fn python() -> String {
    if let Ok(python) = std::env::var("GEMWRIGHT_PYTHON") {
        return python;
    }
    let active = std::env::var_os("VIRTUAL_ENV").map(|folder| std::path::Path::new(&folder).join("bin/python"));
    active.filter(|path| path.is_file()).map_or_else(|| "python3".into(), |path| path.display().to_string())
}
