//! What was asked for, made whole by the kind of model, and refused where it makes no sense.

use crate::architecture::{Architecture, Stack};
use crate::error::ModelError;
use crate::options::{CacheKind, Logits, Options, Phase};

/// The most of anything that can be asked for.
const MOST: i64 = 1 << 24;
/// Every step has a call of its own in the list.
const MOST_STEPS: i64 = 1 << 17;
/// Wider than any image a model reads.
const MOST_IMAGE: i64 = 1 << 14;

fn wrong<T>(option: &'static str, why: impl Into<String>) -> Result<T, ModelError> {
    Err(ModelError::Option { option, why: why.into() })
}

/// The load of the experts, where it was given.
pub fn set_load(arch: &mut Architecture, options: &Options) -> Result<(), ModelError> {
    let Some(load) = &options.expert_load else { return Ok(()) };
    let set = match &mut arch.main.experts {
        Some(experts) => experts.set_load(load),
        None => Err(format!("is for models with experts; {} has none", arch.model_type)),
    };
    set.map_err(|why| ModelError::Option { option: "--expert-load", why })
}

/// What was not asked for, as the kind of model has it: afterwards no length is left open.
pub fn settle(options: &Options, arch: &Architecture) -> Result<Options, ModelError> {
    let kind = &arch.model_type;
    let mut settled = options.clone();
    let default = if arch.main.encoder { Phase::Forward } else { Phase::Generate };
    let phase = options.phase.unwrap_or(default);
    if arch.main.encoder && !matches!(phase, Phase::Forward | Phase::Train) {
        return wrong("--phase", format!("{}: {kind} is an encoder; it has forward and train", phase.name()));
    }
    settled.phase = Some(phase);
    settled.image = match arch.eyes() {
        Some(stack) => Some(image(options.image, stack)?),
        None if options.image.is_some() => {
            return wrong("--image", format!("is for vision models; {kind} has no eyes"));
        }
        None => None,
    };
    if arch.attends_encoder() {
        encoder_decoder(arch, phase, &mut settled)?;
    } else {
        for (option, asked) in [("--encoder-seq", options.encoder_seq), ("--decoder-seq", options.decoder_seq)] {
            if asked.is_some() {
                return wrong(option, format!("is for encoder-decoders; {kind} is none: use --seq"));
            }
        }
        settled.seq = Some(seq(options, arch, settled.image)?);
    }
    check(&settled, arch.attends_encoder())?;
    Ok(settled)
}

/// Tokens of the stack that is not an image's, or of the image where there is no other.
fn seq(options: &Options, arch: &Architecture, image: Option<i64>) -> Result<i64, ModelError> {
    let stack = &arch.main;
    if stack.tokens.is_none() && options.seq.is_some() {
        return wrong("--seq", "is for texts; an image has --image");
    }
    if let (Some(patches), Some(image)) = (&stack.patches, image) {
        return Ok(patches.tokens(image));
    }
    let own = match &stack.positions {
        Some((_, rows)) if stack.encoder => *rows,
        _ => options.seq(),
    };
    Ok(options.seq.unwrap_or(own))
}

fn image(asked: Option<i64>, stack: &Stack) -> Result<i64, ModelError> {
    let image = |own: i64| asked.unwrap_or(own);
    if let Some(patches) = &stack.patches {
        let image = image(patches.image);
        if !(patches.side..=MOST_IMAGE).contains(&image) {
            let why = format!("is {image}; it must be from {} (one patch) to {MOST_IMAGE}", patches.side);
            return wrong("--image", why);
        }
        if image != patches.image && !patches.any_image {
            return wrong("--image", format!("is {image}; this model takes images of {} only", patches.image));
        }
        return Ok(image);
    }
    let Some(stages) = &stack.stages else { return Ok(image(1)) };
    let image = image(stages.image);
    if !(1..=MOST_IMAGE).contains(&image) {
        return wrong("--image", format!("is {image}; it must be from 1 to {MOST_IMAGE}"));
    }
    if !stages.fit(image) {
        return wrong("--image", format!("is {image}: nothing is left of it before the last stage"));
    }
    Ok(image)
}

/// `--seq` and `--encoder-seq` are the same here; a spectrogram has one length only.
fn encoder_decoder(arch: &Architecture, phase: Phase, options: &mut Options) -> Result<(), ModelError> {
    let asked = options.encoder_seq.or(options.seq);
    let features = arch.encoder.as_ref().and_then(|stack| stack.features.as_ref());
    let encoded = match features.map(|f| f.tokens()) {
        Some(own) if asked.is_some_and(|n| n != own) => {
            let option = if options.encoder_seq.is_some() { "--encoder-seq" } else { "--seq" };
            return wrong(
                option,
                format!("is {}; the encoder of {} gives {own} tokens", asked.unwrap_or(0), arch.model_type),
            );
        }
        Some(own) => own,
        None => asked.unwrap_or(512),
    };
    let whole = match &arch.main.positions {
        Some((_, rows)) => encoded.min(*rows),
        None => encoded,
    };
    let given = if matches!(phase, Phase::Forward | Phase::Train) { whole } else { 1 };
    options.seq = Some(encoded);
    options.encoder_seq = Some(encoded);
    options.decoder_seq = Some(options.decoder_seq.unwrap_or(given));
    Ok(())
}

fn check(options: &Options, attends_encoder: bool) -> Result<(), ModelError> {
    let bounds = [
        ("--batch", options.batch, 1),
        ("--seq", options.seq(), 1),
        ("--encoder-seq", options.encoder_seq.unwrap_or(1), 1),
        ("--decoder-seq", options.decoder_seq.unwrap_or(1), 1),
        ("--past", options.past, 0),
    ];
    for (option, value, least) in bounds {
        if !(least..=MOST).contains(&value) {
            return wrong(option, format!("is {value}; it must be from {least} to {MOST}"));
        }
    }
    if !(0..=MOST_STEPS).contains(&options.steps) {
        return wrong("--steps", format!("is {}; it must be from 0 to {MOST_STEPS}", options.steps));
    }
    if options.phase() == Phase::Train && options.logits == Some(Logits::Last) {
        return wrong("--logits", "last: the loss of a training step is over all positions");
    }
    if options.recompute && options.phase() != Phase::Train {
        return wrong("--recompute", "repeats forward calls in the backward pass: it needs --phase train");
    }
    if let CacheKind::Static(places) = options.cache {
        let queries = options.queries(attends_encoder);
        let needed = match options.phase() {
            Phase::Prefill => queries,
            Phase::Decode => options.past + 1,
            Phase::Generate => queries + options.steps,
            Phase::Forward | Phase::Train => {
                let why = format!("static:{places}: --phase {} keeps no cache", options.phase().name());
                return wrong("--cache", why);
            }
        };
        if !(needed..=MOST).contains(&places) {
            return wrong("--cache", format!("static:{places} must have from {needed} (all tokens) to {MOST} places"));
        }
    }
    Ok(())
}
