//! Where the GPU's time went: busy on what, exposed, idle.

use super::number;
use crate::analysis::{Analysis, Mode, OnGpu};
use crate::category::Work;
use crate::interval::{Time, difference, length, order, union};
use crate::scan::unescaped;
use gemwright_core::Table;

/// The parts of the time between the first and the last GPU event, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[allow(missing_docs)]
pub struct Timeline {
    pub computation: f64,
    /// Communication during which nothing is computed.
    pub exposed_communication: f64,
    /// Copies during which nothing is computed or communicated.
    pub exposed_copies: f64,
    pub busy: f64,
    pub total: f64,
    pub communication: f64,
    pub copies: f64,
}

impl Timeline {
    /// Of all GPUs: TraceLens lays them over one another, which makes one busy GPU hide an idle one;
    /// else their times are added up.
    pub fn of<T: Time>(analysis: &Analysis<'_, T>) -> Timeline {
        if analysis.mode == Mode::TraceLens {
            return Timeline::of_events(analysis, analysis.gpu_events(), None);
        }
        let mut sum = Timeline::default();
        for (_, one) in Timeline::by_gpu(analysis) {
            sum.computation += one.computation;
            sum.exposed_communication += one.exposed_communication;
            sum.exposed_copies += one.exposed_copies;
            sum.busy += one.busy;
            sum.total += one.total;
            sum.communication += one.communication;
            sum.copies += one.copies;
        }
        sum
    }

    /// Of each GPU, all from the first to the last event of any; the name is process and device.
    pub fn by_gpu<T: Time>(analysis: &Analysis<'_, T>) -> Vec<(String, Timeline)> {
        let name = |gpu: &OnGpu| {
            let process = unescaped(&analysis.trace.texts[gpu.process as usize]).trim_matches('"').to_string();
            match gpu.device {
                Some(device) if device.to_string() == process => process,
                Some(device) => format!("{process}, device {device}"),
                None => process,
            }
        };
        let mut gpus = analysis.by_gpu();
        gpus.sort_by_key(|gpu| (gpu.device, name(gpu)));
        let window = window(analysis);
        let one = |gpu: &OnGpu| (name(gpu), Timeline::of_events(analysis, gpu.events.iter().copied(), window));
        gpus.iter().map(one).collect()
    }

    /// Adds up; the time goes from the first event to the last where no window is given.
    fn of_events<T: Time>(
        analysis: &Analysis<'_, T>,
        events: impl Iterator<Item = (u32, Work)>,
        window: Option<T>,
    ) -> Timeline {
        let mut spans = [Vec::new(), Vec::new(), Vec::new()];
        let mut all = Vec::new();
        for (i, work) in events {
            let span = analysis.spans[i as usize];
            all.push(span);
            spans[match work {
                Work::Compute => 0,
                Work::Communication => 1,
                Work::Copy => 2,
            }]
            .push(span);
        }
        let [compute, communication, copies] = spans.map(union);
        let all = union(all);
        let exposed = difference(&communication, &compute);
        let bare = difference(&difference(&copies, &compute), &communication);
        let total = window.or(match (all.first(), all.last()) {
            (Some(first), Some(last)) => Some(last.end - first.start),
            _ => None,
        });
        Timeline {
            computation: length(&compute).microseconds(),
            exposed_communication: length(&exposed).microseconds(),
            exposed_copies: length(&bare).microseconds(),
            busy: length(&all).microseconds(),
            total: total.map_or(0.0, Time::microseconds),
            communication: length(&communication).microseconds(),
            copies: length(&copies).microseconds(),
        }
    }

    /// Its parts by the names of the table, in microseconds.
    pub fn rows(&self) -> [(&'static str, f64); 8] {
        [
            ("computation_time", self.computation),
            ("exposed_comm_time", self.exposed_communication),
            ("exposed_memcpy_time", self.exposed_copies),
            ("busy_time", self.busy),
            ("idle_time", self.total - self.busy),
            ("total_time", self.total),
            ("total_comm_time", self.communication),
            ("total_memcpy_time", self.copies),
        ]
    }
}

/// From the first GPU event to the last.
fn window<T: Time>(analysis: &Analysis<'_, T>) -> Option<T> {
    let spans = || analysis.gpu_events().map(|(i, _)| analysis.spans[i as usize]);
    let first = spans().map(|s| s.start).min_by(order)?;
    let last = spans().map(|s| s.end).max_by(order)?;
    Some(last - first)
}

/// What of the durations ran at the same time as something else, in microseconds.
fn overlapped<T: Time>(analysis: &Analysis<'_, T>, timeline: &Timeline) -> f64 {
    let all: i64 = analysis.gpu_events().map(|(i, _)| analysis.nanoseconds(i)).sum();
    (all as f64 / 1e3 - timeline.busy).max(0.0)
}

/// As a table; empty where there is no GPU event.
/// The default says too how much overlapped: busy time and that are the sum of all durations.
pub fn gpu_timeline<T: Time>(analysis: &Analysis<'_, T>, timeline: &Timeline) -> Table {
    let mut table = Table::new(&["type", ">time ms", ">percent"]);
    let overlap = (analysis.mode == Mode::Exact).then(|| ("overlapped_time", overlapped(analysis, timeline)));
    if timeline.total > 0.0 {
        for (name, time) in timeline.rows().into_iter().chain(overlap) {
            table.row(vec![name.into(), number(time / 1e3), number(time / timeline.total * 100.0)]);
        }
    }
    table
}

/// The same of each GPU; empty where there is only one.
pub fn gpu_timeline_by_device<T: Time>(analysis: &Analysis<'_, T>) -> Table {
    let mut table = Table::new(&["device", "type", ">time ms", ">percent"]);
    let gpus = Timeline::by_gpu(analysis);
    for (device, timeline) in gpus.iter().filter(|_| gpus.len() > 1) {
        for (name, time) in timeline.rows() {
            let share = number(time / timeline.total * 100.0);
            table.row(vec![device.as_str().into(), name.into(), number(time / 1e3), share]);
        }
    }
    table
}
