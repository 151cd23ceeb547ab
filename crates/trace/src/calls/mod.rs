//! The calls a trace shows, in the form a prediction has: one family of operations a file.

mod arguments;
mod attention;
mod convolution;
mod launched;
mod product;

use crate::analysis::Analysis;
use crate::backward::NODE;
use crate::event::Category;
use crate::fast::Map;
use crate::interval::Time;
use crate::nest::NONE;
use crate::scan::unescaped;
pub(crate) use arguments::Arguments;
use gemwright_core::blas::{Backend, Settings, Stack, Trans};
use gemwright_core::{Call, Cell, Measured, MeasuredKernel, Op, Operands, Pass, Source, Workload, kernel_name};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What an operation amounts to, or why that cannot be told.
type Found = Result<(Op, Operands), String>;
/// `None`: not an operation of this family.
type Read = Option<Found>;

/// Categories whose operations multiply matrices: what of them is no call is named.
const MULTIPLYING: [&str; 8] =
    ["GEMM", "GroupedGEMM", "SDPA_fwd", "SDPA_bwd", "CONV_fwd", "CONV_bwd", "InferenceAttention", "MoE_fused"];

/// How names begin that only a compiled model has.
const COMPILED: [&str; 3] = ["triton_poi_", "triton_per_", "Torch-Compiled Region"];

/// What an operation multiplies, where it is one that does.
pub(crate) fn operands_of(name: &str, arguments: &Arguments) -> Read {
    product::read(name, arguments)
        .or_else(|| convolution::read(name, arguments))
        .or_else(|| attention::read_as(name, arguments, attention::direct(name)))
}

/// Batch, M, N, K and the flags of the library's call, of an operation that is a plain product.
pub(crate) fn product_cells(name: &str, arguments: &Arguments, settings: Settings) -> Vec<Cell> {
    let Some(Ok((op, operands))) = operands_of(name, arguments) else { return vec![Cell::Empty; 6] };
    let call = Call::once(op, operands);
    let extents = call.product().map(|p| [p.batch, p.m, p.n, p.k]);
    let mut cells: Vec<Cell> = (0..4).map(|i| extents.map(|e| e[i]).into()).collect();
    let flag = |t: Trans| if t == Trans::T { "T" } else { "N" };
    let flags = call.gemm_flags(settings);
    cells.extend([flags.map(|(a, _)| flag(a)).into(), flags.map(|(_, b)| flag(b)).into()]);
    cells
}

/// What stands around an event on the host.
struct Surroundings {
    /// It lies in attention's own decomposition.
    in_attention: bool,
    /// It lies in an operation that is a call already.
    in_kernel: bool,
    /// Inside the backward pass.
    backward: bool,
}

/// Calls in order of first issue, with the times of what they launched. What multiplies and is no call,
/// or cannot be read, is among the warnings.
pub fn workload<T: Time>(analysis: &Analysis<'_, T>, source: Source) -> Workload {
    Collector::new(analysis).collect(source)
}

/// Whose libraries PyTorch was built for, as its launches tell.
pub fn settings<T: Time>(analysis: &Analysis<'_, T>) -> Settings {
    let hip = |name: &[u8]| name.starts_with(b"hip");
    let calls = analysis.trace.events.iter().filter(|e| e.category.is_call());
    let rocm = calls.map(|e| &analysis.trace.texts[e.name as usize]).any(|name| hip(name));
    Settings { stack: if rocm { Stack::Rocm } else { Stack::Cuda }, prefer_lt: false }
}

struct Collector<'x, 't, T> {
    analysis: &'x Analysis<'t, T>,
    /// Names of operations, as text.
    names: Vec<Arc<str>>,
    /// The kernel inside each call of the attention function.
    inside: Map<u32, Backend>,
    /// What each name and set of arguments amounts to.
    known: Map<(u32, u32, Option<Backend>), Option<Arc<Found>>>,
    /// Which call each event on the host is.
    call_at: Vec<u32>,
    unread: BTreeMap<String, u64>,
}

impl<'x, 't, T: Time> Collector<'x, 't, T> {
    fn new(analysis: &'x Analysis<'t, T>) -> Self {
        let names = analysis.trace.texts.iter().map(|text| unescaped(text).into()).collect();
        let call_at = vec![NONE; analysis.trace.events.len()];
        let (inside, known, unread) = (Map::default(), Map::default(), BTreeMap::new());
        Collector { analysis, names, inside, known, call_at, unread }
    }

