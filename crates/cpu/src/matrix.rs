//! Matrices as views of memory: any strides, checked once where they are made.

use std::marker::PhantomData;

/// Why a view does not lie inside its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ViewError;

impl std::fmt::Display for ViewError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the view reaches outside its memory, or two of its elements are one")
    }
}

impl std::error::Error for ViewError {}

/// Rows and columns of elements that are read.
#[derive(Debug, Clone, Copy)]
pub struct Mat<'a, T> {
    pub(crate) ptr: *const T,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    /// Elements from one row to the next; may be zero or negative.
    pub(crate) row: isize,
    /// Elements from one column to the next.
    pub(crate) col: isize,
    life: PhantomData<&'a [T]>,
}

/// The same, written.
#[derive(Debug)]
pub struct MatMut<'a, T> {
    pub(crate) ptr: *mut T,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) row: isize,
    pub(crate) col: isize,
    life: PhantomData<&'a mut [T]>,
}

// SAFETY: a shared view of memory whose elements can be read from any thread.
unsafe impl<T: Sync> Send for Mat<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Mat<'_, T> {}

/// The least and the greatest place of a view, relative to its first element.
fn reach(rows: usize, cols: usize, row: isize, col: isize) -> Option<(isize, isize)> {
    let (mut least, mut most) = (0isize, 0isize);
    for (extent, step) in [(rows, row), (cols, col)] {
        let far = isize::try_from(extent - 1).ok()?.checked_mul(step)?;
        least = least.checked_add(far.min(0))?;
        most = most.checked_add(far.max(0))?;
    }
    Some((least, most))
}

/// The view lies inside `length` elements, its first one at `offset`.
fn inside(length: usize, offset: usize, rows: usize, cols: usize, row: isize, col: isize) -> Option<()> {
    if rows == 0 || cols == 0 {
        return Some(());
    }
    let (least, most) = reach(rows, cols, row, col)?;
    let offset = isize::try_from(offset).ok()?;
    let fits = offset.checked_add(least)? >= 0 && offset.checked_add(most)? < isize::try_from(length).ok()?;
    fits.then_some(())
}

impl<'a, T> Mat<'a, T> {
    /// Inside `memory`, its first element at `offset`.
    pub fn new(
        memory: &'a [T],
        offset: usize,
        (rows, cols): (usize, usize),
        (row, col): (isize, isize),
    ) -> Result<Mat<'a, T>, ViewError> {
        inside(memory.len(), offset, rows, cols, row, col).ok_or(ViewError)?;
        let offset = if rows == 0 || cols == 0 { 0 } else { offset };
        // SAFETY: `inside` has shown that `offset` is a place in `memory`, or the view is empty.
        let ptr = unsafe { memory.as_ptr().add(offset) };
        Ok(Mat { ptr, rows, cols, row, col, life: PhantomData })
    }

    /// Rows one after the other.
    pub fn row_major(memory: &'a [T], rows: usize, cols: usize) -> Result<Mat<'a, T>, ViewError> {
        Mat::new(memory, 0, (rows, cols), (cols as isize, 1))
    }

    /// From parts.
    ///
    /// # Safety
    /// Every element `ptr + i·row + j·col` with i < rows, j < cols is readable for `'a`.
    pub unsafe fn from_raw(ptr: *const T, (rows, cols): (usize, usize), (row, col): (isize, isize)) -> Mat<'a, T> {
        Mat { ptr, rows, cols, row, col, life: PhantomData }
    }

    /// Rows for columns.
    pub fn transposed(self) -> Mat<'a, T> {
        Mat { rows: self.cols, cols: self.rows, row: self.col, col: self.row, ..self }
    }

    /// Some of its rows.
    ///
    /// # Panics
    /// If they are not all inside.
    #[must_use]
    pub fn rows_from(self, first: usize, count: usize) -> Mat<'a, T> {
        assert!(first <= self.rows && count <= self.rows - first, "rows {first} to {} of {}", first + count, self.rows);
        Mat { ptr: self.at(first, 0), rows: count, ..self }
    }

    /// Rows and columns.
    pub fn extents(&self) -> (usize, usize) {
        (self.rows, self.cols)
    }

    /// The place of an element. Computing it is safe, reading it needs i < rows and j < cols.
    #[inline(always)]
    pub(crate) fn at(&self, i: usize, j: usize) -> *const T {
        self.ptr.wrapping_offset(i as isize * self.row).wrapping_offset(j as isize * self.col)
    }
}

