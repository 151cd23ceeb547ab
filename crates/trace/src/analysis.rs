//! A trace with its events nested and tied together.

use crate::category::{Work, is_communication, is_copy_kernel, operation};
use crate::event::{Category, Event, Trace};
use crate::fast::Map;
use crate::interval::{Span, Time, length, order, union};
use crate::link::{Links, links};
use crate::nest::{NONE, parents};
use crate::problems::Problems;

/// Whose rules hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// What is right.
    Exact,
    /// TraceLens's rules, its mistakes among them.
    TraceLens,
}

/// An operation, or a bare call, that launched work on the GPU.
pub struct Launcher {
    /// Its place in the trace.
    pub event: u32,
    /// What it launched itself, by time.
    pub kernels: Vec<u32>,
    /// What was launched below it.
    pub subtree: Vec<u32>,
    /// Microseconds during which something of the one and of the other ran.
    pub direct_time: f64,
    pub subtree_time: f64,
    /// What kind of operation it is.
    pub category: &'static str,
}

/// Everything the tables are made of.
pub struct Analysis<'t, 'a, T> {
    /// The events.
    pub trace: &'t Trace<'a>,
    /// Whose rules hold.
    pub mode: Mode,
    /// When each event ran.
    pub spans: Vec<Span<T>>,
    /// The launching call of each GPU event.
    pub links: Links,
    /// By time of their beginning.
    pub launchers: Vec<Launcher>,
    /// What was wrong, of the file and of the ties.
    pub problems: Problems,
    parent: Vec<u32>,
    /// Of each name, whether it is that of a communication kernel or of a copy.
    communicates: Vec<bool>,
    copies: Vec<bool>,
    /// The place among `launchers` of each event that is one.
    place: Vec<u32>,
}

impl<'t, 'a, T: Time> Analysis<'t, 'a, T> {
    /// Nests and ties.
    pub fn new(trace: &'t Trace<'a>, mode: Mode) -> Analysis<'t, 'a, T> {
        let mut problems = trace.problems.clone();
        let spans: Vec<Span<T>> = trace.events.iter().map(|e| T::span(e.start, e.duration)).collect();
        let (parent, links) = std::thread::scope(|scope| {
            let parent = scope.spawn(|| parents(trace, &spans));
            let links = links(trace, mode, &mut problems);
            (parent.join().unwrap_or_default(), links)
        });
        let place = vec![NONE; trace.events.len()];
        let communicates = trace.texts.iter().map(|name| is_communication(name)).collect();
        let copies = trace.texts.iter().map(|name| is_copy_kernel(name)).collect();
        let launchers = Vec::new();
        let mut analysis =
            Analysis { trace, mode, spans, links, launchers, problems, parent, communicates, copies, place };
        analysis.find_launchers();
        analysis
    }

    fn find_launchers(&mut self) {
        let events = &self.trace.events;
        let mut found: Vec<Launcher> = Vec::new();
        for (i, event) in events.iter().enumerate().filter(|(_, e)| e.category.on_gpu()) {
            let call = self.links.launcher[i];
            if call == NONE || self.communicates[event.name as usize] {
                continue;
            }
            let launcher = self.launcher_of(call);
            let place = &mut self.place[launcher as usize];
            if *place == NONE {
                *place = found.len() as u32;
                found.push(Launcher {
                    event: launcher,
                    kernels: Vec::new(),
                    subtree: Vec::new(),
                    direct_time: 0.0,
                    subtree_time: 0.0,
                    category: "",
                });
            }
            found[*place as usize].kernels.push(i as u32);
        }
        for &gpu in &self.links.order {
            let mut above = self.links.launcher[gpu as usize];
            while above != NONE {
                if let Some(launcher) = found.get_mut(self.place[above as usize] as usize) {
                    launcher.subtree.push(gpu);
                }
                above = self.parent[above as usize];
            }
        }
        let mut categories: Map<(u32, Option<u32>), &'static str> = Map::default();
        for launcher in &mut found {
            launcher.kernels.sort_by(|x, y| order(&self.spans[*x as usize].start, &self.spans[*y as usize].start));
            let first = launcher.kernels.first().copied();
            let key = (events[launcher.event as usize].name, first.map(|k| events[k as usize].name));
            launcher.category = categories
                .entry(key)
                .or_insert_with(|| operation(self.trace.name(launcher.event), first.map(|k| self.trace.name(k))));
            launcher.direct_time = self.busy(&launcher.kernels).microseconds();
            launcher.subtree_time = match launcher.subtree == launcher.kernels {
                true => launcher.direct_time,
                false => self.busy(&launcher.subtree).microseconds(),
            };
        }
        found.sort_by(|x, y| order(&self.spans[x.event as usize].start, &self.spans[y.event as usize].start));
        for (i, launcher) in found.iter().enumerate() {
            self.place[launcher.event as usize] = i as u32;
        }
        self.launchers = found;
    }

    /// The innermost operation above a call, or the call itself. `execute` is passed through.
    fn launcher_of(&self, call: u32) -> u32 {
        let mut above = if self.trace.events[call as usize].category == Category::CpuOp {
            call
        } else {
            self.parent[call as usize]
        };
        while above != NONE {
            let event = &self.trace.events[above as usize];
            match event.category {
                Category::CpuOp if self.trace.name(above) != b"execute" => return above,
                Category::CpuOp => {}
                // A driver call inside a runtime call hides nothing, except to TraceLens.
                _ if self.mode == Mode::TraceLens => return call,
                _ => {}
            }
            above = self.parent[above as usize];
        }
        call
    }

    /// The innermost operation above what launched a GPU event.
    pub fn operation_above(&self, gpu: u32) -> Option<u32> {
        let mut above = self.links.launcher[gpu as usize];
        while above != NONE && self.trace.events[above as usize].category != Category::CpuOp {
            above = self.parent[above as usize];
        }
        (above != NONE).then_some(above)
    }

    /// The category of an operation, by its own kernels where it launched some.
    pub fn category_of(&self, event: u32) -> &'static str {
        match self.launchers.get(self.place[event as usize] as usize) {
            Some(launcher) => launcher.category,
            None => operation(self.trace.name(event), None),
        }
    }

    /// Length of the union of what these GPU events took.
    fn busy(&self, gpu: &[u32]) -> T {
        match gpu {
            [one] => {
                let span = self.spans[*one as usize];
                span.end - span.start
            }
            several => length(&union(several.iter().map(|i| self.spans[*i as usize]).collect())),
        }
    }

    /// GPU events that the timeline counts, with what they do.
    pub fn gpu_events(&self) -> impl Iterator<Item = (u32, Work)> + '_ {
        let all = self.mode == Mode::Exact || !self.trace.has_operations();
        let events = self.trace.events.iter().enumerate();
        let gpu = events.filter(move |(i, e)| e.category.on_gpu() && (all || self.links.launcher[*i] != NONE));
        gpu.map(|(i, e)| (i as u32, self.work(e)))
    }

    fn work(&self, event: &Event) -> Work {
        let name = event.name as usize;
        match event.category {
            Category::Memcpy => Work::Copy,
            Category::Kernel if self.copies[name] => Work::Copy,
            _ if self.communicates[name] => Work::Communication,
            _ => Work::Compute,
        }
    }
}
