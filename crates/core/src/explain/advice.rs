//! What would make the product faster, each with the gain it predicts.

use super::words::{Page, time, wide_load};
use super::{Happening, cost};
use crate::blas::LeafOp;
use crate::{Bound, Call, Chip, Product, Roof, Waves};

/// One sentence for each thing that would help; nothing where nothing would.
pub(super) fn advice(page: &Page, call: &Call) -> Vec<String> {
    let Some(product) = call.product() else { return Vec::new() };
    if product.flops() == 0 {
        return Vec::new();
    }
    let mut lines = Vec::new();
    let mut at_its_best = !page.chips.is_empty();
    for chip in page.chips {
        let Ok(roof) = Roof::of(call, chip) else {
            at_its_best = false;
            continue;
        };
        let on = Target { call, product, chip, roof };
        at_its_best &= on.is_at_its_best();
        lines.extend(on.more_rows());
        lines.extend(on.fusion(&page.subject.module));
        lines.extend(on.whole_waves());
        lines.extend(on.copies(page));
    }
    lines.extend(padding(&product, call));
    if lines.is_empty() && at_its_best {
        lines.push("Nothing that extents or layout could give: it is bound by arithmetic and fills its waves.".into());
    }
    lines
}

struct Target<'a> {
    call: &'a Call,
    product: Product,
    chip: &'a Chip,
    roof: Roof,
}

impl Target<'_> {
    fn seconds(&self, product: &Product) -> f64 {
        let (flops, bytes) = cost(product, self.call);
        Roof::new(flops, bytes, self.call.dtype(), self.chip).map_or(f64::NAN, |r| r.seconds)
    }

    fn is_at_its_best(&self) -> bool {
        let waves = Waves::best(&self.product, self.chip, self.call.dtype());
        self.roof.bound == Bound::Compute && waves.is_some_and(|w| w.efficiency > 0.9)
    }

    /// A product bound by memory reads its weight once, however many rows share it.
    fn more_rows(&self) -> Option<String> {
        let Product { batch, m, n, k } = self.product;
        if self.roof.bound != Bound::Memory || batch > 1 || m >= n.min(k) {
            return None;
        }
        let enough = (m..=1 << 16).find(|&rows| {
            let (flops, bytes) = cost(&Product { m: rows, ..self.product }, self.call);
            Roof::new(flops, bytes, self.call.dtype(), self.chip).is_ok_and(|r| r.bound == Bound::Compute)
        })?;
        let then = self.seconds(&Product { m: enough, ..self.product });
        let per_row = self.roof.seconds / m as f64;
        let gain = per_row / (then / enough as f64);
        Some(format!(
            "{}: more rows. The {k} x {n} operand is read once for all of them: at M = {enough} the arithmetic takes as long, and a row \
             costs {} instead of {} ({gain:.1} times less).",
            self.chip.name,
            time(then / enough as f64),
            time(per_row)
        ))
    }

    /// Projections that read the same input can be one product.
    fn fusion(&self, module: &str) -> Option<String> {
        let last = module.rsplit('.').next().unwrap_or("");
        let (parts, what) = match last {
            "q_proj" | "k_proj" | "v_proj" | "query" | "key" | "value" => (3, "q, k and v"),
            "gate_proj" | "up_proj" => (2, "gate and up"),
            _ => return None,
        };
        if self.product.batch > 1 {
            return None;
        }
        // Of equal widths; where the key heads are fewer the product is narrower, the calls as few.
        let fused = Product { n: parts * self.product.n, ..self.product };
        let (apart, together) = (parts as f64 * self.roof.seconds, self.seconds(&fused));
        let gain = (1.0 - together / apart) * 100.0;
        let widths = if parts == 3 { " (taken as wide as this one)" } else { "" };
        Some(format!(
            "{}: {what} in one product{widths}: {parts} calls become one with N = {}, the input is read once: {} instead of {} at \
             least ({gain:.1} % less), and {} fewer.",
            self.chip.name,
            fused.n,
            time(together),
            time(apart),
            plural(parts - 1, "launch")
        ))
    }

    /// A last wave that is nearly empty costs as much as a full one.
    fn whole_waves(&self) -> Option<String> {
        let best = |product: &Product| Waves::best(product, self.chip, self.call.dtype());
        let waves = best(&self.product)?;
        if self.roof.bound != Bound::Compute || waves.efficiency > 0.9 {
            return None;
        }
        let Product { m, .. } = self.product;
        let then = (m..(2 * m).min(m + 4096))
            .filter_map(|rows| best(&Product { m: rows, ..self.product }).map(|w| (rows, w)))
            .find(|(_, w)| w.efficiency > 0.95)?;
        let (better, then) = then;
        let gain = (then.efficiency / waves.efficiency - 1.0) * 100.0;
        Some(format!(
            "{}: {better} rows instead of {m} would fill {} of tiles of {} ({:.0} % useful instead of {:.0} %): {gain:.0} % more per second.",
            self.chip.name,
            plural(then.waves, "wave"),
            then.tile,
            then.efficiency * 100.0,
            waves.efficiency * 100.0
        ))
    }

    /// A copy reads and writes what it copies.
    fn copies(&self, page: &Page) -> Option<String> {
        let bandwidth = self.chip.bandwidth()?;
        let leaf = page.leaf?;
        let mut bytes = 0u128;
        let mut names = Vec::new();
        for step in page.steps {
            let Happening::Copy { operand, .. } = step else { continue };
            let view = match *operand {
                "a" => page.subject.a,
                "b" => page.subject.b,
                "mat1" | "batch1" => leaf.a,
                "mat2" | "batch2" => leaf.b,
                // Only a bias of N values, factor 1, can become an epilogue; other addends must be copied.
                "self" if leaf.op == LeafOp::Addmm && leaf.beta == 1.0 => leaf.addend?,
                _ => continue,
            };
            let written = match *operand {
                "self" => self.product.m as u128 * self.product.n as u128 * u128::from(view.dtype.bytes()),
                _ => view.elements() as u128 * u128::from(view.dtype.bytes()),
            };
            bytes += view.bytes() + written;
            names.push(*operand);
        }
        if names.is_empty() {
            return None;
        }
        let seconds = bytes as f64 / bandwidth;
        let share = seconds / (seconds + self.roof.seconds) * 100.0;
        Some(format!(
            "{}: another layout of {}, so that nothing is copied, would save {} ({share:.0} % of copy and product together).",
            self.chip.name,
            names.join(" and "),
            time(seconds)
        ))
    }
}

