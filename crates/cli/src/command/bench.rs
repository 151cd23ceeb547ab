//! `gemwright bench`: candidates side by side.

use super::asked::{Asked, merged, problems};
use super::bench_cuda;
use super::bench_page::{Contest, Run, bench_page};
use crate::error::Error;
use crate::output::{Format, OutputArgs, write_file};
use crate::subject::{ModelOptions, parse_dtype};
use clap::ValueEnum;
use gemwright_core::{Cell, DType, Table};
use gemwright_cpu::{Kernel, Pool, asked_cores, keep_to, keep_to_fastest};
use gemwright_engine::bench::{Measured, Method, Stage, Times, measure};
use gemwright_engine::limit::Limit;
use gemwright_engine::vendor::Absent;
use gemwright_engine::{Candidate, Epilogue, PYTORCH, SPINS, Worker, candidates};
use gemwright_report as report;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  gemwright bench 597 4096 4096                          one product, as a linear layer has it: weights [N, K]
  gemwright bench llama-2-7b --phase decode --threads 1  the products of a model
  gemwright bench shapes.csv --against mkl,openblas --record benches/today
  gemwright bench 2048 2048 2048 --dtype f64 --kernel avx2-f64
  gemwright bench llama-2-7b --phase decode --html decode.html   a page to look at
  gemwright bench 256 11008 4096 --dtype bf16 --out-dtype bf16 --epilogue silu,times
  gemwright bench 1024 1536 2048 --device cuda --groups 128      experts: rows of all, weights [128, N, K]
  gemwright bench 8 4096 14336 --device cuda --fp8 weights --scales rows      weights of e4m3, activations of bf16

Candidates take turns call by call in one process, on random numbers, after the judge has passed each; weights of
products with few rows are rotated past the last cache; the machine's limit loops run in the same rotation. The ratio
is the median over the rounds of the paired ratio of the best of ours to the best other.";

