//! Libraries with the C BLAS interface: OpenBLAS, MKL, BLIS.

use super::find;
use crate::candidate::{Candidate, CpuQueue, Operand, Operands, Plan, Queue, Region, RunError, address};
use crate::contract::{Contract, Determinism, Fusion, Refusal, Strides, blas_order};
use crate::problem::Problem;
use gemwright_core::DType;
use gemwright_cpu::half::bf16;
use libloading::Library;
use std::ffi::{CStr, c_char, c_int};
use std::sync::Arc;

/// A library by its files and names.
pub struct Known {
    pub name: &'static str,
    pub how: &'static str,
    variable: &'static str,
    /// What stands before the names of its functions.
    prefixes: &'static [&'static str],
    files: &'static [&'static str],
    folders: &'static [&'static str],
    /// Functions that set the number of threads, by value.
    threads: &'static [&'static str],
    version: Version,
}

/// How a library tells its version.
enum Version {
    /// A function that gives a text.
    Text(&'static str),
    /// A function that writes one into a buffer.
    Written(&'static str),
}

pub const LIBRARIES: [Known; 6] = [
    Known {
        name: "openblas",
        how: "apt install libopenblas0-pthread, or pip install scipy-openblas32, or GEMWRIGHT_OPENBLAS=/path/libopenblas.so",
        variable: "GEMWRIGHT_OPENBLAS",
        prefixes: &["", "scipy_"],
        files: &["libopenblas.so.0", "libopenblas.so", "libscipy_openblas.so", "libscipy_openblas64_.so"],
        folders: &["openblas-pthread", "", "scipy_openblas32/lib", "scipy_openblas64/lib"],
        threads: &["openblas_set_num_threads", "scipy_openblas_set_num_threads", "scipy_openblas_set_num_threads64_"],
        version: Version::Text("openblas_get_config"),
    },
    Known {
        name: "mkl",
        how: "pip install mkl (in a virtual environment), or GEMWRIGHT_MKL=/path/libmkl_rt.so.2",
        variable: "GEMWRIGHT_MKL",
        prefixes: &[""],
        files: &["libmkl_rt.so.3", "libmkl_rt.so.2", "libmkl_rt.so"],
        folders: &[""],
        threads: &["MKL_Set_Num_Threads"],
        version: Version::Written("mkl_get_version_string"),
    },
    Known {
        name: "blis",
        how: "apt install libblis4-pthread (an AVX2 build; benches/README.md says how to build for AVX-512), or \
              GEMWRIGHT_BLIS=/path/libblis.so",
        variable: "GEMWRIGHT_BLIS",
        prefixes: &[""],
        files: &["libblis.so.4", "libblis.so"],
        folders: &["blis-pthread", ""],
        threads: &["bli_thread_set_num_threads"],
        version: Version::Text("bli_info_get_version_str"),
    },
    rival("gemm", &["gemm_"], "gemm_version"),
    rival("matrixmultiply", &["matrixmultiply_"], "matrixmultiply_version"),
    rival("faer", &["faer_"], "faer_version"),
];

/// A Rust crate that multiplies, out of the library that benches/rivals builds.
const fn rival(name: &'static str, prefixes: &'static [&'static str], version: &'static str) -> Known {
    Known {
        name,
        how: "cargo build --release --manifest-path benches/rivals/Cargo.toml, then \
              GEMWRIGHT_RIVALS=benches/rivals/target/release/libgemwright_rivals.so",
        variable: "GEMWRIGHT_RIVALS",
        prefixes,
        files: &["libgemwright_rivals.so"],
        folders: &[""],
        threads: &["rivals_set_num_threads"],
        version: Version::Text(version),
    }
}

/// order, transa, transb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc.
type Gemm<I, T> = unsafe extern "C" fn(c_int, c_int, c_int, I, I, I, T, *const T, I, *const T, I, T, *mut T, I);

/// Integers of 32 or of 64 bits.
enum Functions {
    Short { sgemm: Gemm<i32, f32>, dgemm: Gemm<i32, f64> },
    Long { sgemm: Gemm<i64, f32>, dgemm: Gemm<i64, f64> },
}

/// The same of bf16, with factors and a result of f32: MKL's and OpenBLAS's name for it, if they have it.
type MixedGemm = unsafe extern "C" fn(
    c_int,
    c_int,
    c_int,
    i32,
    i32,
    i32,
    f32,
    *const bf16,
    i32,
    *const bf16,
    i32,
    f32,
    *mut f32,
    i32,
);
const MIXED: [&str; 2] = ["cblas_gemm_bf16bf16f32", "cblas_sbgemm"];

/// MKL's own functions for weights that are laid out once.
#[derive(Clone, Copy)]
enum WithPacked {
    Short(PackShort),
    Mixed(PackMixed),
}

/// Bytes of packed weights: which operand, m, n, k.
type PackSize = unsafe extern "C" fn(c_int, i32, i32, i32) -> usize;

/// Of f32.
#[derive(Clone, Copy)]
struct PackShort {
    size: PackSize,
    /// order, which operand, trans, m, n, k, alpha, source, ld, packed.
    pack: unsafe extern "C" fn(c_int, c_int, c_int, i32, i32, i32, f32, *const f32, i32, *mut f32),
    /// order, transa, transb, m, n, k, a, lda, b, ldb, beta, c, ldc.
    compute: Compute,
}

type Compute =
    unsafe extern "C" fn(c_int, c_int, c_int, i32, i32, i32, *const f32, i32, *const f32, i32, f32, *mut f32, i32);

/// Of bf16: the factor comes with the product.
#[derive(Clone, Copy)]
struct PackMixed {
    size: PackSize,
    /// order, which operand, trans, m, n, k, source, ld, packed.
    pack: unsafe extern "C" fn(c_int, c_int, c_int, i32, i32, i32, *const bf16, i32, *mut bf16),
    compute: MixedGemm,
}

/// An open library.
pub struct Cblas {
    inner: Arc<Inner>,
    contract: Contract,
}

struct Inner {
    name: &'static str,
    origin: String,
    functions: Functions,
    mixed: Option<MixedGemm>,
    set_threads: Option<unsafe extern "C" fn(c_int)>,
    packed: Option<(PackShort, PackMixed)>,
    /// MKL's threads, which can be told how long to spin.
    spinning: Option<(Library, String)>,
    /// Keeps the functions valid.
    _library: Library,
}

impl Cblas {
    /// Opens it and looks its functions up.
    pub fn open(known: &Known) -> Result<Cblas, String> {
        let (library, path) = find::open(known.variable, known.files, known.folders)?;
        let functions = functions(&library, known.prefixes).ok_or_else(|| format!("{path} has no cblas_sgemm"))?;
        let set_threads = known.threads.iter().find_map(|name| symbol(&library, name));
        let (mixed, packed) = (MIXED.iter().find_map(|name| symbol(&library, name)), with_packed(&library));
        let spinning = find::open("GEMWRIGHT_IOMP", &["libiomp5.so"], &[""]).ok().filter(|_| known.name == "mkl");
        let version = version(&library, &known.version).unwrap_or_else(|| "version not told".into());
        let origin = format!("{version} ({path})");
        let contract = Contract {
            dtypes: match mixed {
                Some(_) => &[(DType::F32, DType::F32), (DType::F64, DType::F64), (DType::Bf16, DType::F32)],
                None => &[(DType::F32, DType::F32), (DType::F64, DType::F64)],
            },
            strides: Strides::Blas,
            largest: i32::MAX as u64,
            batches: false,
            prepacks: if packed.is_some() { &[DType::F32, DType::Bf16] } else { &[] },
            determinism: Determinism::Unknown,
            denormals: true,
            fusion: Fusion::None,
            gates: false,
            keeps: false,
            groups: false,
            weights: &[],
            scales: false,
        };
        Ok(Cblas {
            inner: Arc::new(Inner {
                name: known.name,
                origin,
                functions,
                mixed,
                set_threads,
                packed,
                spinning,
                _library: library,
            }),
            contract,
        })
    }
}

fn symbol<T: Copy>(library: &Library, name: &str) -> Option<T> {
    // SAFETY: the C BLAS and the libraries' own headers give these names the types they are taken as.
    unsafe { library.get::<T>(name.as_bytes()) }.ok().map(|found| *found)
}

fn functions(library: &Library, prefixes: &[&str]) -> Option<Functions> {
    for prefix in prefixes {
        let names = ["sgemm", "dgemm"].map(|name| format!("{prefix}cblas_{name}"));
        if let (Some(sgemm), Some(dgemm)) = (symbol(library, &names[0]), symbol(library, &names[1])) {
            return Some(Functions::Short { sgemm, dgemm });
        }
    }
    let (sgemm, dgemm) = (symbol(library, "scipy_cblas_sgemm64_")?, symbol(library, "scipy_cblas_dgemm64_")?);
    Some(Functions::Long { sgemm, dgemm })
}

fn with_packed(library: &Library) -> Option<(PackShort, PackMixed)> {
    let short = PackShort {
        size: symbol(library, "cblas_sgemm_pack_get_size")?,
        pack: symbol(library, "cblas_sgemm_pack")?,
        compute: symbol(library, "cblas_sgemm_compute")?,
    };
    let mixed = PackMixed {
        size: symbol(library, "cblas_gemm_bf16bf16f32_pack_get_size")?,
        pack: symbol(library, "cblas_gemm_bf16bf16f32_pack")?,
        compute: symbol(library, "cblas_gemm_bf16bf16f32_compute")?,
    };
    Some((short, mixed))
}

fn version(library: &Library, version: &Version) -> Option<String> {
    let text = match version {
        Version::Text(name) => {
            let get = [(*name).to_string(), format!("scipy_{name}"), format!("scipy_{name}64_")]
                .iter()
                .find_map(|name| symbol::<unsafe extern "C" fn() -> *const c_char>(library, name))?;
            // SAFETY: the function takes nothing and gives a text that lives as long as the library.
            let text = unsafe { get() };
            if text.is_null() {
                return None;
            }
            // SAFETY: as above, ended by a zero.
            unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
        }
        Version::Written(name) => {
            let write: unsafe extern "C" fn(*mut c_char, c_int) = symbol(library, name)?;
            let mut buffer = [0u8; 256];
            // SAFETY: it writes at most 255 bytes and leaves the last zero.
            unsafe { write(buffer.as_mut_ptr().cast(), 255) };
            CStr::from_bytes_until_nul(&buffer).ok()?.to_string_lossy().into_owned()
        }
    };
    Some(text.split_whitespace().collect::<Vec<_>>().join(" "))
}

impl Candidate for Cblas {
    fn name(&self) -> &str {
        self.inner.name
    }

    fn origin(&self) -> String {
        self.inner.origin.clone()
    }

    fn contract(&self) -> &Contract {
        &self.contract
    }

    fn prepare(&self, problem: &Problem) -> Result<Box<dyn Plan>, Refusal> {
        self.contract.admits(problem)?;
        // Weights that are laid out beforehand must be given.
        if problem.prepacked {
            return Err(Refusal::Prepack);
        }
        Ok(Box::new(CblasPlan { library: Arc::clone(&self.inner), problem: *problem }))
    }

    unsafe fn prepare_packed(&self, problem: &Problem, b: &Operand) -> Result<Box<dyn Plan>, Refusal> {
        self.contract.admits(problem)?;
        let (Some((short, mixed)), Some(call)) = (self.inner.packed, call(problem)) else {
            return Err(Refusal::Prepack);
        };
        // Where there is nothing to lay out MKL divides by 0.
        if call.extents.contains(&0) {
            return Ok(Box::new(CblasPlan { library: Arc::clone(&self.inner), problem: *problem }));
        }
        let with = if problem.dtype == DType::Bf16 { WithPacked::Mixed(mixed) } else { WithPacked::Short(short) };
        let [m, n, k] = call.extents.map(|x| x as i32);
        let (trans, ld) = (call.trans[1], call.leading[1] as i32);
        let mut weights = Vec::new();
        for i in 0..problem.product.batch {
            let size = match with {
                WithPacked::Short(with) => with.size,
                WithPacked::Mixed(with) => with.size,
            };
            // SAFETY: numbers by value.
            let bytes = unsafe { size(B_MATRIX, m, n, k) };
            let mut packed = vec![0f32; bytes.div_ceil(size_of::<f32>()) + PACKED_ALIGN];
            let to = aligned(&mut packed);
            // SAFETY: b has the extents and the leading dimension of the call; `to` has the bytes it asked for.
            unsafe {
                match with {
                    WithPacked::Short(with) => {
                        let (alpha, from) = (problem.alpha as f32, address(b, problem.b.batch, i));
                        (with.pack)(call.order, B_MATRIX, trans, m, n, k, alpha, from, ld, to);
                    }
                    WithPacked::Mixed(with) => {
                        let from = address(b, problem.b.batch, i);
                        (with.pack)(call.order, B_MATRIX, trans, m, n, k, from, ld, to.cast());
                    }
                }
            }
            weights.push(packed);
        }
        Ok(Box::new(PackedPlan { library: Arc::clone(&self.inner), with, problem: *problem, weights }))
    }

    fn starts_threads(&self) -> bool {
        self.name() == "blis"
    }

    fn set_threads(&self, threads: usize) {
        if let Some(set) = self.inner.set_threads {
            // SAFETY: it takes a number by value.
            unsafe { set(threads as c_int) };
        }
        let spinning = self.inner.spinning.as_ref();
        let set = spinning.and_then(|(library, _)| symbol::<unsafe extern "C" fn(c_int)>(library, "kmp_set_blocktime"));
        if let Some(set) = set {
            // SAFETY: it takes a number of milliseconds by value.
            unsafe { set(1) };
        }
    }
}

struct CblasPlan {
    library: Arc<Inner>,
    problem: Problem,
}

const ROW_MAJOR: c_int = 101;
const COLUMN_MAJOR: c_int = 102;
const AS_IT_IS: c_int = 111;
const TRANSPOSED: c_int = 112;

/// What one call is given, beside the addresses.
struct Call {
    order: c_int,
    trans: [c_int; 2],
    extents: [i64; 3],
    leading: [i64; 3],
}

fn call(problem: &Problem) -> Option<Call> {
    let p = problem.product;
    let (out_turned, ldc) = blas_order(&problem.out, p.m, p.n)?;
    let mut leading = [0, 0, ldc];
    let mut trans = [AS_IT_IS; 2];
    for (i, (layout, rows, cols)) in [(problem.a, p.m, p.k), (problem.b, p.k, p.n)].into_iter().enumerate() {
        let (turned, ld) = blas_order(&layout, rows, cols)?;
        leading[i] = ld;
        trans[i] = if turned == out_turned { AS_IT_IS } else { TRANSPOSED };
    }
    let order = if out_turned { COLUMN_MAJOR } else { ROW_MAJOR };
    Some(Call { order, trans, extents: [p.m, p.n, p.k].map(|x| x as i64), leading })
}

impl Plan for CblasPlan {
    fn problem(&self) -> &Problem {
        &self.problem
    }

    fn workspace(&self, _queue: &dyn Queue) -> usize {
        0
    }

    unsafe fn run(&self, queue: &dyn Queue, operands: &Operands, _workspace: Region) -> Result<(), RunError> {
        CpuQueue::of(queue)?;
        let p = self.problem.product;
        if p.m == 0 || p.n == 0 {
            return Ok(());
        }
        let Some(call) = call(&self.problem) else { return Err(RunError::Library("a layout it does not take".into())) };
        for i in 0..p.batch {
            // SAFETY: by the contract of `run`; leading dimensions were checked by the contract's `admits`.
            unsafe {
                if self.problem.dtype == DType::Bf16 {
                    let Some(gemm) = self.library.mixed else { return Err(RunError::Library("no bf16".into())) };
                    mixed(gemm, &call, &self.problem, operands, i);
                    continue;
                }
                match (&self.library.functions, self.problem.dtype) {
                    (Functions::Short { sgemm, .. }, DType::F32) => one(*sgemm, &call, &self.problem, operands, i),
                    (Functions::Short { dgemm, .. }, _) => one(*dgemm, &call, &self.problem, operands, i),
                    (Functions::Long { sgemm, .. }, DType::F32) => one(*sgemm, &call, &self.problem, operands, i),
                    (Functions::Long { dgemm, .. }, _) => one(*dgemm, &call, &self.problem, operands, i),
                }
            }
        }
        Ok(())
    }
}

const B_MATRIX: c_int = 162;
const PACKED: c_int = 151;
/// Elements to spare so that packed weights begin at a line.
const PACKED_ALIGN: usize = 16;

/// The first element of `memory` at a line.
fn aligned(memory: &mut [f32]) -> *mut f32 {
    let start = memory.as_mut_ptr();
    start.wrapping_add(start.align_offset(64).min(PACKED_ALIGN))
}

/// A problem with weights in the library's own layout.
struct PackedPlan {
    library: Arc<Inner>,
    with: WithPacked,
    problem: Problem,
    weights: Vec<Vec<f32>>,
}

impl Plan for PackedPlan {
    fn problem(&self) -> &Problem {
        &self.problem
    }

    fn holds_weights(&self) -> bool {
        true
    }

    fn workspace(&self, _queue: &dyn Queue) -> usize {
        0
    }

    unsafe fn run(&self, queue: &dyn Queue, operands: &Operands, _workspace: Region) -> Result<(), RunError> {
        CpuQueue::of(queue)?;
        let (problem, p) = (&self.problem, self.problem.product);
        let Some(call) = call(problem).filter(|_| p.m > 0 && p.n > 0) else { return Ok(()) };
        debug_assert!(self.library.packed.is_some());
        let [m, n, k] = call.extents.map(|x| x as i32);
        let [lda, ldb, ldc] = call.leading.map(|x| x as i32);
        let (order, trans) = (call.order, call.trans[0]);
        let (alpha, beta) = (problem.alpha as f32, problem.beta as f32);
        for (i, packed) in (0..).zip(&self.weights) {
            let c = address(&operands.out, problem.out.batch, i);
            let start = packed.as_ptr();
            let b = start.wrapping_add(start.align_offset(64).min(PACKED_ALIGN));
            // SAFETY: by the contract of `run`; b is what `pack` wrote for these extents.
            unsafe {
                match self.with {
                    WithPacked::Short(with) => {
                        let a = address(&operands.a, problem.a.batch, i);
                        (with.compute)(order, trans, PACKED, m, n, k, a, lda, b, ldb, beta, c, ldc);
                    }
                    WithPacked::Mixed(with) => {
                        let (a, b) = (address(&operands.a, problem.a.batch, i), b.cast());
                        (with.compute)(order, trans, PACKED, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
                    }
                }
            }
        }
        Ok(())
    }
}

/// # Safety
/// As for [`Plan::run`]; T is the problem's element type.
unsafe fn one<I, T>(gemm: Gemm<I, T>, call: &Call, problem: &Problem, operands: &Operands, i: u64)
where
    I: TryFrom<i64>,
    I::Error: std::fmt::Debug,
    T: gemwright_cpu::Element,
{
    let int = |x: i64| I::try_from(x).expect("extents and leading dimensions fit: the contract says so");
    let [m, n, k] = call.extents.map(int);
    let [lda, ldb, ldc] = call.leading.map(int);
    let (a, b) = (address(&operands.a, problem.a.batch, i), address(&operands.b, problem.b.batch, i));
    let c = address(&operands.out, problem.out.batch, i);
    let (alpha, beta) = (T::from_f64(problem.alpha), T::from_f64(problem.beta));
    // SAFETY: the function's own contract: operands of these extents and leading dimensions.
    unsafe { gemm(call.order, call.trans[0], call.trans[1], m, n, k, alpha, a, lda, b, ldb, beta, c, ldc) };
}

/// # Safety
/// As for [`Plan::run`]; operands are bf16, the result f32.
unsafe fn mixed(gemm: MixedGemm, call: &Call, problem: &Problem, operands: &Operands, i: u64) {
    let [m, n, k] = call.extents.map(|x| x as i32);
    let [lda, ldb, ldc] = call.leading.map(|x| x as i32);
    let (a, b) = (address(&operands.a, problem.a.batch, i), address(&operands.b, problem.b.batch, i));
    let c = address(&operands.out, problem.out.batch, i);
    let (alpha, beta) = (problem.alpha as f32, problem.beta as f32);
    // SAFETY: the function's own contract: operands of these extents and leading dimensions.
    unsafe { gemm(call.order, call.trans[0], call.trans[1], m, n, k, alpha, a, lda, b, ldb, beta, c, ldc) };
}
