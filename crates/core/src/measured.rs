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
