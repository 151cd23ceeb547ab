//! One product through every layer of the stack, in words made from its numbers.
//!
//! Nothing here is a fixed text about products in general: each sentence is there because of a value
//! and carries it.

mod advice;
mod words;

use crate::blas::{Leaf, LeafOp, Lowered, Settings, Step, lower_linear, lower_matmul};
use crate::{Call, Chip, Op, Operands, Pass, Product, View};

/// The operation to explain.
#[derive(Debug, Clone)]
pub struct Subject {
    /// The op with its prefix: linear, matmul, mm, addmm, bmm, baddbmm or mv.
    pub op: String,
    /// First operand; for linear the input.
    pub a: View,
    /// Second operand; for linear the weight as stored.
    pub b: View,
    /// Addend or bias.
    pub bias: Option<View>,
    /// Factor of the product.
    pub alpha: f64,
    /// Factor of the addend.
    pub beta: f64,
    /// The second operand needs no gradient.
    pub frozen: bool,
    /// The module it belongs to, empty where there is none.
    pub module: String,
}

/// A titled part of the page.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub struct Section {
    pub title: String,
    pub lines: Vec<String>,
}

/// One thing that happens, in order.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, clippy::large_enum_variant)] // a handful at a time
pub enum Happening {
    /// A leaf operation of ATen.
    Aten(Leaf),
    /// A pointwise addition of the bias, apart.
    Add(View),
    /// The result is filled; there is nothing to multiply.
    Fill,
    Copy {
        operand: &'static str,
        why: String,
    },
    Blas(crate::blas::BlasCall),
}

/// Everything there is to say.
#[derive(Debug, Clone)]
pub struct Explanation {
    /// The leaf product as a call of a workload; none where nothing is multiplied as matrices.
    pub call: Option<Call>,
    /// What happens, in order.
    pub steps: Vec<Happening>,
    /// The page.
    pub sections: Vec<Section>,
}

impl Explanation {
    /// Explains `subject` on `chips`; the error says which sizes do not fit.
    pub fn new(subject: &Subject, settings: Settings, chips: &[Chip]) -> Result<Explanation, String> {
        let lowered = lower(subject)?;
        let extents = subject.a.size.iter().chain(subject.b.size.iter());
        if extents.map(|&n| n.max(1) as f64).product::<f64>() > 2f64.powi(90) {
            return Err(format!("{} and {} are too large", subject.a, subject.b));
        }
        let mut steps = Vec::new();
        for step in &lowered {
            match step {
                Lowered::Copy { operand, why } => steps.push(Happening::Copy { operand, why: why.clone() }),
                Lowered::Add(bias) => steps.push(Happening::Add(*bias)),
                Lowered::Leaf(leaf) => {
                    steps.push(Happening::Aten(*leaf));
                    steps.extend(leaf.steps(settings).into_iter().map(|step| match step {
                        Step::Copy { operand, why } => Happening::Copy { operand, why },
                        Step::Fill => Happening::Fill,
                        Step::Blas(call) => Happening::Blas(call),
                    }));
                }
            }
        }
        let leaf = lowered.iter().find_map(|step| match step {
            Lowered::Leaf(leaf) => Some(*leaf),
            _ => None,
        });
        let call = leaf.as_ref().and_then(|leaf| as_call(leaf, subject));
        let page = words::Page { subject, leaf: leaf.as_ref(), call: call.as_ref(), steps: &steps, settings, chips };
        Ok(Explanation { sections: page.sections(), call, steps })
    }
}

/// The leaf as a call, with its product and its costs.
fn as_call(leaf: &Leaf, subject: &Subject) -> Option<Call> {
    let op = match leaf.op {
        LeafOp::Mm => Op::Mm,
        LeafOp::Addmm => Op::Addmm,
        LeafOp::Bmm => Op::Bmm,
        LeafOp::Baddbmm => Op::Baddbmm,
        _ => return None,
    };
    let last = leaf.a.rank() - 1;
    let size = leaf.a.size.set(last, leaf.b.size[last]);
    let out = View::contiguous(&size, leaf.a.dtype);
    let operands =
        Operands::Product { a: leaf.a, b: leaf.b, bias: leaf.addend, out, alpha: subject.alpha, beta: leaf.beta };
    let module = subject.module.as_str().into();
    Some(Call { op, pass: Pass::Forward, module, operands, scales: None, inside: false, count: 1, measured: None })
}

