//! What is compiled into a kernel, and what goes together.

use crate::error::CudaError;
use crate::groups::GROUPS_BYTES;
use crate::wgmma;
use gemwright_core::{Activation, Cluster, DType, KernelTile, Schedule};

/// Threads of a block: one warpgroup that loads, two that multiply.
pub const THREADS: u32 = 384;

/// Which operands lie with m or n contiguous, rather than k.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub struct Layouts {
    pub a_mn: bool,
    pub b_mn: bool,
}

/// How the result is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Output {
    /// bf16, f16 or f32.
    pub dtype: DType,
    /// Added to what is there (f32).
    pub add: bool,
    #[allow(missing_docs)]
    pub way: OutWay,
}

/// The way of the result out of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OutWay {
    /// By TMA: rows are contiguous and begin on multiples of 16 bytes.
    Boxes,
    /// Row by row: rows are contiguous, and begin anywhere.
    Rows,
    /// Element by element, wherever they lie.
    Elements,
}

/// Whether the weights are two matrices, of which the first is activated and multiplied with the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Gate {
    None,
    First,
}

/// Whether a side of the product belongs to one group after the other; `GROUPED` of kernels/gemm_sm90.cu.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Grouping {
    #[default]
    #[allow(missing_docs)]
    None,
    /// Rows of a are: each group has a matrix b of its own.
    Rows,
    /// k is: each group has a result of its own.
    K,
}

/// How a part of the epilogue lies, in the kernel's terms: `PER_COLUMN` and so on of kernels/epilogue.cuh.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[allow(missing_docs)]
pub enum PartWay {
    #[default]
    None,
    PerColumn,
    PerRow,
    PerElement,
    /// Two neighbours at once: each pair begins on a multiple of its size.
    PerPair,
}

/// `ACT_RELU` and so on of kernels/epilogue.cuh.
pub(crate) fn activation_number(activation: Activation) -> u32 {
    match activation {
        Activation::None => 0,
        Activation::Relu => 1,
        Activation::GeluTanh => 2,
        Activation::GeluErf => 3,
        Activation::Silu => 4,
    }
}

/// A kernel. Operands are the kernel's: one that is turned has the weights as a and the tokens as b.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub struct Config {
    pub tile: KernelTile,
    pub schedule: Schedule,
    /// Blocks that share a tile of an operand.
    pub cluster: Cluster,
    /// The result is written transposed.
    pub turned: bool,
    pub layouts: Layouts,
    pub dtype: DType,
    pub output: Output,
    pub gate: Gate,
    pub activation: Activation,
    /// Scale, bias, times, residual.
    pub parts: [PartWay; 4],
    /// What goes into the activation is written too.
    pub kept: bool,
    /// Sums are multiplied with alpha.
    pub scaled: bool,
    #[allow(missing_docs)]
    pub grouping: Grouping,
    /// Operands have factors.
    pub scales: bool,
    /// Sums of e4m3 are added up in f32 after every block of K.
    pub promoted: bool,
}

impl Config {
    /// A plain product of bf16.
    pub fn new(tile: KernelTile, schedule: Schedule, turned: bool) -> Config {
        Config {
            tile,
            schedule,
            cluster: Cluster::ONE,
            turned,
            layouts: Layouts { a_mn: false, b_mn: false },
            dtype: DType::Bf16,
            output: Output { dtype: DType::Bf16, add: false, way: OutWay::Boxes },
            gate: Gate::None,
            activation: Activation::None,
            parts: [PartWay::None; 4],
            kept: false,
            scaled: false,
            grouping: Grouping::None,
            scales: false,
            promoted: false,
        }
    }

    /// Such as `128x256 persistent` or `64x32p turned split-k2`.
    pub fn name(&self) -> String {
        let turned = if self.turned { " turned" } else { "" };
        format!("{}{turned}{} {}", self.tile, self.cluster.to_string().replace('-', " "), self.schedule)
    }

    /// Blocks that share out the K of a tile: those of a cluster, or, where a cluster shares an operand, any (`far`).
    pub fn split(&self) -> u32 {
        if let Schedule::SplitK(parts) = self.schedule { parts } else { 1 }
    }

    /// Parts of K are added up through memory, by blocks that all run at once.
    pub fn far(&self) -> bool {
        self.split() > 1 && self.cluster != Cluster::ONE
    }

    /// Sums that a thread can have: what an epilogue brings needs registers too.
    fn most_sums(&self) -> u32 {
        let parts = self.parts.iter().filter(|way| **way != PartWay::None).count();
        let activated = self.activation != Activation::None;
        let each = self.parts.iter().any(|way| matches!(way, PartWay::PerElement | PartWay::PerPair));
        let epilogue = match () {
            () if self.kept && parts > 3 => 56,
            () if each || parts > 2 || (self.scales && self.turned) => 112,
            () if self.kept && activated && self.tile.pingpong => 120,
            () if self.scales => 152,
            () if self.grouping == Grouping::Rows => 160,
            () if self.kept
                || (activated && parts > 0)
                || (self.activation == Activation::GeluTanh && self.gate == Gate::First)
                || self.grouping == Grouping::K
                || self.output.way != OutWay::Boxes
                || self.activation == Activation::GeluErf =>
            {
                176
            }
            () => u32::MAX,
        };
        // Those of two blocks beside them.
        let promoted = if self.promoted { 64 } else { u32::MAX };
        self.schedule.most_sums(self.far() && self.tile.pingpong).min(epilogue).min(promoted)
    }

