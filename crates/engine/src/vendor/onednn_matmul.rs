//! oneDNN's matmul primitive, as version 2 of its C interface has it: bf16 and f32, with weights as they lie or in the layout
//! that the library likes best.

use super::onednn::nothing_to_sum;
use crate::candidate::{CpuQueue, Operand, Operands, Plan, Queue, Region, RunError, address};
use crate::contract::{Refusal, blas_order};
use crate::problem::{Layout, Problem};
use gemwright_core::DType;
use gemwright_cpu::half::bf16;
use libloading::Library;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::ThreadId;

type Object = *mut c_void;
/// A description of memory, and of a product: records of the library, whose sizes (696 and 2800 bytes in 2.6) fit.
type Memory = [u64; 128];
type Matmul = [u64; 512];
type Dims = [i64; 12];

/// What an argument of a primitive is, and its memory.
#[repr(C)]
struct Argument {
    kind: c_int,
    memory: Object,
}

const CPU: c_int = 1;
const IN_ORDER: c_int = 1;
const ANY: c_int = 1;
const BF16: c_int = 2;
const F32: c_int = 3;
const QUERY_SRC: c_int = 129;
const QUERY_WEIGHTS: c_int = 131;
const SRC: c_int = 1;
const DST: c_int = 17;
const WEIGHTS: c_int = 33;

macro_rules! functions {
    ($($name:ident: fn($($argument:ty),*) -> $answer:ty;)*) => {
        /// The library's functions.
        pub struct Functions {
            $($name: unsafe extern "C" fn($($argument),*) -> $answer,)*
        }

        impl Functions {
            /// Looks them up; `None` where one is missing, as in other versions.
            pub fn of(library: &Library) -> Option<Functions> {
                // SAFETY: oneDNN's header gives the names these types.
                unsafe {
                    Some(Functions { $($name: *library.get(concat!("dnnl_", stringify!($name)).as_bytes()).ok()?,)* })
                }
            }
        }
    };
}

functions! {
    engine_create: fn(*mut Object, c_int, usize) -> c_int;
    engine_destroy: fn(Object) -> c_int;
    stream_create: fn(*mut Object, Object, c_int) -> c_int;
    stream_wait: fn(Object) -> c_int;
    stream_destroy: fn(Object) -> c_int;
    memory_desc_init_by_strides: fn(*mut Memory, c_int, *const Dims, c_int, *const Dims) -> c_int;
    memory_desc_init_by_tag: fn(*mut Memory, c_int, *const Dims, c_int, c_int) -> c_int;
    memory_desc_get_size: fn(*const Memory) -> usize;
    matmul_desc_init: fn(*mut Matmul, *const Memory, *const Memory, *const Memory, *const Memory) -> c_int;
    primitive_attr_create: fn(*mut Object) -> c_int;
    primitive_attr_destroy: fn(Object) -> c_int;
    primitive_attr_set_output_scales: fn(Object, i64, c_int, *const f32) -> c_int;
    primitive_attr_set_post_ops: fn(Object, Object) -> c_int;
    post_ops_create: fn(*mut Object) -> c_int;
    post_ops_append_sum: fn(Object, f32) -> c_int;
    post_ops_destroy: fn(Object) -> c_int;
    primitive_desc_create: fn(*mut Object, *const Matmul, Object, Object, Object) -> c_int;
    primitive_desc_query_md: fn(Object, c_int, c_int) -> *const Memory;
    primitive_desc_destroy: fn(Object) -> c_int;
    reorder_primitive_desc_create: fn(*mut Object, *const Memory, Object, *const Memory, Object, Object) -> c_int;
    primitive_create: fn(*mut Object, Object) -> c_int;
    primitive_execute: fn(Object, Object, c_int, *const Argument) -> c_int;
    primitive_destroy: fn(Object) -> c_int;
    memory_create: fn(*mut Object, *const Memory, Object, *mut c_void) -> c_int;
    memory_set_data_handle: fn(Object, *mut c_void) -> c_int;
    memory_destroy: fn(Object) -> c_int;
}

