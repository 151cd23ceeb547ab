//! `gemwright tune`: every candidate on every product of a workload, the winners in a table.

use super::asked::{Asked, merged, problems};
use super::bench::{DeviceArg, bar};
use super::tune_cpu::OnCpu;
use super::tune_cuda::{self, OnCuda};
use super::tune_merge::{merge, thresholds};
use super::tune_process::{Outcome, Worker};
use super::tune_summary::summary;
use super::tune_worker::{self, Done, Stage, Task};
use crate::error::Error;
use crate::output::{Format, OutputArgs};
use crate::subject::{ModelOptions, parse_dtype, parse_share};
use gemwright_core::{DType, PICKED, Timed, TunedDevice, TunedKey, TunedRow, TunedTable};
use gemwright_engine::tuned_files::{self, Journal};
use gemwright_engine::{Epilogue, Layout, Problem, cpu_name, own};
use gemwright_exchange::tuned::{self, runner_word};
use gemwright_report as report;
use serde_json::json;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const EXAMPLES: &str = "\
Examples:
  gemwright tune llama-2-7b --phase decode --dtype f32 -o table.csv
  gemwright tune shapes.csv -o table.csv --budget 60s          the products where most is at stake first
  gemwright tune llama-2-7b --phase prefill --seq 597 --min-gain 2% -o table.csv   stop where tuning would not pay
  gemwright tune llama-2-7b --phase decode --device cuda -o h200.csv   kernels of ours and cuBLASLt's proposals
  gemwright tune --merge monday.csv,tuesday.csv -o table.csv   later ones count

What is measured is on the disk at once (table.part.csv); a run that was interrupted goes on where it stopped. A candidate
that crashes, hangs or is wrong is dropped and named. `explain --table` says who would multiply by the table; programs over
gemwright-nn use it by GEMWRIGHT_TABLE=table.csv.";

/// The fastest candidate for each product of a workload, kept in a table
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// M N K of a linear layer, a CSV of shapes, or a config.json, a folder, a preset, a trace, a saved workload
    #[arg(required_unless_present_any = ["merge", "worker"], num_args = 1..=3, value_name = "M N K|TABLE.csv|WORKLOAD")]
    subject: Vec<String>,
    /// Where it runs
    #[arg(long, value_enum, default_value = "cpu")]
    device: DeviceArg,
    /// Put these tables together instead; where two have a row, the later one counts
    #[arg(long, value_delimiter = ',', value_name = "TABLE,...", conflicts_with = "subject")]
    merge: Vec<PathBuf>,
    /// End after so long: 60s, 10m, 1h; a product that was begun is finished
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    budget: Option<Duration>,
    /// Do not tune where less than this could be gained end to end: 2%
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    min_gain: Option<f64>,
    /// Turns of every candidate
    #[arg(long, default_value_t = 9, value_name = "N")]
    rounds: usize,
    /// Times that the fastest of a product are measured at most, with all other products in between: what disturbs a machine
    /// for a minute must not decide. From the third on only those whose times do not tell who is faster
    /// [default: 4 on a CPU, 1 on a GPU]
    #[arg(long, value_name = "N")]
    visits: Option<usize>,
    /// Threads of every candidate [default: all]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// A candidate that says nothing for so long hangs
    #[arg(long, default_value = "60s", value_name = "TIME", value_parser = parse_time)]
    patience: Duration,
    /// Element type of the result [default: that of the operands]
    #[arg(long, value_name = "TYPE", value_parser = parse_dtype)]
    out_dtype: Option<DType>,
    /// What follows every product: bias, silu and the like, as for bench; fused, and on a CPU split off too
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    epilogue: Vec<String>,
    /// Measure again what the table has
    #[arg(long)]
    again: bool,
    #[arg(long, hide = true)]
    worker: bool,
    #[command(flatten)]
    options: ModelOptions,
    #[command(flatten)]
    pub output: OutputArgs,
}

fn parse_time(text: &str) -> Result<Duration, String> {
    let at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let factor = match &text[at..] {
        "s" | "" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => f64::NAN,
    };
    let seconds = text[..at].parse::<f64>().unwrap_or(f64::NAN) * factor;
    Duration::try_from_secs_f64(seconds).map_err(|_| "write it as 60s, 10m or 1h".into())
}

