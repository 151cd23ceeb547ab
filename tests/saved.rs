//! `trace --save`: the list of a trace equals the one predicted from the model, and other commands take it.
#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

fn gemwright(words: &[&str]) -> (Option<i32>, String, String) {
    let done = Command::new(env!("CARGO_BIN_EXE_gemwright")).args(words).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (done.status.code(), text(done.stdout), text(done.stderr))
}

fn parsed(words: &[&str]) -> Value {
    let (code, out, message) = gemwright(words);
    assert_eq!(code, Some(0), "{words:?}: {message}");
    serde_json::from_str(&out).unwrap()
}

fn saved(name: &str) -> (PathBuf, Value) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/traces");
    let trace = root.join(name).join("trace.json.gz");
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.workload.json"));
    let (code, _, message) =
        gemwright(&["trace", trace.to_str().unwrap(), "--save", file.to_str().unwrap(), "--quiet"]);
    assert_eq!(code, Some(0), "{message}");
    let list = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    (file, list)
}

/// Everything but module and times, and how often.
fn counted(list: &Value) -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    for call in list["calls"].as_array().unwrap() {
        let mut key = call.as_object().unwrap().clone();
        let count = key["count"].as_u64().unwrap();
        for name in ["module", "count", "measured", "roof"] {
            key.remove(name);
        }
        // How many experts get rows is expected in a prediction and unknown to a trace.
        for name in ["groups_touched", "bytes", "intensity"] {
            if key.contains_key("offs") {
                key.remove(name);
            }
        }
        *found.entry(Value::Object(key).to_string()).or_default() += count;
    }
    found
}

/// The documents' table of GPT-3 XL: op, M, N, K, strides, flags and counts.
#[test]
fn the_training_step_of_gpt3_xl_is_the_documents_table() {
    let (_, list) = saved("h200_gpt3xl_train");
    for (op, [m, n, k], strides, flags) in [
        ("aten::addmm", [10240, 8192, 2048], [[2048, 1], [1, 2048]], ["T", "N"]),
        ("aten::mm", [10240, 2048, 8192], [[8192, 1], [2048, 1]], ["N", "N"]),
        ("aten::mm", [8192, 2048, 10240], [[1, 8192], [2048, 1]], ["N", "T"]),
    ] {
        let calls = list["calls"].as_array().unwrap();
        let product = json!({"batch": 1, "m": m, "n": n, "k": k});
        let found: Vec<&Value> = calls.iter().filter(|c| c["op"] == op && c["product"] == product).collect();
        assert_eq!(found.len(), 1, "{op} {m} {n} {k}");
        assert_eq!([&found[0]["a"]["stride"], &found[0]["b"]["stride"]], [&json!(strides[0]), &json!(strides[1])]);
        assert_eq!([&found[0]["blas"]["transa"], &found[0]["blas"]["transb"]], [&json!(flags[0]), &json!(flags[1])]);
        assert_eq!(found[0]["count"], 24);
        let measured = &found[0]["measured"];
        assert!(measured["seconds"].as_f64().unwrap() > 0.005 && measured["launches"].as_u64().unwrap() >= 24);
        assert!(measured["kernels"].to_string().contains("nvjet"), "{measured}");
    }
}

#[test]
fn what_a_trace_shows_is_what_is_predicted() {
    for (trace, words) in [
        ("h200_gpt3xl_train", "gpt3-xl --phase train --batch 5 --seq 2048"),
        ("h200_qwen3moe_generate", "qwen3-30b-a3b --layers 4 --phase generate --batch 2 --seq 512 --steps 4"),
    ] {
        let words: Vec<&str> = ["model"].into_iter().chain(words.split(' ')).chain(["--format", "json"]).collect();
        let (predicted, observed) = (counted(&parsed(&words)), counted(&saved(trace).1));
        let missing: Vec<_> = predicted.iter().filter(|(key, n)| observed.get(*key) != Some(n)).collect();
        let new: Vec<_> = observed.iter().filter(|(key, n)| predicted.get(*key) != Some(n)).collect();
        assert!(missing.is_empty() && new.is_empty(), "{trace}: missing {missing:#?}, new {new:#?}");
    }
}

