//! The tiles and schedules of our GPU kernels: one table, which the choice, the tests and the documentation read.

use std::fmt;

/// Bytes of shared memory that a block may have on Hopper.
pub const SHARED_MEMORY: u32 = 232_448;

/// What one turn of a kernel's inner loop takes of K.
pub const BLOCK_K: u64 = 64;

/// A tile of a kernel for Hopper.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub struct KernelTile {
    pub m: u32,
    pub n: u32,
    /// Two warpgroups have tiles of their own and take turns, rather than halves of one.
    pub pingpong: bool,
}

const fn tile(m: u32, n: u32) -> KernelTile {
    KernelTile { m, n, pingpong: false }
}

const fn pingpong(m: u32, n: u32) -> KernelTile {
    KernelTile { m, n, pingpong: true }
}

impl KernelTile {
    /// Every tile, by and large the largest first. Columns beyond 64 go in steps of 8, as many tokens as people have shared out; where they
    /// are no multiple of 16, only turned.
    pub const ALL: [KernelTile; 73] = [
        tile(256, 192),
        tile(256, 184),
        tile(256, 176),
        tile(256, 168),
        tile(256, 160),
        tile(256, 152),
        tile(256, 144),
        tile(256, 136),
        tile(128, 256),
        tile(256, 128),
        tile(128, 240),
        tile(256, 120),
        tile(128, 224),
        tile(128, 216),
        tile(128, 208),
        tile(128, 200),
        tile(128, 192),
        pingpong(128, 192),
        pingpong(192, 128),
        tile(128, 184),
        tile(256, 112),
        tile(256, 96),
        tile(128, 176),
        pingpong(128, 176),
        tile(128, 168),
        pingpong(192, 112),
        tile(128, 160),
        pingpong(128, 160),
        tile(128, 152),
        pingpong(128, 152),
        tile(128, 144),
        pingpong(128, 144),
        pingpong(192, 96),
        tile(128, 136),
        pingpong(128, 136),
        tile(128, 128),
        pingpong(128, 128),
        pingpong(64, 256),
        pingpong(128, 120),
        pingpong(192, 80),
        pingpong(64, 224),
        tile(128, 112),
        pingpong(128, 112),
        pingpong(192, 72),
        pingpong(128, 104),
        tile(128, 96),
        pingpong(128, 96),
        pingpong(64, 192),
        pingpong(192, 64),
        pingpong(128, 88),
        pingpong(64, 168),
        pingpong(128, 80),
        pingpong(64, 160),
        pingpong(64, 152),
        pingpong(128, 72),
        pingpong(64, 136),
        tile(128, 64),
        pingpong(128, 64),
        pingpong(64, 128),
        pingpong(64, 120),
        pingpong(64, 104),
        pingpong(64, 96),
        tile(128, 48),
        pingpong(64, 88),
        pingpong(64, 80),
        pingpong(64, 72),
        tile(128, 32),
        pingpong(64, 64),
        tile(128, 16),
        pingpong(64, 48),
        pingpong(64, 32),
        pingpong(64, 24),
        pingpong(64, 16),
    ];

    /// Bytes of shared memory that a block of K of both operands takes; `b_turned`: the k of b is not contiguous, so that its
    /// columns come in whole pieces of 64.
    pub fn slot_bytes(&self, b_turned: bool) -> u32 {
        let row = BLOCK_K as u32 * 2;
        let b = if b_turned { self.n.next_multiple_of(64) * row } else { (self.n * row).next_multiple_of(1024) };
        self.m * row + b
    }

    /// Bytes through which results leave: two buffers of 64 rows by 128 bytes for each of two warpgroups. Turned ones have
    /// fewer rows; sums of a tile that is cut go elsewhere, those of a block's only one where the operands were.
    pub fn out_bytes(&self, turned: bool, schedule: Schedule) -> u32 {
        match schedule {
            Schedule::SplitK(_) | Schedule::DataParallel => 0,
            _ if turned => 4 * (self.n.min(64) * 128).next_multiple_of(1024),
            _ => 4 * 8192,
        }
    }

    /// Bytes into which the blocks of a cluster, each with a part of K, put the sums that this one adds up, and their two
    /// barriers: four sums of a thread at a time, as many of these as come to a block.
    pub fn given_bytes(&self, parts: u32) -> u32 {
        let (cells, warpgroups) = (self.sums() / 4, if self.pingpong { 1 } else { 2 });
        (parts - 1) * cells.div_ceil(parts) * warpgroups * 128 * 16 + 16
    }

    /// Blocks of K that are on their way at once: as many as fit beside `taken` bytes, up to what hides the way to memory.
    pub fn stages(&self, b_turned: bool, taken: u32) -> u32 {
        // Two barriers of eight bytes for each.
        ((SHARED_MEMORY - taken) / (self.slot_bytes(b_turned) + 16)).min(16)
    }

