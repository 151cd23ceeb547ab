//! What is asked of a model.

use crate::serve::Serving;
use gemwright_core::blas::Stack;
use gemwright_core::{DType, View};

/// Which part of a model's life is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// A forward pass over a prompt with an empty cache.
    Prefill,
    /// One new token per sequence against a cache.
    Decode,
    /// What `model.generate()` runs: a prefill, then decode steps.
    Generate,
    /// A forward pass without a cache.
    Forward,
    /// A forward and a backward pass.
    Train,
}

impl Phase {
    /// The name used on the command line and in the output.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Prefill => "prefill",
            Phase::Decode => "decode",
            Phase::Generate => "generate",
            Phase::Forward => "forward",
            Phase::Train => "train",
        }
    }
}

/// How attention is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttentionWay {
    /// `torch.nn.functional.scaled_dot_product_attention`.
    Sdpa,
    /// Two batched products with a softmax between them.
    Eager,
    /// As serving engines decode latent attention: queries are taken into the latent. All else as `Sdpa`.
    MlaAbsorbed,
}

impl AttentionWay {
    /// The name used on the command line and in the output.
    pub fn name(self) -> &'static str {
        match self {
            AttentionWay::Sdpa => "sdpa",
            AttentionWay::Eager => "eager",
            AttentionWay::MlaAbsorbed => "mla-absorbed",
        }
    }
}

/// How transformers runs experts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpertsWay {
    /// One grouped product over rows sorted by expert.
    Grouped,
    /// Weights gathered per token and expert, one batched product.
    Batched,
}

impl ExpertsWay {
    /// The name used on the command line and in the output.
    pub fn name(self) -> &'static str {
        match self {
            ExpertsWay::Grouped => "grouped_mm",
            ExpertsWay::Batched => "batched_mm",
        }
    }
}

/// Which positions get logits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Logits {
    All,
    Last,
}

/// How the keys and values of the past are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheKind {
    /// Grows with the sequence.
    Dynamic,
    /// So many places from the start.
    Static(i64),
}

/// How the weights of linear layers are stored, where that is not the model's own type. They are
/// widened on the way to the multiplier, so the type that is multiplied stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeightFormat {
    /// e4m3, an f32 factor for each output.
    Fp8,
    /// A factor of the model's type for each output.
    Int8,
    /// A factor of the model's type for each output and each so many inputs.
    Int4 {
        /// Inputs that share a factor.
        group: i64,
    },
}

impl WeightFormat {
    /// The stored element type.
    pub fn dtype(self) -> DType {
        match self {
            WeightFormat::Fp8 => DType::F8E4m3,
            WeightFormat::Int8 => DType::I8,
            WeightFormat::Int4 { .. } => DType::I4,
        }
    }

    /// The name used on the command line and in the output.
    pub fn name(self) -> String {
        match self {
            WeightFormat::Fp8 => "fp8".into(),
            WeightFormat::Int8 => "int8".into(),
            WeightFormat::Int4 { group: 128 } => "int4".into(),
            WeightFormat::Int4 { group } => format!("int4:{group}"),
        }
    }

    /// The factors of a weight of `shape`, whose last two extents are outputs and inputs.
    pub fn scales(self, shape: &[i64], dtype: DType) -> View {
        let last = shape.len() - 1;
        let (per_row, dtype) = match self {
            WeightFormat::Fp8 => (1, DType::F32),
            WeightFormat::Int8 => (1, dtype),
            WeightFormat::Int4 { group } => ((shape[last] + group - 1) / group, dtype),
        };
        View::contiguous(&[&shape[..last], &[per_row]].concat(), dtype)
    }
}

/// What is put together into one wider product.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fuse {
    /// The projections of query, key and value.
    pub qkv: bool,
    /// The gate and up projections.
    pub gate_up: bool,
}

/// Everything that can be asked beside the model itself; an absent value has the phase's default.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct Options {
    /// Generate, or forward for an encoder.
    pub phase: Option<Phase>,
    pub batch: i64,
    /// 512, or all of an encoder's positions; of an encoder-decoder, the encoder's tokens.
    pub seq: Option<i64>,
    /// Tokens the encoder of an encoder-decoder reads or has read.
    pub encoder_seq: Option<i64>,
    /// Tokens its decoder is given: 1, or as many as the encoder's in a pass without a cache.
    pub decoder_seq: Option<i64>,
    /// Side of a square image; a vision model's own size where it is not given.
    pub image: Option<i64>,
    pub past: i64,
    pub steps: i64,
    pub attention: Option<AttentionWay>,
    pub logits: Option<Logits>,
    /// In a generation decode steps gather, everything else groups.
    pub experts: Option<ExpertsWay>,
    /// Tokens of each expert, in any unit; all alike where it is not given.
    pub expert_load: Option<Vec<f64>>,
    pub cache: CacheKind,
    pub dtype: Option<DType>,
    pub layers: Option<i64>,
    pub recompute: bool,
    pub fuse: Fuse,
    /// GPUs each layer is split over.
    pub tp: i64,
    /// As a serving engine calls it, in place of transformers.
    pub serving: Option<Serving>,
    pub weight_format: Option<WeightFormat>,
    /// Whose libraries run it; decides which kernel attention has.
    pub stack: Stack,
    /// Keep the order of single calls, which costs time and memory: [`Workload::order`].
    ///
    /// [`Workload::order`]: gemwright_core::Workload::order
    pub in_order: bool,
}

impl Options {
    /// The phase that was asked for, or a decoder's default.
    pub fn phase(&self) -> Phase {
        self.phase.unwrap_or(Phase::Generate)
    }

    /// The length that was asked for, or a decoder's default.
    pub fn seq(&self) -> i64 {
        self.seq.unwrap_or(512)
    }

    /// Tokens given to the stack that makes them.
    pub fn queries(&self, attends_encoder: bool) -> i64 {
        if attends_encoder { self.decoder_seq.unwrap_or(1) } else { self.seq() }
    }
}

impl Options {
    /// The same asked of the model as it is: nothing fused, split or stored otherwise.
    pub fn plain(&self) -> Options {
        Options { fuse: Fuse::default(), tp: 1, weight_format: None, ..self.clone() }
    }

    /// Something is fused, split or stored otherwise.
    pub fn is_variant(&self) -> bool {
        self.fuse != Fuse::default() || self.tp > 1 || self.weight_format.is_some()
    }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            phase: None,
            batch: 1,
            seq: None,
            encoder_seq: None,
            decoder_seq: None,
            image: None,
            past: 512,
            steps: 128,
            attention: None,
            logits: None,
            experts: None,
            expert_load: None,
            cache: CacheKind::Dynamic,
            dtype: None,
            layers: None,
            recompute: false,
            fuse: Fuse::default(),
            tp: 1,
            serving: None,
            weight_format: None,
            stack: Stack::Cuda,
            in_order: false,
        }
    }
}
