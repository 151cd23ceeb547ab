//! C, shared between threads that write different elements.

use crate::micro::Out;
use crate::simd::Element;

#[derive(Clone, Copy)]
pub struct Target<T> {
    pub ptr: *mut T,
    pub row: isize,
    pub col: isize,
    pub alpha: T,
    pub beta: T,
}
// SAFETY: a plain address; whoever writes through it argues that elements are its own.
unsafe impl<T> Send for Target<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Target<T> {}

impl<T: Element> Target<T> {
    /// The part from row i and column j on, in the block of k that begins at `k0`: only the first block
    /// knows beta, the others add to it.
    pub fn part(&self, i: usize, j: usize, k0: usize) -> Out<T> {
        let ptr = self.ptr.wrapping_offset(i as isize * self.row).wrapping_offset(j as isize * self.col);
        let beta = if k0 == 0 { self.beta } else { T::ONE };
        Out { ptr, row: self.row, col: self.col, alpha: self.alpha, beta }
    }
}
