//! Products of a few rows with weights \[N, K\], which are streamed once.

use crate::config::{End, PartWay};
use crate::driver::{Device, Kernel, Stream};
use crate::ends::{Ends, EndsOf, Operands};
use crate::error::CudaError;
use crate::loaded::Loaded;
use crate::nvrtc::{Compiled, compile};
use gemwright_core::{Activation, DType, DecodeChoice, Product};
use std::sync::Arc;

const TEXT: &str = include_str!("../kernels/decode.cu");
const HEADERS: [(&str, &str); 2] =
    [("ptx.cuh", include_str!("../kernels/ptx.cuh")), ("epilogue.cuh", include_str!("../kernels/epilogue.cuh"))];
/// Registers of a multiprocessor.
const REGISTERS: u32 = 65_536;

/// A kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub struct DecodeConfig {
    pub choice: DecodeChoice,
    /// Groups of 8 rows of x: 1 or 2.
    pub tokens: u32,
    /// Of x and the weight.
    pub dtype: DType,
    pub out_dtype: DType,
    /// Rows of x, of the weight, begin anywhere rather than on 16 bytes.
    pub shifted: [bool; 2],
    /// K is no multiple of the elements in 16 bytes.
    pub tail: bool,
    /// The weight is two, \[2N, K\].
    pub gated: bool,
    /// Added to what the result has.
    pub add: bool,
    pub activation: Activation,
    /// Scale, bias, times, residual.
    pub parts: [PartWay; 4],
    pub kept: bool,
    /// Sums are multiplied with alpha.
    pub scaled: bool,
}

impl DecodeConfig {
    /// A plain product of bf16 with up to 8 rows.
    pub fn new(choice: DecodeChoice) -> DecodeConfig {
        DecodeConfig {
            choice,
            tokens: 1,
            dtype: DType::Bf16,
            out_dtype: DType::Bf16,
            shifted: [false; 2],
            tail: false,
            gated: false,
            add: false,
            activation: Activation::None,
            parts: [PartWay::None; 4],
            kept: false,
            scaled: false,
        }
    }

    /// Groups of 16 rows of the weight in a tile: of two weights as many each.
    fn groups(&self) -> u32 {
        if self.gated { self.choice.groups.max(2) } else { self.choice.groups }
    }

    /// Columns of the result in a tile.
    fn columns(&self) -> u64 {
        u64::from(16 * self.groups() / if self.gated { 2 } else { 1 })
    }

    fn threads(&self) -> u32 {
        32 * self.choice.warps
    }

    /// Blocks that a multiprocessor runs at once, by the registers of what is on the way and some for the rest.
    pub fn blocks(&self) -> u32 {
        let times = |shifted: bool| if shifted { 2 } else { 1 };
        let w = 8 * self.groups() * times(self.shifted[1]);
        let x = 4 * self.tokens * times(self.shifted[0]);
        let sums = 4 * self.groups() * self.tokens;
        let rows = 6 * self.groups() + 3 * self.tokens;
        let registers = (w + x) * self.choice.ahead + sums + rows + 34;
        (REGISTERS / (self.threads() * registers)).clamp(1, 2048 / self.threads())
    }

    /// More on the way than a thread has registers for.
    pub fn fits(&self) -> bool {
        let per_group = 8 * if self.shifted[1] { 2 } else { 1 };
        let per_token = 4 * if self.shifted[0] { 2 } else { 1 };
        let ring = (per_group * self.groups() + per_token * self.tokens) * self.choice.ahead;
        let most = (REGISTERS / self.threads()).min(255);
        // Partial sums have 48 KB.
        let shared = self.choice.warps * self.groups() * 16 * self.tokens * 8 * 4;
        ring + 8 * self.groups() + 48 <= most && shared <= 48 << 10
    }

    /// Compiles the kernel for an architecture such as `sm_90a`, or takes it from the disk unless it is wanted `anew`.
    pub fn compile(&self, architecture: &str, anew: bool) -> Result<Compiled, CudaError> {
        let flag = u32::from;
        let all = [
            ("TOKENS", self.tokens),
            ("GROUPS", self.groups()),
            ("WARPS", self.choice.warps),
            ("SPLIT", self.choice.split),
            ("AHEAD", self.choice.ahead),
            ("BLOCKS", self.blocks()),
            ("X_SHIFTED", flag(self.shifted[0])),
            ("W_SHIFTED", flag(self.shifted[1])),
            ("K_TAIL", flag(self.tail)),
            ("OPERAND_F16", flag(self.dtype == DType::F16)),
            ("GATED", flag(self.gated)),
        ];
        let end = End {
            out_dtype: self.out_dtype,
            add: self.add,
            scaled: self.scaled,
            activation: self.activation,
            parts: self.parts,
            kept: self.kept,
        };
        let all = all.into_iter().chain(end.defines());
        let defines: Vec<_> = all.map(|(name, value)| (name.to_string(), value.to_string())).collect();
        compile(TEXT, &HEADERS, architecture, &defines, anew)
    }
}

