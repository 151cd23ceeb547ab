//! What steers the layers of a diffusion model from outside.

use super::field::Expr;
use super::model::Table;
use serde::Deserialize;

/// A time step and a class: embedded, projected anew in each layer to six rows (shift, scale and
/// gate of attention and of the MLP), and to two before the head.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Condition {
    /// The module of a layer that embeds the time step by `linear_1` and `linear_2`.
    pub at: String,
    /// Waves the time step is written as.
    pub frequencies: Expr,
    /// The classes' embeddings of each layer.
    pub classes: Table,
    /// The projection of a layer, and the head's.
    pub layer: String,
    pub head: String,
}
