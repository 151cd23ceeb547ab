//! What each forward operation costs on its way back.

use super::number;
use crate::analysis::Analysis;
use crate::backward::pairs;
use crate::fast::Map;
use crate::interval::{Time, order};
use crate::nest::NONE;
use crate::scan::unescaped;
use gemwright_core::{Cell, Table};

/// By name of the forward operation: its own GPU time and that of the backward nodes tied to it.
pub fn ops_backward<T: Time>(analysis: &Analysis<'_, T>) -> Table {
    let pairs = pairs(analysis.trace);
    let mut role: Map<u32, usize> = Map::default();
    for (i, pair) in pairs.iter().enumerate() {
        role.insert(pair.forward, 2 * i);
        role.insert(pair.backward, 2 * i + 1);
    }
    let mut times = vec![0.0; 2 * pairs.len()];
    for &gpu in &analysis.links.order {
        let mut above = analysis.links.launcher[gpu as usize];
        while above != NONE {
            if let Some(place) = role.get(&above) {
                times[*place] += analysis.took(gpu);
            }
            above = analysis.parent[above as usize];
        }
    }
    let mut rows: Map<u32, (u64, f64, f64)> = Map::default();
    for (i, pair) in pairs.iter().enumerate() {
        let row = rows.entry(analysis.trace.events[pair.forward as usize].name).or_default();
        row.0 += 1;
        row.1 += times[2 * i];
        row.2 += times[2 * i + 1];
    }
    let mut rows: Vec<_> = rows.into_iter().collect();
    rows.sort_by(|x, y| order(&y.1.2, &x.1.2).then(x.0.cmp(&y.0)));
    let mut table =
        Table::new(&["name", ">Count", ">forward_kernel_time_ms", ">backward_kernel_time_ms", ">backward / forward"]);
    for (name, (count, forward, backward)) in rows {
        let ratio = if forward > 0.0 { number(backward / forward) } else { Cell::Empty };
        let name = unescaped(&analysis.trace.texts[name as usize]);
        table.row(vec![name.into(), count.into(), number(forward / 1e3), number(backward / 1e3), ratio]);
    }
    table
}
