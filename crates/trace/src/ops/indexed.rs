//! Elements picked by lists of indices. The profiler does not record the sizes of such lists, so nothing among
//! the arguments tells how much is picked; the grid of the kernel does.

use super::operand::Operand;
use super::{Cost, Found, Launch, Unit};
use crate::calls::Arguments;

/// An index is a 64-bit number.
const INDEX_BYTES: f64 = 8.0;

pub fn cost(name: &str, arguments: &Arguments, launch: Launch) -> Found {
    Some(match name {
        "aten::index" => picked(arguments, launch),
        "aten::index_put_" | "aten::_index_put_impl_" => put(arguments, launch),
        "aten::index_add_" | "aten::index_copy_" => rows_joined(name, arguments),
        _ => return None,
    })
}

/// What is picked is written; as much is read, but no more than there is.
fn picked(arguments: &Arguments, launch: Launch) -> Result<Cost, String> {
    let from = Operand::needed(arguments, 0)?;
    let (elements, indices) = reached(&from, launch)?;
    let written = elements * from.element;
    moved(written + written.min(from.bytes()) + indices * INDEX_BYTES, &from.dtype)
}

/// Values are read, once where they are repeated, and written to their places.
fn put(arguments: &Arguments, launch: Launch) -> Result<Cost, String> {
    let (into, values) = (Operand::needed(arguments, 0)?, Operand::needed(arguments, 2)?);
    let (elements, indices) = reached(&into, launch)?;
    moved(elements * into.element + values.bytes() + indices * INDEX_BYTES, &into.dtype)
}

/// Rows of the last tensor are added to, or put in place of, rows of the first.
fn rows_joined(name: &str, arguments: &Arguments) -> Result<Cost, String> {
    let (index, from) = (Operand::needed(arguments, 2)?, Operand::needed(arguments, 3)?);
    let adds = name == "aten::index_add_";
    let times = if adds { 3.0 } else { 2.0 };
    let cost = moved(times * from.bytes() + index.bytes(), &from.dtype)?;
    Ok(Cost { flops: if adds { from.elements() } else { 0.0 }, ..cost })
}

fn moved(bytes: f64, dtype: &str) -> Result<Cost, String> {
    Ok(Cost { flops: 0.0, bytes, unit: Unit::Vector, dtype: dtype.into() })
}

/// Elements a kernel reaches in a tensor, and the indices that say which.
fn reached(tensor: &Operand, launch: Launch) -> Result<(f64, f64), String> {
    let grid = launch.grid.ok_or("neither the sizes of its indices nor its kernel's grid were recorded")?;
    let found = if launch.kernel.contains("vectorized_gather_kernel<") {
        slices(tensor, launch.kernel, grid)
    } else if launch.kernel.contains("index_elementwise_kernel<") {
        blocks(tensor, launch.kernel, grid)
    } else {
        None
    };
    found.ok_or_else(|| "the sizes of its indices were not recorded, and its kernel does not tell them".into())
}

/// Threads of a block of the kernel that copies whole slices; each moves one aligned piece.
const GATHER_THREADS: f64 = 256.0;
/// More blocks than this no grid has in its second direction.
const MOST_BLOCKS: f64 = 65535.0;

/// A column of blocks for each index: one slice of the trailing extents, cut into pieces.
fn slices(tensor: &Operand, kernel: &str, grid: [u64; 3]) -> Option<(f64, f64)> {
    let [piece] = template_numbers(kernel, "vectorized_gather_kernel<")?;
    let fits = |slice: &f64| {
        (slice * tensor.element / (GATHER_THREADS * piece)).ceil().clamp(1.0, MOST_BLOCKS) == grid[1] as f64
    };
    let slice = trailing(tensor).into_iter().find(fits)?;
    Some((grid[0] as f64 * slice, grid[0] as f64))
}

/// So many elements a block, the last block perhaps not full: whole slices where a number of them fits.
fn blocks(tensor: &Operand, kernel: &str, grid: [u64; 3]) -> Option<(f64, f64)> {
    let [threads, each] = template_numbers(kernel, "index_elementwise_kernel<")?;
    let (most, block) = (grid[0] as f64 * threads * each, threads * each);
    let whole = |slice: f64| Some((most / slice).floor() * slice).filter(|n| *n > most - block);
    let found = trailing(tensor).into_iter().find_map(|slice| Some((whole(slice)?, slice)));
    let (elements, slice) = found.unwrap_or((most, 1.0));
    Some((elements, elements / slice))
}

/// Elements behind one index of the first extent, of the first two, and so on to a single element.
fn trailing(tensor: &Operand) -> Vec<f64> {
    let behind = |from: usize| tensor.size.iter().skip(from).map(|n| (*n).max(1) as f64).product();
    (1..=tensor.size.len().max(1)).map(behind).collect()
}

/// The first numbers of a kernel's template.
fn template_numbers<const N: usize>(kernel: &str, template: &str) -> Option<[f64; N]> {
    let (_, behind) = kernel.split_once(template)?;
    let mut numbers = behind.split([',', '>']).map(|text| text.trim().parse::<u32>().ok().filter(|n| *n > 0));
    let mut found = [0.0; N];
    for place in &mut found {
        *place = f64::from(numbers.next()??);
    }
    Some(found)
}
