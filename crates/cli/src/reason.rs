//! Why two sides differ: the model asked for otherwise, until it fits.

use crate::error::Error;
use gemwright_compare::{Comparison, likeness};
use gemwright_core::kernel_name::{Role, role};
use gemwright_core::{DType, Operands, Workload};
use gemwright_model::{AttentionWay, CacheKind, ExpertsWay, Fuse, Logits, Model, Options, Phase};
use std::collections::BTreeSet;

/// What would make the model's side equal to the other.
pub struct Reason {
    /// The changed options, in words, in order of their effect; empty where nothing helps.
    pub changes: Vec<Variant>,
    /// How much of both sides is in both, before and after.
    pub agreement: [f64; 2],
    /// Nothing differs afterwards.
    pub complete: bool,
}

/// One option changed.
#[derive(Clone)]
pub struct Variant {
    /// As on the command line.
    pub option: String,
    /// What it means.
    pub means: &'static str,
    options: Options,
}

/// Options that are changed after one another at most.
const ROUNDS: usize = 3;
/// Ways that are followed beside one another: what fits best at first may lead nowhere.
const WAYS: usize = 6;
/// Values of one option that are tried at most.
const VALUES: usize = 24;

/// How well a variant fits.
#[derive(Clone, Copy)]
struct Fit {
    agreement: f64,
    likeness: f64,
    complete: bool,
}

impl Fit {
    /// Equal products count; where there are none, what comes nearer.
    fn weight(&self) -> f64 {
        self.agreement + self.likeness
    }
}

/// Looks for it; `side` is the model's place. The other side is laid beside every variant.
pub fn reason(
    model: &Model,
    options: &Options,
    workload: &Workload,
    side: usize,
    other: &Workload,
) -> Result<Reason, Error> {
    let compare = |workload: &Workload| {
        let pair = if side == 0 { [workload, other] } else { [other, workload] };
        let found = Comparison::of(pair);
        let complete = found.differences().next().is_none();
        Fit { agreement: found.agreement(), likeness: likeness(pair), complete }
    };
    let before = compare(workload);
    let mut ways = vec![Way { fit: before, changes: Vec::new(), options: options.clone() }];
    let mut best = ways[0].clone();
    for _ in 0..ROUNDS {
        let mut next: Vec<Way> = Vec::new();
        for way in ways.iter().filter(|_| !best.fit.complete) {
            for variant in variants(&way.options, model.predict(&way.options)?.dtype, other) {
                // What the model refuses is no variant of it.
                let Ok(prediction) = model.predict(&variant.options) else { continue };
                let fit = compare(&prediction.workload);
                if fit.weight() > way.fit.weight() {
                    let options = variant.options.clone();
                    next.push(Way { fit, changes: [&way.changes[..], &[variant]].concat(), options });
                }
                if fit.complete {
                    break;
                }
            }
        }
        next.sort_by(|x, y| y.fit.complete.cmp(&x.fit.complete).then(y.fit.weight().total_cmp(&x.fit.weight())));
        next.truncate(WAYS);
        match next.first() {
            Some(way) => best = way.clone(),
            None => break,
        }
        ways = next;
    }
    let Way { fit, changes, .. } = best;
    Ok(Reason { changes, agreement: [before.agreement, fit.agreement], complete: fit.complete })
}

/// Options changed after one another, and where that leads.
#[derive(Clone)]
struct Way {
    fit: Fit,
    changes: Vec<Variant>,
    options: Options,
}

/// Numbers that the other side shows: batches, lengths of queries and keys, rows, counts.
struct Numbers {
    batches: BTreeSet<i64>,
    queries: BTreeSet<i64>,
    keys: BTreeSet<i64>,
    rows: BTreeSet<i64>,
    counts: BTreeSet<i64>,
}

impl Numbers {
    fn of(workload: &Workload) -> Numbers {
        let set = BTreeSet::new;
        let mut numbers = Numbers { batches: set(), queries: set(), keys: set(), rows: set(), counts: set() };
        for call in workload.calls() {
            numbers.counts.insert(call.count as i64);
            if let Operands::Attention(attention) = &call.operands {
                numbers.batches.insert(attention.q.size[0]);
                numbers.queries.insert(attention.q.size[2]);
                numbers.keys.insert(attention.k.size[2]);
            } else if let Some(product) = call.product() {
                numbers.rows.insert(product.m as i64);
            }
        }
        // A graph records no sizes; the grids of its attention have the batch among their extents.
        for kernel in workload.launched.iter().flat_map(|launched| &launched.kernels) {
            if role(&kernel.name) == Some(Role::Attention) {
                numbers.batches.extend(kernel.grid.into_iter().flatten().map(|n| n as i64));
            }
        }
        numbers
    }
}

