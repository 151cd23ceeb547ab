//! What an architecture's file may say: names, extents, fusions and layout facts, nothing to compute
//! but extents. The files are under `arch/`, one a type; ARCHITECTURE.md shows how to add one.

mod attention;
mod condition;
mod feed;
mod field;
mod image;
mod linear;
mod model;
mod state_space;

pub use attention::*;
pub use condition::*;
pub use feed::*;
pub use field::*;
pub use image::*;
pub use linear::*;
pub use model::*;
pub use state_space::*;

use serde::Deserialize;
use std::collections::BTreeMap;

/// The files, by the type they declare.
const FILES: &[(&str, &str)] = &[
    // Kept sorted; a new architecture is its file and this line.
    ("bart", include_str!("../../arch/bart.toml")),
    ("bert", include_str!("../../arch/bert.toml")),
    ("bloom", include_str!("../../arch/bloom.toml")),
    ("clip", include_str!("../../arch/clip.toml")),
    ("cohere", include_str!("../../arch/cohere.toml")),
    ("convnext", include_str!("../../arch/convnext.toml")),
    ("deepseek_v2", include_str!("../../arch/deepseek_v2.toml")),
    ("deepseek_v3", include_str!("../../arch/deepseek_v3.toml")),
    ("deepseek_v32", include_str!("../../arch/deepseek_v32.toml")),
    ("dinov2", include_str!("../../arch/dinov2.toml")),
    ("distilbert", include_str!("../../arch/distilbert.toml")),
    ("dit", include_str!("../../arch/dit.toml")),
    ("falcon", include_str!("../../arch/falcon.toml")),
    ("gemma", include_str!("../../arch/gemma.toml")),
    ("gemma2", include_str!("../../arch/gemma2.toml")),
    ("gemma3_text", include_str!("../../arch/gemma3_text.toml")),
    ("glm4", include_str!("../../arch/glm4.toml")),
    ("glm_moe_dsa", include_str!("../../arch/glm_moe_dsa.toml")),
    ("gpt2", include_str!("../../arch/gpt2.toml")),
    ("gpt_bigcode", include_str!("../../arch/gpt_bigcode.toml")),
    ("gpt_neox", include_str!("../../arch/gpt_neox.toml")),
    ("gpt_oss", include_str!("../../arch/gpt_oss.toml")),
    ("gptj", include_str!("../../arch/gptj.toml")),
    ("granite", include_str!("../../arch/granite.toml")),
    ("llama", include_str!("../../arch/llama.toml")),
    ("mamba", include_str!("../../arch/mamba.toml")),
    ("mamba2", include_str!("../../arch/mamba2.toml")),
    ("mistral", include_str!("../../arch/mistral.toml")),
    ("mixtral", include_str!("../../arch/mixtral.toml")),
    ("olmo2", include_str!("../../arch/olmo2.toml")),
    ("olmoe", include_str!("../../arch/olmoe.toml")),
    ("opt", include_str!("../../arch/opt.toml")),
    ("phi", include_str!("../../arch/phi.toml")),
    ("phi3", include_str!("../../arch/phi3.toml")),
    ("plain_gpt3", include_str!("../../arch/plain_gpt3.toml")),
    ("qwen2", include_str!("../../arch/qwen2.toml")),
    ("qwen2_moe", include_str!("../../arch/qwen2_moe.toml")),
    ("qwen3", include_str!("../../arch/qwen3.toml")),
    ("qwen3_moe", include_str!("../../arch/qwen3_moe.toml")),
    ("resnet", include_str!("../../arch/resnet.toml")),
    ("roberta", include_str!("../../arch/roberta.toml")),
    ("smollm3", include_str!("../../arch/smollm3.toml")),
    ("stablelm", include_str!("../../arch/stablelm.toml")),
    ("starcoder2", include_str!("../../arch/starcoder2.toml")),
    ("t5", include_str!("../../arch/t5.toml")),
    ("vit", include_str!("../../arch/vit.toml")),
    ("whisper", include_str!("../../arch/whisper.toml")),
];

/// The types that can be predicted.
pub fn known_types() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(name, _)| *name)
}

/// The type whose models are of a class, where their config.json names that instead.
pub fn type_of_class(class: &str) -> Option<&'static str> {
    // Reading one file is enough: the others do not have the word.
    let candidates = FILES.iter().filter(|(_, text)| text.contains(class)).map(|(name, _)| *name);
    candidates.into_iter().find(|name| declaration(name).is_some_and(|d| d.facts.class.as_deref() == Some(class)))
}

/// The declaration of a type, with what it takes over from another.
///
/// # Panics
/// Never on input: a test reads every file.
pub fn declaration(model_type: &str) -> Option<Declaration> {
    let mut whole = inherited(model_type)?;
    let encoder = take_table(&mut whole, "encoder");
    let (facts, stack): (toml::Table, toml::Table) =
        whole.into_iter().partition(|(key, _)| Facts::KEYS.contains(&key.as_str()));
    let encoder = encoder.map(|own| {
        let mut base = stack.clone();
        overlay(&mut base, own);
        base
    });
    let read = |mut table: toml::Table| -> Stack {
        if let (Some(own), Some(toml::Value::Table(attention))) =
            (take_table(&mut table, "cross"), table.get("attention"))
        {
            let mut base = attention.clone();
            overlay(&mut base, own);
            table.insert("cross".into(), base.into());
        }
        read_as(table, model_type)
    };
    Some(Declaration { facts: read_as(facts, model_type), encoder: encoder.map(read), stack: read(stack) })
}

