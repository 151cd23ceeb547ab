//! A step of a serving engine: the products one GPU runs after what the engine puts together, splits and pads.
//!
//! `rules` has what each engine does, as data; `parts` turns an architecture by those rules into the weights one GPU
//! multiplies with; `issue` puts their products on a tape.

mod issue;
mod parts;
mod rules;

use crate::architecture::Architecture;
use crate::error::ModelError;
use crate::options::{Options, Phase};
use gemwright_core::{DType, Workload};
use parts::parts;
use rules::rules;

/// Who serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Engine {
    Vllm,
    Sglang,
}

impl Engine {
    #[cfg(test)]
    const ALL: [Engine; 2] = [Engine::Vllm, Engine::Sglang];

    /// The name used on the command line and in the output.
    pub fn name(self) -> &'static str {
        match self {
            Engine::Vllm => "vllm",
            Engine::Sglang => "sglang",
        }
    }
}

/// Rows of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tokens {
    /// So many, of all sequences together.
    Count(i64),
    /// Those that a tuner wants to know of, one step after the other.
    Ladder,
}

/// How an engine is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Serving {
    #[allow(missing_docs)]
    pub engine: Engine,
    /// As many as the batch decodes, or as its prompts have.
    pub tokens: Option<Tokens>,
    /// Rows that get logits: every token in decode, one in prefill.
    pub sampled: Option<i64>,
    /// Ranks that share out the experts.
    pub ep: i64,
    /// Which of the GPUs; biases of rows that are summed are the first one's.
    pub rank: i64,
    /// Steps are padded to the sizes that graphs were captured for.
    pub graph: bool,
}

impl Serving {
    /// One whole GPU.
    pub fn new(engine: Engine) -> Serving {
        Serving { engine, tokens: None, sampled: None, ep: 1, rank: 0, graph: false }
    }
}

/// Rows of a step, as given and as run.
#[derive(Debug, Clone, Copy)]
struct Rows {
    tokens: i64,
    sampled: i64,
}

/// The most of anything that can be asked for.
const MOST: i64 = 1 << 24;

fn wrong<T>(option: &'static str, why: impl Into<String>) -> Result<T, ModelError> {
    Err(ModelError::Option { option, why: why.into() })
}

/// What was served: bytes of the weights on the GPU.
pub struct Step {
    pub weight_bytes: u128,
    pub tokens: i64,
    pub phase: Phase,
}

