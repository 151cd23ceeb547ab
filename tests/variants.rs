//! Variants of a model, held to numbers worked out here from the definitions, not from the program.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;

fn run(words: &str) -> (Option<i32>, String, String) {
    let done = Command::new(env!("CARGO_BIN_EXE_gemwright")).args(words.split_whitespace()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (done.status.code(), text(done.stdout), text(done.stderr))
}

fn json(words: &str) -> Value {
    let (code, out, message) = run(&format!("{words} --format json"));
    assert_eq!(code, Some(0), "{words}: {message}");
    serde_json::from_str(&out).unwrap()
}

/// (M, N, K) of the products with weights, and how often each runs.
fn products(workload: &Value) -> BTreeMap<(u64, u64, u64), u64> {
    let mut found = BTreeMap::new();
    for call in workload["calls"].as_array().unwrap() {
        if ["aten::mm", "aten::addmm"].contains(&call["op"].as_str().unwrap()) {
            let [m, n, k] = ["m", "n", "k"].map(|name| call["product"][name].as_u64().unwrap());
            *found.entry((m, n, k)).or_default() += call["count"].as_u64().unwrap();
        }
    }
    found
}

const LAYERS: u64 = 80;
const HIDDEN: u64 = 8192;
const HEADS: u64 = 64;
const KEY_HEADS: u64 = 8;
const HEAD: u64 = 128;
const INNER: u64 = 28672;
const VOCABULARY: u64 = 128_256;

/// Megatron's split of Llama-3.1-70B: heads and inner features by columns, what follows them by
/// rows, the vocabulary of both ends; one sum after attention, one after the MLP, one after the
/// embedding.
#[test]
fn a_model_split_over_eight_gpus() {
    let tokens = 2048;
    let split = json(&format!("model llama-3.1-70b --tp 8 --phase prefill --seq {tokens}"));
    let mut want = BTreeMap::new();
    let mut add = |n: u64, k: u64, count: u64| *want.entry((tokens, n, k)).or_insert(0) += count;
    add(HEADS / 8 * HEAD, HIDDEN, LAYERS);
    add(KEY_HEADS / 8 * HEAD, HIDDEN, 2 * LAYERS);
    add(HIDDEN, HEADS / 8 * HEAD, LAYERS);
    add(INNER / 8, HIDDEN, 2 * LAYERS);
    add(HIDDEN, INNER / 8, LAYERS);
    add(VOCABULARY / 8, HIDDEN, 1);
    assert_eq!(products(&split), want);

    let exchanged = |kind: &str| -> (u64, u64) {
        let all = split["collectives"].as_array().unwrap().iter().filter(|c| c["kind"] == kind);
        let one = |c: &Value| (c["count"].as_u64().unwrap(), c["bytes"].as_u64().unwrap());
        all.map(one).fold((0, 0), |(n, sum), (count, bytes)| (n + count, sum + count * bytes))
    };
    let state = tokens * HIDDEN * 2;
    assert_eq!(exchanged("all_reduce"), (2 * LAYERS + 1, (2 * LAYERS + 1) * state));
    assert_eq!(exchanged("all_gather"), (1, tokens * VOCABULARY * 2));

    let attention = (HEADS / 8 + 2 * KEY_HEADS / 8) * HEAD * HIDDEN + HIDDEN * (HEADS / 8 * HEAD);
    let layer = attention + 3 * (INNER / 8) * HIDDEN + 2 * HIDDEN;
    let own = 2 * (VOCABULARY / 8) * HIDDEN + LAYERS * layer + HIDDEN;
    assert_eq!(split["summary"]["parameters_per_gpu"], own);
    assert_eq!(split["summary"]["weight_bytes"].as_f64(), Some(2.0 * own as f64));
    assert_eq!(split["parameters"], 70_553_706_496u64);
    // Keys and values of one key head a layer.
    let cache = 2 * LAYERS * HEAD * tokens * 2;
    assert_eq!(split["summary"]["cache_bytes"].as_f64(), Some(cache as f64));
}

#[test]
fn key_heads_are_repeated_where_there_are_more_gpus() {
    let split = json("model llama-3.1-70b --tp 16 --phase decode");
    // 4 query heads and a copy of one key head on each.
    let attention = split["calls"].as_array().unwrap().iter().find(|c| c["q"].is_object()).unwrap();
    assert_eq!((&attention["q"]["size"][1], &attention["k"]["size"][1]), (&4.into(), &1.into()));
    for (words, cause) in [
        ("model llama-3.1-70b --tp 3", "query heads of 64"),
        ("model llama-3.1-70b --tp 0", "from 1 to"),
        ("model resnet-50 --tp 2", "not known here"),
    ] {
        let (code, _, message) = run(words);
        assert_eq!((code, message.contains(cause)), (Some(2), true), "{message}");
    }
}

/// Megatron's backward: each column split sums the gradients of its input, the head's among them.
#[test]
fn a_training_step_exchanges_as_much_backward() {
    let step = json("model llama-3.1-70b --tp 8 --phase train --seq 128 --layers 2");
    let count = |pass: &str| -> u64 {
        let all = step["collectives"].as_array().unwrap().iter().filter(|c| c["pass"] == pass);
        all.map(|c| c["count"].as_u64().unwrap()).sum()
    };
    assert_eq!((count("forward"), count("grad")), (2 * 2 + 1, 2 * 2 + 1));
}

/// Phi-3 has the fused layers that `--fuse` makes of a Llama of its size.
#[test]
fn fused_projections_are_the_products_of_an_architecture_that_has_them() {
    let path = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("like-phi3.json");
    let config = r#"{"model_type": "llama", "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 32064, "tie_word_embeddings": false}"#;
    std::fs::write(&path, config).unwrap();
    let subject = path.display();
    for phase in ["decode --past 100", "prefill --seq 300 --batch 2", "train --seq 64"] {
        let plain = json(&format!("model {subject} --phase {phase}"));
        let fused = json(&format!("model {subject} --fuse qkv,gate_up --phase {phase}"));
        let phi3 = json(&format!("model phi-3-mini-4k --phase {phase}"));
        assert_eq!(products(&fused), products(&phi3), "{phase}");
        assert_eq!(fused["summary"]["flops"], plain["summary"]["flops"], "{phase}");
        assert_eq!(fused["parameters"], plain["parameters"]);
        let calls = |workload: &Value| workload["summary"]["calls"].as_u64().unwrap();
        // q, k, v become one and gate, up become one: three products less a layer, each with two gradients.
        let times = if phase.starts_with("train") { 3 } else { 1 };
        assert_eq!(calls(&plain) - calls(&fused), 3 * 32 * times, "{phase}");
    }
}

#[test]
fn what_cannot_be_fused_says_why() {
    for (words, code, cause) in [
        ("model gpt2 --fuse gate_up", 2, "there is no gate"),
        ("model whisper-tiny --fuse qkv", 2, "bias"),
        ("model deepseek-v3 --fuse qkv", 2, "latent"),
        ("model mamba-130m --fuse qkv", 2, "no attention"),
        ("model phi-3-mini-4k --fuse qkv --phase decode", 0, "already"),
        ("model mixtral-8x7b --fuse gate_up --phase decode", 0, "already"),
    ] {
        let (found, _, message) = run(words);
        assert_eq!((found, message.contains(cause)), (Some(code), true), "{words}: {message}");
    }
}

/// Llama-3.1-8B with 4-bit weights inside the layers, a bf16 factor for each 128 inputs of an output.
#[test]
fn four_bit_weights_are_counted_with_their_factors() {
    let (layers, hidden, inner, kv, vocabulary) = (32i64, 4096i64, 14336i64, 1024i64, 128_256i64);
    let inside = layers * (2 * hidden * hidden + 2 * kv * hidden + 3 * inner * hidden);
    let outside = 2 * vocabulary * hidden + (2 * layers + 1) * hidden;
    let bytes = inside / 2 + inside / 128 * 2 + 2 * outside;
    let stored = json("model llama-3.1-8b --weight-dtype int4 --phase decode --past 0 --on h200");
    assert_eq!(stored["summary"]["weight_bytes"].as_f64(), Some(bytes as f64));
    let plain = json("model llama-3.1-8b --phase decode --past 0 --on h200");
    assert_eq!(stored["summary"]["flops"], plain["summary"]["flops"]);

    // One product: weights, factors, a row in, a row out.
    let up = stored["calls"].as_array().unwrap().iter().find(|c| c["module"] == "model.layers.*.mlp.up_proj").unwrap();
    assert_eq!((&up["b"]["dtype"], &up["scales"]["size"]), (&"i4".into(), &[14336, 32].as_slice().into()));
    assert_eq!(up["bytes"], inner * hidden / 2 + inner * hidden / 128 * 2 + 2 * (inner + hidden));
    assert!(up["blas"].is_null());

    // The batch at which multiplying takes longer than moving, from the roof's definition.
    let (peak, bandwidth) = (989.4e12, 4800e9);
    let shapes = [(hidden, hidden, 2), (kv, hidden, 2), (inner, hidden, 2), (hidden, inner, 1)];
    let leaves = |weight_bits: f64, factors: f64| -> u64 {
        let all = shapes.iter().map(|(n, k, times)| (*n, *k, (times * layers) as f64, weight_bits / 8.0 + factors));
        let (mut compute, mut moved, mut weights) = (0.0, 0.0, 0.0);
        for (n, k, times, each) in all.chain([(vocabulary, hidden, 1.0, 2.0)]) {
            let size = (n * k) as f64;
            compute += times * 2.0 * size / peak;
            moved += times * 2.0 * (n + k) as f64;
            weights += times * size * each;
        }
        (weights / bandwidth / (compute - moved / bandwidth)).ceil() as u64
    };
    let said = |workload: &Value| workload["summary"]["roof"]["decode_leaves_memory_roof_at_batch"].as_u64().unwrap();
    assert_eq!(said(&plain), leaves(16.0, 0.0));
    assert_eq!(said(&stored), leaves(4.0, 2.0 / 128.0));
    assert!(said(&stored) * 2 < said(&plain));
}

#[test]
fn a_variant_stands_beside_the_plain_model() {
    let both = json("model llama-3.1-8b --weight-dtype fp8 --phase decode --on h200 --versus plain");
    let versus = &both["summary"]["versus"];
    let gain = versus["gain"].as_f64().unwrap();
    let [variant, plain] = ["variant", "plain"].map(|side| versus[side]["seconds"].as_f64().unwrap());
    assert!((plain / variant - gain).abs() < 1e-9 && gain > 1.5 && gain < 2.0, "{gain}");
    let (_, text, _) = run("model llama-3.1-8b --tp 2 --phase decode --on h200 --versus plain");
    for word in ["gain", "variant", "plain", "all_reduce", "least time", "of which one of 2 GPUs"] {
        assert!(text.contains(word), "{word}");
    }
    for (words, cause) in [
        ("model llama-3.1-8b --weight-dtype int3", "known are"),
        ("model llama-3.1-8b --weight-dtype int4 --phase train", "learn"),
        ("model mixtral-8x7b --weight-dtype int4 --experts batched_mm", "grouped_mm"),
        ("model resnet-50 --weight-dtype int8", "no linear layers"),
        ("explain llama-3.1-8b up_proj --weight-dtype int8", "no library call"),
    ] {
        let (code, _, message) = run(words);
        assert_eq!((code, message.contains(cause)), (Some(2), true), "{words}: {message}");
    }
}