/// One option changed in every way that the other side suggests.
fn variants(options: &Options, dtype: DType, other: &Workload) -> Vec<Variant> {
    let numbers = Numbers::of(other);
    let mut found = Vec::new();
    let mut add = |option: String, means: &'static str, changed: Options| {
        found.push(Variant { option, means, options: changed });
    };
    for kind in DType::FLOATS.into_iter().filter(|kind| *kind != dtype) {
        add(format!("--dtype {kind}"), "another element type", Options { dtype: Some(kind), ..options.clone() });
    }
    for way in [AttentionWay::Sdpa, AttentionWay::Eager] {
        let means = if way == AttentionWay::Eager { "eager attention" } else { "attention in one kernel" };
        let changed = Options { attention: Some(way), ..options.clone() };
        add(format!("--attention {}", way.name()), means, changed);
    }
    for (words, qkv, gate_up) in [("qkv", true, false), ("gate_up", false, true), ("qkv,gate_up", true, true)] {
        let changed = Options { fuse: Fuse { qkv, gate_up }, ..options.clone() };
        add(format!("--fuse {words}"), "fused projections", changed);
    }
    if options.fuse != Fuse::default() {
        add("no --fuse".into(), "projections by themselves", Options { fuse: Fuse::default(), ..options.clone() });
    }
    for tp in [1, 2, 4, 8, 16].into_iter().filter(|tp| *tp != options.tp) {
        let means = if tp == 1 { "layers that are not split" } else { "tensor parallelism" };
        add(format!("--tp {tp}"), means, Options { tp, ..options.clone() });
    }
    let per_sequence = [Some(options.seq()), Some(1)].into_iter().flatten();
    let by_rows = numbers.rows.iter().flat_map(|m| per_sequence.clone().map(move |s| (m, s)));
    let from_rows = by_rows.filter(|(m, s)| *m % s == 0).map(|(m, s)| m / s);
    for batch in some(numbers.batches.iter().copied().chain(from_rows), options.batch) {
        add(format!("--batch {batch}"), "another batch", Options { batch, ..options.clone() });
    }
    let lengths = numbers.queries.iter().copied().filter(|n| *n > 1);
    let lengths = lengths.chain(numbers.rows.iter().filter(|m| **m % options.batch == 0).map(|m| m / options.batch));
    for seq in some(lengths.filter(|n| *n > 1), options.seq()) {
        add(format!("--seq {seq}"), "another length", Options { seq: Some(seq), ..options.clone() });
    }
    lengths_of_decode(options, &numbers, &mut add);
    for layers in some(numbers.counts.iter().copied().filter(|n| *n < 1000), options.layers.unwrap_or(0)) {
        add(
            format!("--layers {layers}"),
            "another number of layers",
            Options { layers: Some(layers), ..options.clone() },
        );
    }
    for (name, logits) in [("all", Logits::All), ("last", Logits::Last)] {
        add(
            format!("--logits {name}"),
            "logits of other positions",
            Options { logits: Some(logits), ..options.clone() },
        );
    }
    for experts in [ExpertsWay::Grouped, ExpertsWay::Batched] {
        let changed = Options { experts: Some(experts), ..options.clone() };
        add(format!("--experts {}", experts.name()), "experts run otherwise", changed);
    }
    for phase in [Phase::Prefill, Phase::Decode, Phase::Generate, Phase::Forward, Phase::Train] {
        add(format!("--phase {}", phase.name()), "another phase", Options { phase: Some(phase), ..options.clone() });
    }
    let recompute = !options.recompute;
    let option = if recompute { "--recompute" } else { "no --recompute" };
    add(option.into(), "forward calls again in the backward pass", Options { recompute, ..options.clone() });
    found
}

/// What only decoding has: the past, the steps, a cache of fixed size.
fn lengths_of_decode(options: &Options, numbers: &Numbers, add: &mut impl FnMut(String, &'static str, Options)) {
    for past in some(numbers.keys.iter().map(|n| n - 1), options.past) {
        add(format!("--past {past}"), "another past", Options { past, ..options.clone() });
    }
    let (least, most) = (numbers.keys.first().copied(), numbers.keys.last().copied());
    let span = least.zip(most).map(|(least, most)| most - least);
    for steps in some(span.into_iter(), options.steps) {
        add(format!("--steps {steps}"), "another number of steps", Options { steps, ..options.clone() });
    }
    for places in some(numbers.keys.iter().copied(), 0) {
        let changed = Options { cache: CacheKind::Static(places), ..options.clone() };
        add(format!("--cache static:{places}"), "a cache of fixed size", changed);
    }
    if options.cache != CacheKind::Dynamic {
        add("--cache dynamic".into(), "a cache that grows", Options { cache: CacheKind::Dynamic, ..options.clone() });
    }
}

/// The values that are not the present one, not too many.
fn some(values: impl Iterator<Item = i64>, present: i64) -> impl Iterator<Item = i64> {
    let all: BTreeSet<i64> = values.filter(|n| *n >= 1 && *n != present).collect();
    let skip = all.len().saturating_sub(VALUES) / 2;
    all.into_iter().skip(skip).take(VALUES)
}
