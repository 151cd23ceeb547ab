//! NVIDIA's library as a candidate: its default answer, or one of those it proposes.

use super::queue::{CudaQueue, WORKSPACE, matrix};
use crate::candidate::{Candidate, Operands, Plan, Queue, Region, RunError};
use crate::contract::{Contract, Determinism, Fusion, Refusal, Strides, blas_order};
use crate::problem::{Layout, Problem};
use cudarc::cublaslt::sys::{self, cublasStatus_t as Status};
use gemwright_core::DType;
use gemwright_cuda::{Absent, Wanted, open_library};
use std::ffi::c_void;
use std::sync::Arc;

const LIBRARY: Wanted = Wanted {
    name: "libcublasLt",
    variable: "GEMWRIGHT_CUBLASLT",
    files: &["libcublasLt.so.13", "libcublasLt.so"],
    companions: "",
    functions: &[
        "cublasLtCreate",
        "cublasLtDestroy",
        "cublasLtGetVersion",
        "cublasLtMatmul",
        "cublasLtMatmulAlgoGetHeuristic",
        "cublasLtMatmulDescCreate",
        "cublasLtMatmulDescDestroy",
        "cublasLtMatmulDescSetAttribute",
        "cublasLtMatrixLayoutCreate",
        "cublasLtMatrixLayoutDestroy",
        "cublasLtMatrixLayoutSetAttribute",
        "cublasLtMatmulPreferenceCreate",
        "cublasLtMatmulPreferenceDestroy",
        "cublasLtMatmulPreferenceSetAttribute",
    ],
    how: "it comes with the CUDA 13 toolkit, or by `pip install nvidia-cublas` into an active virtual environment; \
          GEMWRIGHT_CUBLASLT may say where it is",
};

const CONTRACT: Contract = Contract {
    dtypes: &[
        (DType::Bf16, DType::Bf16),
        (DType::Bf16, DType::F32),
        (DType::F16, DType::F16),
        (DType::F16, DType::F32),
        (DType::F32, DType::F32),
        (DType::F8E4m3, DType::Bf16),
    ],
    strides: Strides::Blas,
    largest: i32::MAX as u64,
    batches: true,
    prepacks: &[],
    determinism: Determinism::Unknown,
    denormals: true,
    fusion: Fusion::None,
    gates: false,
    keeps: false,
    groups: false,
    weights: &[],
    scales: false,
};

/// Proposals that are asked for.
const PROPOSALS: usize = 8;

struct Handle(sys::cublasLtHandle_t);

// SAFETY: NVIDIA's documentation: a handle may be used by several threads.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: it was created once.
        unsafe { sys::cublasLtDestroy(self.0) };
    }
}

/// The library with which of its proposals is taken: 0 is what it does when it is not asked.
pub struct CublasLt {
    handle: Arc<Handle>,
    proposal: usize,
    name: String,
    origin: String,
}

impl CublasLt {
    /// Opens the library; a device must have been opened.
    pub fn open() -> Result<CublasLt, Absent> {
        let path = open_library(&LIBRARY)?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: the functions were found; a handle is written.
        let (status, version) = unsafe { (sys::cublasLtCreate(&mut handle), sys::cublasLtGetVersion()) };
        if status != Status::CUBLAS_STATUS_SUCCESS {
            let why = format!("cublasLtCreate: {status:?}");
            return Err(Absent { name: LIBRARY.name, why, how: LIBRARY.how });
        }
        let origin = format!("{version} ({path})");
        Ok(CublasLt { handle: Arc::new(Handle(handle)), proposal: 0, name: "cublaslt".into(), origin })
    }

    /// The same once more.
    fn again(&self) -> CublasLt {
        let CublasLt { handle, proposal, name, origin } = self;
        CublasLt { handle: handle.clone(), proposal: *proposal, name: name.clone(), origin: origin.clone() }
    }

