//! From an architecture and what is asked of it to the list of calls.

use crate::architecture::{Architecture, Layer, Projections, Stack};
use crate::blocks::Run;
use crate::error::ModelError;
use crate::options::{AttentionWay, ExpertsWay, Logits, Options, Phase};
use crate::pieces::{Piece, head, one_layer, pair, stem};
use crate::sizes::check_size;
use gemwright_core::{DType, Workload};

/// Issues the calls of a phase into `workload`. `options` are settled: no length is left open.
pub fn predict(
    arch: &Architecture,
    options: &Options,
    dtype: DType,
    workload: &mut Workload,
) -> Result<(), ModelError> {
    let run = Run {
        batch: options.batch,
        queries: options.queries(arch.attends_encoder()),
        image: options.image.unwrap_or(0),
        past: 0,
        encoded: options.encoder_seq.unwrap_or(0),
        encoded_is_cached: false,
        cache: None,
        own_positions: false,
        way: attention_way(arch, options)?.unwrap_or(AttentionWay::Sdpa),
        experts: options.experts.unwrap_or(ExpertsWay::Grouped),
        stack: options.stack,
        dtype,
        training: false,
    };
    let cache = Some(options.cache);
    let logits = options.logits;
    match options.phase() {
        Phase::Prefill => {
            let cache = cache.filter(|_| arch.main.prefill_caches);
            forward(arch, &Run { cache, ..run }, logits.unwrap_or(Logits::All), workload)
        }
        Phase::Forward => forward(arch, &run, logits.unwrap_or(Logits::All), workload),
        Phase::Decode => {
            let run = Run { queries: 1, past: options.past, cache, encoded_is_cached: true, ..run };
            forward(arch, &run, Logits::All, workload)
        }
        Phase::Generate => {
            let run = Run { cache, own_positions: options.batch > 1, ..run };
            forward(arch, &run, logits.unwrap_or(Logits::Last), workload)?;
            let gathers = options.weight_format.is_none();
            let default = if gathers { ExpertsWay::Batched } else { ExpertsWay::Grouped };
            let experts = options.experts.unwrap_or(default);
            let first = Run { queries: 1, past: run.queries, experts, encoded_is_cached: true, ..run };
            decode_steps(arch, &first, options.steps, workload)
        }
        Phase::Train => train(arch, &Run { training: true, ..run }, options.recompute, workload),
    }
}

/// sdpa, unless transformers has none for the type; nothing where no layer attends.
pub fn attention_way(arch: &Architecture, options: &Options) -> Result<Option<AttentionWay>, ModelError> {
    let wrong = |why: String| Err(ModelError::Option { option: "--attention", why });
    let (attends, kind) = (arch.main.attention.is_some(), &arch.model_type);
    match (options.attention, arch.main.sdpa) {
        (Some(way), _) if !attends => wrong(format!("{}: {kind} has no attention", way.name())),
        (None, _) if !attends => Ok(None),
        (Some(AttentionWay::Sdpa), false) => wrong(format!("sdpa: transformers has none for {kind}; use eager")),
        (Some(AttentionWay::Eager), _) if !arch.main.eager => wrong(format!("eager: {kind} has sdpa only")),
        (Some(AttentionWay::MlaAbsorbed), _) => absorbed_way(arch, options).map(Some),
        (Some(way), _) => Ok(Some(way)),
        (None, true) => Ok(Some(AttentionWay::Sdpa)),
        (None, false) => Ok(Some(AttentionWay::Eager)),
    }
}

fn absorbed_way(arch: &Architecture, options: &Options) -> Result<AttentionWay, ModelError> {
    let wrong = |why: String| Err(ModelError::Option { option: "--attention", why });
    let latent = arch.main.attention.as_ref().is_some_and(|a| matches!(a.projections, Projections::Latent(_)));
    if !latent {
        return wrong(format!("mla-absorbed: {} has no latent attention", arch.model_type));
    }
    match options.phase() {
        Phase::Prefill | Phase::Decode | Phase::Generate => Ok(AttentionWay::MlaAbsorbed),
        phase => wrong(format!("mla-absorbed is how engines decode; {} has no such step", phase.name())),
    }
}

