//! The plot of a page: axes, curves and dots, ready to be drawn.

use super::data::short;
use crate::number::significant;
use crate::roofline::PlotChip;
use serde_json::{Value, json};

/// An axis; `low` and `high` are values, not their logarithms.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct Axis {
    pub caption: String,
    pub low: f64,
    pub high: f64,
    pub scale: Scale,
}

/// How an axis counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Scale {
    Logarithmic,
    /// Of 1.
    Percent,
}

/// A line: a chip's roof, or what the dots of a kind are on average.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct Curve {
    pub name: String,
    pub points: Vec<(f64, f64)>,
    /// The dots that come and go with it.
    pub kind: Option<usize>,
}

/// Something that was measured or predicted.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct Dot {
    pub x: f64,
    pub y: f64,
    /// Its area against that of the largest, 0 to 1.
    pub area: f64,
    /// By number: its colour.
    pub kind: usize,
    /// What is said beside it, by line.
    pub words: Vec<String>,
    /// What finds its rows in the tables.
    pub filter: String,
}

/// A plot.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct Plot {
    pub heading: String,
    /// What is said where there is nothing to draw.
    pub empty: String,
    /// What it shows, for who cannot see it.
    pub about: String,
    pub x: Axis,
    pub y: Axis,
    pub curves: Vec<Curve>,
    pub dots: Vec<Dot>,
    /// Names of the dots' kinds.
    pub kinds: Vec<String>,
}

/// An operation of a roofline.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct PagePoint {
    pub name: String,
    pub detail: String,
    /// What finds its rows in the tables.
    pub filter: String,
    pub count: f64,
    /// Milliseconds in all.
    pub ms: f64,
    pub intensity: f64,
    /// FLOP/s.
    pub speed: f64,
    /// Percent of the roof, and milliseconds that are lost to it.
    pub roof: Option<f64>,
    pub lost: f64,
    /// Kind of operation, by number.
    pub colour: usize,
}

impl PagePoint {
    fn words(&self) -> Vec<String> {
        let round = |value: f64| significant(value, 4);
        let mut words = vec![self.name.clone(), self.detail.clone()];
        words.retain(|word| !word.is_empty());
        words.push(format!("{} ms in all, {} times", round(self.ms), self.count));
        words.push(format!("{} TFLOP/s at {} FLOP/B", round(self.speed * 1e-12), round(self.intensity)));
        if let Some(roof) = self.roof {
            let roof = significant(roof, 3);
            words.push(format!("{roof} % of the roof, {} ms could be saved", round(self.lost)));
        }
        words
    }
}

/// Whole decades around all values.
fn decades(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) = values
        .filter(|value| value.is_finite() && *value > 0.0)
        .fold((f64::INFINITY, 0.0f64), |(low, high), value| (low.min(value), high.max(value)));
    if low > high {
        return (1.0, 10.0);
    }
    let (low, high) = (10f64.powf(low.log10().floor()), 10f64.powf(high.log10().ceil()));
    (low, if low < high { high } else { low * 10.0 })
}

impl Plot {
    /// Operations under the roofs of chips.
    pub fn roofline(chips: &[PlotChip], points: &[PagePoint], kinds: Vec<String>) -> Plot {
        let ridges = || chips.iter().map(|chip| chip.peak / chip.bandwidth);
        let (left, right) =
            decades(points.iter().map(|p| p.intensity).chain(ridges()).chain(ridges().map(|r| r * 4.0)));
        let (bottom, top) = decades(points.iter().map(|p| p.speed).chain(chips.iter().map(|chip| chip.peak)));
        let roof = |chip: &PlotChip| {
            let low = left.max(bottom / chip.bandwidth);
            let ridge = chip.peak / chip.bandwidth;
            let points = vec![(low, low * chip.bandwidth), (ridge, chip.peak), (right, chip.peak)];
            Curve { name: chip.name.clone(), points, kind: None }
        };
        let most = points.iter().map(|point| point.ms).fold(0.0, f64::max);
        let dot = |point: &PagePoint| Dot {
            x: point.intensity,
            y: point.speed,
            area: point.ms / most,
            kind: point.colour,
            words: point.words(),
            filter: point.filter.clone(),
        };
        let axis = |caption: &str, low, high| Axis { caption: caption.into(), low, high, scale: Scale::Logarithmic };
        Plot {
            heading: "Roofline".into(),
            empty: "No operation has both a cost model and a chip to hold it against.".into(),
            about: format!("Roofline: a circle for each of {} operations, larger for more time.", points.len()),
            x: axis("FLOPs per byte", left, right),
            y: axis("FLOP/s", bottom, top),
            curves: chips.iter().map(roof).collect(),
            dots: points.iter().map(dot).collect(),
            kinds,
        }
    }
}

