//! One operation a framework issues, and what it costs.

use crate::blas::{Arguments, Backend, BlasCall, Gemm, Leaf, LeafOp, Settings, Step, Trans};
use crate::{DType, Dims, Measured, View};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The ATen operation of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Op {
    Mm,
    Addmm,
    Bmm,
    Baddbmm,
    GroupedMm,
    Convolution,
    ConvolutionBackward,
    Attention,
    AttentionBackward,
}

impl Op {
    /// Every operation.
    pub const ALL: [Op; 9] = [
        Op::Mm,
        Op::Addmm,
        Op::Bmm,
        Op::Baddbmm,
        Op::GroupedMm,
        Op::Convolution,
        Op::ConvolutionBackward,
        Op::Attention,
        Op::AttentionBackward,
    ];

    /// As PyTorch and its profiler write it.
    pub fn name(self) -> &'static str {
        match self {
            Op::Mm => "aten::mm",
            Op::Addmm => "aten::addmm",
            Op::Bmm => "aten::bmm",
            Op::Baddbmm => "aten::baddbmm",
            Op::GroupedMm => "aten::_grouped_mm",
            Op::Convolution => "aten::convolution",
            Op::ConvolutionBackward => "aten::convolution_backward",
            Op::Attention => "aten::scaled_dot_product_attention",
            Op::AttentionBackward => "aten::scaled_dot_product_attention_backward",
        }
    }
}

/// When in a step a call is issued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pass {
    /// The forward pass.
    Forward,
    /// A layer's forward calls issued again in the backward pass (gradient checkpointing).
    Recompute,
    /// The backward pass.
    Grad,
}

impl Pass {
    /// The name used in all output.
    pub fn name(self) -> &'static str {
        match self {
            Pass::Forward => "forward",
            Pass::Recompute => "recompute",
            Pass::Grad => "grad",
        }
    }
}

/// out\[m, n\] = a\[m, k\] · b\[k, n\], `batch` times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub struct Product {
    pub batch: u64,
    pub m: u64,
    pub n: u64,
    pub k: u64,
}

impl Product {
    /// A multiply and an add for each of the batch·m·n·k terms.
    ///
    /// ```
    /// # use gemwright_core::Product;
    /// // up_proj of Llama-2-7B for one token
    /// assert_eq!(Product { batch: 1, m: 1, n: 11008, k: 4096 }.flops(), 90_177_536);
    /// ```
    pub fn flops(&self) -> u128 {
        2 * [self.batch, self.m, self.n, self.k].iter().map(|&x| u128::from(x)).product::<u128>()
    }
}

/// How an attention call runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kernel {
    /// In one fused kernel.
    Fused,
    /// Decomposed: its products are calls of their own, marked `inside`.
    Math,
}

impl Kernel {
    /// The name used in all output.
    pub fn name(self) -> &'static str {
        match self {
            Kernel::Fused => "fused",
            Kernel::Math => "math",
        }
    }
}

/// The operands of attention, as at the boundary of the framework's function.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(missing_docs)]
pub struct Attention {
    /// \[batch, heads, queries, head dim\].
    pub q: View,
    /// \[batch, key heads, keys, head dim\].
    pub k: View,
    /// \[batch, key heads, keys, value dim\].
    pub v: View,
    pub mask: Option<View>,
    /// \[batch, heads, queries, value dim\].
    pub out: View,
    pub is_causal: bool,
    pub enable_gqa: bool,
    /// `None`: the function's own default, 1 / sqrt(head dim).
    pub scale: Option<f64>,
    pub backend: Backend,
}

impl Attention {
    /// The result of attention over queries and values, as every kernel lays it out: like the query
    /// where the values are as wide, heads inside of places.
    pub fn result(q: &View, v: &View) -> View {
        let seen = q.transpose(1, 2);
        let out = match v.size[3] == q.size[3] {
            true => seen.like(),
            false => View::contiguous(&seen.size.set(3, v.size[3]), q.dtype),
        };
        out.transpose(1, 2)
    }

    /// In one kernel, or decomposed.
    pub fn kernel(&self) -> Kernel {
        if self.backend == Backend::Math { Kernel::Math } else { Kernel::Fused }
    }

