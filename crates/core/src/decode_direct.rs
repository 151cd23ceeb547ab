//! Kernels for a few rows of x that load weights straight into registers: how a block is made, and what it will take.

use crate::Product;
use crate::kernel_cost::KernelChip;
use std::fmt;

/// Of memory's rate, by loads of 64 bytes of each of eight rows.
const MEMORY: f64 = 1.119;
/// Seconds until what was asked for is there.
const LATENCY: f64 = 0.756e-6;
/// How suddenly one limit gives way to the other.
const SHARPNESS: f64 = 2.14;
/// Seconds before and after everything, of adding up for each warp and group, and for each block of a cluster.
const LAUNCH: f64 = 1.87e-6;
const SUMS: f64 = 0.0735e-6;
const SPLIT: f64 = 0.268e-6;
/// Seconds for a byte of x, and for one of the result.
const X: f64 = 6.9e-12;
const RESULT: f64 = 2.0e-12;

/// How weights are streamed through registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DirectChoice {
    /// Groups of 16 rows of the weight that a block has at a time.
    pub groups: u32,
    /// Warps of a block, which share K.
    pub warps: u32,
    /// Pieces of K, of 64 bytes of a row, that a warp has on the way.
    pub ahead: u32,
    /// Blocks of a cluster that share K.
    pub split: u32,
    /// As many blocks as run at once, each with several tiles; otherwise one a tile.
    pub persistent: bool,
}

impl DirectChoice {
    /// All of them, of 69 that were measured.
    pub fn all() -> impl Iterator<Item = DirectChoice> {
        let kinds =
            [(1, 4, 4, 1, false), (1, 8, 4, 1, false), (1, 8, 4, 1, true), (1, 8, 4, 2, false), (2, 4, 4, 1, true)];
        let choice =
            |(groups, warps, ahead, split, persistent)| DirectChoice { groups, warps, ahead, split, persistent };
        kinds.into_iter().map(choice)
    }

    /// What it will take, where a multiprocessor runs so many blocks at once. Fitted to 310 timings on an H200
    /// (`benches/h200-few-rows-2026-11-17/kernels.jsonl.gz`).
    pub fn seconds(&self, product: &Product, blocks: u64, chip: &KernelChip) -> f64 {
        let Product { batch, m, n, k } = *product;
        let [groups, warps, ahead, split] = [self.groups, self.warps, self.ahead, self.split].map(f64::from);
        let (n, k, batch) = (n as f64, (k as f64).max(1.0), batch as f64);
        let (tiles, at_once) = self.tiles(product, blocks, chip);
        // Warps that K leaves without a piece in the last turn.
        let turn = warps * ahead * 32.0 * split;
        let idle = (k / turn).ceil() * turn / k;
        let weights = batch * n * k * 2.0 * idle;
        // Memory's own pace, or what is on the way each time it takes to come, whichever is less.
        let pace = |running: f64| {
            let (most, by_latency) = (MEMORY * chip.memory * chip.clock, running * turn * groups * 32.0 / LATENCY);
            (most.powf(-SHARPNESS) + by_latency.powf(-SHARPNESS)).powf(-1.0 / SHARPNESS)
        };
        // Blocks that do not fill the chip have less on the way.
        let waves = tiles / at_once;
        let (whole, rest) = (waves.floor(), waves.fract());
        let last = if rest > 0.0 { weights * rest / waves / pace((rest * at_once).max(1.0)) } else { 0.0 };
        let streamed = weights * whole / waves / pace(at_once) + last;
        let sums = SUMS * warps * groups + if self.split > 1 { SPLIT * split } else { 0.0 };
        let m = m as f64;
        LAUNCH + streamed + sums + m * k * 2.0 * X + m * n * 2.0 * RESULT
    }

    /// Rounds in which the chip's blocks each have a tile.
    pub fn waves(&self, product: &Product, blocks: u64, chip: &KernelChip) -> f64 {
        let (tiles, at_once) = self.tiles(product, blocks, chip);
        (tiles / at_once).ceil()
    }

    /// Tiles, and how many are worked on at once.
    fn tiles(&self, product: &Product, blocks: u64, chip: &KernelChip) -> (f64, f64) {
        let tiles = product.batch * product.n.div_ceil(16 * u64::from(self.groups));
        ((tiles as f64).max(1.0), (chip.units * blocks / u64::from(self.split)).max(1) as f64)
    }
}

impl fmt::Display for DirectChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DirectChoice { groups, warps, ahead, split, persistent } = self;
        write!(f, "decode-{}x{warps}a{ahead}", groups * 16)?;
        match (split, persistent) {
            (1, true) => f.write_str("p"),
            (1, false) => Ok(()),
            _ => write!(f, "s{split}"),
        }
    }
}
