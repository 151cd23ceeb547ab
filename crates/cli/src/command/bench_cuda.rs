//! `gemwright bench --device cuda`: our kernels beside cuBLASLt, window by window.

use super::asked::{Asked, merged, problems};
use super::bench::{Args, Fp8Arg, RoutingArg, ScalesArg, bar, title, write_page};
use super::bench_chain::chained;
use super::bench_page::{Contest, Run, bench_page};
use super::doctor_cuda::{compile_all, gpu, missing, named};
use crate::error::Error;
use crate::output::Format;
use gemwright_core::{Catalog, Cell, Chip, DType, Roof, Table, TunedDevice};
use gemwright_cuda::{Device, MOST_GROUPS, Tools, compiler_version};
use gemwright_engine::bench::{Times, quantile};
use gemwright_engine::cuda::bench::{Measured, Method};
use gemwright_engine::cuda::contest::{Entrants, Field, contest, kernels_of};
use gemwright_engine::cuda::{Case, CublasLt, CudaQueue, Routing, TABLE, Tabled};
use gemwright_engine::{Candidate, Dispatcher, Epilogue, Layout, Problem, Scaling, tuned_files};
use gemwright_report as report;
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

pub fn run(args: &Args) -> Result<(), Error> {
    let dtype = args.options.dtype.unwrap_or(DType::Bf16);
    if !matches!(dtype, DType::Bf16 | DType::F16) {
        return Err(Error::Missing(format!("no CUDA kernel multiplies {dtype} yet; --dtype bf16 or f16")));
    }
    if args.promoted && args.fp8 == Some(Fp8Arg::Weights) {
        return Err(Error::Usage("--promoted goes with --fp8 both".into()));
    }
    let device = gpu()?;
    compiler_version().map_err(|e| missing(&e))?;
    let wanted = |name: &str| args.against.as_ref().is_none_or(|list| list.iter().any(|wanted| wanted == name));
    let vendor = if wanted("cublaslt") { Some(CublasLt::open()) } else { None };
    let vendor = match vendor {
        Some(Err(absent)) if args.against.is_some() => return Err(Error::Missing(absent.to_string())),
        Some(Err(absent)) => {
            eprintln!("not here: {absent}");
            None
        }
        Some(Ok(vendor)) => Some(vendor),
        None => None,
    };
    let kernels = args.kernel.iter().flat_map(|list| list.split(',')).map(named).collect::<Result<Vec<_>, _>>()?;
    let mut asked = merged(problems(&args.subject, &args.options, &args.output, dtype)?);
    for asked in &mut asked {
        let (names, p) = (args.epilogue.iter().map(String::as_str), asked.problem.product);
        asked.problem.epilogue =
            Epilogue::named(names, (p.m, p.n)).map_err(|why| Error::Usage(format!("--epilogue: {why}")))?;
        asked.problem.out_dtype = args.out_dtype.unwrap_or(dtype);
        if asked.problem.epilogue.gated {
            asked.problem.b = Layout::column_major(p.k, asked.problem.weight_cols());
        }
        if let Some(fp8) = args.fp8 {
            asked.problem = of_eight_bits(&asked.problem, fp8, args);
        }
        if let Some(groups) = args.groups {
            asked.problem = grouped(asked, groups)?;
        }
    }
    let mut queue = CudaQueue::new(&device).map_err(|e| missing(&e))?;
    // Operands are drawn before anything is measured.
    (queue.early, queue.constant_weights) = (!args.single, true);
    let tools = Tools::new(&device).map_err(|e| missing(&e))?;
    let entrants = match kernels.as_slice() {
        [] if args.schedules => Entrants::EachSchedule,
        [] => Entrants::Picked(args.next),
        named => Entrants::Named(named),
    };
    let table = args.table.as_deref().map(|path| tabled(path, &device, vendor.as_ref())).transpose()?;
    let (vendor_here, table) = (vendor.as_ref(), table.as_ref());
    let field = Field { device: &device, queue: &queue, tools: &tools, vendor: vendor_here, entrants, table };
    let cases: Vec<Case> = asked.iter().flat_map(|asked| kernels_of(&asked.problem, entrants, &device)).collect();
    compile_all(&cases, &device);
    let rounds = args.rounds.max(1);
    let routing = match args.routing {
        RoutingArg::Even => Routing::Even,
        RoutingArg::Random => Routing::Random,
    };
    let burst = Method { rounds, routing, ..Method::BURST };
    let methods: Vec<Method> =
        if args.sustained { vec![burst, Method { rounds, routing, ..Method::SUSTAINED }] } else { vec![burst] };
    let done = if args.resume { done(args.record.as_deref()) } else { Vec::new() };
    let mut shards = shards(args.record.as_deref(), args.resume)?;
    let mut rows = Vec::new();
    let bar = bar(args.output.quiet, asked.len(), "products");
    for asked in &asked {
        let row = match done.iter().find(|row| row["key"] == key(asked, routing)) {
            Some(row) => row.clone(),
            None => {
                let measured = contest(&asked.problem, &field, &methods);
                let mut row = shard(asked, measured.map_err(|e| e.to_string()), &methods);
                row["key"] = key(asked, routing);
                if let Some(table) = table {
                    row["table"] = json!(table.who(&asked.problem));
                }
                if args.record.is_some() {
                    row["nvidia_smi"] = json!(smi());
                }
                if let Some(file) = &mut shards {
                    writeln!(file, "{row}").map_err(|e| Error::Failed(e.to_string()))?;
                }
                row
            }
        };
        if !args.output.quiet {
            bar.suspend(|| eprintln!("{}", line(&row)));
        }
        bar.inc(1);
        rows.push(row);
    }
    bar.finish_and_clear();
    let catalog = Catalog::builtin();
    let chip = catalog.recognise(&device.properties.name, None, None);
    let origin = vendor.as_ref().map(Candidate::origin);
    let p = &device.properties;
    let read = tools.read_bandwidth(&queue.stream).map_err(|e| missing(&e))?;
    let mut all = json!({
        "format": 1, "gemwright": env!("CARGO_PKG_VERSION"), "cublaslt": origin,
        "device": {"name": p.name, "multiprocessors": p.multiprocessors, "driver": p.driver},
        "single": args.single, "read_bytes_per_second": read,
        "nvidia_smi": smi(), "products": rows,
    });
    let chain = args.chain.then(|| chained(&asked, &rows, &field, rounds));
    let chain = match chain {
        Some(Ok(chain)) => {
            all["chain"] = chain.json();
            Some(chain.lines())
        }
        // What was measured before it is kept all the same.
        Some(Err(why)) => {
            all["chain"] = json!({"error": why});
            Some(format!("all of them in one graph: {why}"))
        }
        None => None,
    };
    // What the roof goes by.
    let dtype = if args.fp8 == Some(Fp8Arg::Both) { DType::F8E4m3 } else { dtype };
    let table = shown(&rows, dtype, chip);
    if let Some(folder) = &args.record {
        let failed = |e: std::io::Error| Error::File { path: folder.display().to_string(), why: e.to_string() };
        std::fs::write(folder.join("raw.json"), all.to_string()).map_err(failed)?;
        std::fs::write(folder.join("table.csv"), report::csv(&table)).map_err(failed)?;
        if let Some(chip) = chip {
            std::fs::write(folder.join("plot.svg"), plot(&rows, dtype, chip)).map_err(failed)?;
        }
    }
    if args.html.is_some() || args.record.is_some() {
        let contests: Vec<Contest> = rows.iter().filter_map(|row| contest_of(row, dtype, chip)).collect();
        let subtitle = format!("{} at full clocks, {rounds} rounds, {dtype}", p.name);
        let limit = chip.map_or("the roof".into(), |chip| format!("the roof of {}", chip.name));
        write_page(args, &bench_page(title(args), subtitle, &limit, &contests, table.clone()))?;
    }
    match args.output.format {
        Format::Json => args.output.write(&all.to_string()),
        Format::Table => {
            let chain = chain.map_or(String::new(), |chain| format!("\n{chain}\n"));
            args.output.write(&(args.output.table(&table) + &chain))
        }
        _ => {
            // Its columns are not those of the table.
            chain.iter().for_each(|chain| eprintln!("{chain}"));
            args.output.write(&args.output.table(&table))
        }
    }
}

