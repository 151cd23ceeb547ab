//! What a model folder holds: safetensors and GGUF files, right, wrong, broken and very large.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use serde_json::{Value, json};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Instant;

const HIDDEN: u64 = 64;
const INNER: u64 = 128;
const KV: u64 = 32;
const VOCABULARY: u64 = 100;

/// An empty folder of this test's own.
fn folder(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("stored").join(name);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

fn config(layers: u64) -> Value {
    json!({"model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": INNER, "num_hidden_layers": layers,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": VOCABULARY, "tie_word_embeddings": false})
}

/// Names and shapes of a Llama, as its publishers store them.
fn llama(layers: u64, [hidden, inner, kv, vocabulary]: [u64; 4]) -> Vec<(String, Vec<u64>)> {
    let mut list = vec![
        ("model.embed_tokens.weight".to_string(), vec![vocabulary, hidden]),
        ("model.norm.weight".to_string(), vec![hidden]),
        ("lm_head.weight".to_string(), vec![vocabulary, hidden]),
    ];
    for layer in 0..layers {
        for (name, shape) in [
            ("input_layernorm", vec![hidden]),
            ("post_attention_layernorm", vec![hidden]),
            ("self_attn.q_proj", vec![hidden, hidden]),
            ("self_attn.k_proj", vec![kv, hidden]),
            ("self_attn.v_proj", vec![kv, hidden]),
            ("self_attn.o_proj", vec![hidden, hidden]),
            ("mlp.gate_proj", vec![inner, hidden]),
            ("mlp.up_proj", vec![inner, hidden]),
            ("mlp.down_proj", vec![hidden, inner]),
        ] {
            list.push((format!("model.layers.{layer}.{name}.weight"), shape));
        }
    }
    list
}

fn small() -> Vec<(String, Vec<u64>)> {
    llama(2, [HIDDEN, INNER, KV, VOCABULARY])
}

/// A file with this header; the data is a hole of the right length.
fn safetensors(path: &Path, tensors: &[(String, Vec<u64>)]) {
    let mut header = serde_json::Map::new();
    let mut at = 0;
    for (name, shape) in tensors {
        let end = at + 2 * shape.iter().product::<u64>();
        header.insert(name.clone(), json!({"dtype": "BF16", "shape": shape, "data_offsets": [at, end]}));
        at = end;
    }
    let text = Value::Object(header).to_string();
    let mut file = File::create(path).unwrap();
    file.write_all(&(text.len() as u64).to_le_bytes()).unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file.set_len(8 + text.len() as u64 + at).unwrap();
}

/// The program with at most 100 MB of address space, where the shell can say so.
fn model(subject: &Path) -> Output {
    let words = ["model", subject.to_str().unwrap(), "--phase", "decode", "--format", "json"];
    let binary = env!("CARGO_BIN_EXE_gemwright");
    match cfg!(target_os = "linux") {
        true => {
            let limit = "ulimit -v 100000 && exec \"$0\" \"$@\"";
            Command::new("sh").args(["-c", limit, binary]).args(words).output().unwrap()
        }
        false => Command::new(binary).args(words).output().unwrap(),
    }
}

fn report(subject: &Path) -> Value {
    let done = model(subject);
    assert_eq!(done.status.code(), Some(0), "{}", String::from_utf8_lossy(&done.stderr));
    serde_json::from_slice::<Value>(&done.stdout).unwrap()["summary"]["stored"].clone()
}

fn refusal(subject: &Path) -> String {
    let done = model(subject);
    let message = String::from_utf8(done.stderr).unwrap();
    assert_eq!(done.status.code(), Some(2), "{message}");
    message
}

fn mismatches(report: &Value) -> Vec<&str> {
    report["mismatches"].as_array().unwrap().iter().map(|m| m.as_str().unwrap()).collect()
}

#[test]
fn every_shape_is_accounted_for_and_a_wrong_one_named() {
    let at = folder("one");
    std::fs::write(at.join("config.json"), config(2).to_string()).unwrap();
    let mut tensors = small();
    safetensors(&at.join("model.safetensors"), &tensors);
    let found = report(&at);
    assert_eq!((&found["matched"], mismatches(&found).len()), (&21.into(), 0));

    let wrong = tensors.iter().position(|(name, _)| name == "model.layers.1.mlp.up_proj.weight").unwrap();
    tensors[wrong].1 = vec![INNER + 1, HIDDEN];
    tensors.push(("model.layers.0.mlp.extra.weight".into(), vec![3]));
    safetensors(&at.join("model.safetensors"), &tensors);
    let found = report(&at);
    assert_eq!(
        mismatches(&found),
        [
            "`model.layers.1.mlp.up_proj.weight` is [129, 64]; the config makes it [128, 64]",
            "`model.layers.0.mlp.extra.weight` [3] is not part of the model"
        ]
    );
    tensors.remove(wrong);
    safetensors(&at.join("model.safetensors"), &tensors);
    let found = report(&at);
    assert!(mismatches(&found)[0].contains("up_proj.weight` [128, 64] is missing"), "{found}");
    let answer: Value = serde_json::from_slice(&model(&at).stdout).unwrap();
    assert!(answer["warnings"].to_string().contains("is missing"), "mismatches are warnings too");
}

#[test]
fn shards_are_joined_by_their_index() {
    let at = folder("sharded");
    std::fs::write(at.join("config.json"), config(2).to_string()).unwrap();
    let tensors = small();
    let parts = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];
    let index = |change: &dyn Fn(&mut serde_json::Map<String, Value>)| {
        let mut map = serde_json::Map::new();
        for (i, (name, _)) in tensors.iter().enumerate() {
            map.insert(name.clone(), parts[usize::from(i >= 10)].into());
        }
        change(&mut map);
        let text = json!({"metadata": {"total_size": 1}, "weight_map": map}).to_string();
        std::fs::write(at.join("model.safetensors.index.json"), text).unwrap();
    };
    index(&|_| {});
    // Names alone, as long as no file is there.
    assert_eq!(report(&at)["matched"], 21);
    safetensors(&at.join(parts[0]), &tensors[..10]);
    assert!(refusal(&at).contains(parts[1]), "one of two files is missing");
    safetensors(&at.join(parts[1]), &tensors[10..]);
    let found = report(&at);
    assert_eq!((&found["matched"], &found["files"], mismatches(&found).len()), (&21.into(), &2.into(), 0));

    safetensors(&at.join(parts[1]), &tensors[9..]);
    assert!(refusal(&at).contains("holds too"), "a tensor in two files");
    safetensors(&at.join(parts[1]), &tensors[11..]);
    assert!(refusal(&at).contains("no such tensor"), "the index says more than the header");
    for target in ["model.safetensors.index.json", "../stored/one/model.safetensors", ""] {
        index(&|map| {
            map.insert("lm_head.weight".into(), target.into());
        });
        assert!(refusal(&at).contains("lm_head.weight"), "{target}");
    }
    let twice = r#"{"weight_map": {"a": "x.safetensors", "a": "x.safetensors"}}"#;
    std::fs::write(at.join("model.safetensors.index.json"), twice).unwrap();
    assert!(refusal(&at).contains("twice"));
}

#[test]
fn broken_safetensors_are_refused() {
    let at = folder("broken");
    std::fs::write(at.join("config.json"), config(2).to_string()).unwrap();
    let file = at.join("model.safetensors");
    safetensors(&file, &small());
    let whole = std::fs::read(&file).unwrap();
    for (bytes, cause) in [
        (whole[..500].to_vec(), "truncated"),
        (whole[..whole.len() - 1].to_vec(), "truncated"),
        (whole[..4].to_vec(), "8 bytes"),
        ((1u64 << 63).to_le_bytes().to_vec(), "allows"),
        ([&(1u64 << 26).to_le_bytes()[..], b"{}"].concat(), "truncated"),
    ] {
        std::fs::write(&file, bytes).unwrap();
        let message = refusal(&at);
        assert!(message.contains(cause) && message.contains("model.safetensors"), "{message}");
    }
}

/// Llama-3.1-70B: 141 GB, of which only the header is read.
#[test]
fn a_file_of_a_hundred_gigabytes_is_read_by_its_header() {
    let at = folder("large");
    let config = json!({"model_type": "llama", "hidden_size": 8192, "intermediate_size": 28672,
        "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 128_256,
        "tie_word_embeddings": false});
    std::fs::write(at.join("config.json"), config.to_string()).unwrap();
    safetensors(&at.join("model.safetensors"), &llama(80, [8192, 28672, 1024, 128_256]));
    assert!(std::fs::metadata(at.join("model.safetensors")).unwrap().len() > 100 << 30);
    let start = Instant::now();
    let found = report(&at);
    assert_eq!((&found["matched"], mismatches(&found).len()), (&723.into(), 0));
    // Reading what its header promises would take minutes; the machine may be busy.
    assert!(start.elapsed().as_secs_f64() < 20.0, "{:?}", start.elapsed());
    std::fs::remove_dir_all(&at).unwrap();
}

/// The head of a GGUF file, whose dimensions are written innermost first.
fn gguf(tensors: &[(String, Vec<u64>)], architecture: &str) -> Vec<u8> {
    let text = |s: &str| [&(s.len() as u64).to_le_bytes()[..], s.as_bytes()].concat();
    let numbers = [
        ("embedding_length", HIDDEN),
        ("block_count", 2),
        ("feed_forward_length", INNER),
        ("attention.head_count", 4),
        ("attention.head_count_kv", 2),
        ("vocab_size", VOCABULARY),
    ];
    let mut bytes = [&b"GGUF"[..], &3u32.to_le_bytes()].concat();
    bytes.extend((tensors.len() as u64).to_le_bytes());
    bytes.extend((numbers.len() as u64 + 2).to_le_bytes());
    bytes.extend([text("general.architecture"), 8u32.to_le_bytes().to_vec(), text(architecture)].concat());
    for (key, value) in numbers {
        bytes.extend([text(&format!("{architecture}.{key}")), 4u32.to_le_bytes().to_vec()].concat());
        bytes.extend((value as u32).to_le_bytes());
    }
    bytes.extend([text("tokenizer.ggml.tokens"), 9u32.to_le_bytes().to_vec(), 8u32.to_le_bytes().to_vec()].concat());
    bytes.extend(3u64.to_le_bytes());
    ["a", "b", "c"].iter().for_each(|word| bytes.extend(text(word)));
    for (name, shape) in tensors {
        bytes.extend(text(name));
        bytes.extend((shape.len() as u32).to_le_bytes());
        shape.iter().rev().for_each(|n| bytes.extend(n.to_le_bytes()));
        bytes.extend([1u32.to_le_bytes().to_vec(), 0u64.to_le_bytes().to_vec()].concat());
    }
    bytes
}

/// The same weights by GGUF's names.
fn gguf_tensors() -> Vec<(String, Vec<u64>)> {
    let rename = |name: &str| {
        let pairs = [
            ("model.embed_tokens", "token_embd"),
            ("model.norm", "output_norm"),
            ("lm_head", "output"),
            ("model.layers", "blk"),
            ("post_attention_layernorm", "ffn_norm"),
            ("input_layernorm", "attn_norm"),
            ("self_attn.o_proj", "attn_output"),
            ("self_attn.", "attn_"),
            ("mlp.", "ffn_"),
            ("_proj", ""),
        ];
        pairs.iter().fold(name.to_string(), |name, (from, to)| name.replace(from, to))
    };
    small().into_iter().map(|(name, shape)| (rename(&name), shape)).collect()
}

#[test]
fn a_gguf_file_is_a_config_and_its_weights() {
    let at = folder("gguf");
    let file = at.join("model.gguf");
    let mut tensors = gguf_tensors();
    std::fs::write(&file, gguf(&tensors, "llama")).unwrap();
    let found = report(&file);
    assert_eq!((&found["matched"], mismatches(&found).len()), (&21.into(), 0), "{found}");
    let from_gguf: Value = serde_json::from_slice(&model(&file).stdout).unwrap();
    std::fs::write(at.join("config.json"), config(2).to_string()).unwrap();
    let from_config: Value = serde_json::from_slice(&model(&at.join("config.json")).stdout).unwrap();
    assert_eq!((&from_gguf["calls"], &from_gguf["parameters"]), (&from_config["calls"], &from_config["parameters"]));

    let wrong = tensors.iter().position(|(name, _)| name == "blk.1.ffn_down.weight").unwrap();
    tensors[wrong].1 = vec![HIDDEN, INNER + 2];
    std::fs::write(&file, gguf(&tensors, "llama")).unwrap();
    let found = report(&file);
    assert_eq!(mismatches(&found), ["`blk.1.ffn_down.weight` is [64, 130]; the config makes it [64, 128]"]);

    let whole = gguf(&tensors, "llama");
    tensors.push(tensors[0].clone());
    for (bytes, cause) in [
        (whole[..whole.len() - 5].to_vec(), "truncated"),
        (whole[..30].to_vec(), "truncated"),
        (b"GGML....".to_vec(), "does not start with GGUF"),
        ([&b"GGUF"[..], &3u32.to_le_bytes(), &(1u64 << 63).to_le_bytes(), &[0; 8]].concat(), "at most"),
        (gguf(&tensors, "llama"), "twice"),
        (gguf(&tensors[..3], "gptneverx"), "known are"),
    ] {
        std::fs::write(&file, bytes).unwrap();
        let message = refusal(&file);
        assert!(message.contains(cause) && message.contains("model.gguf"), "{message}");
    }
}

/// A small generator of its own, so that a seed means the same everywhere.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % sides
    }
}

