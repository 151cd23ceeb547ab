//! What becomes of sums before they are written: out = activation(scale · sum + bias) · times + residual, each part where
//! it is given, computed in the type of the sums.

use crate::activation::Real;
use crate::matrix::{Mat, MatMut};
use crate::pool::{Counter, Pool};
use crate::simd::Number;
use gemwright_core::Activation;
use half::bf16;

/// Sums that are worked on together.
pub const LANES: usize = 16;

/// A number that a result is made of, and the type its sums have.
pub trait Finish: Number {
    /// Of the sums.
    type Sum: Real;
    #[allow(missing_docs)]
    fn widen(self) -> Self::Sum;
    #[allow(missing_docs)]
    fn narrow(sum: Self::Sum) -> Self;
}

macro_rules! as_it_is {
    ($type:ident) => {
        impl Finish for $type {
            type Sum = $type;
            #[inline(always)]
            fn widen(self) -> $type {
                self
            }
            #[inline(always)]
            fn narrow(sum: $type) -> $type {
                sum
            }
        }
    };
}

as_it_is!(f32);
as_it_is!(f64);

impl Finish for bf16 {
    type Sum = f32;
    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }
    #[inline(always)]
    fn narrow(sum: f32) -> bf16 {
        bf16::from_f32(sum)
    }
}

/// Views are \[M, N\] and of the result's type; a vector is a matrix whose rows, or columns, are 0 elements apart.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub struct Epilogue<'a, U> {
    pub scale: Option<Mat<'a, U>>,
    pub bias: Option<Mat<'a, U>>,
    pub activation: Activation,
    /// Such as the other half of SiLU(gate) · up.
    pub times: Option<Mat<'a, U>>,
    pub residual: Option<Mat<'a, U>>,
}

impl<U> Default for Epilogue<'_, U> {
    fn default() -> Self {
        Epilogue { scale: None, bias: None, activation: Activation::None, times: None, residual: None }
    }
}

impl<'a, U: Finish> Epilogue<'a, U> {
    /// Sums are the result.
    pub fn is_none(&self) -> bool {
        let parts = [&self.scale, &self.bias, &self.times, &self.residual];
        self.activation == Activation::None && parts.iter().all(|part| part.is_none())
    }

    /// The same for a result that is computed transposed.
    #[must_use]
    pub fn transposed(self) -> Epilogue<'a, U> {
        let turned = |part: Option<Mat<'a, U>>| part.map(Mat::transposed);
        Epilogue {
            scale: turned(self.scale),
            bias: turned(self.bias),
            times: turned(self.times),
            residual: turned(self.residual),
            ..self
        }
    }

    /// # Panics
    /// If a part has not the result's extents.
    pub(crate) fn check(&self, extents: (usize, usize)) {
        for part in [&self.scale, &self.bias, &self.times, &self.residual].into_iter().flatten() {
            assert!(part.extents() == extents, "{:?} in the epilogue of {extents:?}", part.extents());
        }
    }

    /// Sums to results; `load` gives the elements of a part that belong to them.
    #[inline(always)]
    pub(crate) fn of(
        &self,
        mut sums: [U::Sum; LANES],
        load: impl Fn(&Mat<'a, U>) -> [U::Sum; LANES],
    ) -> [U::Sum; LANES] {
        if let Some(scale) = &self.scale {
            sums = each(sums, load(scale), |x, y| x * y);
        }
        if let Some(bias) = &self.bias {
            sums = each(sums, load(bias), |x, y| x + y);
        }
        sums = U::Sum::activated(self.activation, sums);
        if let Some(times) = &self.times {
            sums = each(sums, load(times), |x, y| x * y);
        }
        if let Some(residual) = &self.residual {
            sums = each(sums, load(residual), |x, y| x + y);
        }
        sums
    }

    /// Up to [`LANES`] sums of row i, from column j on, to results.
    ///
    /// # Safety
    /// Row i has `count` columns from j on.
    #[inline(always)]
    pub(crate) unsafe fn row(&self, sums: [U::Sum; LANES], (i, j): (usize, usize), count: usize) -> [U::Sum; LANES] {
        // SAFETY: by the contract, parts have the extents of the result.
        self.of(sums, |part| unsafe { lanes(part, (i, j), count) })
    }
}

