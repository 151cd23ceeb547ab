//! The weights one GPU multiplies with, by an engine's rules.

use super::Serving;
use super::rules::{Bias, Part as Share, Rules, Served, Spread, Vocabulary};
use crate::architecture::{Architecture, Attention, Experts, Latent, Layer, Linear, Mlp, Projections, Stack, Up};
use crate::declaration::LinearWay;
use crate::error::ModelError;

/// Which rows of a step meet a weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    Tokens,
    Sampled,
    /// What is new, where keys and values are made of a latent: not in decode.
    Prefill,
}

/// A latent's weight as each head of a decode step takes it: into the latent, and out of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Absorbed {
    pub heads: i64,
    pub rank: i64,
    pub plain: i64,
    pub rotated: i64,
    pub value: i64,
    /// In prompts too.
    pub always: bool,
}

/// Experts of one GPU: \[count, outputs, inputs\].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stacked {
    pub count: i64,
    pub chosen: i64,
    pub inputs: i64,
    pub outputs: i64,
    /// Experts that get one of so many tokens, of all: the share of them that this GPU has.
    pub of: i64,
}

#[derive(Debug, Clone, PartialEq)]
pub enum What {
    Linear(Linear, Who),
    Absorbed(Absorbed),
    Stacked(Stacked),
}

/// A weight, with how many layers have it.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    pub module: String,
    pub what: What,
    pub count: u64,
}

impl Part {
    /// Numbers of all layers; what is absorbed is the weight that expands the latent, where that is not listed itself.
    pub fn weights(&self) -> u128 {
        let one = match &self.what {
            What::Linear(l, _) => (l.inputs + i64::from(l.bias)) as u128 * l.outputs as u128,
            What::Absorbed(a) if a.always => (a.heads * (a.plain + a.value)) as u128 * a.rank as u128,
            What::Absorbed(_) => 0,
            What::Stacked(s) => s.count as u128 * s.inputs as u128 * s.outputs as u128,
        };
        one * u128::from(self.count)
    }
}

/// All of them, and what is worth saying.
pub struct Parts {
    pub list: Vec<Part>,
    /// Numbers of the embedding, where the head has its own.
    pub embedding: u128,
    pub notes: Vec<String>,
}

struct Maker<'a> {
    rules: &'a Rules,
    served: &'a Served,
    /// GPUs that share a layer, and which of them this is.
    ranks: i64,
    rank: i64,
    ep: i64,
    list: Vec<Part>,
    notes: Vec<String>,
}

/// Of an architecture that an engine serves.
pub fn parts(
    arch: &Architecture,
    rules: &Rules,
    served: &Served,
    ranks: i64,
    serving: &Serving,
) -> Result<Parts, ModelError> {
    let mut maker =
        Maker { rules, served, ranks, rank: serving.rank, ep: serving.ep, list: Vec::new(), notes: Vec::new() };
    let kind = &arch.model_type;
    let refused = |option: &'static str| {
        let name = rules.name();
        move |why: String| ModelError::Option { option, why: format!("{name} refuses {kind}: {why}") }
    };
    if serving.ep > 1 && arch.main.experts.is_none() {
        return Err(refused("--ep")("it has no experts".into()));
    }
    maker.stack(&arch.main).map_err(refused(if serving.ep > 1 { "--ep" } else { "--tp" }))?;
    let tokens = arch.main.tokens.as_ref().filter(|_| !arch.main.tied);
    let rows = tokens.map_or(Ok(0), |(_, rows)| maker.vocabulary(*rows)).map_err(refused("--tp"))?;
    let embedding = rows as u128 * arch.main.token_width as u128;
    Ok(Parts { list: maker.list, embedding, notes: maker.notes })
}

/// Layers of a kind, counted.
fn count(stack: &Stack, of: impl Fn(&Layer) -> bool) -> u64 {
    stack.layers.iter().filter(|layer| of(layer)).count() as u64
}

fn below(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_string() } else { format!("{path}.{name}") }
}

fn up(n: i64, unit: i64) -> i64 {
    (n + unit - 1) / unit * unit
}

/// What engines round a vocabulary up to.
const VOCABULARY: i64 = 64;

