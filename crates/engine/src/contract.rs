//! What a candidate takes and what it promises, as a value that dispatcher, tuner, tests and
//! documentation read.

use crate::problem::{Layout, Problem, Scaling};
use gemwright_core::DType;

/// Which layouts are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strides {
    /// Any, zero and negative ones for what is read.
    Any,
    /// As the C BLAS: rows or columns are neighbours, and steps go forward over whole rows or columns.
    Blas,
    /// What is read as the C BLAS has it, matrices of a batch one after the other; what is written anywhere.
    ReadAsBlas,
}

/// When two runs of a plan give the same bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Determinism {
    /// Always, for any number of threads.
    Always,
    /// Nothing is promised.
    Unknown,
}

/// What is done about a problem's epilogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fusion {
    /// It is refused.
    None,
    /// It works on the sums, before they are rounded to the result's type.
    Fused,
    /// It works on the result, after that.
    Split,
}

/// Element types of a, which is that of b too but for small weights, and of the result.
pub type Types = (DType, DType);

/// What is taken and promised.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Contract {
    /// Element types.
    pub dtypes: &'static [Types],
    /// Layouts of operands and result.
    pub strides: Strides,
    /// The largest extent.
    pub largest: u64,
    /// More than one matrix in a call; otherwise a batch is run one by one.
    pub batches: bool,
    /// Element types whose weights can be laid out once.
    pub prepacks: &'static [DType],
    /// Same plan, same bits.
    pub determinism: Determinism,
    /// Numbers below the smallest normal one are kept.
    pub denormals: bool,
    #[allow(missing_docs)]
    pub fusion: Fusion,
    /// Weights that are two in one product.
    pub gates: bool,
    /// What goes into the activation is kept.
    pub keeps: bool,
    /// Rows, or k, of groups.
    pub groups: bool,
    /// Element types that b may have beside that of a.
    pub weights: &'static [DType],
    /// Factors of operands.
    pub scales: bool,
}

/// Why a problem is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum Refusal {
    #[error("it multiplies {taken}, not {asked}")]
    DType { asked: String, taken: String },
    #[error("{operand} is laid out in a way it does not take")]
    Strides { operand: &'static str },
    #[error("an extent of {0} is more than it takes")]
    Extent(u64),
    #[error("it cannot lay weights out beforehand")]
    Prepack,
    #[error("elements of the result would overlap")]
    Overlap,
    #[error("it has no epilogue")]
    Epilogue,
    #[error("it has no product of two weights in one, or keeps nothing of what goes into an activation")]
    GateOrKeep,
    #[error("only sums of e4m3 are promoted")]
    Promoted,
    #[error("it has no factors of operands")]
    Scales,
    #[error("it has no products of groups, or not in a batch")]
    Groups,
    #[error("beta is neither 0, nor 1 without an epilogue")]
    Factor,
    #[error("{0}")]
    Library(String),
}

