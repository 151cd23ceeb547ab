//! Which of our kernels is meant: one by name, or the one that is picked for a problem.

use super::own::OwnCuda;
use super::own_mma::OwnMma;
use crate::candidate::Candidate;
use crate::problem::Problem;
use gemwright_core::KernelChoice;
use gemwright_cuda::{Config, CudaError, Device, MmaConfig, MmaTile};
use std::fmt;
use std::sync::Arc;

/// A kernel of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernel {
    /// What the cost model picks among those for Hopper.
    Picked,
    #[allow(missing_docs)]
    Hopper(KernelChoice),
    /// By mma.sync.
    Mma(MmaTile),
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kernel::Picked => f.write_str("picked"),
            Kernel::Hopper(choice) => choice.fmt(f),
            Kernel::Mma(tile) => tile.fmt(f),
        }
    }
}

/// A text to compile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Build {
    Hopper(Config),
    Mma(MmaConfig),
}

impl Build {
    /// Onto the disk.
    pub fn compile(&self, device: &Device) -> Result<(), CudaError> {
        match self {
            Build::Hopper(config) => config.compile(false).map(|_| ()),
            Build::Mma(config) => config.compile(&device.architecture(), false).map(|_| ()),
        }
    }
}

impl Kernel {
    /// All that have a name.
    pub fn all() -> impl Iterator<Item = Kernel> {
        KernelChoice::all().map(Kernel::Hopper).chain(MmaTile::ALL.into_iter().map(Kernel::Mma))
    }

    /// From a name such as `128x256-persistent` or `mma-64x64`.
    pub fn named(name: &str) -> Option<Kernel> {
        KernelChoice::named(name).map(Kernel::Hopper).or_else(|| MmaTile::named(name).map(Kernel::Mma))
    }

    /// As a candidate on a device.
    pub fn candidate(self, device: &Arc<Device>) -> Box<dyn Candidate> {
        match self {
            Kernel::Picked => Box::new(OwnCuda::new(device, None)),
            Kernel::Hopper(choice) => Box::new(OwnCuda::new(device, Some(choice))),
            Kernel::Mma(tile) => Box::new(OwnMma::new(device, Some(tile))),
        }
    }

    /// What is compiled for a problem, unless it is refused.
    pub fn build(self, problem: &Problem, device: &Arc<Device>) -> Option<Build> {
        match self {
            Kernel::Picked => OwnCuda::new(device, None).config(problem).ok().map(Build::Hopper),
            Kernel::Hopper(choice) => OwnCuda::new(device, Some(choice)).config(problem).ok().map(Build::Hopper),
            Kernel::Mma(tile) => OwnMma::new(device, Some(tile)).config(problem).ok().map(Build::Mma),
        }
    }
}
