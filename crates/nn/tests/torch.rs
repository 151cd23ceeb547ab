//! Layers held against PyTorch's results, in f32, f64 and bf16; bounds follow from the number of terms and their sizes.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use gemwright_cpu::Number;
use gemwright_cpu::half::bf16;
use gemwright_nn::{
    Attention, Backend, Cache, Conv2d, DecoderLayer, DecoderShape, HeadSteps, Linear, PackedLinear, PixelSteps,
    Weights, attention, attention_view,
};
use safetensors::tensor::{Dtype, TensorView};
use serde_json::Value;
use std::process::Command;
use std::sync::OnceLock;

/// Recorded cases, and where the Python that is active has torch, as many that it computes now.
fn cases(kind: &str) -> Vec<Value> {
    static ALL: OnceLock<Vec<Value>> = OnceLock::new();
    let all = ALL.get_or_init(|| {
        let recorded: Value = serde_json::from_str(include_str!("goldens.json")).unwrap();
        [Some(recorded), computed_now()]
            .into_iter()
            .flatten()
            .flat_map(|all| all["cases"].as_array().unwrap().clone())
            .collect()
    });
    all.iter().filter(|case| case["kind"] == kind).cloned().collect()
}

fn computed_now() -> Option<Value> {
    let python = std::env::var("GEMWRIGHT_PYTHON").unwrap_or_else(|_| "python3".into());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/nn_goldens.py");
    let seed = std::process::id().to_string();
    let out = Command::new(python).args([script, &seed]).output().ok().filter(|out| out.status.success())?;
    println!("held against torch too, seed {seed}");
    Some(serde_json::from_slice(&out.stdout).unwrap())
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
            // Views into wider matrices; what lies between their rows stays.
            let (wide_x, wide_y) = (inputs + 3, outputs + 5);
            let mut views = (vec![T::from_f64(9.0); rows * wide_x], vec![T::from_f64(-8.0); rows * wide_y]);
            for (row, to) in x.chunks_exact(inputs).zip(views.0.chunks_exact_mut(wide_x)) {
                to[..inputs].copy_from_slice(row);
            }
            layer.forward_view(&backend, rows, (&views.0, wide_x), (&mut views.1, wide_y)).unwrap();
            let (y, between): (Vec<_>, Vec<_>) = views.1.chunks_exact(wide_y).map(|row| row.split_at(outputs)).unzip();
            near(&y.concat(), &case["y"], inputs);
            assert!(between.concat().iter().all(|x| x.to_f64() == -8.0));
            assert!(rows == 1 || layer.forward_view(&backend, rows, (&views.0, wide_x), (&mut views.1, 0)).is_err());
            assert!(layer.forward_view(&backend, rows + 1, (&views.0, wide_x), (&mut views.1, wide_y)).is_err());
            let packed = PackedLinear::new(layer.clone());
            near(&packed.forward(&backend, &x).unwrap(), &case["y"], inputs);
            // Of bf16 only tiles have a layout of their own.
            assert!(packed.laid_out_by().map_or(T::NAME == "bf16", |who| who.starts_with("own.")));
            // The first row alone, by the same layout.
            let row = Value::from(case["y"].as_array().unwrap()[..outputs].to_vec());
            near(&packed.forward(&backend, &x[..inputs]).unwrap(), &row, inputs);
            assert!(packed.forward(&backend, &[]).unwrap().is_empty());
            let back = layer.backward(&backend, &x, &dy).unwrap();
            near(&back.input, &case["dx"], outputs);
            near(&back.weight, &case["dw"], rows);
            assert_eq!(back.bias.is_some(), !case["db"].is_null());
            if let Some(bias) = &back.bias {
                near(bias, &case["db"], rows);
            }
            // Views give the same, and those that reach too far nothing.
            let mut wide_dy = vec![T::from_f64(7.0); rows * wide_y];
            for (row, to) in dy.chunks_exact(outputs).zip(wide_dy.chunks_exact_mut(wide_y)) {
                to[..outputs].copy_from_slice(row);
            }
            let viewed =
                |rows: usize, x: &[T], dy: &[T]| layer.backward_view(&backend, rows, (x, wide_x), (dy, wide_y));
            let of_views = viewed(rows, &views.0, &wide_dy).unwrap();
            near(&of_views.input, &case["dx"], outputs);
            near(&of_views.weight, &case["dw"], rows);
            if let Some(bias) = &of_views.bias {
                near(bias, &case["db"], rows);
            }
            assert_eq!(of_views.bias.is_some(), back.bias.is_some());
            assert!(viewed(rows + 1, &views.0, &wide_dy).is_err());
            assert!(viewed(rows, &views.0[..views.0.len() - 4], &wide_dy).is_err());
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
        // Channels beside each other, in a larger image.
        let ([height, width], channels, images) = (image, filters[1], size(&case, "images"));
        let row = (width + 2) * channels;
        let steps = PixelSteps { image: (height + 1) * row, channel: 1, row, col: channels };
        let mut wide = vec![T::from_f64(f64::NAN); images * steps.image];
        for (i, x) in numbers::<T>(&case["x"]).into_iter().enumerate() {
            let (image, channel) = (i / width / height / channels, i / width / height % channels);
            let (row, col) = (i / width % height, i % width);
            wide[image * steps.image + channel + row * steps.row + col * channels] = x;
        }
        assert_eq!(layer.forward_view(&backend, &wide, steps, images, image).unwrap(), y);
        assert!(layer.forward_view(&backend, &wide, steps, images + 1, image).is_err());
    }
}

