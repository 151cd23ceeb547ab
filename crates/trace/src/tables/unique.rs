//! GPU time by operation and arguments, with the kernels each launched.

use super::ops::{share_names, with_shares};
use super::statistics::Statistics;
use super::{Timeline, number};
use crate::analysis::{Analysis, Launcher, Mode};
use crate::event::{Event, Trace};
use crate::fast::Map;
use crate::interval::{Time, order};
use crate::python::{float, literal, quote};
use crate::scan::unescaped;
use gemwright_core::{Cell, Table};

struct Group<'t> {
    name: &'t [u8],
    category: &'static str,
    who: u32,
    event: Option<&'t Event>,
    direct: Vec<f64>,
    subtree: Vec<f64>,
    alone: f64,
    launchers: Vec<&'t Launcher>,
}

/// By name, category, process, thread and arguments.
pub fn ops_unique_args<T: Time>(analysis: &Analysis<'_, T>, timeline: &Timeline) -> Table {
    let who = People::of(analysis.trace);
    let mut places: Map<(Option<u32>, &str, u32, u32), usize> = Map::default();
    let mut groups: Vec<Group> = Vec::new();
    for launcher in &analysis.launchers {
        let (event, category) = (analysis.event(launcher), launcher.category);
        let person = event.map_or(People::NOBODY, |e| who.of_lane[e.lane as usize]);
        let key = (event.map(|e| e.name), category, person, event.map_or(0, |e| e.arguments));
        let place = *places.entry(key).or_insert_with(|| {
            let (direct, subtree, launchers) = (Vec::new(), Vec::new(), Vec::new());
            let (name, who) = (analysis.name(launcher), person);
            groups.push(Group { name, category, who, event, direct, subtree, alone: 0.0, launchers });
            groups.len() - 1
        });
        let group = &mut groups[place];
        group.direct.push(launcher.direct_time);
        group.subtree.push(launcher.subtree_time);
        group.alone += launcher.alone_time;
        group.launchers.push(launcher);
    }
    groups.sort_by_key(|group| group.event.map_or(u32::MAX, |e| e.uid));
    let mut table = Table::new(&names(analysis.mode));
    let time = |group: &Group| group.direct.iter().sum();
    for shares in with_shares(groups, analysis.mode, timeline, time, |group| group.alone) {
        let mut cells = row(analysis, &who, &shares.row);
        cells.extend(shares.cells(shares.row.alone));
        table.row(cells);
    }
    table
}

/// One list of an operation's arguments as Python spells it; empty where it is missing.
pub(super) fn list_cell(trace: &Trace, event: Option<&Event>, which: usize) -> Cell {
    event.and_then(|e| trace.list(e, which)).map_or(Cell::Empty, |json| Cell::Text(literal(json)))
}

fn names(mode: Mode) -> Vec<&'static str> {
    let keys = ["name", "op category", "process_name", "process_label", "thread_name"];
    let lists = ["Input Dims", "Input type", "Input Strides", "Concrete Inputs", ">operation_count"];
    let figures = [
        ">total_direct_kernel_time_mean",
        ">total_subtree_kernel_time_mean",
        ">total_direct_kernel_time_median",
        ">total_subtree_kernel_time_median",
        ">total_direct_kernel_time_std",
        ">total_subtree_kernel_time_std",
        ">total_direct_kernel_time_min",
        ">total_subtree_kernel_time_min",
        ">total_direct_kernel_time_max",
        ">total_subtree_kernel_time_max",
        ">total_direct_kernel_time_sum",
        ">total_subtree_kernel_time_sum",
        ">ex_UID",
    ];
    let last = ["kernel_details_summary", "trunc_kernel_details"];
    keys.into_iter().chain(lists).chain(figures).chain(last).chain(share_names(mode).iter().copied()).collect()
}

fn row<T: Time>(analysis: &Analysis<'_, T>, who: &People, group: &Group) -> Vec<Cell> {
    let mut cells = vec![Cell::Text(unescaped(group.name)), group.category.into()];
    let names = who.names.get(group.who as usize);
    cells.extend((0..3).map(|i| Cell::from(names.map(|names| names[i].as_str()))));
    cells.extend((0..4).map(|i| list_cell(analysis.trace, group.event, i)));
    cells.push((group.direct.len() as u64).into());
    let [direct, subtree] = [&group.direct, &group.subtree].map(|times| Statistics::of(times));
    for figure in [
        |s: &Statistics| s.mean,
        |s: &Statistics| s.median,
        |s: &Statistics| s.sample_deviation.unwrap_or(f64::NAN),
        |s: &Statistics| s.least,
        |s: &Statistics| s.largest,
        |s: &Statistics| s.sum,
    ] {
        cells.extend([number(figure(&direct)), number(figure(&subtree))]);
    }
    cells.push(group.event.map(|e| u64::from(e.uid)).into());
    let lists: Vec<&[u32]> = group.launchers.iter().map(|launcher| analysis.kernels(launcher)).collect();
    cells.extend(kernel_cells(analysis, &lists));
    cells
}

