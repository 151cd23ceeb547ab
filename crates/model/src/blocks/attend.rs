//! What joins q, k and v: the fused kernel, or products with a softmax between them.

use super::Run;
use crate::architecture::{Attention as Facts, Layer};
use crate::declaration::{Core, MaskRule};
use crate::options::{AttentionWay, CacheKind};
use crate::tape::{Addend, Tape, Var};
use gemwright_core::blas::{Backend, Query, attention_backend};
use gemwright_core::{Attention, DType, View};

/// q, k and v as \[batch, heads, tokens, dim\].
#[derive(Clone, Copy)]
pub struct Heads {
    pub q: Var,
    pub k: Var,
    pub v: Var,
}

/// \[batch, heads, tokens, dim\] of what each query found.
pub fn attend(tape: &mut Tape, heads: Heads, facts: &Facts, layer: &Layer, run: &Run) -> Var {
    match (facts.core, run.way) {
        (Core::Interface | Core::Broadcast, AttentionWay::Sdpa | AttentionWay::MlaAbsorbed) => {
            sdpa(tape, heads, facts, layer, run)
        }
        (Core::Interface, AttentionWay::Eager) if facts.upcast => upcast(tape, heads, layer, run),
        (Core::Interface, AttentionWay::Eager) => {
            let (k, v) = (repeat_heads(tape, heads.k, facts), repeat_heads(tape, heads.v, facts));
            eager(tape, Heads { k, v, ..heads }, run)
        }
        (Core::Broadcast, AttentionWay::Eager) => eager(tape, heads, run),
        (Core::F32Scores, _) => {
            let wide = DType::F32.promote(run.dtype);
            let (q, k) = (tape.cast(heads.q, wide), tape.cast(heads.k, wide));
            eager(tape, Heads { q, k, ..heads }, run)
        }
        (Core::Baddbmm, _) => baddbmm(tape, heads, facts, run),
        (Core::Sink, _) => {
            let (k, v) = (repeat_heads(tape, heads.k, facts), repeat_heads(tape, heads.v, facts));
            with_sink(tape, Heads { k, v, ..heads }, run)
        }
    }
}

/// The mask given to the attention function, if one is.
fn mask(facts: &Facts, layer: &Layer, run: &Run, keys: i64) -> Option<View> {
    // Where positions come per sequence, so does padding, and the mask is not shared by the batch.
    let rows = if run.own_positions || facts.pads { run.batch } else { 1 };
    let one = View::contiguous(&[rows, 1, run.queries, keys], DType::Bool);
    let plain = Some(one.expand(&[run.batch, 1, run.queries, keys]));
    match facts.mask {
        MaskRule::Always if facts.alibi => {
            Some(View::contiguous(&[run.batch, facts.heads, run.queries, keys], run.dtype))
        }
        MaskRule::Always => plain,
        MaskRule::Zeros => Some(View::contiguous(&[1, facts.heads, run.queries, keys], run.dtype)),
        MaskRule::Distance => {
            let table = View::contiguous(&[run.queries, keys, facts.heads], run.dtype);
            let bias = table.transpose(1, 2).transpose(0, 1).unsqueeze(0);
            let after = View::contiguous(&[1, 1, run.queries, keys], DType::Bool);
            let masked = facts.causal && run.queries > 1;
            Some(if masked { View::pointwise(&[after, bias], true) } else { bias })
        }
        MaskRule::ByWindow => {
            let reached = layer.window.is_some_and(|window| keys >= window);
            // Of a static cache most places are empty, which one query cannot tell without a mask.
            let partly_filled = matches!(run.cache, Some(CacheKind::Static(_))) && run.queries == 1;
            plain.filter(|_| reached || partly_filled)
        }
    }
}

fn sdpa(tape: &mut Tape, heads: Heads, facts: &Facts, layer: &Layer, run: &Run) -> Var {
    let Heads { q, mut k, mut v } = heads;
    let mask = mask(facts, layer, run, tape.size(k, 2));
    let grouped = facts.core == Core::Interface && tape.size(k, 1) != facts.heads;
    let enable_gqa = grouped && mask.is_none() && facts.head_dim <= 256;
    if grouped && !enable_gqa {
        (k, v) = (repeat_heads(tape, k, facts), repeat_heads(tape, v, facts));
    }
    let is_causal = facts.causal && run.queries > 1 && mask.is_none();
    if is_causal && tape.size(k, 2) > run.queries {
        (k, v) = (tape.narrow(k, 2, run.queries), tape.narrow(v, 2, run.queries));
    }
    let (q_view, k_view, v_view) = (tape.view(q), tape.view(k), tape.view(v));
    let out = Attention::result(&q_view, &v_view);
    let mut attention = Attention {
        q: q_view,
        k: k_view,
        v: v_view,
        mask,
        out,
        is_causal,
        enable_gqa,
        scale: layer.scale,
        backend: Backend::Math,
    };
    let query = Query {
        q: &attention.q,
        k: &attention.k,
        v: &attention.v,
        mask: attention.mask.as_ref(),
        mask_needs_grad: run.training && facts.mask == MaskRule::Distance,
        dropout: false,
        is_causal,
        enable_gqa,
        cudnn: true,
    };
    attention.backend = attention_backend(&query, run.stack);
    if attention.backend != Backend::Math {
        return tape.fused_attention(q, k, v, attention);
    }
    tape.decomposed_attention(attention, |tape| math(tape, Heads { q, k, v }, mask, enable_gqa, run))
}

