//! Candidates on a GPU, window by window: a window is a graph of as many products as take a millisecond and a half,
//! over operands that no cache holds together. At full clocks there is a pause before each; sustained there is none, and
//! the card runs at the power it may draw.

use super::queue::CudaQueue;
use super::routing::{Routing, group_ends};
use crate::bench::Times;
use crate::candidate::{Candidate, Operand, Operands, Plan, Region};
use crate::epilogue::Parts;
use crate::problem::{Layout, Problem, Scaling};
use gemwright_core::DType;
use gemwright_cuda::{CudaError, Event, Graph, Memory, Stream, Tools};
use std::ops::RangeInclusive;
use std::time::Duration;

/// How it is measured.
#[derive(Debug, Clone, Copy)]
pub struct Method {
    /// Windows of every candidate.
    pub rounds: usize,
    /// Seconds of a window.
    pub window: f64,
    /// Before every window.
    pub pause: Duration,
    /// Of problems with groups.
    pub routing: Routing,
}

impl Method {
    /// At full clocks.
    pub const BURST: Method =
        Method { rounds: 7, window: 1.5e-3, pause: Duration::from_millis(8), routing: Routing::Even };
    /// At the power limit.
    pub const SUSTAINED: Method = Method { window: 4e-3, pause: Duration::ZERO, ..Method::BURST };
}

/// Bytes that the operands of one window come to at least.
const BEYOND_CACHE: usize = 256 << 20;
/// Sets of operands at most.
pub(super) const MOST_SETS: usize = 64;
/// Products of a window at most.
const MOST_PRODUCTS: usize = 1500;

/// Operands in turns.
pub(super) struct Set {
    a: Memory,
    b: Memory,
    out: Memory,
    parts: Parts<Memory>,
    kept: Option<Memory>,
    group_ends: Option<Memory>,
    scales: [Option<Memory>; 2],
}

/// Who takes part, on what.
#[derive(Clone, Copy)]
#[allow(missing_docs)]
pub struct Contestant<'a> {
    pub candidate: &'a dyn Candidate,
    pub problem: &'a Problem,
}

/// What was measured.
#[derive(Debug, Clone)]
pub struct Measured {
    /// Seconds of a product, of each candidate in its windows.
    pub times: Vec<Times>,
    /// Of those whose problem is another.
    pub beside: Vec<Times>,
    /// Candidates that refused, with the reason.
    pub left_out: Vec<(String, String)>,
}

fn elements(layout: &Layout, batch: u64, rows: u64, cols: u64) -> usize {
    layout.reach(batch, rows, cols).map_or(0, |(least, most)| (most - least + 1) as usize)
}

fn first(layout: &Layout, batch: u64, rows: u64, cols: u64) -> usize {
    layout.reach(batch, rows, cols).map_or(0, |(least, _)| (-least) as usize)
}

/// Memory of the device as an operand.
pub(super) fn operand(memory: &Memory, first: usize) -> Operand {
    let address = std::ptr::without_provenance_mut(memory.address() as usize);
    Operand { region: Region { address, bytes: memory.bytes() }, first }
}

