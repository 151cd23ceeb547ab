//! Our kernels held against sums in double precision: every tile and schedule, edges, layouts, batches, epilogues; three
//! runs over poison must give the same bits and touch nothing beside.

use super::bench::{operand, scales};
use super::kernel::Kernel;
use super::queue::CudaQueue;
use super::routing::{Routing, group_ends};
use crate::candidate::{Candidate, Operands};
use crate::contract::Determinism;
use crate::epilogue::{Epilogue, Part};
use crate::problem::{Groups, Layout, Problem, Scaling};
use gemwright_core::{Activation, Cluster, DType, DecodeChoice, KernelChoice, Product, Schedule};
use gemwright_cuda::{BiasGrad, CudaError, Device, Expected, Factors, Matrix, Memory, MmaTile, Tools};
use std::sync::Arc;

/// A kernel and a problem.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub struct Case {
    pub kernel: Kernel,
    pub problem: Problem,
}

/// What became of a case.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// The largest difference, in units of what may be.
    Right(f64),
    /// The kernel does not take it.
    Refused(String),
    /// Why not.
    Wrong(String),
}

/// Bytes behind a result that must stay as they are.
const GUARD: usize = 1 << 16;
/// Elements that are looked at, of a large result.
const SAMPLES: u64 = 65_536;

/// Runs a case three times over poison and holds it against sums in double precision.
pub fn check(case: &Case, device: &Arc<Device>, queue: &CudaQueue, tools: &Tools) -> Result<Verdict, CudaError> {
    check_candidate(&*case.kernel.candidate(device), &case.problem, queue, tools)
}

