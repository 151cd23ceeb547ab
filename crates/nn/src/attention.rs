//! Attention without the matrix of scores: keys and values pass by in blocks, and each query keeps the largest score so
//! far, the sum of the weights and the weighted sum of the values, which are scaled anew when a larger score comes. Scores
//! of a block and its weighted values are products of ours; heads that share keys are rows of the same ones.

use crate::backend::Backend;
use crate::error::{LayerError, reaches, sized};
use gemwright_cpu::{Counter, Element, Number};
use gemwright_engine::{Multiply, Problem};
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

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

/// Where heads lie in a slice: elements from one of the batch to the next, from head to head, from row to row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct HeadSteps {
    pub batch: usize,
    pub head: usize,
    pub row: usize,
}

impl HeadSteps {
    /// Of \[batch, heads, rows, width\], one after the other.
    pub fn plain(heads: usize, rows: usize, width: usize) -> HeadSteps {
        let head = rows.saturating_mul(width);
        HeadSteps { batch: heads.saturating_mul(head), head, row: width }
    }
}

/// Rows of queries of a block.
const ROWS: usize = 64;
/// Keys of a block.
const KEYS: usize = 256;

/// The output, of the shape of the queries. f64 is computed in f64, everything else in f32; the result does not depend on the
/// number of threads. A value that is not finite reaches the queries before it that are computed in one block with it.
/// Where there are no keys it is 0.
///
/// ```
/// use gemwright_nn::{Attention, Backend, attention};
///
/// let backend = Backend::new(1);
/// let of = Attention {
///     batch: 1, heads: 1, key_heads: 1, queries: 2, keys: 2, width: 1, causal: true, scale: Some(1.0),
/// };
/// // Scores 0 and ln 3 are weights of 1 and 3. The first token sees itself alone.
/// let (mut k, mut v) = (vec![0.0, 3f64.ln()], vec![0.0, 4.0]);
/// let prompt = attention(&backend, &of, &[1.0, 1.0], &k, &v)?;
/// assert!(prompt[0] == 0.0 && (prompt[1] - 3.0).abs() < 1e-12);
///
/// // The next token alone, over the keys and values that were kept, and its own: (1 · 0 + 3 · 4 + 1 · 8) / 5.
/// k.push(0.0);
/// v.push(8.0);
/// let next = attention(&backend, &Attention { queries: 1, keys: 3, ..of }, &[1.0], &k, &v)?;
/// assert!((next[0] - 4.0).abs() < 1e-12);
/// # Ok::<(), gemwright_nn::LayerError>(())
/// ```
///
/// # Errors
/// Sizes that do not fit, or heads that do not share evenly.
pub fn attention<T: Number>(
    backend: &Backend,
    of: &Attention,
    q: &[T],
    k: &[T],
    v: &[T],
) -> Result<Vec<T>, LayerError> {
    let Attention { batch, heads, key_heads, queries, keys, width, .. } = *of;
    let size = |heads: usize, rows: usize| batch.checked_mul(heads)?.checked_mul(rows)?.checked_mul(width);
    sized("the queries", q.len(), size(heads, queries))?;
    sized("the keys", k.len(), size(key_heads, keys))?;
    sized("the values", v.len(), size(key_heads, keys))?;
    let of_keys = HeadSteps::plain(key_heads, keys, width);
    attention_view(backend, of, (q, HeadSteps::plain(heads, queries, width)), (k, of_keys), (v, of_keys))
}

