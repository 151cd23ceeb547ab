//! Spans of time and their unions, in integers, or in the float64 of another tool.

use crate::category::Work;
use crate::event::Trace;
use crate::number::microseconds;
use crate::problems::Problems;
use std::ops::{AddAssign, Sub};

/// A point of time or a length, in nanoseconds (i64) or microseconds (f64).
pub trait Time:
    Copy + PartialOrd + Sub<Output = Self> + AddAssign + std::iter::Sum<Self> + Default + Send + Sync
{
    /// When each event ran; of integers, with impossible ends cut off.
    fn spans(trace: &Trace, problems: &mut Problems) -> Vec<Span<Self>>;
    /// In microseconds.
    fn microseconds(self) -> f64;
    /// One microsecond.
    const MICROSECOND: Self;
}

impl Time for i64 {
    fn spans(trace: &Trace, problems: &mut Problems) -> Vec<Span<i64>> {
        // A length below zero is no length: such an event is a point.
        let mut spans: Vec<Span<i64>> =
            trace.events.iter().map(|e| Span { start: e.start, end: e.end().max(e.start) }).collect();
        crate::streams::clip(trace, &mut spans, problems);
        spans
    }

    fn microseconds(self) -> f64 {
        self as f64 / 1000.0
    }

    const MICROSECOND: i64 = 1000;
}

impl Time for f64 {
    /// The end is the float64 sum of start and duration, whatever that rounds away.
    fn spans(trace: &Trace, _: &mut Problems) -> Vec<Span<f64>> {
        let span = |(start, duration): (f64, f64)| Span { start, end: start + duration };
        trace.events.iter().map(|e| span((microseconds(e.start), microseconds(e.duration)))).collect()
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

/// Adds to `alone` what each of `list`, sorted by start, has to itself of their union: an instant goes
/// to the kind of work that stands first, and of one kind to what began first.
pub fn share_out<T: Time>(list: &[(u32, Work)], span: impl Fn(u32) -> Span<T>, alone: &mut [T]) {
    use std::cmp::Reverse;
    // What runs: (kind, place in the list), the first of them owns the instant.
    let mut running: std::collections::BinaryHeap<Reverse<(Work, usize)>> = Default::default();
    let Some(first) = list.first() else { return };
    let mut now = span(first.0).start;
    for next in 0..=list.len() {
        let begins = list.get(next).map(|(i, _)| span(*i).start);
        // Up to where the next one begins, or to the end of all.
        while let Some(Reverse((_, at))) = running.peek() {
            let owner = list[*at].0;
            let end = span(owner).end;
            let until = begins.filter(|b| *b < end).unwrap_or(end);
            if until > now {
                alone[owner as usize] += until - now;
                now = until;
            }
            if until < end {
                break;
            }
            running.pop();
        }
        if let Some(begins) = begins {
            if begins > now {
                now = begins;
            }
            running.push(Reverse((list[next].1, next)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_belongs_to_one() {
        use Work::{Communication, Compute, Copy};
        let shared = |events: &[(Work, i64, i64)]| {
            let list: Vec<(u32, Work)> = events.iter().enumerate().map(|(i, e)| (i as u32, e.0)).collect();
            let mut alone = vec![0; events.len()];
            share_out(&list, |i| Span { start: events[i as usize].1, end: events[i as usize].2 }, &mut alone);
            alone
        };
        // Alone, side by side, one inside the other.
        assert_eq!(shared(&[(Compute, 0, 5), (Compute, 7, 9)]), [5, 2]);
        assert_eq!(shared(&[(Compute, 0, 5), (Compute, 3, 9)]), [5, 4]);
        assert_eq!(shared(&[(Compute, 0, 9), (Compute, 3, 5)]), [9, 0]);
        // Communication has what computing leaves, before and behind; copies what both leave.
        assert_eq!(shared(&[(Communication, 0, 10), (Compute, 2, 4), (Compute, 6, 7)]), [7, 2, 1]);
        assert_eq!(shared(&[(Copy, 0, 10), (Communication, 1, 5), (Compute, 2, 3)]), [6, 3, 1]);
        assert_eq!(shared(&[(Copy, 0, 4), (Copy, 4, 4), (Compute, 4, 6)]), [4, 0, 2]);
        assert_eq!(shared(&[]), [0; 0]);
    }

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
