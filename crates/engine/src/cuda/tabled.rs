//! Who a table says, on a GPU.

use super::cublaslt::CublasLt;
use super::kernel::Kernel;
use super::own::CONTRACT;
use crate::candidate::{Candidate, Plan};
use crate::contract::{Contract, Refusal};
use crate::dispatch::Dispatcher;
use crate::problem::Problem;
use gemwright_core::{PICKED, Way};
use gemwright_cuda::Device;
use std::sync::Arc;

/// Its name as a candidate.
pub const TABLE: &str = "table";

/// For each problem the candidate that the tables name; where that one is not here or refuses, the kernel of ours that the
/// cost model picks.
pub struct Tabled {
    dispatcher: Dispatcher,
    device: Arc<Device>,
    vendor: Vec<CublasLt>,
}

impl Tabled {
    /// The default of `dispatcher` may be anything: what it names is only looked for.
    pub fn new(dispatcher: Dispatcher, device: &Arc<Device>, vendor: Option<&CublasLt>) -> Tabled {
        Tabled { dispatcher, device: device.clone(), vendor: vendor.map_or(Vec::new(), CublasLt::proposals) }
    }

    /// Who is to multiply, as the table has it.
    pub fn who(&self, problem: &Problem) -> String {
        let answer = self.dispatcher.choose(problem);
        let name = &answer.runner.candidate;
        // What a proposal is, or a tile is good for, depends on the problem: of another one's nothing is known.
        match name.split_once('.') {
            Some(("own", _)) if answer.way != Way::Exact => PICKED.into(),
            Some((library, _)) if answer.way != Way::Exact => library.into(),
            _ => name.clone(),
        }
    }

    fn named(&self, name: &str, problem: &Problem) -> Option<Result<Box<dyn Plan>, Refusal>> {
        if let Some(lt) = self.vendor.iter().find(|lt| lt.name() == name) {
            return Some(lt.prepare(problem));
        }
        let kernel = Kernel::named(name.strip_prefix("own.")?)?;
        Some(kernel.candidate(&self.device).prepare(problem))
    }
}

impl Candidate for Tabled {
    fn name(&self) -> &str {
        TABLE
    }

    fn origin(&self) -> String {
        format!("gemwright {} on {}", env!("CARGO_PKG_VERSION"), self.device.properties.name)
    }

    fn contract(&self) -> &Contract {
        &CONTRACT
    }

    fn is_own(&self) -> bool {
        true
    }

    fn prepare(&self, problem: &Problem) -> Result<Box<dyn Plan>, Refusal> {
        match self.named(&self.who(problem), problem) {
            Some(Ok(plan)) => Ok(plan),
            _ => Kernel::Picked.candidate(&self.device).prepare(problem),
        }
    }
}
