//! A model that was read, and what it answers.

use crate::architecture::Architecture;
use crate::config::Config;
use crate::declaration::{declaration, known_types, type_of_class};
use crate::error::ModelError;
use crate::expr::Value;
use crate::options::{AttentionWay, CacheKind, Fuse, Logits, Options, Phase};
use crate::predict::{attention_way, predict};
use crate::presets::preset;
use crate::serve::{Serving, serve};
use crate::settle::{set_load, settle};
use crate::sizes::cached_numbers;
use crate::stored::{Gguf, Report, Stored, check, gguf_config, gguf_weights};
use crate::variants::apply;
use crate::weights::{self, Weight, parameters};
use gemwright_core::{DType, Source, Workload, nearest};
use serde_json::json;

/// A config read and understood.
pub struct Model {
    name: String,
    config: Config,
    is_preset: bool,
    stored: Option<Stored>,
}

/// The calls of a model and what people ask next.
pub struct Prediction {
    /// The calls, with the parameters and the warnings.
    pub workload: Workload,
    /// Element type of weights and activations.
    pub dtype: DType,
    /// Bytes of all parameters, factors of narrower ones included; of one GPU where layers are split.
    pub weight_bytes: u128,
    /// Parameters one GPU holds, where layers are split.
    pub parameters_per_gpu: Option<u64>,
    /// Bytes of keys and values at the end of the phase; `None` where none are kept.
    pub cache_bytes: Option<u128>,
    /// What is kept grows with the tokens: keys and values, not a state.
    pub cache_grows: bool,
    /// Tokens per sequence that pass through the model in the phase; `None` where it reads images.
    pub tokens: Option<u64>,
    /// What the model's files hold against what its config makes, and how many files there are.
    pub stored: Option<(Report, usize)>,
    /// The phase that was taken.
    pub phase: Phase,
    /// One decode step at batch 1 and the bytes of keys and values it reads, for the question where
    /// decoding leaves the memory roof; an encoder has none.
    pub decode_step: Option<(Workload, u128)>,
}

impl Model {
    /// The text of a config.json; `name` is what the output calls the model.
    pub fn from_config(name: &str, file: &str, text: &str) -> Result<Model, ModelError> {
        Ok(Model { name: name.into(), config: Config::parse(file, text)?, is_preset: false, stored: None })
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
        Ok(Model { name: name.into(), config, is_preset: true, stored: None })
    }

    /// A GGUF file: its pairs are the config, its tensors are held against it.
    pub fn from_gguf(name: &str, file: &str, gguf: Gguf) -> Result<Model, ModelError> {
        let config = gguf_config(&gguf).map_err(|why| ModelError::Json { file: file.into(), why })?;
        let model = Model::from_config(name, file, &serde_json::Value::Object(config).to_string())?;
        Ok(model.with_stored(Stored { tensors: gguf.tensors, files: 1, gguf: true }))
    }

    /// The same with the tensors that its files hold.
    pub fn with_stored(self, stored: Stored) -> Model {
        Model { stored: Some(stored), ..self }
    }

    /// What its files hold against what the config makes; nothing where there are none, or where
    /// their shapes are those of packed weights.
    fn check_stored(&self) -> Result<Option<Report>, ModelError> {
        let Some(stored) = &self.stored else { return Ok(None) };
        if self.is_quantised() {
            return Ok(None);
        }
        let (arch, _) = self.architecture(None)?;
        let wanted = match stored.gguf {
            true => gguf_weights(&arch),
            false => named(&weights::weights(&arch)),
        };
        Ok(Some(check(&wanted, &named(&weights::copies(&arch)), &stored.tensors)))
    }

    fn is_quantised(&self) -> bool {
        self.config.get("quantization_config").is_some_and(|x| !x.is_null())
    }