fn plural(count: u64, what: &str) -> String {
    match (count, what.ends_with("ch")) {
        (1, _) => format!("1 {what}"),
        (n, true) => format!("{n} {what}es"),
        (n, false) => format!("{n} {what}s"),
    }
}

/// Rows that do not start on 16 bytes keep the wide loads away.
fn padding(product: &Product, call: &Call) -> Option<String> {
    let wide = wide_load(call.dtype());
    let odd: Vec<(&str, u64)> = [("N", product.n), ("K", product.k)]
        .into_iter()
        .filter(|(_, extent)| extent % wide != 0 && *extent > 1)
        .collect();
    if odd.is_empty() {
        return None;
    }
    let mut padded = *product;
    for (name, extent) in &odd {
        let up = extent.next_multiple_of(wide);
        if *name == "N" { padded.n = up } else { padded.k = up }
    }
    let more = (padded.flops() as f64 / product.flops() as f64 - 1.0) * 100.0;
    let named: Vec<String> = odd.iter().map(|(name, extent)| format!("{name} = {extent}")).collect();
    let widest =
        odd.iter().map(|(_, extent)| 1 << extent.trailing_zeros().min(wide.trailing_zeros())).min().unwrap_or(1u64);
    Some(format!(
        "Padding: {} is no multiple of {wide}, so rows do not start on 16 bytes and {} elements are loaded at once instead of {wide}. Padded to \
         N = {}, K = {} it is {more:.2} % more work for loads {:.0} times as wide.",
        named.join(", "),
        widest,
        padded.n,
        padded.k,
        wide as f64 / widest as f64
    ))
}
