//! From an architecture and what is asked of it to the list of calls.

use crate::architecture::{Architecture, Layer, Projections};
use crate::blocks::{Run, angles, attention, cut_image, experts, join, linear, mlp, norm};
use crate::declaration::Split;
use crate::error::ModelError;
use crate::options::{AttentionWay, CacheKind, ExpertsWay, Logits, Options, Phase};
use crate::tape::{Tape, Var};
use gemwright_core::{Call, DType, Pass, View, Workload};

/// Issues the calls of a phase into `workload`.
pub fn predict(
    arch: &Architecture,
    options: &Options,
    dtype: DType,
    workload: &mut Workload,
) -> Result<(), ModelError> {
    let run = Run {
        batch: options.batch,
        queries: options.seq(),
        image: options.image.unwrap_or(0),
        past: 0,
        cache: None,
        own_positions: false,
        way: attention_way(arch, options)?,
        experts: options.experts.unwrap_or(ExpertsWay::Grouped),
        stack: options.stack,
        dtype,
        training: false,
    };
    let cache = Some(options.cache);
    let logits = options.logits;
    match options.phase() {
        Phase::Prefill => {
            let cache = cache.filter(|_| arch.prefill_caches);
            forward(arch, &Run { cache, ..run }, logits.unwrap_or(Logits::All), workload)
        }
        Phase::Forward => forward(arch, &run, logits.unwrap_or(Logits::All), workload),
        Phase::Decode => forward(arch, &Run { queries: 1, past: options.past, cache, ..run }, Logits::All, workload),
        Phase::Generate => {
            let run = Run { cache, own_positions: options.batch > 1, ..run };
            forward(arch, &run, logits.unwrap_or(Logits::Last), workload)?;
            let experts = options.experts.unwrap_or(ExpertsWay::Batched);
            decode_steps(arch, &Run { queries: 1, past: options.seq(), experts, ..run }, options.steps, workload)
        }
        Phase::Train => train(arch, &Run { training: true, ..run }, options.recompute, workload),
    }
}

/// sdpa, unless transformers has none for the type.
pub fn attention_way(arch: &Architecture, options: &Options) -> Result<AttentionWay, ModelError> {
    match (options.attention, arch.sdpa) {
        (Some(AttentionWay::Sdpa), false) => Err(ModelError::Option {
            option: "--attention",
            why: format!("sdpa: transformers has none for {}; use eager", arch.model_type),
        }),
        (Some(AttentionWay::MlaAbsorbed), _) => absorbed_way(arch, options),
        (Some(way), _) => Ok(way),
        (None, true) => Ok(AttentionWay::Sdpa),
        (None, false) => Ok(AttentionWay::Eager),
    }
}

fn absorbed_way(arch: &Architecture, options: &Options) -> Result<AttentionWay, ModelError> {
    let wrong = |why: String| Err(ModelError::Option { option: "--attention", why });
    if !matches!(arch.attention.projections, Projections::Latent(_)) {
        return wrong(format!("mla-absorbed: {} has no latent attention", arch.model_type));
    }
    match options.phase() {
        Phase::Prefill | Phase::Decode | Phase::Generate => Ok(AttentionWay::MlaAbsorbed),
        phase => wrong(format!("mla-absorbed is how engines decode; {} has no such step", phase.name())),
    }
}

/// Layers that issue the same calls, with how many there are, in order of the first of each.
fn kinds(arch: &Architecture) -> Vec<(Layer, u64)> {
    let mut kinds: Vec<(Layer, u64)> = Vec::new();
    for layer in &arch.layers {
        match kinds.iter_mut().find(|(kind, _)| kind == layer) {
            Some((_, count)) => *count += 1,
            None => kinds.push((*layer, 1)),
        }
    }
    kinds
}

fn push(workload: &mut Workload, calls: &[Call], times: u64) {
    for call in calls {
        workload.push_times(call, times);
    }
}

fn hidden_state(arch: &Architecture, run: &Run) -> View {
    View::contiguous(&[run.batch, run.queries, arch.hidden], run.dtype)
}

fn forward(arch: &Architecture, run: &Run, logits: Logits, workload: &mut Workload) -> Result<(), ModelError> {
    check_size(arch, run)?;
    push(workload, stem(arch, run).tape.calls(), 1);
    all_layers(arch, run, &kinds(arch), workload);
    push(workload, head(arch, run, logits).tape.calls(), 1);
    Ok(())
}

