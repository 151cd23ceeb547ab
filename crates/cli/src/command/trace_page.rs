//! What the page of `gemwright trace --html` says: where the time went, how far from the roof, what would save most.

use super::trace::PlotOf;
use super::trace_files::Tables;
use super::trace_screen::{findings, problems};
use crate::error::Error;
use crate::page::{measures, plot_chip};
use gemwright_compare::{Comparison, changes};
use gemwright_core::{Cell, Chip, DType, Operands, Table, Workload};
use gemwright_report as report;
use gemwright_report::{Measure, Page, PagePoint, Part, Plot, PlotChip, PlotPoint, Segment};
use gemwright_trace::tables::Timeline;
use gemwright_trace::{Analysis, Time};

/// Changes that are told.
const CHANGES: usize = 5;
/// Operations that are drawn: the rest would be dots under dots.
const POINTS: usize = 400;
/// Operations of a smaller share of the time would only stretch the axes.
const LEAST_SHARE: f64 = 0.001;
/// So many are drawn however short they are.
const ALWAYS: usize = 30;
/// What computes less for a byte has no place in a roofline, and would stretch its axes.
const LEAST_INTENSITY: f64 = 1e-3;
/// Pieces of the time that are drawn side by side.
const PIECES: usize = 240;
/// An idle GPU is worth a word from this share of the time on.
const IDLE: f64 = 0.05;

/// A table's columns by name.
struct Columns<'a>(&'a Table);

impl<'a> Columns<'a> {
    fn of(tables: &'a Tables, name: &str) -> Option<Columns<'a>> {
        tables.iter().find(|(other, _)| other == name).map(|(_, table)| Columns(table))
    }

    fn cell<'b>(&self, row: &'b [Cell], name: &str) -> &'b Cell {
        self.0.columns.iter().position(|c| c.name == name).map_or(&Cell::Empty, |i| &row[i])
    }

    fn number(&self, row: &[Cell], name: &str) -> Option<f64> {
        match self.cell(row, name) {
            Cell::Shown { value, .. } => Some(*value).filter(|v| v.is_finite()),
            Cell::Integer(n) => Some(*n as f64),
            _ => None,
        }
    }

    fn text<'b>(&self, row: &'b [Cell], name: &str) -> &'b str {
        if let Cell::Text(text) = self.cell(row, name) { text } else { "" }
    }
}

/// The page of one trace.
pub fn trace_page<T: Time>(
    title: &str,
    analysis: &Analysis<'_, T>,
    products: &Workload,
    tables: &Tables,
    chips: &[Chip],
) -> Result<Page, Error> {
    let chip = chips.first();
    let timeline = Timeline::of(analysis);
    let (points, kinds) = points(tables);
    let devices: Vec<&str> = analysis.trace.devices.iter().map(|d| d.name.as_str()).collect();
    let on = devices.first().map_or(String::new(), |name| format!(", {} x {name}", devices.len()));
    let issues = problems(analysis).into_iter().chain(findings(&timeline, tables)).collect();
    Ok(Page {
        title: title.to_string(),
        subtitle: format!("{} events{on}", analysis.trace.count),
        answer: answer(&timeline, &points, chip),
        bar: bar(&timeline),
        strip: Timeline::along(analysis, PIECES),
        changes: told_changes(&timeline, &points, &kinds, products, chip)?,
        measures: lists(tables, &points),
        plot: Plot::roofline(&roofs(chips), &drawn(points), kinds),
        issues,
        tables: tables.clone(),
        open: if Columns::of(tables, OPERATIONS).is_some() { OPERATIONS } else { "ops_summary" }.into(),
    })
}

/// The same as a picture for slides.
pub fn trace_picture<T: Time>(
    title: &str,
    analysis: &Analysis<'_, T>,
    tables: &Tables,
    chips: &[Chip],
    of: PlotOf,
) -> String {
    let timeline = || report::timeline_svg(title, &bar(&Timeline::of(analysis)), &Timeline::along(analysis, PIECES));
    let roofline = |title: &str| {
        let (points, _) = points(tables);
        let all: f64 = points.iter().map(|point| point.ms).sum();
        let point = |point: &PagePoint| PlotPoint {
            caption: format!("{} {}", point.name, point.detail),
            chip: 0,
            intensity: point.intensity,
            speed: point.speed,
            share: point.ms / all,
        };
        report::roofline_svg(title, &roofs(chips), &drawn(points).iter().map(point).collect::<Vec<_>>())
    };
    match of {
        PlotOf::Timeline => timeline(),
        PlotOf::Roofline => roofline(title),
        PlotOf::Both => report::stacked(&[timeline(), roofline("Operations that have a cost model")]),
    }
}

fn roofs(chips: &[Chip]) -> Vec<PlotChip> {
    chips.iter().filter_map(|chip| plot_chip(chip, DType::Bf16)).collect()
}