    fn extents(&self) -> (u64, u64, u64, u64, u64) {
        let at = |v: &View, d: usize| v.size[d] as u64;
        (at(&self.q, 0) * at(&self.q, 1), at(&self.q, 2), at(&self.k, 2), at(&self.q, 3), at(&self.v, 3))
    }

    /// Scores and values; backward: scores again, dV, dP, dQ, dK.
    pub fn products(&self, backward: bool) -> Vec<Product> {
        let (batch, queries, keys, dim, value_dim) = self.extents();
        let product = |m, n, k| Product { batch, m, n, k };
        let scores = product(queries, keys, dim);
        if !backward {
            return vec![scores, product(queries, value_dim, keys)];
        }
        vec![
            scores,
            product(keys, value_dim, queries),
            product(queries, keys, value_dim),
            product(queries, dim, keys),
            product(keys, dim, queries),
        ]
    }

    /// Pairs of query and key, and how many of them a causal mask (aligned top left) leaves.
    fn pairs(&self) -> (u128, u128) {
        let (_, queries, keys, _, _) = self.extents();
        let (queries, keys) = (u128::from(queries), u128::from(keys));
        let all = queries * keys;
        if !self.is_causal {
            return (all, all);
        }
        let triangle = queries.min(keys);
        (all, triangle * (triangle + 1) / 2 + (queries - triangle) * keys)
    }

    fn bytes(&self, backward: bool) -> u128 {
        let values = if self.backend == Backend::Latent { 0 } else { self.v.bytes() };
        let operands = self.q.bytes() + self.k.bytes() + values;
        let out = self.out.bytes();
        if backward { 2 * (operands + out) } else { operands + out + self.mask.map_or(0, |m| m.bytes()) }
    }
}

/// The operands of a convolution over images or sequences, and of its backward.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(missing_docs)]
pub struct Convolution {
    /// \[images, channels, height, width\], or \[sequences, channels, length\].
    pub input: View,
    /// \[output channels, channels / groups, height, width\], or without the height.
    pub weight: View,
    pub bias: Option<View>,
    /// \[images, output channels, height, width\]; in a backward the gradient that comes in.
    pub out: View,
    /// One number for each dimension of the kernel, here and below.
    pub stride: Dims,
    pub padding: Dims,
    pub dilation: Dims,
    pub groups: i64,
    /// Which gradients a backward computes: of the input, the weight, the bias.
    pub wanted: [bool; 3],
}

impl Convolution {
    /// The product it amounts to: a row for each place of each output image, one product a group.
    pub fn product(&self) -> Product {
        let all = |extents: &[i64]| extents.iter().map(|&n| n as u64).product::<u64>();
        let (out, weight, groups) = (&self.out.size, &self.weight.size, self.groups as u64);
        Product { batch: groups, m: out[0] as u64 * all(&out[2..]), n: weight[0] as u64 / groups, k: all(&weight[1..]) }
    }

    /// Every channel has a filter of its own: a product of one column and as few terms as the
    /// kernel has places, which no matrix unit can be fed with.
    pub fn is_depthwise(&self) -> bool {
        self.groups > 1 && self.weight.size[1] == 1
    }

    /// cuDNN answers in the format it is asked in: channels innermost, if an operand has them so.
    fn is_channels_last(&self) -> bool {
        self.input.is_channels_last() || self.weight.is_channels_last()
    }

    fn laid_out(&self, size: &Dims) -> View {
        match self.is_channels_last() {
            true => View::channels_last(size, self.input.dtype),
            false => View::contiguous(size, self.input.dtype),
        }
    }

    /// The result, by the sizes and layouts of the operands; `out` is not looked at.
    pub fn result(&self) -> View {
        let mut size = self.input.size.set(1, self.weight.size[0]);
        for d in 2..size.len() {
            let reach = self.dilation[d - 2] * (self.weight.size[d] - 1) + 1;
            size[d] = (self.input.size[d] + 2 * self.padding[d - 2] - reach) / self.stride[d - 2] + 1;
        }
        self.laid_out(&size)
    }