/// One token after the other. Only the layers see how long the past is, so the rest is issued once
/// for all steps.
fn decode_steps(arch: &Architecture, first: &Run, steps: i64, workload: &mut Workload) -> Result<(), ModelError> {
    check_size(arch, &Run { past: first.past + steps, ..*first })?;
    let kinds = kinds(arch);
    let times = steps as u64;
    for step in 0..steps {
        if step == 0 {
            push(workload, stem(arch, first).tape.calls(), times);
        }
        all_layers(arch, &Run { past: first.past + step, ..*first }, &kinds, workload);
        if step == 0 {
            push(workload, head(arch, first, Logits::All).tape.calls(), times);
        }
    }
    Ok(())
}

fn all_layers(arch: &Architecture, run: &Run, kinds: &[(Layer, u64)], workload: &mut Workload) {
    for (layer, count) in kinds {
        push(workload, one_layer(arch, layer, run).tape.calls(), *count);
    }
}

/// Forward, then everything backwards: the head, the layers from the last, the stem.
fn train(arch: &Architecture, run: &Run, recompute: bool, workload: &mut Workload) -> Result<(), ModelError> {
    check_size(arch, run)?;
    let mut stem = stem(arch, run);
    let mut layers: Vec<(Piece, u64)> =
        kinds(arch).into_iter().map(|(layer, count)| (one_layer(arch, &layer, run), count)).collect();
    let mut head = head(arch, run, Logits::All);

    push(workload, stem.tape.calls(), 1);
    for (layer, count) in &layers {
        push(workload, layer.tape.calls(), *count);
    }
    push(workload, head.tape.calls(), 1);

    push(workload, head.backward(), 1);
    order_backward(arch, &mut layers);
    for (layer, count) in &mut layers {
        if recompute {
            let again = |call: &Call| Call { pass: Pass::Recompute, ..call.clone() };
            push(workload, &layer.tape.calls().iter().map(again).collect::<Vec<_>>(), *count);
        }
        push(workload, layer.backward(), *count);
    }
    push(workload, stem.backward(), 1);
    Ok(())
}

/// The kinds of layers in the order the backward pass meets them.
fn order_backward(arch: &Architecture, layers: &mut Vec<(Piece, u64)>) {
    let kinds = kinds(arch);
    let last_of = |kind: &Layer| arch.layers.iter().rposition(|layer| layer == kind);
    let mut order: Vec<usize> = (0..kinds.len()).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(last_of(&kinds[i].0)));
    let mut taken: Vec<Option<(Piece, u64)>> = std::mem::take(layers).into_iter().map(Some).collect();
    layers.extend(order.into_iter().filter_map(|i| taken[i].take()));
}

/// A part of the model with its tape, from what comes in to what goes out. What passes between
/// the parts is always row-major, so each can be run on its own.
struct Piece {
    tape: Tape,
    input: Var,
    output: Var,
}

impl Piece {
    /// The calls of the backward pass, for a row-major gradient.
    fn backward(&mut self) -> &[Call] {
        let forward = self.tape.calls().len();
        let view = self.tape.view(self.output);
        let gradient = View::contiguous(&view.size, view.dtype);
        let reached = self.tape.backward(self.output, gradient, self.input);
        debug_assert!(reached.is_none_or(|g| g.is_contiguous()), "a gradient leaves its part row-major");
        &self.tape.calls()[forward..]
    }
}

/// What comes before the layers: the angles, and a projection of narrow embeddings.
fn stem(arch: &Architecture, run: &Run) -> Piece {
    let mut tape = Tape::new(run.training);
    if let Some(rotary) = &arch.attention.rotary {
        let slides = |slides: bool| arch.layers.iter().any(|l| l.window.is_some() == slides);
        let times = if rotary.per_layer_type { usize::from(slides(true)) + usize::from(slides(false)) } else { 1 };
        (0..times).for_each(|_| angles(&mut tape, rotary, run));
    }
    if let Some(patches) = &arch.patches {
        let (input, output) = cut_image(&mut tape, patches, arch.hidden, run);
        return Piece { tape, input, output };
    }
    let tokens = View::contiguous(&[run.batch, run.queries, arch.token_width], run.dtype);
    let input = tape.input(tokens);
    let output = match &arch.project_in {
        Some(projection) => linear(&mut tape, input, projection, &join("", &projection.at), run.dtype),
        None => input,
    };
    Piece { tape, input, output }
}

fn one_layer(arch: &Architecture, layer: &Layer, run: &Run) -> Piece {
    let mut tape = Tape::new(run.training);
    let input = tape.input(hidden_state(arch, run));
    let output = block(&mut tape, input, arch, layer, run);
    debug_assert!(tape.view(output).is_contiguous());
    Piece { tape, input, output }
}

