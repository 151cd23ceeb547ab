//! The gradient of a linear layer's bias: the sums of the columns of what comes back.

use crate::driver::{Device, Kernel, Memory, Stream};
use crate::error::CudaError;
use crate::nvrtc::{Compiled, compile};
use crate::tools::number;
use gemwright_core::DType;
use std::sync::Arc;

const TEXT: &str = include_str!("../kernels/bias_grad.cu");
const HEADERS: [(&str, &str); 1] = [("ptx.cuh", include_str!("../kernels/ptx.cuh"))];
/// Columns of a block.
const STRIP: u64 = 256;
/// Rows below which a block is not worth starting.
const LEAST_ROWS: u64 = 32;

/// `Params` of kernels/bias_grad.cu.
#[repr(C)]
struct Params {
    dy: u64,
    out: u64,
    partial: u64,
    counters: u64,
    row: i64,
    rows: i32,
    columns: i32,
    slabs: i32,
    wide: i32,
}

/// Sums of so many rows of so many columns; runs of it must follow one another on one stream.
#[derive(Debug)]
pub struct BiasGrad {
    kernel: Kernel,
    rows: u64,
    columns: u64,
    slabs: u64,
    dtype: DType,
    partial: Memory,
    counters: Memory,
}

/// Compiles the kernel for an architecture such as `sm_80`.
pub fn compile_bias_grad(
    dtypes: (DType, DType),
    add: bool,
    architecture: &str,
    anew: bool,
) -> Result<Compiled, CudaError> {
    let values = [("TYPE", number(dtypes.0)), ("OUT_TYPE", number(dtypes.1)), ("ADD", i32::from(add))];
    let defines: Vec<_> = values.into_iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    compile(TEXT, &HEADERS, architecture, &defines, anew)
}

impl BiasGrad {
    /// Of elements and to a result of certain types; `add`: to what the result has.
    pub fn new(
        stream: &Stream,
        (rows, columns): (u64, u64),
        dtypes: (DType, DType),
        add: bool,
    ) -> Result<BiasGrad, CudaError> {
        let device: &Arc<Device> = stream.device();
        if rows >= 1 << 31 || columns >= 1 << 31 {
            return Err(CudaError::Refused("more rows or columns than a kernel can count".into()));
        }
        let kernel = Kernel::load(
            device,
            &compile_bias_grad(dtypes, add, &device.architecture(), false)?.cubin,
            "bias_grad",
            0,
        )?;
        let strips = columns.div_ceil(STRIP).max(1);
        // Enough blocks for the whole chip, several each.
        let wanted = (u64::from(device.properties.multiprocessors) * 4).div_ceil(strips);
        let slabs = wanted.min(rows.div_ceil(LEAST_ROWS)).max(1);
        let partial = Memory::new(device, (slabs * columns * 4).max(4) as usize)?;
        let counters = Memory::new(device, strips as usize * 4)?;
        counters.fill(0, counters.bytes(), 0, stream)?;
        Ok(BiasGrad { kernel, rows, columns, slabs, dtype: dtypes.0, partial, counters })
    }

    /// Puts a run on the stream: `dy` is the address of the first element, rows `row` elements apart.
    ///
    /// # Safety
    /// All elements of dy and of the result are memory of the stream's device until the stream has done the work; nobody
    /// else touches those of the result.
    pub unsafe fn launch(&self, stream: &Stream, dy: u64, row: i64, out: u64) -> Result<(), CudaError> {
        if self.columns == 0 {
            return Ok(());
        }
        let params = Params {
            dy,
            out,
            partial: self.partial.address(),
            counters: self.counters.address(),
            row,
            rows: self.rows as i32,
            columns: self.columns as i32,
            slabs: self.slabs as i32,
            wide: i32::from(self.dtype != DType::F32 && dy.is_multiple_of(16) && row % 8 == 0),
        };
        let grid = self.columns.div_ceil(STRIP) * self.slabs;
        // SAFETY: the kernel takes these parameters; the rest is the caller's.
        unsafe { self.kernel.launch(stream, grid as u32, 256, &params, false) }
    }
}
