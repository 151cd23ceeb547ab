//! Multi-head latent attention as transformers runs it: the latent is cached, and expanded to keys and
//! values of all heads for every query.

use super::attend::Heads;
use super::{Run, join, linear, norm};
use crate::architecture::{Attention, Latent};
use crate::declaration::NormKind;
use crate::options::CacheKind;
use crate::tape::{Tape, Var};
use gemwright_core::View;
use std::sync::Arc;

/// q, k and v of all heads, the past included.
pub fn expand(tape: &mut Tape, x: Var, facts: &Attention, latent: &Latent, path: &Arc<str>, run: &Run) -> Heads {
    let (batch, tokens, heads) = (run.batch, run.queries, facts.heads);
    let at = |name: &str| join(path, name);
    let Latent { plain, rotated, value, kv_rank, .. } = *latent;

    let mut q = linear(tape, x, &latent.q[0], &at(&latent.q[0].at), run.dtype);
    if let Some(up) = latent.q.get(1) {
        q = norm(tape, q, NormKind::Rms);
        q = linear(tape, q, up, &at(&up.at), run.dtype);
    }
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
