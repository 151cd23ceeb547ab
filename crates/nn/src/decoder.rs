//! One layer of a decoder as LLaMA has it: a norm, attention with turned queries and keys, a norm, a gated product; each
//! added to what came in.

use crate::attention::{Attention, attention};
use crate::backend::Backend;
use crate::error::LayerError;
use crate::linear::Linear;
use crate::load::Weights;
use crate::packed::PackedLinear;
use gemwright_cpu::Number;

/// What a config says of a layer.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(missing_docs)]
pub struct DecoderShape {
    pub heads: usize,
    pub key_heads: usize,
    /// Added to the mean of squares before its root is taken.
    pub norm_eps: f64,
    /// Base of the angles by which queries and keys are turned.
    pub rope_theta: f64,
}

/// Keys and values of the tokens so far.
#[derive(Debug, Clone, PartialEq)]
pub struct Cache<T> {
    tokens: usize,
    /// Of each head, one token after the other.
    keys: Vec<Vec<T>>,
    values: Vec<Vec<T>>,
}

impl<T> Default for Cache<T> {
    fn default() -> Cache<T> {
        Cache { tokens: 0, keys: Vec::new(), values: Vec::new() }
    }
}

impl<T> Cache<T> {
    /// Tokens that have passed.
    pub fn tokens(&self) -> usize {
        self.tokens
    }
}

/// A layer with its weights: q, k and v as one product, gate and up as one.
///
/// ```
/// use gemwright_nn::{Backend, Cache, DecoderLayer, DecoderShape, Weights};
/// use safetensors::tensor::{Dtype, TensorView, serialize};
///
/// // Two columns, one head. Queries and keys are 0, so that all tokens weigh the same; values and what comes out of
/// // attention are as they come in; the gated product is 0.
/// let bytes = |numbers: &[f32]| -> Vec<u8> { numbers.iter().flat_map(|x| x.to_le_bytes()).collect() };
/// let (ones, zeros, unit) = (bytes(&[1.0; 2]), bytes(&[0.0; 4]), bytes(&[1.0, 0.0, 0.0, 1.0]));
/// let names = [
///     ("input_layernorm", &ones), ("post_attention_layernorm", &ones), ("self_attn.q_proj", &zeros),
///     ("self_attn.k_proj", &zeros), ("self_attn.v_proj", &unit), ("self_attn.o_proj", &unit),
///     ("mlp.gate_proj", &zeros), ("mlp.up_proj", &zeros), ("mlp.down_proj", &zeros),
/// ];
/// let tensors = names.map(|(name, bytes)| {
///     let shape = if bytes.len() == 8 { vec![2] } else { vec![2, 2] };
///     (format!("layer.{name}.weight"), TensorView::new(Dtype::F32, shape, bytes).unwrap())
/// });
/// let weights = Weights::from_bytes(serialize(tensors, None)?)?;
/// let shape = DecoderShape { heads: 1, key_heads: 1, norm_eps: 0.0, rope_theta: 1e4 };
/// let layer = DecoderLayer::<f32>::load(&weights, "layer", shape)?;
///
/// let (backend, mut cache) = (Backend::new(1), Cache::default());
/// // By the norm a token of [1, 1], which is added to it.
/// assert_eq!(layer.forward(&backend, &[2.0, 2.0], &mut cache)?, [3.0, 3.0]);
/// // The next one is [-1, 1]; with the one that the cache has, [0, 1] in the mean.
/// assert_eq!(layer.forward(&backend, &[-2.0, 2.0], &mut cache)?, [-2.0, 3.0]);
/// assert_eq!(cache.tokens(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct DecoderLayer<T> {
    shape: DecoderShape,
    norms: [Vec<T>; 2],
    qkv: PackedLinear<T>,
    o: PackedLinear<T>,
    gate_up: PackedLinear<T>,
    down: PackedLinear<T>,
    width: usize,
}