    fn collect(mut self, source: Source) -> Workload {
        self.look_inside_attention();
        let events = &self.analysis.trace.events;
        let mut operations: Vec<u32> =
            (0..events.len() as u32).filter(|i| events[*i as usize].category == Category::CpuOp).collect();
        operations.sort_by_key(|i| events[*i as usize].start);
        let mut calls: Vec<Call> = Vec::new();
        let mut without_strides = 0;
        for place in operations {
            let Some(found) = self.found(place) else { continue };
            let around = self.surroundings(place);
            if around.in_kernel {
                continue;
            }
            match &*found {
                Ok((op, operands)) => {
                    self.call_at[place as usize] = calls.len() as u32;
                    without_strides += u64::from(self.analysis.trace.list(&events[place as usize], 2).is_none());
                    calls.push(Call {
                        op: *op,
                        pass: self.pass(place, &around),
                        module: "".into(),
                        operands: *operands,
                        scales: None,
                        inside: around.in_attention,
                        count: 1,
                        measured: None,
                    });
                }
                Err(why) => {
                    let name = &self.names[events[place as usize].name as usize];
                    *self.unread.entry(format!("{name}: {why}")).or_default() += 1;
                }
            }
        }
        let unclaimed = self.measure(&mut calls);
        let mut workload = Workload::default();
        workload.source = source;
        workload.launched = launched::launched(self.analysis, &self.names, &unclaimed);
        if self.names.iter().any(|name| COMPILED.iter().any(|start| name.starts_with(start))) {
            workload.source.facts.push(("compiled".into(), true.into()));
        }
        for call in &calls {
            workload.push(call);
        }
        workload.warnings = self.warnings(without_strides);
        workload.warnings.extend(disagreements(&workload, settings(self.analysis)));
        workload
    }

    /// What the operation at `place` amounts to; `None` where it is no product.
    fn found(&mut self, place: u32) -> Option<Arc<Found>> {
        let event = &self.analysis.trace.events[place as usize];
        let inside = self.inside.get(&place).copied();
        let key = (event.name, event.arguments, inside);
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        let name = &*self.names[event.name as usize];
        let read = |arguments: &Arguments| {
            product::read(name, arguments)
                .or_else(|| convolution::read(name, arguments))
                .or_else(|| attention::read_as(name, arguments, inside))
        };
        let found = match Arguments::of(self.analysis.trace, event) {
            Some(arguments) => read(&arguments),
            None => read(&Arguments::NONE).map(|_| Err("its shapes were not recorded".into())),
        };
        let found = found.map(Arc::new);
        self.known.insert(key, found.clone());
        found
    }

    /// Which kernel runs each call of the attention function, told by the operation inside it.
    fn look_inside_attention(&mut self) {
        let events = &self.analysis.trace.events;
        let kernels: Map<u32, Backend> = (0u32..)
            .zip(&self.names)
            .filter_map(|(name, text)| attention::backend(text).map(|backend| (name, backend)))
            .collect();
        for (i, event) in events.iter().enumerate() {
            let Some(backend) = kernels.get(&event.name) else { continue };
            let above = self.analysis.parent[i];
            if above != NONE && &*self.names[events[above as usize].name as usize] == attention::FUNCTION {
                self.inside.insert(above, *backend);
            }
        }
    }

    fn surroundings(&self, place: u32) -> Surroundings {
        let mut around = Surroundings { in_attention: false, in_kernel: false, backward: false };
        let mut above = self.analysis.parent[place as usize];
        while above != NONE {
            let name = &*self.names[self.analysis.trace.events[above as usize].name as usize];
            let decomposed = self.inside.get(&above).is_none_or(|backend| *backend == Backend::Math);
            if name == attention::FUNCTION && decomposed {
                around.in_attention = true;
            } else if self.call_at[above as usize] != NONE {
                around.in_kernel = true;
            }
            around.backward |= name.as_bytes().starts_with(NODE);
            above = self.analysis.parent[above as usize];
        }
        // The function is the call, not the decomposition inside it.
        around.in_kernel |= around.in_attention && self.names_decomposition(place);
        around
    }

