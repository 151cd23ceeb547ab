//! `gemwright doctor`: what this machine has, measured limits, every kernel through the judge.

use super::bench::DeviceArg;
use super::doctor_cuda::{self, kept_kernels};
use crate::chips::host;
use crate::error::Error;
use crate::output::{Format, OutputArgs};
use gemwright_core::{Cell, DType, Table};
use gemwright_cpu::{Caches, Kernel, cores_of_this_machine, instructions};
use gemwright_engine::judge::{EDGES, cases, judge};
use gemwright_engine::latency::{smallest_product, waking};
use gemwright_engine::limit::Limit;
use gemwright_engine::{Candidate, CpuQueue, candidates};
use gemwright_report as report;
use serde_json::{Value, json};

const EXAMPLES: &str = "\
Examples:
  gemwright doctor
  gemwright doctor --format json
  gemwright doctor --device cuda";

/// What this machine has: instructions, caches, libraries, measured limits; every kernel is checked
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// What is looked at
    #[arg(long, value_enum, default_value = "cpu")]
    device: DeviceArg,
    /// On a GPU: only kernels whose names have this in them
    #[arg(long, value_name = "NAME")]
    pub kernel: Option<String>,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Turns of a limit loop, of which the best counts.
const TURNS: usize = 15;

/// The machine in a few facts.
pub fn machine() -> Value {
    let caches = Caches::of_this_machine();
    json!({
        "cpu": host::read().map_or_else(|_| "unknown".into(), |chip| chip.name),
        "cores": cores_of_this_machine(), "threads": std::thread::available_parallelism().map_or(1, usize::from),
        "l1": caches.l1, "l2": caches.l2, "l3": caches.l3,
        "instructions": instructions(),
        "kernels": Kernel::present().map(|kernel| kernel.name).collect::<Vec<_>>(),
    })
}

/// A candidate and what the judge says.
struct Checked {
    name: String,
    origin: String,
    right: usize,
    refused: usize,
    worst: f64,
    failure: Option<String>,
}

fn check(candidate: &dyn Candidate, queue: &CpuQueue) -> Checked {
    candidate.set_threads(queue.threads);
    let all: Vec<_> = candidate.contract().dtypes.iter().flat_map(|types| cases(*types, &EDGES, 11)).collect();
    let verdict = judge(candidate, queue, &all, 1);
    Checked {
        name: candidate.name().into(),
        origin: candidate.origin(),
        right: verdict.right,
        refused: verdict.refused,
        worst: verdict.worst,
        failure: verdict.failures.into_iter().next(),
    }
}

pub fn run(args: &Args) -> Result<(), Error> {
    if args.device == DeviceArg::Cuda {
        return doctor_cuda::run(args);
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let queue = CpuQueue::new(threads);
    let (all, absent) = candidates();
    let checked: Vec<Checked> = all.iter().map(|candidate| check(&**candidate, &queue)).collect();
    let memory = vec![1f32; (64 << 20).max(Caches::of_this_machine().l3 / 2)];
    let limits: Vec<(String, f64)> = [Limit::Fma(DType::F32), Limit::Fma(DType::F64), Limit::Read, Limit::Amx]
        .into_iter()
        .map(|limit| {
            let turn = |_| limit.measure(&queue.pool, threads, &memory);
            (limit.name(), (0..TURNS).map(turn).fold(0.0, f64::max))
        })
        .collect();
    let latencies = [("waking", waking(&queue.pool, threads)), ("product", smallest_product())];
    if args.output.format == Format::Json {
        let candidates: Vec<Value> = checked
            .iter()
            .map(|c| json!({"name": c.name, "version": c.origin, "right": c.right, "refused": c.refused, "failure": c.failure}))
            .collect();
        let absent: Vec<Value> = absent.iter().map(|a| json!({"name": a.name, "why": a.why, "how": a.how})).collect();
        let limits: Value =
            limits.iter().map(|(name, rate)| (name.clone(), json!(rate))).collect::<serde_json::Map<_, _>>().into();
        let out = json!({"format": 1, "machine": machine(), "candidates": candidates, "absent": absent, "limits": limits,
                   "latencies": latencies.into_iter().map(|(name, seconds)| (name.to_string(), json!(seconds))).collect::<serde_json::Map<_, _>>()});
        args.output.write(&out.to_string())?;
        return verdict(&checked);
    }
    let mut table = Table::new(&["candidate", "version", ">right", ">refused", ">worst error of its bound", "judged"]);
    for c in &checked {
        let judged = c.failure.as_deref().map_or("right".to_string(), |why| format!("WRONG: {why}"));
        let worst = Cell::shown(c.worst, report::percent(c.worst));
        let counts = [c.right, c.refused].map(|n| Cell::from(n as u64));
        let [right, refused] = counts;
        table.row(vec![c.name.as_str().into(), c.origin.as_str().into(), right, refused, worst, judged.into()]);
    }
    for a in &absent {
        let empty = [const { Cell::Empty }; 3];
        let [x, y, z] = empty;
        table.row(vec![a.name.into(), format!("not here ({}); {}", a.why, a.how).into(), x, y, z, Cell::Empty]);
    }
    let caches = Caches::of_this_machine();
    let name = host::read().map_or_else(|_| "unknown".into(), |chip| chip.name);
    let mut lines = vec![
        format!("cpu          {name}, {threads} threads"),
        format!("instructions {}", instructions().join(", ")),
        format!(
            "caches       {} first, {} second, {} third level",
            report::bytes(caches.l1 as u128),
            report::bytes(caches.l2 as u128),
            report::bytes(caches.l3 as u128)
        ),
    ];
    for (name, rate) in &limits {
        let unit = if name == "limit.read" { "GB/s" } else { "GFLOP/s" };
        lines.push(format!("{name}   {} {unit}, best of {TURNS} turns", report::significant(rate * 1e-9, 4)));
    }
    let latency = |at: usize| latencies[at].1.map_or_else(|| "not measured".into(), report::seconds);
    lines.push(format!("waking       {} until {threads} threads have come to a task", latency(0)));
    lines.push(format!("product      {} for one of two numbers", latency(1)));
    lines.push(kept_kernels());
    match args.output.format {
        Format::Csv => args.output.write(&args.output.table(&table))?,
        _ => args.output.write(&format!("{}\n\n{}", lines.join("\n"), args.output.table(&table)))?,
    }
    verdict(&checked)
}

/// A kernel that is wrong is a failed check.
fn verdict(checked: &[Checked]) -> Result<(), Error> {
    let wrong: Vec<&str> = checked.iter().filter(|c| c.failure.is_some()).map(|c| c.name.as_str()).collect();
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(Error::Failed(format!("the judge found {} wrong", wrong.join(", ")))),
    }
}
