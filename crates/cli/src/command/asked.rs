//! The products that a command's words mean, as problems that candidates can solve.

use super::model::short_name;
use crate::error::Error;
use crate::output::OutputArgs;
use crate::products::{one_product, products_of_csv};
use crate::subject::ModelOptions;
use crate::workload::workload;
use gemwright_core::{Call, DType, Operands, Workload};
use gemwright_engine::Problem;
use std::collections::BTreeMap;

/// A problem of the list, with how often it is run and what it is called.
pub struct Asked {
    pub problem: Problem,
    /// A bias follows, which the product leaves out.
    pub bias: bool,
    pub count: u64,
    pub name: String,
}

/// Equal problems as one, counted.
pub fn merged(asked: Vec<Asked>) -> Vec<Asked> {
    let mut all: Vec<Asked> = Vec::new();
    for one in asked {
        match all.iter_mut().find(|known| known.problem == one.problem) {
            Some(known) => known.count += one.count,
            None => all.push(one),
        }
    }
    all
}

/// The products that a command's words mean, equal ones counted, with and without a bias apart.
pub fn problems(
    subject: &[String],
    options: &ModelOptions,
    output: &OutputArgs,
    dtype: DType,
) -> Result<Vec<Asked>, Error> {
    if let [m, n, k] = subject {
        let p = one_product([m, n, k], dtype)?.calls()[0].product().unwrap_or_else(|| unreachable!("a product"));
        let problem = Problem::linear(p.m, p.n, p.k, dtype);
        return Ok(vec![Asked { problem, bias: false, count: 1, name: "linear".into() }]);
    }
    let workload: Workload = match subject {
        [path] if path.ends_with(".csv") => products_of_csv(path, dtype)?,
        [name] => workload(name, options, output.quiet)?,
        _ => return Err(Error::Usage("give M N K, a CSV of shapes, or one config, folder or preset".into())),
    };
    output.warn(&workload.warnings);
    let mut asked: Vec<Asked> = Vec::new();
    let mut others: BTreeMap<&str, u64> = BTreeMap::new();
    for call in workload.calls() {
        let Some(problem) = Problem::of(call, dtype) else {
            *others.entry(kind_of_others(&call.operands)).or_default() += call.count;
            continue;
        };
        let bias = matches!(&call.operands, Operands::Product { bias: Some(bias), .. } if bias.rank() == 1);
        match asked.iter_mut().find(|known| known.problem == problem && known.bias == bias) {
            Some(known) => known.count += call.count,
            None => asked.push(Asked { problem, bias, count: call.count, name: name(call) }),
        }
    }
    if asked.is_empty() {
        return Err(Error::Usage("the list has no plain product to measure".into()));
    }
    output.warn(&what_is_not_said(&workload, options, dtype, &others));
    Ok(asked)
}

/// What a call is that is no plain product.
fn kind_of_others(operands: &Operands) -> &'static str {
    match operands {
        Operands::Product { .. } => "products that cannot be laid out",
        Operands::Grouped { .. } => "products of groups (experts)",
        Operands::Convolution(_) => "convolutions",
        Operands::Attention(_) => "attention",
    }
}

/// What a list has that is left out, and element types that are others than its own.
fn what_is_not_said(
    workload: &Workload,
    options: &ModelOptions,
    dtype: DType,
    others: &BTreeMap<&str, u64>,
) -> Vec<String> {
    let all: Vec<String> = others.iter().map(|(kind, count)| format!("{kind} {count} times")).collect();
    let left_out = (!all.is_empty()).then(|| format!("only plain products are measured; left out: {}", all.join(", ")));
    let mut types: Vec<&str> =
        workload.calls().iter().filter_map(own_type).filter(|own| *own != dtype).map(DType::name).collect();
    types.sort_unstable();
    types.dedup();
    let retyped = options.dtype.is_none() && !types.is_empty();
    let retyped = retyped.then(|| {
        format!("the list has {}; all of it is measured in {dtype}, --dtype says otherwise", types.join(" and "))
    });
    left_out.into_iter().chain(retyped).collect()
}

/// The type of a product's operands.
fn own_type(call: &Call) -> Option<DType> {
    match &call.operands {
        Operands::Product { a, .. } => Some(a.dtype),
        _ => None,
    }
}

fn name(call: &Call) -> String {
    if call.module.is_empty() { short_name(call) } else { call.module.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Words {
        subject: Vec<String>,
        #[command(flatten)]
        options: ModelOptions,
        #[command(flatten)]
        output: OutputArgs,
    }

    fn asked(words: &str, dtype: DType) -> (Vec<Asked>, Vec<String>) {
        let words = Words::parse_from(words.split(' '));
        let workload = workload(&words.subject[0], &words.options, true).unwrap();
        let mut others: BTreeMap<&str, u64> = BTreeMap::new();
        for call in workload.calls().iter().filter(|call| Problem::of(call, dtype).is_none()) {
            *others.entry(kind_of_others(&call.operands)).or_default() += call.count;
        }
        let said = what_is_not_said(&workload, &words.options, dtype, &others);
        (problems(&words.subject, &words.options, &words.output, dtype).unwrap(), said)
    }

    #[test]
    fn equal_products_with_and_without_a_bias_stay_apart() {
        let (all, said) = asked("x qwen2.5-0.5b --phase decode --layers 1 --quiet", DType::F32);
        let square: Vec<(bool, &str)> = all
            .iter()
            .filter(|asked| (asked.problem.product.n, asked.problem.product.k) == (896, 896))
            .map(|asked| (asked.bias, asked.name.rsplit('.').next().unwrap()))
            .collect();
        assert_eq!(square, [(true, "q_proj"), (false, "o_proj")]);
        let bare = merged(all).into_iter().find(|asked| asked.problem.product.n == 896).unwrap();
        assert_eq!(bare.count, 2);
        assert!(said[0].contains("attention 1 times") && said[1].contains("measured in f32"), "{said:?}");
    }

    #[test]
    fn what_is_left_out_is_said() {
        let (_, said) = asked("x olmoe-1b-7b --phase prefill --seq 8 --layers 1 --dtype bf16 --quiet", DType::Bf16);
        assert_eq!(said.len(), 1);
        assert!(said[0].contains("products of groups (experts)"), "{said:?}");
    }
}
