//! Candidates side by side as a picture: a line for each product, a dot for each candidate, by its share of the limit.

use crate::roofline::{COLOURS, escaped};
use std::fmt::Write;

/// A product and how far each candidate comes.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct DotRow {
    pub caption: String,
    /// Candidate and share of the limit, 0 to 1.
    pub dots: Vec<(String, f64)>,
}

const LINE: f64 = 26.0;
const LEFT: f64 = 250.0;
const WIDTH: f64 = 1000.0;
const RIGHT: f64 = 30.0;
const TOP: f64 = 96.0;

/// The picture as SVG. Candidates named in `own` are drawn larger, and first in the legend.
pub fn dots_svg(title: &str, rows: &[DotRow], own: &dyn Fn(&str) -> bool) -> String {
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in rows.iter().flat_map(|row| &row.dots) {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    names.sort_by_key(|name| !own(name));
    let most = rows.iter().flat_map(|row| &row.dots).map(|dot| dot.1).filter(|x| x.is_finite()).fold(1.0, f64::max);
    let x = |share: f64| LEFT + (WIDTH - LEFT - RIGHT) * share / most;
    let height = TOP + LINE * rows.len() as f64 + 50.0;
    let mut out = String::new();
    let _ = writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"DejaVu Sans, sans-serif\" font-size=\"12\" fill=\"#222222\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"16\" y=\"30\" font-size=\"17\" font-weight=\"bold\">{}</text>",
        escaped(title)
    );
    let look = |name: &str| {
        let place = names.iter().position(|known| *known == name).unwrap_or(0);
        // A colour that comes again has a rim instead of a filling.
        let colour = COLOURS[place % COLOURS.len()];
        let radius = if own(name) { 7.0 } else { 4.5 };
        let filled = if place < COLOURS.len() { colour } else { "#ffffff" };
        format!("r=\"{radius}\" fill=\"{filled}\" stroke=\"{colour}\" stroke-width=\"2\"")
    };
    let mut at = 16.0;
    for name in &names {
        let _ = writeln!(out, "<circle cx=\"{:.1}\" cy=\"54\" {}/>", at + 8.0, look(name));
        let _ = writeln!(out, "<text x=\"{:.1}\" y=\"58\">{}</text>", at + 20.0, escaped(name));
        at += 36.0 + 7.2 * name.chars().count() as f64;
    }
    let bottom = TOP + LINE * rows.len() as f64;
    for tenth in (0..=(most * 10.0) as usize).step_by(2) {
        let share = tenth as f64 / 10.0;
        let x = x(share);
        let _ = writeln!(
            out,
            "<line x1=\"{x:.1}\" y1=\"{:.1}\" x2=\"{x:.1}\" y2=\"{bottom:.1}\" stroke=\"#dddddd\"/>\n\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{} %</text>",
            TOP - 10.0,
            bottom + 18.0,
            tenth * 10
        );
    }
    let _ = writeln!(
        out,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">share of the limit</text>",
        x(most / 2.0),
        bottom + 40.0
    );
    for (i, row) in rows.iter().enumerate() {
        let y = TOP + LINE * (i as f64 + 0.5);
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\n\
             <line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{:.1}\" y2=\"{y:.1}\" stroke=\"#eeeeee\"/>",
            LEFT - 12.0,
            y + 4.0,
            escaped(&row.caption),
            WIDTH - RIGHT
        );
        // Ours last, so that nothing covers it.
        for (name, share) in row.dots.iter().filter(|d| !own(&d.0)).chain(row.dots.iter().filter(|d| own(&d.0))) {
            if share.is_finite() {
                let _ = writeln!(
                    out,
                    "<circle cx=\"{:.1}\" cy=\"{y:.1}\" {}><title>{} {:.1} %</title></circle>",
                    x(share.max(0.0)),
                    look(name),
                    escaped(name),
                    share * 100.0
                );
            }
        }
    }
    out.push_str("</svg>\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dot_lies_where_its_share_is() {
        let dots = vec![("own".to_string(), 0.5), ("<them>".to_string(), f64::NAN), ("others".to_string(), 1.25)];
        let svg = dots_svg("a & b", &[DotRow { caption: "1 x 2".into(), dots }], &|name| name == "own");
        // Two in the plot and three in the legend; the axis ends at the largest share.
        assert_eq!(svg.matches("<circle").count(), 5);
        assert!(svg.contains("cx=\"970.0\"") && svg.contains("cx=\"538.0\"") && svg.contains("&lt;them&gt;"));
        assert!(svg.contains("own 50.0 %") && svg.contains("120 %") && !svg.contains("NaN"));
    }
}