/// Sets of random operands for a problem: as many of so many as no cache holds together.
pub(super) fn sets(
    problem: &Problem,
    queue: &CudaQueue,
    tools: &Tools,
    many: RangeInclusive<usize>,
    routing: Routing,
) -> Result<Vec<Set>, CudaError> {
    let p = problem.product;
    let [bytes, weight_bytes, out_bytes] =
        [problem.dtype, problem.weight_dtype, problem.out_dtype].map(|dtype| dtype.bytes() as usize);
    let [of_a, of_b, of_out] = problem.matrices();
    let a = elements(&problem.a, of_a, p.m, p.k) * bytes;
    let b = elements(&problem.b, of_b, p.k, problem.weight_cols()) * weight_bytes;
    let kept = problem.epilogue.kept.map(|kept| elements(&kept, p.batch, p.m, problem.weight_cols()) * out_bytes);
    let out = elements(&problem.out, of_out, p.m, p.n) * out_bytes;
    let count = BEYOND_CACHE.div_ceil((a + b + out).max(1)).clamp(*many.start(), *many.end());
    let device = queue.stream.device();
    let filled = |bytes: usize, dtype, seed: u64| {
        let memory = Memory::new(device, bytes)?;
        tools.fill(&queue.stream, &memory, dtype, seed, 1.0)?;
        Ok::<Memory, CudaError>(memory)
    };
    (0..count as u64)
        .map(|i| {
            let mut parts: Parts<Memory> = Parts::default();
            for (part, layout) in parts.iter_mut().zip(&problem.epilogue.parts) {
                if let Some(layout) = layout {
                    let bytes = elements(layout, p.batch, p.m, p.n) * out_bytes;
                    *part = Some(filled(bytes, problem.out_dtype, i * 8 + 3)?);
                }
            }
            Ok(Set {
                a: filled(a, problem.dtype, i * 8)?,
                b: filled(b, problem.weight_dtype, i * 8 + 1)?,
                out: filled(out, problem.out_dtype, i * 8 + 2)?,
                parts,
                kept: kept.map(|kept| Memory::new(device, kept)).transpose()?,
                scales: scales(problem, &queue.stream, tools)?,
                group_ends: group_ends(problem, routing, device, &queue.stream)?.map(|(memory, _)| memory),
            })
        })
        .collect()
}

/// Factors of a and of b, where a problem has them.
pub(super) fn scales(problem: &Problem, stream: &Stream, tools: &Tools) -> Result<[Option<Memory>; 2], CudaError> {
    let lines = [problem.product.m, problem.weight_cols()];
    let mut all = [None, None];
    for (side, ((memory, scaling), lines)) in all.iter_mut().zip(problem.scales).zip(lines).enumerate() {
        let count = match scaling {
            Scaling::None => continue,
            Scaling::Tensor => 1,
            Scaling::Rows => lines as usize,
        };
        let factors = Memory::new(stream.device(), count.max(1) * 4)?;
        tools.fill(stream, &factors, DType::F32, 77 + side as u64, 1.0)?;
        *memory = Some(factors);
    }
    Ok(all)
}

impl Set {
    pub(super) fn operands(&self, problem: &Problem) -> Operands {
        let p = problem.product;
        let mut operands = Operands::new(
            operand(&self.a, first(&problem.a, p.batch, p.m, p.k)),
            operand(&self.b, first(&problem.b, p.batch, p.k, problem.weight_cols())),
            operand(&self.out, first(&problem.out, p.batch, p.m, p.n)),
        );
        for ((part, memory), layout) in operands.parts.iter_mut().zip(&self.parts).zip(&problem.epilogue.parts) {
            *part =
                memory.as_ref().zip(*layout).map(|(memory, layout)| operand(memory, first(&layout, p.batch, p.m, p.n)));
        }
        let kept = self.kept.as_ref().zip(problem.epilogue.kept);
        operands.scales = [0, 1].map(|side| self.scales[side].as_ref().map(|factors| operand(factors, 0)));
        operands.group_ends = self.group_ends.as_ref().map(|ends| operand(ends, 0));
        operands.kept =
            kept.map(|(memory, layout)| operand(memory, first(&layout, p.batch, p.m, problem.weight_cols())));
        operands
    }
}

/// A candidate with its window.
struct Entry {
    times: Times,
    /// Its problem is the one that is measured, not one beside it.
    asked: bool,
    graph: Graph,
    products: usize,
    _plan: Box<dyn Plan>,
    _workspace: Memory,
}

/// Measures a problem with every candidate that takes it, by each method in turn: as many results as methods.
pub fn measure(
    problem: &Problem,
    candidates: &[&dyn Candidate],
    queue: &CudaQueue,
    tools: &Tools,
    methods: &[Method],
) -> Result<Vec<Measured>, CudaError> {
    let contestants: Vec<_> =
        candidates.iter().map(|candidate| Contestant { candidate: *candidate, problem }).collect();
    measure_each(problem, &contestants, queue, tools, methods)
}