/// The same for any candidate; one that does not promise the same bits need not have them.
pub fn check_candidate(
    candidate: &dyn Candidate,
    problem: &Problem,
    queue: &CudaQueue,
    tools: &Tools,
) -> Result<Verdict, CudaError> {
    let device = queue.stream.device();
    let p = problem.product;
    let plan = match candidate.prepare(problem) {
        Ok(plan) => plan,
        Err(why) => return Ok(Verdict::Refused(why.to_string())),
    };
    let [bytes, weight_bytes, out_bytes] =
        [problem.dtype, problem.weight_dtype, problem.out_dtype].map(|dtype| dtype.bytes() as usize);
    let [of_a, of_b, of_out] = problem.matrices();
    let counted = |layout: &Layout, matrices, rows, cols| {
        layout.reach(matrices, rows, cols).map_or(0, |(_, most)| most as usize + 1)
    };
    let count = |layout: &Layout, rows, cols| counted(layout, p.batch, rows, cols);
    let filled = |count: usize, dtype: DType, seed| {
        let memory = Memory::new(device, count.max(1) * dtype.bytes() as usize)?;
        tools.fill(&queue.stream, &memory, dtype, seed, 1.0)?;
        Ok::<Memory, CudaError>(memory)
    };
    // A view begins inside of its memory.
    let skipped = |i: usize, bytes: usize| if problem.bases[i] < 16 { problem.bases[i] as usize / bytes } else { 0 };
    let [skip_a, skip_b, skip] = [skipped(0, bytes), skipped(1, weight_bytes), skipped(2, out_bytes)];
    let a = filled(skip_a + counted(&problem.a, of_a, p.m, p.k), problem.dtype, 1)?;
    let b = filled(skip_b + counted(&problem.b, of_b, p.k, problem.weight_cols()), problem.weight_dtype, 2)?;
    let span = skip + counted(&problem.out, of_out, p.m, p.n);
    let before = filled(span, problem.out_dtype, 3)?;
    let out = Memory::new(device, span * out_bytes + GUARD)?;
    // What is kept is watched as the result is.
    let keep = problem.epilogue.kept.map(|layout| (layout, count(&layout, p.m, problem.weight_cols())));
    let kept = keep.map(|(_, span)| Memory::new(device, span * out_bytes + GUARD)).transpose()?;
    let ends = group_ends(problem, Routing::Uneven, device, &queue.stream)?;
    // Rows of nobody are not written.
    let rows = match (&ends, problem.groups) {
        (Some((_, ends)), Groups::Rows(_)) => ends.last().map_or(0, |end| *end as u64),
        _ => p.m,
    };
    let holes = |span: usize, cols: u64| span as u64 - of_out * rows * cols;
    let mut written = vec![(&out, span, holes(span, p.n))];
    written.extend(kept.iter().zip(keep).map(|(kept, (_, span))| (kept, span, holes(span, problem.weight_cols()))));
    let mut parts = [const { None::<Memory> }; 4];
    for (part, layout) in parts.iter_mut().zip(&problem.epilogue.parts) {
        if let Some(layout) = layout {
            *part = Some(filled(count(layout, p.m, p.n), problem.out_dtype, 4)?);
        }
    }
    let at = |memory: &Memory| operand(memory, 0);
    let mut operands = Operands::new(operand(&a, skip_a), operand(&b, skip_b), operand(&out, skip));
    for (operand, memory) in operands.parts.iter_mut().zip(&parts) {
        *operand = memory.as_ref().map(at);
    }
    operands.kept = kept.as_ref().map(at);
    operands.group_ends = ends.as_ref().map(|(memory, _)| at(memory));
    let factors = scales(problem, &queue.stream, tools)?;
    operands.scales = [0, 1].map(|side| factors[side].as_ref().map(at));
    let workspace = Memory::new(device, plan.workspace(queue).max(1))?;
    let adds = problem.beta != 0.0;
    // What a queue promises of weights begins here.
    queue.stream.synchronize()?;
    let mut sums = Vec::new();
    for _ in 0..3 {
        for (memory, ..) in &written {
            memory.fill(0, memory.bytes(), 0xff, &queue.stream)?;
        }
        if adds {
            let mut host = vec![0; span * out_bytes];
            before.read(0, &mut host, &queue.stream)?;
            out.write(0, &host, &queue.stream)?;
        }
        // SAFETY: every operand has as many elements as its layout reaches, and lives until the stream is waited for.
        if let Err(why) = unsafe { plan.run(queue, &operands, at(&workspace).region) } {
            return Ok(Verdict::Wrong(why.to_string()));
        }
        queue.stream.synchronize()?;
        let mut bits = Vec::new();
        for (memory, span, holes) in &written {
            let (nans, sum) = tools.scan(&queue.stream, memory, problem.out_dtype, 0, *span as u64)?;
            let behind = (span * out_bytes).div_ceil(4) as u64;
            let (guard, _) = tools.scan(&queue.stream, memory, DType::F32, behind, GUARD as u64 / 4 - 1)?;
            // What lies between rows stays poison.
            if nans != *holes && !adds {
                return Ok(Verdict::Wrong(format!("{nans} NaNs of {holes} places that are not the result's")));
            }
            if guard != GUARD as u64 / 4 - 1 {
                return Ok(Verdict::Wrong("written past the end".into()));
            }
            bits.push(sum);
        }
        sums.push(bits);
    }
    let promised = candidate.contract().determinism != Determinism::Unknown;
    if promised && sums.iter().any(|bits| *bits != sums[0]) {
        return Ok(Verdict::Wrong("three runs, not the same bits".into()));
    }
    let view = |memory: &Memory, layout: &Layout, skipped: usize| Matrix {
        address: memory.address() + skipped as u64,
        row: layout.row,
        col: layout.col,
        batch: layout.batch,
    };
    let matrix = |memory: &Memory, layout: &Layout| view(memory, layout, 0);
    let mut expected_parts = [None; 4];
    for ((part, memory), layout) in expected_parts.iter_mut().zip(&parts).zip(&problem.epilogue.parts) {
        *part = memory.as_ref().zip(layout.as_ref()).map(|(memory, layout)| matrix(memory, layout));
    }
    let expected = Expected {
        product: p,
        operands: gemwright_cuda::Operands {
            a: view(&a, &problem.a, skip_a * bytes),
            b: view(&b, &problem.b, skip_b * weight_bytes),
            out: view(&out, &problem.out, skip * out_bytes),
            parts: expected_parts,
            kept: None,
            alpha: problem.alpha as f32,
            group_ends: None,
            scales: [0, 1].map(|side| {
                let address = factors[side].as_ref()?.address();
                Some(Factors { address, one_for_all: problem.scales[side] == Scaling::Tensor })
            }),
        },
        dtype: problem.dtype,
        weight_dtype: problem.weight_dtype,
        promoted: problem.promoted,
        out_dtype: problem.out_dtype,
        activation: problem.epilogue.activation,
        gated: problem.epilogue.gated,
        before: adds.then(|| view(&before, &problem.out, skip * out_bytes)),
    };
    let mut worst = 0f64;
    for expected in of_each_group(&expected, problem, ends.as_ref().map(|(_, ends)| ends.as_slice())) {
        // SAFETY: every operand has as many elements as its layout reaches.
        worst = worst.max(unsafe { tools.worst(&queue.stream, &expected, SAMPLES)? });
    }
    if let Some((kept, (layout, _))) = kept.as_ref().zip(keep) {
        // A product of its own: all columns of the weights, up to the activation.
        let [scale, bias, ..] = expected_parts;
        let expected = Expected {
            product: Product { n: problem.weight_cols(), ..p },
            operands: gemwright_cuda::Operands {
                out: matrix(kept, &layout),
                parts: [scale, bias, None, None],
                ..expected.operands
            },
            activation: Activation::None,
            gated: false,
            before: None,
            ..expected
        };
        // SAFETY: as above.
        worst = worst.max(unsafe { tools.worst(&queue.stream, &expected, SAMPLES)? });
    }
    Ok(if worst <= 1.0 { Verdict::Right(worst) } else { Verdict::Wrong(format!("{worst:.3} times what may be")) })
}

