//! The JSON of a workload: the format that is saved, exchanged and checked. Written call by call,
//! without a tree of values in between: a generation has thousands of calls.

use gemwright_core::blas::{BlasCall, Settings, Stack, Step};
use gemwright_core::{
    Attention, Call, Chip, Collective, Convolution, Launched, LaunchedKernel, Measured, MeasuredKernel, Op, Operands,
    Product, Roof, RoofError, Workload,
};
use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Serialize, Serializer};
use serde_json::Value;

/// Version of the format; a field is added, never renamed, without a new one.
const FORMAT: u32 = 1;

/// The whole workload; with a chip each call has its roof. `summary` is written along where there is one.
pub fn workload_json(
    workload: &Workload,
    chip: Option<&Chip>,
    summary: Option<&Value>,
    settings: Settings,
) -> Result<String, RoofError> {
    let roofs = match chip {
        Some(chip) => workload.calls().iter().map(|c| Roof::of(c, chip).map(Some)).collect::<Result<Vec<_>, _>>()?,
        None => vec![None; workload.calls().len()],
    };
    let document = Document { workload, chip, roofs: &roofs, summary, settings };
    Ok(serde_json::to_string(&document).expect("writing to memory does not fail"))
}

struct Document<'a> {
    workload: &'a Workload,
    chip: Option<&'a Chip>,
    roofs: &'a [Option<Roof>],
    summary: Option<&'a Value>,
    settings: Settings,
}

impl Serialize for Document<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut out = serializer.serialize_map(None)?;
        out.serialize_entry("format", &FORMAT)?;
        out.serialize_entry("gemwright", env!("CARGO_PKG_VERSION"))?;
        out.serialize_entry("workload", &SourceJson(self.workload))?;
        out.serialize_entry("parameters", &self.workload.parameters)?;
        out.serialize_entry("warnings", &self.workload.warnings)?;
        if let Some(summary) = self.summary {
            out.serialize_entry("summary", summary)?;
        }
        if !self.workload.collectives.is_empty() {
            let exchanges: Vec<CollectiveJson> = self.workload.collectives.iter().map(CollectiveJson).collect();
            out.serialize_entry("collectives", &exchanges)?;
        }
        if !self.workload.launched.is_empty() {
            let launched: Vec<LaunchedJson> = self.workload.launched.iter().map(LaunchedJson).collect();
            out.serialize_entry("launched", &launched)?;
        }
        out.serialize_entry("calls", &Calls(self))?;
        out.end()
    }
}

struct SourceJson<'a>(&'a Workload);

impl Serialize for SourceJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut out = serializer.serialize_map(None)?;
        out.serialize_entry("source", &self.0.source.kind)?;
        for (name, value) in &self.0.source.facts {
            out.serialize_entry(name, value)?;
        }
        out.end()
    }
}

struct CollectiveJson<'a>(&'a Collective);

impl Serialize for CollectiveJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut out = serializer.serialize_map(Some(5))?;
        out.serialize_entry("kind", self.0.kind.name())?;
        out.serialize_entry("pass", self.0.pass.name())?;
        out.serialize_entry("module", &*self.0.module)?;
        out.serialize_entry("bytes", &self.0.bytes)?;
        out.serialize_entry("count", &self.0.count)?;
        out.end()
    }
}

struct LaunchedJson<'a>(&'a Launched);

impl Serialize for LaunchedJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut out = serializer.serialize_map(Some(3))?;
        out.serialize_entry("by", &*self.0.by)?;
        out.serialize_entry("count", &self.0.count)?;
        let kernels: Vec<LaunchedKernelJson> = self.0.kernels.iter().map(LaunchedKernelJson).collect();
        out.serialize_entry("kernels", &kernels)?;
        out.end()
    }
}

struct LaunchedKernelJson<'a>(&'a LaunchedKernel);

impl Serialize for LaunchedKernelJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut out = serializer.serialize_map(Some(3))?;
        out.serialize_entry("name", &*self.0.name)?;
        out.serialize_entry("grid", &self.0.grid)?;
        out.serialize_entry("seconds", &seconds(self.0.nanoseconds))?;
        out.end()
    }
}

struct Calls<'a>(&'a Document<'a>);

impl Serialize for Calls<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut out = serializer.serialize_seq(Some(self.0.roofs.len()))?;
        for (call, roof) in self.0.workload.calls().iter().zip(self.0.roofs) {
            let roof = roof.zip(self.0.chip).map(|(roof, chip)| RoofJson { chip: &chip.id, roof });
            out.serialize_element(&CallJson { call, roof, settings: self.0.settings })?;
        }
        out.end()
    }
}

struct RoofJson<'a> {
    chip: &'a str,
    roof: Roof,
}

impl Serialize for RoofJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut out = serializer.serialize_map(Some(3))?;
        out.serialize_entry("chip", self.chip)?;
        out.serialize_entry("bound", &self.roof.bound)?;
        out.serialize_entry("seconds", &self.roof.seconds)?;
        out.end()
    }
}

struct ProductJson(Product);

impl Serialize for ProductJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut out = serializer.serialize_map(Some(4))?;
        for (name, extent) in [("batch", self.0.batch), ("m", self.0.m), ("n", self.0.n), ("k", self.0.k)] {
            out.serialize_entry(name, &extent)?;
        }
        out.end()
    }
}

struct CallJson<'a> {
    call: &'a Call,
    roof: Option<RoofJson<'a>>,
    settings: Settings,
}

