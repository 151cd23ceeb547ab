//! One sheet a family of operations: what each call computed and moved, and how fast. TraceLens's rules.

use super::costs::{Costs, Metrics};
use super::number;
use super::statistics::Statistics;
use super::unique::{People, kernel_cells};
use crate::backward::nodes_behind;
use crate::fast::Map;
use crate::interval::{Time, order};
use crate::python::list_literal;
use crate::scan::unescaped;
use crate::tracelens::{Cost, Param};
use gemwright_core::{Cell, Table};
use std::sync::Arc;

/// One call.
struct Row {
    event: u32,
    kernels: Vec<u32>,
    cost: Arc<Cost>,
    metrics: Metrics,
}

/// A sheet before it is a table: TraceLens moves rows from one to another.
struct Sheet {
    params: Vec<String>,
    /// How many of them stand before the figures; those that came with moved rows stand behind.
    own: usize,
    groups: Vec<Group>,
}

struct Group {
    name: String,
    params: Vec<Option<String>>,
    cells: Vec<Cell>,
}

/// Families whose forward and backward stand in one sheet.
const WHOLE: [&str; 4] = ["GEMM", "UnaryElementwise", "BinaryElementwise", "Normalization"];

/// Rows that leave the forward sheet for the backward one.
const BACKWARD: [&str; 4] = [
    "flash_attn::_flash_attn_varlen_backward",
    "aten::convolution_backward",
    "ConvBias_Backward",
    "ConvBiasReLU_Backward",
];
/// Rows that a backward sheet loses.
const FORWARD: [&str; 3] = ["aten::convolution", "ConvBias_", "ConvBiasReLU_"];