/// The same where some have another problem, by the types of its operands for instance: they take turns all the same, and
/// are left out where there is no room for it.
pub fn measure_each(
    asked: &Problem,
    contestants: &[Contestant<'_>],
    queue: &CudaQueue,
    tools: &Tools,
    methods: &[Method],
) -> Result<Vec<Measured>, CudaError> {
    let routing = methods.first().map_or(Routing::Even, |method| method.routing);
    let (mut sets_of, mut without_room): (Vec<(&Problem, Vec<Set>)>, Vec<_>) = Default::default();
    for Contestant { candidate, problem } in contestants {
        if sets_of.iter().all(|(other, _)| other != problem) {
            match sets(problem, queue, tools, 1..=MOST_SETS, routing) {
                Ok(sets) => sets_of.push((problem, sets)),
                Err(why) if *problem == asked => return Err(why),
                Err(why) => without_room.push((candidate.name().to_string(), format!("beside the product: {why}"))),
            }
        }
    }
    let events = [Event::new(queue.stream.device())?, Event::new(queue.stream.device())?];
    let [before, after] = &events;
    let mut all = Vec::new();
    for method in methods {
        let mut left_out = without_room.clone();
        let mut entries: Vec<Entry> = Vec::new();
        for &Contestant { candidate, problem } in contestants {
            let Some((_, sets)) = sets_of.iter().find(|(other, _)| *other == problem) else { continue };
            let plan = match candidate.prepare(problem) {
                Ok(plan) => plan,
                Err(why) => {
                    left_out.push((candidate.name().to_string(), why.to_string()));
                    continue;
                }
            };
            let workspace = Memory::new(queue.stream.device(), plan.workspace(queue).max(1))?;
            let region = operand(&workspace, 0).region;
            let run = |count: usize| {
                for i in 0..count {
                    let operands = sets[i % sets.len()].operands(problem);
                    // SAFETY: sets and workspace have room for every element and live longer than the stream's work.
                    unsafe { plan.run(queue, &operands, region) }.map_err(|why| CudaError::Refused(why.to_string()))?;
                }
                Ok::<(), CudaError>(())
            };
            // Loaded, and about how long it takes.
            let tried = run(1).and_then(|()| queue.stream.synchronize()).and_then(|()| {
                before.record(&queue.stream)?;
                run(3)?;
                after.record(&queue.stream)?;
                after.seconds_since(before)
            });
            let taken = match tried {
                Ok(taken) => taken / 3.0,
                Err(why) => {
                    left_out.push((candidate.name().to_string(), why.to_string()));
                    continue;
                }
            };
            let products = ((method.window / taken.max(1e-7)).ceil() as usize).clamp(1, MOST_PRODUCTS);
            // Whole turns of the operands.
            let products = products.next_multiple_of(sets.len());
            let graph = queue.stream.capture(|| run(products))?;
            let times = Times { name: candidate.name().into(), own: candidate.is_own(), values: Vec::new() };
            let asked = problem == asked;
            entries.push(Entry { times, asked, graph, products, _plan: plan, _workspace: workspace });
        }
        // The first round is not counted.
        for round in 0..=method.rounds {
            for entry in &mut entries {
                std::thread::sleep(method.pause);
                before.record(&queue.stream)?;
                // SAFETY: sets and plan are still here.
                unsafe { entry.graph.launch(&queue.stream)? };
                after.record(&queue.stream)?;
                let seconds = after.seconds_since(before)? / entry.products as f64;
                if round > 0 {
                    entry.times.values.push(seconds);
                }
            }
        }
        let (times, beside): (Vec<Entry>, Vec<Entry>) = entries.into_iter().partition(|entry| entry.asked);
        let [times, beside] = [times, beside].map(|some| some.into_iter().map(|entry| entry.times).collect());
        all.push(Measured { times, beside, left_out });
    }
    Ok(all)
}