/// Something of the library's, given back in the end.
struct Owned {
    object: Object,
    destroy: unsafe extern "C" fn(Object) -> c_int,
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: made by the library, and nobody else's.
        unsafe { (self.destroy)(self.object) };
    }
}

/// Makes something; a status that is not 0 is an error that names the function.
fn make(
    what: &str,
    destroy: unsafe extern "C" fn(Object) -> c_int,
    create: impl FnOnce(*mut Object) -> c_int,
) -> Result<Owned, String> {
    let mut object = null_mut();
    match create(&raw mut object) {
        0 => Ok(Owned { object, destroy }),
        status => Err(format!("oneDNN's {what} answered {status}")),
    }
}

fn done(what: &str, status: c_int) -> Result<(), String> {
    if status == 0 { Ok(()) } else { Err(format!("oneDNN's {what} answered {status}")) }
}

fn type_of(dtype: DType) -> c_int {
    if dtype == DType::Bf16 { BF16 } else { F32 }
}

/// Where a matrix of the batch begins.
fn place(operand: &Operand, dtype: DType, batch: i64, i: u64) -> *mut c_void {
    match dtype {
        DType::Bf16 => address::<bf16>(operand, batch, i).cast(),
        _ => address::<f32>(operand, batch, i).cast(),
    }
}

/// A line of the cache, where tensors begin.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(#[expect(dead_code, reason = "only the library looks at it")] [u64; 8]);

/// An operand as the library sees it: rows, columns, steps of both.
#[derive(Clone, Copy)]
struct View {
    extents: (u64, u64),
    steps: (i64, i64),
}

impl View {
    /// As the C BLAS would have it; steps over an extent of one are what they must be.
    fn of(layout: &Layout, rows: u64, cols: u64) -> Option<View> {
        let (turned, ld) = blas_order(layout, rows, cols)?;
        Some(View { extents: (rows, cols), steps: if turned { (1, ld) } else { (ld, 1) } })
    }

    fn transposed(self) -> View {
        View { extents: (self.extents.1, self.extents.0), steps: (self.steps.1, self.steps.0) }
    }
}

/// A product that is ready, for matrices of one batch after the other.
pub struct MatmulPlan {
    problem: Problem,
    /// The result lies by columns: operands have changed places.
    turned: bool,
    /// Weights in the library's own layout, one for each matrix of the batch.
    packed: Vec<Vec<Line>>,
    /// The thread that made the primitive: in usual builds of the library no other may run it.
    thread: ThreadId,
    /// None where there is nothing to sum, which the library leaves alone.
    objects: Option<Mutex<Objects>>,
    functions: Arc<Functions>,
    // Last, so that it is closed last.
    _library: Arc<Library>,
}

/// In the order in which they must go.
struct Objects {
    src: Owned,
    weights: Owned,
    dst: Owned,
    primitive: Owned,
    stream: Owned,
    _engine: Owned,
}

// SAFETY: the library's objects may be given back by any thread; the primitive is run by the one that made it alone.
unsafe impl Send for Objects {}

impl MatmulPlan {
    /// Binds a problem; weights that are given are laid out now.
    ///
    /// # Safety
    /// Every element of the problem's layout of b lies inside `b`, where it is given.
    pub unsafe fn new(
        (functions, library): (&Arc<Functions>, &Arc<Library>),
        problem: &Problem,
        b: Option<&Operand>,
    ) -> Result<MatmulPlan, Refusal> {
        let p = problem.product;
        let strides = |operand| Refusal::Strides { operand };
        let left = View::of(&problem.a, p.m, p.k).ok_or(strides("a"))?;
        let right = View::of(&problem.b, p.k, p.n).ok_or(strides("b"))?;
        let out = View::of(&problem.out, p.m, p.n).ok_or(strides("out"))?;
        let turned = out.steps.1 != 1;
        let views = match turned {
            false => [left, right, out],
            true => [right.transposed(), left.transposed(), out.transposed()],
        };
        let (objects, packed) = match [p.m, p.n, p.k].contains(&0) || problem.alpha == 0.0 {
            true => (None, Vec::new()),
            false => {
                // SAFETY: by the contract.
                let (objects, packed) =
                    unsafe { objects(functions, problem, views, turned, b) }.map_err(Refusal::Library)?;
                (Some(Mutex::new(objects)), packed)
            }
        };
        Ok(MatmulPlan {
            problem: *problem,
            turned,
            packed,
            thread: std::thread::current().id(),
            objects,
            functions: Arc::clone(functions),
            _library: Arc::clone(library),
        })
    }
}