/// Figures of a group's kernels, in full and in short; nothing of none.
pub(super) fn kernel_cells<T: Time>(analysis: &Analysis<'_, T>, lists: &[&[u32]]) -> [Cell; 2] {
    let kernels = kernel_details(analysis, lists);
    let joined = |spell: fn(&KernelRow) -> String| {
        Cell::Text(format!("[{}]", kernels.iter().map(spell).collect::<Vec<_>>().join(", ")))
    };
    let short = if kernels.is_empty() { Cell::Empty } else { joined(KernelRow::short) };
    [joined(KernelRow::whole), short]
}

/// Figures of the kernel at one position of an operation's launches.
struct KernelRow {
    name: String,
    stream: Option<i64>,
    count: usize,
    figures: Statistics,
}

impl KernelRow {
    fn head(&self, name: &str) -> String {
        let mut out = String::from("{'name': ");
        quote(name, &mut out);
        let stream = self.stream.map_or("None".into(), |s| s.to_string());
        out + &format!(", 'stream': {stream}")
    }

    fn whole(&self) -> String {
        let mut out = self.head(&self.name) + &format!(", 'count': {}", self.count);
        let s = &self.figures;
        for (name, value) in [
            ("total_duration_us", s.sum),
            ("mean_duration_us", s.mean),
            ("median_duration_us", s.median),
            ("std_dev_duration_us", s.deviation),
            ("min_duration_us", s.least),
            ("max_duration_us", s.largest),
        ] {
            out += &format!(", '{name}': np.float64({})", float(value));
        }
        out + "}"
    }

    fn short(&self) -> String {
        let cut: String = self.name.chars().take(64).collect();
        let name = if cut.len() < self.name.len() { cut + "..." } else { cut };
        let rounded = (self.figures.mean * 100.0).round_ties_even() / 100.0;
        self.head(&name) + &format!(", 'mean_duration_us': np.float64({})}}", float(rounded))
    }
}

/// Which of the kernels of a group's launches are one row: TraceLens goes by position, and leaves out
/// launches of another number of kernels than the first; else it is name and stream, and none is lost.
fn kernel_details<T: Time>(analysis: &Analysis<'_, T>, lists: &[&[u32]]) -> Vec<KernelRow> {
    let mut rows: Vec<(u32, Vec<f64>)> = Vec::new();
    if analysis.mode == Mode::TraceLens {
        let Some(first) = lists.iter().find(|k| !k.is_empty()) else { return Vec::new() };
        rows = first.iter().map(|kernel| (*kernel, Vec::new())).collect();
        for kernels in lists.iter().filter(|k| k.len() == first.len()) {
            for ((_, times), kernel) in rows.iter_mut().zip(*kernels) {
                times.push(analysis.took(*kernel));
            }
        }
    } else {
        let mut places: Map<(u32, Option<i64>), usize> = Map::default();
        for kernel in lists.iter().copied().flatten() {
            let event = &analysis.trace.events[*kernel as usize];
            let place = places.entry((event.name, analysis.trace.queue(event).stream.get())).or_insert_with(|| {
                rows.push((*kernel, Vec::new()));
                rows.len() - 1
            });
            rows[*place].1.push(analysis.took(*kernel));
        }
    }
    let row = |(kernel, times): (u32, Vec<f64>)| KernelRow {
        name: unescaped(analysis.trace.name(kernel)),
        stream: analysis.trace.queue(&analysis.trace.events[kernel as usize]).stream.get(),
        count: times.len(),
        figures: Statistics::of(&times),
    };
    let mut rows: Vec<KernelRow> = rows.into_iter().map(row).collect();
    rows.sort_by(|x, y| order(&x.figures.sum, &y.figures.sum).then_with(|| x.name.cmp(&y.name)));
    rows
}

/// Process, label and thread of each lane, equal ones once.
pub(super) struct People {
    pub names: Vec<[String; 3]>,
    pub of_lane: Vec<u32>,
}

impl People {
    /// Of what was launched outside the recording.
    const NOBODY: u32 = u32::MAX;

    pub fn of(trace: &Trace) -> People {
        let mut names: Vec<[String; 3]> = Vec::new();
        let of_lane = trace.lanes.iter().map(|(process, thread)| {
            let name = |thread: &[u8], kind: &[u8]| {
                let key = [trace.texts[*process as usize].clone(), thread.into(), kind.into()];
                trace.names.get(&key).cloned().unwrap_or_else(|| "Unknown".into())
            };
            let thread = name(&trace.texts[*thread as usize], b"thread_name");
            let own = [name(b"0", b"process_name"), name(b"0", b"process_labels"), thread];
            names.iter().position(|other| *other == own).unwrap_or_else(|| {
                names.push(own);
                names.len() - 1
            }) as u32
        });
        let of_lane = of_lane.collect();
        People { names, of_lane }
    }
}
