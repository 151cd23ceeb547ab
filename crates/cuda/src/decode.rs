//! Products of a few rows with weights \[N, K\], which are streamed once.

use crate::config::{End, PartWay};
use crate::driver::{Device, Kernel, Stream};
use crate::ends::{Ends, EndsOf, Matrix, Operands};
use crate::error::CudaError;
use crate::loaded::Loaded;
use crate::nvrtc::{Compiled, compile};
use crate::tensor_map::{Swizzle, TensorBox};
use cudarc::driver::sys;
use gemwright_core::{Activation, DType, DecodeChoice, DirectChoice, Product, RingChoice, clusters_at_once};
use std::sync::Arc;

const DIRECT: &str = include_str!("../kernels/decode.cu");
const RING: &str = include_str!("../kernels/ring.cu");
const HEADERS: [(&str, &str); 3] = [
    ("ptx.cuh", include_str!("../kernels/ptx.cuh")),
    ("epilogue.cuh", include_str!("../kernels/epilogue.cuh")),
    ("few_rows.cuh", include_str!("../kernels/few_rows.cuh")),
];
/// Registers of a multiprocessor.
const REGISTERS: u32 = 65_536;
/// Bytes of shared memory that a block of compute capability 9.0 may have.
const SHARED: u32 = 227 << 10;
/// Multiprocessors that a GPU is taken to have where none is at hand; with fewer a block may have more to keep than it has
/// room for.
const FEWEST: u64 = 64;
/// Rows of x up to which shared memory is read for each weight, where registers do not keep them.
const FEW: u32 = 16;
/// Slots of a ring: more only keep x and each other waiting.
const SLOTS: u64 = 2;
/// Kinds of rows by where they begin in 16 bytes: every eighth begins at the same place.
const KINDS: u64 = 8;
/// Bytes of all rings of a block where they are filled while the kernel before this one ends, as far as there is room.
const EARLY_RINGS: u64 = 128 << 10;

/// A kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub struct DecodeConfig {
    pub choice: DecodeChoice,
    /// Rows of x that there is room for: 1, 2, 4, 8, 16 or 32.
    pub x_rows: u32,
    /// Chunks of K that a warp of a ring's block has at most, where its part of x is kept in registers.
    pub x_kept: u32,
    /// A ring for rows that are no whole 128 bytes, or begin anywhere.
    pub odd: bool,
    /// Of x.
    pub dtype: DType,
    /// That of x, or e4m3.
    pub weight_dtype: DType,
    pub out_dtype: DType,
    /// Rows of x, of the weight, begin anywhere rather than on 16 bytes.
    pub shifted: [bool; 2],
    /// K is no multiple of the elements in 16 bytes.
    pub tail: bool,
    /// The weight is two, \[2N, K\].
    pub gated: bool,
    /// Added to what the result has.
    pub add: bool,
    pub activation: Activation,
    /// Scale, bias, times, residual.
    pub parts: [PartWay; 4],
    pub kept: bool,
    /// Sums are multiplied with alpha.
    pub scaled: bool,
    /// Operands have factors.
    pub scales: bool,
}

impl DecodeConfig {
    /// A plain product of bf16 with up to 8 rows.
    pub fn new(choice: DecodeChoice) -> DecodeConfig {
        DecodeConfig {
            choice,
            x_rows: 8,
            x_kept: 0,
            odd: false,
            dtype: DType::Bf16,
            weight_dtype: DType::Bf16,
            out_dtype: DType::Bf16,
            shifted: [false; 2],
            tail: false,
            gated: false,
            add: false,
            activation: Activation::None,
            parts: [PartWay::None; 4],
            kept: false,
            scaled: false,
            scales: false,
        }
    }

    /// For rows of that length.
    pub fn of_length(self, k: u64) -> DecodeConfig {
        let DecodeChoice::Ring(choice) = self.choice else { return self };
        let odd = self.shifted != [false; 2] || !k.is_multiple_of(self.box_k());
        // What lays out odd rows puts one chunk right behind the other, which are whole atoms of the swizzle with two rows.
        let x_rows = if odd { self.x_rows.max(2) } else { self.x_rows };
        let config = DecodeConfig { odd, x_rows, ..self };
        let columns = config.columns_of(k);
        let kept = if choice.keeps_x(columns, x_rows.into()) { choice.chunks_of_warp(columns) as u32 } else { 0 };
        DecodeConfig { x_kept: kept, ..config }
    }