/// Issues a step's products into `workload`, with what is worth saying.
pub fn serve(
    arch: &Architecture,
    options: &Options,
    serving: &Serving,
    dtype: DType,
    workload: &mut Workload,
) -> Result<Step, ModelError> {
    let rules = rules(serving.engine);
    let kind = &arch.model_type;
    let Some(served) = rules.models.get(kind) else {
        let known: Vec<&str> = rules.models.keys().map(String::as_str).collect();
        let why = format!("{}: how it serves {kind} is not known here; known are {}", rules.name(), known.join(", "));
        return wrong("--engine", why);
    };
    let phase = match options.phase {
        None | Some(Phase::Decode) => Phase::Decode,
        Some(Phase::Prefill) => Phase::Prefill,
        Some(phase) => return wrong("--phase", format!("{}: an engine's step is prefill or decode", phase.name())),
    };
    let decode = phase == Phase::Decode;
    for (option, n) in [("--tp", options.tp), ("--ep", serving.ep), ("--batch", options.batch)] {
        if !(1..=MOST).contains(&n) {
            return wrong(option, format!("is {n}; it must be from 1 to {MOST}"));
        }
    }
    if !(0..options.tp).contains(&serving.rank) {
        return wrong("--rank", format!("is {}; {} GPUs count from 0", serving.rank, options.tp));
    }
    let whole = if decode { options.batch } else { options.batch.saturating_mul(options.seq()) };
    let steps = match serving.tokens.unwrap_or(Tokens::Count(whole)) {
        Tokens::Count(tokens) => vec![tokens],
        Tokens::Ladder => rules.graph.ladder(decode, options.tp),
    };
    let parts = parts(arch, &rules, served, options.tp, serving)?;
    let mut notes = vec![format!("{}: {kind} is served by {}", rules.name(), served.class)];
    notes.extend(parts.notes);
    notes
        .push("attention, norms, rotary positions and exchanges run in kernels of the engine's own: not listed".into());
    for tokens in &steps {
        let sampled = serving.sampled.unwrap_or(if decode { *tokens } else { 1 });
        for (option, n) in [("--tokens", *tokens), ("--sampled", sampled)] {
            if !(1..=MOST).contains(&n) {
                return wrong(option, format!("is {n}; it must be from 1 to {MOST}"));
            }
        }
        if sampled > *tokens {
            return wrong("--sampled", format!("is {sampled}, of {tokens} tokens"));
        }
        let mut rows = Rows { tokens: *tokens, sampled };
        if serving.graph {
            rows.tokens = rules.graph.padded(*tokens, decode, options.tp);
            if rules.graph.pads_head && decode {
                rows.sampled = rules.graph.padded(sampled, decode, options.tp);
            }
            notes.push(format!(
                "--graph: {tokens} tokens run as {}, {sampled} sampled rows as {}",
                rows.tokens, rows.sampled
            ));
        }
        issue::issue(&parts.list, rows, decode, serving.engine, dtype, workload);
    }
    workload.warnings.extend(notes);
    let numbers = parts.embedding + parts.list.iter().map(parts::Part::weights).sum::<u128>();
    let weight_bytes = numbers * u128::from(dtype.bytes());
    Ok(Step { weight_bytes, tokens: steps.iter().sum(), phase })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Model;
    use gemwright_core::{Call, Op, Operands};
    use std::collections::BTreeMap;

    /// Kind, rows, n, k, batch, bias.
    type Key = (&'static str, i64, i64, i64, i64, bool);

    fn key(call: &Call) -> Key {
        let Operands::Product { a, b, bias, .. } = &call.operands else { panic!("{call:?} is no product") };
        match call.op {
            Op::Bmm => ("batched", a.size[1], b.size[2], b.size[1], b.size[0], false),
            _ => ("plain", a.size[0], b.size[1], b.size[0], 1, bias.is_some()),
        }
    }

    fn offered(workload: &Workload) -> BTreeMap<Key, u64> {
        let mut bag = BTreeMap::new();
        for call in workload.calls() {
            let key = match &call.operands {
                Operands::Grouped { a, b, .. } => ("grouped", a.size[0], b.size[2], b.size[1], b.size[0], false),
                _ => key(call),
            };
            *bag.entry(key).or_insert(0) += call.count;
        }
        bag
    }

    /// A line of the recorded lists; `None`: not in this phase.
    fn wanted(line: &str, decode: bool) -> Option<(Key, u64)> {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |i: usize| words[i].parse::<i64>().unwrap();
        let (n, k, batch) = (number(1), number(2), number(3));
        let key = match (words[0], words[4]) {
            ("grouped", _) => ("grouped", TOKENS * number(4), n, k, batch, false),
            ("batched", _) if !decode => return None,
            ("batched", _) => ("batched", TOKENS, n, k, batch, false),
            (_, "p") if decode => return None,
            (_, who) => ("plain", if who == "s" { SAMPLED } else { TOKENS }, n, k, 1, words[5] == "b"),
        };
        Some((key, number(6) as u64))
    }

    const TOKENS: i64 = 48;
    const SAMPLED: i64 = 5;
    const RECORDED: &str = include_str!("../../../../tests/engines.txt");

    fn config(model: &str) -> &'static str {
        let line = RECORDED.lines().find(|line| line.split(' ').nth(1) == Some(model)).unwrap();
        line.splitn(3, ' ').nth(2).unwrap()
    }

    fn asked(engine: Engine, tp: i64, ep: i64, phase: Phase) -> Options {
        let tokens = Some(Tokens::Count(TOKENS));
        let serving = Serving { tokens, sampled: Some(SAMPLED), ep, ..Serving::new(engine) };
        Options { serving: Some(serving), phase: Some(phase), tp, ..Options::default() }
    }

    #[test]
    fn steps_are_those_of_the_engines_own_classes() {
        let mut lists = 0;
        for part in RECORDED.split("list ").skip(1) {
            let mut lines = part.lines().filter(|line| !line.starts_with("config "));
            let head: Vec<&str> = lines.next().unwrap().split(' ').collect();
            let engine = Engine::ALL.into_iter().find(|engine| engine.name() == head[0]).unwrap();
            let rows: Vec<&str> = lines.collect();
            let model = Model::from_config(head[1], "config.json", config(head[1])).unwrap();
            let latent = rows.iter().any(|row| row.starts_with("batched"));
            let sparse = config(head[1]).contains("index_topk");
            for phase in [Phase::Decode, Phase::Prefill] {
                if phase == Phase::Prefill && (!latent || sparse) {
                    continue;
                }
                let options = asked(engine, head[2].parse().unwrap(), head[3].parse().unwrap(), phase);
                let step = model.predict(&options).unwrap_or_else(|e| panic!("{head:?}: {e}"));
                let mut expected = BTreeMap::new();
                for (key, count) in rows.iter().filter_map(|row| wanted(row, phase == Phase::Decode)) {
                    *expected.entry(key).or_insert(0) += count;
                }
                assert_eq!(offered(&step.workload), expected, "{head:?}");
                lists += 1;
            }
        }
        assert_eq!(lists, 254);
    }

    #[test]
    fn what_an_engine_refuses_is_refused_with_its_reason() {
        let refused = |model: &str, options: Options| {
            Model::from_config(model, "config.json", config(model))
                .unwrap()
                .predict(&options)
                .err()
                .unwrap()
                .to_string()
        };
        let asked = |engine, tp, ep| asked(engine, tp, ep, Phase::Decode);
        assert!(refused("qwen2.5-7b", asked(Engine::Vllm, 8, 1)).contains("query heads of 28"));
        assert!(refused("llama-2-7b", asked(Engine::Vllm, 1, 2)).contains("no experts"));
        assert!(refused("smollm3-3b", asked(Engine::Sglang, 8, 1)).contains("key heads"));
        assert!(refused("falcon-7b", asked(Engine::Sglang, 1, 1)).contains("falcon"));
        assert!(refused("qwen1.5-moe-a2.7b", asked(Engine::Sglang, 8, 8)).contains("experts of 60"));
        assert!(refused("deepseek-v3.2", Options::default()).contains("--engine vllm"));
        let train = Options { phase: Some(Phase::Train), ..asked(Engine::Vllm, 1, 1) };
        assert!(refused("llama-2-7b", train).contains("prefill or decode"));
    }

    #[test]
    fn graphs_ladders_and_other_ranks() {
        let model = Model::from_preset("gpt2").unwrap();
        let with = |serving: Serving, tp: i64| {
            let options = Options { serving: Some(serving), tp, ..Options::default() };
            model.predict(&options).unwrap().workload
        };
        let rows = |workload: &Workload| {
            let mut rows: Vec<i64> = workload.calls().iter().map(|call| key(call).1).collect();
            rows.sort_unstable();
            rows.dedup();
            rows
        };
        let step = Serving { tokens: Some(Tokens::Count(9)), graph: true, ..Serving::new(Engine::Vllm) };
        // The head is outside of vLLM's graph, and inside of SGLang's.
        assert_eq!(rows(&with(step, 1)), [9, 16]);
        assert_eq!(rows(&with(Serving { engine: Engine::Sglang, ..step }, 1)), [12]);
        let ladder = Serving { tokens: Some(Tokens::Ladder), ..Serving::new(Engine::Vllm) };
        assert_eq!(rows(&with(ladder, 1)).last(), Some(&512));
        // The bias of rows that are summed is the first GPU's.
        let biased = |rank| {
            let workload = with(Serving { rank, ..Serving::new(Engine::Vllm) }, 2);
            workload.calls().iter().filter(|call| key(call).5).count()
        };
        assert_eq!((biased(0), biased(1)), (4, 2));
    }
}
