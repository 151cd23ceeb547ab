//! `gemwright explain`: one product through every layer of the stack.

use crate::chips::chips;
use crate::error::Error;
use crate::output::{Format, OutputArgs};
use crate::subject::{ModelOptions, model};
use gemwright_core::{Answer, Call, DType, Explanation, Operands, Section, Subject, TunedRow, View, Way};
use gemwright_engine::{Epilogue, Problem, own, tuned_files};
use gemwright_exchange::tuned::runner_word;
use gemwright_report as report;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  gemwright explain \"597x4096 @ 4096x11008^T\"                  an expression; ^T: the transposed view of a row-major matrix
  gemwright explain llama-3.1-8b mlp.up_proj --phase decode    a layer of a model
  gemwright explain --op aten::addmm --a 128x64:64,1 --b 64x96:1,64 --bias 96:1 --dtype bf16
  gemwright explain \"64x4096 @ 4096x4096^T\" --dtype f32 --table table.csv   who would multiply it, by a table of tune
  gemwright explain --op linear --a 4x24x224 --b 160x224 --bias 160 --frozen --format json

A tensor is written SIZExSIZE:STRIDE,STRIDE; without strides it is row-major. For linear --a is the input and
--b the weight as stored, [N,K].";

/// One product: layout, ATen ops, library call, roof, tiles, gradients, what would help
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// An expression such as \"597x4096 @ 4096x11008^T\", or a model (config, folder, preset)
    #[arg(value_name = "EXPRESSION|MODEL", required_unless_present = "op", conflicts_with = "op")]
    subject: Option<String>,
    /// The layer of the model: the end of a module's path
    #[arg(value_name = "LAYER")]
    layer: Option<String>,
    /// An ATen op: linear, matmul, mm, addmm, bmm, baddbmm, mv
    #[arg(long, requires_all = ["a", "b"])]
    op: Option<String>,
    /// First operand
    #[arg(long, value_name = "VIEW", requires = "op")]
    a: Option<String>,
    /// Second operand
    #[arg(long, value_name = "VIEW", requires = "op")]
    b: Option<String>,
    /// Addend of addmm and baddbmm, bias of linear
    #[arg(long, value_name = "VIEW", requires = "op")]
    bias: Option<String>,
    /// Factor of the product
    #[arg(long, default_value_t = 1.0, allow_negative_numbers = true)]
    alpha: f64,
    /// Factor of the addend
    #[arg(long, default_value_t = 1.0, allow_negative_numbers = true)]
    beta: f64,
    /// The second operand needs no gradient (linear, matmul)
    #[arg(long)]
    frozen: bool,
    /// Tuned tables (ours, aiter's, TunableOp's): who would multiply it, and why; the later one counts
    #[arg(long, value_delimiter = ',', value_name = "TABLE,...")]
    table: Vec<PathBuf>,
    /// Chips, separated by commas
    #[arg(long, default_value = "h200", value_delimiter = ',', value_name = "CHIP,...")]
    on: Vec<String>,
    #[command(flatten)]
    options: ModelOptions,
    #[command(flatten)]
    output: OutputArgs,
}

pub fn run(args: &Args) -> Result<(), Error> {
    let chips = chips(&args.on)?;
    let (title, subject) = match (&args.op, &args.subject) {
        (Some(op), _) => (op.clone(), operation(args, op)?),
        (None, Some(text)) if text.contains('@') => (text.clone(), expression(args, text)?),
        (None, Some(name)) => layer(args, name)?,
        (None, None) => return Err(Error::Usage("give an expression, a model and a layer, or --op".into())),
    };
    let mut explanation = Explanation::new(&subject, args.options.library.settings(), &chips).map_err(Error::Usage)?;
    explanation.sections.extend(dispatch_section(args, explanation.call.as_ref()));
    match args.output.format {
        Format::Json => args.output.write(&report::explanation_json(&explanation)),
        Format::Csv => Err(Error::Usage("explain is a page: --format table, md or json".into())),
        Format::Md => args.output.write(&report::explanation_text(&title, &explanation, true)),
        Format::Table => args.output.write(&report::explanation_text(&title, &explanation, false)),
    }
}

/// Who would multiply it by the tables, and by which of the ways that was found.
fn dispatch_section(args: &Args, call: Option<&Call>) -> Option<Section> {
    if args.table.is_empty() {
        return None;
    }
    let (table, refused) = tuned_files::load_all(&args.table, None);
    let mut lines: Vec<String> =
        refused.iter().map(|(path, why)| format!("{} is not used: {why}", path.display())).collect();
    let problem = call.and_then(|call| Some((call, Problem::of(call, call.dtype())?)));
    match problem {
        None => lines.push("Nothing is multiplied as matrices here.".into()),
        Some((call, problem)) => {
            let bias = matches!(&call.operands, Operands::Product { bias: Some(bias), .. } if bias.rank() == 1);
            let names = if bias { &["bias"][..] } else { &[] };
            let p = problem.product;
            let epilogue = Epilogue::named(names.iter().copied(), (p.m, p.n)).unwrap_or_default();
            let problem = Problem { epilogue, ..problem };
            for (prepacked, weight) in
                [(false, "with the weight as it lies"), (true, "with the weight laid out before")]
            {
                let problem = Problem { prepacked, ..problem };
                let row = table.as_ref().and_then(|table| table.row(&problem.tuned_key()));
                let found = table.as_ref().and_then(|table| table.look_up(&problem.tuned_key()));
                lines.extend(found.map(|answer| answer_line(&answer, row, weight)));
            }
            if table.as_ref().is_none_or(|table| table.look_up(&problem.tuned_key()).is_none()) {
                let types = (problem.dtype, problem.out_dtype);
                let own = own().into_iter().find(|c| c.contract().dtypes.contains(&types));
                let default = own.map_or("nobody on this machine".to_string(), |c| c.name().to_string());
                lines.push(format!("{default}: the default, since nothing of this kind was measured."));
            }
        }
    }
    Some(Section { title: "Dispatch".into(), lines })
}

