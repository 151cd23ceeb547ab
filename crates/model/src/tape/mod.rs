//! Tensors without data: operations on views, the products they issue, and a tape to replay them
//! backwards for the gradients.
//!
//! The functions are PyTorch's, with PyTorch's names and PyTorch's layouts; a block of a model is
//! written with them as its authors wrote it.

mod backward;

use backward::{Back, Node};
use gemwright_core::{Attention, Call, Collective, CollectiveKind, Convolution, DType, Op, Operands, Pass, View};
use std::sync::Arc;

/// A tensor on the tape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Var(usize);

struct Slot {
    view: View,
    needs_grad: bool,
}

/// Records what a block issues.
pub struct Tape {
    slots: Vec<Slot>,
    nodes: Vec<Node>,
    calls: Vec<Call>,
    collectives: Vec<Collective>,
    training: bool,
    module: Arc<str>,
    inside: bool,
    /// How often what is issued now runs.
    times: u64,
}

impl Tape {
    /// An empty tape; one that trains remembers how to go backwards.
    pub fn new(training: bool) -> Tape {
        // A layer makes a hundred tensors or so.
        let slots = Vec::with_capacity(128);
        let calls = Vec::with_capacity(16);
        Tape { slots, nodes: vec![], calls, collectives: vec![], training, module: "".into(), inside: false, times: 1 }
    }

    /// The calls issued so far, in order.
    pub fn calls(&self) -> &[Call] {
        &self.calls
    }

    /// What ranks exchange so far, in order.
    pub fn collectives(&self) -> &[Collective] {
        &self.collectives
    }

    /// Names the module that issues what follows; numbers in the path become `*`.
    pub fn enter(&mut self, module: &Arc<str>) {
        let is_number = |part: &str| part.bytes().all(|c| c.is_ascii_digit()) && !part.is_empty();
        self.module = match module.split('.').any(is_number) {
            true => module
                .split('.')
                .map(|part| if is_number(part) { "*" } else { part })
                .collect::<Vec<_>>()
                .join(".")
                .into(),
            false => module.clone(),
        };
    }

    /// What `body` issues runs `times` times, on tensors that look alike.
    pub fn repeated<T>(&mut self, times: i64, body: impl FnOnce(&mut Tape) -> T) -> T {
        self.times = times as u64;
        let out = body(self);
        self.times = 1;
        out
    }

    /// What a tensor looks like.
    pub fn view(&self, x: Var) -> View {
        self.slots[x.0].view
    }

    /// Extent of dimension `d`.
    pub fn size(&self, x: Var, d: usize) -> i64 {
        self.slots[x.0].view.size[d]
    }

    fn slot(&mut self, view: View, needs_grad: bool) -> Var {
        self.slots.push(Slot { view, needs_grad });
        Var(self.slots.len() - 1)
    }

    /// A tensor that comes from outside: an activation (its gradient is wanted) or a parameter.
    pub fn input(&mut self, view: View) -> Var {
        self.slot(view, self.training)
    }

    /// A tensor without a gradient: a mask, a table of angles.
    pub fn constant(&mut self, view: View) -> Var {
        self.slot(view, false)
    }

    fn record(&mut self, inputs: &[Var], view: View, back: Back) -> Var {
        let needs_grad = inputs.iter().any(|x| self.slots[x.0].needs_grad);
        let out = self.slot(view, needs_grad);
        if needs_grad {
            self.push_node(inputs, vec![out], back);
        }
        out
    }

    fn push_node(&mut self, inputs: &[Var], outputs: Vec<Var>, back: Back) {
        let (module, inside, times) = (self.module.clone(), self.inside, self.times);
        self.nodes.push(Node { inputs: inputs.to_vec(), outputs, back, module, inside, times });
    }

    // Views: no data moves. ----------------------------------------------------------------------

    /// Dimensions `p` and `q` exchanged.
    pub fn transpose(&mut self, x: Var, p: usize, q: usize) -> Var {
        let view = self.view(x).transpose(p, q);
        self.record(&[x], view, Back::Transpose(p, q))
    }

    /// `size` over the same memory if PyTorch finds strides for it, else over a row-major copy.
    pub fn reshape(&mut self, x: Var, size: &[i64]) -> Var {
        let (view, _) = self.view(x).reshape(size);
        self.record(&[x], view, Back::Reshape)
    }

