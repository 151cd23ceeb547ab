//! An explanation as a page and as JSON.

use gemwright_core::blas::BlasCall;
use gemwright_core::{Call, Explanation, Happening, View};
use serde::Serialize;
use serde_json::{Value, json};

/// A page for a terminal or, with headings, for Markdown.
pub fn explanation_text(title: &str, explanation: &Explanation, markdown: bool) -> String {
    let mut out = if markdown { format!("# {title}\n") } else { format!("{title}\n") };
    for section in &explanation.sections {
        out += &if markdown { format!("\n## {}\n\n", section.title) } else { format!("\n{}\n", section.title) };
        for line in &section.lines {
            out += &if markdown { format!("- {line}\n") } else { format!("  {line}\n") };
        }
    }
    out
}

/// The call, the steps in order and the page.
pub fn explanation_json(explanation: &Explanation) -> String {
    let steps: Vec<Value> = explanation.steps.iter().map(step).collect();
    let sections: Vec<Value> =
        explanation.sections.iter().map(|s| json!({"title": s.title, "lines": s.lines})).collect();
    json!({
        "format": 1,
        "call": explanation.call.as_ref().map(call),
        "steps": steps,
        "sections": sections,
    })
    .to_string()
}

fn call(call: &Call) -> Value {
    let leaf = call.leaf();
    let (out, factors): (Option<View>, Option<(f64, f64)>) = match &call.operands {
        gemwright_core::Operands::Product { out, alpha, beta, .. } => (Some(*out), Some((*alpha, *beta))),
        _ => (None, None),
    };
    json!({
        "op": call.op.name(),
        "module": &*call.module,
        "a": leaf.map(|l| l.a),
        "b": leaf.map(|l| l.b),
        "bias": leaf.and_then(|l| l.addend),
        "out": out,
        "alpha": factors.map(|f| f.0),
        "beta": factors.map(|f| f.1),
        "product": call.product().map(|p| json!({"batch": p.batch, "m": p.m, "n": p.n, "k": p.k})),
        "flops": call.flops() as f64,
        "bytes": call.bytes() as f64,
        "intensity": call.intensity(),
    })
}

#[derive(Serialize)]
struct BlasStep<'a> {
    kind: &'a str,
    #[serde(flatten)]
    call: &'a BlasCall,
}

fn step(step: &Happening) -> Value {
    match step {
        Happening::Aten(leaf) => {
            json!({"kind": "aten", "op": leaf.name(), "a": leaf.a, "b": leaf.b, "bias": leaf.addend})
        }
        Happening::Add(bias) => json!({"kind": "aten", "op": "aten::add_", "bias": bias}),
        Happening::Fill => json!({"kind": "aten", "op": "aten::fill_"}),
        Happening::Copy { operand, why } => json!({"kind": "copy", "operand": operand, "why": why}),
        Happening::Blas(call) => json!(BlasStep { kind: "blas", call }),
    }
}
