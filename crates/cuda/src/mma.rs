//! Products by mma.sync, on every GPU from compute capability 8.0 on: one block a tile, operands as they lie.

use crate::config::{End, Layouts, PartWay};
use crate::driver::{Device, Kernel, Stream};
use crate::ends::{Ends, EndsOf, Matrix, Operands};
use crate::error::CudaError;
use crate::loaded::Loaded;
use crate::nvrtc::{Compiled, compile};
use gemwright_core::{Activation, DType, Product};
use std::fmt;
use std::sync::Arc;

const TEXT: &str = include_str!("../kernels/gemm_sm80.cu");
const HEADERS: [(&str, &str); 3] = [
    ("ptx.cuh", include_str!("../kernels/ptx.cuh")),
    ("walk.cuh", include_str!("../kernels/walk.cuh")),
    ("epilogue.cuh", include_str!("../kernels/epilogue.cuh")),
];
/// Elements of K in a slot of the ring.
const BLOCK_K: u32 = 32;
/// Bytes of shared memory that a block may have on the smallest of these GPUs (8.6 and 8.9).
pub const MMA_SHARED: u32 = 101_376;

/// Rows and columns of a tile, the warps that share it, slots of the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub struct MmaTile {
    pub m: u32,
    pub n: u32,
    pub warps: [u32; 2],
    pub stages: u32,
}

impl MmaTile {
    /// All of them; each warp has 64 by 32, 32 by 32 or 16 by 32 sums.
    pub const ALL: [MmaTile; 4] = [
        MmaTile { m: 128, n: 128, warps: [2, 4], stages: 5 },
        MmaTile { m: 64, n: 128, warps: [2, 4], stages: 6 },
        MmaTile { m: 64, n: 64, warps: [2, 2], stages: 8 },
        MmaTile { m: 16, n: 128, warps: [1, 4], stages: 8 },
    ];

    /// From a name such as `mma-128x128`.
    pub fn named(name: &str) -> Option<MmaTile> {
        MmaTile::ALL.into_iter().find(|tile| tile.to_string() == name)
    }

    /// The one that gives every multiprocessor something, the largest of those; the smallest that covers few rows.
    pub fn pick(product: &Product, multiprocessors: u32) -> MmaTile {
        let tiles =
            |tile: &MmaTile| product.batch * product.m.div_ceil(tile.m.into()) * product.n.div_ceil(tile.n.into());
        let [large, .., few] = MmaTile::ALL;
        if product.m <= u64::from(few.m) {
            return few;
        }
        let full = |tile: &MmaTile| tiles(tile) >= u64::from(multiprocessors);
        MmaTile::ALL[..3].iter().copied().find(full).unwrap_or(if product.m <= 64 { MmaTile::ALL[2] } else { large })
    }

    fn threads(&self) -> u32 {
        self.warps[0] * self.warps[1] * 32
    }

    fn shared(&self) -> u32 {
        self.stages * (self.m + self.n) * BLOCK_K * 2
    }
}

impl fmt::Display for MmaTile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mma-{}x{}", self.m, self.n)
    }
}

/// A kernel. The rows of a are the result's, those of b its columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub struct MmaConfig {
    pub tile: MmaTile,
    pub layouts: Layouts,
    /// Bytes that a and b allow to be read at once: 16, 8, 4 or 2.
    pub grains: [u32; 2],
    pub dtype: DType,
    pub out_dtype: DType,
    /// Added to what the result has.
    pub add: bool,
    pub activation: Activation,
    /// Scale, bias, times, residual.
    pub parts: [PartWay; 4],
    pub kept: bool,
    /// Sums are multiplied with alpha.
    pub scaled: bool,
}

impl MmaConfig {
    /// A plain product of bf16.
    pub fn new(tile: MmaTile) -> MmaConfig {
        MmaConfig {
            tile,
            layouts: Layouts { a_mn: false, b_mn: false },
            grains: [16, 16],
            dtype: DType::Bf16,
            out_dtype: DType::Bf16,
            add: false,
            activation: Activation::None,
            parts: [PartWay::None; 4],
            kept: false,
            scaled: false,
        }
    }

    /// Compiles the kernel for an architecture such as `sm_80`, or takes it from the disk unless it is wanted `anew`.
    pub fn compile(&self, architecture: &str, anew: bool) -> Result<Compiled, CudaError> {
        let flag = u32::from;
        let all = [
            ("BM", self.tile.m),
            ("BN", self.tile.n),
            ("WARPS_M", self.tile.warps[0]),
            ("WARPS_N", self.tile.warps[1]),
            ("STAGES", self.tile.stages),
            ("A_MN", flag(self.layouts.a_mn)),
            ("B_MN", flag(self.layouts.b_mn)),
            ("GRAIN_A", self.grains[0]),
            ("GRAIN_B", self.grains[1]),
            ("OPERAND_F16", flag(self.dtype == DType::F16)),
        ];
        let end = End {
            out_dtype: self.out_dtype,
            add: self.add,
            scaled: self.scaled,
            activation: self.activation,
            parts: self.parts,
            kept: self.kept,
            scales: false,
        };
        let all = all.into_iter().chain(end.defines());
        let defines: Vec<_> = all.map(|(name, value)| (name.to_string(), value.to_string())).collect();
        compile(TEXT, &HEADERS, architecture, &defines, anew)
    }
}

