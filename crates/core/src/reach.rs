//! What a library reaches of the roof, by the alignment of the operands: rows that do not begin at
//! multiples of 16 bytes keep the fast ways of loading a tile out.

use crate::{Call, Chip, DType, Op, Operands, Roof, RoofError, View};

/// Bytes of alignment from which on more gains nothing.
pub const WHOLE: u64 = 16;

/// The least time of a call, and the time that products of its kind were seen to reach.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reach {
    /// At the datasheet's rates; of attention only what a causal mask leaves is counted.
    pub roof: Roof,
    /// At the rates that were reached; `None` where nobody measured such products on the chip.
    pub reached: Option<f64>,
}

impl Reach {
    /// Of one repetition of a call.
    pub fn of(call: &Call, chip: &Chip) -> Result<Reach, RoofError> {
        Reach::aligned(call, alignment(call), chip)
    }

    /// Of one repetition, as if its operands were aligned to so many bytes.
    pub fn aligned(call: &Call, bytes: u64, chip: &Chip) -> Result<Reach, RoofError> {
        let roof = Roof::new(call.flops_causal(), call.bytes(), call.dtype(), chip)?;
        let plain = matches!(call.op, Op::Mm | Op::Addmm | Op::Bmm | Op::Baddbmm) && call.scales.is_none();
        let kept = chip.reached.iter().find(|r| r.peak == Chip::peak_name(call.dtype())).filter(|_| plain);
        let reached = kept.and_then(|kept| {
            let shares = kept.aligned.iter().find(|aligned| aligned.bytes == bytes)?;
            let compute = call.flops() as f64 / (chip.peak(call.dtype())? * shares.compute);
            let memory = call.bytes() as f64 / (chip.bandwidth()? * shares.memory);
            Some(compute.max(memory).max(kept.least_us * 1e-6))
        });
        Ok(Reach { roof, reached })
    }

    /// What can be hoped for: what was reached elsewhere, or the roof where that is not known.
    pub fn seconds(&self) -> f64 {
        self.reached.unwrap_or(self.roof.seconds)
    }
}

/// Elements from one row to the next, where there is more than one.
fn row_steps(view: &View) -> impl Iterator<Item = i64> + '_ {
    (0..view.rank()).filter(|d| view.size[*d] > 1).map(|d| view.stride[d]).filter(|step| *step > 1)
}

fn bytes_of(step: i64, dtype: DType) -> u64 {
    let bytes = step.unsigned_abs().saturating_mul(dtype.bytes().max(1));
    1 << bytes.trailing_zeros().min(WHOLE.trailing_zeros())
}

fn matrices(call: &Call) -> Vec<View> {
    match &call.operands {
        Operands::Product { a, b, out, .. } => vec![*a, *b, *out],
        _ => Vec::new(),
    }
}

/// The power of two, 16 at most, that the bytes from row to row of every operand are a multiple of.
pub fn alignment(call: &Call) -> u64 {
    let views = matrices(call);
    let steps = views.iter().flat_map(|view| row_steps(view).map(|step| bytes_of(step, view.dtype)));
    steps.min().unwrap_or(WHOLE)
}

