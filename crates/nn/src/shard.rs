//! A safetensors file that is read when something of it is wanted, and once.

use crate::error::LayerError;
use safetensors::SafeTensors;
use std::path::PathBuf;
use std::sync::OnceLock;

/// A file, and what was in it.
pub(crate) struct Shard {
    path: PathBuf,
    /// Who comes while another reads waits for that; a file that could not be read is not tried again.
    bytes: OnceLock<Result<Vec<u8>, LayerError>>,
}

impl Shard {
    /// Nothing is read before it is needed.
    pub(crate) fn of(path: PathBuf) -> Shard {
        Shard { path, bytes: OnceLock::new() }
    }

    /// Of bytes that are here already.
    pub(crate) fn of_bytes(bytes: Vec<u8>) -> Shard {
        Shard { path: "bytes in memory".into(), bytes: OnceLock::from(Ok(bytes)) }
    }

    pub(crate) fn tensors(&self) -> Result<SafeTensors<'_>, LayerError> {
        let read = || std::fs::read(&self.path).map_err(|e| self.failed(e.to_string()));
        let bytes = self.bytes.get_or_init(read).as_ref().map_err(Clone::clone)?;
        let whole = SafeTensors::deserialize(bytes);
        whole.map_err(|e| self.failed(format!("it is no whole safetensors file ({e}): download it again")))
    }

    pub(crate) fn failed(&self, why: String) -> LayerError {
        LayerError::File { path: self.path.display().to_string(), why }
    }
}