/// Bytes changed, cut and repeated at random: an answer or exit 2, within 100 MB.
#[test]
fn no_header_makes_it_panic() {
    let count: usize = std::env::var("GEMWRIGHT_HOSTILE").ok().and_then(|n| n.parse().ok()).unwrap_or(400) / 4;
    let at = folder("hostile");
    std::fs::write(at.join("config.json"), config(2).to_string()).unwrap();
    let plain = at.join("model.safetensors");
    safetensors(&plain, &small());
    let heads = [std::fs::read(&plain).unwrap()[..2400].to_vec(), gguf(&gguf_tensors(), "llama")];
    let mut dice = Dice(7);
    let mut answered = 0;
    for i in 0..count {
        let mut bytes = heads[i % 2].clone();
        for _ in 0..=dice.roll(4) {
            let place = dice.roll(bytes.len());
            match dice.roll(4) {
                0 => bytes.truncate(place.max(1)),
                1 => bytes[place] = [0, 0xff, b'"', b'9'][dice.roll(4)],
                2 => bytes[place] ^= 1 << dice.roll(8),
                _ => {
                    let piece: Vec<u8> = bytes[place..].iter().copied().take(40).collect();
                    bytes.splice(place..place, piece);
                }
            }
        }
        let subject = if i % 2 == 0 { at.clone() } else { at.join("model.gguf") };
        std::fs::write(if i % 2 == 0 { &plain } else { &subject }, &bytes).unwrap();
        let done = model(&subject);
        let message = String::from_utf8_lossy(&done.stderr);
        assert!(matches!(done.status.code(), Some(0 | 2)) && !message.contains("panicked"), "{i}: {message}");
        answered += usize::from(done.status.success());
    }
    println!("{count} headers: {answered} answered, the rest refused");
}
