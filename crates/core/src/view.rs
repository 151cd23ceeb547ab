//! A tensor as a framework sees it, and the algebra of views.
//!
//! Each function repeats what PyTorch does to sizes and strides, to the stride of a dimension of
//! size 1, because those numbers decide which library call a product becomes.

use crate::{DType, Dims};
use serde::{Deserialize, Serialize};

/// Size, stride (in elements) and element type of a tensor; no data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Unchecked")]
pub struct View {
    /// Extent of each dimension.
    pub size: Dims,
    /// Elements between neighbours along each dimension; 0 repeats one element.
    pub stride: Dims,
    /// Element type.
    pub dtype: DType,
}

/// As it comes from a file.
#[derive(Deserialize)]
struct Unchecked {
    size: Vec<i64>,
    stride: Vec<i64>,
    dtype: DType,
}

impl TryFrom<Unchecked> for View {
    type Error = String;
    fn try_from(view: Unchecked) -> Result<View, String> {
        View::checked(&view.size, Some(&view.stride), view.dtype)
    }
}

/// The strides of a row-major tensor.
fn row_major(size: &Dims) -> Dims {
    let mut stride = Dims::filled(size.len(), 1);
    for d in (1..size.len()).rev() {
        stride[d - 1] = stride[d] * size[d].max(1);
    }
    stride
}

impl View {
    /// A row-major tensor.
    pub fn contiguous(size: &[i64], dtype: DType) -> View {
        let size = Dims::new(size);
        View { size, stride: row_major(&size), dtype }
    }

    /// An image \[images, channels, height, width\] with its channels innermost.
    pub fn channels_last(size: &[i64], dtype: DType) -> View {
        let [_, channels, height, width] = [size[0], size[1], size[2], size[3]];
        View::strided(size, &[channels * height * width, 1, width * channels, channels], dtype)
    }

    /// A tensor of given strides.
    pub fn strided(size: &[i64], stride: &[i64], dtype: DType) -> View {
        View { size: Dims::new(size), stride: Dims::new(stride), dtype }
    }

    /// Reads `128x64:64,1`: sizes, then strides; without strides it is row-major.
    pub fn parse(text: &str, dtype: DType) -> Result<View, String> {
        let list = |text: &str, separator: char, least: i64| -> Result<Vec<i64>, String> {
            let number = |word: &str| match word.trim().parse::<i64>() {
                Ok(n) if (least..=View::LARGEST).contains(&n) => Ok(n),
                _ => Err(format!("`{word}` is no number from {least} to {}", View::LARGEST)),
            };
            text.split(separator).map(number).collect()
        };
        let (sizes, strides) = text.split_once(':').map_or((text, None), |(a, b)| (a, Some(b)));
        let size = list(sizes, 'x', 0)?;
        let stride = strides.map(|strides| list(strides, ',', 0)).transpose()?;
        View::checked(&size, stride.as_deref(), dtype)
    }

    /// A tensor whose numbers come from outside; without strides it is row-major.
    pub fn checked(size: &[i64], stride: Option<&[i64]>, dtype: DType) -> Result<View, String> {
        if size.len() > Dims::MAX {
            return Err(format!("{} dimensions are more than {}", size.len(), Dims::MAX));
        }
        if let Some(wrong) = size.iter().chain(stride.unwrap_or_default()).find(|n| !(0..=View::LARGEST).contains(*n)) {
            return Err(format!("`{wrong}` is no number from 0 to {}", View::LARGEST));
        }
        if size.iter().map(|&n| n.max(1) as f64).product::<f64>() > 2f64.powi(60) {
            return Err("more than 2^60 elements".into());
        }
        match stride {
            Some(stride) if stride.len() != size.len() => {
                Err(format!("{} sizes but {} strides", size.len(), stride.len()))
            }
            Some(stride) => Ok(View::strided(size, stride, dtype)),
            None => Ok(View::contiguous(size, dtype)),
        }
    }

