//! What a model folder holds: the weights' names and shapes, read from the headers of safetensors and
//! GGUF files, and held against what the config makes them.

mod check;
mod gguf;
mod gguf_names;
mod safetensors;

pub use check::{Report, check};
pub use gguf::{Gguf, read_gguf};
pub use gguf_names::{gguf_config, gguf_weights};
pub use safetensors::{read_index, read_safetensors};

/// A stored tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tensor {
    /// As in the file.
    pub name: String,
    /// Outermost extent first; `None` where only the name is known.
    pub shape: Option<Vec<u64>>,
}

/// The tensors of a model's files.
#[derive(Debug, Clone)]
pub struct Stored {
    /// All of them.
    pub tensors: Vec<Tensor>,
    /// How many files they are in.
    pub files: usize,
    /// They have GGUF's names.
    pub gguf: bool,
}

/// Longest name anything has; more is a broken file.
const LONGEST_NAME: usize = 1 << 12;
