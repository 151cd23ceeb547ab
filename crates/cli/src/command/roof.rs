//! `gemwright roof`: FLOPs, bytes and the least time, of one product, a list or a model; waves, tiles,
//! utilisation, and the picture.

use super::model::short_name;
use crate::chips::chips;
use crate::error::Error;
use crate::output::{Format, OutputArgs};
use crate::page::write_picture;
use crate::products::{one_product, products_of_csv};
use crate::subject::ModelOptions;
use crate::workload::{describe, workload};
use gemwright_core::{
    Cell, Chip, DType, KernelChip, Pass, Roof, Summary, Table, Utilisation, WarpTile, Waves, Workload,
};
use gemwright_engine::Problem;
use gemwright_engine::cuda::ranked;
use gemwright_report::{self as report, PlotChip, PlotPoint};
use serde_json::json;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  gemwright roof 597 11008 4096 --on h200,mi300x
  gemwright roof llama-3.1-8b --phase decode --batch 16 --on h200,mi300x --plot roofline.png
  gemwright roof run.json.gz --on h200                     the products of a trace, with what they took
  gemwright roof shapes.csv --on a100                      columns M, N, K; batch, count and dtype where they are there
  gemwright roof gpt3-xl --phase train --batch 5 --seq 2048 --on h200 --step-time 310ms    MFU and HFU
  gemwright roof --tiles --on rtx3090                      what a warp's tile asks of shared memory
  gemwright roof --tiles --on rtx3090 --flops-per-clock 6780";

/// Rooflines: of one product M N K, of a list, or of each product of a model, on one chip or several
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// M N K of out[M,N] = a[M,K] x b[K,N], a CSV of shapes, or a config.json, a folder, a preset, a trace, a saved workload
    #[arg(required_unless_present = "tiles", num_args = 1..=3, value_name = "M N K|TABLE.csv|WORKLOAD")]
    subject: Vec<String>,
    /// Chips, separated by commas (`gemwright chips`, or TOML files of your own)
    #[arg(long, required = true, value_delimiter = ',', value_name = "CHIP,...")]
    on: Vec<String>,
    /// The table of warp tiles: intensity, and bytes per clock against what shared memory gives
    #[arg(long, conflicts_with = "subject")]
    tiles: bool,
    /// FLOPs per clock and unit for --tiles [default: the chip's own]
    #[arg(long, value_name = "N", requires = "tiles")]
    flops_per_clock: Option<f64>,
    /// A measured time of the whole workload, such as 310ms: gives MFU and HFU
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    step_time: Option<f64>,
    /// Draw the roofline into FILE.svg or FILE.png
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    #[command(flatten)]
    options: ModelOptions,
    #[command(flatten)]
    output: OutputArgs,
}

