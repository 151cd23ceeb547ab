//! A linear layer.

use super::field::{Expr, no};
use serde::Deserialize;

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
