//! Operations of serving engines and training stacks beside ATen, by their own signatures.

use super::operand::{Operand, element_bytes};
use super::{Cost, Found, Unit};
use crate::calls::Arguments;

pub fn cost(name: &str, arguments: &Arguments) -> Found {
    Some(match name {
        "aten::_scaled_mm" => scaled_as(arguments, 6),
        "trtllm::cublas_scaled_mm" | "bitsandbytes::int8_linear_matmul" => scaled(arguments),
        "aiter::gemm_a16w16"
        | "aiter::gemm_a16w16_atomic_"
        | "aiter::_gemm_a16w16_asm"
        | "sglang_profiler::gemm_kernels_flydsl_hgemm"
        | "vllm::rocm_unquantized_gemm" => weighted(arguments, 1.0),
        name if name.contains("gemm_a8w8") || name.contains("w8a8_gemm") || name.contains("fp8_blockscale_gemm") => {
            weighted(arguments, 1.0)
        }
        "aiter::gemm_a4w4" | "aiter::_gemm_a4w4_asm" | "aiter::gemm_afp4wfp4_" => weighted(arguments, 2.0),
        "_C::silu_and_mul" | "aiter::silu_and_mul" | "sgl_kernel::silu_and_mul" => gated(arguments, 5.0),
        "_C::gelu_and_mul" | "aiter::gelu_and_mul" | "_C::gelu_tanh_and_mul" | "aiter::gelu_tanh_and_mul" => {
            gated(arguments, 6.0)
        }
        "aiter::rms_norm" | "aiter::rmsnorm2d_fwd_ck" => rms(arguments, 0, 1, false),
        "aiter::rmsnorm" | "_C::rms_norm" | "sgl_kernel::rmsnorm" => rms(arguments, 1, 2, false),
        "_C::fused_add_rms_norm" | "sgl_kernel::fused_add_rmsnorm" => rms(arguments, 0, 2, true),
        "aiter::rmsnorm2d_fwd_with_add_ck" | "aiter::add_rmsnorm" => rms(arguments, 1, 4, true),
        "_C::rotary_embedding" | "sgl_kernel::rotary_embedding" => rotary(arguments),
        "_C_cache_ops::reshape_and_cache_flash" | "_C_cache_ops::reshape_and_cache" => cached(arguments),
        "sglang::store_cache" => cached(arguments),
        "aiter::dynamic_per_token_scaled_quant"
        | "aiter::dynamic_per_group_scaled_quant"
        | "aiter::dynamic_per_tensor_quant"
        | "_C::static_scaled_fp8_quant"
        | "_C::dynamic_scaled_fp8_quant"
        | "_C::dynamic_per_token_scaled_fp8_quant" => quantised(arguments),
        "vllm::gemm_with_dynamic_quant" => weighted(arguments, 1.0),
        "primus_turbo::hipblaslt_gemm_fp8" | "primus_turbo_cpp_extension::hipblaslt_gemm_fp8" => {
            flagged(arguments, 1.0)
        }
        "primus_turbo::hipblaslt_gemm_fp4" | "primus_turbo_cpp_extension::hipblaslt_gemm_fp4" => {
            flagged(arguments, 2.0)
        }
        "primus_turbo::grouped_gemm"
        | "primus_turbo::grouped_gemm_impl"
        | "primus_turbo_cpp_extension::grouped_gemm"
        | "primus_turbo_cpp_extension::ck_grouped_gemm" => grouped(arguments),
        "primus_turbo::grouped_gemm_variable_k"
        | "primus_turbo_cpp_extension::grouped_gemm_variable_k"
        | "primus_turbo_cpp_extension::ck_grouped_gemm_variable_k" => grouped_gradient(arguments),
        "LigerSiLUMulFunction" => twofold(arguments, 5.0),
        "MoEDispatch" | "MoECombine" => passed(arguments),
        "FusedRoPEFunc" => turned(arguments),
        "CrossEntropyFunction" => cross_entropy(arguments),
        "DaoAILab::_causal_conv1d_fwd_cpp" => short_convolution(arguments),
        "aiter::moe_sorting_fwd" => sorted(arguments),
        "aiter::ck_moe_stage1" => experts(arguments, true),
        "aiter::ck_moe_stage2" => experts(arguments, false),
        _ => return None,
    })
}