impl Default for Plot {
    fn default() -> Plot {
        Plot::roofline(&[], &[], Vec::new())
    }
}

/// Decades of an axis that are all labelled.
const MOST_DECADES: usize = 10;

/// A number with a letter for its thousands.
fn si(value: f64) -> String {
    let step = ((value.log10() / 3.0 + 1e-9).floor().max(0.0) as usize).min(6);
    let letter = ["", "k", "M", "G", "T", "P", "E"][step];
    // Ticks are round numbers: as many digits as they need.
    let digits = format!("{:.9}", value / 1000f64.powi(step as i32));
    format!("{} {letter}", digits.trim_end_matches('0').trim_end_matches('.')).trim_end().to_string()
}

impl Axis {
    fn ticks(&self) -> Vec<(f64, String)> {
        match self.scale {
            Scale::Logarithmic => {
                let first = self.low.log10().ceil() as i32;
                let last = self.high.log10().floor() as i32;
                // More labels would run into one another.
                let every = (last - first).max(0) as usize / MOST_DECADES + 1;
                (first..=last).step_by(every).map(|e| 10f64.powi(e)).map(|value| (value, si(value))).collect()
            }
            Scale::Percent => {
                let (first, last) = ((self.low * 5.0).ceil() as i64, (self.high * 5.0).floor() as i64);
                (first..=last).map(|fifth| (fifth as f64 / 5.0, format!("{} %", fifth * 20))).collect()
            }
        }
    }

    fn json(&self) -> Value {
        json!({
            "caption": self.caption, "low": self.low, "high": self.high, "log": self.scale == Scale::Logarithmic,
            "ticks": self.ticks(),
        })
    }
}

impl Plot {
    /// As the script reads it.
    pub(super) fn json(&self) -> Value {
        let dots = self.dots.iter().map(|dot| {
            json!({
                "x": short(dot.x), "y": short(dot.y), "area": short(dot.area), "kind": dot.kind,
                "words": dot.words.join("\n"), "filter": dot.filter,
            })
        });
        let curves = self.curves.iter().map(|c| json!({"name": c.name, "points": c.points, "kind": c.kind}));
        json!({
            "x": self.x.json(), "y": self.y.json(), "curves": curves.collect::<Vec<_>>(),
            "dots": dots.collect::<Vec<_>>(), "kinds": self.kinds,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_hold_everything_in_whole_decades() {
        let chip = PlotChip { name: "a chip".into(), peak: 900e12, bandwidth: 3e12 };
        let point = PagePoint {
            name: "mm".into(),
            detail: String::new(),
            filter: "mm".into(),
            count: 2.0,
            ms: 3.0,
            intensity: 0.5,
            speed: 2e9,
            roof: Some(12.3456),
            lost: 1.0,
            colour: 0,
        };
        let plot = Plot::roofline(&[chip], &[point], vec!["GEMM".into()]);
        assert_eq!((plot.x.low, plot.x.high, plot.y.low, plot.y.high), (0.1, 10000.0, 1e9, 1e15));
        // A roof begins inside the plot: at its left end or at its bottom.
        let (x, y) = plot.curves[0].points[0];
        assert!(x >= plot.x.low && (y >= plot.y.low));
        assert_eq!(plot.y.ticks().iter().map(|t| t.1.as_str()).collect::<Vec<_>>()[..3], ["1 G", "10 G", "100 G"]);
        assert!(
            plot.dots[0].words.contains(&"12.3 % of the roof, 1.000 ms could be saved".to_string()),
            "{:?}",
            plot.dots[0].words
        );
        assert_eq!(Plot::default().x.ticks().len(), 2);
    }
}
