//! What a kernel of ours will take on a chip, before it has run: tiles, waves, what feeds them and what a tile costs
//! beside its products. The constants were fitted to a few thousand timings on an H200 (`benches/cuda/README.md`), for up
//! to 64, 256 and 1024 rows and for more apart, since memory rules the first and the tensor cores the last.

use crate::kernel_tile::{BLOCK_K, Cluster, KernelTile, Schedule, clusters_at_once};
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
}

/// Clocks of the parts of a kernel, fitted.
struct Costs {
    /// Of a block of K: multiplying, reading shared memory, fetching, as factors on the chip's rates; the largest counts,
    /// the more so the higher `sharpness`.
    multiply: f64,
    shared: f64,
    fetch: f64,
    /// What is shared arrives at every block nevertheless.
    arrive: f64,
    /// Until a block of K is there, which only as many of them can hide as fit the shared memory; of blocks that wait for one
    /// another so much more.
    late: f64,
    meet: f64,
    sharpness: f64,
    /// Operands whose k is not contiguous come in more, smaller pieces: of a and of b.
    turned: [f64; 2],
    /// What is left of that of b where neither operand's k is contiguous.
    both: f64,
    /// Where an operand lies turned or its lines are not whole ones, the cache answers no more than so many requests: clocks of
    /// a unit for each 128 bytes, where all of them fetch, of lines that begin on 128 bytes, on 64 or 32, and on 16.
    pieces: [f64; 3],
    /// Until lines are there that begin on 64, 32 or 16 bytes, which only as many blocks of K can hide as fit the shared memory.
    until_there: [f64; 3],
    /// What a block of K takes longer where two warpgroups work on one tile, where two and where four blocks share b, where two
    /// share a, where eight share both, and where the weights are on the side of M: of operands one of which is contiguous along
    /// k, and where neither is.
    together: f64,
    pair: f64,
    quad: f64,
    beside: f64,
    octet: f64,
    swap: [f64; 2],
    /// What a block of K that two or four share takes beside that, where neither operand's k is contiguous.
    shared_both: f64,
    /// Of storing a tile: at least, for each element, and for each box in which it leaves.
    store: [f64; 3],
    /// Of passing the tensor cores on, where warpgroups take turns.
    turn: [f64; 2],
    /// Of leaving and taking sums of tiles that are cut, and how much slower their blocks are: clusters are at different
    /// places of K and share less of the cache.
    cut: [f64; 2],
    cut_blocks: f64,
    /// Of each further part of a tile that its last one takes, for each element: they come one after the other.
    take: f64,
    /// Of adding up within a cluster: at least, for each sum of a thread (of 128 of them), for each block of the cluster, what a
    /// block of K takes longer where its blocks have different ones, and the rate of memory then.
    add: [f64; 5],
    /// Of adding up through memory: at least, for each sum of a thread, what a block of K takes longer instead of `pair`, and the
    /// rate of memory.
    far: [f64; 4],
    /// Before and after everything, and before every round of blocks that have one tile each.
    launch: f64,
    starts: f64,
    /// Memory, as a factor on its rate, and how much it and the rest hide one another.
    memory: f64,
    overlap: f64,
}

const FEW: Costs = Costs {
    multiply: 1.293,
    shared: 0.7296,
    fetch: 0.0223,
    arrive: 0.209,
    late: 2123.0,
    meet: 338.1,
    sharpness: 60.0,
    turned: [0.01584, 0.07805],
    both: 1.0,
    pieces: [4.0, 4.0, 9.0],
    until_there: [0.0, 0.0, 0.0],
    together: 1.077,
    pair: 0.8726,
    quad: 0.747,
    beside: 0.9921,
    octet: 1.1,
    shared_both: 1.0,
    swap: [1.125, 1.125],
    store: [2186.0, 0.1169, 0.0],
    turn: [447.2, 0.0],
    cut: [20230.0, 0.0],
    cut_blocks: 0.8297,
    take: 0.12,
    add: [2200.0, 0.1172, 13.94, 0.8682, 0.8259],
    far: [6231.0, 0.01992, 1.035, 1.309],
    launch: 2803.0,
    starts: 808.5,
    memory: 1.397,
    overlap: 1.128,
};

