//! A product on a device: kernel, grid, and what each run is told.

use crate::config::{Config, Gate, Grouping, OutWay, THREADS};
use crate::driver::{Device, Kernel, Memory, Stream};
use crate::ends::{Ends, EndsOf, Matrix, Operands};
use crate::error::CudaError;
use crate::groups::MOST_GROUPS;
use crate::loaded::Loaded;
use crate::nvrtc::compile;
use crate::tensor_map::{Swizzle, TensorBox};
use cudarc::driver::sys::CUtensorMap;
use gemwright_core::{DType, KernelTile, Product, Schedule, clusters_at_once};
use std::sync::Arc;

const TEXT: &str = include_str!("../kernels/gemm_sm90.cu");
const HEADERS: [(&str, &str); 7] = [
    ("ptx.cuh", include_str!("../kernels/ptx.cuh")),
    ("walk.cuh", include_str!("../kernels/walk.cuh")),
    ("groups.cuh", include_str!("../kernels/groups.cuh")),
    ("epilogue.cuh", include_str!("../kernels/epilogue.cuh")),
    ("load.cuh", include_str!("../kernels/load.cuh")),
    ("meet.cuh", include_str!("../kernels/meet.cuh")),
    ("store.cuh", include_str!("../kernels/store.cuh")),
];

/// Memory for tiles that are cut along K; one for each stream.
#[derive(Debug)]
pub struct Scratch {
    partial: Memory,
    flags: Memory,
}

impl Scratch {
    /// Enough for every kernel on this device.
    pub fn new(stream: &Stream) -> Result<Scratch, CudaError> {
        let device = stream.device();
        let blocks = device.properties.multiprocessors as usize;
        // The largest tile is of 256 by 192 sums.
        let partial = Memory::new(device, blocks * 256 * 192 * 4)?;
        let flags = Memory::new(device, blocks * 8)?;
        flags.fill(0, flags.bytes(), 0, stream)?;
        Ok(Scratch { partial, flags })
    }
}

/// `Params` of kernels/gemm_sm90.cu.
#[repr(C, align(128))]
#[derive(Clone, Copy)]
struct Params {
    a: CUtensorMap,
    b: CUtensorMap,
    c: [CUtensorMap; 3],
    kept: [[CUtensorMap; 3]; 2],
    ends: Ends,
    partial: u64,
    flags: u64,
    k: i32,
    tiles_m: i32,
    tiles_n: i32,
    group: i32,
    whole: i32,
    shared: i32,
    z_a: i32,
    z_b: i32,
    early: i32,
    groups: i32,
    group_ends: u64,
}

/// How a product falls to the blocks of a grid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shares {
    grid: u32,
    tiles_m: i32,
    tiles_n: i32,
    group: i32,
    whole: i32,
    shared: i32,
}

/// A kernel and a product of a certain shape.
#[derive(Debug, Clone)]
pub struct Gemm {
    /// What was compiled.
    pub config: Config,
    product: Product,
    kernel: Arc<Kernel>,
    shares: Shares,
}

/// k of a block: a row of the swizzle.
fn block_k(dtype: DType) -> u64 {
    128 / dtype.bytes()
}

/// K up to which bands lie along the longer side where neither operand is contiguous along it: results are most of what goes
/// to and from memory there (7 and 8 % faster with 512; with 2048 and more, or other layouts, up to 3 % slower).
const SHORT_K: u64 = 1024;
/// Bytes of a that stay in the second-level cache beside what passes through it: with bands as high as that b comes from memory
/// a few times fewer, which gains up to 4 % of time where K is short.
const KEPT: u64 = 12_000_000;
/// Blocks of K below which no part of a tile is worth leaving and taking.
const LEAST_BLOCKS: i64 = 4;

