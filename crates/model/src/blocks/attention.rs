//! Attention from the normed hidden state to the output projection.

use super::attend::{Heads, attend};
use super::latent::{absorb, expand};
use super::rotary::rotate;
use super::{Run, join, linear, norm};
use crate::architecture::{Attention, Layer, Linear, Projections, QkNorm};
use crate::declaration::{NormOver, RotaryKind, Split};
use crate::options::{AttentionWay, CacheKind};
use crate::tape::{Tape, Var};
use gemwright_core::View;
use std::sync::Arc;

/// Attention of one layer at `path`.
pub fn attention(tape: &mut Tape, x: Var, facts: &Attention, layer: &Layer, path: &str, run: &Run) -> Var {
    let path = join(path, &facts.at);
    if let (Projections::Latent(latent), AttentionWay::MlaAbsorbed, 1) = (&facts.projections, run.way, run.queries) {
        let out = absorb(tape, x, facts, latent, layer, &path, run);
        return linear(tape, out, &facts.out, &join(&path, &facts.out.at), run.dtype);
    }
    let heads = match &facts.projections {
        Projections::Latent(latent) => expand(tape, x, facts, latent, &path, run),
        _ => {
            let projected = project(tape, x, facts, &path, run);
            tape.enter(&path);
            let [q, k] = [projected.q, projected.k].map(|x| turned(tape, x, facts, layer, run));
            let [k, v] = [k, projected.v].map(|x| cached(tape, x, layer, run));
            Heads { q, k, v }
        }
    };
    tape.enter(&join(&path, &facts.core_at));
    let out = attend(tape, heads, facts, layer, run);
    let out = tape.transpose(out, 1, 2);
    let out = tape.reshape(out, &[run.batch, run.queries, facts.out.inputs]);
    linear(tape, out, &facts.out, &join(&path, &facts.out.at), run.dtype)
}

/// Attention of the tokens to what the encoder made, whose keys and values are projected once.
pub fn cross_attention(tape: &mut Tape, x: Var, facts: &Attention, layer: &Layer, path: &str, run: &Run) -> Var {
    let path = join(path, &facts.at);
    let Projections::Apart { q, k, v } = &facts.projections else {
        panic!("cross-attention has q, k and v apart");
    };
    let q = query(tape, x, facts, q, &path, run);
    let [k, v] = if run.encoded_is_cached {
        let size = [run.batch, facts.kv_heads, run.encoded, facts.head_dim];
        [(); 2].map(|()| tape.constant(View::contiguous(&size, run.dtype)))
    } else {
        let encoded = tape.input(View::contiguous(&[run.batch, run.encoded, k.inputs], run.dtype));
        [k, v].map(|l| {
            let out = linear(tape, encoded, l, &join(&path, &l.at), run.dtype);
            let out = heads(tape, out, facts, facts.kv_heads, run, false);
            match run.cache {
                Some(_) => tape.constant(View::contiguous(&tape.view(out).size, run.dtype)),
                None => out,
            }
        })
    };
    tape.enter(&join(&path, &facts.core_at));
    let out = attend(tape, Heads { q, k, v }, facts, layer, run);
    let out = tape.transpose(out, 1, 2);
    let out = tape.reshape(out, &[run.batch, run.queries, facts.out.inputs]);
    linear(tape, out, &facts.out, &join(&path, &facts.out.at), run.dtype)
}

/// The query's heads from its own projection.
fn query(tape: &mut Tape, x: Var, facts: &Attention, q: &Linear, path: &str, run: &Run) -> Var {
    let mut out = linear(tape, x, q, &join(path, &q.at), run.dtype);
    if facts.scaled_query {
        out = tape.scale(out);
    }
    heads(tape, out, facts, facts.heads, run, true)
}

/// q, k and v as \[batch, heads, tokens, dim\], normed where the model norms them; for a rotation
/// that comes before the heads move forward, q and k are still \[batch, tokens, heads, dim\].
fn project(tape: &mut Tape, x: Var, facts: &Attention, path: &Arc<str>, run: &Run) -> Heads {
    match &facts.projections {
        Projections::Latent(_) => unreachable!("a latent is expanded, not projected"),
        Projections::Apart { q, k, v } => {
            let query = |tape: &mut Tape| query(tape, x, facts, q, path, run);
            let first = (!facts.query_last).then(|| query(tape));
            let k_out = linear(tape, x, k, &join(path, &k.at), run.dtype);
            let k = heads(tape, k_out, facts, facts.kv_heads, run, true);
            let v_out = linear(tape, x, v, &join(path, &v.at), run.dtype);
            let v = heads(tape, v_out, facts, facts.kv_heads, run, false);
            let q = first.unwrap_or_else(|| query(tape));
            Heads { q, k, v }
        }
        Projections::Fused { qkv, split } => {
            let out = linear(tape, x, qkv, &join(path, &qkv.at), run.dtype);
            tape.enter(path);
            cut(tape, out, *split, facts, run)
        }
    }
}

