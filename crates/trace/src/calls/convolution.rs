//! Convolutions and their backward.

use super::arguments::Arguments;
use super::{Found, Read};
use gemwright_core::{Convolution, Dims, Op, Operands, View};

pub fn read(name: &str, arguments: &Arguments) -> Read {
    match name {
        "aten::convolution" => Some(forward(arguments)),
        "aten::convolution_backward" => Some(backward(arguments)),
        _ => None,
    }
}

/// Stride, padding, dilation, transposed, output padding and groups from `at` on.
struct Geometry {
    stride: Dims,
    padding: Dims,
    dilation: Dims,
    groups: i64,
}

impl Geometry {
    fn of(arguments: &Arguments, at: usize, input: &View, weight: &View) -> Result<Geometry, String> {
        if !(3..=5).contains(&input.rank()) || weight.rank() != input.rank() {
            return Err(format!("{input} and {weight} are no convolution over lines, images or volumes"));
        }
        if arguments.flag(at + 3)? == Some(true) {
            return Err("it is transposed".into());
        }
        let kernel = input.rank() - 2;
        let [stride, padding, dilation] = [at, at + 1, at + 2].map(|i| arguments.numbers(i, kernel));
        let (stride, padding, dilation) = (stride?, padding?, dilation?);
        let groups = arguments.number(at + 5)?.unwrap_or(1.0) as i64;
        let whole =
            groups > 0 && weight.size[0] % groups == 0 && input.size[1] == weight.size[1].saturating_mul(groups);
        // The kernel must fit into the padded input.
        let reach = |d: usize| dilation[d] * (weight.size[d + 2] - 1) < input.size[d + 2] + 2 * padding[d];
        if !whole || stride.contains(&0) || !(0..kernel).all(reach) {
            return Err(format!("{input} and {weight} do not fit with {groups} groups"));
        }
        let [stride, padding, dilation] = [stride, padding, dilation].map(|list| Dims::new(&list));
        Ok(Geometry { stride, padding, dilation, groups })
    }

    fn with(self, input: View, weight: View, bias: Option<View>, out: View, wanted: [bool; 3]) -> Convolution {
        let Geometry { stride, padding, dilation, groups } = self;
        Convolution { input, weight, bias, out, stride, padding, dilation, groups, wanted }
    }
}

fn forward(arguments: &Arguments) -> Found {
    let (input, weight, bias) = (arguments.tensor(0)?, arguments.tensor(1)?, arguments.optional(2)?);
    let geometry = Geometry::of(arguments, 3, &input, &weight)?;
    let mut convolution = geometry.with(input, weight, bias, input, [false; 3]);
    convolution.out = convolution.result();
    Ok((Op::Convolution, Operands::Convolution(convolution)))
}

fn backward(arguments: &Arguments) -> Found {
    let (gradient, input, weight) = (arguments.tensor(0)?, arguments.tensor(1)?, arguments.tensor(2)?);
    let geometry = Geometry::of(arguments, 4, &input, &weight)?;
    let wanted: [bool; 3] = arguments.flags(10)?.try_into().map_err(|_| "its output mask has not three entries")?;
    let bias = wanted[2].then(|| View::contiguous(&[weight.size[0]], weight.dtype));
    let convolution = geometry.with(input, weight, bias, gradient, wanted);
    if convolution.result().size != gradient.size {
        return Err(format!("its gradient {gradient} is not of the size of the result"));
    }
    Ok((Op::ConvolutionBackward, Operands::Convolution(convolution)))
}
