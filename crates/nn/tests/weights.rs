//! Checkpoints: every number of f16, and several files with an index.
#![allow(clippy::unwrap_used)]

use gemwright_cpu::half::bf16;
use gemwright_nn::Weights;
use safetensors::tensor::{Dtype, TensorView, serialize};
use std::fs;
use std::path::{Path, PathBuf};

/// A number of f16 by what its bits mean.
fn by_its_bits(bits: u16) -> f32 {
    let (sign, exponent, fraction) = (bits >> 15, i32::from(bits >> 10 & 31), f32::from(bits & 1023));
    let size = match exponent {
        0 => fraction * 2f32.powi(-24),
        31 if fraction == 0.0 => f32::INFINITY,
        31 => f32::NAN,
        _ => (1024.0 + fraction) * 2f32.powi(exponent - 25),
    };
    if sign == 1 { -size } else { size }
}

/// To the nearest, of two the even one.
fn rounded(x: f32) -> u16 {
    let bits = x.to_bits();
    ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

#[test]
fn every_number_of_f16() {
    let bytes: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    let file = serialize([("x", TensorView::new(Dtype::F16, vec![256, 256], &bytes).unwrap())], None).unwrap();
    let weights = Weights::from_bytes(file).unwrap();
    let (shape, wide) = weights.tensor::<f32>("x").unwrap();
    let (_, narrow) = weights.tensor::<bf16>("x").unwrap();
    let (_, widest) = weights.tensor::<f64>("x").unwrap();
    assert_eq!((shape, wide.len()), (vec![256, 256], 1 << 16));
    for bits in 0..=u16::MAX {
        let (i, expected) = (usize::from(bits), by_its_bits(bits));
        if expected.is_nan() {
            assert!(wide[i].is_nan() && narrow[i].is_nan() && widest[i].is_nan(), "{bits:#x}");
        } else {
            assert_eq!(wide[i].to_bits(), expected.to_bits(), "{bits:#x}");
            assert_eq!(narrow[i].to_bits(), rounded(expected), "{bits:#x}");
            assert_eq!(widest[i].to_bits(), f64::from(expected).to_bits(), "{bits:#x}");
        }
    }
}

#[test]
fn other_types_are_refused_with_those_that_are_read() {
    let file = serialize([("ids", TensorView::new(Dtype::I64, vec![1], &[0; 8]).unwrap())], None).unwrap();
    let why = Weights::from_bytes(file).unwrap().tensor::<f32>("ids").unwrap_err().to_string();
    assert_eq!(why, "bytes in memory: `ids` is of I64; F16, BF16, F32 and F64 are read");
}

/// A folder of a test's own.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("gemwright-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// A file with tensors of one row.
    fn shard(&self, name: &str, tensors: &[(&str, &[f32])]) {
        let bytes: Vec<Vec<u8>> =
            tensors.iter().map(|(_, numbers)| numbers.iter().flat_map(|x| x.to_le_bytes()).collect()).collect();
        let views = tensors.iter().zip(&bytes).map(|((name, numbers), bytes)| {
            let shape = if name.ends_with("bias") { vec![numbers.len()] } else { vec![1, numbers.len()] };
            (*name, TensorView::new(Dtype::F32, shape, bytes).unwrap())
        });
        fs::write(self.path(name), serialize(views, None).unwrap()).unwrap();
    }

    fn index(&self, text: &str) -> PathBuf {
        let path = self.path("model.safetensors.index.json");
        fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left lies among other temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

const INDEX: &str = r#"{"metadata": {"total_size": 20}, "weight_map": {
    "a.weight": "model-00001-of-00002.safetensors", "b.weight": "model-00002-of-00002.safetensors",
    "a.bias": "model-00002-of-00002.safetensors"}}"#;

fn two_shards(name: &str) -> Folder {
    let folder = Folder::new(name);
    folder.shard("model-00001-of-00002.safetensors", &[("a.weight", &[1.0, 2.0])]);
    folder.shard("model-00002-of-00002.safetensors", &[("b.weight", &[3.0]), ("a.bias", &[4.0])]);
    folder.index(INDEX);
    folder
}

