//! Spans of time and their unions, in integers, or in the float64 of another tool.

use std::ops::Sub;

/// A point of time or a length, in nanoseconds (i64) or microseconds (f64).
pub trait Time: Copy + PartialOrd + Sub<Output = Self> + std::iter::Sum<Self> + Default + Send + Sync {
    /// Start and end of an event, from its nanoseconds.
    fn span(start: i64, duration: i64) -> Span<Self>;
    /// In microseconds.
    fn microseconds(self) -> f64;
    /// One microsecond.
    const MICROSECOND: Self;
}

impl Time for i64 {
    fn span(start: i64, duration: i64) -> Span<i64> {
        Span { start, end: start.saturating_add(duration) }
    }

    fn microseconds(self) -> f64 {
        self as f64 / 1000.0
    }

    const MICROSECOND: i64 = 1000;
}

impl Time for f64 {
    /// The end is the float64 sum of start and duration, whatever that rounds away.
    fn span(start: i64, duration: i64) -> Span<f64> {
        let (start, duration) = (crate::number::microseconds(start), crate::number::microseconds(duration));
        Span { start, end: start + duration }
    }

    fn microseconds(self) -> f64 {
        self
    }

    const MICROSECOND: f64 = 1.0;
}

/// From start to end.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[allow(missing_docs)]
pub struct Span<T> {
    pub start: T,
    pub end: T,
}

/// For sorting: what cannot be compared is equal.
pub fn order<T: PartialOrd>(x: &T, y: &T) -> std::cmp::Ordering {
    x.partial_cmp(y).unwrap_or(std::cmp::Ordering::Equal)
}

/// Sorted, and merged where one begins before or as another ends.
pub fn union<T: Time>(mut spans: Vec<Span<T>>) -> Vec<Span<T>> {
    spans.sort_by(|x, y| order(&x.start, &y.start));
    let mut merged: Vec<Span<T>> = Vec::new();
    for span in spans {
        match merged.last_mut() {
            Some(last) if span.start <= last.end => {
                if span.end > last.end {
                    last.end = span.end;
                }
            }
            _ => merged.push(span),
        }
    }
    merged
}

/// What of `from` lies in none of `without`; both are unions.
pub fn difference<T: Time>(from: &[Span<T>], without: &[Span<T>]) -> Vec<Span<T>> {
    let mut left = Vec::new();
    let mut next = 0;
    for span in from {
        while next < without.len() && without[next].end <= span.start {
            next += 1;
        }
        let mut start = span.start;
        for hole in &without[next..] {
            if hole.start >= span.end {
                break;
            }
            if hole.start > start {
                left.push(Span { start, end: hole.start });
            }
            if hole.end > start {
                start = hole.end;
            }
        }
        if start < span.end {
            left.push(Span { start, end: span.end });
        }
    }
    left
}

/// Added up.
pub fn length<T: Time>(spans: &[Span<T>]) -> T {
    spans.iter().map(|s| s.end - s.start).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(list: &[(i64, i64)]) -> Vec<Span<i64>> {
        list.iter().map(|(start, end)| Span { start: *start, end: *end }).collect()
    }

    #[test]
    fn unions_and_differences() {
        let all = union(spans(&[(5, 9), (0, 3), (3, 4), (6, 7), (20, 21)]));
        assert_eq!(all, spans(&[(0, 4), (5, 9), (20, 21)]));
        assert_eq!(length(&all), 9);
        assert_eq!(difference(&all, &spans(&[(1, 2), (6, 30)])), spans(&[(0, 1), (2, 4), (5, 6)]));
        assert_eq!(difference(&all, &[]), all);
        assert_eq!(difference(&spans(&[(0, 10)]), &spans(&[(0, 1), (9, 12)])), spans(&[(1, 9)]));
    }
}
