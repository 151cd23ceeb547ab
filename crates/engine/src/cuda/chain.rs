//! Products one after the other in one graph, as a layer has them: what each candidate's kernels take together. Kernels of
//! ours begin beside the end of the one before them, where the queue says so.

use super::bench::{MOST_SETS, Measured, Method, operand, sets};
use super::queue::CudaQueue;
use super::routing::Routing;
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

/// Measures chains by name, window by window; one in which somebody refuses is left out, with the reason. Products that come
/// several times have weights of their own each time, as far as a cache would hold them.
pub fn measure_chains(
    names: &[&str],
    links: &[Link<'_>],
    queue: &CudaQueue,
    tools: &Tools,
    method: &Method,
) -> Result<Measured, CudaError> {
    let operands = links
        .iter()
        .map(|link| sets(&link.problem, queue, tools, 1..=link.count.clamp(1, MOST_SETS), Routing::Even))
        .collect::<Result<Vec<_>, _>>()?;
    let device = queue.stream.device();
    let [before, after] = &[Event::new(device)?, Event::new(device)?];
    let (mut chains, mut left_out) = (Vec::new(), Vec::new());
    for (i, name) in names.iter().enumerate() {
        let prepared =
            links.iter().map(|link| link.candidates[i].prepare(&link.problem)).collect::<Result<Vec<_>, _>>();
        let prepared = match prepared {
            Ok(prepared) => prepared,
            Err(why) => {
                left_out.push((name.to_string(), why.to_string()));
                continue;
            }
        };
        let with_workspace = |plan: Box<dyn Plan>| {
            let workspace = Memory::new(device, plan.workspace(queue).max(1))?;
            Ok::<_, CudaError>((plan, workspace))
        };
        let plans = prepared.into_iter().map(with_workspace).collect::<Result<Vec<_>, _>>()?;
        let run = |turns: usize| {
            for _ in 0..turns {
                for ((link, sets), (plan, workspace)) in links.iter().zip(&operands).zip(&plans) {
                    for set in sets.iter().cycle().take(link.count) {
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
    Ok(Measured { times: chains.into_iter().map(|chain| chain.times).collect(), beside: Vec::new(), left_out })
}
