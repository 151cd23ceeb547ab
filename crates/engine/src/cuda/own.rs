//! Our kernels as a candidate: problems turned into what kernels take.

use super::copies::Copies;
use super::queue::{CudaQueue, matrix};
use crate::candidate::{Candidate, Operands, Plan, Queue, Region, RunError};
use crate::contract::{Contract, Determinism, Fusion, Refusal, Strides};
use crate::epilogue::Part;
use crate::problem::{Groups, Layout, Problem, Scaling};
use gemwright_core::{Cluster, DType, KernelChoice, Product, Schedule};
use gemwright_cuda::{Config, CudaError, Device, Factors, Gate, Gemm, Grouping, Layouts, OutWay, Output, Pad, PartWay};
use std::sync::Arc;

pub(super) const CONTRACT: Contract = Contract {
    dtypes: &[
        (DType::Bf16, DType::Bf16),
        (DType::Bf16, DType::F32),
        (DType::F16, DType::F16),
        (DType::F16, DType::F32),
        (DType::F8E4m3, DType::Bf16),
        (DType::F8E4m3, DType::F32),
    ],
    strides: Strides::ReadAsBlas,
    largest: 1 << 30,
    batches: true,
    prepacks: &[],
    determinism: Determinism::Always,
    denormals: true,
    fusion: Fusion::Fused,
    gates: true,
    keeps: true,
    groups: true,
    weights: &[DType::F8E4m3],
    scales: true,
};

/// A kernel of TMA and wgmma on a device.
pub struct OwnCuda {
    device: Arc<Device>,
    choice: KernelChoice,
    name: String,
}

impl OwnCuda {
    #[allow(missing_docs)]
    pub fn new(device: &Arc<Device>, choice: KernelChoice) -> OwnCuda {
        OwnCuda { device: device.clone(), choice, name: format!("own.{choice}") }
    }
}

/// What is compiled for a problem by a choice, unless that does not take it.
pub(super) fn config_of(problem: &Problem, choice: &KernelChoice) -> Result<Config, Refusal> {
    CONTRACT.admits(problem)?;
    let copies = Copies::of(&rows_out(problem));
    let config = config(&copies.problem, choice)?;
    let apart = |step: i64, dtype: DType| step > 0 && step % (16 / dtype.bytes() as i64) == 0;
    let apart = match problem.groups {
        Groups::None => true,
        Groups::Rows(groups) => groups <= 1 || apart(problem.b.batch, problem.weight_dtype),
        Groups::K(groups) => groups <= 1 || apart(problem.out.batch, problem.out_dtype),
    };
    if copies.refused || (config.grouping != Grouping::None && (copies.bytes() > 0 || !apart)) {
        return Err(Refusal::Library(
            "lines and matrices of groups, and lines of e4m3, must begin on 16 bytes of their own".into(),
        ));
    }
    config.check().map_err(|why| Refusal::Library(why.to_string()))?;
    Ok(config)
}

impl Candidate for OwnCuda {
    fn name(&self) -> &str {
        &self.name
    }

    fn origin(&self) -> String {
        format!("gemwright {} on {}", env!("CARGO_PKG_VERSION"), self.device.properties.name)
    }

    fn contract(&self) -> &Contract {
        &CONTRACT
    }

    fn is_own(&self) -> bool {
        true
    }

    fn prepare(&self, problem: &Problem) -> Result<Box<dyn Plan>, Refusal> {
        let config = config_of(problem, &self.choice)?;
        let rows = rows_out(problem);
        let failed = |why: CudaError| Refusal::Library(why.to_string());
        let product = Product { batch: problem.groups.count().unwrap_or(rows.product.batch), ..rows.product };
        let gemm = Gemm::new(&self.device, config, product).map_err(failed)?;
        let copies = Copies::of(&rows);
        let pad = if copies.bytes() > 0 { Some(Pad::new(&self.device).map_err(failed)?) } else { None };
        Ok(Box::new(OwnPlan { problem: *problem, rows, copies, pad, gemm }))
    }
}

struct OwnPlan {
    problem: Problem,
    /// With the result row by row.
    rows: Problem,
    copies: Copies,
    pad: Option<Pad>,
    gemm: Gemm,
}

impl Plan for OwnPlan {
    fn problem(&self) -> &Problem {
        &self.problem
    }

    fn workspace(&self, _: &dyn Queue) -> usize {
        self.copies.bytes()
    }

