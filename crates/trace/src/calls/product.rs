//! Products of matrices: mm, addmm, bmm, baddbmm, grouped.

use super::arguments::Arguments;
use super::{Found, Read};
use gemwright_core::{Op, Operands, View};

pub fn read(name: &str, arguments: &Arguments) -> Read {
    let (op, addend) = match name {
        "aten::mm" => (Op::Mm, false),
        "aten::bmm" => (Op::Bmm, false),
        "aten::addmm" | "aten::addmm_" => (Op::Addmm, true),
        "aten::baddbmm" | "aten::baddbmm_" => (Op::Baddbmm, true),
        "aten::_grouped_mm" => return Some(grouped(arguments)),
        _ => return None,
    };
    Some(product(op, addend, arguments))
}

fn product(op: Op, addend: bool, arguments: &Arguments) -> Found {
    let first = usize::from(addend);
    let (a, b) = (arguments.tensor(first)?, arguments.tensor(first + 1)?);
    let rank = if matches!(op, Op::Bmm | Op::Baddbmm) { 3 } else { 2 };
    let fits = a.rank() == rank && b.rank() == rank && a.size[rank - 1] == b.size[rank - 2];
    if !fits || (rank == 3 && a.size[0] != b.size[0]) {
        return Err(format!("{a} and {b} do not multiply"));
    }
    let out = a.size.set(rank - 1, b.size[rank - 1]);
    // Written into a tensor that was given, or into a new one.
    let given = arguments.optional(if addend { 5 } else { 2 }).ok().flatten().filter(|view| view.size == out);
    let out = given.unwrap_or_else(|| View::contiguous(&out, a.dtype));
    let (bias, beta, alpha) = match addend {
        true => (Some(arguments.tensor(0)?), arguments.number(3)?, arguments.number(4)?),
        false => (None, None, None),
    };
    Ok((op, Operands::Product { a, b, bias, out, alpha: alpha.unwrap_or(1.0), beta: beta.unwrap_or(1.0) }))
}

/// Rows sorted by group; where the groups end is on the GPU, so how many get rows is not known.
fn grouped(arguments: &Arguments) -> Found {
    let (a, b, offs) = (arguments.tensor(0)?, arguments.tensor(1)?, arguments.tensor(2)?);
    let groups = *offs.size.first().ok_or("its offsets have no extent")?;
    let out = match (a.rank(), b.rank()) {
        (2, 3) if a.size[1] == b.size[1] && b.size[0] == groups => vec![a.size[0], b.size[2]],
        (2, 2) if a.size[1] == b.size[0] => vec![groups, a.size[0], b.size[1]],
        _ => return Err(format!("{a} and {b} are no grouped product that is known")),
    };
    let out = View::checked(&out, None, a.dtype)?;
    let rows = if b.rank() == 3 { a.size[0] } else { a.size[1] };
    Ok((Op::GroupedMm, Operands::Grouped { a, b, out, offs, touched: groups.min(rows) as f64 }))
}
