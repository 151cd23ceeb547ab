//! Every parameter of a model: its name and its shape.

use crate::architecture::{
    Architecture, Attention, ConvLayer, ConvStep, Convolution, Experts, Linear, Mlp, Projections, Scan, Stack, Stages,
    StateSpace, Up,
};
use crate::blocks::join;
use crate::declaration::{Core, LinearWay, NormKind, NormOver, Stored};
use crate::options::WeightFormat;
use gemwright_core::{DType, View};
use std::sync::Arc;

/// A parameter, or one in each of so many layers; a `*` in the name stands for the layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Weight {
    /// As in the model's state dict.
    pub name: String,
    /// As it is stored.
    pub shape: Vec<i64>,
    /// The layers that have it, in place of the `*`; none where it stands beside them.
    pub layers: Option<Arc<[i64]>>,
    /// How it is stored, where that is not the model's own type.
    pub stored: Option<WeightFormat>,
}

impl Weight {
    fn elements(&self) -> u128 {
        self.shape.iter().map(|&n| n as u128).product::<u128>() * self.times()
    }

    fn times(&self) -> u128 {
        self.layers.as_ref().map_or(1, |layers| layers.len() as u128)
    }

    /// Its name in each layer.
    pub fn names(&self) -> Vec<String> {
        match &self.layers {
            None => vec![self.name.clone()],
            Some(layers) => layers.iter().map(|layer| self.name.replacen('*', &layer.to_string(), 1)).collect(),
        }
    }

    /// Bytes in all layers, factors included.
    fn bytes(&self, dtype: DType) -> u128 {
        let Some(format) = self.stored else { return self.elements() * u128::from(dtype.bytes()) };
        let one = View::contiguous(&self.shape, format.dtype()).bytes() + format.scales(&self.shape, dtype).bytes();
        one * self.times()
    }
}

struct List {
    weights: Vec<Weight>,
    layers: Option<Arc<[i64]>>,
}

impl List {
    fn add(&mut self, path: &str, name: &str, shape: &[i64]) {
        let name = join(path, name).to_string();
        self.weights.push(Weight { name, shape: shape.to_vec(), layers: self.layers.clone(), stored: None });
    }

    /// The last one is stored in `format`.
    fn stored(&mut self, format: Option<WeightFormat>) {
        if let Some(weight) = self.weights.last_mut() {
            weight.stored = format;
        }
    }

    fn linear(&mut self, path: &str, l: &Linear) {
        let path = join(path, &l.at);
        let stored = [l.outputs, l.inputs];
        let shape = if l.way == LinearWay::Conv1d { [stored[1], stored[0]] } else { stored };
        self.add(&path, "weight", &shape);
        self.stored(l.stored);
        if l.bias {
            self.add(&path, "bias", &[l.outputs]);
        }
    }

    /// A convolution over `places` dimensions.
    fn convolution(&mut self, path: &str, c: &Convolution, places: usize) {
        let at = join(path, &c.at);
        let shape = [&[c.outputs, c.inputs / c.groups], &vec![c.kernel; places][..]].concat();
        self.add(&at, "weight", &shape);
        if c.bias {
            self.add(&at, "bias", &[c.outputs]);
        }
        self.norm(path, &c.norm, NormKind::Layer, &[c.outputs]);
    }

    fn steps(&mut self, path: &str, steps: &[ConvStep]) {
        for step in steps {
            match step {
                ConvStep::Convolution(c) => self.convolution(path, c, 2),
                ConvStep::Linear(l) => self.linear(path, l),
                ConvStep::Norm { at, width } => self.norm(path, &Some(at.clone()), NormKind::Layer, &[*width]),
                ConvStep::Activation | ConvStep::MaxPool => {}
            }
        }
    }

