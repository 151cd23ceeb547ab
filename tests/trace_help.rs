//! Small traces made by hand, and the program's answer to them.
#![allow(dead_code)]

use serde_json::{Value, json};
use std::io::Write;
use std::process::{Command, Stdio};

/// Events as Kineto writes them: an operation, its launch, the arrow and the kernel.
pub fn launched(id: u64, start: f64, kernel: f64, length: f64) -> Vec<Value> {
    vec![
        json!({"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": start, "dur": 20.0,
            "args": {"External id": id, "Input Dims": [[2, 3], [3, 4]], "Input type": ["float", "float"],
            "Input Strides": [[3, 1], [4, 1]], "Concrete Inputs": ["", ""]}}),
        json!({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": start + 2.0,
            "dur": 5.0, "args": {"External id": id, "correlation": id}}),
        json!({"ph": "s", "id": id, "pid": 1, "tid": 1, "ts": start + 2.0, "cat": "ac2g", "name": "ac2g"}),
        json!({"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": kernel, "dur": length,
            "args": {"External id": id, "correlation": id, "stream": 7, "device": 0}}),
        json!({"ph": "f", "id": id, "pid": 0, "tid": 7, "ts": kernel, "cat": "ac2g", "name": "ac2g", "bp": "e"}),
    ]
}

pub fn two() -> Vec<Value> {
    [launched(1, 100.0, 150.0, 10.5), launched(2, 200.0, 250.0, 20.25)].concat()
}

/// The program's answer to a text, given on stdin.
pub fn answer(bytes: &[u8], words: &[&str]) -> (Option<i32>, String, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_gemwright"))
        .args(["trace", "-", "--format", "json"])
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let bytes = bytes.to_vec();
    // A program that refuses early does not read to the end.
    let writer = std::thread::spawn(move || input.write_all(&bytes));
    let done = child.wait_with_output().unwrap();
    let _ = writer.join().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (done.status.code(), text(done.stdout), text(done.stderr))
}

pub fn tables(bytes: &[u8], words: &[&str]) -> Value {
    let (code, out, message) = answer(bytes, words);
    assert_eq!(code, Some(0), "{message}");
    serde_json::from_str(&out).unwrap()
}

pub fn object(events: &[Value]) -> Vec<u8> {
    json!({"schemaVersion": 1, "traceEvents": events}).to_string().into_bytes()
}

pub fn busy(answer: &Value) -> f64 {
    let rows = answer["tables"]["gpu_timeline"].as_array().unwrap();
    rows.iter().find(|r| r["type"] == "busy_time").unwrap()["time ms"].as_f64().unwrap()
}

pub fn problems(answer: &Value) -> String {
    answer["problems"].to_string()
}
