//! The tape replayed backwards: the layout of every gradient, and the products it takes.

use super::{Tape, Var};
use gemwright_core::{
    Attention, CollectiveKind, Convolution, GradientProduct, Op, Operands, Pass, View, batch_gradients,
    grouped_gradients, matrix_gradients,
};
use std::sync::Arc;

/// How the gradient of a result becomes the gradients of what it was made of.
pub(super) enum Back {
    /// Exchange the dimensions back.
    Transpose(usize, usize),
    /// The input's own sizes, by a view or a copy.
    Reshape,
    /// Take the dimension away again.
    Unsqueeze(usize),
    /// The gradient as it is.
    Same,
    /// The sum of every rank's gradient.
    AllReduce,
    /// Added up over repeated dimensions; as it is where there are none.
    SumTo,
    /// A new row-major tensor of the input's sizes: zeros filled in, or a kernel's result.
    Fill,
    /// A piece for each input along a dimension.
    Narrow(usize),
    /// gradient · f'(input).
    TimesInput,
    /// gradient · the other input, added up over repeated dimensions.
    TimesOther,
    /// gradient · number.
    Scaled,
    /// Repeated over the last dimension, times a number.
    Spread,
    /// Repeated over height and width, times a number.
    SpreadOverImages,
    /// Two products.
    Matrix { second_first: bool },
    /// Two batched products.
    Batch { second_first: bool },
    /// Two grouped products.
    Grouped { touched: f64 },
    /// The gradients of a convolution's input, weight and bias.
    Convolution(Convolution),
    /// A fused attention kernel's backward.
    Attention(Attention),
    /// A decomposed attention's backward begins here; its products follow.
    Announce(Attention),
}

pub(super) struct Node {
    pub inputs: Vec<Var>,
    pub outputs: Vec<Var>,
    pub back: Back,
    pub module: Arc<str>,
    pub inside: bool,
    pub times: u64,
}

/// The gradients found so far, one place a tensor.
struct Gradients(Vec<Option<View>>);

impl Gradients {
    fn add(&mut self, x: Var, gradient: View) {
        let place = &mut self.0[x.0];
        *place = Some(match *place {
            None => gradient,
            Some(earlier) => View::pointwise(&[earlier, gradient], false),
        });
    }
}

/// Added up over the dimensions that were repeated to get from `size` to the gradient's.
fn sum_to(gradient: View, input: &View) -> View {
    if gradient.size == input.size { gradient } else { View::contiguous(&input.size, gradient.dtype) }
}

impl Tape {
    /// Replays everything from `output`, whose gradient is `gradient`, back to `input`; gives the
    /// gradient of `input`, or `None` where nothing of it reaches `output`.
    pub fn backward(&mut self, output: Var, gradient: View, input: Var) -> Option<View> {
        let mut gradients = Gradients(vec![None; self.slots.len()]);
        gradients.add(output, gradient);
        for node in std::mem::take(&mut self.nodes).into_iter().rev() {
            let arrived: Vec<View> = node.outputs.iter().filter_map(|x| gradients.0[x.0]).collect();
            let Some(first) = arrived.first() else { continue };
            self.module = node.module.clone();
            self.inside = node.inside;
            self.times = node.times;
            for (x, gradient) in self.step(&node, *first) {
                let slot = &self.slots[x.0];
                if slot.needs_grad {
                    // The engine hands on a gradient of the input's own element type.
                    let cast = gradient.dtype != slot.view.dtype;
                    let gradient = if cast { gradient.like().with_dtype(slot.view.dtype) } else { gradient };
                    gradients.add(x, gradient);
                }
            }
        }
        (self.inside, self.times) = (false, 1);
        gradients.0[input.0]
    }

