//! The answer of `gemwright compare`: as one screen, as Markdown, as JSON.

use super::model::{extents, short_name};
use crate::error::Error;
use crate::output::{Format, OutputArgs};
use crate::reason::Reason;
use crate::side::Side;
use gemwright_compare::{Change, Comparison, Figures, How, Row, Verdict, figures};
use gemwright_core::{Call, Cell, Chip, Table};
use gemwright_report as report;
use serde_json::{Value, json};

/// Everything that is printed.
pub struct Answer<'a> {
    pub sides: [&'a Side; 2],
    pub chips: [Option<&'a Chip>; 2],
    pub comparison: &'a Comparison,
    pub changes: &'a [Change],
    /// Why they differ, and the side whose model was asked for otherwise.
    pub reason: Option<(usize, Reason)>,
    pub verdict: &'a Verdict,
}

const NAMES: [&str; 2] = ["A", "B"];
/// Rows on a screen.
const ROWS: usize = 24;
/// A variant that fits less is not named.
const WORTH_NAMING: f64 = 0.5;
/// Changes and kernels on a screen.
const FEW: usize = 8;

impl Answer<'_> {
    /// Rows with their figures: what differs first, then by what could be recovered, then by time.
    pub(super) fn ranked(&self) -> Result<Vec<(&Row, Figures)>, Error> {
        let mut rows = Vec::new();
        for row in &self.comparison.rows {
            rows.push((row, figures(row, self.chips)?));
        }
        let weight = |(row, figures): &(&Row, Figures)| {
            let time = figures.time(1).or(figures.time(0)).unwrap_or(0.0) * row.call().count as f64;
            (row.difference().is_none(), -figures.recoverable.unwrap_or(0.0), -time)
        };
        rows.sort_by(|x, y| {
            let ((same_x, lost_x, time_x), (same_y, lost_y, time_y)) = (weight(x), weight(y));
            same_x.cmp(&same_y).then(lost_x.total_cmp(&lost_y)).then(time_x.total_cmp(&time_y))
        });
        Ok(rows)
    }

    /// The products, so many of them at most.
    pub fn products(&self, most: Option<usize>) -> Result<Table, Error> {
        let mut table = Table::new(&[
            "status",
            "op",
            ">batch",
            ">M",
            ">N",
            ">K",
            "dtype",
            "strides a",
            "strides b",
            "module",
            ">count A",
            ">count B",
            ">time A",
            ">time B",
            ">B/A",
            "bound",
            ">of roof",
            ">recoverable",
            "note",
        ]);
        for (row, figures) in self.ranked()?.into_iter().take(most.unwrap_or(usize::MAX)) {
            let call = row.call();
            let status = row.difference().map_or(row.how.name(), |difference| difference.name());
            let mut cells: Vec<Cell> = vec![status.into(), short_name(call).into()];
            cells.extend(extents(call));
            cells.push(modules(row).into());
            cells.extend([0, 1].map(|side| Cell::from(row.sides[side].as_ref().map(|seen| seen.call.count))));
            cells.extend([0, 1].map(|side| seconds(figures.time(side))));
            cells.push(figures.ratio.map_or(Cell::Empty, |x| Cell::shown(x, report::significant(x, 3))));
            cells.push(figures.bound.map(|bound| bound.name()).into());
            cells.push(figures.of_roof.map_or(Cell::Empty, |x| Cell::shown(x, report::percent(x))));
            cells.push(seconds(figures.recoverable));
            cells.push(note(row).into());
            table.row(cells);
        }
        Ok(table)
    }

    /// For a terminal or a pull request.
    pub fn text(&self, output: &OutputArgs) -> Result<String, Error> {
        let markdown = output.format == Format::Md;
        let head = |text: &str| if markdown { format!("### {text}\n") } else { text.to_string() };
        let list = |lines: &[String]| {
            lines.iter().map(|l| format!("{}{l}", if markdown { "- " } else { "  " })).collect::<Vec<_>>().join("\n")
        };
        let mut parts = vec![format!("{}\n{}", head(&self.headline()), list(&self.facts()))];
        if let Some(line) = self.likely() {
            parts.push(if markdown { format!("**{line}**") } else { line });
        }
        let table = readable(&self.products(Some(ROWS))?);
        let rest = self.comparison.rows.len().saturating_sub(table.rows.len());
        let mut products = output.table(&table).trim_end().to_string();
        if rest > 0 {
            products = format!("{products}\n\n{rest} more products; --format csv or json has all");
        }
        parts.push(products);
        let unmatched: Vec<String> = self.comparison.unmatched.iter().map(unmatched_line).collect();
        if !unmatched.is_empty() {
            parts.push(format!("{}\n{}", head("Kernels without a product"), list(&short(&unmatched))));
        }
        let changes: Vec<String> = self.changes.iter().map(|change| self.change_line(change)).collect();
        if !changes.is_empty() {
            parts.push(format!("{}\n{}", head("What would save most"), list(&short(&changes))));
        }
        Ok(parts.join("\n\n"))
    }

    /// From the first to the last event of the GPU, where a trace says.
    fn gpu_seconds(&self, side: usize) -> Option<f64> {
        let facts = &self.sides[side].workload.source.facts;
        facts.iter().find(|(name, _)| name == "gpu_seconds").and_then(|(_, value)| value.as_f64())
    }

    pub(super) fn headline(&self) -> String {
        let rows = &self.comparison.rows;
        let differing = self.comparison.differences().count();
        let what = match (rows.len(), differing) {
            (0, _) => "neither side has a product".to_string(),
            (1, 0) => "the one product agrees".to_string(),
            (all, 0) => format!("all {all} products agree"),
            (all, n) => format!("{n} of {all} products differ"),
        };
        let ended = if self.verdict.failures.is_empty() { "passed" } else { "failed" };
        format!("{ended}: {what}")
    }

    pub(super) fn facts(&self) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        for side in [0, 1] {
            let chip = self.chips[side].map_or(String::new(), |chip| format!(", on {}", chip.name));
            let whole = self.gpu_seconds(side);
            let whole =
                whole.map_or(String::new(), |s| format!(", {} of the GPU from first to last", report::seconds(s)));
            lines.push(format!("{}: {}{chip}{whole}", NAMES[side], self.sides[side].title));
        }
        lines.extend(self.verdict.failures.iter().map(|why| format!("failed: {why}")));
        if let Some(replays) = self.comparison.replays {
            let name = NAMES[replays.side];
            lines.push(format!("{name} is {} replays of one graph: its counts and times are of one", replays.count));
        }
        if self.comparison.rows.iter().any(|row| row.how == How::Replayed) {
            lines.push(
                "a graph records no sizes: `replayed` are matched by order and by their kernels' names and grids"
                    .into(),
            );
        }
        for (name, kernels) in NAMES.iter().zip(self.comparison.kernels) {
            if let Some(time) = kernels {
                let [matched, all] = [time.matched, time.all].map(|ns| report::seconds(ns as f64 * 1e-9));
                let share = report::percent(time.share());
                lines.push(format!(
                    "{name}: {share} of the time of kernels that multiply is matched ({matched} of {all})"
                ));
            }
        }
        lines.extend(self.gain());
        lines
    }

    /// All products of both sides, as they ran or at the roof.
    fn gain(&self) -> Option<String> {
        let mut sums = [0.0; 2];
        for row in &self.comparison.rows {
            let figures = figures(row, self.chips).ok()?;
            for side in [0, 1] {
                if let Some(seen) = &row.sides[side] {
                    sums[side] += figures.time(side)? * seen.call.count as f64;
                }
            }
        }
        let how = [0, 1].map(|side| {
            let ran =
                self.comparison.rows.iter().filter_map(|row| row.sides[side].as_ref()).any(|s| s.seconds().is_some());
            if ran { "measured" } else { "at the roof" }
        });
        let [a, b] = sums.map(report::seconds);
        let ratio = report::significant(sums[1] / sums[0], 3);
        (sums[0] > 0.0).then(|| format!("all products: A {a} {}, B {b} {}, B/A {ratio}", how[0], how[1]))
    }

    pub(super) fn likely(&self) -> Option<String> {
        let (side, reason) = self.reason.as_ref()?;
        let (name, other) = (NAMES[*side], NAMES[1 - *side]);
        let [before, after] = reason.agreement.map(report::percent);
        let words: Vec<String> = reason.changes.iter().map(|v| format!("{} ({})", v.option, v.means)).collect();
        let nothing = words.is_empty() || reason.agreement[1] < WORTH_NAMING;
        Some(match (nothing, reason.complete) {
            (true, _) => format!("Likely reason: none found; no variant of {name} agrees with {other} better"),
            (_, true) => {
                format!("Likely reason: {other} is {name} with {}; then every product agrees", words.join(", "))
            }
            _ => format!(
                "Likely reason: none fits; nearest is {name} with {}, of which {after} of the calls agree, not {before}",
                words.join(", ")
            ),
        })
    }

    pub(super) fn change_line(&self, change: &Change) -> String {
        let of: Vec<String> = change.rows.iter().take(3).map(|i| short_call(&self.comparison.rows[*i])).collect();
        let more = if change.rows.len() > 3 { ", ..." } else { "" };
        let now = report::seconds(change.now);
        let gain = match change.saves() {
            Some(saves) => format!("would save {} of {now}", report::seconds(saves)),
            None => format!("of {now}; what it would save on this chip is not known"),
        };
        format!("{}: {gain}; {} [{}{more}]", change.what, change.why, of.join(", "))
    }

    /// For programs.
    pub fn json(&self) -> Result<Value, Error> {
        let side = |i: usize| {
            let source = &self.sides[i].workload.source;
            let mut out = serde_json::Map::new();
            out.insert("title".into(), json!(self.sides[i].title));
            out.insert("source".into(), json!(source.kind));
            out.extend(source.facts.iter().cloned());
            out.insert("chip".into(), json!(self.chips[i].map(|chip| &chip.id)));
            out.insert("warnings".into(), json!(self.sides[i].workload.warnings));
            out.insert(
                "kernels".into(),
                json!(self.comparison.kernels[i].map(|time| json!({
                    "seconds": time.all as f64 / 1e9,
                    "matched_seconds": time.matched as f64 / 1e9,
                    "matched_share": time.share(),
                }))),
            );
            Value::Object(out)
        };
        let change = |change: &Change| {
            let products: Vec<String> = change.rows.iter().map(|i| short_call(&self.comparison.rows[*i])).collect();
            json!({
                "what": change.what, "why": change.why, "products": products,
                "seconds": change.now, "then_seconds": change.then, "saves_seconds": change.saves(),
            })
        };
        let unmatched = |u: &gemwright_compare::Unmatched| {
            let seconds = u.nanoseconds as f64 / 1e9;
            json!({"side": NAMES[u.side], "kernel": &*u.name, "why": u.why, "count": u.count, "seconds": seconds})
        };
        let reason = self.reason.as_ref().map(|(side, reason)| {
            let options: Vec<&str> = reason.changes.iter().map(|v| v.option.as_str()).collect();
            let means: Vec<&str> = reason.changes.iter().map(|v| v.means).collect();
            json!({
                "of": NAMES[*side], "options": options, "means": means, "complete": reason.complete,
                "agreement_before": reason.agreement[0], "agreement_after": reason.agreement[1],
            })
        });
        Ok(json!({
            "format": 1,
            "gemwright": env!("CARGO_PKG_VERSION"),
            "passed": self.verdict.failures.is_empty(),
            "failures": self.verdict.failures,
            "a": side(0),
            "b": side(1),
            "agreement": self.comparison.agreement(),
            "differences": self.comparison.differences().count(),
            "replays": self.comparison.replays.map(|r| json!({"side": NAMES[r.side], "count": r.count})),
            "reason": reason,
            "products": report::json_rows(&self.products(None)?),
            "unmatched": self.comparison.unmatched.iter().map(unmatched).collect::<Vec<_>>(),
            "changes": self.changes.iter().map(change).collect::<Vec<_>>(),
        }))
    }
}