    /// A new dimension of size 1.
    pub fn unsqueeze(&mut self, x: Var, d: usize) -> Var {
        let view = self.view(x).unsqueeze(d);
        self.record(&[x], view, Back::Unsqueeze(d))
    }

    /// Dimensions of size 1 repeated.
    pub fn expand(&mut self, x: Var, size: &[i64]) -> Var {
        let view = self.view(x).expand(size);
        self.record(&[x], view, Back::SumTo)
    }

    /// `length` positions of dimension `d`.
    pub fn narrow(&mut self, x: Var, d: usize, length: i64) -> Var {
        let view = self.view(x).narrow(d, length);
        self.record(&[x], view, Back::Fill)
    }

    /// Every second position of the last dimension.
    pub fn every_second(&mut self, x: Var) -> Var {
        let view = self.view(x);
        let view = view.every(view.rank() - 1, 2);
        self.record(&[x], view, Back::Fill)
    }

    /// One position of dimension `d`.
    pub fn select(&mut self, x: Var, d: usize) -> Var {
        let view = self.view(x).select(d);
        self.record(&[x], view, Back::Fill)
    }

    /// One position of dimension `d` by a list of one index, which copies and keeps the dimension.
    pub fn index(&mut self, x: Var, d: usize) -> Var {
        let view = self.view(x);
        let mut picked = view.narrow(d, 1);
        picked.stride[d] = 0;
        self.record(&[x], View::pointwise(&[picked], true), Back::Fill)
    }

    /// Pieces of dimension `d`, one after the other.
    pub fn split(&mut self, x: Var, d: usize, lengths: &[i64]) -> Vec<Var> {
        let needs_grad = self.slots[x.0].needs_grad;
        let view = self.view(x);
        let pieces: Vec<Var> = lengths.iter().map(|n| self.slot(view.narrow(d, *n), needs_grad)).collect();
        if needs_grad {
            self.push_node(&[x], pieces.clone(), Back::Fill);
        }
        pieces
    }

    // Copies. ------------------------------------------------------------------------------------

    /// Tensors one after the other along dimension `d`.
    pub fn cat(&mut self, pieces: &[Var], d: usize) -> Var {
        let first = self.view(pieces[0]);
        let length = pieces.iter().map(|x| self.size(*x, d)).sum();
        let view = View::contiguous(&first.size.set(d, length), first.dtype);
        self.record(pieces, view, Back::Narrow(d))
    }

    /// Positions repeated by a copy: a row-major tensor of `size`.
    pub fn repeat(&mut self, x: Var, size: &[i64]) -> Var {
        let view = View::contiguous(size, self.view(x).dtype);
        self.record(&[x], view, Back::SumTo)
    }

    /// A row-major copy; nothing where it is row-major already.
    pub fn contiguous(&mut self, x: Var) -> Var {
        let view = self.view(x);
        if view.is_contiguous() {
            return x;
        }
        self.record(&[x], View::contiguous(&view.size, view.dtype), Back::Same)
    }

    /// Another element type; nothing where it is that already.
    pub fn cast(&mut self, x: Var, dtype: DType) -> Var {
        let view = self.view(x);
        if view.dtype == dtype {
            return x;
        }
        self.record(&[x], view.like().with_dtype(dtype), Back::Same)
    }

    // Pointwise operations and reductions. ---------------------------------------------------------

    /// A function of each element whose derivative needs the element.
    pub fn map(&mut self, x: Var) -> Var {
        let view = View::pointwise(&[self.view(x)], false);
        self.record(&[x], view, Back::TimesInput)
    }

    /// The negative.
    pub fn neg(&mut self, x: Var) -> Var {
        let view = View::pointwise(&[self.view(x)], false);
        self.record(&[x], view, Back::Scaled)
    }

    /// Times, or plus, a number.
    pub fn scale(&mut self, x: Var) -> Var {
        let view = View::pointwise(&[self.view(x)], true);
        self.record(&[x], view, Back::Scaled)
    }

    /// x · y, the smaller one repeated.
    pub fn mul(&mut self, x: Var, y: Var) -> Var {
        let view = View::pointwise(&[self.view(x), self.view(y)], false);
        self.record(&[x, y], view, Back::TimesOther)
    }

