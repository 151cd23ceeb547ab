//! Where the GPU's time went: busy on what, exposed, idle.

use super::number;
use crate::analysis::Analysis;
use crate::category::Work;
use crate::interval::{Time, difference, length, union};
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
    /// Adds up.
    pub fn of<T: Time>(analysis: &Analysis<'_, '_, T>) -> Timeline {
        let mut spans = [Vec::new(), Vec::new(), Vec::new()];
        let mut all = Vec::new();
        for (i, work) in analysis.gpu_events() {
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
        let total = match (all.first(), all.last()) {
            (Some(first), Some(last)) => (last.end - first.start).microseconds(),
            _ => 0.0,
        };
        Timeline {
            computation: length(&compute).microseconds(),
            exposed_communication: length(&exposed).microseconds(),
            exposed_copies: length(&bare).microseconds(),
            busy: length(&all).microseconds(),
            total,
            communication: length(&communication).microseconds(),
            copies: length(&copies).microseconds(),
        }
    }
}

/// As a table; empty where there is no GPU event.
pub fn gpu_timeline(timeline: &Timeline) -> Table {
    let mut table = Table::new(&["type", ">time ms", ">percent"]);
    if timeline.total <= 0.0 {
        return table;
    }
    for (name, time) in [
        ("computation_time", timeline.computation),
        ("exposed_comm_time", timeline.exposed_communication),
        ("exposed_memcpy_time", timeline.exposed_copies),
        ("busy_time", timeline.busy),
        ("idle_time", timeline.total - timeline.busy),
        ("total_time", timeline.total),
        ("total_comm_time", timeline.communication),
        ("total_memcpy_time", timeline.copies),
    ] {
        table.row(vec![name.into(), number(time / 1e3), number(time / timeline.total * 100.0)]);
    }
    table
}
