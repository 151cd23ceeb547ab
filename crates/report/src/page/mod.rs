//! A report as one file that a browser opens: what it says is in the page itself, plots and tables are drawn by its script
//! out of data that lies beside. Texts of traces are data: they are escaped here and set as text there, and the page may
//! run no script but its own.

mod data;
mod plot;

pub use plot::{Axis, Curve, Dot, PagePoint, Plot, Scale};

use crate::timeline::{Part, Segment, strip_paths};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use data::data;
use gemwright_core::Table;
use sha2::{Digest, Sha256};
use std::fmt::Write;

const STYLE: &str = include_str!("../../assets/page.css");
const SCRIPT: &str = include_str!("../../assets/page.js");

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
    /// The same along the time: of each piece what goes into computing, communicating and copying.
    pub strip: Vec<[f64; 3]>,
    /// Changes in words, with what finds them in the tables.
    pub changes: Vec<(String, String)>,
    /// Lists of measures, each with a heading.
    pub measures: Vec<(String, Vec<Measure>)>,
    pub plot: Plot,
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
    if !page.strip.is_empty() {
        let _ = write!(
            out,
            "<svg class=\"strip\" viewBox=\"0 0 1000 60\" preserveAspectRatio=\"none\" role=\"img\" \
             aria-label=\"The same along the time, from the first GPU event to the last\">"
        );
        for (part, path) in
            [Part::Compute, Part::Communication, Part::Copies].iter().zip(strip_paths(&page.strip, 1000.0, 60.0))
        {
            let _ = write!(out, "<path d=\"{path}\" style=\"fill:var(--{})\"/>", part.name());
        }
        out.push_str("</svg>\n<p class=\"quiet ends\"><span>first GPU event</span><span>last</span></p>\n");
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
    let plot = &page.plot;
    let _ = write!(
        out,
        "<div class=\"two\">\n<section aria-labelledby=\"plot-head\"><h2 id=\"plot-head\">{}</h2>\n",
        text(&plot.heading)
    );
    let hidden = if plot.dots.is_empty() { " hidden" } else { "" };
    if plot.dots.is_empty() {
        let _ = writeln!(out, "<p class=\"quiet\">{}</p>", text(&plot.empty));
    }
    let _ = write!(
        out,
        "<div{hidden}><div id=\"curves\" class=\"noprint\"></div>\n<svg id=\"plot\" class=\"plot\" viewBox=\"0 0 760 470\" tabindex=\"0\" \
         role=\"application\" aria-label=\"{} Arrow keys choose one.\" \
         aria-describedby=\"chosen\"></svg>\n<ul id=\"kinds\" class=\"legend\"></ul>\n<p class=\"quiet\"><span id=\"chosen\" role=\"status\"></span> \
         <button id=\"unchoose\" class=\"noprint\" type=\"button\" hidden>Let go</button></p></div></section>\n<div>\n",
        text(&plot.about)
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
    use gemwright_core::Cell;
    use serde_json::Value;

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
}
