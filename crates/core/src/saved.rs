//! A saved workload, read back: the JSON that `report` writes.

use crate::blas::Backend;
use crate::{
    Attention, Call, Collective, CollectiveKind, Convolution, Dims, Launched, LaunchedKernel, Measured, MeasuredKernel,
    Op, Operands, Pass, Source, View, Workload,
};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::sync::Arc;

/// Why a file is no saved workload.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("is no saved workload: {0}")]
pub struct SavedError(pub String);

#[derive(Deserialize)]
struct Document {
    format: u32,
    workload: Map<String, Value>,
    parameters: Option<u64>,
    #[serde(default)]
    warnings: Vec<String>,
    #[serde(default)]
    collectives: Vec<SavedCollective>,
    #[serde(default)]
    launched: Vec<SavedLaunched>,
    calls: Vec<Value>,
}

#[derive(Deserialize)]
struct SavedCollective {
    kind: String,
    pass: String,
    module: Arc<str>,
    bytes: u128,
    count: u64,
}

#[derive(Deserialize)]
struct SavedLaunched {
    by: Arc<str>,
    count: u64,
    kernels: Vec<SavedLaunchedKernel>,
}

#[derive(Deserialize)]
struct SavedLaunchedKernel {
    name: Arc<str>,
    grid: Option<[u64; 3]>,
    seconds: f64,
}

#[derive(Deserialize)]
struct SavedCall {
    op: String,
    pass: String,
    module: Arc<str>,
    inside: Option<String>,
    a: Option<View>,
    b: Option<View>,
    bias: Option<View>,
    out: Value,
    alpha: Option<f64>,
    beta: Option<f64>,
    offs: Option<View>,
    groups_touched: Option<f64>,
    scales: Option<View>,
    grad: Option<View>,
    stride: Option<Dims>,
    padding: Option<Dims>,
    dilation: Option<Dims>,
    groups: Option<i64>,
    output_mask: Option<[bool; 3]>,
    q: Option<View>,
    k: Option<View>,
    v: Option<View>,
    mask: Option<View>,
    is_causal: Option<bool>,
    enable_gqa: Option<bool>,
    scale: Option<f64>,
    backend: Option<String>,
    count: u64,
    measured: Option<SavedMeasured>,
}

#[derive(Deserialize)]
struct SavedMeasured {
    seconds: f64,
    launches: u64,
    kernels: Vec<SavedKernel>,
}

#[derive(Deserialize)]
struct SavedKernel {
    name: Arc<str>,
    seconds: f64,
    count: u64,
}

/// It seems to be a saved workload: an object of our format with calls.
pub fn is_saved(value: &Value) -> bool {
    value.get("format").is_some() && value.get("calls").is_some_and(Value::is_array)
}

/// Reads it.
pub fn workload(text: &str) -> Result<Workload, SavedError> {
    let document: Document = serde_json::from_str(text).map_err(|e| SavedError(e.to_string()))?;
    if document.format != 1 {
        return Err(SavedError(format!("its format is {}; this program reads format 1", document.format)));
    }
    let mut facts = document.workload;
    let kind = match facts.shift_remove("source") {
        Some(Value::String(kind)) => kind,
        _ => return Err(SavedError("its `workload` names no source".into())),
    };
    let mut workload = Workload::default();
    workload.source = Source { kind, facts: facts.into_iter().collect() };
    (workload.parameters, workload.warnings) = (document.parameters, document.warnings);
    for saved in document.collectives {
        let kind = CollectiveKind::ALL.into_iter().find(|kind| kind.name() == saved.kind);
        let kind = kind.ok_or_else(|| SavedError(format!("`{}` is no exchange that is known", saved.kind)))?;
        let SavedCollective { module, bytes, count, .. } = saved;
        workload.push_collective(&Collective { kind, pass: pass(&saved.pass)?, module, bytes, count }, 1);
    }
    for SavedLaunched { by, count, kernels } in document.launched {
        if count == 0 {
            return Err(SavedError(format!("what `{by}` launched has the count 0")));
        }
        let kernel = |SavedLaunchedKernel { name, grid, seconds }| LaunchedKernel {
            name,
            grid,
            nanoseconds: nanoseconds(seconds),
        };
        let kernels = kernels.into_iter().map(kernel).collect();
        workload.launched.push(Launched { by, count, kernels });
    }
    for (i, value) in document.calls.into_iter().enumerate() {
        let at = |why: String| SavedError(format!("call {i}: {why}"));
        let saved = SavedCall::deserialize(value).map_err(|e| at(e.to_string()))?;
        workload.push(&saved.call().map_err(|e| at(e.0))?);
    }
    Ok(workload)
}

fn pass(name: &str) -> Result<Pass, SavedError> {
    let found = [Pass::Forward, Pass::Recompute, Pass::Grad].into_iter().find(|pass| pass.name() == name);
    found.ok_or_else(|| SavedError(format!("`{name}` is no pass")))
}

/// What must be there.
fn needed<T>(value: Option<T>, name: &str) -> Result<T, SavedError> {
    value.ok_or_else(|| SavedError(format!("it has no `{name}`")))
}