/// The sheet it stands in.
pub fn family(name: &str) -> Option<&'static str> {
    let has = |part: &str| name.contains(part);
    Some(match () {
        () if has("grouped_gemm") => "GroupedGEMM",
        () if has("gemm") || has("scaled_mm") || has("linear_matmul") => "GEMM",
        () if has("rmsnorm") || has("rms_norm") => "Normalization",
        () if has("moe_stage") => "MoE",
        () if has("rotary") || has("RoPE") => "RoPE",
        () => return None,
    })
}

/// The result is of the type that is asked for, by PyTorch's number of it.
fn scaled_as(arguments: &Arguments, at: usize) -> Result<Cost, String> {
    let cost = scaled(arguments)?;
    let (a, b) = (Operand::needed(arguments, 0)?, Operand::needed(arguments, 1)?);
    let elements = (a.size[0] * b.size[1]) as f64;
    let asked = match arguments.number(at)?.map(|n| n as i64) {
        Some(5 | 15) => 2.0,
        Some(6) => 4.0,
        Some(23..=26) => 1.0,
        _ => return Ok(cost),
    };
    Ok(Cost { bytes: cost.bytes + elements * (asked - a.element.max(2.0)), ..cost })
}

/// a [M, K] · b [K, N] with factors; the result is of 16 bits unless an operand is wider.
fn scaled(arguments: &Arguments) -> Result<Cost, String> {
    let (a, b) = (Operand::needed(arguments, 0)?, Operand::needed(arguments, 1)?);
    let (&[m, k], &[_, n]) = (a.size.as_slice(), b.size.as_slice()) else {
        return Err("its operands are no matrices".into());
    };
    let rest: f64 = (2..arguments.len()).filter_map(|at| Operand::at(arguments, at)).map(|o| o.bytes()).sum();
    let out = a.element.max(2.0);
    let [m, n, k] = [m, n, k].map(|x| x as f64);
    Ok(Cost {
        flops: 2.0 * m * n * k,
        bytes: a.bytes() + b.bytes() + rest + m * n * out,
        unit: Unit::Matrix,
        dtype: a.dtype,
    })
}

/// x [M, K] · w [N, K]ᵀ; `packed` values in each element of the operands.
fn weighted(arguments: &Arguments, packed: f64) -> Result<Cost, String> {
    let (x, w) = (Operand::needed(arguments, 0)?, Operand::needed(arguments, 1)?);
    let (&[m, k], &[n, _]) = (x.size.as_slice(), w.size.as_slice()) else {
        return Err("its operands are no matrices".into());
    };
    // Factors and a bias are read too; a tensor [M, N] among the arguments is the result.
    let result = |o: &Operand| o.size == [m, n];
    let rest: f64 = (2..arguments.len())
        .filter_map(|at| Operand::at(arguments, at))
        .filter(|o| !result(o))
        .map(|o| o.bytes())
        .sum();
    let [m, n, k] = [m, n, k].map(|x| x as f64);
    let out = x.element.max(2.0);
    Ok(Cost {
        flops: 2.0 * m * n * k * packed,
        bytes: x.bytes() + w.bytes() + rest + m * n * out,
        unit: Unit::Matrix,
        dtype: x.dtype,
    })
}

/// A and B with flags for their transposes, and one that swaps them; `packed` values in each element.
fn flagged(arguments: &Arguments, packed: f64) -> Result<Cost, String> {
    let (a, b) = (Operand::needed(arguments, 0)?, Operand::needed(arguments, 2)?);
    let (&[a0, a1], &[b0, b1]) = (a.size.as_slice(), b.size.as_slice()) else {
        return Err("its operands are no matrices".into());
    };
    let flag = |at: usize| arguments.flag(at).map(|f| f.unwrap_or(false));
    let (mut left, mut right) = (([a0, a1], flag(5)?), ([b0, b1], flag(6)?));
    if flag(7)? {
        (left, right) = ((right.0, !right.1), (left.0, !left.1));
    }
    let (m, k) = if left.1 { (left.0[1], left.0[0]) } else { (left.0[0], left.0[1]) };
    let n = if right.1 { right.0[0] } else { right.0[1] };
    let scales: f64 = [1, 3].into_iter().filter_map(|at| Operand::at(arguments, at)).map(|o| o.bytes()).sum();
    let [m, n, k] = [m, n, k].map(|x| x as f64);
    Ok(Cost {
        flops: 2.0 * m * n * k * packed,
        bytes: a.bytes() + b.bytes() + scales + 2.0 * m * n,
        unit: Unit::Matrix,
        dtype: a.dtype,
    })
}

