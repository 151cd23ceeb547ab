//! Numbers of a trace: times as integers of nanoseconds, read from their decimal text.

/// Microseconds in decimal text as nanoseconds. `None` where it is no number or none that a clock
/// shows; what is finer than a nanosecond is rounded.
pub fn nanoseconds(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text.first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let mut value: i64 = 0;
    let mut decimals: Option<u32> = None;
    let mut round_up = false;
    let mut any = false;
    for &c in digits {
        match c {
            b'0'..=b'9' => {
                any = true;
                match &mut decimals {
                    Some(3) => {
                        round_up = c >= b'5';
                        decimals = Some(4);
                    }
                    Some(n) if *n > 3 => {}
                    other => {
                        value = value.checked_mul(10)?.checked_add(i64::from(c - b'0'))?;
                        if let Some(n) = other {
                            *n += 1;
                        }
                    }
                }
            }
            b'.' if decimals.is_none() => decimals = Some(0),
            b'e' | b'E' => return by_float(text),
            _ => return None,
        }
    }
    if !any {
        return None;
    }
    for _ in decimals.unwrap_or(0).min(3)..3 {
        value = value.checked_mul(10)?;
    }
    value = value.checked_add(i64::from(round_up))?;
    Some(if negative { -value } else { value })
}

fn by_float(text: &[u8]) -> Option<i64> {
    let value: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    let scaled = (value * 1000.0).round();
    (scaled.is_finite() && scaled.abs() < 9.2e18).then_some(scaled as i64)
}

/// An integer; `None` for anything else.
pub fn integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = text.strip_prefix(b"-").map_or((false, text), |digits| (true, digits));
    if digits.is_empty() || digits.len() > 18 {
        return std::str::from_utf8(text).ok()?.parse().ok();
    }
    let mut value = 0;
    for c in digits {
        if !c.is_ascii_digit() {
            return None;
        }
        value = value * 10 + i64::from(c - b'0');
    }
    Some(if negative { -value } else { value })
}

/// The float64 that reads the decimal text of so many nanoseconds as microseconds.
pub fn microseconds(nanoseconds: i64) -> f64 {
    if nanoseconds.unsigned_abs() < 1 << 53 {
        return nanoseconds as f64 / 1000.0;
    }
    (nanoseconds / 1000) as f64 + (nanoseconds % 1000) as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimal_text_becomes_nanoseconds() {
        for (text, want) in [
            ("3926559089864.491", Some(3_926_559_089_864_491)),
            ("24.640", Some(24_640)),
            ("5", Some(5_000)),
            ("-1.5", Some(-1_500)),
            ("0.8325", Some(833)),
            ("1.2344999", Some(1_234)),
            ("1e3", Some(1_000_000)),
            ("1759000000000000.25", Some(1_759_000_000_000_000_250)),
            ("", None),
            ("-", None),
            ("NaN", None),
            ("1.2.3", None),
            ("99999999999999999999", None),
            ("1e300", None),
        ] {
            assert_eq!(nanoseconds(text.as_bytes()), want, "{text}");
        }
    }

    #[test]
    fn the_float_is_that_of_the_text() {
        for text in ["3926559089864.491", "0.832", "1759000000000000.251", "24.64", "1759000000123456.789"] {
            let read = nanoseconds(text.as_bytes()).unwrap();
            assert_eq!(microseconds(read), text.parse::<f64>().unwrap(), "{text}");
        }
    }
}