    fn step(&mut self, node: &Node, g: View) -> Vec<(Var, View)> {
        let input = |i: usize| self.slots[node.inputs[i].0].view;
        let one = |view: View| vec![(node.inputs[0], view)];
        match &node.back {
            Back::Transpose(p, q) => one(g.transpose(*p, *q)),
            Back::Reshape => one(g.reshape(&input(0).size).0),
            Back::Unsqueeze(d) => one(g.select(*d)),
            Back::Same => one(g),
            Back::AllReduce => {
                let to = one(g);
                self.exchange(CollectiveKind::AllReduce, Pass::Grad, g.bytes());
                to
            }
            Back::SumTo => (0..node.inputs.len()).map(|i| (node.inputs[i], sum_to(g, &input(i)))).collect(),
            Back::Fill => {
                let filled = |x: &Var| (*x, View::contiguous(&self.view(*x).size, self.view(*x).dtype));
                node.inputs.iter().map(filled).collect()
            }
            Back::Narrow(d) => {
                (0..node.inputs.len()).map(|i| (node.inputs[i], g.narrow(*d, input(i).size[*d]))).collect()
            }
            Back::TimesInput => one(View::pointwise(&[g, input(0)], false)),
            Back::TimesOther => (0..2)
                .map(|i| (node.inputs[i], sum_to(View::pointwise(&[g, input(1 - i)], false), &input(i))))
                .collect(),
            Back::Scaled => one(View::pointwise(&[g], true)),
            Back::Spread => one(View::pointwise(&[g.expand(&input(0).size)], true)),
            Back::SpreadOverImages => {
                let spread = g.unsqueeze(2).unsqueeze(3).expand(&input(0).size);
                one(View::pointwise(&[spread], true))
            }
            Back::Matrix { second_first } => {
                let gradients = matrix_gradients(&input(0), &input(1), &g);
                self.product_backward(node, Op::Mm, gradients, *second_first)
            }
            Back::Batch { second_first } => {
                let gradients = batch_gradients(&input(0), &input(1), &g);
                self.product_backward(node, Op::Bmm, gradients, *second_first)
            }
            Back::Grouped { touched } => {
                let groups = input(1).size[0];
                let gradients = grouped_gradients(&input(0), &input(1), &g);
                // The weights' gradient comes first.
                [1, 0]
                    .map(|i| {
                        let GradientProduct { first, second, transposed } = gradients[i];
                        let out = self.grouped(Pass::Grad, first, second, groups, *touched);
                        (node.inputs[i], if transposed { out.t() } else { out })
                    })
                    .to_vec()
            }
            Back::Convolution(convolution) => {
                let wanted = [0, 1, 2].map(|i| node.inputs.get(i).is_some_and(|x| self.slots[x.0].needs_grad));
                let backward = Convolution { out: g, wanted, ..*convolution };
                self.issue(Op::ConvolutionBackward, Pass::Grad, Operands::Convolution(backward));
                let gradients = node.inputs.iter().zip(backward.gradients());
                gradients.filter_map(|(x, gradient)| Some((*x, gradient?))).collect()
            }
            Back::Attention(attention) => {
                self.issue(Op::AttentionBackward, Pass::Grad, Operands::Attention(*attention));
                let like = |x: View| x.transpose(1, 2).like().transpose(1, 2);
                node.inputs.iter().map(|x| (*x, like(self.slots[x.0].view))).collect()
            }
            Back::Announce(attention) => {
                self.issue(Op::AttentionBackward, Pass::Grad, Operands::Attention(*attention));
                one(g)
            }
        }
    }

    /// The products of those operands that have a gradient, in the order PyTorch runs them.
    fn product_backward(
        &mut self,
        node: &Node,
        op: Op,
        gradients: [GradientProduct; 2],
        second_first: bool,
    ) -> Vec<(Var, View)> {
        let order = if second_first { [1, 0] } else { [0, 1] };
        let wanted = order.into_iter().filter(|i| self.slots[node.inputs[*i].0].needs_grad);
        wanted
            .collect::<Vec<_>>()
            .into_iter()
            .map(|i| {
                let GradientProduct { first, second, transposed } = gradients[i];
                let out = self.product(op, Pass::Grad, first, second, None);
                (node.inputs[i], if transposed { out.t() } else { out })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gemwright_core::{DType, Dims};

    fn strides(tape: &Tape) -> Vec<(Op, Dims, Dims)> {
        let of = |call: &gemwright_core::Call| match call.operands {
            Operands::Product { a, b, .. } => (call.op, a.stride, b.stride),
            _ => unreachable!("only plain products here"),
        };
        tape.calls().iter().map(of).collect()
    }

    #[test]
    fn a_linear_layer_gives_its_weight_gradient_first_and_transposed() {
        let mut tape = Tape::new(true);
        let x = tape.input(View::contiguous(&[6, 4], DType::Bf16));
        let w = tape.input(View::contiguous(&[5, 4], DType::Bf16).t());
        let y = tape.mm(x, w);
        let gradient = View::contiguous(&[6, 5], DType::Bf16);
        assert_eq!(tape.backward(y, gradient, x), Some(View::contiguous(&[6, 4], DType::Bf16)));
        let dims = |a: [i64; 2]| Dims::new(&a);
        assert_eq!(
            strides(&tape),
            [
                (Op::Mm, dims([4, 1]), dims([1, 4])),
                (Op::Mm, dims([1, 5]), dims([4, 1])),
                (Op::Mm, dims([5, 1]), dims([4, 1]))
            ]
        );
    }

    #[test]
    fn what_does_not_reach_the_output_has_no_gradient() {
        let mut tape = Tape::new(true);
        let x = tape.input(View::contiguous(&[2, 2], DType::F32));
        let y = tape.input(View::contiguous(&[2, 2], DType::F32));
        let z = tape.map(x);
        assert_eq!(tape.backward(z, View::contiguous(&[2, 2], DType::F32), y), None);
    }
}