/// What the results of groups should be, each a product of its own; where there are none, the product itself.
fn of_each_group(all: &Expected, problem: &Problem, ends: Option<&[i32]>) -> Vec<Expected> {
    let Some(ends) = ends else { return vec![*all] };
    let (bytes, out_bytes) = (problem.dtype.bytes(), problem.out_dtype.bytes());
    let mut first = 0;
    let each = ends.iter().enumerate().map(|(group, end)| {
        let (from, count, group) = (i64::from(first), (end - first) as u64, group as i64);
        first = *end;
        let mut expected = *all;
        let operands = &mut expected.operands;
        match problem.groups {
            Groups::K(_) => {
                expected.product.k = count;
                operands.a = operands.a.further(from * operands.a.col, bytes);
                operands.b = operands.b.further(from * operands.b.row, bytes);
                operands.out = operands.out.further(group * operands.out.batch, out_bytes);
                expected.before = expected.before.map(|before| before.further(group * before.batch, out_bytes));
            }
            _ => {
                expected.product.m = count;
                operands.a = operands.a.further(from * operands.a.row, bytes);
                operands.b = operands.b.further(group * operands.b.batch, bytes);
                operands.out = operands.out.further(from * operands.out.row, out_bytes);
            }
        }
        expected
    });
    each.collect()
}

/// Kernels that get every layout, type, factor and epilogue.
const SOME: [&str; 31] = [
    "decode-16x8a4p",
    "decode-16x8a4s2",
    "decode-32x4a4p",
    "ring-8x2c256",
    "ring-8x1c256",
    "ring-8x8c512",
    "ring-8x4c256s2",
    "ring-16x4c256",
    "ring-4x4c256s2",
    "128x256-persistent",
    "128x128p-persistent",
    "128x176-stream-k",
    "128x128p-stream-k",
    "256x128-pair-stream-k",
    "128x256-pair-persistent",
    "64x32p-turned-split-k2",
    "128x64-turned-split-k4",
    "64x16p-turned-stream-k",
    "128x192-turned-persistent",
    "64x64p-split-k8",
    "128x128-pair-data-parallel",
    "192x128p-data-parallel",
    "64x104p-turned-quad-persistent",
    "256x184-turned-persistent",
    "128x64p-pair-split-k3",
    "128x128-pair-split-k4",
    "128x128-pair-stream-k",
    "256x128-beside-data-parallel",
    "192x64p-turned-beside-persistent",
    "64x104p-turned-4x2-data-parallel",
    "64x88p-turned-2x4-data-parallel",
];

