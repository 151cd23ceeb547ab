//! Normalisations, forward and backward.

use super::given::{Given, Read, precision, product, size_of};
use super::value::Param;
use super::{Cost, Fail, Work};

/// What the formulas need.
struct Norm {
    shape: Vec<i64>,
    dtype: String,
    stride: Param,
    channels: Channels,
    bias: bool,
    affine: bool,
    training: bool,
    mask: Option<Vec<bool>>,
}

/// A count, or a quotient that Python leaves a float.
#[derive(Clone, Copy)]
enum Channels {
    Whole(i64),
    Quotient(f64),
}

impl Channels {
    fn value(self) -> f64 {
        match self {
            Channels::Whole(n) => n as f64,
            Channels::Quotient(x) => x,
        }
    }
}

impl Norm {
    fn of(given: &Given, at: usize, channels: Channels, affine: bool, training: bool) -> Read<Norm> {
        Ok(Norm {
            shape: given.shape(at)?,
            dtype: given.dtype(at)?,
            stride: given.stride(at)?,
            channels,
            bias: true,
            affine,
            training,
            mask: None,
        })
    }

    fn elements(&self) -> f64 {
        product(&self.shape)
    }

    fn forward(&self, size: f64) -> Work {
        let (elements, channels) = (self.elements(), self.channels.value());
        let training = if self.training { 3.0 * elements } else { 0.0 };
        let tensors = 2.0
            + f64::from(u8::from(self.affine))
            + f64::from(u8::from(self.affine && self.bias))
            + if self.training { 2.0 } else { 0.0 };
        Work {
            flops: 6.0 * channels + training + 2.0 * elements,
            bytes: Some(2.0 * elements * size + tensors * channels * size),
        }
    }

    fn backward(&self, size: f64) -> Read<Work> {
        let (elements, channels) = (self.elements(), self.channels.value());
        if channels == 0.0 {
            return Err(Fail::Error);
        }
        let first = *self.mask.as_ref().and_then(|mask| mask.first()).ok_or(Fail::Error)?;
        let each = elements / channels;
        let mut per_channel = if self.training { 0.0 } else { 3.0 } + 4.0 * each;
        per_channel += match (first, self.training) {
            (true, true) => 5.0 * each,
            (true, false) => 0.0,
            (false, _) => 2.0 * each,
        };
        let mut bytes = elements * size + elements * size * if first && self.training { 2.0 } else { 1.0 };
        if self.training {
            bytes += channels * size;
        }
        if self.affine {
            bytes += channels * size;
            if self.training {
                bytes += channels * size * if self.bias { 2.0 } else { 1.0 };
            }
        }
        Ok(Work { flops: channels * per_channel, bytes: Some(bytes) })
    }

    fn cost(&self, work: impl Fn(&Norm, f64) -> Read<Work>) -> Read<Cost> {
        let size = size_of(&self.dtype).ok_or(Fail::Error)?;
        let channels = match self.channels {
            Channels::Whole(n) => Param::Int(n),
            Channels::Quotient(x) => Param::Float(x),
        };
        let mut params: Vec<(String, Param)> = [
            ("op_shape", Param::ints(&self.shape)),
            ("dtype_in_out", Param::Tuple(vec![self.dtype.clone().into(), Param::None])),
            ("stride_input", self.stride.clone()),
            ("stride_output", Param::None),
            ("num_channels", channels),
            ("has_bias", self.bias.into()),
            ("is_affine", self.affine.into()),
            ("is_training", self.training.into()),
        ]
        .map(|(name, value)| (name.to_string(), value))
        .into();
        if let Some(mask) = &self.mask {
            params.push(("output_mask".into(), Param::List(mask.iter().map(|m| Param::Bool(*m)).collect())));
        }
        let spec = precision(&self.dtype).map(|p| format!("vector_{p}"));
        Ok(Cost { params, forward: Some(work(self, size)?), backward: None, spec })
    }
}

/// An entry of the sizes that is not null: an empty list is not.
fn there(given: &Given, at: usize) -> Read<bool> {
    Ok(!given.entry(at)?.is_null())
}

fn second(shape: &[i64]) -> Read<Channels> {
    shape.get(1).copied().map(Channels::Whole).ok_or(Fail::Error)
}

fn normalised(given: &Given, at: usize) -> Read<Channels> {
    Ok(Channels::Whole(given.int_list(at)?.iter().product()))
}

fn forward(norm: &Norm, size: f64) -> Read<Work> {
    Ok(norm.forward(size))
}

fn backward(norm: &Norm, size: f64) -> Read<Work> {
    norm.backward(size)
}

pub fn batch(given: &Given) -> Read<Cost> {
    let affine = there(given, 2)?;
    // Any text is true, `False` too.
    let training = !given.text(5)?.is_empty();
    Norm::of(given, 0, second(&given.shape(0)?)?, affine, training)?.cost(forward)
}