/// Everything a plan needs of the library, and the weights laid out.
///
/// # Safety
/// As for [`MatmulPlan::new`].
unsafe fn objects(
    f: &Functions,
    problem: &Problem,
    views: [View; 3],
    turned: bool,
    b: Option<&Operand>,
) -> Result<(Objects, Vec<Vec<Line>>), String> {
    let types = [problem.dtype, problem.dtype, problem.out_dtype].map(type_of);
    // The weights are the library's second operand, or its first where operands have changed places.
    let side = usize::from(!turned);
    let describe = |at: usize, any: bool| {
        let View { extents: (rows, cols), steps } = views[at];
        let dims =
            |rows: i64, cols: i64| -> Dims { std::array::from_fn(|i| [rows, cols].get(i).copied().unwrap_or(0)) };
        let (extents, steps) = (dims(rows as i64, cols as i64), dims(steps.0, steps.1));
        let mut memory: Memory = [0; 128];
        // SAFETY: the record has room, and two extents and steps are given.
        let status = unsafe {
            match any {
                true => (f.memory_desc_init_by_tag)(&raw mut memory, 2, &raw const extents, types[at], ANY),
                false => {
                    (f.memory_desc_init_by_strides)(&raw mut memory, 2, &raw const extents, types[at], &raw const steps)
                }
            }
        };
        done("description of memory", status).map(|()| memory)
    };
    let [src, weights, dst] =
        [describe(0, b.is_some() && side == 0)?, describe(1, b.is_some() && side == 1)?, describe(2, false)?];
    // SAFETY: objects are made in the order the library wants, of what was made before; each is given back once.
    unsafe {
        let engine = make("engine", f.engine_destroy, |to| (f.engine_create)(to, CPU, 0))?;
        let stream = make("stream", f.stream_destroy, |to| (f.stream_create)(to, engine.object, IN_ORDER))?;
        let attributes = make("attributes", f.primitive_attr_destroy, |to| (f.primitive_attr_create)(to))?;
        let alpha = problem.alpha as f32;
        if alpha != 1.0 {
            let status = (f.primitive_attr_set_output_scales)(attributes.object, 1, 0, &raw const alpha);
            done("scale", status)?;
        }
        if problem.beta != 0.0 {
            let sum = make("sum", f.post_ops_destroy, |to| (f.post_ops_create)(to))?;
            done("sum", (f.post_ops_append_sum)(sum.object, problem.beta as f32))?;
            done("sum", (f.primitive_attr_set_post_ops)(attributes.object, sum.object))?;
        }
        let mut product: Matmul = [0; 512];
        let (product, none) = (&raw mut product, std::ptr::null());
        done("matmul", (f.matmul_desc_init)(product, &raw const src, &raw const weights, none, &raw const dst))?;
        let described = make("matmul", f.primitive_desc_destroy, |to| {
            (f.primitive_desc_create)(to, product, attributes.object, engine.object, null_mut())
        })?;
        let primitive = make("matmul", f.primitive_destroy, |to| (f.primitive_create)(to, described.object))?;
        let memory = |of: *const Memory| {
            make("memory", f.memory_destroy, |to| (f.memory_create)(to, of, engine.object, null_mut()))
        };
        // What the library chose, where that was left to it.
        let chosen = [QUERY_SRC, QUERY_WEIGHTS].map(|query| (f.primitive_desc_query_md)(described.object, query, 0));
        let mut packed = Vec::new();
        if let Some(b) = b {
            let plain = describe(side, false)?;
            let reorder = make("reorder", f.primitive_desc_destroy, |to| {
                let (from, into) = (&raw const plain, chosen[side]);
                (f.reorder_primitive_desc_create)(to, from, engine.object, into, engine.object, null_mut())
            })?;
            let reorder = make("reorder", f.primitive_destroy, |to| (f.primitive_create)(to, reorder.object))?;
            let (from, into) = (memory(&raw const plain)?, memory(chosen[side])?);
            for i in 0..problem.product.batch {
                let mut room = vec![Line([0; 8]); (f.memory_desc_get_size)(chosen[side]).div_ceil(size_of::<Line>())];
                let source = place(b, problem.dtype, problem.b.batch, i);
                done("memory", (f.memory_set_data_handle)(from.object, source))?;
                done("memory", (f.memory_set_data_handle)(into.object, room.as_mut_ptr().cast()))?;
                let arguments =
                    [Argument { kind: SRC, memory: from.object }, Argument { kind: DST, memory: into.object }];
                done("reorder", (f.primitive_execute)(reorder.object, stream.object, 2, arguments.as_ptr()))?;
                done("reorder", (f.stream_wait)(stream.object))?;
                packed.push(room);
            }
        }
        let (src, weights, dst) = (memory(chosen[0])?, memory(chosen[1])?, memory(&raw const dst)?);
        Ok((Objects { src, weights, dst, primitive, stream, _engine: engine }, packed))
    }
}

