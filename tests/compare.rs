//! `compare`: a prediction against what really ran, kernels without operations, reasons, checks for CI.
#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

fn gemwright(words: &[&str]) -> (Option<i32>, String, String) {
    let done = Command::new(env!("CARGO_BIN_EXE_gemwright")).args(words).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (done.status.code(), text(done.stdout), text(done.stderr))
}

/// Exit code and answer.
fn compared(a: &str, b: &str, words: &[&str]) -> (i32, Value) {
    let (code, out, message) = gemwright(&[&["compare", a, b, "--format", "json"], words].concat());
    (code.unwrap(), serde_json::from_str(&out).unwrap_or_else(|_| panic!("{a} {b}: {message}")))
}

fn trace(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/traces");
    root.join(name).join("trace.json.gz").to_str().unwrap().to_string()
}

fn scratch(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)
}

fn text_of(name: &str) -> String {
    let mut text = String::new();
    flate2::read::GzDecoder::new(std::fs::File::open(trace(name)).unwrap()).read_to_string(&mut text).unwrap();
    text
}

/// The same trace with nothing of the host: as a profiler of the GPU alone would write it.
fn without_operations(name: &str) -> String {
    let mut whole: Value = serde_json::from_str(&text_of(name)).unwrap();
    whole["traceEvents"].as_array_mut().unwrap().retain(|e| e["cat"] == "kernel");
    let file = scratch(&format!("{name}-gpu-only.json"));
    std::fs::write(&file, whole.to_string()).unwrap();
    file.to_str().unwrap().to_string()
}

const TRAIN: &str = "gpt3-xl --phase train --batch 5 --seq 2048";
const MOE: &str = "qwen3-30b-a3b --layers 4 --phase generate --batch 2 --seq 512 --steps 4";
const DECODE: &str = "llama-3.1-8b --phase decode --batch 8 --past 300 --cache static:1024";

fn statuses(answer: &Value) -> Vec<&str> {
    answer["products"].as_array().unwrap().iter().map(|row| row["status"].as_str().unwrap()).collect()
}

fn matched(answer: &Value) -> f64 {
    answer["b"]["kernels"]["matched_share"].as_f64().unwrap()
}

#[test]
fn a_prediction_agrees_with_what_ran_and_with_nothing_else() {
    for (model, name, products) in [(TRAIN, "h200_gpt3xl_train", 17), (MOE, "h200_qwen3moe_generate", 21)] {
        let (code, answer) = compared(model, &trace(name), &[]);
        assert_eq!((code, statuses(&answer)), (0, vec!["same"; products]), "{model}");
        assert_eq!(matched(&answer), 1.0);
        let (code, answer) = compared(&format!("{model} --dtype f16"), &trace(name), &[]);
        assert_eq!((code, &answer["reason"]["options"]), (1, &json!(["--dtype bf16"])));
    }
    let (code, answer) = compared(&TRAIN.replace("2048", "2049"), &trace("h200_gpt3xl_train"), &[]);
    assert_eq!((code, &answer["reason"]["options"]), (1, &json!(["--seq 2048"])));
    // The sides may change places.
    let (code, answer) = compared(&trace("h200_gpt3xl_train"), TRAIN, &[]);
    assert_eq!((code, answer["a"]["kernels"]["matched_share"].as_f64()), (0, Some(1.0)));
}

#[test]
fn what_a_compiler_padded_matches_and_is_shown() {
    let (code, answer) = compared(TRAIN, &trace("h200_gpt3xl_compiled"), &[]);
    let padded: Vec<&str> = answer["products"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|row| row["status"] == "padded")
        .map(|row| row["note"].as_str().unwrap())
        .collect();
    assert_eq!((code, padded.len()), (0, 3));
    for note in ["N 50257 -> 50264", "K 50257 -> 50264", "M 50257 -> 50264"] {
        assert!(padded.contains(&note), "{padded:?}");
    }
    assert!(matched(&answer) >= 0.95);
    // Eager against compiled, trace against trace.
    let (code, answer) = compared(&trace("h200_gpt3xl_train"), &trace("h200_gpt3xl_compiled"), &[]);
    assert_eq!((code, statuses(&answer).iter().filter(|s| **s == "padded").count()), (0, 3));
    // Without a compiler another extent is another product.
    let text = text_of("h200_gpt3xl_train").replace("50257", "50264");
    let file = scratch("other-vocabulary.json");
    std::fs::write(&file, text).unwrap();
    assert_eq!(compared(TRAIN, file.to_str().unwrap(), &[]).0, 1);
}

