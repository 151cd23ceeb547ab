//! Something that solves problems, and a problem bound to it.

use crate::contract::{Contract, Refusal};
use crate::epilogue::Parts;
use crate::problem::Problem;
use gemwright_cpu::Pool;
use std::any::Any;
use std::sync::Arc;

/// Memory of a device, by address; nothing is owned.
#[derive(Debug, Clone, Copy)]
pub struct Region {
    /// Of the first byte.
    pub address: *mut u8,
    /// How many there are.
    pub bytes: usize,
}

// SAFETY: an address; whoever dereferences it has the promises of `Plan::run`.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Of no byte.
    pub const NONE: Region = Region { address: std::ptr::null_mut(), bytes: 0 };

    /// Memory that is read, or written by who may.
    pub fn of<T>(slice: &[T]) -> Region {
        Region { address: slice.as_ptr().cast_mut().cast(), bytes: size_of_val(slice) }
    }

    /// Memory that is written.
    pub fn of_mut<T>(slice: &mut [T]) -> Region {
        Region { address: slice.as_mut_ptr().cast(), bytes: size_of_val(slice) }
    }
}

/// The first elements of the operands, with the memory around them.
#[derive(Debug, Clone, Copy)]
pub struct Operand {
    /// All of it.
    pub region: Region,
    /// The element at row 0, column 0 of the first matrix.
    pub first: usize,
}

impl Operand {
    /// Beginning with the memory.
    pub fn at_start(region: Region) -> Operand {
        Operand { region, first: 0 }
    }
}

/// The first element of a matrix of a batch whose matrices are `batch` elements apart.
pub(crate) fn address<T>(operand: &Operand, batch: i64, i: u64) -> *mut T {
    operand.region.address.cast::<T>().wrapping_offset(operand.first as isize + i as isize * batch as isize)
}

/// What a run reads and writes.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub struct Operands {
    pub a: Operand,
    pub b: Operand,
    pub out: Operand,
    /// Of the epilogue, as many as the problem says.
    pub parts: Parts<Operand>,
    /// Where what goes into the activation is written, if the problem says so.
    pub kept: Option<Operand>,
    /// Of a problem with groups: where each ends, numbers of 32 bits.
    pub group_ends: Option<Operand>,
    /// Factors of a and of b, of f32, as the problem has them.
    pub scales: [Option<Operand>; 2],
}

impl Operands {
    /// Of a product without an epilogue.
    pub fn new(a: Operand, b: Operand, out: Operand) -> Operands {
        Operands { a, b, out, parts: Parts::default(), kept: None, group_ends: None, scales: [None; 2] }
    }
}

/// Where work is put: a pool of threads, or a device's stream.
pub trait Queue: Any + Send + Sync {
    /// As itself, for a plan that knows it.
    fn as_any(&self) -> &dyn Any;
    /// Name for messages.
    fn name(&self) -> &str;
}

/// Threads of this machine: work put on it is done when `run` returns, by the host itself.
pub struct CpuQueue {
    /// Who works.
    pub pool: Arc<Pool>,
    /// How many of them at most.
    pub threads: usize,
}

impl CpuQueue {
    /// With threads of its own.
    pub fn new(threads: usize) -> CpuQueue {
        CpuQueue { pool: Arc::new(Pool::new(threads)), threads }
    }

    /// The queue as one of these, which is what plans of the host run on.
    pub fn of(queue: &dyn Queue) -> Result<&CpuQueue, RunError> {
        queue.as_any().downcast_ref().ok_or_else(|| RunError::Queue(queue.name().into()))
    }
}

impl Queue for CpuQueue {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn name(&self) -> &'static str {
        "cpu"
    }
}

/// Why a run could not begin.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum RunError {
    #[error("the plan runs on another kind of queue than `{0}`")]
    Queue(String),
    #[error("the workspace has {given} bytes, the plan needs {needed}")]
    Workspace { given: usize, needed: usize },
    #[error("{0}")]
    Library(String),
}

/// A problem bound to a candidate.
pub trait Plan: Send + Sync {
    /// The problem.
    fn problem(&self) -> &Problem;

    /// The weights are laid out in it: runs do not look at b.
    fn holds_weights(&self) -> bool {
        false
    }

    /// A plan over the same laid out weights for a problem that differs from this one's in rows alone; none where there are
    /// no such weights, or their layout depends on the rows.
    fn for_rows(&self, _problem: &Problem) -> Option<Box<dyn Plan>> {
        None
    }

    /// Bytes of workspace that `run` needs on this queue.
    fn workspace(&self, queue: &dyn Queue) -> usize;

    /// Puts the work on the queue and returns; nothing here waits for a device.
    ///
    /// # Safety
    /// 1. Every element of the problem's layouts lies inside its operand's region, which stays valid until
    ///    the queue has done the work; every part of its epilogue is given. Of groups as many ends are there as
    ///    groups, none less than the one before, or more than there are rows or k. Factors of operands are as many
    ///    numbers of f32 as the problem says.
    /// 2. The result's elements, and the workspace, are touched by nobody else until then, and overlap
    ///    nothing else; the result is initialised where beta is not 0.
    unsafe fn run(&self, queue: &dyn Queue, operands: &Operands, workspace: Region) -> Result<(), RunError>;
}

/// One of our kernels, or a library.
pub trait Candidate: Send + Sync {
    /// Such as `own.avx512-f32` or `openblas`.
    fn name(&self) -> &str;
    /// Version and where it comes from.
    fn origin(&self) -> String;
    /// What it takes and promises.
    fn contract(&self) -> &Contract;
    /// It is one of ours.
    fn is_own(&self) -> bool {
        false
    }
    /// Binds a problem, or says why not.
    fn prepare(&self, problem: &Problem) -> Result<Box<dyn Plan>, Refusal>;
    /// Binds a problem whose weights are laid out now, once: runs of the plan do not look at b again.
    ///
    /// # Safety
    /// Every element of the problem's layout of b lies inside `b`, which is readable.
    unsafe fn prepare_packed(&self, _problem: &Problem, _b: &Operand) -> Result<Box<dyn Plan>, Refusal> {
        Err(Refusal::Prepack)
    }
    /// It starts threads in every call, which may be where the caller may be.
    fn starts_threads(&self) -> bool {
        false
    }
    /// Threads of a library that has its own pool.
    fn set_threads(&self, _threads: usize) {}
}
