//! Convolutions whose filters see pixels apart, or a group of channels: against a sum over every pixel, in whole numbers.
#![allow(clippy::unwrap_used)]

use gemwright_cpu::Number;
use gemwright_cpu::half::bf16;
use gemwright_nn::{Backend, Conv2d, PixelSteps};

struct Case {
    images: usize,
    image: [usize; 2],
    groups: usize,
    filters: [usize; 4],
    stride: [usize; 2],
    padding: [usize; 2],
    dilation: [usize; 2],
}

/// Small whole numbers, whose sums are exact in f32.
fn whole(count: usize, seed: usize) -> Vec<f64> {
    (0..count).map(|i| ((i * 7 + seed) % 11) as f64 - 5.0).collect()
}

fn of_type<T: Number>(numbers: &[f64]) -> Vec<T> {
    numbers.iter().map(|x| T::from_f64(*x)).collect()
}

/// By its definition.
fn summed(case: &Case, x: &[f64], w: &[f64], bias: &[f64], extents: [usize; 2]) -> Vec<f64> {
    let [outputs, channels, height, width] = case.filters;
    let mut y = Vec::new();
    for (image, output) in (0..case.images).flat_map(|image| (0..outputs).map(move |output| (image, output))) {
        let first = output / (outputs / case.groups) * channels;
        for (row, col) in (0..extents[0]).flat_map(|row| (0..extents[1]).map(move |col| (row, col))) {
            let mut sum = bias[output];
            for at in 0..channels * height * width {
                let (channel, i, j) = (at / width / height, at / width % height, at % width);
                let at_row = (row * case.stride[0] + i * case.dilation[0]).wrapping_sub(case.padding[0]);
                let at_col = (col * case.stride[1] + j * case.dilation[1]).wrapping_sub(case.padding[1]);
                if at_row < case.image[0] && at_col < case.image[1] {
                    let plane = image * channels * case.groups + first + channel;
                    sum += w[output * channels * height * width + at]
                        * x[(plane * case.image[0] + at_row) * case.image[1] + at_col];
                }
            }
            y.push(sum);
        }
    }
    y
}

fn convolved<T: Number>(case: &Case, extents: [usize; 2]) {
    let Case { images, image, groups, filters, stride, padding, dilation } = *case;
    let [outputs, channels, height, width] = filters;
    let (all, pixels) = (channels * groups, image[0] * image[1]);
    let (x, w, bias) =
        (whole(images * all * pixels, 3), whole(outputs * channels * height * width, 5), whole(outputs, 1));
    let layer = Conv2d::<T>::grouped(groups, filters, of_type(&w), Some(of_type(&bias)), stride, padding)
        .and_then(|layer| layer.dilated(dilation))
        .unwrap();
    assert_eq!(layer.extents(image).unwrap(), extents);
    let backend = Backend::new(2);
    let y = layer.forward(&backend, &of_type::<T>(&x), images, image).unwrap();
    let expected = summed(case, &x, &w, &bias, extents);
    assert_eq!(y, of_type::<T>(&expected));
    // Channels beside each other.
    let steps = PixelSteps { image: all * pixels, channel: 1, row: image[1] * all, col: all };
    let mut turned = vec![T::from_f64(f64::NAN); x.len()];
    for (i, x) in of_type::<T>(&x).into_iter().enumerate() {
        let (plane, pixel) = (i / pixels, i % pixels);
        turned[plane / all * steps.image + plane % all + pixel * all] = x;
    }
    assert_eq!(layer.forward_view(&backend, &turned, steps, images, image).unwrap(), y);
    assert!(layer.forward(&backend, &of_type::<T>(&x)[1..], images, image).is_err());
}

#[test]
fn dilation_and_groups() {
    let plain = Case {
        images: 2,
        image: [9, 8],
        groups: 1,
        filters: [4, 2, 3, 3],
        stride: [1, 1],
        padding: [0, 0],
        dilation: [1, 1],
    };
    // Extents as torch.nn.functional.conv2d gives them.
    let all = [
        (Case { dilation: [2, 3], ..plain }, [5, 2]),
        (Case { dilation: [2, 2], stride: [2, 1], padding: [2, 1], ..plain }, [5, 6]),
        (Case { groups: 2, ..plain }, [7, 6]),
        // A filter for each channel.
        (Case { groups: 4, filters: [4, 1, 3, 2], padding: [1, 1], ..plain }, [9, 9]),
        (Case { groups: 2, dilation: [1, 2], image: [20, 21], padding: [1, 2], ..plain }, [20, 21]),
    ];
    for (case, extents) in all {
        convolved::<f32>(&case, extents);
        convolved::<f64>(&case, extents);
        convolved::<bf16>(&case, extents);
    }
}

/// What torch.nn.functional.conv2d printed for `stride=(1, 2), padding=1, dilation=2, groups=2`.
#[test]
fn numbers_of_pytorch() {
    let layer = Conv2d::<f32>::grouped(2, [2, 1, 2, 2], of_type(&whole(8, 0)), None, [1, 2], [1, 1]).unwrap();
    let layer = layer.dilated([2, 2]).unwrap();
    let x: Vec<f32> = of_type(&whole(2 * 3 * 4, 2));
    let y = layer.forward(&Backend::new(1), &x, 1, [3, 4]).unwrap();
    assert_eq!(layer.extents([3, 4]).unwrap(), [3, 2]);
    assert_eq!(y, PYTORCH);
}

const PYTORCH: [f32; 12] = [-5.0, 12.0, 33.0, -53.0, -2.0, 9.0, 0.0, -20.0, 0.0, -5.0, 15.0, 1.0];

#[test]
fn what_does_not_fit_is_refused() {
    let plain = |groups| Conv2d::<f32>::grouped(groups, [4, 1, 3, 3], vec![0.0; 36], None, [1, 1], [0, 0]);
    assert!(plain(3).is_err() && plain(0).is_err() && plain(4).is_ok());
    assert!(plain(1).unwrap().dilated([1, 0]).is_err());
    // Three pixels three apart are seven.
    let layer = plain(1).unwrap().dilated([3, 3]).unwrap();
    assert!(layer.extents([6, 7]).is_err() && layer.extents([7, 7]).is_ok());
    assert!(plain(1).unwrap().dilated([usize::MAX, 1]).unwrap().extents([9, 9]).is_err());
}