    fn conv_layer(&mut self, path: &str, layer: &ConvLayer) {
        self.steps(path, &layer.steps);
        if let Some(shortcut) = &layer.shortcut {
            self.convolution(path, shortcut, 2);
        }
        if let Some(factor) = &layer.factor {
            self.add(path, factor, &[layer.width]);
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
    let factor =
        arch.pair.iter().map(|name| Weight { name: name.clone(), shape: Vec::new(), layers: None, stored: None });
    arch.stacks().flat_map(of_stack).chain(factor).collect()
}

/// What a file may hold a second time: a tied head, and an embedding that both stacks share.
pub fn copies(arch: &Architecture) -> Vec<Weight> {
    let mut list = List { weights: Vec::new(), layers: None };
    if let (Some(head), true) = (&arch.main.head, arch.main.tied) {
        list.add(&head.at, "weight", &[head.outputs, head.inputs]);
    }
    if let (Some((_, rows)), Some(_)) = (&arch.main.tokens, &arch.encoder) {
        for at in
            ["encoder.embed_tokens", "decoder.embed_tokens", "model.encoder.embed_tokens", "model.decoder.embed_tokens"]
        {
            list.add(at, "weight", &[*rows, arch.main.token_width]);
        }
    }
    list.weights
}

/// All parameters of one stack.
pub fn of_stack(arch: &Stack) -> Vec<Weight> {
    let mut list = List { weights: Vec::new(), layers: None };
    if let Some((at, rows)) = &arch.tokens {
        list.add(at, "weight", &[*rows, arch.token_width]);
    }
    if let Some(patches) = &arch.patches {
        for table in &patches.tables {
            list.add(&table.at, "", &[table.rows, table.width]);
        }
        list.add(&patches.at, "weight", &[arch.hidden, patches.channels, patches.side, patches.side]);
        if patches.bias {
            list.add(&patches.at, "bias", &[arch.hidden]);
        }
    }
    for convolution in arch.features.iter().flat_map(|f| &f.convolutions) {
        list.convolution("", convolution, 1);
    }
    if let Some(facts) = &arch.stages {
        stages(facts, &mut list);
    }
    for table in &arch.tables {
        list.add(&table.at, "", &[table.rows, table.width]);
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
    layer(arch, &mut list);
    list.layers = None;
    if !arch.norm_plain {
        list.norm("", &arch.final_norm, arch.norm, &hidden);
    }
    if let Some(facts) = &arch.condition {
        list.linear("", &facts.head);
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

fn layer(arch: &Stack, list: &mut List) {
    let path = join(&arch.layers_at, "*");
    let those = |sparse: Option<bool>| -> Option<Arc<[i64]>> {
        let all = arch.layers.iter().enumerate();
        Some(all.filter(|(_, l)| sparse.is_none_or(|s| s == l.sparse)).map(|(i, _)| i as i64).collect())
    };
    list.layers = those(None);
    let block = &arch.block;
    if !arch.norm_plain {
        let norms =
            [&block.attention_norm, &block.attention_after, &block.cross_norm, &block.mlp_norm, &block.mlp_after];
        for name in norms {
            list.norm(&path, name, arch.norm, &[arch.hidden]);
        }
    }
    for name in &block.factors {
        list.add(&path, name, &[arch.hidden]);
    }
    for facts in [&arch.attention, &arch.cross].into_iter().flatten() {
        attention(facts, &path, list);
    }
    if let Some(Attention { at, projections: Projections::Latent(latent), .. }) = &arch.attention
        && let (Some(indexer), Some(compressed)) = (&latent.indexer, latent.q.first())
    {
        list.layers = Some((0..).zip(&arch.layers).filter(|(_, l)| l.indexed).map(|(i, _)| i).collect());
        let at = join(&join(&path, at), "indexer");
        list.add(&join(&at, "wq_b"), "weight", &[indexer.heads * indexer.dim, compressed.outputs]);
        list.add(&join(&at, "wk"), "weight", &[indexer.dim, arch.hidden]);
        list.add(&join(&at, "weights_proj"), "weight", &[indexer.heads, arch.hidden]);
        for name in ["weight", "bias"] {
            list.add(&join(&at, "k_norm"), name, &[indexer.dim]);
        }
        list.layers = those(None);
    }
    if let Some(facts) = &arch.condition {
        facts.embedding.iter().chain([&facts.layer]).for_each(|l| list.linear(&path, l));
        list.add(&path, &facts.classes.at, &[facts.classes.rows, facts.classes.width]);
    }
    if let Some(facts) = &arch.state_space {
        state_space(facts, &path, list);
    }
    list.layers = those(Some(false));
    if let Some(facts) = &arch.mlp {
        mlp(facts, &path, list);
    }
    list.layers = those(Some(true));
    if let Some(facts) = &arch.experts {
        experts(facts, arch.hidden, &path, list);
    }
}

fn attention(facts: &Attention, path: &str, list: &mut List) {
    let at = join(path, &facts.at);
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
}

fn state_space(facts: &StateSpace, path: &str, list: &mut List) {
    let at = join(path, &facts.at);
    let convolution = join(&at, "conv1d");
    list.add(&convolution, "weight", &[facts.convolved, 1, facts.kernel]);
    if facts.convolution_bias {
        list.add(&convolution, "bias", &[facts.convolved]);
    }
    list.linear(&at, &facts.input);
    match &facts.scan {
        Scan::Channels { x, dt } => {
            list.linear(&at, x);
            list.linear(&at, dt);
            list.add(&at, "A_log", &[facts.inner, facts.state]);
            list.add(&at, "D", &[facts.inner]);
        }
        Scan::Heads { heads, .. } => {
            for name in ["A_log", "D", "dt_bias"] {
                list.add(&at, name, &[*heads]);
            }
            list.add(&join(&at, "norm"), "weight", &[facts.inner]);
        }
    }
    list.linear(&at, &facts.out);
}

fn stages(facts: &Stages, list: &mut List) {
    list.steps("", &facts.stem);
    for (number, stage) in facts.list.iter().enumerate() {
        let path = join(&facts.at, &number.to_string());
        list.steps(&path, &stage.before);
        for layer in 0..stage.depth {
            let at = join(&path, &format!("layers.{layer}"));
            list.conv_layer(&at, if layer == 0 { &stage.first } else { &stage.rest });
        }
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
        list.stored(facts.weight);
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

/// Bytes of all parameters of an architecture of that element type.
pub fn bytes(arch: &Architecture, dtype: DType) -> u128 {
    weights(arch).iter().map(|weight| weight.bytes(dtype)).sum()
}

/// Number of parameters, a tied one counted once.
pub fn parameters(arch: &Architecture) -> u128 {
    weights(arch).iter().map(Weight::elements).sum()
}
