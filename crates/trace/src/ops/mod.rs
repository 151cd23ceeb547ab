//! What operations cost: FLOPs and bytes by their definition, one family a file. Every tensor is read or
//! written once; an operation on one element, a transcendental one too, is one FLOP.

mod attention;
mod convolution;
mod elementwise;
mod engines;
mod indexed;
mod movement;
pub mod opaque;
mod operand;
mod rows;
mod triton;

use crate::calls::{Arguments, operands_of};
use gemwright_core::{Call, Op, Operands};

/// Which part of a chip works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Multiplies matrices.
    Matrix,
    /// Everything else.
    Vector,
}

/// Of one call.
#[derive(Debug, Clone, PartialEq)]
pub struct Cost {
    pub flops: f64,
    pub bytes: f64,
    pub unit: Unit,
    /// The profiler's name of the type it computes in.
    pub dtype: String,
}

/// The family an operation belongs to: the name of its sheet.
pub fn family(name: &str, arguments: &Arguments) -> Option<&'static str> {
    if let Some(found) = operands_of(name, arguments) {
        return found.ok().map(|(op, _)| match op {
            Op::Mm | Op::Addmm | Op::Bmm | Op::Baddbmm => "GEMM",
            Op::GroupedMm => "GroupedGEMM",
            Op::Convolution => "CONV_fwd",
            Op::ConvolutionBackward => "CONV_bwd",
            Op::Attention => "SDPA_fwd",
            Op::AttentionBackward => "SDPA_bwd",
        });
    }
    attention::family(name)
        .or_else(|| elementwise::family(name))
        .or_else(|| rows::family(name))
        .or_else(|| engines::family(name))
}

/// `None`: not an operation of this family.
type Found = Option<Result<Cost, String>>;

/// The first kernel of a call, which tells what arguments do not.
#[derive(Debug, Clone, Copy, Default)]
pub struct Launch<'k> {
    /// Its name.
    pub kernel: &'k str,
    /// Blocks in each direction.
    pub grid: Option<[u64; 3]>,
}

/// Arguments of these do not tell all: their kernel is looked at.
pub fn told_by_kernel(name: &[u8]) -> bool {
    matches!(name, b"aten::cat" | b"aten::stack" | b"aten::index" | b"aten::index_put_" | b"aten::_index_put_impl_")
}

/// What a call costs.
pub fn cost(name: &str, arguments: &Arguments, launch: Launch) -> Found {
    // What the list of calls cannot hold may still have a cost.
    let call = product(name, arguments).filter(Result::is_ok);
    call.or_else(|| convolution::cost(name, arguments))
        .or_else(|| product(name, arguments))
        .or_else(|| attention::cost(name, arguments))
        .or_else(|| elementwise::cost(name, arguments))
        .or_else(|| rows::cost(name, arguments))
        .or_else(|| movement::cost(name, arguments, launch.kernel))
        .or_else(|| indexed::cost(name, arguments, launch))
        .or_else(|| engines::cost(name, arguments))
        .or_else(|| triton::cost(name, arguments))
}

/// Products, convolutions and attention, as the list of calls has them.
fn product(name: &str, arguments: &Arguments) -> Found {
    let found = operands_of(name, arguments)?;
    Some(found.map(|(op, operands)| {
        let call = Call::once(op, operands);
        let first = match operands {
            Operands::Product { a, .. } | Operands::Grouped { a, .. } => a.dtype,
            Operands::Convolution(c) => c.input.dtype,
            Operands::Attention(a) => a.q.dtype,
        };
        // What a causal mask leaves: the kernels skip the rest.
        Cost {
            flops: call.flops_causal() as f64,
            bytes: call.bytes() as f64,
            unit: Unit::Matrix,
            dtype: profiler_name(first).into(),
        }
    }))
}

fn profiler_name(dtype: gemwright_core::DType) -> &'static str {
    use gemwright_core::DType;
    match dtype {
        DType::F64 => "double",
        DType::F32 => "float",
        DType::F16 => "c10::Half",
        DType::Bf16 => "c10::BFloat16",
        DType::F8E4m3 => "c10::Float8_e4m3fn",
        DType::F8E5m2 => "c10::Float8_e5m2",
        DType::C64 => "c10::complex<float>",
        DType::C128 => "c10::complex<double>",
        DType::I4 | DType::I8 => "signed char",
        DType::I32 => "int",
        DType::Bool => "bool",
    }
}

#[cfg(test)]
mod tests;
