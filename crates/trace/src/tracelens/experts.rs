//! Products of experts: one of the two, or both in one kernel.

use super::given::{Given, Read, precision};
use super::value::Param;
use super::{Cost, Fail, Work};

/// Bytes of an element as the experts' models know them.
fn element(dtype: &str, default: f64) -> f64 {
    match dtype {
        "c10::BFloat16" | "c10::Half" | "BFloat16" | "Float16" | "Half" => 2.0,
        "c10::Float8_e4m3fn" | "c10::Float8_e4m3fnuz" | "FP8" => 1.0,
        "c10::Float4_e2m1fn_x2" | "FP4" => 0.5,
        "c10::Float" | "Float" | "Float32" => 4.0,
        _ => default,
    }
}

/// Extents of a layer of experts.
struct Layer {
    tokens: i64,
    hidden: i64,
    inner: i64,
    experts: i64,
    chosen: i64,
}

impl Layer {
    fn numbers(&self) -> [f64; 5] {
        [self.tokens, self.hidden, self.inner, self.experts, self.chosen].map(|n| n as f64)
    }

    /// Experts that get a token, as expected.
    fn active(&self) -> f64 {
        let [m, _, _, e, k] = self.numbers();
        e * (1.0 - ((e - k) / e).powf(m))
    }

    fn params(&self, gated: Option<bool>, dtypes: &[(&str, &str)]) -> Vec<(String, Param)> {
        let mut list: Vec<(String, Param)> = [
            ("num_tokens", self.tokens),
            ("hidden_dim", self.hidden),
            ("inter_dim", self.inner),
            ("num_experts", self.experts),
            ("topk", self.chosen),
        ]
        .map(|(name, value)| (name.to_string(), value.into()))
        .into();
        list.extend(gated.map(|gated| ("gated".to_string(), gated.into())));
        list.extend(dtypes.iter().map(|(name, dtype)| ((*name).to_string(), (*dtype).into())));
        list
    }

    fn up(&self, gated: bool, [input, weight, out]: [f64; 3]) -> Work {
        let [m, h, i, _, k] = self.numbers();
        let gate = if gated { 2.0 } else { 1.0 };
        let bytes = m * h * input + self.active() * gate * h * i * weight + m * i * k * out;
        Work { flops: 2.0 * m * h * i * k * gate, bytes: Some(bytes) }
    }

    fn down(&self, [input, weight, out]: [f64; 3]) -> Work {
        let [m, h, i, _, k] = self.numbers();
        let bytes = m * i * k * input + self.active() * i * h * weight + m * h * out;
        Work { flops: 2.0 * m * h * i * k, bytes: Some(bytes) }
    }
}

fn three(shape: Vec<i64>) -> Read<[i64; 3]> {
    shape.try_into().map_err(|_| Fail::Error)
}

fn at(shape: &[i64], i: usize) -> Read<i64> {
    shape.get(i).copied().ok_or(Fail::Error)
}

fn matrix(params: Vec<(String, Param)>, work: Work, dtype: &str) -> Cost {
    let spec = precision(dtype).map(|p| format!("matrix_{p}"));
    Cost { params, forward: Some(work), spec, ..Cost::default() }
}

/// Several small values in one element make the inner extent larger than the weight says.
fn packed(hidden: i64, w1: &[i64]) -> Read<i64> {
    match w1.last() {
        None | Some(0) => Err(Fail::Error),
        Some(last) => Ok(hidden.div_euclid(*last)),
    }
}

/// CK's first stage (up) or second (down).
pub fn stage(given: &Given, up: bool) -> Read<Cost> {
    let (x, w1) = (given.shape(0)?, given.shape(1)?);
    let [experts, hidden, inner] = three(given.shape(2)?)?;
    let (input, weight) = (given.dtype(0)?, given.dtype(if up { 1 } else { 2 })?);
    let sizes = [element(&input, 2.0), element(&weight, 1.0), element(&input, 2.0)];
    let dtypes = [("input_dtype", input.as_str()), ("weight_dtype", weight.as_str())];
    if up {
        let inner = inner * packed(hidden, &w1)?;
        let layer = Layer { tokens: at(&x, 0)?, hidden, inner, experts, chosen: at(&given.shape(6)?, 1)? };
        let gated = at(&w1, 1)? == 2 * inner;
        return Ok(matrix(layer.params(Some(gated), &dtypes), layer.up(gated, sizes), &input));
    }
    let [tokens, chosen, inner] = three(x)?;
    let times = if w1.is_empty() { 1 } else { packed(hidden, &w1)? };
    let layer = Layer { tokens, hidden, inner: inner * times, experts, chosen };
    Ok(matrix(layer.params(None, &dtypes), layer.down(sizes), &input))
}