impl<T: Number> DecoderLayer<T> {
    /// The layer whose tensors begin with `prefix`, such as `model.layers.0`.
    ///
    /// # Errors
    /// Weights that are missing, or whose sizes do not fit one another.
    pub fn load(weights: &Weights, prefix: &str, shape: DecoderShape) -> Result<DecoderLayer<T>, LayerError> {
        let linear = |name: &str| weights.linear::<T>(&format!("{prefix}.{name}"));
        let norm = |name: &str| Ok::<Vec<T>, LayerError>(weights.tensor(&format!("{prefix}.{name}.weight"))?.1);
        let [q, k, v] = ["q_proj", "k_proj", "v_proj"].map(|name| linear(&format!("self_attn.{name}")));
        let (q, k, v) = (q?, k?, v?);
        let (gate, up) = (linear("mlp.gate_proj")?, linear("mlp.up_proj")?);
        let (o, down) = (linear("self_attn.o_proj")?, linear("mlp.down_proj")?);
        let norms = [norm("input_layernorm")?, norm("post_attention_layernorm")?];
        if shape.key_heads == 0 || !shape.heads.is_multiple_of(shape.key_heads) {
            let DecoderShape { heads, key_heads, .. } = shape;
            return Err(LayerError::Shape(format!("{heads} heads cannot share {key_heads} heads of keys")));
        }
        let (hidden, width) = (q.inputs(), q.outputs() / shape.heads.max(1));
        let fits = [
            (q.outputs(), shape.heads * width),
            (k.outputs(), shape.key_heads * width),
            (v.outputs(), shape.key_heads * width),
            (o.inputs(), q.outputs()),
            (o.outputs(), hidden),
            (gate.outputs(), up.outputs()),
            (gate.inputs(), hidden),
            (down.inputs(), up.outputs()),
            (down.outputs(), hidden),
            (norms[0].len(), hidden),
            (norms[1].len(), hidden),
            (width % 2, 0),
        ];
        if let Some((x, y)) = fits.into_iter().find(|(x, y)| x != y) {
            return Err(LayerError::Shape(format!(
                "`{prefix}`: sizes of its weights do not fit: {x} where {y} should be"
            )));
        }
        let (qkv, gate_up) = (Linear::stacked(&[&q, &k, &v])?, Linear::stacked(&[&gate, &up])?);
        let [qkv, o, gate_up, down] = [qkv, o, gate_up, down].map(PackedLinear::new);
        Ok(DecoderLayer { shape, norms, qkv, o, gate_up, down, width })
    }

    /// Columns of what goes in and comes out.
    pub fn hidden(&self) -> usize {
        self.qkv.layer().inputs()
    }

    /// Tokens of one sequence through the layer, behind those of the cache, which they join.
    ///
    /// # Errors
    /// A number of elements that makes no tokens; a cache of another layer.
    pub fn forward(&self, backend: &Backend, x: &[T], cache: &mut Cache<T>) -> Result<Vec<T>, LayerError> {
        let tokens = self.qkv.layer().rows("x", x.len(), self.hidden())?;
        let attended = {
            let qkv = self.qkv.forward(backend, &self.normed(x, 0))?;
            self.attended(backend, &qkv, tokens, cache)?
        };
        let middle = sum(x, &self.o.forward(backend, &attended)?);
        let gate_up = self.gate_up.forward(backend, &self.normed(&middle, 1))?;
        let half = self.down.layer().inputs();
        let gated: Vec<T> = gate_up
            .chunks_exact((2 * half).max(1))
            .flat_map(|row| row[..half].iter().zip(&row[half..]))
            .map(|(gate, up)| {
                let gate = gate.to_f64();
                T::from_f64(gate / (1.0 + (-gate).exp()) * up.to_f64())
            })
            .collect();
        Ok(sum(&middle, &self.down.forward(backend, &gated)?))
    }

