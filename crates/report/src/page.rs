//! A report as one file that a browser opens: what it says is in the page itself, plots and tables are drawn by its script
//! out of data that lies beside. Texts of traces are data: they are escaped here and set as text there, and the page may
//! run no script but its own.

use crate::roofline::PlotChip;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use gemwright_core::{Align, Cell, Table};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fmt::Write;

const STYLE: &str = include_str!("../assets/page.css");
const SCRIPT: &str = include_str!("../assets/page.js");

/// What a part of the bar at the top stands for; its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Part {
    Compute,
    Communication,
    Copies,
    Idle,
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Part::Compute => "compute",
            Part::Communication => "communication",
            Part::Copies => "copies",
            Part::Idle => "idle",
        }
    }
}

/// A part of the bar.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct Segment {
    pub part: Part,
    pub caption: String,
    /// 0 to 1.
    pub share: f64,
}

/// A product of the roofline.
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

/// Something that a list at the side measures.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct Measure {
    pub caption: String,
    pub text: String,
    /// 0 to 1.
    pub share: f64,
}

/// What the page says and shows.
#[derive(Debug, Clone, Default)]
#[allow(missing_docs)]
pub struct Page {
    pub title: String,
    pub subtitle: String,
    /// The answer in a sentence or two.
    pub answer: String,
    pub bar: Vec<Segment>,
    /// Changes in words, with what finds them in the tables.
    pub changes: Vec<(String, String)>,
    /// Lists of measures, each with a heading.
    pub measures: Vec<(String, Vec<Measure>)>,
    pub chips: Vec<PlotChip>,
    pub points: Vec<PagePoint>,
    /// Names of the points' colours.
    pub kinds: Vec<String>,
    pub issues: Vec<String>,
    pub tables: Vec<(String, Table)>,
    /// The table that is open first.
    pub open: String,
}