/// The same product with operands of e4m3.
fn of_eight_bits(problem: &Problem, fp8: Fp8Arg, args: &Args) -> Problem {
    let scaling = match args.scales {
        None => Scaling::None,
        Some(ScalesArg::Tensor) => Scaling::Tensor,
        Some(ScalesArg::Rows) => Scaling::Rows,
    };
    match fp8 {
        Fp8Arg::Weights => problem.with_small_weights(scaling),
        Fp8Arg::Both => {
            let eight = problem.of_eight_bits([scaling; 2], args.promoted);
            Problem { out_dtype: args.out_dtype.unwrap_or(eight.out_dtype), ..eight }
        }
    }
}

/// The same product of groups.
fn grouped(asked: &Asked, groups: u64) -> Result<Problem, Error> {
    let problem = asked.problem;
    if groups == 0 || groups > MOST_GROUPS || problem.product.batch != 1 {
        return Err(Error::Usage(format!("--groups {groups}: 1 to {MOST_GROUPS}, of products that are no batch")));
    }
    match problem.letters().as_str() {
        "NT" => Ok(problem.with_groups_of_k(groups)),
        "TN" | "NN" => Ok(problem.with_groups_of_rows(groups)),
        letters => Err(Error::Usage(format!("--groups: products are TN, NN or NT, not {letters}"))),
    }
}