    /// Columns that a tile writes.
    pub fn written(&self) -> u32 {
        if self.gate == Gate::First { self.tile.n / 2 } else { self.tile.n }
    }

    /// Whether such a kernel can be built.
    pub fn check(&self) -> Result<(), CudaError> {
        let KernelTile { m, n, pingpong } = self.tile;
        let rules = [
            (Cluster::ALL.contains(&self.cluster), "no such cluster of blocks"),
            (
                m % 64 == 0 && (pingpong || m % 128 == 0) && self.tile.sums() <= self.most_sums(),
                "the tile does not fit the registers",
            ),
            (
                !(self.schedule == Schedule::StreamK && self.cluster != Cluster::ONE && m == 256 && self.layouts.a_mn),
                "whoever loads has too few registers",
            ),
            (n % if self.turned { 8 } else { 16 } == 0, "columns go in steps of 16, and of 8 where turned"),
            (matches!(self.dtype, DType::Bf16 | DType::F16 | DType::F8E4m3), "operands are bf16, f16 or e4m3"),
            (
                self.dtype != DType::F8E4m3 || !(self.layouts.a_mn || self.layouts.b_mn),
                "of e4m3 the k of both operands is contiguous",
            ),
            (!self.promoted || self.dtype == DType::F8E4m3, "only sums of e4m3 are promoted"),
            (
                self.grouping == Grouping::None || (!self.scales && self.dtype != DType::F8E4m3),
                "groups are of 16 bits, and have no factors",
            ),
            (matches!(self.output.dtype, DType::Bf16 | DType::F16 | DType::F32), "the result is bf16, f16 or f32"),
            (!self.output.add || self.output.dtype == DType::F32, "only f32 is added to"),
            (
                self.output.dtype != DType::F32 || !self.turned || self.output.way == OutWay::Elements,
                "f32 is not turned on its way out, but element by element",
            ),
            (
                self.output.way != OutWay::Rows || (self.output.dtype != DType::F32 && self.split() == 1 && !self.kept),
                "rows that begin anywhere are of 16 bits, of sums that lie with one block, and nothing is kept",
            ),
            (self.split() == 1 || self.cluster.size() <= 2, "where K is shared, two blocks share an operand at most"),
            (self.gate == Gate::None || self.cluster.size() <= 2, "a gate has two parts to share"),
            (self.gate == Gate::None || m != 192, "a gate and 192 rows do not fit the registers"),
            (
                self.gate == Gate::None || (!self.turned && !self.layouts.b_mn && n % 32 == 0 && self.split() == 1),
                "a gate wants weights [2N, K], columns in steps of 32, K in one piece",
            ),
            (
                self.gate == Gate::None || self.parts == [PartWay::None; 4],
                "a gate goes with no other part of an epilogue",
            ),
            (self.split() == 1 || !self.parts.contains(&PartWay::PerPair), "sums of a split tile come one by one"),
            (!self.kept || !self.output.add, "what is kept is not added to"),
            (
                self.grouping == Grouping::None
                    || (self.schedule == Schedule::Persistent
                        && self.cluster == Cluster::ONE
                        && self.output.way == OutWay::Boxes
                        && self.parts == [PartWay::None; 4]
                        && !self.kept),
                "groups have whole tiles, of blocks that stay, and no parts of an epilogue",
            ),
            (self.grouping != Grouping::Rows || self.output.dtype != DType::F32, "rows of groups are of 16 bits"),
            (
                self.grouping != Grouping::K || (self.layouts.a_mn && self.layouts.b_mn && !self.turned),
                "k of groups is not contiguous, and the result is not turned",
            ),
            (self.stages() >= 3, "fewer than three slots fit the shared memory"),
        ];
        match rules.into_iter().find(|(holds, _)| !holds) {
            Some((_, why)) => Err(CudaError::Refused(format!("{}: {why}", self.name()))),
            None => Ok(()),
        }
    }

    /// Of shared memory, beside the ring.
    fn taken_bytes(&self) -> u32 {
        let out = if self.output.way == OutWay::Elements { 0 } else { self.tile.out_bytes(self.turned, self.schedule) };
        let given = if self.split() > 1 && !self.far() { self.tile.given_bytes(self.split()) } else { 0 };
        out + given + self.staged_bytes() + if self.grouping == Grouping::Rows { GROUPS_BYTES } else { 0 }
    }

    /// Of what the epilogue has for columns.
    fn staged_bytes(&self) -> u32 {
        let parts = self.parts.iter().filter(|way| **way == PartWay::PerColumn).count() as u32;
        if self.split() > 1 { 0 } else { 2 * parts * self.tile.n * self.output.dtype.bytes() as u32 }
    }