/// PyTorch's own decomposition: in f32, q and k each times the root of the scale.
fn math(tape: &mut Tape, heads: Heads, mask: Option<View>, enable_gqa: bool, run: &Run) -> Var {
    let wide = DType::F32.promote(run.dtype);
    let [q, mut k, mut v] = [heads.q, heads.k, heads.v].map(|x| tape.cast(x, wide));
    let q = tape.scale(q);
    if enable_gqa {
        let size = tape.view(k).size.set(1, tape.size(q, 1));
        // repeat_interleave copies
        [k, v] = [k, v].map(|x| tape.repeat(x, &size));
    }
    let k = tape.transpose(k, 2, 3);
    let k = tape.scale(k);
    let scores = tape.matmul(q, k);
    let scores = match mask {
        Some(view) => {
            let mask = tape.constant(view.with_dtype(wide));
            tape.add(scores, mask)
        }
        None => scores,
    };
    let shares = tape.rows(scores, wide);
    let out = tape.matmul(shares, v);
    tape.cast(out, run.dtype)
}

/// Key heads repeated to as many as there are query heads: a copy, unless there is only one.
fn repeat_heads(tape: &mut Tape, x: Var, facts: &Facts) -> Var {
    let size = tape.view(x).size;
    let repeats = facts.heads / size[1];
    if repeats == 1 {
        return x;
    }
    let x = tape.unsqueeze(x, 2);
    let x = tape.expand(x, &[size[0], size[1], repeats, size[2], size[3]]);
    tape.reshape(x, &[size[0], facts.heads, size[2], size[3]])
}

/// softmax(q · k^T · scale + mask) · v.
fn eager(tape: &mut Tape, heads: Heads, run: &Run) -> Var {
    let k = tape.transpose(heads.k, 2, 3);
    let scores = tape.matmul(heads.q, k);
    let shares = soften(tape, scores, run);
    tape.matmul(shares, heads.v)
}

/// Scaled, masked, through the softmax, in the model's type again.
fn soften(tape: &mut Tape, scores: Var, run: &Run) -> Var {
    let scores = tape.scale(scores);
    let (queries, keys) = (tape.size(scores, 2), tape.size(scores, 3));
    let mask = tape.constant(View::contiguous(&[1, 1, queries, keys], run.dtype));
    let scores = tape.add(scores, mask);
    let shares = tape.rows(scores, DType::F32.promote(run.dtype));
    tape.cast(shares, run.dtype)
}

/// A learned column takes part in the softmax and is dropped after it: the shares keep its place.
fn with_sink(tape: &mut Tape, heads: Heads, run: &Run) -> Var {
    let k = tape.transpose(heads.k, 2, 3);
    let scores = tape.matmul(heads.q, k);
    let scores = tape.scale(scores);
    let size = tape.view(scores).size;
    let mask = tape.constant(View::contiguous(&[1, 1, size[2], size[3]], run.dtype));
    let scores = tape.add(scores, mask);
    let sink = View::contiguous(&[1, size[1], 1, 1], run.dtype).expand(&[size[0], size[1], size[2], 1]);
    let sink = tape.input(sink);
    let scores = tape.cat(&[scores, sink], 3);
    let shares = tape.rows(scores, run.dtype);
    let shares = tape.narrow(shares, 3, size[3]);
    tape.matmul(shares, heads.v)
}

/// GPT-2's option: q · k^T as an f32 baddbmm that does not read its addend.
fn upcast(tape: &mut Tape, heads: Heads, layer: &Layer, run: &Run) -> Var {
    let size = tape.view(heads.k).size;
    let (batch, count, keys, dim) = (size[0], size[1], size[2], size[3]);
    let wide = DType::F32.promote(run.dtype);
    let q = tape.reshape(heads.q, &[batch * count, run.queries, dim]);
    let k = tape.transpose(heads.k, 2, 3);
    let k = tape.reshape(k, &[batch * count, dim, keys]);
    let (q, k) = (tape.cast(q, wide), tape.cast(k, wide));
    let view = View::contiguous(&[batch * count, run.queries, keys], wide);
    let scores = tape.baddbmm(Addend { view, alpha: layer.scale.unwrap_or(1.0), beta: 0.0 }, q, k);
    let scores = tape.reshape(scores, &[batch, count, run.queries, keys]);
    let shares = soften(tape, scores, run);
    tape.matmul(shares, heads.v)
}

/// BLOOM: q · k^T added onto the position bias.
fn baddbmm(tape: &mut Tape, heads: Heads, facts: &Facts, run: &Run) -> Var {
    let keys = tape.size(heads.k, 2);
    let flat = run.batch * facts.heads;
    let q = tape.reshape(heads.q, &[flat, run.queries, facts.head_dim]);
    let k = tape.reshape(heads.k, &[flat, keys, facts.head_dim]);
    let k = tape.transpose(k, 1, 2);
    let v = tape.reshape(heads.v, &[flat, keys, facts.head_dim]);
    let view = View::contiguous(&[flat, 1, keys], run.dtype);
    let alpha = 1.0 / (facts.head_dim as f64).sqrt();
    let scores = tape.baddbmm(Addend { view, alpha, beta: 1.0 }, q, k);
    let scores = tape.reshape(scores, &[run.batch, facts.heads, run.queries, keys]);
    let shares = soften(tape, scores, run);
    let shares = tape.reshape(shares, &[flat, run.queries, keys]);
    let out = tape.bmm(shares, v);
    tape.reshape(out, &[run.batch, facts.heads, run.queries, facts.head_dim])
}