pub fn run(args: &Args) -> Result<(), Error> {
    let threads = args.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)).max(1);
    let cuda = args.device == DeviceArg::Cuda;
    match (args.worker, cuda) {
        (true, true) => return tune_worker::serve(&mut OnCuda::new()?),
        (true, false) => return tune_worker::serve(&mut OnCpu::new(threads)),
        _ => {}
    }
    let Some(path) = &args.output.output else {
        return Err(Error::Usage("say where the table goes: -o table.csv".into()));
    };
    if path.extension().is_none_or(|ending| ending != "csv") {
        return Err(Error::Usage(format!("-o {}: a table ends in .csv", path.display())));
    }
    if !args.merge.is_empty() {
        return merge(&args.merge, path);
    }
    let dtype = args.options.dtype.unwrap_or(if cuda { DType::Bf16 } else { DType::F32 });
    let mut asked = problems(&args.subject, &args.options, &args.output, dtype)?;
    for asked in &mut asked {
        let p = asked.problem.product;
        // The call's own bias, unless the user says what follows.
        let own: &[&str] = if asked.bias && args.epilogue.is_empty() { &["bias"] } else { &[] };
        let named = Epilogue::named(args.epilogue.iter().map(String::as_str).chain(own.iter().copied()), (p.m, p.n));
        asked.problem.epilogue = named.map_err(|why| Error::Usage(format!("--epilogue: {why}")))?;
        asked.problem.out_dtype = args.out_dtype.unwrap_or(dtype);
        if asked.problem.epilogue.gated {
            asked.problem.b = Layout::column_major(p.k, asked.problem.weight_cols());
        }
        // A linear layer's weight may be laid out once; on a GPU nobody wants it laid out.
        asked.problem.prepacked = !cuda && asked.problem.letters() == "TN" && p.batch == 1;
    }
    let asked = merged(asked);
    let place = if cuda { Place::cuda(&asked)? } else { Place::cpu(threads, &asked)? };
    let worker = Worker::new(args.device, threads, args.patience);
    Tuning { args, path, place, asked, worker, dropped: Vec::new(), limits: [0.0; 2], left_alone: 0 }.run()
}

pub(super) fn failed(path: &Path, why: &dyn ToString) -> Error {
    Error::File { path: path.display().to_string(), why: why.to_string() }
}

pub(super) fn unix_seconds() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |t| t.as_secs())
}

/// Who is measured.
enum Who {
    Everyone,
    /// A candidate.
    Only(String),
    /// Runners, as tables write them.
    Among(Vec<String>),
}

/// A candidate and a reason.
pub(super) type Named = (String, String);

/// Where it runs, and who multiplies there where nobody has tuned.
pub(super) struct Place {
    name: String,
    units: u64,
    pub default: String,
}

impl Place {
    fn cpu(threads: usize, asked: &[Asked]) -> Result<Place, Error> {
        let types = asked.first().map(|one| (one.problem.dtype, one.problem.out_dtype));
        let default = own().into_iter().find(|c| types.is_some_and(|types| c.contract().dtypes.contains(&types)));
        let default = default.ok_or_else(|| Error::Missing("no kernel of ours multiplies these types here".into()))?;
        Ok(Place { name: cpu_name(), units: threads as u64, default: default.name().to_string() })
    }

    fn cuda(asked: &[Asked]) -> Result<Place, Error> {
        let dtypes = asked.iter().map(|one| one.problem.dtype);
        if let Some(dtype) = dtypes.into_iter().find(|dtype| !matches!(dtype, DType::Bf16 | DType::F16)) {
            return Err(Error::Missing(format!("no CUDA kernel multiplies {dtype} yet; --dtype bf16 or f16")));
        }
        let (name, units, default) = tune_cuda::gpu_here()?;
        Ok(Place { name, units, default })
    }
}