impl Plan for MatmulPlan {
    fn problem(&self) -> &Problem {
        &self.problem
    }

    fn holds_weights(&self) -> bool {
        !self.packed.is_empty()
    }

    fn workspace(&self, _queue: &dyn Queue) -> usize {
        0
    }

    unsafe fn run(&self, queue: &dyn Queue, operands: &Operands, _workspace: Region) -> Result<(), RunError> {
        CpuQueue::of(queue)?;
        let (problem, f) = (&self.problem, &self.functions);
        let Some(objects) = &self.objects else {
            // SAFETY: by the contract of `run`.
            unsafe {
                match problem.out_dtype {
                    DType::Bf16 => nothing_to_sum::<bf16>(problem, operands),
                    _ => nothing_to_sum::<f32>(problem, operands),
                }
            }
            return Ok(());
        };
        if self.thread != std::thread::current().id() {
            return Err(RunError::Library("oneDNN runs a product on the thread that prepared it".into()));
        }
        let objects = objects.lock().unwrap_or_else(PoisonError::into_inner);
        for i in 0..problem.product.batch {
            let a = place(&operands.a, problem.dtype, problem.a.batch, i);
            let b = match self.packed.get(i as usize) {
                Some(packed) => packed.as_ptr().cast_mut().cast(),
                None => place(&operands.b, problem.dtype, problem.b.batch, i),
            };
            let out = place(&operands.out, problem.out_dtype, problem.out.batch, i);
            let (src, weights) = if self.turned { (b, a) } else { (a, b) };
            // SAFETY: by the contract of `run`; the objects are this thread's while the lock is held.
            let result = unsafe {
                done("memory", (f.memory_set_data_handle)(objects.src.object, src))
                    .and_then(|()| done("memory", (f.memory_set_data_handle)(objects.weights.object, weights)))
                    .and_then(|()| done("memory", (f.memory_set_data_handle)(objects.dst.object, out)))
                    .and_then(|()| {
                        let arguments = [(SRC, &objects.src), (WEIGHTS, &objects.weights), (DST, &objects.dst)]
                            .map(|(kind, owned)| Argument { kind, memory: owned.object });
                        let (product, stream) = (objects.primitive.object, objects.stream.object);
                        done("matmul", (f.primitive_execute)(product, stream, 3, arguments.as_ptr()))
                    })
                    .and_then(|()| done("matmul", (f.stream_wait)(objects.stream.object)))
            };
            result.map_err(RunError::Library)?;
        }
        Ok(())
    }
}
