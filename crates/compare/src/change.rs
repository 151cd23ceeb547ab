//! Changes that would save time, the most first.

use crate::comparison::Comparison;
use crate::figure::measured_side;
use gemwright_core::{Call, Chip, Op, Operands, Reach, RoofError, View, WHOLE, alignment, misaligned_extents};

/// What vocabularies and widths are padded to: a whole tile of every kernel.
const PAD: i64 = 64;

/// One change, with what it concerns.
#[derive(Debug, Clone)]
pub struct Change {
    /// What to do.
    pub what: String,
    /// Why it would save.
    pub why: String,
    /// Places among the rows.
    pub rows: Vec<usize>,
    /// Seconds that its products take now.
    pub now: f64,
    /// Seconds they would take; `None` where nobody measured such products on the chip.
    pub then: Option<f64>,
}

impl Change {
    /// Seconds, where they are known.
    pub fn saves(&self) -> Option<f64> {
        self.then.map(|then| self.now - then)
    }
}

/// Changes to what was measured (the second side where both were), most saving first; those whose gain
/// is not known come last.
pub fn changes(comparison: &Comparison, chips: [Option<&Chip>; 2]) -> Result<Vec<Change>, RoofError> {
    let mut found: Vec<Change> = Vec::new();
    let mut extents: Vec<(i64, Vec<usize>)> = Vec::new();
    for (i, row) in comparison.rows.iter().enumerate() {
        let Some((side, seen, taken)) = measured_side(row) else { continue };
        let Some(chip) = chips[side] else { continue };
        let worst = misaligned_extents(&seen.call).pop().filter(|_| alignment(&seen.call) < WHOLE);
        match worst {
            Some(extent) => match extents.iter_mut().find(|(other, _)| *other == extent) {
                Some((_, rows)) => rows.push(i),
                None => extents.push((extent, vec![i])),
            },
            None => found.extend(faster_kernel(i, &seen.call, taken, chip)?),
        }
    }
    for (extent, rows) in extents {
        found.extend(padding(comparison, extent, rows, chips)?);
    }
    found.sort_by(|x, y| y.saves().unwrap_or(-1.0).total_cmp(&x.saves().unwrap_or(-1.0)));
    Ok(found)
}

/// The same product with an extent made longer.
fn padded(call: &Call, from: i64, to: i64) -> Call {
    let longer = |view: &View| {
        let size: Vec<i64> = view.size.iter().map(|n| if *n == from { to } else { *n }).collect();
        let steps: Vec<i64> = view.stride.iter().map(|n| if n % from == 0 { n / from * to } else { *n }).collect();
        View::strided(&size, &steps, view.dtype)
    };
    let mut call = call.clone();
    if let Operands::Product { a, b, bias, out, .. } = &mut call.operands {
        (*a, *b, *out) = (longer(a), longer(b), longer(out));
        *bias = bias.as_ref().map(longer);
    }
    call
}

fn padding(
    comparison: &Comparison,
    extent: i64,
    rows: Vec<usize>,
    chips: [Option<&Chip>; 2],
) -> Result<Option<Change>, RoofError> {
    let to = (extent as u64).next_multiple_of(PAD as u64) as i64;
    let (mut now, mut then, mut flops) = (0.0, Some(0.0), 0.0);
    let mut slowest_to_fastest = (f64::INFINITY, 0.0f64);
    for row in rows.iter().map(|i| &comparison.rows[*i]) {
        let Some((side, seen, taken)) = measured_side(row) else { continue };
        let Some(chip) = chips[side] else { continue };
        let count = seen.call.count as f64;
        now += taken * count;
        flops += seen.call.flops() as f64 * count;
        let rate = seen.call.flops() as f64 / taken;
        slowest_to_fastest = (slowest_to_fastest.0.min(rate), slowest_to_fastest.1.max(rate));
        let reached = Reach::of(&padded(&seen.call, extent, to), chip)?.reached;
        // What runs faster already than others do when aligned will not gain.
        then = then.zip(reached).map(|(sum, reached)| sum + reached.min(taken) * count);
    }
    if then.is_some_and(|then| then >= now) || flops == 0.0 {
        return Ok(None);
    }
    let (slow, fast) = slowest_to_fastest;
    let many = if rows.len() == 1 { "1 product".to_string() } else { format!("{} products", rows.len()) };
    let rates = match (slow * 1e-12, fast * 1e-12) {
        (slow, fast) if fast - slow < 1.0 => format!("{fast:.0}"),
        (slow, fast) => format!("{slow:.0} to {fast:.0}"),
    };
    let how = if extent % 2 == 1 { "odd" } else { "no multiple of 8" };
    let why = format!(
        "{many} with an extent of {extent} run at {rates} TFLOP/s because of a leading dimension that is {how}: rows \
         that are no multiple of 16 bytes keep the fast kernels out"
    );
    Ok(Some(Change { what: format!("pad {extent} to {to}"), why, rows, now, then }))
}

/// Another kernel for one product, where others like it run faster.
fn faster_kernel(row: usize, call: &Call, taken: f64, chip: &Chip) -> Result<Option<Change>, RoofError> {
    let reach = Reach::of(call, chip)?;
    let (now, then) = (taken * call.count as f64, reach.seconds() * call.count as f64);
    if then >= now || call.flops() == 0 {
        return Ok(None);
    }
    let share = format!("{:.0} %", 100.0 * reach.roof.seconds / taken);
    let (what, why) = match (call.op, reach.reached) {
        (Op::Attention | Op::AttentionBackward | Op::Convolution | Op::ConvolutionBackward | Op::GroupedMm, _)
        | (_, None) => ("bring it nearer to the roof", format!("it runs at {share} of the roof")),
        (_, Some(reached)) => {
            let usual = 100.0 * reach.roof.seconds / reached;
            ("tune it", format!("it runs at {share} of the roof, where {usual:.0} % are usual for such products"))
        }
    };
    Ok(Some(Change { what: what.into(), why, rows: vec![row], now, then: Some(then) }))
}