const LOW: Costs = Costs {
    multiply: 0.8388,
    shared: 0.0,
    fetch: 0.604,
    arrive: 0.07486,
    late: 1651.0,
    meet: 391.5,
    sharpness: 2.415,
    turned: [0.1242, 0.0024],
    both: 1.0,
    pieces: [3.0, 3.0, 8.0],
    until_there: [2220.0, 2220.0, 3300.0],
    together: 0.9869,
    pair: 1.014,
    quad: 0.9227,
    beside: 1.025,
    octet: 1.05,
    shared_both: 1.0,
    swap: [1.086, 1.086],
    store: [3725.0, 0.09559, 0.0],
    turn: [0.0003079, 0.01686],
    cut: [6851.0, 1.505],
    cut_blocks: 1.52,
    take: 0.12,
    add: [6116.0, 0.149, 433.3, 0.9111, 0.7977],
    far: [9150.0, 0.1659, 0.9919, 1.003],
    launch: 1126.0,
    starts: 329.3,
    memory: 1.18,
    overlap: 2.199,
};

const SOME: Costs = Costs {
    multiply: 1.184,
    shared: 0.9592,
    fetch: 0.1798,
    arrive: 0.5492,
    late: 1945.0,
    meet: 1021.0,
    sharpness: 6.452,
    turned: [0.0, 0.08835],
    both: 1.0,
    pieces: [0.0, 1.5, 6.0],
    until_there: [3700.0, 5000.0, 5000.0],
    together: 0.9773,
    pair: 1.031,
    quad: 1.008,
    beside: 1.02,
    octet: 0.85,
    shared_both: 1.0,
    swap: [0.9872, 0.9872],
    store: [0.0, 0.1794, 0.0],
    turn: [779.3, 0.0],
    cut: [22140.0, 0.001929],
    cut_blocks: 1.125,
    take: 0.12,
    add: [1834.0, 0.233, 620.7, 1.062, 0.4302],
    far: [8025.0, 0.5368, 0.9054, 0.6447],
    launch: 1632.0,
    starts: 2588.0,
    memory: 0.8061,
    overlap: 8.549,
};

const MANY: Costs = Costs {
    multiply: 0.9251,
    shared: 0.006987,
    fetch: 0.4108,
    arrive: 0.0,
    late: 3066.0,
    meet: 196.0,
    sharpness: 3.48,
    turned: [0.003961, 1.006],
    both: 0.4922,
    pieces: [0.0, 3.5, 4.5],
    until_there: [0.0, 0.0, 0.0],
    together: 1.027,
    pair: 1.074,
    quad: 1.004,
    beside: 0.9904,
    octet: 1.1,
    shared_both: 0.9814,
    swap: [1.01, 0.9813],
    store: [19.63, 0.1639, 40.0],
    turn: [0.2221, 0.01571],
    cut: [28_180.0, 0.0],
    cut_blocks: 1.372,
    take: 0.12,
    add: [1804.0, 0.4373, 104.4, 1.0, 1.0],
    far: [20000.0, 0.5, 1.0, 1.0],
    launch: 1328.0,
    starts: 13_180.0,
    memory: 0.8,
    overlap: 3.5,
};

impl Costs {
    /// Until lines are there that begin on less than 128 bytes.
    fn until_there(&self, feed: Feed) -> f64 {
        match feed.grain {
            128 => 0.0,
            64 => self.until_there[0],
            32 => self.until_there[1],
            _ => self.until_there[2],
        }
    }

    /// Clocks of requests for a block of K of one operand, `tile` of whose `extent` rows (or columns) a block works on and
    /// `sharers` blocks share: for each of these in the mean, and for the one that fetches most.
    fn requests(&self, feed: Feed, tile: u32, extent: u64, sharers: u32) -> [f64; 2] {
        let each = match feed.grain {
            128 => self.pieces[0],
            64 | 32 => self.pieces[1],
            _ => self.pieces[2],
        };
        // What lies beyond the end is not fetched.
        let lines = u64::from(tile).min(extent);
        let sharers = u64::from(sharers);
        if !feed.turned {
            return [each * lines as f64 / sharers as f64; 2];
        }
        // A box of 64 by 64 has a request for each k, however few of its columns are of use, and is not shared out.
        let boxes = lines.div_ceil(64);
        [each * (64 * boxes) as f64 / sharers as f64, each * (64 * boxes.div_ceil(sharers)) as f64]
    }