impl Shares {
    /// `m` and `n` are the kernel's.
    fn of(config: &Config, (m, n, k, batch): (u64, u64, u64, u64), multiprocessors: u32) -> Result<Shares, CudaError> {
        let mut tiles_m = m.div_ceil(u64::from(config.tile.m * config.cluster.down));
        let mut tiles_n = n.div_ceil(u64::from(config.written() * config.cluster.across));
        let mut batch = batch;
        if config.grouping == Grouping::Rows {
            // At most: every group may begin a tile of its own. How many there are is seen on the device.
            *(if config.turned { &mut tiles_n } else { &mut tiles_m }) += batch;
            batch = 1;
        }
        let tiles = tiles_m.checked_mul(tiles_n).and_then(|tiles| tiles.checked_mul(batch));
        let most = i32::MAX as u64 / 8;
        let blocks = k.div_ceil(block_k(config.dtype));
        let tiles = tiles.filter(|tiles| tiles.saturating_mul(blocks.max(1)) < most);
        let tiles = tiles.ok_or_else(|| CudaError::Refused("more tiles than a kernel can count".into()))?;
        let at_once = clusters_at_once(multiprocessors.into(), config.cluster.size().into());
        let (clusters, shared) = match config.schedule {
            Schedule::SplitK(parts) if config.far() && tiles * u64::from(parts) > at_once => {
                return Err(CudaError::Refused("parts of K that wait for each other do not all run at once".into()));
            }
            Schedule::DataParallel | Schedule::SplitK(_) => (tiles, 0),
            Schedule::Persistent => (tiles.min(at_once), 0),
            Schedule::StreamK => {
                let rest = tiles % at_once;
                // Of no K no part can be left.
                let shared = if rest == 0 || blocks == 0 { 0 } else { (rest + at_once).min(tiles) };
                let worth = (shared * blocks) as i64 / LEAST_BLOCKS;
                (if tiles >= at_once { at_once } else { at_once.min(worth.max(tiles as i64) as u64) }, shared)
            }
        };
        let per_cluster = u64::from(config.cluster.size() * config.split());
        Ok(Shares {
            grid: (clusters * per_cluster) as u32,
            tiles_m: tiles_m as i32,
            tiles_n: tiles_n as i32,
            group: group(config, (tiles_m, tiles_n), at_once, k) as i32,
            whole: (tiles - shared) as i32,
            shared: shared as i32,
        })
    }
}

/// Tiles of a band, down M or, less than 0, along N: those in flight should read as few rows of a and b as possible, and what
/// every band meets again should be the smaller operand, or few bands meet it. Where a few tokens are turned, or a row of tiles
/// is a few, neighbours share weights, which come from memory: up to a third faster.
fn group(config: &Config, (tiles_m, tiles_n): (u64, u64), at_once: u64, k: u64) -> i64 {
    let several = tiles_m * tiles_n > at_once;
    let neighbours = if config.turned { tiles_n <= 4 || !several } else { several && tiles_m > 2 * tiles_n };
    if tiles_n <= 8 && neighbours {
        return 1;
    }
    let rows = u64::from(config.tile.m * config.cluster.down);
    let cols = u64::from(config.tile.n * config.cluster.across);
    let whole = config.schedule != Schedule::StreamK;
    let layouts = config.layouts;
    let along = k <= SHORT_K && whole && layouts.a_mn && layouts.b_mn && tiles_n * cols > tiles_m * rows;
    let (wide, far, tiles) = if along { (cols, rows, tiles_n) } else { (rows, cols, tiles_m) };
    let read = |group: &u64| group * wide + at_once.div_ceil(*group) * far;
    // Of small tiles each is read so often that it should be by neighbours.
    let most = if config.tile.m == 64 && several { 4 } else { 16 };
    let least = (1..=most.min(tiles.max(1))).min_by_key(read).unwrap_or(1);
    let strip = (wide * config.dtype.bytes()).saturating_mul(k).max(1);
    let high = if layouts.a_mn || layouts.b_mn { least } else { least.max(KEPT / strip) };
    let size = match most {
        4 => least,
        // A band of what is left over would meet all of the other operand once more.
        _ if 2 * tiles < 3 * high => tiles.max(1),
        _ if high > least => tiles.div_ceil(tiles.div_ceil(high)),
        _ => least,
    };
    if along { -(size as i64) } else { size as i64 }
}

