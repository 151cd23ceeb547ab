//! A declaration and a config together: every extent a number, every choice made.

mod attention;
mod condition;
mod feed;
mod image;
mod layers;
mod state_space;

pub use attention::{Attention, Latent, Projections, QkNorm, Rotary};
pub use condition::Condition;
pub use feed::{Experts, Mlp, Up};
pub use image::{ConvLayer, ConvStep, Convolution, Features, Patches, Stages};
pub use layers::{Block, Layer};
pub use state_space::{Scan, StateSpace};

use crate::config::Config;
use crate::declaration::{self as decl, Choice, Declaration, Expr, LinearWay, NormKind, Pooled};
use crate::error::ModelError;
use crate::expr::{Env, ExprError, integer};
use crate::options::WeightFormat;

/// A linear layer from `inputs` to `outputs` features.
#[derive(Debug, Clone, PartialEq)]
pub struct Linear {
    pub at: String,
    pub inputs: i64,
    pub outputs: i64,
    pub bias: bool,
    pub way: LinearWay,
    /// How the weight is stored, where that is not the model's own type.
    pub stored: Option<WeightFormat>,
}

impl Linear {
    fn new(at: &str, inputs: i64, outputs: i64, bias: bool) -> Linear {
        Linear { at: at.into(), inputs, outputs, bias, way: LinearWay::Linear, stored: None }
    }
}

/// A parameter that no product reads.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    pub at: String,
    pub rows: i64,
    pub width: i64,
}

/// A model with all its numbers.
#[derive(Debug, Clone)]
pub struct Architecture {
    pub model_type: String,
    /// The stack that runs first, where there are two.
    pub encoder: Option<Stack>,
    pub main: Stack,
    /// The factor of the product of both stacks' results.
    pub pair: Option<String>,
    /// Only serving engines run it as it is declared.
    pub engines_only: bool,
}

/// Layers, and what stands around them.
#[derive(Debug, Clone)]
pub struct Stack {
    pub encoder: bool,
    /// GPUs its layers are split over; the numbers here are one GPU's.
    pub ranks: i64,
    pub hidden: i64,
    /// Outputs of the head.
    pub vocabulary: i64,
    /// Where embeddings are looked up, and how many there are.
    pub tokens: Option<(String, i64)>,
    /// Where this stack's tokens are looked up, in its own table or another's.
    pub looked_up: Option<String>,
    pub patches: Option<Patches>,
    pub features: Option<Features>,
    pub tables: Vec<Table>,
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
    pub head_casts: bool,
    pub pooled: Option<Pooled>,
    pub tied: bool,
    pub prefill_caches: bool,
    pub eager: bool,
    pub sdpa: bool,
    pub layers_at: String,
    pub layers: Vec<Layer>,
    pub block: Block,
    pub condition: Option<Condition>,
    pub attention: Option<Attention>,
    /// Attention over the encoder's output.
    pub cross: Option<Attention>,
    pub state_space: Option<StateSpace>,
    pub mlp: Option<Mlp>,
    pub experts: Option<Experts>,
    pub stages: Option<Stages>,
}

impl Architecture {
    /// Resolves every fact; `keep` cuts each stack to its first layers.
    pub fn new(declaration: &Declaration, config: &Config, env: &Env, keep: Option<i64>) -> Result<Self, ModelError> {
        let facts = Facts { config, env };
        let main = facts.stack(&declaration.stack, keep)?;
        let mut encoder = declaration.encoder.as_ref().map(|stack| facts.stack(stack, keep)).transpose()?;
        if let Some(encoder) = &mut encoder
            && encoder.patches.is_none()
            && encoder.features.is_none()
        {
            encoder.looked_up = main.looked_up.clone();
        }
        Ok(Architecture {
            model_type: declaration.facts.model_type.clone(),
            encoder,
            main,
            pair: declaration.facts.pair.clone(),
            engines_only: declaration.facts.engines_only,
        })
    }

    /// Both stacks, the one that runs first before the other.
    pub fn stacks(&self) -> impl Iterator<Item = &Stack> {
        self.encoder.iter().chain([&self.main])
    }

    /// The same, to be changed.
    pub fn stacks_mut(&mut self) -> impl Iterator<Item = &mut Stack> {
        self.encoder.iter_mut().chain([&mut self.main])
    }

    /// The stack that reads an image, by patches or by convolutions.
    pub fn eyes(&self) -> Option<&Stack> {
        self.stacks().find(|stack| stack.patches.is_some() || stack.stages.is_some())
    }

    /// The decoder attends to what the encoder made.
    pub fn attends_encoder(&self) -> bool {
        self.main.cross.is_some()
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
        self.at_least(expr, 1)
    }

    fn at_least(&self, expr: &Expr, least: i64) -> Result<i64, ModelError> {
        let text = expr.text();
        match self.wrap(integer(&text, self.env))? {
            n if n >= least => Ok(n),
            n => Err(self.config.error(&text, format!("is {n}; it must be at least {least}"))),
        }
    }

