//! Which candidate a problem gets: by what was measured of it, of its neighbours, or of its kind, and without any of that
//! one of ours. There is always an answer.

use crate::contract::blas_order;
use crate::problem::{Groups, Layout, Problem, Scaling};
use crate::tuned_files;
use gemwright_core::{Answer, Product, Runner, TunedDevice, TunedKey, TunedKind, TunedTable, Way};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

/// The variable that names tables.
pub const TABLES: &str = "GEMWRIGHT_TABLE";

/// A problem as far as a table knows it, in a few words: extents, and layouts, types and epilogue in the last one.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key([u64; 5]);

impl Key {
    fn of(problem: &Problem) -> Key {
        let (p, epilogue) = (problem.product, &problem.epilogue);
        let letter = |layout: &Layout, rows: u64, cols: u64| match blas_order(layout, rows, cols) {
            Some((turned, _)) => u64::from(turned),
            None => 2,
        };
        let mut word = letter(&problem.b, p.k, p.n) * 3 + letter(&problem.a, p.m, p.k);
        let types = [problem.dtype, problem.weight_dtype, problem.out_dtype].map(|dtype| dtype as u64);
        let scales = problem.scales.map(|scaling| scaling as u64);
        for part in types.into_iter().chain(scales).chain([epilogue.activation as u64]) {
            word = word << 6 | part;
        }
        let flags = [epilogue.gated, epilogue.kept.is_some(), problem.prepacked, problem.promoted];
        for set in epilogue.parts.iter().map(Option::is_some).chain(flags) {
            word = word << 1 | u64::from(set);
        }
        // Groups are of no batch.
        let batch = match problem.groups {
            Groups::None => p.batch,
            Groups::Rows(count) => count | 1 << 62,
            Groups::K(count) => count | 1 << 63,
        };
        Key([p.m, p.n, p.k, batch, word])
    }
}

/// Words that nobody chooses to make them collide need no more than to be mixed.
#[derive(Default)]
struct Mixed(u64);

impl Hasher for Mixed {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.0 = (self.0.rotate_left(23) ^ u64::from_le_bytes(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
    }

    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }
}

type Known = HashMap<Key, Arc<Answer>, BuildHasherDefault<Mixed>>;

impl Problem {
    /// What it is looked up by.
    pub fn tuned_key(&self) -> TunedKey {
        let Product { batch, m, n, k } = self.product;
        let kind = TunedKind {
            flags: self.letters() + &of_groups(self.groups) + &of_eight_bits(self),
            batch,
            dtype: self.dtype,
            out_dtype: self.out_dtype,
            epilogue: self.epilogue.names().join("+"),
            prepacked: self.prepacked,
        };
        TunedKey { kind, m, n, k }
    }
}

/// Groups in a key: they have kernels of their own.
fn of_groups(groups: Groups) -> String {
    match groups {
        Groups::None => String::new(),
        Groups::Rows(count) => format!(" {count} groups"),
        Groups::K(count) => format!(" {count} groups of k"),
    }
}

/// Weights of 8 bits, factors and promoted sums in a key.
fn of_eight_bits(problem: &Problem) -> String {
    let mut text = String::new();
    if problem.weight_dtype != problem.dtype {
        text += &format!(" by {}", problem.weight_dtype);
    }
    for (side, scaling) in ["a", "b"].into_iter().zip(problem.scales) {
        match scaling {
            Scaling::None => {}
            Scaling::Tensor => text += &format!(" scale of {side}"),
            Scaling::Rows => text += &format!(" scales of {side}"),
        }
    }
    text + if problem.promoted { " promoted" } else { "" }
}

/// Tables that were asked for and not taken, with the reason.
pub type RefusedTable = (PathBuf, String);

/// Tables of a device and a default.
pub struct Dispatcher {
    table: Option<TunedTable>,
    default: Runner,
    /// What has been asked before.
    known: RwLock<Known>,
}

impl Dispatcher {
    /// By a table, where there is one; who multiplies where nothing says otherwise.
    pub fn new(table: Option<TunedTable>, default: &str) -> Dispatcher {
        let default = Runner { candidate: default.into(), packed: false, split: false };
        Dispatcher { table, default, known: RwLock::default() }
    }

