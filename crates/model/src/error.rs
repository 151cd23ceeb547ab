//! What can be wrong with a config, a preset's name or the options.

use crate::expr::ExprError;

/// An input that cannot be answered; the message names the cause, the place and the cure.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum ModelError {
    #[error("{file}: {why}")]
    Json { file: String, why: String },
    #[error("{file}: no `model_type`; it names the architecture, as in \"model_type\": \"llama\"")]
    NoType { file: String },
    #[error("{file}: unknown model_type `{found}`{}; `gemwright model --list` shows the known ones", hint(nearest))]
    UnknownType { file: String, found: String, nearest: Option<String> },
    #[error("unknown preset `{name}`, and no file or folder of that name{}", hint(nearest))]
    UnknownPreset { name: String, nearest: Option<String> },
    #[error("{place}: `{field}` {why}")]
    Field { place: String, field: String, why: String },
    #[error("{file}: {source}")]
    Expr { file: String, source: ExprError },
    #[error("`{option}` {why}")]
    Option { option: &'static str, why: String },
}

fn hint(nearest: &Option<String>) -> String {
    nearest.as_ref().map_or(String::new(), |name| format!("; nearest: `{name}`"))
}