    unsafe fn run(&self, queue: &dyn Queue, operands: &Operands, workspace: Region) -> Result<(), RunError> {
        let queue = CudaQueue::of(queue)?;
        let failed = |why: CudaError| RunError::Library(why.to_string());
        factors_are_given(&self.problem, operands)?;
        let mut told = told(&self.problem, &self.rows, operands);
        if let Some(pad) = &self.pad {
            let needed = self.copies.bytes();
            if workspace.bytes < needed {
                return Err(RunError::Workspace { given: workspace.bytes, needed });
            }
            let copies = self.copies.placed(&mut told, workspace.address.addr() as u64);
            // SAFETY: operands and workspace are the caller's promise; the copies lie inside the workspace.
            unsafe { pad.launch(&queue.stream, &copies, queue.early) }.map_err(failed)?;
        }
        let constant =
            queue.constant_weights && self.pad.is_none() && self.rows == self.problem && b_is_weights(&self.problem);
        // SAFETY: the caller's promises are those of the kernel; the scratch is the queue's, whose stream is one.
        unsafe { self.gemm.launch(&queue.stream, &told, &queue.scratch, queue.early, constant) }.map_err(failed)
    }
}

/// Of a gradient of weights, where neither operand is contiguous along k, both are activations; one row or column does not tell.
fn b_is_weights(problem: &Problem) -> bool {
    let p = problem.product;
    let forward = (problem.a.col == 1 || problem.b.row == 1) && p.m > 1 && p.n > 1;
    forward && one_for_batch(problem)
}

/// What differs within a batch may be activations too.
pub(super) fn one_for_batch(problem: &Problem) -> bool {
    problem.product.batch <= 1 || problem.b.batch == 0
}

/// The same problem with the result's rows contiguous: a transposed one has its operands swapped.
pub(super) fn rows_out(problem: &Problem) -> Problem {
    let p = problem.product;
    // A gated one stays as it is: its weights are two on the side of b. So does one with groups of rows, which are those of a.
    let fixed = problem.epilogue.gated || matches!(problem.groups, Groups::Rows(_));
    if problem.out.col == 1 || p.n <= 1 || problem.out.row != 1 || fixed {
        return *problem;
    }
    turned(problem)
}

/// The same problem with its sides changed: the result transposed is b transposed times a transposed.
pub(super) fn turned(problem: &Problem) -> Problem {
    let p = problem.product;
    let turned = |layout: Layout| Layout { row: layout.col, col: layout.row, ..layout };
    let mut epilogue = problem.epilogue;
    epilogue.parts = epilogue.parts.map(|part| part.map(turned));
    epilogue.kept = epilogue.kept.map(turned);
    Problem {
        product: Product { m: p.n, n: p.m, ..p },
        a: turned(problem.b),
        b: turned(problem.a),
        out: turned(problem.out),
        bases: [problem.bases[1], problem.bases[0], problem.bases[2]],
        dtype: problem.weight_dtype,
        weight_dtype: problem.dtype,
        scales: [problem.scales[1], problem.scales[0]],
        epilogue,
        ..*problem
    }
}

/// The operands that a problem has factors of come with them, and no others.
pub(super) fn factors_are_given(problem: &Problem, operands: &Operands) -> Result<(), RunError> {
    let wanted = problem.scales.map(|scaling| scaling != Scaling::None);
    match operands.scales.map(|factors| factors.is_some()) == wanted {
        true => Ok(()),
        false => Err(RunError::Library("factors of operands are not those that the problem has".into())),
    }
}

/// What a run is told, of a problem and the same with the result row by row.
pub(super) fn told(problem: &Problem, rows: &Problem, operands: &Operands) -> gemwright_cuda::Operands {
    let swapped = rows.product != problem.product || rows.out != problem.out;
    let (a, b) = if swapped { (&operands.b, &operands.a) } else { (&operands.a, &operands.b) };
    let out_bytes = rows.out_dtype.bytes();
    let out = matrix(&operands.out, &rows.out, out_bytes);
    let mut parts = [None; 4];
    for ((part, layout), operand) in parts.iter_mut().zip(&rows.epilogue.parts).zip(&operands.parts) {
        *part = layout.as_ref().zip(operand.as_ref()).map(|(layout, operand)| matrix(operand, layout, out_bytes));
    }
    if adds_by_residual(rows) {
        parts[Part::Residual as usize] = Some(out);
    }
    let kept = rows.epilogue.kept.as_ref().zip(operands.kept.as_ref());
    gemwright_cuda::Operands {
        a: matrix(a, &rows.a, rows.dtype.bytes()),
        b: matrix(b, &rows.b, rows.weight_dtype.bytes()),
        out,
        parts,
        kept: kept.map(|(layout, operand)| matrix(operand, layout, out_bytes)),
        alpha: rows.alpha as f32,
        group_ends: operands.group_ends.map(|ends| ends.region.address.addr() as u64 + 4 * ends.first as u64),
        scales: [0, 1].map(|side| {
            let operand = operands.scales[if swapped { 1 - side } else { side }]?;
            let address = operand.region.address.addr() as u64 + 4 * operand.first as u64;
            Some(Factors { address, one_for_all: rows.scales[side] == Scaling::Tensor })
        }),
    }
}