/// Every tile and schedule on shapes around its edges, layouts and batches, types, factors and epilogues on a few.
pub fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    for choice in KernelChoice::all() {
        let (m, n) = (u64::from(choice.tile.m), u64::from(choice.tile.n));
        let (m, n) = if choice.turned { (n, m) } else { (m, n) };
        let pad = |x: u64| x.next_multiple_of(8);
        for (rows, cols, k) in [(m, pad(n), 64), (m + 1, pad(n) + 8, 200), (3 * m - 5, pad(2 * n - 8), 1096)] {
            let problem = Problem::linear(rows, cols, k, DType::Bf16);
            all.push(Case { kernel: Kernel::Hopper(choice), problem });
        }
    }
    for choice in DecodeChoice::all() {
        let few = [(1, 72, 4096), (2, 264, 4096), (8, 1000, 1000), (13, 40, 2056), (3, 4097, 72)];
        for (m, n, k) in few.into_iter().chain([(8, 3001, 1024), (13, 40, 2112), (3, 4097, 192), (16, 520, 8192)]) {
            all.push(Case { kernel: Kernel::Decode(choice), problem: Problem::linear(m, n, k, DType::Bf16) });
        }
        for (m, n, k) in [(32, 520, 1024), (17, 3001, 2048), (29, 1000, 3584), (32, 4100, 8192), (31, 72, 4096)] {
            all.push(Case { kernel: Kernel::Decode(choice), problem: Problem::linear(m, n, k, DType::Bf16) });
        }
        // Some are for weights of e4m3 alone.
        for (m, n, k) in [(3, 1000, 1024), (11, 264, 8192)] {
            let problem = Problem::linear(m, n, k, DType::Bf16).with_small_weights(Scaling::Rows);
            all.push(Case { kernel: Kernel::Decode(choice), problem });
        }
    }
    for choice in DecodeChoice::all() {
        // Of a gate the tail of the first half lies beside the second.
        for (m, n, k) in [(3, 1003, 1024), (16, 5000, 2048), (8, 88, 64), (1, 13_000, 512), (27, 1003, 2048)] {
            let problem = Problem::gated(m, n, k, DType::Bf16, Activation::Silu);
            all.push(Case { kernel: Kernel::Decode(choice), problem });
        }
    }
    for choice in
        KernelChoice::all().filter(|choice| choice.schedule == Schedule::Persistent && choice.cluster == Cluster::ONE)
    {
        // The first two are of one text.
        all.extend(of_groups().into_iter().take(2).map(|problem| Case { kernel: Kernel::Hopper(choice), problem }));
    }
    let mma = MmaTile::ALL.into_iter().map(Kernel::Mma);
    for kernel in SOME.into_iter().filter_map(Kernel::named).chain([Kernel::Picked]).chain(mma) {
        let mut push = |problem: Problem| all.push(Case { kernel, problem });
        of_groups().into_iter().chain(of_eight_bits()).for_each(&mut push);
        // Every leading dimension, whichever way the operands lie, and views that begin anywhere.
        let (m, n) = match kernel {
            Kernel::Mma(tile) => (u64::from(tile.m) + 3, u64::from(tile.n) + 5),
            Kernel::Decode(_) => (11, 389),
            _ => (259, 389),
        };
        for k in 96..104 {
            push(Problem::linear(m, n, k, DType::Bf16));
            push(Problem::linear(m, n + k - 95, 2 * k, DType::F16));
            push(Problem::new(m, n, k, DType::F16));
            push(Problem::grad_weight(m, n, k, DType::Bf16));
            push(Problem::grad_weight(m + k - 95, n, 520, DType::Bf16));
        }
        let m = if matches!(kernel, Kernel::Decode(_)) { 6 } else { 136 };
        for bases in [[2, 16, 16], [16, 4, 16], [16, 16, 2], [8, 2, 4]] {
            let plain = Problem { bases, ..Problem::linear(m, 264, 520, DType::Bf16) };
            push(plain);
            push(Problem { bases, ..Problem::grad_weight(m, 264, 523, DType::Bf16) });
            push(Problem { bases, out_dtype: DType::F32, ..Problem::new(m, 264, 72, DType::F16) });
            push(Problem { product: Product { batch: 3, ..plain.product }, ..plain });
            push(Problem { bases, ..Problem::gated(m, 264, 520, DType::Bf16, Activation::Silu) });
        }
        for (batch, k) in [(3, 77), (2, 130)] {
            let one = Problem::linear(if m == 6 { 9 } else { 70 }, 90, k, DType::Bf16);
            push(Problem { product: Product { batch, ..one.product }, ..one });
        }
        for (m, n, k) in [
            (264, 520, 328),
            (8, 1000, 4096),
            (1024, 1536, 512),
            (1, 8, 8),
            (7, 24, 0),
            (16, 77, 5001),
            (512, 264, 20_000),
        ] {
            let bf16 = DType::Bf16;
            let plain = Problem::linear(m, n, k, bf16);
            push(plain);
            push(Problem::new(m, n, k, bf16));
            push(Problem::grad_weight(m, n, k, bf16));
            push(Problem { a: Layout::column_major(m, k), ..plain });
            push(Problem { out: Layout::column_major(m, n), ..plain });
            push(Problem { out: Layout { row: n as i64 + 3, col: 1, batch: 0 }, ..plain });
            push(Problem { out: Layout { row: n as i64 + 8, col: 1, batch: 0 }, alpha: -0.75, ..plain });
            push(Problem { out_dtype: DType::F32, ..plain });
            push(Problem { out_dtype: DType::F32, beta: 1.0, ..Problem::grad_weight(m, n, k, bf16) });
            push(Problem { beta: 1.0, ..plain });
            push(Problem::linear(m, n, k, DType::F16));
            push(Problem { product: Product { batch: 3, m, n, k }, ..plain });
            let shared = Layout { batch: 0, ..plain.b };
            push(Problem { product: Product { batch: 3, m, n, k }, b: shared, ..plain });
            for activation in Activation::ALL {
                let bias = Layout { row: 0, col: 1, batch: 0 };
                push(Problem { epilogue: Epilogue::default().with(Part::Bias, bias).activated(activation), ..plain });
            }
            let parts = Epilogue::default()
                .with(Part::Scale, Layout { row: 1, col: 0, batch: 0 })
                .with(Part::Times, Layout::row_major(m, n))
                .with(Part::Residual, Layout::row_major(m, n));
            push(Problem { epilogue: parts.activated(Activation::Silu), ..plain });
            let beside = Layout { row: n as i64 + 3, col: 1, batch: 0 };
            let odd = Epilogue::default().with(Part::Residual, beside).with(Part::Scale, beside);
            push(Problem { epilogue: Epilogue { kept: Some(Layout::row_major(m, n)), ..odd }, ..plain });
            let turned =
                Epilogue::default().with(Part::Times, Layout::column_major(m, n)).activated(Activation::GeluTanh);
            push(Problem { epilogue: Epilogue { kept: Some(beside), ..turned }, out_dtype: DType::F32, ..plain });
            let gated = Problem::gated(m, n, k, bf16, Activation::Silu);
            push(gated);
            let both = Some(Layout::row_major(m, 2 * n));
            push(Problem { epilogue: Epilogue { kept: both, ..gated.epilogue }, alpha: 0.5, ..gated });
        }
    }
    all
}

