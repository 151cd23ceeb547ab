//! The process that measures, as the tuner sees it: begun when there is something to do, and again after it fell.

use super::bench::{DeviceArg, settings};
use super::tune_worker::{Done, Said, Stage, Task};
use crate::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// What a task came to, or what was going on when the process fell.
pub enum Outcome {
    Done(Done),
    Fell { at: Stage, why: String },
}

/// So many times as long may take what is nobody's fault.
const LONGER: u32 = 10;

pub struct Worker {
    device: DeviceArg,
    threads: usize,
    /// Who says nothing for so long hangs.
    patience: Duration,
    process: Option<Process>,
    /// Who is there, with versions, once it has begun.
    pub versions: Vec<(String, String)>,
}

struct Process {
    child: Child,
    tasks: ChildStdin,
    said: Receiver<Said>,
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may hang.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Process {
    fn start(device: DeviceArg, threads: usize) -> Result<Process, Error> {
        let failed = |e: std::io::Error| Error::Failed(format!("the process that measures does not start: {e}"));
        let program = std::env::current_exe().map_err(failed)?;
        let device = if device == DeviceArg::Cuda { "cuda" } else { "cpu" };
        let mut child = Command::new(program)
            .args(["tune", "--worker", "--device", device, "--threads", &threads.to_string()])
            .envs(settings(threads))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(failed)?;
        let (Some(tasks), Some(out)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Error::Failed("the process that measures has no pipes".into()));
        };
        let (tell, said) = channel();
        std::thread::spawn(move || {
            // What is no line of ours was printed by a library.
            let lines = BufReader::new(out).lines().map_while(Result::ok);
            lines.filter_map(|line| Said::parse(&line)).try_for_each(|said| tell.send(said)).ok()
        });
        Ok(Process { child, tasks, said })
    }
}

impl Worker {
    pub fn new(device: DeviceArg, threads: usize, patience: Duration) -> Worker {
        Worker { device, threads, patience, process: None, versions: Vec::new() }
    }

    /// Gives a task to the process, a new one where there is none.
    pub fn ask(&mut self, task: &Task) -> Result<Outcome, Error> {
        let mut process = match self.process.take() {
            Some(process) => process,
            None => Process::start(self.device, self.threads)?,
        };
        let mut going_on: Option<Stage> = None;
        // A pipe that is closed shows in what is said, or not said any more.
        let _ = writeln!(process.tasks, "{}", task.line()).and_then(|()| process.tasks.flush());
        loop {
            let patience = match going_on {
                Some(Stage::Candidate(_)) => self.patience,
                _ => self.patience * LONGER,
            };
            match process.said.recv_timeout(patience) {
                Ok(Said::Here(versions)) => self.versions = versions,
                Ok(Said::Begins(stage)) => going_on = Some(stage),
                Ok(Said::Done(done)) => {
                    self.process = Some(process);
                    return Ok(Outcome::Done(done));
                }
                ended => {
                    let why = match ended {
                        Ok(Said::Failed(why)) => format!("failed: {why}"),
                        Err(RecvTimeoutError::Timeout) => format!("said nothing for {} s", patience.as_secs()),
                        _ => {
                            let ended = process.child.wait().map_or("ended".into(), |status| status.to_string());
                            format!("brought its process down ({ended})")
                        }
                    };
                    return match going_on {
                        Some(at) => Ok(Outcome::Fell { at, why }),
                        None => Err(Error::Failed(format!(
                            "the process that measures ended before it began ({why}): see gemwright doctor"
                        ))),
                    };
                }
            }
        }
    }
}