    /// What a ring with odd rows has to do, and the multiprocessors that do it: of every kind of rows as many.
    pub fn odd_shares(&self, product: &Product, multiprocessors: u64) -> Option<(Product, u64)> {
        let n = self.tiles(product.n) * self.columns();
        self.odd.then(|| (Product { n, k: self.columns_of(product.k), ..*product }, multiprocessors / KINDS * KINDS))
    }

    /// How often the kernel runs for so many rows: weights of 8 bits have no other one, so where x leaves no room for them its
    /// rows take turns.
    pub fn turns(&self, m: u64) -> u64 {
        if self.weight_dtype == self.dtype { 1 } else { m.div_ceil(self.x_rows.into()).max(1) }
    }

    /// Columns that go through a ring: where rows begin inside 16 bytes, up to seven more.
    fn columns_of(&self, k: u64) -> u64 {
        if self.odd { k + 7 } else { k }
    }

    /// Bytes of shared memory that a block needs with so many slots in its rings and so many times the rows of the weight that a warp has.
    fn ring_bytes(&self, choice: &RingChoice, slots: u64, units: u64, k: u64) -> u64 {
        let chunks = self.columns_of(k).div_ceil(choice.chunk.into()).div_ceil(choice.split.into());
        let weights = if self.gated { 2 } else { 1 };
        // Sums of the rows of the weight that a warp has at a time.
        let unit = weights * u64::from(self.x_rows.max(8)) * self.columns() * 4;
        let warps = u64::from(choice.warps);
        let sums = if choice.share > 1 { 2 * warps * unit } else { 0 };
        let kept = if choice.split > 1 { units * unit } else { 0 };
        let slots = warps * slots;
        let x = chunks * u64::from(self.x_rows * choice.chunk * 2).next_multiple_of(1024);
        // Of many rows what is kept lies in the place of x.
        let x_and_kept = if self.x_rows > FEW { x.max(kept) } else { x + kept };
        slots * u64::from(choice.slot_bytes()) + x_and_kept + sums + 8 * (slots + chunks)
    }

    /// k of 128 bytes of the weight.
    fn box_k(&self) -> u64 {
        128 / self.weight_dtype.bytes()
    }

