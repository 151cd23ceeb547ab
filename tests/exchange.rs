//! `export` and `lint` as a user runs them, and other tools' lists and logs as workloads.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::Command;

fn gemwright(words: &[&str]) -> (Option<i32>, String, String) {
    let done = Command::new(env!("CARGO_BIN_EXE_gemwright")).args(words).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (done.status.code(), text(done.stdout), text(done.stderr))
}

fn scratch(name: &str, text: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).unwrap();
    path
}

const STEP: [&str; 9] = ["export", "llama-3.1-8b", "--engine", "vllm", "--tp", "8", "--tokens", "48", "--sampled=5"];

#[test]
fn a_step_of_an_engine_becomes_a_tuners_list() {
    let (code, out, message) = gemwright(&[&STEP[..], &["--to", "aiter"]].concat());
    assert_eq!(code, Some(0), "{message}");
    let expected = [[48, 768, 4096], [48, 4096, 512], [48, 3584, 4096], [48, 4096, 1792], [5, 16032, 4096]];
    let tail = "False,torch.bfloat16,torch.bfloat16,False,False";
    let rows: Vec<String> = expected.iter().map(|[m, n, k]| format!("{m},{n},{k},{tail}")).collect();
    assert_eq!(out.lines().skip(1).collect::<Vec<_>>(), rows);
    let (_, short, message) = gemwright(&[&STEP[..], &["--to", "aiter", "--top", "50%"]].concat());
    assert!(short.lines().count() < out.lines().count() && message.contains("of the time at the roof"), "{message}");
}

/// What is written is read back, and written again it is the same.
#[test]
fn lists_come_back() {
    for (to, more) in [
        ("tunableop", vec![]),
        ("hipblaslt-bench", vec![]),
        ("hipblaslt-bench", vec!["--yaml"]),
        ("rocblas-bench", vec![]),
        ("rocblas-bench", vec!["--yaml"]),
        ("aiter", vec![]),
        ("nvmatmulheuristics", vec![]),
        ("cutlass-profiler", vec![]),
    ] {
        let ask = |subject: &str, options: &[&str]| {
            let (code, out, message) =
                gemwright(&[&["export", subject][..], options, &["--to", to, "--quiet"], &more].concat());
            assert_eq!(code, Some(0), "{message}");
            out
        };
        // One with biases, batches and gradients, one whose products every format can hold.
        let mut first = ask("gpt2", &["--phase", "train", "--batch", "2", "--seq", "64"]);
        if first.lines().count() <= 4 {
            first = ask("llama-2-7b", &["--layers", "1", "--phase", "train", "--seq", "64"]);
        }
        let file = scratch(&format!("list-{to}-{}.txt", more.len()), &first);
        assert!(first.lines().count() > 4, "{first}");
        assert_eq!(ask(file.to_str().unwrap(), &[]), first, "{to}");
    }
}

#[test]
fn what_a_format_cannot_hold_is_said() {
    let (code, out, message) =
        gemwright(&["export", "mixtral-8x7b", "--phase", "decode", "--to", "nvmatmulheuristics"]);
    assert_eq!(code, Some(0), "{message}");
    assert!(serde_json::from_str::<serde_json::Value>(&out).unwrap().as_array().unwrap().len() > 3);
    assert!(message.contains("left out") && message.contains("experts"), "{message}");
    let (_, _, message) = gemwright(&["export", "opt-125m", "--phase", "decode", "--to", "rocblas-bench"]);
    assert!(message.contains("the bias of"), "{message}");
    let words = ["export", "mixtral-8x7b", "--engine", "vllm", "--tp", "2", "--tokens", "8", "--to", "vllm-moe"];
    let (_, out, _) = gemwright(&words);
    assert!(out.starts_with("E=8,N=7168,device_name=NVIDIA_H200.json"), "{out}");
}

