//! Names of the files in which vLLM and SGLang look for configurations of their expert kernels.

use crate::export::Format;
use gemwright_core::{Operands, Workload};
use std::fmt::Write;

/// Of experts with two products: how many there are, and the width between the two.
fn pairs(workload: &Workload) -> Vec<(i64, i64)> {
    let mut sizes: Vec<[i64; 3]> = Vec::new();
    for call in workload.calls() {
        if let Operands::Grouped { b, .. } = &call.operands
            && b.rank() == 3
        {
            sizes.push([b.size[0], b.size[1], b.size[2]]);
        }
    }
    let mut found = Vec::new();
    for [count, k, n] in &sizes {
        // The second reads what half of the first one's columns made.
        if sizes.contains(&[*count, *n, 2 * k]) && !found.contains(&(*count, *k)) {
            found.push((*count, *k));
        }
    }
    found
}

pub fn write(workload: &Workload, format: Format, device: &str) -> (String, usize) {
    let found = pairs(workload);
    let mut out = String::new();
    for (count, inner) in &found {
        // Writing into a string cannot fail.
        let _ = writeln!(out, "E={count},N={inner},device_name={device}.json");
    }
    let (folder, command) = match format {
        Format::SglangMoe => ("SGLANG_MOE_CONFIG_DIR", "tuning_fused_moe_triton.py"),
        _ => ("VLLM_TUNED_CONFIG_FOLDER", "benchmark_moe.py"),
    };
    if !found.is_empty() {
        let _ =
            writeln!(out, "# {command} --tune --save-dir DIR makes them; {folder}=DIR is where they are looked for");
    }
    (out, found.len())
}
