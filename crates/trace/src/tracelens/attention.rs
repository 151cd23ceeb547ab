//! Attention, forward and backward.

use super::given::{Given, Read, precision, size_of};
use super::value::Param;
use super::{Cost, Fail, Work};

/// Where q, k, v, dropout and causality stand, and how the sizes are ordered.
pub struct Layout {
    pub q: usize,
    /// Heads before places, as ATen has them.
    pub heads_first: bool,
    pub dropout: Option<usize>,
    pub causal: Causal,
    pub flash: bool,
    pub strides: bool,
    pub dtypes: bool,
    /// It is the backward itself.
    pub backward: bool,
}

/// How causality is written.
pub enum Causal {
    /// `true` in any case.
    Word(usize),
    /// An expression of one word, which must be there.
    Expression(usize),
    /// The same, true where nothing stands.
    ExpressionOrTrue(usize),
}

const ATEN: Layout = Layout {
    q: 0,
    heads_first: true,
    dropout: Some(5),
    causal: Causal::Word(6),
    flash: false,
    strides: false,
    dtypes: true,
    backward: false,
};

const FLASH: Layout = Layout { heads_first: false, flash: true, dtypes: false, ..ATEN };

pub const ATEN_FLASH: Layout = Layout { dropout: Some(3), causal: Causal::Word(4), flash: true, ..ATEN };
pub const ATEN_OTHER: Layout = ATEN;
pub const FLASH_FORWARD: Layout =
    Layout { dropout: Some(3), causal: Causal::Expression(5), strides: true, dtypes: true, ..FLASH };
pub const FLASH_BACKWARD: Layout = Layout {
    q: 1,
    dropout: Some(8),
    causal: Causal::ExpressionOrTrue(10),
    strides: true,
    dtypes: true,
    backward: true,
    ..FLASH
};
pub const AITER_FORWARD: Layout = Layout { dropout: Some(3), causal: Causal::Word(5), ..FLASH };
pub const AITER_BACKWARD: Layout = Layout { dropout: Some(10), causal: Causal::Word(12), backward: true, ..FLASH };
pub const AITER_V3_FORWARD: Layout = Layout { q: 1, dropout: Some(4), causal: Causal::Word(6), ..FLASH };
pub const AITER_V3_BACKWARD: Layout =
    Layout { q: 1, dropout: Some(7), causal: Causal::Word(9), backward: true, ..FLASH };
pub const AITER_MHA_BACKWARD: Layout =
    Layout { q: 1, dropout: Some(6), causal: Causal::Word(8), backward: true, ..FLASH };
pub const FLASH_3: Layout = Layout { dropout: None, causal: Causal::Word(24), ..FLASH };

/// Extents of an attention.
#[derive(Clone, Copy)]
struct Extents {
    batch: f64,
    queries: f64,
    heads: f64,
    keys: f64,
    key_heads: f64,
    width: f64,
    value_width: f64,
}

impl Extents {
    fn halved(&self, causal: bool, flops: f64) -> Read<f64> {
        match causal {
            false => Ok(flops),
            true if self.queries == self.keys => Ok(flops / 2.0),
            true => Err(Fail::Error),
        }
    }

    fn flops(&self, causal: bool) -> Read<f64> {
        let pairs = self.batch * self.heads * 2.0 * self.queries * self.keys;
        self.halved(causal, pairs * (self.width + self.value_width))
    }

    fn flops_backward(&self, causal: bool, flash: bool) -> Read<f64> {
        let pairs = self.batch * self.heads * 2.0 * self.queries * self.keys;
        let again = if flash { self.width } else { 0.0 };
        if self.key_heads == 0.0 {
            return Err(Fail::Error);
        }
        let shared = (self.heads / self.key_heads).floor() - 1.0;
        let sums = self.batch * self.keys * (self.value_width + self.width) * shared;
        self.halved(causal, pairs * (again + 2.0 * self.value_width + 2.0 * self.width) + sums)
    }

