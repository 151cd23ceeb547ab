//! From a model's config.json to the exact list of matrix products it runs.
//!
//! The way of the data: a `config` and the `declaration` of its type become an `architecture`, all
//! numbers; `predict` runs its parts (`blocks`) on a `tape` of tensors without data, and what the
//! tape issues is the [`Workload`](gemwright_core::Workload).
#![allow(missing_docs)]

mod architecture;
mod blocks;
mod config;
mod declaration;
mod error;
mod expr;
mod options;
mod pieces;
mod predict;
mod prediction;
mod presets;
mod serve;
mod settle;
mod sizes;
mod stored;
mod tape;
mod variants;
mod weights;

pub use declaration::known_types;
pub use error::ModelError;
pub use options::{AttentionWay, CacheKind, ExpertsWay, Fuse, Logits, Options, Phase, WeightFormat};
pub use prediction::{Model, Prediction};
pub use presets::{Preset, preset, presets};
pub use serve::{Engine, Serving, Tokens};
pub use stored::{Gguf, Report, Stored, Tensor, read_gguf, read_index, read_safetensors};
