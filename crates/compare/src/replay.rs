//! Kernels without an operation above them, such as a captured graph's, matched to the calls of a
//! workload whose order is known: by order, and by what names and grids tell.

use crate::align::{Place, align};
use crate::fit::{Tells, Wanted, Work, weight};
use gemwright_core::kernel_name::role;
use gemwright_core::{Call, LaunchedKernel};

/// A sequence of kernels as pieces of work, each with what prepares and finishes it.
pub fn works(kernels: &[LaunchedKernel]) -> Vec<Work> {
    let mut works: Vec<Work> = Vec::new();
    let mut waiting: Vec<usize> = Vec::new();
    for (i, kernel) in kernels.iter().enumerate() {
        let Some(role) = role(&kernel.name) else { continue };
        if role.is_main() {
            let own = std::iter::once(i).chain(waiting.drain(..)).collect();
            works.push(Work::new(role, kernel, own));
            continue;
        }
        // What comes before the main kernel and prepares it.
        let prepares = ["dot_do_o", "prepare_"].iter().any(|word| kernel.name.contains(word));
        match works.last_mut().filter(|work| work.takes(role) && !prepares) {
            Some(work) => work.kernels.push(i),
            None => waiting.push(i),
        }
    }
    works
}

/// What a piece of work is: its place among the calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Match {
    /// This call.
    Call(usize),
    /// More than one call could be it.
    Ambiguous,
    /// No call of the list.
    Nothing,
}

/// Matches `times` repetitions of the works of one sequence to the calls in `order`; `product` tells
/// which calls are the same product. `None` where there are too many to weigh.
pub fn matches(calls: &[Call], order: &[u32], product: &[usize], works: &[Work], times: usize) -> Option<Vec<Match>> {
    let known: Vec<Option<Wanted>> = calls.iter().map(Wanted::of).collect();
    let issued: Vec<usize> = order.iter().map(|at| *at as usize).filter(|at| known[*at].is_some()).collect();
    // Layers repeat: there are few kinds of kernels, and each is weighed once against each call.
    let mut kinds: Vec<Tells> = Vec::new();
    let kind_of = |work: &Work| {
        kinds.iter().position(|kind| *kind == work.tells).unwrap_or_else(|| {
            kinds.push(work.tells);
            kinds.len() - 1
        })
    };
    let kind: Vec<usize> = works.iter().map(kind_of).collect();
    let weights: Vec<Vec<Option<u32>>> = known
        .iter()
        .map(|wanted| kinds.iter().map(|kind| wanted.as_ref().and_then(|wanted| weight(wanted, kind))).collect())
        .collect();
    let fits = |i: usize, j: usize| weights[issued[i]][kind[j % kind.len()]];
    let places = align(issued.len(), works.len() * times, fits, |i| product[issued[i]])?;
    let found = |place: Place| match place {
        Place::Certain(i) => Match::Call(issued[i]),
        Place::Ambiguous => Match::Ambiguous,
        Place::Nothing => Match::Nothing,
    };
    Some(places.into_iter().map(found).collect())
}
