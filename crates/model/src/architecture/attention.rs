//! Attention with all its numbers.

use super::{Facts, Linear};
use crate::declaration::{self as decl, Core, MaskRule, NormKind, NormOver, RotaryKind, RotaryPrecision, Split};
use crate::error::ModelError;
use crate::expr::{Value, evaluate};

/// Multi-head latent attention: queries through a narrow projection or not, keys and values from a latent.
#[derive(Debug, Clone, PartialEq)]
pub struct Latent {
    /// `q_proj`, or `q_a_proj` and `q_b_proj` with a norm between them.
    pub q: Vec<Linear>,
    pub kv_down: Linear,
    pub kv_up: Linear,
    pub kv_rank: i64,
    pub plain: i64,
    pub rotated: i64,
    pub value: i64,
    /// What picks the tokens that are read.
    pub indexer: Option<Indexer>,
}

/// Heads of a small attention that picks what the large one reads.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Indexer {
    pub heads: i64,
    pub dim: i64,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Projections {
    Latent(Latent),
    Apart { q: Linear, k: Linear, v: Linear },
    Fused { qkv: Linear, split: Split },
}

#[derive(Debug, Clone, PartialEq)]
pub struct QkNorm {
    pub kind: NormKind,
    pub over: NormOver,
    pub q: String,
    pub k: String,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Rotary {
    /// The module whose product gives the angles.
    pub at: Option<String>,
    pub per_layer_type: bool,
    pub kind: RotaryKind,
    /// Dimensions of a head that are rotated.
    pub dim: i64,
    pub precision: RotaryPrecision,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Attention {
    /// GPUs its heads are split over; the numbers here are one GPU's.
    pub ranks: i64,
    pub at: String,
    pub core_at: String,
    /// A query sees only what came before it.
    pub causal: bool,
    pub heads: i64,
    pub kv_heads: i64,
    pub head_dim: i64,
    pub projections: Projections,
    pub out: Linear,
    pub qk_norm: Option<QkNorm>,
    pub rotary: Option<Rotary>,
    pub core: Core,
    pub scaled_query: bool,
    pub copied_heads: bool,
    pub query_last: bool,
    pub mask: MaskRule,
    pub pads: bool,
    pub alibi: bool,
    pub upcast: bool,
}

impl Facts<'_> {
    pub(super) fn attention(&self, a: &decl::Attention, hidden: i64, causal: bool) -> Result<Attention, ModelError> {
        let (heads, kv_heads, head_dim) =
            (self.extent(&a.heads)?, self.extent(&a.kv_heads)?, self.extent(&a.head_dim)?);
        if heads % kv_heads != 0 {
            let why = format!("is {kv_heads}, which does not divide the {heads} query heads");
            return Err(self.config.error(&a.kv_heads.text(), why));
        }
        let (mut width, kv_width) = (heads * head_dim, kv_heads * head_dim);
        let projections = match (&a.q, &a.k, &a.v, &a.qkv) {
            (None, None, None, None) if a.latent.is_some() => {
                let latent = self.latent(a, hidden, heads)?;
                width = heads * latent.value;
                Projections::Latent(latent)
            }
            (Some(q), Some(k), Some(v), None) => Projections::Apart {
                q: self.linear(q, hidden, width, a.way)?,
                k: self.linear(k, hidden, kv_width, a.way)?,
                v: self.linear(v, hidden, kv_width, a.way)?,
            },
            (None, None, None, Some(qkv)) => Projections::Fused {
                qkv: self.linear(qkv, hidden, width + 2 * kv_width, a.way)?,
                split: self.pick(&a.split)?.unwrap_or(Split::Blocks),
            },
            _ => panic!("a declaration has q, k and v, or qkv"),
        };
        let qk_norm = match &a.qk_norm {
            Some(n) if self.holds(&n.when)? => {
                Some(QkNorm { kind: n.kind, over: n.over, q: n.q.clone(), k: n.k.clone() })
            }
            _ => None,
        };
        Ok(Attention {
            ranks: 1,
            at: a.at.clone(),
            core_at: a.core_at.clone(),
            causal,
            heads,
            kv_heads,
            head_dim,
            projections,
            out: self.linear(&a.out, width, hidden, a.way)?,
            qk_norm,
            rotary: a.rotary.as_ref().map(|r| self.rotary(r, head_dim)).transpose()?,
            core: a.core,
            scaled_query: a.scaled_query,
            copied_heads: a.copied_heads,
            query_last: a.query_last,
            mask: a.mask,
            pads: a.pads,
            alibi: self.holds(&a.alibi)?,
            upcast: self.holds(&a.upcast)?,
        })
    }

    fn latent(&self, a: &decl::Attention, hidden: i64, heads: i64) -> Result<Latent, ModelError> {
        let Some(l) = &a.latent else { panic!("asked for only where there is one") };
        let (kv_rank, plain) = (self.extent(&l.kv_rank)?, self.extent(&l.plain)?);
        let (rotated, value) = (self.extent(&l.rotated)?, self.extent(&l.value)?);
        let bias = self.holds(&l.bias)?;
        let linear = |at: &str, inputs, outputs, bias| Linear { way: a.way, ..Linear::new(at, inputs, outputs, bias) };
        let width = heads * (plain + rotated);
        let q = match self.wrap(evaluate(&l.q_rank.text(), self.env))? {
            Value::Int(rank) if rank >= 1 => {
                vec![linear("q_a_proj", hidden, rank, bias), linear("q_b_proj", rank, width, false)]
            }
            _ => vec![linear("q_proj", hidden, width, false)],
        };
        Ok(Latent {
            q,
            kv_down: linear("kv_a_proj_with_mqa", hidden, kv_rank + rotated, bias),
            kv_up: linear("kv_b_proj", kv_rank, heads * (plain + value), false),
            kv_rank,
            plain,
            rotated,
            value,
            indexer: match &a.indexer {
                Some(i) => Some(Indexer { heads: self.extent(&i.heads)?, dim: self.extent(&i.dim)? }),
                None => None,
            },
        })
    }

    /// Whether a layer has an indexer of its own.
    pub(super) fn indexed(&self, a: &decl::Attention, layer: i64) -> Result<bool, ModelError> {
        let Some(indexer) = &a.indexer else { return Ok(false) };
        if let Some(Value::Text(pattern)) = self.env.get(&indexer.pattern) {
            return Ok(pattern.as_bytes().get(layer as usize) != Some(&b'S'));
        }
        let (every, after) = (self.extent(&indexer.every)?, self.at_least(&indexer.after, 0)?);
        Ok((layer - after + 1).max(0) % every == 0)
    }

    pub(super) fn scale(&self, scale: &decl::Scale, layer: i64) -> Result<Option<f64>, ModelError> {
        let holds = |when: &Option<String>, otherwise| match when {
            Some(when) => self.config.holds(when, self.env),
            None => Ok(otherwise),
        };
        let base = match (&scale.rsqrt, &scale.field, scale.constant) {
            (Some(extent), ..) if holds(&scale.rsqrt_when, true)? => (self.extent(extent)? as f64).powf(-0.5),
            (Some(_), ..) => 1.0,
            (None, Some(field), _) => match self.env.get(field) {
                Some(Value::Float(x)) => *x,
                Some(Value::Int(x)) => *x as f64,
                _ => return Err(self.config.error(field, "must be a number")),
            },
            (None, None, Some(number)) => number,
            (None, None, None) => return Ok(None),
        };
        let per_layer = holds(&scale.per_layer_when, false)?;
        let base = if scale.yarn { base * self.yarn_factor().powi(2) } else { base };
        Ok(Some(if per_layer { base / (layer + 1) as f64 } else { base }))
    }

    /// What YaRN multiplies queries and keys by, where the rope parameters ask for it.
    fn yarn_factor(&self) -> f64 {
        let number = |name: &str| {
            let nested = ["rope_scaling", "rope_parameters"].into_iter().find_map(|o| self.config.nested(o, name));
            nested.and_then(serde_json::Value::as_f64).unwrap_or(0.0)
        };
        let (all, factor) = (number("mscale_all_dim"), number("factor"));
        if all != 0.0 && factor > 1.0 { 0.1 * all * factor.ln() + 1.0 } else { 1.0 }
    }

    fn rotary(&self, r: &decl::Rotary, head_dim: i64) -> Result<Rotary, ModelError> {
        let (field, dim) = match (&r.dim, &r.share) {
            (Some(dim), _) => (dim.text(), self.extent(dim)?),
            (None, Some(share)) => (share.field.clone(), (head_dim as f64 * self.share(share)?) as i64),
            (None, None) => ("head_dim".into(), head_dim),
        };
        if dim % 2 != 0 || dim < 2 || dim > head_dim {
            let why = format!("leaves {dim} of {head_dim} dimensions of a head to rotate; it must be an even number");
            return Err(self.config.error(&field, why));
        }
        let (at, per_layer_type) = (r.at.clone(), r.per_layer_type);
        Ok(Rotary { at, per_layer_type, kind: r.kind, dim, precision: r.precision })
    }

    /// The share of a head that is rotated: transformers looks into the rope parameters first.
    fn share(&self, share: &decl::Share) -> Result<f64, ModelError> {
        let inner = "partial_rotary_factor";
        let scaling = self.config.get("rope_scaling").filter(|x| x.as_object().is_some_and(|o| !o.is_empty()));
        let object = if scaling.is_some() { "rope_scaling" } else { "rope_parameters" };
        let found = self.config.nested(object, inner).map(|x| (inner, x));
        let found = found.or_else(|| self.config.get(&share.field).map(|x| (share.field.as_str(), x)));
        match found.filter(|(_, json)| !json.is_null()) {
            None => Ok(share.absent),
            Some((field, json)) => match json.as_f64() {
                Some(x) if x > 0.0 && x <= 1.0 => Ok(x),
                _ => Err(self.config.error(field, format!("is {json}; it must be a number above 0 and at most 1"))),
            },
        }
    }
}