/// CK tile's two stages, with their results among the arguments.
pub fn tile_stage(given: &Given, up: bool) -> Read<Cost> {
    let dtypes = [given.dtype(0)?, given.dtype(1)?, given.dtype(2)?];
    let sizes = [element(&dtypes[0], 2.0), element(&dtypes[1], 1.0), element(&dtypes[2], 2.0)];
    let names = [
        ("input_dtype", dtypes[0].as_str()),
        ("weight_dtype", dtypes[1].as_str()),
        ("output_dtype", dtypes[2].as_str()),
    ];
    let w1 = three(given.shape(1)?)?;
    if up {
        let [tokens, hidden]: [i64; 2] = given.shape(0)?.try_into().map_err(|_| Fail::Error)?;
        let [_, chosen, inner] = three(given.shape(2)?)?;
        let layer = Layer { tokens, hidden, inner, experts: w1[0], chosen };
        let gated = w1[1] == 2 * inner;
        return Ok(matrix(layer.params(Some(gated), &names), layer.up(gated, sizes), &dtypes[0]));
    }
    let [tokens, chosen, inner] = three(given.shape(0)?)?;
    let layer = Layer { tokens, hidden: w1[1], inner, experts: w1[0], chosen };
    Ok(matrix(layer.params(None, &names), layer.down(sizes), &dtypes[0]))
}

/// Both products and the sum over the chosen experts in one kernel.
pub fn fused(given: &Given) -> Read<Cost> {
    let tokens = at(&given.shape(0)?, 0)?;
    let w1 = three(given.shape(2)?)?;
    let [_, hidden, inner] = three(given.shape(3)?)?;
    let inner = inner * packed(hidden, &w1)?;
    let gated = w1[1] == 2 * inner;
    let chosen = given.int(8)?;
    let [out, input, weight] = [given.dtype(0)?, given.dtype(1)?, given.dtype(2)?];
    let layer = Layer { tokens, hidden, inner, experts: w1[0], chosen };
    let [m, h, i, _, k] = layer.numbers();
    let gate = if gated { 2.0 } else { 1.0 };
    let flops = 2.0 * m * h * i * k * (gate + 1.0) + m * h * (2.0 * k - 1.0);
    let weights = layer.active() * i * h * element(&weight, 1.0) * (gate + 1.0);
    let bytes = m * h * element(&input, 1.0) + weights + m * h * element(&out, 2.0);
    let names = [("input_dtype", input.as_str()), ("weight_dtype", weight.as_str()), ("output_dtype", out.as_str())];
    Ok(matrix(layer.params(Some(gated), &names), Work { flops, bytes: Some(bytes) }, &input))
}

/// SGLang's Triton kernel: every choice of a token is a row.
pub fn triton_grouped(given: &Given) -> Read<Cost> {
    if given.dims()?.len() < 9 {
        return Err(Fail::Error);
    }
    let [experts, n, k] = three(given.shape(1)?)?;
    let [tokens, chosen]: [i64; 2] = given.shape(8)?.try_into().map_err(|_| Fail::Error)?;
    let types = given.types().unwrap_or_default();
    let kind = |i: usize| types.get(i).cloned();
    let out = kind(3).filter(|d| !d.is_empty()).or_else(|| kind(0));
    let rows = tokens * chosen;
    let params: Vec<(String, Param)> = [
        ("m_work", rows.into()),
        ("num_tokens", tokens.into()),
        ("topk", chosen.into()),
        ("N", n.into()),
        ("K", k.into()),
        ("num_experts", experts.into()),
        ("input_dtype", kind(0).into()),
        ("weight_dtype", kind(1).into()),
        ("output_dtype", out.clone().into()),
    ]
    .map(|(name, value): (&str, Param)| (name.to_string(), value))
    .into();
    let size = |dtype: &Option<String>, default: f64| dtype.as_deref().map_or(default, |d| element(d, default));
    let active = Layer { tokens, hidden: k, inner: n, experts, chosen }.active();
    let [rows, n, k] = [rows, n, k].map(|x| x as f64);
    let bytes = rows * k * size(&kind(0), 2.0) + active * n * k * size(&kind(1), 1.0) + rows * n * size(&out, 2.0);
    Ok(matrix(params, Work { flops: 2.0 * rows * n * k, bytes: Some(bytes) }, &kind(1).unwrap_or_default()))
}