    fn pick<T: Clone>(&self, choice: &Option<Choice<T>>) -> Result<Option<T>, ModelError> {
        choice.as_ref().map_or(Ok(None), |c| self.wrap(c.pick(self.env)))
    }

    fn linear(&self, l: &decl::Linear, inputs: i64, outputs: i64, way: LinearWay) -> Result<Linear, ModelError> {
        Ok(Linear { way, ..Linear::new(&l.at, inputs, outputs, self.holds(&l.bias)?) })
    }

    fn tables(&self, tables: &[decl::Table], hidden: i64) -> Result<Vec<Table>, ModelError> {
        let mut found = Vec::new();
        for table in tables {
            if self.holds(&table.when)? {
                let width = table.width.as_ref().map_or(Ok(hidden), |width| self.extent(width))?;
                found.push(Table { at: table.at.clone(), rows: self.extent(&table.rows)?, width });
            }
        }
        Ok(found)
    }

    fn stack(&self, declared: &decl::Stack, keep: Option<i64>) -> Result<Stack, ModelError> {
        let model = &declared.model;
        let stages = declared.stages.as_ref().map(|s| self.stages(s, keep)).transpose()?;
        let hidden = match (&model.hidden, &stages) {
            (Some(hidden), _) => self.extent(hidden)?,
            (None, Some(stages)) => stages.width(),
            (None, None) => panic!("a declaration has a hidden size or stages"),
        };
        let vocabulary = if model.head.is_some() { self.extent(&model.vocabulary)? } else { 0 };
        let linear = |at: &str, inputs, outputs| Linear::new(at, inputs, outputs, false);
        let projected = match &model.token_width {
            Some(p) => Some((self.extent(&p.width)?, p)).filter(|(width, _)| *width != hidden),
            None => None,
        };
        let token_width = projected.map_or(hidden, |(width, _)| width);
        let final_norm = match &model.final_norm_when {
            Some(when) if !self.holds(when)? => None,
            _ => model.final_norm.clone(),
        };
        let table = |p: &Option<decl::Positions>| match p {
            Some(p) => self.extent(&p.rows).map(|rows| Some((p.at.clone(), rows))),
            None => Ok(None),
        };
        let attention = |declared: &Option<decl::Attention>, causal: bool| match declared {
            Some(a) => self.attention(a, hidden, a.causal.unwrap_or(causal)).map(Some),
            None => Ok(None),
        };
        Ok(Stack {
            encoder: model.encoder,
            ranks: 1,
            hidden,
            vocabulary,
            tokens: match (&model.tokens, &model.token_rows) {
                (Some(at), Some(rows)) => Some((at.clone(), self.extent(rows)?)),
                (Some(at), None) => Some((at.clone(), vocabulary)),
                (None, _) => None,
            },
            looked_up: model.tokens.clone(),
            patches: model.patches.as_ref().map(|p| self.patches(p, hidden)).transpose()?,
            features: model.features.as_ref().map(|f| self.features(f)).transpose()?,
            tables: self.tables(&model.tables, hidden)?,
            token_width,
            positions: table(&model.positions)?,
            types: table(&model.types)?,
            tokens_norm: model.tokens_norm.clone(),
            project_in: projected.map(|(width, p)| linear(&p.project_in, width, hidden)),
            project_out: projected.map(|(width, p)| linear(&p.project_out, hidden, width)),
            norm: model.norm,
            norm_plain: model.norm_plain.as_ref().map_or(Ok(false), |e| self.holds(e))?,
            final_norm,
            head_transform: model
                .head_transform
                .as_ref()
                .map(|t| (Linear { bias: true, ..linear(&t.at, hidden, hidden) }, t.norm.clone())),
            head: match &model.head {
                Some(at) => Some(Linear::new(at, token_width, vocabulary, self.holds(&model.head_bias)?)),
                None => None,
            },
            head_casts: self.holds(&model.head_casts)?,
            pooled: model.pooled,
            tied: self.holds(&model.tied)?,
            prefill_caches: self.holds(&model.prefill_caches)?,
            eager: self.holds(&model.eager)?,
            sdpa: self.holds(&model.sdpa)?,
            layers_at: declared.layers.as_ref().map_or(String::new(), |layers| layers.at.clone()),
            layers: self.layers(declared, keep)?,
            block: self.block(&declared.block)?,
            condition: declared.condition.as_ref().map(|c| self.condition(c, hidden)).transpose()?,
            attention: attention(&declared.attention, !model.encoder)?,
            cross: attention(&declared.cross, false)?,
            state_space: declared.state_space.as_ref().map(|s| self.state_space(s, hidden)).transpose()?,
            mlp: declared.mlp.as_ref().map(|mlp| self.mlp(mlp, hidden)).transpose()?,
            experts: match (&declared.experts, &declared.mlp) {
                (Some(experts), Some(mlp)) => Some(self.experts(experts, mlp, hidden)?),
                _ => None,
            },
            stages,
        })
    }
}