#[test]
fn the_replays_of_a_graph_are_recognised() {
    let (code, answer) = compared(DECODE, &trace("h200_llama31_graph"), &[]);
    assert_eq!((code, &answer["replays"]), (0, &json!({"side": "B", "count": 4})));
    assert!(matched(&answer) >= 0.95, "{}", matched(&answer));
    let rows = answer["products"].as_array().unwrap();
    let row = |n: u64, k: u64| rows.iter().find(|r| r["N"] == n && r["K"] == k).unwrap();
    assert_eq!((row(14336, 4096)["count B"].as_u64(), row(128256, 4096)["count B"].as_u64()), (Some(64), Some(1)));
    // 7.9 ms of 256 kernels.
    let each = row(14336, 4096)["time B"].as_f64().unwrap();
    assert!((each - 30.9e-6).abs() < 0.1e-6, "{each}");
    // Grids tell the batch, so another one does not pass.
    let (code, answer) = compared(&DECODE.replace("batch 8", "batch 4"), &trace("h200_llama31_graph"), &[]);
    assert_eq!((code, &answer["reason"]["options"]), (1, &json!(["--batch 8"])));
    assert!(answer["unmatched"].as_array().unwrap().iter().any(|u| u["why"] == "no product fits"));
    // Nor does another model; what more than one product fits is listed.
    let (code, answer) =
        compared(&DECODE.replace("3.1-8b", "2-7b"), &trace("h200_llama31_graph"), &["--fail-on", "count"]);
    assert_eq!((code, answer["reason"]["complete"].as_bool()), (1, Some(false)));
    let left: f64 = answer["unmatched"].as_array().unwrap().iter().map(|u| u["seconds"].as_f64().unwrap()).sum();
    let whole = &answer["b"]["kernels"];
    let kept = whole["matched_seconds"].as_f64().unwrap();
    assert!((left + kept - whole["seconds"].as_f64().unwrap()).abs() < 1e-9, "nothing disappears");
}

/// Where operations were recorded too, they say whether the kernels were given to the right products.
#[test]
fn kernels_alone_are_given_to_the_products_their_operations_name() {
    for (model, name) in
        [(TRAIN, "h200_gpt3xl_train"), (TRAIN, "h200_gpt3xl_compiled"), (MOE, "h200_qwen3moe_generate")]
    {
        let (code, told) = compared(model, &trace(name), &[]);
        assert_eq!(code, 0);
        let (code, found) = compared(model, &without_operations(name), &[]);
        assert_eq!((code, matched(&found)), (0, 1.0), "{name}");
        let key = |row: &Value| ["op", "batch", "M", "N", "K", "strides a", "strides b"].map(|c| row[c].to_string());
        for row in found["products"].as_array().unwrap() {
            let same = told["products"].as_array().unwrap().iter().find(|other| key(other) == key(row)).unwrap();
            let [taken, known] = [row, same].map(|r| r["time B"].as_f64().unwrap());
            // An operation's fills are not among the kernels that multiply.
            assert!(taken <= known * 1.0001 && taken > known * 0.8 - 2e-6, "{row} {same}");
        }
    }
}

fn first_change(answer: &Value) -> &Value {
    &answer["changes"][0]
}

#[test]
fn an_odd_vocabulary_is_the_first_thing_to_change_and_an_even_one_is_not() {
    let (_, answer) = compared(TRAIN, &trace("h200_gpt3xl_train"), &[]);
    let change = first_change(&answer);
    assert_eq!(
        (change["what"].as_str(), change["products"].as_array().map(Vec::len)),
        (Some("pad 50257 to 50304"), Some(3))
    );
    assert!(change["why"].as_str().unwrap().contains("90 to 135 TFLOP/s"), "{change}");
    let [now, saves] = ["seconds", "saves_seconds"].map(|name| change[name].as_f64().unwrap());
    assert!((now - 54.7e-3).abs() < 0.1e-3 && (40e-3..49e-3).contains(&saves), "{now} {saves}");
    // The same products with a vocabulary that is a multiple of 64.
    let config = scratch("padded-gpt3.json");
    let fields = json!({"model_type": "plain_gpt3", "d_model": 2048, "d_ff": 8192, "layers": 24, "heads": 16,
        "vocab": 50304, "positions": 2048, "dtype": "bfloat16"});
    std::fs::write(&config, fields.to_string()).unwrap();
    let file = scratch("padded-gpt3-trace.json");
    std::fs::write(&file, text_of("h200_gpt3xl_train").replace("50257", "50304")).unwrap();
    let model = format!("{} --phase train --batch 5 --seq 2048", config.display());
    let (code, answer) = compared(&model, file.to_str().unwrap(), &[]);
    assert_eq!(code, 0);
    assert!(!answer["changes"].to_string().contains("pad "), "{}", answer["changes"]);
    // What it saves is known for the chip it was measured on, and for no other.
    let (_, answer) = compared(TRAIN, &trace("h200_gpt3xl_train"), &["--on", "b200"]);
    let changes = answer["changes"].as_array().unwrap();
    let padding = changes.iter().find(|change| change["what"] == "pad 50257 to 50304").unwrap();
    assert_eq!(padding["saves_seconds"], Value::Null);
}