    fn names_decomposition(&self, place: u32) -> bool {
        attention::backend(&self.names[self.analysis.trace.events[place as usize].name as usize]).is_some()
    }

    /// Backward runs without a graph of its own; what is given a sequence number there is a forward again.
    fn pass(&self, place: u32, around: &Surroundings) -> Pass {
        match (around.backward, self.analysis.trace.events[place as usize].sequence.get()) {
            (false, _) => Pass::Forward,
            (true, Some(_)) => Pass::Recompute,
            (true, None) => Pass::Grad,
        }
    }

    /// Each GPU event belongs to the innermost call above it; gives those that have none above.
    fn measure(&self, calls: &mut [Call]) -> Vec<u32> {
        let analysis = self.analysis;
        let mut launched: Vec<Vec<u32>> = vec![Vec::new(); calls.len()];
        let unlinked = |i: &u32| analysis.links.launcher[*i as usize] == NONE;
        let mut unclaimed: Vec<u32> = analysis.gpu_events().map(|(i, _)| i).filter(unlinked).collect();
        for &gpu in &analysis.links.order {
            let mut above = analysis.links.launcher[gpu as usize];
            while above != NONE && self.call_at[above as usize] == NONE {
                above = analysis.parent[above as usize];
            }
            match above {
                NONE => unclaimed.push(gpu),
                _ => launched[self.call_at[above as usize] as usize].push(gpu),
            }
        }
        for (call, gpu) in calls.iter_mut().zip(launched).filter(|(_, gpu)| !gpu.is_empty()) {
            let mut measured = Measured {
                nanoseconds: nanoseconds(analysis.busy(&gpu).microseconds()),
                launches: gpu.len() as u64,
                kernels: Vec::new(),
            };
            for i in gpu {
                let name = self.names[analysis.trace.events[i as usize].name as usize].clone();
                let kernel = MeasuredKernel { name, nanoseconds: nanoseconds(analysis.took(i)), count: 1 };
                measured.join(&Measured { kernels: vec![kernel], ..Measured::default() });
            }
            call.measured = Some(Box::new(measured));
        }
        unclaimed
    }

    fn warnings(&self, without_strides: u64) -> Vec<String> {
        let mut warnings: Vec<String> =
            self.unread.iter().map(|(what, times)| format!("not in the list, {times} times: {what}")).collect();
        if without_strides > 0 {
            warnings.push(format!("{without_strides} calls have no recorded strides and are taken as contiguous"));
        }
        let mut others: BTreeMap<&str, (u64, f64)> = BTreeMap::new();
        for launcher in self.analysis.launchers.iter().filter(|l| MULTIPLYING.contains(&l.category)) {
            let mut above = launcher.event;
            let mut known = false;
            while above != NONE && !known {
                let name = self.analysis.trace.events[above as usize].name as usize;
                known = self.call_at[above as usize] != NONE
                    || self.unread.keys().any(|what| what.starts_with(&*self.names[name]));
                above = self.analysis.parent[above as usize];
            }
            if !known && let Some(event) = self.analysis.event(launcher) {
                let entry = others.entry(&self.names[event.name as usize]).or_default();
                entry.0 += 1;
                entry.1 += launcher.direct_time;
            }
        }
        let other = |(name, (times, us)): (&&str, &(u64, f64))| {
            format!("not in the list, {times} times, {:.3} ms: {name}: an operation without a rule", us / 1e3)
        };
        warnings.extend(others.iter().map(other));
        warnings
    }
}

/// Products whose kernels name other flags than the rules give.
fn disagreements(workload: &Workload, settings: Settings) -> Option<String> {
    let mut told = 0;
    let mut example = None;
    let mut wrong = 0;
    for call in workload.calls() {
        let kernels = call.measured.iter().flat_map(|m| &m.kernels);
        let told_by = kernels.clone().find_map(|k| kernel_name::flags(&k.name).map(|flags| (&k.name, flags)));
        let Some((kernel, agrees)) = told_by.and_then(|(k, f)| call.agrees_with_flags(f, settings).map(|a| (k, a)))
        else {
            continue;
        };
        told += 1;
        if !agrees {
            wrong += 1;
            example.get_or_insert_with(|| format!("{} runs {kernel}", call.op.name()));
        }
    }
    example.map(|example| {
        format!("the flags of {wrong} of {told} products are not those their kernels are named for: {example}")
    })
}

