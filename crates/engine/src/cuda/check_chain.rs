//! Kernels that begin beside the end of the one before: what each of them multiplies was written by it, and the bits are those
//! of kernels that run one after the other.

use super::bench::operand;
use super::check::Verdict;
use super::kernel::Kernel;
use super::queue::CudaQueue;
use crate::candidate::{Operands, Plan};
use crate::problem::Problem;
use gemwright_core::DType;
use gemwright_cuda::{CudaError, Device, Memory, Tools};
use std::sync::Arc;

/// N and K, so that a result is what the next product multiplies.
const SIDE: u64 = 2048;
/// Products one after the other; bf16 holds what their sums grow to.
const LINKS: usize = 6;
const TURNS: usize = 5;

/// Rows, and a kernel of every way to load, to share and to add up.
const KERNELS: [(u64, &str); 18] = [
    (8, "ring-8x8c256"),
    (8, "decode-16x4a4"),
    (16, "ring-8x8c256s2"),
    (32, "64x32p-turned-persistent"),
    (32, "64x32p-turned-quad-persistent"),
    (64, "64x32p-split-k2"),
    (64, "64x64p-persistent"),
    (64, "128x64p-turned-pair-persistent"),
    (128, "64x80p-pair-split-k2"),
    (128, "64x128p-pair-data-parallel"),
    (192, "192x72p-turned-beside-data-parallel"),
    (300, "64x128p-turned-persistent"),
    (512, "128x64-stream-k"),
    (512, "128x128-turned-persistent"),
    (597, "256x152-turned-persistent"),
    (1024, "128x256-pair-persistent"),
    (SIDE, "128x192p-persistent"),
    (SIDE, "256x128-turned-beside-persistent"),
];

/// Every kernel of the list, with the weights read before the kernel before has ended and without.
pub fn check_chains(device: &Arc<Device>) -> Result<Vec<(String, Verdict)>, CudaError> {
    let mut queue = CudaQueue::new(device)?;
    let tools = Tools::new(device)?;
    let mut all = Vec::new();
    for (rows, name) in KERNELS {
        let problem = Problem::linear(rows, SIDE, SIDE, DType::Bf16);
        // Each takes such a product: one that refuses it was not checked.
        let verdict = match Kernel::named(name).map(|kernel| kernel.candidate(device).prepare(&problem)) {
            None => Verdict::Wrong("no such kernel".into()),
            Some(Err(why)) => Verdict::Wrong(why.to_string()),
            Some(Ok(plan)) => verdict(&*plan, rows, &mut queue, &tools)?,
        };
        all.push((format!("{LINKS} products of {rows} rows, each with the result of the last, {name}"), verdict));
    }
    Ok(all)
}

fn verdict(plan: &dyn Plan, rows: u64, queue: &mut CudaQueue, tools: &Tools) -> Result<Verdict, CudaError> {
    let device = queue.stream.device().clone();
    let elements = rows * SIDE;
    let memory = |count: u64| Memory::new(&device, (count * DType::Bf16.bytes()) as usize);
    let [weights, first] = [memory(SIDE * SIDE)?, memory(elements)?];
    tools.fill(&queue.stream, &weights, DType::Bf16, 1, 1.0)?;
    tools.fill(&queue.stream, &first, DType::Bf16, 2, 1.0)?;
    let results = (0..LINKS).map(|_| memory(elements)).collect::<Result<Vec<_>, _>>()?;
    let workspace = Memory::new(&device, plan.workspace(queue).max(1))?;
    // In one graph, as nothing else lies so close together. Results are poison before.
    let bits = |queue: &CudaQueue, next_weights: bool| {
        for result in &results {
            result.fill(0, result.bytes(), 0xff, &queue.stream)?;
        }
        let graph = queue.stream.capture(|| {
            for (last, result) in std::iter::once(None).chain(results.iter().map(Some)).zip(&results) {
                let (x, weights) = match last {
                    Some(last) if next_weights => (&first, last),
                    Some(last) => (last, &weights),
                    None => (&first, &weights),
                };
                let operands = Operands::new(operand(x, 0), operand(weights, 0), operand(result, 0));
                // SAFETY: x and the result have rows by SIDE elements, the weights SIDE by SIDE; all outlive the work.
                unsafe { plan.run(queue, &operands, operand(&workspace, 0).region) }
                    .map_err(|why| CudaError::Refused(why.to_string()))?;
            }
            Ok::<(), CudaError>(())
        })?;
        queue.stream.synchronize()?;
        // SAFETY: the operands are those above.
        unsafe { graph.launch(&queue.stream)? };
        let found = tools.scan(&queue.stream, &results[LINKS - 1], DType::Bf16, 0, elements)?;
        queue.stream.synchronize()?;
        Ok::<_, CudaError>(found)
    };
    // A result may be the next one's weights where it is as large, and where nobody says that weights are constant.
    let ways = [(false, false), (false, true), (true, false)];
    for (next_weights, constant) in ways.into_iter().filter(|(next_weights, _)| !next_weights || rows == SIDE) {
        (queue.early, queue.constant_weights) = (false, false);
        let apart = bits(queue, next_weights)?;
        if apart.0 != 0 {
            return Ok(Verdict::Wrong(format!("{} NaNs one after the other", apart.0)));
        }
        (queue.early, queue.constant_weights) = (true, constant);
        for _ in 0..TURNS {
            if bits(queue, next_weights)? != apart {
                let why = match (next_weights, constant) {
                    (true, _) => ", whose result are its weights",
                    (_, true) => ", weights read before that",
                    _ => "",
                };
                return Ok(Verdict::Wrong(format!("other bits when a kernel begins beside the one before{why}")));
            }
        }
    }
    Ok(Verdict::Right(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_of_the_list_exist() {
        for (_, name) in KERNELS {
            assert!(Kernel::named(name).is_some(), "{name}");
        }
    }
}
