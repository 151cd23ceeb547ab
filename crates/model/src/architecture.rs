//! A declaration and a config together: every extent a number, every choice made.

use crate::config::Config;
use crate::declaration::{
    self as decl, Choice, Core, Declaration, Expr, LinearWay, MaskRule, NormKind, NormOver, RotaryKind,
    RotaryPrecision, Split, Stored,
};
use crate::error::ModelError;
use crate::expr::{Env, ExprError, Value, evaluate, integer};

/// A linear layer from `inputs` to `outputs` features.
#[derive(Debug, Clone, PartialEq)]
pub struct Linear {
    pub at: String,
    pub inputs: i64,
    pub outputs: i64,
    pub bias: bool,
    pub way: LinearWay,
}

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
    pub query_last: bool,
    pub mask: MaskRule,
    pub pads: bool,
    pub alibi: bool,
    pub upcast: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Up {
    /// activation(gate) · up.
    Gated { gate: Linear, up: Linear },
    /// The same from one projection.
    Fused(Linear),
    /// activation(up).
    Plain(Linear),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Mlp {
    pub at: String,
    pub up: Up,
    pub down: Linear,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Experts {
    pub at: String,
    pub router: Linear,
    pub router_in_f32: bool,
    pub stacked: String,
    pub count: i64,
    pub chosen: i64,
    pub inner: i64,
    pub stored: Stored,
    pub bias: bool,
    pub shared: Option<SharedExpert>,
    /// How likely each is among a token's choices, where that was given; else all alike.
    pub chances: Option<Vec<f64>>,
}

impl Experts {
    /// Takes the load of each expert, in tokens or any other unit.
    pub fn set_load(&mut self, load: &[f64]) -> Result<(), String> {
        let (count, chosen) = (self.count, self.chosen);
        if load.len() as i64 != count {
            return Err(format!("has {} numbers; the model has {count} experts", load.len()));
        }
        if let Some(wrong) = load.iter().find(|x| !x.is_finite() || **x < 0.0) {
            return Err(format!("has {wrong}; a load is zero or more"));
        }
        let sum: f64 = load.iter().sum();
        let chances: Vec<f64> = load.iter().map(|x| x / sum * chosen as f64).collect();
        // A token's choices are different experts, so none is in more than all of them.
        match chances.iter().position(|chance| chance.is_nan() || *chance > 1.0 + 1e-9) {
            Some(i) => {
                Err(format!("gives expert {i} more than 1 of every token's {chosen} choices: {} of {sum}", load[i]))
            }
            None => {
                self.chances = Some(chances.into_iter().map(|chance| chance.min(1.0)).collect());
                Ok(())
            }
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct SharedExpert {
    pub mlp: Mlp,
    pub gate: Option<Linear>,
    pub first: bool,
}

/// An image cut into squares.
#[derive(Debug, Clone, PartialEq)]
pub struct Patches {
    pub at: String,
    pub image: i64,
    pub side: i64,
    pub channels: i64,
    pub any_image: bool,
    pub tables: Vec<(String, i64)>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Block {
    pub parallel: bool,
    pub norm_after_residual: bool,
    pub attention_norm: Option<String>,
    pub attention_after: Option<String>,
    pub mlp_norm: Option<String>,
    pub mlp_after: Option<String>,
    pub factors: Vec<String>,
}

/// What may differ from layer to layer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Layer {
    pub window: Option<i64>,
    pub rotates: bool,
    pub scale: Option<f64>,
    /// It has experts in place of the MLP.
    pub sparse: bool,
}

/// A model with all its numbers.
#[derive(Debug, Clone)]
pub struct Architecture {
    pub model_type: String,
    pub encoder: bool,
    pub hidden: i64,
    pub vocabulary: i64,
    pub tokens: Option<String>,
    pub patches: Option<Patches>,
    pub token_width: i64,
    pub positions: Option<(String, i64)>,
    pub types: Option<(String, i64)>,
    pub tokens_norm: Option<String>,
    pub project_in: Option<Linear>,
    pub project_out: Option<Linear>,
    pub norm: NormKind,
    pub norm_plain: bool,
    pub final_norm: Option<String>,
    /// A linear layer before the head, and the norm after it.
    pub head_transform: Option<(Linear, String)>,
    pub head: Option<Linear>,
    pub head_of_first: bool,
    pub tied: bool,
    pub prefill_caches: bool,
    pub sdpa: bool,
    pub layers_at: String,
    pub layers: Vec<Layer>,
    pub block: Block,
    pub attention: Attention,
    pub mlp: Mlp,
    pub experts: Option<Experts>,
}

/// More layers than any model has: a guard against a typing error.
const MOST_LAYERS: i64 = 1 << 14;

impl Architecture {
    /// Resolves every fact; `keep` cuts the model to its first layers.
    pub fn new(declaration: &Declaration, config: &Config, env: &Env, keep: Option<i64>) -> Result<Self, ModelError> {
        let facts = Facts { config, env };
        let model = &declaration.model;
        let hidden = facts.extent(&model.hidden)?;
        let vocabulary = if model.head.is_some() { facts.extent(&model.vocabulary)? } else { 0 };
        let linear =
            |at: &str, inputs, outputs| Linear { at: at.into(), inputs, outputs, bias: false, way: LinearWay::Linear };
        let projected = match &model.token_width {
            Some(p) => Some((facts.extent(&p.width)?, p)).filter(|(width, _)| *width != hidden),
            None => None,
        };
        let token_width = projected.map_or(hidden, |(width, _)| width);
        let final_norm = match &model.final_norm_when {
            Some(when) if !facts.holds(when)? => None,
            _ => model.final_norm.clone(),
        };
        let table = |p: &Option<decl::Positions>| match p {
            Some(p) => facts.extent(&p.rows).map(|rows| Some((p.at.clone(), rows))),
            None => Ok(None),
        };
        Ok(Architecture {
            model_type: declaration.model_type.clone(),
            encoder: model.encoder,
            hidden,
            vocabulary,
            tokens: model.tokens.clone(),
            patches: model.patches.as_ref().map(|p| facts.patches(p)).transpose()?,
            token_width,
            positions: table(&model.positions)?,
            types: table(&model.types)?,
            tokens_norm: model.tokens_norm.clone(),
            project_in: projected.map(|(width, p)| linear(&p.project_in, width, hidden)),
            project_out: projected.map(|(width, p)| linear(&p.project_out, hidden, width)),
            norm: model.norm,
            norm_plain: model.norm_plain.as_ref().map_or(Ok(false), |e| facts.holds(e))?,
            final_norm,
            head_transform: model
                .head_transform
                .as_ref()
                .map(|t| (Linear { bias: true, ..linear(&t.at, hidden, hidden) }, t.norm.clone())),
            head: match &model.head {
                Some(at) => {
                    let bias = facts.holds(&model.head_bias)?;
                    Some(Linear { bias, ..linear(at, token_width, vocabulary) })
                }
                None => None,
            },
            head_of_first: model.head_of_first,
            tied: facts.holds(&model.tied)?,
            prefill_caches: facts.holds(&model.prefill_caches)?,
            sdpa: facts.holds(&model.sdpa)?,
            layers_at: declaration.layers.at.clone(),
            layers: facts.layers(declaration, keep)?,
            block: facts.block(&declaration.block)?,
            attention: Attention { causal: !model.encoder, ..facts.attention(&declaration.attention, hidden)? },
            mlp: facts.mlp(&declaration.mlp, hidden)?,
            experts: match &declaration.experts {
                Some(experts) => Some(facts.experts(experts, &declaration.mlp, hidden)?),
                None => None,
            },
        })
    }
}

struct Facts<'a> {
    config: &'a Config,
    env: &'a Env,
}

impl Facts<'_> {
    fn wrap<T>(&self, result: Result<T, ExprError>) -> Result<T, ModelError> {
        result.map_err(|source| ModelError::Expr { file: self.config.file.clone(), source })
    }

    fn holds(&self, expr: &Expr) -> Result<bool, ModelError> {
        self.config.holds(&expr.text(), self.env)
    }

    /// A size: at least 1.
    fn extent(&self, expr: &Expr) -> Result<i64, ModelError> {
        let text = expr.text();
        match self.wrap(integer(&text, self.env))? {
            n if n >= 1 => Ok(n),
            n => Err(self.config.error(&text, format!("is {n}; it must be at least 1"))),
        }
    }

    fn pick<T: Clone>(&self, choice: &Option<Choice<T>>) -> Result<Option<T>, ModelError> {
        choice.as_ref().map_or(Ok(None), |c| self.wrap(c.pick(self.env)))
    }

    fn linear(&self, l: &decl::Linear, inputs: i64, outputs: i64, way: LinearWay) -> Result<Linear, ModelError> {
        Ok(Linear { at: l.at.clone(), inputs, outputs, bias: self.holds(&l.bias)?, way })
    }

    fn layers(&self, declaration: &Declaration, keep: Option<i64>) -> Result<Vec<Layer>, ModelError> {
        let layers = &declaration.layers;
        let count = self.extent(&layers.count)?;
        if count > MOST_LAYERS {
            return Err(self
                .config
                .error(&layers.count.text(), format!("is {count}; it must be at most {MOST_LAYERS}")));
        }
        let listed = self.layer_types(declaration, count)?;
        let window = match self.wrap(evaluate(&layers.window.text(), self.env))? {
            Value::Int(n) if n < 2 => {
                return Err(self.config.error("sliding_window", format!("is {n}; it must be at least 2")));
            }
            Value::Int(n) => Some(n),
            _ => None,
        };
        let kept = match keep {
            Some(n) if (1..=count).contains(&n) => n,
            Some(n) => {
                let why = format!("is {n}; the model has {count} layers");
                return Err(ModelError::Option { option: "--layers", why });
            }
            None => count,
        };
        let mut env = self.env.clone();
        (0..kept)
            .map(|layer| {
                env.insert("layer".into(), Value::Int(layer));
                let slides = match &listed {
                    Some(list) => list[layer as usize],
                    None => self.config.holds(&layers.slides.text(), &env)?,
                };
                if slides && window.is_none() {
                    return Err(self.config.error("layer_types", "has sliding layers, but there is no sliding_window"));
                }
                let rotates = match &declaration.attention.rotary {
                    Some(rotary) => self.config.holds(&rotary.layers.text(), &env)?,
                    None => false,
                };
                let scale = self.scale(&declaration.attention.scale, layer)?;
                let sparse = match &declaration.experts {
                    Some(experts) => self.config.holds(&experts.layers.text(), &env)?,
                    None => false,
                };
                Ok(Layer { window: window.filter(|_| slides), rotates, scale, sparse })
            })
            .collect()
    }

    /// Which layers slide, where the config lists them.
    fn layer_types(&self, declaration: &Declaration, count: i64) -> Result<Option<Vec<bool>>, ModelError> {
        let json = match self.config.get("layer_types") {
            None | Some(serde_json::Value::Null) => return Ok(None),
            Some(json) => json,
        };
        let error = |why: String| self.config.error("layer_types", why);
        if !declaration.layers.layer_types {
            return Err(error(format!("is not a field of {}; take it out", declaration.model_type)));
        }
        let Some(list) = json.as_array() else { return Err(error("must be a list".into())) };
        if list.len() as i64 != count {
            return Err(error(format!("has {} entries for {count} layers", list.len())));
        }
        let slides = |name: &serde_json::Value| match name.as_str() {
            Some("sliding_attention") => Ok(true),
            Some("full_attention") => Ok(false),
            _ => Err(error(format!("has {name}; known are \"full_attention\" and \"sliding_attention\""))),
        };
        list.iter().map(slides).collect::<Result<_, _>>().map(Some)
    }

    fn scale(&self, scale: &decl::Scale, layer: i64) -> Result<Option<f64>, ModelError> {
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

    fn block(&self, block: &decl::Block) -> Result<Block, ModelError> {
        Ok(Block {
            parallel: self.holds(&block.parallel)?,
            norm_after_residual: self.holds(&block.norm_after_residual)?,
            attention_norm: self.pick(&block.attention_norm)?,
            attention_after: block.attention_after.clone(),
            mlp_norm: self.pick(&block.mlp_norm)?,
            mlp_after: block.mlp_after.clone(),
            factors: block.factors.clone(),
        })
    }

    fn attention(&self, a: &decl::Attention, hidden: i64) -> Result<Attention, ModelError> {
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
            at: a.at.clone(),
            core_at: a.core_at.clone(),
            causal: true,
            heads,
            kv_heads,
            head_dim,
            projections,
            out: self.linear(&a.out, width, hidden, a.way)?,
            qk_norm,
            rotary: a.rotary.as_ref().map(|r| self.rotary(r, head_dim)).transpose()?,
            core: a.core,
            scaled_query: a.scaled_query,
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
        let linear = |at: &str, inputs, outputs, bias| Linear { at: at.into(), inputs, outputs, bias, way: a.way };
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
        })
    }

    fn experts(&self, e: &decl::Experts, mlp: &decl::Mlp, hidden: i64) -> Result<Experts, ModelError> {
        let (count, chosen) = (self.extent(&e.count)?, self.extent(&e.chosen)?);
        if chosen > count {
            return Err(self.config.error(&e.chosen.text(), format!("is {chosen} of {count} experts")));
        }
        let shared = match &e.shared {
            Some(s) => {
                let mlp = self.mlp_of(mlp, &s.at, self.extent(&s.inner)?, hidden)?;
                let gate = s.gate.as_ref().map(|at| Linear {
                    at: at.clone(),
                    inputs: hidden,
                    outputs: 1,
                    bias: false,
                    way: LinearWay::Linear,
                });
                Some(SharedExpert { mlp, gate, first: s.first })
            }
            None => None,
        };
        Ok(Experts {
            at: e.at.clone(),
            router: self.linear(&e.router, hidden, count, LinearWay::Linear)?,
            router_in_f32: e.router_in_f32,
            stacked: e.stacked.clone(),
            count,
            chosen,
            inner: self.extent(&e.inner)?,
            stored: e.stored,
            bias: self.holds(&e.bias)?,
            shared,
            chances: None,
        })
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

    fn patches(&self, p: &decl::Patches) -> Result<Patches, ModelError> {
        let mut tables = Vec::new();
        for table in &p.tables {
            if self.holds(&table.when)? {
                tables.push((table.at.clone(), self.extent(&table.rows)?));
            }
        }
        Ok(Patches {
            at: p.at.clone(),
            image: self.extent(&p.image)?,
            side: self.extent(&p.side)?,
            channels: self.extent(&p.channels)?,
            any_image: p.any_image,
            tables,
        })
    }

    fn mlp(&self, m: &decl::Mlp, hidden: i64) -> Result<Mlp, ModelError> {
        if let Some(other) = &m.or
            && self.holds(&other.when)?
        {
            return self.mlp(&other.mlp, hidden);
        }
        self.mlp_of(m, &m.at, self.extent(&m.inner)?, hidden)
    }

    fn mlp_of(&self, m: &decl::Mlp, at: &str, inner: i64, hidden: i64) -> Result<Mlp, ModelError> {
        let linear = |l: &decl::Linear, outputs| self.linear(l, hidden, outputs, m.way);
        let up = match (&m.gate, &m.up, &m.gate_up) {
            (Some(gate), Some(up), None) => Up::Gated { gate: linear(gate, inner)?, up: linear(up, inner)? },
            (None, Some(up), None) => Up::Plain(linear(up, inner)?),
            (None, None, Some(both)) => Up::Fused(linear(both, 2 * inner)?),
            _ => panic!("a declaration has gate and up, up, or gate_up"),
        };
        Ok(Mlp { at: at.into(), up, down: self.linear(&m.down, inner, hidden, m.way)? })
    }
}
