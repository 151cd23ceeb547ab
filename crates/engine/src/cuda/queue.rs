//! A stream as a queue.

use crate::candidate::{Operand, Queue, RunError};
use crate::problem::Layout;
use gemwright_cuda::{CudaError, Device, Matrix, Memory, Scratch, Stream};
use std::any::Any;
use std::sync::Arc;

/// Bytes that cuBLASLt may use beside its operands.
pub const WORKSPACE: usize = 64 << 20;

/// A stream of a device, with memory for kernels that cut tiles along K and for cuBLASLt's workspace.
#[derive(Debug)]
pub struct CudaQueue {
    #[allow(missing_docs)]
    pub stream: Stream,
    /// Kernels of ours may begin beside the end of the one before them, which they wait for themselves.
    pub early: bool,
    /// No work on this queue writes what its products have as b: weights, not activations. Then they may be read before the
    /// work before them has ended.
    pub constant_weights: bool,
    pub(crate) scratch: Scratch,
    pub(crate) workspace: Memory,
}

impl CudaQueue {
    #[allow(missing_docs)]
    pub fn new(device: &Arc<Device>) -> Result<CudaQueue, CudaError> {
        let stream = Stream::new(device)?;
        let (scratch, workspace) = (Scratch::new(&stream)?, Memory::new(device, WORKSPACE)?);
        stream.synchronize()?;
        Ok(CudaQueue { stream, early: true, constant_weights: false, scratch, workspace })
    }

    /// The queue as one of these.
    pub fn of(queue: &dyn Queue) -> Result<&CudaQueue, RunError> {
        queue.as_any().downcast_ref().ok_or_else(|| RunError::Queue(queue.name().into()))
    }
}

impl Queue for CudaQueue {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn name(&self) -> &'static str {
        "cuda"
    }
}

/// An operand by address and steps.
pub fn matrix(operand: &Operand, layout: &Layout, bytes: u64) -> Matrix {
    Matrix {
        address: operand.region.address.addr() as u64 + operand.first as u64 * bytes,
        row: layout.row,
        col: layout.col,
        batch: layout.batch,
    }
}
