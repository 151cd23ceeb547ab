//! GGUF's names for a config's fields and for a model's weights.

use super::Gguf;
use crate::architecture::{Architecture, Experts, Linear, Mlp, Projections, Stack, Up};
use crate::declaration::NormKind;
use serde_json::{Map, Value, json};

/// `general.architecture` and the `model_type` it is.
const TYPES: &[(&str, &str)] = &[
    // Kept sorted; a new one is this line, if its weights have the usual names.
    ("gemma", "gemma"),
    ("gemma2", "gemma2"),
    ("gemma3", "gemma3_text"),
    ("glm4", "glm4"),
    ("granite", "granite"),
    ("llama", "llama"),
    ("olmo2", "olmo2"),
    ("olmoe", "olmoe"),
    ("phi3", "phi3"),
    ("qwen2", "qwen2"),
    ("qwen2moe", "qwen2_moe"),
    ("qwen3", "qwen3"),
    ("qwen3moe", "qwen3_moe"),
    ("smollm3", "smollm3"),
    ("starcoder2", "starcoder2"),
];

/// Keys below the architecture's name, and the fields they give.
const FIELDS: &[(&str, &[&str])] = &[
    ("embedding_length", &["hidden_size"]),
    ("block_count", &["num_hidden_layers"]),
    ("feed_forward_length", &["intermediate_size"]),
    ("context_length", &["max_position_embeddings"]),
    ("attention.head_count", &["num_attention_heads"]),
    ("attention.head_count_kv", &["num_key_value_heads"]),
    ("attention.key_length", &["head_dim"]),
    ("attention.sliding_window", &["sliding_window"]),
    ("vocab_size", &["vocab_size"]),
    ("expert_count", &["num_experts", "num_local_experts"]),
    ("expert_used_count", &["num_experts_per_tok"]),
    ("expert_feed_forward_length", &["moe_intermediate_size"]),
    ("expert_shared_feed_forward_length", &["shared_expert_intermediate_size"]),
];

/// The config.json that a GGUF file amounts to.
pub fn gguf_config(file: &Gguf) -> Result<Map<String, Value>, String> {
    let kind = file.pairs.get("general.architecture").and_then(Value::as_str);
    let Some(kind) = kind else { return Err("has no general.architecture".into()) };
    let known = || TYPES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    let Some((_, model_type)) = TYPES.iter().find(|(name, _)| *name == kind) else {
        return Err(format!("is of the architecture `{kind}`; known are {}", known()));
    };
    let mut config = Map::new();
    for (key, fields) in FIELDS {
        let Some(value) = file.pairs.get(&format!("{kind}.{key}")) else { continue };
        let value = same_everywhere(value).ok_or_else(|| format!("`{kind}.{key}` differs from layer to layer"))?;
        for field in *fields {
            config.insert((*field).into(), value.clone());
        }
    }
    if !config.contains_key("vocab_size")
        && let Some(tokens) = file.pairs.get("tokenizer.ggml.tokens")
    {
        let count = tokens.get("length").cloned().or_else(|| tokens.as_array().map(|list| json!(list.len())));
        config.insert("vocab_size".into(), count.unwrap_or(Value::Null));
    }
    // Without a layer of its own the head is the embedding; a bias is there if its tensor is.
    let has = |name: &str| file.tensors.iter().any(|t| t.name == name);
    config.insert("tie_word_embeddings".into(), json!(!has("output.weight")));
    config.insert("attention_bias".into(), json!(has("blk.0.attn_q.bias")));
    config.insert("mlp_bias".into(), json!(has("blk.0.ffn_up.bias")));
    config.insert("use_bias".into(), json!(has("blk.0.attn_q.bias")));
    let mixtral = *model_type == "llama" && config.contains_key("num_local_experts");
    config.insert("model_type".into(), json!(if mixtral { "mixtral" } else { model_type }));
    Ok(config)
}

/// A number, or the one that a list repeats.
fn same_everywhere(value: &Value) -> Option<Value> {
    match value.as_array() {
        None => Some(value.clone()),
        Some(list) => list.first().filter(|first| list.iter().all(|x| x == *first)).cloned(),
    }
}

