//! Which operations are rows of the unified table: a walk from the outermost inwards.

use crate::analysis::Lists;
use crate::backward::{NODE, nodes_behind, pairs};
use crate::category::{is_communication, operation};
use crate::event::{Category, Event};
use crate::fast::{Map, Set};
use crate::interval::{Time, order};
use crate::nest::NONE;
use crate::scan::unescaped;
use crate::tables::costs::{Costs, Metrics};
use crate::tracelens::{Cost, Fail};
use std::sync::Arc;

/// One row before rows are grouped.
pub struct Row {
    /// The event whose arguments and host time it has.
    pub event: u32,
    /// Another name, where it is a kernel made an operation of its own.
    pub name: Option<String>,
    pub uid: u32,
    pub kernels: Vec<u32>,
    pub category: &'static str,
    pub cost: Option<Arc<Cost>>,
    pub metrics: Option<Metrics>,
    pub time: f64,
    pub modelled: bool,
}

/// How a collected event is priced.
pub enum Price {
    Own,
    /// By the backward of this forward event.
    Backward(u32),
    None,
}

pub struct Collector<'c, 'x, 't, T> {
    costs: &'c mut Costs<'x, 't, T>,
    /// What runs inside each event on the host, by time.
    children: Lists,
    /// The forward of each node of the backward graph, and the nodes of each forward.
    forward: Map<u32, u32>,
    nodes: Map<u32, Vec<u32>>,
    pub collected: Vec<(u32, Price)>,
    communicates: Vec<bool>,
    /// Calls that launched something.
    launched: Set<u32>,
}

impl<'c, 'x, 't, T: Time> Collector<'c, 'x, 't, T> {
    pub fn new(costs: &'c mut Costs<'x, 't, T>) -> Self {
        let analysis = costs.analysis;
        let mut inside: Vec<(u32, u32)> = Vec::new();
        let mut host: Vec<u32> = (0..analysis.trace.events.len() as u32)
            .filter(|i| analysis.trace.events[*i as usize].category.on_host())
            .collect();
        host.sort_by(|x, y| order(&analysis.spans[*x as usize].start, &analysis.spans[*y as usize].start));
        for i in host {
            if analysis.parent[i as usize] != NONE {
                inside.push((analysis.parent[i as usize], i));
            }
        }
        let children = Lists::of(&inside, analysis.trace.events.len());
        let forward = pairs(analysis.trace).into_iter().map(|pair| (pair.backward, pair.forward)).collect();
        let communicates = analysis.trace.texts.iter().map(|name| is_communication(name)).collect();
        let nodes = nodes_behind(analysis.trace, &analysis.parent);
        let launched = analysis.links.order.iter().map(|gpu| analysis.links.launcher[*gpu as usize]).collect();
        Collector { costs, children, forward, nodes, collected: Vec::new(), communicates, launched }
    }

