//! Convolutions, forward and backward.

use super::given::{Given, Read, precision, product, size_of};
use super::value::Param;
use super::{Cost, Fail, Work};

/// Parameters from which everything follows.
struct Conv {
    input: Vec<i64>,
    filter: Vec<i64>,
    out: Vec<i64>,
    bias: bool,
    transposed: bool,
}

impl Conv {
    fn forward(&self, size: Option<f64>) -> Work {
        let per_place = 2.0 * product(&self.filter[1..]);
        let places = product(if self.transposed { &self.input } else { &self.out });
        let bias = if self.bias { product(&self.out) } else { 0.0 };
        let added = if self.bias { self.out[1] as f64 } else { 0.0 };
        let elements = product(&self.input) + product(&self.filter) + added + product(&self.out);
        Work { flops: per_place * places + bias, bytes: size.map(|size| elements * size) }
    }

    fn backward(&self, size: Option<f64>) -> Work {
        // The gradient of the input is the convolution turned round; that of the filter one over images.
        let (per_place, turned) =
            (2.0 * product(&self.filter[1..]), if self.transposed { &self.input } else { &self.out });
        let by_filter = if self.transposed { &self.input } else { &self.out };
        let spatial = product(&by_filter[2..]) * by_filter[0] as f64;
        let bias = if self.bias { product(&self.out) } else { 0.0 };
        let flops = per_place * product(turned) + 2.0 * product(&self.filter) * spatial + bias;
        let elements = 2.0 * (product(&self.out) + product(&self.filter) + product(&self.input));
        // The addend's gradient is counted in elements.
        let added = if self.bias { product(&self.out) + self.out[1] as f64 } else { 0.0 };
        Work { flops, bytes: size.map(|size| elements * size + added) }
    }
}

/// Stride, padding, dilation and the rest as they are printed.
struct Settings {
    stride: Vec<i64>,
    padding: Vec<i64>,
    dilation: Vec<i64>,
    transposed: bool,
    output_padding: Vec<i64>,
    groups: i64,
}

fn settings(given: &Given, first: usize, dimensions: usize) -> Read<Settings> {
    let list = |at: usize, default: i64| -> Read<Vec<i64>> {
        let found = match given.text(at)?.as_str() {
            "" => vec![default; dimensions],
            _ => given.int_list(at)?,
        };
        Ok(if found.len() == 1 { vec![found[0]; dimensions] } else { found })
    };
    Ok(Settings {
        stride: list(first, 1)?,
        padding: list(first + 1, 0)?,
        dilation: list(first + 2, 1)?,
        transposed: given.word(first + 3)?,
        output_padding: list(first + 4, 0)?,
        groups: given.int(first + 5)?,
    })
}

fn result(input: &[i64], filter: &[i64], settings: &Settings) -> Read<Vec<i64>> {
    let mut out = vec![input[0], if settings.transposed { filter[1] } else { filter[0] }];
    for d in 0..input.len() - 2 {
        let at = |list: &[i64]| list.get(d).copied().ok_or(Fail::Error);
        let (stride, padding, dilation) = (at(&settings.stride)?, at(&settings.padding)?, at(&settings.dilation)?);
        let kernel = *filter.get(d + 2).ok_or(Fail::Error)?;
        out.push(if settings.transposed {
            let more = at(&settings.output_padding)?;
            (input[d + 2] - 1) * stride - 2 * padding + dilation * (kernel - 1) + more + 1
        } else if stride == 0 {
            return Err(Fail::Error);
        } else {
            let reach = (input[d + 2] + 2 * padding - dilation * (kernel - 1) - 1) as f64;
            (reach / stride as f64 + 1.0).trunc() as i64
        });
    }
    Ok(out)
}

fn cost(given: &Given, first: usize, settings: &Settings, bias: &Param, backward: bool) -> Read<Cost> {
    let (input, filter) = (given.shape(first)?, given.shape(first + 1)?);
    let dtypes = given.dtypes(first, first + 2)?;
    if dtypes.len() < 2 || dtypes[0] != dtypes[1] || filter.len() < 2 {
        return Err(Fail::Error);
    }
    let kind = match input.len() {
        3 => "conv1d",
        4 => "conv2d",
        5 => "conv3d",
        _ => return Err(Fail::Error),
    };
    let params: Vec<(String, Param)> = [
        ("convNd", kind.into()),
        ("input_shape", Param::ints(&input)),
        ("filter_shape", Param::ints(&filter)),
        ("dtype_input_weight", Param::texts(&dtypes)),
        ("input_stride", given.stride_or_none(first)?),
        ("weight_stride", given.stride_or_none(first + 1)?),
        ("bias", bias.clone()),
        ("stride", Param::ints(&settings.stride)),
        ("padding", Param::ints(&settings.padding)),
        ("dilation", Param::ints(&settings.dilation)),
        ("transposed_conv", settings.transposed.into()),
        ("output_padding", Param::ints(&settings.output_padding)),
        ("groups", settings.groups.into()),
    ]
    .map(|(name, value)| (name.to_string(), value))
    .into();
    let out = result(&input, &filter, settings)?;
    let conv = Conv { input, filter, out, bias: *bias == Param::Bool(true), transposed: settings.transposed };
    let size = size_of(&dtypes[0]);
    let (there, back) = (conv.forward(size), conv.backward(size));
    Ok(Cost {
        params,
        forward: Some(if backward { back } else { there }),
        backward: Some(back),
        spec: precision(&dtypes[0]).map(|p| format!("matrix_{p}")),
    })
}

fn dimensions(given: &Given, at: usize) -> Read<usize> {
    given.shape(at)?.len().checked_sub(2).ok_or(Fail::Error)
}

pub fn forward(given: &Given) -> Read<Cost> {
    let settings = settings(given, 3, dimensions(given, 0)?)?;
    cost(given, 0, &settings, &(given.dims()?.len() == 3).into(), false)
}

pub fn backward(given: &Given) -> Read<Cost> {
    let settings = settings(given, 4, dimensions(given, 1)?)?;
    // What Python's `and` leaves of "there is a bias": the empty list itself.
    let bias = match given.dims()?.get(3) {
        None => false.into(),
        Some(value) => match value.as_array() {
            Some(list) if list.is_empty() => Param::List(Vec::new()),
            Some(_) => true.into(),
            None => Param::None,
        },
    };
    cost(given, 1, &settings, &bias, true)
}

/// A convolution with its bias in one operation of a vendor: numbers in place of lists.
pub fn with_bias(given: &Given) -> Read<Cost> {
    let dimensions = dimensions(given, 0)?;
    let number = |at: usize, default: i64| match given.text_or_empty(at).as_str() {
        "" => Ok(vec![default; dimensions]),
        text => text.trim().parse().map(|n| vec![n; dimensions]).map_err(|_| Fail::Error),
    };
    given.concrete()?;
    let settings = Settings {
        stride: number(3, 1)?,
        padding: number(4, 0)?,
        dilation: vec![1; dimensions],
        transposed: false,
        output_padding: vec![0; dimensions],
        groups: 1,
    };
    cost(given, 0, &settings, &true.into(), false)
}
