//! The header of a safetensors file, and the index of a sharded one.

use super::{LONGEST_NAME, Tensor};
use serde::de::{self, Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use std::collections::{BTreeMap, HashSet};
use std::io::Read;
use std::marker::PhantomData;

/// The format's own limit.
const LARGEST_HEADER: u64 = 100_000_000;

/// Names and shapes, from the header alone; `length` is that of the file.
pub fn read_safetensors(mut file: impl Read, length: u64) -> Result<Vec<Tensor>, String> {
    let mut eight = [0; 8];
    file.read_exact(&mut eight).map_err(|_| "shorter than the 8 bytes that give the header's length".to_string())?;
    let header = u64::from_le_bytes(eight);
    if header > LARGEST_HEADER {
        return Err(format!("says its header has {header} bytes; the format allows {LARGEST_HEADER}"));
    }
    if header > length.saturating_sub(8) {
        return Err(format!("says its header has {header} bytes, but the file has {length}: it is truncated"));
    }
    let mut text = vec![0; header as usize];
    file.read_exact(&mut text).map_err(|e| format!("the header cannot be read: {e}"))?;
    let Unique(entries): Unique<Item> =
        serde_json::from_slice(&text).map_err(|e| format!("the header is no valid JSON: {e}"))?;
    let data = length - 8 - header;
    let mut ranges = Vec::new();
    let mut tensors = Vec::new();
    for (name, item) in entries {
        let entry = match item {
            Item::Tensor(entry) => entry,
            Item::Other(_) if name == "__metadata__" => continue,
            Item::Other(_) => return Err(format!("`{name}` has no dtype, shape and data_offsets")),
        };
        let [begin, end] = entry.data_offsets;
        if begin > end || end > data {
            return Err(format!("`{name}` lies at {begin}..{end} of {data} bytes: the file is truncated or broken"));
        }
        let elements = entry.shape.iter().try_fold(1u64, |all, n| all.checked_mul(*n));
        let wanted = elements.zip(bits(&entry.dtype)).map(|(n, bits)| u128::from(n) * u128::from(bits) / 8);
        match (elements, wanted) {
            (None, _) => return Err(format!("`{name}` has more elements than can be counted: {:?}", entry.shape)),
            (_, Some(bytes)) if bytes != u128::from(end - begin) => {
                let why = format!("is {:?} of {}, which is {bytes} bytes", entry.shape, entry.dtype);
                return Err(format!("`{name}` {why}, but has {}", end - begin));
            }
            _ => {}
        }
        ranges.push((begin, end, tensors.len()));
        tensors.push(Tensor { name, shape: Some(entry.shape) });
    }
    ranges.sort_unstable();
    for pair in ranges.windows(2) {
        if pair[0].1 > pair[1].0 {
            let [first, second] = [pair[0].2, pair[1].2].map(|i| &tensors[i].name);
            return Err(format!("`{first}` and `{second}` lie over one another"));
        }
    }
    Ok(tensors)
}

/// Bits of an element; `None` for a type that is not known here, whose size is not checked.
fn bits(dtype: &str) -> Option<u64> {
    Some(match dtype {
        "F64" | "I64" | "U64" | "C64" => 64,
        "F32" | "I32" | "U32" => 32,
        "F16" | "BF16" | "I16" | "U16" => 16,
        "I8" | "U8" | "BOOL" | "F8_E4M3" | "F8_E5M2" | "F8_E8M0" => 8,
        _ => return None,
    })
}

#[derive(serde::Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: [u64; 2],
}

/// A tensor, or what is none: only `__metadata__` may be that.
#[derive(serde::Deserialize)]
#[serde(untagged)]
enum Item {
    Tensor(Entry),
    Other(IgnoredAny),
}

/// The entries of an object in order, none twice: serde_json's own map would keep the last of two.
struct Unique<V>(Vec<(String, V)>);

impl<'de, V: Deserialize<'de>> Deserialize<'de> for Unique<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Unique<V>, D::Error> {
        deserializer.deserialize_map(UniqueVisitor(PhantomData))
    }
}

struct UniqueVisitor<V>(PhantomData<V>);