impl Serialize for CallJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let call = self.call;
        let mut out = serializer.serialize_map(None)?;
        out.serialize_entry("op", call.op.name())?;
        out.serialize_entry("pass", call.pass.name())?;
        out.serialize_entry("module", &*call.module)?;
        if call.inside {
            out.serialize_entry("inside", "scaled_dot_product_attention")?;
        }
        match &call.operands {
            Operands::Product { a, b, bias, out: result, alpha, beta } => {
                out.serialize_entry("a", a)?;
                out.serialize_entry("b", b)?;
                out.serialize_entry("bias", bias)?;
                out.serialize_entry("out", result)?;
                for (name, factor) in [("alpha", alpha), ("beta", beta)] {
                    if *factor != 1.0 {
                        out.serialize_entry(name, factor)?;
                    }
                }
            }
            Operands::Grouped { a, b, out: result, offs, touched } => {
                out.serialize_entry("a", a)?;
                out.serialize_entry("b", b)?;
                out.serialize_entry("bias", &None::<u8>)?;
                out.serialize_entry("out", result)?;
                out.serialize_entry("offs", offs)?;
                out.serialize_entry("groups", &call.groups())?;
                out.serialize_entry("groups_touched", touched)?;
            }
            Operands::Convolution(convolution) => {
                convolution_fields(convolution, call.op == Op::ConvolutionBackward, &mut out)?;
            }
            Operands::Attention(attention) => attention_fields(attention, &mut out)?,
        }
        if let Some(scales) = &call.scales {
            out.serialize_entry("scales", scales)?;
        }
        out.serialize_entry("count", &call.count)?;
        out.serialize_entry("product", &call.product().map(ProductJson))?;
        if matches!(call.operands, Operands::Attention(_)) {
            let products: Vec<ProductJson> = call.attention_products().into_iter().map(ProductJson).collect();
            out.serialize_entry("products", &products)?;
            out.serialize_entry("flops_causal", &call.flops_causal())?;
        }
        out.serialize_entry("flops", &call.flops())?;
        out.serialize_entry("bytes", &call.bytes())?;
        out.serialize_entry("intensity", &call.intensity())?;
        out.serialize_entry("blas", &blas_json(&call.blas_steps(self.settings), self.settings))?;
        out.serialize_entry("roof", &self.roof)?;
        out.serialize_entry("measured", &call.measured.as_deref().map(MeasuredJson))?;
        out.end()
    }
}

/// Seconds and launches of all repetitions together.
struct MeasuredJson<'a>(&'a Measured);

impl Serialize for MeasuredJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut out = serializer.serialize_map(Some(3))?;
        out.serialize_entry("seconds", &seconds(self.0.nanoseconds))?;
        out.serialize_entry("launches", &self.0.launches)?;
        let kernels: Vec<KernelJson> = self.0.kernels.iter().map(KernelJson).collect();
        out.serialize_entry("kernels", &kernels)?;
        out.end()
    }
}

struct KernelJson<'a>(&'a MeasuredKernel);

impl Serialize for KernelJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut out = serializer.serialize_map(Some(3))?;
        out.serialize_entry("name", &*self.0.name)?;
        out.serialize_entry("seconds", &seconds(self.0.nanoseconds))?;
        out.serialize_entry("count", &self.0.count)?;
        out.end()
    }
}

/// The float nearest to the decimal number, so that no digit is made up.
fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

/// The call with the copies before it; null where none is made.
fn blas_json(steps: &[Step], settings: Settings) -> Option<BlasJson<'_>> {
    let call = steps.iter().find_map(|step| match step {
        Step::Blas(call) => Some(call),
        _ => None,
    })?;
    let copies = steps.iter().filter_map(|step| match step {
        Step::Copy { operand, why } => Some(CopyJson { operand, why }),
        _ => None,
    });
    let unverified = (settings.stack == Stack::Rocm).then_some(true);
    Some(BlasJson { call, copies: copies.collect(), unverified })
}

#[derive(Serialize)]
struct BlasJson<'a> {
    #[serde(flatten)]
    call: &'a BlasCall,
    copies: Vec<CopyJson<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unverified: Option<bool>,
}

#[derive(Serialize)]
struct CopyJson<'a> {
    operand: &'a str,
    why: &'a str,
}

fn convolution_fields<M: SerializeMap>(c: &Convolution, backward: bool, out: &mut M) -> Result<(), M::Error> {
    out.serialize_entry("a", &c.input)?;
    out.serialize_entry("b", &c.weight)?;
    if backward {
        out.serialize_entry("bias", &None::<u8>)?;
        out.serialize_entry("grad", &c.out)?;
        out.serialize_entry("output_mask", &c.wanted)?;
        out.serialize_entry("out", &c.gradients())?;
    } else {
        out.serialize_entry("bias", &c.bias)?;
        out.serialize_entry("out", &c.out)?;
    }
    for (name, numbers) in [("stride", c.stride), ("padding", c.padding), ("dilation", c.dilation)] {
        out.serialize_entry(name, &numbers)?;
    }
    out.serialize_entry("output_padding", &vec![0; c.stride.len()])?;
    out.serialize_entry("transposed", &false)?;
    out.serialize_entry("groups", &c.groups)?;
    out.serialize_entry("depthwise", &c.is_depthwise())
}

fn attention_fields<M: SerializeMap>(a: &Attention, out: &mut M) -> Result<(), M::Error> {
    out.serialize_entry("kernel", a.kernel().name())?;
    out.serialize_entry("backend", a.backend.name())?;
    for (name, view) in [("q", &a.q), ("k", &a.k), ("v", &a.v)] {
        out.serialize_entry(name, view)?;
    }
    out.serialize_entry("mask", &a.mask)?;
    out.serialize_entry("out", &a.out)?;
    out.serialize_entry("bias", &None::<u8>)?;
    out.serialize_entry("is_causal", &a.is_causal)?;
    out.serialize_entry("enable_gqa", &a.enable_gqa)?;
    out.serialize_entry("scale", &a.scale)?;
    out.serialize_entry("dropout", &0.0)
}
