//! Ours beside the vendor's on one problem: the kernel that the cost model picks, others of ours that it ranks next, and
//! cuBLASLt's default beside the best of its proposals.

use super::bench::{Contestant, Measured, Method, measure, measure_each};
use super::check::{Case, Verdict, check};
use super::choose::{choices_by_schedule, ranked};
use super::cublaslt::CublasLt;
use super::kernel::{Kernel, kernel_chip};
use super::queue::CudaQueue;
use super::tabled::{TABLE, Tabled};
use crate::bench::Times;
use crate::candidate::Candidate;
use crate::problem::Problem;
use gemwright_core::PICKED;
use gemwright_cuda::{CudaError, Device, Tools};
use std::sync::Arc;
use std::time::Duration;

/// Who takes part.
pub struct Field<'a> {
    #[allow(missing_docs)]
    pub device: &'a Arc<Device>,
    #[allow(missing_docs)]
    pub queue: &'a CudaQueue,
    #[allow(missing_docs)]
    pub tools: &'a Tools,
    /// The vendor's library, where it is here.
    pub vendor: Option<&'a CublasLt>,
    #[allow(missing_docs)]
    pub entrants: Entrants<'a>,
    /// Whom a table says, beside them.
    pub table: Option<&'a Tabled>,
}

/// Which kernels of ours.
#[derive(Debug, Clone, Copy)]
pub enum Entrants<'a> {
    #[allow(missing_docs)]
    Named(&'a [Kernel]),
    /// The one that the cost model picks, and so many that it ranks next.
    Picked(usize),
    /// Of each schedule the one that it ranks first.
    EachSchedule,
    /// So many that it ranks first, and of each schedule the first.
    Many(usize),
}

impl Entrants<'_> {
    /// For a problem, the one that would be picked first.
    pub fn of(&self, problem: &Problem, device: &Device) -> Vec<Kernel> {
        let chip = &kernel_chip(device);
        match self {
            Entrants::Named(kernels) => kernels.to_vec(),
            Entrants::Picked(next) => {
                ranked(problem, chip).into_iter().map(|(kernel, _)| kernel).take(1 + next).collect()
            }
            Entrants::EachSchedule => choices_by_schedule(problem, chip).into_iter().map(Kernel::Hopper).collect(),
            Entrants::Many(count) => {
                let mut all = Entrants::Picked(count.saturating_sub(1)).of(problem, device);
                let further = Entrants::EachSchedule.of(problem, device);
                all.extend(further.into_iter().filter(|kernel| !all.contains(kernel)).collect::<Vec<_>>());
                all
            }
        }
    }
}

/// A look at each of several, of which only the best are measured.
pub(super) const LOOK: Method = Method { rounds: 3, window: 1e-3, pause: Duration::from_millis(2), ..Method::BURST };

/// What came out, for each method; the first of ours is the one that was picked.
pub fn contest(problem: &Problem, field: &Field<'_>, methods: &[Method]) -> Result<Vec<Measured>, CudaError> {
    // Right first, then fast.
    let mut wrong = Vec::new();
    let right = |kernels: Vec<Kernel>, problem: &Problem, wrong: &mut Vec<(String, String)>| {
        let mut right = Vec::new();
        for kernel in kernels {
            let candidate = kernel.candidate(field.device);
            match check(&Case { kernel, problem: *problem }, field.device, field.queue, field.tools)? {
                Verdict::Wrong(why) | Verdict::Refused(why) => wrong.push((candidate.name().to_string(), why)),
                Verdict::Right(_) => right.push(candidate),
            }
        }
        Ok::<_, CudaError>(right)
    };
    let own = right(field.entrants.of(problem, field.device), problem, &mut wrong)?;
    let (whole, mut not_whole) = (beside(problem), Vec::new());
    let of_whole = match whole.map(|whole| right(of_whole(field.device, &whole), &whole, &mut not_whole)) {
        None => Vec::new(),
        Some(Ok(of_whole)) => of_whole,
        // What stands beside the product does not end its measurement: twice the bytes may not find room.
        Some(Err(why)) => {
            not_whole.push((String::from("own"), why.to_string()));
            Vec::new()
        }
    };
    wrong.extend(not_whole.into_iter().map(|(name, why)| (name, format!("with whole weights: {why}"))));
    let proposals: Vec<CublasLt> = field.vendor.map_or(Vec::new(), CublasLt::proposals);
    let mut all: Vec<&dyn Candidate> = own.iter().map(|own| &**own).collect();
    if !proposals.is_empty() {
        let looked: Vec<&dyn Candidate> = proposals.iter().map(|lt| lt as &dyn Candidate).collect();
        let looked = measure(problem, &looked, field.queue, field.tools, &[LOOK])?.remove(0).times;
        let best =
            looked.iter().min_by(|x, y| x.quantile(0.5).total_cmp(&y.quantile(0.5))).map(|times| times.name.clone());
        let wanted = |lt: &&CublasLt| lt.name() == proposals[0].name() || Some(lt.name()) == best.as_deref();
        all.extend(proposals.iter().filter(wanted).map(|lt| lt as &dyn Candidate));
    }
    all.extend(field.table.map(|table| table as &dyn Candidate));
    let mut contestants: Vec<_> = all.into_iter().map(|candidate| Contestant { candidate, problem }).collect();
    if let Some(whole) = &whole {
        contestants.extend(of_whole.iter().map(|candidate| Contestant { candidate: &**candidate, problem: whole }));
    }
    let mut measured = measure_each(problem, &contestants, field.queue, field.tools, methods)?;
    for measured in &mut measured {
        measured.left_out.extend(wrong.iter().cloned());
    }
    Ok(measured)
}

/// What a problem is measured beside: weights of less bits are there to be faster than whole ones.
fn beside(problem: &Problem) -> Option<Problem> {
    Some(problem.with_whole_weights()).filter(|whole| whole != problem)
}

/// The kernel that is measured of [`beside`].
fn of_whole(device: &Device, whole: &Problem) -> Vec<Kernel> {
    Entrants::Picked(0).of(whole, device)
}

/// All kernels of ours that take part in the measurement of a problem, to be compiled before it.
pub fn kernels_of(problem: &Problem, entrants: Entrants<'_>, device: &Device) -> Vec<Case> {
    let case = |problem: Problem| move |kernel| Case { kernel, problem };
    let mut all: Vec<Case> = entrants.of(problem, device).into_iter().map(case(*problem)).collect();
    if let Some(whole) = beside(problem) {
        all.extend(of_whole(device, &whole).into_iter().map(case(whole)));
    }
    all
}

impl Measured {
    /// A candidate's times.
    pub fn of(&self, name: &str) -> Option<&Times> {
        self.times.iter().find(|times| times.name == name)
    }

    /// The one of ours that was picked: the one of that name, otherwise the first.
    pub fn picked(&self) -> Option<&Times> {
        self.of(PICKED).or_else(|| self.times.iter().find(|times| times.own && times.name != TABLE))
    }

    /// The best of ours, or of the others, by median; whom a table says is one of them.
    pub fn best(&self, own: bool) -> Option<&Times> {
        let all = self.times.iter().filter(|times| times.own == own && times.name != TABLE);
        all.min_by(|x, y| x.quantile(0.5).total_cmp(&y.quantile(0.5)))
    }
}
