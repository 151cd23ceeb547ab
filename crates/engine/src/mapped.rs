//! Weights in a safetensors file, seen where the system maps it: what is laid out for a kernel is read from the file as
//! it goes, and nothing else is copied.

use gemwright_cpu::half::bf16;
use gemwright_cpu::{Mat, PackedTiles};
use memmap2::Mmap;
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, Metadata};
use std::fs::File;
use std::path::Path;

/// Why weights cannot be had.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum MappedError {
    #[error("{path}: {why}")]
    File { path: String, why: String },
    #[error("no tensor is called `{name}`; the file has {count}, such as {such}")]
    Name { name: String, count: usize, such: String },
    #[error("`{name}` is {found}; a linear layer's weight of bf16 is [N, K] of BF16")]
    Kind { name: String, found: String },
}

/// A file of weights.
#[derive(Debug)]
pub struct Mapped {
    memory: Mmap,
    metadata: Metadata,
    /// Where tensors begin.
    first: usize,
}

impl Mapped {
    /// Maps a file and reads its header.
    ///
    /// # Safety
    /// The file stays as it is while this lives: nobody writes to it or cuts it off.
    pub unsafe fn open(path: &Path) -> Result<Mapped, MappedError> {
        let failed = |why: String| MappedError::File { path: path.display().to_string(), why };
        let file = File::open(path).map_err(|e| failed(e.to_string()))?;
        // SAFETY: by the contract.
        let memory = unsafe { Mmap::map(&file) }.map_err(|e| failed(e.to_string()))?;
        let (header, metadata) = SafeTensors::read_metadata(&memory).map_err(|e| failed(e.to_string()))?;
        // The header's own length stands before it, in eight bytes.
        Ok(Mapped { first: header + 8, memory, metadata })
    }

    /// The tensors' names, in order.
    pub fn names(&self) -> Vec<String> {
        let mut names = self.metadata.offset_keys();
        names.sort();
        names
    }

    /// A linear layer's weight, stored \[N, K\], as the second operand of its product: \[K, N\].
    pub fn linear(&self, name: &str) -> Result<Mat<'_, bf16>, MappedError> {
        let info = self.metadata.info(name).ok_or_else(|| {
            let names = self.names();
            let such = names.iter().take(3).cloned().collect::<Vec<_>>().join(", ");
            MappedError::Name { name: name.into(), count: names.len(), such }
        })?;
        let wrong = || MappedError::Kind { name: name.into(), found: format!("{:?} of {:?}", info.shape, info.dtype) };
        let (&[n, k], Dtype::BF16) = (info.shape.as_slice(), info.dtype) else { return Err(wrong()) };
        let (from, to) = info.data_offsets;
        let bytes = self.memory.get(self.first + from..self.first + to).ok_or_else(wrong)?;
        // SAFETY: any bits are a number of bf16; what does not begin at an even address is not in the middle.
        let (before, numbers, _) = unsafe { bytes.align_to::<bf16>() };
        if !before.is_empty() {
            return Err(wrong());
        }
        Mat::row_major(numbers, n, k).map(Mat::transposed).map_err(|_| wrong())
    }

    /// The same, laid out for tiles: once, for every number of rows. [`PackedTiles::bytes`] says what it takes.
    pub fn pack(&self, name: &str) -> Result<PackedTiles, MappedError> {
        self.linear(name).map(PackedTiles::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use safetensors::tensor::{TensorView, serialize_to_file};

    #[test]
    fn weights_are_read_where_the_file_lies() {
        let numbers: Vec<u8> = (0..6).flat_map(|i| bf16::from_f32(i as f32).to_le_bytes()).collect();
        let tensors = [
            ("layer.weight", TensorView::new(Dtype::BF16, vec![2, 3], &numbers).unwrap()),
            ("layer.bias", TensorView::new(Dtype::BF16, vec![6], &numbers).unwrap()),
        ];
        let path = std::env::temp_dir().join(format!("gemwright-mapped-{}.safetensors", std::process::id()));
        serialize_to_file(tensors, None, &path).unwrap();
        // SAFETY: the file is this test's own.
        let mapped = unsafe { Mapped::open(&path) }.unwrap();
        assert_eq!(mapped.names(), ["layer.bias", "layer.weight"]);
        let packed = mapped.pack("layer.weight").unwrap();
        assert_eq!((mapped.linear("layer.weight").unwrap().extents(), packed.extents()), ((3, 2), (3, 2)));
        assert_eq!(packed.bytes(), 2048);
        assert!(mapped.pack("layer.bias").unwrap_err().to_string().contains("[6] of BF16"));
        assert!(mapped.pack("layer").unwrap_err().to_string().contains("layer.bias, layer.weight"));
        drop(mapped);
        std::fs::remove_file(&path).unwrap();
        // SAFETY: as above.
        assert!(unsafe { Mapped::open(&path) }.is_err());
    }
}
