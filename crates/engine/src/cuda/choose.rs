//! Which of our kernels a problem gets: the one whose predicted time is least.

use crate::problem::Problem;
use gemwright_core::{KernelChip, KernelChoice};
use gemwright_cuda::Properties;

/// Kernels for a problem with their predicted seconds, fastest first.
pub fn choices(problem: &Problem, device: &Properties) -> Vec<(KernelChoice, f64)> {
    let chip = KernelChip::hopper(u64::from(device.multiprocessors));
    let turned = [problem.a.col != 1 && problem.product.k > 1, problem.b.row != 1 && problem.product.k > 1];
    let direct = problem.out.row % (16 / problem.out_dtype.bytes() as i64) != 0;
    let mut all: Vec<(KernelChoice, f64)> = KernelChoice::all()
        .map(|choice| (choice, choice.seconds(&problem.product, turned, &chip)))
        // What is written element by element may go by any tile; f32 is not turned.
        .filter(|(choice, _)| direct || !choice.turned || problem.out_dtype.bytes() == 2)
        .collect();
    all.sort_by(|(_, x), (_, y)| x.total_cmp(y));
    all
}

/// The fastest by prediction.
pub fn choose(problem: &Problem, device: &Properties) -> Option<KernelChoice> {
    choices(problem, device).first().map(|(choice, _)| *choice)
}