    /// Why it cannot have a product.
    pub fn refuses(&self, product: &Product) -> Option<&'static str> {
        let Product { batch, m, n, k } = *product;
        let most_rows = if matches!(self.choice, DecodeChoice::Ring(_)) { self.x_rows } else { 8 * self.tokens() };
        if self.turns(m) == 1 && m > most_rows.into() {
            return Some("it was made for fewer rows of x");
        }
        let most_units =
            |choice: &RingChoice| n.div_ceil(self.columns()).div_ceil(clusters_at_once(FEWEST, choice.split.into()));
        match self.choice {
            DecodeChoice::Direct(_) if self.weight_dtype != self.dtype => Some("rings alone take weights of 8 bits"),
            DecodeChoice::Direct(choice) if !self.direct_fits(&choice) => {
                Some("more pieces on the way than there are registers")
            }
            DecodeChoice::Direct(_) if self.x_rows > FEW => Some("more than 16 rows of x go through rings"),
            DecodeChoice::Direct(_) => None,
            DecodeChoice::Ring(_)
                if self.x_rows > FEW && (self.x_kept == 0 || self.odd || self.weight_dtype != self.dtype) =>
            {
                Some("more than 16 rows of x want registers for them, and weights of 16 bits in whole 128 bytes")
            }
            DecodeChoice::Ring(choice) if self.x_rows <= FEW && choice.split > 2 => {
                Some("so many parts of K are for more rows of x")
            }
            DecodeChoice::Ring(_) if self.of_length(k) != *self => Some("it was made for rows of another length"),
            DecodeChoice::Ring(_) if batch != 1 => Some("rings take one matrix"),
            DecodeChoice::Ring(choice) if choice.warps > 8 && self.weight_dtype.bytes() > 1 && !self.odd => {
                Some("so many warps are for weights of 8 bits, or rows that begin anywhere")
            }
            DecodeChoice::Ring(choice) if choice.warps < 8 && self.weight_dtype.bytes() > 1 => {
                Some("so few warps are for weights of 8 bits")
            }
            DecodeChoice::Ring(_) if k == 0 => Some("of nothing nothing goes through a ring"),
            DecodeChoice::Ring(_) if n < KINDS && (self.odd || self.weight_dtype != self.dtype) => {
                Some("fewer than eight rows of a weight of 8 bits, or that begin anywhere")
            }
            DecodeChoice::Ring(choice)
                if self.odd && (choice.split > 1 || self.gated || self.weight_dtype != self.dtype) =>
            {
                Some("of rows that are no whole 128 bytes rings take one weight of 16 bits, in one block")
            }
            DecodeChoice::Ring(choice) if self.ring_bytes(&choice, SLOTS, most_units(&choice), k) > SHARED.into() => {
                Some("x is too large for shared memory")
            }
            DecodeChoice::Ring(_) => None,
        }
    }

    /// Groups of 16 rows of the weight in a tile: of two weights as many each.
    fn groups(&self, choice: &DirectChoice) -> u32 {
        if self.gated { choice.groups.max(2) } else { choice.groups }
    }

    /// Columns of the result in a tile.
    fn columns(&self) -> u64 {
        match self.choice {
            DecodeChoice::Direct(choice) => u64::from(16 * self.groups(&choice) / if self.gated { 2 } else { 1 }),
            DecodeChoice::Ring(_) => RingChoice::rows(self.weight_dtype.bytes()),
        }
    }

    /// Tiles of so many columns of the result; of odd rows every kind has as many.
    fn tiles(&self, n: u64) -> u64 {
        if self.odd { n.div_ceil(self.columns() * KINDS) * KINDS } else { n.div_ceil(self.columns()) }
    }

    /// Groups of 8 rows of x.
    fn tokens(&self) -> u32 {
        self.x_rows.div_ceil(8)
    }

    fn threads(&self) -> u32 {
        match self.choice {
            DecodeChoice::Direct(DirectChoice { warps, .. }) | DecodeChoice::Ring(RingChoice { warps, .. }) => {
                32 * warps
            }
        }
    }

    /// Bytes of shared memory that are asked for at the launch.
    fn shared(&self) -> u32 {
        match self.choice {
            DecodeChoice::Direct(_) => 0,
            DecodeChoice::Ring(_) => SHARED,
        }
    }

    /// Blocks that a multiprocessor runs at once.
    pub fn blocks(&self) -> u32 {
        match self.choice {
            DecodeChoice::Direct(choice) => self.direct_blocks(&choice),
            DecodeChoice::Ring(_) => 1,
        }
    }

    /// By the registers of what is on the way and some for the rest.
    fn direct_blocks(&self, choice: &DirectChoice) -> u32 {
        // Where rows are shifted, what lies behind the last piece, and room to put two together.
        let pieces = |shifted: bool| choice.ahead + u32::from(shifted);
        let groups = self.groups(choice);
        let w = 8 * groups * pieces(self.shifted[1]);
        let x = 4 * self.tokens() * pieces(self.shifted[0]);
        let sums = 4 * groups * self.tokens();
        let rows = 6 * groups + 3 * self.tokens();
        let together = if self.shifted == [false; 2] { 0 } else { 12 };
        let registers = w + x + sums + rows + together + 34;
        (REGISTERS / (self.threads() * registers)).clamp(1, 2048 / self.threads())
    }

    fn direct_fits(&self, choice: &DirectChoice) -> bool {
        let groups = self.groups(choice);
        let pieces = |shifted: bool| choice.ahead + u32::from(shifted);
        let ring = 8 * groups * pieces(self.shifted[1]) + 4 * self.tokens() * pieces(self.shifted[0]);
        let most = (REGISTERS / self.threads()).min(255);
        // Partial sums have 48 KB.
        let shared = choice.warps * groups * 16 * self.tokens() * 8 * 4;
        ring + 8 * groups + 48 <= most && shared <= 48 << 10
    }

    /// Compiles the kernel for an architecture such as `sm_90a`, or takes it from the disk unless it is wanted `anew`.
    pub fn compile(&self, architecture: &str, anew: bool) -> Result<Compiled, CudaError> {
        let flag = u32::from;
        let all =
            [("BLOCKS", self.blocks()), ("OPERAND_F16", flag(self.dtype == DType::F16)), ("GATED", flag(self.gated))];
        let (text, own) = match self.choice {
            DecodeChoice::Direct(choice) => {
                let own = vec![
                    ("TOKENS", self.tokens()),
                    ("GROUPS", self.groups(&choice)),
                    ("WARPS", choice.warps),
                    ("SPLIT", choice.split),
                    ("AHEAD", choice.ahead),
                    ("X_SHIFTED", flag(self.shifted[0])),
                    ("W_SHIFTED", flag(self.shifted[1])),
                    ("K_TAIL", flag(self.tail)),
                ];
                (DIRECT, own)
            }
            DecodeChoice::Ring(RingChoice { warps, share, chunk, split }) => {
                let own = [
                    ("X_ROWS", self.x_rows),
                    ("WARPS", warps),
                    ("SHARE", share),
                    ("CHUNK", chunk),
                    ("SPLIT", split),
                    ("X_KEPT", self.x_kept),
                    ("W_BYTES", self.weight_dtype.bytes() as u32),
                    ("ODD", flag(self.odd)),
                ];
                (RING, own.to_vec())
            }
        };
        let end = End {
            out_dtype: self.out_dtype,
            add: self.add,
            scaled: self.scaled,
            activation: self.activation,
            parts: self.parts,
            kept: self.kept,
            scales: self.scales,
        };
        let all = all.into_iter().chain(own).chain(end.defines());
        let defines: Vec<_> = all.map(|(name, value)| (name.to_string(), value.to_string())).collect();
        compile(text, &HEADERS, architecture, &defines, anew)
    }
}

