//! Operations of serving engines and of training stacks beside ATen: quantised products with weights
//! [N, K], experts, caches, rotations, their own norms and sums.

use super::given::{Given, Read, integers, precision, product, size_of};
use super::value::Param;
use super::{Cost, Fail, Work};
use crate::tracelens::gemm::{Weighted, weighted};
use serde_json::Value;

fn params(list: Vec<(&str, Param)>) -> Vec<(String, Param)> {
    list.into_iter().map(|(name, value)| (name.to_string(), value)).collect()
}

fn at(shape: &[i64], i: usize) -> Read<i64> {
    shape.get(i).copied().ok_or(Fail::Error)
}

fn kind(given: &Given, at: usize) -> Option<String> {
    given.types().ok().and_then(|types| types.get(at).cloned())
}

const BF16: &str = "c10::bfloat16";

/// fp8 or int8 with factors for blocks.
pub fn blockscale(given: &Given) -> Read<Cost> {
    let (x, w) = (given.shape(0)?, given.shape(1)?);
    let (m, k, n) = (at(&x, 0)?, at(&x, 1)?, at(&w, 0)?);
    let dtypes = [kind(given, 0).unwrap_or_default(), kind(given, 1).unwrap_or_default(), BF16.to_string()];
    let mut more = Vec::new();
    if given.dims()?.len() > 3 {
        let [x_scale, w_scale] = [given.shape(2)?, given.shape(3)?];
        let up = |extent: i64, by: Option<&i64>| by.filter(|n| **n != 0).map(|n| -(-extent).div_euclid(*n));
        more.extend([
            ("quant_scheme", "a8w8_blockscale".into()),
            ("quant_granularity", "per_block".into()),
            ("block_k", up(k, x_scale.last()).into()),
            ("block_n", up(n, w_scale.first()).into()),
            ("scale_dtype", kind(given, 2).unwrap_or_else(|| "float32".into()).into()),
        ]);
    }
    more.extend([("output_shape", Param::ints(&[m, n])), ("output_dtype", BF16.into())]);
    let sizes = [size_of(&dtypes[0]), size_of(&dtypes[1]), Some(2.0), Some(2.0)];
    weighted(
        given,
        &Weighted { batch: Some(1), extents: [m, n, k], bias: false, dtypes: &dtypes, sizes, precise: 0 },
        more,
    )
}

pub fn unquantized(given: &Given) -> Read<Cost> {
    let (x, w) = (given.shape(0)?, given.shape(1)?);
    let bias = given.dims()?.len() > 2 && !given.shape(2)?.is_empty();
    let dtypes = [given.dtype(0)?, given.dtype(1)?, kind(given, 2).unwrap_or_default()];
    let out = size_of(&dtypes[if bias { 2 } else { 1 }]);
    let sizes = [size_of(&dtypes[0]), size_of(&dtypes[1]), out, out];
    let extents = [at(&x, 0)?, at(&w, 0)?, at(&x, 1)?];
    weighted(given, &Weighted { batch: None, extents, bias, dtypes: &dtypes, sizes, precise: 0 }, Vec::new())
}

/// Where a product of 16-bit operands has the type of its result.
pub enum Out {
    Given,
    LikeFirst,
    Third,
}

pub fn a16w16(given: &Given, out: &Out) -> Read<Cost> {
    let (x, w) = (given.shape(0)?, given.shape(1)?);
    let (a, b) = (given.dtype(0)?, given.dtype(1)?);
    let (result, bias) = match out {
        Out::Given => (kind(given, 3).unwrap_or_else(|| BF16.into()), false),
        Out::LikeFirst => (a.clone(), given.dims()?.len() > 2 && !given.shape(2)?.is_empty()),
        Out::Third => (kind(given, 2).filter(|d| size_of(d).is_some()).unwrap_or_else(|| a.clone()), false),
    };
    let dtypes = [a, b, result];
    let sizes = [size_of(&dtypes[0]), size_of(&dtypes[1]), size_of(&dtypes[2]), size_of(&dtypes[2])];
    let extents = [at(&x, 0)?, at(&w, 0)?, at(&x, 1)?];
    weighted(given, &Weighted { batch: Some(1), extents, bias, dtypes: &dtypes, sizes, precise: 0 }, Vec::new())
}

