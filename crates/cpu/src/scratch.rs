//! Memory that is laid out by packing, kept between products: no kernel allocates.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// Cache lines, and enough for huge pages to be given.
const ALIGN: usize = 4096;

/// Of a large page: where there is as much, it begins on one.
const LARGE: usize = 2 << 20;

fn align_of(bytes: usize) -> usize {
    if bytes >= LARGE { LARGE } else { ALIGN }
}

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, align_of(bytes)).expect("a size that fits the address space")
}

/// Asks for large pages, before anything is written: blocks that fill most of a second-level cache lie in it without gaps
/// then, and what is streamed needs fewer translations.
#[cfg(target_os = "linux")]
fn large_pages(ptr: *mut u8, bytes: usize) {
    let gap = ptr.align_offset(ALIGN);
    if bytes >= LARGE + gap {
        // SAFETY: the memory is this program's, and nothing but the size of its pages changes. A refusal changes nothing.
        unsafe { libc::madvise(ptr.add(gap).cast(), bytes - gap, libc::MADV_HUGEPAGE) };
    }
}

#[cfg(not(target_os = "linux"))]
fn large_pages(_: *mut u8, _: usize) {}

/// So many of `value`, on large pages where they fill some.
pub fn filled<T: Clone>(value: T, count: usize) -> Vec<T> {
    let mut memory: Vec<T> = Vec::with_capacity(count);
    large_pages(memory.as_mut_ptr().cast(), count * size_of::<T>());
    memory.resize(count, value);
    memory
}

/// Bytes aligned to a page.
#[derive(Debug)]
pub struct Scratch {
    ptr: NonNull<u8>,
    bytes: usize,
    /// For a product that is made of others, which use this one.
    beside: Option<Box<Scratch>>,
}

// SAFETY: plain memory, owned.
unsafe impl Send for Scratch {}
// SAFETY: `&Scratch` gives nothing but numbers and a pointer.
unsafe impl Sync for Scratch {}

impl Scratch {
    /// Nothing yet.
    pub const fn new() -> Scratch {
        Scratch { ptr: NonNull::dangling(), bytes: 0, beside: None }
    }

    /// With room for so many bytes.
    pub fn with_bytes(bytes: usize) -> Scratch {
        let mut scratch = Scratch::new();
        scratch.reserve(bytes);
        scratch
    }

    /// How many there are.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Makes room; what was in it is lost.
    pub fn reserve(&mut self, bytes: usize) {
        if bytes <= self.bytes {
            return;
        }
        let bytes = bytes.next_multiple_of(align_of(bytes));
        self.free();
        let layout = layout(bytes);
        // SAFETY: the size is not 0.
        let ptr = unsafe { alloc(layout) };
        let Some(ptr) = NonNull::new(ptr) else { handle_alloc_error(layout) };
        large_pages(ptr.as_ptr(), bytes);
        // SAFETY: as many bytes were allocated.
        unsafe { ptr.write_bytes(0, bytes) };
        (self.ptr, self.bytes) = (ptr, bytes);
    }

    /// Runs something with further memory, which is kept too.
    pub fn with_beside<R>(&mut self, body: impl FnOnce(&mut Scratch, &mut Scratch) -> R) -> R {
        let mut beside = self.beside.take().unwrap_or_default();
        let result = body(self, &mut beside);
        self.beside = Some(beside);
        result
    }

    /// Where it begins.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.ptr.as_ptr()
    }

    fn free(&mut self) {
        if self.bytes > 0 {
            // SAFETY: allocated by `reserve` with this layout.
            unsafe { dealloc(self.ptr.as_ptr(), layout(self.bytes)) };
            (self.ptr, self.bytes) = (NonNull::dangling(), 0);
        }
    }
}

impl Default for Scratch {
    fn default() -> Scratch {
        Scratch::new()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.free();
    }
}

/// Scratch memory that several threads use, each its own part or after another has finished.
#[derive(Clone, Copy)]
pub struct Space<T>(*mut T);
// SAFETY: a plain address; whoever reads or writes through it argues that the part is its own.
unsafe impl<T> Send for Space<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Space<T> {}

impl<T> Space<T> {
    pub fn of(scratch: &mut Scratch) -> Space<T> {
        Space(scratch.as_mut_ptr().cast())
    }

    /// What begins at the element `at`.
    ///
    /// # Safety
    /// It lies inside the memory.
    pub unsafe fn part(&self, at: usize) -> Space<T> {
        // SAFETY: by the contract.
        Space(unsafe { self.0.add(at) })
    }

    /// From the element `at` on.
    ///
    /// # Safety
    /// It lies inside the memory.
    pub unsafe fn from(&self, at: usize) -> *mut T {
        // SAFETY: by the contract.
        unsafe { self.0.add(at) }
    }
}