    /// All that it proposes, its default first.
    pub fn proposals(&self) -> Vec<CublasLt> {
        (0..PROPOSALS).map(|i| if i == 0 { self.again() } else { self.proposal(i) }).collect()
    }

    /// Another of its proposals.
    fn proposal(&self, proposal: usize) -> CublasLt {
        let name = format!("cublaslt.{proposal}");
        CublasLt { handle: self.handle.clone(), proposal, name, origin: self.origin.clone() }
    }
}

impl Candidate for CublasLt {
    fn name(&self) -> &str {
        &self.name
    }

    fn origin(&self) -> String {
        self.origin.clone()
    }

    fn contract(&self) -> &Contract {
        &CONTRACT
    }

    fn prepare(&self, problem: &Problem) -> Result<Box<dyn Plan>, Refusal> {
        CONTRACT.admits(problem)?;
        LtPlan::new(&self.handle, problem, self.proposal).map(|plan| Box::new(plan) as Box<dyn Plan>)
    }
}

struct LtPlan {
    handle: Arc<Handle>,
    problem: Problem,
    operation: sys::cublasLtMatmulDesc_t,
    /// Of b, a and out, in the library's order.
    layouts: [sys::cublasLtMatrixLayout_t; 3],
    algorithm: sys::cublasLtMatmulAlgo_t,
    /// The library is given out's transpose: its result lies column by column.
    turned: bool,
}

// SAFETY: descriptors are only read once they are made.
unsafe impl Send for LtPlan {}
// SAFETY: as above.
unsafe impl Sync for LtPlan {}

fn ask(call: &str, status: Status) -> Result<(), Refusal> {
    let failed = || Refusal::Library(format!("{call}: {status:?}"));
    (status == Status::CUBLAS_STATUS_SUCCESS).then_some(()).ok_or_else(failed)
}

fn type_of(dtype: DType) -> sys::cudaDataType_t {
    match dtype {
        DType::F32 => sys::cudaDataType_t::CUDA_R_32F,
        DType::F16 => sys::cudaDataType_t::CUDA_R_16F,
        DType::F8E4m3 => sys::cudaDataType_t::CUDA_R_8F_E4M3,
        _ => sys::cudaDataType_t::CUDA_R_16BF,
    }
}

