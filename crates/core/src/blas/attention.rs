//! Which kernel computes `scaled_dot_product_attention`.

use super::Stack;
use crate::{DType, View};

/// The implementation PyTorch picks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Backend {
    Cudnn,
    Flash,
    Efficient,
    /// Decomposed into products.
    Math,
    /// A serving engine's own kernel over a latent: the values are the front of the keys, in memory once.
    Latent,
}

impl Backend {
    /// Every implementation.
    pub const ALL: [Backend; 5] = [Backend::Cudnn, Backend::Flash, Backend::Efficient, Backend::Math, Backend::Latent];

    /// The name used in all output.
    pub fn name(self) -> &'static str {
        match self {
            Backend::Cudnn => "cudnn",
            Backend::Flash => "flash",
            Backend::Efficient => "efficient",
            Backend::Math => "math",
            Backend::Latent => "latent",
        }
    }
}

/// What the choice depends on.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub struct Query<'a> {
    pub q: &'a View,
    pub k: &'a View,
    pub v: &'a View,
    pub mask: Option<&'a View>,
    pub mask_needs_grad: bool,
    pub dropout: bool,
    pub is_causal: bool,
    pub enable_gqa: bool,
    /// cuDNN is there and new enough (after 9.15) and the GPU is a Hopper or a data-centre Blackwell.
    pub cudnn: bool,
}

/// The first backend whose conditions all hold, on a Hopper GPU or, for ROCm, a CDNA one.
pub fn attention_backend(query: &Query, stack: Stack) -> Backend {
    let Query { q, k, v, mask, .. } = query;
    if [q.rank(), k.rank(), v.rank()] != [4, 4, 4] {
        return Backend::Math;
    }
    let facts = Facts {
        query,
        half: q.dtype.is_half(),
        filled: q.size[2] != 0 && k.size[2] != 0,
        last_strides: [q, k, v].iter().all(|x| x.stride[3] == 1),
        mask_fits: mask.is_none_or(|m| m.stride.last() == Some(&1)),
        same_batch: q.size[0] == k.size[0] && k.size[0] == v.size[0],
        same_heads: q.size[1] == k.size[1] && k.size[1] == v.size[1],
    };
    match stack {
        Stack::Cuda if query.cudnn && facts.cudnn() => Backend::Cudnn,
        Stack::Cuda if facts.flash(256) => Backend::Flash,
        Stack::Rocm if facts.flash(512) => Backend::Flash,
        _ if facts.efficient() => Backend::Efficient,
        _ => Backend::Math,
    }
}

struct Facts<'a> {
    query: &'a Query<'a>,
    half: bool,
    filled: bool,
    last_strides: bool,
    mask_fits: bool,
    same_batch: bool,
    same_heads: bool,
}

impl Facts<'_> {
    fn dims(&self) -> (i64, i64, i64) {
        (self.query.q.size[3], self.query.k.size[3], self.query.v.size[3])
    }

    /// One query element a head needs no unit stride.
    fn strides(&self) -> bool {
        self.last_strides || self.query.q.size[3] == 1
    }

    fn cudnn(&self) -> bool {
        let Query { q, k, v, mask, .. } = self.query;
        let (dim, _, value_dim) = self.dims();
        let mask_shape = mask.is_none_or(|m| {
            let rank = m.rank();
            let fits = |size: i64, full: i64| size == 1 || size == full;
            let last_two = rank >= 2 && fits(m.size[rank - 2], q.size[2]) && fits(m.size[rank - 1], k.size[2]);
            let lead = rank == 2 || (rank == 4 && fits(m.size[0], q.size[0]) && fits(m.size[1], q.size[1]));
            !self.query.mask_needs_grad && last_two && lead
        });
        let heads = if self.query.enable_gqa {
            q.size[1] % k.size[1] == 0 && q.size[1] % v.size[1] == 0
        } else {
            self.same_heads
        };
        let dims = dim <= 256 && value_dim <= 256 && dim % 8 == 0 && value_dim % 8 == 0;
        let lengths = k.size[2] != 1 && !(q.size[2] == 1 && self.query.dropout);
        self.half
            && self.filled
            && self.strides()
            && self.mask_fits
            && mask_shape
            && self.same_batch
            && heads
            && dims
            && lengths
    }

    fn flash(&self, most: i64) -> bool {
        let Query { q, k, v, mask, .. } = self.query;
        let (dim, key_dim, value_dim) = self.dims();
        let heads =
            if self.query.enable_gqa { k.size[1] == v.size[1] && q.size[1] % k.size[1] == 0 } else { self.same_heads };
        mask.is_none()
            && dim == key_dim
            && dim == value_dim
            && dim <= most
            && self.half
            && !(self.query.is_causal && q.size[2] != k.size[2])
            && self.same_batch
            && heads
            && self.filled
            && self.strides()
    }

    fn efficient(&self) -> bool {
        let (dim, key_dim, value_dim) = self.dims();
        let multiple = if self.half { 8 } else { 4 };
        (self.half || self.query.q.dtype == DType::F32)
            && dim == key_dim
            && dim % multiple == 0
            && value_dim % multiple == 0
            && self.filled
            && self.last_strides
            && self.mask_fits
            && self.same_batch
            && self.same_heads
    }
}
