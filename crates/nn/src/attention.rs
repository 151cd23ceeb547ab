//! Attention without the matrix of scores: keys and values pass by in blocks, and each query keeps the largest score so
//! far, the sum of the weights and the weighted sum of the values, which are scaled anew when a larger score comes.

use crate::error::{LayerError, sized};
use gemwright_cpu::Number;

/// What is attended to: queries \[batch, heads, queries, width\], keys and values \[batch, key heads, keys, width\]; several
/// heads of queries may share one of keys.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(missing_docs)]
pub struct Attention {
    pub batch: usize,
    pub heads: usize,
    pub key_heads: usize,
    pub queries: usize,
    /// Those of a cache among them.
    pub keys: usize,
    pub width: usize,
    /// The last query sees all keys, each one before it one less: a prompt, or new queries behind a cache.
    pub causal: bool,
    /// What scores are multiplied with; one over the root of the width where none is given.
    pub scale: Option<f64>,
}

/// Keys of a block.
const BLOCK: usize = 64;

/// The output, of the shape of the queries. Sums are in f64 order by order, so the result does not depend on anything but
/// the operands.
///
/// # Errors
/// Sizes that do not fit, or heads that do not share evenly.
pub fn attention<T: Number>(of: &Attention, q: &[T], k: &[T], v: &[T]) -> Result<Vec<T>, LayerError> {
    let Attention { batch, heads, key_heads, queries, keys, width, causal, scale } = *of;
    let size = |heads: usize, rows: usize| batch.checked_mul(heads)?.checked_mul(rows)?.checked_mul(width);
    sized("the queries", q.len(), size(heads, queries))?;
    sized("the keys", k.len(), size(key_heads, keys))?;
    sized("the values", v.len(), size(key_heads, keys))?;
    if key_heads == 0 || !heads.is_multiple_of(key_heads) {
        return Err(LayerError::Shape(format!("{heads} heads cannot share {key_heads} heads of keys")));
    }
    if causal && keys < queries {
        return Err(LayerError::Shape("causal queries need as many keys at least".into()));
    }
    let scale = scale.unwrap_or(1.0 / (width.max(1) as f64).sqrt());
    let mut out = Vec::with_capacity(q.len());
    let (mut scores, mut sum) = ([0f64; BLOCK], vec![0f64; width]);
    for z in 0..batch * heads {
        let shared = (z / heads) * key_heads + (z % heads) * key_heads / heads;
        let of_head = |x: &'_ [T]| -> std::ops::Range<usize> {
            debug_assert!(x.len() >= (shared + 1) * keys * width);
            shared * keys * width..(shared + 1) * keys * width
        };
        let (k, v) = (&k[of_head(k)], &v[of_head(v)]);
        for i in 0..queries {
            let query = &q[(z * queries + i) * width..][..width];
            let seen = if causal { keys - queries + i + 1 } else { keys };
            let (mut largest, mut weights) = (f64::NEG_INFINITY, 0f64);
            sum.fill(0.0);
            for first in (0..seen).step_by(BLOCK) {
                let count = BLOCK.min(seen - first);
                let rows = k[first * width..].chunks_exact(width.max(1));
                for (score, key) in scores[..count].iter_mut().zip(rows) {
                    *score = scale * query.iter().zip(key).map(|(x, y)| x.to_f64() * y.to_f64()).sum::<f64>();
                }
                let most = scores[..count].iter().copied().fold(largest, f64::max);
                // What was added up so far, by the new measure.
                let again = if largest == f64::NEG_INFINITY { 0.0 } else { (largest - most).exp() };
                weights *= again;
                sum.iter_mut().for_each(|x| *x *= again);
                for (score, value) in scores[..count].iter().zip(v[first * width..].chunks_exact(width.max(1))) {
                    let weight = (score - most).exp();
                    weights += weight;
                    for (x, y) in sum.iter_mut().zip(value) {
                        *x += weight * y.to_f64();
                    }
                }
                largest = most;
            }
            out.extend(sum.iter().map(|x| T::from_f64(x / weights)));
        }
    }
    Ok(out)
}
