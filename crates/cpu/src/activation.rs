//! Activations in f32 and f64. Those of f32 are sums, products and quotients alone, so that loops over them become vectors of
//! whatever the machine has, with the same bits everywhere.

use crate::simd::Element;
use gemwright_core::Activation;

/// A number that activations are computed in.
pub trait Real: Element + std::ops::Add<Output = Self> + std::ops::Mul<Output = Self> {
    /// Numbers that are worked on together.
    fn activate<const N: usize>(activation: Activation, x: &mut [Self; N]);
}

impl Real for f32 {
    #[inline(always)]
    fn activate<const N: usize>(activation: Activation, x: &mut [f32; N]) {
        match activation {
            Activation::None => {}
            Activation::Relu => every(x, relu),
            Activation::GeluTanh => every(x, gelu_tanh),
            Activation::GeluErf => every(x, gelu_erf),
            Activation::Silu => every(x, silu),
        }
    }
}

impl Real for f64 {
    #[inline(always)]
    fn activate<const N: usize>(activation: Activation, x: &mut [f64; N]) {
        every(x, |x| exact(activation, x));
    }
}

/// A loop of its own: what the library has for arrays is compiled for any machine, and not for vectors.
#[inline(always)]
pub fn every<R: Copy, const N: usize>(x: &mut [R; N], f: impl Fn(R) -> R) {
    for x in x {
        *x = f(*x);
    }
}

/// In the precision of f64.
pub fn exact(activation: Activation, x: f64) -> f64 {
    match activation {
        Activation::None => x,
        Activation::Relu => {
            if x < 0.0 {
                0.0
            } else {
                x
            }
        }
        Activation::GeluTanh => {
            let outer = (2.0 / std::f64::consts::PI).sqrt();
            x / (1.0 + libm::exp(-2.0 * outer * x * (1.0 + 0.044715 * x * x)))
        }
        // The tail without what 1 + erf would lose.
        Activation::GeluErf => 0.5 * x * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2),
        Activation::Silu => x / (1.0 + libm::exp(-x)),
    }
}

/// Of GELU's approximation: the square root of 2 / pi, and the factor of the cube.
const OUTER: f32 = 0.797_884_6;
const CUBIC: f32 = 0.044_715;

/// NaN stays.
#[inline(always)]
fn relu(x: f32) -> f32 {
    if x < 0.0 { 0.0 } else { x }
}

/// x (1 + tanh u) / 2 is x over 1 + exp(-2u), which loses nothing where tanh is near -1.
#[inline(always)]
fn gelu_tanh(x: f32) -> f32 {
    let u = OUTER * x * (1.0 + CUBIC * x * x);
    x / (1.0 + exp(-2.0 * u))
}

#[inline(always)]
fn silu(x: f32) -> f32 {
    x / (1.0 + exp(-x))
}

#[inline(always)]
fn gelu_erf(x: f32) -> f32 {
    0.5 * x * (1.0 + erf(x * std::f32::consts::FRAC_1_SQRT_2))
}

/// Where the result is still a normal number.
const LEAST: f32 = -87.0;
const MOST: f32 = 88.0;
/// Added to a number below 2^22 it leaves the nearest integer in the last bits.
const ROUNDS: f32 = 12_582_912.0;
/// The logarithm of 2 in two parts, the first with zeros at its end: its multiples are exact.
const LN2_HIGH: f32 = 0.693_359_4;
const LN2_LOW: f32 = -2.121_944_4e-4;
/// exp(r) for |r| <= ln 2 / 2, the powers from 0 on.
const EXP: [f32; 7] = [1.0, 1.0, 0.5, 0.166_666_67, 0.041_666_668, 0.008_333_334, 0.001_388_889];

/// 2^n · exp(r) with x = n · ln 2 + r; what would not be a normal number is the last that is.
#[inline(always)]
fn exp(x: f32) -> f32 {
    let x = x.clamp(LEAST, MOST);
    let shifted = x * std::f32::consts::LOG2_E + ROUNDS;
    let n = shifted - ROUNDS;
    let r = x - n * LN2_HIGH - n * LN2_LOW;
    // n stands in the last bits of `shifted`, and comes to the exponent's place.
    f32::from_bits(series(EXP, r).to_bits().wrapping_add(shifted.to_bits() << 23))
}

/// erf(z) / z is a quotient in z², within 2.5e-8 of it up to 4, where erf is 1 in f32; fitted to least relative error.
const ERF_OVER: [f32; 6] =
    [std::f32::consts::FRAC_2_SQRT_PI, 0.193_543_51, 0.053_101_543, 0.003_883_277_5, 2.845_644_2e-4, 1.986_794_4e-6];
const ERF_UNDER: [f32; 6] = [1.0, 0.504_856_05, 0.115_349_36, 0.015_207_118, 0.001_185_555, 3.742_022e-5];

#[inline(always)]
fn erf(z: f32) -> f32 {
    let z = z.clamp(-4.0, 4.0);
    z * series(ERF_OVER, z * z) / series(ERF_UNDER, z * z)
}

/// A polynomial, from its constant on.
#[inline(always)]
fn series<const N: usize>(powers: [f32; N], x: f32) -> f32 {
    powers.into_iter().rev().reduce(|sum, power| sum * x + power).unwrap_or(0.0)
}

/// How far an activation in f32 may be from the exact one, in units of f32's epsilon times the larger of argument and
/// result: what the polynomials and their roundings come to, with room.
pub const UNITS: f64 = 8.0;
/// No activation is steeper.
pub const STEEPEST: f64 = 1.13;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn activations_are_as_near_as_they_say() {
        for activation in Activation::ALL {
            let (mut worst, mut steepest) = (0f64, 0f64);
            for i in -400_000..=400_000 {
                let x = i as f32 * 2.5e-4;
                let mut got = [x];
                f32::activate(activation, &mut got);
                let want = exact(activation, f64::from(x));
                let size = f64::from(x).abs().max(want.abs()).max(1e-30);
                worst = worst.max((f64::from(got[0]) - want).abs() / size / f64::from(f32::EPSILON));
                let step = 1e-5;
                steepest = steepest.max((exact(activation, f64::from(x) + step) - want).abs() / step);
            }
            assert!(worst < UNITS / 2.0, "{}: {worst}", activation.name());
            assert!(steepest < STEEPEST, "{}: {steepest}", activation.name());
        }
    }

    #[test]
    fn what_is_no_number_stays_so_and_the_far_ends_are_finite() {
        for activation in Activation::ALL {
            let mut ends = [f32::NAN, 1e30, -1e3];
            f32::activate(activation, &mut ends);
            let [nan, far, low] = ends;
            assert!(nan.is_nan() && far == 1e30 && low.abs() < 1e-30, "{} {far} {low}", activation.name());
        }
    }
}