/// Products of groups: forward, both gradients, gated, with few rows and with many, of f16, added to.
fn of_groups() -> Vec<Problem> {
    let bf16 = DType::Bf16;
    let few = Problem::linear(83, 144, 200, bf16);
    let many = Problem::linear(2900, 264, 520, bf16);
    let gated = Problem::gated(777, 96, 136, bf16, Activation::Silu);
    vec![
        few.with_groups_of_rows(11),
        many.with_groups_of_rows(7),
        Problem { alpha: 0.5, ..Problem::linear(300, 128, 64, DType::F16) }.with_groups_of_rows(65),
        Problem::new(900, 200, 136, bf16).with_groups_of_rows(5),
        gated.with_groups_of_rows(4),
        Problem::grad_weight(136, 264, 700, bf16).with_groups_of_k(9),
        Problem { out_dtype: DType::F32, beta: 1.0, ..Problem::grad_weight(264, 64, 900, bf16).with_groups_of_k(3) },
    ]
}

/// Operands of e4m3, factors of every kind; weights of e4m3 beside 16 bits.
fn of_eight_bits() -> Vec<Problem> {
    use Scaling::{None, Rows, Tensor};
    let mut all = Vec::new();
    for (m, n, k) in [(300, 520, 640), (1024, 768, 4096), (5, 88, 48), (130, 264, 144)] {
        let plain = Problem::linear(m, n, k, DType::Bf16);
        all.push(plain.of_eight_bits([None; 2], false));
        all.push(plain.of_eight_bits([Tensor; 2], true));
        all.push(plain.of_eight_bits([Rows; 2], m > 500));
        all.push(Problem { out_dtype: DType::F32, ..plain.of_eight_bits([Tensor, Rows], false) });
        let gated = Problem::gated(m, n / 2, k, DType::Bf16, Activation::Silu);
        all.push(gated.of_eight_bits([Rows; 2], false));
    }
    all.push(Problem::linear(40, 264, 0, DType::Bf16).of_eight_bits([None; 2], false));
    // The last three take turns, of 8, 4 and 16 rows.
    for (m, n, k) in [
        (1, 1000, 1024),
        (2, 136, 8192),
        (7, 264, 4096),
        (16, 520, 2176),
        (3, 131, 128),
        (8, 4096, 14_336),
        (13, 264, 14_336),
        (6, 136, 28_672),
        (29, 264, 2048),
    ] {
        let plain = Problem::linear(m, n, k, DType::Bf16);
        all.push(plain.with_small_weights(None));
        all.push(plain.with_small_weights(Tensor));
        all.push(plain.with_small_weights(Rows));
        all.push(Problem::gated(m, n, k, DType::Bf16, Activation::Silu).with_small_weights(Rows));
        let bias = Epilogue::default().with(Part::Bias, Layout { row: 0, col: 1, batch: 0 });
        all.push(Problem { epilogue: bias, ..Problem::linear(m, n, k, DType::F16).with_small_weights(Tensor) });
    }
    all
}

