//! What was measured fastest on a device, and who is asked for a product that was not: its neighbours in M, or all that was
//! measured of a kind.

mod steady;

use crate::DType;
use std::collections::HashMap;

/// What a product is looked up by.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub struct TunedKey {
    pub kind: TunedKind,
    pub m: u64,
    pub n: u64,
    pub k: u64,
}

/// What else must be the same.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub struct TunedKind {
    /// Letters of the column-major call: TN, NN, NT, TT.
    pub flags: String,
    pub batch: u64,
    pub dtype: DType,
    pub out_dtype: DType,
    /// Names of what follows the product, joined by `+`; nothing for a bare one.
    pub epilogue: String,
    /// The weight may be laid out once beforehand.
    pub prepacked: bool,
}

/// Who multiplies, and how.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub struct Runner {
    pub candidate: String,
    /// With the weight laid out beforehand.
    pub packed: bool,
    /// The epilogue runs after the product, on its result.
    pub split: bool,
}

/// A runner's time.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub struct Timed {
    pub runner: Runner,
    /// The tenth of the turns that is below: what else a machine does only adds.
    pub seconds: f64,
    /// Between the quartiles, as a part of the median.
    pub spread: f64,
}

/// A product with all that was measured of it: who is named, then the others, the faster the earlier.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub struct TunedRow {
    pub key: TunedKey,
    pub times: Vec<Timed>,
    /// Who was dropped, and why.
    pub dropped: Vec<(String, String)>,
    /// It is another tool's: what it names are numbers of solutions, each for one N and K.
    pub foreign: bool,
}

impl TunedRow {
    /// Who is named: the fastest, or who is hardly slower and the fastest over all ([`TunedTable::settle`]).
    pub fn best(&self) -> Option<&Timed> {
        self.times.first()
    }

    /// The next; the kernel that is picked is another one's second name.
    pub fn second(&self) -> Option<&Timed> {
        self.times.iter().skip(1).find(|timed| timed.runner.candidate != PICKED)
    }

    fn seconds(&self, runner: &Runner) -> Option<f64> {
        self.times.iter().find(|timed| timed.runner == *runner).map(|timed| timed.seconds)
    }
}

/// The device a table is for, and what it was made with.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub struct TunedDevice {
    /// The GPU's name as its driver has it, or the CPU's.
    pub name: String,
    /// Multiprocessors or threads.
    pub units: u64,
    /// What it can do in a second, as measured: FLOPs and bytes.
    pub flops: f64,
    pub bytes: f64,
    /// Candidates with their versions.
    pub versions: Vec<(String, String)>,
}

/// By which of the ways an answer was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Way {
    /// The product itself was measured.
    Exact,
    /// The same N and K were, with the nearest M on each side.
    Neighbours {
        #[allow(missing_docs)]
        below: Option<u64>,
        #[allow(missing_docs)]
        above: Option<u64>,
    },
    /// Predicted from what was measured of other products, or from nothing.
    CostModel,
}

/// Who is to multiply, and why.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub struct Answer {
    pub runner: Runner,
    pub way: Way,
    /// What it will take, by measurement or prediction.
    pub seconds: f64,
}

/// Rows by what they are looked up by.
#[derive(Debug, Clone)]
pub struct TunedTable {
    #[allow(missing_docs)]
    pub device: TunedDevice,
    rows: Vec<TunedRow>,
    exact: HashMap<TunedKey, usize>,
    /// Of a kind, N and K: rows in the order of M.
    by_m: HashMap<(TunedKind, u64, u64), Vec<usize>>,
    /// Candidates are tiles and proposals for one product, with the kernel that is picked beside them.
    picks: bool,
}

/// The candidate that picks a kernel of ours for each product. Other kernels and a library's proposals (`cublaslt.3`) are
/// made, or meant, for one product: of another one their times say nothing.
pub const PICKED: &str = "own.picked";

/// How many measured products a prediction is made from.
const NEAREST: usize = 6;

impl TunedTable {
    /// Of rows; where two have one key the later one counts.
    pub fn new(device: TunedDevice, rows: Vec<TunedRow>) -> TunedTable {
        let mut table =
            TunedTable { device, rows: Vec::new(), exact: HashMap::new(), by_m: HashMap::new(), picks: false };
        for row in rows {
            table.insert(row);
        }
        table
    }

    /// In the order they came in.
    pub fn rows(&self) -> &[TunedRow] {
        &self.rows
    }