pub fn batched_a16wfp4(given: &Given) -> Read<Cost> {
    let (x, w) = (given.shape(0)?, given.shape(1)?);
    let dtypes = [given.dtype(0)?, given.dtype(1)?, BF16.to_string()];
    let sizes = [size_of(&dtypes[0]), Some(0.5), Some(2.0), Some(2.0)];
    let extents = [at(&x, 1)?, at(&w, 1)?, at(&x, 2)?];
    let shape = Weighted { batch: Some(at(&x, 0)?), extents, bias: false, dtypes: &dtypes, sizes, precise: 0 };
    let cost = weighted(given, &shape, Vec::new())?;
    Ok(Cost { spec: Some("matrix_fp4".into()), ..cost })
}

pub fn batched_a8w8(given: &Given) -> Read<Cost> {
    let (x, w) = (given.shape(0)?, given.shape(1)?);
    let (batch, n, k) = (at(&w, 0)?, at(&w, 1)?, at(&x, 2)?);
    let m = if at(&x, 0)? == batch { at(&x, 1)? } else { at(&x, 0)? };
    let dtypes = [given.dtype(0)?, given.dtype(1)?, BF16.to_string()];
    let sizes = [size_of(&dtypes[0]), size_of(&dtypes[1]), Some(2.0), Some(2.0)];
    let shape = Weighted { batch: Some(batch), extents: [m, n, k], bias: false, dtypes: &dtypes, sizes, precise: 1 };
    weighted(given, &shape, Vec::new())
}

/// Groups of rows with a matrix each, all alike.
pub fn grouped(given: &Given) -> Read<Cost> {
    let dims = given.dims_or_none();
    let whole = || -> Option<[i64; 4]> {
        let (a, b) = (integers(dims.first()?).ok()?, integers(dims.get(1)?).ok()?);
        let positive = |list: &[i64]| list.iter().all(|n| *n > 0);
        if a.len() < 2 || b.len() != 3 || !positive(&a[..2]) || !positive(&b) {
            return None;
        }
        let n = if b[1] == a[1] { b[2] } else { Some(b[1]).filter(|_| b[2] == a[1])? };
        Some([a[0], a[1], n, b[0]])
    };
    let zipped = || -> Option<[i64; 4]> {
        let pairs = zipped_pairs(dims)?;
        let (k, n) = (pairs[0].0[1], pairs[0].1[1]);
        let alike = pairs.iter().all(|(a, b)| a[1] == k && b[0] == k && b[1] == n);
        alike.then(|| [pairs.iter().map(|(a, _)| a[0]).sum(), k, n, pairs.len() as i64])
    };
    let [m, k, n, groups] = whole().or_else(zipped).ok_or(Fail::Error)?;
    let (size_in, size_out) = element_sizes(given);
    let list = vec![
        ("M", m.into()),
        ("K", k.into()),
        ("N", n.into()),
        ("G", groups.into()),
        ("bpe_in", whole_number(size_in)),
        ("bpe_out", whole_number(size_out)),
    ];
    let [m, k, n, groups] = [m, k, n, groups].map(|x| x as f64);
    let (size_in, size_out) = (size_in.ok_or(Fail::Error)?, size_out.ok_or(Fail::Error)?);
    let bytes = (m * k + groups * k * n) * size_in + m * n * size_out;
    Ok(group_cost(given, list, 2.0 * m * k * n, Some(bytes)))
}

fn group_cost(given: &Given, list: Vec<(&str, Param)>, flops: f64, bytes: Option<f64>) -> Cost {
    let spec = kind(given, 0).and_then(|d| precision(&d)).map(|p| format!("matrix_{p}"));
    Cost { params: params(list), forward: Some(Work { flops, bytes }), spec, ..Cost::default() }
}

fn whole_number(size: Option<f64>) -> Param {
    size.map(|size| size as i64).into()
}

