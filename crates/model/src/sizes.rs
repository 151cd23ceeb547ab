//! How large things get: the cache, and what is refused because it is larger than anything.

use crate::architecture::{Architecture, Projections, Stack};
use crate::blocks::Run;
use crate::declaration::Split;
use crate::error::ModelError;
use crate::options::CacheKind;

/// Numbers kept for `tokens` tokens of each sequence: keys and values, of the `encoded` tokens too,
/// or a state.
pub fn cached_numbers(arch: &Architecture, batch: i64, encoded: i64, tokens: i64, kind: CacheKind) -> u128 {
    let stack = &arch.main;
    let layers = stack.layers.len() as u128;
    let mut numbers = 0;
    if let Some(facts) = &stack.attention {
        // The new Falcon decoder caches keys after they were repeated to all heads.
        let width = match &facts.projections {
            Projections::Fused { split: Split::Groups, .. } => 2 * facts.heads * facts.head_dim,
            // One latent in place of keys and values.
            Projections::Latent(latent) => latent.kv_rank + latent.rotated,
            _ => 2 * facts.kv_heads * facts.head_dim,
        };
        let places = if let CacheKind::Static(places) = kind { places } else { tokens };
        let kept = |window: Option<i64>| window.map_or(places, |window| window.min(places)) as u128;
        numbers += width as u128 * stack.layers.iter().map(|layer| kept(layer.window)).sum::<u128>();
    }
    if let Some(facts) = &stack.cross {
        numbers += layers * (2 * facts.kv_heads * facts.head_dim) as u128 * encoded as u128;
    }
    if let Some(space) = &stack.state_space {
        numbers += layers * (space.convolved * space.kernel + space.inner * space.state) as u128;
    }
    numbers * batch as u128
}

/// Refuses what no stride could address.
pub fn check_size(arch: &Architecture, run: &Run) -> Result<(), ModelError> {
    if arch.stacks().any(|stack| largest(stack, run) > 2f64.powi(60)) {
        let why = "makes tensors of more than 2^60 elements".into();
        return Err(ModelError::Option { option: "--batch, --seq or the config", why });
    }
    Ok(())
}

/// Elements of the largest tensor, or a little more.
fn largest(stack: &Stack, run: &Run) -> f64 {
    let keys = match run.cache {
        Some(CacheKind::Static(places)) => places.max(run.past + run.queries),
        _ => run.past + run.queries,
    };
    let tokens = run.queries.max(run.encoded);
    let keys = keys.max(run.encoded);
    let widest = crate::weights::of_stack(stack).iter().flat_map(|w| w.shape.clone()).max().unwrap_or(1);
    let chosen = stack.experts.as_ref().map_or(1, |e| e.chosen);
    let product = |extents: &[i64]| extents.iter().map(|&n| n as f64).product::<f64>();
    let attention = stack.attention.as_ref().map_or(0.0, |a| {
        product(&[run.batch, a.heads, tokens, keys]).max(product(&[run.batch, a.heads, keys, 2 * a.head_dim]))
    });
    let experts = stack.experts.as_ref();
    let state = stack.state_space.as_ref().map_or(0.0, |s| {
        product(&[run.batch, s.inner, s.state]).max(product(&[run.batch, s.convolved, tokens + 2 * s.kernel]))
    });
    let features = stack.features.as_ref().map_or(0.0, |f| product(&[run.batch, widest, f.length]));
    let images = stack.stages.as_ref().map_or(0.0, |_| product(&[run.batch, widest, run.image, run.image]));
    let all = [
        product(&[run.batch, tokens, chosen, widest]),
        attention,
        experts.map_or(0.0, |e| product(&[e.count.max(run.batch * chosen), 2 * e.inner, stack.hidden])),
        state,
        features,
        images,
    ];
    all.into_iter().fold(0.0, f64::max)
}