    /// Adds a row, or puts it in the place of the one with its key.
    pub fn insert(&mut self, row: TunedRow) {
        self.picks |= row.times.iter().any(|timed| timed.runner.candidate == PICKED);
        if let Some(place) = self.exact.get(&row.key) {
            self.rows[*place] = row;
            return;
        }
        let key = row.key.clone();
        self.rows.push(row);
        let place = self.rows.len() - 1;
        let column = self.by_m.entry((key.kind.clone(), key.n, key.k)).or_default();
        let at = column.partition_point(|i| self.rows[*i].key.m < key.m);
        column.insert(at, place);
        self.exact.insert(key, place);
    }

    /// The row of a product that was measured.
    pub fn row(&self, key: &TunedKey) -> Option<&TunedRow> {
        self.exact.get(key).map(|place| &self.rows[*place])
    }

    /// Who is to multiply; `None` where nothing of the kind was measured.
    pub fn look_up(&self, key: &TunedKey) -> Option<Answer> {
        let exact = self.row(key).and_then(TunedRow::best);
        if let Some(best) = exact {
            return Some(Answer { runner: best.runner.clone(), way: Way::Exact, seconds: best.seconds });
        }
        let bare = || -> Option<Answer> {
            // Nothing with this epilogue was measured: who is fastest without it.
            let kind = TunedKind { epilogue: String::new(), ..key.kind.clone() };
            let answer = (!key.kind.epilogue.is_empty()).then(|| self.look_up(&TunedKey { kind, ..key.clone() }))??;
            Some(Answer { way: Way::CostModel, ..answer })
        };
        self.between(key).or_else(|| self.predicted(key)).or_else(bare)
    }

    /// A runner's time on one product says something of others.
    fn carries_over(&self, runner: &Runner) -> bool {
        !self.picks || runner.candidate == PICKED || !runner.candidate.contains('.')
    }

    /// Seconds that the device needs at least, by what it can do.
    fn roof(&self, key: &TunedKey) -> f64 {
        // In f64: what is read may be of any size.
        let elements = |x: u64, y: u64| key.kind.batch as f64 * x as f64 * y as f64;
        let flops = 2.0 * elements(key.m, key.n) * key.k as f64;
        let bytes = (elements(key.m, key.k) + elements(key.k, key.n)) * key.kind.dtype.bytes() as f64
            + elements(key.m, key.n) * key.kind.out_dtype.bytes() as f64;
        (flops / self.device.flops).max(bytes / self.device.bytes).max(1e-9)
    }

    /// By the nearest M on each side: a runner's share of the roof goes from one to the other with the logarithm of M.
    fn between(&self, key: &TunedKey) -> Option<Answer> {
        let column = self.by_m.get(&(key.kind.clone(), key.n, key.k))?;
        let at = column.partition_point(|i| self.rows[*i].key.m < key.m);
        let row = |place: Option<&usize>| place.map(|i| &self.rows[*i]).filter(|row| !row.times.is_empty());
        let (below, above) = (row(at.checked_sub(1).and_then(|i| column.get(i))), row(column.get(at)));
        let share = |row: &TunedRow, runner: &Runner| Some(self.roof(&row.key) / row.seconds(runner)?);
        let log = |m: u64| (m.max(1) as f64).ln();
        let known: Vec<&Runner> =
            [below, above].into_iter().flatten().flat_map(|row| &row.times).map(|t| &t.runner).collect();
        let known: Vec<&Runner> = known.into_iter().filter(|runner| self.carries_over(runner)).collect();
        let timed = |runner: &Runner| -> Option<f64> {
            let share = match (below.map(|row| (row, share(row, runner))), above.map(|row| (row, share(row, runner)))) {
                (Some((low, Some(x))), Some((high, Some(y)))) => {
                    let part = (log(key.m) - log(low.key.m)) / (log(high.key.m) - log(low.key.m)).max(1e-9);
                    (x.ln() * (1.0 - part) + y.ln() * part).exp()
                }
                // Measured on one side only because it was dropped on the other.
                (Some((_, Some(_))), Some(_)) | (Some(_), Some((_, Some(_)))) => return None,
                (Some((_, x)), None) | (None, Some((_, x))) => x?,
                _ => return None,
            };
            Some(self.roof(key) / share)
        };
        let way = Way::Neighbours { below: below.map(|row| row.key.m), above: above.map(|row| row.key.m) };
        least(known.into_iter().filter_map(|runner| Some((runner, timed(runner)?))), &way)
    }

