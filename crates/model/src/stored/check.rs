//! Stored tensors held against the weights a config makes.

use super::Tensor;
use std::collections::{BTreeMap, HashMap};

/// What came of it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Weights found with the shape they should have.
    pub matched: usize,
    /// Of these, those that were told by layer and shape because their names are others.
    pub renamed: usize,
    /// Wrong shapes, then missing weights, then tensors the model does not have.
    pub mismatches: Vec<String>,
}

/// Tensors that are kept beside the weights but are none.
const NO_WEIGHTS: &[&str] = &[
    "rotary_emb.inv_freq",
    "rope_freqs.weight",
    "position_ids",
    "attn.bias",
    "attn.masked_bias",
    "attention.bias",
    "attention.masked_bias",
    "num_batches_tracked",
    "running_mean",
    "running_var",
    "final_logits_bias",
    "e_score_correction_bias",
];

/// Most mismatches that are named one by one.
const MOST_NAMED: usize = 12;

/// Holds `found` against `wanted`; a tensor named in `copies` is another's copy and may be missing.
pub fn check(wanted: &[(String, Vec<i64>)], copies: &[(String, Vec<i64>)], found: &[Tensor]) -> Report {
    let mut report = Report::default();
    let prefix = Prefix::best(wanted, found);
    let mut left: HashMap<&str, &Tensor> = found.iter().map(|t| (t.name.as_str(), t)).collect();
    let mut missing: Vec<(&str, &[i64])> = Vec::new();
    let mut wrong = Vec::new();
    for (name, shape) in wanted {
        match left.remove(prefix.apply(name).as_str()) {
            Some(tensor) if same(shape, &tensor.shape) => report.matched += 1,
            Some(tensor) => wrong.push(other_shape(tensor, shape)),
            None => missing.push((name, shape)),
        }
    }
    for (name, shape) in copies {
        if let Some(tensor) = left.remove(prefix.apply(name).as_str())
            && !same(shape, &tensor.shape)
        {
            wrong.push(other_shape(tensor, shape));
        }
    }
    left.retain(|name, _| !NO_WEIGHTS.iter().any(|end| name.ends_with(end)));
    let mut left: Vec<&Tensor> = found.iter().filter(|t| left.contains_key(t.name.as_str())).collect();
    report.matched += experts(&mut missing, &mut left, &mut wrong);
    report.renamed = by_shape(&mut missing, &mut left);
    report.matched += report.renamed;
    let missing = missing.iter().map(|(name, shape)| format!("`{name}` {shape:?} is missing"));
    let extra = left.iter().map(|t| match &t.shape {
        Some(shape) => format!("`{}` {shape:?} is not part of the model", t.name),
        None => format!("`{}` is not part of the model", t.name),
    });
    report.mismatches = shortened(wrong.into_iter().chain(missing).chain(extra).collect());
    report
}

fn other_shape(tensor: &Tensor, wanted: &[i64]) -> String {
    format!("`{}` is {:?}; the config makes it {wanted:?}", tensor.name, tensor.shape.as_deref().unwrap_or(&[]))
}

/// A tensor of which only the name is known has any shape.
fn same(wanted: &[i64], found: &Option<Vec<u64>>) -> bool {
    let Some(found) = found else { return true };
    wanted.len() == found.len() && wanted.iter().zip(found).all(|(w, f)| u64::try_from(*w) == Ok(*f))
        // A row is stored with or without its extent of 1.
        || wanted.iter().filter(|n| **n != 1).map(|n| *n as u64).eq(found.iter().copied().filter(|n| *n != 1))
}

fn shortened(mut list: Vec<String>) -> Vec<String> {
    if list.len() > MOST_NAMED {
        let more = list.len() - MOST_NAMED;
        list.truncate(MOST_NAMED);
        list.push(format!("and {more} more"));
    }
    list
}

/// Publishers leave the name of the outermost module away, or add one.
enum Prefix {
    None,
    Without,
    With(String),
}

impl Prefix {
    fn apply(&self, name: &str) -> String {
        match self {
            Prefix::None => name.into(),
            Prefix::Without => name.split_once('.').map_or(name, |(_, rest)| rest).into(),
            Prefix::With(outer) => format!("{outer}.{name}"),
        }
    }

    /// The one that makes most names meet.
    fn best(wanted: &[(String, Vec<i64>)], found: &[Tensor]) -> Prefix {
        let names: std::collections::HashSet<&str> = found.iter().map(|t| t.name.as_str()).collect();
        let outer = found.iter().filter_map(|t| t.name.split_once('.')).map(|(outer, _)| outer.to_string());
        let mut outer: Vec<String> = outer.collect();
        outer.sort_unstable();
        outer.dedup();
        outer.truncate(8);
        let candidates = [Prefix::None, Prefix::Without].into_iter().chain(outer.into_iter().map(Prefix::With));
        let meet =
            |prefix: &Prefix| wanted.iter().filter(|(name, _)| names.contains(prefix.apply(name).as_str())).count();
        let mut best = (Prefix::None, 0);
        for candidate in candidates {
            let count = meet(&candidate);
            if count > best.1 {
                best = (candidate, count);
            }
        }
        best.0
    }
}

/// The number of a name's layer.
fn layer(name: &str) -> Option<&str> {
    name.split('.').find(|part| part.bytes().all(|c| c.is_ascii_digit()) && !part.is_empty())
}

