//! The index of a checkpoint in several files, as Hugging Face writes it: `weight_map` from each tensor to its file.

use crate::error::LayerError;
use serde_json::Value;
use std::collections::{BTreeSet, HashMap};
use std::path::{Component, Path, PathBuf};

/// The file of a folder's weights, in the order in which transformers looks for it.
const NAMES: [&str; 2] = ["model.safetensors", "model.safetensors.index.json"];

/// Files, and which of them has a tensor.
pub(crate) struct Index {
    pub(crate) files: Vec<PathBuf>,
    pub(crate) file_of: HashMap<String, usize>,
}

impl Index {
    /// Reads an index; every file that it names is there.
    pub(crate) fn read(path: &Path) -> Result<Index, LayerError> {
        let failed = |why: String| LayerError::File { path: path.display().to_string(), why };
        let bytes = std::fs::read(path).map_err(|e| failed(e.to_string()))?;
        let index: Value = serde_json::from_slice(&bytes)
            .map_err(|e| failed(format!("it is no index of shards ({e}): download it again")))?;
        let map = index["weight_map"].as_object().filter(|map| !map.is_empty()).ok_or_else(|| {
            failed("it has no `weight_map` from tensors to files: download it again, or name a safetensors file".into())
        })?;
        let mut names = HashMap::new();
        for (tensor, file) in map {
            let file = file.as_str().filter(|file| lies_beside(file)).ok_or_else(|| {
                failed(format!("`{tensor}` should be in a file beside it, not in {file}: download it again"))
            })?;
            names.insert(tensor.as_str(), file);
        }
        let files: Vec<&str> = names.values().copied().collect::<BTreeSet<_>>().into_iter().collect();
        let folder = path.parent().unwrap_or(Path::new(""));
        let absent: Vec<&str> = files.iter().copied().filter(|file| !folder.join(file).is_file()).collect();
        if !absent.is_empty() {
            let (all, absent) = (files.len(), absent.join("`, `"));
            return Err(failed(format!(
                "of its {all} files these are not beside it: `{absent}`; download them into the same folder"
            )));
        }
        let place = |file: &str| files.binary_search(&file).unwrap_or_default();
        let file_of = names.iter().map(|(tensor, file)| (tensor.to_string(), place(file))).collect();
        Ok(Index { files: files.iter().map(|file| folder.join(file)).collect(), file_of })
    }
}

/// Nothing outside of the index's folder is read because a download says so.
fn lies_beside(file: &str) -> bool {
    let mut parts = Path::new(file).components().peekable();
    parts.peek().is_some() && parts.all(|part| matches!(part, Component::Normal(_)))
}

/// What is to be read of a folder.
pub(crate) fn of_folder(folder: &Path) -> Result<PathBuf, LayerError> {
    NAMES.map(|name| folder.join(name)).into_iter().find(|path| path.is_file()).ok_or_else(|| LayerError::File {
        path: folder.display().to_string(),
        why: format!("it has neither `{}` nor `{}`: name the file itself", NAMES[0], NAMES[1]),
    })
}
