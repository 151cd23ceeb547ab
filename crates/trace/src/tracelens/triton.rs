//! Kernels that torch.compile writes in Triton: their names say what they fuse, their last arguments how
//! many elements they run over.

use super::given::{Given, Read, product};
use super::value::Param;
use super::{Cost, Fail, Work};
use serde_json::Value;
use std::collections::HashSet;
use std::sync::OnceLock;

/// Names of ATen's operations.
fn known() -> &'static HashSet<&'static str> {
    static NAMES: OnceLock<HashSet<&'static str>> = OnceLock::new();
    NAMES.get_or_init(|| include_str!("../../aten_ops.txt").lines().map(str::trim).filter(|n| !n.is_empty()).collect())
}

pub fn operations(name: &str) -> f64 {
    match name {
        "add" | "sub" | "mul" | "div" | "relu" | "mean" | "sum" | "abs" | "neg" | "ne" | "eq" | "lt" | "gt" => 1.0,
        "pow" | "sqrt" | "rsqrt" | "var" | "reciprocal" => 2.0,
        "exp" | "log" | "sigmoid" | "tanh" | "silu" => 4.0,
        "gelu" => 8.0,
        _ => 0.0,
    }
}

/// The operations in `triton_poi_fused_add_mul_3`: known names one after the other, the longest last ones.
pub fn fused(name: &str) -> Vec<String> {
    let rest = ["triton_poi_fused_", "triton_red_fused_", "triton_per_fused_"];
    let Some(rest) = rest.iter().find_map(|start| name.strip_prefix(start)) else { return Vec::new() };
    let Some((words, number)) = rest.rsplit_once('_') else { return Vec::new() };
    if number.is_empty() || !number.bytes().all(|c| c.is_ascii_digit()) || words.is_empty() {
        return Vec::new();
    }
    let tokens: Vec<&str> = words.split('_').collect();
    // Where each prefix of the words can end an operation that began at a place which is reached itself.
    let mut ends: Vec<Vec<(String, usize)>> = vec![Vec::new(); tokens.len() + 1];
    for end in 1..=tokens.len() {
        for start in 0..end {
            let reached = start == 0 || !ends[start].is_empty();
            let candidate = tokens[start..end].join("_");
            if reached && known().contains(candidate.as_str()) {
                ends[end].push((candidate, start));
            }
        }
    }
    let mut found = Vec::new();
    let mut at = tokens.len();
    while at > 0 {
        // Of equally long ones the first.
        let mut best: Option<&(String, usize)> = None;
        for candidate in &ends[at] {
            if best.is_none_or(|b| candidate.0.len() > b.0.len()) {
                best = Some(candidate);
            }
        }
        let Some((name, start)) = best else { return Vec::new() };
        found.push(name.clone());
        at = *start;
    }
    found.reverse();
    found
}

/// Sizes by exact names: plain `float` is not among them.
fn size(dtype: &str) -> f64 {
    match dtype {
        "c10::BFloat16" | "c10::Half" => 2.0,
        "c10::Float" | "c10::Int" => 4.0,
        "c10::Double" | "c10::Long" => 8.0,
        "c10::Byte" | "c10::Char" => 1.0,
        _ => 0.0,
    }
}

/// A kernel of this kind, by its name.
pub fn is_compiled(name: &str) -> bool {
    ["triton_poi_", "triton_red_", "triton_per_"].iter().any(|start| name.starts_with(start))
}

pub fn compiled(given: &Given) -> Read<Cost> {
    let (concrete, dims, types) = (given.concrete()?, given.dims()?, given.types()?);
    if concrete.is_empty() || dims.is_empty() || types.is_empty() {
        return Err(Fail::NotImplemented);
    }
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_string);
    let scalars: Vec<i64> = concrete.iter().filter_map(|value| text(value).trim().parse().ok()).collect();
    let reduction = !given.name.starts_with("triton_poi_");
    let (elements, each) = match scalars.as_slice() {
        [.., x, r] if reduction => (*x, *r),
        [.., x] => (*x, 1),
        [] => return Err(Fail::NotImplemented),
    };
    let mut bytes = 0.0;
    let mut first = None;
    let mut word = None;
    for (entry, dtype) in dims.iter().zip(&types) {
        let shape = super::given::integers(entry)?;
        if dtype == "Scalar" || shape.is_empty() {
            continue;
        }
        let size = size(dtype);
        first.get_or_insert(size);
        bytes += product(&shape) * size;
        if word.is_none() && size > 0.0 {
            word = dtype.rsplit("::").next().map(str::to_lowercase);
        }
    }
    if let Some(size) = first.filter(|_| !reduction) {
        bytes += size * elements as f64;
    }
    let fused = fused(&given.name);
    let cost: f64 = fused.iter().map(|name| operations(name)).sum();
    let shown: Vec<String> = fused.iter().map(|name| format!("aten.{name}")).collect();
    Ok(Cost {
        params: vec![
            ("fused_ops".into(), shown.join(", ").into()),
            ("xnumel".into(), Param::Int(elements)),
            ("rnumel".into(), Param::Int(each)),
        ],
        forward: Some(Work { flops: cost * elements as f64 * each as f64, bytes: Some(bytes) }),
        spec: word.map(|word| format!("vector_{word}")),
        ..Cost::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_what_is_fused() {
        assert_eq!(fused("triton_poi_fused_add_mul_3"), ["add", "mul"]);
        assert_eq!(fused("triton_red_fused_native_layer_norm_0"), ["native_layer_norm"]);
        assert!(fused("triton_poi_fused_nosuchthing_3").is_empty());
        assert!(fused("triton_poi_fused_add").is_empty());
    }
}