/// Extents of a product that make the rows of an operand badly aligned, smallest first.
pub fn misaligned_extents(call: &Call) -> Vec<i64> {
    let mut extents: Vec<i64> = matrices(call)
        .iter()
        .flat_map(|view| {
            let bad = row_steps(view).any(|step| bytes_of(step, view.dtype) < WHOLE);
            let inner = (0..view.rank()).find(|d| view.stride[*d] == 1).map(|d| view.size[d]);
            inner.filter(|extent| bad && bytes_of(*extent, view.dtype) < WHOLE)
        })
        .collect();
    extents.sort_unstable();
    extents.dedup();
    extents
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bound, Catalog};

    fn linear(m: i64, n: i64, k: i64) -> Call {
        let view = |size: &[i64]| View::contiguous(size, DType::Bf16);
        let (a, out) = (view(&[m, k]), view(&[m, n]));
        let b = view(&[n, k]).transpose(0, 1);
        Call::once(Op::Mm, Operands::Product { a, b, bias: None, out, alpha: 1.0, beta: 1.0 })
    }

    /// The figures in the catalog are those of the record.
    #[test]
    fn shares_are_medians_of_the_record() {
        let catalog = Catalog::builtin();
        let h200 = catalog.find("h200").unwrap();
        let records = [
            include_str!("../../../benches/h200-cublaslt-2026-11-15/burst.csv"),
            include_str!("../../../benches/h200-alignment-2026-11-16/burst.csv"),
        ];
        let mut shares: std::collections::BTreeMap<(u64, bool), Vec<f64>> = Default::default();
        let mut shortest = f64::INFINITY;
        for line in records
            .iter()
            .flat_map(|record| record.lines())
            .filter(|l| ["TN,", "NN,", "NT,"].iter().any(|layout| l.starts_with(layout)))
        {
            let fields: Vec<&str> = line.split(',').collect();
            let [m, n, k, batch] = [1, 2, 3, 4].map(|i| fields[i].parse::<i64>().unwrap());
            let seconds = fields[6].parse::<f64>().unwrap() * 1e-6;
            let rows = |rows: i64, columns: i64| View::contiguous(&[batch, rows, columns], DType::Bf16);
            let turned = |m: i64, n: i64| rows(n, m).transpose(1, 2);
            let (a, b) = match fields[0] {
                "TN" => (rows(m, k), turned(k, n)),
                "NN" => (rows(m, k), rows(k, n)),
                _ => (turned(m, k), rows(k, n)),
            };
            let operands = Operands::Product { a, b, bias: None, out: rows(m, n), alpha: 1.0, beta: 0.0 };
            let call = Call::once(Op::Bmm, operands);
            let roof = Roof::of(&call, h200).unwrap();
            let kind = (alignment(&call), roof.bound == Bound::Compute);
            shares.entry(kind).or_default().push(roof.seconds / seconds);
            shortest = shortest.min(seconds);
        }
        let median = |mut all: Vec<f64>| {
            all.sort_by(f64::total_cmp);
            f64::midpoint(all[(all.len() - 1) / 2], all[all.len() / 2])
        };
        assert_eq!(shares.values().map(Vec::len).sum::<usize>(), 392);
        let kept = &h200.reached[0];
        assert_eq!(kept.aligned.iter().map(|a| a.bytes).collect::<Vec<_>>(), [16, 8, 4, 2]);
        for aligned in &kept.aligned {
            let found = [true, false].map(|compute| median(shares[&(aligned.bytes, compute)].clone()));
            let rounded = found.map(|share| (share * 1000.0).round() / 1000.0);
            assert_eq!(rounded, [aligned.compute, aligned.memory], "{} bytes", aligned.bytes);
        }
        assert_eq!(shortest, kept.least_us * 1e-6);
    }

    #[test]
    fn the_worst_row_decides() {
        assert_eq!(alignment(&linear(10240, 50304, 2048)), 16);
        assert_eq!(alignment(&linear(10240, 50257, 2048)), 2);
        assert_eq!(alignment(&linear(10240, 50260, 2048)), 8);
        // A single row is followed by none.
        assert_eq!(alignment(&linear(1, 50257, 2048)), 16);
        assert_eq!(misaligned_extents(&linear(7, 50257, 2048)), [50257]);
        assert_eq!(misaligned_extents(&linear(7, 50257, 2047)), [2047, 50257]);
        assert!(misaligned_extents(&linear(7, 50304, 2048)).is_empty());
    }

    #[test]
    fn an_odd_row_costs_what_was_measured() {
        let catalog = Catalog::builtin();
        let h200 = catalog.find("h200").unwrap();
        let reached = |n| Reach::of(&linear(10240, n, 2048), h200).unwrap().reached.unwrap();
        // Measured apart: 19.5 and 2.7 ms.
        assert!((0.015..0.025).contains(&reached(50257)), "{}", reached(50257));
        assert!((0.0025..0.003).contains(&reached(50304)), "{}", reached(50304));
        assert!((0.007..0.0085).contains(&reached(50258)), "{}", reached(50258));
        // No other chip was measured.
        let mi300 = catalog.find("mi300x").unwrap();
        let unknown = Reach::of(&linear(10240, 50304, 2048), mi300).unwrap();
        assert_eq!((unknown.reached, unknown.seconds()), (None, unknown.roof.seconds));
    }
}
