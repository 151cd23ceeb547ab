//! Operations on rows: softmax and norms, forward and backward, and losses.

use super::operand::Operand;
use super::{Cost, Found, Unit};
use crate::calls::Arguments;

/// What is read and written besides one result like the input.
struct Row {
    /// Places of tensors of the input's extents that are read; the first gives the extents.
    reads: &'static [usize],
    flops: f64,
    /// Places of small tensors that are read: weights, means.
    small: &'static [usize],
    /// Results as large as these places, beside the one.
    also: &'static [usize],
}

fn row(name: &str) -> Option<Row> {
    let of = |reads: &'static [usize], flops: f64, small: &'static [usize], also: &'static [usize]| {
        Some(Row { reads, flops, small, also })
    };
    match name {
        // The largest, minus it, exp, the sum, and the quotient; the logarithm's is a difference.
        "aten::_softmax" | "aten::_log_softmax" | "aten::softmax" | "aten::log_softmax" | "aten::_safe_softmax" => {
            of(&[0], 5.0, &[], &[])
        }
        "aten::_softmax_backward_data" | "aten::_log_softmax_backward_data" => of(&[0, 1], 4.0, &[], &[]),
        // Mean (1), variance (3), minus mean times factor (2), weight and bias (2).
        "aten::native_layer_norm" | "aten::layer_norm" => of(&[0], 8.0, &[2, 3], &[]),
        "aiter::_groupnorm_run" => of(&[0], 8.0, &[2, 3], &[]),
        "aten::native_group_norm" | "aten::group_norm" => of(&[0], 8.0, &[1, 2, 3], &[]),
        "aten::native_batch_norm"
        | "aten::batch_norm"
        | "aten::miopen_batch_norm"
        | "aten::cudnn_batch_norm"
        | "aten::instance_norm"
        | "aten::_batch_norm_impl_index" => of(&[0], 8.0, &[1, 2, 3, 4], &[]),
        // The input normalised again (2), two sums (4), the gradient of the input (6), of weight and bias (3).
        "aten::native_layer_norm_backward" => of(&[0, 1], 15.0, &[3, 4, 5], &[5, 6]),
        "aten::native_group_norm_backward" => of(&[0, 1], 15.0, &[2, 3, 4], &[4, 4]),
        "aten::native_batch_norm_backward" => of(&[0, 1], 15.0, &[2, 5, 6], &[2, 2]),
        "aten::miopen_batch_norm_backward" | "aten::cudnn_batch_norm_backward" => {
            of(&[0, 1], 15.0, &[2, 5, 6], &[2, 2])
        }
        // Squares and their sum (2), times factor and weight (2).
        "aten::_fused_rms_norm" | "aten::rms_norm" => of(&[0], 4.0, &[2], &[]),
        "aten::_fused_rms_norm_backward" => of(&[0, 1], 11.0, &[3, 4], &[4]),
        _ => None,
    }
}

/// The sheet it stands in.
pub fn family(name: &str) -> Option<&'static str> {
    row(name).map(|_| if name.contains("softmax") { "Softmax" } else { "Normalization" })
}

pub fn cost(name: &str, arguments: &Arguments) -> Found {
    if let Some(mut row) = row(name) {
        if uses_kept(name, arguments) {
            row.flops = 4.0;
        }
        return Some(of_rows(&row, arguments));
    }
    match name {
        // One element of each row is read.
        "aten::nll_loss_forward" => Some(loss(arguments, 0, false)),
        "aten::nll_loss_backward" => Some(loss(arguments, 1, true)),
        _ => None,
    }
}

/// With kept means and variances there is nothing to be summed: minus mean, times factor, weight, bias.
fn uses_kept(name: &str, arguments: &Arguments) -> bool {
    let normalises = name.ends_with("batch_norm") || name == "aten::instance_norm";
    normalises && arguments.flag(5) == Ok(Some(false))
}

fn of_rows(row: &Row, arguments: &Arguments) -> Result<Cost, String> {
    let first = Operand::needed(arguments, row.reads[0])?;
    let mut bytes = first.bytes() + first.like(&first.size).bytes();
    for at in &row.reads[1..] {
        bytes += Operand::needed(arguments, *at)?.bytes();
    }
    let tensor = |at: &usize| Operand::at(arguments, *at).map_or(0.0, |o| o.bytes());
    bytes += row.small.iter().chain(row.also).map(tensor).sum::<f64>();
    Ok(Cost { flops: row.flops * first.elements(), bytes, unit: Unit::Vector, dtype: first.dtype })
}

fn loss(arguments: &Arguments, scores: usize, backward: bool) -> Result<Cost, String> {
    let scores = Operand::needed(arguments, scores)?;
    let rows = *scores.size.first().ok_or("its scores have no rows")? as f64;
    let targets = 8.0 * rows;
    // Backward writes a whole tensor of zeros with one entry a row.
    let bytes = if backward { scores.like(&scores.size).bytes() } else { rows * scores.element } + targets;
    Ok(Cost { flops: rows, bytes, unit: Unit::Vector, dtype: scores.dtype })
}
