//! Where the GPU's time went: as a bar of shares, and along the time.

use crate::roofline::{WIDTH, escaped};
use std::fmt::Write;

/// What a part of the bar stands for; its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Part {
    Compute,
    Communication,
    Copies,
    Idle,
}

impl Part {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Part::Compute => "compute",
            Part::Communication => "communication",
            Part::Copies => "copies",
            Part::Idle => "idle",
        }
    }

    /// On white paper.
    fn colour(self) -> &'static str {
        match self {
            Part::Compute => "#0072B2",
            Part::Communication => "#B5491B",
            Part::Copies => "#8A6D00",
            Part::Idle => "#C3CAD2",
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

/// A strip's three parts, stacked from below, as paths in a box of that size. What stays free is idle.
pub(crate) fn strip_paths(strip: &[[f64; 3]], width: f64, height: f64) -> [String; 3] {
    let step = width / strip.len() as f64;
    std::array::from_fn(|part| {
        let mut path = String::new();
        for (i, piece) in strip.iter().enumerate() {
            let below: f64 = piece[..part].iter().sum();
            let [low, high] = [below, below + piece[part]].map(|share| height * (1.0 - share.clamp(0.0, 1.0)));
            if low - high > 0.05 {
                // Writing into a string cannot fail.
                let _ = write!(path, "M{:.1} {low:.1}V{high:.1}h{step:.1}V{low:.1}z", i as f64 * step);
            }
        }
        path
    })
}

const HEIGHT: f64 = 240.0;
const LEFT: f64 = 80.0;

/// The picture as SVG: the bar, what its colours stand for, and the same along the time.
pub fn timeline_svg(title: &str, bar: &[Segment], strip: &[[f64; 3]]) -> String {
    let mut out = String::new();
    let width = WIDTH - 2.0 * LEFT;
    let _ = writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         font-family=\"DejaVu Sans, sans-serif\" font-size=\"13\" fill=\"#222222\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"{LEFT}\" y=\"32\" font-size=\"19\" font-weight=\"bold\">{}</text>",
        escaped(title)
    );
    let (mut x, mut words) = (LEFT, LEFT);
    for segment in bar {
        let (colour, taken) = (segment.part.colour(), width * segment.share);
        let _ = writeln!(
            out,
            "<rect x=\"{x:.1}\" y=\"50\" width=\"{taken:.1}\" height=\"36\" fill=\"{colour}\"/>\n\
             <rect x=\"{words:.1}\" y=\"98\" width=\"12\" height=\"12\" fill=\"{colour}\"/>\n\
             <text x=\"{:.1}\" y=\"109\">{}</text>",
            words + 18.0,
            escaped(&segment.caption)
        );
        x += taken;
        words += 44.0 + 7.6 * segment.caption.chars().count() as f64;
    }
    if bar.is_empty() {
        let _ = writeln!(out, "<text x=\"{LEFT}\" y=\"74\">no GPU event</text>");
    }
    if !strip.is_empty() {
        let _ = writeln!(
            out,
            "<g transform=\"translate({LEFT} 130)\">\n<rect width=\"{width}\" height=\"70\" fill=\"{}\" fill-opacity=\"0.35\"/>",
            Part::Idle.colour()
        );
        for (part, path) in
            [Part::Compute, Part::Communication, Part::Copies].iter().zip(strip_paths(strip, width, 70.0))
        {
            let _ = writeln!(out, "<path d=\"{path}\" fill=\"{}\"/>", part.colour());
        }
        let _ = writeln!(
            out,
            "<text x=\"0\" y=\"88\" font-size=\"12\">first GPU event</text>\n\
             <text x=\"{width}\" y=\"88\" font-size=\"12\" text-anchor=\"end\">last</text>\n</g>"
        );
    }
    out.push_str("</svg>\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_stand_on_one_another() {
        let paths = strip_paths(&[[0.5, 0.25, 0.0], [0.0, 0.0, 1.0]], 100.0, 40.0);
        assert_eq!(paths[0], "M0.0 40.0V20.0h50.0V40.0z");
        assert_eq!(paths[1], "M0.0 20.0V10.0h50.0V20.0z");
        assert_eq!(paths[2], "M50.0 40.0V0.0h50.0V40.0z");
    }

    #[test]
    fn the_bar_is_as_long_as_its_shares() {
        let segment = |part, share| Segment { part, caption: "<part>".into(), share };
        let svg = timeline_svg("a & b", &[segment(Part::Compute, 0.75), segment(Part::Idle, 0.25)], &[]);
        assert!(svg.contains("width=\"840.0\"") && svg.contains("width=\"280.0\"") && svg.contains("&lt;part&gt;"));
        assert!(crate::png(&svg).len() > 100);
    }
}
