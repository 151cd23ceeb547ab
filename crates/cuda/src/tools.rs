//! Random numbers on the device, and what results are held against: sums in double precision.

use crate::config::activation_number;
use crate::driver::{Device, Event, Kernel, Memory, Stream};
use crate::ends::{Matrix, Operands};
use crate::error::CudaError;
use crate::nvrtc::compile;
use gemwright_core::{Activation, DType, Product};
use std::sync::Arc;

const TEXT: &str = include_str!("../kernels/tools.cu");
const HEADERS: [(&str, &str); 1] = [("ptx.cuh", include_str!("../kernels/ptx.cuh"))];

/// The kernels of kernels/tools.cu on a device.
#[derive(Debug)]
pub struct Tools {
    fill: Kernel,
    scan: Kernel,
    sample: Kernel,
    read: Kernel,
    /// Two numbers that kernels write.
    found: Memory,
    blocks: u32,
}

#[repr(C)]
struct Fill {
    to: u64,
    count: u64,
    seed: u64,
    dtype: i32,
    deviation: f32,
}

#[repr(C)]
struct Scan {
    of: u64,
    count: u64,
    found: u64,
    dtype: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct View {
    first: u64,
    row: i64,
    col: i64,
    batch: i64,
}

impl From<Matrix> for View {
    fn from(matrix: Matrix) -> View {
        let Matrix { address, row, col, batch } = matrix;
        View { first: address, row, col, batch }
    }
}

#[repr(C)]
struct Sample {
    a: View,
    b: View,
    out: View,
    before: View,
    parts: [View; 4],
    worst: u64,
    m: i64,
    n: i64,
    k: i64,
    batch: i64,
    second: i64,
    samples: u64,
    alpha: f64,
    rounding: f64,
    lost: f64,
    scales: [u64; 2],
    steps: [i32; 2],
    dtype: i32,
    weight_dtype: i32,
    out_dtype: i32,
    activation: i32,
    add: i32,
}

/// `Reading` of kernels/tools.cu.
#[repr(C)]
#[derive(Clone, Copy)]
struct Reading {
    from: u64,
    count: u64,
    never: u64,
}

/// What a result should be.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub struct Expected {
    pub product: Product,
    pub operands: Operands,
    pub dtype: DType,
    /// Of b.
    pub weight_dtype: DType,
    pub out_dtype: DType,
    pub activation: Activation,
    /// Sums of e4m3 were added up in f32 every 128 k.
    pub promoted: bool,
    /// The weights are two halves of so many columns.
    pub gated: bool,
    /// What the result had before, where it is added to.
    pub before: Option<Matrix>,
}

/// As kernels count element types.
pub(crate) fn number(dtype: DType) -> i32 {
    match dtype {
        DType::F8E4m3 => 3,
        DType::F32 => 2,
        DType::F16 => 1,
        _ => 0,
    }
}

impl Tools {
    #[allow(missing_docs)]
    pub fn new(device: &Arc<Device>) -> Result<Tools, CudaError> {
        let cubin = compile(TEXT, &HEADERS, &device.architecture(), &[], false)?.cubin;
        let kernel = |name| Kernel::load(device, &cubin, name, 0);
        Ok(Tools {
            fill: kernel("fill_normal")?,
            scan: kernel("scan")?,
            sample: kernel("sample")?,
            read: kernel("read_all")?,
            found: Memory::new(device, 16)?,
            blocks: device.properties.multiprocessors * 8,
        })
    }

    /// Bytes a second at which memory is read: the best of a few goes over a piece that no cache holds.
    pub fn read_bandwidth(&self, stream: &Stream) -> Result<f64, CudaError> {
        const BYTES: usize = 2 << 30;
        let memory = Memory::new(stream.device(), BYTES)?;
        memory.fill(0, BYTES, 0, stream)?;
        let reading = Reading { from: memory.address(), count: BYTES as u64 / 16, never: self.found.address() };
        let [before, after] = [Event::new(stream.device())?, Event::new(stream.device())?];
        let mut best = 0f64;
        for _ in 0..8 {
            before.record(stream)?;
            // SAFETY: as many bytes are read as the memory has.
            unsafe { self.read.launch(stream, self.blocks, 256, &reading, false)? };
            after.record(stream)?;
            best = best.max(BYTES as f64 / after.seconds_since(&before)?);
        }
        Ok(best)
    }

