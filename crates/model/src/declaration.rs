//! What an architecture's file may say: names, extents, fusions and layout facts, nothing to compute
//! but extents. The files are under `arch/`, one a type; ARCHITECTURE.md shows how to add one.

use crate::expr::{Env, ExprError, holds};
use serde::Deserialize;
use std::collections::BTreeMap;

/// The files, by the type they declare.
const FILES: &[(&str, &str)] = &[
    // Kept sorted; a new architecture is its file and this line.
    ("bert", include_str!("../arch/bert.toml")),
    ("bloom", include_str!("../arch/bloom.toml")),
    ("cohere", include_str!("../arch/cohere.toml")),
    ("deepseek_v2", include_str!("../arch/deepseek_v2.toml")),
    ("deepseek_v3", include_str!("../arch/deepseek_v3.toml")),
    ("dinov2", include_str!("../arch/dinov2.toml")),
    ("distilbert", include_str!("../arch/distilbert.toml")),
    ("falcon", include_str!("../arch/falcon.toml")),
    ("gemma", include_str!("../arch/gemma.toml")),
    ("gemma2", include_str!("../arch/gemma2.toml")),
    ("gemma3_text", include_str!("../arch/gemma3_text.toml")),
    ("glm4", include_str!("../arch/glm4.toml")),
    ("gpt2", include_str!("../arch/gpt2.toml")),
    ("gpt_bigcode", include_str!("../arch/gpt_bigcode.toml")),
    ("gpt_neox", include_str!("../arch/gpt_neox.toml")),
    ("gpt_oss", include_str!("../arch/gpt_oss.toml")),
    ("gptj", include_str!("../arch/gptj.toml")),
    ("granite", include_str!("../arch/granite.toml")),
    ("llama", include_str!("../arch/llama.toml")),
    ("mistral", include_str!("../arch/mistral.toml")),
    ("mixtral", include_str!("../arch/mixtral.toml")),
    ("olmo2", include_str!("../arch/olmo2.toml")),
    ("olmoe", include_str!("../arch/olmoe.toml")),
    ("opt", include_str!("../arch/opt.toml")),
    ("phi", include_str!("../arch/phi.toml")),
    ("phi3", include_str!("../arch/phi3.toml")),
    ("plain_gpt3", include_str!("../arch/plain_gpt3.toml")),
    ("qwen2", include_str!("../arch/qwen2.toml")),
    ("qwen2_moe", include_str!("../arch/qwen2_moe.toml")),
    ("qwen3", include_str!("../arch/qwen3.toml")),
    ("qwen3_moe", include_str!("../arch/qwen3_moe.toml")),
    ("roberta", include_str!("../arch/roberta.toml")),
    ("smollm3", include_str!("../arch/smollm3.toml")),
    ("stablelm", include_str!("../arch/stablelm.toml")),
    ("starcoder2", include_str!("../arch/starcoder2.toml")),
    ("vit", include_str!("../arch/vit.toml")),
];

/// The types that can be predicted.
pub fn known_types() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(name, _)| *name)
}

/// The declaration of a type, with what it takes over from another.
///
/// # Panics
/// Never on input: a test reads every file.
pub fn declaration(model_type: &str) -> Option<Declaration> {
    let table = inherited(model_type)?;
    Some(table.try_into().unwrap_or_else(|e| panic!("arch/{model_type}.toml: {e}")))
}

fn inherited(model_type: &str) -> Option<toml::Table> {
    let (_, text) = FILES.iter().find(|(name, _)| *name == model_type)?;
    let mut own: toml::Table = toml::from_str(text).unwrap_or_else(|e| panic!("arch/{model_type}.toml: {e}"));
    let Some(toml::Value::String(parent)) = own.remove("like") else { return Some(own) };
    let mut base = inherited(&parent)?;
    // A class default is nobody's but the class's own.
    base.remove("config");
    overlay(&mut base, own);
    Some(base)
}