pub(super) struct Tuning<'a> {
    pub args: &'a Args,
    pub path: &'a Path,
    pub place: Place,
    pub asked: Vec<Asked>,
    worker: Worker,
    /// Candidates that are not run any more, and why.
    pub dropped: Vec<Named>,
    limits: [f64; 2],
    /// How often a product was given up, for what is no candidate's fault.
    left_alone: usize,
}

impl Tuning<'_> {
    /// The device as far as it is known before anything ran.
    fn device(&self) -> TunedDevice {
        let mut versions = vec![("gemwright".to_string(), env!("CARGO_PKG_VERSION").to_string())];
        versions.extend(self.worker.versions.iter().filter(|(name, _)| !name.starts_with("own.")).cloned());
        let [flops, bytes] = self.limits.map(|rate| if rate > 0.0 { rate } else { 1.0 });
        TunedDevice { name: self.place.name.clone(), units: self.place.units, flops, bytes, versions }
    }

    /// Times of a problem; candidates that bring the worker down are dropped until it stays up. None where it fell for
    /// another reason, or only one was asked for and fell: then the product is left alone.
    fn measured(&mut self, index: usize, who: &Who, rounds: usize) -> Result<(Vec<Timed>, Vec<Named>), Error> {
        let (only, among) = match who {
            Who::Everyone => (None, Vec::new()),
            Who::Only(name) => (Some(name.clone()), Vec::new()),
            Who::Among(runners) => (None, runners.clone()),
        };
        loop {
            let without = self.dropped.iter().map(|(name, _)| name.clone()).collect();
            let problem = self.asked[index].problem;
            let default = Some(self.default_of(&problem).to_string());
            let task = Task { problem, without, only: only.clone(), among: among.clone(), default, rounds };
            let (at, why) = match self.worker.ask(&task)? {
                Outcome::Done(Done { times, dropped, limits }) => {
                    for (known, new) in self.limits.iter_mut().zip(limits) {
                        *known = known.max(new);
                    }
                    return Ok((times, dropped));
                }
                Outcome::Fell { at, why } => (at, why),
            };
            match at {
                Stage::Candidate(who) if task.only.is_none() => {
                    let who = who.split(':').next().unwrap_or("").to_string();
                    if self.dropped.iter().any(|(name, _)| *name == who) {
                        return Err(Error::Failed(format!("{who} {why}")));
                    }
                    self.say(&format!("dropped: {who} {why}"));
                    self.dropped.push((who, why));
                }
                at => {
                    let p = task.problem.product;
                    self.say(&format!("{} x {} x {}: {} {why}", p.m, p.n, p.k, at.name()));
                    self.left_alone += 1;
                    return Ok((Vec::new(), Vec::new()));
                }
            }
        }
    }

    /// Who multiplies where nobody has tuned: on a GPU the library, which has no epilogues.
    pub fn default_of(&self, problem: &Problem) -> &str {
        match self.args.device == DeviceArg::Cuda && !problem.epilogue.is_none() {
            true => PICKED,
            false => &self.place.default,
        }
    }

    pub fn say(&self, text: &str) {
        if !self.args.output.quiet {
            eprintln!("{text}");
        }
    }

    fn run(mut self) -> Result<(), Error> {
        let here = self.device();
        // The lock first: whoever had it may have written the table just now.
        let (mut journal, before) = Journal::open(self.path, &here).map_err(|why| failed(self.path, &why))?;
        let known = match tuned_files::load(self.path) {
            Ok(table) => match tuned_files::other_device(&table.device, &here) {
                None => Some(table),
                Some(why) => return Err(failed(self.path, &format!("{why}; give another -o"))),
            },
            Err(why) if tuned_files::exists(self.path) => {
                return Err(failed(self.path, &format!("{why}; move it away, or give another -o")));
            }
            Err(_) => None,
        };
        let mut table = known.unwrap_or_else(|| TunedTable::new(here.clone(), Vec::new()));
        let resumed = before.len();
        if resumed > 0 {
            self.say(&format!("going on: {resumed} rows of a run that did not end"));
        }
        before.into_iter().for_each(|row| table.insert(row));
        let begin = Instant::now();
        let (stakes, mut left) = self.stakes(&table, begin)?;
        let (all, gain) = (stakes.iter().map(|s| s.now).sum::<f64>(), stakes.iter().map(|s| s.gain).sum::<f64>());
        let share = if all > 0.0 { gain / all } else { 0.0 };
        let known: Vec<&Stake> = stakes.iter().filter(|stake| stake.now > 0.0).collect();
        if !known.is_empty() {
            self.say(&format!(
                "{} takes {} for {} products; by this machine's limits {} of it could be gained, most of it by",
                self.place.default,
                report::seconds(all),
                known.len(),
                report::percent(share)
            ));
            for stake in known.iter().take(5) {
                let p = self.asked[stake.index].problem.product;
                self.say(&format!(
                    "  {} {} x {} x {}: {} of the time, at {} of the limit, {} at stake",
                    self.asked[stake.index].name,
                    p.m,
                    p.n,
                    p.k,
                    report::percent(stake.now / all),
                    report::percent((stake.now - stake.gain) / stake.now),
                    report::percent(stake.gain / all)
                ));
            }
        }
        if let Some(least) = self.args.min_gain.filter(|least| share < *least && !known.is_empty()) {
            if resumed == 0 {
                journal.done();
            }
            let answer = OutputArgs { output: None, ..self.args.output.clone() };
            if answer.format == Format::Json {
                return answer.write(&json!({"tuned": false, "gain_at_most": share, "min_gain": least}).to_string());
            }
            if answer.format == Format::Csv {
                return answer.write(&format!("tuned,gain_at_most,min_gain\nfalse,{share},{least}"));
            }
            let (share, least) = (report::percent(share), report::percent(least));
            let of =
                if left > 0 { format!(" of the {} products that were looked at", stakes.len()) } else { String::new() };
            return answer.write(&format!(
                "not tuned: {share}{of} could be gained at most, less than the {least} that were asked for"
            ));
        }
        let visits = self.args.visits.unwrap_or(if self.args.device == DeviceArg::Cpu { 4 } else { 1 }).max(1);
        let mut seen: Vec<(Vec<Timed>, Vec<Named>)> = stakes.iter().map(|_| Default::default()).collect();
        let progress = bar(self.args.output.quiet, stakes.len() * visits, "products");
        let mut done = 0;
        for visit in 0..visits {
            for (stake, (times, wrong)) in stakes.iter().zip(&mut seen) {
                progress.set_position(done);
                done += 1;
                if self.args.budget.is_some_and(|budget| begin.elapsed() >= budget) {
                    left += usize::from(visit == 0);
                    continue;
                }
                let mut again = if visit < 2 { near(times) } else { undecided(times) };
                let who = match visit {
                    0 => Who::Everyone,
                    // Between one and itself there is nothing to decide.
                    _ if again.len() < 2 => continue,
                    _ => {
                        // What is gained is told by the default's time, so it has as many chances.
                        let default = self.default_of(&self.asked[stake.index].problem);
                        let of_default = |timed: &&Timed| timed.runner.candidate == default && !timed.runner.packed;
                        let way = times.iter().find(of_default).map(|timed| runner_word(&timed.runner));
                        again.extend(way.filter(|way| way != PICKED && !again.contains(way)));
                        Who::Among(again)
                    }
                };
                let (further, further_wrong) = self.measured(stake.index, &who, self.args.rounds.max(3))?;
                keep_the_lesser(times, further);
                wrong.extend(further_wrong);
                // Who falls, or is wrong, on a later visit loses what he had.
                times.retain(|timed| {
                    let (candidate, word) = (&timed.runner.candidate, runner_word(&timed.runner));
                    let fell = self.dropped.iter().any(|(who, _)| who == candidate);
                    !fell && !wrong.iter().any(|(who, _)| *who == word)
                });
                for row in rows(&self.asked[stake.index].problem, times.clone(), &self.dropped, wrong) {
                    journal.add(&row).map_err(|why| {
                        failed(
                            self.path,
                            &format!("{why}; what was measured before is kept, make room and run the same again"),
                        )
                    })?;
                    table.insert(row);
                }
            }
        }
        progress.finish_and_clear();
        if left > 0 {
            self.say(&format!("the budget is spent: {left} of {} products were not tuned", self.asked.len()));
        }
        let mut counts: HashMap<TunedKey, u64> = HashMap::new();
        for asked in &self.asked {
            for prepacked in [false, true] {
                *counts.entry(Problem { prepacked, ..asked.problem }.tuned_key()).or_default() += asked.count;
            }
        }
        table.settle(|key| counts.get(key).copied().unwrap_or(0));
        if table.rows().is_empty() {
            journal.done();
            let why = match () {
                () if left > 0 => "the budget was spent first",
                () if self.left_alone > 0 => "what became of the products stands above",
                () => "no candidate here takes any of these products",
            };
            return Err(Error::Usage(format!("nothing was tuned: {why}")));
        }
        let earlier = table.device.clone();
        table.device = self.device();
        for (name, then) in &earlier.versions {
            if let Some((_, now)) = table.device.versions.iter().find(|(known, now)| known == name && now != then) {
                self.say(&format!(
                    "rows that were there before are of {name} `{then}`, this is `{now}`: --again tunes them anew"
                ));
            }
        }
        table.device.flops = table.device.flops.max(earlier.flops);
        table.device.bytes = table.device.bytes.max(earlier.bytes);
        if self.worker.versions.is_empty() {
            table.device.versions = earlier.versions;
        }
        let facts = json!({
            "gemwright": env!("CARGO_PKG_VERSION"), "machine": super::doctor::machine(), "unix_seconds": unix_seconds(),
            "rounds": self.args.rounds, "visits": visits, "default": self.place.default, "dropped": self.dropped, "thresholds": thresholds(&table),
        });
        tuned_files::store(self.path, &tuned::write(&table, &facts)).map_err(|why| {
            failed(self.path, &format!("{why}; what was measured is kept, make room and run the same again"))
        })?;
        journal.done();
        summary(&self, &table)
    }

    /// What there is to gain for each product that is not in the table, most first: a look at the default.
    /// Looks take a quarter of the budget at most; how many products were not looked at.
    fn stakes(&mut self, table: &TunedTable, begin: Instant) -> Result<(Vec<Stake>, usize), Error> {
        let open = |asked: &Asked| self.args.again || table.row(&asked.problem.tuned_key()).is_none();
        let mut todo: Vec<usize> = (0..self.asked.len()).filter(|i| open(&self.asked[*i])).collect();
        if todo.is_empty() && table.device.flops <= 1.0 && !self.asked.is_empty() {
            // A run that ended before it said what the machine can do.
            let default = self.default_of(&self.asked[0].problem).to_string();
            self.measured(0, &Who::Only(default), 3)?;
        }
        // By their size, most first, as far as is known before anything ran.
        todo.sort_by_key(|i| {
            std::cmp::Reverse(self.asked[*i].problem.flops().saturating_mul(self.asked[*i].count.into()))
        });
        let progress = bar(self.args.output.quiet, todo.len(), "looks");
        let (mut looks, mut left) = (Vec::new(), 0);
        for index in todo {
            if self.args.budget.is_some_and(|budget| !looks.is_empty() && begin.elapsed() >= budget / 4) {
                left += 1;
                continue;
            }
            let default = self.default_of(&self.asked[index].problem).to_string();
            let left_alone = self.left_alone;
            let (times, why) = self.measured(index, &Who::Only(default.clone()), 3)?;
            if times.is_empty() && self.left_alone == left_alone {
                let (p, why) = (self.asked[index].problem.product, why.first().map_or("", |(_, why)| why));
                self.say(&format!("{} x {} x {}: {default} does not take it {why}", p.m, p.n, p.k));
            }
            looks.push((index, times.first().map(|timed| timed.seconds)));
            progress.inc(1);
        }
        progress.finish_and_clear();
        let [flops, bytes] = self.limits;
        let stake = |(index, seconds): (usize, Option<f64>)| {
            let asked = &self.asked[index];
            let least = (asked.problem.flops() as f64 / flops).max(asked.problem.bytes() as f64 / bytes);
            let count = asked.count as f64;
            // Of what the default does not take nothing is known: it comes last.
            let known = |seconds: f64| Stake { index, now: seconds * count, gain: (seconds - least).max(0.0) * count };
            seconds.map_or(Stake { index, now: 0.0, gain: 0.0 }, known)
        };
        let mut all: Vec<Stake> = looks.into_iter().map(stake).collect();
        all.sort_by(|x, y| y.gain.total_cmp(&x.gain));
        Ok((all, left))
    }
}