impl Contract {
    /// Whether a problem is taken.
    pub fn admits(&self, problem: &Problem) -> Result<(), Refusal> {
        let types = (problem.dtype, problem.out_dtype);
        if !self.dtypes.contains(&types) {
            let name = |(operands, out): &Types| match operands == out {
                true => operands.name().to_string(),
                false => format!("{operands} to {out}"),
            };
            let taken = self.dtypes.iter().map(name).collect::<Vec<_>>().join(", ");
            return Err(Refusal::DType { asked: name(&types), taken });
        }
        if problem.weight_dtype != problem.dtype && !self.weights.contains(&problem.weight_dtype) {
            let asked = format!("{} by {}", problem.dtype, problem.weight_dtype);
            let taken = "operands of one type".into();
            return Err(Refusal::DType { asked, taken });
        }
        if problem.promoted && problem.dtype != DType::F8E4m3 {
            return Err(Refusal::Promoted);
        }
        if problem.scales != [Scaling::None; 2] && !self.scales {
            return Err(Refusal::Scales);
        }
        let p = problem.product;
        if problem.groups.count().is_some() && (!self.groups || p.batch != 1) {
            return Err(Refusal::Groups);
        }
        if let Some(extent) = [p.batch, p.m, p.n, p.k].into_iter().find(|extent| *extent > self.largest) {
            return Err(Refusal::Extent(extent));
        }
        if problem.prepacked && !self.prepacks.contains(&problem.dtype) {
            return Err(Refusal::Prepack);
        }
        if self.fusion == Fusion::None && !problem.epilogue.is_none() {
            return Err(Refusal::Epilogue);
        }
        let (cols, kept) = (problem.weight_cols(), problem.epilogue.kept);
        if (problem.epilogue.gated && !self.gates) || (kept.is_some() && !self.keeps) {
            return Err(Refusal::GateOrKeep);
        }
        let [_, _, results] = problem.matrices();
        if overlaps(&problem.out, (results, p.m, p.n)) || kept.is_some_and(|kept| overlaps(&kept, (p.batch, p.m, cols)))
        {
            return Err(Refusal::Overlap);
        }
        let operands = [("a", problem.a, p.m, p.k), ("b", problem.b, p.k, cols), ("out", problem.out, p.m, p.n)];
        for ((operand, layout, rows, cols), matrices) in operands.into_iter().zip(problem.matrices()) {
            let order = blas_order(&layout, rows, cols);
            let taken = match self.strides {
                Strides::Any => true,
                Strides::Blas => order.is_some(),
                Strides::ReadAsBlas => operand == "out" || (order.is_some() && (matrices <= 1 || layout.batch >= 0)),
            };
            if !taken {
                return Err(Refusal::Strides { operand });
            }
        }
        // The C BLAS has one order for all: the result decides, and it must have one.
        Ok(())
    }
}

/// Two elements of what is written are one, or may be: no step goes over the whole of the smaller ones.
fn overlaps(layout: &Layout, (batch, rows, cols): (u64, u64, u64)) -> bool {
    let mut steps = [(layout.batch, batch), (layout.row, rows), (layout.col, cols)];
    steps.sort_by_key(|(step, _)| step.unsigned_abs());
    let mut span = 0u128;
    for (step, extent) in steps.into_iter().filter(|(_, extent)| *extent > 1) {
        if u128::from(step.unsigned_abs()) <= span {
            return true;
        }
        span += u128::from(step.unsigned_abs()) * u128::from(extent - 1);
    }
    false
}

/// Whether columns (`true`) or rows lie one after the other, and the leading dimension, as the C BLAS
/// wants it in row-major order: (transposed, ld).
pub fn blas_order(layout: &Layout, rows: u64, cols: u64) -> Option<(bool, i64)> {
    let (r, c) = (rows.max(1) as i64, cols.max(1) as i64);
    // A step over an extent of one is never taken.
    let plain = (layout.col == 1 || cols <= 1) && (layout.row >= c || rows <= 1);
    let turned = (layout.row == 1 || rows <= 1) && (layout.col >= r || cols <= 1);
    if plain {
        Some((false, if rows <= 1 { c } else { layout.row }))
    } else if turned {
        Some((true, if cols <= 1 { r } else { layout.col }))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_of_the_c_blas() {
        let layout = |row, col| Layout { row, col, batch: 0 };
        assert_eq!(blas_order(&layout(7, 1), 3, 5), Some((false, 7)));
        assert_eq!(blas_order(&layout(1, 7), 3, 5), Some((true, 7)));
        assert_eq!(blas_order(&layout(4, 1), 3, 5), None);
        assert_eq!(blas_order(&layout(-7, 1), 3, 5), None);
        assert_eq!(blas_order(&layout(0, 1), 3, 5), None);
        assert_eq!(blas_order(&layout(2, 10), 3, 5), None);
        // One row: its step means nothing.
        assert_eq!(blas_order(&layout(0, 1), 1, 5), Some((false, 5)));
    }

    #[test]
    fn a_result_whose_elements_meet_is_refused() {
        let meet = |row, col| overlaps(&Layout { row, col, batch: 12 }, (1, 3, 4));
        assert!(!meet(4, 1) && !meet(1, 3) && !meet(-4, -1));
        assert!(meet(3, 1) && meet(0, 1) && meet(4, 4));
    }
}