/// Puts `own` over `base`, table by table; the word "none" takes a key away.
fn overlay(base: &mut toml::Table, own: toml::Table) {
    for (key, value) in own {
        match (base.get_mut(&key), value) {
            (Some(toml::Value::Table(below)), toml::Value::Table(above)) => overlay(below, above),
            (_, toml::Value::String(word)) if word == "none" => {
                base.remove(&key);
            }
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
}

/// One file of `arch/`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Declaration {
    /// The `model_type` of config.json.
    pub model_type: String,
    /// The fields read from config.json, each with what transformers takes when it is absent.
    pub config: BTreeMap<String, Field>,
    /// Further spellings of a field in published files.
    #[serde(default)]
    pub aliases: BTreeMap<String, String>,
    /// What must hold, with the reason why it must.
    #[serde(default)]
    pub require: Vec<Requirement>,
    pub model: Model,
    pub layers: Layers,
    pub block: Block,
    pub attention: Attention,
    pub mlp: Mlp,
    /// Experts in place of the MLP, in the layers that have them.
    pub experts: Option<Experts>,
}

/// A condition on the config, and what to say where it does not hold.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Requirement {
    pub field: String,
    pub that: String,
    pub why: String,
}

/// A config field. A literal is the class default and null is refused; a string is an expression
/// that stands for an absent field and for null.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum Field {
    Bool(bool),
    Int(i64),
    Expression(String),
    Full(FullField),
}

/// A field that a literal or an expression does not describe.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FullField {
    pub kind: FieldKind,
    /// Expression for an absent field; without it the field is required.
    pub absent: Option<String>,
    /// Expression for an explicit null; without it null is refused.
    pub null: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FieldKind {
    Int,
    Bool,
    Float,
    List,
}

/// An integer or a condition: an expression, or the value itself.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub enum Expr {
    Bool(bool),
    Int(i64),
    Text(String),
}

impl Expr {
    pub fn text(&self) -> String {
        match self {
            Expr::Bool(x) => x.to_string(),
            Expr::Int(x) => x.to_string(),
            Expr::Text(x) => x.clone(),
        }
    }
}

/// One value, or the first whose condition holds.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub enum Choice<T> {
    One(T),
    Cases(Vec<(String, T)>),
}

impl<T: Clone> Choice<T> {
    /// `None` where no condition holds.
    pub fn pick(&self, env: &Env) -> Result<Option<T>, ExprError> {
        match self {
            Choice::One(x) => Ok(Some(x.clone())),
            Choice::Cases(cases) => {
                for (condition, x) in cases {
                    if holds(condition, env)? {
                        return Ok(Some(x.clone()));
                    }
                }
                Ok(None)
            }
        }
    }
}

/// What stands around the layers. Paths are those of the transformers modules.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// It sees both ways and keeps no cache.
    #[serde(default)]
    pub encoder: bool,
    /// Where a token's embedding is looked up; an image has patches instead.
    pub tokens: Option<String>,
    pub patches: Option<Patches>,
    /// Embeddings of a token's type.
    pub types: Option<Positions>,
    /// Learned positions: where, and how many rows.
    pub positions: Option<Positions>,
    /// Width of a token's embedding where it is not the hidden size; projections at both ends follow.
    pub token_width: Option<TokenWidth>,
    /// A norm on the embeddings.
    pub tokens_norm: Option<String>,
    pub hidden: Expr,
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
    /// The head reads the first token alone.
    #[serde(default)]
    pub head_of_first: bool,
    /// A linear layer, an activation and a norm before the head.
    pub head_transform: Option<Transform>,
    #[serde(default = "no")]
    pub head_bias: Expr,
    #[serde(default = "no")]
    pub tied: Expr,
    /// Whether a prefill that is not part of a generation fills a cache.
    #[serde(default = "yes")]
    pub prefill_caches: Expr,
    /// transformers has an sdpa path for this type.
    #[serde(default = "yes")]
    pub sdpa: Expr,
}

fn yes() -> Expr {
    Expr::Bool(true)
}

