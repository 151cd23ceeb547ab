//! Kernels that torch.compile writes: every tensor among their arguments is read or written once, and the
//! operations in their name run on each element.

use super::operand::Operand;
use super::{Cost, Found, Unit};
use crate::calls::Arguments;
use crate::tracelens::triton::{fused, operations};

pub fn cost(name: &str, arguments: &Arguments) -> Found {
    let compiled = ["triton_poi_", "triton_red_", "triton_per_"].iter().any(|start| name.starts_with(start));
    compiled.then(|| of(name, arguments))
}

fn of(name: &str, arguments: &Arguments) -> Result<Cost, String> {
    let tensors: Vec<Operand> = (0..arguments.len()).filter_map(|at| Operand::at(arguments, at)).collect();
    let largest = tensors.iter().max_by(|x, y| x.elements().total_cmp(&y.elements())).ok_or("it has no tensors")?;
    let each: f64 = fused(name).iter().map(|operation| operations(operation)).sum();
    // A pointer of an update in place is read and written; the profiler does not say which those are.
    let bytes = tensors.iter().map(|o| o.bytes()).sum();
    Ok(Cost { flops: each * largest.elements(), bytes, unit: Unit::Vector, dtype: largest.dtype.clone() })
}
