//! A roofline as a picture one would put on a slide: log axes, one line a chip, one circle a product.

use std::fmt::Write;

/// A chip's roof.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct PlotChip {
    pub name: String,
    /// FLOP/s.
    pub peak: f64,
    /// Bytes per second.
    pub bandwidth: f64,
}

/// A product on a chip.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct PlotPoint {
    /// What the legend calls it; equal captions on several chips share a number.
    pub caption: String,
    /// Position in the list of chips.
    pub chip: usize,
    /// FLOPs per byte.
    pub intensity: f64,
    /// FLOP/s.
    pub speed: f64,
    /// Share of the workload's time on that chip, 0 to 1.
    pub share: f64,
}

/// Where a label stands.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rect {
    x: f64,
    y: f64,
    width: f64,
    height: f64,
}

impl Rect {
    fn overlaps(&self, other: &Rect) -> bool {
        self.x < other.x + other.width
            && other.x < self.x + self.width
            && self.y < other.y + other.height
            && other.y < self.y + self.height
    }

    fn around(x: f64, y: f64, radius: f64) -> Rect {
        Rect { x: x - radius, y: y - radius, width: 2.0 * radius, height: 2.0 * radius }
    }
}

pub(crate) const WIDTH: f64 = 1280.0;
const HEIGHT: f64 = 800.0;
/// The plot's own area; the legend stands right of it.
const AREA: Rect = Rect { x: 80.0, y: 56.0, width: 800.0, height: 680.0 };
const LEGEND_X: f64 = 905.0;
const LINE: f64 = 17.0;
/// Products of a smaller share of the time are counted, not drawn: they would only stretch the axes.
const LEAST_SHARE: f64 = 0.001;
/// Colours that colour-blind people tell apart (Okabe and Ito).
pub(crate) const COLOURS: [&str; 6] = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"];

struct Axis {
    low: f64,
    high: f64,
}

impl Axis {
    fn covering(values: impl Iterator<Item = f64>, below: f64, above: f64) -> Axis {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(|v| v.is_finite() && *v > 0.0) {
            low = low.min(value);
            high = high.max(value);
        }
        if low > high {
            (low, high) = (1.0, 10.0);
        }
        Axis { low: (low / below).log10(), high: (high * above).log10() }
    }

    /// 0 at the low end, 1 at the high end.
    fn place(&self, value: f64) -> f64 {
        (value.log10() - self.low) / (self.high - self.low)
    }

    /// Powers of ten; on a short axis their double and fivefold too.
    fn ticks(&self) -> Vec<f64> {
        let steps: &[f64] = if self.high - self.low < 2.2 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let decades = self.low.floor() as i32..=self.high.ceil() as i32;
        let all = decades.flat_map(|d| steps.iter().map(move |s| s * 10f64.powi(d)));
        all.filter(|v| (self.low..=self.high).contains(&v.log10())).collect()
    }
}

struct Canvas {
    x: Axis,
    y: Axis,
    out: String,
}

impl Canvas {
    fn at(&self, intensity: f64, speed: f64) -> (f64, f64) {
        (AREA.x + AREA.width * self.x.place(intensity), AREA.y + AREA.height * (1.0 - self.y.place(speed)))
    }