/// How the parts of an epilogue lie for a kernel; `pairs`: it can take two neighbours at once.
pub(super) fn part_ways(problem: &Problem, turned: bool, pairs: bool) -> [PartWay; 4] {
    let per = 16 / problem.out_dtype.bytes() as i64;
    let each = |part: Layout| match pairs && aligned(part, per) && problem.product.n.is_multiple_of(2) {
        true => PartWay::PerPair,
        false => PartWay::PerElement,
    };
    let way = |part: Layout| match (part.row == 0, part.col == 0) {
        // The same down a column of the result, or along a row.
        (true, _) if turned => PartWay::PerRow,
        (true, _) => PartWay::PerColumn,
        (_, true) if turned => PartWay::PerColumn,
        (_, true) => PartWay::PerRow,
        _ => each(part),
    };
    let mut ways = problem.epilogue.parts.map(|part| part.map_or(PartWay::None, way));
    if adds_by_residual(problem) {
        // By elements even where one row has no stride: a kernel must know that it reads what it writes.
        let whole = problem.bases[2] >= 2 * problem.out_dtype.bytes();
        ways[Part::Residual as usize] = if whole { each(problem.out) } else { PartWay::PerElement };
    }
    ways
}

/// Rows are contiguous and begin on multiples of so many elements, as the first does.
fn aligned(layout: Layout, per: i64) -> bool {
    layout.col == 1 && layout.row % per == 0 && layout.batch % per == 0
}

/// What a result of 16 bits has is added as a residual: each element is read by the thread that writes it.
pub(super) fn adds_by_residual(problem: &Problem) -> bool {
    problem.beta == 1.0 && problem.out_dtype != DType::F32
}

