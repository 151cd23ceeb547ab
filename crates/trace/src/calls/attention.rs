//! Attention as the framework calls it, and its kernels where they are called directly.

use super::arguments::Arguments;
use super::{Found, Read};
use gemwright_core::blas::Backend;
use gemwright_core::{Attention, Op, Operands, View};

/// The function at the boundary; which kernel runs it is told by what is inside.
pub const FUNCTION: &str = "aten::scaled_dot_product_attention";

/// Where an operation has its arguments.
struct Layout {
    name: &'static str,
    op: Op,
    backend: Backend,
    q: usize,
    mask: Option<usize>,
    out: Option<usize>,
    is_causal: usize,
    scale: usize,
    enable_gqa: Option<usize>,
}

const FORWARD: Layout = Layout {
    name: FUNCTION,
    op: Op::Attention,
    backend: Backend::Math,
    q: 0,
    mask: Some(3),
    out: None,
    is_causal: 5,
    scale: 6,
    enable_gqa: Some(7),
};

const BACKWARD: Layout = Layout { op: Op::AttentionBackward, q: 1, enable_gqa: None, ..FORWARD };

const KERNEL: Layout = Layout { enable_gqa: None, ..FORWARD };

/// PyTorch's own schemas.
const LAYOUTS: [Layout; 8] = [
    FORWARD,
    Layout { name: "aten::_scaled_dot_product_attention_math", is_causal: 5, scale: 7, enable_gqa: Some(8), ..FORWARD },
    Layout {
        name: "aten::_scaled_dot_product_flash_attention",
        backend: Backend::Flash,
        mask: None,
        is_causal: 4,
        scale: 6,
        ..KERNEL
    },
    Layout {
        name: "aten::_scaled_dot_product_efficient_attention",
        backend: Backend::Efficient,
        is_causal: 6,
        scale: 7,
        ..KERNEL
    },
    Layout {
        name: "aten::_scaled_dot_product_cudnn_attention",
        backend: Backend::Cudnn,
        is_causal: 6,
        scale: 8,
        ..KERNEL
    },
    Layout {
        name: "aten::_scaled_dot_product_flash_attention_backward",
        backend: Backend::Flash,
        mask: None,
        out: Some(4),
        is_causal: 11,
        scale: 14,
        ..BACKWARD
    },
    Layout {
        name: "aten::_scaled_dot_product_efficient_attention_backward",
        backend: Backend::Efficient,
        mask: Some(4),
        out: Some(5),
        is_causal: 11,
        scale: 12,
        ..BACKWARD
    },
    Layout {
        name: "aten::_scaled_dot_product_cudnn_attention_backward",
        backend: Backend::Cudnn,
        mask: Some(8),
        out: Some(4),
        is_causal: 14,
        scale: 15,
        ..BACKWARD
    },
];

fn layout(name: &str) -> Option<&'static Layout> {
    LAYOUTS.iter().find(|layout| layout.name == name)
}

/// The kernel that an operation inside the function stands for.
pub fn backend(name: &str) -> Option<Backend> {
    layout(name).filter(|l| l.op == Op::Attention && l.name != FUNCTION).map(|l| l.backend)
}

/// For the cost of the function alone: some fused kernel, unless it is the decomposition.
pub fn direct(name: &str) -> Option<Backend> {
    (name == FUNCTION).then_some(Backend::Flash)
}

/// Read with the kernel that runs it.
pub fn read_as(name: &str, arguments: &Arguments, inside: Option<Backend>) -> Read {
    let layout = layout(name)?;
    Some(attention(layout, arguments, inside.unwrap_or(layout.backend)))
}

fn attention(layout: &Layout, arguments: &Arguments, backend: Backend) -> Found {
    let [q, k, v] = [0, 1, 2].map(|i| arguments.tensor(layout.q + i));
    let (q, k, v) = (q?, k?, v?);
    let same = |x: &View, y: &View, d: usize| x.size[d] == y.size[d];
    let fits = [q, k, v].iter().all(|view| view.rank() == 4)
        && same(&q, &k, 0)
        && same(&q, &v, 0)
        && same(&q, &k, 3)
        && same(&k, &v, 1)
        && same(&k, &v, 2);
    if !fits {
        return Err(format!("{q}, {k} and {v} are no attention over batch, heads, places and width"));
    }
    let mask = layout.mask.map_or(Ok(None), |at| arguments.optional(at))?;
    let given = layout.out.map_or(Ok(None), |at| arguments.optional(at))?;
    let out = given.filter(|view| view.rank() == 4).unwrap_or_else(|| Attention::result(&q, &v));
    Ok((
        layout.op,
        Operands::Attention(Attention {
            q,
            k,
            v,
            mask,
            out,
            is_causal: arguments.flag(layout.is_causal)?.unwrap_or(false),
            enable_gqa: layout.enable_gqa.map_or(Ok(None), |at| arguments.flag(at))?.unwrap_or(false),
            scale: arguments.number(layout.scale)?,
            backend,
        }),
    ))
}