/// All sheets that have rows, with their names.
pub fn sheets<T: Time>(costs: &mut Costs<'_, '_, T>) -> Vec<(String, Table)> {
    let analysis = costs.analysis;
    let people = People::of(analysis.trace);
    let behind = nodes_behind(analysis.trace, &analysis.parent);
    let mut families: Vec<(&'static str, Vec<u32>)> = Vec::new();
    for place in 0..analysis.trace.events.len() as u32 {
        if analysis.trace.events[place as usize].category.on_gpu() {
            continue;
        }
        let Some(model) = costs.model(place).filter(|m| !m.sheet.is_empty()) else { continue };
        match families.iter_mut().find(|(sheet, _)| *sheet == model.sheet) {
            Some((_, list)) => list.push(place),
            None => families.push((model.sheet, vec![place])),
        }
    }
    let mut tables = Vec::new();
    for (family, events) in families {
        let found = rows(costs, &events, None);
        let forward = sheet(costs, &people, &found);
        if WHOLE.contains(&family) {
            tables.push((family.to_string(), forward.table()));
            continue;
        }
        let found = rows(costs, &events, Some(&behind));
        let backward = sheet(costs, &people, &found);
        let (moved, stay): (Vec<Group>, Vec<Group>) =
            forward.groups.into_iter().partition(|group| BACKWARD.contains(&group.name.as_str()));
        let stay = Sheet { params: forward.params.clone(), own: forward.own, groups: stay };
        let mut back = backward.with(&forward.params, moved);
        back.groups.retain(|group| !FORWARD.contains(&group.name.as_str()));
        tables.push((format!("{family}_fwd"), stay.table()));
        tables.push((format!("{family}_bwd"), back.table()));
    }
    tables.retain(|(_, table)| !table.rows.is_empty());
    tables
}

fn rows<T: Time>(costs: &mut Costs<'_, '_, T>, events: &[u32], behind: Option<&Map<u32, Vec<u32>>>) -> Vec<Row> {
    let mut rows = Vec::new();
    for &event in events {
        let kernels = match behind {
            None => costs.below.row(event).to_vec(),
            Some(behind) => {
                let Some(nodes) = behind.get(&event) else { continue };
                nodes.iter().flat_map(|node| costs.below.row(*node).to_vec()).collect()
            }
        };
        let kernels = costs.by_time(kernels);
        let Ok(cost) = costs.cost(event, &kernels) else { continue };
        let work = if behind.is_some() { cost.backward } else { cost.forward };
        let Some(work) = work else { continue };
        let metrics = Metrics::of(&work, costs.busy(&kernels));
        rows.push(Row { event, kernels, cost, metrics });
    }
    rows
}

/// The texts of a column of parameters, as pandas prints a column of such values: numbers beside gaps
/// become floats.
fn column(values: &[Option<&Param>]) -> Vec<String> {
    let there: Vec<&Param> = values.iter().flatten().copied().filter(|value| **value != Param::None).collect();
    let numbers = !there.is_empty() && there.iter().all(|value| value.is_number());
    let gaps = there.len() < values.len();
    let floats = numbers && (gaps || there.iter().any(|value| matches!(value, Param::Float(_))));
    let text = |value: &Option<&Param>| match value {
        None => "nan".to_string(),
        Some(Param::None) if numbers => "nan".into(),
        Some(Param::Int(value)) if floats => crate::python::float(*value as f64),
        Some(value) => value.text(),
    };
    values.iter().map(text).collect()
}

fn sheet<T: Time>(costs: &Costs<'_, '_, T>, people: &People, rows: &[Row]) -> Sheet {
    // Calls of one kind share their cost: parameters are spelt once for each.
    let mut kinds: Vec<&Cost> = Vec::new();
    let mut kind_of: Map<*const Cost, usize> = Map::default();
    let mut params: Vec<String> = Vec::new();
    for row in rows {
        kind_of.entry(Arc::as_ptr(&row.cost)).or_insert_with(|| {
            kinds.push(&row.cost);
            for (name, _) in &row.cost.params {
                if !params.contains(name) {
                    params.push(name.clone());
                }
            }
            kinds.len() - 1
        });
    }
    let of = |cost: &Cost, name: &str| cost.params.iter().position(|(own, _)| own == name);
    let columns: Vec<Vec<String>> = params
        .iter()
        .map(|name| column(&kinds.iter().map(|cost| of(cost, name).map(|i| &cost.params[i].1)).collect::<Vec<_>>()))
        .collect();
    let trace = costs.analysis.trace;
    let mut texts: Map<Vec<&str>, usize> = Map::default();
    let same: Vec<usize> = (0..kinds.len())
        .map(|kind| {
            let next = texts.len();
            *texts.entry(columns.iter().map(|column| column[kind].as_str()).collect()).or_insert(next)
        })
        .collect();
    let mut places: Map<(u32, usize), usize> = Map::default();
    let mut groups: Vec<Vec<&Row>> = Vec::new();
    let mut keys: Vec<Vec<String>> = Vec::new();
    for row in rows {
        let kind = kind_of[&Arc::as_ptr(&row.cost)];
        let key = (trace.events[row.event as usize].name, same[kind]);
        let place = *places.entry(key).or_insert_with(|| {
            groups.push(Vec::new());
            keys.push(columns.iter().map(|column| column[kind].clone()).collect());
            groups.len() - 1
        });
        groups[place].push(row);
    }
    let mut order_of: Vec<usize> = (0..groups.len()).collect();
    let total = |i: &usize| groups[*i].iter().map(|row| row.metrics.time).sum::<f64>();
    let uid = |i: &usize| trace.events[groups[*i][0].event as usize].uid;
    order_of.sort_by(|x, y| order(&total(y), &total(x)).then(uid(x).cmp(&uid(y))));
    let group = |i: usize| Group {
        name: unescaped(trace.name(groups[i][0].event)),
        params: keys[i].iter().cloned().map(Some).collect(),
        cells: cells(costs, people, &groups[i]),
    };
    let groups = order_of.into_iter().map(group).collect();
    Sheet { own: params.len(), params, groups }
}

fn figures(values: impl Iterator<Item = f64>, with_sum: bool) -> Vec<Cell> {
    let found = Statistics::of_numbers(values);
    let cell = |value: Option<f64>| value.map_or(Cell::Empty, number);
    let mut cells = vec![
        cell(found.as_ref().map(|s| s.mean)),
        cell(found.as_ref().map(|s| s.median)),
        cell(found.as_ref().and_then(|s| s.sample_deviation)),
        cell(found.as_ref().map(|s| s.least)),
        cell(found.as_ref().map(|s| s.largest)),
    ];
    if with_sum {
        cells.push(cell(found.as_ref().map(|s| s.sum)));
    }
    cells
}

/// The first of a group that is a number.
fn first(mut values: impl Iterator<Item = f64>) -> Cell {
    values.find(|value| !value.is_nan()).map_or(Cell::Empty, number)
}

fn cells<T: Time>(costs: &Costs<'_, '_, T>, people: &People, rows: &[&Row]) -> Vec<Cell> {
    let trace = costs.analysis.trace;
    let event = &trace.events[rows[0].event as usize];
    let metrics = || rows.iter().map(|row| row.metrics);
    let mut cells = vec![
        first(metrics().map(|m| m.gflops)),
        first(metrics().map(|m| m.megabytes)),
        first(metrics().map(|m| m.intensity)),
    ];
    cells.extend(figures(metrics().map(|m| m.terabytes), false));
    cells.extend(figures(metrics().map(|m| m.tflops), false));
    let names = &people.names[people.of_lane[event.lane as usize] as usize];
    cells.extend(names.iter().map(|name| Cell::from(name.as_str())));
    cells.push(rows[0].cost.spec.as_deref().unwrap_or("").into());
    let lists: Vec<&[u32]> = rows.iter().map(|row| row.kernels.as_slice()).collect();
    cells.extend(kernel_cells(costs.analysis, &lists));
    cells.extend((0..4).map(|i| {
        let with = rows.iter().map(|row| &trace.events[row.event as usize]).find(|e| trace.list(e, i).is_some());
        with.and_then(|e| trace.list(e, i)).map_or(Cell::Empty, |json| Cell::Text(list_literal(json)))
    }));
    cells.extend(figures(metrics().map(|m| m.time), true));
    cells.extend([(rows.len() as u64).into(), u64::from(event.uid).into()]);
    cells
}

impl Sheet {
    /// The rows of another sheet behind its own; parameters only the other has come last.
    fn with(self, others: &[String], moved: Vec<Group>) -> Sheet {
        let mut params = self.params.clone();
        params.extend(others.iter().filter(|name| !self.params.contains(name)).cloned());
        let place = |names: &[String], group: Group| {
            let of = |name: &String| names.iter().position(|own| own == name).and_then(|i| group.params[i].clone());
            let params = params.iter().map(of).collect();
            Group { params, ..group }
        };
        let own: Vec<Group> = self.groups.into_iter().map(|group| place(&self.params, group)).collect();
        // A sheet without rows of its own is the other's.
        let before = if own.is_empty() { params.len() } else { self.own };
        let groups = own.into_iter().chain(moved.into_iter().map(|group| place(others, group))).collect();
        Sheet { params, own: before, groups }
    }

    fn table(&self) -> Table {
        let mut names = vec!["name".to_string()];
        names.extend(self.params[..self.own].iter().map(|name| format!("param: {name}")));
        names.extend(["GFLOPS_first", "Data Moved (MB)_first", "FLOPS/Byte_first"].map(|n| format!(">{n}")));
        for what in ["TB/s", "TFLOPS/s"] {
            names.extend(["mean", "median", "std", "min", "max"].map(|s| format!(">{what}_{s}")));
        }
        names.extend(
            ["process_name_first", "process_label_first", "thread_name_first", "Compute Spec"].map(String::from),
        );
        names.extend(["kernel_details__summarize_kernel_stats", "trunc_kernel_details"].map(String::from));
        names.extend(["Input Dims", "Input type", "Input Strides", "Concrete Inputs"].map(|n| format!("{n}_first")));
        names.extend(["mean", "median", "std", "min", "max", "sum"].map(|s| format!(">Kernel Time (µs)_{s}")));
        names.extend([">name_count", ">UID_first"].map(String::from));
        names.extend(self.params[self.own..].iter().map(|name| format!("param: {name}")));
        let mut table = Table::new(&names.iter().map(String::as_str).collect::<Vec<_>>());
        for group in &self.groups {
            let mut cells = vec![Cell::Text(group.name.clone())];
            let (before, behind) = group.params.split_at(self.own);
            cells.extend(before.iter().map(|text| Cell::from(text.clone())));
            cells.extend(group.cells.iter().cloned());
            cells.extend(behind.iter().map(|text| Cell::from(text.clone())));
            table.row(cells);
        }
        table
    }
}
