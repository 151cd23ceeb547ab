//! A convolution over images as a product: patches are gathered for a few rows of the output at a time, never all of them.

use crate::backend::Backend;
use crate::error::{LayerError, reaches, sized};
use crate::linear::Linear;
use gemwright_cpu::Number;

/// Filters \[out channels, channels, height, width\] and a bias.
///
/// ```
/// use gemwright_nn::{Backend, Conv2d};
///
/// let backend = Backend::new(1);
/// let image = [1f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0];
/// // Sums of two by two pixels, and ten.
/// let sums = Conv2d::new([1, 1, 2, 2], vec![1.0; 4], Some(vec![10.0]), [1, 1], [0, 0])?;
/// assert_eq!(sums.extents([3, 3])?, [2, 2]);
/// assert_eq!(sums.forward(&backend, &image, 1, [3, 3])?, [22.0, 26.0, 34.0, 38.0]);
///
/// // Every other pixel: the corners alone.
/// let corners = sums.dilated([2, 2])?;
/// assert_eq!(corners.forward(&backend, &image, 1, [3, 3])?, [30.0]);
///
/// // Two groups: the first filter sees the first channel, the second the second.
/// let each = Conv2d::grouped(2, [2, 1, 1, 1], vec![2.0, -1.0], None, [1, 1], [0, 0])?;
/// assert_eq!(each.forward(&backend, &[1f32, 2.0, 3.0, 4.0], 1, [1, 2])?, [2.0, 4.0, -3.0, -4.0]);
/// # Ok::<(), gemwright_nn::LayerError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Conv2d<T> {
    /// Those that a filter sees.
    channels: usize,
    kernel: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
    dilation: [usize; 2],
    /// Of each group of channels one.
    products: Vec<Linear<T>>,
}

/// Where pixels lie in a slice: elements from image to image, from channel to channel, from row to row and from pixel to
/// pixel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct PixelSteps {
    pub image: usize,
    pub channel: usize,
    pub row: usize,
    pub col: usize,
}

/// Rows of patches that are multiplied at once.
const ROWS: usize = 256;

impl<T: Number> Conv2d<T> {
    /// Of filters \[outputs, channels, height, width\], row after row; how far a filter moves, and how many zeros lie
    /// around the image.
    ///
    /// # Errors
    /// Sizes that do not fit.
    pub fn new(
        extents: [usize; 4],
        filters: Vec<T>,
        bias: Option<Vec<T>>,
        stride: [usize; 2],
        padding: [usize; 2],
    ) -> Result<Conv2d<T>, LayerError> {
        Conv2d::grouped(1, extents, filters, bias, stride, padding)
    }

    /// The same of channels in groups, of which each has as many filters, which see nothing of the others: images have
    /// `groups` times as many channels as a filter. Groups are multiplied one after the other: many small ones take long.
    ///
    /// # Errors
    /// Sizes that do not fit, or filters that cannot be shared out evenly.
    pub fn grouped(
        groups: usize,
        [outputs, channels, height, width]: [usize; 4],
        filters: Vec<T>,
        bias: Option<Vec<T>>,
        stride: [usize; 2],
        padding: [usize; 2],
    ) -> Result<Conv2d<T>, LayerError> {
        if stride.contains(&0) || [outputs, channels, height, width].contains(&0) {
            return Err(LayerError::Shape("a filter without elements, or one that does not move".into()));
        }
        if groups == 0 || !outputs.is_multiple_of(groups) {
            return Err(LayerError::Shape(format!("{outputs} filters cannot be shared out to {groups} groups")));
        }
        let all = [groups, channels, height, width].into_iter().try_fold(1usize, |all, x| all.checked_mul(x));
        all.ok_or_else(|| LayerError::Shape("a filter of more elements than can be counted".into()))?;
        let inputs = channels * height * width;
        let products = Linear::new(outputs, inputs, filters, bias)?.parted(groups);
        Ok(Conv2d { channels, kernel: [height, width], stride, padding, dilation: [1, 1], products })
    }

    /// With pixels that a filter sees so far apart; 1 is side by side.
    ///
    /// # Errors
    /// Pixels that lie on each other.
    pub fn dilated(self, dilation: [usize; 2]) -> Result<Conv2d<T>, LayerError> {
        match dilation.contains(&0) {
            true => Err(LayerError::Shape("pixels that a filter sees cannot lie 0 apart".into())),
            false => Ok(Conv2d { dilation, ..self }),
        }
    }

