//! Every parameter of a model: its name and its shape.

use crate::architecture::{Architecture, Experts, Linear, Mlp, Projections, Up};
use crate::blocks::join;
use crate::declaration::{Core, LinearWay, NormKind, NormOver, Stored};

/// A parameter, or one in each of so many layers; a `*` in the name stands for the layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Weight {
    /// As in the model's state dict.
    pub name: String,
    /// As it is stored.
    pub shape: Vec<i64>,
    /// How many layers have it.
    pub repeat: i64,
}

impl Weight {
    fn elements(&self) -> u128 {
        self.shape.iter().chain([&self.repeat]).map(|&n| n as u128).product()
    }
}

struct List {
    weights: Vec<Weight>,
    repeat: i64,
}

impl List {
    fn add(&mut self, path: &str, name: &str, shape: &[i64]) {
        let name = join(path, name).to_string();
        self.weights.push(Weight { name, shape: shape.to_vec(), repeat: self.repeat });
    }

    fn linear(&mut self, path: &str, l: &Linear) {
        let path = join(path, &l.at);
        let stored = [l.outputs, l.inputs];
        let shape = if l.way == LinearWay::Conv1d { [stored[1], stored[0]] } else { stored };
        self.add(&path, "weight", &shape);
        if l.bias {
            self.add(&path, "bias", &[l.outputs]);
        }
    }

    fn norm(&mut self, path: &str, name: &Option<String>, kind: NormKind, shape: &[i64]) {
        let Some(name) = name else { return };
        let path = join(path, name);
        self.add(&path, "weight", shape);
        if kind == NormKind::Layer {
            self.add(&path, "bias", shape);
        }
    }
}

/// All parameters, a tied head left out.
pub fn weights(arch: &Architecture) -> Vec<Weight> {
    let mut list = List { weights: Vec::new(), repeat: 1 };
    if let Some(tokens) = &arch.tokens {
        list.add(tokens, "weight", &[arch.vocabulary, arch.token_width]);
    }
    if let Some(patches) = &arch.patches {
        for (at, rows) in &patches.tables {
            list.add(at, "", &[*rows, arch.hidden]);
        }
        list.add(&patches.at, "weight", &[arch.hidden, patches.channels, patches.side, patches.side]);
        list.add(&patches.at, "bias", &[arch.hidden]);
    }
    if let Some((at, rows)) = &arch.positions {
        list.add(at, "weight", &[*rows, arch.hidden]);
    }
    if let Some((at, rows)) = &arch.types {
        list.add(at, "weight", &[*rows, arch.hidden]);
    }
    let hidden = [arch.hidden];
    list.norm("", &arch.tokens_norm, arch.norm, &hidden);
    for projection in [&arch.project_in, &arch.project_out].into_iter().flatten() {
        list.linear("", projection);
    }
    list.repeat = arch.layers.len() as i64;
    layer(arch, &mut list);
    list.repeat = 1;
    if !arch.norm_plain {
        list.norm("", &arch.final_norm, arch.norm, &hidden);
    }
    if let Some((transform, norm)) = &arch.head_transform {
        list.linear("", transform);
        list.norm("", &Some(norm.clone()), arch.norm, &hidden);
    }
    match &arch.head {
        Some(head) if arch.tied && head.bias => list.add(&head.at, "bias", &[arch.vocabulary]),
        Some(head) if !arch.tied => list.linear("", head),
        _ => {}
    }
    list.weights
}

fn layer(arch: &Architecture, list: &mut List) {
    let path = join(&arch.layers_at, "*");
    let block = &arch.block;
    if !arch.norm_plain {
        for name in [&block.attention_norm, &block.attention_after, &block.mlp_norm, &block.mlp_after] {
            list.norm(&path, name, arch.norm, &[arch.hidden]);
        }
    }
    for name in &block.factors {
        list.add(&path, name, &[arch.hidden]);
    }
    let facts = &arch.attention;
    let at = join(&path, &facts.at);
    match &facts.projections {
        Projections::Latent(latent) => {
            latent.q.iter().chain([&latent.kv_down, &latent.kv_up]).for_each(|l| list.linear(&at, l));
            if latent.q.len() == 2 {
                list.add(&join(&at, "q_a_layernorm"), "weight", &[latent.q[0].outputs]);
            }
            list.add(&join(&at, "kv_a_layernorm"), "weight", &[latent.kv_rank]);
        }
        Projections::Apart { q, k, v } => [q, k, v].into_iter().for_each(|l| list.linear(&at, l)),
        Projections::Fused { qkv, .. } => list.linear(&at, qkv),
    }
    list.linear(&at, &facts.out);
    if facts.core == Core::Sink {
        list.add(&at, "sinks", &[facts.heads]);
    }
    if let Some(n) = &facts.qk_norm {
        for (name, count) in [(&n.q, facts.heads), (&n.k, facts.kv_heads)] {
            let shape = match n.over {
                NormOver::Width => vec![count * facts.head_dim],
                NormOver::Head | NormOver::MovedHead => vec![facts.head_dim],
                NormOver::EachHead => vec![count, facts.head_dim],
                NormOver::MovedHeadModules => vec![facts.head_dim; 1],
            };
            if n.over == NormOver::MovedHeadModules {
                for head in 0..count {
                    list.norm(&at, &Some(format!("{name}.{head}")), n.kind, &shape);
                }
            } else {
                list.norm(&at, &Some(name.clone()), n.kind, &shape);
            }
        }
    }
    let sparse = arch.layers.iter().filter(|layer| layer.sparse).count() as i64;
    list.repeat = arch.layers.len() as i64 - sparse;
    mlp(&arch.mlp, &path, list);
    list.repeat = sparse;
    if let Some(facts) = &arch.experts {
        experts(facts, arch.hidden, &path, list);
    }
}

fn mlp(facts: &Mlp, path: &str, list: &mut List) {
    let at = join(path, &facts.at);
    match &facts.up {
        Up::Gated { gate, up } => [gate, up].into_iter().for_each(|l| list.linear(&at, l)),
        Up::Fused(l) | Up::Plain(l) => list.linear(&at, l),
    }
    list.linear(&at, &facts.down);
}

fn experts(facts: &Experts, hidden: i64, path: &str, list: &mut List) {
    let path = join(path, &facts.at);
    list.linear(&path, &facts.router);
    let at = join(&path, &facts.stacked);
    for (name, inputs, outputs) in [("gate_up_proj", hidden, 2 * facts.inner), ("down_proj", facts.inner, hidden)] {
        let shape = match facts.stored {
            Stored::OutIn => [facts.count, outputs, inputs],
            Stored::InOut => [facts.count, inputs, outputs],
        };
        list.add(&at, name, &shape);
        if facts.bias {
            list.add(&at, &format!("{name}_bias"), &[facts.count, outputs]);
        }
    }
    if let Some(shared) = &facts.shared {
        mlp(&shared.mlp, &path, list);
        if let Some(gate) = &shared.gate {
            list.linear(&path, gate);
        }
    }
}

/// Number of parameters, a tied one counted once.
pub fn parameters(arch: &Architecture) -> u128 {
    weights(arch).iter().map(Weight::elements).sum()
}
