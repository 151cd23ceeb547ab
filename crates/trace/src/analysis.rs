//! A trace with its events nested and tied together.

use crate::category::{Work, is_communication, is_copy_kernel, operation};
use crate::event::{Category, Event, Trace};
use crate::fast::Map;
use crate::interval::{Span, Time, length, order, union};
use crate::link::{Links, links};
use crate::nest::{NONE, nest};
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
    /// Its place in the trace; `NONE` of what was launched outside the recording.
    pub event: u32,
    /// Its row in the lists of kernels.
    row: u32,
    /// Microseconds during which something of its own, and something below it, ran.
    pub direct_time: f64,
    pub subtree_time: f64,
    /// Microseconds of the GPU's busy time that count as its own: no instant counts twice.
    pub alone_time: f64,
    /// What kind of operation it is.
    pub category: &'static str,
}

/// The events of one GPU: the process they are filed under, and the device.
pub struct OnGpu {
    /// The number of a text.
    pub process: u32,
    /// As the profiler numbers it.
    pub device: Option<i64>,
    /// Places, with what they do.
    pub events: Vec<(u32, Work)>,
}

/// The name of a row for what was launched outside the recording.
pub const UNLINKED: &str = "(unlinked)";

/// Lists of places, one after the other.
#[derive(Default)]
pub(crate) struct Lists {
    start: Vec<u32>,
    items: Vec<u32>,
}

impl Lists {
    /// From pairs of a row and an item; items keep their order.
    pub fn of(pairs: &[(u32, u32)], rows: usize) -> Lists {
        let mut start = vec![0; rows + 1];
        for (row, _) in pairs {
            start[*row as usize + 1] += 1;
        }
        for i in 0..rows {
            start[i + 1] += start[i];
        }
        let mut next = start.clone();
        let mut items = vec![0; pairs.len()];
        for (row, item) in pairs {
            let at = &mut next[*row as usize];
            items[*at as usize] = *item;
            *at += 1;
        }
        Lists { start, items }
    }

    pub fn row(&self, row: u32) -> &[u32] {
        &self.items[self.start[row as usize] as usize..self.start[row as usize + 1] as usize]
    }

    fn row_mut(&mut self, row: u32) -> &mut [u32] {
        &mut self.items[self.start[row as usize] as usize..self.start[row as usize + 1] as usize]
    }
}

/// Everything the tables are made of.
pub struct Analysis<'t, T> {
    /// The events.
    pub trace: &'t Trace,
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
    /// The host event around each host event.
    pub parent: Vec<u32>,
    /// Host events that fit into no other.
    pub misfits: Vec<u32>,
    kernels: Lists,
    subtrees: Lists,
    /// Of each name, whether it is that of a communication kernel or of a copy.
    communicates: Vec<bool>,
    copies: Vec<bool>,
    /// The place among `launchers` of each event that is one.
    place: Vec<u32>,
}