/// A product and what it takes now, with how much of that the machine's limits leave.
struct Stake {
    index: usize,
    now: f64,
    gain: f64,
}

/// Who takes at most so many times as long as the fastest may still be it: what disturbs a machine was seen to cost half.
const NEAR: f64 = 1.5;

/// Those who may be the fastest, as tables write them.
fn near(times: &[Timed]) -> Vec<String> {
    let least = times.iter().map(|timed| timed.seconds).fold(f64::INFINITY, f64::min);
    // What the cost model picks is another's time under that name.
    let real = times.iter().filter(|timed| timed.runner.candidate != PICKED);
    real.filter(|timed| timed.seconds <= NEAR * least).map(|timed| runner_word(&timed.runner)).collect()
}

/// Those whose turns lay so far apart that the fastest of them may have been faster than anyone's median: what disturbed them is
/// what decided. One alone is the fastest himself.
fn undecided(times: &[Timed]) -> Vec<String> {
    let least = times.iter().map(|timed| timed.seconds).fold(f64::INFINITY, f64::min);
    let real = times.iter().filter(|timed| timed.runner.candidate != PICKED);
    real.filter(|timed| timed.seconds * (1.0 - timed.spread / 2.0) <= least)
        .map(|timed| runner_word(&timed.runner))
        .collect()
}

