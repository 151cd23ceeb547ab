//! From a model's config.json to the exact list of matrix products it runs.
//!
//! The way of the data: a [`config`](config::Config) and the
//! [`declaration`](declaration::Declaration) of its type become an
//! [`architecture`](architecture::Architecture), all numbers; [`predict`](predict::predict) runs
//! its parts on a [`tape`](tape::Tape) of tensors without data, and what the tape issues is the
//! [`Workload`](gemwright_core::Workload).
#![allow(missing_docs)]

mod architecture;
mod blocks;
mod config;
mod declaration;
mod error;
mod expr;
mod options;
mod predict;
mod prediction;
mod presets;
mod tape;
mod weights;

pub use declaration::known_types;
pub use error::ModelError;
pub use options::{AttentionWay, CacheKind, Logits, Options, Phase};
pub use prediction::{Model, Prediction};
pub use presets::{Preset, preset, presets};
pub use weights::Weight;
