//! Layers over the fastest product of this machine.
//!
//! A [`Backend`] knows who can multiply here and asks the tuned tables (`GEMWRIGHT_TABLE`) who is to; a [`Linear`] has
//! weights \[N, K\] and a bias and computes its output, both gradients and the bias's through it; [`Conv2d`] is the same
//! product over patches that are gathered as they are needed; [`attention()`] never has the whole matrix of scores.
//! Everything is a slice in row-major order; what does not fit is an error that says so.
//!
//! ```
//! use gemwright_nn::{Backend, Linear};
//!
//! let backend = Backend::new(1);
//! let layer = Linear::new(2, 3, vec![1f32, 0.0, 0.0, 0.0, 1.0, 1.0], Some(vec![0.5, -1.0]))?;
//! assert_eq!(layer.forward(&backend, &[1.0, 2.0, 3.0])?, [1.5, 4.0]);
//! # Ok::<(), gemwright_nn::LayerError>(())
//! ```

mod attention;
mod backend;
mod conv;
mod decoder;
mod error;
mod index;
mod linear;
mod load;
mod packed;
mod shard;

pub use attention::{Attention, HeadSteps, attention, attention_view};
pub use backend::Backend;
pub use conv::{Conv2d, PixelSteps};
pub use decoder::{Cache, DecoderLayer, DecoderShape};
pub use error::LayerError;
pub use linear::{Gradients, Linear};
pub use load::Weights;
pub use packed::PackedLinear;
