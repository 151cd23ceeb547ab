//! Products of matrices.

use super::given::{Given, Read, precision, size_of};
use super::value::Param;
use super::{Cost, Fail, Work};

/// Sizes of the elements of the two operands, the addend and the result.
pub type Sizes = [Option<f64>; 4];

struct Shape {
    batch: Option<i64>,
    m: i64,
    n: i64,
    k: i64,
    bias: bool,
}

impl Shape {
    fn flops(&self) -> f64 {
        let [m, n, k] = [self.m, self.n, self.k].map(|x| x as f64);
        2.0 * m * n * k + if self.bias { m * n } else { 0.0 }
    }

    fn bytes(&self, [a, b, bias, out]: Sizes) -> Option<f64> {
        let [m, n, k] = [self.m, self.n, self.k].map(|x| x as f64);
        let (a, b, bias, out) = (a?, b?, bias?, out?);
        Some(m * k * a + k * n * b + m * n * out + if self.bias { n * bias } else { 0.0 })
    }
}

/// Flags of the library's call, as the name of the first kernel tells whose name does.
fn transposes(kernels: &[String]) -> Read<Option<Param>> {
    for name in kernels {
        if is_tensile(name.as_bytes()) {
            let flag = |no: &str, yes: &str| match (name.contains(no), name.contains(yes)) {
                (true, _) => Param::Bool(false),
                (_, true) => Param::Bool(true),
                _ => Param::None,
            };
            return Ok(Some(Param::Tuple(vec![flag("_Ailk_", "_Alik_"), flag("_Bljk_", "_Bjlk_")])));
        }
        if name.starts_with("nvjet") {
            let last: Vec<char> = name.rsplit('_').next().unwrap_or("").chars().collect();
            let flag = |i: usize| last.get(i).map(|c| Param::Bool(*c == 'T')).ok_or(Fail::Error);
            return Ok(Some(Param::Tuple(vec![flag(0)?, flag(1)?])));
        }
    }
    Ok(None)
}

/// Somewhere in it stands `Cijk_Alik_Bljk`, with any three letters each.
pub fn is_tensile(bytes: &[u8]) -> bool {
    let three = |at: usize| bytes[at..at + 3].iter().all(u8::is_ascii_lowercase);
    (0..bytes.len().saturating_sub(13)).any(|i| {
        bytes[i] == b'C'
            && three(i + 1)
            && &bytes[i + 4..i + 6] == b"_A"
            && three(i + 6)
            && &bytes[i + 9..i + 11] == b"_B"
            && three(i + 11)
    })
}

fn finish(
    given: &Given,
    shape: &Shape,
    strides: Option<[Param; 2]>,
    dtypes: &[String],
    more: Vec<(&str, Param)>,
) -> Read<Cost> {
    let mut params: Vec<(String, Param)> = Vec::new();
    let mut add = |name: &str, value: Param| params.push((name.into(), value));
    if let Some(batch) = shape.batch {
        add("B", batch.into());
    }
    add("M", shape.m.into());
    add("N", shape.n.into());
    add("K", shape.k.into());
    add("bias", shape.bias.into());
    if let Some([a, b]) = strides {
        add("stride_A", a);
        add("stride_B", b);
    }
    add("dtype_A_B", Param::texts(dtypes));
    for (name, value) in more {
        add(name, value);
    }
    if shape.batch.is_none() {
        add("B", 1.into());
    }
    if let Some(flags) = transposes(&given.kernels)? {
        add("transpose", flags);
    }
    Ok(Cost { params, ..Cost::default() })
}

/// With FLOPs and bytes; the precision is that of the first operand's type.
fn priced(cost: Cost, flops: f64, bytes: Option<f64>, dtype: Option<&String>) -> Cost {
    let spec = dtype.and_then(|d| precision(d)).map(|p| format!("matrix_{p}"));
    Cost { forward: Some(Work { flops, bytes }), spec, ..cost }
}

fn pair(given: &Given, a: usize, b: usize) -> Read<[Param; 2]> {
    Ok([given.stride_or_none(a)?, given.stride_or_none(b)?])
}

fn at(shape: &[i64], i: usize) -> Read<i64> {
    shape.get(i).copied().ok_or(Fail::Error)
}

/// mm and addmm, and what is laid out like them: operands [M, K] and [K, N] from `first` on.
fn matrix(given: &Given, first: usize, bias: bool, sizes: impl Fn(&[String]) -> Read<Sizes>) -> Read<Cost> {
    let (a, b) = (given.shape(first)?, given.shape(first + 1)?);
    let shape = Shape { batch: None, m: at(&a, 0)?, n: at(&b, 1)?, k: at(&a, 1)?, bias };
    let dtypes = given.dtypes(first, first + 2)?;
    let cost = finish(given, &shape, Some(pair(given, first, first + 1)?), &dtypes, Vec::new())?;
    let bytes = shape.bytes(sizes(&dtypes)?);
    Ok(priced(cost, shape.flops(), bytes, dtypes.first()))
}