/// `Params` of kernels/few_rows.cuh; steps in bytes.
#[repr(C)]
#[derive(Clone, Copy)]
struct Params {
    w: u64,
    w_row: i64,
    w_batch: i64,
    x: u64,
    x_row: i64,
    x_batch: i64,
    ends: Ends,
    k: i32,
    tiles: i32,
    all: i32,
    constant: i32,
}

/// `RingParams` of kernels/ring.cu.
#[repr(C)]
struct RingParams<const MAPS: usize> {
    w: [sys::CUtensorMap; MAPS],
    x: sys::CUtensorMap,
    all: Params,
    slots: i32,
    units: i32,
}

/// A kernel and a product of a certain shape.
#[derive(Debug, Clone)]
pub struct Decode {
    /// What was compiled.
    pub config: DecodeConfig,
    product: Product,
    kernel: Arc<Kernel>,
    tiles: u64,
    grid: u32,
}

fn kernel(device: &Arc<Device>, config: &DecodeConfig) -> Result<Arc<Kernel>, CudaError> {
    static LOADED: Loaded<DecodeConfig> = Loaded::new();
    LOADED.kernel(device, config, || {
        let cubin = config.compile(&device.architecture(), false)?.cubin;
        Kernel::load(device, &cubin, "decode", config.shared())
    })
}

impl Decode {
    /// Compiles, or finds, the kernel.
    pub fn new(device: &Arc<Device>, config: DecodeConfig, product: Product) -> Result<Decode, CudaError> {
        device.has_mma()?;
        let refused = |why: &str| Err(CudaError::Refused(why.into()));
        if let Some(why) = config.refuses(&product) {
            return refused(why);
        }
        let (split, persistent) = match config.choice {
            DecodeChoice::Direct(choice) => (choice.split, choice.persistent),
            DecodeChoice::Ring(choice) => (choice.split, true),
        };
        if device.properties.capability.0 < 9 && (split > 1 || matches!(config.choice, DecodeChoice::Ring(_))) {
            return refused("rings and clusters of blocks need a GPU of compute capability 9");
        }
        let tiles = config.tiles(product.n);
        let all = tiles.checked_mul(product.batch);
        let Some(all) = all.filter(|all| *all < 1 << 27 && product.n < 1 << 30 && product.k < 1 << 30) else {
            return refused("more tiles than a kernel can count");
        };
        let at_once = u64::from(device.properties.multiprocessors * config.blocks());
        let mut blocks = if persistent { all.min(clusters_at_once(at_once, split.into())) } else { all };
        if config.odd {
            // As many for every kind of rows.
            blocks = blocks / KINDS * KINDS;
        }
        if blocks == 0 && all > 0 {
            return refused("the GPU has too few multiprocessors");
        }
        let grid = blocks as u32 * split;
        if let DecodeChoice::Ring(choice) = config.choice
            && config.ring_bytes(&choice, SLOTS, tiles.div_ceil(blocks.max(1)), product.k) > SHARED.into()
        {
            return refused("the GPU has too few multiprocessors for so many rows of the weight");
        }
        Ok(Decode { config, product, kernel: kernel(device, &config)?, tiles, grid })
    }