fn block(tape: &mut Tape, x: Var, arch: &Architecture, layer: &Layer, run: &Run) -> Var {
    let path = join(&arch.layers_at, "*");
    let facts = &arch.block;
    let normed = |tape: &mut Tape, x: Var, name: &Option<String>| match name {
        // It keeps the residual stream row-major: without a backward pass there is nothing to record.
        Some(_) if run.training => norm(tape, x, arch.norm),
        _ => x,
    };
    let attend = |tape: &mut Tape, x: Var| attention(tape, x, &arch.attention, layer, &path, run);
    let feed = |tape: &mut Tape, x: Var| match &arch.experts {
        Some(facts) if layer.sparse => experts(tape, x, facts, &path, run),
        _ => mlp(tape, x, &arch.mlp, &path, run.dtype),
    };
    if facts.norm_after_residual {
        let found = attend(tape, x);
        let x = tape.add(x, found);
        let x = normed(tape, x, &facts.attention_norm);
        let fed = feed(tape, x);
        let x = tape.add(x, fed);
        return normed(tape, x, &facts.mlp_norm);
    }
    let before = normed(tape, x, &facts.attention_norm);
    let found = attend(tape, before);
    let found = normed(tape, found, &facts.attention_after);
    let residual = tape.add(x, found);
    let mlp_input = match (facts.parallel, &facts.mlp_norm) {
        (true, None) => before,
        (true, name) => normed(tape, x, name),
        (false, name) => normed(tape, residual, name),
    };
    let fed = feed(tape, mlp_input);
    let fed = normed(tape, fed, &facts.mlp_after);
    tape.add(residual, fed)
}

/// What comes after the layers: the last norm, a projection back, the logits.
fn head(arch: &Architecture, run: &Run, logits: Logits) -> Piece {
    let mut tape = Tape::new(run.training);
    let input = tape.input(hidden_state(arch, run));
    let mut x = input;
    if arch.final_norm.is_some() && run.training {
        x = norm(&mut tape, x, arch.norm);
    }
    if let Some(projection) = &arch.project_out {
        x = linear(&mut tape, x, projection, &join("", &projection.at), run.dtype);
    }
    if let Some((transform, _)) = &arch.head_transform {
        x = linear(&mut tape, x, transform, &join("", &transform.at), run.dtype);
        x = tape.map(x);
        x = norm(&mut tape, x, arch.norm);
    }
    if logits == Logits::Last {
        x = tape.narrow(x, 1, 1);
    }
    if arch.head_of_first {
        x = tape.select(x, 1);
    }
    let output = match &arch.head {
        Some(head) => linear(&mut tape, x, head, &join("", &head.at), run.dtype),
        None => x,
    };
    Piece { tape, input, output }
}

/// Bytes of keys and values kept for `tokens` tokens of each sequence.
pub fn cache_bytes(arch: &Architecture, batch: i64, tokens: i64, kind: CacheKind, dtype: DType) -> u128 {
    let facts = &arch.attention;
    // The new Falcon decoder caches keys after they were repeated to all heads.
    let width = match &facts.projections {
        Projections::Fused { split: Split::Groups, .. } => 2 * facts.heads * facts.head_dim,
        // One latent in place of keys and values.
        Projections::Latent(latent) => latent.kv_rank + latent.rotated,
        _ => 2 * facts.kv_heads * facts.head_dim,
    };
    let kept: u128 = arch
        .layers
        .iter()
        .map(|layer| {
            let places = if let CacheKind::Static(places) = kind { places } else { tokens };
            layer.window.map_or(places, |window| window.min(places)) as u128
        })
        .sum();
    kept * batch as u128 * width as u128 * u128::from(dtype.bytes())
}

/// Refuses what no stride could address.
fn check_size(arch: &Architecture, run: &Run) -> Result<(), ModelError> {
    let keys = match run.cache {
        Some(CacheKind::Static(places)) => places.max(run.past + run.queries),
        _ => run.past + run.queries,
    };
    let widest = crate::weights::weights(arch).iter().flat_map(|w| w.shape.clone()).max().unwrap_or(1);
    let chosen = arch.experts.as_ref().map_or(1, |e| e.chosen);
    let product = |extents: &[i64]| extents.iter().map(|&n| n as f64).product::<f64>();
    let a = &arch.attention;
    let largest = [
        product(&[run.batch, run.queries, chosen, widest]),
        product(&[run.batch, a.heads, run.queries, keys]),
        product(&[run.batch, a.heads, keys, 2 * a.head_dim]),
        arch.experts.as_ref().map_or(0.0, |e| product(&[e.count.max(run.batch * chosen), 2 * e.inner, arch.hidden])),
    ];
    if largest.iter().any(|&n| n > 2f64.powi(60)) {
        let why = "makes tensors of more than 2^60 elements".into();
        return Err(ModelError::Option { option: "--batch, --seq or the config", why });
    }
    Ok(())
}
