//! Whether a kernel can be a call's: what its name and its grid tell against what the call is.
//!
//! A grid tells sizes where no operation does. The rules hold for every kernel of the traces whose
//! operations are recorded too; a kernel no rule knows contradicts nothing.

use gemwright_core::blas::{Settings, Stack, Trans};
use gemwright_core::kernel_name::{self, Role};
use gemwright_core::{Attention, Call, DType, Kernel, LaunchedKernel, Op, Operands};

/// Flags of a matrix product are the same by either stack's rules.
const SETTINGS: Settings = Settings { stack: Stack::Cuda, prefer_lt: false };

/// A kernel that does the work of a product, with those that prepare and finish it.
#[derive(Debug, Clone)]
pub struct Work {
    /// What the main kernel tells.
    pub tells: Tells,
    /// Their places in the list, the main one first.
    pub kernels: Vec<usize>,
}

/// What a kernel tells of the product it computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tells {
    role: Role,
    family: Family,
    tile: Option<(u64, u64)>,
    flags: Option<(bool, bool)>,
    dtype: Option<DType>,
    grid: Option<[u64; 3]>,
}

/// How the grid of a kernel comes about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    /// cuBLASLt on Hopper and later: a block a tile, or as many blocks as the chip holds.
    Nvjet { split: bool },
    /// CUTLASS 2: a block a tile, rounded up, perhaps more than once along K.
    Cutlass,
    /// AMD: threads, a multiple of a wave for each tile.
    Tensile,
    /// cuDNN's attention for few queries, and AOTriton's: the batch is the third extent.
    BatchLast,
    /// FlashAttention: queries, batch, heads.
    Flash,
    /// Nothing is known.
    Other,
}

impl Family {
    fn of(name: &str) -> Family {
        match () {
            () if name.starts_with("nvjet") => Family::Nvjet { split: name.contains("splitK") },
            () if name.contains("cutlass::Kernel2<") => Family::Cutlass,
            () if name.starts_with("Cijk_") => Family::Tensile,
            () if name.contains("flash_fprop_wmma") || name == "attn_fwd" => Family::BatchLast,
            () if name.contains("flash_fwd_kernel") => Family::Flash,
            () => Family::Other,
        }
    }
}

impl Work {
    /// Of a kernel with that role.
    pub fn new(role: Role, kernel: &LaunchedKernel, kernels: Vec<usize>) -> Work {
        let name = &*kernel.name;
        let tells = Tells {
            role,
            family: Family::of(name),
            tile: kernel_name::tile(name),
            flags: kernel_name::flags(name),
            dtype: kernel_name::dtype(name),
            grid: kernel.grid,
        };
        Work { tells, kernels }
    }

    /// It finishes or prepares the kind of work that `rest` is part of.
    pub fn takes(&self, rest: Role) -> bool {
        match rest {
            Role::ProductRest => self.tells.role == Role::Product,
            _ => matches!(self.tells.role, Role::Attention | Role::AttentionBackward),
        }
    }
}

/// A call as far as a kernel can tell of it.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    role: Role,
    dtype: DType,
    /// Of the library's matrix product: batch, M, N and flags; an operand of one row has none.
    gemm: Option<([u64; 3], [Option<bool>; 2])>,
    /// Of attention: batch, heads, heads of the keys.
    heads: Option<[u64; 3]>,
}

impl Wanted {
    /// `None`: it runs no kernel of its own.
    pub fn of(call: &Call) -> Option<Wanted> {
        let role = match (call.op, &call.operands) {
            (_, Operands::Attention(attention)) if attention.kernel() == Kernel::Math => return None,
            (Op::Attention, _) => Role::Attention,
            (Op::AttentionBackward, _) => Role::AttentionBackward,
            (Op::Convolution | Op::ConvolutionBackward, _) => Role::Convolution,
            _ => Role::Product,
        };
        if call.flops() == 0 {
            return None;
        }
        let gemm = call.gemm(SETTINGS).map(|gemm| {
            let flag = |extent: i64, trans: Trans| (extent > 1 && gemm.k > 1).then_some(trans == Trans::T);
            let batch = call.product().map_or(1, |p| p.batch);
            let extents = [batch, gemm.m.unsigned_abs(), gemm.n.unsigned_abs()];
            (extents, [flag(gemm.m, gemm.transa), flag(gemm.n, gemm.transb)])
        });
        let heads = match &call.operands {
            Operands::Attention(Attention { q, k, .. }) => Some([q.size[0], q.size[1], k.size[1]].map(|n| n as u64)),
            _ => None,
        };
        Some(Wanted { role, dtype: call.dtype(), gemm, heads })
    }
}

/// What a pair weighs; what agrees beside that weighs one more.
const PAIR: u32 = 8;

/// How well a kernel fits a call, `None` where they contradict.
pub fn weight(wanted: &Wanted, work: &Tells) -> Option<u32> {
    if wanted.role != work.role {
        return None;
    }
    let dtype = work.dtype.filter(|_| work.role == Role::Product).map(|dtype| dtype == wanted.dtype);
    let told = [dtype, flags(wanted, work), blocks(wanted, work)];
    if told.contains(&Some(false)) {
        return None;
    }
    let tile = wanted.gemm.zip(work.tile).map(|(([_, m, n], _), tile)| suits((m, n), tile));
    Some(PAIR + told.into_iter().chain([tile]).filter(|agrees| *agrees == Some(true)).count() as u32)
}

fn flags(wanted: &Wanted, work: &Tells) -> Option<bool> {
    let ((_, wanted), (first, second)) = (wanted.gemm?, work.flags?);
    Some(wanted.into_iter().zip([first, second]).all(|(wanted, named)| wanted.is_none_or(|w| w == named)))
}

/// A tile of which not most would lie outside; the smallest ones suit everything.
fn suits((m, n): (u64, u64), (tile_m, tile_n): (u64, u64)) -> bool {
    let fits = |extent: u64, tile: u64| tile <= 64 || tile < 2 * extent;
    fits(m, tile_m) && fits(n, tile_n)
}

/// No chip that runs as many blocks as it holds has fewer units.
const FEWEST_UNITS: u64 = 64;
/// Blocks come in clusters of up to so many.
const CLUSTER: u64 = 8;
/// Threads of AMD's waves.
const WAVE: u64 = 64;

/// Whether the grid is one that the call's sizes give.
fn blocks(wanted: &Wanted, work: &Tells) -> Option<bool> {
    let grid = work.grid?;
    if let Some([batch, heads, key_heads]) = wanted.heads {
        return match work.family {
            Family::BatchLast => Some(grid[2] == batch && (grid[1] == heads || grid[1] == key_heads)),
            Family::Flash => Some(grid[1] == batch && grid[2] == heads),
            _ => None,
        };
    }
    let (([batch, m, n], _), (tile_m, tile_n)) = (wanted.gemm?, work.tile?);
    let tiles = m.div_ceil(tile_m).checked_mul(n.div_ceil(tile_n))?.checked_mul(batch)?;
    let blocks = grid.iter().try_fold(1u64, |product, n| product.checked_mul(*n))?;
    match work.family {
        Family::Nvjet { split: true } => Some(blocks >= 2 * tiles),
        Family::Nvjet { split: false } => Some(blocks < tiles + CLUSTER && blocks >= tiles.min(FEWEST_UNITS)),
        Family::Cutlass => Some(blocks >= tiles),
        Family::Tensile => Some(tiles > 0 && blocks.is_multiple_of(tiles * WAVE)),
        _ => None,
    }
}
