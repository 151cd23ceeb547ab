//! Whether a check that was asked for failed.

use crate::comparison::{Comparison, Difference};
use crate::figure::figures;
use gemwright_core::{Chip, RoofError};

/// What counts as a failure.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FailOn {
    /// Rows that differ in one of these ways.
    pub differences: Vec<Difference>,
    /// The second side slower than the first by more than this share.
    pub slower: Option<f64>,
    /// The measured side under this share of the roof, all products together.
    pub under: Option<f64>,
}

/// A product's part of the time from which on its being slower alone counts.
const WORTH: f64 = 0.01;

/// Why the check failed, one sentence each; none: it passed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdict {
    /// The sentences.
    pub failures: Vec<String>,
}

impl Verdict {
    /// Of a comparison.
    pub fn of(comparison: &Comparison, fail_on: &FailOn, chips: [Option<&Chip>; 2]) -> Result<Verdict, RoofError> {
        let mut failures = Vec::new();
        for kind in &fail_on.differences {
            let rows = comparison.differences().filter(|(_, difference)| difference == kind).count();
            if rows > 0 {
                let what = match kind {
                    Difference::Missing => "only the first side has",
                    Difference::New => "only the second side has",
                    Difference::Count => "counts differ of",
                };
                failures.push(format!("{what} {rows} {}", if rows == 1 { "product" } else { "products" }));
            }
        }
        if let Some(limit) = fail_on.slower {
            failures.extend(slower(comparison, limit, chips)?);
        }
        if let Some(limit) = fail_on.under {
            failures.extend(under(comparison, limit, chips)?);
        }
        Ok(Verdict { failures })
    }
}

fn slower(comparison: &Comparison, limit: f64, chips: [Option<&Chip>; 2]) -> Result<Vec<String>, RoofError> {
    let mut times = Vec::new();
    for row in &comparison.rows {
        let (figures, call) = (figures(row, chips)?, row.call());
        if let [Some(a), Some(b)] = figures.measured {
            times.push((a * call.count as f64, b * call.count as f64, call));
        }
    }
    let (all_a, all_b) = times.iter().fold((0.0, 0.0), |(x, y), (a, b, _)| (x + a, y + b));
    if times.is_empty() {
        return Ok(vec!["no product was measured on both sides, so none can be held to --fail-on slower".into()]);
    }
    let is_slower = |a: f64, b: f64| b > a * (1.0 + limit);
    let more = |a: f64, b: f64| format!("{:.1} % slower", 100.0 * (b / a - 1.0));
    let mut failures = Vec::new();
    if is_slower(all_a, all_b) {
        failures.push(format!("all products together are {}", more(all_a, all_b)));
    }
    for (a, b, call) in times.iter().filter(|(a, b, _)| is_slower(*a, *b) && *b >= WORTH * all_b) {
        let extents = call.product().map_or(String::new(), |p| format!(" {}x{}x{}", p.m, p.n, p.k));
        failures.push(format!("{}{extents} is {}", call.op.name(), more(*a, *b)));
    }
    Ok(failures)
}

fn under(comparison: &Comparison, limit: f64, chips: [Option<&Chip>; 2]) -> Result<Vec<String>, RoofError> {
    let (mut least, mut taken) = (0.0, 0.0);
    for row in &comparison.rows {
        let figures = figures(row, chips)?;
        let side = usize::from(figures.measured[1].is_some());
        if let (Some(measured), Some(roof), Some(seen)) =
            (figures.measured[side], figures.least[side], &row.sides[side])
        {
            least += roof * seen.call.count as f64;
            taken += measured * seen.call.count as f64;
        }
    }
    if taken == 0.0 {
        return Ok(vec!["nothing was measured on a known chip, so nothing can be held to --fail-under".into()]);
    }
    let share = least / taken;
    let percent = |x: f64| format!("{:.1} %", 100.0 * x);
    Ok((share < limit)
        .then(|| format!("the products run at {} of the roof, under {}", percent(share), percent(limit)))
        .into_iter()
        .collect())
}