#[test]
fn shards_are_read_when_they_are_needed_and_once() {
    let folder = two_shards("shards");
    for path in [folder.0.clone(), folder.path("model.safetensors.index.json")] {
        let weights = Weights::read(&path).unwrap();
        assert_eq!(weights.tensor::<f32>("a.weight").unwrap(), (vec![1, 2], vec![1.0, 2.0]));
        assert_eq!(weights.tensor::<f64>("b.weight").unwrap(), (vec![1, 1], vec![3.0]));
        // Of two files.
        let backend = gemwright_nn::Backend::new(1);
        assert_eq!(weights.linear::<f32>("a").unwrap().forward(&backend, &[1.0, 1.0]).unwrap(), [7.0]);
    }
    let weights = Weights::read(&folder.0).unwrap();
    weights.tensor::<f32>("b.weight").unwrap();
    for shard in ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"] {
        fs::remove_file(folder.path(shard)).unwrap();
    }
    assert_eq!(weights.tensor::<f32>("a.bias").unwrap(), (vec![1], vec![4.0]));
    assert!(weights.tensor::<f32>("a.weight").is_err());
}

#[test]
fn one_file_of_a_folder() {
    let folder = Folder::new("one-file");
    let neither = refusal(&folder.0);
    assert!(neither.contains("has neither `model.safetensors` nor `model.safetensors.index.json`"), "{neither}");
    folder.shard("model.safetensors", &[("a.weight", &[5.0])]);
    assert_eq!(Weights::read(&folder.0).unwrap().tensor::<f32>("a.weight").unwrap().1, [5.0]);
}

fn refusal(path: &Path) -> String {
    Weights::read(path).err().unwrap().to_string()
}

#[test]
fn what_is_wrong_with_shards_is_named() {
    let folder = two_shards("wrong-shards");
    let second = folder.path("model-00002-of-00002.safetensors");
    // The second file is of a checkpoint that has no bias.
    folder.shard("model-00002-of-00002.safetensors", &[("b.weight", &[3.0])]);
    let weights = Weights::read(&folder.0).unwrap();
    let why = weights.linear::<f32>("a").unwrap_err().to_string();
    let index = folder.path("model.safetensors.index.json");
    assert_eq!(
        why,
        format!(
            "{}: `a.bias` is not in it, though {} says so: they belong to different checkpoints, download both again",
            second.display(),
            index.display()
        )
    );
    let why = weights.tensor::<f32>("c.weight").unwrap_err().to_string();
    assert_eq!(why, format!("{}: no tensor is called `c.weight`", index.display()));
    // Half of a file.
    fs::write(&second, [255, 0, 0]).unwrap();
    let why = Weights::read(&folder.0).unwrap().tensor::<f32>("b.weight").unwrap_err().to_string();
    assert!(why.starts_with(&second.display().to_string()) && why.ends_with("download it again"), "{why}");
    fs::remove_file(&second).unwrap();
    let why = refusal(&folder.0);
    let ending = "of its 2 files these are not beside it: `model-00002-of-00002.safetensors`; download them into the same folder";
    assert_eq!(why, format!("{}: {ending}", index.display()));
}

#[test]
fn what_is_wrong_with_an_index_is_named() {
    let folder = two_shards("wrong-index");
    for (text, expected) in [
        ("{\"weight_map\": ", "it is no index of shards"),
        ("{\"metadata\": {}}", "it has no `weight_map`"),
        ("{\"weight_map\": {}}", "it has no `weight_map`"),
        ("[]", "it has no `weight_map`"),
        ("{\"weight_map\": {\"a.weight\": 1}}", "`a.weight` should be in a file beside it, not in 1"),
        ("{\"weight_map\": {\"a.weight\": \"../a\"}}", "`a.weight` should be in a file beside it, not in \"../a\""),
        ("{\"weight_map\": {\"a.weight\": \"/etc/a\"}}", "`a.weight` should be in a file beside it"),
        ("{\"weight_map\": {\"a.weight\": \"\"}}", "`a.weight` should be in a file beside it"),
    ] {
        let index = folder.index(text);
        let why = refusal(&index);
        assert!(why.starts_with(&format!("{}: {expected}", index.display())), "{why}");
        assert!(why.contains("download it again"), "{why}");
    }
}