impl LtPlan {
    fn new(handle: &Arc<Handle>, problem: &Problem, proposal: usize) -> Result<LtPlan, Refusal> {
        let p = problem.product;
        let order = |layout: &Layout, rows, cols| blas_order(layout, rows, cols).unwrap_or((false, 1));
        let [a, b, out] = [order(&problem.a, p.m, p.k), order(&problem.b, p.k, p.n), order(&problem.out, p.m, p.n)];
        let mut plan = LtPlan {
            handle: handle.clone(),
            problem: *problem,
            operation: std::ptr::null_mut(),
            layouts: [std::ptr::null_mut(); 3],
            algorithm: sys::cublasLtMatmulAlgo_t { data: [0; 8] },
            turned: out.0,
        };
        let compute = sys::cublasComputeType_t::CUBLAS_COMPUTE_32F;
        // SAFETY: a handle is written.
        ask("cublasLtMatmulDescCreate", unsafe {
            sys::cublasLtMatmulDescCreate(&mut plan.operation, compute, sys::cudaDataType_t::CUDA_R_32F)
        })?;
        // The library counts by columns: a row-major matrix is its own transpose there. Out row by row is b·a then, and
        // out column by column is a·b with both seen the other way.
        let (first, second) = if out.0 { ((a, p.m, p.k), (b, p.k, p.n)) } else { ((b, p.n, p.k), (a, p.k, p.m)) };
        // For out by rows, a row-major operand is as the library wants it; for out by columns a column-major one.
        let turned = |operand: (bool, i64)| operand.0 != out.0;
        use sys::cublasLtMatmulDescAttributes_t as Attribute;
        for (attribute, operand) in
            [(Attribute::CUBLASLT_MATMUL_DESC_TRANSA, first.0), (Attribute::CUBLASLT_MATMUL_DESC_TRANSB, second.0)]
        {
            // CUBLAS_OP_N, CUBLAS_OP_T.
            let letter = i32::from(turned(operand));
            // SAFETY: the descriptor was made; four bytes are read.
            ask("cublasLtMatmulDescSetAttribute", unsafe {
                sys::cublasLtMatmulDescSetAttribute(plan.operation, attribute, (&raw const letter).cast(), 4)
            })?;
        }
        if problem.dtype == DType::F8E4m3 {
            let fast = i8::from(!problem.promoted);
            let attribute = Attribute::CUBLASLT_MATMUL_DESC_FAST_ACCUM;
            // SAFETY: the descriptor was made; one byte is read.
            ask("cublasLtMatmulDescSetAttribute", unsafe {
                sys::cublasLtMatmulDescSetAttribute(plan.operation, attribute, (&raw const fast).cast(), 1)
            })?;
        }
        let strides = if out.0 { [problem.a.batch, problem.b.batch] } else { [problem.b.batch, problem.a.batch] };
        let as_stored = |(operand, rows, cols): ((bool, i64), u64, u64)| match turned(operand) {
            false => (rows, cols, operand.1),
            true => (cols, rows, operand.1),
        };
        let result = if out.0 { (p.m, p.n, out.1) } else { (p.n, p.m, out.1) };
        let described = [
            (as_stored(first), strides[0], problem.dtype),
            (as_stored(second), strides[1], problem.dtype),
            (result, problem.out.batch, problem.out_dtype),
        ];
        for (layout, ((rows, cols, ld), stride, dtype)) in plan.layouts.iter_mut().zip(described) {
            *layout = described_layout((rows, cols, ld), (p.batch, stride), dtype)?;
        }
        plan.algorithm = plan.propose(proposal)?;
        Ok(plan)
    }

    fn propose(&self, proposal: usize) -> Result<sys::cublasLtMatmulAlgo_t, Refusal> {
        let mut preference = std::ptr::null_mut();
        let bytes = WORKSPACE;
        // SAFETY: all zero is a result that says nothing.
        let mut results: [sys::cublasLtMatmulHeuristicResult_t; PROPOSALS] = unsafe { std::mem::zeroed() };
        let mut count = 0;
        let attribute = sys::cublasLtMatmulPreferenceAttributes_t::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
        let [b, a, out] = self.layouts;
        // SAFETY: descriptors were made; a number is read; as many results are written as were asked for.
        let asked = unsafe {
            ask("cublasLtMatmulPreferenceCreate", sys::cublasLtMatmulPreferenceCreate(&mut preference))?;
            let mut set = sys::cublasLtMatmulPreferenceSetAttribute(
                preference,
                attribute,
                (&raw const bytes).cast(),
                size_of::<usize>(),
            );
            // It takes tensors to be whole unless it is told.
            for (attribute, base) in alignments(&self.problem) {
                if set == Status::CUBLAS_STATUS_SUCCESS {
                    set = sys::cublasLtMatmulPreferenceSetAttribute(
                        preference,
                        attribute,
                        (&raw const base).cast(),
                        size_of::<u32>(),
                    );
                }
            }
            let asked = sys::cublasLtMatmulAlgoGetHeuristic(
                self.handle.0,
                self.operation,
                b,
                a,
                out,
                out,
                preference,
                PROPOSALS as i32,
                results.as_mut_ptr(),
                &mut count,
            );
            sys::cublasLtMatmulPreferenceDestroy(preference);
            ask("cublasLtMatmulPreferenceSetAttribute", set)?;
            asked
        };
        ask("cublasLtMatmulAlgoGetHeuristic", asked)?;
        let found = results[..count as usize].get(proposal);
        let found = found.filter(|result| result.state == Status::CUBLAS_STATUS_SUCCESS);
        found.map(|result| result.algo).ok_or_else(|| Refusal::Library(format!("it proposes only {count}")))
    }
}

