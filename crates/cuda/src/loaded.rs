//! Kernels that have been loaded, by device and what they are: each is loaded once in a program.

use crate::driver::{Device, Kernel};
use crate::error::CudaError;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

type Kernels<C> = HashMap<(usize, C), Arc<Kernel>>;

pub(crate) struct Loaded<C>(Mutex<Option<Kernels<C>>>);

impl<C: Copy + Eq + Hash> Loaded<C> {
    pub const fn new() -> Loaded<C> {
        Loaded(Mutex::new(None))
    }

    /// The kernel, loaded now where it has not been.
    pub fn kernel(
        &self,
        device: &Arc<Device>,
        config: &C,
        load: impl FnOnce() -> Result<Kernel, CudaError>,
    ) -> Result<Arc<Kernel>, CudaError> {
        let key = (Arc::as_ptr(device).addr(), *config);
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let all = all.get_or_insert_default();
        if let Some(kernel) = all.get(&key) {
            return Ok(kernel.clone());
        }
        let kernel = Arc::new(load()?);
        all.insert(key, kernel.clone());
        Ok(kernel)
    }
}