    /// Puts a run on the stream; `early`: beside the end of what is on it, as the driver allows; `constant`: and no work on the
    /// stream that may not have ended writes the weight, so that it is read before that end.
    ///
    /// # Safety
    /// Every element of the operands is memory of the stream's device until the stream has done the work, in whole sixteen
    /// bytes. Those of the result and of what is kept are touched by nobody else, and overlap nothing. `constant` is true.
    pub unsafe fn launch(
        &self,
        stream: &Stream,
        operands: &Operands,
        early: bool,
        constant: bool,
    ) -> Result<(), CudaError> {
        let (Product { batch, m, n, .. }, config) = (self.product, &self.config);
        if batch == 0 || m == 0 || n == 0 {
            return Ok(());
        }
        let at_once = if config.turns(m) == 1 { m } else { config.x_rows.into() };
        for first in (0..m).step_by(at_once as usize) {
            let product = Product { m: at_once.min(m - first), ..self.product };
            let rows = operands.rows_from(first, config.dtype.bytes(), config.out_dtype.bytes());
            // SAFETY: the caller's.
            unsafe { self.launch_rows(stream, product, &rows, early, constant)? };
        }
        Ok(())
    }

    /// # Safety
    /// As for `launch`, of some of the product's rows.
    unsafe fn launch_rows(
        &self,
        stream: &Stream,
        product: Product,
        operands: &Operands,
        early: bool,
        constant: bool,
    ) -> Result<(), CudaError> {
        let Product { batch, m, n, k } = product;
        let config = &self.config;
        let (weight, x) = (operands.b.transposed(), operands.a);
        let in_bytes = |matrix: Matrix, dtype: DType| {
            let bytes = dtype.bytes() as i64;
            (matrix.address, matrix.row * bytes, matrix.batch * bytes)
        };
        let steps = [in_bytes(x, config.dtype), in_bytes(weight, config.weight_dtype)];
        if config.scales != operands.scales.iter().any(Option::is_some) {
            return Err(CudaError::Refused("a kernel for factors needs some, and only that".into()));
        }
        let weights = if config.gated { 2 * n } else { n };
        for (((address, row, next), shifted), rows) in steps.into_iter().zip(config.shifted).zip([m, weights]) {
            // A step over an extent of one is never taken.
            let aligned = (row % 16 == 0 || rows <= 1) && (next % 16 == 0 || batch <= 1);
            if !(shifted || config.odd || address.is_multiple_of(16) && aligned) {
                return Err(CudaError::Refused("rows of an operand must begin on 16 bytes".into()));
            }
        }
        let ends = EndsOf { extents: (m, n), turned: false, parts: config.parts, dtype: config.out_dtype };
        let [(x, x_row, x_batch), (w, w_row, w_batch)] = steps;
        let params = Params {
            w,
            w_row,
            w_batch,
            x,
            x_row,
            x_batch,
            ends: ends.told(operands)?,
            k: k as i32,
            tiles: self.tiles as i32,
            all: (self.tiles * batch) as i32,
            // Rings are filled before the kernel before this one has ended only where that makes a difference.
            constant: (constant && early).into(),
        };
        match config.choice {
            // SAFETY: the kernel takes these parameters; the rest is the caller's.
            DecodeChoice::Direct(_) => unsafe {
                self.kernel.launch(stream, self.grid, config.threads(), &params, early)
            },
            // SAFETY: the caller's.
            DecodeChoice::Ring(choice) => unsafe {
                self.launch_ring(stream, (choice, product), params, operands, early)
            },
        }
    }

