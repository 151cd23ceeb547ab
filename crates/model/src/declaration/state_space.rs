//! A selective state space in place of attention.

use super::field::{Expr, no, none};
use serde::Deserialize;

/// Mamba and its successor. The module names are theirs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StateSpace {
    pub at: String,
    pub inner: Expr,
    /// Numbers each channel keeps.
    pub state: Expr,
    /// Taps of the convolution.
    pub kernel: Expr,
    pub bias: Expr,
    #[serde(default = "no")]
    pub convolution_bias: Expr,
    /// Width the time step passes through: each channel has its own (Mamba) ...
    #[serde(default = "none")]
    pub rank: Expr,
    /// ... or each head has one, and heads in a group share their projections (Mamba 2).
    #[serde(default = "none")]
    pub heads: Expr,
    #[serde(default = "none")]
    pub groups: Expr,
}
