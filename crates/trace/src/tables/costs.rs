//! TraceLens's models applied to the events of a trace.

use crate::analysis::{Analysis, Lists};
use crate::event::Category;
use crate::fast::Map;
use crate::interval::{Time, length, order, union};
use crate::nest::NONE;
use crate::scan::unescaped;
use crate::tracelens::{Cost, Fail, Given, Model, Work, model_of};
use std::sync::Arc;

/// What tells costs apart: name, arguments, the kernel whose name tells the flags, the annotation.
type Key = (u32, u32, u32, u32);

/// Models, and what they gave for each distinct call.
pub struct Costs<'x, 't, T> {
    pub analysis: &'x Analysis<'t, T>,
    /// Of each text that is a name, its model.
    models: Map<u32, Option<Model>>,
    known: Map<Key, Result<Arc<Cost>, Fail>>,
    /// What was launched below each event on the host.
    pub below: Lists,
    /// The annotation around events that are looked at for one: the number of a text.
    annotations: Map<u32, u32>,
    /// Of each text, whether a library's flags stand in it.
    tells: Vec<bool>,
}

impl<'x, 't, T: Time> Costs<'x, 't, T> {
    pub fn new(analysis: &'x Analysis<'t, T>) -> Self {
        let tells = analysis.trace.texts.iter().map(|text| tells_flags(text)).collect();
        let (models, known) = (Map::default(), Map::default());
        Costs { analysis, models, known, below: analysis.all_below(), annotations: annotations(analysis), tells }
    }

    /// The model of an event, where its name has one and, for compiled kernels, its arguments are there.
    pub fn model(&mut self, event: u32) -> Option<Model> {
        let event_name = self.analysis.trace.events[event as usize].name;
        let texts = &self.analysis.trace.texts;
        let found = *self.models.entry(event_name).or_insert_with(|| model_of(&unescaped(&texts[event_name as usize])));
        // Kernels of torch.compile have no sheet; without arguments they have no model either.
        found.filter(|model| !model.sheet.is_empty() || self.cost(event, &[]).is_ok())
    }

    fn named_model(&self, name: u32) -> Option<Model> {
        self.models
            .get(&name)
            .copied()
            .unwrap_or_else(|| model_of(&unescaped(&self.analysis.trace.texts[name as usize])))
    }

    /// What an event costs, given the kernels below it by time.
    pub fn cost(&mut self, place: u32, kernels: &[u32]) -> Result<Arc<Cost>, Fail> {
        let trace = self.analysis.trace;
        let event = &trace.events[place as usize];
        let names = kernels.iter().map(|k| trace.events[*k as usize].name);
        let telling = names.clone().find(|name| self.tells[*name as usize]).unwrap_or(NONE);
        let annotation = self.annotations.get(&place).copied().unwrap_or(NONE);
        let key = (event.name, event.arguments, telling, annotation);
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        let model = self.named_model(event.name).ok_or(Fail::NotImplemented)?;
        let text = |number: u32| trace.texts.get(number as usize).map(|text| unescaped(text));
        let mut given = Given::new(&unescaped(trace.name(place)), [0, 1, 2, 3].map(|i| trace.list(event, i)));
        given.kernels = text(telling).into_iter().collect();
        given.annotation = text(annotation);
        let found = (model.cost)(&given).map(Arc::new);
        self.known.insert(key, found.clone());
        found
    }

    /// Places below an event, by time.
    pub fn by_time(&self, mut kernels: Vec<u32>) -> Vec<u32> {
        let spans = &self.analysis.spans;
        kernels.sort_by(|x, y| order(&spans[*x as usize].start, &spans[*y as usize].start));
        kernels
    }

    /// Microseconds during which some of them ran.
    pub fn busy(&self, kernels: &[u32]) -> f64 {
        let spans = kernels.iter().map(|i| self.analysis.spans[*i as usize]).collect();
        length(&union(spans)).microseconds()
    }
}

/// Figures of one call, empty where there are none.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Metrics {
    pub gflops: f64,
    pub time: f64,
    pub tflops: f64,
    pub megabytes: f64,
    pub intensity: f64,
    pub terabytes: f64,
}

impl Metrics {
    pub fn of(work: &Work, time: f64) -> Metrics {
        let gflops = work.flops / 1e9;
        let some = |value: f64| if time > 0.0 { value } else { f64::NAN };
        let bytes = work.bytes.unwrap_or(f64::NAN);
        Metrics {
            gflops,
            time,
            tflops: some((gflops / 1e3) / (time / 1e6)),
            megabytes: bytes / (1024.0 * 1024.0),
            intensity: if bytes > 0.0 { gflops * 1e9 / bytes } else { f64::NAN },
            terabytes: some((bytes / 1e12) / (time / 1e6)),
        }
    }
}

/// The name of a kernel of cuBLASLt or Tensile, which hold the flags of the call.
fn tells_flags(name: &[u8]) -> bool {
    name.starts_with(b"nvjet") || memchr::memmem::find(name, b"_A").is_some() && crate::tracelens::is_tensile(name)
}

/// For vLLM's attention, the first annotation that encloses it.
fn annotations<T: Time>(analysis: &Analysis<'_, T>) -> Map<u32, u32> {
    let trace = analysis.trace;
    let wanted: Vec<bool> = trace.texts.iter().map(|t| t.starts_with(b"vllm::unified_attention_with_output")).collect();
    let mut found = Map::default();
    if !wanted.contains(&true) {
        return found;
    }
    let mut ranges: Vec<u32> =
        (0..trace.events.len() as u32).filter(|i| trace.events[*i as usize].category == Category::Annotation).collect();
    ranges.sort_by(|x, y| order(&analysis.spans[*x as usize].start, &analysis.spans[*y as usize].start));
    for (i, _) in trace.events.iter().enumerate().filter(|(_, e)| wanted[e.name as usize]) {
        let inner = analysis.spans[i];
        let around = ranges.iter().find(|r| {
            let outer = analysis.spans[**r as usize];
            outer.start <= inner.start && inner.end < outer.end
        });
        if let Some(around) = around {
            found.insert(i as u32, trace.events[*around as usize].name);
        }
    }
    found
}
