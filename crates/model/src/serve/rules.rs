//! What a serving engine makes of a model: the files under `engines/`, one an engine.

use super::Engine;
use serde::Deserialize;
use std::collections::BTreeMap;

/// One file of `engines/`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    pub engine: String,
    pub version: String,
    pub vocabulary: Vocabulary,
    pub experts: Spread,
    pub models: BTreeMap<String, Served>,
    pub graph: Graph,
}

/// What happens where the vocabulary, rounded up, does not divide by the GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Vocabulary {
    /// It is an error.
    Divides,
    /// It is rounded up further.
    Widened,
}

/// How experts go to the ranks of an expert-parallel group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Spread {
    /// Whole ones, the first ranks one more.
    Spread,
    /// As many for each group of ranks, which split each of them.
    Grouped,
}

/// How a model is served, as far as it goes not without saying.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Served {
    /// The engine's own file, or the way it takes instead.
    pub class: String,
    /// Queries, keys and values are one product, gate and up another.
    #[serde(default = "yes")]
    pub fuses: bool,
    #[serde(default = "yes")]
    pub repeats_key_heads: bool,
    #[serde(default)]
    pub bias: Bias,
    #[serde(default)]
    pub mlp: Part,
    #[serde(default)]
    pub head: Part,
    /// With so many experts the shared one is one of them, where experts are not spread.
    pub shared_expert_joins: Option<i64>,
}

fn yes() -> bool {
    true
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bias {
    /// Part of the product.
    #[default]
    Inside,
    /// Added afterwards.
    Apart,
}

/// Of a layer that may be split.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    #[default]
    Split,
    /// Every GPU has all of it.
    Whole,
}

/// M that graphs are captured for, as spans of first, last, step.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Graph {
    pub decode: Vec<[i64; 3]>,
    /// The largest of them where fewer than four GPUs share a layer.
    pub decode_below_four: Option<i64>,
    pub prefill: Vec<[i64; 3]>,
    /// The head is inside of the graph.
    pub pads_head: bool,
    /// Tokens of a step at most, on GPUs of different memory.
    pub chunks: Vec<i64>,
}

/// The rules of an engine.
///
/// # Panics
/// Never on input: a test reads every file.
pub fn rules(engine: Engine) -> Rules {
    let text = match engine {
        Engine::Vllm => include_str!("../../engines/vllm.toml"),
        Engine::Sglang => include_str!("../../engines/sglang.toml"),
    };
    toml::from_str(text).unwrap_or_else(|e| panic!("engines/{}.toml: {e}", engine.name()))
}

impl Rules {
    /// Its name and the version that the rules are of.
    pub fn name(&self) -> String {
        format!("{} {}", self.engine, self.version)
    }
}

impl Graph {
    /// The sizes that steps of a phase are captured for.
    pub fn sizes(&self, decode: bool, ranks: i64) -> Vec<i64> {
        let spans = if decode { &self.decode } else { &self.prefill };
        let most = self.decode_below_four.filter(|_| decode && ranks < 4).unwrap_or(i64::MAX);
        let all = spans.iter().flat_map(|[first, last, step]| (*first..=*last).step_by(*step as usize));
        all.filter(|size| *size <= most).collect()
    }

    /// The smallest captured size that holds so many rows; more than all of them run without a graph.
    pub fn padded(&self, rows: i64, decode: bool, ranks: i64) -> i64 {
        self.sizes(decode, ranks).into_iter().find(|size| *size >= rows).unwrap_or(rows)
    }

    /// Values of M for a tuner: what steps are padded to and what their chunks are, rounded as aiter looks them up.
    pub fn ladder(&self, decode: bool, ranks: i64) -> Vec<i64> {
        let chunks = self.chunks.iter().copied().filter(|_| !decode);
        let mut all: Vec<i64> = self.sizes(decode, ranks).into_iter().chain(chunks).map(looked_up).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

/// The M whose row aiter finds for a product without one of its own.
fn looked_up(rows: i64) -> i64 {
    let step = match rows {
        // Small ones have rows of their own.
        ..=16 => return rows,
        17..=256 => 16,
        257..=1024 => 32,
        1025..=4096 => 64,
        _ => 128,
    };
    (rows + step - 1) / step * step
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::declaration::known_types;

    #[test]
    fn every_file_is_read_and_names_known_types() {
        for engine in Engine::ALL {
            let rules = rules(engine);
            assert_eq!(rules.engine, engine.name());
            for model in rules.models.keys() {
                assert!(known_types().any(|known| known == model), "{model}");
            }
        }
    }

    #[test]
    fn steps_are_padded_as_the_graphs_are() {
        let vllm = rules(Engine::Vllm).graph;
        // As the engine has them on a GPU before Blackwell.
        assert_eq!(vllm.sizes(true, 1).len(), 51);
        assert_eq!([1, 3, 9, 250, 257, 513].map(|rows| vllm.padded(rows, true, 1)), [1, 4, 16, 256, 272, 513]);
        let sglang = rules(Engine::Sglang).graph;
        assert_eq!([3, 9, 13, 300].map(|rows| sglang.padded(rows, true, 8)), [4, 12, 16, 304]);
        assert_eq!(sglang.padded(300, true, 2), 300);
        assert_eq!(sglang.padded(33, false, 1), 48);
        let ladder = vllm.ladder(false, 1);
        assert!(ladder.contains(&16384) && ladder.contains(&512) && !ladder.contains(&24), "{ladder:?}");
        assert!(ladder.is_sorted() && vllm.ladder(true, 1).iter().all(|m| *m <= 512));
    }
}