    /// By the products of the kind that are nearest in M, N and K, the nearer the more.
    fn predicted(&self, key: &TunedKey) -> Option<Answer> {
        let far = |row: &TunedRow| {
            let one = |x: u64, y: u64| ((x.max(1) as f64) / (y.max(1) as f64)).ln().powi(2);
            // The same M matters most: it decides whether memory or the units are what it waits for.
            2.0 * one(row.key.m, key.m) + one(row.key.n, key.n) + one(row.key.k, key.k)
        };
        let mut near: Vec<(f64, &TunedRow)> = self
            .rows
            .iter()
            .filter(|row| row.key.kind == key.kind && !row.times.is_empty() && !row.foreign)
            .map(|row| (far(row), row))
            .collect();
        near.sort_by(|x, y| x.0.total_cmp(&y.0));
        near.truncate(NEAREST);
        let mut shares: Vec<(&Runner, f64, f64)> = Vec::new();
        for (far, row) in &near {
            let weight = 1.0 / (far + 0.1);
            let roof = self.roof(&row.key);
            for timed in row.times.iter().filter(|timed| self.carries_over(&timed.runner)) {
                let share = weight * (roof / timed.seconds).ln();
                match shares.iter_mut().find(|(runner, ..)| **runner == timed.runner) {
                    Some((_, sum, all)) => (*sum, *all) = (*sum + share, *all + weight),
                    None => shares.push((&timed.runner, share, weight)),
                }
            }
        }
        // Who was measured in few of them says little.
        let all: f64 = near.iter().map(|(far, _)| 1.0 / (far + 0.1)).sum();
        let known = shares.into_iter().filter(|(_, _, weight)| *weight >= 0.5 * all);
        let timed = known.map(|(runner, sum, weight)| (runner, self.roof(key) / (sum / weight).exp()));
        least(timed, &Way::CostModel).or_else(|| {
            let best = near.first()?.1.times.iter().filter(|timed| self.carries_over(&timed.runner));
            let best = best.min_by(|x, y| x.seconds.total_cmp(&y.seconds))?;
            Some(Answer { runner: best.runner.clone(), way: Way::CostModel, seconds: self.roof(key) })
        })
    }
}

fn least<'a>(all: impl Iterator<Item = (&'a Runner, f64)>, way: &Way) -> Option<Answer> {
    let (runner, seconds) = all.min_by(|(_, x), (_, y)| x.total_cmp(y))?;
    Some(Answer { runner: runner.clone(), way: way.clone(), seconds })
}

/// From which M on something wins, for an N and K.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub struct Threshold {
    pub kind: TunedKind,
    pub n: u64,
    pub k: u64,
    /// The least M from which on it wins at every M that was measured; `None`: nowhere.
    pub from: Option<u64>,
}