fn all_like_first(dtypes: &[String]) -> Read<Sizes> {
    let size = size_of(dtypes.first().ok_or(Fail::Error)?);
    dtypes.get(1).ok_or(Fail::Error)?;
    Ok([size; 4])
}

pub fn mm(given: &Given) -> Read<Cost> {
    matrix(given, 0, false, all_like_first)
}

pub fn addmm(given: &Given) -> Read<Cost> {
    matrix(given, 1, true, all_like_first)
}

pub fn scaled_mm(given: &Given) -> Read<Cost> {
    matrix(given, 0, given.dims()?.len() == 3, |dtypes| {
        let [a, b] = [0, 1].map(|i| dtypes.get(i).and_then(|d| size_of(d)));
        let (a, _) = (a.ok_or(Fail::Error)?, b.ok_or(Fail::Error)?);
        let out = match a {
            1.0 => Some(2.0),
            2.0 | 4.0 => Some(a),
            _ => None,
        };
        Ok([Some(a), Some(a), Some(a), out])
    })
}

/// Transformer Engine's halves of a linear layer.
pub fn transformer_engine_half(given: &Given) -> Read<Cost> {
    matrix(given, 0, false, |dtypes| match dtypes {
        [a, b] if a == b => Ok([size_of(a), size_of(a), size_of(a), Some(2.0)]),
        _ => Err(Fail::Error),
    })
}

fn batched(given: &Given, first: usize, bias: bool) -> Read<Cost> {
    let ([batch, m, k], [_, _, n]) = (three(given, first)?, three(given, first + 1)?);
    let shape = Shape { batch: Some(batch), m, n, k, bias };
    let dtypes = given.dtypes(first, first + 2)?;
    let cost = finish(given, &shape, Some(pair(given, first, first + 1)?), &dtypes, Vec::new())?;
    let times = batch as f64;
    let bytes = shape.bytes(all_like_first(&dtypes)?).map(|b| times * b);
    Ok(priced(cost, times * shape.flops(), bytes, dtypes.first()))
}

fn three(given: &Given, at: usize) -> Read<[i64; 3]> {
    given.shape(at)?.try_into().map_err(|_| Fail::Error)
}

pub fn bmm(given: &Given) -> Read<Cost> {
    batched(given, 0, false)
}

pub fn baddbmm(given: &Given) -> Read<Cost> {
    batched(given, 1, true)
}

pub fn dynamic_quant(given: &Given) -> Read<Cost> {
    let shapes = given.dims_or_none().iter().filter_map(|v| super::given::integers(v).ok());
    let [a, b]: [Vec<i64>; 2] =
        shapes.filter(|s| s.len() == 2).take(2).collect::<Vec<_>>().try_into().map_err(|_| Fail::Error)?;
    let shape = Shape { batch: None, m: a[0], n: b[0], k: a[1], bias: false };
    let dtypes = given.dtypes(0, 2)?;
    let cost = finish(given, &shape, Some(pair(given, 0, 1)?), &dtypes, Vec::new())?;
    let bytes = shape.bytes(all_like_first(&dtypes)?);
    Ok(priced(cost, shape.flops(), bytes, dtypes.first()))
}

pub fn transformer_engine(given: &Given) -> Read<Cost> {
    let (a, b) = (given.shape(0)?, given.shape(5)?);
    given.entry(10)?;
    let (trans_a, trans_b) = (given.text(4)? == "1", given.text(9)? == "1");
    let (m, k) = if trans_a { (at(&a, 0)?, at(&a, 1)?) } else { (at(&a, 1)?, at(&a, 0)?) };
    let n = at(&b, usize::from(trans_b))?;
    let shape = Shape { batch: None, m, n, k, bias: !given.text(14)?.is_empty() };
    let dtypes = [given.dtype(0)?, given.dtype(5)?, given.dtype(10)?, given.dtype(18)?];
    let cost = finish(given, &shape, Some(pair(given, 0, 5)?), &dtypes, Vec::new())?;
    let [a, b, out, bias] = [0, 1, 2, 3].map(|i| size_of(&dtypes[i]));
    Ok(priced(cost, shape.flops(), shape.bytes([a, b, bias, out]), dtypes.first()))
}