/// Whom a table of this GPU says.
fn tabled(path: &Path, device: &Arc<Device>, vendor: Option<&CublasLt>) -> Result<Tabled, Error> {
    let failed = |why: String| Error::File { path: path.display().to_string(), why };
    let table = tuned_files::load(path).map_err(failed)?;
    let p = &device.properties;
    let here = TunedDevice {
        name: p.name.clone(),
        units: p.multiprocessors.into(),
        versions: vec![("gemwright".into(), env!("CARGO_PKG_VERSION").into())],
        ..table.device.clone()
    };
    if let Some(why) = tuned_files::other_device(&table.device, &here) {
        return Err(failed(why));
    }
    let then = table.device.versions.iter().find(|(name, _)| name == "cublaslt").map(|(_, origin)| origin);
    let number = |origin: &str| origin.split(' ').next().unwrap_or_default().to_string();
    if let (Some(then), Some(now)) = (then, vendor.map(Candidate::origin))
        && number(then) != number(&now)
    {
        return Err(failed(format!("it was made with cuBLASLt {then}, this is {now}: tune again")));
    }
    Ok(Tabled::new(Dispatcher::new(Some(table), ""), device, vendor))
}

/// Clocks, power and temperature now, as the driver's program says.
fn smi() -> Option<String> {
    let fields = "--query-gpu=name,driver_version,clocks.sm,clocks.max.sm,power.draw,power.limit,temperature.gpu";
    let out = std::process::Command::new("nvidia-smi").args([fields, "--format=csv,noheader"]).output().ok()?;
    Some(String::from_utf8_lossy(&out.stdout).trim().to_string())
}

fn key(asked: &Asked, routing: Routing) -> Value {
    let p = asked.problem.product;
    let types = [asked.problem.dtype, asked.problem.weight_dtype].map(DType::name);
    let scales = asked.problem.scales.map(|scaling| format!("{scaling:?}"));
    let routing = asked.problem.groups.count().map(|_| format!("{routing:?}"));
    json!([
        asked.problem.letters(),
        p.batch,
        p.m,
        p.n,
        p.k,
        asked.problem.epilogue.names(),
        asked.problem.out_dtype.name(),
        asked.problem.groups.count(),
        routing,
        types,
        scales,
        asked.problem.promoted
    ])
}

const SHARDS: &str = "shards.jsonl";