/// Our kernels beside the libraries of this machine, on a model's own products
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// M N K of a linear layer, a CSV of shapes, or a config.json, a folder, a preset, a trace, a saved workload
    #[arg(required = true, num_args = 1..=3, value_name = "M N K|TABLE.csv|WORKLOAD")]
    pub subject: Vec<String>,
    /// Where it runs
    #[arg(long, value_enum, default_value = "cpu")]
    pub device: DeviceArg,
    /// Only these libraries; none for ours alone
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    pub against: Option<Vec<String>>,
    /// Only this kernel of ours (`gemwright doctor` lists them) [default: GEMWRIGHT_KERNEL, or the best for the type]
    #[arg(long, value_name = "NAME")]
    pub kernel: Option<String>,
    /// Threads of every candidate [default: all]; with fewer than cores everybody stays on those that are the fastest now,
    /// or on those of GEMWRIGHT_CORES (a list like 0,2)
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Element type of the result [default: that of the operands, and f32 for bf16, which every library has]
    #[arg(long, value_name = "TYPE", value_parser = parse_dtype)]
    pub out_dtype: Option<DType>,
    /// Weights laid out beforehand, by who can
    #[arg(long)]
    prepacked: bool,
    /// What follows the product: scale, bias, relu, gelu, gelu-tanh, silu, times (a matrix), residual; fused by who can.
    /// On a GPU also gated (weights of two halves: activation(first) · second) and kept (what goes into the activation)
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    pub epilogue: Vec<String>,
    /// Turns of every candidate
    #[arg(long, default_value_t = 20, value_name = "N")]
    pub rounds: usize,
    /// On a GPU: also so many kernels of ours that the cost model ranks next
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub next: usize,
    /// On a GPU: of every schedule (data-parallel, persistent, stream-k, split-k) the kernel that the cost model ranks first
    #[arg(long, conflicts_with_all = ["next", "kernel"])]
    pub schedules: bool,
    /// On a GPU: also whom a table of `tune` says
    #[arg(long, value_name = "TABLE")]
    pub table: Option<PathBuf>,
    /// On a GPU: each product begins when the one before it has ended; otherwise kernels of ours may begin beside its end
    #[arg(long)]
    pub single: bool,
    /// On a GPU: also all products in one graph, one after the other, each with weights of its own
    #[arg(long, conflicts_with = "groups")]
    pub chain: bool,
    /// On a GPU: rows belong to so many groups, each with weights of its own, as tokens to experts; M counts those of all.
    /// Of a gradient of weights (NT) k does
    #[arg(long, value_name = "N")]
    pub groups: Option<u64>,
    /// On a GPU: operands of e4m3, both of them (weights [N, K], K in whole 16, a result of bf16 or f32) or the weights alone
    /// (up to 32 rows, K in whole 128)
    #[arg(long, value_enum)]
    pub fp8: Option<Fp8Arg>,
    /// Factors of operands of e4m3: one, or one for each row; cuBLASLt is not measured with them
    #[arg(long, value_enum, requires = "fp8")]
    pub scales: Option<ScalesArg>,
    /// Sums of e4m3 are added up in f32 every 128 k; cuBLASLt runs without FAST_ACCUM
    #[arg(long, requires = "fp8")]
    pub promoted: bool,
    /// How rows go to groups
    #[arg(long, value_enum, default_value = "even", requires = "groups")]
    pub routing: RoutingArg,
    /// On a GPU: without pauses too, at the power the card may draw
    #[arg(long)]
    pub sustained: bool,
    /// Go on with a record that was interrupted
    #[arg(long, requires = "record")]
    pub resume: bool,
    /// Write a page for the browser: one file, works offline
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Keep raw times, machine, versions, the table, a plot and the page in this folder
    #[arg(long, value_name = "DIR")]
    pub record: Option<PathBuf>,
    #[command(flatten)]
    pub options: ModelOptions,
    #[command(flatten)]
    pub output: OutputArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RoutingArg {
    /// As many to each
    Even,
    /// Each to any of them
    Random,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Fp8Arg {
    Both,
    Weights,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ScalesArg {
    Tensor,
    Rows,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DeviceArg {
    Cpu,
    Cuda,
}

/// Turns where a call takes over 50 ms.
const ROUNDS_OF_LONG: usize = 5;

pub fn run(args: &Args) -> Result<(), Error> {
    if args.device == DeviceArg::Cuda {
        return bench_cuda::run(args);
    }
    if args.next > 0
        || args.sustained
        || args.single
        || args.chain
        || args.resume
        || args.schedules
        || args.table.is_some()
        || args.groups.is_some()
        || args.fp8.is_some()
    {
        let why = "--next, --schedules, --table, --sustained, --single, --chain, --groups, --fp8 and --resume go with \
                   --device cuda";
        return Err(Error::Usage(why.into()));
    }
    let dtype = args.options.dtype.unwrap_or(DType::F32);
    if !matches!(dtype, DType::F32 | DType::F64 | DType::Bf16) {
        return Err(Error::Missing(format!("no CPU kernel multiplies {dtype} yet; --dtype f32, f64 or bf16")));
    }
    let out_dtype = match args.out_dtype {
        Some(out) if out == dtype || dtype == DType::Bf16 && out == DType::F32 => out,
        Some(out) => return Err(Error::Usage(format!("--out-dtype {out}: {dtype} gives {dtype}, bf16 also f32"))),
        None if dtype == DType::Bf16 => DType::F32,
        None => dtype,
    };
    // Before threads are counted.
    let named = asked_cores().map(|cores| keep_to(&cores));
    let threads = args.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)).max(1);
    let cores = named.unwrap_or_else(|| fastest_cores(threads, dtype));
    calmly(threads)?;
    let mut asked = merged(problems(&args.subject, &args.options, &args.output, dtype)?);
    for asked in &mut asked {
        (asked.problem.prepacked, asked.problem.out_dtype) = (args.prepacked, out_dtype);
        let (names, p) = (args.epilogue.iter().map(String::as_str), asked.problem.product);
        asked.problem.epilogue =
            Epilogue::named(names, (p.m, p.n)).map_err(|why| Error::Usage(format!("--epilogue: {why}")))?;
        if asked.problem.epilogue.gated || asked.problem.epilogue.kept.is_some() {
            return Err(Error::Usage("--epilogue: gated and kept go with --device cuda".into()));
        }
        for name in asked.problem.epilogue.names() {
            asked.name += &format!(" {name}");
        }
    }
    let (candidates, mut workers) = chosen(args, dtype, threads)?;
    let method = Method {
        rounds: args.rounds.max(1),
        threads,
        rounds_of_long: ROUNDS_OF_LONG.min(args.rounds.max(1)),
        hopeless: f64::INFINITY,
        always: None,
    };
    let bar = bar(args.output.quiet, asked.len() * args.rounds.max(1), "rounds");
    let refs: Vec<&dyn Candidate> = candidates.iter().map(|candidate| &**candidate).collect();
    let mut measured = Vec::new();
    for asked in &asked {
        let mut told = |stage: Stage<'_>| {
            if let Stage::Round(..) = stage {
                bar.inc(1);
            }
        };
        measured.push(measure(&asked.problem, &refs, &mut workers, &method, &mut told));
        bar.set_position((measured.len() * method.rounds) as u64);
    }
    bar.finish_and_clear();
    let table = table(&asked, &measured);
    let raw = raw(&asked, &measured, &versions(&candidates, &workers), (&method, &cores));
    if let Some(folder) = &args.record {
        record(folder, &raw, &table, &plot(&asked, &measured, threads))?;
    }
    if args.html.is_some() || args.record.is_some() {
        let limit = format!("this machine's limit, p10, {}", threads_words(threads));
        let subtitle = format!("{} rounds, {dtype}, {}", method.rounds, threads_words(threads));
        write_page(args, &bench_page(title(args), subtitle, &limit, &contests(&asked, &measured), table.clone()))?;
    }
    if args.output.format == Format::Json {
        return args.output.write(&raw.to_string());
    }
    let text = args.output.table(&table);
    match args.output.format {
        Format::Csv => args.output.write(&text),
        _ => args.output.write(&format!("{text}\n\n{}", notes(&measured, threads).join("\n"))),
    }
}