/// `Operand` of kernels/gemm_sm80.cu.
#[repr(C)]
#[derive(Clone, Copy)]
struct OperandParam {
    first: u64,
    row: i64,
    k: i64,
    batch: i64,
}

/// `Params` of kernels/gemm_sm80.cu.
#[repr(C)]
#[derive(Clone, Copy)]
struct Params {
    a: OperandParam,
    b: OperandParam,
    ends: Ends,
    k: i32,
    tiles_m: i32,
    tiles_n: i32,
    group: i32,
}

/// A kernel and a product of a certain shape.
#[derive(Debug, Clone)]
pub struct MmaGemm {
    /// What was compiled.
    pub config: MmaConfig,
    product: Product,
    kernel: Arc<Kernel>,
    tiles: [u64; 2],
}

fn kernel(device: &Arc<Device>, config: &MmaConfig) -> Result<Arc<Kernel>, CudaError> {
    static LOADED: Loaded<MmaConfig> = Loaded::new();
    LOADED.kernel(device, config, || {
        let cubin = config.compile(&device.architecture(), false)?.cubin;
        Kernel::load(device, &cubin, "gemm", config.tile.shared())
    })
}

impl MmaGemm {
    /// Compiles, or finds, the kernel.
    pub fn new(device: &Arc<Device>, config: MmaConfig, product: Product) -> Result<MmaGemm, CudaError> {
        device.has_mma()?;
        let Product { batch, m, n, k } = product;
        let tiles = [m.div_ceil(config.tile.m.into()), n.div_ceil(config.tile.n.into())];
        let count = tiles[0].checked_mul(tiles[1]).and_then(|tiles| tiles.checked_mul(batch));
        if count.is_none_or(|count| count >= 1 << 31) || [m, n, k].into_iter().any(|extent| extent >= 1 << 30) {
            return Err(CudaError::Refused("more tiles than a kernel can count".into()));
        }
        Ok(MmaGemm { config, product, kernel: kernel(device, &config)?, tiles })
    }

    /// Puts a run on the stream.
    ///
    /// # Safety
    /// Every element of the operands, as the product's extents and the matrices' steps have them, is memory of the
    /// stream's device until the stream has done the work; those of the result and of what is kept are touched by nobody
    /// else, and overlap nothing.
    pub unsafe fn launch(&self, stream: &Stream, operands: &Operands) -> Result<(), CudaError> {
        let Product { batch, m, n, k } = self.product;
        if batch == 0 || m == 0 || n == 0 {
            return Ok(());
        }
        let [tiles_m, tiles_n] = self.tiles;
        let ends = EndsOf { extents: (m, n), turned: false, parts: self.config.parts, dtype: self.config.out_dtype };
        let operand = |matrix: Matrix| OperandParam {
            first: matrix.address,
            row: matrix.row,
            k: matrix.col,
            batch: matrix.batch,
        };
        for (matrix, grain) in [operands.a, operands.b].into_iter().zip(self.config.grains) {
            if !matrix.address.is_multiple_of(grain.into()) {
                return Err(CudaError::Refused(format!("an operand must begin on {grain} bytes")));
            }
        }
        let params = Params {
            a: operand(operands.a),
            b: operand(operands.b.transposed()),
            ends: ends.told(operands)?,
            k: k as i32,
            tiles_m: tiles_m as i32,
            tiles_n: tiles_n as i32,
            group: tiles_m.clamp(1, 8) as i32,
        };
        let grid = (batch * tiles_m * tiles_n) as u32;
        // SAFETY: the kernel takes these parameters; the rest is the caller's.
        unsafe { self.kernel.launch(stream, grid, self.config.tile.threads(), &params, false) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tile_fits_the_smallest_gpu() {
        for tile in MmaTile::ALL {
            assert!(tile.shared() <= MMA_SHARED, "{tile}");
            assert_eq!(MmaTile::named(&tile.to_string()), Some(tile));
            // A warp has whole fragments of 16 by 16.
            assert!((tile.m / tile.warps[0]).is_multiple_of(16) && (tile.n / tile.warps[1]).is_multiple_of(16));
        }
    }

    #[test]
    fn large_products_get_large_tiles() {
        let pick = |m, n| MmaTile::pick(&Product { batch: 1, m, n, k: 1024 }, 108).to_string();
        assert_eq!(pick(4096, 4096), "mma-128x128");
        assert_eq!(pick(512, 2048), "mma-64x128");
        assert_eq!(pick(8, 4096), "mma-16x128");
    }

    #[test]
    fn parameters_lie_as_the_kernel_has_them() {
        assert_eq!(std::mem::offset_of!(Params, ends), 64);
        assert_eq!(std::mem::offset_of!(Params, k), 64 + size_of::<Ends>());
        assert_eq!(size_of::<Ends>(), 6 * 32 + 16 + 24);
    }
}
