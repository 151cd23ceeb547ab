//! GPU time by operation and arguments, with the kernels each launched.

use super::number;
use super::ops::with_shares;
use super::statistics::Statistics;
use crate::analysis::{Analysis, Launcher};
use crate::event::Event;
use crate::fast::Map;
use crate::interval::{Time, order};
use crate::number::microseconds;
use crate::python::{float, literal, quote};
use crate::scan::{Cursor, unescaped};
use gemwright_core::{Cell, Table};

/// The four argument lists, as written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct Arguments<'a>(pub [Option<&'a [u8]>; 4]);

const LISTS: [&[u8]; 4] = [b"Input Dims", b"Input type", b"Input Strides", b"Concrete Inputs"];

impl<'a> Arguments<'a> {
    pub fn of(event: &Event<'a>) -> Arguments<'a> {
        let mut found = Arguments::default();
        let mut cursor = Cursor::new(event.args, 0);
        if cursor.expect(b'{').is_err() {
            return found;
        }
        while let Ok(Some(key)) = cursor.key() {
            let Ok(value) = cursor.value() else { break };
            if let Some(i) = LISTS.iter().position(|list| *list == key) {
                found.0[i] = Some(value);
            }
        }
        found
    }

    /// As Python spells it, `None` where it is missing.
    pub fn cell(&self, i: usize) -> Cell {
        self.0[i].map_or(Cell::Empty, |json| Cell::Text(literal(json)))
    }
}

struct Group<'t, 'a> {
    name: u32,
    category: &'static str,
    who: u32,
    arguments: Arguments<'a>,
    uid: u32,
    direct: Vec<f64>,
    subtree: Vec<f64>,
    launchers: Vec<&'t Launcher>,
}

/// By name, category, process, thread and arguments.
pub fn ops_unique_args<T: Time>(analysis: &Analysis<'_, '_, T>) -> Table {
    let who = People::of(analysis);
    let mut places: Map<(u32, &str, u32, Arguments), usize> = Map::default();
    let mut groups: Vec<Group> = Vec::new();
    for launcher in &analysis.launchers {
        let event = &analysis.trace.events[launcher.event as usize];
        let key = (event.name, launcher.category, who.of_lane[event.lane as usize], Arguments::of(event));
        let place = *places.entry(key).or_insert_with(|| {
            let (name, category, who, arguments) = key;
            let (direct, subtree, launchers) = (Vec::new(), Vec::new(), Vec::new());
            groups.push(Group { name, category, who, arguments, uid: event.uid, direct, subtree, launchers });
            groups.len() - 1
        });
        groups[place].direct.push(launcher.direct_time);
        groups[place].subtree.push(launcher.subtree_time);
        groups[place].launchers.push(launcher);
    }
    groups.sort_by_key(|group| group.uid);
    let mut table = Table::new(&names());
    for (group, share, running) in with_shares(groups, |group| group.direct.iter().sum()) {
        table.row(row(analysis, &who, &group, share, running));
    }
    table
}

fn names() -> Vec<&'static str> {
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
    let last = ["kernel_details_summary", "trunc_kernel_details", ">Percentage (%)", ">Cumulative Percentage (%)"];
    keys.into_iter().chain(lists).chain(figures).chain(last).collect()
}

fn row<T: Time>(analysis: &Analysis<'_, '_, T>, who: &People, group: &Group, share: f64, running: f64) -> Vec<Cell> {
    let [process, label, thread] = &who.names[group.who as usize];
    let mut cells = vec![
        Cell::Text(unescaped(analysis.trace.texts[group.name as usize])),
        group.category.into(),
        process.as_str().into(),
        label.as_str().into(),
        thread.as_str().into(),
    ];
    cells.extend((0..4).map(|i| group.arguments.cell(i)));
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
    cells.push(u64::from(group.uid).into());
    let kernels = kernel_details(analysis, &group.launchers);
    cells.push(Cell::Text(format!("[{}]", kernels.iter().map(KernelRow::whole).collect::<Vec<_>>().join(", "))));
    cells.push(Cell::Text(format!("[{}]", kernels.iter().map(KernelRow::short).collect::<Vec<_>>().join(", "))));
    cells.extend([number(share), number(running)]);
    cells
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

/// By position: launches of another number of kernels than the first are left out.
fn kernel_details<T: Time>(analysis: &Analysis<'_, '_, T>, launchers: &[&Launcher]) -> Vec<KernelRow> {
    let events = &analysis.trace.events;
    let Some(first) = launchers.iter().find(|l| !l.kernels.is_empty()) else { return Vec::new() };
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); first.kernels.len()];
    for launcher in launchers.iter().filter(|l| l.kernels.len() == first.kernels.len()) {
        for (list, kernel) in times.iter_mut().zip(&launcher.kernels) {
            list.push(microseconds(events[*kernel as usize].duration));
        }
    }
    let mut rows: Vec<KernelRow> = first
        .kernels
        .iter()
        .zip(&times)
        .map(|(kernel, times)| {
            let event = &events[*kernel as usize];
            let (name, stream) = (unescaped(analysis.trace.name(*kernel)), event.stream.get());
            KernelRow { name, stream, count: times.len(), figures: Statistics::of(times) }
        })
        .collect();
    rows.sort_by(|x, y| order(&x.figures.sum, &y.figures.sum).then_with(|| x.name.cmp(&y.name)));
    rows
}

/// Process, label and thread of each lane, equal ones once.
struct People {
    names: Vec<[String; 3]>,
    of_lane: Vec<u32>,
}

impl People {
    fn of<T: Time>(analysis: &Analysis<'_, '_, T>) -> People {
        let trace = analysis.trace;
        let mut names: Vec<[String; 3]> = Vec::new();
        let of_lane = trace.lanes.iter().map(|(pid, tid)| {
            let name = |tid: &[u8], kind: &[u8]| {
                trace.names.get(&(*pid, tid, kind)).cloned().unwrap_or_else(|| "Unknown".into())
            };
            let own = [name(b"0", b"process_name"), name(b"0", b"process_labels"), name(tid, b"thread_name")];
            names.iter().position(|other| *other == own).unwrap_or_else(|| {
                names.push(own);
                names.len() - 1
            }) as u32
        });
        let of_lane = of_lane.collect();
        People { names, of_lane }
    }
}
