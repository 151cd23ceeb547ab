//! Operations that treat each element alone, and reductions.

use super::operand::{Operand, broadcast};
use super::{Cost, Found, Unit};
use crate::calls::Arguments;

/// How many tensors an operation takes, and its FLOPs for each element of the result.
struct Each {
    tensors: usize,
    flops: f64,
    /// The result is of a byte.
    compares: bool,
}

fn each(name: &str) -> Option<Each> {
    let of = |tensors: usize, flops: f64| Some(Each { tensors, flops, compares: false });
    match name {
        "neg" | "abs" | "exp" | "log" | "sqrt" | "tanh" | "sin" | "cos" | "erf" | "relu" | "clamp_min"
        | "clamp_max" | "reciprocal" | "square" | "floor" | "ceil" | "round" | "log2" | "exp2" | "log1p" | "sign"
        | "trunc" => of(1, 1.0),
        "elu" => of(1, 3.0),
        "rsqrt" | "clamp" | "leaky_relu" | "hardtanh" => of(1, 2.0),
        // 1 / (1 + exp(-x)): neg, exp, add, div; silu is x times that without one division more.
        "sigmoid" | "silu" => of(1, 4.0),
        // x · ½ · (1 + erf(x / √2)).
        "gelu" => of(1, 5.0),
        "bitwise_not" | "logical_not" => of(1, 1.0),
        "pow" => of(2, 1.0),
        "add" | "sub" | "rsub" | "mul" | "div" | "maximum" | "minimum" | "bitwise_and" | "bitwise_or"
        | "bitwise_xor" | "floor_divide" | "remainder" | "atan2" | "masked_fill" | "threshold_backward" | "fmod" => {
            of(2, 1.0)
        }
        // g·s·(1 + x·(1 - s)) with s computed anew.
        "silu_backward" => of(2, 9.0),
        "sigmoid_backward" | "tanh_backward" => of(2, 3.0),
        // g·(Φ(x) + x·φ(x)).
        "gelu_backward" => of(2, 10.0),
        "addcmul" | "addcdiv" | "lerp" => of(3, 3.0),
        "where" => of(3, 1.0),
        "eq" | "ne" | "lt" | "le" | "gt" | "ge" | "isnan" | "isinf" | "isin" | "logical_and" | "logical_or" => {
            Some(Each { tensors: 2, flops: 1.0, compares: true })
        }
        "mse_loss" => of(2, 3.0),
        "mse_loss_backward" => of(3, 3.0),
        _ => None,
    }
}

/// Which reductions, and their FLOPs for each element that is read.
fn reduction(name: &str) -> Option<f64> {
    Some(match name {
        "sum" | "mean" | "max" | "min" | "amax" | "amin" | "argmax" | "argmin" | "any" | "all" | "prod" | "cumsum"
        | "cumprod" => 1.0,
        "norm" | "linalg_vector_norm" | "linalg_norm" | "_foreach_norm" => 2.0,
        "var" | "std" | "var_mean" | "std_mean" | "logsumexp" => 4.0,
        _ => return None,
    })
}

/// The sheet it stands in.
pub fn family(name: &str) -> Option<&'static str> {
    let plain = name.strip_prefix("aten::")?;
    let stem = plain.strip_suffix('_').unwrap_or(plain);
    if reduction(stem).is_some() {
        return Some("Reduce");
    }
    each(stem).map(|each| if each.tensors == 1 { "UnaryElementwise" } else { "BinaryElementwise" })
}

pub fn cost(name: &str, arguments: &Arguments) -> Found {
    let plain = name.strip_prefix("aten::")?;
    let stem = plain.strip_suffix('_').unwrap_or(plain);
    if let Some(flops) = reduction(stem) {
        return Some(reduced(stem, flops, arguments));
    }
    each(stem).map(|each| elementwise(&each, plain != stem, arguments))
}

fn elementwise(each: &Each, in_place: bool, arguments: &Arguments) -> Result<Cost, String> {
    let first = Operand::needed(arguments, 0)?;
    let others: Vec<Operand> = (1..each.tensors).filter_map(|at| Operand::at(arguments, at)).collect();
    let all: Vec<&Operand> = std::iter::once(&first).chain(&others).collect();
    let size = if in_place { first.size.clone() } else { broadcast(&all)? };
    // Of tensors that have extents the widest type; a number among them changes nothing.
    let with_extents = all.iter().filter(|o| !o.size.is_empty());
    let widest = with_extents.max_by(|x, y| x.element.total_cmp(&y.element)).copied().unwrap_or(&first);
    let mut out = if in_place { first.like(&size) } else { widest.like(&size) };
    if each.compares {
        out.element = 1.0;
    }
    let read: f64 = all.iter().map(|o| o.bytes()).sum();
    Ok(Cost {
        flops: each.flops * out.elements(),
        bytes: read + out.bytes(),
        unit: Unit::Vector,
        dtype: widest.dtype.clone(),
    })
}

/// Over the dimensions that its arguments name, over all where none are.
fn reduced(stem: &str, flops: f64, arguments: &Arguments) -> Result<Cost, String> {
    let input = Operand::needed(arguments, 0)?;
    let out = match stem {
        "cumsum" | "cumprod" => input.elements(),
        _ => {
            let rank = input.size.len() as i64;
            let at = if stem.contains("norm") { 2 } else { 1 };
            let named = arguments.dimensions(at);
            let gone: Vec<usize> = named
                .iter()
                .map(|d| if *d < 0 { d + rank } else { *d })
                .filter(|d| (0..rank).contains(d))
                .map(|d| d as usize)
                .collect();
            match named.is_empty() {
                true => 1.0,
                false => (0..input.size.len()).filter(|d| !gone.contains(d)).map(|d| input.size[d] as f64).product(),
            }
        }
    };
    let indices = matches!(stem, "argmax" | "argmin");
    let element = if indices { 8.0 } else { input.element };
    Ok(Cost {
        flops: flops * input.elements(),
        bytes: input.bytes() + out * element,
        unit: Unit::Vector,
        dtype: input.dtype.clone(),
    })
}