/// Gradients of biases: the product of a row of ones with what comes back, so that sums are held against the same oracle.
pub fn check_bias_gradients(device: &Arc<Device>) -> Result<Vec<(String, Verdict)>, CudaError> {
    let (queue, tools) = (CudaQueue::new(device)?, Tools::new(device)?);
    let ones = Memory::new(device, 4)?;
    let mut all = Vec::new();
    for (rows, cols) in [(1, 1), (3, 255), (597, 4096), (8192, 11_008), (1024, 50_257), (0, 64)] {
        for dtypes in [(DType::Bf16, DType::Bf16), (DType::F16, DType::F32), (DType::Bf16, DType::F32)] {
            let dy = Memory::new(device, ((rows * cols * dtypes.0.bytes()) as usize).max(16))?;
            tools.fill(&queue.stream, &dy, dtypes.0, 5, 1.0)?;
            let one: [u8; 4] = if dtypes.0 == DType::F16 { [0, 0x3c, 0, 0x3c] } else { [0x80, 0x3f, 0x80, 0x3f] };
            ones.write(0, &one, &queue.stream)?;
            let out = Memory::new(device, (cols * dtypes.1.bytes()) as usize)?;
            let sums = BiasGrad::new(&queue.stream, (rows, cols), dtypes, false)?;
            let mut bits = Vec::new();
            for _ in 0..3 {
                out.fill(0, out.bytes(), 0xff, &queue.stream)?;
                // SAFETY: both have as many elements as were asked for, and live until the stream is waited for.
                unsafe { sums.launch(&queue.stream, dy.address(), cols as i64, out.address())? };
                queue.stream.synchronize()?;
                bits.push(tools.scan(&queue.stream, &out, dtypes.1, 0, cols)?);
            }
            let matrix = |memory: &Memory, row, col| Matrix { address: memory.address(), row, col, batch: 0 };
            let expected = Expected {
                product: Product { batch: 1, m: 1, n: cols, k: rows },
                operands: gemwright_cuda::Operands {
                    a: matrix(&ones, 0, 0),
                    b: matrix(&dy, cols as i64, 1),
                    out: matrix(&out, 0, 1),
                    parts: [None; 4],
                    kept: None,
                    alpha: 1.0,
                    group_ends: None,
                    scales: [None; 2],
                },
                dtype: dtypes.0,
                weight_dtype: dtypes.0,
                promoted: false,
                out_dtype: dtypes.1,
                activation: Activation::None,
                gated: false,
                before: None,
            };
            // SAFETY: every operand has as many elements as its steps reach.
            let worst = unsafe { tools.worst(&queue.stream, &expected, SAMPLES)? };
            let verdict = match () {
                () if bits.iter().any(|found| *found != bits[0]) => {
                    Verdict::Wrong("three runs, not the same bits".into())
                }
                () if worst > 1.0 => Verdict::Wrong(format!("{worst:.3} times what may be")),
                () => Verdict::Right(worst),
            };
            all.push((format!("bias gradient {rows}x{cols} {} to {}", dtypes.0, dtypes.1), verdict));
        }
    }
    Ok(all)
}

