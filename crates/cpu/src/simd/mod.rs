//! What the kernels need of an instruction set, and one file for each.

#[cfg(target_arch = "x86_64")]
pub mod avx2;
#[cfg(target_arch = "x86_64")]
pub mod avx512;
#[cfg(target_arch = "x86_64")]
pub mod avx512_tiles;
pub mod portable;

/// A number that is stored.
pub trait Number: Copy + Send + Sync + PartialEq + std::fmt::Debug + 'static {
    /// Name of its type, as in `DType::name`.
    const NAME: &'static str;
    /// For callers that compute in f64.
    fn from_f64(x: f64) -> Self;
    #[allow(missing_docs)]
    fn to_f64(self) -> f64;
}

impl Number for half::bf16 {
    const NAME: &'static str = "bf16";
    fn from_f64(x: f64) -> Self {
        // The crate leaves out the lower half of the bits; that there was something must show, or what lies just above the
        // middle of two numbers would be rounded as if it were the middle.
        let bits = x.to_bits();
        half::bf16::from_f64(f64::from_bits(bits | u64::from(bits as u32 != 0) << 32))
    }
    fn to_f64(self) -> f64 {
        // The upper half of an f32: the crate's own way is for machines that have no f32.
        f64::from(f32::from_bits(u32::from(self.to_bits()) << 16))
    }
}

/// A number that is multiplied and added in its own type.
pub trait Element: Number {
    /// 0 and 1.
    const ZERO: Self;
    #[allow(missing_docs)]
    const ONE: Self;
    /// `self · x + y`, rounded once or twice.
    fn mul_add(self, x: Self, y: Self) -> Self;
    #[allow(missing_docs)]
    fn mul(self, x: Self) -> Self;
    #[allow(missing_docs)]
    fn add(self, x: Self) -> Self;
}

macro_rules! element {
    ($type:ident) => {
        impl Number for $type {
            const NAME: &'static str = stringify!($type);
            fn from_f64(x: f64) -> Self {
                x as $type
            }
            fn to_f64(self) -> f64 {
                f64::from(self)
            }
        }

        impl Element for $type {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            #[inline(always)]
            fn mul_add(self, x: Self, y: Self) -> Self {
                // Where the machine has no such instruction `mul_add` would call a function.
                if cfg!(target_feature = "fma") { $type::mul_add(self, x, y) } else { self * x + y }
            }
            #[inline(always)]
            fn mul(self, x: Self) -> Self {
                self * x
            }
            #[inline(always)]
            fn add(self, x: Self) -> Self {
                self + x
            }
        }
    };
}

element!(f32);
element!(f64);

/// Vectors of f32 that bf16 becomes as it is read: its bits are the upper half.
///
/// # Safety
/// As for [`Simd`]: `widen` reads `LANES` elements, `widen_part` the first `count`, the other lanes are 0.
pub unsafe trait Widen: Simd<T = f32> {
    unsafe fn widen(from: *const half::bf16) -> Self::V;
    unsafe fn widen_part(from: *const half::bf16, count: usize) -> Self::V;
}

/// The first `count` of so many, then zeros.
///
/// # Safety
/// They are readable.
#[inline(always)]
unsafe fn first<const N: usize>(from: *const half::bf16, count: usize) -> [half::bf16; N] {
    // SAFETY: by the contract.
    std::array::from_fn(|i| if i < count { unsafe { *from.add(i) } } else { half::bf16::ZERO })
}

/// Vectors of one instruction set.
///
/// # Safety
/// Every function needs the instruction set of the implementor on this machine ([`Simd::available`]),
/// and must be inlined into a function compiled for it. `load` and `store` touch `LANES` elements from
/// the pointer, `load_part` and `store_part` the first `count` of them; no alignment is asked for.
pub unsafe trait Simd: Copy + Send + Sync + 'static {
    /// What is in a vector.
    type T: Element;
    /// A register.
    type V: Copy;
    /// Elements of a vector.
    const LANES: usize;
    /// The machine has it.
    fn available() -> bool;
    /// Runs `body` as code compiled for the instruction set.
    unsafe fn vectorize<R>(body: impl FnOnce() -> R) -> R;
    unsafe fn splat(x: Self::T) -> Self::V;
    unsafe fn load(from: *const Self::T) -> Self::V;
    unsafe fn load_part(from: *const Self::T, count: usize) -> Self::V;
    unsafe fn store(to: *mut Self::T, v: Self::V);
    unsafe fn store_part(to: *mut Self::T, v: Self::V, count: usize);
    unsafe fn mul(x: Self::V, y: Self::V) -> Self::V;
    unsafe fn add(x: Self::V, y: Self::V) -> Self::V;
    /// x · y + z.
    unsafe fn fma(x: Self::V, y: Self::V, z: Self::V) -> Self::V;
    /// All lanes added, in a fixed order.
    unsafe fn sum(x: Self::V) -> Self::T;
    /// Eight columns of LANES steps, written as rows that follow one another; `false`, and nothing done, where [`turn`] does
    /// no more than it has to.
    ///
    /// [`turn`]: Simd::turn
    #[inline(always)]
    unsafe fn turn_eight(_: (*const Self::T, isize), _: *mut Self::T) -> bool {
        false
    }
    /// A block of up to LANES columns, each contiguous along its steps and `step` behind the one before, written
    /// as rows `width` apart, `block` wide; columns that are not there are 0.
    #[inline(always)]
    unsafe fn turn(
        (from, step): (*const Self::T, isize),
        (columns, steps): (usize, usize),
        (to, width): (*mut Self::T, usize),
        block: usize,
    ) {
        for s in 0..steps {
            for c in 0..block {
                // SAFETY: the caller gives `columns` columns of `steps` readable elements, and room for the rows.
                unsafe {
                    *to.add(s * width + c) =
                        if c < columns { *from.offset(c as isize * step).add(s) } else { Self::T::ZERO };
                }
            }
        }
    }
    /// Asks for the line at `from`, which need not be readable.
    unsafe fn prefetch(from: *const Self::T);
}

#[cfg(test)]
mod tests {
    use super::Number;
    use half::bf16;

    #[test]
    fn the_nearest_bf16_is_the_nearest() {
        let middle = 1.0 + 2f64.powi(-8);
        for (x, nearest) in [
            (middle, 1.0),
            (middle + 2f64.powi(-23), 1.007_812_5),
            (middle + 2f64.powi(-50), 1.007_812_5),
            (middle - 2f64.powi(-50), 1.0),
            (-middle - 2f64.powi(-40), -1.007_812_5),
            (0.0, 0.0),
            (f64::INFINITY, f64::INFINITY),
        ] {
            assert_eq!(<bf16 as Number>::from_f64(x).to_f64(), nearest, "{x:e}");
        }
        assert!(<bf16 as Number>::from_f64(f64::from_bits(0x7ff0_0000_0000_0001)).to_f64().is_nan());
        // As f32 is rounded, where it is one.
        for bits in (0..u32::MAX - 40_009).step_by(40_009) {
            let x = f32::from_bits(bits);
            let (ours, theirs) = (<bf16 as Number>::from_f64(f64::from(x)), bf16::from_f32(x));
            assert!(ours == theirs || x.is_nan(), "{x:e} {ours} {theirs}");
        }
    }
}