#[test]
fn the_reason_of_a_difference_is_named() {
    let plain = "llama-3.1-8b --phase generate --batch 2 --seq 64 --steps 3";
    for (other, reason) in [
        ("--batch 4", "--batch 4"),
        ("--dtype f32", "--dtype f32"),
        ("--fuse qkv", "--fuse qkv"),
        ("--fuse qkv,gate_up", "--fuse qkv,gate_up"),
        ("--tp 2", "--tp 2"),
        ("--attention eager", "--attention eager"),
        ("--seq 65", "--seq 65"),
        ("--steps 5", "--steps 5"),
        ("--layers 4", "--layers 4"),
        ("--cache static:128", "--cache static:128"),
    ] {
        let other = other.split_whitespace().collect::<Vec<_>>();
        let mut words: Vec<&str> = plain.split_whitespace().collect();
        match words.iter().position(|word| *word == other[0]) {
            Some(at) => words[at + 1] = other[1],
            None => words.extend(&other),
        }
        let (code, answer) = compared(plain, &words.join(" "), &[]);
        assert_eq!(
            (code, &answer["reason"]["options"], &answer["reason"]["complete"]),
            (1, &json!([reason]), &json!(true))
        );
    }
    // Three at once.
    let (_, answer) =
        compared(plain, "llama-3.1-8b --phase generate --batch 4 --attention eager --seq 70 --steps 3", &[]);
    assert_eq!(answer["reason"]["complete"], true, "{}", answer["reason"]);
    // And back: what the other side lacks.
    let (_, answer) = compared(&format!("{plain} --fuse qkv --tp 2"), plain, &[]);
    assert_eq!(answer["reason"]["complete"], true);
    assert_eq!(answer["reason"]["options"].as_array().map(Vec::len), Some(2), "{}", answer["reason"]);
}

#[test]
fn checks_for_ci() {
    let (eager, compiled) = (trace("h200_gpt3xl_train"), trace("h200_gpt3xl_compiled"));
    let code = |a: &str, b: &str, words: &[&str]| compared(a, b, words).0;
    assert_eq!(code(&compiled, &eager, &["--fail-on", "slower:5%"]), 1);
    // Compiled is faster as a whole, but some of its products are slower.
    assert_eq!(code(&eager, &compiled, &["--fail-on", "slower:5%"]), 1);
    assert_eq!(code(&eager, &compiled, &["--fail-on", "slower:20%"]), 0);
    assert_eq!(code(TRAIN, &eager, &["--fail-under", "40%"]), 0);
    assert_eq!(code(TRAIN, &eager, &["--fail-under", "0.6"]), 1);
    assert_eq!(code(TRAIN, &format!("{TRAIN} --fuse qkv"), &["--fail-on", "none"]), 0);
    for (words, part) in [
        (vec!["compare", "gpt3-xl --phase train --bach 5", "gpt3-xl"], "--bach"),
        (vec!["compare", "gpt3-xl 'x", "gpt3-xl"], "a quote is not closed"),
        (vec!["compare", "gpt3-xl", "gpt3-xl", "--fail-on", "slow"], "known are new, missing, count"),
        (vec!["compare", "gpt3-xl", "gpt3-xl", "--fail-under", "x"], "write it as 40%"),
        (vec!["compare", "gpt3-xl", "gpt3-xl", "--on", "h200,b200,a100"], "one for both sides"),
        (vec!["compare", "gpt3-xl", "nowhere.json"], "no such file"),
    ] {
        let (code, _, message) = gemwright(&words);
        assert_eq!(code, Some(2), "{message}");
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn a_summary_for_a_pull_request_and_a_saved_list() {
    let (code, out, _) = gemwright(&["compare", TRAIN, &trace("h200_gpt3xl_train"), "--format", "md"]);
    assert_eq!(code, Some(0));
    assert!(out.starts_with("### passed: all 17 products agree\n") && out.contains("| same "), "{out}");
    assert!(out.contains("- pad 50257 to 50304: would save 46.5 ms of 54.7 ms"), "{out}");
    let file = scratch("graph.workload.json");
    let file = file.to_str().unwrap();
    let (code, _, message) = gemwright(&["trace", &trace("h200_llama31_graph"), "--save", file, "--quiet"]);
    assert_eq!(code, Some(0), "{message}");
    let [(code, saved), (_, read)] = [file, &trace("h200_llama31_graph")].map(|b| compared(DECODE, b, &[]));
    assert_eq!((code, &saved["products"], &saved["changes"]), (0, &read["products"], &read["changes"]));
    let (_, csv, _) = gemwright(&["compare", DECODE, file, "--format", "csv"]);
    assert_eq!(csv.lines().count(), 8, "{csv}");
}