/// Checks cases one after the other, in no order with and without weights that may be read early; `told` hears of each. The first wrong one that ends the device ends it all.
pub fn check_all(cases: &[Case], device: &Arc<Device>, told: &mut dyn FnMut(&Case, &Verdict)) -> Result<(), CudaError> {
    let (mut queue, tools) = (CudaQueue::new(device)?, Tools::new(device)?);
    for (i, case) in cases.iter().enumerate() {
        queue.constant_weights = (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 63 == 0;
        let verdict = check(case, device, &queue, &tools)?;
        told(case, &verdict);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use gemwright_core::KernelChip;
    use std::collections::HashSet;

    /// The other cases are there to be refused, but one that refuses all of them would never run.
    #[test]
    fn every_kernel_takes_some_of_its_cases() {
        let (chip, mut taken) = (KernelChip::hopper(132), HashSet::new());
        for Case { kernel, problem } in cases() {
            if kernel.build_on(&problem, &chip).is_some() {
                taken.insert(kernel.to_string());
            }
        }
        let idle: Vec<_> =
            Kernel::all().map(|kernel| kernel.to_string()).filter(|name| !taken.contains(name)).collect();
        assert!(idle.is_empty() && taken.contains("picked"), "{idle:?}");
    }

    #[test]
    fn the_kernels_of_the_list_exist() {
        for name in SOME {
            assert!(Kernel::named(name).is_some(), "{name}");
        }
        let cases = cases();
        // Rings take some of what each of them is asked.
        let rings = cases.iter().filter(|case| case.kernel.to_string().starts_with("ring"));
        assert!(rings.count() > 100);
    }
}
