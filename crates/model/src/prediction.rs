//! A model that was read, and what it answers.

use crate::architecture::{Architecture, Patches};
use crate::config::Config;
use crate::declaration::{declaration, known_types};
use crate::error::ModelError;
use crate::expr::Value;
use crate::options::{CacheKind, Logits, Options, Phase};
use crate::predict::{attention_way, cache_bytes, predict};
use crate::presets::preset;
use crate::weights::parameters;
use gemwright_core::{DType, Source, Workload, nearest};
use serde_json::json;

/// A config read and understood.
pub struct Model {
    name: String,
    config: Config,
    is_preset: bool,
}

/// The calls of a model and what people ask next.
pub struct Prediction {
    /// The calls, with the parameters and the warnings.
    pub workload: Workload,
    /// Element type of weights and activations.
    pub dtype: DType,
    /// Bytes of all parameters.
    pub weight_bytes: u128,
    /// Bytes of keys and values at the end of the phase; `None` where none are kept.
    pub cache_bytes: Option<u128>,
    /// Tokens per sequence that pass through the model in the phase.
    pub tokens: u64,
    /// The phase that was taken.
    pub phase: Phase,
    /// One decode step at batch 1 and the bytes of keys and values it reads, for the question where
    /// decoding leaves the memory roof; an encoder has none.
    pub decode_step: Option<(Workload, u128)>,
}

impl Model {
    /// The text of a config.json; `name` is what the output calls the model.
    pub fn from_config(name: &str, file: &str, text: &str) -> Result<Model, ModelError> {
        Ok(Model { name: name.into(), config: Config::parse(file, text)?, is_preset: false })
    }

    /// A public model by name.
    pub fn from_preset(name: &str) -> Result<Model, ModelError> {
        let Some(found) = preset(name) else {
            let names: Vec<String> = crate::presets::presets().into_iter().map(|(name, _)| name).collect();
            let nearest = nearest(name, names.iter().map(String::as_str)).map(str::to_string);
            return Err(ModelError::UnknownPreset { name: name.into(), nearest });
        };
        let text = serde_json::Value::Object(found.config).to_string();
        let config = Config::parse(&format!("preset {name}"), &text)?;
        Ok(Model { name: name.into(), config, is_preset: true })
    }

    fn architecture(&self, layers: Option<i64>) -> Result<(Architecture, Vec<String>), ModelError> {
        let file = self.config.file.clone();
        let Some(found) = self.config.get("model_type") else { return Err(ModelError::NoType { file }) };
        let found = match found.as_str() {
            Some(text) => text.to_string(),
            None => return Err(self.config.error("model_type", format!("is {found}; it must be a text"))),
        };
        let Some(declared) = declaration(&found) else {
            let nearest = nearest(&found, known_types()).map(str::to_string);
            return Err(ModelError::UnknownType { file, found, nearest });
        };
        let (env, absent) = self.config.resolve(&declared)?;
        let arch = Architecture::new(&declared, &self.config, &env, layers)?;
        if parameters(&arch) > MOST_PARAMETERS {
            let why = "describes more than 2^60 parameters".into();
            return Err(ModelError::Json { file, why });
        }
        let taken = |name: &String| match env.get(name) {
            Some(Value::Int(x)) => format!("{name} = {x}"),
            Some(Value::Float(x)) => format!("{name} = {x}"),
            Some(Value::Bool(x)) => format!("{name} = {x}"),
            _ => format!("{name} = null"),
        };
        Ok((arch, absent.iter().map(taken).collect()))
    }

    fn dtype(&self, options: &Options) -> Result<DType, ModelError> {
        if let Some(dtype) = options.dtype {
            return Ok(dtype);
        }
        let field = if self.config.get("dtype").is_some_and(|x| !x.is_null()) { "dtype" } else { "torch_dtype" };
        match self.config.get(field) {
            None | Some(serde_json::Value::Null) => Ok(DType::Bf16),
            Some(json) => json.as_str().and_then(DType::parse).ok_or_else(|| {
                self.config.error(field, format!("is {json}; known are bfloat16, float16, float32 and float64"))
            }),
        }
    }

