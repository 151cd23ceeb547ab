//! Who a row names where times do not tell who is faster: on a busy machine the fastest of ten candidates is often one that had
//! a quiet moment, and a table of such winners is slower than its best candidate alone.

use super::{PICKED, Runner, Timed, TunedKey, TunedKind, TunedRow, TunedTable};
use std::collections::HashMap;

impl TunedTable {
    /// Names in every row the fastest, unless that is no more than noise ahead of who is the fastest over all rows of a kind,
    /// each counted `count` times; rows that count 0 stay as they are.
    pub fn settle(&mut self, count: impl Fn(&TunedKey) -> u64) {
        let mut kinds: HashMap<TunedKind, Vec<usize>> = HashMap::new();
        for (i, row) in self.rows.iter().enumerate().filter(|(_, row)| count(&row.key) > 0) {
            kinds.entry(row.key.kind.clone()).or_default().push(i);
        }
        for of_kind in kinds.into_values() {
            let all: Vec<(&TunedRow, u64)> =
                of_kind.iter().map(|i| (&self.rows[*i], count(&self.rows[*i].key))).collect();
            let steady = fastest_over_all(&all);
            for i in of_kind {
                let times = &mut self.rows[i].times;
                times.sort_by(|x, y| x.seconds.total_cmp(&y.seconds));
                let found = times.iter().position(|timed| Some(&timed.runner) == steady.as_ref());
                if let Some(at) = found.filter(|at| !ahead(&times[0], &times[*at])) {
                    times[..=at].rotate_right(1);
                }
            }
        }
    }
}

/// What counts as noise at most, however far turns lie apart: who is further behind is not named.
const MOST: f64 = 0.2;

/// Whether one is faster than another by more than their turns differ: by half of what lies between the quartiles of both.
fn ahead(one: &Timed, other: &Timed) -> bool {
    one.seconds < other.seconds * (1.0 - ((one.spread + other.spread) / 2.0).min(MOST))
}

/// Of the runners that every row has. What the cost model picks is not one but many.
fn fastest_over_all(rows: &[(&TunedRow, u64)]) -> Option<Runner> {
    let (first, _) = rows.first()?;
    let known = first.times.iter().map(|timed| &timed.runner).filter(|runner| runner.candidate != PICKED);
    let total = |runner: &Runner| {
        rows.iter().map(|(row, count)| Some(row.seconds(runner)? * *count as f64)).sum::<Option<f64>>()
    };
    let totals = known.filter_map(|runner| Some((runner, total(runner)?)));
    totals.min_by(|(_, x): &(_, f64), (_, y)| x.total_cmp(y)).map(|(runner, _)| runner.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, TunedDevice};

    fn row(m: u64, times: &[(&str, f64, f64)]) -> TunedRow {
        let (dtype, out_dtype) = (DType::F32, DType::F32);
        let kind =
            TunedKind { flags: "TN".into(), batch: 1, dtype, out_dtype, epilogue: String::new(), prepacked: false };
        let timed = |(name, seconds, spread): &(&str, f64, f64)| {
            let runner = Runner { candidate: (*name).into(), packed: false, split: false };
            Timed { runner, seconds: *seconds, spread: *spread }
        };
        let mut times: Vec<Timed> = times.iter().map(timed).collect();
        times.sort_by(|x, y| x.seconds.total_cmp(&y.seconds));
        TunedRow { key: TunedKey { kind, m, n: 512, k: 512 }, times, dropped: Vec::new(), foreign: false }
    }

    #[test]
    fn who_is_ahead_by_noise_alone_is_not_named() {
        let device = TunedDevice { name: "cpu".into(), units: 2, flops: 1e11, bytes: 1e10, versions: Vec::new() };
        let rows = vec![
            // Ahead by a tenth, with turns that differ by a fifth and by nothing.
            row(1, &[("steady", 1.0, 0.0), ("lucky", 0.9, 0.2), (PICKED, 0.8, 0.5)]),
            // By as much, with turns that hardly differ.
            row(2, &[("steady", 1.0, 0.02), ("better", 0.9, 0.02)]),
            row(4, &[("lucky", 3.0, 0.0), ("steady", 1.0, 0.0)]),
            // Not of what was asked for.
            row(8, &[("lucky", 0.9, 0.9), ("steady", 1.0, 0.9)]),
            // However far turns lie apart, nobody is named who takes twice as long.
            row(3, &[("lucky", 0.5, 9.0), ("steady", 1.0, 0.0)]),
        ];
        let mut table = TunedTable::new(device, rows);
        for _ in 0..2 {
            table.settle(|key| u64::from(key.m < 8));
            let named: Vec<&str> =
                table.rows().iter().map(|row| row.best().unwrap().runner.candidate.as_str()).collect();
            assert_eq!(named, ["steady", "better", "steady", "lucky", "lucky"]);
            assert_eq!(table.rows()[0].second().unwrap().runner.candidate, "lucky");
        }
        let answer = table.look_up(&table.rows()[0].key.clone()).unwrap();
        assert_eq!((answer.runner.candidate.as_str(), answer.seconds), ("steady", 1.0));
    }
}