#[test]
fn convolutions() {
    conv::<f32>();
    conv::<bf16>();
    assert!(Conv2d::<f32>::new([1, 1, 3, 3], vec![0.0; 9], None, [0, 1], [0, 0]).is_err());
}

fn attended<T: Number>(backend: &Backend) {
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
        let y = attention(backend, &of, &q, &k, &v).unwrap();
        // As products give them: heads side by side in a row, something behind each.
        let side_by_side = |x: &[T], heads: usize, rows: usize| {
            let steps =
                HeadSteps { batch: rows * heads * (of.width + 3), head: of.width + 3, row: heads * (of.width + 3) };
            let mut wide = vec![T::from_f64(f64::NAN); of.batch * steps.batch];
            for (i, row) in x.chunks_exact(of.width).enumerate() {
                let (batch, head, at) = (i / rows / heads, i / rows % heads, i % rows);
                wide[batch * steps.batch + head * steps.head + at * steps.row..][..of.width].copy_from_slice(row);
            }
            (wide, steps)
        };
        let (wide_q, wide_k, wide_v) = (
            side_by_side(&q, of.heads, of.queries),
            side_by_side(&k, of.key_heads, of.keys),
            side_by_side(&v, of.key_heads, of.keys),
        );
        let view = |cut: usize| {
            let [q, k] = [&wide_q, &wide_k].map(|(x, steps)| (x.as_slice(), *steps));
            attention_view(backend, &of, q, k, (&wide_v.0[..wide_v.0.len() - cut], wide_v.1))
        };
        assert_eq!(view(0).unwrap(), y);
        assert!(view(4).is_err());
        let expected: Vec<f64> = numbers(&case["y"]);
        // A score is a sum of `width` terms; a weight is as far off, relatively, as its score is; then `keys` terms are
        // summed, twice.
        let (sums, rounding) = units::<T>();
        let most = |x: &[T]| x.iter().map(|x| x.to_f64().abs()).fold(0.0, f64::max);
        let width = of.width as f64;
        let score = (width + 2.0) * sums * width.sqrt() * most(&q) * most(&k);
        let bound = 2.0 * most(&v) * (score + (of.keys as f64 + 8.0) * sums);
        for (x, y) in y.iter().zip(expected) {
            assert!(
                (x.to_f64() - y).abs() <= rounding * y.abs() + bound,
                "{x:?} is not {y}, {bound:e} may lie between"
            );
        }
        assert!(attention(backend, &of, &q, &k[1..], &v).is_err());
        assert!(attention(backend, &Attention { key_heads: 0, ..of }, &q, &[], &[]).is_err());
    }
}

#[test]
fn attention_by_blocks() {
    for threads in [1, 2] {
        let backend = Backend::new(threads);
        attended::<f32>(&backend);
        attended::<f64>(&backend);
        attended::<bf16>(&backend);
    }
}

/// Zeros, as torch.nn.functional.scaled_dot_product_attention gives for keys and values without rows.
#[test]
fn attention_over_no_keys() {
    let backend = Backend::new(2);
    let of = Attention { batch: 2, heads: 4, key_heads: 2, queries: 3, keys: 0, width: 5, causal: false, scale: None };
    let q = vec![1f32; 2 * 4 * 3 * 5];
    assert_eq!(attention(&backend, &of, &q, &[], &[]).unwrap(), vec![0.0; q.len()]);
    let steps = HeadSteps::plain(4, 3, 5);
    let empty = HeadSteps::plain(2, 0, 5);
    let viewed = attention_view(&backend, &of, (&q, steps), (&[], empty), (&[], empty)).unwrap();
    assert_eq!(viewed, vec![0.0; q.len()]);
    // A causal query would have to be among the keys itself.
    assert!(attention(&backend, &Attention { causal: true, ..of }, &q, &[], &[]).is_err());
    let nothing = Attention { queries: 0, ..of };
    assert!(attention::<f32>(&backend, &nothing, &[], &[], &[]).unwrap().is_empty());
}