fn seconds(value: Option<f64>) -> Cell {
    value.map_or(Cell::Empty, |s| Cell::shown(s, report::seconds(s)))
}

/// Columns without a single entry, and those a screen has no room for, are left out.
fn readable(table: &Table) -> Table {
    let empty = |cell: &Cell| matches!(cell, Cell::Empty) || *cell == Cell::Text(String::new());
    let kept: Vec<usize> = (0..table.columns.len())
        .filter(|i| !table.rows.iter().all(|row| empty(&row[*i])))
        .filter(|i| !["strides a", "strides b"].contains(&table.columns[*i].name.as_str()))
        .collect();
    let mut short = Table { columns: kept.iter().map(|i| table.columns[*i].clone()).collect(), rows: Vec::new() };
    for row in &table.rows {
        short.row(kept.iter().map(|i| row[*i].clone()).collect());
    }
    short
}

fn short(lines: &[String]) -> Vec<String> {
    let mut few: Vec<String> = lines.iter().take(FEW).cloned().collect();
    if lines.len() > FEW {
        few.push(format!("and {} more", lines.len() - FEW));
    }
    few
}

/// The modules of a row, the first of them where there are many.
pub(super) fn modules(row: &Row) -> String {
    let all = row.sides.iter().flatten().map(|seen| &seen.modules).find(|modules| !modules.is_empty());
    let Some(all) = all else { return String::new() };
    match all.len() {
        0..=2 => all.join(", "),
        n => format!("{} and {} more", all[0], n - 1),
    }
}

