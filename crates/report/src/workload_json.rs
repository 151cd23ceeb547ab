//! The JSON of a workload: the format that is saved, exchanged and checked.

use crate::render::integer;
use gemwright_core::{Attention, Call, Chip, Operands, Product, Roof, RoofError, View, Workload};
use serde_json::{Map, Value, json};

/// Version of the format; a field is added, never renamed, without a new one.
const FORMAT: u32 = 1;

/// The whole workload; with a chip each call has its roof.
pub fn workload_json(workload: &Workload, chip: Option<&Chip>) -> Result<Value, RoofError> {
    let mut source = Map::new();
    source.insert("source".into(), json!(workload.source.kind));
    source.extend(workload.source.facts.iter().cloned());
    let calls = workload.calls().iter().map(|c| call_json(c, chip)).collect::<Result<Vec<_>, _>>()?;
    Ok(json!({
        "format": FORMAT,
        "gemwright": env!("CARGO_PKG_VERSION"),
        "workload": source,
        "parameters": workload.parameters,
        "warnings": workload.warnings,
        "calls": calls,
    }))
}

fn view(view: &View) -> Value {
    json!(view)
}

fn product(product: &Product) -> Value {
    json!({"batch": product.batch, "m": product.m, "n": product.n, "k": product.k})
}

fn call_json(call: &Call, chip: Option<&Chip>) -> Result<Value, RoofError> {
    let mut out = Map::new();
    let mut put = |name: &str, value: Value| {
        out.insert(name.into(), value);
    };
    put("op", json!(call.op.name()));
    put("pass", json!(call.pass.name()));
    put("module", json!(&*call.module));
    if call.inside {
        put("inside", json!("scaled_dot_product_attention"));
    }
    match &call.operands {
        Operands::Product { a, b, bias, out: result, alpha, beta } => {
            put("a", view(a));
            put("b", view(b));
            put("bias", json!(bias));
            put("out", view(result));
            for (name, factor) in [("alpha", alpha), ("beta", beta)] {
                if *factor != 1.0 {
                    put(name, json!(factor));
                }
            }
        }
        Operands::Attention(attention) => attention_json(attention, &mut put),
    }
    put("count", json!(call.count));
    put("product", call.product().map_or(Value::Null, |p| product(&p)));
    if matches!(call.operands, Operands::Attention(_)) {
        put("products", call.attention_products().iter().map(product).collect());
        put("flops_causal", integer(call.flops_causal()));
    }
    put("flops", integer(call.flops()));
    put("bytes", integer(call.bytes()));
    put("intensity", json!(call.intensity()));
    let roof = match chip {
        Some(chip) => {
            let roof = Roof::of(call, chip)?;
            json!({"chip": chip.id, "bound": roof.bound, "seconds": roof.seconds})
        }
        None => Value::Null,
    };
    put("roof", roof);
    put("measured", Value::Null);
    Ok(Value::Object(out))
}

fn attention_json(a: &Attention, put: &mut impl FnMut(&str, Value)) {
    put("kernel", json!(a.kernel.name()));
    put("q", view(&a.q));
    put("k", view(&a.k));
    put("v", view(&a.v));
    put("mask", json!(a.mask));
    put("out", view(&a.out));
    put("bias", Value::Null);
    put("is_causal", json!(a.is_causal));
    put("enable_gqa", json!(a.enable_gqa));
    put("scale", json!(a.scale));
    put("dropout", json!(0.0));
}
