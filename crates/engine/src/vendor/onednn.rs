//! oneDNN: f32 by its plain `dnnl_sgemm`; bf16, and weights laid out beforehand, by its matmul primitive where the version
//! has it.

use super::find;
use super::onednn_matmul::{Functions, MatmulPlan};
use crate::candidate::{Candidate, CpuQueue, Operand, Operands, Plan, Queue, Region, RunError, address};
use crate::contract::{Contract, Determinism, Fusion, Refusal, Strides, Types, blas_order};
use crate::problem::Problem;
use gemwright_core::DType;
use gemwright_cpu::Number;
use libloading::Library;
use std::ffi::{c_char, c_int};
use std::sync::Arc;

pub const NAME: &str = "onednn";
pub const HOW: &str = "apt install libdnnl2 (libdnnl3 on newer systems), or GEMWRIGHT_ONEDNN=/path/libdnnl.so";

/// transa, transb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, all row-major; 0 is success.
type Sgemm = unsafe extern "C" fn(
    c_char,
    c_char,
    i64,
    i64,
    i64,
    f32,
    *const f32,
    i64,
    *const f32,
    i64,
    f32,
    *mut f32,
    i64,
) -> c_int;

/// An open library.
pub struct OneDnn {
    inner: Arc<Inner>,
    contract: Contract,
}

struct Inner {
    origin: String,
    sgemm: Sgemm,
    set_threads: Option<unsafe extern "C" fn(c_int)>,
    matmul: Option<Arc<Functions>>,
    library: Arc<Library>,
}

impl OneDnn {
    /// Opens it and looks its functions up.
    pub fn open() -> Result<OneDnn, String> {
        let (library, path) = find::open("GEMWRIGHT_ONEDNN", &["libdnnl.so.3", "libdnnl.so.2", "libdnnl.so"], &[""])?;
        // SAFETY: oneDNN's header gives the names these types.
        let (sgemm, version, set_threads) = unsafe {
            (
                library.get::<Sgemm>(b"dnnl_sgemm").map(|f| *f).map_err(|e| format!("{path}: {e}"))?,
                library.get::<unsafe extern "C" fn() -> *const [c_int; 3]>(b"dnnl_version").ok().map(|f| *f),
                library.get::<unsafe extern "C" fn(c_int)>(b"omp_set_num_threads").ok().map(|f| *f),
            )
        };
        let version = version.map_or_else(String::new, |version| {
            // SAFETY: it gives a constant record that begins with three integers.
            let [major, minor, patch] = unsafe { *version() };
            format!("oneDNN {major}.{minor}.{patch} ")
        });
        let library = Arc::new(library);
        // Tried out it would start OpenMP's threads, which then bind MKL's: asked for by what its kernels need.
        let matmul = Functions::of(&library).map(Arc::new);
        let of_bf16 = matmul.is_some() && has_bf16();
        let contract = Contract {
            dtypes: if of_bf16 { &WITH_BF16 } else { &WITH_BF16[..1] },
            strides: Strides::Blas,
            largest: i32::MAX as u64,
            batches: false,
            prepacks: match (&matmul, of_bf16) {
                (None, _) => &[],
                (_, false) => &[DType::F32],
                (_, true) => &[DType::F32, DType::Bf16],
            },
            determinism: Determinism::Unknown,
            // Tiles take numbers below the smallest normal one for 0.
            denormals: !of_bf16,
            fusion: Fusion::None,
            gates: false,
            keeps: false,
            groups: false,
            weights: &[],
            scales: false,
        };
        let inner = Inner { origin: format!("{version}({path})"), sgemm, set_threads, matmul, library };
        Ok(OneDnn { inner: Arc::new(inner), contract })
    }
}

