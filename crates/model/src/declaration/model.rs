//! What stands around the layers, and how a layer is put together.

use super::field::{Choice, Expr, no, none, yes};
use super::image::{Features, Patches};
use serde::Deserialize;

/// What stands around the layers. Paths are those of the transformers modules.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// It sees both ways, unless its attention says otherwise, and keeps no cache.
    #[serde(default)]
    pub encoder: bool,
    /// Where a token's embedding is looked up; an image has patches instead.
    pub tokens: Option<String>,
    /// How many there are, where the head has other outputs.
    pub token_rows: Option<Expr>,
    pub patches: Option<Patches>,
    /// What is read in place of tokens: a spectrogram.
    pub features: Option<Features>,
    /// Further parameters that no product reads.
    #[serde(default)]
    pub tables: Vec<Table>,
    /// Embeddings of a token's type.
    pub types: Option<Positions>,
    /// Learned positions: where, and how many rows.
    pub positions: Option<Positions>,
    /// Width of a token's embedding where it is not the hidden size; projections at both ends follow.
    pub token_width: Option<TokenWidth>,
    /// A norm on the embeddings.
    pub tokens_norm: Option<String>,
    /// Absent where there are stages: the width of the last.
    pub hidden: Option<Expr>,
    /// Outputs of the head.
    #[serde(default = "none")]
    pub vocabulary: Expr,
    pub norm: NormKind,
    /// Norms without parameters where this holds.
    pub norm_plain: Option<Expr>,
    pub final_norm: Option<String>,
    /// The final norm is there only where this holds.
    pub final_norm_when: Option<Expr>,
    /// Absent: the model ends with its hidden state.
    pub head: Option<String>,
    /// The head reads one row a sample; absent: every token.
    pub pooled: Option<Pooled>,
    /// A linear layer, an activation and a norm before the head.
    pub head_transform: Option<Transform>,
    /// The head's input was of another type and is cast: a slice of it is copied.
    #[serde(default = "no")]
    pub head_casts: Expr,
    #[serde(default = "no")]
    pub head_bias: Expr,
    #[serde(default = "no")]
    pub tied: Expr,
    /// Whether a prefill that is not part of a generation fills a cache.
    #[serde(default = "yes")]
    pub prefill_caches: Expr,
    /// Attention can be computed by two products.
    #[serde(default = "yes")]
    pub eager: Expr,
    /// transformers has an sdpa path for this type.
    #[serde(default = "yes")]
    pub sdpa: Expr,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Positions {
    pub at: String,
    pub rows: Expr,
}

/// How the tokens of a sample become one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pooled {
    /// The first token, after the final norm.
    First,
    /// The first token, and the final norm of it alone.
    FirstNormed,
    /// A token found by its value, copied out after the final norm.
    Picked,
}

/// A parameter of so many rows, each as wide as the hidden state if nothing else is said.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    pub at: String,
    pub rows: Expr,
    pub width: Option<Expr>,
    #[serde(default = "yes")]
    pub when: Expr,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Transform {
    pub at: String,
    pub norm: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenWidth {
    pub width: Expr,
    pub project_in: String,
    pub project_out: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NormKind {
    /// Root mean square, in f32, one weight.
    Rms,
    /// Mean and variance by hand, in f32, one weight (cohere).
    LayerWithoutBias,
    /// `torch.nn.LayerNorm`: weight and bias.
    Layer,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layers {
    pub at: String,
    pub count: Expr,
    /// The sliding window, none where there is none.
    #[serde(default = "none")]
    pub window: Expr,
    /// Which layers slide, where config.json has no `layer_types`; `layer` counts from 0.
    #[serde(default = "no")]
    pub slides: Expr,
    /// config.json may say it per layer in `layer_types`.
    #[serde(default)]
    pub layer_types: bool,
}

/// How the parts of a layer hang on the residual stream.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Block {
    /// The MLP reads what attention read, and both are added at once.
    pub parallel: Expr,
    /// The norms stand after the residual addition (post-norm).
    pub norm_after_residual: Expr,
    /// Of attention, or of the state space in its place.
    pub attention_norm: Option<Choice<String>>,
    pub attention_after: Option<String>,
    pub cross_norm: Option<String>,
    /// Absent in a parallel block: the MLP reads the normed input of attention.
    pub mlp_norm: Option<Choice<String>>,
    pub mlp_after: Option<String>,
    /// Learned factors of what attention and the MLP add: parameters, one per hidden dimension.
    pub factors: Vec<String>,
}

impl Default for Block {
    fn default() -> Block {
        Block {
            parallel: no(),
            norm_after_residual: no(),
            attention_norm: None,
            attention_after: None,
            cross_norm: None,
            mlp_norm: None,
            mlp_after: None,
            factors: Vec::new(),
        }
    }
}
