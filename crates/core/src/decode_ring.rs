//! Kernels for a few rows of x that stream weights through rings in shared memory: how a block is made, and what it will
//! take.

use crate::Product;
use crate::kernel_cost::KernelChip;
use crate::kernel_tile::clusters_at_once;
use std::fmt;

/// What rings take, in seconds, by how their blocks are made.
struct Costs {
    /// Before and after everything.
    launch: f64,
    /// Of memory's rate what is reached, more or less: what `slot` has not is in it too.
    memory: f64,
    /// A slot, from being asked for to being read, and rows of the weight beside that.
    slot: f64,
    unit: f64,
}

/// And whatever their blocks are.
struct Common {
    /// How suddenly one limit gives way to the other.
    sharpness: f64,
    /// Of adding up the parts of a cluster.
    split: f64,
    /// For a byte of x, which every multiprocessor gets, for one beyond so many, and for one of the result.
    x: f64,
    more_x: [f64; 2],
    result: f64,
    /// Of the time, where a warp keeps its part of x in registers (of 16 bits: from another run, 18 products with and without).
    kept: f64,
}

/// Weights of 16 bits, with slots of 256 and of 512 elements of K: fitted to 420 timings of 61 products on an H200, each
/// launched when the one before had ended (`benches/h200-few-rows-2026-11-17/kernels.jsonl.gz`).
const SIXTEEN: [Costs; 2] = [
    Costs { launch: 2.38e-6, memory: 1.150, slot: 0.373e-6, unit: 0.0 },
    Costs { launch: 2.62e-6, memory: 1.103, slot: 0.373e-6, unit: 0.0 },
];
const OF_SIXTEEN: Common =
    Common { sharpness: 2.09, split: 0.93e-6, x: 7.8e-12, more_x: [0.0, 0.0], result: 1.2e-12, kept: 0.993 };

/// Weights of 16 bits and more than 16 rows, with slots of 256: fitted to 87 timings of 20 products (`benches/h200-2026-11-18-fourth/tried`).
const MANY_ROWS: Costs = Costs { launch: 2.49e-6, memory: 1.21, slot: 0.359e-6, unit: 0.083e-6 };
const OF_MANY_ROWS: Common =
    Common { sharpness: 2.09, split: 2.11e-6, x: 1.8e-12, more_x: [0.0, 0.0], result: 1.87e-12, kept: 1.0 };

/// Weights of 8 bits, by blocks of 8 and of 4 warps with slots of 256 and of 512 elements of K, and by blocks of 16: fitted
/// to 70 products, by the timings within 30 % of the fastest of each and by what comes of the choice
/// (`benches/h200-2026-11-18-third/tried`).
const EIGHT: [Costs; 3] = [
    Costs { launch: 2.292e-6, memory: 2.071, slot: 0.1135e-6, unit: 0.1053e-6 },
    Costs { launch: 3.076e-6, memory: 1.100, slot: 0.0002e-6, unit: 0.0215e-6 },
    Costs { launch: 2.889e-6, memory: 1.141, slot: 0.0054e-6, unit: 0.0208e-6 },
];
const OF_EIGHT: Common = Common {
    sharpness: 0.596,
    split: 1.023e-6,
    x: 7.18e-12,
    more_x: [121366.0, 6.60e-12],
    result: 1.03e-12,
    kept: 0.969,
};

/// Elements of K of x that a warp has registers for, with up to so many rows; with twice as many rows half of that.
const KEPT_K: u64 = 512;
const KEPT_ROWS: u64 = 16;

/// How weights go through shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RingChoice {
    /// Of a block, each with a ring.
    pub warps: u32,
    /// Warps that divide K of the same rows among them.
    pub share: u32,
    /// Elements of K in a slot.
    pub chunk: u32,
    /// Blocks of a cluster that have a part of K each.
    pub split: u32,
}

impl RingChoice {
    /// Rows of the weight that a warp has at a time, where an element has so many bytes.
    pub fn rows(weight_bytes: u64) -> u64 {
        16 / weight_bytes
    }

