//! The page of `gemwright compare --html`.

use super::compare_answer::{Answer, modules, short_call, unmatched_line};
use crate::error::Error;
use crate::page::{measures, plot_chip, point};
use gemwright_core::{Cell, DType, Table};
use gemwright_report::{Page, PagePoint, Plot};

/// Changes that are told.
const CHANGES: usize = 5;

impl Answer<'_> {
    /// What differs, what would save most, every product of both sides.
    pub fn page(&self) -> Result<Page, Error> {
        let mut kinds: Vec<String> = Vec::new();
        let mut points: Vec<PagePoint> = Vec::new();
        for (row, figures) in self.ranked()? {
            let status = row.difference().map_or(row.how.name(), |difference| difference.name()).to_string();
            let colour = kinds.iter().position(|known| *known == status).unwrap_or_else(|| {
                kinds.push(status.clone());
                kinds.len() - 1
            });
            let Some(seconds) = figures.time(1).or(figures.time(0)) else { continue };
            let drawn = point(row.call(), short_call(row), status, seconds);
            points.extend(drawn.map(|drawn| PagePoint {
                filter: modules(row),
                roof: figures.of_roof.map(|share| share * 100.0),
                lost: figures.recoverable.unwrap_or(0.0) * 1e3,
                colour,
                ..drawn
            }));
        }
        points.sort_by(|x, y| y.ms.total_cmp(&x.ms));
        let lost = measures(points.iter().map(|p| (p.name.clone(), p.lost * 1e-3)));
        let by_status = measures(points.iter().map(|p| (p.detail.clone(), p.ms * 1e-3)));
        let lists = [("Time by agreement", by_status), ("Time that could be recovered", lost)];
        let mut chips: Vec<_> = self.chips.iter().flatten().filter_map(|chip| plot_chip(chip, DType::Bf16)).collect();
        chips.dedup_by(|x, y| x.name == y.name);
        let mut kernels = Table::new(&["kernel without a product"]);
        for kernel in &self.comparison.unmatched {
            kernels.row(vec![Cell::from(unmatched_line(kernel))]);
        }
        let mut tables = vec![("products".to_string(), self.products(None)?)];
        if !kernels.rows.is_empty() {
            tables.push(("kernels".into(), kernels));
        }
        let [a, b] = self.sides.map(|side| side.title.as_str());
        let filter = |change: &gemwright_compare::Change| {
            change.rows.first().map_or(String::new(), |i| modules(&self.comparison.rows[*i]))
        };
        Ok(Page {
            title: format!("{a} against {b}"),
            subtitle: self.headline(),
            answer: self.facts().join(". "),
            changes: self
                .changes
                .iter()
                .take(CHANGES)
                .map(|change| (self.change_line(change), filter(change)))
                .collect(),
            measures: lists
                .into_iter()
                .filter(|(_, list)| !list.is_empty())
                .map(|(h, list)| (h.to_string(), list))
                .collect(),
            plot: Plot::roofline(&chips, &points, kinds),
            issues: self.likely().into_iter().collect(),
            tables,
            open: "products".into(),
            ..Page::default()
        })
    }
}
