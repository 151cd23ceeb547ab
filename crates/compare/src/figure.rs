//! A row held against the chips it runs on.

use crate::comparison::Row;
use crate::seen::Seen;
use gemwright_core::{Bound, Chip, Reach, RoofError, WHOLE};

/// Times of one repetition in seconds, each side's own.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Figures {
    /// Where it ran.
    pub measured: [Option<f64>; 2],
    /// The least time on the side's chip; of attention what a causal mask leaves.
    pub least: [Option<f64>; 2],
    /// What holds it there, on the second side's chip, else the first's.
    pub bound: Option<Bound>,
    /// Share of the roof that the measured side reaches: the second's, else the first's.
    pub of_roof: Option<f64>,
    /// Second by first: of measured times where both ran, else of what there is.
    pub ratio: Option<f64>,
    /// What all repetitions of the measured side took beyond what can be reached.
    pub recoverable: Option<f64>,
}

impl Figures {
    /// Measured, or the least.
    pub fn time(&self, side: usize) -> Option<f64> {
        self.measured[side].or(self.least[side])
    }
}

/// The measured side: the second where both are.
pub(crate) fn measured_side(row: &Row) -> Option<(usize, &Seen, f64)> {
    let of = |side: usize| row.sides[side].as_ref().and_then(|seen| seen.seconds().map(|s| (side, seen, s)));
    of(1).or_else(|| of(0))
}

/// The figures of a row; without a chip there is no roof.
pub fn figures(row: &Row, chips: [Option<&Chip>; 2]) -> Result<Figures, RoofError> {
    let mut figures = Figures::default();
    for side in [0, 1] {
        let Some(seen) = &row.sides[side] else { continue };
        figures.measured[side] = seen.seconds();
        if let Some(chip) = chips[side] {
            let roof = Reach::of(&seen.call, chip)?.roof;
            figures.least[side] = Some(roof.seconds);
            figures.bound = Some(roof.bound);
        }
    }
    if let Some((side, seen, taken)) = measured_side(row)
        && let Some(chip) = chips[side]
    {
        // Bad alignment can be cured, so what it costs can be recovered.
        let reach = Reach::aligned(&seen.call, WHOLE, chip)?;
        figures.of_roof = Some(reach.roof.seconds / taken);
        figures.recoverable = Some((taken - reach.seconds()).max(0.0) * seen.call.count as f64);
    }
    let pair = figures.time(0).zip(figures.time(1)).filter(|(a, _)| *a > 0.0);
    figures.ratio = pair.map(|(a, b)| b / a);
    Ok(figures)
}