    /// By the rows of the result.
    fn of(rows: u64) -> &'static Costs {
        match rows {
            0..=64 => &FEW,
            65..=256 => &LOW,
            257..=1024 => &SOME,
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

/// Clocks of a unit that an epilogue takes for each sum, beside its being stored.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Added {
    /// Where nothing else is going on.
    pub after: f64,
    /// Where another warpgroup multiplies meanwhile: as it lies, and turned.
    pub beside: [f64; 2],
}

/// A kernel: tile, orientation, neighbours, schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub struct KernelChoice {
    pub tile: KernelTile,
    /// The weights are on the side of M, and the result is written transposed.
    pub turned: bool,
    /// Blocks that share a tile of an operand.
    pub cluster: Cluster,
    pub schedule: Schedule,
}

impl fmt::Display for KernelChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let turned = if self.turned { "-turned" } else { "" };
        write!(f, "{}{turned}{}-{}", self.tile, self.cluster, self.schedule)
    }
}

impl KernelChoice {
    /// Everything that goes together.
    pub fn all() -> impl Iterator<Item = KernelChoice> {
        let with = |tile, schedule, turned| {
            Cluster::ALL.into_iter().map(move |cluster| KernelChoice { tile, turned, cluster, schedule })
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
        let parts = if let Schedule::SplitK(parts) = self.schedule { parts } else { 1 };
        let split = parts > 1;
        let persistent = self.schedule == Schedule::Persistent;
        let KernelTile { m, n, .. } = self.tile;
        // What is only worth it for a few products has whole tiles only.
        let fine = n > 64 && !n.is_multiple_of(16);
        let whole = persistent || self.schedule == Schedule::DataParallel;
        let shared = match self.cluster {
            // Of clusters of 3, 5 and 6 fewer run at once than multiprocessors would allow, and they won nowhere; nor did large
            // tiles in many parts.
            Cluster::ONE if split => parts != 3 && m <= if parts > 4 { 64 } else { 128 },
            Cluster::ONE => true,
            // Where a is much the larger one; with few tokens as a it was slower than none.
            Cluster::BESIDE => whole && n >= 64 && ((m == 256 && n < 256) || (m > n && n <= 80 && self.turned)),
            Cluster::PAIR if m * n >= 128 * 128 && !split => true,
            // More parts, and those of few tokens turned, won nowhere.
            Cluster::PAIR if split => !self.turned && m <= 128 && (64..=128).contains(&n) && parts <= 4,
            Cluster::PAIR => whole && n >= 64,
            Cluster::QUAD => persistent && self.turned && n >= 32,
            // Where all tiles run at once, each of which brings more than it computes.
            _ => self.schedule == Schedule::DataParallel && m <= 128 && (72..=128).contains(&n) && self.tile.pingpong,
        };
        let far = split && self.cluster != Cluster::ONE;
        let fits = self.tile.sums() <= self.schedule.most_sums(far && self.tile.pingpong);
        fits && shared
            && n.is_multiple_of(if self.turned { 8 } else { 16 })
            && (!(fine || m == 192) || whole)
            && !(split && self.cluster == Cluster::ONE && n > 128)
    }

    /// Rounds in which every unit has a tile to work on, the last one cut where the schedule cuts tiles.
    pub fn waves(&self, product: &Product, chip: &KernelChip) -> f64 {
        let (tiles, at_once) = self.tiles(product, chip);
        let rounds = tiles as f64 / at_once as f64;
        if self.schedule == Schedule::StreamK { rounds } else { rounds.ceil() }
    }

    /// Tiles, counted as clusters of blocks, and how many of those run at once.
    fn tiles(&self, product: &Product, chip: &KernelChip) -> (u64, u64) {
        let Product { batch, m, n, .. } = *product;
        let (m, n) = if self.turned { (n, m) } else { (m, n) };
        let rows = u64::from(self.tile.m * self.cluster.down);
        let cols = u64::from(self.tile.n * self.cluster.across);
        let tiles = batch * m.div_ceil(rows) * n.div_ceil(cols);
        match self.schedule {
            Schedule::SplitK(parts) if self.cluster == Cluster::ONE => {
                (tiles, clusters_at_once(chip.units, parts.into()))
            }
            Schedule::SplitK(parts) => {
                (tiles * u64::from(parts), clusters_at_once(chip.units, self.cluster.size().into()))
            }
            _ => (tiles, clusters_at_once(chip.units, self.cluster.size().into())),
        }
    }

    /// From a name such as `128x256-persistent`.
    pub fn named(name: &str) -> Option<KernelChoice> {
        KernelChoice::all().find(|choice| choice.to_string() == name)
    }

    /// Boxes of 64 rows by 64, 32 or 16 columns in which a tile leaves; of 64 columns by up to 64 tokens where it is turned.
    fn boxes(&self) -> u32 {
        let KernelTile { m, n, .. } = self.tile;
        let across = if self.turned { n.div_ceil(64) } else { n / 64 + n % 64 / 32 + n % 32 / 16 };
        m / 64 * across
    }

    /// Seconds of a product of 16-bit operands a and b.
    pub fn seconds(&self, product: &Product, feeds: [Feed; 2], epilogue: Added, chip: &KernelChip) -> f64 {
        self.clocks(product, feeds, epilogue, chip) / chip.clock
    }

    fn clocks(&self, product: &Product, feeds: [Feed; 2], epilogue: Added, chip: &KernelChip) -> f64 {
        let (k, costs) = (product.k, Costs::of(product.m));
        let [a, b] = if self.turned { [feeds[1], feeds[0]] } else { feeds };
        let [extent_a, extent_b] = if self.turned { [product.n, product.m] } else { [product.m, product.n] };
        let [below, beside] = [self.cluster.down, self.cluster.across].map(f64::from);
        let alone = self.cluster == Cluster::ONE;
        let split = matches!(self.schedule, Schedule::SplitK(_));
        let far = !alone && split;
        // Of narrow tiles four that share tokens are far slower than others as soon as these take several of them.
        if self.cluster == Cluster::QUAD && self.tile.n < 64 && u64::from(self.tile.n) < product.m {
            return f64::INFINITY;
        }
        let (tiles, at_once) = self.tiles(product, chip);
        // Who adds up through memory waits for others, so all of them have to run; where even clusters would take turns, whole
        // tiles keep as many multiprocessors busy.
        if split && tiles > at_once {
            return f64::INFINITY;
        }
        let (rows, cols, depth) = (f64::from(self.tile.m), f64::from(self.tile.n), BLOCK_K as f64);
        let blocks = k.div_ceil(BLOCK_K) as f64;
        // A block of K: multiplied, read out of shared memory (and written there), fetched out of the cache.
        let neither = a.turned && b.turned;
        let of_b = costs.turned[1] * if neither { costs.both } else { 1.0 };
        let pieces = 1.0 + costs.turned[0] * f64::from(a.turned) + of_b * f64::from(b.turned);
        let [until_a, until_b] = [a, b].map(|feed| costs.until_there(feed));
        let given = match self.schedule {
            Schedule::SplitK(parts) if alone => self.tile.given_bytes(parts),
            _ => 0,
        };
        let taken = self.tile.out_bytes(self.turned, self.schedule) + given;
        let stages = f64::from(self.tile.stages(b.turned, taken));
        let late = costs.late + if alone { 0.0 } else { costs.meet };
        let block = largest(
            &[
                costs.multiply * 2.0 * rows * cols * depth / chip.flops,
                costs.shared * (rows / 64.0 * (64.0 + cols) + rows + cols) * depth * 2.0 / chip.shared,
                costs.fetch * (rows / beside + cols / below) * depth * 2.0 / chip.cache * pieces,
                costs.arrive * (rows + cols) * depth * 2.0 / chip.cache * pieces,
                late.max(until_a).max(until_b) / stages,
            ],
            costs.sharpness,
        );
        // Lines that come late hide such waits.
        let aligned = a.grain.min(b.grain) == 128;
        let factor = |applies: bool, factor: f64| if aligned && applies { factor } else { 1.0 };
        let together =
            factor(!self.tile.pingpong, costs.together) * factor(self.turned, costs.swap[usize::from(neither)]);
        let shared = match self.cluster {
            Cluster::ONE if split => factor(true, costs.add[3]),
            Cluster::ONE => 1.0,
            _ if far => factor(true, costs.far[2]),
            Cluster::PAIR => factor(true, costs.pair),
            Cluster::BESIDE => factor(true, costs.beside),
            // Not measured where lines come late or an operand lies the other way.
            Cluster::TALL | Cluster::WIDE if !aligned || a.turned || b.turned => f64::INFINITY,
            Cluster::TALL | Cluster::WIDE => costs.octet,
            // Of tiles that tokens fill half, others are faster.
            _ => factor(2 * product.m > u64::from(self.tile.n), costs.quad),
        };
        let shared = shared * factor(!alone && !split && neither, costs.shared_both);
        // An epilogue beside the products makes blocks that share a tile uneven.
        let uneven = if !alone && self.tile.pingpong && epilogue.after > 0.0 { 1.03 } else { 1.0 };
        let block = block * together * shared * uneven;
        let per_tile = |[least, each]: [f64; 2]| least + each * rows * cols;
        let [least, each, of_box] = costs.store;
        let store = per_tile([least, each + epilogue.after]) + of_box * f64::from(self.boxes());
        // Whoever takes turns stores while the other multiplies, but for the last time.
        let turn = per_tile([costs.turn[0], costs.turn[1] + epilogue.beside[usize::from(self.turned)]]);
        let (beside, last) = if self.tile.pingpong { (turn, store) } else { (store, 0.0) };
        // Rounds of whole tiles, but for the last store. With a short K the two who take turns do little but store; that was
        // looked at with more than 1024 rows, where boxes have a cost, and what a tile takes elsewhere was fitted without it.
        let whole_tiles = |rounds: u64, block: f64| {
            let multiplied = blocks * block;
            let stores = match self.tile.pingpong && of_box > 0.0 {
                true => rounds.div_ceil(2) as f64 * (multiplied + store) - last,
                false => 0.0,
            };
            (rounds as f64 * (multiplied + beside)).max(stores)
        };
        let work = |block: f64| match self.schedule {
            Schedule::Persistent | Schedule::DataParallel => whole_tiles(tiles.div_ceil(at_once), block) + last,
            Schedule::StreamK => {
                let rest = tiles % at_once;
                let shared = if rest == 0 { 0 } else { (rest + at_once).min(tiles) };
                let whole = whole_tiles((tiles - shared) / at_once, block);
                let cut = shared as f64 * blocks / at_once as f64 * block * costs.cut_blocks;
                let parts = (at_once as f64).min(shared as f64 * blocks / 4.0) / shared.max(1) as f64;
                let takes = (parts - 1.0).max(0.0) * costs.take * rows * cols;
                let summing = if shared == 0 { 0.0 } else { per_tile(costs.cut) + takes };
                whole + cut + beside + last + summing
            }
            Schedule::SplitK(parts) => {
                let sums = f64::from(self.tile.sums() * 128);
                let [add, each, of_block, ..] = costs.add;
                let near = add + each * sums + of_block * f64::from(parts);
                let add = if far { costs.far[0] + costs.far[1] * sums } else { near };
                (blocks / f64::from(parts)).ceil() * block + add
            }
        };
        let starts =
            if self.schedule == Schedule::DataParallel { tiles.div_ceil(at_once) as f64 * costs.starts } else { 0.0 };
        let Product { batch, m, n, k } = *product;
        let bytes = 2.0 * (batch * (m * k + n * k + m * n)) as f64;
        let rate = if far {
            costs.far[3]
        } else if split {
            costs.add[4]
        } else {
            1.0
        };
        let ends = costs.launch + starts;
        let time = ends + largest(&[work(block), bytes / (chip.memory * costs.memory * rate)], costs.overlap);
        if feeds == [Feed::PLAIN; 2] {
            return time;
        }
        let [mean_a, most_a] = costs.requests(a, self.tile.m, extent_a, self.cluster.across);
        let [mean_b, most_b] = costs.requests(b, self.tile.n, extent_b, self.cluster.down);
        // The cache is everyone's: the fewer blocks fetch at a time, the more each one gets, up to twice as much.
        let busy = match self.schedule {
            Schedule::StreamK => 1.0,
            _ => tiles as f64 / (tiles.div_ceil(at_once) * at_once) as f64,
        };
        let requests = ((mean_a + mean_b) * busy).max((most_a + most_b) * 0.5);
        // All else goes on meanwhile, so that the longer of both counts, and a little more where they come close.
        if requests > 0.0 { largest(&[time, ends + work(requests)], 4.0) } else { time }
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
            let time = |choice: &KernelChoice| choice.seconds(&product, [Feed::PLAIN; 2], Added::default(), &chip);
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

    #[test]
    fn lines_that_are_fetched_in_vain_count() {
        // As measured on an H200: 21.4 and 31.9 us, since 80 columns of weights that lie turned come as 128.
        let product = Product { batch: 1, m: 36, n: 1752, k: 17792 };
        let feeds = [Feed::new(false, 17792), Feed::new(true, 1752)];
        let time = |name| {
            let choice = KernelChoice::named(name).unwrap();
            choice.seconds(&product, feeds, Added::default(), &KernelChip::hopper(132))
        };
        let (fewer, more) = (time("64x48p-turned-split-k4"), time("64x80p-pair-split-k3"));
        assert!(fewer < 0.8 * more && more.is_finite(), "{fewer} {more}");
    }
}
