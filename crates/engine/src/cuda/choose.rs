//! Which of our kernels a problem gets: the one whose predicted time is least, with a preference for few rows.

use super::copies::Copies;
use super::kernel::Kernel;
use super::own::{CONTRACT, config, rows_out};
use super::own_decode::{config as decode_config, few_rows};
use crate::epilogue::Epilogue;
use crate::problem::{Groups, Problem};
use gemwright_core::{Activation, Added, DecodeChoice, Feed, KernelChip, KernelChoice, Product};

/// How a and b lie.
pub fn feeds(problem: &Problem) -> [Feed; 2] {
    let k = problem.product.k;
    let feed = |along_k: i64, step: i64| {
        let bytes = |step: i64| step * problem.dtype.bytes() as i64 / 2;
        if along_k == 1 || k <= 1 { Feed::new(false, bytes(step)) } else { Feed::new(true, bytes(along_k)) }
    };
    [feed(problem.a.col, problem.a.row), feed(problem.b.row, problem.b.col)]
}

/// Kernels for a problem with their predicted seconds, fastest first.
pub fn choices(problem: &Problem, chip: &KernelChip) -> Vec<(KernelChoice, f64)> {
    let copies = Copies::of(&rows_out(problem));
    // What is copied first is read and written once more.
    if copies.refused || (problem.groups != Groups::None && copies.bytes() > 0) {
        return Vec::new();
    }
    let copying = 2.0 * copies.bytes() as f64 / (chip.memory * chip.clock);
    let problem = &copies.problem;
    let direct = problem.out.row % (16 / problem.out_dtype.bytes() as i64) != 0;
    let feeds = feeds(problem);
    let product = likely(problem);
    let extra = epilogue_clocks(&problem.epilogue);
    let mut all: Vec<(KernelChoice, f64)> = KernelChoice::all()
        .filter(|choice| config(problem, choice).is_ok_and(|config| config.check().is_ok()))
        // Where the result is turned by hand it is not worth it.
        .filter(|choice| direct || !choice.turned || problem.out_dtype.bytes() == 2)
        .map(|choice| (choice, choice.seconds(&product, feeds, extra, chip) + copying))
        .filter(|(_, seconds)| seconds.is_finite())
        .collect();
    all.sort_by(|(_, x), (_, y)| x.total_cmp(y));
    all
}

/// The product as the cost model sees it. Groups are a batch: rows go to them by chance, and tiles should be large enough for
/// most of them.
fn likely(problem: &Problem) -> Product {
    // Half the bytes, and twice the products in a clock: e4m3 is 16 bits with half the k.
    let k = if problem.dtype.bytes() == 1 { problem.product.k.div_ceil(2) } else { problem.product.k };
    let p = Product { n: problem.weight_cols(), k, ..problem.product };
    match problem.groups {
        Groups::None => p,
        Groups::Rows(groups) => {
            let mean = p.m as f64 / groups.max(1) as f64;
            Product { batch: groups, m: ((mean + 2.0 * mean.sqrt()).ceil() as u64).min(p.m), ..p }
        }
        Groups::K(groups) => Product { batch: groups, k: p.k.div_ceil(groups.max(1)), ..p },
    }
}

/// Clocks that an epilogue takes for each sum, beside storing it.
fn epilogue_clocks(epilogue: &Epilogue) -> Added {
    let activation = match epilogue.activation {
        Activation::None => 0.0,
        Activation::Relu => 0.02,
        Activation::GeluTanh | Activation::Silu => 0.095,
        Activation::GeluErf => 0.25,
    };
    let parts = epilogue.parts.iter().flatten().map(|part| if part.row == 0 || part.col == 0 { 0.005 } else { 0.15 });
    let kept = if epilogue.kept.is_some() { 0.1 } else { 0.0 };
    // A fit to one gated layer, not a count of what is done (one of two weights' sums is activated, the other brought to it): of
    // ten kernels of ours on SiLU · up of 512 x 14336 x 4096 (`benches/h200-2026-11-19-fourth`) the one that is picked by this
    // is 0.3 % behind the best. Gates with other activations were not measured.
    let after = activation * if epilogue.gated { 2.0 } else { 1.0 } + parts.sum::<f64>() + kept;
    // A fit to twelve kernels of ours on bias and GELU of 8192 x 4096 x 4096 (`benches/h200-2026-11-20`): numbers of columns come
    // through shared memory, those of rows from registers.
    let beside = if epilogue.gated { [0.0; 2] } else { [0.5, 0.25].map(|share| share * after) };
    Added { after, beside }
}

/// Up to 8 rows kernels that stream weights were the fastest of ours on all of 70 products, and with 16 those with rings were,
/// on all of twelve but one, where they were 1 % behind. What tiles take there is predicted too short, so they have to promise
/// so much less.
fn promised(kernel: &Kernel, rows: u64) -> f64 {
    match kernel {
        Kernel::Decode(_) if rows <= 8 => 0.7,
        Kernel::Decode(DecodeChoice::Ring(_)) if rows <= 16 => 0.85,
        _ => 1.0,
    }
}

