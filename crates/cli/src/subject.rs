//! What a command is about: a preset, a config.json, or a folder that holds one; and the options of `model`.

use crate::error::Error;
use crate::folder;
use clap::{Args, ValueEnum};
use gemwright_core::DType;
use gemwright_core::blas::{Settings, Stack};
use gemwright_model::{
    AttentionWay, CacheKind, Engine, ExpertsWay, Fuse, Logits, Model, Options, Phase, Serving, Tokens, WeightFormat,
};
use std::path::Path;

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum PhaseArg {
    Prefill,
    Decode,
    Generate,
    Forward,
    Train,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum AttentionArg {
    Sdpa,
    Eager,
    /// Latent attention as serving engines decode it; prompts as sdpa
    MlaAbsorbed,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum LogitsArg {
    All,
    Last,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum ExpertsArg {
    GroupedMm,
    BatchedMm,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum LibraryArg {
    Cuda,
    Rocm,
}

impl LibraryArg {
    /// The rules of that stack, with PyTorch's default settings.
    pub fn settings(self) -> Settings {
        let stack = match self {
            LibraryArg::Cuda => Stack::Cuda,
            LibraryArg::Rocm => Stack::Rocm,
        };
        Settings { stack, prefer_lt: false }
    }
}

#[derive(Debug, Args)]
#[command(next_help_heading = "What the model does")]
pub struct ModelOptions {
    /// What is listed: a prompt, one decode step, a generation, a forward pass without a cache, a training step
    /// [default: generate; forward for an encoder]
    #[arg(long, value_enum)]
    pub phase: Option<PhaseArg>,
    /// Sequences at a time
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub batch: i64,
    /// Tokens of each sequence (not in decode) [default: 512; all positions of an encoder]
    #[arg(long, value_name = "N")]
    pub seq: Option<i64>,
    /// Tokens the encoder reads, or has read in decode (encoder-decoders) [default: 512; audio: the model's own]
    #[arg(long, value_name = "N")]
    pub encoder_seq: Option<i64>,
    /// Tokens given to the decoder (encoder-decoders) [default: 1; forward and train: as many as the encoder's]
    #[arg(long, value_name = "N")]
    pub decoder_seq: Option<i64>,
    /// Side of the image (vision models) [default: the model's own]
    #[arg(long, value_name = "N")]
    pub image: Option<i64>,
    /// Tokens already in the cache (decode)
    #[arg(long, default_value_t = 512, value_name = "N")]
    pub past: i64,
    /// Decode steps after the prompt (generate)
    #[arg(long, default_value_t = 128, value_name = "N")]
    pub steps: i64,
    /// How attention is computed [default: sdpa where transformers has it]
    #[arg(long, value_enum)]
    pub attention: Option<AttentionArg>,
    /// Positions that get logits [default: last in generate, else all]
    #[arg(long, value_enum)]
    pub logits: Option<LogitsArg>,
    /// How experts run [default: grouped_mm; batched_mm in generate's decode steps]
    #[arg(long, value_enum)]
    pub experts: Option<ExpertsArg>,
    /// How many tokens each expert gets: uniform, or a file with a JSON list of one number per expert, in any unit
    #[arg(long, default_value = "uniform", value_parser = parse_load, value_name = "uniform|FILE")]
    pub expert_load: ExpertLoad,
    /// How keys and values are kept: dynamic, or static:N for N places from the start
    #[arg(long, default_value = "dynamic", value_parser = parse_cache, value_name = "KIND")]
    pub cache: CacheKind,
    /// Element type: bf16, f16, f32, f64 [default: the config's own, bf16 for presets]
    #[arg(long, value_parser = parse_dtype, value_name = "TYPE")]
    pub dtype: Option<DType>,
    /// Put projections of one input together: qkv, gate_up
    #[arg(long, value_enum, value_delimiter = ',', value_name = "WHAT,...")]
    pub fuse: Vec<FuseArg>,
    /// Split every layer over N GPUs; what is listed is one GPU's part
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub tp: i64,
    /// As a serving engine calls it: one step on one GPU, after what the engine puts together, splits and pads
    #[arg(long, value_enum, default_value = "transformers")]
    pub engine: EngineArg,
    /// With --engine: ranks that share out the experts
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub ep: i64,
    /// With --engine: tokens of the step, all sequences together, or ladder for those a tuner wants
    /// [default: --batch in decode, --batch times --seq in prefill]
    #[arg(long, value_parser = parse_tokens, value_name = "M|ladder")]
    pub tokens: Option<Tokens>,
    /// With --engine: rows that get logits [default: the tokens in decode, 1 in prefill]
    #[arg(long, value_name = "N")]
    pub sampled: Option<i64>,
    /// With --engine: pad the step to the sizes graphs are captured for
    #[arg(long)]
    pub graph: bool,
    /// With --engine: which GPU (biases of summed rows are the first one's)
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub rank: i64,
    /// How weights inside the layers are stored, widened as they are multiplied: fp8, int8 (a factor for each output),
    /// int4 (one for each 128 inputs; int4:64 for each 64)
    #[arg(long, value_parser = parse_weight_format, value_name = "TYPE")]
    pub weight_dtype: Option<WeightFormat>,
    /// Only the first N layers
    #[arg(long, value_name = "N")]
    pub layers: Option<i64>,
    /// Whose libraries PyTorch was built for (rocm: from its source, not verified)
    #[arg(long, value_enum, default_value = "cuda")]
    pub library: LibraryArg,
    /// Forward calls of each layer again in the backward pass (gradient checkpointing)
    #[arg(long)]
    pub recompute: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum EngineArg {
    Transformers,
    Vllm,
    Sglang,
}

fn parse_tokens(text: &str) -> Result<Tokens, String> {
    match text {
        "ladder" => Ok(Tokens::Ladder),
        number => number.parse().map(Tokens::Count).map_err(|_| "known are a number and ladder".into()),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum FuseArg {
    /// Query, key and value in one product
    Qkv,
    /// Gate and up in one product
    GateUp,
}

fn parse_weight_format(text: &str) -> Result<WeightFormat, String> {
    match (text, text.strip_prefix("int4:").map(str::parse)) {
        ("fp8", _) => Ok(WeightFormat::Fp8),
        ("int8", _) => Ok(WeightFormat::Int8),
        ("int4", _) => Ok(WeightFormat::Int4 { group: 128 }),
        (_, Some(Ok(group))) if group >= 1 => Ok(WeightFormat::Int4 { group }),
        _ => Err("known are fp8, int8, int4 and int4:GROUP".into()),
    }
}

/// Of a share such as 95% or 0.95.
pub fn parse_share(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').map_or(text.parse::<f64>(), |percent| percent.parse().map(|x: f64| x / 100.0));
    number.ok().filter(|x| *x > 0.0 && *x <= 1.0).ok_or_else(|| "write it as 95% or 0.95".into())
}

pub fn parse_dtype(text: &str) -> Result<DType, String> {
    DType::parse(text).ok_or_else(|| format!("known are {}", DType::FLOATS.map(DType::name).join(", ")))
}

/// The load of each expert; `None`: all alike.
#[derive(Debug, Clone)]
pub struct ExpertLoad(Option<Vec<f64>>);

fn parse_load(text: &str) -> Result<ExpertLoad, String> {
    if text == "uniform" {
        return Ok(ExpertLoad(None));
    }
    let read = small_text(Path::new(text)).map_err(|e| e.to_string())?;
    let load = serde_json::from_str(&read).map_err(|e| format!("{e}; it must be a list like [310, 12, 97]"))?;
    Ok(ExpertLoad(Some(load)))
}

fn parse_cache(text: &str) -> Result<CacheKind, String> {
    match text.strip_prefix("static:").map(str::parse) {
        Some(Ok(places)) => Ok(CacheKind::Static(places)),
        None if text == "dynamic" => Ok(CacheKind::Dynamic),
        _ => Err("known are dynamic and static:N".into()),
    }
}

impl ModelOptions {
    fn serving(&self) -> Option<Serving> {
        let engine = match self.engine {
            EngineArg::Transformers => return None,
            EngineArg::Vllm => Engine::Vllm,
            EngineArg::Sglang => Engine::Sglang,
        };
        let (tokens, sampled) = (self.tokens, self.sampled);
        Some(Serving { engine, tokens, sampled, ep: self.ep, rank: self.rank, graph: self.graph })
    }

    /// As the model crate takes them.
    pub fn options(&self) -> Options {
        Options {
            phase: self.phase.map(|phase| match phase {
                PhaseArg::Prefill => Phase::Prefill,
                PhaseArg::Decode => Phase::Decode,
                PhaseArg::Generate => Phase::Generate,
                PhaseArg::Forward => Phase::Forward,
                PhaseArg::Train => Phase::Train,
            }),
            batch: self.batch,
            seq: self.seq,
            encoder_seq: self.encoder_seq,
            decoder_seq: self.decoder_seq,
            image: self.image,
            past: self.past,
            steps: self.steps,
            attention: self.attention.map(|a| match a {
                AttentionArg::Sdpa => AttentionWay::Sdpa,
                AttentionArg::Eager => AttentionWay::Eager,
                AttentionArg::MlaAbsorbed => AttentionWay::MlaAbsorbed,
            }),
            logits: self.logits.map(|l| match l {
                LogitsArg::All => Logits::All,
                LogitsArg::Last => Logits::Last,
            }),
            experts: self.experts.map(|e| match e {
                ExpertsArg::GroupedMm => ExpertsWay::Grouped,
                ExpertsArg::BatchedMm => ExpertsWay::Batched,
            }),
            expert_load: self.expert_load.0.clone(),
            cache: self.cache,
            dtype: self.dtype,
            layers: self.layers,
            recompute: self.recompute,
            fuse: Fuse { qkv: self.fuse.contains(&FuseArg::Qkv), gate_up: self.fuse.contains(&FuseArg::GateUp) },
            tp: self.tp,
            serving: self.serving(),
            weight_format: self.weight_dtype,
            stack: self.library.settings().stack,
            in_order: false,
        }
    }
}

/// What is read here is small; a larger file is something else.
const LARGEST: u64 = 16 << 20;

pub fn small_text(file: &Path) -> Result<String, Error> {
    let wrong = |why: String| Error::File { path: file.display().to_string(), why };
    if std::fs::metadata(file).map_err(|e| wrong(e.to_string()))?.len() > LARGEST {
        return Err(wrong("larger than 16 MB: hardly the file that was meant".into()));
    }
    let bytes = std::fs::read(file).map_err(|e| wrong(e.to_string()))?;
    String::from_utf8(bytes).map_err(|e| wrong(format!("not UTF-8: {}", e.utf8_error())))
}

/// The model that `subject` names: a file, a folder, else a preset. A folder's weights are held
/// against its config.
pub fn model(subject: &str) -> Result<Model, Error> {
    let path = Path::new(subject);
    if !path.exists() {
        let looks_like_a_path =
            subject.contains(['/', '\\']) || [".json", ".gguf"].iter().any(|end| subject.ends_with(end));
        if looks_like_a_path {
            return Err(Error::File { path: subject.into(), why: "no such file or folder".into() });
        }
        return Ok(Model::from_preset(subject)?);
    }
    if path.extension().is_some_and(|end| end == "gguf") {
        return Ok(Model::from_gguf(subject, subject, folder::gguf(path)?)?);
    }
    let file = if path.is_dir() { path.join("config.json") } else { path.to_path_buf() };
    let text = small_text(&file)?;
    let model = Model::from_config(subject, &file.display().to_string(), &text)?;
    match path.is_dir() {
        true => Ok(match folder::tensors(path)? {
            Some(stored) => model.with_stored(stored),
            None => model,
        }),
        false => Ok(model),
    }
}
