//! Numbers for people: a few digits and a unit.

fn with_unit(value: f64, step: f64, units: &[&str]) -> String {
    let mut value = value;
    let mut unit = 0;
    while value.abs() >= step * 0.9995 && unit + 1 < units.len() {
        value /= step;
        unit += 1;
    }
    format!("{} {}", significant(value, 3), units[unit]).trim_end().to_string()
}

/// At least so many digits, and no fewer than stand before the point.
pub fn significant(value: f64, digits: i32) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value:.0}");
    }
    // The exponent after rounding: 0.99999 has that of 1.
    let rounded = format!("{value:.*e}", (digits - 1).max(0) as usize);
    let exponent = rounded.rsplit('e').next().and_then(|x| x.parse::<i32>().ok()).unwrap_or(0);
    format!("{value:.*}", (digits - 1 - exponent).max(0) as usize)
}

/// Bytes in decimal units, as bandwidths are given.
pub fn bytes(value: u128) -> String {
    with_unit(value as f64, 1000.0, &["B", "kB", "MB", "GB", "TB", "PB", "EB"])
}

/// Floating-point operations.
pub fn flops(value: u128) -> String {
    with_unit(value as f64, 1000.0, &["FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP"])
}

/// A count of operations without the word.
pub fn operations(value: u128) -> String {
    with_unit(value as f64, 1000.0, &["", "k", "M", "G", "T", "P", "E"])
}

/// A count, in short.
pub fn count(value: u64) -> String {
    with_unit(value as f64, 1000.0, &["", "k", "M", "B", "T"]).replace(' ', "")
}

/// A time.
pub fn seconds(value: f64) -> String {
    if value >= 0.9995 {
        return format!("{} s", significant(value, 3));
    }
    with_unit(value * 1e9, 1000.0, &["ns", "us", "ms"])
}

/// A share of one.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_digits_and_a_unit() {
        assert_eq!(bytes(90_207_744), "90.2 MB");
        assert_eq!(bytes(999_999), "1.00 MB");
        assert_eq!(bytes(17), "17.0 B");
        assert_eq!(flops(90_177_536), "90.2 MFLOP");
        assert_eq!(seconds(1.879e-5), "18.8 us");
        assert_eq!(seconds(2.5), "2.50 s");
        assert_eq!(seconds(0.0), "0 ns");
        assert_eq!(count(6_738_415_616), "6.74B");
        assert_eq!(percent(0.1234), "12.3 %");
        assert_eq!(significant(246.68, 4), "246.7");
    }
}
