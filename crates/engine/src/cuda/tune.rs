//! Every candidate on one problem, for a table: each is held against sums in double precision, then looked at; those that
//! are near the fastest are measured together, window by window.

use super::bench::{Method, measure};
use super::check::{Verdict, check_candidate};
use super::contest::{Field, LOOK};
use super::cublaslt::CublasLt;
use crate::bench::Times;
use crate::candidate::Candidate;
use crate::problem::Problem;
use gemwright_cuda::CudaError;

/// What came out.
#[derive(Debug, Default)]
pub struct Tried {
    /// Of a candidate that was only looked at, the look.
    pub times: Vec<Times>,
    /// Who was wrong, or failed, and why.
    pub dropped: Vec<(String, String)>,
}

/// Who is within this of the fastest at a look may be the fastest.
const NEAR: f64 = 1.1;
/// Measured together at most.
const FINALISTS: usize = 8;

/// Tries the field's candidates that `wanted` names on a problem. `told` hears of each before it runs, since it may be the
/// last that is heard, and of nobody before several are measured together. Who is `always` of interest is measured with the
/// fastest however slow it looks.
///
/// # Errors
/// What went wrong outside of any one candidate; after a fault on the GPU nothing more can be run by this process.
pub fn try_all(
    problem: &Problem,
    field: &Field<'_>,
    wanted: &dyn Fn(&str) -> bool,
    always: &[String],
    rounds: usize,
    told: &mut dyn FnMut(Option<&str>),
) -> Result<Tried, CudaError> {
    let mut all: Vec<Box<dyn Candidate>> = Vec::new();
    for kernel in field.entrants.of(problem, field.device) {
        all.push(kernel.candidate(field.device));
    }
    let proposals = field.vendor.map_or(Vec::new(), CublasLt::proposals).into_iter();
    all.extend(proposals.map(|lt| Box::new(lt) as Box<dyn Candidate>));
    all.retain(|candidate| wanted(candidate.name()));
    let mut tried = Tried::default();
    let mut looks: Vec<(&dyn Candidate, Times)> = Vec::new();
    for candidate in all.iter().map(|candidate| &**candidate) {
        told(Some(candidate.name()));
        match check_candidate(candidate, problem, field.queue, field.tools)? {
            Verdict::Wrong(why) => tried.dropped.push((candidate.name().into(), why)),
            Verdict::Refused(_) => {}
            Verdict::Right(_) => {
                let mut looked = measure(problem, &[candidate], field.queue, field.tools, &[LOOK])?.remove(0);
                if let Some((_, why)) = looked.left_out.pop() {
                    // After a fault nothing of this process runs any more: the next one would seem to be at fault.
                    return Err(CudaError::Refused(why));
                }
                looks.extend(looked.times.pop().map(|times| (candidate, times)));
            }
        }
    }
    looks.sort_by(|(_, x), (_, y)| x.quantile(0.5).total_cmp(&y.quantile(0.5)));
    let Some(best) = looks.first().map(|(_, times)| times.quantile(0.5)) else { return Ok(tried) };
    let near = looks.iter().take(FINALISTS).take_while(|(_, times)| times.quantile(0.5) <= NEAR * best).count();
    let (near, rest) = looks.split_at(near);
    let mut finalists: Vec<&dyn Candidate> = near.iter().map(|(candidate, _)| *candidate).collect();
    let of_interest = |candidate: &&dyn Candidate| always.iter().any(|name| name == candidate.name());
    finalists.extend(rest.iter().map(|(candidate, _)| *candidate).filter(of_interest));
    told(None);
    let method = Method { rounds, ..Method::BURST };
    let mut measured = measure(problem, &finalists, field.queue, field.tools, &[method])?.remove(0);
    tried.dropped.append(&mut measured.left_out);
    let measured_again = |name: &str| finalists.iter().any(|candidate| candidate.name() == name);
    tried.times = measured.times;
    // Looks are short: none is believed to be faster than what was measured.
    let slowest = tried.times.iter().map(|times| times.quantile(0.5)).fold(0.0, f64::max);
    for (_, look) in rest.iter().filter(|(candidate, _)| !measured_again(candidate.name())) {
        tried.times.push(Times { values: look.values.iter().map(|x| x.max(slowest)).collect(), ..look.clone() });
    }
    Ok(tried)
}