/// Rows in groups, a matrix for each group: [G, K, N] or [G, N, K].
fn grouped(arguments: &Arguments) -> Result<Cost, String> {
    let (x, w) = (Operand::needed(arguments, 0)?, Operand::needed(arguments, 1)?);
    let (&[m, k], &[_, p, q]) = (x.size.as_slice(), w.size.as_slice()) else {
        return Err("its groups are no matrices".into());
    };
    let n = if p == k { q } else { p };
    let [m, n, k] = [m, n, k].map(|x| x as f64);
    Ok(Cost {
        flops: 2.0 * m * n * k,
        bytes: x.bytes() + w.bytes() + m * n * x.element,
        unit: Unit::Matrix,
        dtype: x.dtype,
    })
}

/// The gradient of those matrices: [M, K]ᵀ · [M, N] group by group. How many groups there are is not recorded;
/// one is the least that is written.
fn grouped_gradient(arguments: &Arguments) -> Result<Cost, String> {
    let (x, g) = (Operand::needed(arguments, 0)?, Operand::needed(arguments, 1)?);
    let (&[m, k], &[_, n]) = (x.size.as_slice(), g.size.as_slice()) else {
        return Err("its operands are no matrices".into());
    };
    let [m, n, k] = [m, n, k].map(|x| x as f64);
    Ok(Cost {
        flops: 2.0 * m * n * k,
        bytes: x.bytes() + g.bytes() + n * k * x.element,
        unit: Unit::Matrix,
        dtype: x.dtype,
    })
}

/// Two tensors in, one like them out.
fn twofold(arguments: &Arguments, flops: f64) -> Result<Cost, String> {
    let (a, b) = (Operand::needed(arguments, 0)?, Operand::needed(arguments, 1)?);
    let bytes = a.bytes() + b.bytes() + a.like(&a.size).bytes();
    Ok(Cost { flops: flops * a.elements(), bytes, unit: Unit::Vector, dtype: a.dtype })
}

/// Tokens on their way to experts and back: read once, written by whom they reach.
fn passed(arguments: &Arguments) -> Result<Cost, String> {
    let x = Operand::needed(arguments, 0)?;
    Ok(Cost { flops: 0.0, bytes: x.bytes(), unit: Unit::Vector, dtype: x.dtype })
}

/// Four products and two sums for each pair of elements.
fn turned(arguments: &Arguments) -> Result<Cost, String> {
    let x = Operand::needed(arguments, 0)?;
    let table = Operand::at(arguments, 1).map_or(0.0, |o| o.bytes());
    let bytes = x.bytes() + x.like(&x.size).bytes() + table;
    Ok(Cost { flops: 3.0 * x.elements(), bytes, unit: Unit::Vector, dtype: x.dtype })
}

/// Logits in, a loss in f32 for each row out.
fn cross_entropy(arguments: &Arguments) -> Result<Cost, String> {
    let x = Operand::needed(arguments, 0)?;
    let targets = Operand::at(arguments, 1).map_or(0.0, |o| o.bytes());
    let rows = x.elements() / x.size.last().copied().unwrap_or(1).max(1) as f64;
    Ok(Cost { flops: 5.0 * x.elements(), bytes: x.bytes() + targets + 4.0 * rows, unit: Unit::Vector, dtype: x.dtype })
}

/// A filter of a few places for each channel.
fn short_convolution(arguments: &Arguments) -> Result<Cost, String> {
    let (x, w) = (Operand::needed(arguments, 0)?, Operand::needed(arguments, 1)?);
    let places = w.size.last().copied().unwrap_or(1) as f64;
    let bias = Operand::at(arguments, 2).map_or(0.0, |o| o.bytes());
    let bytes = 2.0 * x.elements() * x.element + w.bytes() + bias;
    Ok(Cost { flops: 2.0 * x.elements() * places, bytes, unit: Unit::Vector, dtype: x.dtype })
}

