//! Holds the rules to cuBLAS's own log of an H200 (torch 2.11.0, cuBLAS 13.1.0): library, routine,
//! flags, extents, leading dimensions, batch strides, epilogue, beta and compute type of every call;
//! the copies before it; what linear and matmul become; which kernel computes attention.
//! The cases are in tests/blas/h200.jsonl, one a line; tests/blas/README.md says what the fields are.
#![allow(clippy::unwrap_used)]

use gemwright_core::blas::{
    Activation, Leaf, LeafOp, Lowered, Query, Settings, Stack, Step, attention_backend, lower_linear, lower_matmul,
};
use gemwright_core::{DType, View};
use serde_json::Value;

fn cases() -> Vec<Value> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/blas/h200.jsonl");
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn view(text: &Value) -> View {
    let (shape, kind) = text.as_str().unwrap().split_once('/').unwrap();
    let dtype: DType = serde_json::from_value(Value::String(kind.into())).unwrap();
    if shape.is_empty() { View::contiguous(&[], dtype) } else { View::parse(shape, dtype).unwrap() }
}

fn leaf(case: &Value) -> Leaf {
    let op = match case["op"].as_str().unwrap() {
        "mm" => LeafOp::Mm,
        "addmm" => LeafOp::Addmm,
        "relu" => LeafOp::AddmmActivation(Activation::Relu),
        "gelu" => LeafOp::AddmmActivation(Activation::Gelu),
        "bmm" => LeafOp::Bmm,
        "baddbmm" => LeafOp::Baddbmm,
        "mv" => LeafOp::Mv,
        "dot" => LeafOp::Dot,
        "_scaled_mm" => LeafOp::ScaledMm,
        "_int_mm" => LeafOp::IntMm,
        other => panic!("{other}"),
    };
    let addend = case.get("self").map(view);
    let in_place = case["in_place"] == true;
    Leaf {
        out: case.get("out").map(view).or(addend.filter(|_| in_place)),
        in_place,
        beta: case["beta"].as_f64().unwrap_or(1.0),
        wide_out: case["wide_out"] == true,
        ..Leaf::new(op, view(&case["a"]), view(&case["b"]), addend)
    }
}

/// Every field of the log, equal; a beta that is not 0 is logged as `?`.
fn differences(predicted: &Value, logged: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, want) in logged.as_object().unwrap() {
        let got = &predicted[name];
        let same = match (name.as_str(), want.as_str()) {
            ("beta", Some("?")) => got.as_f64().is_some_and(|beta| beta != 0.0),
            _ => got == want,
        };
        if !same {
            wrong.push(format!("{name}: predicted {got}, logged {want}"));
        }
    }
    wrong
}

#[test]
fn every_logged_call_is_predicted() {
    let (mut compared, mut skipped) = (0, Vec::new());
    for case in cases() {
        let id = case["id"].as_str().unwrap();
        let logged = case["blas"].as_array().unwrap();
        if let Some(reason) = case["skip"].as_str() {
            skipped.push(format!("{id}: {reason}"));
            continue;
        }
        let settings = Settings { stack: Stack::Cuda, prefer_lt: case["prefer_lt"] == true };
        let steps: Vec<Step> =
            case["leaves"].as_array().unwrap().iter().flat_map(|l| leaf(l).steps(settings)).collect();
        let predicted: Vec<Value> = steps
            .iter()
            .filter_map(|step| match step {
                Step::Blas(call) => Some(serde_json::to_value(call).unwrap()),
                _ => None,
            })
            .collect();
        assert_eq!(predicted.len(), logged.len(), "{id}: {predicted:?}");
        for (predicted, logged) in predicted.iter().zip(logged) {
            let wrong = differences(predicted, logged);
            assert!(wrong.is_empty(), "{id}: {wrong:?}");
        }
        if let Some(copies) = case["copies"].as_u64() {
            let predicted = steps.iter().filter(|s| matches!(s, Step::Copy { .. })).count() as u64;
            assert_eq!(predicted, copies, "{id}: copies");
        }
        compared += 1;
    }
    assert!(skipped.len() <= 10, "{skipped:?}");
    assert!(compared >= 480, "only {compared} cases were compared");
}

/// Sizes and strides alone: autocast changes the element type on the way.
fn shape(view: View) -> View {
    view.with_dtype(DType::F32)
}

#[test]
fn linear_and_matmul_become_what_was_recorded() {
    let mut compared = 0;
    for case in cases() {
        let Some(top) = case.get("top") else { continue };
        let views: Vec<View> = top["views"].as_array().unwrap().iter().map(view).collect();
        let trained: Vec<bool> = serde_json::from_value(top["trained"].clone()).unwrap();
        let lowered = match top["op"].as_str().unwrap() {
            "linear" => lower_linear(&views[0], &views[1], views.get(2), trained[1]),
            _ => lower_matmul(&views[0], &views[1], trained[0], trained[1]),
        };
        let leaves: Vec<(String, Vec<View>)> = lowered
            .iter()
            .filter_map(|step| match step {
                Lowered::Leaf(leaf) => {
                    let name = leaf.name().trim_start_matches("aten::").to_string();
                    Some((name, leaf.addend.into_iter().chain([leaf.a, leaf.b]).map(shape).collect()))
                }
                _ => None,
            })
            .collect();
        let recorded: Vec<(String, Vec<View>)> = top["lowered"]
            .as_array()
            .unwrap()
            .iter()
            .map(|l| {
                let words = l.as_array().unwrap();
                (words[0].as_str().unwrap().to_string(), words[1..].iter().map(view).map(shape).collect())
            })
            .collect();
        assert_eq!(leaves, recorded, "{}", case["id"]);
        compared += 1;
    }
    assert!(compared >= 100, "only {compared} cases were compared");
}

#[test]
fn attention_runs_where_pytorch_said() {
    let mut compared = 0;
    for case in cases() {
        let Some(sdpa) = case.get("sdpa") else { continue };
        let views: Vec<View> = sdpa["views"].as_array().unwrap().iter().map(view).collect();
        let mask = sdpa.get("mask").map(view);
        let query = Query {
            q: &views[0],
            k: &views[1],
            v: &views[2],
            mask: mask.as_ref(),
            mask_needs_grad: sdpa["mask_needs_grad"] == true,
            dropout: sdpa["dropout"] == true,
            is_causal: sdpa["causal"] == true,
            enable_gqa: sdpa["gqa"] == true,
            cudnn: sdpa["no_cudnn"] != true,
        };
        assert_eq!(attention_backend(&query, Stack::Cuda).name(), sdpa["backend"], "{}", case["id"]);
        compared += 1;
    }
    assert!(compared >= 69, "only {compared} cases were compared");
}