    /// Rows over the root of their mean square, times the norm's weights.
    fn normed(&self, x: &[T], which: usize) -> Vec<T> {
        let weights = &self.norms[which];
        let of_row = |row: &[T]| -> f64 {
            let squares: f64 = row.iter().map(|x| x.to_f64() * x.to_f64()).sum();
            1.0 / (squares / row.len() as f64 + self.shape.norm_eps).sqrt()
        };
        x.chunks_exact(self.hidden().max(1))
            .flat_map(|row| {
                let factor = of_row(row);
                row.iter().zip(weights).map(move |(x, w)| T::from_f64(x.to_f64() * factor * w.to_f64()))
            })
            .collect()
    }

    /// Queries over the keys of all tokens so far.
    fn attended(
        &self,
        backend: &Backend,
        qkv: &[T],
        tokens: usize,
        cache: &mut Cache<T>,
    ) -> Result<Vec<T>, LayerError> {
        let DecoderShape { heads, key_heads, .. } = self.shape;
        let width = self.width;
        if cache.tokens == 0 {
            *cache = Cache { tokens: 0, keys: vec![Vec::new(); key_heads], values: vec![Vec::new(); key_heads] };
        }
        let of_this_layer = |side: &[Vec<T>]| {
            side.len() == key_heads && side.iter().all(|head| Some(head.len()) == cache.tokens.checked_mul(width))
        };
        if !of_this_layer(&cache.keys) || !of_this_layer(&cache.values) {
            return Err(LayerError::Shape("the cache is of another layer".into()));
        }
        let columns = (heads + 2 * key_heads) * width;
        let mut q = vec![T::from_f64(0.0); heads * tokens * width];
        for (i, row) in qkv.chunks_exact(columns.max(1)).enumerate() {
            let turns = self.turns(cache.tokens + i);
            for (head, from) in row.chunks_exact(width).enumerate() {
                match head {
                    _ if head < heads => turned(from, &turns, &mut q[(head * tokens + i) * width..][..width]),
                    _ if head < heads + key_heads => {
                        let keys = &mut cache.keys[head - heads];
                        keys.resize(keys.len() + width, T::from_f64(0.0));
                        let at = keys.len() - width;
                        turned(from, &turns, &mut keys[at..]);
                    }
                    _ => cache.values[head - heads - key_heads].extend_from_slice(from),
                }
            }
        }
        cache.tokens += tokens;
        let of = Attention {
            batch: 1,
            heads,
            key_heads,
            queries: tokens,
            keys: cache.tokens,
            width,
            causal: true,
            scale: None,
        };
        let by_head = attention(backend, &of, &q, &cache.keys.concat(), &cache.values.concat())?;
        // Heads side by side again.
        let mut rows = Vec::with_capacity(by_head.len());
        for i in 0..tokens {
            (0..heads).for_each(|head| rows.extend_from_slice(&by_head[(head * tokens + i) * width..][..width]));
        }
        Ok(rows)
    }

    /// Cosines and sines for a token's place.
    fn turns(&self, place: usize) -> Vec<(f64, f64)> {
        let half = self.width / 2;
        let angle = |i: usize| place as f64 / self.shape.rope_theta.powf(i as f64 / half.max(1) as f64);
        (0..half).map(|i| (angle(i).cos(), angle(i).sin())).collect()
    }
}

/// The first half of a head against the second.
fn turned<T: Number>(from: &[T], turns: &[(f64, f64)], to: &mut [T]) {
    let half = turns.len();
    for (i, (cos, sin)) in turns.iter().enumerate() {
        let (x, y) = (from[i].to_f64(), from[half + i].to_f64());
        (to[i], to[half + i]) = (T::from_f64(x * cos - y * sin), T::from_f64(y * cos + x * sin));
    }
}

fn sum<T: Number>(x: &[T], y: &[T]) -> Vec<T> {
    x.iter().zip(y).map(|(x, y)| T::from_f64(x.to_f64() + y.to_f64())).collect()
}
