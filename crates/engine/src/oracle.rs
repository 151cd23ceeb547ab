//! What a result must be, in higher precision, and how far from it a candidate may stay: bounds that follow from the
//! number of terms, the element types and the steps of the epilogue.

use crate::contract::Fusion;
use crate::epilogue::{Part, Parts};
use crate::problem::Problem;
use gemwright_core::DType;
use gemwright_cpu::half::bf16;
use gemwright_cpu::{STEEPEST, UNITS, activation};

/// A value, and how far from it an honest result may be.
#[derive(Debug, Clone, Copy)]
pub struct Expected {
    pub value: f64,
    pub bound: f64,
}

/// Units of the last place: of the type of sums, and half of one of the result's where that is shorter.
#[derive(Debug, Clone, Copy)]
pub struct Units {
    pub sums: f64,
    pub rounding: f64,
}

impl Units {
    /// Of a problem's types.
    pub fn of(problem: &Problem) -> Units {
        let short = Units { sums: f64::from(f32::EPSILON), rounding: 0.0 };
        match (problem.dtype, problem.out_dtype) {
            (DType::F64, _) => Units { sums: f64::EPSILON, ..short },
            (_, DType::Bf16) => Units { rounding: f64::from(bf16::EPSILON) / 2.0, ..short },
            _ => short,
        }
    }
}

impl Expected {
    /// alpha · sum + beta · old, for any order of summation.
    pub fn sum(problem: &Problem, terms: impl Iterator<Item = (f64, f64)>, old: f64, units: &Units) -> Expected {
        let (sum, size) = exact(terms);
        let value = problem.alpha * sum + problem.beta * old;
        let size = problem.alpha.abs() * size + (problem.beta * old).abs();
        Expected { value, bound: (problem.product.k as f64 + 4.0) * units.sums * size }
    }

    /// What the problem's epilogue makes of it.
    pub fn finished(self, problem: &Problem, parts: &Parts<f64>, fusion: Fusion, units: &Units) -> Expected {
        if problem.epilogue.is_none() {
            return self.rounded(units.rounding);
        }
        let mut so_far = if fusion == Fusion::Split { self.rounded(units.rounding) } else { self };
        for part in &Part::ALL[..2] {
            so_far = so_far.with(*part, parts, units.sums);
        }
        so_far = so_far.activated(problem, units.sums);
        for part in &Part::ALL[2..] {
            so_far = so_far.with(*part, parts, units.sums);
        }
        so_far.rounded(units.rounding)
    }

    fn with(self, part: Part, parts: &Parts<f64>, unit: f64) -> Expected {
        let Some(y) = parts[part as usize] else { return self };
        let (value, bound) = match part {
            Part::Scale | Part::Times => (self.value * y, self.bound * y.abs()),
            Part::Bias | Part::Residual => (self.value + y, self.bound),
        };
        Expected { value, bound }.rounded(unit)
    }

    fn activated(self, problem: &Problem, unit: f64) -> Expected {
        let value = activation(problem.epilogue.activation, self.value);
        let size = value.abs().max(self.value.abs() + self.bound);
        Expected { value, bound: STEEPEST * self.bound + UNITS * unit * size }
    }

    fn rounded(self, unit: f64) -> Expected {
        Expected { bound: self.bound + unit * (self.value.abs() + self.bound), ..self }
    }
}

/// The sum of products in about twice the precision of f64, and the sum of their sizes.
fn exact(terms: impl Iterator<Item = (f64, f64)>) -> (f64, f64) {
    let (mut high, mut low, mut size) = (0f64, 0f64, 0f64);
    for (x, y) in terms {
        let product = x * y;
        let rest = x.mul_add(y, -product);
        let sum = high + product;
        let part = sum - high;
        let lost = (high - (sum - part)) + (product - part);
        high = sum;
        low += lost + rest;
        size += product.abs();
    }
    (high + low, size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_keep_what_rounding_would_lose() {
        let terms = [(1e16, 1.0), (1.0, 1.0), (-1e16, 1.0), (1.0 + f64::EPSILON, 1.0 - f64::EPSILON)];
        let plain: f64 = terms.iter().map(|(x, y)| x * y).sum();
        let (sum, _) = exact(terms.into_iter());
        assert_eq!((plain, sum), (1.0, 2.0));
    }
}
