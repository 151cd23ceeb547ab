//! Public models by name, with their true dimensions.

use serde::Deserialize;
use serde_json::{Map, Value};

/// A public model.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preset {
    /// Where its config is published.
    pub hub: String,
    /// The published number of parameters.
    pub parameters: u64,
    /// Its config.json, as far as it decides a product.
    pub config: Map<String, Value>,
}

/// All presets in the order of the file.
///
/// # Panics
/// Never on input: a test reads the same file.
pub fn presets() -> Vec<(String, Preset)> {
    let all: Map<String, Value> =
        serde_json::from_str(include_str!("../../../data/presets.json")).expect("the presets are well-formed");
    let read = |value: Value| serde_json::from_value(value).expect("a preset is well-formed");
    all.into_iter().map(|(name, value)| (name, read(value))).collect()
}

/// The preset of that name.
pub fn preset(name: &str) -> Option<Preset> {
    presets().into_iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, preset)| preset)
}
