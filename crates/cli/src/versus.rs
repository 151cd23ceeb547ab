//! A variant of a model beside the plain one: totals, and the gain at the roof.

use crate::error::Error;
use gemwright_core::{Chip, CollectiveKind, Summary, Totals, Workload};
use gemwright_model::Prediction;
use gemwright_report as report;
use serde_json::{Value, json};

/// What is compared of one side.
struct Side {
    totals: Totals,
    weights: u128,
    cache: Option<u128>,
    seconds: Option<f64>,
}

impl Side {
    fn of(prediction: &Prediction, chip: Option<&Chip>) -> Result<Side, Error> {
        let seconds = match chip {
            Some(chip) => Some(Summary::of(&prediction.workload, chip)?.seconds),
            None => None,
        };
        let totals = Totals::of(prediction.workload.calls());
        Ok(Side { totals, weights: prediction.weight_bytes, cache: prediction.cache_bytes, seconds })
    }

    fn json(&self) -> Value {
        json!({
            "calls": self.totals.calls,
            "flops": self.totals.flops as f64,
            "bytes": self.totals.bytes as f64,
            "weight_bytes": self.weights as f64,
            "cache_bytes": self.cache.map(|b| b as f64),
            "seconds": self.seconds,
        })
    }
}

/// Both sides.
pub struct Versus {
    variant: Side,
    plain: Side,
}

impl Versus {
    /// A variant beside the plain model; with a chip, at its roof.
    pub fn of(variant: &Prediction, plain: &Prediction, chip: Option<&Chip>) -> Result<Versus, Error> {
        Ok(Versus { variant: Side::of(variant, chip)?, plain: Side::of(plain, chip)? })
    }

    /// How many times as fast the variant could be; needs a chip.
    pub fn gain(&self) -> Option<f64> {
        let (variant, plain) = (self.variant.seconds?, self.plain.seconds?);
        (variant > 0.0).then_some(plain / variant)
    }

    pub fn json(&self) -> Value {
        json!({"plain": self.plain.json(), "variant": self.variant.json(), "gain": self.gain()})
    }

    /// Lines of the two sides and their ratio.
    pub fn lines(&self) -> Vec<String> {
        let row = |name: &str, sides: [f64; 2], shown: &dyn Fn(f64) -> String| {
            let ratio = if sides[1] > 0.0 { report::significant(sides[0] / sides[1], 3) } else { "-".into() };
            format!("  {name:<12}{:>14}{:>14}{:>9}", shown(sides[0]), shown(sides[1]), ratio)
        };
        let both = |of: &dyn Fn(&Side) -> f64| [of(&self.variant), of(&self.plain)];
        let bytes = |b: f64| report::bytes(b as u128);
        let mut lines = vec![
            format!("  {:<12}{:>14}{:>14}{:>9}", "", "variant", "plain", "ratio"),
            row("calls", both(&|s| s.totals.calls as f64), &|n| format!("{n}")),
            row("FLOPs", both(&|s| s.totals.flops as f64), &|n| report::flops(n as u128)),
            row("bytes", both(&|s| s.totals.bytes as f64), &bytes),
            row("weights", both(&|s| s.weights as f64), &bytes),
        ];
        if self.plain.cache.is_some() {
            lines.push(row("cache", both(&|s| s.cache.unwrap_or(0) as f64), &bytes));
        }
        if self.plain.seconds.is_some() {
            lines.push(row("least time", both(&|s| s.seconds.unwrap_or(0.0)), &report::seconds));
        }
        lines
    }
}

/// What ranks exchange in all, as one line a kind.
pub fn exchanged(workload: &Workload) -> Vec<String> {
    let of = |kind: CollectiveKind| {
        let all = workload.collectives.iter().filter(move |c| c.kind == kind);
        all.fold((0, 0), |(count, bytes), c| (count + c.count, bytes + c.bytes * u128::from(c.count)))
    };
    [CollectiveKind::AllReduce, CollectiveKind::AllGather]
        .into_iter()
        .map(|kind| (kind, of(kind)))
        .filter(|(_, (count, _))| *count > 0)
        .map(|(kind, (count, bytes))| format!("{:<13}{count} times, {} in all", kind.name(), report::bytes(bytes)))
        .collect()
}