    /// # Safety
    /// As for `launch`.
    unsafe fn launch_ring(
        &self,
        stream: &Stream,
        (choice, product): (RingChoice, Product),
        all: Params,
        operands: &Operands,
        early: bool,
    ) -> Result<(), CudaError> {
        let (config, Product { m, n, k, .. }) = (&self.config, product);
        let units = self.tiles.div_ceil(u64::from(self.grid / choice.split));
        // The third dimension goes along a row again, 128 bytes at a time: its step is smaller than that of the second,
        // which the driver takes though its documentation speaks of growing ones.
        let boxes = |matrix: Matrix, dtype: DType, rows: u64, box_rows: u32| {
            let along = 128 / dtype.bytes();
            let boxes = TensorBox {
                dtype,
                address: matrix.address,
                cols: along,
                rows,
                batch: k / along,
                row: matrix.row as u64,
                next: along,
                box_cols: along as u32,
                box_rows,
                box_batch: choice.chunk / along as u32,
                swizzle: Swizzle::B128,
            };
            boxes.encode()
        };
        let bytes = |slots: u64| config.ring_bytes(&choice, slots, units, k);
        let early_slots = EARLY_RINGS / u64::from(choice.warps * choice.slot_bytes());
        let most = if all.constant == 0 { SLOTS } else { early_slots };
        let slots = (SLOTS..=most).rev().find(|slots| bytes(*slots) <= SHARED.into()).unwrap_or(SLOTS);
        let sizes = (self.grid, config.threads(), bytes(slots) as u32);
        let (slots, units) = (slots as i32, units as i32);
        if config.odd {
            let mut w = [NO_MAP; KINDS as usize];
            for (kind, map) in (0..KINDS).zip(&mut w) {
                *map = of_kind(config.dtype, operands.b.transposed(), (n, k), kind)?;
            }
            let params = RingParams { w, x: NO_MAP, all, slots, units };
            // SAFETY: as below.
            return unsafe { self.kernel.launch_with(stream, sizes, &params, early) };
        }
        let weights = if config.gated { 2 * n } else { n };
        let w = boxes(operands.b.transposed(), config.weight_dtype, weights, config.columns() as u32)?;
        let x = boxes(operands.a, config.dtype, m, config.x_rows)?;
        let params = RingParams { w: [w], x, all, slots, units };
        // SAFETY: the kernel takes these parameters and has as much shared memory as it uses; the rest is the caller's.
        unsafe { self.kernel.launch_with(stream, sizes, &params, early) }
    }
}

const NO_MAP: sys::CUtensorMap = sys::CUtensorMap { opaque: [0; 16] };

