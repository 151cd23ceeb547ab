//! Attention of serving engines, whose lengths stand in the annotation of a step.

use super::given::{Given, Read, precision, size_of};
use super::value::Param;
use super::{Cost, Fail, Work};

/// Sums over the requests of a step: of queries, keys, queries squared and queries times keys, of those
/// in their context and of those that generate.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Sums {
    context: [i64; 4],
    generation: [i64; 4],
}

/// The digits in a text, number by number.
fn numbers(text: &str) -> Vec<i64> {
    text.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect()
}

/// `execute_4_context_1(sq8sk8sqsq64sqsk64)_generation_3(sq3sk90sqsq3sqsk90)`.
fn vllm(name: &str) -> Option<Sums> {
    let found = numbers(name);
    let [n, c, c0, c1, c2, c3, g, g0, g1, g2, g3] = *found.get(..11)? else { return None };
    let written =
        format!("execute_{n}_context_{c}(sq{c0}sk{c1}sqsq{c2}sqsk{c3})_generation_{g}(sq{g0}sk{g1}sqsq{g2}sqsk{g3})");
    name.starts_with(&written).then_some(Sums { context: [c0, c1, c2, c3], generation: [g0, g1, g2, g3] })
}

/// The number behind `key=` in a list of such.
fn value(body: &str, key: &str) -> i64 {
    let word = |part: &str| {
        let at = part.find('=')?;
        let name = part[..at].rsplit(|c: char| !(c.is_alphanumeric() || c == '_')).next()?;
        let digits: String = part[at + 1..].chars().take_while(char::is_ascii_digit).collect();
        (name == key).then(|| digits.parse().ok()).flatten()
    };
    body.split_whitespace().find_map(word).unwrap_or(0)
}

/// `step[EXTEND bs=1 ... c_sq=8 c_sk=8 ...]`.
fn sglang(name: &str) -> Option<Sums> {
    let body = name.strip_prefix("step[")?;
    let body = &body[..body.rfind(']')?];
    let mode = ["EXTEND", "DECODE", "MIXED"].into_iter().find(|mode| body.starts_with(mode))?;
    let bound = body[mode.len()..].chars().next().is_none_or(|c| !(c.is_alphanumeric() || c == '_'));
    let detailed = body.contains("sqsq=");
    let of = |group: &str| ["sq", "sk", "sqsq", "sqsk"].map(|key| value(body, &format!("{group}_{key}")));
    (bound && detailed).then(|| Sums { context: of("c"), generation: of("g") })
}

/// `prefill[bs=1 tok=8 sk=8 sqsq=64 sqsk=64]`, and the same of decode.
fn atom(name: &str) -> Option<Sums> {
    let (prefill, rest) = match name.strip_prefix("prefill[") {
        Some(rest) => (true, rest),
        None => (false, name.strip_prefix("decode[")?),
    };
    let body = &rest[..rest.rfind(']')?];
    if !body.contains("sqsq=") || !body.contains("sqsk=") {
        return None;
    }
    let found = ["tok", "sk", "sqsq", "sqsk"].map(|key| value(body, key));
    Some(match prefill {
        true => Sums { context: found, ..Sums::default() },
        false => Sums { generation: found, ..Sums::default() },
    })
}

/// `value_at`: where the width of values stands, if not with the keys.
pub fn attention(given: &Given, value_at: Option<usize>) -> Read<Cost> {
    let annotation = given.annotation.as_deref().unwrap_or("None");
    let Sums { context, generation } =
        vllm(annotation).or_else(|| sglang(annotation)).or_else(|| atom(annotation)).ok_or(Fail::Error)?;
    let [queries, heads, width]: [i64; 3] = given.shape(0)?.try_into().map_err(|_| Fail::Error)?;
    let keys = given.shape(1)?;
    let last = keys.len().checked_sub(3).ok_or(Fail::Error)?;
    let [places, key_heads, mut value_width] = [keys[last], keys[last + 1], keys[last + 2]];
    if let Some(found) = value_at.and_then(|at| given.filled(at)) {
        value_width = found[found.len() - 1];
    }
    let (dtype, types) = (given.dtype(0)?, given.types()?);
    let cache = types.get(1).cloned().unwrap_or_else(|| dtype.clone());
    let mut params: Vec<(String, Param)> = Vec::new();
    let mut push = |name: &str, value: Param| params.push((name.to_string(), value));
    push("B", 1.into());
    for (name, number) in [
        ("N_Q", queries),
        ("H_Q", heads),
        ("H_V", key_heads),
        ("H_K", key_heads),
        ("N_KV", places),
        ("H_KV", key_heads),
        ("d_h_qk", width),
        ("d_h_v", value_width),
    ] {
        push(name, number.into());
    }
    push("dropout", 0.0.into());
    push("causal", false.into());
    push("flash_impl", true.into());
    for (group, sums) in [("c", context), ("g", generation)] {
        for (key, sum) in ["sq", "sk", "sqsq", "sqsk"].into_iter().zip(sums) {
            push(&format!("{group}_{key}"), sum.into());
        }
    }
    push("dtype_Q", dtype.clone().into());
    push("dtype_KV", cache.clone().into());
    if context[0] == 0 && generation[0] == 0 {
        return Err(Fail::NotImplemented);
    }
    let [h, kh, w, vw] = [heads, key_heads, width, value_width].map(|x| x as f64);
    let [c, g] = [context, generation].map(|sums| sums.map(|x| x as f64));
    let flops = h * (w + vw) * (2.0 * c[3] - c[2] + 2.0 * g[3]);
    let size = size_of(&dtype).unwrap_or(2.0);
    let cache_size = size_of(&cache).unwrap_or(size);
    let own = (c[0] + g[0]) * (h + kh) * (w + vw);
    let cached = ((c[1] - c[0]) + (g[1] - g[0])) * kh * (w + vw);
    Ok(Cost {
        params,
        forward: Some(Work { flops, bytes: Some(own * size + cached * cache_size) }),
        spec: precision(&dtype).map(|p| format!("matrix_{p}")),
        ..Cost::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_read_from_each_engines_words() {
        let want = Sums { context: [8, 9, 64, 72], generation: [3, 90, 3, 91] };
        let text = "execute_4_context_1(sq8sk9sqsq64sqsk72)_generation_3(sq3sk90sqsq3sqsk91)";
        assert_eq!(vllm(text), Some(want));
        assert_eq!(vllm("execute_context_1(8)_generation_3(3)"), None);
        let text = "step[MIXED bs=4 c=1 g=3 c_sq=8 c_sk=9 c_sqsq=64 c_sqsk=72 g_sq=3 g_sk=90 g_sqsq=3 g_sqsk=91]";
        assert_eq!(sglang(text), Some(want));
        assert_eq!(sglang("step[DECODE bs=4]"), None);
        let text = "prefill[bs=1 tok=8 sk=9 sqsq=64 sqsk=72]";
        assert_eq!(atom(text), Some(Sums { generation: [0; 4], ..want }));
    }
}
