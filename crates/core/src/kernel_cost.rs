//! What a kernel of ours will take on a chip, before it has run: tiles, waves, what feeds them and what a tile costs
//! beside its products. The constants were fitted to a few thousand timings on an H200 (`benches/cuda/README.md`), for few,
//! some and many rows apart, since memory rules the first and the tensor cores the last.

use crate::kernel_tile::{BLOCK_K, KernelTile, Schedule};
use crate::{Chip, Product};
use std::fmt;

/// What a kernel's time goes by on a chip.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KernelChip {
    /// Multiprocessors.
    pub units: u64,
    /// Clocks a second.
    pub clock: f64,
    /// FLOPs of a unit in a clock, 16-bit operands.
    pub flops: f64,
    /// Bytes of shared memory of a unit in a clock.
    pub shared: f64,
    /// Bytes that a unit gets out of the second-level cache in a clock.
    pub cache: f64,
    /// Bytes that the whole chip gets out of memory in a clock.
    pub memory: f64,
}

impl KernelChip {
    /// An H100 or H200 by what was measured on an H200; units as the device has them.
    pub fn hopper(units: u64) -> KernelChip {
        KernelChip { units, clock: 1.98e9, flops: 4096.0, shared: 128.0, cache: 48.0, memory: 2120.0 }
    }

    /// A chip that our kernels are written for: rates as on the H200, units and memory as its datasheet has them.
    pub fn of(chip: &Chip) -> Option<KernelChip> {
        let units = chip.units.as_ref().filter(|_| chip.arch.ends_with("sm_90"))?.count.value as u64;
        let here = KernelChip::hopper(units);
        Some(KernelChip { memory: here.memory * chip.bandwidth()? / 4.8e12, ..here })
    }

    /// Clusters of so many blocks that run at once: larger ones must lie in one part of the chip, and some do not fit.
    fn clusters(&self, size: u64) -> u64 {
        let whole = self.units / size;
        (match size {
            1 | 2 => whole,
            4 => whole - whole / 11,
            _ => whole - whole / 8,
        })
        .max(1)
    }
}

/// Clocks of the parts of a kernel, fitted.
struct Costs {
    /// Of a block of K: multiplying, reading shared memory, fetching, as factors on the chip's rates; the largest counts,
    /// the more so the higher `sharpness`.
    multiply: f64,
    shared: f64,
    fetch: f64,
    sharpness: f64,
    /// Operands whose k is not contiguous come in more, smaller pieces: of a and of b.
    turned: [f64; 2],
    /// Lines that begin on 64, 32 or 16 bytes come in several requests: clocks for each 128 bytes of them, and until they
    /// are there, which only as many blocks of K can hide as fit the shared memory.
    pieces: [f64; 3],
    until_there: [f64; 3],
    /// What a block of K takes longer where two warpgroups work on one tile, and where two blocks wait for one another.
    together: f64,
    pair: f64,
    /// Of storing a tile: at least, and for each element.
    store: [f64; 2],
    /// Of passing the tensor cores on, where warpgroups take turns.
    turn: [f64; 2],
    /// Of leaving and taking sums of tiles that are cut, and how much slower their blocks are: clusters are at different
    /// places of K and share less of the cache.
    cut: [f64; 2],
    cut_blocks: f64,
    /// Of each further part of a tile that its last one takes, for each element: they come one after the other.
    take: f64,
    /// Of adding up within a cluster: at least, for each element, for each block of the cluster.
    add: [f64; 3],
    /// Before and after everything.
    launch: f64,
    /// Memory, as a factor on its rate, and how much it and the rest hide one another.
    memory: f64,
    overlap: f64,
}

const FEW: Costs = Costs {
    multiply: 0.9282,
    shared: 0.3727,
    fetch: 0.6079,
    sharpness: 105.6,
    turned: [0.03, 0.03],
    pieces: [0.6, 1.8, 2.9],
    until_there: [350.0, 350.0, 600.0],
    together: 1.0,
    pair: 1.0,
    store: [2147.0, 0.03755],
    turn: [675.1, 0.0],
    cut: [6607.0, 0.6141],
    cut_blocks: 1.147,
    take: 0.13,
    add: [4145.0, 0.2598, 701.6],
    launch: 2392.0,
    memory: 1.227,
    overlap: 1.216,
};