/// Those that are seen.
fn drawn(points: Vec<PagePoint>) -> Vec<PagePoint> {
    let all: f64 = points.iter().map(|point| point.ms).sum();
    let computing = points.into_iter().filter(|point| point.intensity >= LEAST_INTENSITY).take(POINTS);
    computing.enumerate().filter(|(i, point)| *i < ALWAYS || point.ms >= all * LEAST_SHARE).map(|(_, p)| p).collect()
}

const OPERATIONS: &str = "unified_perf_summary";

fn bar(timeline: &Timeline) -> Vec<Segment> {
    if timeline.total <= 0.0 {
        return Vec::new();
    }
    let segment = |part, name: &str, us: f64| {
        let share = us / timeline.total;
        Segment { part, caption: format!("{name} {}, {}", report::seconds(us * 1e-6), report::percent(share)), share }
    };
    let all = [
        segment(Part::Compute, "computing", timeline.computation),
        segment(Part::Communication, "only communicating", timeline.exposed_communication),
        segment(Part::Copies, "only copying", timeline.exposed_copies),
        segment(Part::Idle, "idle", timeline.total - timeline.busy),
    ];
    all.into_iter().filter(|segment| segment.share > 0.0).collect()
}

/// Operations that have a cost model, longest first, and the names of their kinds.
fn points(tables: &Tables) -> (Vec<PagePoint>, Vec<String>) {
    let Some(table) = Columns::of(tables, OPERATIONS) else { return (Vec::new(), Vec::new()) };
    let mut kinds: Vec<&str> = Vec::new();
    let mut found: Vec<PagePoint> = Vec::new();
    for row in &table.0.rows {
        let number = |name: &str| table.number(row, name);
        let (Some(intensity), Some(tflops), Some(us)) =
            (number("FLOPS/Byte"), number("TFLOPS/s_mean"), number("Kernel Time (µs)_sum"))
        else {
            continue;
        };
        if intensity <= 0.0 || tflops <= 0.0 || us <= 0.0 {
            continue;
        }
        let kind = table.text(row, "op category");
        let colour = kinds.iter().position(|known| *known == kind).unwrap_or_else(|| {
            kinds.push(kind);
            kinds.len() - 1
        });
        let (name, dims) = (table.text(row, "name"), table.text(row, "Input Dims"));
        found.push(PagePoint {
            name: name.trim_start_matches("aten::").to_string(),
            detail: sizes(dims),
            filter: format!("{name} {}", dims.split_whitespace().collect::<Vec<_>>().join(" ")),
            count: number("operation_count").unwrap_or(0.0),
            ms: us * 1e-3,
            intensity,
            speed: tflops * 1e12,
            roof: number("Pct Roofline"),
            lost: number("recoverable_time_ms").unwrap_or(0.0),
            colour,
        });
    }
    found.sort_by(|x, y| y.ms.total_cmp(&x.ms));
    (found, kinds.into_iter().map(String::from).collect())
}

/// The extents of the tensors, equal ones counted, without those of what is no tensor.
fn sizes(dims: &str) -> String {
    let mut list: Vec<(String, usize)> = Vec::new();
    for part in dims.split(['(', ')']) {
        let part = part.trim_matches([' ', ',']);
        match list.last_mut() {
            _ if part.is_empty() => {}
            Some((last, count)) if last == part => *count += 1,
            _ => list.push((part.to_string(), 1)),
        }
    }
    let shown = list.into_iter().map(|(part, count)| match count {
        1 => format!("[{part}]"),
        _ => format!("{count} × [{part}]"),
    });
    shown.collect::<Vec<_>>().join(" ")
}

fn answer(timeline: &Timeline, points: &[PagePoint], chip: Option<&Chip>) -> String {
    if timeline.total <= 0.0 {
        return "There is no GPU event in this trace: the times are the host's.".into();
    }
    let share = |us: f64| report::percent(us / timeline.total);
    let idle = timeline.total - timeline.busy;
    let mut text = format!(
        "{} from the first to the last GPU event: {} of it the GPU computes, {} it is idle.",
        report::seconds(timeline.total * 1e-6),
        share(timeline.computation),
        share(idle)
    );
    let held: Vec<&PagePoint> = points.iter().filter(|p| p.roof.is_some()).collect();
    let (taken, lost) = held.iter().fold((0.0, 0.0), |(taken, lost), p| (taken + p.ms, lost + p.lost));
    if let Some(chip) = chip.filter(|_| taken > 0.0) {
        text += &format!(
            " Operations with a cost model take {}; at the roof of {} they would take {}, {} of that.",
            report::seconds(taken * 1e-3),
            chip.name,
            report::seconds((taken - lost) * 1e-3),
            report::percent((taken - lost) / taken)
        );
    }
    text
}

/// The kind of operations whose changes `compare` knows.
const PRODUCTS: &str = "GEMM";