    /// By the tables that `GEMWRIGHT_TABLE` names, later ones first; those of another device, or that cannot be read, are
    /// named with the reason and left aside.
    pub fn of_environment(device: &TunedDevice, default: &str) -> (Dispatcher, Vec<RefusedTable>) {
        let paths: Vec<PathBuf> = std::env::var_os(TABLES).iter().flat_map(std::env::split_paths).collect();
        let (table, refused) = tuned_files::load_all(&paths, Some(device));
        (Dispatcher::new(table, default), refused)
    }

    /// Who is to multiply, and by which of the ways that was found. Never fails.
    pub fn choose(&self, problem: &Problem) -> Arc<Answer> {
        let key = Key::of(problem);
        if let Some(answer) = self.known.read().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return answer.clone();
        }
        let found = self.table.as_ref().and_then(|table| table.look_up(&problem.tuned_key()));
        let default = || Answer { runner: self.default.clone(), way: Way::CostModel, seconds: f64::NAN };
        let answer = Arc::new(found.unwrap_or_else(default));
        self.known.write().unwrap_or_else(PoisonError::into_inner).insert(key, answer.clone());
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gemwright_core::{DType, Timed, TunedRow};
    use std::time::Instant;

    fn dispatcher() -> Dispatcher {
        let device = TunedDevice { name: "cpu".into(), units: 2, flops: 1e11, bytes: 1e10, versions: Vec::new() };
        let row = |m, candidate: &str| TunedRow {
            key: Problem::linear(m, 4096, 4096, DType::F32).tuned_key(),
            times: vec![Timed {
                runner: Runner { candidate: candidate.into(), packed: false, split: false },
                seconds: 1e-3 * m as f64,
                spread: 0.0,
            }],
            dropped: Vec::new(),
            foreign: false,
        };
        Dispatcher::new(Some(TunedTable::new(device, vec![row(1, "mkl"), row(64, "own.x")])), "own.default")
    }

    /// What differs has another key, of the table and of what is remembered.
    #[test]
    fn groups_and_small_types_are_problems_of_their_own() {
        let plain = Problem::linear(64, 64, 64, DType::Bf16);
        let all = [
            plain,
            plain.with_groups_of_rows(4),
            plain.with_groups_of_rows(8),
            plain.with_groups_of_k(4),
            plain.with_small_weights(Scaling::None),
            plain.with_small_weights(Scaling::Tensor),
            plain.with_small_weights(Scaling::Rows),
            plain.of_eight_bits([Scaling::None; 2], false),
            plain.of_eight_bits([Scaling::None; 2], true),
            plain.of_eight_bits([Scaling::None, Scaling::Rows], false),
        ];
        for (i, one) in all.iter().enumerate() {
            for other in &all[..i] {
                assert!(Key::of(one) != Key::of(other) && one.tuned_key() != other.tuned_key(), "{one:?} {other:?}");
            }
        }
    }

    #[test]
    fn there_is_always_an_answer() {
        let dispatcher = dispatcher();
        let who = |problem: &Problem| dispatcher.choose(problem).runner.candidate.clone();
        assert_eq!(who(&Problem::linear(1, 4096, 4096, DType::F32)), "mkl");
        assert_eq!(who(&Problem::linear(1000, 4096, 4096, DType::F32)), "own.x");
        assert_eq!(who(&Problem::linear(0, 0, 0, DType::F64)), "own.default");
        assert_eq!(who(&Problem::new(8, 4096, 4096, DType::F32)), "own.default");
    }

    /// A look-up that has been made before takes less than 100 ns, the best of a few goes (other work only adds).
    #[test]
    fn a_look_up_takes_no_time() {
        let dispatcher = dispatcher();
        let problems: Vec<Problem> = (1..100).map(|m| Problem::linear(m, 4096, 4096, DType::F32)).collect();
        let (mut best, start) = (f64::INFINITY, Instant::now());
        while best >= 100e-9 && start.elapsed().as_secs() < 10 {
            let begin = Instant::now();
            for problem in &problems {
                std::hint::black_box(dispatcher.choose(std::hint::black_box(problem)));
            }
            best = best.min(begin.elapsed().as_secs_f64() / problems.len() as f64);
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
        assert!(best < 100e-9, "{best:e} s");
    }
}
