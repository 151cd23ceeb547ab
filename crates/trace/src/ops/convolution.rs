//! Convolutions that the list of calls does not have: transposed ones, and backwards of those.

use super::operand::Operand;
use super::{Cost, Found, Unit};
use crate::calls::Arguments;

pub fn cost(name: &str, arguments: &Arguments) -> Found {
    match name {
        "aten::convolution" => Some(convolution(arguments, 0, 3, None)),
        "aten::convolution_backward" => Some(convolution(arguments, 1, 4, Some(10))),
        _ => None,
    }
}

/// Input and weight from `first` on, the geometry from `geometry` on; a backward has a mask of what it computes.
fn convolution(arguments: &Arguments, first: usize, geometry: usize, mask: Option<usize>) -> Result<Cost, String> {
    let (input, weight) = (Operand::needed(arguments, first)?, Operand::needed(arguments, first + 1)?);
    let rank = input.size.len();
    if rank < 3 || weight.size.len() != rank {
        return Err("its operands are no images and filters".into());
    }
    let transposed = arguments.flag(geometry + 3)?.unwrap_or(false);
    let numbers = |at: usize| arguments.numbers(at, rank - 2);
    let (stride, padding, dilation) = (numbers(geometry)?, numbers(geometry + 1)?, numbers(geometry + 2)?);
    let groups = arguments.number(geometry + 5)?.unwrap_or(1.0);
    let mut size = vec![input.size[0], if transposed { weight.size[1] * groups as i64 } else { weight.size[0] }];
    let more = if transposed { numbers(geometry + 4)? } else { vec![0; rank - 2] };
    for d in 0..rank - 2 {
        let reach = dilation[d] * (weight.size[d + 2] - 1);
        size.push(match (transposed, stride[d]) {
            (true, stride) => (input.size[d + 2] - 1) * stride - 2 * padding[d] + reach + more[d] + 1,
            (false, 0) => return Err("its stride is 0".into()),
            (false, stride) => (input.size[d + 2] + 2 * padding[d] - reach - 1).div_euclid(stride) + 1,
        });
    }
    let out = input.like(&size);
    let per_place: f64 = weight.size[1..].iter().map(|n| *n as f64).product();
    // A term for each place of the smaller of the two images.
    let once = 2.0 * per_place * if transposed { input.elements() } else { out.elements() };
    let tensors = input.bytes() + weight.bytes() + out.bytes();
    let (flops, bytes) = match mask {
        None => (once, tensors + Operand::at(arguments, 2).map_or(0.0, |bias| bias.bytes())),
        Some(at) => {
            let wanted = arguments.flags(at)?;
            let parts = wanted.iter().take(2).filter(|w| **w).count() as f64;
            // Each gradient reads the incoming one and the other operand, and writes its own.
            (parts * once, out.bytes() + parts * (input.bytes() + weight.bytes()))
        }
    };
    Ok(Cost { flops, bytes, unit: Unit::Matrix, dtype: input.dtype })
}
