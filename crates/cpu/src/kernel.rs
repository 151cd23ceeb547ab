//! The kernels by name, and which of them this machine can run.

use crate::bf16::{RunMixed, gemm_widened};
#[cfg(target_arch = "x86_64")]
use crate::bf16::{gemm_amx, gemm_dots, tiles_available};
use crate::gemm::{Job, Tiles, gemm_packed, gemm_with};
use crate::matrix::Mat;
use crate::packed::{Packed, PackedJob};
use crate::pool::Pool;
use crate::scratch::Scratch;
use crate::simd::{Simd, Widen, portable};
#[cfg(target_arch = "x86_64")]
use crate::simd::{avx2, avx512};
use gemwright_core::DType;
use half::bf16;

/// An instruction set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Isa {
    Portable,
    Avx2,
    Avx512,
    Amx,
}

impl Isa {
    /// The name used in all output.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Portable => "portable",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
            Isa::Amx => "amx",
        }
    }
}

/// What this machine's cores can do of what kernels here look at, by the names the system gives it.
#[cfg(target_arch = "x86_64")]
pub fn instructions() -> Vec<&'static str> {
    let all = [
        ("avx2", is_x86_feature_detected!("avx2")),
        ("fma", is_x86_feature_detected!("fma")),
        ("avx512f", is_x86_feature_detected!("avx512f")),
        ("avx512bw", is_x86_feature_detected!("avx512bw")),
        ("avx512vl", is_x86_feature_detected!("avx512vl")),
        ("avx512vbmi2", is_x86_feature_detected!("avx512vbmi2")),
        ("avx512bf16", is_x86_feature_detected!("avx512bf16")),
        ("amx-bf16", crate::amx::available()),
    ];
    all.into_iter().filter_map(|(name, there)| there.then_some(name)).collect()
}

/// What this machine's cores can do of what kernels here look at: none looks at anything.
#[cfg(not(target_arch = "x86_64"))]
pub fn instructions() -> Vec<&'static str> {
    Vec::new()
}

/// A function that multiplies one element type.
type Run<T> = fn(Job<'_, T>, &Pool, usize, &mut Scratch);

/// Functions that lay weights out and multiply with them.
#[derive(Debug, Clone, Copy)]
pub struct WithPacked<T> {
    /// Lays them out.
    pub pack: fn(Mat<'_, T>) -> Packed<T>,
    /// Multiplies: operands, factors, threads.
    pub run: RunPacked<T>,
}

/// The same with packed weights.
pub type RunPacked<T> = fn(PackedJob<'_, T>, &Pool, usize, &mut Scratch);

/// Functions that multiply bf16, by the type of the result.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub struct Mixed {
    pub to_bf16: RunMixed<bf16>,
    pub to_f32: RunMixed<f32>,
}

/// One of our kernels.
#[derive(Debug, Clone, Copy)]
pub struct Kernel {
    /// Such as `avx512-f32`.
    pub name: &'static str,
    /// What it is compiled for.
    pub isa: Isa,
    /// What it multiplies.
    pub dtype: DType,
    available: fn() -> bool,
    run32: Option<(Run<f32>, WithPacked<f32>)>,
    run64: Option<(Run<f64>, WithPacked<f64>)>,
    mixed: Option<Mixed>,
}

/// A kernel that was asked for and is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KernelError {
    /// No kernel has that name.
    Unknown(String),
    /// The machine lacks its instructions.
    Absent(&'static str),
}

impl std::fmt::Display for KernelError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let present: Vec<&str> = Kernel::present().map(|kernel| kernel.name).collect();
        match self {
            KernelError::Unknown(name) => write!(f, "no kernel is called `{name}`; this machine runs ")?,
            KernelError::Absent(name) => write!(f, "this machine lacks the instructions of `{name}`; it runs ")?,
        }
        f.write_str(&present.join(", "))
    }
}

impl std::error::Error for KernelError {}

const fn f32_kernel<S: Tiles<T = f32>>(name: &'static str, isa: Isa, available: fn() -> bool) -> Kernel {
    let packed = WithPacked { pack: Packed::new::<S>, run: gemm_packed::<S> };
    Kernel { name, isa, dtype: DType::F32, available, run32: Some((gemm_with::<S>, packed)), run64: None, mixed: None }
}