/// `Params` of kernels/decode.cu; steps in bytes.
#[repr(C)]
#[derive(Clone, Copy)]
struct Params {
    w: u64,
    w_row: i64,
    w_batch: i64,
    x: u64,
    x_row: i64,
    x_batch: i64,
    ends: Ends,
    k: i32,
    tiles: i32,
    all: i32,
    constant: i32,
}

/// A kernel and a product of a certain shape.
#[derive(Debug, Clone)]
pub struct Decode {
    /// What was compiled.
    pub config: DecodeConfig,
    product: Product,
    kernel: Arc<Kernel>,
    tiles: u64,
    grid: u32,
}

fn kernel(device: &Arc<Device>, config: &DecodeConfig) -> Result<Arc<Kernel>, CudaError> {
    static LOADED: Loaded<DecodeConfig> = Loaded::new();
    LOADED.kernel(device, config, || {
        let cubin = config.compile(&device.architecture(), false)?.cubin;
        Kernel::load(device, &cubin, "decode", 0)
    })
}

impl Decode {
    /// Compiles, or finds, the kernel.
    pub fn new(device: &Arc<Device>, config: DecodeConfig, product: Product) -> Result<Decode, CudaError> {
        device.has_mma()?;
        let refused = |why: &str| Err(CudaError::Refused(why.into()));
        if !config.fits() {
            return refused("more pieces on the way than there are registers");
        }
        if config.choice.split > 1 && device.properties.capability.0 < 9 {
            return refused("clusters of blocks need a GPU of compute capability 9");
        }
        let tiles = product.n.div_ceil(config.columns());
        let all = tiles.checked_mul(product.batch);
        let Some(all) = all.filter(|all| *all < 1 << 27 && product.n < 1 << 30 && product.k < 1 << 30) else {
            return refused("more tiles than a kernel can count");
        };
        let at_once = u64::from(device.properties.multiprocessors * config.blocks());
        let blocks = if config.choice.persistent { all.min(at_once) } else { all };
        let grid = blocks as u32 * config.choice.split;
        Ok(Decode { config, product, kernel: kernel(device, &config)?, tiles, grid })
    }

    /// Puts a run on the stream; `early`: beside the end of what is on it, as the driver allows; `constant`: and no work on the
    /// stream that may not have ended writes the weight, so that it is read before that end.
    ///
    /// # Safety
    /// Every element of the operands is memory of the stream's device until the stream has done the work, in whole sixteen
    /// bytes. Those of the result and of what is kept are touched by nobody else, and overlap nothing. `constant` is true.
    pub unsafe fn launch(
        &self,
        stream: &Stream,
        operands: &Operands,
        early: bool,
        constant: bool,
    ) -> Result<(), CudaError> {
        let Product { batch, m, n, k } = self.product;
        if batch == 0 || m == 0 || n == 0 {
            return Ok(());
        }
        let config = &self.config;
        let (weight, x) = (operands.b.transposed(), operands.a);
        let bytes = config.dtype.bytes() as i64;
        let steps =
            [(x.address, x.row * bytes, x.batch * bytes), (weight.address, weight.row * bytes, weight.batch * bytes)];
        let weights = if config.gated { 2 * n } else { n };
        for (((address, row, next), shifted), rows) in steps.into_iter().zip(config.shifted).zip([m, weights]) {
            // A step over an extent of one is never taken.
            let aligned = (row % 16 == 0 || rows <= 1) && (next % 16 == 0 || batch <= 1);
            if !(shifted || address.is_multiple_of(16) && aligned) {
                return Err(CudaError::Refused("rows of an operand must begin on 16 bytes".into()));
            }
        }
        let ends = EndsOf { extents: (m, n), turned: false, parts: config.parts, dtype: config.out_dtype };
        let [(x, x_row, x_batch), (w, w_row, w_batch)] = steps;
        let params = Params {
            w,
            w_row,
            w_batch,
            x,
            x_row,
            x_batch,
            ends: ends.told(operands)?,
            k: k as i32,
            tiles: self.tiles as i32,
            all: (self.tiles * batch) as i32,
            constant: constant.into(),
        };
        // SAFETY: the kernel takes these parameters; the rest is the caller's.
        unsafe { self.kernel.launch(stream, self.grid, config.threads(), &params, early) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_lie_as_the_kernel_has_them() {
        assert_eq!(std::mem::offset_of!(Params, ends), 48);
        assert_eq!(std::mem::offset_of!(Params, k), 48 + size_of::<Ends>());
    }

    #[test]
    fn a_multiprocessor_gets_as_many_blocks_as_registers_allow() {
        let blocks = |name: &str| DecodeConfig::new(DecodeChoice::named(name).unwrap()).blocks();
        assert_eq!([blocks("decode-16x8a4"), blocks("decode-16x4a4"), blocks("decode-32x4a4p")], [2, 5, 3]);
    }
}