fn no() -> Expr {
    Expr::Bool(false)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Positions {
    pub at: String,
    pub rows: Expr,
}

/// An image cut into squares by a convolution, and a token for the whole before them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Patches {
    pub at: String,
    /// Side of the image the positions were made for, and of a patch.
    pub image: Expr,
    pub side: Expr,
    pub channels: Expr,
    /// Positions are stretched to other images; without it only its own size fits.
    #[serde(default)]
    pub any_image: bool,
    /// Parameters of the embedding beside the convolution, each with its rows.
    pub tables: Vec<Table>,
}

/// A parameter of so many rows, each as wide as the hidden state.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    pub at: String,
    pub rows: Expr,
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

fn none() -> Expr {
    Expr::Text("none".into())
}

/// How attention and MLP hang on the residual stream.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Block {
    /// The MLP reads what attention read, and both are added at once.
    #[serde(default = "no")]
    pub parallel: Expr,
    /// The norms stand after the residual addition (post-norm).
    #[serde(default = "no")]
    pub norm_after_residual: Expr,
    pub attention_norm: Option<Choice<String>>,
    pub attention_after: Option<String>,
    /// Absent in a parallel block: the MLP reads the normed input of attention.
    pub mlp_norm: Option<Choice<String>>,
    pub mlp_after: Option<String>,
    /// Learned factors of what attention and the MLP add: parameters, one per hidden dimension.
    #[serde(default)]
    pub factors: Vec<String>,
}

/// A linear layer: where, and whether it has a bias.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Linear {
    pub at: String,
    #[serde(default = "no")]
    pub bias: Expr,
}

/// How a linear layer is written in the model's code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinearWay {
    /// `torch.nn.functional.linear`: weight stored \[out, in\].
    #[default]
    Linear,
    /// `x @ weight.T`, a bias added apart.
    Matmul,
    /// GPT-2's Conv1D: weight stored \[in, out\], always a bias.
    Conv1d,
}

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
    /// The query is scaled before the heads are cut.
    #[serde(default)]
    pub scaled_query: bool,
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
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mlp {
    pub at: String,
    pub inner: Expr,
    #[serde(default)]
    pub way: LinearWay,
    /// Gate and up apart, ...
    pub gate: Option<Linear>,
    /// ... or up alone, ...
    pub up: Option<Linear>,
    /// ... or gate and up in one projection.
    pub gate_up: Option<Linear>,
    pub down: Linear,
    /// Another MLP, where its condition holds.
    pub or: Option<Box<OtherMlp>>,
}

/// An MLP in place of the first.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OtherMlp {
    pub when: Expr,
    pub mlp: Mlp,
}

/// A router and the experts it chooses among.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experts {
    pub at: String,
    /// Which layers have them.
    #[serde(default = "yes")]
    pub layers: Expr,
    pub router: Linear,
    /// The router multiplies in f32.
    #[serde(default)]
    pub router_in_f32: bool,
    /// The module that holds all experts, stacked.
    pub stacked: String,
    pub count: Expr,
    pub chosen: Expr,
    pub inner: Expr,
    #[serde(default)]
    pub stored: Stored,
    /// Each expert has biases, added apart.
    #[serde(default = "no")]
    pub bias: Expr,
    pub shared: Option<Shared>,
}

/// How an expert's matrix is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stored {
    /// \[experts, out, in\].
    #[default]
    OutIn,
    /// \[experts, in, out\].
    InOut,
}

/// An expert that every token passes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shared {
    pub at: String,
    pub inner: Expr,
    /// A gate on its output.
    pub gate: Option<String>,
    /// It is computed before the router.
    #[serde(default)]
    pub first: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_a_declaration_of_its_own_name() {
        for name in known_types() {
            assert_eq!(declaration(name).unwrap().model_type, name);
        }
        assert!(declaration("nonesuch").is_none());
        assert!(known_types().is_sorted());
    }

    #[test]
    fn a_like_declaration_keeps_what_it_does_not_say_but_no_default() {
        let qwen3 = declaration("qwen3").unwrap();
        assert_eq!(qwen3.attention.q.unwrap().at, "q_proj");
        assert!(!qwen3.config.contains_key("mlp_bias"));
        let phi3 = declaration("phi3").unwrap();
        assert!(phi3.attention.q.is_none() && phi3.attention.qkv.is_some());
    }
}