    fn elements(&self) -> [f64; 4] {
        let rows = self.batch * self.queries * self.heads;
        let key_rows = self.batch * self.keys * self.key_heads;
        [rows * self.width, key_rows * self.width, key_rows * self.value_width, rows * self.value_width]
    }

    fn bytes(&self, size: f64) -> f64 {
        self.elements().iter().sum::<f64>() * size
    }

    fn bytes_backward(&self, size: f64) -> f64 {
        let [q, k, v, out] = self.elements();
        (2.0 * (q + k + v) + out) * size
    }
}

struct Config {
    extents: Extents,
    params: Vec<(String, Param)>,
}

/// Sizes as (batch, heads, places, width), checked against one another.
fn config(q: [i64; 4], k: [i64; 4], v: [i64; 4]) -> Read<Config> {
    if q[0] != k[0] || q[0] != v[0] || k[1] != v[1] || k[2] != v[2] || q[3] != k[3] {
        return Err(Fail::Error);
    }
    let values = [q[0], q[2], q[1], k[2], k[1], q[3], v[3]];
    let names = ["B", "N_Q", "H_Q", "N_KV", "H_KV", "d_h_qk", "d_h_v"];
    let params = names.iter().zip(values).map(|(name, value)| (name.to_string(), value.into())).collect();
    let [batch, queries, heads, keys, key_heads, width, value_width] = values.map(|x| x as f64);
    Ok(Config { extents: Extents { batch, queries, heads, keys, key_heads, width, value_width }, params })
}

fn four(shape: &[i64], heads_first: bool) -> Read<[i64; 4]> {
    let order = if heads_first { [0, 1, 2, 3] } else { [0, 2, 1, 3] };
    let mut out = [0; 4];
    for (place, i) in out.iter_mut().zip(order) {
        *place = *shape.get(i).ok_or(Fail::Error)?;
    }
    Ok(out)
}

fn causal(given: &Given, rule: &Causal) -> Read<bool> {
    match rule {
        Causal::Word(at) => given.is_true(*at),
        Causal::Expression(at) => given.word(*at),
        Causal::ExpressionOrTrue(at) => match given.text_or_empty(*at).as_str() {
            "" => Ok(true),
            _ => given.word(*at),
        },
    }
}

fn push(params: &mut Vec<(String, Param)>, name: &str, value: impl Into<Param>) {
    params.push((name.into(), value.into()));
}

pub fn attention(given: &Given, layout: &Layout) -> Read<Cost> {
    let shape = |i: usize| four(&given.shape(layout.q + i)?, layout.heads_first);
    let Config { extents, mut params } = config(shape(0)?, shape(1)?, shape(2)?)?;
    if layout.strides {
        for (i, name) in ["q_stride", "k_stride", "v_stride"].into_iter().enumerate() {
            push(&mut params, name, given.stride(layout.q + i)?);
        }
    }
    let dropout = match layout.dropout {
        None => 0.0,
        Some(at) if layout.strides && !layout.backward => given.float(at)?,
        Some(at) if layout.strides => given.text_or_empty(at).trim().parse().unwrap_or(0.0),
        Some(at) => given.float_or_zero(at)?,
    };
    let causal = causal(given, &layout.causal)?;
    push(&mut params, "dropout", dropout);
    push(&mut params, "causal", causal);
    push(&mut params, "flash_impl", layout.flash);
    let dtypes = if layout.dtypes { given.dtypes(0, 2)? } else { Vec::new() };
    if layout.dtypes {
        push(&mut params, "dtype_A_B", Param::texts(&dtypes));
    }
    let back = || -> Read<Work> {
        let size = if layout.backward && layout.dtypes { dtypes.first().and_then(|d| size_of(d)) } else { Some(2.0) };
        let size = size.ok_or(Fail::Error)?;
        let flops = extents.flops_backward(causal, layout.flash)?;
        Ok(Work { flops, bytes: Some(extents.bytes_backward(size)) })
    };
    let forward = match layout.backward {
        true => back()?,
        false => Work { flops: extents.flops(causal)?, bytes: Some(extents.bytes(2.0)) },
    };
    let spec = dtypes.first().and_then(|d| precision(d)).map(|p| format!("matrix_{p}"));
    Ok(Cost { params, forward: Some(forward), backward: back().ok(), spec })
}