/// Of what goes in and, by the weight's type, of what comes out.
fn element_sizes(given: &Given) -> (Option<f64>, Option<f64>) {
    let first = kind(given, 0);
    let second = kind(given, 1).or_else(|| first.clone());
    let size_in = first.and_then(|d| size_of(&d));
    (size_in, second.and_then(|d| size_of(&d)))
}

type Pair = ([i64; 2], [i64; 2]);

/// Pairs of matrices, one of each list, however deep they lie.
fn zipped_pairs(dims: &[Value]) -> Option<Vec<Pair>> {
    fn collect(value: &Value, found: &mut Vec<[i64; 2]>) {
        let Some(list) = value.as_array() else { return };
        let numbers: Vec<i64> = list.iter().filter_map(Value::as_i64).filter(|n| *n > 0).collect();
        match <[i64; 2]>::try_from(numbers) {
            Ok(pair) if list.len() == 2 => found.push(pair),
            _ => list.iter().for_each(|item| collect(item, found)),
        }
    }
    let (mut left, mut right) = (Vec::new(), Vec::new());
    collect(dims.first()?, &mut left);
    collect(dims.get(1)?, &mut right);
    (!left.is_empty() && left.len() == right.len()).then(|| left.into_iter().zip(right).collect())
}

/// Groups of different depth.
pub fn grouped_variable(given: &Given) -> Read<Cost> {
    let dims = given.dims_or_none();
    let single = || -> Option<Vec<Pair>> {
        let shape = |i: usize| -> Option<[i64; 2]> { integers(dims.get(i)?).ok()?.try_into().ok() };
        let ([m, k], [rows, n]) = (shape(0)?, shape(1)?);
        [m, k, rows, n].iter().all(|x| *x > 0).then(|| vec![([m, k], [k, n])])
    };
    let zipped = || zipped_pairs(dims).filter(|pairs| pairs.iter().all(|(a, b)| a[1] == b[0]));
    let pairs = single().or_else(zipped).ok_or(Fail::Error)?;
    let (size_in, size_out) = element_sizes(given);
    let shapes = pairs.iter().map(|(a, b)| Param::Tuple(vec![Param::ints(a), Param::ints(b)])).collect();
    let list = vec![
        ("M", pairs.iter().map(|(a, _)| a[0]).sum::<i64>().into()),
        ("K", pairs[0].0[1].into()),
        ("N", pairs[0].1[1].into()),
        ("G", (pairs.len() as i64).into()),
        ("bpe_in", whole_number(size_in)),
        ("bpe_out", whole_number(size_out)),
        ("group_pairs", Param::List(shapes)),
    ];
    let mut flops = 0.0;
    let mut bytes = size_in.zip(size_out).map(|_| 0.0);
    for (a, b) in &pairs {
        let [m, k, n] = [a[0], a[1], b[1]].map(|x| x as f64);
        flops += 2.0 * m * k * n;
        if let (Some(sum), Some(size_in), Some(size_out)) = (&mut bytes, size_in, size_out) {
            *sum += (m * k + k * n) * size_in + m * n * size_out;
        }
    }
    Ok(group_cost(given, list, flops, bytes))
}

/// Tokens sent to experts, or fetched back.
pub fn expert_exchange(given: &Given) -> Read<Cost> {
    let shape = given.dims_or_none().first().map_or(Ok(Vec::new()), integers)?;
    let (tokens, width) = (shape.first().copied(), shape.get(1).copied());
    let size = kind(given, 0).filter(|d| !d.is_empty()).and_then(|d| size_of(&d));
    let list = vec![("num_tokens", tokens.into()), ("hidden_dim", width.into()), ("bpe", whole_number(size))];
    let bytes = tokens.zip(width).zip(size).map(|((tokens, width), size)| tokens as f64 * width as f64 * size);
    let work = Work { flops: 0.0, bytes };
    Ok(Cost { params: params(list), forward: Some(work), backward: Some(work), spec: None })
}

/// The size of the first operand's elements, two bytes where that is unknown.
fn size_or_two(given: &Given, at: usize) -> f64 {
    kind(given, at).and_then(|d| size_of(&d)).unwrap_or(2.0)
}