    fn warnings(&self, absent: &[String], arch: &Architecture, options: &Options) -> Vec<String> {
        let mut warnings = Vec::new();
        if !absent.is_empty() && !self.is_preset {
            let kind = &arch.model_type;
            warnings.push(format!("absent fields take transformers' defaults for {kind}: {}", absent.join(", ")));
        }
        if self.config.get("quantization_config").is_some_and(|x| !x.is_null()) {
            warnings.push("quantization_config is ignored: the products are those of unquantised weights".into());
        }
        let tokens = self.tokens(options) + if options.phase() == Phase::Decode { options.past } else { 0 };
        if let Some((at, rows)) = &arch.positions
            && tokens > *rows
        {
            warnings.push(format!("{tokens} positions are more than the {rows} that {at} holds: the real model fails"));
        }
        warnings
    }

    fn tokens(&self, options: &Options) -> i64 {
        match options.phase() {
            Phase::Decode => 1,
            Phase::Generate => options.seq() + options.steps,
            Phase::Prefill | Phase::Forward | Phase::Train => options.seq(),
        }
    }

    /// The calls the model runs in a phase.
    pub fn predict(&self, options: &Options) -> Result<Prediction, ModelError> {
        let (mut arch, absent) = self.architecture(options.layers)?;
        let options = &settled(options, &arch)?;
        check(options)?;
        set_load(&mut arch, options)?;
        let dtype = self.dtype(options)?;
        let mut workload = Workload::default();
        workload.source = self.source(options, &arch, dtype)?;
        workload.parameters = Some(parameters(&arch) as u64);
        workload.warnings = self.warnings(&absent, &arch, options);
        predict(&arch, options, dtype, &mut workload)?;

        let past = if options.phase() == Phase::Decode { options.past } else { options.seq() };
        let decode_step = if arch.encoder {
            None
        } else {
            let phase = Some(Phase::Decode);
            let step = Options { phase, batch: 1, past, cache: CacheKind::Dynamic, ..options.clone() };
            let mut workload = Workload::default();
            predict(&arch, &step, dtype, &mut workload)?;
            Some((workload, cache_bytes(&arch, 1, past + 1, CacheKind::Dynamic, dtype)))
        };
        let tokens = self.tokens(options);
        let seen = if options.phase() == Phase::Decode { options.past + 1 } else { tokens };
        let keeps = match options.phase() {
            Phase::Prefill => arch.prefill_caches,
            Phase::Decode | Phase::Generate => true,
            Phase::Forward | Phase::Train => false,
        };
        Ok(Prediction {
            dtype,
            weight_bytes: parameters(&arch) * u128::from(dtype.bytes()),
            cache_bytes: keeps.then(|| cache_bytes(&arch, options.batch, seen, options.cache, dtype)),
            tokens: tokens as u64,
            decode_step,
            phase: options.phase(),
            workload,
        })
    }

    fn source(&self, options: &Options, arch: &Architecture, dtype: DType) -> Result<Source, ModelError> {
        let phase = options.phase();
        let mut facts = vec![
            ("model", json!(self.name)),
            ("model_type", json!(arch.model_type)),
            ("phase", json!(phase.name())),
            ("batch", json!(options.batch)),
        ];
        match phase {
            Phase::Decode => facts.push(("past", json!(options.past))),
            _ if options.image.is_some() => facts.push(("image", json!(options.image))),
            _ => facts.push(("seq", json!(options.seq()))),
        }
        if phase == Phase::Generate {
            facts.push(("steps", json!(options.steps)));
        }
        facts.push(("attention", json!(attention_way(arch, options)?.name())));
        facts.push(("dtype", json!(dtype.name())));
        if let Some(layers) = options.layers {
            facts.push(("layers", json!(layers)));
        }
        if let Some(experts) = options.experts.filter(|_| arch.experts.is_some()) {
            facts.push(("experts", json!(experts.name())));
        }
        if let Some(load) = &options.expert_load {
            facts.push(("expert_load", json!(load)));
        }
        if let Some(logits) = options.logits {
            facts.push(("logits", json!(if logits == Logits::All { "all" } else { "last" })));
        }
        if let CacheKind::Static(places) = options.cache {
            facts.push(("cache", json!(format!("static:{places}"))));
        }
        if options.recompute {
            facts.push(("recompute", json!(true)));
        }
        let facts = facts.into_iter().map(|(name, value)| (name.to_string(), value)).collect();
        Ok(Source { kind: "model".into(), facts })
    }
}