fn lower(subject: &Subject) -> Result<Vec<Lowered>, String> {
    let Subject { a, b, bias, beta, .. } = subject;
    let name = subject.op.trim_start_matches("aten::");
    let ranks = |want: [usize; 2]| {
        if [a.rank(), b.rank()] == want {
            Ok(())
        } else {
            Err(format!("{name} takes operands of {} and {} dimensions, not {a} and {b}", want[0], want[1]))
        }
    };
    let leaf = |op, addend: Option<View>| vec![Lowered::Leaf(Leaf { beta: *beta, ..Leaf::new(op, *a, *b, addend) })];
    let needs_bias = || bias.ok_or_else(|| format!("{name} needs --bias, the tensor it adds to"));
    let fits = |x: i64, y: i64| {
        if x == y { Ok(()) } else { Err(format!("{a} and {b} do not fit: {x} is not {y}")) }
    };
    if matches!(name, "linear" | "mm" | "matmul" | "bmm" | "mv") && *beta != 1.0 {
        return Err(format!("{name} has no beta"));
    }
    if matches!(name, "mm" | "matmul" | "bmm" | "mv") && bias.is_some() {
        return Err(format!("{name} has no bias; addmm, baddbmm and linear do"));
    }
    match name {
        "linear" => {
            if a.rank() == 0 || b.rank() != 2 {
                return Err(format!("linear takes an input and a weight [N,K], not {a} and {b}"));
            }
            fits(a.size[a.rank() - 1], b.size[1])?;
            if let Some(bias) = bias {
                broadcasts(bias, &a.size.set(a.rank() - 1, b.size[0]))?;
            }
            Ok(lower_linear(a, b, bias.as_ref(), !subject.frozen))
        }
        "matmul" => {
            check_matmul(a, b)?;
            Ok(lower_matmul(a, b, false, !subject.frozen))
        }
        "mm" | "addmm" => {
            ranks([2, 2])?;
            fits(a.size[1], b.size[0])?;
            if name == "mm" {
                return Ok(leaf(LeafOp::Mm, None));
            }
            let bias = needs_bias()?;
            broadcasts(&bias, &[a.size[0], b.size[1]])?;
            Ok(leaf(LeafOp::Addmm, Some(bias)))
        }
        "bmm" | "baddbmm" => {
            ranks([3, 3])?;
            fits(a.size[0], b.size[0])?;
            fits(a.size[2], b.size[1])?;
            if name == "bmm" {
                return Ok(leaf(LeafOp::Bmm, None));
            }
            let bias = needs_bias()?;
            broadcasts(&bias, &[a.size[0], a.size[1], b.size[2]])?;
            Ok(leaf(LeafOp::Baddbmm, Some(bias)))
        }
        "mv" => {
            ranks([2, 1])?;
            fits(a.size[1], b.size[0])?;
            Ok(leaf(LeafOp::Mv, None))
        }
        _ => Err(format!("unknown op `{}`; known are linear, matmul, mm, addmm, bmm, baddbmm, mv", subject.op)),
    }
}

fn broadcasts(addend: &View, size: &[i64]) -> Result<(), String> {
    let fits =
        addend.rank() <= size.len() && addend.size.iter().rev().zip(size.iter().rev()).all(|(x, y)| x == y || *x == 1);
    if fits {
        Ok(())
    } else {
        let shape: Vec<String> = size.iter().map(i64::to_string).collect();
        Err(format!("a bias of {addend} does not spread over {}", shape.join("x")))
    }
}