/// Sequences of different lengths, one behind the other: the longest, and the others as if all alike.
pub fn variable(given: &Given, backward: bool) -> Read<Cost> {
    let first = usize::from(backward);
    let shape = |i: usize| -> Read<[i64; 4]> {
        let [places, heads, width]: [i64; 3] = given.shape(first + i)?.try_into().map_err(|_| Fail::Error)?;
        Ok([1, heads, places, width])
    };
    let Config { extents, mut params } = config(shape(0)?, shape(1)?, shape(2)?)?;
    for (i, name) in ["q_stride", "k_stride", "v_stride"].into_iter().enumerate() {
        push(&mut params, name, given.stride(first + i)?);
    }
    let (offsets, longest, dropout, causal) = if backward { (9, 11, 13, 15) } else { (3, 5, 7, 9) };
    let number = |at: usize| -> Read<i64> { Ok(given.shape(at)?.first().copied().ok_or(Fail::Error)? - 1) };
    let (sequences, key_sequences) = (number(offsets)?, number(offsets + 1)?);
    let (most, key_most) = (given.float(longest)?, given.float(longest + 1)?);
    let dropout = given.float(dropout)?;
    let causal = given.word(causal)?;
    let dtypes = given.dtypes(0, 2)?;
    push(&mut params, "dropout", dropout);
    push(&mut params, "causal", causal);
    push(&mut params, "flash_impl", true);
    push(&mut params, "dtype_A_B", Param::texts(&dtypes));
    push(&mut params, "num_seqs_q", sequences);
    push(&mut params, "num_seqs_kv", key_sequences);
    push(&mut params, "max_seqlen_q", most);
    push(&mut params, "max_seqlen_kv", key_most);
    let flops = |queries: f64, keys: f64| -> Read<f64> {
        let one = Extents { queries, keys, ..extents };
        if backward { one.flops_backward(causal, true) } else { one.flops(causal) }
    };
    let mut sum = flops(most, key_most)?;
    if sequences > 1 {
        if key_sequences == 1 {
            return Err(Fail::Error);
        }
        let rest = ((extents.queries - most) / (sequences - 1) as f64).floor();
        let key_rest = ((extents.keys - key_most) / (key_sequences - 1) as f64).floor();
        sum += (sequences - 1) as f64 * flops(rest, key_rest)?;
    }
    let bytes = if backward { extents.bytes_backward(2.0) } else { extents.bytes(2.0) };
    let back = extents.flops_backward(causal, true).ok();
    Ok(Cost {
        params,
        forward: Some(Work { flops: sum, bytes: Some(bytes) }),
        backward: back.map(|flops| Work { flops, bytes: Some(extents.bytes_backward(2.0)) }),
        spec: dtypes.first().and_then(|d| precision(d)).map(|p| format!("matrix_{p}")),
    })
}

/// Attention over the residues of a protein: batch and sequences folded into one.
pub fn evoformer(given: &Given) -> Read<Cost> {
    let [batch, sequences, places, heads, width]: [i64; 5] = given.shape(0)?.try_into().map_err(|_| Fail::Error)?;
    let all = [batch * sequences, heads, places, width];
    let Config { extents, mut params } = config(all, all, all)?;
    push(&mut params, "causal", false);
    push(&mut params, "flash_impl", false);
    let dtype = given.types().ok().and_then(|types| types.first().cloned());
    push(&mut params, "dtype_A_B", Param::List(vec![dtype.clone().into()]));
    Ok(Cost {
        params,
        forward: Some(Work { flops: extents.flops(false)?, bytes: Some(extents.bytes(2.0)) }),
        backward: Some(Work { flops: extents.flops_backward(false, false)?, bytes: Some(extents.bytes_backward(2.0)) }),
        spec: dtype.and_then(|d| precision(&d)).map(|p| format!("matrix_{p}")),
    })
}
