//! What a call took where it really ran.

use std::sync::Arc;

/// Over all repetitions of a call, in whole nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Measured {
    /// During which something of each repetition ran, added up.
    pub nanoseconds: u64,
    /// Kernels, copies and fills that were launched.
    pub launches: u64,
    /// By name, in order of first launch.
    pub kernels: Vec<MeasuredKernel>,
}

/// One kernel of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct MeasuredKernel {
    pub name: Arc<str>,
    pub nanoseconds: u64,
    pub count: u64,
}

/// Kernels of products that belong to no call: a captured graph's, or those of an operation without a
/// rule. Launches of the same kernels in the same order are one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launched {
    /// What launched them, such as `cudaGraphLaunch`.
    pub by: Arc<str>,
    /// How often.
    pub count: u64,
    /// In order of their beginning, each with the times of all launches.
    pub kernels: Vec<LaunchedKernel>,
}

/// One kernel among those of a launch.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct LaunchedKernel {
    pub name: Arc<str>,
    /// Blocks in each direction (AMD: threads), where they were recorded.
    pub grid: Option<[u64; 3]>,
    /// Of all launches.
    pub nanoseconds: u64,
}

impl Measured {
    /// Seconds of all repetitions.
    pub fn seconds(&self) -> f64 {
        self.nanoseconds as f64 * 1e-9
    }

    /// Those of further repetitions too.
    pub fn join(&mut self, other: &Measured) {
        self.nanoseconds = self.nanoseconds.saturating_add(other.nanoseconds);
        self.launches += other.launches;
        for kernel in &other.kernels {
            match self.kernels.iter_mut().find(|own| own.name == kernel.name) {
                Some(own) => {
                    own.nanoseconds = own.nanoseconds.saturating_add(kernel.nanoseconds);
                    own.count += kernel.count;
                }
                None => self.kernels.push(kernel.clone()),
            }
        }
    }
}