/// Experts that are stored one by one, as gate, up and down, stand for the stacked ones.
fn experts(missing: &mut Vec<(&str, &[i64])>, left: &mut Vec<&Tensor>, wrong: &mut Vec<String>) -> usize {
    let mut matched = 0;
    missing.retain(|(name, shape)| {
        let part = match name.rsplit('.').next() {
            Some("gate_up_proj") if shape.len() == 3 => Part { names: &["gate_proj", "w1", "up_proj", "w3"], each: 2 },
            Some("down_proj") if shape.len() == 3 => Part { names: &["down_proj", "w2"], each: 1 },
            _ => return true,
        };
        let [count, outputs, inputs] = [shape[0], shape[1] / part.each, shape[2]];
        let is_one = |t: &&Tensor| layer(&t.name) == layer(name) && part.is_of(&t.name);
        let found: Vec<&Tensor> = left.iter().copied().filter(|t| is_one(t)).collect();
        if found.is_empty() {
            return true;
        }
        for tensor in &found {
            if !same(&[outputs, inputs], &tensor.shape) {
                wrong.push(other_shape(tensor, &[outputs, inputs]));
            }
        }
        left.retain(|t| !is_one(t));
        matched += 1;
        if found.len() as i64 != count * part.each {
            wrong.push(format!("`{name}` is made of {} tensors; there are {}", count * part.each, found.len()));
        }
        false
    });
    matched
}

struct Part {
    names: &'static [&'static str],
    each: i64,
}

impl Part {
    /// `...experts.7.w1.weight`.
    fn is_of(&self, name: &str) -> bool {
        let parts: Vec<&str> = name.split('.').collect();
        let at = parts.iter().rposition(|part| *part == "experts");
        at.is_some_and(|at| parts.len() == at + 4 && self.names.contains(&parts[at + 2]) && parts[at + 3] == "weight")
    }
}

/// What has another name but the shape and the layer of a missing weight is taken for it.
fn by_shape(missing: &mut Vec<(&str, &[i64])>, left: &mut Vec<&Tensor>) -> usize {
    let mut places: BTreeMap<(Option<&str>, Vec<u64>), Vec<usize>> = BTreeMap::new();
    for (i, tensor) in left.iter().enumerate() {
        if let Some(shape) = &tensor.shape {
            places.entry((layer(&tensor.name), shape.clone())).or_default().push(i);
        }
    }
    let mut taken = vec![false; left.len()];
    let before = missing.len();
    missing.retain(|(name, shape)| {
        let shape: Vec<u64> = shape.iter().map(|n| *n as u64).collect();
        match places.get_mut(&(layer(name), shape)).and_then(Vec::pop) {
            Some(i) => {
                taken[i] = true;
                false
            }
            None => true,
        }
    });
    let mut index = 0;
    left.retain(|_| {
        index += 1;
        !taken[index - 1]
    });
    before - missing.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(list: &[(&str, &[i64])]) -> Vec<(String, Vec<i64>)> {
        list.iter().map(|(name, shape)| (name.to_string(), shape.to_vec())).collect()
    }

    fn found(list: &[(&str, &[u64])]) -> Vec<Tensor> {
        list.iter().map(|(name, shape)| Tensor { name: name.to_string(), shape: Some(shape.to_vec()) }).collect()
    }

    #[test]
    fn a_wrong_shape_a_missing_and_an_unknown_tensor_are_named() {
        let want = wanted(&[("m.0.a.weight", &[2, 3]), ("m.0.b.weight", &[4]), ("m.1.a.weight", &[2, 3])]);
        let have = found(&[("m.0.a.weight", &[2, 4]), ("m.0.c.weight", &[5]), ("m.1.a.weight", &[2, 3])]);
        let report = check(&want, &[], &have);
        assert_eq!(report.matched, 1);
        assert_eq!(
            report.mismatches,
            [
                "`m.0.a.weight` is [2, 4]; the config makes it [2, 3]",
                "`m.0.b.weight` [4] is missing",
                "`m.0.c.weight` [5] is not part of the model"
            ]
        );
    }

    #[test]
    fn other_names_of_the_same_layer_and_shape_are_taken() {
        let want = wanted(&[("model.h.0.a.weight", &[2, 3]), ("model.h.0.b.weight", &[4])]);
        let have = found(&[("h.0.a.weight", &[2, 3]), ("h.0.norm.gamma", &[4]), ("h.0.attn.bias", &[9])]);
        assert_eq!(check(&want, &[], &have), Report { matched: 2, renamed: 1, mismatches: vec![] });
    }

    #[test]
    fn experts_stored_one_by_one_stand_for_the_stacked() {
        let want = wanted(&[("l.3.mlp.experts.gate_up_proj", &[2, 8, 5]), ("l.3.mlp.experts.down_proj", &[2, 5, 4])]);
        let mut have = found(&[
            ("l.3.moe.experts.0.w1.weight", &[4, 5]),
            ("l.3.moe.experts.0.w3.weight", &[4, 5]),
            ("l.3.moe.experts.1.w1.weight", &[4, 5]),
            ("l.3.moe.experts.1.w3.weight", &[4, 5]),
            ("l.3.moe.experts.0.w2.weight", &[5, 4]),
            ("l.3.moe.experts.1.w2.weight", &[5, 4]),
        ]);
        assert_eq!(check(&want, &[], &have), Report { matched: 2, renamed: 0, mismatches: vec![] });
        have[5].shape = Some(vec![5, 3]);
        have.remove(0);
        let report = check(&want, &[], &have);
        assert_eq!(report.mismatches.len(), 2, "{report:?}");
    }
}