    #[allow(missing_docs)]
    pub fn all() -> impl Iterator<Item = RingChoice> {
        // Of those that are predicted to be as fast the first is taken: more warps together end at the same time.
        let eight =
            [(8, 256, 1), (4, 256, 1), (2, 256, 1), (1, 256, 1), (8, 512, 1), (4, 512, 1), (8, 256, 2), (4, 256, 2)];
        // For weights of 8 bits, and rows that begin anywhere.
        let sixteen = [(16, 256, 1), (8, 256, 1), (4, 256, 1), (2, 256, 1), (8, 256, 2), (16, 256, 2)];
        // For weights of 8 bits whose x leaves no room for more.
        let four = [(4, 256, 2)];
        // For more rows of x than 16, of which blocks have room for a shorter part.
        let long = [(8, 256, 4)];
        let of = |warps| move |(share, chunk, split)| RingChoice { warps, share, chunk, split };
        eight
            .into_iter()
            .chain(long)
            .map(of(8))
            .chain(sixteen.into_iter().map(of(16)))
            .chain(four.into_iter().map(of(4)))
    }

    /// Bytes of a slot.
    pub fn slot_bytes(&self) -> u32 {
        16 * self.chunk
    }

    fn costs(&self, weight_bytes: u64, rows: u64) -> (&'static Costs, &'static Common) {
        match (weight_bytes, self.warps, self.chunk) {
            _ if rows > KEPT_ROWS => (&MANY_ROWS, &OF_MANY_ROWS),
            (1, 16, _) => (&EIGHT[2], &OF_EIGHT),
            (1, _, 512) => (&EIGHT[1], &OF_EIGHT),
            (1, _, _) => (&EIGHT[0], &OF_EIGHT),
            (_, _, 512) => (&SIXTEEN[1], &OF_SIXTEEN),
            _ => (&SIXTEEN[0], &OF_SIXTEEN),
        }
    }

    /// What it will take.
    pub fn seconds(&self, product: &Product, weight_bytes: u64, chip: &KernelChip) -> f64 {
        let (costs, common) = self.costs(weight_bytes, product.m);
        let [m, n, k] = [product.m, product.n, product.k].map(|x| x as f64);
        let memory = n * k * weight_bytes as f64 / (costs.memory * chip.memory * chip.clock);
        // A warp of the block that has most asks for a slot when it has read the one before.
        let chunks = self.chunks_of_warp(product.k) as f64;
        let rings = self.waves(product, weight_bytes, chip) * (chunks * costs.slot + costs.unit);
        let streamed = (memory.powf(common.sharpness) + rings.powf(common.sharpness)).powf(1.0 / common.sharpness);
        let split = if self.split > 1 { common.split } else { 0.0 };
        let kept = if self.keeps_x(product.k, product.m) { common.kept } else { 1.0 };
        let x = m * k * 2.0 / f64::from(self.split);
        let [from, more] = common.more_x;
        let of_x = x * common.x + (x - from).max(0.0) * more;
        kept * (costs.launch + streamed + split + of_x + m * n * 2.0 * common.result)
    }

    /// Chunks of K that a warp has at most.
    pub fn chunks_of_warp(&self, k: u64) -> u64 {
        k.div_ceil(self.chunk.into()).div_ceil(self.split.into()).div_ceil(self.share.into())
    }

    /// A warp keeps its part of x in registers: there are enough of them (not for 16 warps), and it was faster so. With 512
    /// elements of K and a warp alone on its rows it was a quarter slower.
    pub fn keeps_x(&self, k: u64, rows: u64) -> bool {
        let (least, most) = if rows > KEPT_ROWS { (0, KEPT_K / 2) } else { (2 * KEPT_K, KEPT_K) };
        self.warps <= 8 && self.share > 1 && k >= least && self.chunks_of_warp(k) * u64::from(self.chunk) <= most
    }

    /// Rounds in which every set of warps has rows of the weight.
    pub fn waves(&self, product: &Product, weight_bytes: u64, chip: &KernelChip) -> f64 {
        let sets = clusters_at_once(chip.units, self.split.into()) * u64::from(self.warps / self.share);
        product.n.div_ceil(RingChoice::rows(weight_bytes)).div_ceil(sets) as f64
    }
}

impl fmt::Display for RingChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RingChoice { warps, share, chunk, split } = self;
        write!(f, "ring-{warps}x{share}c{chunk}")?;
        if *split > 1 { write!(f, "s{split}") } else { Ok(()) }
    }
}
