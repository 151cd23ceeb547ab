//! A candidate in one of its ways: with the weight as it lies or laid out beforehand, with the epilogue fused or split off.

use crate::candidate::{Candidate, Operand, Plan};
use crate::contract::{Contract, Fusion, Refusal};
use crate::problem::Problem;
use crate::split::Split;
use gemwright_core::{DType, Runner};
use gemwright_exchange::tuned::runner_word;

/// Whose weights may stay as they lie, whatever their type.
const ANY: &[DType] = &[DType::F32, DType::F64, DType::Bf16, DType::F16];

/// One way of a candidate.
pub struct Variant<'a> {
    /// Who, and which way.
    pub runner: Runner,
    name: String,
    inner: Inner<'a>,
    contract: Contract,
}

enum Inner<'a> {
    Whole(&'a dyn Candidate),
    Split(Split<'a>),
}

impl Inner<'_> {
    fn candidate(&self) -> &dyn Candidate {
        match self {
            Inner::Whole(candidate) => *candidate,
            Inner::Split(split) => split,
        }
    }
}

impl<'a> Variant<'a> {
    /// Every way in which a candidate may solve a problem.
    pub fn all(candidate: &'a dyn Candidate, problem: &Problem) -> Vec<Variant<'a>> {
        let fuses = candidate.contract().fusion != Fusion::None;
        let splits: &[bool] = match problem.epilogue.is_none() {
            true => &[false],
            // What is fused can be split off too; kept and gated ones have no second pass.
            false if fuses && !problem.epilogue.gated && problem.epilogue.kept.is_none() => &[false, true],
            false if fuses => &[false],
            false => &[true],
        };
        let packs = problem.prepacked && candidate.contract().prepacks.contains(&problem.dtype);
        let ways = splits.iter().flat_map(|split| [(*split, false), (*split, true)]);
        ways.filter(|(_, packed)| !packed || packs)
            .map(|(split, packed)| Variant::new(candidate, split, packed))
            .collect()
    }

    /// One of them.
    pub fn new(candidate: &'a dyn Candidate, split: bool, packed: bool) -> Variant<'a> {
        let runner = Runner { candidate: candidate.name().into(), packed, split };
        let inner = if split { Inner::Split(Split::of(candidate)) } else { Inner::Whole(candidate) };
        let own = *inner.candidate().contract();
        let contract = if packed { own } else { Contract { prepacks: ANY, ..own } };
        Variant { name: runner_word(&runner), runner, inner, contract }
    }
}

impl Candidate for Variant<'_> {
    fn name(&self) -> &str {
        &self.name
    }

    fn origin(&self) -> String {
        self.inner.candidate().origin()
    }

    fn contract(&self) -> &Contract {
        &self.contract
    }

    fn is_own(&self) -> bool {
        self.inner.candidate().is_own()
    }

    fn prepare(&self, problem: &Problem) -> Result<Box<dyn Plan>, Refusal> {
        self.inner.candidate().prepare(&Problem { prepacked: self.runner.packed, ..*problem })
    }

    unsafe fn prepare_packed(&self, problem: &Problem, b: &Operand) -> Result<Box<dyn Plan>, Refusal> {
        match self.runner.packed {
            // SAFETY: by the contract.
            true => unsafe { self.inner.candidate().prepare_packed(problem, b) },
            false => self.prepare(problem),
        }
    }

    fn starts_threads(&self) -> bool {
        self.inner.candidate().starts_threads()
    }

    fn set_threads(&self, threads: usize) {
        self.inner.candidate().set_threads(threads);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::epilogue::{Epilogue, Part};
    use crate::own::own;
    use crate::problem::Layout;

    #[test]
    fn ways_of_a_kernel() {
        let kernels = own();
        let kernel =
            kernels.iter().find(|kernel| kernel.contract().dtypes.contains(&(DType::F32, DType::F32))).unwrap();
        let plain = Problem::linear(4, 8, 16, DType::F32);
        let ways = |problem: &Problem| -> Vec<(bool, bool)> {
            Variant::all(&**kernel, problem).iter().map(|way| (way.runner.split, way.runner.packed)).collect()
        };
        assert_eq!(ways(&plain), [(false, false)]);
        assert_eq!(ways(&Problem { prepacked: true, ..plain }), [(false, false), (false, true)]);
        let bias = Epilogue::default().with(Part::Bias, Layout { row: 0, col: 1, batch: 0 });
        // f32 kernels have no epilogues of their own.
        assert_eq!(ways(&Problem { epilogue: bias, ..plain }), [(true, false)]);
    }
}