const fn f64_kernel<S: Tiles<T = f64>>(name: &'static str, isa: Isa, available: fn() -> bool) -> Kernel {
    let packed = WithPacked { pack: Packed::new::<S>, run: gemm_packed::<S> };
    Kernel { name, isa, dtype: DType::F64, available, run32: None, run64: Some((gemm_with::<S>, packed)), mixed: None }
}

const fn bf16_kernel(name: &'static str, isa: Isa, available: fn() -> bool, mixed: Mixed) -> Kernel {
    Kernel { name, isa, dtype: DType::Bf16, available, run32: None, run64: None, mixed: Some(mixed) }
}

/// bf16 through the f32 tiles of an instruction set.
const fn widened<S: Tiles<T = f32> + Widen>() -> Mixed {
    Mixed { to_bf16: gemm_widened::<S, bf16>, to_f32: gemm_widened::<S, f32> }
}

/// Every kernel, the fastest of a type first.
#[cfg(target_arch = "x86_64")]
static KERNELS: [Kernel; 10] = [
    f32_kernel::<avx512::F32x16>("avx512-f32", Isa::Avx512, avx512::F32x16::available),
    f64_kernel::<avx512::F64x8>("avx512-f64", Isa::Avx512, avx512::F64x8::available),
    f32_kernel::<avx2::F32x8>("avx2-f32", Isa::Avx2, avx2::F32x8::available),
    f64_kernel::<avx2::F64x4>("avx2-f64", Isa::Avx2, avx2::F64x4::available),
    f32_kernel::<portable::Portable<f32>>("portable-f32", Isa::Portable, || true),
    f64_kernel::<portable::Portable<f64>>("portable-f64", Isa::Portable, || true),
    bf16_kernel("amx-bf16", Isa::Amx, tiles_available, Mixed { to_bf16: gemm_amx, to_f32: gemm_amx }),
    bf16_kernel("avx512-bf16", Isa::Avx512, avx512::F32x16::available, Mixed { to_bf16: gemm_dots, to_f32: gemm_dots }),
    bf16_kernel("avx2-bf16", Isa::Avx2, avx2::F32x8::available, widened::<avx2::F32x8>()),
    bf16_kernel("portable-bf16", Isa::Portable, || true, widened::<portable::Portable<f32>>()),
];
#[cfg(not(target_arch = "x86_64"))]
static KERNELS: [Kernel; 3] = [
    f32_kernel::<portable::Portable<f32>>("portable-f32", Isa::Portable, || true),
    f64_kernel::<portable::Portable<f64>>("portable-f64", Isa::Portable, || true),
    bf16_kernel("portable-bf16", Isa::Portable, || true, widened::<portable::Portable<f32>>()),
];

impl Kernel {
    /// Every kernel there is, the fastest of a type first.
    pub fn all() -> &'static [Kernel] {
        &KERNELS
    }

    /// Those this machine can run.
    pub fn present() -> impl Iterator<Item = &'static Kernel> {
        KERNELS.iter().filter(|kernel| kernel.is_present())
    }

    /// This machine can run it.
    pub fn is_present(&self) -> bool {
        (self.available)()
    }

    /// The one of that name.
    pub fn named(name: &str) -> Result<&'static Kernel, KernelError> {
        let found = KERNELS.iter().find(|kernel| kernel.name == name);
        let found = found.ok_or_else(|| KernelError::Unknown(name.into()))?;
        if found.is_present() { Ok(found) } else { Err(KernelError::Absent(found.name)) }
    }

    /// The fastest for a type.
    pub fn best(dtype: DType) -> Option<&'static Kernel> {
        Kernel::present().find(|kernel| kernel.dtype == dtype)
    }

    /// The function, for f32.
    pub fn run_f32(&self) -> Option<Run<f32>> {
        self.run32.map(|(run, _)| run)
    }

    /// With packed weights, for f32.
    pub fn packed_f32(&self) -> Option<WithPacked<f32>> {
        self.run32.map(|(_, packed)| packed)
    }

    /// The functions, for bf16.
    pub fn mixed(&self) -> Option<Mixed> {
        self.mixed
    }

    /// The function, for f64.
    pub fn run_f64(&self) -> Option<Run<f64>> {
        self.run64.map(|(run, _)| run)
    }

    /// With packed weights, for f64.
    pub fn packed_f64(&self) -> Option<WithPacked<f64>> {
        self.run64.map(|(_, packed)| packed)
    }
}
