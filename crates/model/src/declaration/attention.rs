//! Attention: its projections, positions, mask and core.

use super::field::{Choice, Expr, no, yes};
use super::linear::{Linear, LinearWay};
use super::model::NormKind;
use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attention {
    pub at: String,
    /// The module below it that joins q, k and v, where that is not itself.
    #[serde(default)]
    pub core_at: String,
    pub heads: Expr,
    pub kv_heads: Expr,
    pub head_dim: Expr,
    #[serde(default)]
    pub way: LinearWay,
    /// Either three projections ...
    pub q: Option<Linear>,
    pub k: Option<Linear>,
    pub v: Option<Linear>,
    /// ... or keys and values from a latent that is cached in their place ...
    pub latent: Option<Latent>,
    /// What picks the tokens that a latent's queries see.
    pub indexer: Option<Indexer>,
    /// The query is projected last.
    #[serde(default)]
    pub query_last: bool,
    /// ... or one, cut afterwards.
    pub qkv: Option<Linear>,
    pub split: Option<Choice<Split>>,
    pub out: Linear,
    pub qk_norm: Option<QkNorm>,
    pub rotary: Option<Rotary>,
    #[serde(default)]
    pub core: Core,
    #[serde(default)]
    pub scale: Scale,
    /// Whether a query sees only what came before it; absent: unless the model is an encoder.
    pub causal: Option<bool>,
    /// The query is scaled before the heads are cut.
    #[serde(default)]
    pub scaled_query: bool,
    /// Heads are copied row-major once they are cut.
    #[serde(default)]
    pub copied_heads: bool,
    #[serde(default)]
    pub mask: MaskRule,
    /// The model makes a padding mask itself, so that no mask is shared by the batch.
    #[serde(default)]
    pub pads: bool,
    /// Positions enter as a bias that falls with the distance.
    #[serde(default = "no")]
    pub alibi: Expr,
    /// QK^T as a baddbmm in f32, in eager attention (GPT-2's option).
    #[serde(default = "no")]
    pub upcast: Expr,
}

/// Multi-head latent attention. The module names are those of DeepSeek.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Latent {
    /// Width the query is compressed to, none where it is not.
    pub q_rank: Expr,
    pub kv_rank: Expr,
    /// Dimensions of a head without and with positions, and of a value.
    pub plain: Expr,
    pub rotated: Expr,
    pub value: Expr,
    pub bias: Expr,
}

/// A small attention that picks what the large one reads.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Indexer {
    pub heads: Expr,
    pub dim: Expr,
    /// One layer in so many has its own, counted after the first ones; the others share its picks.
    pub every: Expr,
    pub after: Expr,
    /// A letter for each layer in place of that: S shares.
    pub pattern: String,
}

/// How a fused projection is cut into q, k and v.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Split {
    /// All of q, then all of k, then all of v.
    Blocks,
    /// The same with one key and value head that is never cut into heads.
    BlocksOneKvHead,
    /// Per head q, k, v, cut after the heads are moved forward.
    HeadsChunked,
    /// Per head q, k, v, picked one by one.
    HeadsSelected,
    /// All query heads, then one key and one value head, copied out by index.
    QueriesThenKv,
    /// Per key-value head its query heads, a key and a value, copied out by index and repeated.
    Groups,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QkNorm {
    #[serde(default = "yes")]
    pub when: Expr,
    pub kind: NormKind,
    pub over: NormOver,
    pub q: String,
    pub k: String,
}

/// What a norm of queries and keys runs over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NormOver {
    /// The whole projection, before the heads are cut.
    Width,
    /// Each head, before the heads are moved forward.
    Head,
    /// Each head with weights of its own, before the heads are moved forward.
    EachHead,
    /// Each head, after the heads are moved forward.
    MovedHead,
    /// Each head by a module of its own, after the heads are moved forward.
    MovedHeadModules,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rotary {
    /// The module that computes the angles by a product; absent where they come from a table.
    pub at: Option<String>,
    /// One product per kind of layer, not one for all.
    #[serde(default)]
    pub per_layer_type: bool,
    pub kind: RotaryKind,
    /// Which layers rotate.
    #[serde(default = "yes")]
    pub layers: Expr,
    /// Dimensions rotated, where the config gives their number.
    pub dim: Option<Expr>,
    /// Share of the head that is rotated: the field of config.json and its class default.
    pub share: Option<Share>,
    #[serde(default)]
    pub precision: RotaryPrecision,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Share {
    pub field: String,
    pub absent: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RotaryKind {
    /// Halves of the whole head.
    Halves,
    /// Neighbours of the whole head.
    Pairs,
    /// Halves of the first part, put together with the rest again.
    PartHalves,
    /// Neighbours of the first part, put together with the rest again.
    PartPairs,
    /// As `PartPairs`, before the heads are moved forward.
    PartPairsUnmoved,
    /// Halves of the whole head, each turned on its own and put together by a copy.
    HalvesApart,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RotaryPrecision {
    /// Angles in the model's own type.
    #[default]
    Model,
    /// Angles in f32, so that the products with them are f32 too.
    F32Angles,
    /// Queries and keys cast to f32 first.
    F32Heads,
}

/// The code that joins q, k and v.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Core {
    /// transformers' attention interface: sdpa, or eager with repeated key heads.
    #[default]
    Interface,
    /// Two matmuls with repeated key heads left to matmul itself, or plain sdpa (falcon).
    Broadcast,
    /// QK^T in f32 (gptj).
    F32Scores,
    /// QK^T as a baddbmm onto the position bias (bloom).
    Baddbmm,
    /// A learned column beside the scores (gpt_oss).
    Sink,
}

/// The factor of QK^T; nothing said: left to the attention function.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scale {
    /// 1 / sqrt of an extent ...
    pub rsqrt: Option<Expr>,
    /// ... or 1, where this does not hold.
    pub rsqrt_when: Option<String>,
    /// A field of the config.
    pub field: Option<String>,
    /// A number.
    pub constant: Option<f64>,
    /// Divided by the layer's number, counted from 1, where this holds.
    pub per_layer_when: Option<String>,
    /// Times the factor of YaRN's rope parameters, squared.
    #[serde(default)]
    pub yarn: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MaskRule {
    /// None, unless a sliding window is reached.
    #[default]
    ByWindow,
    /// Always built.
    Always,
    /// A learned bias by distance, laid out as its table was looked up: heads innermost.
    Distance,
    /// Zeros in the model's own type.
    Zeros,
}