/// Over several blocks of rows and keys, shared heads, a cache: against every score at once, in f64.
#[test]
fn attention_over_many_blocks() {
    let drawn = |count: usize, seed: usize| -> Vec<f64> {
        (0..count).map(|i| ((i * 7919 + seed * 104_729) % 2003) as f64 / 1001.0 - 1.0).collect()
    };
    let (one, two) = (Backend::new(1), Backend::new(2));
    for (heads, key_heads, queries, keys, causal) in
        [(4, 2, 300, 300, true), (3, 1, 70, 600, true), (2, 2, 5, 257, false)]
    {
        let of = Attention { batch: 2, heads, key_heads, queries, keys, width: 24, causal, scale: None };
        let (q, k) = (drawn(2 * heads * queries * 24, 1), drawn(2 * key_heads * keys * 24, 2));
        let v = drawn(k.len(), 3);
        let found = attention(&two, &of, &q, &k, &v).unwrap();
        assert_eq!(attention(&one, &of, &q, &k, &v).unwrap(), found);
        for (at, found) in found.chunks_exact(24).enumerate() {
            let (head, query) = (at / queries, at % queries);
            let shared = head / heads * key_heads + head % heads * key_heads / heads;
            let seen = if causal { keys - queries + query + 1 } else { keys };
            let row = |x: &[f64], i: usize| x[(shared * keys + i) * 24..][..24].to_vec();
            let dot = |i: usize| row(&k, i).iter().zip(&q[at * 24..]).map(|(x, y)| x * y).sum::<f64>() / 24f64.sqrt();
            let weights: Vec<f64> = (0..seen).map(|i| dot(i).exp()).collect();
            for (j, x) in found.iter().enumerate() {
                let sum: f64 = weights.iter().enumerate().map(|(i, w)| w * row(&v, i)[j]).sum();
                assert!((x - sum / weights.iter().sum::<f64>()).abs() < 1e-12, "head {head}, query {query}");
            }
        }
    }
}

fn decoder<T: Number>(off: f64) {
    let backend = Backend::new(2);
    let mut others = Vec::new();
    for (i, case) in cases("decoder").iter().enumerate() {
        let tensors: Vec<(String, Vec<usize>, Vec<u8>)> = case["weights"]
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, tensor)| {
                let shape = tensor["shape"].as_array().unwrap().iter().map(|x| x.as_u64().unwrap() as usize).collect();
                let bytes = numbers::<f64>(&tensor["numbers"]).into_iter().flat_map(f64::to_le_bytes).collect();
                (format!("model.layers.7.{name}.weight"), shape, bytes)
            })
            .collect();
        let views = tensors
            .iter()
            .map(|(name, shape, bytes)| (name.as_str(), TensorView::new(Dtype::F64, shape.clone(), bytes).unwrap()));
        let path = std::env::temp_dir().join(format!("gemwright-decoder-{}-{}-{i}", T::NAME, std::process::id()));
        safetensors::serialize_to_file(views, None, &path).unwrap();
        let weights = Weights::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let (heads, key_heads) = (size(case, "heads"), size(case, "key_heads"));
        let shape = DecoderShape { heads, key_heads, norm_eps: 1e-5, rope_theta: 1e4 };
        let layer = DecoderLayer::<T>::load(&weights, "model.layers.7", shape).unwrap();
        let (x, expected) = (numbers::<T>(&case["x"]), numbers::<f64>(&case["y"]));
        let largest = expected.iter().fold(0f64, |x, y| x.max(y.abs()));
        let whole = layer.forward(&backend, &x, &mut Cache::default()).unwrap();
        // And token by token, behind a cache.
        let mut cache = Cache::default();
        let steps: Vec<T> =
            x.chunks(layer.hidden()).flat_map(|token| layer.forward(&backend, token, &mut cache).unwrap()).collect();
        assert_eq!(cache.tokens() * layer.hidden(), x.len());
        for found in [whole, steps] {
            for (x, y) in found.iter().zip(&expected) {
                assert!((x.to_f64() - y).abs() <= off * largest, "{x:?} is not {y}");
            }
        }
        assert!(DecoderLayer::<T>::load(&weights, "model.layers.8", shape).is_err());
        assert!(DecoderLayer::<T>::load(&weights, "model.layers.7", DecoderShape { heads: 5, ..shape }).is_err());
        assert!(layer.forward(&backend, &x[1..], &mut Cache::default()).is_err());
        // As many keys in half as many heads are another layer's.
        let other = DecoderLayer::<T>::load(&weights, "model.layers.7", DecoderShape { key_heads: 0, ..shape });
        assert!(other.is_err());
        others.push((cache, layer, x));
    }
    let (first, second) = (&others[0], &others[1]);
    assert!(first.1.forward(&backend, &first.2, &mut second.0.clone()).is_err());
}

/// Two norms, a softmax and seven products in a row: rounding adds up over some hundred roundings of each type.
#[test]
fn decoder_layers() {
    decoder::<f64>(1e-13);
    decoder::<f32>(1e-5);
    decoder::<bf16>(0.03);
}
