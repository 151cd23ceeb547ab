//! The layers of a stack: what differs between them, and how their parts hang together.

use super::Facts;
use crate::declaration as decl;
use crate::error::ModelError;
use crate::expr::{Value, evaluate};

/// More layers than any model has: a guard against a typing error.
pub(super) const MOST_LAYERS: i64 = 1 << 14;

#[derive(Debug, Clone, PartialEq)]
pub struct Block {
    pub parallel: bool,
    pub norm_after_residual: bool,
    pub attention_norm: Option<String>,
    pub attention_after: Option<String>,
    pub cross_norm: Option<String>,
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
    /// It picks what it attends to itself.
    pub indexed: bool,
}

impl Facts<'_> {
    pub(super) fn layers(&self, stack: &decl::Stack, keep: Option<i64>) -> Result<Vec<Layer>, ModelError> {
        let Some(layers) = &stack.layers else { return Ok(Vec::new()) };
        let count = self.extent(&layers.count)?;
        if count > MOST_LAYERS {
            return Err(self
                .config
                .error(&layers.count.text(), format!("is {count}; it must be at most {MOST_LAYERS}")));
        }
        let listed = self.layer_types(layers, count)?;
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
                let rotates = match stack.attention.as_ref().and_then(|a| a.rotary.as_ref()) {
                    Some(rotary) => self.config.holds(&rotary.layers.text(), &env)?,
                    None => false,
                };
                let scale = match &stack.attention {
                    Some(attention) => self.scale(&attention.scale, layer)?,
                    None => None,
                };
                let sparse = match &stack.experts {
                    Some(experts) => self.config.holds(&experts.layers.text(), &env)?,
                    None => false,
                };
                let indexed = match &stack.attention {
                    Some(attention) => self.indexed(attention, layer)?,
                    None => false,
                };
                Ok(Layer { window: window.filter(|_| slides), rotates, scale, sparse, indexed })
            })
            .collect()
    }

    /// Which layers slide, where the config lists them.
    fn layer_types(&self, layers: &decl::Layers, count: i64) -> Result<Option<Vec<bool>>, ModelError> {
        let json = match self.config.get("layer_types") {
            None | Some(serde_json::Value::Null) => return Ok(None),
            Some(json) => json,
        };
        let error = |why: String| self.config.error("layer_types", why);
        if !layers.layer_types {
            return Err(error("is not a field of this type; take it out".into()));
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

    pub(super) fn block(&self, block: &decl::Block) -> Result<Block, ModelError> {
        Ok(Block {
            parallel: self.holds(&block.parallel)?,
            norm_after_residual: self.holds(&block.norm_after_residual)?,
            attention_norm: self.pick(&block.attention_norm)?,
            attention_after: block.attention_after.clone(),
            cross_norm: block.cross_norm.clone(),
            mlp_norm: self.pick(&block.mlp_norm)?,
            mlp_after: block.mlp_after.clone(),
            factors: block.factors.clone(),
        })
    }
}
