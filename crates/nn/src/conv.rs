//! A convolution over images as a product: patches are gathered for a few rows of the output at a time, never all of them.

use crate::backend::Backend;
use crate::error::{LayerError, reaches, sized};
use crate::linear::Linear;
use gemwright_cpu::Number;

/// Filters \[out channels, channels, height, width\] and a bias.
#[derive(Debug, Clone, PartialEq)]
pub struct Conv2d<T> {
    channels: usize,
    kernel: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
    product: Linear<T>,
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
        [outputs, channels, height, width]: [usize; 4],
        filters: Vec<T>,
        bias: Option<Vec<T>>,
        stride: [usize; 2],
        padding: [usize; 2],
    ) -> Result<Conv2d<T>, LayerError> {
        if stride.contains(&0) || [outputs, channels, height, width].contains(&0) {
            return Err(LayerError::Shape("a filter without elements, or one that does not move".into()));
        }
        let inputs = channels.checked_mul(height).and_then(|x| x.checked_mul(width));
        let inputs = inputs.ok_or_else(|| LayerError::Shape("a filter of more elements than can be counted".into()))?;
        let product = Linear::new(outputs, inputs, filters, bias)?;
        Ok(Conv2d { channels, kernel: [height, width], stride, padding, product })
    }

    /// Height and width of what comes out of an image.
    ///
    /// # Errors
    /// An image smaller than the filters.
    pub fn extents(&self, image: [usize; 2]) -> Result<[usize; 2], LayerError> {
        let mut out = [0; 2];
        for (i, out) in out.iter_mut().enumerate() {
            let padded = self.padding[i].checked_mul(2).and_then(|around| around.checked_add(image[i]));
            let reach = padded.filter(|_| image[i] > 0).and_then(|padded| padded.checked_sub(self.kernel[i]));
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
        let pixels = height.checked_mul(width).and_then(|plane| plane.checked_mul(self.channels));
        sized("the images", x.len(), pixels.and_then(|pixels| pixels.checked_mul(images)))?;
        let plane = height.saturating_mul(width);
        let steps = PixelSteps { image: plane.saturating_mul(self.channels), channel: plane, row: width, col: 1 };
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
        let extents = [(images, steps.image), (self.channels, steps.channel), (height, steps.row), (width, steps.col)];
        reaches("the images", x.len(), &extents)?;
        let [out_height, out_width] = self.extents(image)?;
        let many = || LayerError::Shape("more pixels than can be counted".into());
        let places = out_height.checked_mul(out_width).ok_or_else(many)?;
        let (outputs, inputs) = (self.product.outputs(), self.product.inputs());
        let all = outputs.checked_mul(places).and_then(|one| one.checked_mul(images));
        let all = all.ok_or_else(many)?;
        let mut y = vec![T::from_f64(0.0); all];
        let mut patches = Vec::with_capacity(ROWS * inputs);
        for (i, result) in y.chunks_exact_mut((outputs * places).max(1)).enumerate() {
            let of_image = &x[i * steps.image..];
            for first in (0..places).step_by(ROWS) {
                let count = ROWS.min(places - first);
                patches.clear();
                for place in first..first + count {
                    self.patch((of_image, steps), image, [place / out_width, place % out_width], &mut patches);
                }
                let rows = self.product.forward(backend, &patches)?;
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

    /// What the filters see at a place, zeros outside of the image.
    fn patch(
        &self,
        (image, steps): (&[T], PixelSteps),
        [height, width]: [usize; 2],
        [row, col]: [usize; 2],
        patch: &mut Vec<T>,
    ) {
        for channel in 0..self.channels {
            for i in 0..self.kernel[0] {
                for j in 0..self.kernel[1] {
                    let at = |place: usize, step: usize, offset: usize, padding: usize, extent: usize| {
                        (place * step + offset).checked_sub(padding).filter(|x| *x < extent)
                    };
                    let y = at(row, self.stride[0], i, self.padding[0], height);
                    let x = at(col, self.stride[1], j, self.padding[1], width);
                    let value = y.zip(x).map(|(y, x)| image[channel * steps.channel + y * steps.row + x * steps.col]);
                    patch.push(value.unwrap_or(T::from_f64(0.0)));
                }
            }
        }
    }
}