    /// The largest size or stride that can be written.
    const LARGEST: i64 = 1 << 40;

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.size.len()
    }

    /// Elements the view shows.
    pub fn elements(&self) -> i64 {
        self.size.iter().product()
    }

    /// Bytes in memory: a dimension of stride 0 is there once.
    pub fn bytes(&self) -> u128 {
        let stored = self.size.iter().zip(self.stride.iter()).filter(|(_, step)| **step != 0);
        (stored.map(|(n, _)| *n as u128).product::<u128>() * u128::from(self.dtype.bits())).div_ceil(8)
    }

    /// Row-major but for the strides of dimensions of size 1, which no address depends on.
    pub fn is_contiguous(&self) -> bool {
        let mut step = 1;
        for d in (0..self.rank()).rev() {
            if self.size[d] != 1 {
                if self.stride[d] != step {
                    return false;
                }
                step *= self.size[d];
            }
        }
        true
    }

    /// What PyTorch takes for an image with its channels innermost, judged by the strides alone.
    /// Where sizes of 1 leave it open, the answer is no.
    pub fn is_channels_last(&self) -> bool {
        if self.rank() != 4 || self.stride[1] == 0 {
            return false;
        }
        let mut least = 0;
        for d in [1, 3, 2, 0] {
            let undecided = d == 0 && least == self.stride[1];
            if self.size[d] == 0 || self.stride[d] < least || undecided {
                return false;
            }
            least = self.stride[d] * self.size[d];
        }
        true
    }

    /// Every element once, without holes, in some order of the dimensions.
    pub fn is_dense(&self) -> bool {
        let mut left = (0..self.rank()).filter(|&d| self.size[d] != 1).count();
        let mut step = 1;
        // From the innermost dimension outwards, each begins where the one inside it ends.
        while left > 0 {
            let next = (0..self.rank()).find(|&d| self.size[d] != 1 && self.stride[d] == step);
            let Some(d) = next else { return false };
            step *= self.size[d].max(1);
            left -= 1;
        }
        true
    }

    /// The same tensor with another element type; a view of it, not what a cast allocates.
    pub fn with_dtype(&self, dtype: DType) -> View {
        View { dtype, ..*self }
    }

    /// Dimensions `x` and `y` exchanged.
    pub fn transpose(&self, x: usize, y: usize) -> View {
        let mut view = *self;
        view.size.swap(x, y);
        view.stride.swap(x, y);
        view
    }

    /// The last two dimensions exchanged.
    pub fn t(&self) -> View {
        self.transpose(self.rank() - 2, self.rank() - 1)
    }

    /// `length` positions of dimension `d`.
    pub fn narrow(&self, d: usize, length: i64) -> View {
        View { size: self.size.set(d, length), ..*self }
    }

    /// Every `step`-th position of dimension `d`.
    pub fn every(&self, d: usize, step: i64) -> View {
        let length = (self.size[d] + step - 1) / step;
        View { size: self.size.set(d, length), stride: self.stride.set(d, self.stride[d] * step), ..*self }
    }

    /// One position of dimension `d`, which goes.
    pub fn select(&self, d: usize) -> View {
        View { size: self.size.without(d), stride: self.stride.without(d), ..*self }
    }

    /// A new dimension of size 1 at `d`.
    pub fn unsqueeze(&self, d: usize) -> View {
        let step = if d < self.rank() { self.size[d] * self.stride[d] } else { 1 };
        View { size: self.size.with(d, 1), stride: self.stride.with(d, step), ..*self }
    }

    /// Dimensions of size 1 repeated to `size`, new ones added in front, without a copy.
    pub fn expand(&self, size: &[i64]) -> View {
        let lead = size.len() - self.rank();
        let mut stride = Dims::filled(size.len(), 0);
        for d in (0..self.rank()).rev() {
            stride[lead + d] = if self.size[d] == size[lead + d] { self.stride[d] } else { 0 };
        }
        // A leading dimension that stays 1 gets the stride a row-major tensor would have there.
        for d in (0..lead).rev() {
            if size[d] == 1 {
                stride[d] = size.get(d + 1).map_or(1, |n| n * stride[d + 1]);
            }
        }
        View { size: Dims::new(size), stride, ..*self }
    }

    /// The strides with which the same memory shows `size`, if there are any (`aten::view`).
    pub fn view_as(&self, size: &[i64]) -> Option<View> {
        let mut stride = Dims::filled(size.len(), 1);
        let mut at = size.len();
        let mut base = self.stride.last().copied().unwrap_or(1);
        let (mut old, mut new) = (1, 1);
        for d in (0..self.rank()).rev() {
            old *= self.size[d];
            let chunk_ends = d == 0 || (self.size[d - 1] != 1 && self.stride[d - 1] != old * base);
            if chunk_ends {
                while at > 0 && (new < old || size[at - 1] == 1) {
                    stride[at - 1] = new * base;
                    new *= size[at - 1];
                    at -= 1;
                }
                if new != old {
                    return None;
                }
                if d > 0 {
                    base = self.stride[d - 1];
                    (old, new) = (1, 1);
                }
            }
        }
        (at == 0).then(|| View { size: Dims::new(size), stride, ..*self })
    }

    /// `size` over the same memory where PyTorch finds strides for it, else a row-major copy.
    /// The second value says whether it was a copy.
    pub fn reshape(&self, size: &[i64]) -> (View, bool) {
        match self.view_as(size) {
            Some(view) => (view, false),
            None => (View::contiguous(size, self.dtype), true),
        }
    }

    /// What a copy that preserves the memory format allocates (`clone`, a cast, `empty_like`).
    pub fn like(&self) -> View {
        if self.is_dense() { *self } else { View::ordered(&self.size, &[self.stride], self.dtype) }
    }

    /// The result of a pointwise operation, laid out as PyTorch's TensorIterator lays it out.
    ///
    /// `number` says that a scalar takes part: it has another shape, which closes two short cuts.
    ///
    /// # Panics
    /// If there are more than four operands.
    pub fn pointwise(operands: &[View], number: bool) -> View {
        let dtype = operands.iter().map(|v| v.dtype).reduce(DType::promote).unwrap_or(DType::F32);
        assert!(operands.len() <= 4, "a pointwise operation of {} tensors", operands.len());
        let rank = operands.iter().map(View::rank).max().unwrap_or(0);
        let mut size = Dims::filled(rank, 1);
        for v in operands {
            let lead = rank - v.rank();
            for d in 0..v.rank() {
                size[lead + d] = size[lead + d].max(v.size[d]);
            }
        }
        if !number && operands.iter().all(|v| v.size == size) {
            if operands.iter().all(View::is_contiguous) {
                return View::contiguous(&size, dtype);
            }
            if operands.iter().all(|v| v.stride == operands[0].stride) && operands[0].is_dense() {
                return operands[0].with_dtype(dtype);
            }
        }
        let mut strides = [Dims::filled(0, 0); 4];
        for (place, view) in strides.iter_mut().zip(operands) {
            *place = broadcast_strides(view, &size);
        }
        View::ordered(&size, &strides[..operands.len()], dtype)
    }

    /// A dense tensor of `size` whose dimensions are nested as in `strides`, the first operand that
    /// can tell two dimensions apart deciding; an undecided pair keeps the row-major order.
    fn ordered(size: &Dims, strides: &[Dims], dtype: DType) -> View {
        let outside = |x: usize, y: usize| -> std::cmp::Ordering {
            for stride in strides {
                let (sx, sy) = (stride[x], stride[y]);
                if sx == 0 || sy == 0 {
                    continue;
                }
                if sx != sy {
                    return sx.cmp(&sy);
                }
                if size[x] > size[y] {
                    return std::cmp::Ordering::Greater;
                }
            }
            std::cmp::Ordering::Equal
        };
        // An insertion sort that lets ambiguous pairs pass, innermost dimension first.
        let mut order = [0; Dims::MAX];
        let order = &mut order[..size.len()];
        for (place, d) in order.iter_mut().zip((0..size.len()).rev()) {
            *place = d;
        }
        for i in 1..order.len() {
            let mut at = i;
            for j in (0..i).rev() {
                match outside(order[j], order[at]) {
                    std::cmp::Ordering::Greater => {
                        order.swap(j, at);
                        at = j;
                    }
                    std::cmp::Ordering::Less => break,
                    std::cmp::Ordering::Equal => {}
                }
            }
        }
        let mut stride = Dims::filled(size.len(), 1);
        let mut step = 1;
        for &mut d in order {
            stride[d] = step;
            step *= size[d].max(1);
        }
        View { size: *size, stride, dtype }
    }
}

