//! Operations that only move data: copies, fills, concatenations, rows picked by an index.

use super::operand::Operand;
use super::{Cost, Found, Unit};
use crate::calls::Arguments;

pub fn cost(name: &str, arguments: &Arguments, kernel: &str) -> Found {
    Some(match name {
        "aten::copy_" => copy(arguments),
        // What casts or clones runs through copy_, which knows both sides.
        "aten::flip" | "aten::roll" => duplicate(arguments),
        "aten::fill_" | "aten::zero_" | "aten::normal_" | "aten::uniform_" | "aten::random_" | "aten::bernoulli_"
        | "aten::exponential_" => fill(arguments),
        "aten::arange" | "aten::linspace" => made(arguments),
        "aten::item" | "aten::_local_scalar_dense" => one_element(arguments),
        "aten::replication_pad1d" | "aten::replication_pad2d" | "aten::replication_pad3d" => padded(arguments),
        "aten::cat" | "aten::stack" => concatenation(arguments, kernel),
        "aten::embedding" => picked(arguments, 0, 1),
        "aten::index_select" => picked(arguments, 0, 2),
        "aten::gather" => gathered(arguments, 2),
        "aten::scatter_" | "aten::scatter_add_" | "aten::scatter" => gathered(arguments, 2),
        "aten::sort" | "aten::topk" => ordered(name, arguments),
        "aten::tril" | "aten::triu" | "aten::masked_select" => duplicate(arguments),
        "aten::upsample_nearest1d" | "aten::upsample_nearest2d" | "aten::upsample_nearest3d" => upsampled(arguments),
        "aten::max_pool2d_with_indices" | "aten::avg_pool2d" | "aten::_adaptive_avg_pool2d" => read_only(arguments),
        "aten::max_pool2d_with_indices_backward" => pool_gradient(arguments),
        "aten::embedding_dense_backward" => embedding_gradient(arguments),
        _ => return None,
    })
}

fn moved(bytes: f64, dtype: &str) -> Result<Cost, String> {
    Ok(Cost { flops: 0.0, bytes, unit: Unit::Vector, dtype: dtype.into() })
}

/// The second is read, the first written.
fn copy(arguments: &Arguments) -> Result<Cost, String> {
    let into = Operand::needed(arguments, 0)?;
    let from = Operand::at(arguments, 1).unwrap_or_else(|| into.clone());
    moved(into.bytes() + from.bytes(), &from.dtype)
}

fn duplicate(arguments: &Arguments) -> Result<Cost, String> {
    let from = Operand::needed(arguments, 0)?;
    moved(from.bytes() + from.like(&from.size).bytes(), &from.dtype)
}

fn read_only(arguments: &Arguments) -> Result<Cost, String> {
    let from = Operand::needed(arguments, 0)?;
    Ok(Cost { flops: from.elements(), ..moved(from.bytes(), &from.dtype)? })
}

fn fill(arguments: &Arguments) -> Result<Cost, String> {
    let into = Operand::needed(arguments, 0)?;
    moved(into.bytes(), &into.dtype)
}

/// Numbers in a row, written into the tensor that was given.
fn made(arguments: &Arguments) -> Result<Cost, String> {
    let given = (0..arguments.len()).rev().filter_map(|at| Operand::at(arguments, at)).find(|o| !o.size.is_empty());
    let into = given.ok_or("the size of its result was not recorded")?;
    moved(into.bytes(), &into.dtype)
}

fn one_element(arguments: &Arguments) -> Result<Cost, String> {
    let from = Operand::needed(arguments, 0)?;
    moved(2.0 * from.element, &from.dtype)
}

/// Pairs of numbers, the innermost dimension first.
fn padded(arguments: &Arguments) -> Result<Cost, String> {
    let from = Operand::needed(arguments, 0)?;
    let mut size = from.size.clone();
    for (i, both) in arguments.list(1)?.chunks_exact(2).enumerate() {
        let place = size.len().checked_sub(1 + i).ok_or("it pads more dimensions than there are")?;
        size[place] += both[0] + both[1];
    }
    moved(from.bytes() + from.like(&size).bytes(), &from.dtype)
}