    /// Sums that a thread keeps.
    pub fn sums(&self) -> u32 {
        let rows = if self.pingpong { self.m / 64 } else { self.m / 128 };
        rows * self.n / 2
    }

    /// From a name such as `128x256` or `64x32p`.
    pub fn named(name: &str) -> Option<KernelTile> {
        KernelTile::ALL.into_iter().find(|tile| tile.to_string() == name)
    }
}

impl fmt::Display for KernelTile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}{}", self.m, self.n, if self.pingpong { "p" } else { "" })
    }
}

/// Clusters of so many blocks that run at once on so many multiprocessors: larger ones must lie in one part of the chip, and
/// some do not fit.
pub fn clusters_at_once(units: u64, size: u64) -> u64 {
    let whole = units / size;
    let fit = match size {
        1 | 2 => whole,
        4 => whole - whole / 11,
        _ => whole - whole / 16,
    };
    fit.max(1)
}

/// Blocks that lie together: those one below the other share a tile of b, those side by side share one of a.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub struct Cluster {
    pub down: u32,
    pub across: u32,
}

impl Cluster {
    /// A block alone.
    pub const ONE: Cluster = Cluster { down: 1, across: 1 };
    /// Two that share b.
    pub const PAIR: Cluster = Cluster { down: 2, across: 1 };
    /// Four that share b.
    pub const QUAD: Cluster = Cluster { down: 4, across: 1 };
    /// Two that share a.
    pub const BESIDE: Cluster = Cluster { down: 1, across: 2 };
    /// Eight, of which four share b and two a.
    pub const TALL: Cluster = Cluster { down: 4, across: 2 };
    /// Eight, of which two share b and four a.
    pub const WIDE: Cluster = Cluster { down: 2, across: 4 };
    /// Every one that kernels are built for.
    pub const ALL: [Cluster; 6] =
        [Cluster::ONE, Cluster::PAIR, Cluster::QUAD, Cluster::BESIDE, Cluster::TALL, Cluster::WIDE];

    /// Blocks.
    pub fn size(&self) -> u32 {
        self.down * self.across
    }
}

/// As a part of a kernel's name.
impl fmt::Display for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Cluster::ONE => Ok(()),
            Cluster::BESIDE => f.write_str("-beside"),
            Cluster::PAIR => f.write_str("-pair"),
            Cluster::QUAD => f.write_str("-quad"),
            Cluster { down, across } => write!(f, "-{down}x{across}"),
        }
    }
}

/// How tiles are shared out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Schedule {
    /// A block for every tile.
    DataParallel,
    /// As many blocks as the chip runs at once, which take tiles in turns.
    Persistent,
    /// As persistent, and the last tiles are cut along K so that all blocks end together.
    StreamK,
    /// So many blocks for every tile, each with a part of K: a cluster of them, or, where clusters share b, as many clusters.
    SplitK(u32),
}

impl Schedule {
    /// Sums that a thread may keep: adding others' to them takes registers too. `far_in_turns`: parts of K are added up through
    /// memory, by tiles in turns.
    pub fn most_sums(&self, far_in_turns: bool) -> u32 {
        match self {
            // With 128 they spilled.
            Schedule::SplitK(2) if far_in_turns => 120,
            Schedule::DataParallel | Schedule::Persistent => 192,
            Schedule::StreamK => 160,
            Schedule::SplitK(_) => 128,
        }
    }

    /// Every one that kernels are built for.
    pub const ALL: [Schedule; 7] = [
        Schedule::Persistent,
        Schedule::DataParallel,
        Schedule::StreamK,
        Schedule::SplitK(2),
        Schedule::SplitK(4),
        Schedule::SplitK(8),
        Schedule::SplitK(3),
    ];

    /// From a name such as `stream-k`.
    pub fn named(name: &str) -> Option<Schedule> {
        Schedule::ALL.into_iter().find(|schedule| schedule.to_string() == name)
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Schedule::DataParallel => f.write_str("data-parallel"),
            Schedule::Persistent => f.write_str("persistent"),
            Schedule::StreamK => f.write_str("stream-k"),
            Schedule::SplitK(parts) => write!(f, "split-k{parts}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique_and_come_back() {
        let names: HashSet<String> = KernelTile::ALL.iter().map(KernelTile::to_string).collect();
        assert_eq!(names.len(), KernelTile::ALL.len());
        assert!(KernelTile::ALL.into_iter().all(|tile| KernelTile::named(&tile.to_string()) == Some(tile)));
        assert!(Schedule::ALL.into_iter().all(|schedule| Schedule::named(&schedule.to_string()) == Some(schedule)));
    }
}