/// Blocks of K whose weights are asked for before the kernel before has ended. What they are multiplied by comes behind them, and
/// is what the tensor cores wait for where it is more than they are, or where tokens are many.
fn early_blocks(config: &Config, tokens: u64) -> i32 {
    let KernelTile { m, n, .. } = config.tile;
    let (weights, others) = if config.turned { (m, n) } else { (n, m) };
    let kib = if tokens <= 128 { 48 } else { 32 };
    let bytes = (kib * weights / others).clamp(16, 64) << 10;
    (bytes / (weights * 128)).max(1) as i32
}

fn kernel(device: &Arc<Device>, config: &Config) -> Result<Arc<Kernel>, CudaError> {
    static LOADED: Loaded<Config> = Loaded::new();
    LOADED.kernel(device, config, || Kernel::load(device, &config.compile(false)?.cubin, "gemm", config.shared()))
}

impl Config {
    /// Compiles the kernel, or takes it from the disk unless it is wanted `anew`.
    pub fn compile(&self, anew: bool) -> Result<crate::nvrtc::Compiled, CudaError> {
        self.check()?;
        let wgmma = self.wgmma();
        let headers = [HEADERS.as_slice(), &[("wgmma.cuh", wgmma.as_str())]].concat();
        compile(TEXT, &headers, "sm_90a", &self.defines(), anew)
    }
}

impl Gemm {
    /// Compiles, or finds, the kernel. Of groups the batch of the product is how many there are, and its rows, or its k,
    /// are those of all.
    pub fn new(device: &Arc<Device>, config: Config, product: Product) -> Result<Gemm, CudaError> {
        device.runs_our_kernels()?;
        let Product { batch, m, n, k } = product;
        if config.grouping != Grouping::None && batch > MOST_GROUPS {
            return Err(CudaError::Refused(format!("{batch} groups are more than the {MOST_GROUPS} that it takes")));
        }
        let sides = if config.turned { (n, m, k, batch) } else { (m, n, k, batch) };
        let shares = Shares::of(&config, sides, device.properties.multiprocessors)?;
        Ok(Gemm { config, product, kernel: kernel(device, &config)?, shares })
    }

    /// Puts a run on the stream; `early`: beside the end of what is on it, as the driver allows; `constant`: and no work on the
    /// stream writes b, so that it is asked for before that has ended.
    ///
    /// # Safety
    /// `constant` is true. Every element of the operands, as the product's extents and the matrices' steps have them, is memory of the
    /// stream's device until the stream has done the work; those of the result are touched by nobody else, and overlap
    /// nothing. The scratch is of this stream alone. Of groups as many ends are there as groups, in order, none less than the
    /// one before or more than there are rows, or k. Factors are one, or as many as the operand has lines along k.
    pub unsafe fn launch(
        &self,
        stream: &Stream,
        operands: &Operands,
        scratch: &Scratch,
        early: bool,
        constant: bool,
    ) -> Result<(), CudaError> {
        let Product { batch, m, n, .. } = self.product;
        if batch == 0 || m == 0 || n == 0 {
            return Ok(());
        }
        let params = self.params(operands, scratch, early && constant)?;
        // SAFETY: the kernel takes these parameters; the rest is the caller's.
        unsafe { self.kernel.launch(stream, self.shares.grid, THREADS, &params, early) }
    }

