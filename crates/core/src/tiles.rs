//! Tiles and waves: what a product loses because it is cut into blocks of one size, and what a warp's
//! tile asks of shared memory.

use crate::{Chip, DType, Product, Roof, RoofError};

/// The block of the result that one unit of the chip computes at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Tile {
    pub m: u64,
    pub n: u64,
}

impl Tile {
    /// Tiles that libraries choose among, largest first.
    pub const COMMON: [Tile; 8] = [
        Tile { m: 256, n: 128 },
        Tile { m: 128, n: 256 },
        Tile { m: 128, n: 192 },
        Tile { m: 128, n: 128 },
        Tile { m: 128, n: 64 },
        Tile { m: 64, n: 128 },
        Tile { m: 64, n: 64 },
        Tile { m: 16, n: 64 },
    ];
}

impl std::fmt::Display for Tile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}x{}", self.m, self.n)
    }
}

/// How a product falls into tiles on a chip with so many units.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Waves {
    /// The tile.
    pub tile: Tile,
    /// Tiles of all batches.
    pub tiles: u64,
    /// Rounds in which every unit computes one tile.
    pub waves: u64,
    /// Useful work over work done: edges that stick out and units idle in the last wave, 0 to 1.
    pub efficiency: f64,
}

impl Waves {
    /// The cut of `product` into `tile`s on `units` units.
    pub fn of(product: &Product, tile: Tile, units: u64) -> Waves {
        let tiles = product.batch * product.m.div_ceil(tile.m) * product.n.div_ceil(tile.n);
        let waves = tiles.div_ceil(units.max(1)).max(1);
        let done = waves as f64 * units as f64 * (tile.m * tile.n) as f64;
        let useful = product.batch as f64 * product.m as f64 * product.n as f64;
        Waves { tile, tiles, waves, efficiency: useful / done }
    }

    /// The common tile that loses least on a chip, its waves and its appetite for operands together.
    ///
    /// A small tile wastes little at the edges, but reads its operands more often. It must be fed from the
    /// second-level cache, taken as [`Waves::CACHE_OVER_MEMORY`] times as fast as memory.
    pub fn best(product: &Product, chip: &Chip, dtype: DType) -> Option<Waves> {
        let units = chip.units.as_ref()?.count.value as u64;
        let hunger = chip.ridge(dtype).unwrap_or(0.0) / Waves::CACHE_OVER_MEMORY;
        let score = |w: &Waves| {
            let Tile { m, n } = w.tile;
            let intensity = 2.0 * (m * n) as f64 / ((m + n) * dtype.bytes()) as f64;
            w.efficiency * (intensity / hunger).min(1.0)
        };
        let all = Tile::COMMON.map(|tile| Waves::of(product, tile, units));
        all.into_iter().reduce(|x, y| if score(&y) > score(&x) * 1.005 { y } else { x })
    }

    /// How much faster the second-level cache is than memory: an assumption, about right for recent GPUs.
    pub const CACHE_OVER_MEMORY: f64 = 2.5;

    /// The least time when arithmetic runs at this efficiency and memory at its full rate.
    pub fn seconds(&self, flops: u128, bytes: u128, dtype: DType, chip: &Chip) -> Result<f64, RoofError> {
        let plain = Roof::new(flops, bytes, dtype, chip)?;
        let compute = Roof::new(flops, 0, dtype, chip)?.seconds / self.efficiency;
        Ok(plain.seconds.max(compute))
    }
}

/// A warp's tile: `k` values at a time of `m` rows and `n` columns, by an instruction that takes
/// [`WarpTile::MMA_K`] of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct WarpTile {
    pub m: u64,
    pub n: u64,
    pub k: u64,
}

impl WarpTile {
    /// Depth of mma.m16n8k16.
    pub const MMA_K: u64 = 16;

    /// Bytes per clock that the shared memory of one unit gives: 32 banks of 4 bytes.
    pub const SHARED_BYTES_PER_CLOCK: f64 = 128.0;

    /// The tiles of the documents' table.
    pub const DOCUMENTS: [WarpTile; 9] = [
        WarpTile { m: 16, n: 8, k: 16 },
        WarpTile { m: 64, n: 64, k: 32 },
        WarpTile { m: 32, n: 128, k: 32 },
        WarpTile { m: 16, n: 64, k: 32 },
        WarpTile { m: 16, n: 128, k: 32 },
        WarpTile { m: 32, n: 32, k: 32 },
        WarpTile { m: 64, n: 64, k: 64 },
        WarpTile { m: 32, n: 32, k: 64 },
        WarpTile { m: 64, n: 32, k: 32 },
    ];

    /// FLOPs per byte of f16 operands: each input is read once per tile, the accumulator once per instruction deep.
    pub fn intensity(&self) -> f64 {
        1.0 / (1.0 / self.m as f64 + 1.0 / self.n as f64 + 1.0 / WarpTile::MMA_K as f64)
    }

    /// Bytes per clock that keep a unit busy which does so many FLOPs a clock.
    pub fn bytes_per_clock(&self, flops_per_clock: f64) -> f64 {
        flops_per_clock / self.intensity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rtx_3090_warp_tiles() {
        let shown = |f: &dyn Fn(&WarpTile) -> f64| -> Vec<String> {
            WarpTile::DOCUMENTS.iter().map(|t| format!("{:.3}", f(t))).collect()
        };
        let intensity = ["4.000", "10.667", "9.846", "7.111", "7.529", "8.000", "10.667", "8.000", "9.143"];
        assert_eq!(shown(&WarpTile::intensity), intensity);
        let bytes = ["128.000", "48.000", "52.000", "72.000", "68.000", "64.000", "48.000", "64.000", "56.000"];
        assert_eq!(shown(&|t| t.bytes_per_clock(512.0)), bytes);
        // the documents' column, at 13 times the FLOPs a clock that the chip does
        assert_eq!(WarpTile::DOCUMENTS[0].bytes_per_clock(6780.0), 1695.0);
    }

    #[test]
    fn a_product_that_fills_its_waves_loses_nothing() {
        let square = Product { batch: 1, m: 1280, n: 1280, k: 64 };
        let waves = Waves::of(&square, Tile { m: 128, n: 128 }, 100);
        assert_eq!((waves.tiles, waves.waves, waves.efficiency), (100, 1, 1.0));
        let over = Product { m: 1281, ..square };
        let waves = Waves::of(&over, Tile { m: 128, n: 128 }, 100);
        assert_eq!((waves.tiles, waves.waves), (110, 2));
        assert!(waves.efficiency < 0.51);
    }

    #[test]
    fn a_large_product_gets_a_large_tile() {
        let catalog = crate::Catalog::builtin();
        let h200 = catalog.find("h200").unwrap();
        let large = Product { batch: 1, m: 8192, n: 8192, k: 8192 };
        let tile = Waves::best(&large, h200, DType::Bf16).unwrap().tile;
        assert!(tile.m * tile.n >= 128 * 192, "{tile}");
        let thin = Product { m: 8, ..large };
        assert_eq!(Waves::best(&thin, h200, DType::Bf16).unwrap().tile.m, 16);
    }
}