impl<'a, T> MatMut<'a, T> {
    /// Inside `memory`, its first element at `offset`; no element may stand for two.
    pub fn new(
        memory: &'a mut [T],
        offset: usize,
        (rows, cols): (usize, usize),
        (row, col): (isize, isize),
    ) -> Result<MatMut<'a, T>, ViewError> {
        inside(memory.len(), offset, rows, cols, row, col).ok_or(ViewError)?;
        if rows != 0 && cols != 0 && overlaps((rows, row), (cols, col)) {
            return Err(ViewError);
        }
        let offset = if rows == 0 || cols == 0 { 0 } else { offset };
        // SAFETY: as for `Mat::new`.
        let ptr = unsafe { memory.as_mut_ptr().add(offset) };
        Ok(MatMut { ptr, rows, cols, row, col, life: PhantomData })
    }

    /// Rows one after the other.
    pub fn row_major(memory: &'a mut [T], rows: usize, cols: usize) -> Result<MatMut<'a, T>, ViewError> {
        MatMut::new(memory, 0, (rows, cols), (cols as isize, 1))
    }

    /// From parts.
    ///
    /// # Safety
    /// Every element `ptr + i·row + j·col` with i < rows, j < cols is writable for `'a`, and no two
    /// are one.
    pub unsafe fn from_raw(ptr: *mut T, (rows, cols): (usize, usize), (row, col): (isize, isize)) -> MatMut<'a, T> {
        MatMut { ptr, rows, cols, row, col, life: PhantomData }
    }

    /// Rows for columns.
    pub fn transposed(self) -> MatMut<'a, T> {
        MatMut { rows: self.cols, cols: self.rows, row: self.col, col: self.row, ..self }
    }

    /// Rows and columns.
    pub fn extents(&self) -> (usize, usize) {
        (self.rows, self.cols)
    }
}

/// Two elements of such a view may be one: no stride steps over the whole of the other.
fn overlaps(x: (usize, isize), y: (usize, isize)) -> bool {
    let span = |(extent, step): (usize, isize)| (extent - 1) as u128 * step.unsigned_abs() as u128;
    let (inner, outer) = if x.1.unsigned_abs() <= y.1.unsigned_abs() { (x, y) } else { (y, x) };
    let inner_repeats = inner.0 > 1 && inner.1 == 0;
    let outer_steps_over = outer.0 == 1 || outer.1.unsigned_abs() as u128 > span(inner);
    inner_repeats || !outer_steps_over
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_stays_inside_its_memory() {
        let memory = [0f32; 12];
        assert!(Mat::new(&memory, 0, (3, 4), (4, 1)).is_ok());
        assert!(Mat::new(&memory, 1, (3, 4), (4, 1)).is_err());
        // Backwards from the end, and one element repeated.
        assert!(Mat::new(&memory, 11, (3, 4), (-4, -1)).is_ok());
        assert!(Mat::new(&memory, 10, (3, 4), (-4, -1)).is_err());
        assert!(Mat::new(&memory, 0, (1000, 1000), (0, 0)).is_ok());
        assert!(Mat::new(&memory, 0, (usize::MAX, 2), (isize::MAX, 1)).is_err());
        assert!(Mat::new(&memory, 99, (0, 4), (4, 1)).is_ok());
    }

    #[test]
    fn what_is_written_holds_each_element_once() {
        let mut memory = [0f32; 12];
        assert!(MatMut::new(&mut memory, 0, (3, 4), (4, 1)).is_ok());
        assert!(MatMut::new(&mut memory, 0, (4, 3), (1, 4)).is_ok());
        assert!(MatMut::new(&mut memory, 0, (3, 4), (3, 1)).is_err());
        assert!(MatMut::new(&mut memory, 0, (3, 4), (0, 1)).is_err());
        assert!(MatMut::new(&mut memory, 0, (1, 4), (0, 1)).is_ok());
        assert!(MatMut::new(&mut memory, 2, (2, 2), (5, -1)).is_ok());
    }
}
