//! The page of `gemwright model --html`: the products of a model at the roof of a chip.

use super::model::short_name;
use crate::error::Error;
use crate::page::{measures, plot_chip, point};
use crate::workload::describe;
use gemwright_core::{Call, Chip, Roof, Table, Workload};
use gemwright_report::{Page, PagePoint, Plot};

/// What a call is called in the plot.
fn caption(call: &Call) -> String {
    match call.product() {
        Some(p) if p.batch > 1 => format!("{} {}·{}x{}x{}", short_name(call), p.batch, p.m, p.n, p.k),
        Some(p) => format!("{} {}x{}x{}", short_name(call), p.m, p.n, p.k),
        None => short_name(call),
    }
}

/// The page, at the roof of the first chip, beside the roofs of the others; without a chip there is no plot.
pub fn model_page(workload: &Workload, chips: &[Chip], table: Table, lines: &[String]) -> Result<Page, Error> {
    let chip = chips.first();
    let mut kinds: Vec<String> = Vec::new();
    let mut points: Vec<PagePoint> = Vec::new();
    let mut taken: Vec<(String, String, f64)> = Vec::new();
    for call in workload.calls() {
        let Some(chip) = chip else { break };
        let roof = Roof::of(call, chip)?;
        let kind = short_name(call);
        let colour = kinds.iter().position(|known| *known == kind).unwrap_or_else(|| {
            kinds.push(kind.clone());
            kinds.len() - 1
        });
        let drawn = point(call, caption(call), call.module.to_string(), roof.seconds);
        points.extend(drawn.map(|drawn| PagePoint { filter: call.module.to_string(), colour, ..drawn }));
        taken.push((call.module.to_string(), kind, roof.seconds * call.count as f64));
    }
    points.sort_by(|x, y| y.ms.total_cmp(&x.ms));
    let by_module = measures(taken.iter().map(|(module, _, seconds)| (module.clone(), *seconds)));
    let by_op = measures(taken.iter().map(|(_, op, seconds)| (op.clone(), *seconds)));
    let lists = [("Least time by operation", by_op), ("Least time by module", by_module)];
    let dtype = workload.calls().iter().max_by_key(|c| c.flops() * u128::from(c.count)).map(Call::dtype);
    let roofs: Vec<_> =
        dtype.iter().flat_map(|dtype| chips.iter().filter_map(|chip| plot_chip(chip, *dtype))).collect();
    let words = |line: &String| line.split_whitespace().collect::<Vec<_>>().join(" ");
    Ok(Page {
        title: describe(workload),
        subtitle: chip
            .map_or("without a chip: --on CHIP gives roofs".into(), |chip| format!("at the roof of {}", chip.name)),
        answer: lines.iter().filter(|line| !line.is_empty()).map(words).collect::<Vec<_>>().join(". "),
        measures: lists
            .into_iter()
            .filter(|(_, list)| !list.is_empty())
            .map(|(h, list)| (h.to_string(), list))
            .collect(),
        plot: Plot::roofline(&roofs, &points, kinds),
        issues: workload.warnings.clone(),
        tables: vec![("products".into(), table)],
        open: "products".into(),
        ..Page::default()
    })
}