fn parse_time(text: &str) -> Result<f64, String> {
    let units = [("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0)];
    let (number, factor) = units
        .iter()
        .find_map(|(unit, factor)| text.strip_suffix(unit).map(|number| (number, *factor)))
        .unwrap_or((text, 1.0));
    match number.trim().parse::<f64>() {
        Ok(value) if value.is_finite() && value > 0.0 => Ok(value * factor),
        _ => Err("write it as 310ms, 1.2s or 850us".into()),
    }
}

pub fn run(args: &Args) -> Result<(), Error> {
    let chips = chips(&args.on)?;
    if args.tiles {
        return print(args, &warp_tiles(args, &chips)?, "tiles", &[]);
    }
    let dtype = args.options.dtype.unwrap_or(DType::Bf16);
    let (title, workload) = match args.subject.as_slice() {
        [path] if path.ends_with(".csv") => (path.clone(), worst_first(products_of_csv(path, dtype)?, &chips)?),
        [name] => {
            let workload = workload(name, &args.options, args.output.quiet)?;
            args.output.warn(&workload.warnings);
            (describe(&workload), workload)
        }
        [m, n, k] => (format!("{m} x {n} x {k}"), one_product([m, n, k], dtype)?),
        _ => return Err(Error::Usage("give M N K, a CSV of shapes, or one config, folder or preset".into())),
    };
    let mut notes = Vec::new();
    if let Some(seconds) = args.step_time {
        for chip in &chips {
            notes.push(utilisation(&workload, seconds, chip)?);
        }
    }
    if let Some(path) = &args.plot {
        plot(path, &title, &workload, &chips)?;
        notes.push(format!("drawn into {}", path.display()));
    }
    print(args, &roofs(&workload, &chips)?, "roofs", &notes)
}

/// A tuned table by its share of the roof, the least first; another list as it is.
fn worst_first(workload: Workload, chips: &[Chip]) -> Result<Workload, Error> {
    let Some(chip) = chips.first() else { return Ok(workload) };
    let mut shares = Vec::new();
    for call in workload.calls() {
        let Some(measured) = &call.measured else { return Ok(workload) };
        shares.push(Roof::of(call, chip)?.seconds * call.count as f64 / measured.seconds());
    }
    let mut order: Vec<usize> = (0..shares.len()).collect();
    order.sort_by(|x, y| shares[*x].total_cmp(&shares[*y]));
    let mut sorted = Workload::default();
    sorted.warnings.clone_from(&workload.warnings);
    order.into_iter().for_each(|i| sorted.push(&workload.calls()[i]));
    Ok(sorted)
}

fn print(args: &Args, table: &Table, name: &str, notes: &[String]) -> Result<(), Error> {
    match args.output.format {
        Format::Json => {
            let mut out = json!({"format": 1, name: report::json_rows(table)});
            if !notes.is_empty() {
                out["notes"] = json!(notes);
            }
            args.output.write(&out.to_string())
        }
        Format::Csv => args.output.write(&args.output.table(table)),
        _ => args.output.write(&format!("{}\n{}", args.output.table(table), notes.join("\n"))),
    }
}

fn roofs(workload: &Workload, chips: &[Chip]) -> Result<Table, Error> {
    let measured = workload.calls().iter().any(|call| call.measured.is_some());
    let mut names = vec![
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
        ">tile",
        ">waves",
        ">useful",
        ">tiled time",
    ];
    // Chips that gemwright's own kernels run on: the one it would pick, and what it should take.
    let ours = chips.iter().any(|chip| KernelChip::of(chip).is_some());
    if ours {
        names.extend(["our kernel", ">its waves", ">its time"]);
    }
    if measured {
        names.extend([">measured", ">of roof"]);
    }
    let mut table = Table::new(&names);
    for call in workload.calls() {
        let product = call.product();
        let extents = product.map_or([const { None }; 4], |p| [p.batch, p.m, p.n, p.k].map(Some));
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
            match product.and_then(|p| Waves::best(&p, chip, call.dtype())) {
                None => row.extend([const { Cell::Empty }; 4]),
                Some(waves) => {
                    let seconds = waves.seconds(call.flops(), call.bytes(), call.dtype(), chip)?;
                    row.extend([
                        waves.tile.to_string().into(),
                        waves.waves.into(),
                        Cell::shown(waves.efficiency, report::percent(waves.efficiency)),
                        Cell::shown(seconds, report::seconds(seconds)),
                    ]);
                }
            }
            if ours {
                row.extend(own_cells(call, chip));
            }
            if measured {
                row.extend(measured_cells(call, &roof));
            }
            table.row(row);
        }
    }
    Ok(table)
}

/// The kernel of ours that would be picked, its waves and its predicted time.
fn own_cells(call: &gemwright_core::Call, chip: &Chip) -> [Cell; 3] {
    let picked = KernelChip::of(chip).zip(Problem::of(call, call.dtype())).and_then(|(chip, problem)| {
        let (kernel, seconds) = ranked(&problem, &chip).into_iter().next()?;
        Some((kernel, kernel.waves(&problem, &chip)?, seconds))
    });
    match picked {
        None => [const { Cell::Empty }; 3],
        Some((kernel, waves, seconds)) => [
            kernel.to_string().into(),
            Cell::shown(waves, report::significant(waves, 3)),
            Cell::shown(seconds, report::seconds(seconds)),
        ],
    }
}

/// Seconds of one repetition, and how much of them the roof would need.
fn measured_cells(call: &gemwright_core::Call, roof: &Roof) -> [Cell; 2] {
    let Some(taken) = call.measured.as_ref().map(|m| m.seconds() / call.count as f64).filter(|s| *s > 0.0) else {
        return [Cell::Empty, Cell::Empty];
    };
    let share = roof.seconds / taken;
    [Cell::shown(taken, report::seconds(taken)), Cell::shown(share, report::percent(share))]
}

fn warp_tiles(args: &Args, chips: &[Chip]) -> Result<Table, Error> {
    let mut table =
        Table::new(&["chip", "warp tile", ">FLOP/B", ">FLOP/clock", ">bytes/clock", ">shared memory gives", "fed"]);
    for chip in chips {
        let own = chip.matrix_flop_per_clock_and_unit.as_ref().map(|f| f.value);
        let rate = args.flops_per_clock.or(own).filter(|r| r.is_finite() && *r > 0.0).ok_or_else(|| {
            Error::Usage(format!("chip `{}` has no FLOPs per clock on record; give --flops-per-clock", chip.id))
        })?;
        for tile in WarpTile::DOCUMENTS {
            let bytes = tile.bytes_per_clock(rate);
            let fed = if bytes <= WarpTile::SHARED_BYTES_PER_CLOCK { "yes" } else { "no" };
            table.row(vec![
                chip.id.as_str().into(),
                format!("({}, {}, {})", tile.m, tile.n, tile.k).into(),
                Cell::shown(tile.intensity(), format!("{:.3}", tile.intensity())),
                Cell::shown(rate, rate.to_string()),
                Cell::shown(bytes, report::significant(bytes, 4)),
                Cell::shown(WarpTile::SHARED_BYTES_PER_CLOCK, WarpTile::SHARED_BYTES_PER_CLOCK.to_string()),
                fed.into(),
            ]);
        }
    }
    Ok(table)
}

fn utilisation(workload: &Workload, seconds: f64, chip: &Chip) -> Result<String, Error> {
    let used = Utilisation::of(workload, seconds, chip)?;
    let least = Summary::of(workload, chip)?.seconds;
    let percent = report::percent;
    Ok(format!(
        "{}: MFU {} (full attention), {} (causal part); HFU {} (full), {} (causal); {} of the least time's speed",
        chip.name,
        percent(used.mfu),
        percent(used.mfu_causal),
        percent(used.hfu),
        percent(used.hfu_causal),
        percent(least / seconds)
    ))
}

fn plot(path: &std::path::Path, title: &str, workload: &Workload, chips: &[Chip]) -> Result<(), Error> {
    let mut lines = Vec::new();
    let mut points = Vec::new();
    let dtype =
        workload.calls().iter().max_by_key(|c| c.flops() * u128::from(c.count)).map_or(DType::Bf16, |c| c.dtype());
    for (i, chip) in chips.iter().enumerate() {
        let total = Summary::of(workload, chip)?.seconds;
        let (peak, bandwidth) = (chip.peak(dtype).unwrap_or(0.0), chip.bandwidth().unwrap_or(0.0));
        lines.push(PlotChip { name: chip.name.clone(), peak, bandwidth });
        for call in workload.calls().iter().filter(|c| c.flops() > 0) {
            let roof = Roof::of(call, chip)?;
            let waves = call.product().and_then(|p| Waves::best(&p, chip, call.dtype()));
            let taken = call.measured.as_ref().map(|m| m.seconds() / call.count as f64).filter(|s| *s > 0.0);
            let seconds = match waves {
                _ if taken.is_some() => taken.unwrap_or(roof.seconds),
                Some(waves) => waves.seconds(call.flops(), call.bytes(), call.dtype(), chip)?,
                None => roof.seconds,
            };
            points.push(PlotPoint {
                caption: caption(call),
                chip: i,
                intensity: call.intensity(),
                speed: call.flops() as f64 / seconds,
                share: roof.seconds * call.count as f64 / total,
            });
        }
    }
    write_picture(path, &report::roofline_svg(title, &lines, &points))
}

/// The end of the module's path and the extents.
fn caption(call: &gemwright_core::Call) -> String {
    let parts: Vec<&str> = call.module.split('.').collect();
    let short = parts[parts.len().saturating_sub(2)..].join(".");
    let pass = if call.pass == Pass::Forward { String::new() } else { format!(" {}", call.pass.name()) };
    match call.product() {
        Some(p) if p.batch > 1 => format!("{short}{pass} {}·{}×{}×{}", p.batch, p.m, p.n, p.k),
        Some(p) => format!("{short}{pass} {}×{}×{}", p.m, p.n, p.k),
        // Decode steps differ in their keys alone: they share a line of the legend.
        None => format!("{short}{pass} {}, {} queries", short_name(call), call.attention_products()[0].m),
    }
}