    /// x + y, the smaller one repeated.
    pub fn add(&mut self, x: Var, y: Var) -> Var {
        let view = View::pointwise(&[self.view(x), self.view(y)], false);
        self.record(&[x, y], view, Back::SumTo)
    }

    /// The mean over the last dimension, which stays with size 1.
    pub fn mean(&mut self, x: Var) -> Var {
        let view = self.view(x);
        let size = view.size.set(view.rank() - 1, 1);
        self.record(&[x], View::contiguous(&size, view.dtype), Back::Spread)
    }

    /// The mean of each image of \[images, channels, height, width\]: \[images, channels\].
    pub fn mean_of_images(&mut self, x: Var) -> Var {
        let view = self.view(x);
        self.record(&[x], View::contiguous(&view.size[..2], view.dtype), Back::SpreadOverImages)
    }

    /// A row-major tensor of `size` made from others, whose gradients are made row-major too: rows
    /// gathered, or weighed and added up.
    pub fn gather(&mut self, inputs: &[Var], size: &[i64]) -> Var {
        let view = View::contiguous(size, self.view(inputs[0]).dtype);
        self.record(inputs, view, Back::Fill)
    }

    /// A kernel over rows that writes row-major, forward and backward: layer norm, softmax.
    pub fn rows(&mut self, x: Var, dtype: DType) -> Var {
        let view = View::contiguous(&self.view(x).size, dtype);
        self.record(&[x], view, Back::Fill)
    }

    // Products. ------------------------------------------------------------------------------------

    fn issue(&mut self, op: Op, pass: Pass, operands: Operands) {
        let (module, inside) = (self.module.clone(), self.inside);
        self.calls.push(Call { op, pass, module, operands, scales: None, inside, count: self.times, measured: None });
    }

    /// Says that the weight of the last call is stored in fewer bits, with these factors.
    pub fn scaled_weight(&mut self, scales: View) {
        if let Some(call) = self.calls.last_mut() {
            call.scales = Some(scales);
        }
    }

    // Exchanges between ranks. ---------------------------------------------------------------------

    fn exchange(&mut self, kind: CollectiveKind, pass: Pass, bytes: u128) {
        let (module, count) = (self.module.clone(), self.times);
        self.collectives.push(Collective { kind, pass, module, bytes, count });
    }

    /// The sum of what every rank has; its gradient is every rank's.
    pub fn all_reduce(&mut self, x: Var) -> Var {
        let view = self.view(x);
        self.exchange(CollectiveKind::AllReduce, Pass::Forward, view.bytes());
        self.record(&[x], view, Back::Same)
    }

    /// The same on every rank; its gradient is the sum of theirs.
    pub fn each_rank(&mut self, x: Var) -> Var {
        let view = self.view(x);
        self.record(&[x], view, Back::AllReduce)
    }

    /// The whole of what `ranks` ranks have a slice of; here only its size is of interest.
    pub fn all_gather(&mut self, x: Var, ranks: i64) {
        let bytes = self.view(x).bytes() * ranks as u128;
        self.exchange(CollectiveKind::AllGather, Pass::Forward, bytes);
    }

    fn product(&mut self, op: Op, pass: Pass, a: View, b: View, addend: Option<Addend>) -> View {
        let mut size = a.size;
        let last = size.len() - 1;
        size[last] = b.size[last];
        let out = View::contiguous(&size, a.dtype);
        let (bias, alpha, beta) = addend.map_or((None, 1.0, 1.0), |x| (Some(x.view), x.alpha, x.beta));
        self.issue(op, pass, Operands::Product { a, b, bias, out, alpha, beta });
        out
    }

    /// a · b of two matrices.
    pub fn mm(&mut self, a: Var, b: Var) -> Var {
        let out = self.product(Op::Mm, Pass::Forward, self.view(a), self.view(b), None);
        self.record(&[a, b], out, Back::Matrix { second_first: true })
    }

    /// bias + a · b of two matrices.
    pub fn addmm(&mut self, bias: Var, a: Var, b: Var) -> Var {
        let addend = Addend { view: self.view(bias), alpha: 1.0, beta: 1.0 };
        let out = self.product(Op::Addmm, Pass::Forward, self.view(a), self.view(b), Some(addend));
        self.record(&[a, b], out, Back::Matrix { second_first: false })
    }