pub fn batch_backward(given: &Given) -> Read<Cost> {
    let vendor = matches!(given.name.as_str(), "aten::cudnn_batch_norm_backward" | "aten::miopen_batch_norm_backward");
    let at = usize::from(!vendor);
    let training = !vendor && !given.text(7)?.is_empty();
    let mask = vendor || there(given, 0)?;
    let channels = second(&given.shape(at)?)?;
    let norm = Norm::of(given, at, channels, there(given, 2)?, training)?;
    Norm { mask: Some(vec![mask]), ..norm }.cost(backward)
}

pub fn layer(given: &Given) -> Read<Cost> {
    let bias = there(given, 3)?;
    let norm = Norm::of(given, 0, normalised(given, 1)?, there(given, 2)?, true)?;
    Norm { bias, ..norm }.cost(forward)
}

pub fn layer_backward(given: &Given) -> Read<Cost> {
    let mask = given.bool_list(7)?;
    let at = |i: usize| mask.get(i).copied().ok_or(Fail::Error);
    let norm = Norm::of(given, 1, normalised(given, 2)?, at(1)?, true)?;
    Norm { bias: at(2)?, mask: Some(mask), ..norm }.cost(backward)
}

pub fn group(given: &Given) -> Read<Cost> {
    Norm::of(given, 0, second(&given.shape(0)?)?, there(given, 2)?, true)?.cost(forward)
}

pub fn group_backward(given: &Given) -> Read<Cost> {
    let channels = second(&given.shape(1)?)?.value() / given.int(8)? as f64;
    let norm = Norm::of(given, 1, Channels::Quotient(channels), there(given, 5)?, true)?;
    Norm { mask: Some(given.bool_list(9)?), ..norm }.cost(backward)
}

pub fn instance(given: &Given) -> Read<Cost> {
    let training = !given.text(5)?.is_empty();
    Norm::of(given, 0, second(&given.shape(0)?)?, there(given, 2)?, training)?.cost(forward)
}

/// Layer norm with a scale and a shift for each sample, of diffusion transformers; forward and backward.
pub fn modulated(given: &Given, backward: bool) -> Read<Cost> {
    let shape = given.shape(0)?;
    let [places, batch, width] = [0, 1, 2].map(|i| shape.get(i).copied());
    let (places, batch, width) = (places.ok_or(Fail::Error)?, batch.ok_or(Fail::Error)?, width.ok_or(Fail::Error)?);
    let norm = Norm {
        shape,
        dtype: given.dtype(0)?,
        stride: given.stride_or_none(0).unwrap_or(Param::None),
        channels: Channels::Whole(width),
        bias: true,
        affine: true,
        training: true,
        mask: backward.then(|| vec![true; 3]),
    };
    norm.cost(|norm, size| {
        let elements = norm.elements();
        let (rows, columns) = (places as f64 * batch as f64, batch as f64 * width as f64);
        let (flops, tensors, sides) = if backward { (15.0, 3.0, 3.0) } else { (12.0, 2.0, 2.0) };
        let bytes = tensors * elements * size + sides * columns * size + 2.0 * rows * 4.0;
        Ok(Work { flops: flops * elements, bytes: Some(bytes) })
    })
}

pub fn rms(given: &Given) -> Read<Cost> {
    let norm = Norm::of(given, 0, normalised(given, 1)?, there(given, 2)?, false)?;
    Norm { bias: false, ..norm }.cost(|norm, size| {
        let (elements, channels) = (norm.elements(), norm.channels.value());
        let rows = elements / channels;
        let flops = rows * (2.0 * channels + 2.0) + elements * if norm.affine { 2.0 } else { 1.0 };
        Ok(Work { flops, bytes: Some(2.0 * elements * size + if norm.affine { channels * size } else { 0.0 }) })
    })
}

pub fn rms_backward(given: &Given) -> Read<Cost> {
    let norm = Norm::of(given, 1, normalised(given, 2)?, there(given, 4)?, false)?;
    Norm { bias: false, mask: Some(given.bool_list(5)?), ..norm }.cost(|norm, size| {
        let (elements, channels) = (norm.elements(), norm.channels.value());
        let mask = |i: usize| norm.mask.as_ref().and_then(|m| m.get(i)).copied().ok_or(Fail::Error);
        let mut flops = if norm.affine { 2.0 * elements } else { elements };
        if mask(0)? {
            flops += 6.0 * elements;
        }
        if mask(1)? && norm.affine {
            flops += if elements / channels > 1.0 { 2.0 * elements } else { elements };
        }
        let weights = if norm.affine { 2.0 * channels * size } else { 0.0 };
        Ok(Work { flops, bytes: Some(3.0 * elements * size + weights) })
    })
}