impl<'t, T: Time> Analysis<'t, T> {
    /// Nests and ties.
    pub fn new(trace: &'t Trace, mode: Mode) -> Analysis<'t, T> {
        let mut problems = trace.problems.clone();
        let spans = T::spans(trace, &mut problems);
        let (nest, links) = std::thread::scope(|scope| {
            let nested = scope.spawn(|| nest(trace, &spans));
            let links = links(trace, mode, &mut problems);
            (nested.join().unwrap_or_default(), links)
        });
        let mut analysis = Analysis {
            trace,
            mode,
            spans,
            links,
            launchers: Vec::new(),
            problems,
            parent: nest.parent,
            misfits: nest.misfits,
            kernels: Lists::default(),
            subtrees: Lists::default(),
            communicates: trace.texts.iter().map(|name| is_communication(name)).collect(),
            copies: trace.texts.iter().map(|name| is_copy_kernel(name)).collect(),
            place: vec![NONE; trace.events.len()],
        };
        analysis.find_launchers();
        analysis
    }

    fn find_launchers(&mut self) {
        let (mut found, own) = self.launching_events();
        self.kernels = Lists::of(&own, found.len());
        self.subtrees = Lists::of(&self.below(), found.len());
        let alone = self.alone_times();
        let mut categories: Map<(u32, u32), &'static str> = Map::default();
        for launcher in &mut found {
            let spans = &self.spans;
            let kernels = self.kernels.row_mut(launcher.row);
            kernels.sort_by(|x, y| order(&spans[*x as usize].start, &spans[*y as usize].start));
            let kernels = self.kernels.row(launcher.row);
            launcher.direct_time = self.busy(kernels).microseconds();
            launcher.alone_time = kernels.iter().map(|i| alone[*i as usize]).sum::<T>().microseconds();
            if launcher.event == NONE {
                (launcher.category, launcher.subtree_time) = (UNLINKED, launcher.direct_time);
                continue;
            }
            let subtree = self.subtrees.row(launcher.row);
            launcher.subtree_time =
                if subtree == kernels { launcher.direct_time } else { self.busy(subtree).microseconds() };
            let name_of = |place: u32| self.trace.events[place as usize].name;
            let key = (name_of(launcher.event), name_of(kernels[0]));
            launcher.category = categories.entry(key).or_insert_with(|| self.kind(key));
        }
        let begins = |launcher: &Launcher| match launcher.event {
            NONE => self.spans[self.kernels.row(launcher.row)[0] as usize].start,
            event => self.spans[event as usize].start,
        };
        found.sort_by(|x, y| order(&begins(x), &begins(y)));
        for (i, launcher) in found.iter().enumerate().filter(|(_, l)| l.event != NONE) {
            self.place[launcher.event as usize] = i as u32;
        }
        self.launchers = found;
    }

    /// Whatever launched something itself, with its rows of GPU events, in order of the file.
    fn launching_events(&mut self) -> (Vec<Launcher>, Vec<(u32, u32)>) {
        let mut found: Vec<Launcher> = Vec::new();
        let mut own: Vec<(u32, u32)> = Vec::new();
        let new = |event: u32, found: &mut Vec<Launcher>| {
            let row = found.len() as u32;
            found.push(Launcher { event, row, direct_time: 0.0, subtree_time: 0.0, alone_time: 0.0, category: "" });
            row
        };
        for (i, event) in self.trace.events.iter().enumerate().filter(|(_, e)| e.category.on_gpu()) {
            let call = self.links.launcher[i];
            if self.mode == Mode::TraceLens && (call == NONE || self.communicates[event.name as usize]) {
                continue;
            }
            if call == NONE {
                own.push((new(NONE, &mut found), i as u32));
                continue;
            }
            let launcher = self.launcher_of(call);
            if self.place[launcher as usize] == NONE {
                self.place[launcher as usize] = new(launcher, &mut found);
            }
            own.push((self.place[launcher as usize], i as u32));
        }
        (found, own)
    }

    /// What was launched below each launcher, in order of the calls.
    fn below(&self) -> Vec<(u32, u32)> {
        let mut pairs = Vec::with_capacity(self.links.order.len());
        for &gpu in &self.links.order {
            let mut above = self.links.launcher[gpu as usize];
            while above != NONE {
                if self.place[above as usize] != NONE {
                    pairs.push((self.place[above as usize], gpu));
                }
                above = self.parent[above as usize];
            }
        }
        pairs
    }

    /// What was launched below each event on the host, in order of the calls.
    pub(crate) fn all_below(&self) -> Lists {
        let mut pairs = Vec::new();
        for &gpu in &self.links.order {
            let mut above = self.links.launcher[gpu as usize];
            while above != NONE {
                pairs.push((above, gpu));
                above = self.parent[above as usize];
            }
        }
        Lists::of(&pairs, self.trace.events.len())
    }

    fn kind(&self, (name, first_kernel): (u32, u32)) -> &'static str {
        let texts = &self.trace.texts;
        let kind = operation(&texts[name as usize], Some(&texts[first_kernel as usize]));
        match kind {
            "other" if self.mode == Mode::Exact && self.communicates[first_kernel as usize] => "communication",
            kind => kind,
        }
    }

