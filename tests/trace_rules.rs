//! Where the default differs from TraceLens, each with figures worked out by hand. The numbers are those
//! of docs/tracelens.md.
#![allow(clippy::unwrap_used)]

#[path = "trace_help.rs"]
mod trace_help;

use serde_json::{Value, json};
use std::path::PathBuf;
use trace_help::{busy, launched, object, problems, tables, two};

const THEIRS: [&str; 2] = ["--compat", "tracelens"];

/// An event on the GPU; microseconds.
fn kernel(name: &str, correlation: u64, stream: u64, start: f64, length: f64) -> Value {
    json!({"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream, "ts": start, "dur": length,
        "args": {"correlation": correlation, "stream": stream, "device": 0}})
}

fn rows<'a>(answer: &'a Value, table: &str) -> &'a Vec<Value> {
    answer["tables"][table].as_array().unwrap_or_else(|| panic!("{table}: {answer}"))
}

fn row<'a>(answer: &'a Value, table: &str, key: &str, name: &str) -> &'a Value {
    let found = rows(answer, table).iter().find(|row| row[key] == name);
    found.unwrap_or_else(|| panic!("{table} has no {name}: {answer}"))
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// The rows of every table of operations add up to the busy time.
fn adds_up(answer: &Value) {
    for table in ["ops_summary_by_category", "ops_summary", "ops_unique_args"] {
        let sum: f64 = rows(answer, table).iter().map(|row| number(&row["busy_time_ms"])).sum();
        assert!((sum - busy(answer)).abs() < 1e-9, "{table}: {sum} against {}", busy(answer));
        let shares: f64 = rows(answer, table).iter().map(|row| number(&row["Percentage (%)"])).sum();
        assert!((shares - 100.0).abs() < 1e-9, "{table}: {shares} %");
    }
}

/// Point 2: 10.5 + 20.25 µs are tied, 5 µs were launched before the recording began.
#[test]
fn what_was_launched_outside_the_recording_has_a_row() {
    let mut events = two();
    events.push(kernel("lost", 9, 7, 300.0, 5.0));
    let ours = tables(&object(&events), &[]);
    assert_eq!(busy(&ours), 0.03575);
    assert_eq!(row(&ours, "ops_summary", "name", "(unlinked)")["busy_time_ms"], 0.005);
    assert_eq!(row(&ours, "ops_summary_by_category", "op category", "(unlinked)")["Count"], 1);
    assert_eq!(row(&ours, "kernel_summary", "Kernel name", "lost")["Parent cpu_op"], "(unlinked)");
    let shares = number(&row(&ours, "ops_summary", "name", "(unlinked)")["Percentage (%)"]);
    assert!((shares - 100.0 * 5.0 / 35.75).abs() < 1e-9, "{shares}");
    adds_up(&ours);
    let theirs = tables(&object(&events), &THEIRS);
    assert_eq!((busy(&theirs), rows(&theirs, "ops_summary").len()), (0.03075, 1));
}

/// Point 13: a driver call inside a runtime call. The operation is aten::mm, not the runtime call.
#[test]
fn a_driver_call_inside_a_runtime_call_hides_no_operation() {
    let mut events = launched(1, 100.0, 150.0, 10.0);
    events[1]["args"]["correlation"] = 77.into();
    events.push(json!({"ph": "X", "cat": "cuda_driver", "name": "cuLaunchKernelEx", "pid": 1, "tid": 1, "ts": 103.0,
        "dur": 2.0, "args": {"correlation": 1}}));
    let name = |answer: &Value| rows(answer, "ops_summary")[0]["name"].clone();
    assert_eq!(name(&tables(&object(&events), &[])), "aten::mm");
    assert_eq!(name(&tables(&object(&events), &THEIRS)), "cuLaunchKernelEx");
}

/// The same events as of another process on another GPU, whatever later they begin.
fn as_process(events: Vec<Value>, host: u64, gpu: u64, later: f64) -> Vec<Value> {
    let own = |mut event: Value| {
        event["pid"] = if event["pid"] == 1 { host } else { gpu }.into();
        event["ts"] = (event["ts"].as_f64().unwrap() + later).into();
        event
    };
    events.into_iter().map(own).collect()
}

