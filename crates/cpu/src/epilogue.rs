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

    /// Sums to results, with the elements of its parts that belong to them.
    #[inline(always)]
    pub(crate) fn of(&self, sums: &mut [U::Sum; LANES], beside: &Beside<U::Sum>) {
        each(sums, &beside.scale, |x, y| x * y);
        each(sums, &beside.bias, |x, y| x + y);
        U::Sum::activate(self.activation, sums);
        each(sums, &beside.times, |x, y| x * y);
        each(sums, &beside.residual, |x, y| x + y);
    }

    /// Up to [`LANES`] sums of row i, from column j on, to results.
    ///
    /// # Safety
    /// Row i has `count` columns from j on.
    #[inline(always)]
    pub(crate) unsafe fn row(&self, sums: &mut [U::Sum; LANES], (i, j): (usize, usize), count: usize) {
        // SAFETY: by the contract, parts have the extents of the result.
        let beside = |part: &Option<Mat<'a, U>>| part.as_ref().map(|part| unsafe { lanes(part, (i, j), count) });
        self.of(
            sums,
            &Beside {
                scale: beside(&self.scale),
                bias: beside(&self.bias),
                times: beside(&self.times),
                residual: beside(&self.residual),
            },
        );
    }
}

/// What parts of an epilogue have for some sums.
pub(crate) struct Beside<R> {
    pub scale: Option<[R; LANES]>,
    pub bias: Option<[R; LANES]>,
    pub times: Option<[R; LANES]>,
    pub residual: Option<[R; LANES]>,
}

#[inline(always)]
fn each<R: Real>(x: &mut [R; LANES], y: &Option<[R; LANES]>, f: impl Fn(R, R) -> R) {
    if let Some(y) = y {
        for lane in 0..LANES {
            x[lane] = f(x[lane], y[lane]);
        }
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
        let mut found = [(*at).widen(); LANES];
        match (part.col, count) {
            (0, _) => {}
            // What is known to be neighbours becomes one load.
            (1, LANES) => (0..LANES).for_each(|lane| found[lane] = (*at.add(lane)).widen()),
            _ => (0..LANES).for_each(|lane| found[lane] = (*part.at(i, j + lane.min(count - 1))).widen()),
        }
        found
    }
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
            let mut results = lanes(c, (i, j), count);
            epilogue.row(&mut results, (i, j), count);
            for (lane, result) in results.into_iter().enumerate().take(count) {
                *c.at(i, j + lane).cast_mut() = U::narrow(result);
            }
        }
    }
}