/// Layers that issue the same calls, with how many there are, in order of the first of each; every
/// layer by itself where the order of single calls is kept.
fn kinds(stack: &Stack, workload: &Workload) -> Vec<(Layer, u64)> {
    if workload.order().is_some() {
        return stack.layers.iter().map(|layer| (*layer, 1)).collect();
    }
    let mut kinds: Vec<(Layer, u64)> = Vec::new();
    for layer in &stack.layers {
        match kinds.iter_mut().find(|(kind, _)| kind == layer) {
            Some((_, count)) => *count += 1,
            None => kinds.push((*layer, 1)),
        }
    }
    kinds
}

/// The encoder's own pass beside `run`, which is the other stack's.
fn encoder_run(arch: &Architecture, run: &Run) -> Run {
    let queries = match arch.attends_encoder() {
        true => run.encoded,
        // An image's patches and a token for the whole.
        false => arch.encoder.as_ref().and_then(|e| e.patches.as_ref()).map_or(1, |p| p.tokens(run.image)),
    };
    Run { queries, cache: None, encoded: 0, ..*run }
}

fn forward(arch: &Architecture, run: &Run, logits: Logits, workload: &mut Workload) -> Result<(), ModelError> {
    check_size(arch, run)?;
    let one_stack = |stack: &Stack, run: &Run, logits: Logits, workload: &mut Workload| {
        stem(stack, run).forward_into(workload, 1);
        let kinds = kinds(stack, workload);
        all_layers(stack, run, &kinds, workload);
        head(stack, run, logits).forward_into(workload, 1);
    };
    if let Some(encoder) = arch.encoder.as_ref().filter(|_| !run.encoded_is_cached) {
        one_stack(encoder, &encoder_run(arch, run), Logits::All, workload);
    }
    one_stack(&arch.main, run, logits, workload);
    if let Some(piece) = paired(arch, run) {
        piece.forward_into(workload, 1);
    }
    Ok(())
}

fn paired(arch: &Architecture, run: &Run) -> Option<Piece> {
    arch.pair.as_ref().map(|_| pair(run.batch, arch.main.vocabulary, run))
}

/// One token after the other. Only the layers see how long the past is, so the rest is issued once
/// for all steps, unless the order of single calls is kept.
fn decode_steps(arch: &Architecture, first: &Run, steps: i64, workload: &mut Workload) -> Result<(), ModelError> {
    check_size(arch, &Run { past: first.past + steps, ..*first })?;
    let stack = &arch.main;
    let kinds = kinds(stack, workload);
    let in_order = workload.order().is_some();
    let times = if in_order { 1 } else { steps as u64 };
    // A state has the same size after every token.
    if stack.attention.is_none() && steps > 0 && !in_order {
        stem(stack, first).forward_into(workload, times);
        for (layer, count) in &kinds {
            one_layer(stack, layer, first).forward_into(workload, *count * times);
        }
        head(stack, first, Logits::All).forward_into(workload, times);
        return Ok(());
    }
    for step in 0..steps {
        let rest = step == 0 || in_order;
        if rest {
            stem(stack, first).forward_into(workload, times);
        }
        all_layers(stack, &Run { past: first.past + step, ..*first }, &kinds, workload);
        if rest {
            head(stack, first, Logits::All).forward_into(workload, times);
        }
    }
    Ok(())
}

fn all_layers(stack: &Stack, run: &Run, kinds: &[(Layer, u64)], workload: &mut Workload) {
    let mut pieces: Vec<(Layer, Piece)> = Vec::new();
    for (layer, count) in kinds {
        let at = pieces.iter().position(|(known, _)| known == layer).unwrap_or_else(|| {
            pieces.push((*layer, one_layer(stack, layer, run)));
            pieces.len() - 1
        });
        pieces[at].1.forward_into(workload, *count);
    }
}

/// The parts of a stack for a training step.
struct Section {
    stem: Piece,
    layers: Vec<(Piece, u64)>,
    head: Piece,
}