/// Point 14: two processes count their launches from 1. Each kernel goes to its own process.
#[test]
fn processes_of_one_file_may_count_alike() {
    let mut second = as_process(launched(1, 100.0, 150.0, 7.0), 2, 10, 1.0);
    second[0]["name"] = "aten::bmm".into();
    let first = launched(1, 100.0, 150.0, 10.0);
    let apart = [first.clone(), second.clone()].concat();
    let mixed: Vec<Value> = first.into_iter().zip(second).flat_map(|(x, y)| [x, y]).collect();
    for events in [apart, mixed] {
        let ours = tables(&object(&events), &[]);
        let time = |name: &str| number(&row(&ours, "ops_summary", "name", name)["busy_time_ms"]);
        assert_eq!((time("aten::mm"), time("aten::bmm")), (0.01, 0.007));
        adds_up(&ours);
    }
}

/// Point 15: GPU 0 runs from 0 to 10, GPU 1 from 5 to 7 µs. Laid over one another nothing is idle; apart,
/// of 2 x 10 µs 12 are busy.
#[test]
fn every_gpu_has_a_timeline_of_its_own() {
    let mut events = launched(1, 100.0, 200.0, 10.0);
    let mut other = launched(2, 130.0, 205.0, 2.0);
    (other[3]["pid"], other[3]["args"]["device"], other[4]["pid"]) = (1.into(), 1.into(), 1.into());
    events.extend(other);
    let ours = tables(&object(&events), &[]);
    let time = |kind: &str| number(&row(&ours, "gpu_timeline", "type", kind)["time ms"]);
    assert_eq!((time("busy_time"), time("idle_time"), time("total_time")), (0.012, 0.008, 0.02));
    let apart = rows(&ours, "gpu_timeline_by_device");
    let of = |device: &str, kind: &str| {
        let found = apart.iter().find(|row| row["device"] == device && row["type"] == kind);
        number(&found.unwrap()["percent"])
    };
    assert_eq!((of("0", "idle_time"), of("1", "idle_time"), of("1", "busy_time")), (0.0, 80.0, 20.0));
    adds_up(&ours);
    let theirs = tables(&object(&events), &THEIRS);
    assert_eq!(number(&row(&theirs, "gpu_timeline", "type", "idle_time")["time ms"]), 0.0);
    assert!(theirs["tables"]["gpu_timeline_by_device"].is_null());
}

/// Point 16: a kernel of 1000 µs swallows one from 160 to 165 of its own stream, which cannot be: it is cut
/// at 160. One that merely drains while the next begins is left as it is.
#[test]
fn a_kernel_cannot_run_past_later_ones_of_its_stream() {
    let events = [launched(1, 100.0, 150.0, 1000.0), launched(2, 130.0, 160.0, 5.0)].concat();
    let ours = tables(&object(&events), &[]);
    assert_eq!((busy(&ours), problems(&ours).contains("0.990 ms in all")), (0.015, true), "{}", problems(&ours));
    adds_up(&ours);
    assert_eq!(busy(&tables(&object(&events), &THEIRS)), 1.0);
    let overlap = [launched(1, 100.0, 150.0, 10.5), launched(2, 130.0, 160.0, 5.0)].concat();
    let ours = tables(&object(&overlap), &[]);
    assert_eq!((busy(&ours), ours["problems"].as_array().unwrap().len()), (0.015, 0));
    assert_eq!(number(&row(&ours, "ops_summary", "name", "aten::mm")["total_direct_kernel_time_sum"]), 15.5);
    adds_up(&ours);
    // A length below zero is none.
    let events = [launched(1, 100.0, 150.0, 10.0), launched(2, 130.0, 170.0, -8.0)].concat();
    let ours = tables(&object(&events), &[]);
    assert_eq!((busy(&ours), problems(&ours).contains("negative")), (0.01, true));
}

