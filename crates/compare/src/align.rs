//! Two sequences laid side by side so that as much as possible fits, and what of that is certain.

/// More pairs than this are not weighed.
const MOST_PAIRS: usize = 1 << 24;

/// What the second sequence's element is, among those of the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In every best alignment this one, or one with the same name.
    Certain(usize),
    /// Best alignments differ in which it is.
    Ambiguous,
    /// None.
    Nothing,
}

/// Aligns `0..first` with `0..second`. `fits` gives the weight of a pair, `None` where it cannot be;
/// `name` tells which elements of the first are the same thing. `None` where there are too many.
pub fn align(
    first: usize,
    second: usize,
    fits: impl Fn(usize, usize) -> Option<u32>,
    name: impl Fn(usize) -> usize,
) -> Option<Vec<Place>> {
    // As many on both sides and each fits: nothing else fits as much.
    if first == second && (0..first).all(|i| fits(i, i).is_some()) {
        return Some((0..first).map(Place::Certain).collect());
    }
    if first.checked_mul(second).is_none_or(|pairs| pairs > MOST_PAIRS) {
        return None;
    }
    let width = second + 1;
    let at = |i: usize, j: usize| i * width + j;
    let mut before = vec![0u32; (first + 1) * width];
    let mut after = vec![0u32; (first + 1) * width];
    for i in 0..first {
        for j in 0..second {
            let paired = fits(i, j).map_or(0, |weight| before[at(i, j)] + weight);
            before[at(i + 1, j + 1)] = paired.max(before[at(i, j + 1)]).max(before[at(i + 1, j)]);
        }
    }
    for i in (0..first).rev() {
        for j in (0..second).rev() {
            let paired = fits(i, j).map_or(0, |weight| after[at(i + 1, j + 1)] + weight);
            after[at(i, j)] = paired.max(after[at(i + 1, j)]).max(after[at(i, j + 1)]);
        }
    }
    let best = after[at(0, 0)];
    let place = |j: usize| {
        let on_a_best_way =
            |i: &usize| fits(*i, j).is_some_and(|weight| before[at(*i, j)] + weight + after[at(i + 1, j + 1)] == best);
        let mut possible = (0..first).filter(on_a_best_way);
        let left_out = (0..=first).any(|i| before[at(i, j)] + after[at(i, j + 1)] == best);
        match possible.next() {
            None => Place::Nothing,
            Some(i) if !left_out && possible.all(|other| name(other) == name(i)) => Place::Certain(i),
            Some(_) => Place::Ambiguous,
        }
    };
    Some((0..second).map(place).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Letters fit themselves.
    fn of(first: &str, second: &str) -> Vec<Place> {
        let (x, y) = (first.as_bytes(), second.as_bytes());
        let fits = |i: usize, j: usize| (x[i] == y[j]).then_some(1);
        align(x.len(), y.len(), fits, |i| x[i] as usize).unwrap()
    }

    #[test]
    fn what_is_missing_or_more_is_found() {
        use Place::{Certain, Nothing};
        assert_eq!(of("abc", "abc"), [Certain(0), Certain(1), Certain(2)]);
        assert_eq!(of("abc", "ac"), [Certain(0), Certain(2)]);
        assert_eq!(of("ac", "abc"), [Certain(0), Nothing, Certain(1)]);
    }

    #[test]
    fn one_of_two_that_cannot_be_told_apart_is_ambiguous() {
        use Place::{Ambiguous, Certain};
        // Which of the two b ran is not told.
        assert_eq!(of("abc", "abbc"), [Certain(0), Ambiguous, Ambiguous, Certain(2)]);
        // Which of two equal products ran does not matter.
        assert_eq!(of("abbc", "abc"), [Certain(0), Certain(1), Certain(3)]);
    }

    #[test]
    fn too_many_are_not_weighed() {
        assert_eq!(align(1 << 13, 1 << 12, |_, _| None, |i| i), None);
        assert!(align(1 << 14, 1 << 14, |_, _| Some(1), |i| i).is_some());
    }
}