fn broadcast_strides(view: &View, size: &Dims) -> Dims {
    let lead = size.len() - view.rank();
    let mut stride = Dims::filled(size.len(), 0);
    for d in 0..view.rank() {
        let repeated = view.size[d] == 1 && size[lead + d] != 1;
        stride[lead + d] = if repeated { 0 } else { view.stride[d] };
    }
    stride
}

impl std::fmt::Display for View {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let join = |dims: &Dims, with: &str| dims.iter().map(i64::to_string).collect::<Vec<_>>().join(with);
        write!(f, "{}:{}", join(&self.size, "x"), join(&self.stride, ","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(size: &[i64], stride: &[i64]) -> View {
        View { size: Dims::new(size), stride: Dims::new(stride), dtype: DType::Bf16 }
    }

    #[test]
    fn contiguity_ignores_dimensions_of_size_one() {
        assert!(view(&[1, 4, 1, 8], &[7, 8, 99, 1]).is_contiguous());
        assert!(!view(&[2, 4], &[1, 2]).is_contiguous());
        assert!(view(&[2, 4], &[1, 2]).is_dense());
        assert!(!view(&[2, 4], &[8, 1]).is_dense());
    }

    #[test]
    fn heads_are_a_view_of_the_projection_and_back_at_length_one_only() {
        let heads = View::contiguous(&[2, 5, 3 * 4], DType::Bf16).view_as(&[2, 5, 3, 4]).unwrap().transpose(1, 2);
        assert_eq!(heads, view(&[2, 3, 5, 4], &[60, 4, 12, 1]));
        assert_eq!(heads.view_as(&[6, 5, 4]), None);
        let one = View::contiguous(&[2, 1, 12], DType::Bf16).view_as(&[2, 1, 3, 4]).unwrap().transpose(1, 2);
        assert_eq!(one.view_as(&[6, 1, 4]), Some(view(&[6, 1, 4], &[4, 4, 1])));
    }

    #[test]
    fn a_repeated_head_is_a_view_at_batch_one() {
        let head = View::contiguous(&[1, 1, 7, 4], DType::Bf16);
        let repeated = head.unsqueeze(2).expand(&[1, 1, 3, 7, 4]);
        assert_eq!(repeated.reshape(&[1, 3, 7, 4]), (view(&[1, 3, 7, 4], &[0, 0, 4, 1]), false));
        let two = View::contiguous(&[1, 2, 7, 4], DType::Bf16).unsqueeze(2).expand(&[1, 2, 3, 7, 4]);
        assert!(two.reshape(&[1, 6, 7, 4]).1);
    }

    #[test]
    fn a_pointwise_result_follows_its_first_operand() {
        let heads = view(&[2, 3, 5, 4], &[60, 4, 12, 1]);
        let table = View::contiguous(&[1, 1, 5, 4], DType::Bf16);
        assert_eq!(View::pointwise(&[heads, table], false), heads);
        let flat = View::contiguous(&[2, 3, 5, 4], DType::Bf16);
        assert_eq!(View::pointwise(&[heads, flat], false), heads);
        assert_eq!(View::pointwise(&[flat, heads], false), flat);
        assert_eq!(View::pointwise(&[heads.with_dtype(DType::F32), table], true).dtype, DType::F32);
    }

    #[test]
    fn a_view_is_read_as_it_is_written() {
        let padded = view(&[128, 64], &[80, 1]);
        assert_eq!(View::parse(&padded.to_string(), DType::Bf16), Ok(padded));
        assert_eq!(View::parse("4x3", DType::Bf16), Ok(View::contiguous(&[4, 3], DType::Bf16)));
        for wrong in ["", "4x", "x", "4x3:1", "4x-3", "1x1x1x1x1x1x1", "4x3:a,b", "99999999999999999999"] {
            assert!(View::parse(wrong, DType::Bf16).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_slice_is_copied_dense() {
        let half = View::contiguous(&[2, 3, 8], DType::Bf16).narrow(2, 4);
        assert_eq!(half.like(), View::contiguous(&[2, 3, 4], DType::Bf16));
        assert_eq!(half.bytes(), 2 * 3 * 4 * 2);
        assert_eq!(half.expand(&[5, 2, 3, 4]).bytes(), 2 * 3 * 4 * 2);
    }
}
