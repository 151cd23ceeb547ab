//! The part of a layer that works on each token alone: an MLP, or experts.

use super::field::{Expr, no, yes};
use super::linear::{Linear, LinearWay};
use serde::Deserialize;

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
