//! Every operation once, the outermost that has a model, with what it computed and moved: TraceLens's rules.

mod collect;

use super::costs::{Costs, Metrics};
use super::number;
use super::statistics::Statistics;
use super::unique::{People, kernel_cells, list_cell};
use crate::fast::Map;
use crate::interval::{Time, order};
use crate::scan::unescaped;
use crate::tracelens::Cost;
use collect::{Collector, Row};
use gemwright_core::{Cell, Table};

const NAMES: [&str; 34] = [
    ">ex_UID",
    ">operation_count",
    ">total_duration_us",
    ">mean_duration_us",
    ">std_duration_us",
    ">GFLOPS",
    ">Data Moved (MB)",
    ">FLOPS/Byte",
    "Compute Spec",
    ">TB/s_mean",
    ">TB/s_std",
    ">TFLOPS/s_mean",
    ">TFLOPS/s_std",
    ">Kernel Time (µs)_mean",
    ">Kernel Time (µs)_std",
    ">Kernel Time (µs)_sum",
    ">duration_us_median",
    ">duration_us_min",
    ">duration_us_max",
    ">TB/s_median",
    ">TB/s_min",
    ">TB/s_max",
    ">TFLOPS/s_median",
    ">TFLOPS/s_min",
    ">TFLOPS/s_max",
    ">Kernel Time (µs)_median",
    ">Kernel Time (µs)_min",
    ">Kernel Time (µs)_max",
    "kernel_details_summary",
    "trunc_kernel_details",
    "perf_params",
    "has_perf_model",
    ">Percentage (%)",
    ">Cumulative Percentage (%)",
];

/// Columns that are not there where no row has a figure for them.
const OF_MODELS: [&str; 15] = [
    "GFLOPS",
    "Data Moved (MB)",
    "FLOPS/Byte",
    "Compute Spec",
    "TB/s_mean",
    "TB/s_std",
    "TFLOPS/s_mean",
    "TFLOPS/s_std",
    "TB/s_median",
    "TB/s_min",
    "TB/s_max",
    "TFLOPS/s_median",
    "TFLOPS/s_min",
    "TFLOPS/s_max",
    "",
];

/// The table.
pub fn unified_perf_summary<T: Time>(costs: &mut Costs<'_, '_, T>) -> Table {
    let mut collector = Collector::new(costs);
    for root in collector.roots() {
        collector.visit(root);
    }
    let collected = std::mem::take(&mut collector.collected);
    let mut rows: Vec<Row> = collected.iter().filter_map(|(place, price)| collector.row(*place, price)).collect();
    collector.collected = collected;
    rows.extend(collector.leftovers());
    let with_models = rows.iter().any(|row| row.metrics.is_some());
    let mut table = table(costs, &rows);
    if !with_models {
        drop_columns(&mut table);
    }
    table
}

fn drop_columns(table: &mut Table) {
    let keep: Vec<bool> = table.columns.iter().map(|c| !OF_MODELS.contains(&c.name.as_str())).collect();
    let mut at = 0;
    table.columns.retain(|_| {
        at += 1;
        keep[at - 1]
    });
    for row in &mut table.rows {
        let mut at = 0;
        row.retain(|_| {
            at += 1;
            keep[at - 1]
        });
    }
}

fn table<T: Time>(costs: &Costs<'_, '_, T>, rows: &[Row]) -> Table {
    let trace = costs.analysis.trace;
    let people = People::of(trace);
    let mut places: Map<(u32, Option<&str>, &str, u32, u32), usize> = Map::default();
    let mut groups: Vec<Vec<&Row>> = Vec::new();
    for row in rows {
        let event = &trace.events[row.event as usize];
        let name = if row.name.is_some() { 0 } else { event.name };
        let who = people.of_lane[event.lane as usize];
        let key = (name, row.name.as_deref(), row.category, who, event.arguments);
        let place = *places.entry(key).or_insert_with(|| {
            groups.push(Vec::new());
            groups.len() - 1
        });
        groups[place].push(row);
    }
    let sum = |group: &[&Row]| group.iter().map(|row| row.time).filter(|t| !t.is_nan()).sum::<f64>();
    groups.sort_by(|x, y| order(&sum(y), &sum(x)).then(x[0].uid.cmp(&y[0].uid)));
    let total: f64 = groups.iter().map(|group| sum(group)).sum();
    let keys = ["name", "op category", "process_name", "process_label", "thread_name"];
    let lists = ["Input Dims", "Input type", "Input Strides", "Concrete Inputs"];
    let names: Vec<&str> = keys.into_iter().chain(lists).chain(NAMES).collect();
    let mut table = Table::new(&names);
    let mut running = 0.0;
    for group in &groups {
        let share = if total > 0.0 { sum(group) / total * 100.0 } else { f64::NAN };
        running += share;
        let mut cells = cells(costs, &people, group);
        cells.extend([number(share), number(running)]);
        table.row(cells);
    }
    table
}