/// Every list read or written once, one comparison for each choice.
fn sorted(arguments: &Arguments) -> Result<Cost, String> {
    let choices = Operand::needed(arguments, 0)?;
    let bytes = (0..arguments.len()).filter_map(|at| Operand::at(arguments, at)).map(|o| o.bytes()).sum();
    Ok(Cost { flops: choices.elements(), bytes, unit: Unit::Vector, dtype: choices.dtype })
}

/// The result, then gate and value side by side.
fn gated(arguments: &Arguments, flops: f64) -> Result<Cost, String> {
    let (out, both) = (Operand::needed(arguments, 0)?, Operand::needed(arguments, 1)?);
    Ok(Cost { flops: flops * out.elements(), bytes: out.bytes() + both.bytes(), unit: Unit::Vector, dtype: both.dtype })
}

fn rms(arguments: &Arguments, input: usize, weight: usize, adds: bool) -> Result<Cost, String> {
    let (x, w) = (Operand::needed(arguments, input)?, Operand::needed(arguments, weight)?);
    let (flops, tensors) = if adds { (5.0, 4.0) } else { (4.0, 2.0) };
    let bytes = tensors * x.elements() * x.element + w.bytes();
    Ok(Cost { flops: flops * x.elements(), bytes, unit: Unit::Vector, dtype: x.dtype })
}

/// Positions, queries, keys, the width of a head, the table of angles: queries and keys turned in place.
fn rotary(arguments: &Arguments) -> Result<Cost, String> {
    let (q, k) = (Operand::needed(arguments, 1)?, Operand::needed(arguments, 2)?);
    let turned = q.elements() + k.elements();
    Ok(Cost { flops: 3.0 * turned, bytes: 2.0 * (q.bytes() + k.bytes()), unit: Unit::Vector, dtype: q.dtype })
}

/// Keys and values of new tokens read, and written in the type of the cache.
fn cached(arguments: &Arguments) -> Result<Cost, String> {
    let (k, v, cache) =
        (Operand::needed(arguments, 0)?, Operand::needed(arguments, 1)?, Operand::needed(arguments, 2)?);
    let new = k.elements() + v.elements();
    Ok(Cost { flops: 0.0, bytes: new * (k.element + cache.element), unit: Unit::Vector, dtype: k.dtype })
}

/// The result, the input, the factors: largest, quotient and rounding for each element.
fn quantised(arguments: &Arguments) -> Result<Cost, String> {
    let (out, x) = (Operand::needed(arguments, 0)?, Operand::needed(arguments, 1)?);
    let scale = Operand::at(arguments, 2).map_or(0.0, |o| o.bytes());
    let bytes = out.bytes() + x.bytes() + scale;
    Ok(Cost { flops: 3.0 * x.elements(), bytes, unit: Unit::Vector, dtype: x.dtype })
}

/// One of the two products of experts. Every expert that is expected to get a token is read.
fn experts(arguments: &Arguments, up: bool) -> Result<Cost, String> {
    let (x, w1, w2) = (Operand::needed(arguments, 0)?, Operand::needed(arguments, 1)?, Operand::needed(arguments, 2)?);
    let &[experts, hidden, inner] = w2.size.as_slice() else {
        return Err("its second weight has not three extents".into());
    };
    let (tokens, chosen) = match (up, x.size.as_slice()) {
        (true, [tokens, ..]) => {
            let out = Operand::needed(arguments, 6)?;
            (*tokens, *out.size.get(1).ok_or("its result has no choices")?)
        }
        (false, &[tokens, chosen, _]) => (tokens, chosen),
        _ => return Err("its input is not tokens, choices and width".into()),
    };
    let [m, e, h, i, k] = [tokens, experts, hidden, inner, chosen].map(|n| n as f64);
    let active = e * (1.0 - (1.0 - k / e).powf(m));
    let weight = if up { &w1 } else { &w2 };
    let rows = if up { weight.size.get(1).copied().unwrap_or(inner) as f64 } else { h };
    let inputs = if up { m * h } else { m * k * i };
    let outputs = if up { m * k * i } else { m * h };
    let flops = 2.0 * m * k * rows * if up { h } else { i };
    let bytes = inputs * x.element
        + active * rows * if up { h } else { i } * weight.element
        + outputs * element_bytes("c10::BFloat16").unwrap_or(2.0);
    Ok(Cost { flops, bytes, unit: Unit::Matrix, dtype: x.dtype })
}