fn answer_line(answer: &Answer, row: Option<&TunedRow>, weight: &str) -> String {
    let takes = report::seconds(answer.seconds);
    let why = match &answer.way {
        Way::Exact => {
            let second = row.and_then(TunedRow::second);
            let next = second.map_or(String::new(), |next| {
                format!(", next {} with {}", runner_word(&next.runner), report::seconds(next.seconds))
            });
            format!("measured with {takes}{next}")
        }
        Way::Neighbours { below, above } => {
            let rows: Vec<String> = [below, above].into_iter().flatten().map(|m| format!("M = {m}")).collect();
            format!("by the neighbours {} of the same N and K, predicted {takes}", rows.join(" and "))
        }
        Way::CostModel => format!("by the cost model over other products of the kind, predicted {takes}"),
    };
    format!("{} {weight}: {why}.", runner_word(&answer.runner))
}

fn dtype(args: &Args) -> DType {
    args.options.dtype.unwrap_or(DType::Bf16)
}

fn view(name: &str, text: &str, dtype: DType) -> Result<View, Error> {
    View::parse(text, dtype).map_err(|why| Error::Usage(format!("{name} `{text}`: {why}; write it as 128x64:64,1")))
}

fn subject(args: &Args, op: &str, a: View, b: View, bias: Option<View>) -> Subject {
    let op = if op.starts_with("aten::") { op.to_string() } else { format!("aten::{op}") };
    let module = String::new();
    Subject { op, a, b, bias, alpha: args.alpha, beta: args.beta, frozen: args.frozen, module }
}

fn operation(args: &Args, op: &str) -> Result<Subject, Error> {
    let dtype = dtype(args);
    let given = |name: &str, text: &Option<String>| match text {
        Some(text) => view(name, text, dtype),
        None => Err(Error::Usage(format!("{name} is missing"))),
    };
    let bias = args.bias.as_ref().map(|text| view("--bias", text, dtype)).transpose()?;
    Ok(subject(args, op, given("--a", &args.a)?, given("--b", &args.b)?, bias))
}

/// `A @ B`, where `^T` marks the transposed view of a row-major matrix; the sizes are those of the
/// view, or of what it is a view of where only those fit.
fn expression(args: &Args, text: &str) -> Result<Subject, Error> {
    let dtype = dtype(args);
    let (product, bias) = text.split_once('+').map_or((text, None), |(p, b)| (p, Some(b)));
    let (left, right) = product.split_once('@').unwrap_or((product, ""));
    let read = |side: &str| -> Result<(View, bool), Error> {
        let side = side.trim();
        let (shape, transposed) = side.strip_suffix("^T").map_or((side, false), |shape| (shape, true));
        if transposed && shape.contains(':') {
            return Err(Error::Usage(format!("`{side}`: give strides, or ^T, not both")));
        }
        Ok((view("operand", shape.trim(), dtype)?, transposed))
    };
    let ((a, a_turned), (b, b_turned)) = (read(left)?, read(right)?);
    let turned = |v: View| View::contiguous(&v.t().size, dtype).t();
    let a = if a_turned && a.rank() >= 2 { turned(a) } else { a };
    let inner = a.size.last().copied().unwrap_or(0);
    let b = match (b_turned, b.rank()) {
        (true, 2) if b.size[0] == inner => turned(b),
        (true, n) if n >= 2 => b.t(),
        _ => b,
    };
    let bias = bias.map(|text| view("bias", text.trim(), dtype)).transpose()?;
    let op = if bias.is_some() { "addmm" } else { "matmul" };
    Ok(subject(args, op, a, b, bias))
}

/// The first forward product of a layer of a model.
fn layer(args: &Args, name: &str) -> Result<(String, Subject), Error> {
    let workload = model(name)?.predict(&args.options.options())?.workload;
    args.output.warn(&workload.warnings);
    let products: Vec<&Call> =
        workload.calls().iter().filter(|c| matches!(c.operands, Operands::Product { .. })).collect();
    let modules = || {
        let mut names: Vec<&str> = products.iter().map(|c| &*c.module).collect();
        let mut seen = std::collections::HashSet::new();
        names.retain(|name| seen.insert(*name));
        names.join(", ")
    };
    let Some(wanted) = &args.layer else {
        return Err(Error::Usage(format!("which layer of {name}? It has {}", modules())));
    };
    let matches = |c: &&&Call| *c.module == **wanted || c.module.ends_with(&format!(".{wanted}"));
    let Some(call) = products.iter().find(matches) else {
        return Err(Error::Usage(format!("{name} has no product in a layer `{wanted}`; it has {}", modules())));
    };
    let Operands::Product { a, b, bias, alpha, beta, .. } = call.operands else {
        return Err(Error::Usage(format!("{wanted} is no product")));
    };
    if call.scales.is_some() {
        let why = format!("{wanted}: no library call takes a weight of {}; leave --weight-dtype away", b.dtype);
        return Err(Error::Usage(why));
    }
    let module = call.module.to_string();
    let title = format!("{name} {module}, {} times", call.count);
    let subject = Subject { op: call.op.name().into(), a, b, bias, alpha, beta, frozen: false, module };
    Ok((title, subject))
}