const SOME: Costs = Costs {
    multiply: 1.251,
    shared: 0.9094,
    fetch: 0.7174,
    sharpness: 9.57,
    turned: [0.07448, 0.06036],
    pieces: [4.2, 4.2, 4.8],
    until_there: [3700.0, 3700.0, 5500.0],
    together: 1.0,
    pair: 1.01,
    store: [166.3, 0.1008],
    turn: [595.2, 0.03886],
    cut: [16900.0, 0.116],
    cut_blocks: 1.023,
    take: 0.12,
    add: [5530.0, 0.3918, 893.2],
    launch: 3687.0,
    memory: 0.9626,
    overlap: 3.61,
};

const MANY: Costs = Costs {
    multiply: 1.135,
    shared: 0.8496,
    fetch: 0.4989,
    sharpness: 3.443,
    turned: [0.03939, 0.6797],
    pieces: [1.9, 2.6, 3.5],
    until_there: [2500.0, 2500.0, 2600.0],
    together: 1.018,
    pair: 1.006,
    store: [0.0, 0.09603],
    turn: [1122.0, 0.0],
    cut: [6372.0, 0.2765],
    cut_blocks: 1.12,
    take: 0.12,
    add: [5530.0, 0.3918, 893.2],
    launch: 2610.0,
    memory: 0.8867,
    overlap: 11.43,
};

impl Costs {
    /// What lines that begin on less than 128 bytes cost: clocks for each 128 bytes, and until they are there.
    fn unaligned(&self, feed: Feed) -> [f64; 2] {
        let which = match feed.grain {
            128 => return [0.0; 2],
            64 => 0,
            32 => 1,
            _ => 2,
        };
        [self.pieces[which], self.until_there[which]]
    }

    /// By the rows of the result.
    fn of(rows: u64) -> &'static Costs {
        match rows {
            0..=64 => &FEW,
            65..=1024 => &SOME,
            _ => &MANY,
        }
    }
}

/// The largest of some, or a little more where others come close.
fn largest(all: &[f64], sharpness: f64) -> f64 {
    let most = all.iter().copied().fold(1e-9, f64::max);
    most * all.iter().map(|x| (x / most).powf(sharpness)).sum::<f64>().powf(1.0 / sharpness)
}

/// How an operand lies in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Feed {
    /// Its k is not contiguous.
    pub turned: bool,
    /// Bytes that every line of it begins on, as far as a power of two says: 16 to 128.
    pub grain: u64,
}

impl Feed {
    /// Contiguous along k, on whole lines of the cache.
    pub const PLAIN: Feed = Feed { turned: false, grain: 128 };

    /// Of lines of 16-bit elements that are `step` elements apart.
    pub fn new(turned: bool, step: i64) -> Feed {
        let bytes = step.unsigned_abs() * 2;
        Feed { turned, grain: (1 << bytes.trailing_zeros().min(7)).max(16) }
    }
}

/// A kernel: tile, orientation, neighbours, schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub struct KernelChoice {
    pub tile: KernelTile,
    /// The weights are on the side of M, and the result is written transposed.
    pub turned: bool,
    /// Blocks that share a tile of b.
    pub cluster: u32,
    pub schedule: Schedule,
}

impl fmt::Display for KernelChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let turned = if self.turned { "-turned" } else { "" };
        let pair = if self.cluster > 1 { "-pair" } else { "" };
        write!(f, "{}{turned}{pair}-{}", self.tile, self.schedule)
    }
}

