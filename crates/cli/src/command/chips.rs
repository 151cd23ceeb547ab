//! `gemwright chips`: the catalog, and one chip with the source of each number.

use crate::chips::{host, own};
use crate::error::Error;
use crate::output::{Format, OutputArgs};
use gemwright_core::{Catalog, Cell, Chip, DType, Figure, Table};
use gemwright_report as report;
use serde_json::json;

const EXAMPLES: &str = "\
Examples:
  gemwright chips                    every chip, dense peaks in TFLOP/s
  gemwright chips h200               one chip, each number with its source
  gemwright chips host               this machine
  gemwright chips ./my-chip.toml     a chip of your own, such as:

    [[chip]]
    id = \"mine\"
    name = \"My accelerator\"
    peaks = { bf16 = 400, fp8 = 800 }     # dense TFLOP/s
    memory = { gb = 96, gbs = 3200 }      # GB/s";

/// The chip catalog: dense peaks, bandwidth and sizes, each number with its source
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// A chip's id, name or alias; `host` is this machine; a TOML file is your own
    name: Option<String>,
    #[command(flatten)]
    output: OutputArgs,
}

pub fn run(args: &Args) -> Result<(), Error> {
    let mut catalog = Catalog::builtin();
    let shown = match args.name.as_deref() {
        None => return all(&catalog.chips, args),
        Some("host") => vec![host::read()?],
        Some(path) if path.ends_with(".toml") => {
            // Its letters are its own.
            catalog = own(path)?;
            catalog.chips.clone()
        }
        Some(name) => vec![catalog.find(name)?.clone()],
    };
    if args.output.format == Format::Json {
        let value = if shown.len() == 1 { json!(shown[0]) } else { json!(shown) };
        return args.output.write(&value.to_string());
    }
    let texts: Vec<String> = shown.iter().map(|chip| args.output.table(&one(chip, &catalog))).collect();
    args.output.write(&texts.join("\n\n"))
}

fn all(chips: &[Chip], args: &Args) -> Result<(), Error> {
    let mut names = vec!["chip".to_string(), "name".into()];
    names.extend(Chip::PEAKS.iter().map(|peak| format!(">{peak}")));
    names.extend([">GB", ">GB/s", ">units", ">ridge"].map(String::from));
    let mut table = Table::new(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let number = |figure: Option<&Figure>| figure.map_or(Cell::Empty, |f| Cell::shown(f.value, f.value.to_string()));
    for chip in chips {
        let mut row: Vec<Cell> = vec![chip.id.as_str().into(), chip.name.as_str().into()];
        row.extend(Chip::PEAKS.iter().map(|peak| number(chip.peaks.get(*peak))));
        row.extend([number(chip.memory.gb.as_ref()), number(chip.memory.gbs.as_ref())]);
        row.push(number(chip.units.as_ref().map(|u| &u.count)));
        let ridge = chip.ridge(DType::Bf16).or_else(|| chip.ridge(DType::F16));
        row.push(ridge.map_or(Cell::Empty, |r| Cell::shown(r, report::significant(r, 4))));
        table.row(row);
    }
    match args.output.format {
        Format::Json => args.output.write(&json!(chips).to_string()),
        Format::Csv => args.output.write(&args.output.table(&table)),
        _ => {
            let note = "Dense TFLOP/s (int8: TOP/s), f32 accumulation; ridge = bf16 (else fp16) peak / bandwidth.\n\
                        `gemwright chips NAME` gives the source of each number and what was measured.";
            args.output.write(&format!("{}\n{note}", args.output.table(&table)))
        }
    }
}

fn one(chip: &Chip, catalog: &Catalog) -> Table {
    let mut table = Table::new(&["figure", ">value", "source"]);
    table.row(vec!["id".into(), chip.id.as_str().into(), Cell::Empty]);
    table.row(vec!["name".into(), chip.name.as_str().into(), Cell::Empty]);
    if !chip.aliases.is_empty() {
        table.row(vec!["also called".into(), chip.aliases.join(", ").into(), Cell::Empty]);
    }
    if !chip.arch.is_empty() {
        table.row(vec!["architecture".into(), chip.arch.as_str().into(), Cell::Empty]);
    }
    let mut figure = |name: &str, figure: Option<&Figure>, unit: &str| {
        if let Some(f) = figure {
            let text = format!("{} {unit}", trimmed(f.value));
            table.row(vec![name.into(), Cell::shown(f.value, text.trim_end()), catalog.explain(f).into()]);
        }
    };
    for peak in Chip::PEAKS {
        let unit = if peak.starts_with("int") { "TOP/s" } else { "TFLOP/s" };
        figure(&format!("{peak} dense peak"), chip.peaks.get(peak), unit);
    }
    figure("memory", chip.memory.gb.as_ref(), "GB");
    figure("bandwidth", chip.memory.gbs.as_ref(), "GB/s");
    let kind = chip.units.as_ref().map_or("", |u| u.kind.as_str());
    figure("units", chip.units.as_ref().map(|u| &u.count), kind);
    figure("clock", chip.clock_mhz.as_ref(), "MHz");
    figure("L2 cache", chip.l2_mb.as_ref(), "MB");
    figure("last-level cache", chip.llc_mb.as_ref(), "MB");
    figure("shared memory per unit", chip.shared_kb_per_unit.as_ref(), "KB");
    figure("registers per unit", chip.registers_kb_per_unit.as_ref(), "KB");
    figure("bf16 FLOP per clock and unit", chip.matrix_flop_per_clock_and_unit.as_ref(), "");
    figure("power", chip.tdp_w.as_ref(), "W");
    for dtype in [DType::F64, DType::F32, DType::Bf16, DType::F16] {
        if let Some(ridge) = chip.ridge(dtype) {
            let text = format!("{} FLOP/B", report::significant(ridge, 4));
            let name = format!("{} ridge", Chip::peak_name(dtype));
            table.row(vec![name.into(), Cell::shown(ridge, text), "peak / bandwidth".into()]);
        }
    }
    for measured in &chip.attainable {
        let (value, unit) = match (measured.tflops, measured.gbs) {
            (Some(x), _) => (x, "TFLOP/s"),
            (None, Some(x)) => (x, "GB/s"),
            (None, None) => continue,
        };
        let name = format!("{} attained", measured.what);
        table.row(vec![name.into(), Cell::shown(value, format!("{value} {unit}")), measured.how.as_str().into()]);
    }
    for reached in &chip.reached {
        let mut share = |what: String, value: f64| {
            table.row(vec![
                what.into(),
                Cell::shown(value, format!("{:.1} %", 100.0 * value)),
                reached.how.as_str().into(),
            ]);
        };
        for aligned in &reached.aligned {
            let rows = format!("by {} products, rows of {} bytes", reached.peak, aligned.bytes);
            share(format!("{} reached {rows}", reached.peak), aligned.compute);
            share(format!("bandwidth reached {rows}"), aligned.memory);
        }
    }
    table
}

/// A figure as the source has it; one computed here, to six digits.
fn trimmed(value: f64) -> String {
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}