/// The same over views, such as q, k and v side by side in the rows that one product gave.
///
/// # Errors
/// Views that lie outside of their slices, or heads that do not share evenly.
pub fn attention_view<T: Number>(
    backend: &Backend,
    of: &Attention,
    q: (&[T], HeadSteps),
    k: (&[T], HeadSteps),
    v: (&[T], HeadSteps),
) -> Result<Vec<T>, LayerError> {
    let Attention { batch, heads, key_heads, queries, keys, width, causal, .. } = *of;
    let all =
        [("the queries", &q, heads, queries), ("the keys", &k, key_heads, keys), ("the values", &v, key_heads, keys)];
    for (what, (slice, steps), heads, rows) in all {
        reaches(what, slice.len(), &[(batch, steps.batch), (heads, steps.head), (rows, steps.row), (width, 1)])?;
    }
    if key_heads == 0 || !heads.is_multiple_of(key_heads) {
        return Err(LayerError::Shape(format!("{heads} heads cannot share {key_heads} heads of keys")));
    }
    if causal && keys < queries {
        return Err(LayerError::Shape("causal queries need as many keys at least".into()));
    }
    let elements = [batch, heads, queries, width].into_iter().try_fold(1usize, |all, x| all.checked_mul(x));
    let Some(elements) = elements else {
        return Err(LayerError::Shape("more elements than can be counted".into()));
    };
    if elements == 0 || keys == 0 {
        // Without keys a sum of nothing, as PyTorch has it, not one over weights that add up to 0.
        return Ok(vec![T::from_f64(0.0); elements]);
    }
    match T::NAME {
        "f64" => attend::<T, f64>(backend, of, q, k, v),
        _ => attend::<T, f32>(backend, of, q, k, v),
    }
}

/// What scores and sums are computed in.
trait Real: Element + PartialOrd {
    const LEAST: Self;
    fn exp_of_difference(self, from: Self) -> Self;
}

impl Real for f32 {
    const LEAST: f32 = f32::NEG_INFINITY;
    fn exp_of_difference(self, from: f32) -> f32 {
        (self - from).exp()
    }
}

impl Real for f64 {
    const LEAST: f64 = f64::NEG_INFINITY;
    fn exp_of_difference(self, from: f64) -> f64 {
        (self - from).exp()
    }
}

fn attend<T: Number, W: Real>(
    backend: &Backend,
    of: &Attention,
    q: (&[T], HeadSteps),
    k: (&[T], HeadSteps),
    v: (&[T], HeadSteps),
) -> Result<Vec<T>, LayerError> {
    // Heads that share keys lie side by side: their queries are rows of one matrix.
    let sharing = of.heads / of.key_heads;
    let rows = sharing * of.queries;
    let of_rows = rows * of.width;
    let mut out = vec![T::from_f64(0.0); of.batch * of.key_heads * of_rows];
    let shared = of.batch * of.key_heads;
    let blocks = Blocks::<W>::new(backend, of, rows)?;
    let places: Vec<Mutex<&mut [T]>> = out.chunks_mut(of_rows).map(Mutex::new).collect();
    let (next, failed) = (Counter::new(shared), Mutex::new(None));
    backend.on_threads(&|| {
        while let Some(i) = next.claim() {
            let mut place = places[i].lock().unwrap_or_else(PoisonError::into_inner);
            let (batch, head) = (i / of.key_heads, i % of.key_heads);
            let [k, v] = [k, v].map(|x| widened::<T, W>(x, batch, head..head + 1, of.keys, of.width));
            let q = widened::<T, W>(q, batch, head * sharing..(head + 1) * sharing, of.queries, of.width);
            if let Err(why) = blocks.head(&q, &k, &v, &mut place) {
                *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
            }
        }
    });
    drop(places);
    match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(why) => Err(why),
        None => Ok(out),
    }
}

/// Rows of some heads, one after the other.
fn widened<T: Number, W: Number>(
    (x, steps): (&[T], HeadSteps),
    batch: usize,
    heads: Range<usize>,
    rows: usize,
    width: usize,
) -> Vec<W> {
    let mut all = Vec::with_capacity(heads.len() * rows * width);
    for head in heads {
        for row in 0..rows {
            let from = batch * steps.batch + head * steps.head + row * steps.row;
            all.extend(x[from..from + width].iter().map(|x| W::from_f64(x.to_f64())));
        }
    }
    all
}

/// The products of whole blocks and of those at the edges.
struct Blocks<'a, W> {
    of: &'a Attention,
    rows: usize,
    /// By whether rows and keys are whole blocks.
    scores: [[Option<Multiply>; 2]; 2],
    values: [[Option<Multiply>; 2]; 2],
    computed_in: PhantomData<W>,
}