/// Point 17: two operations at once on two streams, 0 to 10 and 5 to 15 µs. Both took 10 µs; of the 15 busy
/// ones the first has 10 and the second 5. Communication has what computing leaves of it.
#[test]
fn an_instant_counts_once() {
    let mut events = launched(1, 100.0, 200.0, 10.0);
    let mut other = launched(2, 130.0, 205.0, 10.0);
    other[0]["name"] = "aten::bmm".into();
    (other[3]["tid"], other[3]["args"]["stream"], other[4]["tid"]) = (8.into(), 8.into(), 8.into());
    events.extend(other);
    let ours = tables(&object(&events), &[]);
    let of = |name: &str, column: &str| number(&row(&ours, "ops_summary", "name", name)[column]);
    assert_eq!((of("aten::mm", "busy_time_ms"), of("aten::bmm", "busy_time_ms")), (0.01, 0.005));
    assert_eq!(of("aten::bmm", "total_direct_kernel_time_ms"), 0.01);
    assert!((of("aten::mm", "Percent of total time (%)") - 100.0 * 10.0 / 15.0).abs() < 1e-9);
    adds_up(&ours);
    let theirs = tables(&object(&events), &THEIRS);
    assert_eq!(row(&theirs, "ops_summary", "name", "aten::bmm")["Percentage (%)"], 50.0);
    // The first of them is a sum over GPUs now: it has only what is left, 0 to 5.
    events[0]["name"] = "c10d::allreduce_".into();
    events[3]["name"] = "ncclDevKernel_AllReduce".into();
    let ours = tables(&object(&events), &[]);
    let of = |name: &str, column: &str| row(&ours, "ops_summary", "name", name)[column].clone();
    assert_eq!((of("c10d::allreduce_", "busy_time_ms"), of("aten::bmm", "busy_time_ms")), (0.005.into(), 0.01.into()));
    assert_eq!(of("c10d::allreduce_", "Categories"), "['communication']");
    adds_up(&ours);
}

/// Point 18: the same operation launches one kernel, then two. All three are in its list.
#[test]
fn no_kernel_is_left_out_of_an_operations_list() {
    let mut events = two();
    events.push(json!({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 208.0,
        "dur": 1.0, "args": {"correlation": 3}}));
    events.push(json!({"ph": "s", "id": 3, "pid": 1, "tid": 1, "ts": 208.0, "cat": "ac2g", "name": "ac2g"}));
    events.push(kernel("reduce", 3, 7, 280.0, 1.0));
    events.push(json!({"ph": "f", "id": 3, "pid": 0, "tid": 7, "ts": 280.0, "cat": "ac2g", "name": "ac2g"}));
    let details = |answer: &Value| rows(answer, "ops_unique_args")[0]["kernel_details_summary"].to_string();
    let ours = details(&tables(&object(&events), &[]));
    assert!(
        ours.contains("'reduce', 'stream': 7, 'count': 1") && ours.contains("'gemm', 'stream': 7, 'count': 2"),
        "{ours}"
    );
    let theirs = details(&tables(&object(&events), &THEIRS));
    assert!(!theirs.contains("reduce") && theirs.contains("'count': 1"), "{theirs}");
}

/// Point 20: older names of categories and of arrows, launches without arrows (`tests/traces.rs`).
#[test]
fn older_names_are_known() {
    let old = |name: &str| match name {
        "cpu_op" => "Operator",
        "cuda_runtime" => "Runtime",
        "kernel" => "Kernel",
        _ => "async_gpu",
    };
    let mut events = two();
    for event in &mut events {
        let cat = event["cat"].as_str().unwrap().to_string();
        event["cat"] = old(&cat).into();
    }
    assert_eq!(tables(&object(&events), &[])["tables"], tables(&object(&two()), &[])["tables"]);
}

/// Point 4: what stands in a trace is compared with words, never run.
#[test]
fn nothing_of_a_trace_is_evaluated() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let proof = folder.join("evaluated");
    let _ = std::fs::remove_file(&proof);
    let call = format!("__import__('os').system('touch {}')", proof.display());
    let mut events = launched(1, 100.0, 150.0, 10.0);
    events[0]["name"] = "aten::convolution".into();
    events[0]["args"]["Input Dims"] = json!([[1, 3, 8, 8], [4, 3, 3, 3], [], [], [], [], [], [], []]);
    events[0]["args"]["Input Strides"] = json!([[192, 64, 8, 1], [27, 9, 3, 1], [], [], [], [], [], [], []]);
    events[0]["args"]["Input type"] = json!(["float", "float", "", "", "", "", "", "", ""]);
    let mut values = json!(["", "", "", "[1, 1]", "[0, 0]", "[1, 1]", call, "[0, 0]", "1"]);
    let saved = folder.join("never-run.json");
    for words in [&["--save", saved.to_str().unwrap()][..], &THEIRS] {
        events[0]["args"]["Concrete Inputs"] = values.clone();
        tables(&object(&events), words);
        assert!(!proof.exists());
    }
    let list: Value = serde_json::from_slice(&std::fs::read(&saved).unwrap()).unwrap();
    assert_eq!(list["calls"], json!([]));
    assert!(list["warnings"][0].as_str().unwrap().contains("neither True nor False"), "{list}");
    values[6] = "False".into();
    events[0]["args"]["Concrete Inputs"] = values;
    tables(&object(&events), &["--save", saved.to_str().unwrap()]);
    let list: Value = serde_json::from_slice(&std::fs::read(&saved).unwrap()).unwrap();
    assert_eq!(list["calls"][0]["product"], json!({"batch": 1, "m": 36, "n": 4, "k": 27}));
}