    /// Slots of the ring.
    pub fn stages(&self) -> u32 {
        self.tile.stages(self.layouts.b_mn, self.taken_bytes())
    }

    /// Bytes of shared memory that a block takes.
    pub fn shared(&self) -> u32 {
        self.stages() * (self.tile.slot_bytes(self.layouts.b_mn) + 16) + self.taken_bytes()
    }

    /// What the text is compiled with.
    pub fn defines(&self) -> Vec<(String, String)> {
        let flag = u32::from;
        let all = [
            ("BM", self.tile.m),
            ("BN", self.tile.n),
            ("STAGES", self.stages()),
            ("CLUSTER", self.cluster.size()),
            ("ACROSS", self.cluster.across),
            ("ONE_TILE", flag(self.schedule == Schedule::DataParallel)),
            ("SPLIT", self.split()),
            ("PINGPONG", flag(self.tile.pingpong)),
            ("STREAM_K", flag(self.schedule == Schedule::StreamK)),
            ("SWAP", flag(self.turned)),
            ("A_MN", flag(self.layouts.a_mn)),
            ("B_MN", flag(self.layouts.b_mn)),
            ("DIRECT", flag(self.output.way == OutWay::Elements)),
            ("BY_ROWS", flag(self.output.way == OutWay::Rows)),
            ("ALONE", flag(self.warps_alone())),
            ("GATED", flag(self.gate == Gate::First)),
            ("GROUPED", self.grouping as u32),
            ("OPERAND_BYTES", self.dtype.bytes() as u32),
            ("PROMOTE", flag(self.promoted)),
        ];
        let end = End {
            out_dtype: self.output.dtype,
            add: self.output.add,
            scaled: self.scaled,
            activation: self.activation,
            parts: self.parts,
            kept: self.kept,
            scales: self.scales,
        };
        all.into_iter().chain(end.defines()).map(|(name, value)| (name.to_string(), value.to_string())).collect()
    }

    /// Results leave in boxes of 16 rows, each of a warp's own, which the maps of the result must have too.
    pub fn warps_alone(&self) -> bool {
        let by_hand = self.output.way == OutWay::Rows || self.grouping == Grouping::Rows;
        !self.turned && (by_hand || self.output.dtype == DType::F32 || self.gate != Gate::None)
    }

    /// The text of the tensor instruction.
    pub fn wgmma(&self) -> String {
        wgmma::header(self.tile.n, self.dtype, self.layouts.a_mn, self.layouts.b_mn)
    }
}

/// What becomes of sums, as every text that includes kernels/epilogue.cuh is told.
pub(crate) struct End {
    pub out_dtype: DType,
    pub add: bool,
    pub scaled: bool,
    pub activation: Activation,
    pub parts: [PartWay; 4],
    pub kept: bool,
    pub scales: bool,
}

impl End {
    pub fn defines(&self) -> [(&'static str, u32); 11] {
        let flag = u32::from;
        let [scale, bias, times, residual] = self.parts.map(|way| way as u32);
        [
            ("OUT_F32", flag(self.out_dtype == DType::F32)),
            ("OUT_F16", flag(self.out_dtype == DType::F16)),
            ("OUT_ADD", flag(self.add)),
            ("ALPHA", flag(self.scaled)),
            ("ACT", activation_number(self.activation)),
            ("SCALE", scale),
            ("BIAS", bias),
            ("TIMES", times),
            ("RESIDUAL", residual),
            ("KEEP", flag(self.kept)),
            ("SCALES", flag(self.scales)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gemwright_core::SHARED_MEMORY;

    #[test]
    fn every_tile_can_be_built() {
        for tile in KernelTile::ALL {
            for schedule in Schedule::ALL {
                for turned in [false, true] {
                    let config = Config::new(tile, schedule, turned);
                    let odd = tile.n % 16 != 0 && !turned;
                    let fits = tile.sums() <= schedule.most_sums(false) && config.stages() >= 3;
                    assert_eq!(config.check().is_ok(), !odd && fits, "{}", config.name());
                    assert!(config.shared() <= SHARED_MEMORY);
                }
            }
        }
    }

    #[test]
    fn what_does_not_go_together_is_refused() {
        let tile = KernelTile::ALL[0];
        let plain = Config::new(tile, Schedule::Persistent, false);
        let refused = |config: Config| config.check().is_err();
        assert!(refused(Config { dtype: DType::F32, ..plain }));
        assert!(refused(Config { output: Output { add: true, ..plain.output }, ..plain }));
        assert!(refused(Config { cluster: Cluster::QUAD, schedule: Schedule::SplitK(2), ..plain }));
        assert!(refused(Config { cluster: Cluster { down: 2, across: 2 }, ..plain }));
        assert!(refused(Config { gate: Gate::First, turned: true, ..plain }));
        assert!(refused(Config { tile: KernelTile { m: 256, n: 208, pingpong: false }, ..plain }));
    }
}