/// What is compiled for a problem whose result lies row by row.
pub(super) fn config(problem: &Problem, choice: &KernelChoice) -> Result<Config, Refusal> {
    let p = problem.product;
    let (a_mn, b_mn) = (problem.a.col != 1 && p.k > 1, problem.b.row != 1 && p.k > 1);
    let (a_mn, b_mn) = if choice.turned { (b_mn, a_mn) } else { (a_mn, b_mn) };
    if problem.dtype != problem.weight_dtype {
        let (asked, taken) = (format!("{} by {}", problem.dtype, problem.weight_dtype), "operands of one type".into());
        return Err(Refusal::DType { asked, taken });
    }
    // Both were slower than what they are variants of, 12 and 1 %, which the cost model does not know.
    if problem.promoted && (choice.schedule == Schedule::StreamK || choice.cluster != Cluster::ONE) {
        return Err(Refusal::Library("promoted sums are of blocks that work alone, and of whole tiles".into()));
    }
    let adds = problem.beta != 0.0;
    if adds && (problem.beta != 1.0 || !problem.epilogue.is_none()) {
        return Err(Refusal::Factor);
    }
    // TMA writes rows that begin on multiples of 16 bytes.
    let per = 16 / problem.out_dtype.bytes() as i64;
    let kept = problem.epilogue.kept;
    // It writes whole 16 bytes too: where a row ends inside of them, what lies behind it would be lost.
    let whole = p.n as i64 % per == 0;
    let kept_aligned = kept.is_none_or(|kept| aligned(kept, per));
    let split = matches!(choice.schedule, Schedule::SplitK(_));
    let contiguous = |layout: Layout| layout.col == 1 || p.n <= 1;
    let rows = problem.out_dtype != DType::F32 && !split && contiguous(problem.out) && kept.is_none();
    let way = match () {
        () if choice.turned && problem.out_dtype == DType::F32 => OutWay::Elements,
        () if whole && aligned(problem.out, per) && problem.bases[2] >= 16 && kept_aligned => OutWay::Boxes,
        () if rows => OutWay::Rows,
        () => OutWay::Elements,
    };
    let pairs = !choice.turned && !split;
    Ok(Config {
        cluster: choice.cluster,
        layouts: Layouts { a_mn, b_mn },
        dtype: problem.dtype,
        output: Output { dtype: problem.out_dtype, add: adds && problem.out_dtype == DType::F32, way },
        gate: if problem.epilogue.gated { Gate::First } else { Gate::None },
        activation: problem.epilogue.activation,
        parts: part_ways(problem, choice.turned, pairs),
        kept: kept.is_some(),
        scaled: problem.alpha != 1.0,
        grouping: match problem.groups {
            Groups::None => Grouping::None,
            Groups::Rows(_) => Grouping::Rows,
            Groups::K(_) => Grouping::K,
        },
        scales: problem.scales != [Scaling::None; 2],
        promoted: problem.promoted,
        ..Config::new(choice.tile, choice.schedule, choice.turned)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Groups that would be multiplied wrongly, or read outside, are refused before anything runs.
    #[test]
    fn groups_lie_as_kernels_have_them() {
        let choice = KernelChoice::named("128x128-persistent").unwrap();
        let taken = |problem: Problem| config_of(&problem, &choice).is_ok();
        let linear = Problem::linear(64, 128, 64, DType::Bf16);
        let rows = linear.with_groups_of_rows(4);
        let k = Problem::grad_weight(64, 128, 96, DType::Bf16).with_groups_of_k(3);
        assert!(taken(rows) && taken(k));
        for wrong in [
            // The result column by column, one weight for all, weights that lie backwards or inside 16 bytes.
            Problem { out: Layout::column_major(64, 128), ..rows },
            Problem { b: Layout { batch: 0, ..rows.b }, ..rows },
            Problem { b: Layout { batch: -8192, ..rows.b }, ..rows },
            Problem { b: Layout { batch: 8196, ..rows.b }, ..rows },
            Problem { out: Layout { batch: 8196, ..k.out }, ..k },
            // Not of 8 bits, no factors, no batch, no parts of an epilogue, nothing promoted.
            rows.of_eight_bits([Scaling::None; 2], false),
            Problem { scales: [Scaling::Tensor; 2], ..rows },
            Problem { product: Product { batch: 2, ..rows.product }, ..rows },
            Problem { beta: 1.0, ..rows },
            Problem { promoted: true, ..linear },
        ] {
            assert!(!taken(wrong), "{wrong:?}");
        }
    }

    #[test]
    fn weights_are_told_from_activations() {
        let linear = Problem::linear(64, 128, 96, DType::Bf16);
        let batch = Product { batch: 4, ..linear.product };
        assert!(b_is_weights(&linear));
        assert!(b_is_weights(&Problem { b: Layout::row_major(96, 128), ..linear }));
        assert!(b_is_weights(&Problem { product: batch, b: Layout { batch: 0, ..linear.b }, ..linear }));
        assert!(!b_is_weights(&Problem { product: batch, b: Layout { batch: 12_288, ..linear.b }, ..linear }));
        for (m, n) in [(64, 128), (1, 128), (64, 1)] {
            assert!(!b_is_weights(&Problem::grad_weight(m, n, 96, DType::Bf16)));
        }
    }

    /// A kernel that begins a tile at the edge earlier writes elements twice; it must not read them in between.
    #[test]
    fn what_a_result_has_is_read_by_elements() {
        let linear = Problem { beta: 1.0, ..Problem::linear(1, 389, 64, DType::Bf16) };
        let residual = |problem: &Problem| part_ways(problem, false, true)[Part::Residual as usize];
        assert_eq!(residual(&linear), PartWay::PerElement);
        // One row that has no stride is still not a bias.
        let no_stride = Problem { out: Layout { row: 0, ..linear.out }, ..linear };
        assert_eq!(residual(&no_stride), PartWay::PerElement);
        assert_eq!(residual(&Problem { beta: 0.0, ..linear }), PartWay::None);
        // Pairs where rows allow it, and where they begin.
        let even = Problem { beta: 1.0, ..Problem::linear(136, 264, 64, DType::Bf16) };
        assert_eq!(residual(&even), PartWay::PerPair);
        assert_eq!(residual(&Problem { bases: [16, 16, 2], ..even }), PartWay::PerElement);
    }
}