/// A forward operation of 10 µs, and a node of the backward graph of the same sequence number with 30 µs.
#[test]
fn forward_and_backward_are_tied_by_their_number() {
    let mut forward = launched(1, 100.0, 150.0, 10.0);
    forward[0]["args"]["Sequence number"] = 5.into();
    let mut backward = launched(2, 200.0, 250.0, 30.0);
    let node = json!({"ph": "X", "cat": "cpu_op", "name": "autograd::engine::evaluate_function: MmBackward0", "pid": 1,
        "tid": 2, "ts": 199.0, "dur": 30.0, "args": {"Sequence number": 5, "Fwd thread id": 1}});
    for event in &mut backward {
        if event["tid"] == 1 {
            event["tid"] = 2.into();
        }
    }
    let ours = tables(&object(&[forward, vec![node], backward].concat()), &[]);
    let row = row(&ours, "ops_backward", "name", "aten::mm");
    assert_eq!((&row["Count"], &row["forward_kernel_time_ms"]), (&json!(1), &json!(0.01)));
    assert_eq!((&row["backward_kernel_time_ms"], &row["backward / forward"]), (&json!(0.03), &json!(3.0)));
}

/// A graph launch keeps all its kernels, though they have one number.
#[test]
fn a_graph_launch_keeps_its_kernels() {
    let mut events = launched(1, 100.0, 150.0, 10.0);
    events[1]["name"] = "cudaGraphLaunch".into();
    events.push(kernel("second", 1, 7, 165.0, 5.0));
    for words in [&[][..], &THEIRS] {
        let answer = tables(&object(&events), words);
        assert_eq!(number(&row(&answer, "ops_summary", "name", "aten::mm")["total_direct_kernel_time_sum"]), 15.0);
    }
}

/// Point 1: layer_norm with native_layer_norm inside, 10 µs on the GPU: one row has them, the outer one.
#[test]
fn nested_operations_count_once() {
    let mut events = launched(1, 100.0, 150.0, 10.0);
    events[0]["name"] = "aten::native_layer_norm".into();
    let args = json!({"External id": 1, "Input Dims": [[3, 4], [], [4], [4], []], "Input Strides": [[4, 1], [], [1], [1], []],
        "Input type": ["float", "ScalarList", "float", "float", "Scalar"], "Concrete Inputs": ["", "[4]", "", "", "1e-5"]});
    events[0]["args"] = args.clone();
    let outer = json!({"ph": "X", "cat": "cpu_op", "name": "aten::layer_norm", "pid": 1, "tid": 1, "ts": 99.0, "dur": 30.0,
        "args": args});
    events.insert(0, outer);
    let ours = tables(&object(&events), &[]);
    let list = rows(&ours, "unified_perf_summary");
    assert_eq!((list.len(), &list[0]["name"]), (1, &json!("aten::layer_norm")));
    // 8 for each of 12 elements; 12 read, 12 written, weight and bias of 4: 32 elements of four bytes.
    assert_eq!((&list[0]["GFLOPS"], &list[0]["Data Moved (bytes)"]), (&json!(96e-9), &json!(128.0)));
    let theirs = tables(&object(&events), &THEIRS);
    let sheet: f64 = rows(&theirs, "Normalization").iter().map(|row| number(&row["Kernel Time (µs)_sum"])).sum();
    assert_eq!(sheet, 20.0);
}

/// Every kernel, copy and fill is in one row: their durations add up to the nanosecond.
#[test]
fn the_unified_table_adds_up_to_all_durations() {
    for name in ["h200_gpt3xl_train", "synth_train", "synth_serve", "h200_llama31_graph"] {
        let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../tests/traces")
            .join(name)
            .join("trace.json.gz");
        let mut text = Vec::new();
        let packed = std::fs::File::open(&file).unwrap();
        std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(packed), &mut text).unwrap();
        let trace: Value = serde_json::from_slice(&text).unwrap();
        let on_gpu =
            |e: &&Value| matches!(e["cat"].as_str(), Some("kernel" | "gpu_memcpy" | "gpu_memset")) && e["ph"] == "X";
        let nanoseconds = |e: &Value| (number(&e["dur"]) * 1e3).round() as i64;
        let want: i64 = trace["traceEvents"].as_array().unwrap().iter().filter(on_gpu).map(nanoseconds).sum();
        let ours = tables(&text, &[]);
        let list = rows(&ours, "unified_perf_summary");
        let sum: i64 = list.iter().map(|row| (number(&row["Kernel Time (µs)_sum"]) * 1e3).round() as i64).sum();
        assert_eq!(sum, want, "{name}");
    }
}