/// The five that would save most, in words: of products what `compare` would change, of the rest how far from the roof.
fn told_changes(
    timeline: &Timeline,
    points: &[PagePoint],
    kinds: &[String],
    products: &Workload,
    chip: Option<&Chip>,
) -> Result<Vec<(String, String)>, Error> {
    let mut all: Vec<(f64, String, String)> = Vec::new();
    let idle = timeline.total - timeline.busy;
    let mut wait = |us: f64, what: &str| {
        if timeline.total > 0.0 && us / timeline.total >= IDLE {
            all.push((us * 1e-3, format!("{what}: up to {}", report::seconds(us * 1e-6)), String::new()));
        }
    };
    wait(idle, "keep the GPU busy, it waits for the host (graphs, fewer and larger launches)");
    wait(timeline.exposed_communication, "hide communication behind computation");
    wait(timeline.exposed_copies, "hide copies behind computation");
    let itself = Comparison::of([products, products]);
    for change in changes(&itself, [chip, chip])? {
        let Some(saves) = change.saves().filter(|saves| *saves > 0.0) else { continue };
        // Attention is among the operations below.
        let Some(first) = change.rows.first().map(|i| itself.rows[*i].call()) else { continue };
        let Some(p) = first.product() else { continue };
        let (now, then) = (report::seconds(change.now), report::seconds(saves));
        let what = match change.rows.len() {
            1 => change.what.replace(" it", &format!(" the product {} x {} x {}", p.m, p.n, p.k)),
            _ => change.what.clone(),
        };
        let text = format!("{what}: would save {then} of {now}; {}", change.why);
        all.push((saves * 1e3, text, filter_of(&first.operands, points)));
    }
    for point in points.iter().filter(|p| p.lost > 0.0 && kinds[p.colour] != PRODUCTS) {
        let roof =
            point.roof.map_or(String::new(), |roof| format!(", at {} of its roof", report::percent(roof / 100.0)));
        let text = format!(
            "{} {}: {} in {} {}{roof}; up to {} could be saved",
            point.name,
            point.detail,
            report::seconds(point.ms * 1e-3),
            point.count,
            if point.count == 1.0 { "run" } else { "runs" },
            report::seconds(point.lost * 1e-3)
        );
        all.push((point.lost, text, point.filter.clone()));
    }
    all.sort_by(|x, y| y.0.total_cmp(&x.0));
    Ok(all.into_iter().take(CHANGES).map(|(_, text, filter)| (text, filter)).collect())
}

/// Words that find a call's rows, its sizes as the tables write them; none where they would find nothing.
fn filter_of(operands: &Operands, points: &[PagePoint]) -> String {
    let (name, first) = match operands {
        Operands::Product { a, .. } | Operands::Grouped { a, .. } => ("mm", &a.size[a.size.len().saturating_sub(2)..]),
        Operands::Convolution(convolution) => ("conv", &convolution.input.size[..]),
        Operands::Attention(_) => return String::new(),
    };
    let sizes = first.iter().map(i64::to_string).collect::<Vec<_>>().join(", ");
    let filter = format!("{name} {sizes})");
    let found = |point: &PagePoint| filter.split(' ').all(|word| point.filter.contains(word));
    if points.iter().any(found) { filter } else { String::new() }
}

fn lists(tables: &Tables, points: &[PagePoint]) -> Vec<(String, Vec<Measure>)> {
    let list = |table: &str, name: &str, ms: &[&str]| -> Vec<Measure> {
        let Some(table) = Columns::of(tables, table) else { return Vec::new() };
        let taken = |row: &[Cell]| ms.iter().filter_map(|column| table.number(row, column)).sum::<f64>() * 1e-3;
        measures(table.0.rows.iter().map(|row| (table.text(row, name).to_string(), taken(row))))
    };
    let lost = points.iter().map(|p| (format!("{} {}", p.name, p.detail), p.lost * 1e-3));
    [
        ("Time by category", list("ops_summary_by_category", "op category", &["total_direct_kernel_time_ms"])),
        ("Time by module", list("by_module", "module", &["forward_kernel_time_ms", "backward_kernel_time_ms"])),
        ("Time that could be recovered", measures(lost)),
    ]
    .into_iter()
    .filter(|(_, list)| !list.is_empty())
    .map(|(heading, list)| (heading.to_string(), list))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::sizes;

    #[test]
    fn sizes_are_short() {
        assert_eq!(sizes("((5, 16), (5, 16), (5, 16, 2), (), (2048,), ())"), "2 × [5, 16] [5, 16, 2] [2048]");
        assert_eq!(sizes("()"), "");
        assert_eq!(sizes("(((5, 16), (5, 16)), ())"), "2 × [5, 16]");
        assert_eq!(sizes(")a(b"), "[a] [b]");
    }
}