    fn event(&self, place: u32) -> &'t Event {
        &self.costs.analysis.trace.events[place as usize]
    }

    fn launches(&self, place: u32) -> bool {
        !self.costs.below.row(place).is_empty()
    }

    /// Operations at the top: no other is around them.
    pub fn roots(&self) -> Vec<u32> {
        let analysis = self.costs.analysis;
        let top = |place: &u32| {
            let mut above = analysis.parent[*place as usize];
            while above != NONE && analysis.trace.events[above as usize].category != Category::CpuOp {
                above = analysis.parent[above as usize];
            }
            above == NONE
        };
        let operations = (0..analysis.trace.events.len() as u32)
            .filter(|i| analysis.trace.events[*i as usize].category == Category::CpuOp);
        // Events that fit nowhere are not in the tree.
        let misfits: Set<u32> = analysis.misfits.iter().copied().collect();
        let mut roots: Vec<u32> = operations.filter(top).filter(|i| !misfits.contains(i)).collect();
        roots.sort_by(|x, y| order(&analysis.spans[*x as usize].start, &analysis.spans[*y as usize].start));
        roots
    }

    pub fn visit(&mut self, place: u32) {
        // Deep trees would need a deep stack: places still to visit, the next last.
        let mut waiting = vec![place];
        while let Some(place) = waiting.pop() {
            if self.event(place).category != Category::CpuOp || !self.launches(place) {
                continue;
            }
            if self.costs.model(place).is_some() {
                self.collected.push((place, Price::Own));
                continue;
            }
            let forward = self.sole_backward(place);
            let below = self.modelled_below(place);
            if let Some(forward) = forward.filter(|_| !below) {
                self.collected.push((place, Price::Backward(forward)));
                continue;
            }
            if below {
                waiting.extend(self.children.row(place).iter().rev());
                continue;
            }
            if self.is_leaf(place) {
                let children = self.children.row(place).to_vec();
                let modelled: Vec<u32> =
                    children.into_iter().filter(|child| self.is_modelled_operation(*child)).collect();
                if !modelled.is_empty() {
                    waiting.extend(modelled.iter().rev());
                } else if !self.communicates_below(place) {
                    self.collected.push((place, Price::None));
                }
                continue;
            }
            waiting.extend(self.children.row(place).iter().rev());
        }
    }

    fn is_modelled_operation(&mut self, place: u32) -> bool {
        self.event(place).category == Category::CpuOp && self.launches(place) && self.costs.model(place).is_some()
    }

    fn communicates_below(&self, place: u32) -> bool {
        self.costs.below.row(place).iter().any(|gpu| self.communicates[self.event(*gpu).name as usize])
    }

    /// Some operation inside has a model and launches something.
    fn modelled_below(&mut self, place: u32) -> bool {
        let mut waiting: Vec<u32> = self.children.row(place).to_vec();
        while let Some(child) = waiting.pop() {
            if self.event(child).category != Category::CpuOp {
                continue;
            }
            if self.is_modelled_operation(child) {
                return true;
            }
            waiting.extend(self.children.row(child));
        }
        false
    }

    /// It launches something itself, through a call of the runtime: calls of the driver do not count.
    fn is_leaf(&self, place: u32) -> bool {
        let mut waiting: Vec<(u32, u32)> = self.children.row(place).iter().map(|child| (*child, 9)).collect();
        while let Some((child, depth)) = waiting.pop() {
            if self.event(child).category != Category::Runtime {
                continue;
            }
            if self.launched.contains(&child) {
                return true;
            }
            if depth > 0 {
                waiting.extend(self.children.row(child).iter().map(|c| (*c, depth - 1)));
            }
        }
        false
    }

    /// The forward that the operation at `place` is the only backward of, where that can be priced.
    fn sole_backward(&mut self, place: u32) -> Option<u32> {
        let analysis = self.costs.analysis;
        let mut above = place;
        let mut node = None;
        for _ in 0..5 {
            above = analysis.parent[above as usize];
            if above == NONE {
                break;
            }
            if self.forward.contains_key(&above) {
                node = Some(above);
                break;
            }
        }
        let node = node?;
        let forward = self.forward[&node];
        let model = self.costs.model(forward)?;
        let wanted = analysis.trace.name(node).strip_prefix(NODE);
        let mut count = 0;
        let mut waiting: Vec<u32> = self.children.row(node).to_vec();
        while let Some(child) = waiting.pop() {
            if self.event(child).category != Category::CpuOp {
                continue;
            }
            let named = wanted.is_none_or(|name| analysis.trace.name(child) == name);
            count += usize::from(named && self.launches(child));
            waiting.extend(self.children.row(child));
        }
        if count != 1 || model.backward.is_none() {
            return None;
        }
        let kernels = self.backward_kernels(forward);
        self.costs.cost(forward, &kernels).ok()?.backward.map(|_| forward)
    }

    fn backward_kernels(&self, forward: u32) -> Vec<u32> {
        let nodes = self.nodes.get(&forward).map_or(&[][..], Vec::as_slice);
        let all = nodes.iter().flat_map(|node| self.costs.below.row(*node).iter().copied()).collect();
        self.costs.by_time(all)
    }

    fn category(&self, place: u32) -> &'static str {
        self.costs.analysis.category_of(place)
    }

    /// A collected event as a row; `None` where its model says it has none.
    pub fn row(&mut self, place: u32, price: &Price) -> Option<Row> {
        let kernels = self.costs.below.row(place).to_vec();
        let mut row = Row {
            event: place,
            name: None,
            uid: self.event(place).uid,
            category: self.category(place),
            cost: None,
            metrics: None,
            time: f64::NAN,
            modelled: !matches!(price, Price::None),
            kernels,
        };
        let (cost, by_time, backward) = match price {
            Price::Own => {
                let by_time = self.costs.by_time(row.kernels.clone());
                (self.costs.cost(place, &by_time), by_time, false)
            }
            Price::Backward(forward) => {
                let by_time = self.backward_kernels(*forward);
                let model = self.costs.model(*forward);
                row.category = model.and_then(|m| m.backward).unwrap_or(row.category);
                (self.costs.cost(*forward, &by_time), by_time, true)
            }
            Price::None => (Err(Fail::Error), Vec::new(), false),
        };
        match cost {
            Ok(cost) => {
                let work = if backward { cost.backward } else { cost.forward }?;
                let metrics = Metrics::of(&work, self.costs.busy(&by_time));
                (row.time, row.metrics, row.cost) = (metrics.time, Some(metrics), Some(cost));
            }
            Err(Fail::NotImplemented) => return None,
            Err(Fail::Error) if row.kernels.is_empty() => {}
            Err(Fail::Error) => row.time = self.costs.busy(&row.kernels),
        }
        Some(row)
    }

    /// Kernels below nothing that was collected, each an operation of its own.
    pub fn leftovers(&self) -> Vec<Row> {
        let analysis = self.costs.analysis;
        let trace = analysis.trace;
        let taken: Set<u32> =
            self.collected.iter().flat_map(|(place, _)| self.costs.below.row(*place).iter().copied()).collect();
        let mut orphans: Vec<(u32, Vec<u32>)> = Vec::new();
        let mut places: Map<u32, usize> = Map::default();
        let mut others: Vec<(u32, u32)> = Vec::new();
        for (i, event) in trace.events.iter().enumerate().filter(|(_, e)| e.category.on_gpu()) {
            let gpu = i as u32;
            let call = analysis.links.launcher[i];
            if taken.contains(&gpu) || self.communicates[event.name as usize] || call == NONE {
                continue;
            }
            match analysis.operation_above(gpu) {
                Some(operation) => others.push((operation, gpu)),
                None => {
                    let place = *places.entry(call).or_insert_with(|| {
                        orphans.push((call, Vec::new()));
                        orphans.len() - 1
                    });
                    orphans[place].1.push(gpu);
                }
            }
        }
        let listed = orphans.into_iter().flat_map(|(call, list)| list.into_iter().map(move |gpu| (call, gpu)));
        let mut rows = Vec::new();
        for (uid, (parent, gpu)) in (trace.count as u32..).zip(listed.chain(others)) {
            let [of, kernel] = [parent, gpu].map(|place| unescaped(trace.name(place)));
            let name = format!("{of}->{kernel} (Synthetic Op)");
            let first = analysis.launcher_at(parent).and_then(|l| analysis.kernels(l).first().copied());
            let category = operation(name.as_bytes(), first.map(|k| trace.name(k)));
            rows.push(Row {
                event: parent,
                name: Some(name),
                uid,
                kernels: vec![gpu],
                category,
                cost: None,
                metrics: None,
                time: self.costs.busy(&[gpu]),
                modelled: false,
            });
        }
        rows
    }
}
