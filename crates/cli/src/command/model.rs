//! `gemwright model`: the calls a model runs.

use super::model_page::model_page;
use crate::chips::chips;
use crate::error::Error;
use crate::output::{Format, OutputArgs, write_file};
use crate::subject::{ModelOptions, model};
use crate::versus::{Versus, exchanged};
use clap::ValueEnum;
use gemwright_core::{Bound, Call, Cell, Chip, Operands, Roof, Summary, Table, Totals, Workload};
use gemwright_model::{Phase, Prediction, presets};
use gemwright_report as report;
use serde_json::{Value, json};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  gemwright model llama-2-7b --phase generate --seq 597 --steps 36
  gemwright model ./Llama-3.1-8B/ --phase decode --batch 16 --past 4096 --on h200
  gemwright model llama-3.1-70b --phase decode --tp 8 --fuse qkv,gate_up --on h200 --versus plain
  gemwright model config.json --phase train --batch 5 --seq 2048 --format json -o calls.json
  gemwright model --list";

/// The matrix products a model runs, from its config.json
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// A config.json, a folder that holds one (its safetensors files are held against it), a GGUF file, or a preset's
    /// name
    #[arg(required_unless_present = "list", value_name = "CONFIG|DIR|GGUF|PRESET")]
    subject: Option<String>,
    #[command(flatten)]
    options: ModelOptions,
    /// Bound, least time and share of each call on this chip (`gemwright chips`, or a TOML file of your own); the roofs
    /// of further ones are drawn into the page of --html
    #[arg(long, value_delimiter = ',', value_name = "CHIP,...")]
    on: Vec<String>,
    /// Order of the calls
    #[arg(long, value_enum, default_value_t = Sort::Order)]
    sort: Sort,
    /// Print a variant's totals (--fuse, --tp, --weight-dtype) beside the plain model's
    #[arg(long, value_enum, value_name = "MODEL")]
    versus: Option<VersusArg>,
    /// Write a page for the browser: one file, works offline
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// List the presets and the known model types
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum VersusArg {
    /// The same model with nothing fused, split or stored otherwise
    Plain,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Sort {
    /// As they are issued
    Order,
    /// Least time on the chip, longest first (without --on: bytes)
    Time,
    /// FLOPs of all repetitions
    Flops,
    /// Repetitions
    Count,
}

pub fn run(args: &Args) -> Result<(), Error> {
    let Some(subject) = args.subject.as_ref().filter(|_| !args.list) else { return list(&args.output) };
    let (model, options) = (model(subject)?, args.options.options());
    let prediction = model.predict(&options)?;
    let chips = chips(&args.on)?;
    if chips.len() > 1 && args.html.is_none() {
        let why = format!("--on {}: {} chips; without --html it takes one", args.on.join(","), chips.len());
        return Err(Error::Usage(why));
    }
    let chip = chips.first();
    let compared = args.versus.is_some() || (options.is_variant() && chip.is_some());
    let versus = match compared {
        true => Some(Versus::of(&prediction, &model.predict(&options.plain())?, chip)?),
        false => None,
    };
    args.output.warn(&prediction.workload.warnings);
    if let Some(path) = &args.html {
        let (table, lines) =
            (calls_table(&prediction.workload, chip, args.sort)?, summary_text(&prediction, args, chip)?);
        let page = model_page(&prediction.workload, &chips, table, &lines)?;
        write_file(path, report::page(&page).as_bytes())?;
    }
    if args.output.format == Format::Json {
        let mut summary = summary_json(&prediction, args, chip)?;
        if let Some(versus) = &versus {
            summary["versus"] = versus.json();
        }
        return args.output.write(&report::workload_json(
            &prediction.workload,
            chip,
            Some(&summary),
            args.options.library.settings(),
        )?);
    }
    let table = calls_table(&prediction.workload, chip, args.sort)?;
    let text = args.output.table(&table);
    match args.output.format {
        Format::Csv => args.output.write(&text),
        _ => {
            let mut lines = summary_text(&prediction, args, chip)?;
            if let Some(gain) = versus.as_ref().and_then(Versus::gain) {
                let gain = report::significant(gain, 3);
                lines.push(format!("gain         {gain}x against the plain model at the roof"));
            }
            if let Some(versus) = versus.filter(|_| args.versus.is_some()) {
                lines.push(String::new());
                lines.extend(versus.lines());
            }
            args.output.write(&format!("{text}\n\n{}", lines.join("\n")))
        }
    }
}

fn order(workload: &Workload, chip: Option<&Chip>, sort: Sort) -> Result<Vec<Call>, Error> {
    let mut keyed = Vec::new();
    for call in workload.calls() {
        let times = call.count as f64;
        let key = match sort {
            Sort::Order => 0.0,
            Sort::Count => times,
            Sort::Flops => call.flops() as f64 * times,
            Sort::Time => match chip {
                Some(chip) => Roof::of(call, chip)?.seconds * times,
                None => call.bytes() as f64 * times,
            },
        };
        keyed.push((key, call.clone()));
    }
    keyed.sort_by(|x, y| y.0.total_cmp(&x.0));
    Ok(keyed.into_iter().map(|(_, call)| call).collect())
}

fn calls_table(workload: &Workload, chip: Option<&Chip>, sort: Sort) -> Result<Table, Error> {
    let mut names =
        vec!["op", "pass", "module", ">batch", ">M", ">N", ">K", "dtype", "strides a", "strides b", ">count"];
    names.extend([">FLOPs", ">bytes", ">FLOP/B"]);
    if chip.is_some() {
        names.extend(["bound", ">least time", ">share"]);
    }
    let mut table = Table::new(&names);
    let total = chip.map(|chip| Summary::of(workload, chip)).transpose()?.map_or(0.0, |s| s.seconds);
    for call in order(workload, chip, sort)? {
        let mut row: Vec<Cell> = vec![short_name(&call).into(), call.pass.name().into(), (&*call.module).into()];
        row.extend(extents(&call));
        row.extend([
            call.count.into(),
            Cell::shown(call.flops() as f64, report::operations(call.flops())),
            Cell::shown(call.bytes() as f64, report::bytes(call.bytes())),
            Cell::shown(call.intensity(), report::significant(call.intensity(), 3)),
        ]);
        if let Some(chip) = chip {
            let roof = Roof::of(&call, chip)?;
            let share = if total > 0.0 { roof.seconds * call.count as f64 / total } else { 0.0 };
            row.extend([
                roof.bound.name().into(),
                Cell::shown(roof.seconds, report::seconds(roof.seconds)),
                Cell::shown(share, report::percent(share)),
            ]);
        }
        table.row(row);
    }
    Ok(table)
}

/// The op without its prefix, attention in short.
pub fn short_name(call: &Call) -> String {
    call.op.name().trim_start_matches("aten::").replace("scaled_dot_product_", "")
}

/// batch, M, N, K, dtype and the two operands' strides.
pub fn extents(call: &Call) -> Vec<Cell> {
    let dtype: Cell = match (&call.operands, call.scales) {
        (Operands::Product { b, .. } | Operands::Grouped { b, .. }, Some(_)) => {
            format!("{} x {}", call.dtype(), b.dtype).into()
        }
        _ => call.dtype().name().into(),
    };
    let strides = |view: &gemwright_core::View| {
        let steps: Vec<String> = view.stride.iter().map(i64::to_string).collect();
        Cell::Text(format!("({})", steps.join(",")))
    };
    match &call.operands {
        Operands::Product { a, b, .. } | Operands::Grouped { a, b, .. } => {
            let p = call.product().map_or([0; 4], |p| [p.batch, p.m, p.n, p.k]);
            let mut cells: Vec<Cell> = p.into_iter().map(Cell::from).collect();
            cells.extend([dtype, strides(a), strides(b)]);
            cells
        }
        Operands::Convolution(c) => {
            let p = c.product();
            let mut cells: Vec<Cell> = [p.batch, p.m, p.n, p.k].into_iter().map(Cell::from).collect();
            let joined = |numbers: &[i64]| numbers.iter().map(i64::to_string).collect::<Vec<_>>().join("x");
            let each = if c.is_depthwise() { ", depthwise" } else { "" };
            let kernel = format!("{} kernel{each}", joined(&c.weight.size[2..]));
            cells.extend([dtype, kernel.into(), format!("step {}", joined(&c.stride)).into()]);
            cells
        }
        Operands::Attention(a) => {
            let heads = format!("{}q {}kv", a.q.size[1], a.k.size[1]);
            let batch = a.q.size[0] as u64;
            let [queries, keys, dim] = [a.q.size[2], a.k.size[2], a.q.size[3]].map(|n| Cell::from(n as u64));
            let how = match (a.kernel(), a.is_causal, a.mask.is_some()) {
                (gemwright_core::Kernel::Math, ..) => "decomposed",
                (_, true, _) => "causal",
                (_, false, true) => "masked",
                _ => "full",
            };
            vec![batch.into(), queries, keys, dim, dtype, heads.into(), how.into()]
        }
    }
}

/// Least time of what `generate` repeats, and what it means in tokens.
struct Pace {
    summary: Summary,
    /// Tokens, or images.
    per_second: f64,
}

fn pace(prediction: &Prediction, args: &Args, chip: &Chip) -> Result<Pace, Error> {
    let summary = Summary::of(&prediction.workload, chip)?;
    let tokens = match prediction.phase {
        Phase::Decode => 1,
        // The prompt's own pass gives the first.
        Phase::Generate => args.options.steps.max(0) as u64 + 1,
        // An image counts as one.
        _ => prediction.tokens.unwrap_or(1),
    };
    let all = tokens as f64 * args.options.batch as f64;
    let per_second = if summary.seconds > 0.0 { all / summary.seconds } else { 0.0 };
    Ok(Pace { summary, per_second })
}

fn summary_json(prediction: &Prediction, args: &Args, chip: Option<&Chip>) -> Result<Value, Error> {
    let totals = Totals::of(prediction.workload.calls());
    let mut out = json!({
        "parameters": prediction.workload.parameters,
        "parameters_per_gpu": prediction.parameters_per_gpu,
        "weight_bytes": prediction.weight_bytes as f64,
        "cache_bytes": prediction.cache_bytes.map(|b| b as f64),
        "calls": totals.calls,
        "flops": totals.flops as f64,
        "flops_causal": totals.flops_causal as f64,
        "bytes": totals.bytes as f64,
    });
    if let Some((report, files)) = &prediction.stored {
        let (matched, renamed, mismatches) = (report.matched, report.renamed, &report.mismatches);
        out["stored"] = json!({"files": files, "matched": matched, "renamed": renamed, "mismatches": mismatches});
    }
    if let Some(chip) = chip {
        let pace = pace(prediction, args, chip)?;
        let (alone, with_cache) = leaves_memory_roof(prediction, chip)?;
        out["roof"] = json!({
            "chip": chip.id,
            "bound": pace.summary.bound(),
            "memory_share": pace.summary.share(Bound::Memory),
            "seconds": pace.summary.seconds,
            "decode_leaves_memory_roof_at_batch": alone,
            "with_the_cache_read": with_cache,
        });
        let unit = if prediction.tokens.is_some() { "tokens_per_second" } else { "images_per_second" };
        out["roof"][unit] = json!(pace.per_second);
    }
    Ok(out)
}

fn summary_text(prediction: &Prediction, args: &Args, chip: Option<&Chip>) -> Result<Vec<String>, Error> {
    let totals = Totals::of(prediction.workload.calls());
    let parameters = prediction.workload.parameters.unwrap_or(0);
    let weights = report::bytes(prediction.weight_bytes);
    let stored = match args.options.weight_dtype {
        Some(format) => format!("{}, {} inside the layers", prediction.dtype, format.name()),
        None => prediction.dtype.to_string(),
    };
    let mut lines = vec![match prediction.parameters_per_gpu {
        None => format!("parameters   {} ({parameters}), {weights} in {stored}", report::count(parameters)),
        Some(own) => format!(
            "parameters   {} ({parameters}), of which one of {} GPUs holds {} ({own}), {weights} in {stored}",
            report::count(parameters),
            args.options.tp,
            report::count(own)
        ),
    }];
    if let Some((report, files)) = &prediction.stored {
        let renamed =
            if report.renamed > 0 { format!(", {} by layer and shape", report.renamed) } else { String::new() };
        let found = format!("{} weights found in {files} files{renamed}", report.matched);
        let rest = match report.mismatches.len() {
            0 => "every shape is as the config makes it",
            _ => "what does not fit is listed as warnings",
        };
        lines.push(format!("stored       {found}; {rest}"));
    }
    if let Some(cache) = prediction.cache_bytes {
        let kept = if prediction.cache_grows { "KV cache     " } else { "state        " };
        lines.push(format!("{kept}{} at the end", report::bytes(cache)));
    }
    let causal = if totals.flops_causal == totals.flops {
        String::new()
    } else {
        format!(" ({} with causal attention)", report::flops(totals.flops_causal))
    };
    lines.push(format!(
        "products     {} calls, {}{causal}, {}",
        totals.calls,
        report::flops(totals.flops),
        report::bytes(totals.bytes)
    ));
    lines.extend(exchanged(&prediction.workload));
    if let Some(line) = depthwise_line(prediction.workload.calls()) {
        lines.push(line);
    }
    if let Some(chip) = chip {
        lines.extend(roof_lines(prediction, args, chip)?);
    }
    Ok(lines)
}

/// Why depthwise convolutions are hardly products, where there are some.
fn depthwise_line(calls: &[Call]) -> Option<String> {
    let depthwise = |call: &&Call| matches!(&call.operands, Operands::Convolution(c) if c.is_depthwise());
    let found: Vec<&Call> = calls.iter().filter(depthwise).collect();
    let terms = found.iter().filter_map(|call| call.product()).map(|p| p.k).max()?;
    let count: u64 = found.iter().map(|call| call.count).sum();
    Some(format!(
        "depthwise    {count} of them are hardly products: each channel has a filter of its own, so N is 1 and K at \
         most {terms}, which feeds no matrix unit; their least time is memory's, vector units may take longer"
    ))
}

fn roof_lines(prediction: &Prediction, args: &Args, chip: &Chip) -> Result<Vec<String>, Error> {
    let pace = pace(prediction, args, chip)?;
    let bound = pace.summary.bound();
    let what = match prediction.phase {
        Phase::Generate => "new tokens/s, the prompt's time included",
        Phase::Decode => "tokens/s",
        _ if prediction.tokens.is_none() => "images/s",
        _ => "tokens/s of input",
    };
    let mut lines = vec![
        format!(
            "least time   {} on {} ({} of it bound by {}), datasheet peaks: {}",
            report::seconds(pace.summary.seconds),
            chip.name,
            report::percent(pace.summary.share(bound)),
            bound.name(),
            peaks_used(&prediction.workload, chip),
        ),
        format!("that is      {} {what}", report::significant(pace.per_second, 3)),
    ];
    if prediction.decode_step.is_some() {
        let batch = |n: Option<u64>| n.map_or("never".into(), |n| format!("at batch {n}"));
        let (alone, with_cache) = leaves_memory_roof(prediction, chip)?;
        lines.push(format!(
            "memory roof  decode's products with weights leave it {}; with the cache read too: {}",
            batch(alone),
            batch(with_cache)
        ));
    }
    Ok(lines)
}

/// The batches at which decoding leaves the memory roof: its products with weights, and with the cache read.
fn leaves_memory_roof(prediction: &Prediction, chip: &Chip) -> Result<(Option<u64>, Option<u64>), Error> {
    let Some((step, cache)) = &prediction.decode_step else { return Ok((None, None)) };
    let leaves = |bytes| Summary::leaves_memory_roof(step, bytes, chip);
    Ok((leaves(0)?, leaves(*cache)?))
}

/// The peaks behind the least times, as `989.4 bf16, 66.9 fp32 TFLOP/s, 4800 GB/s`.
fn peaks_used(workload: &Workload, chip: &Chip) -> String {
    let mut names: Vec<&str> = Vec::new();
    for call in workload.calls() {
        let name = Chip::peak_name(call.dtype());
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let peak = |name: &&str| chip.peaks.get(*name).map(|figure| format!("{} {name}", figure.value));
    let peaks: Vec<String> = names.iter().filter_map(peak).collect();
    let bandwidth = chip.memory.gbs.as_ref().map_or(0.0, |figure| figure.value);
    format!("{} TFLOP/s, {bandwidth} GB/s", peaks.join(", "))
}

fn list(output: &OutputArgs) -> Result<(), Error> {
    let mut table = Table::new(&["preset", "type", ">parameters", "published at"]);
    for (name, preset) in presets() {
        let kind = preset.config.get("model_type").and_then(Value::as_str).unwrap_or("").to_string();
        let shown = Cell::shown(preset.parameters as f64, report::count(preset.parameters));
        table.row(vec![name.into(), kind.into(), shown, preset.hub.into()]);
    }
    if output.format == Format::Json {
        let types: Vec<&str> = gemwright_model::known_types().collect();
        return output.write(&json!({"presets": report::json_rows(&table), "types": types}).to_string());
    }
    let types: Vec<&str> = gemwright_model::known_types().collect();
    let text = output.table(&table);
    match output.format {
        Format::Csv => output.write(&text),
        _ => output.write(&format!("{text}\n\nmodel types: {}", types.join(", "))),
    }
}