    /// Fills `count` elements with normal numbers.
    pub fn fill(
        &self,
        stream: &Stream,
        memory: &Memory,
        dtype: DType,
        seed: u64,
        deviation: f32,
    ) -> Result<(), CudaError> {
        let count = memory.bytes() as u64 / dtype.bytes();
        let fill = Fill { to: memory.address(), count, seed, dtype: number(dtype), deviation };
        // SAFETY: as many elements are written as the memory has.
        unsafe { self.fill.launch(stream, self.blocks, 256, &fill, false) }
    }

    /// NaNs among the elements from `first` on, and a sum that depends on every bit.
    pub fn scan(
        &self,
        stream: &Stream,
        memory: &Memory,
        dtype: DType,
        first: u64,
        count: u64,
    ) -> Result<(u64, u64), CudaError> {
        if (first + count) * dtype.bytes() > memory.bytes() as u64 {
            return Err(CudaError::Refused("a scan past the end".into()));
        }
        self.found.fill(0, 16, 0, stream)?;
        let of = memory.address() + first * dtype.bytes();
        let scan = Scan { of, count, found: self.found.address(), dtype: number(dtype) };
        // SAFETY: the elements lie inside, checked above; two numbers are added to.
        unsafe { self.scan.launch(stream, self.blocks, 256, &scan, false)? };
        let found = self.two(stream)?;
        Ok((found[0], found[1]))
    }

    /// The largest difference at `samples` places (all of them, if there are no more), in units of what may be.
    ///
    /// # Safety
    /// Every element of the operands is memory of the device.
    pub unsafe fn worst(&self, stream: &Stream, expected: &Expected, samples: u64) -> Result<f64, CudaError> {
        let Product { batch, m, n, k } = expected.product;
        let all = batch * m * n;
        if all == 0 {
            return Ok(0.0);
        }
        let samples = samples.min(all);
        self.found.fill(0, 16, 0, stream)?;
        let rounding = match expected.out_dtype {
            // Rounded once, to nearest; a hair more for sums that lie on the border.
            DType::Bf16 => 0.003_91,
            DType::F16 => 0.000_49,
            _ => 1.2e-7,
        };
        // Tensor cores lose up to a bit of f32 with every block of k they add; of e4m3 they keep 14 bits, or some less.
        let lost = match (expected.dtype, expected.promoted) {
            (DType::F8E4m3, true) => 8.0 / 8192.0 + (k / 128 + 32) as f64 * 1.2e-7,
            (DType::F8E4m3, false) => (k / 32 + 4) as f64 / 8192.0,
            _ => (k / 8 + 32) as f64 * 1.2e-7,
        };
        let operands = &expected.operands;
        let sample = Sample {
            a: operands.a.into(),
            b: operands.b.into(),
            out: operands.out.into(),
            before: expected.before.map_or_else(View::default, View::from),
            parts: operands.parts.map(|part| part.map_or_else(View::default, View::from)),
            worst: self.found.address(),
            m: m as i64,
            n: n as i64,
            k: k as i64,
            batch: batch as i64,
            second: if expected.gated { n as i64 } else { 0 },
            samples,
            alpha: f64::from(operands.alpha),
            rounding,
            lost,
            scales: operands.scales.map(|factors| factors.map_or(0, |factors| factors.address)),
            steps: operands.scales.map(|factors| i32::from(factors.is_some_and(|factors| !factors.one_for_all))),
            dtype: number(expected.dtype),
            weight_dtype: number(expected.weight_dtype),
            out_dtype: number(expected.out_dtype),
            activation: activation_number(expected.activation) as i32,
            add: i32::from(expected.before.is_some()),
        };
        // SAFETY: the caller's promise; one number is written.
        unsafe { self.sample.launch(stream, samples.div_ceil(8) as u32, 256, &sample, false)? };
        Ok(f64::from_bits(self.two(stream)?[0]))
    }

    fn two(&self, stream: &Stream) -> Result<[u64; 2], CudaError> {
        let mut bytes = [0u8; 16];
        self.found.read(0, &mut bytes, stream)?;
        let [first, second] = [0, 8].map(|at| {
            let mut eight = [0; 8];
            eight.copy_from_slice(&bytes[at..at + 8]);
            u64::from_ne_bytes(eight)
        });
        Ok([first, second])
    }
}
