//! Products one after the other in one graph, as a layer has them: what each candidate's kernels take together, where each
//! begins when the one before it has what it needs.

use super::bench::{Method, operand, sets};
use super::queue::CudaQueue;
use crate::bench::Times;
use crate::candidate::{Candidate, Plan};
use crate::problem::Problem;
use gemwright_cuda::{CudaError, Event, Graph, Memory, Tools};

/// A product of the chain: how often it comes, and who multiplies in each chain.
pub struct Link<'a> {
    #[allow(missing_docs)]
    pub problem: Problem,
    #[allow(missing_docs)]
    pub count: usize,
    /// As many as there are chains.
    pub candidates: Vec<&'a dyn Candidate>,
}

/// A chain ready to run.
struct Chain {
    times: Times,
    graph: Graph,
    turns: usize,
    _plans: Vec<(Box<dyn Plan>, Memory)>,
}

/// Measures chains by name, window by window. Every product has weights of its own.
pub fn measure_chains(
    names: &[&str],
    links: &[Link<'_>],
    queue: &CudaQueue,
    tools: &Tools,
    method: &Method,
) -> Result<Vec<Times>, CudaError> {
    let operands = links
        .iter()
        .map(|link| sets(&link.problem, queue, tools, link.count..=link.count))
        .collect::<Result<Vec<_>, _>>()?;
    let device = queue.stream.device();
    let [before, after] = &[Event::new(device)?, Event::new(device)?];
    let mut chains = Vec::new();
    for (i, name) in names.iter().enumerate() {
        let mut plans = Vec::new();
        for link in links {
            let plan = link.candidates[i].prepare(&link.problem).map_err(|why| CudaError::Refused(why.to_string()))?;
            let workspace = Memory::new(device, plan.workspace(queue).max(1))?;
            plans.push((plan, workspace));
        }
        let run = |turns: usize| {
            for _ in 0..turns {
                for ((link, sets), (plan, workspace)) in links.iter().zip(&operands).zip(&plans) {
                    for set in sets {
                        let region = operand(workspace, 0).region;
                        // SAFETY: sets and workspace have room for every element and live longer than the stream's work.
                        unsafe { plan.run(queue, &set.operands(&link.problem), region) }
                            .map_err(|why| CudaError::Refused(why.to_string()))?;
                    }
                }
            }
            Ok::<(), CudaError>(())
        };
        // Loaded, and about how long it takes.
        run(1)?;
        queue.stream.synchronize()?;
        before.record(&queue.stream)?;
        run(1)?;
        after.record(&queue.stream)?;
        let turns = (method.window / after.seconds_since(before)?.max(1e-7)).ceil().clamp(1.0, 100.0) as usize;
        let graph = queue.stream.capture(|| run(turns))?;
        let times = Times { name: (*name).into(), own: false, values: Vec::new() };
        chains.push(Chain { times, graph, turns, _plans: plans });
    }
    // The first round is not counted.
    for round in 0..=method.rounds {
        for chain in &mut chains {
            std::thread::sleep(method.pause);
            before.record(&queue.stream)?;
            // SAFETY: operands and plans are still here.
            unsafe { chain.graph.launch(&queue.stream)? };
            after.record(&queue.stream)?;
            let seconds = after.seconds_since(before)? / chain.turns as f64;
            if round > 0 {
                chain.times.values.push(seconds);
            }
        }
    }
    Ok(chains.into_iter().map(|chain| chain.times).collect())
}