fn threads_words(threads: usize) -> String {
    format!("{threads} thread{}", if threads == 1 { "" } else { "s" })
}

/// What was measured, in the user's words.
pub fn title(args: &Args) -> String {
    let subject = args
        .subject
        .iter()
        .map(|word| Path::new(word).file_name().map_or(word.as_str().into(), |n| n.to_string_lossy()));
    format!("bench {}", subject.collect::<Vec<_>>().join(" x "))
}

/// The page, where it was asked for and into the record.
pub fn write_page(args: &Args, page: &report::Page) -> Result<(), Error> {
    let html = report::page(page);
    let record = args.record.as_ref().map(|folder| folder.join("page.html"));
    args.html.iter().chain(&record).try_for_each(|path| write_file(path, html.as_bytes()))
}

/// For the page: the quiet moments of every candidate.
fn contests(asked: &[Asked], measured: &[Measured]) -> Vec<Contest> {
    let one = |(asked, measured): (&Asked, &Measured)| {
        let p = asked.problem.product;
        let run = |times: &Times| Run {
            series: times.name.clone(),
            own: times.own,
            seconds: times.quantile(0.5),
            share: Some(measured.limit(0.1) / times.quantile(0.1)).filter(|share| share.is_finite()),
        };
        Contest {
            caption: format!("{} x {} x {} {}", p.m, p.n, p.k, asked.problem.letters()),
            rows: p.m,
            count: asked.count,
            filter: format!("{} {} {} {} {}", asked.name, asked.problem.letters(), p.m, p.n, p.k),
            ratio: measured.ratio(),
            runs: measured.times.iter().map(run).collect(),
        }
    };
    asked.iter().zip(measured).map(one).collect()
}

/// Settings that libraries read when they are opened: their threads stay awake from call to call, but not when
/// another candidate has its turn, and there are as many as ours.
pub fn settings(threads: usize) -> Vec<(&'static str, String)> {
    let spins = SPINS.iter().map(|(name, value)| (*name, value.to_string()));
    spins.chain([("OMP_NUM_THREADS", threads.to_string())]).collect()
}

/// With fewer threads than cores everybody stays on as many of them, those that are the fastest now.
fn fastest_cores(threads: usize, dtype: DType) -> Vec<usize> {
    let (limit, alone) = (Limit::of(dtype), Pool::new(1));
    keep_to_fastest(threads, &|| limit.measure(&alone, 1, &[]))
}

/// Begins anew with those settings, unless the user or an earlier beginning has made them.
#[cfg(unix)]
fn calmly(threads: usize) -> Result<(), Error> {
    use std::os::unix::process::CommandExt;
    let missing: Vec<_> = settings(threads).into_iter().filter(|(name, _)| std::env::var_os(name).is_none()).collect();
    let Ok(program) = std::env::current_exe() else { return Ok(()) };
    if missing.is_empty() {
        return Ok(());
    }
    // Only returns where it fails.
    let error = std::process::Command::new(program).args(std::env::args_os().skip(1)).envs(missing).exec();
    Err(Error::Missing(format!("the program cannot be begun anew: {error}")))
}

#[cfg(not(unix))]
fn calmly(_: usize) -> Result<(), Error> {
    Ok(())
}

/// Candidates in this process and in processes of their own.
type Chosen = (Vec<Box<dyn Candidate>>, Vec<Worker>);

