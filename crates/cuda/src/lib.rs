//! Matrix products on NVIDIA GPUs by kernels of our own.
//!
//! The texts in `kernels/` are compiled when they are needed ([`compile`]) and kept on disk; a [`Config`] says what is
//! compiled in, a [`Gemm`] is a kernel on a device with the matrices of a product, ready to be put on a [`Stream`].
//! Nothing of CUDA is linked: where it is missing, [`Absent`] says what and how to get it.

mod bias_grad;
mod cache;
mod config;
mod decode;
mod driver;
mod ends;
mod error;
mod gemm;
mod groups;
mod library;
mod loaded;
mod mma;
mod nvrtc;
mod pad;
mod tensor_map;
mod tools;
mod walk;
mod wgmma;

pub use bias_grad::{BiasGrad, compile_bias_grad};
pub use cache::{folder as cache_folder, size as cache_size};
pub use config::{Config, Gate, Grouping, Layouts, OutWay, Output, PartWay};
pub use decode::{Decode, DecodeConfig};
pub use driver::{Device, Event, Graph, Kernel, Memory, Properties, Stream};
pub use ends::{Factors, Matrix, Operands};
pub use error::{Absent, CudaError};
pub use gemm::{Gemm, Scratch};
pub use groups::{Groups, MOST_GROUPS, Share};
pub use library::{Wanted, open as open_library};
pub use mma::{MMA_SHARED, MmaConfig, MmaGemm, MmaTile};
pub use nvrtc::{Compiled, compile, compiler_version};
pub use pad::{Pad, Padded, compile_pad};
pub use tensor_map::{BoxError, Swizzle, TensorBox};
pub use tools::{Expected, Tools};
pub use walk::{Order, Piece, Place, Walk};