    /// a · b of a batch of matrices.
    pub fn bmm(&mut self, a: Var, b: Var) -> Var {
        let out = self.product(Op::Bmm, Pass::Forward, self.view(a), self.view(b), None);
        self.record(&[a, b], out, Back::Batch { second_first: true })
    }

    /// beta · addend + alpha · a · b of a batch of matrices; the addend has no gradient.
    pub fn baddbmm(&mut self, addend: Addend, a: Var, b: Var) -> Var {
        let out = self.product(Op::Baddbmm, Pass::Forward, self.view(a), self.view(b), Some(addend));
        self.record(&[a, b], out, Back::Batch { second_first: false })
    }

    /// rows\[s, k\] · weights\[groups, k, n\], each row with its group's matrix. The result's rows start
    /// on 16 bytes.
    pub fn grouped_mm(&mut self, rows: Var, weights: Var, touched: f64) -> Var {
        let (a, b) = (self.view(rows), self.view(weights));
        let out = self.grouped(Pass::Forward, a, b, b.size[0], touched);
        self.record(&[rows, weights], out, Back::Grouped { touched })
    }

    fn grouped(&mut self, pass: Pass, a: View, b: View, groups: i64, touched: f64) -> View {
        let (m, n) = (a.size[0], b.size[b.rank() - 1]);
        let wide = 16 / a.dtype.bytes() as i64;
        let row = (n + wide - 1) / wide * wide;
        let out = match b.rank() {
            3 => View::strided(&[m, n], &[row, 1], a.dtype),
            _ => View::strided(&[groups, m, n], &[m * row, row, 1], a.dtype),
        };
        let offs = View::contiguous(&[groups], DType::I32);
        self.issue(Op::GroupedMm, pass, Operands::Grouped { a, b, out, offs, touched });
        out
    }

    /// `torch.matmul` of two tensors with as many dimensions, at least three: one bmm over the
    /// repeated leading dimensions.
    pub fn matmul(&mut self, a: Var, b: Var) -> Var {
        let (left, right) = (self.view(a), self.view(b));
        let last = left.rank() - 1;
        let lead: Vec<i64> = (0..last - 1).map(|d| left.size[d].max(right.size[d])).collect();
        let batch: i64 = lead.iter().product();
        let folded = |tape: &mut Tape, x: Var, view: View| {
            let (rows, columns) = (view.size[last - 1], view.size[last]);
            let x = tape.expand(x, &[&lead[..], &[rows, columns]].concat());
            tape.reshape(x, &[batch, rows, columns])
        };
        let (a, b) = (folded(self, a, left), folded(self, b, right));
        let out = self.bmm(a, b);
        self.reshape(out, &[&lead[..], &[left.size[last - 1], right.size[last]]].concat())
    }

    /// A convolution; `out` of its operands is filled in here.
    pub fn convolution(&mut self, input: Var, weight: Var, bias: Option<Var>, operands: Convolution) -> Var {
        let convolution = Convolution { out: operands.result(), ..operands };
        self.issue(Op::Convolution, Pass::Forward, Operands::Convolution(convolution));
        let inputs: Vec<Var> = [input, weight].into_iter().chain(bias).collect();
        self.record(&inputs, convolution.out, Back::Convolution(convolution))
    }

    /// Attention in a fused kernel, whose results are laid out like its operands seen as
    /// \[batch, sequence, heads, dim\].
    pub fn fused_attention(&mut self, q: Var, k: Var, v: Var, attention: Attention) -> Var {
        self.issue(Op::Attention, Pass::Forward, Operands::Attention(attention));
        self.record(&[q, k, v], attention.out, Back::Attention(attention))
    }

    /// Issues a decomposed attention call and marks what `body` issues as its inside.
    pub fn decomposed_attention(&mut self, attention: Attention, body: impl FnOnce(&mut Tape) -> Var) -> Var {
        self.issue(Op::Attention, Pass::Forward, Operands::Attention(attention));
        self.inside = true;
        let out = body(self);
        self.inside = false;
        self.record(&[out], self.view(out), Back::Announce(attention))
    }
}

/// The addend of a product, with its factors.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub struct Addend {
    pub view: View,
    pub alpha: f64,
    pub beta: f64,
}