    /// The gradients of input, weight and bias that a backward computes.
    pub fn gradients(&self) -> [Option<View>; 3] {
        let views = [Some(self.laid_out(&self.input.size)), Some(self.laid_out(&self.weight.size)), self.bias];
        [0, 1, 2].map(|i| views[i].filter(|_| self.wanted[i]))
    }

    fn flops(&self, backward: bool) -> u128 {
        let times = if backward { self.wanted[..2].iter().filter(|w| **w).count() as u128 } else { 1 };
        times * self.product().flops()
    }

    /// The tensors themselves, not an unfolded copy of the input.
    fn bytes(&self, backward: bool) -> u128 {
        let [input, weight, out] = [self.input, self.weight, self.out].map(|v| v.bytes());
        let bias = self.bias.map_or(0, |v| v.bytes());
        if !backward {
            return input + weight + bias + out;
        }
        let [of_input, of_weight, of_bias] = self.wanted;
        let when = |wanted: bool, bytes: u128| if wanted { bytes } else { 0 };
        // The input's gradient needs the weight and the weight's needs the input.
        out + when(of_input, weight + input) + when(of_weight, input + weight) + when(of_bias, bias)
    }
}

/// What a call works on.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(missing_docs)]
pub enum Operands {
    /// `out = beta · bias + alpha · a · b`; a leading batch in all of them for bmm and baddbmm.
    Product {
        a: View,
        b: View,
        bias: Option<View>,
        out: View,
        alpha: f64,
        beta: f64,
    },
    /// Rows sorted by group, each group with a matrix of its own: a\[rows, k\] · b\[groups, k, n\], or,
    /// for the gradient of those matrices, a\[m, rows\] · b\[rows, n\] into out\[groups, m, n\].
    Grouped {
        a: View,
        b: View,
        out: View,
        /// Where each group ends.
        offs: View,
        /// How many groups get rows, as expected.
        touched: f64,
    },
    Convolution(Convolution),
    Attention(Attention),
}

/// One operation, merged over equal repetitions.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub struct Call {
    pub op: Op,
    pub pass: Pass,
    /// Innermost module that issues it, every number in the path replaced by `*`.
    pub module: Arc<str>,
    pub operands: Operands,
    /// Factors of the second operand, where that is stored in fewer bits and widened on the way to
    /// the multiplier.
    pub scales: Option<View>,
    /// It runs within the decomposed attention call of the same module.
    pub inside: bool,
    pub count: u64,
    /// What all repetitions took, where they ran.
    pub measured: Option<Box<Measured>>,
}

impl Call {
    /// One operation of its own: forward, in no module, once.
    pub fn once(op: Op, operands: Operands) -> Call {
        Call {
            op,
            pass: Pass::Forward,
            module: "".into(),
            operands,
            scales: None,
            inside: false,
            count: 1,
            measured: None,
        }
    }

    /// The (batch, M, N, K) this call amounts to; attention is more than one product.
    pub fn product(&self) -> Option<Product> {
        if let Operands::Convolution(convolution) = &self.operands {
            return Some(convolution.product());
        }
        let (Operands::Product { a, b, .. } | Operands::Grouped { a, b, .. }) = &self.operands else { return None };
        if let Operands::Grouped { .. } = self.operands {
            let [m, n, k] = [a.size[0], b.size[b.rank() - 1], a.size[1]].map(|x| x as u64);
            return Some(Product { batch: 1, m, n, k });
        }
        let last = a.rank() - 1;
        let batch = if a.rank() == 3 { a.size[0] } else { 1 };
        let [batch, m, n, k] = [batch, a.size[last - 1], b.size[last], a.size[last]].map(|x| x as u64);
        Some(Product { batch, m, n, k })
    }

    /// The products of an attention call, none for others.
    pub fn attention_products(&self) -> Vec<Product> {
        match &self.operands {
            Operands::Attention(attention) => attention.products(self.op == Op::AttentionBackward),
            _ => Vec::new(),
        }
    }

    /// Groups of a grouped product.
    pub fn groups(&self) -> Option<u64> {
        match &self.operands {
            Operands::Grouped { offs, .. } => Some(offs.size[0] as u64),
            _ => None,
        }
    }

