//! Kernels for a few rows of x that stream weights through rings in shared memory: how a block is made, and what it will
//! take.

use crate::Product;
use crate::kernel_cost::KernelChip;
use std::fmt;

/// Seconds before and after everything, and of memory's rate what is reached, with slots of 256 and of 512 elements of K.
const LAUNCH: [(f64, f64); 2] = [(2.38e-6, 1.097), (2.60e-6, 1.069)];
/// Slots of a ring that are on the way.
const SLOTS: f64 = 2.0;
/// Seconds until what was asked for is there, and of reading a byte of it.
const LATENCY: f64 = 0.725e-6;
const READING: f64 = 2.03e-11;
/// How suddenly one limit gives way to the other.
const SHARPNESS: f64 = 2.46;
/// Seconds of adding up the parts of a cluster.
const SPLIT: f64 = 0.6e-6;
/// Seconds for a byte of x, which every multiprocessor gets.
const X: f64 = 7.1e-12;

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
        let kinds = [
            (1, 256, 1),
            (2, 256, 1),
            (4, 256, 1),
            (8, 256, 1),
            (4, 512, 1),
            (8, 512, 1),
            (2, 256, 2),
            (4, 256, 2),
            (8, 256, 2),
        ];
        kinds.into_iter().map(|(share, chunk, split)| RingChoice { warps: 8, share, chunk, split })
    }

    /// Bytes of a slot.
    pub fn slot_bytes(&self) -> u32 {
        RingChoice::ROWS as u32 * self.chunk * 2
    }

    /// What it will take. Fitted to 322 timings on an H200, of 50 products, each launched when the one before had ended.
    pub fn seconds(&self, product: &Product, chip: &KernelChip) -> f64 {
        let (launch, share_of_memory) = if self.chunk <= 256 { LAUNCH[0] } else { LAUNCH[1] };
        let (k, slot) = (product.k as f64, f64::from(self.slot_bytes()));
        let memory = product.n as f64 * k * 2.0 / (share_of_memory * chip.memory * chip.clock);
        // A warp of the block that has most asks for a slot when it has read the one before.
        let chunks_each = product.k.div_ceil(self.chunk.into()).div_ceil(self.split.into()).div_ceil(self.share.into());
        let waits = self.waves(product, chip) * chunks_each as f64 / SLOTS;
        let rings = waits * (LATENCY + slot * READING);
        let x = product.m as f64 * k * 2.0 / f64::from(self.split);
        let launch = launch + if self.split > 1 { SPLIT } else { 0.0 };
        launch + (memory.powf(SHARPNESS) + rings.powf(SHARPNESS)).powf(1.0 / SHARPNESS) + x * X
    }

    /// Rounds in which every set of warps has rows of the weight.
    pub fn waves(&self, product: &Product, chip: &KernelChip) -> f64 {
        let sets = chip.units / u64::from(self.split) * u64::from(self.warps / self.share);
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
