//! Operations on each element, and reductions.

use super::given::{Given, Read, precision, product, size_of};
use super::value::Param;
use super::{Cost, Fail, Work};

fn vector(dtype: Option<&str>) -> Option<String> {
    dtype.and_then(precision).map(|p| format!("vector_{p}"))
}

fn params(list: Vec<(&str, Param)>) -> Vec<(String, Param)> {
    list.into_iter().map(|(name, value)| (name.to_string(), value)).collect()
}

fn dtypes(first: &str, second: Option<String>) -> Param {
    Param::Tuple(vec![first.into(), second.into()])
}

pub fn unary(given: &Given) -> Read<Cost> {
    let shape = given.shape(0)?;
    let dtype = given.dtype(0)?;
    let stride = given.stride(0)?;
    let second = given.dims()?.get(1).is_some_and(|d| d.as_array().is_some_and(|list| !list.is_empty()));
    let (out, out_stride) = match second {
        true => (Some(given.dtype(1)?), given.stride(1)?),
        false => (None, Param::None),
    };
    let elements = product(&shape);
    let size = size_of(&dtype);
    let out_size = match &out {
        Some(out) => size_of(out),
        None => size,
    };
    let bytes = size.zip(out_size).map(|(size, out)| elements * size + elements * out);
    Ok(Cost {
        params: params(vec![
            ("op_shape", Param::ints(&shape)),
            ("dtype_in_out", dtypes(&dtype, out)),
            ("stride_input", stride),
            ("stride_output", out_stride),
        ]),
        forward: Some(Work { flops: elements, bytes }),
        spec: vector(Some(&dtype)),
        ..Cost::default()
    })
}

/// Results larger than what is read: borders repeated, or elements.
fn grown(given: &Given, out: &[i64], padding: Option<Vec<i64>>) -> Read<Cost> {
    let shape = given.shape(0)?;
    let dtype = given.dtype(0)?;
    let mut list = vec![("input_shape", Param::ints(&shape)), ("output_shape", Param::ints(out))];
    if let Some(padding) = padding {
        list.push(("padding", Param::List(padding.into_iter().map(Param::Int).collect())));
    }
    list.extend([
        ("op_shape", Param::ints(out)),
        ("dtype_in_out", dtypes(&dtype, Some(dtype.clone()))),
        ("stride_input", given.stride(0)?),
        ("stride_output", Param::None),
    ]);
    let size = size_of(&dtype).ok_or(Fail::Error)?;
    let bytes = (product(&shape) + product(out)) * size;
    Ok(Cost {
        params: params(list),
        forward: Some(Work { flops: product(out), bytes: Some(bytes) }),
        spec: vector(Some(&dtype)),
        ..Cost::default()
    })
}

pub fn replication_pad(given: &Given) -> Read<Cost> {
    let mut out = given.shape(0)?;
    let padding = given.int_list(1)?;
    for (i, both) in padding.chunks_exact(2).enumerate() {
        let place = out.len().checked_sub(1 + i).ok_or(Fail::Error)?;
        out[place] += both[0] + both[1];
    }
    grown(given, &out, Some(padding))
}

pub fn upsample(given: &Given) -> Read<Cost> {
    let mut out: Vec<i64> = given.shape(0)?.into_iter().take(2).collect();
    out.extend(given.int_list(1)?);
    grown(given, &out, None)
}

fn broadcast(a: &[i64], b: &[i64]) -> Read<Vec<i64>> {
    let rank = a.len().max(b.len());
    let padded = |s: &[i64]| [vec![1; rank - s.len()], s.to_vec()].concat();
    let pair = |(x, y): (i64, i64)| if x != y && x != 1 && y != 1 { Err(Fail::Error) } else { Ok(x.max(y)) };
    padded(a).into_iter().zip(padded(b)).map(pair).collect()
}

/// Two operands and a result, of a third type where one was given.
pub fn binary(given: &Given) -> Read<Cost> {
    let third = given.dims()?.get(2).is_some_and(|d| d.as_array().is_some_and(|list| !list.is_empty()));
    let out = if third { Some((given.dtype(2)?, given.stride(2)?)) } else { None };
    two(given, out)
}

pub fn silu_and_product(given: &Given) -> Read<Cost> {
    two(given, None)
}

fn two(given: &Given, out: Option<(String, Param)>) -> Read<Cost> {
    let (a, b) = (given.shape(0)?, given.shape(1)?);
    let (first, second) = (given.dtype(0)?, given.dtype(1)?);
    let strides = (given.stride(0)?, given.stride(1)?);
    let elements = product(&broadcast(&a, &b)?);
    let sizes = (size_of(&first), size_of(&second));
    let out_size = match (&out, sizes) {
        (Some((dtype, _)), _) => size_of(dtype),
        (None, (Some(x), Some(y))) if !a.is_empty() && !b.is_empty() => Some(x.max(y)),
        (None, (Some(x), Some(_))) => Some(x),
        _ => None,
    };
    let bytes = match (sizes, out_size) {
        ((Some(x), Some(y)), Some(out)) => Some(product(&a) * x + product(&b) * y + elements * out),
        _ => None,
    };
    let (dtype, stride) = out.map_or((Param::None, Param::None), |(dtype, stride)| (dtype.into(), stride));
    let spec = vector(Some(&first));
    Ok(Cost {
        params: params(vec![
            ("shape_in1", Param::ints(&a)),
            ("shape_in2", Param::ints(&b)),
            ("dtype_in1_in2_out", Param::Tuple(vec![first.into(), second.into(), dtype])),
            ("stride_input1", strides.0),
            ("stride_input2", strides.1),
            ("stride_output", stride),
        ]),
        forward: Some(Work { flops: elements, bytes }),
        spec,
        ..Cost::default()
    })
}

/// A reduction: what is left of it is one element, since its dimensions are text.
pub fn reduce(given: &Given) -> Read<Cost> {
    let none = || Cost {
        params: params(vec![
            ("num_input_elems", 0.into()),
            ("num_output_elems", 0.into()),
            ("dtype_in_out", Param::Tuple(vec![Param::None, Param::None])),
        ]),
        forward: Some(Work { flops: 0.0, bytes: None }),
        backward: Some(Work { flops: 0.0, bytes: None }),
        spec: None,
    };
    let Some(first) = given.dims_or_none().first().filter(|d| !d.is_null()) else { return Ok(none()) };
    let shape = super::given::integers(first)?;
    let elements = shape.iter().product::<i64>();
    let dtype = given.types().ok().and_then(|types| types.first().cloned());
    let name = &given.name;
    let left = if name.contains("cumsum") || name.contains("cumprod") { elements } else { 1 };
    let kind = ["mean", "max", "min", "norm"].into_iter().find(|kind| name.contains(kind)).unwrap_or("sum");
    let size = dtype.as_deref().filter(|d| !d.is_empty()).and_then(size_of);
    let work = Work { flops: elements as f64, bytes: size.map(|size| (elements + left) as f64 * size) };
    Ok(Cost {
        params: params(vec![
            ("num_input_elems", elements.into()),
            ("num_output_elems", left.into()),
            ("dtype_in_out", Param::Tuple(vec![dtype.clone().into(), Param::None])),
            ("reduce_type", kind.into()),
        ]),
        forward: Some(work),
        backward: Some(work),
        spec: vector(dtype.as_deref()),
    })
}