impl KernelChoice {
    /// Everything that goes together.
    pub fn all() -> impl Iterator<Item = KernelChoice> {
        let with = |tile, schedule, turned| {
            [1, 2].into_iter().map(move |cluster| KernelChoice { tile, turned, cluster, schedule })
        };
        KernelTile::ALL
            .into_iter()
            .flat_map(|tile| Schedule::ALL.into_iter().map(move |schedule| (tile, schedule)))
            .flat_map(move |(tile, schedule)| {
                [false, true].into_iter().flat_map(move |turned| with(tile, schedule, turned))
            })
            .filter(KernelChoice::goes_together)
    }

    fn goes_together(&self) -> bool {
        let split = matches!(self.schedule, Schedule::SplitK(_));
        let steps = if self.turned && self.cluster == 1 { 8 } else { 16 };
        let large = self.tile.m * self.tile.n >= 128 * 128;
        let fits = self.tile.sums() <= self.schedule.most_sums();
        fits && self.tile.n.is_multiple_of(steps)
            && (self.cluster == 1 || (!split && large))
            && !(split && self.tile.n > 128)
    }

    /// Rounds in which every unit has a tile to work on, the last one cut where the schedule cuts tiles.
    pub fn waves(&self, product: &Product, chip: &KernelChip) -> f64 {
        let (tiles, at_once) = self.tiles(product, chip);
        let rounds = tiles as f64 / at_once as f64;
        if self.schedule == Schedule::StreamK { rounds } else { rounds.ceil() }
    }

    /// Tiles, counted as clusters of blocks that share b, and how many of those run at once.
    fn tiles(&self, product: &Product, chip: &KernelChip) -> (u64, u64) {
        let Product { batch, m, n, .. } = *product;
        let (m, n) = if self.turned { (n, m) } else { (m, n) };
        let (rows, cols) = (u64::from(self.tile.m * self.cluster), u64::from(self.tile.n));
        let blocks = match self.schedule {
            Schedule::SplitK(parts) => parts,
            _ => self.cluster,
        };
        (batch * m.div_ceil(rows) * n.div_ceil(cols), chip.clusters(u64::from(blocks)))
    }

    /// From a name such as `128x256-persistent`.
    pub fn named(name: &str) -> Option<KernelChoice> {
        KernelChoice::all().find(|choice| choice.to_string() == name)
    }

    /// Seconds of a product of 16-bit operands a and b; `epilogue`: clocks of a unit that each sum takes beside being
    /// stored.
    pub fn seconds(&self, product: &Product, feeds: [Feed; 2], epilogue: f64, chip: &KernelChip) -> f64 {
        self.clocks(product, feeds, epilogue, chip) / chip.clock
    }