/// Every eighth row of a weight \[n, k\], from `kind` on, in boxes of 8 rows; columns begin with the 16 bytes in which its
/// first row does.
fn of_kind(dtype: DType, matrix: Matrix, (n, k): (u64, u64), kind: u64) -> Result<sys::CUtensorMap, CudaError> {
    let first = matrix.address + kind * matrix.row as u64 * dtype.bytes();
    let before = first % 16;
    TensorBox {
        dtype,
        address: first - before,
        cols: k + before / dtype.bytes(),
        rows: (n - kind).div_ceil(KINDS),
        batch: 1,
        row: KINDS * matrix.row as u64,
        next: 0,
        box_cols: 64,
        box_rows: RingChoice::rows(2) as u32,
        box_batch: 1,
        swizzle: Swizzle::B128,
    }
    .encode()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_lie_as_the_kernel_has_them() {
        assert_eq!(std::mem::offset_of!(Params, ends), 48);
        assert_eq!(std::mem::offset_of!(Params, k), 48 + size_of::<Ends>());
        let ring = [std::mem::offset_of!(RingParams<1>, x), std::mem::offset_of!(RingParams<1>, all)];
        assert_eq!(ring, [128, 256]);
        assert_eq!(std::mem::offset_of!(RingParams<1>, slots), 256 + size_of::<Params>());
        assert_eq!(std::mem::offset_of!(RingParams<8>, all), 9 * 128);
    }

    #[test]
    fn kernels_take_what_they_were_made_for() {
        let ring = DecodeChoice::named("ring-8x8c256").unwrap();
        let config = DecodeConfig::new(ring).of_length(4096);
        let product = Product { batch: 1, m: 8, n: 4096, k: 4096 };
        assert_eq!(config.refuses(&product), None);
        for other in [
            Product { m: 9, ..product },
            Product { batch: 2, ..product },
            Product { k: 8192, ..product },
            Product { k: 0, ..product },
        ] {
            assert!(config.refuses(&other).is_some(), "{other:?}");
        }
        // Eight rows of 14336 need a second block.
        let long = Product { k: 14_336, ..product };
        let refuses = |name: &str| {
            DecodeConfig::new(DecodeChoice::named(name).unwrap()).of_length(14_336).refuses(&long).is_some()
        };
        assert_eq!(["ring-8x8c256", "ring-8x8c256s2", "decode-16x8a4"].map(refuses), [true, false, false]);
    }

    /// More than 16 rows are kept in registers: whole 128 bytes of 16 bits, 2048 of K in each block.
    #[test]
    fn many_rows_go_through_rings_that_keep_them() {
        let product = Product { batch: 1, m: 32, n: 1280, k: 8192 };
        let of = |name: &str| DecodeConfig { x_rows: 32, ..DecodeConfig::new(DecodeChoice::named(name).unwrap()) };
        let taken = |name: &str, k| of(name).of_length(k).refuses(&Product { k, ..product }).is_none();
        assert!(taken("ring-8x8c256s4", 8192) && taken("ring-8x8c256", 2048));
        for (name, k) in
            [("ring-8x8c256s2", 8192), ("ring-8x8c256s4", 16_384), ("ring-8x8c256", 2056), ("decode-16x8a4", 2048)]
        {
            assert!(!taken(name, k), "{name} {k}");
        }
        let eight = DecodeConfig { weight_dtype: DType::F8E4m3, ..of("ring-8x8c256s4") };
        assert!(eight.of_length(8192).refuses(&product).is_some());
        let few = DecodeConfig { x_rows: 16, ..of("ring-8x8c256s4") };
        assert!(few.of_length(8192).refuses(&Product { m: 16, ..product }).is_some());
    }

    /// No other kernel takes weights of 8 bits.
    #[test]
    fn a_ring_takes_the_weights_of_models_in_eight_bits() {
        let taken = |m: u64, n, k, x_rows| {
            let product = Product { batch: 1, m, n, k };
            DecodeChoice::all().any(|choice| {
                let config = DecodeConfig { weight_dtype: DType::F8E4m3, x_rows, ..DecodeConfig::new(choice) };
                config.of_length(k).refuses(&product).is_none()
            })
        };
        for (m, n, k) in [(16, 4096, 4096), (16, 4096, 9728), (16, 4096, 11_008), (8, 8192, 22_016), (8, 4096, 14_336)]
        {
            assert!(taken(m, n, k, m as u32), "{m} x {n} x {k}");
        }
        // In turns of eight or four rows.
        assert!(!taken(16, 4096, 14_336, 16) && taken(16, 4096, 14_336, 8));
        assert!(!taken(16, 8192, 28_672, 8) && taken(16, 8192, 28_672, 4));
        assert!(!(0..5).any(|power| taken(16, 4096, 1 << 20, 1 << power)));
        let ring = DecodeConfig { x_rows: 4, ..DecodeConfig::new(DecodeChoice::named("ring-8x8c256").unwrap()) };
        assert_eq!(DecodeConfig { weight_dtype: DType::F8E4m3, ..ring }.turns(9), 3);
        assert_eq!(ring.turns(9), 1);
    }

    #[test]
    fn a_multiprocessor_gets_as_many_blocks_as_registers_allow() {
        let blocks = |name: &str| DecodeConfig::new(DecodeChoice::named(name).unwrap()).blocks();
        assert_eq!([blocks("decode-16x8a4"), blocks("decode-16x4a4"), blocks("decode-32x4a4p")], [2, 5, 3]);
    }
}