impl SavedCall {
    fn call(self) -> Result<Call, SavedError> {
        let op = Op::ALL.into_iter().find(|op| op.name() == self.op);
        let op = op.ok_or_else(|| SavedError(format!("`{}` is no operation that is known", self.op)))?;
        if self.count == 0 {
            return Err(SavedError("its count is 0".into()));
        }
        let operands = match op {
            Op::Mm | Op::Addmm | Op::Bmm | Op::Baddbmm => self.product(op)?,
            Op::GroupedMm => self.grouped()?,
            Op::Convolution | Op::ConvolutionBackward => self.convolution(op)?,
            Op::Attention | Op::AttentionBackward => self.attention()?,
        };
        let (pass, inside) = (pass(&self.pass)?, self.inside.is_some());
        let measured = self.measured.map(|m| Box::new(m.measured()));
        Ok(Call { op, pass, module: self.module, operands, scales: self.scales, inside, count: self.count, measured })
    }

    fn out(&self) -> Result<View, SavedError> {
        View::deserialize(&self.out).map_err(|e| SavedError(format!("`out`: {e}")))
    }

    fn product(&self, op: Op) -> Result<Operands, SavedError> {
        let (a, b, out) = (needed(self.a, "a")?, needed(self.b, "b")?, self.out()?);
        let rank = if matches!(op, Op::Bmm | Op::Baddbmm) { 3 } else { 2 };
        let ranks = [a, b, out].iter().all(|view| view.rank() == rank);
        if !ranks || a.size[rank - 1] != b.size[rank - 2] || (rank == 3 && a.size[0] != b.size[0]) {
            return Err(SavedError(format!("{a} and {b} do not multiply")));
        }
        let (alpha, beta) = (self.alpha.unwrap_or(1.0), self.beta.unwrap_or(1.0));
        Ok(Operands::Product { a, b, bias: self.bias, out, alpha, beta })
    }

    fn grouped(&self) -> Result<Operands, SavedError> {
        let (a, b, out, offs) = (needed(self.a, "a")?, needed(self.b, "b")?, self.out()?, needed(self.offs, "offs")?);
        let ranks = (a.rank(), b.rank(), out.rank(), offs.rank());
        if !matches!(ranks, (2, 3, 2, 1) | (2, 2, 3, 1)) {
            return Err(SavedError(format!("{a} and {b} are no grouped product")));
        }
        let touched = needed(self.groups_touched, "groups_touched")?;
        Ok(Operands::Grouped { a, b, out, offs, touched })
    }

    fn convolution(&self, op: Op) -> Result<Operands, SavedError> {
        let (input, weight) = (needed(self.a, "a")?, needed(self.b, "b")?);
        let backward = op == Op::ConvolutionBackward;
        let out = if backward { needed(self.grad, "grad")? } else { self.out()? };
        let [stride, padding, dilation] = [self.stride, self.padding, self.dilation];
        let (stride, padding) = (needed(stride, "stride")?, needed(padding, "padding")?);
        let (dilation, groups) = (needed(dilation, "dilation")?, needed(self.groups, "groups")?);
        let wanted = if backward { needed(self.output_mask, "output_mask")? } else { [false; 3] };
        let kernel = input.rank().wrapping_sub(2);
        let fits = weight.rank() == input.rank() && out.rank() == input.rank() && (1..=3).contains(&kernel);
        if !fits || groups < 1 || [stride, padding, dilation].iter().any(|d| d.len() != kernel) {
            return Err(SavedError(format!("{input} and {weight} are no convolution")));
        }
        // A backward has its bias's gradient among its results.
        let gradient = || self.out.get(2).and_then(|view| View::deserialize(view).ok());
        let bias = if backward { gradient() } else { self.bias };
        Ok(Operands::Convolution(Convolution { input, weight, bias, out, stride, padding, dilation, groups, wanted }))
    }

    fn attention(&self) -> Result<Operands, SavedError> {
        let (q, k, v, out) = (needed(self.q, "q")?, needed(self.k, "k")?, needed(self.v, "v")?, self.out()?);
        if [q, k, v, out].iter().any(|view| view.rank() != 4) {
            return Err(SavedError(format!("{q}, {k} and {v} are no attention")));
        }
        let name = needed(self.backend.as_deref(), "backend")?;
        let backend = Backend::ALL.into_iter().find(|backend| backend.name() == name);
        Ok(Operands::Attention(Attention {
            q,
            k,
            v,
            mask: self.mask,
            out,
            is_causal: needed(self.is_causal, "is_causal")?,
            enable_gqa: needed(self.enable_gqa, "enable_gqa")?,
            scale: self.scale,
            backend: backend.ok_or_else(|| SavedError(format!("`{name}` is no kernel of attention")))?,
        }))
    }
}

fn nanoseconds(seconds: f64) -> u64 {
    (seconds * 1e9).round().max(0.0) as u64
}

impl SavedKernel {
    fn kernel(self) -> MeasuredKernel {
        MeasuredKernel { name: self.name, nanoseconds: nanoseconds(self.seconds), count: self.count }
    }
}

impl SavedMeasured {
    fn measured(self) -> Measured {
        Measured {
            nanoseconds: nanoseconds(self.seconds),
            launches: self.launches,
            kernels: self.kernels.into_iter().map(SavedKernel::kernel).collect(),
        }
    }
}
