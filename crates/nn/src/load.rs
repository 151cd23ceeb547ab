//! Weights out of a safetensors file.

use crate::error::LayerError;
use crate::linear::Linear;
use gemwright_cpu::Number;
use gemwright_cpu::half::bf16;
use safetensors::tensor::Dtype;
use safetensors::{SafeTensors, tensor::TensorView};
use std::path::{Path, PathBuf};

/// A file that has been read.
pub struct Weights {
    path: PathBuf,
    bytes: Vec<u8>,
}

impl Weights {
    /// Reads a file.
    ///
    /// # Errors
    /// A file that is not there, or is no safetensors file.
    pub fn read(path: &Path) -> Result<Weights, LayerError> {
        let failed = |why: String| LayerError::File { path: path.display().to_string(), why };
        let bytes = std::fs::read(path).map_err(|e| failed(e.to_string()))?;
        SafeTensors::deserialize(&bytes).map_err(|e| failed(e.to_string()))?;
        Ok(Weights { path: path.into(), bytes })
    }

    fn failed(&self, why: String) -> LayerError {
        LayerError::File { path: self.path.display().to_string(), why }
    }

    /// A tensor's extents and numbers, in any type of ours.
    ///
    /// # Errors
    /// A name the file does not have, or a type that is not ours.
    pub fn tensor<T: Number>(&self, name: &str) -> Result<(Vec<usize>, Vec<T>), LayerError> {
        let all = SafeTensors::deserialize(&self.bytes).map_err(|e| self.failed(e.to_string()))?;
        let tensor = all.tensor(name).map_err(|_| self.failed(format!("no tensor is called `{name}`")))?;
        let numbers = numbers(&tensor).ok_or_else(|| self.failed(format!("`{name}` is of {:?}", tensor.dtype())))?;
        Ok((tensor.shape().to_vec(), numbers))
    }

    fn has(&self, name: &str) -> bool {
        SafeTensors::deserialize(&self.bytes).is_ok_and(|all| all.tensor(name).is_ok())
    }

    /// A linear layer: `NAME.weight` and, where the file has it, `NAME.bias`.
    ///
    /// # Errors
    /// A weight that is missing, or is no matrix.
    pub fn linear<T: Number>(&self, name: &str) -> Result<Linear<T>, LayerError> {
        let (shape, weight) = self.tensor(&format!("{name}.weight"))?;
        let [outputs, inputs] = shape[..] else {
            return Err(self.failed(format!("`{name}.weight` has {} extents, a linear layer's has two", shape.len())));
        };
        let bias = format!("{name}.bias");
        let bias = if self.has(&bias) { Some(self.tensor(&bias)?.1) } else { None };
        Linear::new(outputs, inputs, weight, bias)
    }
}

fn numbers<T: Number>(tensor: &TensorView<'_>) -> Option<Vec<T>> {
    let bytes = tensor.data();
    Some(match tensor.dtype() {
        Dtype::F32 => {
            bytes.chunks_exact(4).map(|x| T::from_f64(f32::from_le_bytes([x[0], x[1], x[2], x[3]]).into())).collect()
        }
        Dtype::BF16 => bytes
            .chunks_exact(2)
            .map(|x| T::from_f64(bf16::from_bits(u16::from_le_bytes([x[0], x[1]])).to_f64()))
            .collect(),
        Dtype::F64 => {
            let eight = |x: &[u8]| x.try_into().map_or(f64::NAN, f64::from_le_bytes);
            bytes.chunks_exact(8).map(|x| T::from_f64(eight(x))).collect()
        }
        _ => return None,
    })
}