    /// Floating-point operations of one repetition; attention is counted in full, and as nothing
    /// where it is decomposed, since its products are calls of their own.
    pub fn flops(&self) -> u128 {
        match &self.operands {
            Operands::Attention(attention) if attention.kernel() == Kernel::Math => 0,
            Operands::Attention(_) => self.attention_products().iter().map(Product::flops).sum(),
            Operands::Convolution(convolution) => convolution.flops(self.op == Op::ConvolutionBackward),
            Operands::Product { .. } | Operands::Grouped { .. } => self.product().map_or(0, |p| p.flops()),
        }
    }

    /// The part of [`Call::flops`] that a causal mask leaves.
    pub fn flops_causal(&self) -> u128 {
        match &self.operands {
            Operands::Attention(attention) => {
                let (all, left) = attention.pairs();
                // `flops` is a sum of terms proportional to the pairs, so this is exact.
                self.flops().checked_div(all).unwrap_or(0) * left
            }
            _ => self.flops(),
        }
    }

    /// Bytes of one repetition: every operand read once, the result written once.
    pub fn bytes(&self) -> u128 {
        match &self.operands {
            Operands::Attention(attention) if attention.kernel() == Kernel::Math => 0,
            Operands::Attention(attention) => attention.bytes(self.op == Op::AttentionBackward),
            Operands::Product { a, b, bias, out, beta, .. } => {
                let bias = bias.filter(|_| *beta != 0.0).map_or(0, |v| v.bytes());
                a.bytes() + b.bytes() + out.bytes() + bias + self.scales.map_or(0, |v| v.bytes())
            }
            Operands::Convolution(convolution) => convolution.bytes(self.op == Op::ConvolutionBackward),
            Operands::Grouped { a, b, out, touched, .. } => {
                let (stacked, rest) = if b.rank() == 3 { (b, out) } else { (out, b) };
                let all = stacked.bytes() + self.scales.map_or(0, |v| v.bytes());
                let one = all as f64 / stacked.size[0].max(1) as f64;
                a.bytes() + rest.bytes() + (one * touched).round() as u128
            }
        }
    }

    /// The leaf operation PyTorch dispatches; none for attention in a fused kernel, and none where
    /// the weight is stored in fewer bits: no BLAS routine takes such an operand.
    pub fn leaf(&self) -> Option<Leaf> {
        if self.scales.is_some() {
            return None;
        }
        let Operands::Product { a, b, bias, beta, out, .. } = self.operands else { return None };
        let op = match self.op {
            Op::Mm => LeafOp::Mm,
            Op::Addmm => LeafOp::Addmm,
            Op::Bmm => LeafOp::Bmm,
            Op::Baddbmm => LeafOp::Baddbmm,
            _ => return None,
        };
        // A fresh result is row-major; another was given.
        let out = Some(out).filter(|out| !out.is_contiguous());
        Some(Leaf { beta, out, ..Leaf::new(op, a, b, bias) })
    }

    /// The copies PyTorch forces and the library call it makes.
    pub fn blas_steps(&self, settings: Settings) -> Vec<Step> {
        self.leaf().map_or_else(Vec::new, |leaf| leaf.steps(settings))
    }

    /// The library's matrix product, where it makes one.
    pub fn gemm(&self, settings: Settings) -> Option<Gemm> {
        self.blas_steps(settings).into_iter().find_map(|step| match step {
            Step::Blas(BlasCall { arguments: Arguments::Gemm(gemm), .. }) => Some(gemm),
            _ => None,
        })
    }

    /// The flags of the library's matrix product, where it makes one.
    pub fn gemm_flags(&self, settings: Settings) -> Option<(Trans, Trans)> {
        self.gemm(settings).map(|gemm| (gemm.transa, gemm.transb))
    }

    /// Whether the flags a kernel is named for are those of the library's call; `None` where no matrix
    /// product is made. An operand with one row or one column has no orientation.
    pub fn agrees_with_flags(&self, named: (bool, bool), settings: Settings) -> Option<bool> {
        let Gemm { transa, transb, m, n, k, .. } = self.gemm(settings)?;
        let agrees = |extent, named, trans| extent <= 1 || k <= 1 || named == (trans == Trans::T);
        Some(agrees(m, named.0, transa) && agrees(n, named.1, transb))
    }