fn described_layout(
    (rows, cols, ld): (u64, u64, i64),
    (batch, stride): (u64, i64),
    dtype: DType,
) -> Result<sys::cublasLtMatrixLayout_t, Refusal> {
    let mut layout = std::ptr::null_mut();
    // SAFETY: a handle is written.
    ask("cublasLtMatrixLayoutCreate", unsafe {
        sys::cublasLtMatrixLayoutCreate(&mut layout, type_of(dtype), rows, cols, ld)
    })?;
    let count = batch as i32;
    use sys::cublasLtMatrixLayoutAttribute_t as Attribute;
    // SAFETY: the descriptor was made; four and eight bytes are read.
    unsafe {
        let set = |attribute, value: *const c_void, bytes| {
            ask(
                "cublasLtMatrixLayoutSetAttribute",
                sys::cublasLtMatrixLayoutSetAttribute(layout, attribute, value, bytes),
            )
        };
        set(Attribute::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, (&raw const count).cast(), 4)?;
        set(Attribute::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, (&raw const stride).cast(), 8)?;
    }
    Ok(layout)
}

impl Drop for LtPlan {
    fn drop(&mut self) {
        // SAFETY: each was made once, or never.
        unsafe {
            for layout in self.layouts.into_iter().filter(|layout| !layout.is_null()) {
                sys::cublasLtMatrixLayoutDestroy(layout);
            }
            if !self.operation.is_null() {
                sys::cublasLtMatmulDescDestroy(self.operation);
            }
        }
    }
}

/// What operands that begin inside a tensor lie on. Which of a and b is its A depends on the result's layout, so both are
/// told the less.
fn alignments(problem: &Problem) -> Vec<(sys::cublasLtMatmulPreferenceAttributes_t, u32)> {
    use sys::cublasLtMatmulPreferenceAttributes_t as Of;
    let [a, b, out] = problem.bases;
    let read = a.min(b);
    let all = [
        (Of::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, read),
        (Of::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, read),
        (Of::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, out),
        (Of::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, out),
    ];
    all.into_iter().filter(|(_, base)| *base < 16).map(|(attribute, base)| (attribute, base as u32)).collect()
}

impl Plan for LtPlan {
    fn problem(&self) -> &Problem {
        &self.problem
    }

    fn workspace(&self, _: &dyn Queue) -> usize {
        0
    }

    unsafe fn run(&self, queue: &dyn Queue, operands: &Operands, _: Region) -> Result<(), RunError> {
        let queue = CudaQueue::of(queue)?;
        let problem = &self.problem;
        let address = |operand, layout, dtype: DType| matrix(operand, layout, dtype.bytes()).address as *mut c_void;
        let a = address(&operands.a, &problem.a, problem.dtype);
        let b = address(&operands.b, &problem.b, problem.dtype);
        let out = address(&operands.out, &problem.out, problem.out_dtype);
        let (first, second) = if self.turned { (a, b) } else { (b, a) };
        let (alpha, beta) = (problem.alpha as f32, problem.beta as f32);
        let [l0, l1, l2] = self.layouts;
        // SAFETY: descriptors were made for these operands, which the caller promises are there; the workspace is the
        // queue's, whose stream is one.
        let status = unsafe {
            sys::cublasLtMatmul(
                self.handle.0,
                self.operation,
                (&raw const alpha).cast(),
                first,
                l0,
                second,
                l1,
                (&raw const beta).cast(),
                out,
                l2,
                out,
                l2,
                &self.algorithm,
                queue.workspace.address() as *mut c_void,
                WORKSPACE,
                queue.stream.raw().cast(),
            )
        };
        ask("cublasLtMatmul", status).map_err(|why| RunError::Library(why.to_string()))
    }
}