/// The chip is the one the trace names, or the one that fits; the H200 needs at least 1.879 µs... for what it reads.
#[test]
fn the_roof_is_that_of_the_traces_chip() {
    let events = launched(1, 100.0, 150.0, 10.0);
    let with = |device: Value| json!({"deviceProperties": [device], "traceEvents": events}).to_string().into_bytes();
    let named = tables(
        &with(json!({"id": 0, "name": "NVIDIA H200", "numSms": 132, "totalGlobalMem": 150_109_880_320u64})),
        &[],
    );
    let fitting = tables(&with(json!({"id": 0, "name": "", "numSms": 304, "totalGlobalMem": 206_141_652_992u64})), &[]);
    // [2, 3] · [3, 4] in f32: 6 + 12 + 8 elements of four bytes, at 4.8 and 5.3 TB/s.
    for (answer, bandwidth) in [(&named, 4.8e12), (&fitting, 5.3e12)] {
        let row = &rows(answer, "unified_perf_summary")[0];
        let roof = number(&row["Roofline Time (µs)"]);
        assert!((roof - 104.0 / bandwidth * 1e6).abs() < 1e-12, "{roof}");
        assert_eq!(row["Roofline Bound"], "MEMORY_BOUND");
    }
    let unknown = tables(&with(json!({"id": 0, "name": "Something", "numSms": 1, "totalGlobalMem": 1})), &[]);
    assert!(rows(&unknown, "unified_perf_summary")[0].get("Roofline Time (µs)").is_none());
    let asked = tables(&with(json!({"id": 0, "name": "Something"})), &["--on", "h200"]);
    assert!(number(&rows(&asked, "unified_perf_summary")[0]["recoverable_time_ms"]) > 0.009);
}

/// GPT-3 XL has 24 blocks with four linear layers each, and a head; what runs backward belongs to them too.
#[test]
fn time_by_module_holds_forward_and_backward() {
    let file =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/traces/h200_gpt3xl_stacks/trace.json.gz");
    let ours = tables(&std::fs::read(file).unwrap(), &["--by", "module"]);
    let linear = row(&ours, "by_module", "module", "GPT.Block.Linear");
    assert_eq!(linear["instances"], 96);
    // Two products back for each one forward.
    let ratio = number(&linear["backward_kernel_time_ms"]) / number(&linear["forward_kernel_time_ms"]);
    assert!(ratio > 1.5 && ratio < 2.5, "{ratio}");
    let sum = |table: &str, column: &str| rows(&ours, table).iter().map(|r| number(&r[column])).sum::<f64>();
    assert!(
        (sum("by_module", "kernel_time_ms") - sum("unified_perf_summary", "Kernel Time (µs)_sum") / 1e3).abs() < 1e-6
    );
}

/// Families hold the rows of the unified table once each, products with extents and flags.
#[test]
fn families_are_parts_of_the_unified_table() {
    let file =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/traces/h200_gpt3xl_train/trace.json.gz");
    let ours = tables(&std::fs::read(file).unwrap(), &[]);
    let gemm = rows(&ours, "GEMM");
    let found = gemm.iter().find(|row| row["param: M"] == 8192).unwrap();
    assert_eq!([&found["param: N"], &found["param: K"], &found["operation_count"]], [2048, 10240, 24]);
    assert_eq!([&found["transa"], &found["transb"]], ["N", "T"]);
    let mut seen = std::collections::BTreeSet::new();
    for family in
        ["GEMM", "SDPA_fwd", "SDPA_bwd", "UnaryElementwise", "BinaryElementwise", "Normalization", "Reduce", "Softmax"]
    {
        for row in rows(&ours, family) {
            assert!(seen.insert((row["name"].to_string(), row["ex_UID"].to_string())), "{row}");
        }
    }
    // Busy and overlapped are all durations.
    let time = |kind: &str| number(&row(&ours, "gpu_timeline", "type", kind)["time ms"]);
    let all: f64 = rows(&ours, "unified_perf_summary").iter().map(|r| number(&r["Kernel Time (µs)_sum"])).sum();
    assert!((time("busy_time") + time("overlapped_time") - all / 1e3).abs() < 1e-6);
}

