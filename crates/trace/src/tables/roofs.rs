//! Every kernel in exactly one row: the outermost operation above it that has a cost model, else the
//! innermost operation, else the call that launched it. With a chip, how far each is from the roof.

use super::ops::share_names;
use super::statistics::Statistics;
use super::unique::{People, kernel_cells, list_cell};
use super::{Timeline, number};
use crate::analysis::{Analysis, Mode, UNLINKED};
use crate::calls::Arguments;
use crate::event::{Category, Event};
use crate::fast::Map;
use crate::interval::{Time, order};
use crate::nest::NONE;
use crate::ops::{Cost, Launch, Unit, cost, family, opaque, told_by_kernel};
use crate::scan::unescaped;
use gemwright_core::{Cell, Chip, DType, Table};
use std::sync::Arc;

/// Who answers for a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Owner {
    Event(u32),
    Nobody,
}

struct Group<'t> {
    name: String,
    category: &'static str,
    who: Option<u32>,
    event: Option<&'t Event>,
    cost: Option<Arc<Cost>>,
    /// Why it has none.
    why: Option<String>,
    /// Of each call: its kernels and their nanoseconds.
    calls: Vec<(Vec<u32>, i64)>,
}

impl Group<'_> {
    fn nanoseconds(&self) -> i64 {
        self.calls.iter().map(|(_, time)| time).sum()
    }
}