pub fn causal_conv1d(given: &Given) -> Read<Cost> {
    let (x, w) = (given.shape(0)?, given.shape(1)?);
    let [batch, channels, length, kernel] = [at(&x, 0)?, at(&x, 1)?, at(&x, 2)?, at(&w, 1)?];
    let bias = given.dims()?.get(2).and_then(Value::as_array).is_some_and(|list| !list.is_empty());
    let list = vec![
        ("batch", batch.into()),
        ("channels", channels.into()),
        ("seq_len", length.into()),
        ("kernel_size", kernel.into()),
        ("has_bias", bias.into()),
    ];
    let [b, c, l, k] = [batch, channels, length, kernel].map(|x| x as f64);
    let size = size_or_two(given, 0);
    let bytes = (2.0 * b * c * l + c * k + if bias { c } else { 0.0 }) * size;
    let spec = kind(given, 0).and_then(|d| precision(&d)).map(|p| format!("matrix_{p}"));
    Ok(Cost {
        params: params(list),
        forward: Some(Work { flops: 2.0 * b * c * l * k, bytes: Some(bytes) }),
        spec,
        ..Cost::default()
    })
}

fn vector(given: &Given, at: usize) -> Option<String> {
    kind(given, at).and_then(|d| precision(&d)).map(|p| format!("vector_{p}"))
}

fn vector_cost(list: Vec<(&str, Param)>, flops: f64, bytes: Option<f64>, spec: Option<String>) -> Cost {
    Cost { params: params(list), forward: Some(Work { flops, bytes }), spec, ..Cost::default() }
}

pub fn fused_rope(given: &Given) -> Read<Cost> {
    let shape = given.shape(0)?;
    let elements = shape.iter().product::<i64>();
    let names = ["seq_len", "batch", "heads", "head_dim"];
    let mut list = Vec::new();
    for (i, name) in names.into_iter().enumerate() {
        list.push((name, at(&shape, i)?.into()));
    }
    list.push(("num_elements", elements.into()));
    let n = elements as f64;
    Ok(vector_cost(list, 3.0 * n, Some(2.0 * n * size_or_two(given, 0)), vector(given, 0)))
}

pub fn rotary(given: &Given) -> Read<Cost> {
    let (q, k) = (given.shape(1)?, given.shape(2)?);
    let text = given.text_or_empty(3);
    let head = match text.trim() {
        "" => *q.last().ok_or(Fail::Error)?,
        text => text.parse().map_err(|_| Fail::Error)?,
    };
    if head == 0 {
        return Err(Fail::Error);
    }
    let turned = match given.dims()?.get(4).map(integers) {
        Some(Ok(table)) if table.len() > 1 => table[1],
        Some(Err(fail)) => return Err(fail),
        _ => head,
    };
    let heads = at(&q, 1)?.div_euclid(head) + at(&k, 1)?.div_euclid(head);
    let elements = at(&q, 0)? * heads * turned;
    given.dtype(1)?;
    let n = elements as f64;
    let list = vec![("num_elements", elements.into())];
    Ok(vector_cost(list, 3.0 * n, Some(2.0 * n * size_or_two(given, 1)), vector(given, 1)))
}

pub fn cross_entropy(given: &Given) -> Read<Cost> {
    let shape = given.shape(0)?;
    let (batch, words) = (at(&shape, 0)?, *shape.last().ok_or(Fail::Error)?);
    let list = vec![
        ("batch", batch.into()),
        ("vocab_size", words.into()),
        ("logits_shape", Param::List(shape.iter().map(|n| Param::Int(*n)).collect())),
    ];
    let bytes = product(&shape) * size_or_two(given, 0) + 12.0 * batch as f64;
    Ok(vector_cost(list, 5.0 * batch as f64 * words as f64, Some(bytes), vector(given, 0)))
}

/// An activation times a gate: `times` operations for each result.
pub fn gated(given: &Given, times: f64) -> Read<Cost> {
    let shape = given.shape(0)?;
    let (input, out) = (given.dtype(1)?, given.dtype(0)?);
    let list = vec![
        ("op_shape", Param::ints(&shape)),
        ("dtype_in_out", Param::texts(&[&input, &out])),
        ("stride_input", given.stride(1)?),
        ("stride_output", given.stride(0)?),
    ];
    let n = product(&shape);
    let (size_in, size_out) = (size_of(&input).ok_or(Fail::Error)?, size_of(&out).ok_or(Fail::Error)?);
    Ok(vector_cost(list, times * n, Some(2.0 * n * size_in + n * size_out), vector(given, 1)))
}