/// Kernels that stream weights past a few rows, with their predicted seconds, fastest first.
fn few_rows_choices(problem: &Problem, chip: &KernelChip) -> Vec<(DecodeChoice, f64)> {
    let few = few_rows(problem);
    let product = Product { n: few.weight_cols(), ..few.product };
    let mut all: Vec<(DecodeChoice, f64)> = DecodeChoice::all()
        .filter_map(|choice| {
            let config = decode_config(problem, choice).ok()?;
            let (blocks, turns) = (config.blocks().into(), config.turns(few.product.m));
            let product = Product { m: product.m.div_ceil(turns), ..product };
            let seconds = match config.odd_shares(&product, chip.units) {
                None => choice.seconds(&product, few.weight_dtype.bytes(), blocks, chip),
                Some((odd, units)) => {
                    let chip = KernelChip { units, ..*chip };
                    choice.seconds(&odd, few.weight_dtype.bytes(), blocks, &chip)
                        * choice.unevenness(&odd, blocks, &chip)
                }
            };
            Some((choice, seconds * turns as f64))
        })
        .collect();
    all.sort_by(|(_, x), (_, y)| x.total_cmp(y));
    all
}

/// Every kernel of ours for a problem with its predicted seconds, the one that is to be taken first.
pub fn ranked(problem: &Problem, chip: &KernelChip) -> Vec<(Kernel, f64)> {
    if CONTRACT.admits(problem).is_err() {
        return Vec::new();
    }
    let few = few_rows_choices(problem, chip).into_iter().map(|(choice, seconds)| (Kernel::Decode(choice), seconds));
    let rest = choices(problem, chip).into_iter().map(|(choice, seconds)| (Kernel::Hopper(choice), seconds));
    let mut all: Vec<(Kernel, f64)> = few.chain(rest).collect();
    let rows = few_rows(problem).product.m;
    let promised = |(kernel, seconds): &(Kernel, f64)| promised(kernel, rows) * seconds;
    all.sort_by(|x, y| promised(x).total_cmp(&promised(y)));
    all
}

/// The fastest of each schedule by prediction, split-K of any number as one.
pub fn choices_by_schedule(problem: &Problem, chip: &KernelChip) -> Vec<KernelChoice> {
    let mut kinds = Vec::new();
    let mut found = Vec::new();
    for (choice, _) in choices(problem, chip) {
        let kind = std::mem::discriminant(&choice.schedule);
        if !kinds.contains(&kind) {
            kinds.push(kind);
            found.push(choice);
        }
    }
    found
}

/// The one that is to be taken.
pub fn choose(problem: &Problem, chip: &KernelChip) -> Option<Kernel> {
    ranked(problem, chip).first().map(|(kernel, _)| *kernel)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::Scaling;
    use gemwright_core::DType;

    fn first(problem: &Problem) -> String {
        choose(problem, &KernelChip::hopper(132)).unwrap().to_string()
    }

    /// Which kernels are fastest was measured on an H200.
    #[test]
    fn odd_rows_groups_and_small_types_get_what_was_fast() {
        let linear = |m, n, k| Problem::linear(m, n, k, DType::Bf16);
        let odd = |n, k| [1, 4, 8].map(|m| first(&linear(m, n, k)));
        assert!(odd(50_257, 4097).iter().all(|name| ["ring-16x4c256", "ring-16x8c256"].contains(&name.as_str())));
        assert!(odd(128_257, 2047).iter().all(|name| ["ring-16x2c256", "ring-16x16c256"].contains(&name.as_str())));
        let promoted = first(&linear(8192, 8192, 8192).of_eight_bits([Scaling::Tensor; 2], true));
        assert!(["128x128-persistent", "128x128-turned-persistent"].contains(&promoted.as_str()), "{promoted}");
        assert!(first(&linear(16, 6144, 4096)).starts_with("ring-"));
        assert!(first(&linear(16, 4096, 14_336)).ends_with("split-k2"));
        // Weights of 8 bits have rings alone, be there room for all rows of x or not.
        for (m, n, k) in [(1, 22_016, 4096), (16, 4096, 14_336), (13, 8192, 28_672), (32, 4096, 4096)] {
            assert!(first(&linear(m, n, k).with_small_weights(Scaling::Rows)).starts_with("ring-"), "{m} {n} {k}");
        }
        // Experts with a few rows each: whole tiles of blocks that stay, one after the other.
        let experts = first(&linear(1024, 1536, 2048).with_groups_of_rows(128));
        assert!(experts.ends_with("-persistent") && !experts.contains("pair"), "{experts}");
    }
}
