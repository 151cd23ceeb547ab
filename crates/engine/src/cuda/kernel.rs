//! Which of our kernels is meant: one by name, or the one that is picked for a problem.

use super::choose::{choose, ranked};
use super::own::{CONTRACT, OwnCuda, config_of as hopper_config};
use super::own_decode::{OwnDecode, config as decode_config, few_rows};
use super::own_mma::{OwnMma, config as mma_config};
use crate::candidate::{Candidate, Plan};
use crate::contract::{Contract, Refusal};
use crate::problem::Problem;
use gemwright_core::{DecodeChoice, KernelChip, KernelChoice, Product};
use gemwright_cuda::{Config, CudaError, DecodeConfig, Device, MmaConfig, MmaTile};
use std::fmt;
use std::sync::Arc;

/// A kernel of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernel {
    /// What the cost model picks.
    Picked,
    #[allow(missing_docs)]
    Hopper(KernelChoice),
    /// Weights streamed past a few rows.
    Decode(DecodeChoice),
    /// By mma.sync.
    Mma(MmaTile),
}

/// The name of the one that is picked.
const PICKED: &str = "picked";
/// So many are tried where the first refuses.
const TRIED: usize = 16;

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kernel::Picked => f.write_str(PICKED),
            Kernel::Hopper(choice) => choice.fmt(f),
            Kernel::Decode(choice) => choice.fmt(f),
            Kernel::Mma(tile) => tile.fmt(f),
        }
    }
}

/// A text to compile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Build {
    Hopper(Config),
    Decode(DecodeConfig),
    Mma(MmaConfig),
}

impl Build {
    /// Onto the disk.
    pub fn compile(&self, device: &Device) -> Result<(), CudaError> {
        match self {
            Build::Hopper(config) => config.compile(false).map(|_| ()),
            Build::Decode(config) => config.compile(&device.architecture(), false).map(|_| ()),
            Build::Mma(config) => config.compile(&device.architecture(), false).map(|_| ()),
        }
    }
}

impl Kernel {
    /// All that have a name.
    pub fn all() -> impl Iterator<Item = Kernel> {
        let few = DecodeChoice::all().map(Kernel::Decode);
        KernelChoice::all().map(Kernel::Hopper).chain(few).chain(MmaTile::ALL.into_iter().map(Kernel::Mma))
    }

    /// From a name such as `128x256-persistent`, `decode-16x8a4s2`, `ring-8x4c256`, `mma-64x64` or `picked`.
    pub fn named(name: &str) -> Option<Kernel> {
        if name == PICKED {
            return Some(Kernel::Picked);
        }
        let hopper = || KernelChoice::named(name).map(Kernel::Hopper);
        let decode = || DecodeChoice::named(name).map(Kernel::Decode);
        hopper().or_else(decode).or_else(|| MmaTile::named(name).map(Kernel::Mma))
    }

    /// As a candidate on a device.
    pub fn candidate(self, device: &Arc<Device>) -> Box<dyn Candidate> {
        match self {
            Kernel::Picked => Box::new(Picked { device: device.clone() }),
            Kernel::Hopper(choice) => Box::new(OwnCuda::new(device, choice)),
            Kernel::Decode(choice) => Box::new(OwnDecode::new(device, choice)),
            Kernel::Mma(tile) => Box::new(OwnMma::new(device, Some(tile))),
        }
    }

    /// Rounds in which every unit of a chip has something to work on; none where nothing says so.
    pub fn waves(self, problem: &Problem, chip: &KernelChip) -> Option<f64> {
        let product = Product { n: problem.weight_cols(), ..problem.product };
        match self {
            Kernel::Hopper(choice) => Some(choice.waves(&product, chip)),
            Kernel::Decode(choice) => {
                let blocks = decode_config(problem, choice).ok()?.blocks().into();
                let few = few_rows(problem);
                let product = Product { n: few.weight_cols(), ..product };
                Some(choice.waves(&product, few.weight_dtype.bytes(), blocks, chip))
            }
            Kernel::Picked | Kernel::Mma(_) => None,
        }
    }

    /// What is compiled for a problem, unless it is refused.
    pub fn build(self, problem: &Problem, device: &Device) -> Option<Build> {
        self.build_on(problem, &kernel_chip(device))
    }

    /// The same for a chip that need not be here.
    pub fn build_on(self, problem: &Problem, chip: &KernelChip) -> Option<Build> {
        match self {
            Kernel::Picked => choose(problem, chip)?.build_on(problem, chip),
            Kernel::Hopper(choice) => hopper_config(problem, &choice).ok().map(Build::Hopper),
            Kernel::Decode(choice) => decode_config(problem, choice).ok().map(Build::Decode),
            // With a tile that is forced nothing depends on the chip.
            Kernel::Mma(tile) => mma_config(problem, Some(tile), 0).ok().map(Build::Mma),
        }
    }
}

/// What times on a device go by.
pub(super) fn kernel_chip(device: &Device) -> KernelChip {
    KernelChip::hopper(u64::from(device.properties.multiprocessors))
}

/// The kernel that the cost model picks for each problem.
struct Picked {
    device: Arc<Device>,
}

impl Candidate for Picked {
    fn name(&self) -> &str {
        gemwright_core::PICKED
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
        CONTRACT.admits(problem)?;
        let mut refused = Refusal::Library("no tile fits".into());
        // What is known of a device only when it is there may speak against the first.
        for (kernel, _) in ranked(problem, &kernel_chip(&self.device)).into_iter().take(TRIED) {
            match kernel.candidate(&self.device).prepare(problem) {
                Ok(plan) => return Ok(plan),
                Err(why) => refused = why,
            }
        }
        Err(refused)
    }
}
