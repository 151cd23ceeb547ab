//! Where the GPU's time went: busy on what, exposed, idle.

use super::number;
use crate::analysis::{Analysis, Mode, OnGpu};
use crate::category::Work;
use crate::interval::{Span, Time, difference, length, order, union};
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

    /// The time from the first to the last event in pieces of equal length, of each the shares that are spent computing,
    /// only communicating and only copying, over all GPUs.
    pub fn along<T: Time>(analysis: &Analysis<'_, T>, pieces: usize) -> Vec<[f64; 3]> {
        let start = analysis.gpu_events().map(|(i, _)| analysis.spans[i as usize].start).min_by(order);
        let (Some(start), Some(window)) = (start, window(analysis)) else { return Vec::new() };
        let (gpus, piece) = (analysis.by_gpu(), window.microseconds() / pieces as f64);
        let mut shares = vec![[0.0; 3]; pieces];
        if piece <= 0.0 {
            return Vec::new();
        }
        for gpu in &gpus {
            let spans = Spans::of(analysis, gpu.events.iter().copied());
            for (part, spans) in [&spans.compute, &spans.exposed, &spans.bare].into_iter().enumerate() {
                for span in spans {
                    let [from, to] = [span.start, span.end].map(|time| (time - start).microseconds() / piece);
                    let touched = shares.iter_mut().enumerate().take(to as usize + 1).skip(from as usize);
                    for (at, share) in touched {
                        let inside = to.min(at as f64 + 1.0) - from.max(at as f64);
                        share[part] += inside.max(0.0) / gpus.len() as f64;
                    }
                }
            }
        }
        shares
    }

    /// Adds up; the time goes from the first event to the last where no window is given.
    fn of_events<T: Time>(
        analysis: &Analysis<'_, T>,
        events: impl Iterator<Item = (u32, Work)>,
        window: Option<T>,
    ) -> Timeline {
        let Spans { compute, communication, copies, exposed, bare, all } = Spans::of(analysis, events);
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

/// When something of a kind ran.
struct Spans<T> {
    compute: Vec<Span<T>>,
    communication: Vec<Span<T>>,
    copies: Vec<Span<T>>,
    /// Communication while nothing is computed.
    exposed: Vec<Span<T>>,
    /// Copies while nothing else goes on.
    bare: Vec<Span<T>>,
    all: Vec<Span<T>>,
}

impl<T: Time> Spans<T> {
    fn of(analysis: &Analysis<'_, T>, events: impl Iterator<Item = (u32, Work)>) -> Spans<T> {
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
        let exposed = difference(&communication, &compute);
        let bare = difference(&difference(&copies, &compute), &communication);
        Spans { exposed, bare, compute, communication, copies, all: union(all) }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Reading, read};

    #[test]
    fn pieces_of_the_time_add_up() {
        // Computing from 0 to 40, a copy from 30 to 50 of which 10 are seen, nothing until 90, computing to 100.
        let event = |category: &str, name: &str, start: u32, length: u32| {
            format!(
                r#"{{"ph": "X", "cat": "{category}", "name": "{name}", "pid": 0, "tid": {start}, "ts": {start}, "dur": {length},
                    "args": {{"device": 0, "stream": {start}}}}}"#
            )
        };
        let events = [
            event("kernel", "gemm", 0, 40),
            event("gpu_memcpy", "Memcpy HtoD", 30, 20),
            event("kernel", "gemm", 90, 10),
        ];
        let text = format!("{{\"traceEvents\": [{}]}}", events.join(","));
        let trace = read(text.as_bytes(), Reading::default()).unwrap();
        let analysis = Analysis::<i64>::new(&trace, Mode::Exact);
        let along = Timeline::along(&analysis, 4);
        let whole = [[1.0, 0.0, 0.0], [0.6, 0.0, 0.4], [0.0, 0.0, 0.0], [0.4, 0.0, 0.0]];
        for (piece, expected) in along.iter().flatten().zip(whole.iter().flatten()) {
            assert!((piece - expected).abs() < 1e-9, "{along:?}");
        }
        let timeline = Timeline::of(&analysis);
        for pieces in [1, 3, 7, 240] {
            let along = Timeline::along(&analysis, pieces);
            let sum = |part: usize| along.iter().map(|piece| piece[part]).sum::<f64>() * timeline.total / pieces as f64;
            assert!((sum(0) - timeline.computation).abs() < 1e-6 && (sum(2) - timeline.exposed_copies).abs() < 1e-6);
        }
        let nothing = read(&b"{\"traceEvents\": []}"[..], Reading::default()).unwrap();
        assert!(Timeline::along(&Analysis::<i64>::new(&nothing, Mode::Exact), 4).is_empty());
    }
}