/// One of ours, and the libraries that are wanted and here.
fn chosen(args: &Args, dtype: DType, threads: usize) -> Result<Chosen, Error> {
    let missing = |error: gemwright_cpu::KernelError| Error::Missing(error.to_string());
    let asked = args.kernel.clone().or_else(|| std::env::var("GEMWRIGHT_KERNEL").ok());
    let kernel = match &asked {
        Some(name) => Kernel::named(name).map_err(missing)?,
        None => Kernel::best(dtype).ok_or_else(|| Error::Missing(format!("no kernel multiplies {dtype} here")))?,
    };
    if kernel.dtype != dtype {
        return Err(Error::Usage(format!("--kernel {} multiplies {}, not {dtype}", kernel.name, kernel.dtype)));
    }
    let own = format!("own.{}", kernel.name);
    let (all, mut absent) = candidates();
    let wanted = |name: &str| match &args.against {
        None => true,
        Some(list) => list.iter().any(|wanted| wanted == name),
    };
    let mut workers = Vec::new();
    if wanted(PYTORCH) {
        let by_name = args.against.is_some();
        match Worker::pytorch(threads).and_then(|worker| if by_name { worker.needed() } else { Ok(worker) }) {
            Ok(worker) => workers.push(worker),
            Err(why) => absent.push(why),
        }
    }
    for name in args.against.iter().flatten().filter(|name| *name != "none") {
        if let Some(absent) = absent.iter().find(|a| a.name == name) {
            return Err(Error::Missing(format!("{name}: {}; {}", absent.why, absent.how)));
        }
        if !all.iter().any(|c| c.name() == name) && name != PYTORCH {
            let known = known(&all, &absent);
            return Err(Error::Usage(format!("--against {name}: known are {}", known.join(", "))));
        }
    }
    if args.against.is_none() && !args.output.quiet {
        for absent in &absent {
            eprintln!("not here: {} ({}); {}", absent.name, absent.why, absent.how);
        }
    }
    let all = all.into_iter().filter(|c| if c.is_own() { c.name() == own } else { wanted(c.name()) });
    Ok((all.collect(), workers))
}

/// Names that `--against` takes.
fn known<'a>(all: &'a [Box<dyn Candidate>], absent: &'a [Absent]) -> Vec<&'a str> {
    let here = all.iter().filter(|c| !c.is_own()).map(|c| c.name());
    here.chain(absent.iter().map(|a| a.name).filter(|name| *name != PYTORCH)).chain([PYTORCH]).collect()
}

fn versions(candidates: &[Box<dyn Candidate>], workers: &[Worker]) -> Vec<(String, String)> {
    let here = candidates.iter().map(|c| (c.name().to_string(), c.origin()));
    here.chain(workers.iter().map(|w| (w.name.to_string(), w.origin.clone()))).collect()
}

/// Shown to people, not to files; `what` is counted.
pub fn bar(quiet: bool, count: usize, what: &str) -> ProgressBar {
    let shown = !quiet && std::io::stderr().is_terminal();
    let target = if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(Some(count as u64), target);
    if let Ok(style) = ProgressStyle::with_template(&format!("{{wide_bar}} {{pos}} of {{len}} {what}, {{eta}}")) {
        bar.set_style(style);
    }
    bar
}

fn table(asked: &[Asked], measured: &[Measured]) -> Table {
    let mut table = Table::new(&[
        "product",
        "flags",
        ">batch",
        ">M",
        ">N",
        ">K",
        ">count",
        "candidate",
        ">median",
        ">p10",
        ">GFLOP/s",
        ">GB/s",
        ">of the limit, p10",
        ">to the best other",
    ]);
    for (asked, measured) in asked.iter().zip(measured) {
        let p = asked.problem.product;
        let mut times: Vec<&Times> = measured.times.iter().collect();
        times.sort_by(|x, y| x.quantile(0.5).total_cmp(&y.quantile(0.5)));
        for times in times {
            let (median, p10) = (times.quantile(0.5), times.quantile(0.1));
            let rate = p.flops() as f64 / p10 * 1e-9;
            let bytes = asked.problem.bytes() as f64 / p10 * 1e-9;
            let share = measured.limit(0.1) / p10;
            let best = times.own && measured.best(true).is_some_and(|best| best.name == times.name);
            let ratio = if best { measured.ratio() } else { None };
            let mut row: Vec<Cell> = vec![asked.name.as_str().into(), asked.problem.letters().into()];
            row.extend([p.batch, p.m, p.n, p.k, asked.count].map(Cell::from));
            row.extend([
                times.name.as_str().into(),
                Cell::shown(median, report::seconds(median)),
                Cell::shown(p10, report::seconds(p10)),
                Cell::shown(rate, report::significant(rate, 4)),
                Cell::shown(bytes, report::significant(bytes, 3)),
                Cell::shown(share, report::percent(share)),
                ratio.map_or(Cell::Empty, |x| Cell::shown(x, report::significant(x, 3))),
            ]);
            table.row(row);
        }
    }
    table
}