    fn clocks(&self, product: &Product, feeds: [Feed; 2], epilogue: f64, chip: &KernelChip) -> f64 {
        let (k, costs) = (product.k, Costs::of(product.m));
        let [a, b] = if self.turned { [feeds[1], feeds[0]] } else { feeds };
        let cluster = u64::from(self.cluster);
        let (tiles, at_once) = self.tiles(product, chip);
        let (rows, cols, depth) = (f64::from(self.tile.m), f64::from(self.tile.n), BLOCK_K as f64);
        let blocks = k.div_ceil(BLOCK_K) as f64;
        // A block of K: multiplied, read out of shared memory (and written there), fetched out of the cache.
        let pieces = 1.0 + costs.turned[0] * f64::from(a.turned) + costs.turned[1] * f64::from(b.turned);
        let [[pieces_a, until_a], [pieces_b, until_b]] = [a, b].map(|feed| costs.unaligned(feed));
        let stages = f64::from(self.tile.stages(b.turned, self.tile.out_bytes(self.turned, self.schedule)));
        let block = largest(
            &[
                costs.multiply * 2.0 * rows * cols * depth / chip.flops,
                costs.shared * (rows / 64.0 * (64.0 + cols) + rows + cols) * depth * 2.0 / chip.shared,
                costs.fetch * (rows + cols / cluster as f64) * depth * 2.0 / chip.cache * pieces,
                rows * pieces_a + cols / cluster as f64 * pieces_b,
                until_a.max(until_b) / stages,
            ],
            costs.sharpness,
        );
        // Lines that come late hide such waits.
        let aligned = a.grain.min(b.grain) == 128;
        let together = if aligned && !self.tile.pingpong { costs.together } else { 1.0 };
        let pair = if aligned && self.cluster > 1 { costs.pair } else { 1.0 };
        // An epilogue beside the products makes blocks that share b uneven.
        let uneven = if self.cluster > 1 && self.tile.pingpong && epilogue > 0.0 { 1.03 } else { 1.0 };
        let block = block * together * pair * uneven;
        let per_tile = |[least, each]: [f64; 2]| least + each * rows * cols;
        let store = per_tile(costs.store) + epilogue * rows * cols;
        // Whoever takes turns stores while the other multiplies, but for the last time.
        let (beside, last) = if self.tile.pingpong { (per_tile(costs.turn), store) } else { (store, 0.0) };
        let work = match self.schedule {
            Schedule::Persistent | Schedule::DataParallel => {
                tiles.div_ceil(at_once) as f64 * (blocks * block + beside) + last
            }
            Schedule::StreamK => {
                let rest = tiles % at_once;
                let shared = if rest == 0 { 0 } else { (rest + at_once).min(tiles) };
                let whole = ((tiles - shared) / at_once) as f64 * (blocks * block + beside);
                let cut = shared as f64 * blocks / at_once as f64 * block * costs.cut_blocks;
                let parts = (at_once as f64).min(shared as f64 * blocks / 4.0) / shared.max(1) as f64;
                let takes = (parts - 1.0).max(0.0) * costs.take * rows * cols;
                let summing = if shared == 0 { 0.0 } else { per_tile(costs.cut) + takes };
                whole + cut + beside + last + summing
            }
            Schedule::SplitK(parts) => {
                let add = per_tile([costs.add[0], costs.add[1]]) + costs.add[2] * f64::from(parts);
                let waves = tiles.div_ceil(at_once) as f64;
                waves * ((blocks / f64::from(parts)).ceil() * block + add)
            }
        };
        // Starting a block for every tile costs a little each time.
        let starts =
            if self.schedule == Schedule::DataParallel { tiles.div_ceil(at_once) as f64 * 1000.0 } else { 0.0 };
        let Product { batch, m, n, k } = *product;
        let bytes = 2.0 * (batch * (m * k + n * k + m * n)) as f64;
        costs.launch + starts + largest(&[work, bytes / (chip.memory * costs.memory)], costs.overlap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Catalog;

    #[test]
    fn names_come_back() {
        assert!(KernelChoice::all().count() > 100);
        assert!(KernelChoice::all().all(|choice| KernelChoice::named(&choice.to_string()) == Some(choice)));
    }

    #[test]
    fn large_products_get_large_tiles_and_few_rows_small_ones() {
        let chip = KernelChip::hopper(132);
        let best = |m, n, k| {
            let product = Product { batch: 1, m, n, k };
            let time = |choice: &KernelChoice| choice.seconds(&product, [Feed::PLAIN; 2], 0.0, &chip);
            KernelChoice::all().min_by(|x, y| time(x).total_cmp(&time(y))).unwrap()
        };
        let square = best(8192, 8192, 8192);
        assert!(square.tile.m * square.tile.n >= 128 * 176, "{square}");
        let few = best(16, 4096, 4096);
        assert!(few.turned && few.tile.n <= 32, "{few}");
        let h200 = Catalog::builtin().find("h200").unwrap().clone();
        assert_eq!(KernelChip::of(&h200), Some(chip));
        let product = Product { batch: 1, m: 4096, n: 4096, k: 4096 };
        assert_eq!(KernelChoice::named("128x256-persistent").unwrap().waves(&product, &chip), 4.0);
        assert!(
            (KernelChoice::named("128x256-stream-k").unwrap().waves(&product, &chip) - 512.0 / 132.0).abs() < 1e-12
        );
        // A few tiles with a long K are cut along it.
        assert!(matches!(best(64, 1280, 8192).schedule, Schedule::SplitK(_)));
    }
}
