//! `gemwright roof`: FLOPs, bytes and the least time, of one product or of a workload.

use super::model::short_name;
use crate::chips::chips;
use crate::error::Error;
use crate::output::{Format, OutputArgs};
use crate::subject::{ModelOptions, model};
use gemwright_core::{Call, Cell, Chip, DType, Op, Operands, Pass, Roof, Table, View, Workload};
use gemwright_report as report;
use serde_json::json;

const EXAMPLES: &str = "\
Examples:
  gemwright roof 597 11008 4096 --on h200,mi300x
  gemwright roof 1 11008 4096 --dtype f16 --on a100 --format json
  gemwright roof llama-3.1-8b --phase decode --batch 16 --on h200,mi300x
  gemwright roof 4096 4096 4096 --on ./my-chip.toml";

/// Rooflines: of one product M N K, or of each product of a model, on one chip or several
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// M N K of out[M,N] = a[M,K] x b[K,N], or a config.json, a folder, a preset
    #[arg(required = true, num_args = 1..=3, value_name = "M N K|WORKLOAD")]
    subject: Vec<String>,
    /// Chips, separated by commas (`gemwright chips`, or TOML files of your own)
    #[arg(long, required = true, value_delimiter = ',', value_name = "CHIP,...")]
    on: Vec<String>,
    #[command(flatten)]
    options: ModelOptions,
    #[command(flatten)]
    output: OutputArgs,
}

pub fn run(args: &Args) -> Result<(), Error> {
    let workload = match args.subject.as_slice() {
        [subject] => {
            let workload = model(subject)?.predict(&args.options.options())?.workload;
            args.output.warn(&workload.warnings);
            workload
        }
        [m, n, k] => one_product([m, n, k], args.options.dtype.unwrap_or(DType::Bf16))?,
        _ => return Err(Error::Usage("give M N K, or one config, folder or preset".into())),
    };
    let chips = chips(&args.on)?;
    let table = roofs(&workload, &chips)?;
    match args.output.format {
        Format::Json => args.output.write(&json!({"format": 1, "roofs": report::json_rows(&table)}).to_string()),
        _ => args.output.write(&args.output.table(&table)),
    }
}

/// The largest extent that is a product's and not a typing error.
const LARGEST: i64 = 1 << 31;

fn one_product(words: [&String; 3], dtype: DType) -> Result<Workload, Error> {
    let mut extents = [0; 3];
    for ((place, word), name) in extents.iter_mut().zip(words).zip(["M", "N", "K"]) {
        *place =
            word.parse().ok().filter(|n| (1..=LARGEST).contains(n)).ok_or_else(|| {
                Error::Usage(format!("{name} is `{word}`; it must be an integer from 1 to {LARGEST}"))
            })?;
    }
    let [m, n, k] = extents;
    let view = |size: [i64; 2]| View::contiguous(&size, dtype);
    let operands =
        Operands::Product { a: view([m, k]), b: view([k, n]), bias: None, out: view([m, n]), alpha: 1.0, beta: 1.0 };
    let mut workload = Workload::default();
    workload.push(&Call { op: Op::Mm, pass: Pass::Forward, module: "".into(), operands, inside: false, count: 1 });
    Ok(workload)
}

fn roofs(workload: &Workload, chips: &[Chip]) -> Result<Table, Error> {
    let mut table = Table::new(&[
        "module",
        "op",
        "pass",
        ">batch",
        ">M",
        ">N",
        ">K",
        "dtype",
        ">count",
        ">FLOPs",
        ">bytes",
        ">FLOP/B",
        "chip",
        ">ridge",
        "bound",
        ">least time",
    ]);
    for call in workload.calls() {
        let extents = call.product().map_or([const { None }; 4], |p| [p.batch, p.m, p.n, p.k].map(Some));
        for chip in chips {
            let roof = Roof::of(call, chip)?;
            let mut row: Vec<Cell> = vec![(&*call.module).into(), short_name(call).into(), call.pass.name().into()];
            row.extend(extents.map(Cell::from));
            row.extend([
                call.dtype().name().into(),
                call.count.into(),
                Cell::shown(call.flops() as f64, report::operations(call.flops())),
                Cell::shown(call.bytes() as f64, report::bytes(call.bytes())),
                Cell::shown(call.intensity(), report::significant(call.intensity(), 4)),
                chip.id.as_str().into(),
                Cell::shown(roof.ridge, report::significant(roof.ridge, 4)),
                roof.bound.name().into(),
                Cell::shown(roof.seconds, report::seconds(roof.seconds)),
            ]);
            table.row(row);
        }
    }
    Ok(table)
}