/// Text in a page. Control characters are shown, so that none hides anything.
fn text(of: &str) -> String {
    let mut out = String::with_capacity(of.len());
    for c in of.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // Line separators, and marks that turn the direction of what follows.
            '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => out.push('\u{fffd}'),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// Texts that come often are kept once.
#[derive(Default)]
struct Strings {
    all: Vec<String>,
    places: HashMap<String, usize>,
}

impl Strings {
    fn place(&mut self, of: &str) -> usize {
        if let Some(place) = self.places.get(of) {
            return *place;
        }
        self.all.push(of.to_string());
        self.places.insert(of.to_string(), self.all.len() - 1);
        self.all.len() - 1
    }
}

/// Six digits are more than anyone reads off a page.
fn short(value: f64) -> Value {
    if !value.is_finite() {
        return Value::Null;
    }
    let digits = format!("{value:.5e}").parse::<f64>().unwrap_or(value);
    if digits.fract() == 0.0 && digits.abs() < 1e15 { json!(digits as i64) } else { json!(digits) }
}

fn columns(table: &Table, strings: &mut Strings) -> Vec<Value> {
    let column = |(i, column): (usize, &gemwright_core::Column)| {
        let cells = table.rows.iter().map(|row| &row[i]);
        let textual = cells.clone().any(|cell| matches!(cell, Cell::Text(_)));
        let cells = cells.map(|cell| match cell {
            Cell::Empty => Value::Null,
            Cell::Text(of) => json!(strings.place(of)),
            Cell::Integer(n) if textual => json!(strings.place(&n.to_string())),
            Cell::Shown { text, .. } if textual => json!(strings.place(text)),
            Cell::Integer(n) => json!(*n as f64),
            Cell::Shown { value, .. } => short(*value),
        });
        let cells: Vec<Value> = cells.collect();
        let mut out =
            json!({"name": column.name, "right": column.align == Align::Right, "text": textual, "cells": cells});
        // Numbers with a unit are shown as they stand elsewhere, and sorted by what they are.
        let unit = |cell: &Cell| matches!(cell, Cell::Shown { text, .. } if text.ends_with(|c: char| c.is_alphabetic() || c == '%'));
        if !textual && table.rows.iter().any(|row| unit(&row[i])) {
            let shown = table.rows.iter().map(|row| match &row[i] {
                Cell::Shown { text, .. } => json!(strings.place(text)),
                _ => Value::Null,
            });
            out["shown"] = shown.collect();
        }
        out
    };
    table.columns.iter().enumerate().map(column).collect()
}

/// The data of the script. No `<` is left in it, so that nothing in it ends the element that holds it.
fn data(page: &Page) -> String {
    let mut strings = Strings::default();
    let tables: Vec<Value> = page
        .tables
        .iter()
        .map(|(name, table)| json!({"name": name, "columns": columns(table, &mut strings)}))
        .collect();
    let points: Vec<Value> = page
        .points
        .iter()
        .map(|p| {
            json!({
                "name": p.name, "detail": p.detail, "filter": p.filter, "count": p.count, "ms": short(p.ms),
                "intensity": short(p.intensity), "speed": short(p.speed), "roof": p.roof.map(short), "lost": short(p.lost),
                "colour": p.colour,
            })
        })
        .collect();
    let chips = page.chips.iter().map(|c| json!({"name": c.name, "peak": c.peak, "bandwidth": c.bandwidth}));
    let all = json!({
        "chips": chips.collect::<Vec<_>>(), "points": points, "kinds": page.kinds, "strings": strings.all, "tables": tables, "open": page.open,
    });
    all.to_string().replace('<', "\\u003c").replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
}

fn hash(of: &str) -> String {
    format!("'sha256-{}'", STANDARD.encode(Sha256::digest(of.as_bytes())))
}

/// The page.
pub fn page(page: &Page) -> String {
    let mut out = String::new();
    let policy = format!(
        "default-src 'none'; style-src 'unsafe-inline'; script-src {}; base-uri 'none'; form-action 'none'",
        hash(SCRIPT)
    );
    let (title, subtitle) = (text(&page.title), text(&page.subtitle));
    // Writing into a string cannot fail.
    let _ = write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n<a class=\"skip\" href=\"#tables\">To the tables</a>\n\
         <header><h1>{title}</h1><span class=\"quiet\">{subtitle}</span>\n\
         <span class=\"push noprint\"><button id=\"theme\" type=\"button\">Light or dark</button> \
         <button id=\"print\" type=\"button\">Print</button></span></header>\n<main>\n"
    );
    top(&mut out, page);
    plot_and_measures(&mut out, page);
    issues(&mut out, page);
    let _ = write!(
        out,
        "<section id=\"tables\" aria-labelledby=\"tables-head\"><h2 id=\"tables-head\">Tables</h2>\n\
         <div class=\"tools\"><label for=\"which\">Table</label> <select id=\"which\"></select>\n\
         <label for=\"search\">Find</label> <input id=\"search\" type=\"search\" placeholder=\"name, sizes, kernel\">\n\
         <span id=\"count\" role=\"status\" class=\"quiet\"></span>\
         <button id=\"export\" type=\"button\">Save as CSV</button></div>\n\
         <div id=\"frame\" class=\"sheet\" tabindex=\"0\" role=\"region\" aria-label=\"Rows of the table\"><table>\
         <thead><tr id=\"head\"></tr></thead><tbody id=\"body\"></tbody></table></div></section>\n</main>\n\
         <footer class=\"quiet\">Made by gemwright {}. Arrow keys go from product to product in the plot, Escape lets go.\
         </footer>\n<div id=\"tip\" class=\"tip\" role=\"tooltip\" hidden></div>\n\
         <script id=\"data\" type=\"application/json\">{}</script>\n<script>{SCRIPT}</script>\n</body>\n</html>\n",
        env!("CARGO_PKG_VERSION"),
        data(page)
    );
    out
}

/// The answer, the bar, the changes.
fn top(out: &mut String, page: &Page) {
    let _ = writeln!(out, "<p class=\"answer\">{}</p>", text(&page.answer));
    if !page.bar.is_empty() {
        let words: Vec<&str> = page.bar.iter().map(|segment| segment.caption.as_str()).collect();
        let _ = write!(out, "<div class=\"bar\" role=\"img\" aria-label=\"{}\">", text(&words.join(", ")));
        for segment in &page.bar {
            let (name, share) = (segment.part.name(), segment.share * 100.0);
            let _ = write!(out, "<span style=\"width:{share:.3}%;background:var(--{name})\"></span>");
        }
        out.push_str("</div>\n<ul class=\"legend\">");
        for segment in &page.bar {
            let name = segment.part.name();
            let _ = write!(out, "<li><i style=\"background:var(--{name})\"></i>{}</li>", text(&segment.caption));
        }
        out.push_str("</ul>\n");
    }
    if !page.changes.is_empty() {
        out.push_str("<section aria-labelledby=\"changes\"><h2 id=\"changes\">What would save most</h2>\n<ol class=\"changes\">\n");
        for (change, filter) in &page.changes {
            let _ = write!(out, "<li>{}", text(change));
            if !filter.is_empty() {
                let label = text(&format!("Show its rows: {change}"));
                let _ = write!(
                    out,
                    " <button class=\"noprint\" type=\"button\" data-filter=\"{}\" aria-label=\"{label}\">rows</button>",
                    text(filter)
                );
            }
            out.push_str("</li>\n");
        }
        out.push_str("</ol></section>\n");
    }
}

