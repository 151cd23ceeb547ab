//! Copies of operands whose rows begin where TMA cannot read them, onto rows that begin on whole lines of the cache.

use crate::driver::{Device, Kernel, Stream};
use crate::error::CudaError;
use crate::loaded::Loaded;
use crate::nvrtc::{Compiled, compile};
use std::sync::Arc;

const TEXT: &str = include_str!("../kernels/pad.cu");
const HEADERS: [(&str, &str); 1] = [("ptx.cuh", include_str!("../kernels/ptx.cuh"))];
/// Elements that rows of a copy are multiples of.
const LINE: u64 = 64;
/// Elements that a warp copies at once: 256 times `DEEP` of the kernel.
const PIECE: u64 = 1024;
const WARPS: u64 = 8;
/// Bytes of an element.
const BYTES: u64 = 2;

/// A matrix of 16-bit elements whose rows are contiguous; in elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Padded {
    pub batch: u64,
    pub rows: u64,
    pub columns: u64,
    /// From row to row and from matrix to matrix.
    pub row: i64,
    pub next: i64,
}

impl Padded {
    /// From row to row of the copy.
    pub fn to_row(&self) -> u64 {
        self.columns.next_multiple_of(LINE)
    }

    /// From matrix to matrix of the copy.
    pub fn to_next(&self) -> u64 {
        self.rows * self.to_row()
    }

    /// Bytes of the copy.
    pub fn bytes(&self) -> usize {
        (self.batch * self.to_next() * BYTES) as usize
    }

    fn warps(&self) -> u64 {
        self.batch * self.rows * self.columns.div_ceil(PIECE)
    }
}

/// `Source` of kernels/pad.cu.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Source {
    from: u64,
    to: u64,
    first: u64,
    end: u64,
    row: i64,
    batch: i64,
    to_row: i64,
    to_batch: i64,
    rows: i32,
    columns: i32,
    pieces: i32,
    warps: i32,
}

/// `Params` of kernels/pad.cu.
#[repr(C)]
struct Params {
    of: [Source; 2],
    warps: i32,
}

/// Compiles the kernel for an architecture such as `sm_90`.
pub fn compile_pad(architecture: &str, anew: bool) -> Result<Compiled, CudaError> {
    compile(TEXT, &HEADERS, architecture, &[], anew)
}

/// The kernel on a device.
#[derive(Debug, Clone)]
pub struct Pad {
    kernel: Arc<Kernel>,
    blocks: u64,
}

impl Pad {
    /// Compiles, or finds, the kernel.
    pub fn new(device: &Arc<Device>) -> Result<Pad, CudaError> {
        static LOADED: Loaded<()> = Loaded::new();
        let load = || Kernel::load(device, &compile_pad(&device.architecture(), false)?.cubin, "pad", 0);
        // As many blocks as run at once.
        let blocks = u64::from(device.properties.multiprocessors) * 8;
        Ok(Pad { kernel: LOADED.kernel(device, &(), load)?, blocks })
    }

    /// Puts copies of one or two matrices on the stream, each from an address to another, which is a multiple of 128.
    ///
    /// # Safety
    /// All elements of the matrices and all bytes of the copies are memory of the stream's device until the stream has done
    /// the work; nobody else touches the copies, and they overlap nothing.
    pub unsafe fn launch(&self, stream: &Stream, copies: &[(Padded, u64, u64)], early: bool) -> Result<(), CudaError> {
        let mut params = Params { of: [Source::default(); 2], warps: 0 };
        for (source, (padded, from, to)) in params.of.iter_mut().zip(copies) {
            *source = told(padded, *from, *to)?;
            let all = params.warps.checked_add(source.warps);
            params.warps = all.ok_or_else(|| CudaError::Refused("more rows than a kernel can count".into()))?;
        }
        if params.warps == 0 {
            return Ok(());
        }
        let grid = (params.warps as u64).div_ceil(WARPS).min(self.blocks);
        // SAFETY: the kernel takes these parameters; the rest is the caller's.
        unsafe { self.kernel.launch(stream, grid as u32, 32 * WARPS as u32, &params, early) }
    }
}

fn told(padded: &Padded, from: u64, to: u64) -> Result<Source, CudaError> {
    let warps = i32::try_from(padded.warps()).ok().filter(|warps| *warps < i32::MAX / 2);
    let warps = warps.ok_or_else(|| CudaError::Refused("more rows than a kernel can count".into()))?;
    if padded.row < 0 || padded.next < 0 {
        return Err(CudaError::Refused("rows that are copied go forward".into()));
    }
    let last = (padded.batch.max(1) - 1) * padded.next as u64 + (padded.rows.max(1) - 1) * padded.row as u64;
    Ok(Source {
        from,
        to,
        first: from,
        end: from + (last + padded.columns) * BYTES,
        row: padded.row,
        batch: padded.next,
        to_row: padded.to_row() as i64,
        to_batch: padded.to_next() as i64,
        rows: padded.rows as i32,
        columns: padded.columns as i32,
        pieces: padded.columns.div_ceil(PIECE).max(1) as i32,
        warps,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_have_whole_lines() {
        let padded = Padded { batch: 2, rows: 3, columns: 50257, row: 50257, next: 3 * 50257 };
        assert_eq!((padded.to_row(), padded.bytes()), (50304, 2 * 3 * 50304 * 2));
        let told = told(&padded, 1002, 128).unwrap();
        assert_eq!(told.end, 1002 + 2 * 3 * 50257 * 2);
        assert_eq!((told.pieces, told.warps), (50, 2 * 3 * 50));
        assert!(super::told(&Padded { row: -1, ..padded }, 0, 0).is_err());
        assert_eq!((size_of::<Source>(), size_of::<Params>()), (80, 168));
    }
}