    fn text(&mut self, x: f64, y: f64, size: f64, attributes: &str, text: &str) {
        let text = escaped(text);
        let _ = writeln!(self.out, "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" {attributes}>{text}</text>");
    }

    fn line(&mut self, from: (f64, f64), to: (f64, f64), attributes: &str) {
        let ((x1, y1), (x2, y2)) = (from, to);
        let _ = writeln!(self.out, "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" {attributes}/>");
    }
}

/// As XML can hold it: no control characters, no markup.
pub(crate) fn escaped(text: &str) -> String {
    let plain: String = text.chars().filter(|c| !c.is_control() && !matches!(c, '\u{fffe}' | '\u{ffff}')).collect();
    plain.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The picture as SVG.
pub fn roofline_svg(title: &str, chips: &[PlotChip], points: &[PlotPoint]) -> String {
    draw(title, chips, points).0
}

fn draw(title: &str, chips: &[PlotChip], points: &[PlotPoint]) -> (String, Vec<Rect>) {
    let mut legend = legend(points);
    let all = legend.len();
    legend.retain(|entry| entry.share >= LEAST_SHARE);
    let left_out = all - legend.len();
    let kept: Vec<usize> = legend.iter().flat_map(|entry| entry.points.clone()).collect();
    let shown = || kept.iter().map(|&i| &points[i]);
    let ridges = chips.iter().map(|c| c.peak / c.bandwidth);
    let x = Axis::covering(shown().map(|p| p.intensity).chain(ridges), 2.5, 2.5);
    let y = Axis::covering(shown().map(|p| p.speed).chain(chips.iter().map(|c| c.peak)), 3.0, 2.0);
    let mut canvas = Canvas { x, y, out: String::new() };
    let _ = writeln!(
        canvas.out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         font-family=\"DejaVu Sans, sans-serif\" fill=\"#222222\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>"
    );
    canvas.text(AREA.x, 32.0, 19.0, "font-weight=\"bold\"", &shortened(title, 100));
    axes(&mut canvas);
    roofs(&mut canvas, chips);
    let labels = circles(&mut canvas, points, &legend);
    print_legend(&mut canvas, chips, &legend, left_out);
    canvas.out.push_str("</svg>\n");
    (canvas.out, labels)
}

fn axes(canvas: &mut Canvas) {
    let (left, right) = (AREA.x, AREA.x + AREA.width);
    let (top, bottom) = (AREA.y, AREA.y + AREA.height);
    let grid = "stroke=\"#dddddd\" stroke-width=\"1\"";
    for value in canvas.x.ticks() {
        let (x, _) = canvas.at(value, 1.0);
        canvas.line((x, top), (x, bottom), grid);
        canvas.text(x, bottom + 20.0, 12.0, "text-anchor=\"middle\"", &tick(value));
    }
    for value in canvas.y.ticks() {
        let (_, y) = canvas.at(1.0, value);
        canvas.line((left, y), (right, y), grid);
        canvas.text(left - 8.0, y + 4.0, 12.0, "text-anchor=\"end\"", &tick(value / 1e12));
    }
    let frame = "stroke=\"#888888\" stroke-width=\"1\"";
    canvas.line((left, bottom), (right, bottom), frame);
    canvas.line((left, top), (left, bottom), frame);
    canvas.text((left + right) / 2.0, bottom + 44.0, 14.0, "text-anchor=\"middle\"", "FLOP per byte");
    let middle = (top + bottom) / 2.0;
    let turned = format!("text-anchor=\"middle\" transform=\"rotate(-90 24 {middle:.1})\"");
    canvas.text(24.0, middle, 14.0, &turned, "TFLOP/s");
}

/// A round number without trailing zeros.
fn tick(value: f64) -> String {
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

/// One line a chip.
fn roofs(canvas: &mut Canvas, chips: &[PlotChip]) {
    let right = 10f64.powf(canvas.x.high);
    for (i, chip) in chips.iter().enumerate() {
        let left = 10f64.powf(canvas.x.low).max(10f64.powf(canvas.y.low) / chip.bandwidth);
        let corner = canvas.at(chip.peak / chip.bandwidth, chip.peak);
        canvas.line(canvas.at(left, left * chip.bandwidth), corner, &stroke(i));
        canvas.line(corner, canvas.at(right, chip.peak), &stroke(i));
    }
}

fn colour(chip: usize) -> &'static str {
    COLOURS[chip % COLOURS.len()]
}

fn stroke(chip: usize) -> String {
    format!("stroke=\"{}\" stroke-width=\"2.5\" stroke-linecap=\"round\"", colour(chip))
}

/// One line of the legend: captions that lie on the same place share it.
struct Entry {
    captions: Vec<String>,
    share: f64,
    /// Positions in the list of points, one a chip or more.
    points: Vec<usize>,
}

/// Captions by their largest share, those that coincide on every chip together.
fn legend(points: &[PlotPoint]) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    for (i, point) in points.iter().enumerate() {
        let same = |e: &&mut Entry| e.captions.contains(&point.caption);
        match entries.iter_mut().find(same) {
            Some(entry) => entry.points.push(i),
            None => entries.push(Entry { captions: vec![point.caption.clone()], share: point.share, points: vec![i] }),
        }
    }
    // What shares a caption on one chip adds up; of several chips the largest counts.
    for entry in &mut entries {
        let on = |chip: usize| entry.points.iter().map(|&i| &points[i]).filter(move |p| p.chip == chip);
        let sums = entry.points.iter().map(|&i| on(points[i].chip).map(|p| p.share).sum::<f64>());
        entry.share = sums.fold(0.0, f64::max);
    }
    let place = |e: &Entry| -> Vec<(usize, u64, u64)> {
        e.points.iter().map(|&i| (points[i].chip, points[i].intensity.to_bits(), points[i].speed.to_bits())).collect()
    };
    let mut merged: Vec<Entry> = Vec::new();
    for entry in entries {
        match merged.iter_mut().find(|m| place(m) == place(&entry)) {
            Some(other) => {
                other.share += entry.share;
                other.captions.extend(entry.captions);
            }
            None => merged.push(entry),
        }
    }
    merged.sort_by(|a, b| b.share.total_cmp(&a.share));
    merged
}

/// Circles by share, numbers beside them where there is room.
fn circles(canvas: &mut Canvas, points: &[PlotPoint], legend: &[Entry]) -> Vec<Rect> {
    let radius = |share: f64| 4.0 + 16.0 * share.max(0.0).sqrt();
    let mut spots = Vec::new();
    for (number, entry) in legend.iter().enumerate() {
        let mut on_chip: Vec<usize> = Vec::new();
        for &i in &entry.points {
            let point = &points[i];
            if on_chip.contains(&point.chip) || point.intensity <= 0.0 || point.speed <= 0.0 {
                continue;
            }
            on_chip.push(point.chip);
            let (x, y) = canvas.at(point.intensity, point.speed);
            let size = radius(entry.share);
            let colour = colour(point.chip);
            let _ = writeln!(
                canvas.out,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{size:.1}\" fill=\"{colour}\" fill-opacity=\"0.35\" stroke=\"{colour}\">\
                 <title>{}</title></circle>",
                escaped(&entry.captions.join(", "))
            );
            spots.push((number, x, y, size, colour));
        }
    }
    let mut taken: Vec<Rect> = spots.iter().map(|(_, x, y, size, _)| Rect::around(*x, *y, *size * 0.7)).collect();
    let mut labels = Vec::new();
    for (number, x, y, size, colour) in spots {
        let text = (number + 1).to_string();
        let Some(place) = free_place(x, y, size, &text, &taken) else { continue };
        let middle = (place.x + place.width / 2.0, place.y + place.height / 2.0);
        let distance = (middle.0 - x).hypot(middle.1 - y);
        if distance > size + 16.0 {
            let thin = format!("stroke=\"{colour}\" stroke-width=\"0.7\"");
            canvas.line((x, y), middle, &thin);
        }
        // A white rim keeps the number readable where a line runs behind it.
        let look = format!(
            "text-anchor=\"middle\" fill=\"{colour}\" stroke=\"#ffffff\" stroke-width=\"3\" paint-order=\"stroke\""
        );
        canvas.text(middle.0, place.y + 11.0, 11.0, &look, &text);
        taken.push(place);
        labels.push(place);
    }
    labels
}

/// The nearest place for a label that covers nothing.
fn free_place(x: f64, y: f64, size: f64, text: &str, taken: &[Rect]) -> Option<Rect> {
    let (width, height) = (7.0 * text.len() as f64 + 4.0, 14.0);
    for ring in 0..14 {
        let reach = size + 9.0 + 11.0 * f64::from(ring);
        for step in 0..16 {
            // Above first: a circle on a roof has free space there.
            let angle = -std::f64::consts::FRAC_PI_2 + f64::from(step) * std::f64::consts::PI / 8.0;
            let (cx, cy) = (x + reach * angle.cos(), y + reach * angle.sin());
            let place = Rect { x: cx - width / 2.0, y: cy - height / 2.0, width, height };
            let inside = place.x >= AREA.x
                && place.x + width <= AREA.x + AREA.width
                && place.y >= AREA.y
                && place.y + height <= AREA.y + AREA.height;
            if inside && !taken.iter().any(|t| t.overlaps(&place)) {
                return Some(place);
            }
        }
    }
    None
}

fn print_legend(canvas: &mut Canvas, chips: &[PlotChip], legend: &[Entry], left_out: usize) {
    let mut y = AREA.y + 4.0;
    for (i, chip) in chips.iter().enumerate() {
        canvas.line((LEGEND_X, y - 4.0), (LEGEND_X + 18.0, y - 4.0), &stroke(i));
        let text = format!("{} · {:.0} TFLOP/s · {:.0} GB/s", chip.name, chip.peak / 1e12, chip.bandwidth / 1e9);
        canvas.text(LEGEND_X + 26.0, y, 12.0, "", &text);
        y += LINE + 2.0;
    }
    y += 12.0;
    let heading =
        if chips.len() > 1 { "products, largest share of the time on any chip" } else { "products, share of the time" };
    canvas.text(LEGEND_X, y, 12.0, "font-weight=\"bold\"", heading);
    y += 22.0;
    let room = ((HEIGHT - y - 2.0 * LINE) / LINE) as usize;
    let shown = legend.len().min(room);
    for (i, entry) in legend.iter().take(shown).enumerate() {
        canvas.text(LEGEND_X + 18.0, y, 11.0, "text-anchor=\"end\"", &(i + 1).to_string());
        let more = entry.captions.len() - 1;
        let caption = if more > 0 {
            format!("{} + {more}", shortened(&entry.captions[0], 36))
        } else {
            shortened(&entry.captions[0], 42)
        };
        canvas.text(LEGEND_X + 26.0, y, 11.0, "", &caption);
        canvas.text(WIDTH - 14.0, y, 11.0, "text-anchor=\"end\"", &format!("{:.1} %", entry.share * 100.0));
        y += LINE;
    }
    let further = legend.len() - shown;
    if further > 0 {
        let rest: f64 = legend[shown..].iter().map(|e| e.share).sum();
        canvas.text(LEGEND_X + 26.0, y, 11.0, "", &format!("… and {further} further, {:.1} %", rest * 100.0));
        y += LINE;
    }
    if left_out > 0 {
        let text = format!("{left_out} under {:.1} % not drawn", LEAST_SHARE * 100.0);
        canvas.text(LEGEND_X + 26.0, y, 11.0, "", &text);
    }
    if legend.is_empty() {
        canvas.text(LEGEND_X, y, 11.0, "", "no products");
    }
}

/// The end of a long text, which tells more of a module's path than its beginning.
fn shortened(text: &str, most: usize) -> String {
    let length = text.chars().count();
    if length <= most {
        text.into()
    } else {
        format!("…{}", text.chars().skip(length - most + 1).collect::<String>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chips() -> Vec<PlotChip> {
        let chip = |name: &str, peak: f64, bandwidth: f64| PlotChip { name: name.into(), peak, bandwidth };
        vec![chip("A", 989.4e12, 4.8e12), chip("B & <co>", 1000e12, 5.3e12)]
    }

    fn points(count: usize) -> Vec<PlotPoint> {
        let chips = chips();
        (0..count)
            .map(|i| {
                let intensity = 0.5 * 1.15f64.powi(i as i32 % 40);
                let chip = i % 2;
                let speed = (intensity * chips[chip].bandwidth).min(chips[chip].peak);
                PlotPoint { caption: format!("layer.{i} 1x{i}"), chip, intensity, speed, share: 1.0 / count as f64 }
            })
            .collect()
    }

    #[test]
    fn labels_do_not_overlap() {
        for count in [0, 1, 7, 60, 200] {
            let (svg, labels) = draw("a title", &chips(), &points(count));
            assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
            for (i, a) in labels.iter().enumerate() {
                assert!(labels[i + 1..].iter().all(|b| !a.overlaps(b)), "{count} points");
            }
        }
    }

    #[test]
    fn the_png_is_one_and_the_svg_is_well_formed() {
        let png = crate::png(&roofline_svg("a \u{0}<title> & \u{1b}", &chips(), &points(20)));
        assert_eq!(&png[..8], b"\x89PNG\r\n\x1a\n");
        assert!(roofline_svg("t", &chips(), &points(20)).contains("B &amp; &lt;co&gt;"));
    }
}