/// The name as vLLM and SGLang take it apart: pairs between commas, E the experts of a rank, N what lies between their two
/// products.
#[test]
fn names_of_expert_files_are_those_of_the_products() {
    for (engine, to, more) in [
        ("vllm", "vllm-moe", vec!["--tp", "2"]),
        ("sglang", "sglang-moe", vec!["--tp", "4"]),
        ("vllm", "vllm-moe", vec!["--tp", "4", "--ep", "4"]),
    ] {
        let step = [&["qwen3-30b-a3b", "--engine", engine, "--tokens", "64", "--quiet"][..], &more].concat();
        let (code, out, message) = gemwright(&[&["export"][..], &step, &["--to", to]].concat());
        assert_eq!(code, Some(0), "{message}");
        let name = out.lines().next().unwrap().strip_suffix(".json").unwrap();
        let part = |key: &str| name.split(',').find_map(|pair| pair.strip_prefix(key)?.strip_prefix('=')).unwrap();
        let (experts, inner): (u64, u64) = (part("E").parse().unwrap(), part("N").parse().unwrap());
        assert_eq!(part("device_name"), "NVIDIA_H200");
        let (_, json, _) = gemwright(&[&["model"][..], &step, &["--format", "json"]].concat());
        let model: serde_json::Value = serde_json::from_str(&json).unwrap();
        let weights: Vec<[u64; 3]> = (model["calls"].as_array().unwrap().iter())
            .filter(|call| call["op"] == "aten::_grouped_mm")
            .map(|call| [0, 1, 2].map(|i| call["b"]["size"][i].as_u64().unwrap()))
            .collect();
        assert_eq!(weights, [[experts, 2048, 2 * inner], [experts, inner, 2048]], "{name}");
    }
}

#[test]
fn a_log_is_a_workload() {
    let call = "I! cuBLAS (v13.1.0) cublasGemmEx\n  transa (cublasOperation_t) = CUBLAS_OP_T(1)\n  \
                transb (cublasOperation_t) = CUBLAS_OP_N(0)\n  m (int) = 6144\n  n (int) = 128\n  k (int) = 4096\n  \
                Atype (cudaDataType_t) = CUDA_R_16BF(14)\n  lda (int) = 4096\n  ldb (int) = 4096\n  \
                Ctype (cudaDataType_t) = CUDA_R_16BF(14)\n  ldc (int) = 6144\n";
    let log = scratch("cublas.log", &call.repeat(3));
    let (code, out, message) = gemwright(&["roof", log.to_str().unwrap(), "--on", "h200", "--format", "csv"]);
    assert_eq!(code, Some(0), "{message}");
    assert!(out.contains("128,6144,4096") && out.contains(",3,"), "{out}");
    let nothing = scratch("nothing.log", "a line\nanother\n");
    let (code, _, message) = gemwright(&["roof", nothing.to_str().unwrap(), "--on", "h200"]);
    assert_eq!(code, Some(2));
    assert!(message.contains("TunableOp"), "{message}");
}

#[test]
fn a_table_is_held_against_a_log_of_misses() {
    let head = "gfx,cu_num,M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle,libtype,solidx,splitK,us,kernelName,err_ratio,tflops,bw";
    let row = "gfx942,304,16,2624,6144,False,torch.bfloat16,torch.bfloat16,False,False,asm,1,0,9.5,k,0,1,1";
    let table = scratch("tuned.csv", &format!("{head}\n{row}\n"));
    let log = |n: u32| {
        let text = format!("INFO shape is M:5, N:{n}, K:6144 dtype=torch.bfloat16, not found tuned config in x.csv\n");
        scratch(&format!("miss-{n}.log"), &text)
    };
    // The table as products with their times, the farthest from the roof first.
    let two = scratch("two.csv", &format!("{head}\n{row}\n{}\n", row.replace(",16,", ",4096,").replace("9.5", "900")));
    let (code, out, message) = gemwright(&["roof", two.to_str().unwrap(), "--on", "mi300x", "--format", "csv"]);
    assert_eq!(code, Some(0), "{message}");
    assert!(out.contains("of roof") && out.contains("0.0000095"), "{out}");
    assert!(out.find("4096,2624").unwrap() < out.find("16,2624").unwrap(), "{out}");
    let lint = |log: &Path| {
        gemwright(&["lint", table.to_str().unwrap(), "--workload", log.to_str().unwrap(), "--on", "mi300x"])
    };
    let (code, out, _) = lint(&log(2688));
    assert_eq!(code, Some(1));
    assert!(out.contains("2688 is 2624 rounded up to 128"), "{out}");
    let (code, out, message) = lint(&log(2624));
    assert_eq!(code, Some(0), "{message}{out}");
    assert!(out.contains("nothing is wrong"), "{out}");
    let (code, _, message) = gemwright(&["lint", log(1).to_str().unwrap()]);
    assert_eq!((code, message.contains("no tuned table")), (Some(2), true), "{message}");
}
