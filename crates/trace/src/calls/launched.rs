//! Kernels that multiply and belong to no call, by what launched them.

use super::nanoseconds;
use crate::analysis::{Analysis, UNLINKED};
use crate::event::Category;
use crate::fast::Map;
use crate::interval::{Time, order};
use crate::nest::NONE;
use gemwright_core::kernel_name::role;
use gemwright_core::{Launched, LaunchedKernel};
use std::sync::Arc;

/// The operation around a launch, or the launching call itself where there is none.
fn launcher<T: Time>(analysis: &Analysis<'_, T>, gpu: u32) -> u32 {
    let call = analysis.links.launcher[gpu as usize];
    let mut above = call;
    while above != NONE && analysis.trace.events[above as usize].category != Category::CpuOp {
        above = analysis.parent[above as usize];
    }
    if above == NONE { call } else { above }
}

/// Those among `unclaimed` that are part of a product by their names, launches of equal ones merged.
pub fn launched<T: Time>(analysis: &Analysis<'_, T>, names: &[Arc<str>], unclaimed: &[u32]) -> Vec<Launched> {
    let multiplies: Vec<bool> = names.iter().map(|name| role(name).is_some()).collect();
    let event = |i: u32| &analysis.trace.events[i as usize];
    let mut kernels: Vec<u32> = unclaimed
        .iter()
        .copied()
        .filter(|i| event(*i).category == Category::Kernel && multiplies[event(*i).name as usize])
        .collect();
    kernels.sort_by(|x, y| order(&analysis.spans[*x as usize].start, &analysis.spans[*y as usize].start));
    let mut places: Map<u32, usize> = Map::default();
    let mut launches: Vec<(u32, Vec<u32>)> = Vec::new();
    for gpu in kernels {
        let by = launcher(analysis, gpu);
        let place = *places.entry(by).or_insert_with(|| {
            launches.push((by, Vec::new()));
            launches.len() - 1
        });
        launches[place].1.push(gpu);
    }
    let mut merged: Map<(u32, Vec<(u32, u32)>), usize> = Map::default();
    let mut all: Vec<Launched> = Vec::new();
    for (by, gpus) in launches {
        let name = if by == NONE { NONE } else { event(by).name };
        // A kernel's arguments are its grid here: exchanges are no products.
        let sequence: Vec<(u32, u32)> = gpus.iter().map(|i| (event(*i).name, event(*i).arguments)).collect();
        let took = gpus.iter().map(|i| nanoseconds(analysis.took(*i)));
        if let Some(&at) = merged.get(&(name, sequence.clone())) {
            all[at].count += 1;
            for (kernel, time) in all[at].kernels.iter_mut().zip(took) {
                kernel.nanoseconds += time;
            }
            continue;
        }
        let kernel = |(i, nanoseconds): (&u32, u64)| LaunchedKernel {
            name: names[event(*i).name as usize].clone(),
            grid: analysis.trace.grid(event(*i)),
            nanoseconds,
        };
        let kernels = gpus.iter().zip(took).map(kernel).collect();
        merged.insert((name, sequence), all.len());
        let by = if by == NONE { UNLINKED.into() } else { names[name as usize].clone() };
        all.push(Launched { by, count: 1, kernels });
    }
    all
}