/// All parts read and written. Their type is not recorded; the kernel is made for the size of an element.
fn concatenation(arguments: &Arguments, kernel: &str) -> Result<Cost, String> {
    let parts = arguments.tensors(0);
    if parts.is_empty() {
        return Err("its parts were not recorded".into());
    }
    let elements: f64 = parts.iter().map(|size| size.iter().map(|n| *n as f64).product::<f64>()).sum();
    let (size, dtype) = element_of(kernel).ok_or("the type of its parts was not recorded")?;
    moved(2.0 * elements * size, dtype)
}

/// The size of an element, from the template a kernel was made of.
fn element_of(kernel: &str) -> Option<(f64, &'static str)> {
    let known: [(&str, f64, &str); 10] = [
        ("OpaqueType<1u>", 1.0, "unsigned char"),
        ("OpaqueType<2u>", 2.0, "c10::BFloat16"),
        ("OpaqueType<4u>", 4.0, "float"),
        ("OpaqueType<8u>", 8.0, "long int"),
        ("BFloat16", 2.0, "c10::BFloat16"),
        ("Half", 2.0, "c10::Half"),
        ("<float", 4.0, "float"),
        ("<long", 8.0, "long int"),
        ("<int", 4.0, "int"),
        ("<bool", 1.0, "bool"),
    ];
    known.into_iter().find(|(word, _, _)| kernel.contains(word)).map(|(_, size, dtype)| (size, dtype))
}

/// Rows of a table by their numbers: as much is read as is written, but no more than there is.
fn picked(arguments: &Arguments, table: usize, index: usize) -> Result<Cost, String> {
    let (table, index) = (Operand::needed(arguments, table)?, Operand::needed(arguments, index)?);
    let width: f64 = table.size.iter().skip(1).map(|n| *n as f64).product();
    let written = index.elements() * width * table.element;
    moved(written + written.min(table.bytes()) + index.bytes(), &table.dtype)
}

fn gathered(arguments: &Arguments, index: usize) -> Result<Cost, String> {
    let (from, index) = (Operand::needed(arguments, 0)?, Operand::needed(arguments, index)?);
    moved(2.0 * index.elements() * from.element + index.bytes(), &from.dtype)
}

/// Values and places come out; one comparison an element is the least there can be.
fn ordered(name: &str, arguments: &Arguments) -> Result<Cost, String> {
    let from = Operand::needed(arguments, 0)?;
    let rows = from.elements() / from.size.last().copied().unwrap_or(1).max(1) as f64;
    let kept = match name {
        "aten::topk" => rows * arguments.number(1)?.unwrap_or(1.0),
        _ => from.elements(),
    };
    let cost = moved(from.bytes() + kept * (from.element + 8.0), &from.dtype)?;
    Ok(Cost { flops: from.elements(), ..cost })
}

/// The incoming gradient and its places are read, the gradient of the input is written.
fn pool_gradient(arguments: &Arguments) -> Result<Cost, String> {
    let (gradient, input) = (Operand::needed(arguments, 0)?, Operand::needed(arguments, 1)?);
    let bytes = gradient.bytes() + 8.0 * gradient.elements() + input.like(&input.size).bytes();
    Ok(Cost { flops: gradient.elements(), ..moved(bytes, &gradient.dtype)? })
}

fn upsampled(arguments: &Arguments) -> Result<Cost, String> {
    let from = Operand::needed(arguments, 0)?;
    let mut size: Vec<i64> = from.size.iter().take(2).copied().collect();
    size.extend(arguments.list(1)?);
    moved(from.bytes() + from.like(&size).bytes(), &from.dtype)
}

/// Gradients of the picked rows are read, the whole table's gradient is written.
fn embedding_gradient(arguments: &Arguments) -> Result<Cost, String> {
    let (from, index) = (Operand::needed(arguments, 0)?, Operand::needed(arguments, 1)?);
    let rows = arguments.number(2)?.ok_or("it does not say how many rows there are")?;
    let width = *from.size.last().ok_or("its gradient has no width")? as f64;
    let cost = moved(from.bytes() + index.bytes() + rows * width * from.element, &from.dtype)?;
    Ok(Cost { flops: from.elements(), ..cost })
}
