//! Pictures made of our own SVG: one under another, and as PNG.

use std::fmt::Write;

/// The size that an SVG of ours says at its beginning.
fn size(svg: &str) -> (f64, f64) {
    let number = |name: &str| {
        let rest = svg.split(&format!(" {name}=\"")).nth(1)?;
        rest.split('"').next()?.parse::<f64>().ok()
    };
    (number("width").unwrap_or(0.0), number("height").unwrap_or(0.0))
}

/// Pictures one under another, as one.
pub fn stacked(pictures: &[String]) -> String {
    let sizes: Vec<(f64, f64)> = pictures.iter().map(|svg| size(svg)).collect();
    let width = sizes.iter().map(|size| size.0).fold(0.0, f64::max);
    let height: f64 = sizes.iter().map(|size| size.1).sum();
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
    );
    let mut y = 0.0;
    for (svg, (_, height)) in pictures.iter().zip(&sizes) {
        // Writing into a string cannot fail.
        let _ = write!(out, "{}", svg.replacen("<svg ", &format!("<svg y=\"{y}\" "), 1));
        y += height;
    }
    out.push_str("</svg>\n");
    out
}

/// An SVG of ours as PNG, twice as fine.
///
/// # Panics
/// Never: the SVG is our own and the font is built in.
pub fn png(svg: &str) -> Vec<u8> {
    let mut options = resvg::usvg::Options { font_family: "DejaVu Sans".into(), ..Default::default() };
    options.fontdb_mut().load_font_data(include_bytes!("../../../data/fonts/DejaVuSans-latin.ttf").to_vec());
    let tree = resvg::usvg::Tree::from_str(svg, &options).expect("our own SVG is well-formed");
    let [width, height] = [tree.size().width(), tree.size().height()].map(|pixels| (2.0 * pixels).ceil() as u32);
    let mut pixels = resvg::tiny_skia::Pixmap::new(width, height).expect("a size above 0");
    resvg::render(&tree, resvg::tiny_skia::Transform::from_scale(2.0, 2.0), &mut pixels.as_mut());
    pixels.encode_png().expect("memory takes everything")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_stand_one_under_another() {
        let picture = |height: u32, colour: &str| {
            format!(
                "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 10 {height}\" width=\"10\" height=\"{height}\">\
                 <rect width=\"10\" height=\"{height}\" fill=\"{colour}\"/></svg>\n"
            )
        };
        let both = stacked(&[picture(4, "#ff0000"), picture(6, "#0000ff")]);
        assert_eq!(size(&both), (10.0, 10.0));
        let pixels = resvg::tiny_skia::Pixmap::decode_png(&png(&both)).unwrap();
        let colour = |y| pixels.pixel(10, y).map(|p| (p.red(), p.blue()));
        assert_eq!((pixels.width(), pixels.height()), (20, 20));
        assert_eq!((colour(6), colour(10)), (Some((255, 0)), Some((0, 255))));
    }
}
