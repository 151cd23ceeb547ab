//! Captured graphs: their kernels given to the products of the other side.

use crate::comparison::{Comparison, How, Replays, Unmatched};
use crate::fit::Work;
use crate::key::Key;
use crate::replay::{Match, matches, works};
use crate::seen::Seen;
use gemwright_core::{Call, Launched, LaunchedKernel, Measured, MeasuredKernel, Workload};
use std::collections::HashMap;

/// Launches that are played back without the operations that were captured, and kernels whose launch
/// was not recorded at all.
fn is_graph(launched: &Launched) -> bool {
    launched.by.contains("GraphLaunch") || &*launched.by == "(unlinked)"
}

/// All graphs that were replayed equally often: together they make up one step.
struct Step {
    side: usize,
    /// Replays, over which the kernels' times are added up.
    count: u64,
    kernels: Vec<LaunchedKernel>,
    works: Vec<Work>,
}

impl Step {
    /// Of the graphs on which most time was spent.
    fn of(side: usize, own: &Workload) -> Step {
        let time = |l: &&Launched| l.kernels.iter().map(|k| k.nanoseconds).sum::<u64>();
        let longest = own.launched.iter().filter(|l| is_graph(l)).max_by_key(time);
        let count = longest.map_or(0, |l| l.count);
        let graphs = own.launched.iter().filter(|l| is_graph(l) && l.count == count);
        let kernels: Vec<LaunchedKernel> = graphs.flat_map(|l| l.kernels.iter().cloned()).collect();
        Step { side, count, works: works(&kernels), kernels }
    }

    fn holds(&self, launched: &Launched) -> bool {
        is_graph(launched) && launched.count == self.count
    }

    /// What one replay of a piece of work took.
    fn measured(&self, work: &Work) -> Measured {
        let mut measured = Measured::default();
        for kernel in work.kernels.iter().map(|k| &self.kernels[*k]) {
            let once =
                MeasuredKernel { nanoseconds: kernel.nanoseconds / self.count, count: 1, name: kernel.name.clone() };
            measured.join(&Measured { nanoseconds: once.nanoseconds, launches: 1, kernels: vec![once] });
        }
        measured
    }
}

impl Comparison {
    /// Gives the kernels of `side` that belong to no call to the products of the other side, whose
    /// calls are the products `which`.
    pub(crate) fn match_graphs(&mut self, side: usize, workloads: [&Workload; 2], which: &[usize]) {
        let (own, other) = (workloads[side], workloads[1 - side]);
        let step = Step::of(side, own);
        for launched in own.launched.iter().filter(|l| !step.holds(l)) {
            if self.match_template(side, launched) {
                continue;
            }
            let why = if is_graph(launched) { "another graph" } else { "an operation without a rule" };
            self.leave_launched(side, &launched.kernels, launched.count, why);
        }
        let leave_step = |own: &mut Comparison, why| own.leave_launched(side, &step.kernels, step.count, why);
        if step.works.is_empty() {
            return leave_step(self, "no product fits");
        }
        let Some(order) = other.order() else {
            return leave_step(self, "a graph, and the other side's order is not known");
        };
        let tried = |order: &[u32], times: u64| {
            let found = matches(other.calls(), order, which, &step.works, times as usize)?;
            let certain = found.iter().filter(|m| matches!(m, Match::Call(_))).count();
            Some((certain as f64 / (order.len() + found.len()) as f64, times, found))
        };
        // Each replay is all of the other side, or all replays are what calls do not show of it.
        let each = tried(order, 1);
        let together = if step.count > 1 { tried(&self.not_called(side, other, order), step.count) } else { None };
        let best = [each, together].into_iter().flatten().max_by(|x, y| x.0.total_cmp(&y.0).then(y.1.cmp(&x.1)));
        let Some((_, times, found)) = best else {
            return leave_step(self, "a graph too long to lay beside the other side");
        };
        if times == 1 && step.count > 1 {
            self.replays = Some(Replays { side, count: step.count });
            self.rows.iter_mut().filter_map(|row| row.sides[side].as_mut()).for_each(|seen| seen.divide(step.count));
        }
        self.assign(other, &step, &found);
    }

    /// A product that a compiler wrote as a kernel of its own, `triton_tem_fused_addmm_3`, is the one product
    /// that `side` lacks, has such an operation and is issued as often; `false` where that is not one.
    fn match_template(&mut self, side: usize, launched: &Launched) -> bool {
        let (Some(words), [kernel]) = (launched.by.strip_prefix("triton_tem_fused_"), launched.kernels.as_slice())
        else {
            return false;
        };
        let mut words = words.split('_');
        let Some(op) = words.find(|word| ["mm", "addmm", "bmm", "baddbmm"].contains(word)) else { return false };
        let lacks = |row: &crate::Row| {
            let other = row.sides[1 - side].as_ref().filter(|_| row.sides[side].is_none());
            other.is_some_and(|seen| {
                seen.call.count == launched.count && seen.call.op.name().trim_start_matches("aten::") == op
            })
        };
        let mut fitting = (0..self.rows.len()).filter(|i| lacks(&self.rows[*i]));
        let (Some(place), None) = (fitting.next(), fitting.next()) else { return false };
        let row = &mut self.rows[place];
        let Some(other) = &row.sides[1 - side] else { return false };
        let once = MeasuredKernel { name: kernel.name.clone(), nanoseconds: kernel.nanoseconds, count: launched.count };
        let measured = Measured { nanoseconds: kernel.nanoseconds, launches: launched.count, kernels: vec![once] };
        let call = Call { measured: Some(Box::new(measured)), ..other.call.clone() };
        row.sides[side] = Some(Seen { call, modules: Vec::new() });
        row.how = How::Relaid;
        true
    }