    fn architecture(&self, layers: Option<i64>) -> Result<(Architecture, Vec<String>), ModelError> {
        let file = self.config.file.clone();
        let text = |field: &str| match self.config.get(field) {
            None => Ok(None),
            Some(json) => match json.as_str() {
                Some(text) => Ok(Some(text)),
                None => Err(self.config.error(field, format!("is {json}; it must be a text"))),
            },
        };
        let class = text("_class_name")?.map(|class| type_of_class(class).unwrap_or(class));
        let Some(found) = text("model_type")?.or(class) else { return Err(ModelError::NoType { file }) };
        let found = found.to_string();
        let Some(declared) = declaration(&found) else {
            let nearest = nearest(&found, known_types()).map(str::to_string);
            return Err(ModelError::UnknownType { file, found, nearest });
        };
        let (env, absent) = self.config.resolve(&declared.facts)?;
        let arch = Architecture::new(&declared, &self.config, &env, layers)?;
        if parameters(&arch) > MOST_PARAMETERS {
            let why = "describes more than 2^60 parameters".into();
            return Err(ModelError::Json { file, why });
        }
        let taken = |name: &String| match env.get(name) {
            Some(Value::Int(x)) => format!("{name} = {x}"),
            Some(Value::Float(x)) => format!("{name} = {x}"),
            Some(Value::Bool(x)) => format!("{name} = {x}"),
            Some(Value::Text(x)) => format!("{name} = {x}"),
            Some(Value::List(x)) => format!("{name} = {x:?}"),
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
        if self.is_quantised() {
            warnings.push("quantization_config is ignored: the products are those of unquantised weights".into());
        }
        let past = if options.phase() == Phase::Decode { options.past } else { 0 };
        let encoded = arch.encoder.as_ref().zip(options.encoder_seq);
        let given = [Some((&arch.main, tokens(arch, options) + past)), encoded];
        for (stack, tokens) in given.into_iter().flatten() {
            if let Some((at, rows)) = &stack.positions
                && tokens > *rows
            {
                let why = format!("{tokens} positions are more than the {rows} that {at} holds: the real model fails");
                warnings.push(why);
            }
        }
        warnings
    }

    /// The calls the model runs in a phase.
    pub fn predict(&self, options: &Options) -> Result<Prediction, ModelError> {
        let (mut arch, absent) = self.architecture(options.layers)?;
        if let Some(serving) = &options.serving {
            return self.served(&arch, &absent, options, serving);
        }
        if arch.engines_only {
            let why = format!("is missing: {} is known as serving engines run it; give --engine vllm", arch.model_type);
            return Err(ModelError::Option { option: "--engine", why });
        }
        let options = &settle(options, &arch)?;
        set_load(&mut arch, options)?;
        let dtype = self.dtype(options)?;
        let whole = parameters(&arch);
        let notes = apply(&mut arch, options)?;
        let mut workload = if options.in_order { Workload::in_order() } else { Workload::default() };
        workload.source = self.source(options, &arch, dtype)?;
        workload.parameters = Some(whole as u64);
        workload.warnings = self.warnings(&absent, &arch, options);
        workload.warnings.extend(notes);
        let stored = self.check_stored()?;
        let mismatches = stored.iter().flat_map(|report| &report.mismatches);
        workload.warnings.extend(mismatches.map(|what| format!("weights: {what}")));
        predict(&arch, options, dtype, &mut workload)?;

        let queries = options.queries(arch.attends_encoder());
        let past = if options.phase() == Phase::Decode { options.past } else { queries };
        let kept = |batch: i64, tokens: i64, kind: CacheKind| {
            let encoded = options.encoder_seq.unwrap_or(0);
            cached_numbers(&arch, batch, encoded, tokens, kind) * u128::from(dtype.bytes())
        };
        let decode_step = if arch.main.encoder {
            None
        } else {
            let phase = Some(Phase::Decode);
            let step = Options { phase, batch: 1, past, cache: CacheKind::Dynamic, ..options.clone() };
            let mut workload = Workload::default();
            predict(&arch, &step, dtype, &mut workload)?;
            Some((workload, kept(1, past + 1, CacheKind::Dynamic)))
        };
        let tokens = tokens(&arch, options);
        let seen = if options.phase() == Phase::Decode { options.past + 1 } else { tokens };
        let keeps = match options.phase() {
            Phase::Prefill => arch.main.prefill_caches,
            Phase::Decode | Phase::Generate => true,
            Phase::Forward | Phase::Train => false,
        };
        Ok(Prediction {
            dtype,
            weight_bytes: weights::bytes(&arch, dtype),
            parameters_per_gpu: (options.tp > 1).then(|| parameters(&arch) as u64),
            cache_bytes: keeps.then(|| kept(options.batch, seen, options.cache)),
            cache_grows: arch.main.attention.is_some(),
            tokens: Some(tokens as u64).filter(|_| arch.eyes().is_none()),
            decode_step,
            stored: stored.zip(self.stored.as_ref()).map(|(report, stored)| (report, stored.files)),
            phase: options.phase(),
            workload,
        })
    }

    /// One step of a serving engine.
    fn served(
        &self,
        arch: &Architecture,
        absent: &[String],
        options: &Options,
        serving: &Serving,
    ) -> Result<Prediction, ModelError> {
        if options.fuse != Fuse::default() || options.weight_format.is_some() || options.attention.is_some() {
            let why =
                "goes without --fuse, --attention and --weight-dtype: what it fuses is its own, and of weights in \
                       fewer bits it pads sizes by kernels that are not known here"
                    .to_string();
            return Err(ModelError::Option { option: "--engine", why });
        }
        let dtype = self.dtype(options)?;
        let mut workload = if options.in_order { Workload::in_order() } else { Workload::default() };
        workload.parameters = Some(parameters(arch) as u64);
        workload.warnings = self.warnings(absent, arch, &Options { seq: Some(1), past: 0, ..options.clone() });
        let step = serve(arch, options, serving, dtype, &mut workload)?;
        let mut facts = vec![
            ("model", json!(self.name)),
            ("model_type", json!(arch.model_type)),
            ("engine", json!(serving.engine.name())),
            ("phase", json!(step.phase.name())),
            ("tokens", json!(step.tokens)),
            ("tp", json!(options.tp)),
            ("ep", json!(serving.ep)),
            ("rank", json!(serving.rank)),
            ("graph", json!(serving.graph)),
            ("dtype", json!(dtype.name())),
        ];
        facts.extend(serving.sampled.map(|sampled| ("sampled", json!(sampled))));
        facts.extend(options.layers.map(|layers| ("layers", json!(layers))));
        let facts = facts.into_iter().map(|(name, value)| (name.to_string(), value)).collect();
        workload.source = Source { kind: "model".into(), facts };
        Ok(Prediction {
            dtype,
            weight_bytes: step.weight_bytes,
            parameters_per_gpu: (options.tp > 1).then(|| (step.weight_bytes / u128::from(dtype.bytes())) as u64),
            cache_bytes: None,
            cache_grows: false,
            tokens: Some(step.tokens as u64),
            decode_step: None,
            stored: None,
            phase: step.phase,
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
        let text = arch.stacks().any(|stack| stack.tokens.is_some());
        let decoder = arch.attends_encoder();
        let shown = [
            ("past", (phase == Phase::Decode).then_some(options.past)),
            ("image", options.image),
            ("encoder_seq", options.encoder_seq.filter(|_| decoder)),
            ("decoder_seq", options.decoder_seq.filter(|_| decoder && phase != Phase::Decode)),
            ("seq", options.seq.filter(|_| text && !decoder && phase != Phase::Decode)),
        ];
        facts.extend(shown.into_iter().filter_map(|(name, n)| Some((name, json!(n?)))));
        if phase == Phase::Generate {
            facts.push(("steps", json!(options.steps)));
        }
        facts.push(("attention", json!(attention_way(arch, options)?.map_or("none", AttentionWay::name))));
        facts.push(("dtype", json!(dtype.name())));
        if let Some(layers) = options.layers {
            facts.push(("layers", json!(layers)));
        }
        if let Some(experts) = options.experts.filter(|_| arch.main.experts.is_some()) {
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
        let fused: Vec<&str> = [("qkv", options.fuse.qkv), ("gate_up", options.fuse.gate_up)]
            .into_iter()
            .filter_map(|(name, on)| on.then_some(name))
            .collect();
        if !fused.is_empty() {
            facts.push(("fuse", json!(fused)));
        }
        if options.tp > 1 {
            facts.push(("tp", json!(options.tp)));
        }
        if let Some(format) = options.weight_format {
            facts.push(("weight_dtype", json!(format.name())));
        }
        if options.recompute {
            facts.push(("recompute", json!(true)));
        }
        let facts = facts.into_iter().map(|(name, value)| (name.to_string(), value)).collect();
        Ok(Source { kind: "model".into(), facts })
    }
}

/// Every weight of every layer, with its shape.
fn named(weights: &[Weight]) -> Vec<(String, Vec<i64>)> {
    weights.iter().flat_map(|w| w.names().into_iter().map(|name| (name, w.shape.clone()))).collect()
}

/// Tokens of each sequence that pass through the stack that makes them.
fn tokens(arch: &Architecture, options: &Options) -> i64 {
    let queries = options.queries(arch.attends_encoder());
    match options.phase() {
        Phase::Decode => 1,
        Phase::Generate => queries + options.steps,
        Phase::Prefill | Phase::Forward | Phase::Train => queries,
    }
}

/// More parameters than a model can have.
const MOST_PARAMETERS: u128 = 1 << 60;