fn cells<T: Time>(costs: &Costs<'_, '_, T>, people: &People, rows: &[&Row]) -> Vec<Cell> {
    let trace = costs.analysis.trace;
    let event = &trace.events[rows[0].event as usize];
    let name = rows[0].name.clone().unwrap_or_else(|| unescaped(trace.name(rows[0].event)));
    let mut cells = vec![Cell::Text(name), rows[0].category.into()];
    let who = &people.names[people.of_lane[event.lane as usize] as usize];
    cells.extend(who.iter().map(|name| Cell::from(name.as_str())));
    cells.extend((0..4).map(|i| list_cell(trace, Some(event), i)));
    cells.extend([u64::from(rows[0].uid).into(), (rows.len() as u64).into()]);
    let metric =
        |get: fn(&Metrics) -> f64| Statistics::of_numbers(rows.iter().filter_map(|row| row.metrics.as_ref()).map(get));
    let host = Statistics::of_numbers(
        rows.iter().map(|row| crate::number::microseconds(trace.events[row.event as usize].duration)),
    );
    let kernel = Statistics::of_numbers(rows.iter().map(|row| row.time));
    let (terabytes, tflops) = (metric(|m| m.terabytes), metric(|m| m.tflops));
    let cell = |value: Option<f64>| value.map_or(Cell::Empty, number);
    let of = |s: &Option<Statistics>, get: fn(&Statistics) -> Option<f64>| cell(s.as_ref().and_then(get));
    let (mean, std) = (|s: &Statistics| Some(s.mean), |s: &Statistics| s.sample_deviation);
    let (median, least, largest) =
        (|s: &Statistics| Some(s.median), |s: &Statistics| Some(s.least), |s: &Statistics| Some(s.largest));
    let total = |s: &Statistics| Some(s.sum);
    cells.extend([of(&host, total), of(&host, mean), of(&host, std)]);
    let first = |get: fn(&Metrics) -> f64| {
        cell(rows.iter().filter_map(|row| row.metrics.as_ref()).map(get).find(|value| !value.is_nan()))
    };
    cells.extend([first(|m| m.gflops), first(|m| m.megabytes), first(|m| m.intensity)]);
    let spec = rows.iter().find_map(|row| row.cost.as_ref()).and_then(|cost| cost.spec.clone());
    cells.push(spec.into());
    cells.extend([of(&terabytes, mean), of(&terabytes, std), of(&tflops, mean), of(&tflops, std)]);
    // A sum of nothing is nothing, not empty.
    let kernel_sum = Cell::from(Some(number(kernel.as_ref().map_or(0.0, |s| s.sum))));
    cells.extend([of(&kernel, mean), of(&kernel, std), kernel_sum]);
    for s in [&host, &terabytes, &tflops, &kernel] {
        cells.extend([of(s, median), of(s, least), of(s, largest)]);
    }
    let lists: Vec<&[u32]> = rows.iter().map(|row| row.kernels.as_slice()).collect();
    cells.extend(kernel_cells(costs.analysis, &lists));
    let params = rows.iter().find_map(|row| row.cost.as_ref()).filter(|cost| !cost.params.is_empty());
    cells.push(params.map(|cost| dictionary(cost)).into());
    cells.push(if rows[0].modelled { "True" } else { "False" }.into());
    cells
}

/// As Python prints a dictionary.
fn dictionary(cost: &Cost) -> String {
    let pairs: Vec<String> = cost.params.iter().map(|(name, value)| format!("'{name}': {}", value.repr())).collect();
    format!("{{{}}}", pairs.join(", "))
}