fn nanoseconds(microseconds: f64) -> u64 {
    (microseconds * 1000.0).round().max(0.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Mode, Reading, read};
    use serde_json::json;

    /// The workload of one operation of these sizes, types and values; all tensors are row-major.
    fn of(name: &str, sizes: &[&[i64]], types: &[&str], values: &[&str]) -> Workload {
        let strides: Vec<Vec<i64>> =
            sizes.iter().map(|size| (1..=size.len()).map(|d| size[d..].iter().product()).collect()).collect();
        let args =
            json!({"Input Dims": sizes, "Input type": types, "Input Strides": strides, "Concrete Inputs": values});
        let event =
            json!({"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": 0, "dur": 1, "args": args});
        let trace = read(json!([event]).to_string().as_bytes(), Reading::default()).unwrap();
        workload(&Analysis::<i64>::new(&trace, Mode::Exact), Source::default())
    }

    const BF16: &str = "c10::BFloat16";

    #[test]
    fn an_addend_has_its_factors() {
        let sizes: [&[i64]; 5] = [&[2, 4, 6], &[2, 4, 5], &[2, 5, 6], &[], &[]];
        let list = of("aten::baddbmm", &sizes, &[BF16, BF16, BF16, "Scalar", "Scalar"], &["", "", "", "0.", "0.125"]);
        let Operands::Product { alpha, beta, bias, out, .. } = list.calls()[0].operands else { panic!("no product") };
        assert_eq!((alpha, beta, bias.map(|b| b.rank())), (0.125, 0.0, Some(3)));
        assert_eq!(out.to_string(), "2x4x6:24,6,1");
        // a and b are read, out is written, an addend times 0 is not read.
        assert_eq!(list.calls()[0].bytes(), 2 * (2 * 4 * 5 + 2 * 5 * 6 + 2 * 4 * 6));
    }

    #[test]
    fn a_convolution_backward_has_the_gradients_it_was_asked_for() {
        let sizes: [&[i64]; 11] =
            [&[2, 8, 7, 7], &[2, 4, 14, 14], &[8, 4, 3, 3], &[], &[], &[], &[], &[], &[], &[], &[]];
        let types = [BF16, BF16, BF16, "", "", "", "", "", "", "", ""];
        let values = ["", "", "", "[8]", "[2, 2]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1", "[False, True, False]"];
        let list = of("aten::convolution_backward", &sizes, &types, &values);
        let call = &list.calls()[0];
        assert_eq!((call.op, call.product().map(|p| (p.m, p.n, p.k))), (Op::ConvolutionBackward, Some((98, 8, 36))));
        assert_eq!(call.flops(), 2 * 98 * 8 * 36);
        let transposed = values.map(|v| if v == "False" { "True" } else { v });
        assert!(of("aten::convolution_backward", &sizes, &types, &transposed).warnings[0].contains("transposed"));
    }

    #[test]
    fn attention_called_directly_has_its_kernel() {
        let head: &[i64] = &[1, 8, 16, 64];
        let sizes = [head, head, head, &[], &[], &[], &[]];
        let types = [BF16, BF16, BF16, "Scalar", "Scalar", "Scalar", "Scalar"];
        let list = of(
            "aten::_scaled_dot_product_flash_attention",
            &sizes,
            &types,
            &["", "", "", "0.", "True", "False", "0.5"],
        );
        let Operands::Attention(attention) = list.calls()[0].operands else { panic!("no attention") };
        assert_eq!((attention.backend, attention.is_causal, attention.scale), (Backend::Flash, true, Some(0.5)));
    }

    #[test]
    fn what_does_not_multiply_is_said_and_left_out() {
        for (sizes, types, cause) in [
            (&[&[2, 3][..], &[4, 5]], &[BF16, BF16], "do not multiply"),
            (&[&[2, 3], &[3, -5]], &[BF16, BF16], "no number from 0"),
            (&[&[2, 3], &[3, 5]], &[BF16, "long int"], "known type (`long int`)"),
            (&[&[2, 3], &[1; 9]], &[BF16, BF16], "9 dimensions"),
        ] {
            let list = of("aten::mm", sizes, types, &["", ""]);
            assert!(list.calls().is_empty() && list.warnings[0].contains(cause), "{cause}: {:?}", list.warnings);
        }
    }
}