impl Section {
    fn new(stack: &Stack, run: &Run, workload: &Workload) -> Section {
        let layers = kinds(stack, workload).into_iter().map(|(layer, count)| (one_layer(stack, &layer, run), count));
        Section { stem: stem(stack, run), layers: layers.collect(), head: head(stack, run, Logits::All) }
    }

    fn forward(&self, workload: &mut Workload) {
        self.stem.forward_into(workload, 1);
        for (layer, count) in &self.layers {
            layer.forward_into(workload, *count);
        }
        self.head.forward_into(workload, 1);
    }

    /// Everything from the head back to the stem.
    fn backward(mut self, stack: &Stack, recompute: bool, workload: &mut Workload) {
        self.head.backward_into(workload, 1);
        match workload.order() {
            Some(_) => self.layers.reverse(),
            None => order_backward(stack, &mut self.layers),
        }
        for (layer, count) in &mut self.layers {
            if recompute {
                layer.recompute_into(workload, *count);
            }
            layer.backward_into(workload, *count);
        }
        self.stem.backward_into(workload, 1);
    }
}

/// Forward, then everything backwards.
fn train(arch: &Architecture, run: &Run, recompute: bool, workload: &mut Workload) -> Result<(), ModelError> {
    check_size(arch, run)?;
    let encoder = arch.encoder.as_ref().map(|stack| (Section::new(stack, &encoder_run(arch, run), workload), stack));
    let main = Section::new(&arch.main, run, workload);
    if let Some((section, _)) = &encoder {
        section.forward(workload);
    }
    main.forward(workload);
    if let Some(mut piece) = paired(arch, run) {
        piece.forward_into(workload, 1);
        piece.backward_into(workload, 1);
    }
    main.backward(&arch.main, recompute, workload);
    if let Some((section, stack)) = encoder {
        section.backward(stack, recompute, workload);
    }
    Ok(())
}

/// The kinds of layers in the order the backward pass meets them.
fn order_backward(stack: &Stack, layers: &mut Vec<(Piece, u64)>) {
    let kinds = kinds(stack, &Workload::default());
    let last_of = |kind: &Layer| stack.layers.iter().rposition(|layer| layer == kind);
    let mut order: Vec<usize> = (0..kinds.len()).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(last_of(&kinds[i].0)));
    let mut taken: Vec<Option<(Piece, u64)>> = std::mem::take(layers).into_iter().map(Some).collect();
    layers.extend(order.into_iter().filter_map(|i| taken[i].take()));
}

#[cfg(test)]
mod tests {
    use crate::{Model, Options, Phase};
    use gemwright_core::Call;

    /// Kept in order, the calls are the same, and the order has each as often as its count.
    #[test]
    fn an_order_changes_nothing_but_the_order() {
        for (preset, phase) in [
            ("llama-3.1-8b", Phase::Generate),
            ("gemma-2-9b", Phase::Decode),
            ("gpt3-xl", Phase::Train),
            ("qwen3-30b-a3b", Phase::Generate),
            ("mamba-130m", Phase::Generate),
            ("t5-small", Phase::Train),
            ("resnet-50", Phase::Train),
        ] {
            let model = Model::from_preset(preset).unwrap();
            let options = Options { phase: Some(phase), steps: 3, ..Options::default() };
            let predict = |in_order| model.predict(&Options { in_order, ..options.clone() }).unwrap().workload;
            let (merged, ordered) = (predict(false), predict(true));
            let sorted = |calls: &[Call]| {
                let mut texts: Vec<String> = calls.iter().map(|call| format!("{call:?}")).collect();
                texts.sort();
                texts
            };
            assert_eq!(sorted(merged.calls()), sorted(ordered.calls()), "{preset}");
            assert_eq!(merged.order(), None);
            let mut counts = vec![0; ordered.calls().len()];
            ordered.order().unwrap().iter().for_each(|at| counts[*at as usize] += 1);
            assert_eq!(counts, ordered.calls().iter().map(|call| call.count).collect::<Vec<_>>(), "{preset}");
        }
    }
}