impl<'a, W: Real> Blocks<'a, W> {
    fn new(backend: &Backend, of: &'a Attention, rows: usize) -> Result<Blocks<'a, W>, LayerError> {
        let scale = of.scale.unwrap_or(1.0 / (of.width.max(1) as f64).sqrt());
        let dtype = crate::backend::dtype::<W>();
        let sizes = |all: usize, block: usize| [all % block, if all >= block { block } else { 0 }];
        let mut blocks =
            Blocks { of, rows, scores: Default::default(), values: Default::default(), computed_in: PhantomData };
        for (i, m) in sizes(rows, ROWS).into_iter().enumerate().filter(|(_, m)| *m > 0) {
            for (j, n) in sizes(of.keys, KEYS).into_iter().enumerate().filter(|(_, n)| *n > 0) {
                let [m, n, width] = [m, n, of.width].map(|x| x as u64);
                let scores = Problem { alpha: scale, ..Problem::linear(m, n, width, dtype) };
                let values = Problem { beta: 1.0, ..Problem::new(m, width, n, dtype) };
                blocks.scores[i][j] = Some(backend.on_one_thread(&scores)?);
                blocks.values[i][j] = Some(backend.on_one_thread(&values)?);
            }
        }
        Ok(blocks)
    }

    /// Queries over the keys that they share, into their place.
    fn head<T: Number>(&self, q: &[W], k: &[W], v: &[W], place: &mut [T]) -> Result<(), LayerError> {
        let width = self.of.width;
        let mut scores = vec![W::ZERO; ROWS.min(self.rows) * KEYS.min(self.of.keys)];
        let mut sums = vec![W::ZERO; ROWS.min(self.rows) * width];
        for first in (0..self.rows).step_by(ROWS) {
            let count = ROWS.min(self.rows - first);
            let sums = &mut sums[..count * width];
            sums.fill(W::ZERO);
            let (mut largest, mut weights) = ([W::LEAST; ROWS], [W::ZERO; ROWS]);
            let seen = |row: usize| match self.of.causal {
                true => self.of.keys - self.of.queries + (first + row) % self.of.queries + 1,
                false => self.of.keys,
            };
            let most_seen = (0..count).map(seen).max().unwrap_or(0);
            for key in (0..most_seen).step_by(KEYS) {
                let keys = KEYS.min(self.of.keys - key);
                let whole = [usize::from(count == ROWS), usize::from(keys == KEYS)];
                let ([i, j], scores) = (whole, &mut scores[..count * keys]);
                let (Some(of_scores), Some(of_values)) = (&self.scores[i][j], &self.values[i][j]) else { continue };
                of_scores.run(&q[first * width..][..count * width], &k[key * width..][..keys * width], scores)?;
                for (row, scores) in scores.chunks_exact_mut(keys).enumerate() {
                    let again = weigh(scores, seen(row).saturating_sub(key), &mut largest[row], &mut weights[row]);
                    sums[row * width..][..width].iter_mut().for_each(|x| *x = x.mul(again));
                }
                of_values.run(scores, &v[key * width..][..keys * width], sums)?;
            }
            for (row, sums) in sums.chunks_exact(width.max(1)).enumerate() {
                let place = &mut place[(first + row) * width..][..width];
                let weight = weights[row].to_f64();
                place.iter_mut().zip(sums).for_each(|(place, x)| *place = T::from_f64(x.to_f64() / weight));
            }
        }
        Ok(())
    }
}

/// Scores of a block become weights, by the largest score so far; what was added up before is to be multiplied with what is
/// returned.
fn weigh<W: Real>(scores: &mut [W], seen: usize, largest: &mut W, weights: &mut W) -> W {
    let (seen, unseen) = scores.split_at_mut(seen.min(scores.len()));
    unseen.fill(W::ZERO);
    let most = seen.iter().copied().fold(*largest, |x, y| if y > x { y } else { x });
    if seen.iter().all(|score| *score == W::LEAST) && *largest == W::LEAST {
        // Nothing is seen yet; a NaN is something.
        seen.fill(W::ZERO);
        return W::ONE;
    }
    let again = largest.exp_of_difference(most);
    let mut sum = W::ZERO;
    for score in seen {
        *score = score.exp_of_difference(most);
        sum = sum.add(*score);
    }
    (*weights, *largest) = (weights.mul_add(again, sum), most);
    again
}