    fn params(&self, operands: &Operands, scratch: &Scratch, constant: bool) -> Result<Params, CudaError> {
        let (config, Product { batch, m, n, k }) = (&self.config, self.product);
        let halves: u32 = if config.gate == Gate::First { 2 } else { 1 };
        if (config.grouping != Grouping::None) != operands.group_ends.is_some() {
            return Err(CudaError::Refused("groups need to be told where they end, and only they".into()));
        }
        let results = if config.grouping == Grouping::Rows { 1 } else { batch };
        // The kernel's a is [m, K], its b [n, K].
        let (mut a, mut b) = (operands.a, operands.b.transposed());
        // What belongs to groups is one matrix.
        if config.grouping != Grouping::None {
            a.batch = 0;
        }
        if config.grouping == Grouping::K {
            b.batch = 0;
        }
        let (mut rows_a, mut rows_b) = (m, n);
        if config.turned {
            ((a, b), (rows_a, rows_b)) = ((b, a), (rows_b, rows_a));
        }
        let tile = config.tile;
        // Of a shared tile every block fetches a part, in whole atoms of the swizzle.
        let part_b = if halves == 2 { tile.n / 2 } else { (tile.n / config.cluster.down).next_multiple_of(8) };
        let part_a = tile.m / config.cluster.across;
        let a_map = operand(config.dtype, a, (rows_a, k, batch), config.layouts.a_mn, part_a)?;
        let b_map = operand(config.dtype, b, (rows_b * u64::from(halves), k, batch), config.layouts.b_mn, part_b)?;
        let (mut c, mut kept) = ([NO_MAP; 3], [[NO_MAP; 3]; 2]);
        if config.output.way == OutWay::Boxes && config.split() == 1 {
            c = boxes(config, operands.out, (m, n, results))?;
            if let Some(matrix) = operands.kept {
                let second = Matrix { address: matrix.address + n * config.output.dtype.bytes(), ..matrix };
                let half = |matrix: Matrix| boxes(config, matrix, (m, n, batch));
                kept = [half(matrix)?, if halves == 2 { half(second)? } else { [NO_MAP; 3] }];
            }
        }
        if config.scales != operands.scales.iter().any(Option::is_some) {
            return Err(CudaError::Refused("a kernel for factors needs some, and only that".into()));
        }
        if config.kept != operands.kept.is_some() {
            return Err(CudaError::Refused("what is kept needs a place, and only that".into()));
        }
        let z = |matrix: Matrix| i32::from(batch > 1 && matrix.batch != 0);
        let shares = self.shares;
        Ok(Params {
            a: a_map,
            b: b_map,
            c,
            kept,
            ends: EndsOf {
                extents: (rows_a, rows_b),
                turned: config.turned,
                parts: config.parts,
                dtype: config.output.dtype,
            }
            .told(operands)?,
            partial: scratch.partial.address(),
            flags: scratch.flags.address(),
            k: k as i32,
            tiles_m: shares.tiles_m,
            tiles_n: shares.tiles_n,
            group: shares.group,
            whole: shares.whole,
            shared: shares.shared,
            z_a: z(a),
            z_b: z(b),
            early: if constant { early_blocks(config, m) } else { 0 },
            groups: if config.grouping == Grouping::None { 0 } else { batch as i32 },
            group_ends: operands.group_ends.unwrap_or(0),
        })
    }
}

const NO_MAP: CUtensorMap = CUtensorMap { opaque: [0; 16] };

/// Rows, columns, batch.
type Extents = (u64, u64, u64);

/// The result as boxes that leave a block, of each size.
fn boxes(config: &Config, matrix: Matrix, extents: Extents) -> Result<[CUtensorMap; 3], CudaError> {
    let mut maps = [NO_MAP; 3];
    for (map, size) in maps.iter_mut().zip(out_boxes(config)) {
        *map = result(config.output.dtype, matrix, extents, size)?;
    }
    Ok(maps)
}

/// Boxes (columns, rows) of the result that leave a block: of 64, 32 and 16 columns, of f32 32 and 16, by the 64 rows of a
/// warpgroup or the 16 of a warp; turned ones of 64 columns, by 64 tokens and by the rest of them.
fn out_boxes(config: &Config) -> Vec<(u32, u32)> {
    if config.turned {
        return vec![(64, 64), (64, (config.tile.n % 64).max(8))];
    }
    let rows = if config.warps_alone() { 16 } else { 64 };
    let cols: &[u32] = if config.output.dtype == DType::F32 { &[32, 16] } else { &[64, 32, 16] };
    cols.iter().map(|cols| (*cols, rows)).collect()
}

