//! Kernels so short that launching them costs more than they do.

use super::unique::list_cell;
use super::{Timeline, number};
use crate::analysis::{Analysis, Mode};
use crate::event::{Category, Event, NO_TEXT};
use crate::fast::Map;
use crate::interval::{Time, order};
use crate::scan::unescaped;
use gemwright_core::{Cell, Table};

/// Below this many microseconds.
const SHORT: f64 = 10.0;
const BINS: usize = 100;

fn short<'x, T: Time>(analysis: &'x Analysis<'_, T>) -> impl Iterator<Item = (u32, f64)> + 'x {
    let kernels = analysis.trace.events.iter().enumerate().filter(|(_, e)| e.category == Category::Kernel);
    kernels.map(|(i, _)| (i as u32, analysis.took(i as u32))).filter(|(_, time)| *time < SHORT)
}

/// TraceLens's file where short kernels are there but none has a known operation: what its library
/// leaves of a table without groups.
fn without_groups() -> Table {
    let mut table = Table::new(&["Kernel duration (µs)"; 3]);
    table.row(vec!["sum".into(), "count".into(), "mean".into()]);
    table
}

/// How many of each length, in equal steps from the shortest to the longest.
pub fn short_kernel_histogram<T: Time>(analysis: &Analysis<'_, T>) -> Table {
    let times: Vec<f64> = short(analysis).map(|(_, time)| time).collect();
    let mut table = Table::new(&[">bin_start", ">bin_end", ">count"]);
    let (Some(mut least), Some(mut most)) =
        (times.iter().copied().reduce(f64::min), times.iter().copied().reduce(f64::max))
    else {
        return table;
    };
    if least == most {
        (least, most) = (least - 0.5, most + 0.5);
    }
    let step = (most - least) / BINS as f64;
    let mut edges: Vec<f64> = (0..=BINS).map(|i| i as f64 * step + least).collect();
    edges[BINS] = most;
    let mut counts = [0u64; BINS];
    for time in times {
        let mut bin = (((time - least) * (BINS as f64 / (most - least))) as usize).min(BINS - 1);
        // The division may land beside the edge that the bins are written with.
        if time < edges[bin] {
            bin -= 1;
        } else if bin + 1 < BINS && time >= edges[bin + 1] {
            bin += 1;
        }
        counts[bin] += 1;
    }
    for (i, count) in counts.into_iter().enumerate() {
        table.row(vec![number(edges[i]), number(edges[i + 1]), count.into()]);
    }
    table
}

/// By operation, its arguments and the kernel; TraceLens leaves out those of unknown arguments.
pub fn short_kernels_summary<T: Time>(analysis: &Analysis<'_, T>, timeline: &Timeline) -> Table {
    let with_operations = analysis.trace.has_operations();
    let events = &analysis.trace.events;
    let mut places: Map<(Option<u32>, [u32; 3], u32), usize> = Map::default();
    let mut rows: Vec<(Option<&Event>, u32, f64, u64)> = Vec::new();
    for (i, time) in short(analysis) {
        let operation = analysis.operation_above(i).map(|op| &events[op as usize]);
        // The element types are no part of the key.
        let [sizes, _, strides, values] = analysis.trace.arguments[operation.map_or(0, |op| op.arguments as usize)];
        let lists = [sizes, strides, values];
        if with_operations && analysis.mode == Mode::TraceLens && lists.contains(&NO_TEXT) {
            continue;
        }
        let kernel = events[i as usize].name;
        let key = (operation.map(|op| op.name), lists, kernel);
        let place = *places.entry(key).or_insert_with(|| {
            rows.push((operation, kernel, 0.0, 0));
            rows.len() - 1
        });
        rows[place].2 += time;
        rows[place].3 += 1;
    }
    rows.sort_by(|x, y| order(&y.2, &x.2).then_with(|| x.3.cmp(&y.3)));
    if rows.is_empty() && analysis.mode == Mode::TraceLens {
        return if short(analysis).next().is_some() { without_groups() } else { Table::new(&[]) };
    }
    let mut names =
        if with_operations { vec!["Parent cpu_op", "Input dims", "Input strides", "Concrete Inputs"] } else { vec![] };
    names.extend([
        "Kernel name",
        ">Short Kernel duration (µs) sum",
        ">Short Kernel count",
        ">Short Kernel duration (µs) mean",
        ">Short Kernel duration (µs) percent of total time",
    ]);
    let mut table = Table::new(&names);
    for (operation, kernel, sum, count) in rows {
        let mut cells: Vec<Cell> = Vec::new();
        if with_operations {
            cells.push(operation.map(|op| unescaped(&analysis.trace.texts[op.name as usize])).into());
            cells.extend([0, 2, 3].map(|list| list_cell(analysis.trace, operation, list)));
        }
        cells.push(Cell::Text(unescaped(&analysis.trace.texts[kernel as usize])));
        let share = sum / timeline.total * 100.0;
        cells.extend([number(sum), count.into(), number(sum / count as f64), number(share)]);
        table.row(cells);
    }
    table
}