    /// What a launcher launched itself, by time.
    pub fn kernels(&self, launcher: &Launcher) -> &[u32] {
        self.kernels.row(launcher.row)
    }

    /// What was launched below it, in the order of the calls.
    pub fn subtree(&self, launcher: &Launcher) -> &[u32] {
        self.subtrees.row(launcher.row)
    }

    /// The name of a launcher, as written.
    pub fn name(&self, launcher: &Launcher) -> &[u8] {
        if launcher.event == NONE { UNLINKED.as_bytes() } else { self.trace.name(launcher.event) }
    }

    /// The event that is this launcher, if there is one.
    pub fn event(&self, launcher: &Launcher) -> Option<&Event> {
        self.trace.events.get(launcher.event as usize)
    }

    /// The launcher that an event is, if it is one.
    pub fn launcher_at(&self, event: u32) -> Option<&Launcher> {
        self.launchers.get(self.place[event as usize] as usize)
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
        match self.launcher_at(event) {
            Some(launcher) => launcher.category,
            None => operation(self.trace.name(event), None),
        }
    }

    /// Length of the union of what these GPU events took.
    pub(crate) fn busy(&self, gpu: &[u32]) -> T {
        match gpu {
            [one] => {
                let span = self.spans[*one as usize];
                span.end - span.start
            }
            several => length(&union(several.iter().map(|i| self.spans[*i as usize]).collect())),
        }
    }

    /// Microseconds that a GPU event took: as written, or up to where it was cut.
    pub fn took(&self, gpu: u32) -> f64 {
        match self.mode {
            Mode::TraceLens => crate::number::microseconds(self.trace.events[gpu as usize].duration),
            Mode::Exact => self.busy(&[gpu]).microseconds(),
        }
    }

    /// Nanoseconds that a GPU event took, up to where it was cut.
    pub fn nanoseconds(&self, gpu: u32) -> i64 {
        (self.took(gpu) * 1e3).round() as i64
    }

    /// The category of an event that answers for a kernel.
    pub fn kind_of(&self, event: u32, kernel: u32) -> &'static str {
        let name_of = |place: u32| self.trace.events[place as usize].name;
        self.kind((name_of(event), name_of(kernel)))
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

    /// What ran on each GPU, in order of the file.
    pub fn by_gpu(&self) -> Vec<OnGpu> {
        let mut places: Map<(u32, Option<i64>), usize> = Map::default();
        let mut gpus: Vec<OnGpu> = Vec::new();
        for (i, work) in self.gpu_events() {
            let event = &self.trace.events[i as usize];
            let (process, device) = (self.trace.process(event.lane), self.trace.queue(event).device.get());
            let place = *places.entry((process, device)).or_insert_with(|| {
                gpus.push(OnGpu { process, device, events: Vec::new() });
                gpus.len() - 1
            });
            gpus[place].events.push((i, work));
        }
        gpus
    }

    /// The part of the busy time that belongs to each GPU event. Where several run at once an instant
    /// belongs to computing before communication before copies, and then to what began first: so the
    /// parts add up to the timeline. TraceLens has no such figure.
    fn alone_times(&self) -> Vec<T> {
        let mut alone = vec![T::default(); self.trace.events.len()];
        if self.mode == Mode::TraceLens {
            return alone;
        }
        for OnGpu { mut events, .. } in self.by_gpu() {
            events.sort_by(|x, y| order(&self.spans[x.0 as usize].start, &self.spans[y.0 as usize].start));
            crate::interval::share_out(&events, |i| self.spans[i as usize], &mut alone);
        }
        alone
    }
}
