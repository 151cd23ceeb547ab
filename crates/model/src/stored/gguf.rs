//! The head of a GGUF file: its key-value pairs and the shapes of its tensors.

use super::{LONGEST_NAME, Tensor};
use serde_json::{Map, Value, json};
use std::collections::HashSet;
use std::io::Read;

/// What the head of a file holds.
#[derive(Debug)]
pub struct Gguf {
    /// Numbers, truths and texts; of an array only its length, unless it is short and of numbers.
    pub pairs: Map<String, Value>,
    /// Outermost extent first, which is the reverse of the file.
    pub tensors: Vec<Tensor>,
}

/// More of anything is a broken file.
const MOST: u64 = 1 << 20;
/// An array of numbers up to this length is kept: one for each layer.
const SHORT: u64 = 1 << 10;

/// Reads the head alone; `length` is that of the file.
pub fn read_gguf(file: impl Read, length: u64) -> Result<Gguf, String> {
    let mut head = Head { file, left: length };
    if head.bytes::<4>()? != *b"GGUF" {
        return Err("does not start with GGUF".into());
    }
    let version = head.u32()?;
    if !(2..=3).contains(&version) {
        return Err(format!("is of version {version}; known are 2 and 3"));
    }
    let (tensor_count, pair_count) = (head.u64()?, head.u64()?);
    if tensor_count > MOST || pair_count > MOST {
        return Err(format!("says it has {tensor_count} tensors and {pair_count} pairs; at most {MOST} are read"));
    }
    let mut pairs = Map::new();
    for _ in 0..pair_count {
        let key = head.text(LONGEST_NAME as u64)?;
        let kind = head.u32()?;
        let value = head.value(kind, 0)?;
        if pairs.insert(key.clone(), value).is_some() {
            return Err(format!("has the key `{key}` twice"));
        }
    }
    let mut seen = HashSet::new();
    let mut tensors = Vec::new();
    for _ in 0..tensor_count {
        let name = head.text(LONGEST_NAME as u64)?;
        let rank = head.u32()?;
        if rank > 8 {
            return Err(format!("`{name}` has {rank} dimensions"));
        }
        let mut shape = (0..rank).map(|_| head.u64()).collect::<Result<Vec<_>, _>>()?;
        shape.reverse();
        let (_element_type, _offset) = (head.u32()?, head.u64()?);
        if !seen.insert(name.clone()) {
            return Err(format!("has the tensor `{name}` twice"));
        }
        tensors.push(Tensor { name, shape: Some(shape) });
    }
    Ok(Gguf { pairs, tensors })
}

struct Head<R> {
    file: R,
    left: u64,
}

impl<R: Read> Head<R> {
    fn take(&mut self, bytes: u64) -> Result<(), String> {
        match self.left.checked_sub(bytes) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(format!("ends {} bytes before its head does: it is truncated or broken", bytes - self.left)),
        }
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], String> {
        self.take(N as u64)?;
        let mut bytes = [0; N];
        self.file.read_exact(&mut bytes).map_err(|e| format!("cannot be read: {e}"))?;
        Ok(bytes)
    }

    fn u32(&mut self) -> Result<u32, String> {
        self.bytes().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, String> {
        self.bytes().map(u64::from_le_bytes)
    }

    fn text(&mut self, most: u64) -> Result<String, String> {
        let length = self.u64()?;
        if length > most {
            return Err(format!("has a text of {length} bytes; at most {most} are read"));
        }
        self.take(length)?;
        let mut bytes = vec![0; length as usize];
        self.file.read_exact(&mut bytes).map_err(|e| format!("cannot be read: {e}"))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn value(&mut self, kind: u32, depth: u32) -> Result<Value, String> {
        Ok(match kind {
            0 => json!(self.bytes::<1>()?[0]),
            1 => json!(i8::from_le_bytes(self.bytes()?)),
            2 => json!(u16::from_le_bytes(self.bytes()?)),
            3 => json!(i16::from_le_bytes(self.bytes()?)),
            4 => json!(self.u32()?),
            5 => json!(i32::from_le_bytes(self.bytes()?)),
            6 => json!(f32::from_le_bytes(self.bytes()?)),
            7 => json!(self.bytes::<1>()?[0] != 0),
            8 => json!(self.text(1 << 24)?),
            9 => return self.array(depth),
            10 => json!(self.u64()?),
            11 => json!(i64::from_le_bytes(self.bytes()?)),
            12 => json!(f64::from_le_bytes(self.bytes()?)),
            _ => return Err(format!("has a value of the unknown kind {kind}")),
        })
    }

    /// A short list of numbers; of anything else `{"length": n}`.
    fn array(&mut self, depth: u32) -> Result<Value, String> {
        if depth > 3 {
            return Err("has arrays in arrays in arrays in arrays".into());
        }
        let (kind, length) = (self.u32()?, self.u64()?);
        // Every element takes a byte at least.
        if length > self.left {
            return Err(format!("has an array of {length} elements in the {} bytes that are left", self.left));
        }
        let kept = length <= SHORT && kind != 8 && kind != 9;
        let mut list = Vec::new();
        for _ in 0..length {
            let value = self.value(kind, depth + 1)?;
            if kept {
                list.push(value);
            }
        }
        Ok(if kept { Value::Array(list) } else { json!({"length": length}) })
    }
}