pub fn group_quant(given: &Given) -> Read<Cost> {
    let [out, first, second] = [given.shape(0)?, given.shape(1)?, given.shape(2)?];
    let dtypes = [given.dtype(1)?, given.dtype(2)?, given.dtype(0)?];
    let list = vec![
        ("shape_in1", Param::ints(&first)),
        ("shape_in2", Param::ints(&second)),
        ("shape_out", Param::ints(&out)),
        ("dtype_in1_in2_out", Param::texts(&dtypes)),
        ("stride_input1", given.stride(1)?),
        ("stride_input2", given.stride(2)?),
        ("stride_output", given.stride(0)?),
    ];
    let size = |i: usize| size_of(&dtypes[i]).ok_or(Fail::Error);
    let bytes = product(&out) * size(2)? + product(&first) * size(0)? + product(&second) * size(1)?;
    Ok(vector_cost(list, product(&out) * 2.59375, Some(bytes), vector(given, 1)))
}

/// RMS norms with the input and the weight at given places; `adds` for those that add a residual.
pub fn rms_norm(given: &Given, input: usize, weight: usize, adds: bool) -> Read<Cost> {
    let shape = given.shape(input)?;
    let dtype = given.dtype(input)?;
    let channels = at(&given.shape(weight)?, 0)?;
    let list = vec![
        ("op_shape", Param::ints(&shape)),
        ("dtype_in_out", Param::Tuple(vec![dtype.clone().into(), Param::None])),
        ("stride_input", given.stride(input)?),
        ("stride_output", Param::None),
        ("num_channels", channels.into()),
        ("has_bias", false.into()),
        ("is_affine", true.into()),
        ("is_training", false.into()),
    ];
    let (elements, width) = (product(&shape), channels as f64);
    let size = size_of(&dtype).ok_or(Fail::Error)?;
    let flops = elements / width * (2.0 * width + 2.0) + 2.0 * elements;
    let (flops, tensors) = if adds { (flops + elements, 4.0) } else { (flops, 2.0) };
    let bytes = tensors * elements * size + width * size;
    Ok(vector_cost(list, flops, Some(bytes), precision(&dtype).map(|p| format!("vector_{p}"))))
}

pub fn store_cache(given: &Given) -> Read<Cost> {
    let shape = given.shape(0)?;
    let dtype = given.dtype(0)?;
    let elements = shape.iter().product::<i64>();
    let list = vec![("op_shape", Param::ints(&shape)), ("nelems", elements.into()), ("dtype", dtype.into())];
    Ok(vector_cost(list, 0.0, Some(4.0 * elements as f64 * size_or_two(given, 0)), vector(given, 0)))
}

pub fn all_reduce(given: &Given) -> Read<Cost> {
    let shape = given.shape(1)?;
    let dtype = given.dtype(1)?;
    let size = size_of(&dtype).ok_or(Fail::Error)?;
    let list = vec![("op_shape", Param::ints(&shape)), ("dtype_in", dtype.into()), ("stride_input", given.stride(1)?)];
    Ok(vector_cost(list, 0.0, Some(2.0 * product(&shape) * size), None))
}

/// Sorting and routing: as many operations as the largest operand has elements.
pub fn routing(given: &Given) -> Read<Cost> {
    let mut operands: Vec<(Vec<i64>, Option<String>)> = Vec::new();
    for (i, entry) in given.dims_or_none().iter().enumerate() {
        if let Ok(shape) = integers(entry)
            && !shape.is_empty()
        {
            operands.push((shape, kind(given, i)));
        }
    }
    let mut largest: Option<&(Vec<i64>, Option<String>)> = None;
    for operand in &operands {
        if largest.is_none_or(|l| product(&operand.0) > product(&l.0)) {
            largest = Some(operand);
        }
    }
    let bytes: f64 =
        operands.iter().filter_map(|(s, d)| d.as_deref().and_then(size_of).map(|size| product(s) * size)).sum();
    let spec = largest.and_then(|(_, d)| d.as_deref()).and_then(precision).map(|p| format!("vector_{p}"));
    let flops = largest.map_or(0.0, |(shape, _)| product(shape));
    let shown = operands.iter().map(|(s, d)| Param::Tuple(vec![Param::ints(s), d.clone().into()])).collect::<Vec<_>>();
    let list = vec![("operands", Param::List(shown))];
    Ok(vector_cost(list, flops, (bytes > 0.0).then_some(bytes), spec))
}