fn check_matmul(a: &View, b: &View) -> Result<(), String> {
    if a.rank() == 0 || b.rank() == 0 {
        return Err("matmul takes tensors of at least one dimension".into());
    }
    let inner = if b.rank() == 1 { b.size[0] } else { b.size[b.rank() - 2] };
    if a.size[a.rank() - 1] != inner {
        return Err(format!("{a} and {b} do not fit: {} is not {inner}", a.size[a.rank() - 1]));
    }
    let lead = |x: &View| x.size[..x.rank().saturating_sub(2)].to_vec();
    let (x, y) = (lead(a), lead(b));
    let clash = x.iter().rev().zip(y.iter().rev()).find(|(p, q)| p != q && **p != 1 && **q != 1);
    match clash {
        Some((p, q)) => Err(format!("the leading dimensions of {a} and {b} do not fit: {p} and {q}")),
        None => Ok(()),
    }
}

/// What a call computes, for advice: its product and its bytes with other extents.
fn cost(product: &Product, call: &Call) -> (u128, u128) {
    let width = u128::from(call.dtype().bytes());
    let [batch, m, n, k] = [product.batch, product.m, product.n, product.k].map(u128::from);
    (product.flops(), batch * (m * k + k * n + m * n) * width)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blas::Stack;
    use crate::{Catalog, DType};

    fn explain(a: &str, b: &str) -> (Explanation, String) {
        let view = |text| View::parse(text, DType::Bf16).unwrap();
        let subject = Subject {
            op: "aten::mm".into(),
            a: view(a),
            b: view(b),
            bias: None,
            alpha: 1.0,
            beta: 1.0,
            frozen: false,
            module: String::new(),
        };
        let catalog = Catalog::builtin();
        let chips = [catalog.find("h200").unwrap().clone()];
        let explanation =
            Explanation::new(&subject, Settings { stack: Stack::Cuda, prefer_lt: false }, &chips).unwrap();
        let text = explanation.sections.iter().flat_map(|s| s.lines.clone()).collect::<Vec<_>>().join("\n");
        (explanation, text)
    }

    fn blas(explanation: &Explanation) -> String {
        let calls = explanation.steps.iter().filter_map(|step| match step {
            Happening::Blas(call) => Some(serde_json::to_string(call).unwrap()),
            _ => None,
        });
        calls.collect()
    }

    #[test]
    fn another_stride_changes_the_call_the_copy_and_the_advice() {
        let (plain, text) = explain("512x4096", "4096x11008:1,4096");
        let (strided, other) = explain("512x4096:8192,2", "4096x11008:1,4096");
        let copies = |e: &Explanation| e.steps.iter().filter(|s| matches!(s, Happening::Copy { .. })).count();
        assert_eq!((copies(&plain), copies(&strided)), (0, 1));
        assert!(!text.contains("copied") && other.contains("copied"), "{other}");
        assert!(other.contains("would save"), "{other}");
        let (row_major, _) = explain("512x4096", "4096x11008");
        assert_ne!(blas(&plain), blas(&row_major));
        let (padded, _) = explain("512x4096:4200,1", "4096x11008:1,4096");
        assert!(blas(&padded).contains("\"ldb\":4200"), "{}", blas(&padded));
    }

    #[test]
    fn where_the_simple_rule_is_wrong_it_is_said() {
        let (_, text) = explain("512x4096", "4096x11008:1,4096");
        assert!(text.contains("simple rule gives the same"), "{text}");
        // one row of a padded matrix: the stride is no leading dimension
        let (_, text) = explain("1x4096:8192,1", "4096x11008:1,4096");
        assert!(text.contains("simple rule would"), "{text}");
    }

    #[test]
    fn sizes_that_do_not_fit_are_named() {
        let view = |text| View::parse(text, DType::Bf16).unwrap();
        let mut subject = Subject {
            op: "aten::mm".into(),
            a: view("4x5"),
            b: view("6x7"),
            bias: None,
            alpha: 1.0,
            beta: 1.0,
            frozen: false,
            module: String::new(),
        };
        let error = |s: &Subject| Explanation::new(s, Settings::default(), &[]).unwrap_err();
        assert!(error(&subject).contains("5 is not 6"));
        subject.op = "aten::frob".into();
        assert!(error(&subject).contains("unknown op"));
        subject.op = "aten::addmm".into();
        subject.b = view("5x7");
        assert!(error(&subject).contains("--bias"));
        subject.bias = Some(view("8"));
        assert!(error(&subject).contains("spread"));
    }
}