/// What an interrupted record has.
fn done(folder: Option<&Path>) -> Vec<Value> {
    let text = folder.and_then(|folder| std::fs::read_to_string(folder.join(SHARDS)).ok()).unwrap_or_default();
    // The last line may have been cut off.
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn shards(folder: Option<&Path>, resume: bool) -> Result<Option<std::fs::File>, Error> {
    let Some(folder) = folder else { return Ok(None) };
    let failed = |e: std::io::Error| Error::File { path: folder.display().to_string(), why: e.to_string() };
    std::fs::create_dir_all(folder).map_err(failed)?;
    let mut options = std::fs::OpenOptions::new();
    options.create(true).append(resume).write(true).truncate(!resume);
    options.open(folder.join(SHARDS)).map(Some).map_err(failed)
}

fn shard(asked: &Asked, measured: Result<Vec<Measured>, String>, methods: &[Method]) -> Value {
    let p = asked.problem.product;
    let mut row = json!({
        "product": asked.name, "flags": asked.problem.letters(), "batch": p.batch, "m": p.m, "n": p.n,
        "k": p.k, "count": asked.count, "flops": asked.problem.flops() as f64, "bytes": asked.problem.bytes() as f64,
        "epilogue": asked.problem.epilogue.names(), "groups": asked.problem.groups.count(),
        "dtype": asked.problem.dtype.name(), "weight_dtype": asked.problem.weight_dtype.name(),
    });
    match measured {
        Err(why) => row["error"] = json!(why),
        Ok(all) => {
            for (measured, method) in all.iter().zip(methods) {
                let name = if method.pause.is_zero() { "sustained" } else { "burst" };
                row[name] = figures(measured);
            }
        }
    }
    row
}

fn figures(measured: &Measured) -> Value {
    let of = |t: &Times| {
        let values: Vec<f64> = t.values.iter().map(|x| (x * 1e10).round() / 1e4).collect();
        json!({"name": t.name, "own": t.own, "us": values})
    };
    let times: Vec<Value> = measured.times.iter().map(of).collect();
    let paired = |one: Option<&Times>, other: Option<&Times>| one.zip(other).and_then(|(x, y)| x.ratio(y));
    let default = measured.of("cublaslt");
    json!({
        "times": times, "left_out": measured.left_out,
        "to_default": paired(measured.picked(), default),
        "to_best": paired(measured.picked(), measured.best(false)),
        "picked_to_own_best": paired(measured.picked(), measured.best(true)),
        "of_whole_weights": measured.beside.first().map(of),
        "to_whole_weights": paired(measured.picked(), measured.beside.first()),
        "table_to_default": paired(measured.of(TABLE), default),
        "table_to_best": paired(measured.of(TABLE), measured.best(false)),
    })
}

/// Seconds of a candidate, by its JSON.
pub fn median(time: &Value) -> f64 {
    quantile(time["us"].as_array().into_iter().flatten().filter_map(Value::as_f64).collect(), 0.5) * 1e-6
}

fn line(row: &Value) -> String {
    let head =
        format!("{} {}x{}x{}x{}", row["flags"].as_str().unwrap_or(""), row["batch"], row["m"], row["n"], row["k"]);
    if let Some(error) = row["error"].as_str() {
        return format!("{head}  {error}");
    }
    let times = row["burst"]["times"].as_array().cloned().unwrap_or_default();
    let shown = times.iter().map(|t| format!("{} {:.2}", t["name"].as_str().unwrap_or(""), median(t) * 1e6));
    let ratio = |name: &str| row["burst"][name].as_f64().map_or("-".into(), |x| format!("{x:.3}"));
    let whole = row["burst"]["to_whole_weights"].as_f64();
    let whole = whole.map_or(String::new(), |x| format!(", x{x:.3} of our own with whole weights"));
    let shown = shown.collect::<Vec<_>>().join("  ");
    format!("{head}  x{} of best, x{} of own best{whole} | {shown}", ratio("to_best"), ratio("picked_to_own_best"))
}

/// Seconds at the chip's roof.
fn least(row: &Value, dtype: DType, chip: &Chip) -> Option<f64> {
    let number = |name: &str| row[name].as_f64().unwrap_or(0.0) as u128;
    Roof::new(number("flops"), number("bytes"), dtype, chip).ok().map(|roof| roof.seconds)
}

/// Ours, the vendor's default and its best, at full clocks, in seconds.
fn runs(row: &Value) -> Vec<(&'static str, f64)> {
    let times = row["burst"]["times"].as_array().map_or(&[][..], Vec::as_slice);
    let own = times.iter().find(|time| time["own"] == json!(true) && time["name"] != json!(TABLE));
    let default = times.iter().find(|time| time["name"] == json!("cublaslt"));
    let vendors = times.iter().filter(|time| time["own"] != json!(true));
    let best = vendors.min_by(|x, y| median(x).total_cmp(&median(y)));
    let all = [(OURS, own), ("cublaslt", default), ("cublaslt, best of 8", best)];
    all.into_iter().filter_map(|(name, time)| Some((name, median(time?)))).collect()
}

const OURS: &str = "ours";

fn caption(row: &Value) -> String {
    let batch = row["batch"].as_u64().filter(|batch| *batch > 1).map_or(String::new(), |batch| format!("{batch}·"));
    format!("{batch}{} x {} x {} {}", row["m"], row["n"], row["k"], row["flags"].as_str().unwrap_or_default())
}

/// For the page.
fn contest_of(row: &Value, dtype: DType, chip: Option<&Chip>) -> Option<Contest> {
    let least = chip.and_then(|chip| least(row, dtype, chip));
    let run = |(name, seconds): (&str, f64)| Run {
        series: name.to_string(),
        own: name == OURS,
        seconds,
        share: least.map(|least| least / seconds),
    };
    Some(Contest {
        caption: caption(row),
        rows: row["m"].as_u64()?,
        count: row["count"].as_u64().unwrap_or(1),
        filter: format!("{} {} {} {}", row["flags"].as_str().unwrap_or_default(), row["m"], row["n"], row["k"]),
        ratio: row["burst"]["to_best"].as_f64(),
        runs: runs(row).into_iter().map(run).collect(),
    })
}

/// Ours and the vendor's by their share of the roof, at full clocks.
fn plot(rows: &[Value], dtype: DType, chip: &Chip) -> String {
    let dots = |row: &Value| {
        let least = least(row, dtype, chip)?;
        let dots = runs(row).into_iter().map(|(name, seconds)| (name.to_string(), least / seconds)).collect();
        Some(report::DotRow { caption: caption(row), dots })
    };
    let rows: Vec<report::DotRow> = rows.iter().filter_map(dots).collect();
    report::dots_svg(&format!("Share of the roof of {}, full clocks", chip.name), &rows, &|name| name == OURS)
}

fn shown(rows: &[Value], dtype: DType, chip: Option<&Chip>) -> Table {
    let mut table = Table::new(&[
        "product",
        "flags",
        ">batch",
        ">M",
        ">N",
        ">K",
        "clocks",
        "candidate",
        ">median",
        ">TFLOP/s",
        ">TB/s",
        ">of roof",
        ">to the default",
        ">to the best of 8",
    ]);
    for row in rows {
        for clocks in ["burst", "sustained"] {
            let mut first = true;
            for time in row[clocks]["times"].as_array().into_iter().flatten() {
                let (own, seconds) = (time["own"] == json!(true), median(time));
                let rate = |what: &str| row[what].as_f64().unwrap_or(0.0) / seconds * 1e-12;
                let number = |name: &str| Cell::from(row[name].as_u64().unwrap_or(0));
                let ratio = |name: &str| match row[clocks][name].as_f64() {
                    Some(x) if own && first => Cell::shown(x, report::significant(x, 3)),
                    _ => Cell::Empty,
                };
                let text = |value: &Value| Cell::from(value.as_str().unwrap_or(""));
                table.row(vec![
                    text(&row["product"]),
                    text(&row["flags"]),
                    number("batch"),
                    number("m"),
                    number("n"),
                    number("k"),
                    clocks.into(),
                    text(&time["name"]),
                    Cell::shown(seconds, report::seconds(seconds)),
                    Cell::shown(rate("flops"), report::significant(rate("flops"), 4)),
                    Cell::shown(rate("bytes"), report::significant(rate("bytes"), 3)),
                    chip.and_then(|chip| least(row, dtype, chip))
                        .map_or(Cell::Empty, |least| Cell::shown(least / seconds, report::percent(least / seconds))),
                    ratio("to_default"),
                    ratio("to_best"),
                ]);
                first &= !own;
            }
        }
    }
    table
}