/// What makes calls one row: name, category, who, arguments, bytes moved.
type Row = (Option<u32>, &'static str, u32, u32, Option<u64>);

/// What a call costs. `Err(None)`: there is no model; `Err(Some)`: there is one, which cannot read this call.
type Priced = Result<Arc<Cost>, Option<String>>;

/// Name and arguments of an operation, and its kernel's name and facts where those tell.
type Asked = (u32, u32, Option<(u32, u32)>);

/// Models, cached by name and arguments, and by the kernel's name and facts where those tell.
struct Models<'x, 't, T> {
    analysis: &'x Analysis<'t, T>,
    known: Map<Asked, Priced>,
}

impl<T: Time> Models<'_, '_, T> {
    fn of(&mut self, place: u32, first_kernel: u32) -> Priced {
        let trace = self.analysis.trace;
        let event = &trace.events[place as usize];
        let kernel = Some(&trace.events[first_kernel as usize]).filter(|_| told_by_kernel(trace.name(place)));
        self.known
            .entry((event.name, event.arguments, kernel.map(|k| (k.name, k.arguments))))
            .or_insert_with(|| {
                let arguments = Arguments::of(trace, event).ok_or(None)?;
                let name = kernel.map_or(String::new(), |_| unescaped(trace.name(first_kernel)));
                let launch = Launch { kernel: &name, grid: kernel.and_then(|k| trace.grid(k)) };
                match cost(&unescaped(trace.name(place)), &arguments, launch) {
                    None => Err(None),
                    Some(found) => found.map(Arc::new).map_err(Some),
                }
            })
            .clone()
    }
}

/// Rows with what they cost, and the rows that have no model.
#[allow(missing_docs)]
pub struct Roofs {
    pub unified: Table,
    /// The rows of each family, by its name.
    pub families: Vec<(&'static str, Table)>,
    pub unmodelled: Table,
}

impl Roofs {
    /// Adds up.
    pub fn of<T: Time>(analysis: &Analysis<'_, T>, timeline: &Timeline, chip: Option<&Chip>) -> Roofs {
        let groups = groups(analysis);
        let unified = unified(analysis, timeline, &groups, chip);
        let families = families(analysis, &groups, &unified);
        Roofs { unified, families, unmodelled: unmodelled(&groups) }
    }
}

fn groups<'x, T: Time>(analysis: &'x Analysis<'_, T>) -> Vec<Group<'x>> {
    let trace = analysis.trace;
    let people = People::of(trace);
    let mut models = Models { analysis, known: Map::default() };
    let mut calls: Map<Owner, usize> = Map::default();
    let mut list: Vec<(Owner, Vec<u32>)> = Vec::new();
    for gpu in (0..trace.events.len() as u32).filter(|i| trace.events[*i as usize].category.on_gpu()) {
        let owner = owner(analysis, &mut models, gpu);
        // What nobody launched is a call of its own each.
        let place = match owner {
            Owner::Nobody => {
                list.push((owner, Vec::new()));
                list.len() - 1
            }
            _ => *calls.entry(owner).or_insert_with(|| {
                list.push((owner, Vec::new()));
                list.len() - 1
            }),
        };
        list[place].1.push(gpu);
    }
    let mut places: Map<Row, usize> = Map::default();
    let mut groups: Vec<Group> = Vec::new();
    for (owner, kernels) in list {
        let event = match owner {
            Owner::Event(place) => Some((place, &trace.events[place as usize])),
            Owner::Nobody => None,
        };
        let found = match event {
            Some((place, e)) if e.category == Category::CpuOp => models.of(place, kernels[0]),
            _ => Err(None),
        };
        let category = event.map_or(UNLINKED, |(place, _)| analysis.kind_of(place, kernels[0]));
        let who = event.map(|(_, e)| people.of_lane[e.lane as usize]);
        let arguments = event.filter(|(_, e)| e.category == Category::CpuOp).map_or(0, |(_, e)| e.arguments);
        // The same arguments may move more or less: sizes that only the kernel tells.
        let bytes = found.as_ref().ok().map(|cost| cost.bytes.to_bits());
        let key = (event.map(|(_, e)| e.name), category, who.unwrap_or(NONE), arguments, bytes);
        let time = kernels.iter().map(|k| analysis.nanoseconds(*k)).sum();
        let place = *places.entry(key).or_insert_with(|| {
            let name = event.map_or_else(|| UNLINKED.to_string(), |(place, _)| unescaped(trace.name(place)));
            let why = found.as_ref().err().map(|why| reason(&name, event.map(|(_, e)| e), why.clone()));
            let cost = found.ok();
            groups.push(Group { name, category, who, event: event.map(|(_, e)| e), cost, why, calls: Vec::new() });
            groups.len() - 1
        });
        groups[place].calls.push((kernels, time));
    }
    groups.sort_by_key(|group| (std::cmp::Reverse(group.nanoseconds()), group.event.map_or(u32::MAX, |e| e.uid)));
    groups
}

/// What is said of an operation that nobody thought of.
const NO_MODEL: &str = "there is no model for it, or its sizes were not recorded";

fn reason(name: &str, event: Option<&Event>, why: Option<String>) -> String {
    if let Some(why) = opaque::reason(name) {
        return why.into();
    }
    match (why, event) {
        (Some(why), _) => why,
        (None, None) => "it was launched outside the recording".into(),
        (None, Some(event)) if event.category.is_call() && name.contains("GraphLaunch") => {
            "a captured graph: its kernels have no operations".into()
        }
        (None, Some(event)) if event.category.is_call() => "no operation is around the call".into(),
        (None, Some(_)) => NO_MODEL.into(),
    }
}

/// The outermost operation with a model, else the innermost, else the call.
fn owner<T: Time>(analysis: &Analysis<'_, T>, models: &mut Models<'_, '_, T>, gpu: u32) -> Owner {
    let call = analysis.links.launcher[gpu as usize];
    if call == NONE {
        return Owner::Nobody;
    }
    let (mut innermost, mut modelled) = (None, None);
    let mut above = call;
    while above != NONE {
        if analysis.trace.events[above as usize].category == Category::CpuOp && analysis.trace.name(above) != b"execute"
        {
            innermost = innermost.or(Some(above));
            if models.of(above, gpu).is_ok() {
                modelled = Some(above);
            }
        }
        above = analysis.parent[above as usize];
    }
    Owner::Event(modelled.or(innermost).unwrap_or(call))
}

/// The peak that holds for a unit and a type.
fn peak(chip: &Chip, cost: &Cost) -> Option<f64> {
    let dtype = match (cost.unit, cost.dtype.as_str()) {
        (Unit::Vector, "double") => DType::F64,
        (Unit::Vector, _) => DType::F32,
        (Unit::Matrix, "double") => DType::F64,
        (Unit::Matrix, "float") => DType::F32,
        (Unit::Matrix, "c10::Half") => DType::F16,
        (Unit::Matrix, "c10::BFloat16") => DType::Bf16,
        (Unit::Matrix, "signed char") => DType::I8,
        (Unit::Matrix, name) if name.starts_with("c10::Float8") => DType::F8E4m3,
        _ => return None,
    };
    chip.peak(dtype)
}

/// Least microseconds of one call, and what holds it there.
fn roof(chip: &Chip, cost: &Cost) -> Option<(f64, &'static str)> {
    let memory = cost.bytes / chip.bandwidth()? * 1e6;
    let compute = if cost.flops > 0.0 { cost.flops / peak(chip, cost)? * 1e6 } else { 0.0 };
    Some(if compute >= memory { (compute, "COMPUTE_BOUND") } else { (memory, "MEMORY_BOUND") })
}

fn unified<T: Time>(analysis: &Analysis<'_, T>, timeline: &Timeline, groups: &[Group], chip: Option<&Chip>) -> Table {
    let mut names = vec!["name", "op category", "process_name", "process_label", "thread_name"];
    names.extend(["Input Dims", "Input type", "Input Strides", "Concrete Inputs"]);
    names.extend([">ex_UID", ">operation_count", ">GFLOPS", ">Data Moved (bytes)", ">FLOPS/Byte", "Compute Spec"]);
    names.extend([">TB/s_mean", ">TFLOPS/s_mean"]);
    if chip.is_some() {
        names.extend([">Roofline Time (µs)", "Roofline Bound", ">Pct Roofline", ">recoverable_time_ms"]);
    }
    names.extend([">Kernel Time (µs)_mean", ">Kernel Time (µs)_median", ">Kernel Time (µs)_std"]);
    names.extend([">Kernel Time (µs)_min", ">Kernel Time (µs)_max", ">Kernel Time (µs)_sum"]);
    names.extend(["kernel_details_summary", "trunc_kernel_details", "has_perf_model"]);
    names.extend(&share_names(Mode::TraceLens)[..2]);
    names.push(">Percent of total time (%)");
    let mut table = Table::new(&names);
    let people = People::of(analysis.trace);
    let all: i64 = groups.iter().map(Group::nanoseconds).sum();
    let mut running = 0.0;
    for group in groups {
        let who = group.who.and_then(|who| people.names.get(who as usize));
        let operation = group.event.filter(|e| e.category == Category::CpuOp);
        let mut cells = vec![Cell::Text(group.name.clone()), group.category.into()];
        cells.extend((0..3).map(|i| Cell::from(who.map(|names| names[i].as_str()))));
        cells.extend((0..4).map(|i| list_cell(analysis.trace, operation, i)));
        cells.extend([group.event.map(|e| u64::from(e.uid)).into(), (group.calls.len() as u64).into()]);
        let times: Vec<f64> = group.calls.iter().map(|(_, time)| *time as f64 / 1e3).collect();
        let s = Statistics::of(&times);
        cells.extend(cost_cells(group, s.mean));
        if let Some(chip) = chip {
            cells.extend(roof_cells(chip, group, &s));
        }
        let deviation = s.sample_deviation.map_or(Cell::Empty, number);
        cells.extend([number(s.mean), number(s.median), deviation, number(s.least), number(s.largest)]);
        // The sum of whole nanoseconds.
        let sum = group.nanoseconds();
        cells.push(number(sum as f64 / 1e3));
        let lists: Vec<&[u32]> = group.calls.iter().map(|(kernels, _)| kernels.as_slice()).collect();
        cells.extend(kernel_cells(analysis, &lists));
        cells.push(if group.cost.is_some() { "True" } else { "False" }.into());
        let share = if all > 0 { sum as f64 / all as f64 * 100.0 } else { f64::NAN };
        running += share;
        cells.extend([number(share), number(running), number(sum as f64 / 1e3 / timeline.total * 100.0)]);
        table.row(cells);
    }
    table
}

fn cost_cells(group: &Group, mean: f64) -> [Cell; 6] {
    let Some(cost) = &group.cost else { return [const { Cell::Empty }; 6] };
    let speed = |value: f64| if mean > 0.0 { number(value / (mean / 1e6)) } else { Cell::Empty };
    let intensity = if cost.bytes > 0.0 { number(cost.flops / cost.bytes) } else { Cell::Empty };
    let unit = if cost.unit == Unit::Matrix { "matrix" } else { "vector" };
    let kind = cost.dtype.strip_prefix("c10::").unwrap_or(&cost.dtype).to_lowercase();
    [
        number(cost.flops / 1e9),
        number(cost.bytes),
        intensity,
        format!("{unit}_{kind}").into(),
        speed(cost.bytes / 1e12),
        speed(cost.flops / 1e12),
    ]
}

fn roof_cells(chip: &Chip, group: &Group, s: &Statistics) -> [Cell; 4] {
    let found = group.cost.as_ref().and_then(|cost| roof(chip, cost));
    let Some((least, bound)) = found else { return [const { Cell::Empty }; 4] };
    let share = if s.mean > 0.0 { number(least / s.mean * 100.0) } else { Cell::Empty };
    let lost = (s.sum - least * group.calls.len() as f64).max(0.0);
    [number(least), bound.into(), share, number(lost / 1e3)]
}

/// The same rows sorted into families, those of products with extents and flags in front.
fn families<T: Time>(analysis: &Analysis<'_, T>, groups: &[Group], unified: &Table) -> Vec<(&'static str, Table)> {
    let settings = crate::calls::settings(analysis);
    let mut found: Vec<(&'static str, Table)> = Vec::new();
    for (group, cells) in groups.iter().zip(&unified.rows) {
        let Some(event) = group.event.filter(|_| group.cost.is_some()) else { continue };
        let Some(arguments) = Arguments::of(analysis.trace, event) else { continue };
        let Some(family) = family(&group.name, &arguments) else { continue };
        let products = matches!(family, "GEMM" | "GroupedGEMM");
        let place = found.iter().position(|(name, _)| *name == family).unwrap_or_else(|| {
            let mut columns = unified.columns.clone();
            if products {
                let more =
                    Table::new(&[">param: B", ">param: M", ">param: N", ">param: K", "transa", "transb"]).columns;
                columns.splice(1..1, more);
            }
            found.push((family, Table { columns, rows: Vec::new() }));
            found.len() - 1
        });
        let mut row = cells.clone();
        if products {
            row.splice(1..1, crate::calls::product_cells(&group.name, &arguments, settings));
        }
        found[place].1.rows.push(row);
    }
    found
}

/// What has no model, and why, the longest first.
fn unmodelled(groups: &[Group]) -> Table {
    let mut rows: Vec<(&str, &str, u64, i64)> = Vec::new();
    for group in groups {
        let Some(why) = &group.why else { continue };
        let (count, time) = (group.calls.len() as u64, group.nanoseconds());
        match rows.iter_mut().find(|row| row.0 == group.name && row.1 == why) {
            Some(row) => {
                row.2 += count;
                row.3 += time;
            }
            None => rows.push((&group.name, why, count, time)),
        }
    }
    rows.sort_by(|x, y| order(&y.3, &x.3));
    let all: i64 = groups.iter().map(Group::nanoseconds).sum();
    let mut table = Table::new(&["name", ">Count", ">kernel_time_ms", ">Percentage (%)", "why"]);
    for (name, why, count, time) in rows {
        let share = time as f64 / all as f64 * 100.0;
        table.row(vec![name.into(), count.into(), number(time as f64 / 1e6), number(share), why.into()]);
    }
    table
}