/// The result in boxes.
fn result(
    dtype: DType,
    matrix: Matrix,
    (rows, cols, batch): (u64, u64, u64),
    (box_cols, box_rows): (u32, u32),
) -> Result<CUtensorMap, CudaError> {
    let swizzle = Swizzle::of_row(box_cols * dtype.bytes() as u32);
    let swizzle = swizzle.filter(|_| (matrix.col == 1 || cols == 1) && matrix.row >= 0 && matrix.batch >= 0);
    let swizzle = swizzle.ok_or_else(|| CudaError::Refused("the result does not lie row by row".into()))?;
    let (row, next) = (matrix.row as u64, matrix.batch as u64);
    let address = matrix.address;
    TensorBox { dtype, address, cols, rows, batch, row, next, box_cols, box_rows, box_batch: 1, swizzle }.encode()
}

/// An operand \[rows, K\] whose k is contiguous, or whose rows are (`mn`).
fn operand(
    dtype: DType,
    matrix: Matrix,
    (rows, k, batch): (u64, u64, u64),
    mn: bool,
    box_rows: u32,
) -> Result<CUtensorMap, CudaError> {
    let (cols, rows, step, stride, box_rows) = match mn {
        false => (k, rows, matrix.col, matrix.row, box_rows),
        true => (rows, k, matrix.row, matrix.col, block_k(dtype) as u32),
    };
    let contiguous = step == 1 || cols <= 1;
    if !contiguous || (stride < 0 && rows > 1) || matrix.batch < 0 {
        return Err(CudaError::Refused("an operand is laid out in a way TMA does not take".into()));
    }
    let batch = if matrix.batch == 0 { 1 } else { batch };
    TensorBox {
        dtype,
        address: matrix.address,
        // Of a K of nothing the only box that is loaded lies past the one element that a map must have, and brings zeros
        // (KNOWN_K in gemm_sm90.cu): that must be fewer than a block of k.
        cols: cols.max(1),
        rows: rows.max(1),
        batch,
        row: if k == 0 { block_k(dtype) } else { stride as u64 },
        next: matrix.batch as u64,
        box_cols: block_k(dtype) as u32,
        box_rows,
        box_batch: 1,
        swizzle: Swizzle::B128,
    }
    .encode()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gemwright_core::Cluster;

    fn shares(schedule: Schedule, cluster: Cluster, sides: (u64, u64, u64, u64)) -> Shares {
        let tile = KernelTile::named("128x256").unwrap();
        let config = Config { cluster, ..Config::new(tile, schedule, false) };
        Shares::of(&config, sides, 132).unwrap()
    }

    #[test]
    fn grids_of_the_schedules() {
        let square = (4096, 4096, 4096, 1);
        assert_eq!(shares(Schedule::DataParallel, Cluster::ONE, square).grid, 512);
        let persistent = shares(Schedule::Persistent, Cluster::PAIR, square);
        assert_eq!((persistent.grid, persistent.whole, persistent.shared), (132, 256, 0));
        // 512 tiles: three whole turns and 116 more; one whole turn is cut with them.
        let stream = shares(Schedule::StreamK, Cluster::ONE, square);
        assert_eq!((stream.grid, stream.whole, stream.shared), (132, 264, 248));
        assert_eq!(shares(Schedule::SplitK(4), Cluster::ONE, (128, 2560, 8192, 1)).grid, 40);
        // A few tiles with a long K go to everyone; with a short one only to as many as have enough to do.
        assert_eq!(shares(Schedule::StreamK, Cluster::ONE, (128, 256, 64 * 1000, 1)).grid, 132);
        assert_eq!(shares(Schedule::StreamK, Cluster::ONE, (128, 256, 64 * 40, 1)).grid, 10);
    }

    /// Who adds up through memory waits for others: the grid runs at once, or is refused.
    #[test]
    fn parts_that_meet_in_memory_all_run_at_once() {
        let config = |schedule| Config {
            cluster: Cluster::PAIR,
            ..Config::new(KernelTile::named("128x128").unwrap(), schedule, false)
        };
        let of = |n, parts, multiprocessors| {
            Shares::of(&config(Schedule::SplitK(parts)), (256, n, 8192, 1), multiprocessors).map(|shares| shares.grid)
        };
        assert_eq!(of(1280, 4, 132).unwrap(), 80);
        assert_eq!(of(22 * 128, 3, 132).unwrap(), 132);
        assert!(of(23 * 128, 3, 132).is_err() && of(1280, 4, 78).is_err());
    }

    /// Bands lie along N for a gradient of weights with a short K and a long N, and where no tile is cut.
    #[test]
    fn bands_lie_along_the_longer_side() {
        let of = |k, mn, schedule| {
            let layouts = crate::config::Layouts { a_mn: mn, b_mn: mn };
            let config = Config { layouts, ..Config::new(KernelTile::named("128x128").unwrap(), schedule, true) };
            Shares::of(&config, (4096, 28_672, k, 1), 132).unwrap().group
        };
        assert!(of(512, true, Schedule::Persistent) < 0);
        assert!(of(512, false, Schedule::Persistent) > 0 && of(2048, true, Schedule::Persistent) > 0);
        assert!(of(512, true, Schedule::StreamK) > 0);
        let beside = Config {
            cluster: Cluster::BESIDE,
            ..Config::new(KernelTile::named("256x128").unwrap(), Schedule::Persistent, false)
        };
        let shares = Shares::of(&beside, (512, 1024, 4096, 1), 132).unwrap();
        assert_eq!((shares.tiles_m, shares.tiles_n, shares.grid), (2, 4, 16));
    }

    /// What of a stays in the cache is met by one band, no band is a small rest, and a few columns of tiles are neighbours.
    #[test]
    fn bands_are_as_high_as_what_stays_in_the_cache() {
        let of = |m, n, k, tile| {
            let config = Config::new(KernelTile::named(tile).unwrap(), Schedule::Persistent, false);
            let shares = Shares::of(&config, (m, n, k, 1), 132).unwrap();
            (shares.tiles_m, shares.group)
        };
        assert_eq!(of(8192, 32_768, 512, "128x176p"), (64, 64));
        assert_eq!(of(8192, 8192, 2048, "128x176p"), (64, 22));
        assert_eq!(of(8192, 8192, 4096, "128x176p"), (64, 12));
        assert_eq!(of(2048, 4096, 14_336, "128x256"), (16, 16));
        assert_eq!(of(12_608, 768, 3072, "128x192p"), (99, 1));
        // One round of tiles has them all at once.
        assert_eq!(of(2048, 768, 3072, "128x192p"), (16, 16));
        assert_eq!(of(0, 0, 0, "128x256").1, 1);
    }

    #[test]
    fn weights_are_asked_for_early_as_far_as_the_rest_can_follow() {
        let blocks = |tile, turned, tokens| {
            let config = Config::new(KernelTile::named(tile).unwrap(), Schedule::Persistent, turned);
            early_blocks(&config, tokens)
        };
        assert_eq!(blocks("64x32p", true, 32), 8);
        assert_eq!(blocks("64x32p", false, 64), 6);
        assert_eq!(blocks("64x128p", true, 512), 2);
        assert_eq!(blocks("128x256", true, 8192), 1);
    }

    #[test]
    fn parameters_lie_as_the_kernel_has_them() {
        assert_eq!(std::mem::offset_of!(Params, ends), 1408);
        assert_eq!(std::mem::offset_of!(Params, partial), 1640);
        assert_eq!(std::mem::offset_of!(Params, k), 1656);
        assert_eq!(std::mem::offset_of!(Params, early), 1688);
        assert_eq!(std::mem::offset_of!(Params, groups), 1692);
        assert_eq!(std::mem::offset_of!(Params, group_ends), 1696);
        assert_eq!(size_of::<Params>(), 1792);
    }
}