/// Of two visits to a runner the faster one: what else a machine does only adds.
fn keep_the_lesser(times: &mut Vec<Timed>, further: Vec<Timed>) {
    for new in further {
        match times.iter_mut().find(|known| known.runner == new.runner) {
            Some(known) if known.seconds <= new.seconds => {}
            Some(known) => *known = new,
            None => times.push(new),
        }
    }
}

/// The rows of a problem: where its weight may be laid out, and where it may not.
fn rows(problem: &Problem, mut times: Vec<Timed>, fell: &[Named], wrong: &[Named]) -> Vec<TunedRow> {
    times.sort_by(|x, y| x.seconds.total_cmp(&y.seconds));
    let dropped: Vec<Named> = fell.iter().chain(wrong).cloned().collect();
    let row = |prepacked: bool| {
        let key = Problem { prepacked, ..*problem }.tuned_key();
        let times = times.iter().filter(|timed| prepacked || !timed.runner.packed).cloned().collect();
        TunedRow { key, times, dropped: dropped.clone(), foreign: false }
    };
    let all = if problem.prepacked { vec![row(false), row(true)] } else { vec![row(false)] };
    all.into_iter().filter(|row| !row.times.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gemwright_core::Runner;

    #[test]
    fn a_second_visit_only_helps() {
        let timed = |name: &str, seconds| {
            let runner = Runner { candidate: name.into(), packed: true, split: false };
            Timed { runner, seconds, spread: 0.0 }
        };
        let mut times = vec![timed("own", 1.0), timed("mkl", 1.4), timed("blis", 1.6)];
        assert_eq!(near(&times), ["own:packed", "mkl:packed"]);
        keep_the_lesser(&mut times, vec![timed("own", 1.2), timed("mkl", 0.9)]);
        assert_eq!(times, [timed("own", 1.0), timed("mkl", 0.9), timed("blis", 1.6)]);
        assert!(near(&[]).is_empty());
        assert_eq!(undecided(&times), ["mkl:packed"]);
        times[0].spread = 0.3;
        assert_eq!(undecided(&times), ["own:packed", "mkl:packed"]);
    }

    #[test]
    fn times_and_shares() {
        assert_eq!(parse_time("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_time("1.5m"), Ok(Duration::from_secs(90)));
        assert!(parse_time("soon").is_err() && parse_time("-3s").is_err() && parse_time("9e99h").is_err());
        assert_eq!((parse_share("2%"), parse_share("0.02")), (Ok(0.02), Ok(0.02)));
        assert!(parse_share("200%").is_err());
    }
}