/// What the limits did, and who was left out.
fn notes(measured: &[Measured], threads: usize) -> Vec<String> {
    let mut lines = vec![format!("threads      {threads}; rates are those of p10, ratios the median of paired rounds")];
    let ratios: Vec<f64> = measured.iter().filter_map(Measured::ratio).collect();
    if !ratios.is_empty() {
        let mean = (ratios.iter().map(|x| x.ln()).sum::<f64>() / ratios.len() as f64).exp();
        lines.push(format!(
            "ratio        {} geometric mean over {} products",
            report::significant(mean, 3),
            ratios.len()
        ));
    }
    if let Some(first) = measured.first() {
        for limit in &first.limits {
            let rates: Vec<f64> = measured
                .iter()
                .flat_map(|m| &m.limits)
                .filter(|l| l.name == limit.name)
                .map(|l| l.quantile(0.9))
                .collect();
            let best = rates.iter().copied().fold(0.0, f64::max) * 1e-9;
            let least = rates.iter().copied().fold(f64::INFINITY, f64::min) * 1e-9;
            let [least, best] = [least, best].map(|x| report::significant(x, 4));
            lines.push(format!("{}   {least} to {best} G/s over the products, p10", limit.name));
        }
        lines.extend(first.left_out.iter().map(|(name, why)| format!("left out     {name}: {why}")));
    }
    lines
}

fn raw(
    asked: &[Asked],
    measured: &[Measured],
    versions: &[(String, String)],
    (method, cores): (&Method<'_>, &[usize]),
) -> Value {
    let times = |all: &[Times]| -> Vec<Value> {
        all.iter().map(|t| json!({"name": t.name, "own": t.own, "values": t.values})).collect()
    };
    let products: Vec<Value> = asked
        .iter()
        .zip(measured)
        .map(|(asked, m)| {
            let p = asked.problem.product;
            json!({
                "product": asked.name, "flags": asked.problem.letters(), "batch": p.batch, "m": p.m, "n": p.n, "k": p.k,
                "dtype": asked.problem.dtype.name(), "out_dtype": asked.problem.out_dtype.name(),
                "epilogue": asked.problem.epilogue.names(), "count": asked.count, "cold": m.cold, "seconds": times(&m.times),
                "limits": times(&m.limits), "left_out": m.left_out, "ratio": m.ratio(),
            })
        })
        .collect();
    let versions: Vec<Value> =
        versions.iter().map(|(name, version)| json!({"name": name, "version": version})).collect();
    json!({
        "format": 1, "gemwright": env!("CARGO_PKG_VERSION"), "machine": super::doctor::machine(),
        "threads": method.threads, "cores": cores, "rounds": method.rounds, "candidates": versions, "products": products,
    })
}

/// Every candidate of every product by its share of the limit, the quiet moments of both.
fn plot(asked: &[Asked], measured: &[Measured], threads: usize) -> String {
    let own: Vec<&str> = measured.iter().flat_map(|m| &m.times).filter(|t| t.own).map(|t| t.name.as_str()).collect();
    let row = |asked: &Asked, measured: &Measured| {
        let p = asked.problem.product;
        let share = |times: &Times| (times.name.clone(), measured.limit(0.1) / times.quantile(0.1));
        report::DotRow {
            caption: format!("{} x {} x {} {}", p.m, p.n, p.k, asked.problem.letters()),
            dots: measured.times.iter().map(share).collect(),
        }
    };
    let rows: Vec<report::DotRow> = asked.iter().zip(measured).map(|(asked, measured)| row(asked, measured)).collect();
    let title = format!("Share of this machine's limit, p10, {}", threads_words(threads));
    report::dots_svg(&title, &rows, &|name| own.contains(&name))
}

fn record(folder: &Path, raw: &Value, table: &Table, plot: &str) -> Result<(), Error> {
    let failed = |path: &Path, e: std::io::Error| Error::File { path: path.display().to_string(), why: e.to_string() };
    std::fs::create_dir_all(folder).map_err(|e| failed(folder, e))?;
    for (name, text) in [
        ("raw.json", raw.to_string()),
        ("table.csv", report::csv(table)),
        ("table.md", report::markdown(table)),
        ("plot.svg", plot.to_string()),
    ] {
        let path = folder.join(name);
        std::fs::write(&path, text).map_err(|e| failed(&path, e))?;
    }
    Ok(())
}