pub fn afp4wfp4(given: &Given) -> Read<Cost> {
    let (x, w) = (given.shape(0)?, given.shape(1)?);
    let dtypes = [given.dtype(0)?, given.dtype(1)?, BF16.to_string()];
    let extents = [at(&x, 0)?, at(&w, 0)?, 2 * at(&x, 1)?];
    let sizes = [Some(0.5), Some(0.5), Some(2.0), Some(2.0)];
    let shape = Weighted { batch: Some(1), extents, bias: false, dtypes: &dtypes, sizes, precise: 0 };
    let cost = weighted(given, &shape, Vec::new())?;
    Ok(Cost { spec: Some("matrix_fp4".into()), ..cost })
}

/// Quantised to one type, or to fp4 by rows and by columns with factors for each 32.
pub fn quantised(given: &Given, fp4: bool) -> Read<Cost> {
    let shape = given.shape(0)?;
    let dtype = given.dtype(0)?;
    let out = if fp4 { "c10::Float4_e2m1fn_x2" } else { "c10::Float8_e4m3fnuz" };
    let list = vec![
        ("op_shape", Param::ints(&shape)),
        ("dtype_in_out", Param::texts(&[dtype.as_str(), out])),
        ("stride_input", given.stride_or_none(0).unwrap_or(Param::None)),
        ("stride_output", Param::None),
    ];
    let elements = product(&shape);
    let bytes = match (size_of(&dtype), fp4) {
        (None, _) => None,
        (Some(size), false) => Some(elements * size + elements),
        (Some(size), true) => {
            let [m, n]: [i64; 2] = shape.clone().try_into().map_err(|_| Fail::Error)?;
            let blocks = |extent: i64| ((extent + 31) / 32) as f64;
            let packed = ((m * n + 1) / 2) as f64;
            Some(elements * size + 2.0 * packed + m as f64 * blocks(n) + n as f64 * blocks(m))
        }
    };
    Ok(vector_cost(list, elements, bytes, vector(given, 0)))
}

/// vLLM's own quantisation in groups along the rows.
pub fn token_group_quant(given: &Given) -> Read<Cost> {
    let shape = given.dims_or_none().first().map_or(Ok(Vec::new()), integers)?;
    let (m, n) = match shape.as_slice() {
        [m, n, ..] => (*m, *n),
        [n] => (1, *n),
        [] => (1, 1),
    };
    let size = given.text_or_empty(1).trim().parse::<i64>().ok().filter(|n| *n != 0).unwrap_or(128);
    let groups = ((n + size - 1).div_euclid(size)).max(1);
    let dtype = kind(given, 0).unwrap_or_default();
    let all = Param::ints(&shape);
    let list = vec![
        ("M", m.into()),
        ("N", n.into()),
        ("group_size", size.into()),
        ("num_groups", groups.into()),
        ("shape_x", all.clone()),
        ("dtype_x", dtype.as_str().into()),
        ("shape_in1", all.clone()),
        ("shape_in2", Param::Tuple(Vec::new())),
        ("shape_out", all),
        ("dtype_in1_in2_out", Param::Tuple(vec![dtype.as_str().into(), Param::None, "c10::float8_e4m3fn".into()])),
        ("stride_input1", Param::None),
        ("stride_input2", Param::None),
        ("stride_output", Param::None),
    ];
    let [m, n, groups] = [m, n, groups].map(|x| x as f64);
    let bytes = size_of(&dtype).map(|size| m * n * size + m * n + m * groups * 4.0);
    Ok(vector_cost(list, 6.0 * m * n, bytes, vector(given, 0)))
}