impl TunedTable {
    /// From which M on those win that `wins` says, for every N and K of a kind that `of` says.
    pub fn thresholds(&self, of: impl Fn(&TunedKind) -> bool, wins: impl Fn(&Runner) -> bool) -> Vec<Threshold> {
        let mut all: Vec<Threshold> = Vec::new();
        for ((kind, n, k), column) in self.by_m.iter().filter(|((kind, ..), _)| of(kind)) {
            let mut from = None;
            for row in column.iter().rev().map(|i| &self.rows[*i]) {
                match row.best() {
                    Some(best) if wins(&best.runner) => from = Some(row.key.m),
                    _ => break,
                }
            }
            all.push(Threshold { kind: kind.clone(), n: *n, k: *k, from });
        }
        let key = |t: &Threshold| (t.n, t.k, t.kind.dtype as u8, t.kind.out_dtype as u8, t.kind.batch);
        all.sort_by(|x, y| {
            key(x).cmp(&key(y)).then_with(|| (&x.kind.flags, &x.kind.epilogue).cmp(&(&y.kind.flags, &y.kind.epilogue)))
        });
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind() -> TunedKind {
        let (dtype, out_dtype) = (DType::F32, DType::F32);
        TunedKind { flags: "TN".into(), batch: 1, dtype, out_dtype, epilogue: String::new(), prepacked: true }
    }

    fn key(m: u64, n: u64) -> TunedKey {
        TunedKey { kind: kind(), m, n, k: 1024 }
    }

    fn runner(candidate: &str, packed: bool) -> Runner {
        Runner { candidate: candidate.into(), packed, split: false }
    }

    fn row(m: u64, n: u64, times: &[(&str, f64)]) -> TunedRow {
        let mut times: Vec<Timed> = times
            .iter()
            .map(|(name, us)| Timed { runner: runner(name, name.ends_with('p')), seconds: us * 1e-6, spread: 0.01 })
            .collect();
        times.sort_by(|x, y| x.seconds.total_cmp(&y.seconds));
        TunedRow { key: key(m, n), times, dropped: Vec::new(), foreign: false }
    }

    fn table() -> TunedTable {
        let device = TunedDevice { name: "cpu".into(), units: 2, flops: 1e11, bytes: 1e10, versions: Vec::new() };
        let rows = vec![
            row(64, 512, &[("a", 90.0), ("bp", 60.0)]),
            row(1, 512, &[("a", 5.0), ("bp", 9.0)]),
            row(16, 512, &[("a", 30.0), ("bp", 25.0)]),
        ];
        TunedTable::new(device, rows)
    }

    /// A tile that won says nothing of other products, nor does a proposal; the kernel that is picked and the library do.
    #[test]
    fn what_is_meant_for_one_product_is_not_taken_for_another() {
        let device = TunedDevice { name: "gpu".into(), units: 132, flops: 1e15, bytes: 4e12, versions: Vec::new() };
        let times = [("own.128x160", 7.0), ("cublaslt.3", 7.5), ("cublaslt", 9.0), (PICKED, 10.0)];
        let table = TunedTable::new(device, vec![row(16, 512, &times), row(64, 512, &times)]);
        let name = |m, n| table.look_up(&key(m, n)).map(|answer| answer.runner.candidate);
        assert_eq!(name(16, 512), Some("own.128x160".into()));
        assert_eq!(name(32, 512), Some("cublaslt".into()));
        assert_eq!(name(16, 700), Some("cublaslt".into()));
        let second = |times: &[(&str, f64)]| row(1, 1, times).second().map(|timed| timed.runner.candidate.clone());
        assert_eq!(second(&[("own.x", 1.0), (PICKED, 1.0), ("cublaslt", 2.0)]), Some("cublaslt".into()));
    }

    #[test]
    fn each_of_the_three_ways() {
        let table = table();
        let name = |m, n| table.look_up(&key(m, n)).map(|answer| (answer.runner.candidate, answer.way));
        assert_eq!(name(16, 512), Some(("bp".into(), Way::Exact)));
        assert_eq!(name(2, 512), Some(("a".into(), Way::Neighbours { below: Some(1), above: Some(16) })));
        assert_eq!(name(40, 512), Some(("bp".into(), Way::Neighbours { below: Some(16), above: Some(64) })));
        assert_eq!(name(500, 512), Some(("bp".into(), Way::Neighbours { below: Some(64), above: None })));
        assert_eq!(name(1, 700), Some(("a".into(), Way::CostModel)));
        assert_eq!(name(64, 300), Some(("bp".into(), Way::CostModel)));
        let other = TunedKey { kind: TunedKind { dtype: DType::F64, ..kind() }, m: 1, n: 512, k: 1024 };
        assert_eq!(table.look_up(&other), None);
        // With a bias behind it nothing was measured: as without.
        let bias = TunedKey { kind: TunedKind { epilogue: "bias".into(), ..kind() }, m: 16, n: 512, k: 1024 };
        assert_eq!(table.look_up(&bias).map(|a| (a.runner.candidate, a.way)), Some(("bp".into(), Way::CostModel)));
        let huge = TunedKey { kind: kind(), m: u64::MAX, n: u64::MAX, k: u64::MAX };
        assert!(table.look_up(&huge).is_some());
    }

    #[test]
    fn a_later_row_takes_the_place_of_its_key() {
        let mut table = table();
        table.insert(row(16, 512, &[("a", 10.0), ("bp", 25.0)]));
        assert_eq!((table.rows().len(), table.look_up(&key(16, 512)).unwrap().runner.candidate), (3, "a".into()));
    }

    #[test]
    fn weights_laid_out_pay_from_a_row_on() {
        let found = table().thresholds(|kind| kind.prepacked, |runner| runner.packed);
        assert_eq!(found, [Threshold { kind: kind(), n: 512, k: 1024, from: Some(16) }]);
        assert_eq!(table().thresholds(|_| true, |runner| runner.split)[0].from, None);
    }
}