    /// Channels of an image.
    fn image_channels(&self) -> usize {
        self.channels * self.products.len()
    }

    /// Height and width of what comes out of an image.
    ///
    /// # Errors
    /// An image smaller than the filters.
    pub fn extents(&self, image: [usize; 2]) -> Result<[usize; 2], LayerError> {
        let mut out = [0; 2];
        for (i, out) in out.iter_mut().enumerate() {
            let padded = self.padding[i].checked_mul(2).and_then(|around| around.checked_add(image[i]));
            let seen = (self.kernel[i] - 1).checked_mul(self.dilation[i]).and_then(|last| last.checked_add(1));
            let reach = padded.filter(|_| image[i] > 0).zip(seen).and_then(|(padded, seen)| padded.checked_sub(seen));
            let reach =
                reach.ok_or_else(|| LayerError::Shape("the image is empty, or smaller than the filters".into()))?;
            *out = reach / self.stride[i] + 1;
        }
        Ok(out)
    }

    /// Of images \[images, channels, height, width\]: \[images, out channels, ...\].
    ///
    /// # Errors
    /// Sizes that do not fit.
    pub fn forward(&self, backend: &Backend, x: &[T], images: usize, image: [usize; 2]) -> Result<Vec<T>, LayerError> {
        let [height, width] = image;
        let pixels = height.checked_mul(width).and_then(|plane| plane.checked_mul(self.image_channels()));
        sized("the images", x.len(), pixels.and_then(|pixels| pixels.checked_mul(images)))?;
        let plane = height.saturating_mul(width);
        let of_image = plane.saturating_mul(self.image_channels());
        let steps = PixelSteps { image: of_image, channel: plane, row: width, col: 1 };
        self.forward_view(backend, x, steps, images, image)
    }

    /// The same over a view: a part of larger images, or channels that lie beside each other.
    ///
    /// # Errors
    /// A view that lies outside of its slice, or an image that is too small.
    pub fn forward_view(
        &self,
        backend: &Backend,
        x: &[T],
        steps: PixelSteps,
        images: usize,
        image: [usize; 2],
    ) -> Result<Vec<T>, LayerError> {
        let [height, width] = image;
        let channels = (self.image_channels(), steps.channel);
        reaches("the images", x.len(), &[(images, steps.image), channels, (height, steps.row), (width, steps.col)])?;
        let [out_height, out_width] = self.extents(image)?;
        let many = || LayerError::Shape("more pixels than can be counted".into());
        let places = out_height.checked_mul(out_width).ok_or_else(many)?;
        let (outputs, inputs) = (self.products[0].outputs(), self.products[0].inputs());
        let groups = self.products.len();
        let all = [outputs, groups, images].into_iter().try_fold(places, |all, x| all.checked_mul(x));
        let mut y = vec![T::from_f64(0.0); all.ok_or_else(many)?];
        let mut patches = Vec::with_capacity(ROWS * inputs);
        for (i, result) in y.chunks_exact_mut((outputs * places).max(1)).enumerate() {
            let (i, group) = (i / groups, i % groups);
            let seen = &x[i * steps.image + group * self.channels * steps.channel..];
            for first in (0..places).step_by(ROWS) {
                let count = ROWS.min(places - first);
                patches.clear();
                for place in first..first + count {
                    self.patch((seen, steps), image, [place / out_width, place % out_width], &mut patches);
                }
                let rows = self.products[group].forward(backend, &patches)?;
                // The product has a row for each place; the image a plane for each channel.
                for (i, row) in rows.chunks_exact(outputs).enumerate() {
                    for (channel, value) in row.iter().enumerate() {
                        result[channel * places + first + i] = *value;
                    }
                }
            }
        }
        Ok(y)
    }

    /// What the filters of a group see at a place of its channels, zeros outside of the image.
    fn patch(&self, (image, steps): (&[T], PixelSteps), extents: [usize; 2], place: [usize; 2], patch: &mut Vec<T>) {
        let at = |side: usize, offset: usize| {
            let padded = place[side] * self.stride[side] + offset * self.dilation[side];
            padded.checked_sub(self.padding[side]).filter(|x| *x < extents[side])
        };
        for channel in 0..self.channels {
            for i in 0..self.kernel[0] {
                for j in 0..self.kernel[1] {
                    let (y, x) = (at(0, i), at(1, j));
                    let value = y.zip(x).map(|(y, x)| image[channel * steps.channel + y * steps.row + x * steps.col]);
                    patch.push(value.unwrap_or(T::from_f64(0.0)));
                }
            }
        }
    }
}