impl Candidate for OneDnn {
    fn name(&self) -> &'static str {
        NAME
    }

    fn origin(&self) -> String {
        self.inner.origin.clone()
    }

    fn contract(&self) -> &Contract {
        &self.contract
    }

    fn prepare(&self, problem: &Problem) -> Result<Box<dyn Plan>, Refusal> {
        self.contract.admits(problem)?;
        if problem.prepacked {
            return Err(Refusal::Prepack);
        }
        if let (DType::Bf16, Some(matmul)) = (problem.dtype, &self.inner.matmul) {
            // SAFETY: no weights are given.
            let plan = unsafe { MatmulPlan::new((matmul, &self.inner.library), problem, None) };
            return Ok(Box::new(plan?));
        }
        // Its result is row-major; one that lies by columns is the product of the transposed.
        Ok(Box::new(OneDnnPlan { library: Arc::clone(&self.inner), problem: *problem }))
    }

    unsafe fn prepare_packed(&self, problem: &Problem, b: &Operand) -> Result<Box<dyn Plan>, Refusal> {
        self.contract.admits(problem)?;
        let matmul = self.inner.matmul.as_ref().ok_or(Refusal::Prepack)?;
        // SAFETY: by the contract.
        let plan = unsafe { MatmulPlan::new((matmul, &self.inner.library), problem, Some(b)) };
        Ok(Box::new(plan?))
    }

    fn set_threads(&self, threads: usize) {
        if let Some(set) = self.inner.set_threads {
            // SAFETY: it takes a number by value.
            unsafe { set(threads as c_int) };
        }
    }
}

struct OneDnnPlan {
    library: Arc<Inner>,
    problem: Problem,
}

impl Plan for OneDnnPlan {
    fn problem(&self) -> &Problem {
        &self.problem
    }

    fn workspace(&self, _queue: &dyn Queue) -> usize {
        0
    }

    unsafe fn run(&self, queue: &dyn Queue, operands: &Operands, _workspace: Region) -> Result<(), RunError> {
        CpuQueue::of(queue)?;
        let problem = &self.problem;
        let p = problem.product;
        if p.m == 0 || p.n == 0 {
            return Ok(());
        }
        if p.k == 0 {
            // SAFETY: by the contract of `run`.
            unsafe { nothing_to_sum::<f32>(problem, operands) };
            return Ok(());
        }
        let order = |layout, rows, cols| blas_order(layout, rows, cols);
        let found = order(&problem.a, p.m, p.k).zip(order(&problem.b, p.k, p.n)).zip(order(&problem.out, p.m, p.n));
        let Some(((a, b), out)) = found else { return Err(RunError::Library("a layout it does not take".into())) };
        for i in 0..p.batch {
            let (pa, pb) = (address(&operands.a, problem.a.batch, i), address(&operands.b, problem.b.batch, i));
            let pc = address(&operands.out, problem.out.batch, i);
            let flag = |turned: bool| if turned { b'T' as c_char } else { b'N' as c_char };
            let (alpha, beta) = (problem.alpha as f32, problem.beta as f32);
            let (m, n, k) = (p.m as i64, p.n as i64, p.k as i64);
            // SAFETY: by the contract of `run`; leading dimensions were checked by `admits`.
            let status = unsafe {
                match out.0 {
                    false => {
                        (self.library.sgemm)(flag(a.0), flag(b.0), m, n, k, alpha, pa, a.1, pb, b.1, beta, pc, out.1)
                    }
                    true => {
                        (self.library.sgemm)(flag(!b.0), flag(!a.0), n, m, k, alpha, pb, b.1, pa, a.1, beta, pc, out.1)
                    }
                }
            };
            if status != 0 {
                return Err(RunError::Library(format!("dnnl_sgemm answered {status}")));
            }
        }
        Ok(())
    }
}

/// The machine has what its products of bf16 are compiled for.
fn has_bf16() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("avx512bw") && is_x86_feature_detected!("avx512vl");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Element types: of its plain product, and of its primitive.
static WITH_BF16: [Types; 3] = [(DType::F32, DType::F32), (DType::Bf16, DType::F32), (DType::Bf16, DType::Bf16)];

/// Every element times beta, with 0 none is read: where there is nothing to sum the library leaves the result alone.
///
/// # Safety
/// As for [`Plan::run`]; U is the result's element type.
pub unsafe fn nothing_to_sum<U: Number>(problem: &Problem, operands: &Operands) {
    let (p, out) = (problem.product, problem.out);
    for x in 0..p.batch {
        let first = address::<U>(&operands.out, out.batch, x);
        for i in 0..p.m as i64 {
            for j in 0..p.n as i64 {
                let at = first.wrapping_offset((i * out.row + j * out.col) as isize);
                // SAFETY: by the contract.
                unsafe { *at = U::from_f64(if problem.beta == 0.0 { 0.0 } else { problem.beta * (*at).to_f64() }) };
            }
        }
    }
}
