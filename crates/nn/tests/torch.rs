//! Layers held against PyTorch's results, in f32, f64 and bf16; bounds follow from the number of terms and their sizes.
#![allow(clippy::unwrap_used)]

use gemwright_cpu::Number;
use gemwright_cpu::half::bf16;
use gemwright_nn::{Attention, Backend, Conv2d, Linear, attention};
use serde_json::Value;

fn cases(kind: &str) -> Vec<Value> {
    let all: Value = serde_json::from_str(include_str!("goldens.json")).unwrap();
    all["cases"].as_array().unwrap().iter().filter(|case| case["kind"] == kind).cloned().collect()
}

fn numbers<T: Number>(value: &Value) -> Vec<T> {
    // Whole numbers are 64ths.
    let number = |x: &Value| x.as_i64().map_or_else(|| x.as_f64().unwrap(), |whole| whole as f64 / 64.0);
    value.as_array().unwrap().iter().map(|x| T::from_f64(number(x))).collect()
}

fn some<T: Number>(value: &Value) -> Option<Vec<T>> {
    (!value.is_null()).then(|| numbers(value))
}

fn size(case: &Value, name: &str) -> usize {
    case[name].as_u64().unwrap() as usize
}

fn pair(value: &Value) -> [usize; 2] {
    [0, 1].map(|i| value[i].as_u64().unwrap() as usize)
}

/// Units of sums and of the result's rounding.
fn units<T: Number>() -> (f64, f64) {
    match T::NAME {
        "f64" => (f64::EPSILON, f64::EPSILON),
        "bf16" => (f32::EPSILON.into(), 1.0 / 128.0),
        _ => (f32::EPSILON.into(), f32::EPSILON.into()),
    }
}

/// So many terms, none larger than 4 in size, were summed and rounded once.
fn near<T: Number>(found: &[T], expected: &Value, terms: usize) {
    let expected: Vec<f64> = numbers(expected);
    let (sums, rounding) = units::<T>();
    assert_eq!(found.len(), expected.len());
    for (x, y) in found.iter().zip(expected) {
        let bound = (terms + 2) as f64 * sums * 4.0 * terms as f64 + rounding * y.abs();
        assert!((x.to_f64() - y).abs() <= bound, "{x:?} is not {y}, {bound:e} may lie between");
    }
}

fn linear<T: Number>() {
    for threads in [1, 2] {
        let backend = Backend::new(threads);
        for case in cases("linear") {
            let (rows, outputs, inputs) = (size(&case, "rows"), size(&case, "outputs"), size(&case, "inputs"));
            let layer = Linear::<T>::new(outputs, inputs, numbers(&case["w"]), some(&case["b"])).unwrap();
            let (x, dy) = (numbers::<T>(&case["x"]), numbers::<T>(&case["dy"]));
            near(&layer.forward(&backend, &x).unwrap(), &case["y"], inputs);
            let back = layer.backward(&backend, &x, &dy).unwrap();
            near(&back.input, &case["dx"], outputs);
            near(&back.weight, &case["dw"], rows);
            assert_eq!(back.bias.is_some(), !case["db"].is_null());
            if let Some(bias) = &back.bias {
                near(bias, &case["db"], rows);
            }
            // Anything else is refused, not read.
            assert!(layer.forward(&backend, &[x.clone(), vec![x[0]]].concat()).is_err() || inputs == 1);
            assert!(layer.backward(&backend, &x, &dy[1..]).is_err());
        }
    }
}

#[test]
fn linear_layers_and_their_gradients() {
    linear::<f32>();
    linear::<f64>();
    linear::<bf16>();
}

/// One layer of q, k and v gives the bits that three give.
#[test]
fn stacked_layers_give_the_same_numbers() {
    let backend = Backend::new(2);
    let all = cases("linear");
    let case = &all[2];
    let (outputs, inputs) = (size(case, "outputs"), size(case, "inputs"));
    let w: Vec<f32> = numbers(&case["w"]);
    let b: Vec<f32> = numbers(&case["b"]);
    let x: Vec<f32> = numbers(&case["x"]);
    let part = |rows: std::ops::Range<usize>| {
        let weight = w[rows.start * inputs..rows.end * inputs].to_vec();
        Linear::new(rows.len(), inputs, weight, Some(b[rows].to_vec())).unwrap()
    };
    let parts = [part(0..9), part(9..20), part(20..outputs)];
    let one = Linear::stacked(&parts.iter().collect::<Vec<_>>()).unwrap();
    let whole = one.forward(&backend, &x).unwrap();
    let apart: Vec<Vec<f32>> = parts.iter().map(|layer| layer.forward(&backend, &x).unwrap()).collect();
    for (i, row) in whole.chunks_exact(outputs).enumerate() {
        let beside: Vec<f32> = apart
            .iter()
            .zip(&parts)
            .flat_map(|(y, layer)| y[i * layer.outputs()..][..layer.outputs()].to_vec())
            .collect();
        assert_eq!(row, beside);
    }
    let other = Linear::new(2, inputs + 1, vec![0f32; 2 * (inputs + 1)], None).unwrap();
    assert!(Linear::stacked(&[&parts[0], &other]).is_err());
    assert!(Linear::<f32>::stacked(&[]).is_err());
}

fn conv<T: Number>() {
    let backend = Backend::new(2);
    for case in cases("conv2d") {
        let filters: Vec<usize> =
            case["filters"].as_array().unwrap().iter().map(|x| x.as_u64().unwrap() as usize).collect();
        let filters: [usize; 4] = filters.try_into().unwrap();
        let layer = Conv2d::<T>::new(
            filters,
            numbers(&case["w"]),
            some(&case["b"]),
            pair(&case["stride"]),
            pair(&case["padding"]),
        )
        .unwrap();
        let image = pair(&case["image"]);
        assert_eq!(layer.extents(image).unwrap(), pair(&case["extents"]));
        let y = layer.forward(&backend, &numbers::<T>(&case["x"]), size(&case, "images"), image).unwrap();
        near(&y, &case["y"], filters[1] * filters[2] * filters[3]);
        assert!(layer.forward(&backend, &numbers::<T>(&case["x"])[1..], size(&case, "images"), image).is_err());
    }
}

#[test]
fn convolutions() {
    conv::<f32>();
    conv::<bf16>();
    assert!(Conv2d::<f32>::new([1, 1, 3, 3], vec![0.0; 9], None, [0, 1], [0, 0]).is_err());
}

fn attended<T: Number>() {
    for case in cases("attention") {
        let of = Attention {
            batch: size(&case, "batch"),
            heads: size(&case, "heads"),
            key_heads: size(&case, "key_heads"),
            queries: size(&case, "queries"),
            keys: size(&case, "keys"),
            width: size(&case, "width"),
            causal: case["causal"].as_bool().unwrap(),
            scale: None,
        };
        let (q, k, v) = (numbers::<T>(&case["q"]), numbers::<T>(&case["k"]), numbers::<T>(&case["v"]));
        let y = attention(&of, &q, &k, &v).unwrap();
        let expected: Vec<f64> = numbers(&case["y"]);
        let (_, rounding) = units::<T>();
        for (x, y) in y.iter().zip(expected) {
            assert!((x.to_f64() - y).abs() <= rounding * y.abs() + 1e-13, "{x:?} is not {y}");
        }
        assert!(attention(&of, &q, &k[1..], &v).is_err());
        assert!(attention(&Attention { key_heads: 0, ..of }, &q, &[], &[]).is_err());
    }
}

#[test]
fn attention_by_blocks() {
    attended::<f32>();
    attended::<f64>();
    attended::<bf16>();
}