/// Times are whole nanoseconds of disjoint kernels: no more than the GPU was busy.
#[test]
fn measured_times_add_up_to_no_more_than_the_trace() {
    let (file, list) = saved("h200_gpt3xl_train");
    let seconds = |c: &Value| c["measured"]["seconds"].as_f64().unwrap_or(0.0);
    let sum: f64 = list["calls"].as_array().unwrap().iter().map(seconds).sum();
    assert!(sum > 0.16 && sum < 0.2161, "{sum}");
    // And `roof` shows them beside the least time.
    let roofs = parsed(&["roof", file.to_str().unwrap(), "--on", "h200", "--format", "json"]);
    let rows = roofs["roofs"].as_array().unwrap();
    assert_eq!(rows.len(), list["calls"].as_array().unwrap().len());
    for row in rows {
        let share = row["of roof"].as_f64().unwrap();
        assert!(share > 0.05 && share < 1.0, "{row}");
    }
}

#[test]
fn a_saved_list_and_its_trace_are_the_same_workload() {
    let (file, list) = saved("h200_qwen3moe_generate");
    let schema: Value = serde_json::from_slice(
        &std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/workload.schema.json")).unwrap(),
    )
    .unwrap();
    let checker = jsonschema::validator_for(&schema).unwrap();
    let wrong: Vec<String> = checker.iter_errors(&list).map(|e| e.to_string()).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/traces/h200_qwen3moe_generate/trace.json.gz");
    let of = |path: &Path| parsed(&["roof", path.to_str().unwrap(), "--on", "h200", "--format", "json"]);
    assert_eq!(of(&file), of(&trace));
}

/// A model's own list, saved, is the model again: every operation and every kind of operand.
#[test]
fn a_prediction_can_be_saved_too() {
    for words in [
        "llama-3.1-70b --phase train --batch 2 --seq 64 --layers 2 --tp 8",
        "mixtral-8x7b --phase generate --batch 2 --seq 16 --steps 2 --layers 1",
        "resnet-50 --phase train --batch 2",
        "bloom-560m --phase prefill --seq 8",
        "llama-3.1-8b --weight-dtype int4 --phase decode --layers 1",
    ] {
        let options: Vec<&str> = words.split(' ').collect();
        let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{}.json", options[0]));
        let more = ["--format", "json", "-o", file.to_str().unwrap()];
        let (code, _, message) = gemwright(&[&["model"][..], &options, &more].concat());
        assert_eq!(code, Some(0), "{words}: {message}");
        let again = parsed(&["roof", file.to_str().unwrap(), "--on", "h200", "--format", "json"]);
        let first = parsed(&[&["roof"][..], &options, &["--on", "h200", "--format", "json"]].concat());
        assert_eq!(again["roofs"], first["roofs"], "{words}");
    }
}

#[test]
fn a_list_that_is_none_is_refused_with_the_place() {
    let (file, list) = saved("h200_gpt3xl_train");
    let broken = file.with_extension("broken.json");
    for (change, cause) in [
        (json!({"format": 2}), "format is 2"),
        (json!({"calls": [{"op": "aten::mm"}]}), "call 0"),
        (json!({"workload": {}}), "names no source"),
        (json!({"calls": 5}), "no saved workload"),
    ] {
        let mut wrong = list.clone();
        wrong.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        std::fs::write(&broken, wrong.to_string()).unwrap();
        let (code, _, message) = gemwright(&["roof", broken.to_str().unwrap(), "--on", "h200"]);
        assert!(code == Some(2) && message.contains(cause), "{cause}: {message}");
    }
    let mut wrong = list;
    wrong["calls"][0]["b"]["size"] = json!([7, 7]);
    std::fs::write(&broken, wrong.to_string()).unwrap();
    assert!(gemwright(&["roof", broken.to_str().unwrap(), "--on", "h200"]).2.contains("do not multiply"));
}