fn plot_and_measures(out: &mut String, page: &Page) {
    out.push_str("<div class=\"two\">\n<section aria-labelledby=\"roof-head\"><h2 id=\"roof-head\">Roofline</h2>\n");
    let hidden = if page.points.is_empty() { " hidden" } else { "" };
    if page.points.is_empty() {
        out.push_str("<p class=\"quiet\">No operation has both a cost model and a chip to hold it against.</p>\n");
    }
    let _ = write!(
        out,
        "<div{hidden}><div id=\"chips\" class=\"noprint\"></div>\n<svg id=\"roofline\" class=\"plot\" viewBox=\"0 0 760 470\" tabindex=\"0\" \
         role=\"application\" aria-label=\"Roofline: a circle for each of {} operations, larger for more time. Arrow keys choose one.\" \
         aria-describedby=\"chosen\"></svg>\n<ul id=\"kinds\" class=\"legend\"></ul>\n<p class=\"quiet\"><span id=\"chosen\" role=\"status\"></span> \
         <button id=\"unchoose\" class=\"noprint\" type=\"button\" hidden>Let go</button></p></div></section>\n<div>\n",
        page.points.len()
    );
    for (i, (heading, list)) in page.measures.iter().enumerate() {
        let _ = write!(
            out,
            "<section aria-labelledby=\"measure{i}\"><h2 id=\"measure{i}\">{}</h2>\n<div class=\"meter\">\n",
            text(heading)
        );
        for Measure { caption, text: value, share } in list {
            let _ = writeln!(
                out,
                "<b>{}</b><div style=\"width:{:.2}%\"></div><span class=\"right\">{}</span>",
                text(caption),
                share * 100.0,
                text(value)
            );
        }
        out.push_str("</div></section>\n");
    }
    out.push_str("</div>\n</div>\n");
}

fn issues(out: &mut String, page: &Page) {
    if page.issues.is_empty() {
        return;
    }
    out.push_str(
        "<section aria-labelledby=\"issues\"><h2 id=\"issues\">What is suspicious</h2>\n<ul class=\"issues\">\n",
    );
    for issue in &page.issues {
        let _ = writeln!(out, "<li>{}</li>", text(issue));
    }
    out.push_str("</ul></section>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_name_becomes_markup() {
        let evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'\u{7}\u{2028}";
        let mut table = Table::new(&[evil, ">n"]);
        table.row(vec![evil.into(), Cell::shown(1.5, "1.5")]);
        let html = page(&Page {
            title: evil.into(),
            answer: evil.into(),
            changes: vec![(evil.into(), evil.into())],
            issues: vec![evil.into()],
            tables: vec![(evil.into(), table)],
            ..Page::default()
        });
        // Two scripts, both ours, and no element that came with a name.
        assert_eq!(html.matches("<script").count(), 2);
        assert_eq!(html.matches("</script>").count(), 2);
        assert!(!html.contains("<img") && !html.contains('\u{7}') && !html.contains('\u{2028}'));
        let start = html.find("application/json\">").unwrap() + 18;
        let end = start + html[start..].find("</script>").unwrap();
        let data: Value = serde_json::from_str(&html[start..end]).unwrap();
        assert_eq!(data["tables"][0]["columns"][0]["name"], evil);
        assert_eq!(data["strings"][0], evil);
    }

    #[test]
    fn columns_of_numbers_stay_numbers() {
        let mut table = Table::new(&["name", ">time"]);
        table.row(vec!["mm".into(), Cell::shown(1.234_567_89, "1.23")]);
        table.row(vec!["mm".into(), Cell::Empty]);
        let mut strings = Strings::default();
        let columns = columns(&table, &mut strings);
        assert_eq!(columns[1].get("shown"), None);
        assert_eq!(columns[0]["cells"], json!([0, 0]));
        assert_eq!(columns[1]["cells"], json!([1.23457, null]));
        assert_eq!(strings.all, ["mm"]);
        let mut table = Table::new(&[">time"]);
        table.row(vec![Cell::shown(1e-6, "1 us")]);
        let columns = super::columns(&table, &mut strings);
        assert_eq!((&columns[0]["cells"], &columns[0]["shown"]), (&json!([1e-6]), &json!([1])));
    }
}
