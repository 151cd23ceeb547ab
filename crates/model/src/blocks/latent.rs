//! Multi-head latent attention. As transformers runs it, the latent is cached, and expanded to keys and
//! values of all heads for every query; as serving engines decode, it stays as it is and each head's
//! query is taken into it, so that all heads share one key.

use super::attend::Heads;
use super::{Run, join, linear, norm};
use crate::architecture::{Attention, Latent, Layer};
use crate::declaration::NormKind;
use crate::options::CacheKind;
use crate::tape::{Tape, Var};
use gemwright_core::blas::Backend;
use gemwright_core::{Attention as Operands, View};
use std::sync::Arc;

/// q, k and v of all heads, the past included.
pub fn expand(tape: &mut Tape, x: Var, facts: &Attention, latent: &Latent, path: &Arc<str>, run: &Run) -> Heads {
    let (batch, tokens, heads) = (run.batch, run.queries, facts.heads);
    let at = |name: &str| join(path, name);
    let Latent { plain, rotated, value, kv_rank, .. } = *latent;

    let q = query(tape, x, latent, path, run);
    let q = tape.reshape(q, &[batch, tokens, heads, plain + rotated]);
    let q = tape.transpose(q, 1, 2);
    let q = tape.split(q, 3, &[plain, rotated]);

    let down = linear(tape, x, &latent.kv_down, &at(&latent.kv_down.at), run.dtype);
    tape.enter(path);
    let down = tape.split(down, 2, &[kv_rank, rotated]);
    let kv = norm(tape, down[0], NormKind::Rms);
    let kv = tape.reshape(kv, &[batch, 1, tokens, kv_rank]);
    let k_turned = tape.reshape(down[1], &[batch, 1, tokens, rotated]);

    // The rotation ends in a copy, forward and backward.
    let (q_turned, k_turned) = (tape.rows(q[1], run.dtype), tape.rows(k_turned, run.dtype));
    let (kv, k_turned) = (cached(tape, kv, run), cached(tape, k_turned, run));
    let q = tape.cat(&[q[0], q_turned], 3);

    let keys = tape.size(kv, 2);
    let up = linear(tape, kv, &latent.kv_up, &at(&latent.kv_up.at), run.dtype);
    tape.enter(path);
    let up = tape.reshape(up, &[batch, keys, heads, plain + value]);
    let up = tape.transpose(up, 1, 2);
    let up = tape.split(up, 3, &[plain, value]);
    let k_turned = tape.expand(k_turned, &[batch, heads, keys, rotated]);
    let k = tape.cat(&[up[0], k_turned], 3);
    Heads { q, k, v: up[1] }
}

fn query(tape: &mut Tape, x: Var, latent: &Latent, path: &Arc<str>, run: &Run) -> Var {
    let mut q = linear(tape, x, &latent.q[0], &join(path, &latent.q[0].at), run.dtype);
    if let Some(up) = latent.q.get(1) {
        q = norm(tape, q, NormKind::Rms);
        q = linear(tape, q, up, &join(path, &up.at), run.dtype);
    }
    q
}

/// What one new token per sequence finds in the latent, \[batch, 1, heads · value\]. The weight that
/// expands the latent is split by head, once: its key part multiplies the query before attention, its
/// value part the result after (laid out as SGLang keeps them).
pub fn absorb(
    tape: &mut Tape,
    x: Var,
    facts: &Attention,
    latent: &Latent,
    layer: &Layer,
    path: &Arc<str>,
    run: &Run,
) -> Var {
    let (tokens, heads) = (run.batch, facts.heads);
    let Latent { plain, rotated, value, kv_rank, .. } = *latent;
    let q = query(tape, x, latent, path, run);
    linear(tape, x, &latent.kv_down, &join(path, &latent.kv_down.at), run.dtype);

    tape.enter(&join(path, &latent.kv_up.at));
    let q = tape.reshape(q, &[tokens, heads, plain + rotated]);
    let q = tape.split(q, 2, &[plain, rotated]);
    let of_keys = tape.input(View::contiguous(&[heads, kv_rank, plain], run.dtype).transpose(1, 2));
    let by_head = tape.transpose(q[0], 0, 1);
    let taken_in = tape.bmm(by_head, of_keys);
    let taken_in = tape.transpose(taken_in, 0, 1);
    let q = tape.cat(&[taken_in, q[1]], 2);

    tape.enter(&join(path, &facts.core_at));
    let q = tape.reshape(q, &[tokens, heads, 1, kv_rank + rotated]);
    let keys = match run.cache {
        Some(CacheKind::Static(places)) => places,
        _ => run.past + run.queries,
    };
    let k = tape.constant(View::contiguous(&[tokens, 1, keys, kv_rank + rotated], run.dtype));
    let v = tape.narrow(k, 3, kv_rank);
    let operands = Operands {
        q: tape.view(q),
        k: tape.view(k),
        v: tape.view(v),
        mask: None,
        out: View::contiguous(&[tokens, heads, 1, kv_rank], run.dtype),
        is_causal: false,
        enable_gqa: true,
        // The scale is that of the keys which are not made.
        scale: layer.scale.or(Some(1.0 / ((plain + rotated) as f64).sqrt())),
        backend: Backend::Latent,
    };
    let found = tape.fused_attention(q, k, v, operands);

    tape.enter(&join(path, &latent.kv_up.at));
    let found = tape.reshape(found, &[tokens, heads, kv_rank]);
    let by_head = tape.transpose(found, 0, 1);
    let of_values = tape.input(View::contiguous(&[heads, value, kv_rank], run.dtype).transpose(1, 2));
    let out = tape.bmm(by_head, of_values);
    let out = tape.transpose(out, 0, 1);
    tape.reshape(out, &[run.batch, run.queries, heads * value])
}

/// The latent, or the rotated part of the keys, with that of the past.
fn cached(tape: &mut Tape, x: Var, run: &Run) -> Var {
    let keys = match run.cache {
        None => return x,
        Some(CacheKind::Dynamic) => run.past + run.queries,
        Some(CacheKind::Static(places)) => places,
    };
    let view = tape.view(x);
    tape.constant(View::contiguous(&view.size.set(2, keys), view.dtype))
}