/// Elements of row i from column j on; lanes beyond `count` repeat the last.
///
/// # Safety
/// Row i has `count` columns from j on.
#[inline(always)]
unsafe fn lanes<U: Finish>(part: &Mat<'_, U>, (i, j): (usize, usize), count: usize) -> [U::Sum; LANES] {
    let at = part.at(i, j);
    // SAFETY: by the contract.
    unsafe {
        match (part.col, count) {
            // What is known to be neighbours becomes one load.
            (1, LANES) => std::array::from_fn(|lane| (*at.add(lane)).widen()),
            (0, _) => [(*at).widen(); LANES],
            _ => std::array::from_fn(|lane| (*part.at(i, j + lane.min(count - 1))).widen()),
        }
    }
}

#[inline(always)]
fn each<R: Real>(x: [R; LANES], y: [R; LANES], f: impl Fn(R, R) -> R) -> [R; LANES] {
    std::array::from_fn(|lane| f(x[lane], y[lane]))
}

/// Rows that a thread takes at a time.
const ROWS: usize = 8;

/// An epilogue by itself, over a result that stands in memory.
///
/// # Panics
/// If a part has not the result's extents.
pub fn finish<U: Finish>(c: &mut MatMut<'_, U>, epilogue: &Epilogue<'_, U>, pool: &Pool, threads: usize) {
    epilogue.check(c.extents());
    if epilogue.is_none() {
        return;
    }
    let (m, n) = c.extents();
    // SAFETY: every element is there; as a view that is read it may be shared.
    let shared = unsafe { Mat::from_raw(c.ptr.cast_const(), (m, n), (c.row, c.col)) };
    let pieces = Counter::new(m.div_ceil(ROWS));
    pool.run(threads, &|_| {
        while let Some(piece) = pieces.claim() {
            for i in piece * ROWS..m.min((piece + 1) * ROWS) {
                // SAFETY: row i is inside, and this thread's alone.
                unsafe { finish_row(&shared, epilogue, i) };
            }
        }
    });
}

/// One row, with the widest vectors there are.
///
/// # Safety
/// The row is inside C, which may be written there, and nobody else's.
unsafe fn finish_row<U: Finish>(c: &Mat<'_, U>, epilogue: &Epilogue<'_, U>, i: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512bw") && is_x86_feature_detected!("avx512vl") {
            // SAFETY: asked for; the rest by the contract.
            return unsafe { finish_row_avx512(c, epilogue, i) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: as above.
            return unsafe { finish_row_avx2(c, epilogue, i) };
        }
    }
    // SAFETY: by the contract.
    unsafe { finish_row_here(c, epilogue, i) };
}

/// # Safety
/// As for [`finish_row`]; AVX-512 is there.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn finish_row_avx512<U: Finish>(c: &Mat<'_, U>, epilogue: &Epilogue<'_, U>, i: usize) {
    // SAFETY: by the contract.
    unsafe { finish_row_here(c, epilogue, i) };
}

/// # Safety
/// As for [`finish_row`]; AVX2 is there.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn finish_row_avx2<U: Finish>(c: &Mat<'_, U>, epilogue: &Epilogue<'_, U>, i: usize) {
    // SAFETY: by the contract.
    unsafe { finish_row_here(c, epilogue, i) };
}

/// # Safety
/// As for [`finish_row`].
#[inline(always)]
unsafe fn finish_row_here<U: Finish>(c: &Mat<'_, U>, epilogue: &Epilogue<'_, U>, i: usize) {
    for j in (0..c.cols).step_by(LANES) {
        let count = LANES.min(c.cols - j);
        // SAFETY: by the contract.
        unsafe {
            let results = epilogue.row(lanes(c, (i, j), count), (i, j), count);
            for (lane, result) in results.into_iter().enumerate().take(count) {
                *c.at(i, j + lane).cast_mut() = U::narrow(result);
            }
        }
    }
}
