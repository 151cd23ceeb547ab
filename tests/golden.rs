//! Holds `gemwright model` to what transformers really runs: every call of every recorded run, in
//! order, with sizes, strides, dtypes, modules and counts. The format is scripts/golden.py's.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use serde_json::Value;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

fn tensor(t: &Value) -> String {
    if t.is_null() {
        return "-".into();
    }
    let numbers =
        |name: &str| -> Vec<i64> { t[name].as_array().unwrap().iter().map(|n| n.as_i64().unwrap()).collect() };
    let (size, stride) = (numbers("size"), numbers("stride"));
    let mut row_major = vec![1; size.len()];
    for d in (1..size.len()).rev() {
        row_major[d - 1] = row_major[d] * size[d].max(1);
    }
    let join = |list: &[i64], with: &str| list.iter().map(i64::to_string).collect::<Vec<_>>().join(with);
    let mut text = join(&size, "x");
    if stride != row_major {
        write!(text, ":{}", join(&stride, ",")).unwrap();
    }
    match t["dtype"].as_str().unwrap() {
        "bf16" => text,
        dtype => format!("{text}/{dtype}"),
    }
}

/// Nine digits, as Python's %.9g writes the numbers that occur here.
fn number(x: &Value) -> String {
    let Some(x) = x.as_f64() else { return "-".into() };
    let decimals = (8 - x.abs().log10().floor() as i32).max(0) as usize;
    let text = format!("{x:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').into() } else { text }
}

fn line(call: &Value) -> String {
    let text = |name: &str| call[name].as_str().unwrap().to_string();
    let op = text("op").trim_start_matches("aten::").replace("scaled_dot_product_attention", "attention");
    let module = Some(text("module")).filter(|m| !m.is_empty()).unwrap_or(".".into());
    let mut words = vec![op, text("pass"), module];
    if call.get("q").is_some() {
        words.push(text("kernel"));
        for (word, field) in [("causal", "is_causal"), ("gqa", "enable_gqa")] {
            if call[field] == true {
                words.push(word.into());
            }
        }
        words.push(format!("scale={}", number(&call["scale"])));
        words.extend(["q", "k", "v", "mask"].map(|name| tensor(&call[name])));
    } else {
        words.extend(["a", "b", "bias"].map(|name| tensor(&call[name])));
        match call["out"].as_array() {
            Some(gradients) => words.extend(gradients.iter().map(tensor)),
            None => words.push(tensor(&call["out"])),
        }
        if let Some(gradient) = call.get("grad") {
            words.push(tensor(gradient));
        }
        for name in ["stride", "padding", "dilation"] {
            if let Some(numbers) = call.get(name).and_then(Value::as_array) {
                let numbers: Vec<String> = numbers.iter().map(Value::to_string).collect();
                words.push(format!("{name}={}", numbers.join(",")));
            }
        }
        if let Some(groups) = call.get("groups").filter(|n| **n != 1 && call.get("stride").is_some()) {
            words.push(format!("groups={groups}"));
        }
        if let Some(offs) = call.get("offs") {
            words.push(tensor(offs));
        }
        for name in ["alpha", "beta"] {
            if let Some(factor) = call.get(name) {
                words.push(format!("{name}={}", number(factor)));
            }
        }
        if call.get("inside").is_some() {
            words.push("inside".into());
        }
    }
    format!("{} x{}", words.join(" "), call["count"])
}

fn arguments(run: &Value) -> Vec<String> {
    let decode = run["phase"] == "decode";
    let mut words = Vec::new();
    for (field, flag) in [
        ("phase", "--phase"),
        ("batch", "--batch"),
        ("past", "--past"),
        ("steps", "--steps"),
        ("seq", "--seq"),
        ("experts", "--experts"),
        ("cache", "--cache"),
        ("image", "--image"),
        ("encoder_seq", "--encoder-seq"),
        ("decoder_seq", "--decoder-seq"),
    ] {
        let asked = match field {
            "past" => decode,
            "seq" => !decode,
            _ => true,
        };
        if asked && let Some(value) = run.get(field) {
            words.extend([flag.to_string(), value.as_str().map_or(value.to_string(), str::to_string)]);
        }
    }
    if let Some(way) = run["attention"].as_str().filter(|way| *way != "none") {
        words.extend(["--attention".into(), way.into()]);
    }
    if run.get("logits_to_keep").is_some_and(|n| *n == 1) {
        words.extend(["--logits".into(), "last".into()]);
    }
    words.extend(["--dtype".into(), "bf16".into()]);
    words
}

/// What the program answers for a run, as lines; the number of parameters first.
fn answer(config: &Path, run: &Value) -> Vec<String> {
    let is_plain = std::fs::read_to_string(config).unwrap().contains("plain_gpt3");
    let subject = if is_plain { "gpt3-xl".into() } else { config.display().to_string() };
    let done = Command::new(env!("CARGO_BIN_EXE_gemwright"))
        .args(["model", &subject, "--format", "json"])
        .args(arguments(run))
        .output()
        .unwrap();
    assert!(done.status.success(), "{run}: {}", String::from_utf8_lossy(&done.stderr));
    let json: Value = serde_json::from_slice(&done.stdout).unwrap();
    let calls = json["calls"].as_array().unwrap().iter().map(line);
    std::iter::once(format!("parameters {}", json["parameters"])).chain(calls).collect()
}

fn check(path: &Path) -> usize {
    let text = std::fs::read_to_string(path).unwrap();
    let name = path.file_stem().unwrap().to_string_lossy().into_owned();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(&name);
    std::fs::create_dir_all(&folder).unwrap();
    let mut configs = Vec::new();
    let mut parameters = String::new();
    let mut runs: Vec<(Value, Vec<String>)> = Vec::new();
    for text in text.lines() {
        match text.split_once(' ').unwrap() {
            (form @ ("config" | "given"), json) => {
                let file = folder.join(format!("{form}.json"));
                std::fs::write(&file, json).unwrap();
                configs.push(file);
            }
            ("parameters", _) => parameters = text.into(),
            ("run", json) => runs.push((serde_json::from_str(json).unwrap(), vec![parameters.clone()])),
            _ => runs.last_mut().unwrap().1.push(text.into()),
        }
    }
    for config in &configs {
        for (run, want) in &runs {
            let got = answer(config, run);
            let differs = got.iter().zip(want).position(|(x, y)| x != y).unwrap_or(got.len().min(want.len()));
            assert!(
                got == *want,
                "{name}, {}, {run}: line {differs}\n  want {:?}\n  got  {:?}",
                config.file_name().unwrap().display(),
                want.get(differs),
                got.get(differs)
            );
        }
    }
    configs.len() * runs.len()
}

#[test]
fn every_recorded_call_is_predicted() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden");
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.retain(|path| path.extension().is_some_and(|end| end == "txt"));
    // The files wait for whoever has time.
    let (next, threads) = (AtomicUsize::new(0), std::thread::available_parallelism().map_or(1, usize::from));
    let some = || {
        let files = std::iter::from_fn(|| paths.get(next.fetch_add(1, Ordering::Relaxed)));
        files.map(|path| check(path)).sum::<usize>()
    };
    let runs: usize = std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(some)).collect();
        all.into_iter().map(|one| one.join().unwrap()).sum()
    });
    assert!(runs >= 500, "only {runs} runs were compared");
}