    /// FLOPs per byte.
    pub fn intensity(&self) -> f64 {
        let bytes = self.bytes();
        if bytes == 0 { 0.0 } else { self.flops() as f64 / bytes as f64 }
    }

    /// The element type that is multiplied.
    pub fn dtype(&self) -> DType {
        match &self.operands {
            Operands::Product { a, .. } | Operands::Grouped { a, .. } => a.dtype,
            Operands::Convolution(convolution) => convolution.input.dtype,
            Operands::Attention(attention) => attention.q.dtype,
        }
    }

    /// The second operand is a parameter of the model.
    pub fn has_weight(&self) -> bool {
        self.pass == Pass::Forward && matches!(self.op, Op::Mm | Op::Addmm | Op::GroupedMm)
    }

    /// Equal in everything but the count and the times.
    pub fn same(&self, other: &Call) -> bool {
        self.op == other.op
            && self.pass == other.pass
            && self.module == other.module
            && self.inside == other.inside
            && self.scales == other.scales
            && self.operands == other.operands
    }

    /// Feeds a hasher with what tells most calls apart; [`Call::same`] decides.
    pub(crate) fn hash_key<H: Hasher>(&self, state: &mut H) {
        (self.op, self.pass, self.module.len()).hash(state);
        match &self.operands {
            Operands::Product { a, b, .. } | Operands::Grouped { a, b, .. } => (a, b).hash(state),
            Operands::Convolution(x) => (x.input, x.weight, x.stride).hash(state),
            Operands::Attention(x) => (x.q, x.k).hash(state),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attention(queries: i64, keys: i64, is_causal: bool) -> Call {
        let view = |size: &[i64]| View::contiguous(size, DType::Bf16);
        let q = view(&[2, 8, queries, 64]);
        let operands = Operands::Attention(Attention {
            q,
            k: view(&[2, 2, keys, 64]),
            v: view(&[2, 2, keys, 64]),
            mask: None,
            out: q,
            is_causal,
            enable_gqa: true,
            scale: None,
            backend: Backend::Cudnn,
        });
        Call {
            op: Op::Attention,
            pass: Pass::Forward,
            module: "attn".into(),
            operands,
            scales: None,
            inside: false,
            count: 1,
            measured: None,
        }
    }

    #[test]
    fn attention_is_two_products_and_five_backward() {
        let call = attention(100, 100, true);
        assert_eq!(call.flops(), 2 * 2 * (16 * 100 * 100 * 64));
        assert_eq!(call.flops_causal(), 2 * 2 * (16 * 5050 * 64));
        // q and out have 8 heads, k and v have 2
        assert_eq!(call.bytes(), 2 * (2 * 100 * 64) * (8 + 8 + 2 + 2));
        let back = Call { op: Op::AttentionBackward, ..call };
        assert_eq!(back.flops(), 5 * 2 * (16 * 100 * 100 * 64));
        assert_eq!(back.bytes(), 2 * 2 * (2 * 100 * 64) * (8 + 8 + 2 + 2));
    }

    #[test]
    fn one_query_sees_every_key() {
        let call = attention(1, 300, false);
        assert_eq!(call.flops_causal(), call.flops());
    }

    #[test]
    fn an_addend_that_is_not_read_costs_nothing() {
        let view = |size: &[i64]| View::contiguous(size, DType::F32);
        let call = |beta| Call {
            op: Op::Baddbmm,
            scales: None,
            pass: Pass::Forward,
            module: "x".into(),
            operands: Operands::Product {
                a: view(&[3, 4, 5]),
                b: view(&[3, 5, 6]),
                bias: Some(view(&[3, 4, 6])),
                out: view(&[3, 4, 6]),
                alpha: 1.0,
                beta,
            },
            inside: false,
            count: 1,
            measured: None,
        };
        assert_eq!(call(0.0).bytes() + 3 * 4 * 6 * 4, call(1.0).bytes());
        assert_eq!(call(1.0).product(), Some(Product { batch: 3, m: 4, n: 6, k: 5 }));
    }
}
