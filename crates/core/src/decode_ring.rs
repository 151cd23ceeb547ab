//! Kernels for a few rows of x that stream weights through rings in shared memory: how a block is made, and what it will
//! take.

use crate::Product;
use crate::kernel_cost::KernelChip;
use std::fmt;

/// Seconds before and after everything, and of memory's rate what is reached, with slots of 256 and of 512 elements of K.
const LAUNCH: [(f64, f64); 2] = [(2.38e-6, 1.150), (2.62e-6, 1.103)];
/// Slots of a ring that are on the way.
const SLOTS: f64 = 2.0;
/// Seconds until what was asked for is there.
const LATENCY: f64 = 0.746e-6;
/// Elements of K of x that a warp has registers for.
const KEPT_K: u64 = 512;
/// How suddenly one limit gives way to the other.
const SHARPNESS: f64 = 2.09;
/// Seconds of adding up the parts of a cluster.
const SPLIT: f64 = 0.93e-6;
/// Seconds for a byte of x, which every multiprocessor gets, and for one of the result.
const X: f64 = 7.8e-12;
const RESULT: f64 = 1.2e-12;
/// Of the time, where a warp keeps its part of x in registers: measured with and without, 18 products.
const KEPT: f64 = 0.993;

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
    /// Rows of the weight that a warp has at a time.
    pub const ROWS: u64 = 8;

    #[allow(missing_docs)]
    pub fn all() -> impl Iterator<Item = RingChoice> {
        // Of those that are predicted to be as fast the first is taken: more warps together end at the same time.
        let kinds =
            [(8, 256, 1), (4, 256, 1), (2, 256, 1), (1, 256, 1), (8, 512, 1), (4, 512, 1), (8, 256, 2), (4, 256, 2)];
        kinds.into_iter().map(|(share, chunk, split)| RingChoice { warps: 8, share, chunk, split })
    }

    /// Bytes of a slot, of elements of so many.
    pub fn slot_bytes(&self, weight_bytes: u64) -> u32 {
        RingChoice::ROWS as u32 * self.chunk * weight_bytes as u32
    }

    /// What it will take. Fitted to 420 timings of 61 products on an H200, each launched when the one before had ended
    /// (`benches/h200-few-rows-2026-11-17/kernels.jsonl.gz`).
    pub fn seconds(&self, product: &Product, weight_bytes: u64, chip: &KernelChip) -> f64 {
        let (launch, share_of_memory) = if self.chunk <= 256 { LAUNCH[0] } else { LAUNCH[1] };
        let [m, n, k] = [product.m, product.n, product.k].map(|x| x as f64);
        let memory = n * k * weight_bytes as f64 / (share_of_memory * chip.memory * chip.clock);
        // A warp of the block that has most asks for a slot when it has read the one before.
        let chunks = self.chunks_of_warp(product.k);
        let rings = self.waves(product, chip) * chunks as f64 / SLOTS * LATENCY;
        let streamed = (memory.powf(SHARPNESS) + rings.powf(SHARPNESS)).powf(1.0 / SHARPNESS);
        let split = if self.split > 1 { SPLIT } else { 0.0 };
        let kept = if self.keeps_x(product.k) { KEPT } else { 1.0 };
        kept * (launch + streamed + split + m * k * 2.0 / f64::from(self.split) * X + m * n * 2.0 * RESULT)
    }

    /// Chunks of K that a warp has at most.
    pub fn chunks_of_warp(&self, k: u64) -> u64 {
        k.div_ceil(self.chunk.into()).div_ceil(self.split.into()).div_ceil(self.share.into())
    }

    /// A warp keeps its part of x in registers: there are enough of them, and it was faster so. With 512 elements of K and a
    /// warp alone on its rows it was a quarter slower.
    pub fn keeps_x(&self, k: u64) -> bool {
        self.share > 1 && k >= 2 * KEPT_K && self.chunks_of_warp(k) * u64::from(self.chunk) <= KEPT_K
    }

    /// Rounds in which every set of warps has rows of the weight.
    pub fn waves(&self, product: &Product, chip: &KernelChip) -> f64 {
        let sets = (chip.units / u64::from(self.split)).max(1) * u64::from(self.warps / self.share);
        product.n.div_ceil(RingChoice::ROWS).div_ceil(sets) as f64
    }
}

impl fmt::Display for RingChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RingChoice { warps, share, chunk, split } = self;
        write!(f, "ring-{warps}x{share}c{chunk}")?;
        if *split > 1 { write!(f, "s{split}") } else { Ok(()) }
    }
}