/// Every weight by GGUF's name, with its shape, outermost extent first.
pub fn gguf_weights(arch: &Architecture) -> Vec<(String, Vec<i64>)> {
    let stack = &arch.main;
    let mut list = List(Vec::new());
    if let Some((_, rows)) = &stack.tokens {
        list.add("token_embd.weight", &[*rows, stack.token_width]);
    }
    list.norm("output_norm", stack.final_norm.is_some(), stack);
    if let Some(head) = stack.head.as_ref().filter(|_| !stack.tied) {
        list.linear("output", head);
    }
    for (i, layer) in stack.layers.iter().enumerate() {
        list.layer(&format!("blk.{i}"), stack, layer.sparse);
    }
    list.0
}

struct List(Vec<(String, Vec<i64>)>);

impl List {
    fn add(&mut self, name: &str, shape: &[i64]) {
        self.0.push((name.into(), shape.to_vec()));
    }

    fn linear(&mut self, name: &str, l: &Linear) {
        self.add(&format!("{name}.weight"), &[l.outputs, l.inputs]);
        if l.bias {
            self.add(&format!("{name}.bias"), &[l.outputs]);
        }
    }

    fn norm(&mut self, name: &str, there: bool, stack: &Stack) {
        if there && !stack.norm_plain {
            self.add(&format!("{name}.weight"), &[stack.hidden]);
            if stack.norm == NormKind::Layer {
                self.add(&format!("{name}.bias"), &[stack.hidden]);
            }
        }
    }

    fn layer(&mut self, at: &str, stack: &Stack, sparse: bool) {
        let block = &stack.block;
        let norms = [
            ("attn_norm", block.attention_norm.is_some()),
            ("post_attention_norm", block.attention_after.is_some()),
            ("ffn_norm", block.mlp_norm.is_some()),
            ("post_ffw_norm", block.mlp_after.is_some()),
        ];
        for (name, there) in norms {
            self.norm(&format!("{at}.{name}"), there, stack);
        }
        if let Some(facts) = &stack.attention {
            match &facts.projections {
                Projections::Apart { q, k, v } => {
                    for (name, l) in [("attn_q", q), ("attn_k", k), ("attn_v", v)] {
                        self.linear(&format!("{at}.{name}"), l);
                    }
                }
                Projections::Fused { qkv, .. } => self.linear(&format!("{at}.attn_qkv"), qkv),
                // No type that is read here has one.
                Projections::Latent(_) => {}
            }
            self.linear(&format!("{at}.attn_output"), &facts.out);
            if let Some(norm) = &facts.qk_norm {
                let whole = norm.over == crate::declaration::NormOver::Width;
                for (name, heads) in [("attn_q_norm", facts.heads), ("attn_k_norm", facts.kv_heads)] {
                    let width = if whole { heads * facts.head_dim } else { facts.head_dim };
                    self.add(&format!("{at}.{name}.weight"), &[width]);
                }
            }
        }
        match (&stack.experts, &stack.mlp) {
            (Some(facts), _) if sparse => self.experts(at, facts, stack.hidden),
            (_, Some(facts)) => self.mlp(at, facts, ""),
            _ => {}
        }
    }

    fn mlp(&mut self, at: &str, facts: &Mlp, suffix: &str) {
        let name = |part: &str| format!("{at}.ffn_{part}{suffix}");
        match &facts.up {
            Up::Gated { gate, up } => {
                self.linear(&name("gate"), gate);
                self.linear(&name("up"), up);
            }
            Up::Fused(up) | Up::Plain(up) => self.linear(&name("up"), up),
        }
        self.linear(&name("down"), &facts.down);
    }

    fn experts(&mut self, at: &str, facts: &Experts, hidden: i64) {
        self.linear(&format!("{at}.ffn_gate_inp"), &facts.router);
        for (name, shape) in
            [("gate", [facts.inner, hidden]), ("up", [facts.inner, hidden]), ("down", [hidden, facts.inner])]
        {
            self.add(&format!("{at}.ffn_{name}_exps.weight"), &[facts.count, shape[0], shape[1]]);
        }
        if let Some(shared) = &facts.shared {
            self.mlp(at, &shared.mlp, "_shexp");
            if shared.gate.is_some() {
                self.add(&format!("{at}.ffn_gate_inp_shexp.weight"), &[hidden]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_types_are_sorted_and_known() {
        assert!(TYPES.is_sorted());
        for (_, model_type) in TYPES {
            assert!(crate::known_types().any(|known| known == *model_type), "{model_type}");
        }
    }
}