/// The load of the experts, where it was given.
fn set_load(arch: &mut Architecture, options: &Options) -> Result<(), ModelError> {
    let Some(load) = &options.expert_load else { return Ok(()) };
    let set = match &mut arch.experts {
        Some(experts) => experts.set_load(load),
        None => Err(format!("is for models with experts; {} has none", arch.model_type)),
    };
    set.map_err(|why| ModelError::Option { option: "--expert-load", why })
}

/// What was not asked for, as the kind of model has it.
fn settled(options: &Options, arch: &Architecture) -> Result<Options, ModelError> {
    if options.image.is_some() && arch.patches.is_none() {
        let why = format!("is for vision models; {} reads text", arch.model_type);
        return Err(ModelError::Option { option: "--image", why });
    }
    if !arch.encoder {
        return Ok(Options { phase: Some(options.phase()), seq: Some(options.seq()), ..options.clone() });
    }
    let phase = options.phase.unwrap_or(Phase::Forward);
    if !matches!(phase, Phase::Forward | Phase::Train) {
        let why = format!("{}: {} is an encoder; it has forward and train", phase.name(), arch.model_type);
        return Err(ModelError::Option { option: "--phase", why });
    }
    if let Some(patches) = &arch.patches {
        return settled_image(options, patches, phase);
    }
    let own = arch.positions.as_ref().map_or(options.seq(), |(_, rows)| *rows);
    Ok(Options { phase: Some(phase), seq: Some(options.seq.unwrap_or(own)), ..options.clone() })
}

/// An image's tokens: its patches and one for the whole.
fn settled_image(options: &Options, patches: &Patches, phase: Phase) -> Result<Options, ModelError> {
    let image = options.image.unwrap_or(patches.image);
    let wrong = |why: String| Err(ModelError::Option { option: "--image", why });
    if !(patches.side..=1 << 14).contains(&image) {
        return wrong(format!("is {image}; it must be from {} (one patch) to {}", patches.side, 1 << 14));
    }
    if image != patches.image && !patches.any_image {
        return wrong(format!("is {image}; this model takes images of {} only", patches.image));
    }
    if options.seq.is_some() {
        return Err(ModelError::Option { option: "--seq", why: "is for texts; an image has --image".into() });
    }
    let along = image / patches.side;
    Ok(Options { phase: Some(phase), seq: Some(along * along + 1), image: Some(image), ..options.clone() })
}

/// The most of anything that can be asked for.
const MOST: i64 = 1 << 24;
const MOST_PARAMETERS: u128 = 1 << 60;
/// Every step has a call of its own in the list.
const MOST_STEPS: i64 = 1 << 17;

fn check(options: &Options) -> Result<(), ModelError> {
    let bounds = [("--batch", options.batch, 1), ("--seq", options.seq(), 1), ("--past", options.past, 0)];
    for (option, value, least) in bounds {
        if !(least..=MOST).contains(&value) {
            return Err(ModelError::Option { option, why: format!("is {value}; it must be from {least} to {MOST}") });
        }
    }
    if !(0..=MOST_STEPS).contains(&options.steps) {
        let why = format!("is {}; it must be from 0 to {MOST_STEPS}", options.steps);
        return Err(ModelError::Option { option: "--steps", why });
    }
    if options.phase() == Phase::Train && options.logits == Some(Logits::Last) {
        let why = "last: the loss of a training step is over all positions".into();
        return Err(ModelError::Option { option: "--logits", why });
    }
    if options.recompute && options.phase() != Phase::Train {
        let why = "repeats forward calls in the backward pass: it needs --phase train".into();
        return Err(ModelError::Option { option: "--recompute", why });
    }
    if let CacheKind::Static(places) = options.cache {
        let needed = match options.phase() {
            Phase::Prefill => options.seq(),
            Phase::Decode => options.past + 1,
            Phase::Generate => options.seq() + options.steps,
            Phase::Forward | Phase::Train => {
                let why = format!("static:{places}: --phase {} keeps no cache", options.phase().name());
                return Err(ModelError::Option { option: "--cache", why });
            }
        };
        if !(needed..=MOST).contains(&places) {
            let why = format!("static:{places} must have from {needed} (all tokens) to {MOST} places");
            return Err(ModelError::Option { option: "--cache", why });
        }
    }
    Ok(())
}