/// The traces of a folder are ranks.
#[test]
fn a_folder_is_the_traces_in_it() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/traces/synth_ranks4");
    let run = |words: &[&str]| {
        let done =
            std::process::Command::new(env!("CARGO_BIN_EXE_gemwright")).arg("trace").args(words).output().unwrap();
        (
            done.status.code(),
            String::from_utf8_lossy(&done.stdout).into_owned(),
            String::from_utf8_lossy(&done.stderr).into_owned(),
        )
    };
    let (code, text, message) = run(&[folder.to_str().unwrap(), "--format", "json"]);
    assert_eq!(code, Some(0), "{message}");
    let answer: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(answer["traces"].as_array().unwrap().len(), 4);
    assert_eq!(answer["tables"]["straggler_summary"].as_array().unwrap().len(), 4);
    let (code, _, message) = run(&[folder.parent().unwrap().to_str().unwrap()]);
    assert!(code == Some(2) && message.contains("is in this folder"), "{message}");
}

/// Of the time of operations with recorded sizes, all but those no trace tells the cost of, 95 % have a model.
#[test]
fn what_real_models_spend_time_on_has_a_model() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/traces");
    for name in ["h200_gpt3xl_train", "h200_gpt3xl_compiled", "h200_qwen3moe_generate", "synth_train", "synth_serve"] {
        let ours = tables(&std::fs::read(folder.join(name).join("trace.json.gz")).unwrap(), &[]);
        let time = |row: &Value| number(&row["Kernel Time (µs)_sum"]);
        let sized = |row: &&Value| row["Input Dims"].as_str().is_some_and(|d| d.contains(|c: char| c.is_ascii_digit()));
        let list = || rows(&ours, "unified_perf_summary").iter().filter(sized);
        let modelled: f64 = list().filter(|row| row["has_perf_model"] == "True").map(time).sum();
        let nameless = |row: &&Value| {
            let why = rows(&ours, "unmodelled").iter().find(|r| r["name"] == row["name"]).map(|r| r["why"].to_string());
            row["has_perf_model"] == "False" && why.is_some_and(|why| why.contains("there is no model"))
        };
        let missing: f64 = list().filter(nameless).map(time).sum();
        let share = modelled / (modelled + missing);
        assert!(modelled > 0.0 && share >= 0.95, "{name}: {share}");
    }
}

/// Point 19: an all-reduce of 10^6 bytes in fp8 over four ranks in 10 and 20 µs, without split sizes: 100 · 10^9
/// bytes a second at best, one and a half times that on the wire. TraceLens drops it.
#[test]
fn an_exchange_that_lacks_a_fact_is_kept() {
    let exchange = |id: u64, start: f64, length: f64| {
        let mut events = launched(id, start, start + 50.0, length);
        events[0]["name"] = "c10d::allreduce_".into();
        events[3]["name"] = "ncclDevKernel_AllReduce_Sum_f8".into();
        for (name, value) in [
            ("Collective name", json!("allreduce")),
            ("dtype", json!("Float8_e4m3fn")),
            ("In msg nelems", json!(1_000_000)),
            ("Out msg nelems", json!(1_000_000)),
            ("Group size", json!(4)),
            ("Process Group Name", json!("0")),
            ("Process Group Ranks", json!("[0, 1, 2, 3]")),
        ] {
            events[3]["args"][name] = value;
        }
        events
    };
    let events = [exchange(1, 100.0, 10.0), exchange(2, 300.0, 20.0)].concat();
    let ours = tables(&object(&events), &[]);
    let found = row(&ours, "coll_analysis", "Collective name", "allreduce");
    assert_eq!([&found["operation_count"], &found["In msg size (bytes)"]], [&json!(2), &json!(1e6)]);
    assert_eq!([number(&found["dur_sum"]), number(&found["algo bw (10^9 B/s)_max"])], [30.0, 100.0]);
    assert_eq!(number(&found["bus bw (10^9 B/s)_max"]), 150.0);
    assert!(tables(&object(&events), &THEIRS)["tables"]["coll_analysis"].is_null());
}
