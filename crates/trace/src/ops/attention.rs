//! Attention of libraries beside ATen: places before heads.

use super::operand::Operand;
use super::{Cost, Found, Unit};
use crate::calls::Arguments;

/// Where q stands, where it says whether it is causal, and whether it is the backward.
struct Layout {
    q: usize,
    causal: usize,
    backward: bool,
}

fn layout(name: &str) -> Option<Layout> {
    let of = |q: usize, causal: usize, backward: bool| Some(Layout { q, causal, backward });
    match name {
        "FlashAttnFunc"
        | "flash_attn::_flash_attn_forward"
        | "aiter::_flash_attn_forward"
        | "aiter::mha_fwd"
        | "aiter::fmha_v3_fwd" => of(0, 5, false),
        "flash_attn_3::fwd" => of(0, 24, false),
        "aiter::wrapper_fmha_v3_fwd" => of(1, 6, false),
        "flash_attn::_flash_attn_backward" => of(1, 10, true),
        "aiter::wrapper_fmha_v3_bwd" => of(1, 9, true),
        "aiter::mha_bwd" => of(1, 8, true),
        "aiter::_flash_attn_backward" => of(1, 12, true),
        _ => None,
    }
}

pub fn cost(name: &str, arguments: &Arguments) -> Found {
    match name {
        "flash_attn::_flash_attn_varlen_forward" => Some(variable(arguments, 0, [3, 5, 9], false)),
        "flash_attn::_flash_attn_varlen_backward" => Some(variable(arguments, 1, [9, 11, 15], true)),
        name => layout(name).map(|layout| attention(&layout, arguments)),
    }
}

/// The sheet it stands in.
pub fn family(name: &str) -> Option<&'static str> {
    let backward = match name {
        "flash_attn::_flash_attn_varlen_forward" => false,
        "flash_attn::_flash_attn_varlen_backward" => true,
        name => layout(name)?.backward,
    };
    Some(if backward { "SDPA_bwd" } else { "SDPA_fwd" })
}

/// Pairs of query and key that are looked at. A causal mask of these libraries is aligned at its lower right
/// corner: the last query sees every key.
fn pairs(queries: f64, keys: f64, causal: bool) -> f64 {
    if !causal {
        return queries * keys;
    }
    let seen = queries.min(keys);
    // The last `seen` queries see keys - seen + 1, ..., keys of them; those before see none.
    seen * (2.0 * keys - seen + 1.0) / 2.0
}

/// Scores and values; backward: scores again, dV, dP, dQ, dK.
fn flops(pairs: f64, heads: f64, width: f64, value_width: f64, backward: bool) -> f64 {
    let products = if backward { 3.0 * width + 2.0 * value_width } else { width + value_width };
    2.0 * heads * pairs * products
}

fn attention(layout: &Layout, arguments: &Arguments) -> Result<Cost, String> {
    let [q, k, v] = [0, 1, 2].map(|i| Operand::needed(arguments, layout.q + i));
    let (q, k, v) = (q?, k?, v?);
    let (&[batch, queries, heads, width], &[_, keys, _, _], &[_, _, _, value_width]) =
        (q.size.as_slice(), k.size.as_slice(), v.size.as_slice())
    else {
        return Err("its operands are not batch, places, heads and width".into());
    };
    let causal = arguments.flag(layout.causal)?.unwrap_or(false);
    let [batch, queries, heads, width, keys, value_width] =
        [batch, queries, heads, width, keys, value_width].map(|n| n as f64);
    let out = batch * queries * heads * value_width * q.element;
    let bytes = q.bytes() + k.bytes() + v.bytes() + out;
    Ok(Cost {
        flops: batch * flops(pairs(queries, keys, causal), heads, width, value_width, layout.backward),
        bytes: if layout.backward { 2.0 * bytes } else { bytes },
        unit: Unit::Matrix,
        dtype: q.dtype,
    })
}

/// Sequences one behind the other. Their lengths are on the GPU; how many there are and the longest is known:
/// the others are taken as alike, which is the least they can cost.
fn variable(
    arguments: &Arguments,
    q: usize,
    [offsets, longest, causal]: [usize; 3],
    backward: bool,
) -> Result<Cost, String> {
    let [query, key, value] = [0, 1, 2].map(|i| Operand::needed(arguments, q + i));
    let (query, key, value) = (query?, key?, value?);
    let (&[queries, heads, width], &[keys, _, _], &[_, _, value_width]) =
        (query.size.as_slice(), key.size.as_slice(), value.size.as_slice())
    else {
        return Err("its operands are not places, heads and width".into());
    };
    let sequences = Operand::needed(arguments, offsets)?.elements() - 1.0;
    let most = arguments.number(longest)?.ok_or("its longest sequence is not recorded")?;
    let key_most = arguments.number(longest + 1)?.ok_or("its longest sequence is not recorded")?;
    let causal = arguments.flag(causal)?.unwrap_or(false);
    let [queries, heads, width, keys, value_width] = [queries, heads, width, keys, value_width].map(|n| n as f64);
    let mut looked_at = pairs(most, key_most, causal);
    if sequences > 1.0 {
        let others = sequences - 1.0;
        looked_at += others * pairs((queries - most).max(0.0) / others, (keys - key_most).max(0.0) / others, causal);
    }
    let bytes = query.bytes() + key.bytes() + value.bytes() + queries * heads * value_width * query.element;
    Ok(Cost {
        flops: flops(looked_at, heads, width, value_width, backward),
        bytes: if backward { 2.0 * bytes } else { bytes },
        unit: Unit::Matrix,
        dtype: query.dtype,
    })
}