impl<'de, V: Deserialize<'de>> Visitor<'de> for UniqueVisitor<V> {
    type Value = Unique<V>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Unique<V>, A::Error> {
        let mut seen = HashSet::new();
        let mut entries = Vec::new();
        while let Some(name) = map.next_key::<String>()? {
            if name.len() > LONGEST_NAME {
                return Err(de::Error::custom(format!("a name of {} bytes", name.len())));
            }
            if !seen.insert(name.clone()) {
                return Err(de::Error::custom(format!("`{name}` is there twice")));
            }
            entries.push((name, map.next_value()?));
        }
        Ok(Unique(entries))
    }
}

/// The files that an index names, each once, and the tensors it says each holds.
pub fn read_index(text: &str) -> Result<BTreeMap<String, Vec<String>>, String> {
    let Index { weight_map: Unique(pairs) } = serde_json::from_str(text).map_err(|e| format!("no index: {e}"))?;
    let mut files: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (tensor, file) in pairs {
        let plain = !file.is_empty() && !file.contains(['/', '\\']) && file != "..";
        if !plain {
            return Err(format!("`{tensor}` is said to be in `{file}`, which is no file beside the index"));
        }
        if !file.ends_with(".safetensors") {
            return Err(format!("`{tensor}` is said to be in `{file}`, which is no .safetensors file"));
        }
        files.entry(file).or_default().push(tensor);
    }
    if files.is_empty() {
        return Err("names no file".into());
    }
    Ok(files)
}

#[derive(serde::Deserialize)]
struct Index {
    weight_map: Unique<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(header: &str, data: usize) -> Vec<u8> {
        [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &vec![0; data]].concat()
    }

    fn read(bytes: &[u8]) -> Result<Vec<Tensor>, String> {
        read_safetensors(bytes, bytes.len() as u64)
    }

    #[test]
    fn a_header_gives_names_and_shapes() {
        let bytes =
            file(r#"{"__metadata__":{"a":"b"},"w":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]}}  "#, 12);
        assert_eq!(read(&bytes), Ok(vec![Tensor { name: "w".into(), shape: Some(vec![2, 3]) }]));
    }

    #[test]
    fn broken_files_are_refused_with_the_reason() {
        let entry = |at: &str| format!(r#"{{"dtype":"F32","shape":[1],"data_offsets":{at}}}"#);
        let two = |x: &str, y: &str, first: &str, second: &str| {
            file(&format!(r#"{{"{x}":{},"{y}":{}}}"#, entry(first), entry(second)), 8)
        };
        let error = |bytes: &[u8]| read(bytes).unwrap_err();
        assert!(error(&[1, 2]).contains("8 bytes"));
        assert!(error(&(1u64 << 63).to_le_bytes()).contains("allows"));
        assert!(error(&file("{}", 0)[..9]).contains("truncated"));
        assert!(error(&file("{", 0)).contains("JSON"));
        assert!(error(&two("a", "a", "[0,4]", "[4,8]")).contains("twice"));
        assert!(error(&two("a", "b", "[0,4]", "[2,6]")).contains("over one another"));
        assert!(error(&two("a", "b", "[0,4]", "[4,8]")[..70]).contains("truncated"));
        assert!(error(&two("a", "b", "[0,8]", "[8,8]")).contains("4 bytes"));
        let huge = r#"{"a":{"dtype":"F32","shape":[9223372036854775808,4],"data_offsets":[0,4]}}"#;
        assert!(error(&file(huge, 4)).contains("counted"));
    }

    #[test]
    fn an_index_names_files_beside_it() {
        let index = |file: &str| format!(r#"{{"metadata":{{}},"weight_map":{{"a":"{file}","b":"{file}"}}}}"#);
        assert_eq!(read_index(&index("x.safetensors")).unwrap()["x.safetensors"], ["a", "b"]);
        for wrong in ["../x.safetensors", "model.safetensors.index.json", "", "/x.safetensors"] {
            assert!(read_index(&index(wrong)).is_err(), "{wrong}");
        }
        assert!(
            read_index(r#"{"weight_map":{"a":"x.safetensors","a":"y.safetensors"}}"#).unwrap_err().contains("twice")
        );
    }
}