/// A projection cut into heads that are moved before the tokens.
fn heads(tape: &mut Tape, x: Var, facts: &Attention, count: i64, run: &Run, positioned: bool) -> Var {
    let qk_norm = facts.qk_norm.as_ref().filter(|_| positioned);
    let over = |moment: &[NormOver]| qk_norm.filter(|n| moment.contains(&n.over));
    let whole = over(&[NormOver::Width]);
    if whole.is_some() && facts.ranks > 1 {
        tape.all_gather(x, facts.ranks);
    }
    let x = normed(tape, x, whole);
    let x = tape.reshape(x, &[run.batch, tape.size(x, 1), count, facts.head_dim]);
    let x = normed(tape, x, over(&[NormOver::Head, NormOver::EachHead]));
    let unmoved = facts.rotary.as_ref().is_some_and(|r| r.kind == RotaryKind::PartPairsUnmoved);
    if positioned && unmoved {
        return x;
    }
    let x = tape.transpose(x, 1, 2);
    match over(&[NormOver::MovedHead, NormOver::MovedHeadModules]) {
        // One module a head writes its slice, and the slices are put together: row-major either way.
        Some(n) if n.over == NormOver::MovedHeadModules => {
            let dtype = tape.view(x).dtype;
            tape.rows(x, dtype)
        }
        None if facts.copied_heads => tape.contiguous(x),
        qk_norm => normed(tape, x, qk_norm),
    }
}

fn normed(tape: &mut Tape, x: Var, qk_norm: Option<&QkNorm>) -> Var {
    qk_norm.map_or(x, |n| norm(tape, x, n.kind))
}

/// A fused projection cut into q, k and v.
fn cut(tape: &mut Tape, x: Var, split: Split, facts: &Attention, run: &Run) -> Heads {
    let (batch, tokens) = (run.batch, run.queries);
    let (count, kv, dim) = (facts.heads, facts.kv_heads, facts.head_dim);
    let shape = |heads: i64| [batch, tokens, heads, dim];
    match split {
        Split::Blocks => {
            let pieces = tape.split(x, 2, &[count * dim, kv * dim, kv * dim]);
            let [q, k, v] = [(0, count), (1, kv), (2, kv)].map(|(i, n)| {
                let piece = if i == 0 && facts.scaled_query { tape.scale(pieces[0]) } else { pieces[i] };
                heads(tape, piece, facts, n, run, i < 2)
            });
            Heads { q, k, v }
        }
        Split::BlocksOneKvHead => {
            let x = tape.unsqueeze(x, 1);
            let pieces = tape.split(x, 3, &[count * dim, dim, dim]);
            let q = tape.reshape(pieces[0], &shape(count));
            Heads { q: tape.transpose(q, 1, 2), k: pieces[1], v: pieces[2] }
        }
        Split::HeadsChunked => {
            let x = tape.reshape(x, &[batch, tokens, count, 3 * dim]);
            let x = tape.transpose(x, 1, 2);
            let pieces = tape.split(x, 3, &[dim; 3]);
            Heads { q: pieces[0], k: pieces[1], v: pieces[2] }
        }
        Split::HeadsSelected => {
            let x = tape.reshape(x, &[batch, tokens, count, 3, dim]);
            let [q, k, v] = [0; 3].map(|_| {
                let one = tape.select(x, 3);
                moved(tape, one)
            });
            Heads { q, k, v }
        }
        Split::QueriesThenKv => {
            let x = tape.reshape(x, &shape(count + 2));
            let (q, k, v) = (tape.narrow(x, 2, count), tape.index(x, 2), tape.index(x, 2));
            let [q, k, v] = [q, k, v].map(|x| moved(tape, x));
            Heads { q, k, v }
        }
        Split::Groups => {
            let group = count / kv;
            let x = tape.reshape(x, &[batch, tokens, kv, group + 2, dim]);
            let (q, k, v) = (tape.narrow(x, 3, group), tape.index(x, 3), tape.index(x, 3));
            let [q, k, v] = [q, k, v].map(|x| {
                let x = tape.expand(x, &[batch, tokens, kv, group, dim]);
                let x = tape.reshape(x, &shape(count));
                moved(tape, x)
            });
            Heads { q, k, v }
        }
    }
}

/// Heads before tokens, then a reshape to the same sizes, which settles the strides of sizes of 1.
fn moved(tape: &mut Tape, x: Var) -> Var {
    let x = tape.transpose(x, 1, 2);
    let size = tape.view(x).size;
    tape.reshape(x, &size)
}

/// Rotated, where this layer rotates, with the heads before the tokens.
fn turned(tape: &mut Tape, x: Var, facts: &Attention, layer: &Layer, run: &Run) -> Var {
    match &facts.rotary {
        Some(rotary) if layer.rotates => {
            let x = rotate(tape, x, rotary, run);
            if rotary.kind == RotaryKind::PartPairsUnmoved { tape.transpose(x, 1, 2) } else { x }
        }
        _ => x,
    }
}

/// Keys or values with those of the past: a cache gives them back row-major.
fn cached(tape: &mut Tape, x: Var, layer: &Layer, run: &Run) -> Var {
    let Some(kind) = run.cache else { return x };
    let view = tape.view(x);
    let size = view.size.set(2, keys(layer, run, kind));
    tape.constant(View::contiguous(&size, view.dtype))
}

/// How many keys a query meets: a sliding layer keeps one less than its window of the past.
fn keys(layer: &Layer, run: &Run, kind: CacheKind) -> i64 {
    match (kind, layer.window) {
        (CacheKind::Static(places), None) => places,
        // A prompt longer than the window is attended whole before it is cut to fit.
        (CacheKind::Static(places), Some(window)) => places.min(window).max(run.queries),
        (CacheKind::Dynamic, None) => run.past + run.queries,
        (CacheKind::Dynamic, Some(window)) => run.past.min(window - 1) + run.queries,
    }
}