/// What the second side has otherwise.
fn note(row: &Row) -> String {
    let [Some(a), Some(b)] = &row.sides else { return String::new() };
    let (Some(x), Some(y)) = (a.call.product(), b.call.product()) else { return String::new() };
    match row.how {
        How::Padded => [("M", x.m, y.m), ("N", x.n, y.n), ("K", x.k, y.k)]
            .into_iter()
            .filter(|(_, from, to)| from != to)
            .map(|(name, from, to)| format!("{name} {from} -> {to}"))
            .collect::<Vec<_>>()
            .join(", "),
        How::Relaid => format!("{} -> {}", operands(&a.call), operands(&b.call)),
        How::Same | How::Replayed => String::new(),
    }
}

fn operands(call: &Call) -> String {
    match &call.operands {
        gemwright_core::Operands::Product { a, b, .. } => format!("{} {a} @ {b}", short_name(call)),
        _ => short_name(call),
    }
}

pub(super) fn short_call(row: &Row) -> String {
    let call = row.call();
    let modules = modules(row);
    let place = if modules.is_empty() { String::new() } else { format!(" {modules}") };
    match call.product() {
        Some(p) if p.batch > 1 => format!("{} {}·{}x{}x{}{place}", short_name(call), p.batch, p.m, p.n, p.k),
        Some(p) => format!("{} {}x{}x{}{place}", short_name(call), p.m, p.n, p.k),
        None => format!("{}{place}", short_name(call)),
    }
}

pub(super) fn unmatched_line(kernel: &gemwright_compare::Unmatched) -> String {
    let taken = report::seconds(kernel.nanoseconds as f64 * 1e-9);
    let name: String = kernel.name.chars().take(90).collect();
    format!("{}: {taken}, {} times: {name} ({})", NAMES[kernel.side], kernel.count, kernel.why)
}
