//! The parts of a model, written with the tape's operations as their authors wrote them with
//! PyTorch's. A declaration chooses among what stands here; nothing here knows a model's name.

mod attend;
mod attention;
mod condition;
mod convolution;
mod experts;
mod latent;
mod linear;
mod mlp;
mod norm;
mod patches;
mod rotary;
mod stages;
mod state_space;

pub use attention::{attention, cross_attention};
pub use condition::{condition, modulate};
pub use experts::experts;
pub use linear::linear;
pub use mlp::mlp;
pub use norm::norm;
pub use patches::{cut_image, read_features};
pub use rotary::angles;
pub use stages::stages;
pub use state_space::state_space;

use crate::options::{AttentionWay, CacheKind, ExpertsWay};
use gemwright_core::DType;
use gemwright_core::blas::Stack;
use std::sync::Arc;

/// One pass of a model over some tokens.
#[derive(Debug, Clone, Copy)]
pub struct Run {
    pub batch: i64,
    /// New tokens per sequence.
    pub queries: i64,
    /// Side of an image, where one is cut into tokens.
    pub image: i64,
    /// Tokens per sequence seen before.
    pub past: i64,
    /// Tokens of the encoder that are attended to.
    pub encoded: i64,
    /// Keys and values of the encoder are in the cache already.
    pub encoded_is_cached: bool,
    /// How keys and values are kept; `None`: not at all.
    pub cache: Option<CacheKind>,
    /// Positions are given per sequence, not once for all.
    pub own_positions: bool,
    pub way: AttentionWay,
    pub experts: ExpertsWay,
    pub stack: Stack,
    pub dtype: DType,
    pub training: bool,
}

/// A module's path below another's; an empty part adds nothing.
pub fn join(path: &str, part: &str) -> Arc<str> {
    match (path.is_empty(), part.is_empty()) {
        (true, _) => part.into(),
        (_, true) => path.into(),
        _ => format!("{path}.{part}").into(),
    }
}