fn read_as<T: serde::de::DeserializeOwned>(table: toml::Table, model_type: &str) -> T {
    table.try_into().unwrap_or_else(|e| panic!("arch/{model_type}.toml: {e}"))
}

fn take_table(from: &mut toml::Table, key: &str) -> Option<toml::Table> {
    match from.remove(key) {
        Some(toml::Value::Table(table)) => Some(table),
        _ => None,
    }
}

fn inherited(model_type: &str) -> Option<toml::Table> {
    let (_, text) = FILES.iter().find(|(name, _)| *name == model_type)?;
    let mut own: toml::Table = toml::from_str(text).unwrap_or_else(|e| panic!("arch/{model_type}.toml: {e}"));
    let Some(toml::Value::String(parent)) = own.remove("like") else { return Some(own) };
    let mut base = inherited(&parent)?;
    // A class default is nobody's but the class's own.
    base.remove("config");
    overlay(&mut base, own);
    Some(base)
}

/// Puts `own` over `base`, table by table; the word "none" takes a key away.
fn overlay(base: &mut toml::Table, own: toml::Table) {
    for (key, value) in own {
        match (base.get_mut(&key), value) {
            (Some(toml::Value::Table(below)), toml::Value::Table(above)) => overlay(below, above),
            (_, toml::Value::String(word)) if word == "none" => {
                base.remove(&key);
            }
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
}

/// One file of `arch/`.
#[derive(Debug)]
pub struct Declaration {
    pub facts: Facts,
    /// The stack that runs first, where there are two: its output is attended by the other, or
    /// multiplied with the other's. Written as what differs from the other stack.
    pub encoder: Option<Stack>,
    pub stack: Stack,
}

/// What the config holds, and what is said of the model as a whole.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Facts {
    /// The `model_type` of config.json.
    pub model_type: String,
    /// The `_class_name` of config.json, where a library writes that.
    pub class: Option<String>,
    /// The fields read from config.json, each with what transformers takes when it is absent.
    pub config: BTreeMap<String, Field>,
    /// Further spellings of a field in published files.
    #[serde(default)]
    pub aliases: BTreeMap<String, String>,
    /// What must hold, with the reason why it must.
    #[serde(default)]
    pub require: Vec<Requirement>,
    /// Both stacks end in a row a sample, and the model multiplies all with all. The name is that
    /// of the factor of the result.
    pub pair: Option<String>,
    /// Only serving engines run it so: transformers' own way is not declared.
    #[serde(default)]
    pub engines_only: bool,
}

impl Facts {
    const KEYS: [&str; 7] = ["model_type", "class", "config", "aliases", "require", "pair", "engines_only"];
}

/// Layers, and what stands around them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stack {
    pub model: Model,
    pub layers: Option<Layers>,
    #[serde(default)]
    pub block: Block,
    /// What steers every layer from outside.
    pub condition: Option<Condition>,
    pub attention: Option<Attention>,
    /// Attention over the encoder's output, written as what differs from the other attention.
    pub cross: Option<Attention>,
    /// A state that runs over the tokens, in place of attention.
    pub state_space: Option<StateSpace>,
    pub mlp: Option<Mlp>,
    /// Experts in place of the MLP, in the layers that have them.
    pub experts: Option<Experts>,
    /// Convolutions in place of layers.
    pub stages: Option<Stages>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_a_declaration_of_its_own_name() {
        for name in known_types() {
            assert_eq!(declaration(name).unwrap().facts.model_type, name);
        }
        assert!(declaration("nonesuch").is_none());
        assert!(known_types().is_sorted());
    }

    #[test]
    fn a_like_declaration_keeps_what_it_does_not_say_but_no_default() {
        let qwen3 = declaration("qwen3").unwrap();
        assert_eq!(qwen3.stack.attention.unwrap().q.unwrap().at, "q_proj");
        assert!(!qwen3.facts.config.contains_key("mlp_bias"));
        let phi3 = declaration("phi3").unwrap().stack.attention.unwrap();
        assert!(phi3.q.is_none() && phi3.qkv.is_some());
    }

    #[test]
    fn the_record_of_the_architectures_is_true() {
        let record = include_str!("../../../../docs/architectures.md");
        for (name, text) in FILES {
            let row = format!("| {name} | {} |", text.lines().count());
            assert!(record.contains(&row), "docs/architectures.md: {row}");
        }
        let lines: usize = FILES.iter().map(|(_, text)| text.lines().count()).sum();
        assert!(record.contains(&format!("{} types, {lines} lines", FILES.len())), "{lines} lines");
    }

    #[test]
    fn an_encoder_is_written_as_what_differs() {
        let bart = declaration("bart").unwrap();
        let (encoder, decoder) = (bart.encoder.unwrap(), bart.stack);
        assert!(encoder.model.encoder && !decoder.model.encoder);
        assert!(encoder.cross.is_none());
        assert_eq!(decoder.cross.unwrap().at, "encoder_attn");
        assert_eq!(encoder.attention.unwrap().at, decoder.attention.unwrap().at);
    }
}