    /// The other side's single calls that `side` does not show as calls of its own.
    fn not_called(&self, side: usize, other: &Workload, order: &[u32]) -> Vec<u32> {
        let mut shown: HashMap<Key, u64> = HashMap::new();
        for row in &self.rows {
            if let (Some(seen), Some(same)) = (&row.sides[side], &row.sides[1 - side]) {
                *shown.entry(Key::of(&same.call)).or_default() += seen.call.count;
            }
        }
        let keys: Vec<Key> = other.calls().iter().map(Key::of).collect();
        let is_left = |at: &&u32| match shown.get_mut(&keys[**at as usize]) {
            Some(count) if *count > 0 => {
                *count -= 1;
                false
            }
            _ => true,
        };
        order.iter().filter(is_left).copied().collect()
    }

    /// Adds each piece of work to the row of its call.
    fn assign(&mut self, other: &Workload, step: &Step, found: &[Match]) {
        let theirs = 1 - step.side;
        let place = |(i, row): (usize, &crate::Row)| row.sides[theirs].as_ref().map(|seen| (Key::of(&seen.call), i));
        let places: HashMap<Key, usize> = self.rows.iter().enumerate().filter_map(place).collect();
        for (work, found) in step.works.iter().cycle().zip(found) {
            let measured = step.measured(work);
            let row = match found {
                Match::Call(at) => places.get(&Key::of(&other.calls()[*at])).map(|row| &mut self.rows[*row]),
                _ => None,
            };
            let Some((row, call)) =
                row.and_then(|row| row.sides[theirs].as_ref().map(|s| s.call.clone()).map(|c| (row, c)))
            else {
                let why = if *found == Match::Ambiguous { "more than one product fits" } else { "no product fits" };
                self.leave(step.side, &measured.kernels, why);
                continue;
            };
            let none = Seen { call: Call { count: 0, measured: None, ..call }, modules: Vec::new() };
            let seen = row.sides[step.side].get_or_insert(none);
            seen.call.count += 1;
            seen.measure(&measured);
            row.how = How::Replayed;
        }
    }

    fn leave_launched(&mut self, side: usize, kernels: &[LaunchedKernel], count: u64, why: &'static str) {
        let measured = |k: &LaunchedKernel| MeasuredKernel { name: k.name.clone(), nanoseconds: k.nanoseconds, count };
        let kernels: Vec<MeasuredKernel> = kernels.iter().map(measured).collect();
        self.leave(side, &kernels, why);
    }

    /// Lists kernels that belong to no product.
    fn leave(&mut self, side: usize, kernels: &[MeasuredKernel], why: &'static str) {
        for MeasuredKernel { name, nanoseconds, count } in kernels {
            match self.unmatched.iter_mut().find(|u| u.side == side && u.name == *name && u.why == why) {
                Some(known) => {
                    known.count += count;
                    known.nanoseconds += nanoseconds;
                }
                None => self.unmatched.push(Unmatched {
                    side,
                    name: name.clone(),
                    why,
                    count: *count,
                    nanoseconds: *nanoseconds,
                }),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gemwright_core::{DType, Op, Operands, View};

    fn linear(op: Op, n: i64, count: u64) -> Call {
        let view = |rows: i64, cols: i64| View::contiguous(&[rows, cols], DType::Bf16);
        let bias = (op == Op::Addmm).then(|| View::contiguous(&[n], DType::Bf16));
        let operands =
            Operands::Product { a: view(64, 32), b: view(32, n), bias, out: view(64, n), alpha: 1.0, beta: 1.0 };
        Call { count, ..Call::once(op, operands) }
    }

    fn template(name: &str, count: u64) -> Launched {
        let kernel = LaunchedKernel { name: name.into(), grid: None, nanoseconds: 500 };
        Launched { by: name.into(), count, kernels: vec![kernel] }
    }

    #[test]
    fn a_compilers_own_kernel_is_the_one_product_that_is_lacking() {
        let (mut model, mut trace) = (Workload::default(), Workload::default());
        for call in [linear(Op::Mm, 16, 4), linear(Op::Addmm, 24, 4), linear(Op::Mm, 40, 2)] {
            model.push(&call);
        }
        trace.launched = vec![template("triton_tem_fused_addmm_gelu_3", 4), template("triton_tem_fused_mm_1", 2)];
        let found = Comparison::of([&model, &trace]);
        assert_eq!(found.differences().count(), 1);
        assert!(found.unmatched.is_empty());
        // Two products that it could be: it is neither.
        model.push(&linear(Op::Addmm, 48, 4));
        let found = Comparison::of([&model, &trace]);
        assert_eq!((found.unmatched.len(), found.unmatched[0].nanoseconds), (1, 500));
        assert_eq!(found.differences().count(), 3);
    }
}
