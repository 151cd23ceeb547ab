//! Weights out of safetensors files.

use crate::error::LayerError;
use crate::index::{self, Index};
use crate::linear::Linear;
use crate::shard::Shard;
use gemwright_cpu::Number;
use gemwright_cpu::half::{bf16, f16};
use safetensors::tensor::{Dtype, TensorView};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// A checkpoint: one file, or the files that an index names. Tensors of F16, BF16, F32 and F64 become numbers of any type
/// of ours, rounded to the nearest where it has fewer digits.
///
/// ```
/// use gemwright_nn::{Backend, Weights};
/// use safetensors::tensor::{Dtype, TensorView, serialize};
///
/// // In f16, as LLaMA-2 is published: 1, 0.5, 0 and -2.
/// let numbers: Vec<u8> = [0x3c00u16, 0x3800, 0, 0xc000].into_iter().flat_map(u16::to_le_bytes).collect();
/// let file = serialize([("q_proj.weight", TensorView::new(Dtype::F16, vec![2, 2], &numbers)?)], None)?;
///
/// let weights = Weights::from_bytes(file)?;
/// assert_eq!(weights.tensor::<f32>("q_proj.weight")?, (vec![2, 2], vec![1.0, 0.5, 0.0, -2.0]));
/// let layer = weights.linear::<f32>("q_proj")?;
/// assert_eq!(layer.forward(&Backend::new(1), &[2.0, 4.0])?, [4.0, -8.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A checkpoint on the disk is a file, an index or their folder:
///
/// ```no_run
/// # use gemwright_nn::{DecoderLayer, DecoderShape, Weights};
/// let weights = Weights::read("Llama-2-7b-hf".as_ref())?;
/// let shape = DecoderShape { heads: 32, key_heads: 32, norm_eps: 1e-5, rope_theta: 1e4 };
/// let first = DecoderLayer::<f32>::load(&weights, "model.layers.0", shape)?;
/// # Ok::<(), gemwright_nn::LayerError>(())
/// ```
pub struct Weights {
    shards: Vec<Shard>,
    /// What says which of them has a tensor, where there are several.
    index: Option<(PathBuf, HashMap<String, usize>)>,
}

impl Weights {
    /// Reads a safetensors file, or opens what an index (`model.safetensors.index.json`) or a folder names. A file of an
    /// index is read when a tensor of it is asked for first, and kept.
    ///
    /// # Errors
    /// Files that are not there, are no safetensors files, or no index.
    pub fn read(path: &Path) -> Result<Weights, LayerError> {
        let path = if path.is_dir() { index::of_folder(path)? } else { path.into() };
        if path.extension().is_some_and(|ending| ending == "json") {
            let Index { files, file_of } = Index::read(&path)?;
            return Ok(Weights { shards: files.into_iter().map(Shard::of).collect(), index: Some((path, file_of)) });
        }
        Weights::of_one(Shard::of(path))
    }

    /// Of a safetensors file that is in memory.
    ///
    /// # Errors
    /// Bytes that are no safetensors file.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Weights, LayerError> {
        Weights::of_one(Shard::of_bytes(bytes))
    }

    fn of_one(shard: Shard) -> Result<Weights, LayerError> {
        shard.tensors()?;
        Ok(Weights { shards: vec![shard], index: None })
    }

    /// A tensor's extents and numbers, in any type of ours.
    ///
    /// # Errors
    /// A name the checkpoint does not have, a file of it that cannot be read, or a type that is not ours.
    pub fn tensor<T: Number>(&self, name: &str) -> Result<(Vec<usize>, Vec<T>), LayerError> {
        let shard = &self.shards[self.place(name)?];
        let all = shard.tensors()?;
        let tensor = all.tensor(name).map_err(|_| {
            shard.failed(match &self.index {
                None => format!("no tensor is called `{name}`"),
                Some((index, _)) => format!(
                    "`{name}` is not in it, though {} says so: they belong to different checkpoints, download both again",
                    index.display()
                ),
            })
        })?;
        let numbers = numbers(&tensor).ok_or_else(|| {
            shard.failed(format!("`{name}` is of {:?}; F16, BF16, F32 and F64 are read", tensor.dtype()))
        })?;
        Ok((tensor.shape().to_vec(), numbers))
    }

    /// The shard in which a tensor should be.
    fn place(&self, name: &str) -> Result<usize, LayerError> {
        let Some((index, file_of)) = &self.index else { return Ok(0) };
        file_of.get(name).copied().ok_or_else(|| LayerError::File {
            path: index.display().to_string(),
            why: format!("no tensor is called `{name}`"),
        })
    }

    fn has(&self, name: &str) -> bool {
        match &self.index {
            Some((_, file_of)) => file_of.contains_key(name),
            None => self.shards[0].tensors().is_ok_and(|all| all.tensor(name).is_ok()),
        }
    }

    /// A linear layer: `NAME.weight` and, where the checkpoint has it, `NAME.bias`.
    ///
    /// # Errors
    /// A weight that is missing, or is no matrix.
    pub fn linear<T: Number>(&self, name: &str) -> Result<Linear<T>, LayerError> {
        let weight_name = format!("{name}.weight");
        let (shape, weight) = self.tensor(&weight_name)?;
        let [outputs, inputs] = shape[..] else {
            let why = format!("`{weight_name}` has {} extents, a linear layer's has two", shape.len());
            return Err(self.shards[self.place(&weight_name)?].failed(why));
        };
        let bias = format!("{name}.bias");
        let bias = if self.has(&bias) { Some(self.tensor(&bias)?.1) } else { None };
        Linear::new(outputs, inputs, weight, bias)
    }
}

/// By way of f64, which has all numbers of the others: what is rounded is rounded once.
fn numbers<T: Number>(tensor: &TensorView<'_>) -> Option<Vec<T>> {
    let bytes = tensor.data();
    let two = |x: &[u8]| u16::from_le_bytes([x[0], x[1]]);
    Some(match tensor.dtype() {
        Dtype::F32 => {
            bytes.chunks_exact(4).map(|x| T::from_f64(f32::from_le_bytes([x[0], x[1], x[2], x[3]]).into())).collect()
        }
        Dtype::BF16 => bytes.chunks_exact(2).map(|x| T::from_f64(bf16::from_bits(two(x)).to_f64())).collect(),
        Dtype::F16 => bytes.chunks_exact(2).map(|x| T::from_f64(f16::from_bits(two(x)).to_f64())).collect(),
        Dtype::F64 => {
            let eight = |x: &[u8]| x.try_into().map_or(f64::NAN, f64::from_le_bytes);
            bytes.chunks_exact(8).map(|x| T::from_f64(eight(x))).collect()
        }
        _ => return None,
    })
}