impl Maker<'_> {
    fn stack(&mut self, stack: &Stack) -> Result<(), String> {
        let Some(attention) = &stack.attention else { return Err("it has no attention".into()) };
        let layer = format!("{}.*", stack.layers_at);
        let all = stack.layers.len() as u64;
        if let Some(projection) = &stack.project_in {
            self.linear("", projection, Who::Tokens, 1);
        }
        let path = below(&layer, &attention.at);
        match &attention.projections {
            Projections::Latent(latent) => {
                self.latent(attention, latent, stack.hidden, &path, all, count(stack, |l| l.indexed))?;
            }
            _ => self.heads(attention, stack.hidden, &path, all)?,
        }
        let dense = count(stack, |layer| !layer.sparse);
        if let Some(mlp) = stack.mlp.as_ref().filter(|_| dense > 0) {
            let ranks = if self.served.mlp == Share::Whole { 1 } else { self.ranks };
            self.mlp(mlp, &below(&layer, &mlp.at), ranks, dense)?;
        }
        let sparse = count(stack, |layer| layer.sparse);
        if let Some(experts) = stack.experts.as_ref().filter(|_| sparse > 0) {
            self.experts(experts, stack.hidden, &below(&layer, &experts.at), sparse)?;
        }
        if let Some(projection) = &stack.project_out {
            self.linear("", projection, Who::Tokens, 1);
        }
        if let Some(head) = &stack.head {
            let outputs = self.vocabulary(head.outputs)?;
            self.linear("", &Linear { outputs, ..head.clone() }, Who::Sampled, 1);
        }
        Ok(())
    }

    fn push(&mut self, module: String, what: What, count: u64) {
        self.list.push(Part { module, what, count });
    }

    fn linear(&mut self, path: &str, layer: &Linear, who: Who, count: u64) {
        // However transformers stores it: engines keep [outputs, inputs].
        let bias = layer.bias && (self.served.bias == Bias::Inside || who == Who::Sampled);
        let layer = Linear { way: LinearWay::Linear, bias, ..layer.clone() };
        self.push(below(path, &layer.at), What::Linear(layer, who), count);
    }

    /// Rows split over GPUs: the bias is the first one's.
    fn rows(&mut self, path: &str, layer: &Linear, inputs: i64, split: bool, count: u64) {
        let bias = layer.bias && (self.rank == 0 || !split);
        self.linear(path, &Linear { inputs, bias, ..layer.clone() }, Who::Tokens, count);
    }

    fn share(&self, what: &str, n: i64, ranks: i64) -> Result<i64, String> {
        if n % ranks == 0 { Ok(n / ranks) } else { Err(format!("{what} of {n} cannot be split into {ranks}")) }
    }

    fn heads(&mut self, facts: &Attention, hidden: i64, path: &str, count: u64) -> Result<(), String> {
        let (ranks, kv) = (self.ranks, facts.kv_heads);
        let own = self.share("the query heads", facts.heads, ranks)?;
        let own_kv = match ranks > kv {
            true if self.served.repeats_key_heads && ranks % kv == 0 => 1,
            true => return Err(format!("{kv} key heads cannot be repeated on {ranks} GPUs")),
            false => self.share("the key heads", kv, ranks)?,
        };
        let (width, kv_width) = (own * facts.head_dim, own_kv * facts.head_dim);
        let outputs = width + 2 * kv_width;
        match &facts.projections {
            Projections::Apart { q, k, v } if self.served.fuses => {
                let bias = q.bias || k.bias || v.bias;
                let qkv = Linear { at: "qkv_proj".into(), inputs: hidden, outputs, bias, ..q.clone() };
                self.linear(path, &qkv, Who::Tokens, count);
            }
            Projections::Apart { q, k, v } => {
                for (layer, outputs) in [(q, width), (k, kv_width), (v, kv_width)] {
                    self.linear(path, &Linear { outputs, ..layer.clone() }, Who::Tokens, count);
                }
            }
            Projections::Fused { qkv, .. } => {
                self.linear(path, &Linear { outputs, ..qkv.clone() }, Who::Tokens, count);
            }
            Projections::Latent(_) => panic!("a latent has a way of its own"),
        }
        self.rows(path, &facts.out, width, ranks > 1, count);
        Ok(())
    }

    fn latent(
        &mut self,
        facts: &Attention,
        latent: &Latent,
        hidden: i64,
        path: &str,
        count: u64,
        indexed: u64,
    ) -> Result<(), String> {
        let heads = self.share("the query heads", facts.heads, self.ranks)?;
        let Latent { kv_rank, plain, rotated, value, .. } = *latent;
        let linear = |at: &str, inputs: i64, outputs: i64| Linear {
            at: at.into(),
            inputs,
            outputs,
            bias: false,
            way: LinearWay::Linear,
            stored: None,
        };
        let queries = heads * (plain + rotated);
        match latent.q.as_slice() {
            [down, _] => {
                let both = down.outputs + kv_rank + rotated;
                self.linear(path, &linear("fused_qkv_a_proj", hidden, both), Who::Tokens, count);
                self.linear(path, &linear("q_b_proj", down.outputs, queries), Who::Tokens, count);
                if let Some(indexer) = &latent.indexer {
                    let (at, width) = (below(path, "indexer"), indexer.heads * indexer.dim);
                    self.linear(&at, &linear("wq_b", down.outputs, width), Who::Tokens, indexed);
                    let keys = indexer.dim + indexer.heads;
                    self.linear(&at, &linear("wk_weights_proj", hidden, keys), Who::Tokens, indexed);
                    if indexed < count {
                        self.notes
                            .push(format!("{indexed} of {count} layers have an indexer; the others share its picks"));
                    }
                }
            }
            _ => {
                self.linear(path, &linear("kv_a_proj_with_mqa", hidden, kv_rank + rotated), Who::Tokens, count);
                self.linear(path, &linear("q_proj", hidden, queries), Who::Tokens, count);
            }
        }
        // What an indexer picks is attended in the latent, in prompts too.
        let always = latent.indexer.is_some();
        if !always {
            let expanded = linear("kv_b_proj", kv_rank, heads * (plain + value));
            self.linear(path, &expanded, Who::Prefill, count);
        }
        let absorbed = Absorbed { heads, rank: kv_rank, plain, rotated, value, always };
        self.push(below(path, "kv_b_proj"), What::Absorbed(absorbed), count);
        self.rows(path, &Linear { bias: false, ..facts.out.clone() }, heads * value, self.ranks > 1, count);
        Ok(())
    }

    fn mlp(&mut self, mlp: &Mlp, path: &str, ranks: i64, count: u64) -> Result<(), String> {
        let inner = self.share("an MLP's width", mlp.down.inputs, ranks)?;
        match &mlp.up {
            Up::Gated { gate, up } if self.served.fuses => {
                let bias = gate.bias || up.bias;
                let both = Linear { at: "gate_up_proj".into(), outputs: 2 * inner, bias, ..gate.clone() };
                self.linear(path, &both, Who::Tokens, count);
            }
            Up::Gated { gate, up } => {
                for layer in [gate, up] {
                    self.linear(path, &Linear { outputs: inner, ..layer.clone() }, Who::Tokens, count);
                }
            }
            Up::Fused(both) => {
                self.linear(path, &Linear { outputs: 2 * inner, ..both.clone() }, Who::Tokens, count);
            }
            Up::Plain(up) => self.linear(path, &Linear { outputs: inner, ..up.clone() }, Who::Tokens, count),
        }
        self.rows(path, &mlp.down, inner, ranks > 1, count);
        Ok(())
    }

    /// Experts of this GPU, and the inner size each of them has here.
    fn own_experts(&self, facts: &Experts) -> Result<(i64, i64), String> {
        let (ranks, ep, all) = (self.ranks, self.ep, facts.count);
        if ep == 1 {
            return Ok((all, self.share("an expert's width", facts.inner, ranks)?));
        }
        match self.rules.experts {
            Spread::Spread if ep % ranks != 0 => Err(format!(
                "experts go to all GPUs that share layers: --ep is a multiple of --tp, not {ep} of {ranks}"
            )),
            Spread::Spread => Ok((all / ep + i64::from(self.rank < all % ep), facts.inner)),
            Spread::Grouped if ranks % ep != 0 => {
                Err(format!("{ranks} GPUs are no multiple of {ep} groups of experts"))
            }
            Spread::Grouped => {
                Ok((self.share("the experts", all, ep)?, self.share("an expert's width", facts.inner, ranks / ep)?))
            }
        }
    }

    fn experts(&mut self, facts: &Experts, hidden: i64, path: &str, count: u64) -> Result<(), String> {
        self.linear(path, &facts.router, Who::Tokens, count);
        let (mut own, inner) = self.own_experts(facts)?;
        if own == 0 {
            return Err(format!("{} experts are fewer than {} ranks", facts.count, self.ep));
        }
        let (mut chosen, mut of) = (facts.chosen, facts.count);
        let one_shared = facts.shared.as_ref().is_some_and(|shared| {
            shared.mlp.down.inputs == facts.inner && self.served.shared_expert_joins == Some(facts.count)
        });
        if one_shared && self.ep == 1 {
            (own, chosen, of) = (own + 1, chosen + 1, of + 1);
            self.notes.push(format!("the shared expert is one of {own}, chosen by every token"));
        } else if let Some(shared) = &facts.shared {
            let at = below(path, &shared.mlp.at);
            self.mlp(&shared.mlp, &at, self.ranks, count)?;
            if let Some(gate) = &shared.gate {
                self.linear(path, gate, Who::Tokens, count);
            }
        }
        for (name, inputs, outputs) in [("w13_weight", hidden, 2 * inner), ("w2_weight", inner, hidden)] {
            let stacked = Stacked { count: own, chosen, inputs, outputs, of };
            self.push(below(path, &below(&facts.stacked, name)), What::Stacked(stacked), count);
        }
        Ok(())
    }

    fn vocabulary(&self, outputs: i64) -> Result<i64, String> {
        if self.served.head == Share::Whole {
            return Ok(outputs);
        }
        let padded = up(outputs, VOCABULARY);
        match self.rules.vocabulary {
            _ if padded % self.ranks == 0 => Ok(padded / self.ranks),
            Vocabulary::Divides => self.share("the vocabulary", padded, self.ranks),
            Vocabulary::Widened => Ok(up(outputs, VOCABULARY * self.ranks) / self.ranks),
        }
    }
}
