//! What the pages of several commands have in common.

use crate::error::Error;
use crate::output::write_file;
use gemwright_core::{Call, Chip, DType};
use gemwright_report::{self as report, Measure, PagePoint, PlotChip};
use std::collections::HashMap;
use std::path::Path;

/// Lines of a list at the side.
const LINES: usize = 8;

/// A chip's roof; `None` where its numbers are not on record.
pub fn plot_chip(chip: &Chip, dtype: DType) -> Option<PlotChip> {
    Some(PlotChip { name: chip.name.clone(), peak: chip.peak(dtype)?, bandwidth: chip.bandwidth()? })
}

/// A picture as the end of its name says.
pub fn write_picture(path: &Path, svg: &str) -> Result<(), Error> {
    match path.extension().and_then(|end| end.to_str()) {
        Some("svg") => write_file(path, svg.as_bytes()),
        Some("png") => write_file(path, &report::png(svg)),
        _ => Err(Error::Usage(format!("--plot {}: the name must end in .svg or .png", path.display()))),
    }
}

/// A call that takes so many seconds each time; `None` where it cannot be drawn.
pub fn point(call: &Call, name: String, detail: String, seconds: f64) -> Option<PagePoint> {
    let (speed, intensity) = (call.flops() as f64 / seconds, call.intensity());
    let drawn = seconds > 0.0 && speed.is_finite() && speed > 0.0 && intensity.is_finite() && intensity > 0.0;
    drawn.then(|| PagePoint {
        filter: name.clone(),
        name,
        detail,
        count: call.count as f64,
        ms: seconds * call.count as f64 * 1e3,
        intensity,
        speed,
        roof: None,
        lost: 0.0,
        colour: 0,
    })
}

/// Seconds by caption, the most first.
pub fn measures(of: impl Iterator<Item = (String, f64)>) -> Vec<Measure> {
    let mut sums: HashMap<String, f64> = HashMap::new();
    for (caption, seconds) in of {
        *sums.entry(caption).or_default() += seconds;
    }
    let mut sums: Vec<(String, f64)> = sums.into_iter().filter(|(_, seconds)| *seconds > 0.0).collect();
    sums.sort_by(|x, y| y.1.total_cmp(&x.1).then_with(|| x.0.cmp(&y.0)));
    let most = sums.first().map_or(1.0, |first| first.1);
    let line =
        |(caption, seconds): (String, f64)| Measure { caption, text: report::seconds(seconds), share: seconds / most };
    sums.into_iter().take(LINES).map(line).collect()
}
