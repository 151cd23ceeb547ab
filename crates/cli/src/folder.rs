//! The weights beside a config.json: only their headers are read, whatever their size.

use crate::error::Error;
use gemwright_model::{Gguf, Stored, Tensor, read_gguf, read_index, read_safetensors};
use std::collections::HashMap;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

const INDEX: &str = "model.safetensors.index.json";

fn wrong(file: &Path) -> impl Fn(String) -> Error {
    let path = file.display().to_string();
    move |why| Error::File { path: path.clone(), why }
}

fn open(file: &Path) -> Result<(BufReader<File>, u64), Error> {
    let opened = File::open(file).map_err(|e| wrong(file)(e.to_string()))?;
    let length = opened.metadata().map_err(|e| wrong(file)(e.to_string()))?.len();
    Ok((BufReader::new(opened), length))
}

/// The head of a GGUF file.
pub fn gguf(file: &Path) -> Result<Gguf, Error> {
    let (opened, length) = open(file)?;
    read_gguf(opened, length).map_err(wrong(file))
}

fn header(file: &Path) -> Result<Vec<Tensor>, Error> {
    let (opened, length) = open(file)?;
    read_safetensors(opened, length).map_err(wrong(file))
}

/// The tensors of a folder's safetensors files; `None` where it has none.
pub fn tensors(folder: &Path) -> Result<Option<Stored>, Error> {
    let index = folder.join(INDEX);
    if index.exists() {
        return sharded(folder, &index).map(Some);
    }
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(|e| wrong(folder)(e.to_string()))? {
        let path = entry.map_err(|e| wrong(folder)(e.to_string()))?.path();
        if path.extension().is_some_and(|end| end == "safetensors") {
            files.push(path);
        }
    }
    files.sort();
    let mut all = Joined::default();
    for file in &files {
        all.add(file, header(file)?)?;
    }
    Ok((!files.is_empty()).then_some(Stored { tensors: all.tensors, files: files.len(), gguf: false }))
}

/// The files an index names. Where none of them is here, their tensors are known by name alone.
fn sharded(folder: &Path, index: &Path) -> Result<Stored, Error> {
    let named = read_index(&crate::subject::small_text(index)?).map_err(wrong(index))?;
    let here = |name: &String| folder.join(name).exists();
    let files = named.len();
    if !named.keys().any(here) {
        let tensors = named.into_values().flatten().map(|name| Tensor { name, shape: None }).collect();
        return Ok(Stored { tensors, files, gguf: false });
    }
    let mut all = Joined::default();
    for (name, said) in named {
        let file = folder.join(&name);
        let held = header(&file)?;
        if let Some(absent) = said.iter().find(|tensor| !held.iter().any(|t| t.name == **tensor)) {
            return Err(wrong(index)(format!("says `{absent}` is in {name}, whose header has no such tensor")));
        }
        all.add(&file, held)?;
    }
    Ok(Stored { tensors: all.tensors, files, gguf: false })
}

/// Tensors of several files, none twice.
#[derive(Default)]
struct Joined {
    tensors: Vec<Tensor>,
    file_of: HashMap<String, PathBuf>,
}

impl Joined {
    fn add(&mut self, file: &Path, held: Vec<Tensor>) -> Result<(), Error> {
        for tensor in held {
            if let Some(other) = self.file_of.insert(tensor.name.clone(), file.to_path_buf()) {
                return Err(wrong(file)(format!("holds `{}`, which {} holds too", tensor.name, other.display())));
            }
            self.tensors.push(tensor);
        }
        Ok(())
    }
}
