//! `bench` and `doctor` as a user runs them.
#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::process::Command;

fn gemwright(words: &[&str]) -> (Option<i32>, String, String) {
    let done =
        Command::new(env!("CARGO_BIN_EXE_gemwright")).args(words).env_remove("GEMWRIGHT_KERNEL").output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (done.status.code(), text(done.stdout), text(done.stderr))
}

#[test]
fn doctor_checks_every_kernel() {
    let (code, out, message) = gemwright(&["doctor", "--format", "json"]);
    assert_eq!(code, Some(0), "{message}");
    let answer: Value = serde_json::from_str(&out).unwrap();
    let own = |c: &&Value| c["name"].as_str().unwrap().starts_with("own.");
    let kernels = answer["candidates"].as_array().unwrap().iter().filter(own).count();
    assert_eq!(kernels, answer["machine"]["kernels"].as_array().unwrap().len());
    assert!(answer["limits"]["limit.read"].as_f64().unwrap() > 1e8);
    assert!(answer["latencies"]["product"].as_f64().unwrap() < 1e-4);
    assert!(answer["machine"]["instructions"].is_array());
}

#[test]
fn bench_measures_a_product_and_a_model() {
    let (code, out, message) = gemwright(&[
        "bench",
        "33",
        "40",
        "50",
        "--against",
        "none",
        "--rounds",
        "3",
        "--threads",
        "1",
        "--format",
        "json",
    ]);
    assert_eq!(code, Some(0), "{message}");
    let answer: Value = serde_json::from_str(&out).unwrap();
    let product = &answer["products"][0];
    assert_eq!(product["flags"], "TN");
    assert_eq!(product["seconds"][0]["values"].as_array().map(Vec::len), Some(3));
    assert_eq!(product["limits"].as_array().map(Vec::len), Some(3));
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("bench-record");
    let words = ["bench", "gpt2", "--layers", "1", "--phase", "prefill", "--seq", "8", "--logits", "last"];
    let more = ["--against", "none", "--rounds", "2", "--record", folder.to_str().unwrap()];
    let (code, out, message) = gemwright(&[&words[..], &more[..]].concat());
    assert_eq!(code, Some(0), "{message}");
    assert!(out.contains("c_attn") && out.contains("own."), "{out}");
    for name in ["raw.json", "table.csv", "table.md", "plot.svg", "page.html"] {
        assert!(folder.join(name).is_file());
    }
}

#[test]
fn a_page_of_a_bench_has_its_times() {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("bench.html");
    let words = ["bench", "20", "40", "64", "--against", "none", "--rounds", "2", "--html", path.to_str().unwrap()];
    let (code, _, message) = gemwright(&words);
    assert_eq!(code, Some(0), "{message}");
    let html = std::fs::read_to_string(&path).unwrap();
    let start = html.find("application/json\">").unwrap() + 18;
    let data: Value = serde_json::from_str(&html[start..start + html[start..].find("</script>").unwrap()]).unwrap();
    assert_eq!(data["plot"]["dots"][0]["x"], 20);
    assert_eq!(data["plot"]["curves"].as_array().unwrap().len(), 1);
    assert!(html.contains("without another candidate"));
}

/// The type of every library's result by default, that of a model where it is asked for.
#[test]
fn bf16_gives_either_type() {
    for (more, out) in [(&[][..], "f32"), (&["--out-dtype", "bf16"][..], "bf16")] {
        let words = ["bench", "20", "40", "64", "--dtype", "bf16", "--against", "none", "--rounds", "2"];
        let (code, text, message) = gemwright(&[&words[..], more, &["--format", "json"]].concat());
        assert_eq!(code, Some(0), "{message}");
        let answer: Value = serde_json::from_str(&text).unwrap();
        let product = &answer["products"][0];
        assert_eq!((&product["dtype"], &product["out_dtype"]), (&"bf16".into(), &out.into()));
        assert!(product["seconds"][0]["name"].as_str().is_some_and(|name| name.ends_with("-bf16")), "{product}");
    }
}

#[test]
fn what_is_not_here_is_said() {
    for (words, code, part) in [
        (vec!["bench", "8", "8", "8", "--kernel", "nothing-f32"], 3, "this machine runs"),
        (vec!["bench", "8", "8", "8", "--device", "cuda", "--dtype", "f32"], 3, "bf16 or f16"),
        (vec!["bench", "8", "8", "8", "--dtype", "f16"], 3, "f32, f64 or bf16"),
        (vec!["bench", "8", "8", "8", "--dtype", "f32", "--out-dtype", "bf16"], 2, "f32 gives f32"),
        (vec!["bench", "8", "8", "8", "--against", "nobody"], 2, "known are"),
        (vec!["bench", "8", "8", "8", "--kernel", "portable-f64"], 2, "multiplies f64"),
        (vec!["bench", "8", "8"], 2, "give M N K"),
        (vec!["bench", "8", "8", "8", "--sustained"], 2, "--device cuda"),
        (vec!["bench", "8", "8", "8", "--schedules"], 2, "--device cuda"),
        (vec!["bench", "8", "8", "8", "--epilogue", "silu,gated"], 2, "--device cuda"),
    ] {
        let (found, _, message) = gemwright(&words);
        assert_eq!(found, Some(code), "{words:?}: {message}");
        assert!(message.contains(part), "{words:?}: {message}");
    }
}

/// A machine without NVIDIA's driver, or with one that is something else, is told so.
#[test]
fn a_gpu_that_is_not_here_is_said() {
    let folder = std::env::temp_dir().join(format!("gemwright-cuda-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let other = folder.join("libcuda.so.1");
    std::fs::write(&other, "no library").unwrap();
    for words in [&["bench", "8", "8", "8", "--device", "cuda"][..], &["doctor", "--device", "cuda"][..]] {
        for (path, part) in [(folder.join("nowhere.so"), "no such file"), (other.clone(), "libcuda.so.1")] {
            let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_gemwright"));
            let out = command.args(words).env("GEMWRIGHT_CUDA", path).output().unwrap();
            let message = String::from_utf8_lossy(&out.stderr);
            assert_eq!(out.status.code(), Some(3), "{words:?}: {message}");
            assert!(message.contains(part) && message.contains("driver"), "{words:?}: {message}");
        }
    }
    std::fs::remove_dir_all(folder).unwrap();
}