/// hipBLASLt's fp8 and fp4 products of Primus: A and B with flags, which a third flag swaps.
fn hipblaslt(given: &Given, packed: bool) -> Read<Cost> {
    let (mut a, mut b) = (given.shape(0)?, given.shape(2)?);
    let flag = |i: usize| Ok(matches!(given.text(i)?.trim().to_lowercase().as_str(), "true" | "1"));
    let (mut trans_a, mut trans_b) = (flag(5)?, flag(6)?);
    if flag(7)? {
        std::mem::swap(&mut a, &mut b);
        (trans_a, trans_b) = (!trans_b, !trans_a);
    }
    let (m, k) = if trans_a { (at(&a, 1)?, at(&a, 0)?) } else { (at(&a, 0)?, at(&a, 1)?) };
    let n = if trans_b { at(&b, 0)? } else { at(&b, 1)? };
    let k = if packed { 2 * k } else { k };
    let shape = Shape { batch: None, m, n, k, bias: false };
    let types = given.types()?;
    let kind = |i: usize| types.get(i).cloned();
    let dtypes = [kind(0).ok_or(Fail::Error)?, kind(2).ok_or(Fail::Error)?];
    let more = vec![("dtype_scaleA", kind(1).into()), ("dtype_scaleB", kind(3).into())];
    let cost = finish(given, &shape, Some(pair(given, 0, 2)?), &dtypes, more)?;
    let [size_a, size_b] = [0, 1].map(|i| size_of(&dtypes[i]));
    let bytes = if packed {
        let scale = |i: usize| kind(i).and_then(|d| size_of(&d)).unwrap_or(1.0);
        packed_bytes([m, n, k], size_a, size_b, scale(1), scale(3))
    } else {
        let out = size_a.map(|a| if a == 1.0 { 2.0 } else { a });
        shape.bytes([size_a, size_b, size_a, out])
    };
    Ok(priced(cost, shape.flops(), bytes, dtypes.first()))
}

/// Two values a byte, a factor for each 32 of them, a result of two bytes.
fn packed_bytes([m, n, k]: [i64; 3], a: Option<f64>, b: Option<f64>, scale_a: f64, scale_b: f64) -> Option<f64> {
    let [m, n, k] = [m, n, k].map(|x| x as f64);
    let half = (k / 2.0).floor();
    let groups = (k / 32.0).ceil();
    Some(m * half * a? + n * half * b? + (m * scale_a + n * scale_b) * groups + 2.0 * m * n)
}

pub fn hipblaslt_fp8(given: &Given) -> Read<Cost> {
    hipblaslt(given, false)
}

pub fn hipblaslt_fp4(given: &Given) -> Read<Cost> {
    hipblaslt(given, true)
}

pub fn aiter_a4w4(given: &Given) -> Read<Cost> {
    let (a, b) = (given.shape(0)?, given.shape(1)?);
    let (m, k, n) = (at(&a, 0)?, 2 * at(&a, 1)?, at(&b, 0)?);
    let shape = Shape { batch: None, m, n, k, bias: false };
    let dtypes = given.dtypes(0, 2)?;
    let types = given.types()?;
    let kind = |i: usize| types.get(i).cloned();
    let more = vec![("dtype_scaleA", kind(2).into()), ("dtype_scaleB", kind(3).into())];
    let cost = finish(given, &shape, Some(pair(given, 0, 1)?), &dtypes, more)?;
    let scale = |i: usize| kind(i).and_then(|d| size_of(&d)).unwrap_or(1.0);
    let [size_a, size_b] = [0, 1].map(|i| dtypes.get(i).and_then(|d| size_of(d)));
    let bytes = packed_bytes([m, n, k], size_a, size_b, scale(2), scale(3));
    Ok(priced(cost, shape.flops(), bytes, dtypes.first()))
}

/// A product whose weight is [N, K], as serving engines write it.
pub struct Weighted<'a> {
    pub batch: Option<i64>,
    pub extents: [i64; 3],
    pub bias: bool,
    pub dtypes: &'a [String; 3],
    pub sizes: Sizes,
    /// The operand whose type it computes in.
    pub precise: usize,
}

pub fn weighted(given: &Given, product: &Weighted, more: Vec<(&str, Param)>) -> Read<Cost> {
    let Weighted { batch, extents: [m, n, k], bias, dtypes, sizes, precise } = *product;
    let shape = Shape { batch, m, n, k, bias };
    let cost = finish(given, &shape, None, dtypes, more)?;
    let times = batch.unwrap_or(1) as f64;
    let bytes = shape.bytes(sizes).map(|bytes| times * bytes);
    Ok(priced(cost, times * shape.flops(), bytes, dtypes.get(precise)))
}
