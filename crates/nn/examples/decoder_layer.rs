//! A layer of LLaMA's shape in bf16: random and small, or out of a safetensors file. `--help` says how.
#![allow(clippy::print_stdout)]

use gemwright_cpu::half::bf16;
use gemwright_nn::{Backend, Cache, DecoderLayer, DecoderShape, LayerError, Weights};
use safetensors::tensor::{Dtype, TensorView, serialize};
use std::error::Error;
use std::io::BufRead;
use std::path::Path;
use std::time::Instant;

const USAGE: &str = "\
Time of a decoder layer of LLaMA's shape in bf16.

  cargo run --release -p gemwright-nn --example decoder_layer
      a small layer of random weights: time per token of a prompt, and of one token behind it

  cargo run --release -p gemwright-nn --example decoder_layer -- FILE HEADS KEY_HEADS THREADS
      a layer out of a safetensors file, an index of several or their folder: tensors `layer.self_attn.q_proj.weight` and
      so on, and tokens `x`. Lines come in on standard input:
        time M         runs the first M tokens and says how many seconds that took
        step M         runs M tokens, then one more behind them, and says how long the last took
        write M PATH   writes the output of the first M tokens as f32
      benches/decoder_layer.py talks to it.

Tables that GEMWRIGHT_TABLE names say who multiplies; those that are not taken are told on standard error.";

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    run(&args.iter().map(String::as_str).collect::<Vec<_>>())
}

/// What the program does; crates/nn/tests/table.rs runs it too.
pub fn run(args: &[&str]) -> Result<(), Box<dyn Error>> {
    match args {
        [] => small_layer(),
        ["--help" | "-h"] => {
            println!("{USAGE}");
            Ok(())
        }
        [file, numbers @ ..] => {
            let numbers: Vec<usize> = numbers.iter().map(|x| x.parse()).collect::<Result<_, _>>()?;
            let [heads, key_heads, threads] = numbers[..] else {
                return Err("FILE is followed by three numbers, HEADS KEY_HEADS THREADS; --help says more".into());
            };
            answer_lines(Path::new(file), heads, key_heads, threads)
        }
    }
}

fn shape(heads: usize, key_heads: usize) -> DecoderShape {
    DecoderShape { heads, key_heads, norm_eps: 1e-5, rope_theta: 10_000.0 }
}

/// By the tables that were asked for; those that are not taken are told, once.
fn backend(threads: usize) -> Backend {
    let backend = Backend::new(threads);
    for (table, why) in backend.refused_tables() {
        eprintln!("the table {} is not used: {why}", table.display());
    }
    backend
}

fn answer_lines(file: &Path, heads: usize, key_heads: usize, threads: usize) -> Result<(), Box<dyn Error>> {
    let weights = Weights::read(file)?;
    let layer = DecoderLayer::<bf16>::load(&weights, "layer", shape(heads, key_heads))?;
    let (_, x) = weights.tensor::<bf16>("x")?;
    drop(weights);
    let backend = backend(threads);
    let tokens =
        |m: usize| x.get(..m * layer.hidden()).ok_or(LayerError::Shape(format!("x has fewer than {m} tokens")));
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["time", m] => {
                println!("{}", seconds(&layer, &backend, tokens(m.parse()?)?, &mut Cache::default())?);
            }
            ["step", m] => {
                let (m, mut cache) = (m.parse::<usize>()?, Cache::default());
                layer.forward(&backend, tokens(m)?, &mut cache)?;
                let next = &tokens(m + 1)?[m * layer.hidden()..];
                println!("{}", seconds(&layer, &backend, next, &mut cache)?);
            }
            ["write", m, path] => {
                let y = layer.forward(&backend, tokens(m.parse()?)?, &mut Cache::default())?;
                let bytes: Vec<u8> = y.iter().flat_map(|x| x.to_f32().to_le_bytes()).collect();
                std::fs::write(path, bytes)?;
                println!("written");
            }
            _ => return Err(format!("`{line}` is not known").into()),
        }
    }
    Ok(())
}

fn seconds(
    layer: &DecoderLayer<bf16>,
    backend: &Backend,
    x: &[bf16],
    cache: &mut Cache<bf16>,
) -> Result<f64, LayerError> {
    let begin = Instant::now();
    layer.forward(backend, x, cache)?;
    Ok(begin.elapsed().as_secs_f64())
}

/// Columns of the small layer.
const HIDDEN: usize = 256;
const HEADS: usize = 4;
const KEY_HEADS: usize = 2;
/// Columns between gate and down.
const MIDDLE: usize = 688;
/// Its prompt.
const TOKENS: usize = 32;
/// Odd, so that one of the times is the median.
const RUNS: usize = 9;

fn small_layer() -> Result<(), Box<dyn Error>> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let layer = DecoderLayer::<bf16>::load(&random_weights()?, "layer", shape(HEADS, KEY_HEADS))?;
    let backend = backend(threads);
    println!(
        "{HIDDEN} columns, {HEADS} heads over {KEY_HEADS} of keys, {MIDDLE} between gate and down; bf16, {threads} threads"
    );
    let x = drawn(0, (TOKENS + 1) * HIDDEN, 1.0);
    let (prompt, next) = x.split_at(TOKENS * HIDDEN);
    let (mut of_prompt, mut of_next) = (Vec::new(), Vec::new());
    // The first run prepares the products and is not counted.
    for run in 0..=RUNS {
        let mut cache = Cache::default();
        let times = (seconds(&layer, &backend, prompt, &mut cache)?, seconds(&layer, &backend, next, &mut cache)?);
        if run > 0 {
            of_prompt.push(times.0);
            of_next.push(times.1);
        }
    }
    println!("{TOKENS} tokens at once: {:.1} us per token", median(of_prompt) / TOKENS as f64 * 1e6);
    println!("one token behind them: {:.1} us", median(of_next) * 1e6);
    println!("multiplied by {}", backend.used().join(", "));
    Ok(())
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn random_weights() -> Result<Weights, Box<dyn Error>> {
    let of_keys = HIDDEN / HEADS * KEY_HEADS;
    let matrices = [
        ("self_attn.q_proj", HIDDEN, HIDDEN),
        ("self_attn.k_proj", of_keys, HIDDEN),
        ("self_attn.v_proj", of_keys, HIDDEN),
        ("self_attn.o_proj", HIDDEN, HIDDEN),
        ("mlp.gate_proj", MIDDLE, HIDDEN),
        ("mlp.up_proj", MIDDLE, HIDDEN),
        ("mlp.down_proj", HIDDEN, MIDDLE),
    ];
    let norms =
        ["input_layernorm", "post_attention_layernorm"].map(|name| (name, vec![HIDDEN], vec![bf16::ONE; HIDDEN]));
    // As large as sums of so many products keep them.
    let drawn = |(i, &(name, n, k)): (usize, &(_, usize, usize))| {
        (name, vec![n, k], drawn(i + 1, n * k, (3.0 / k as f32).sqrt()))
    };
    let tensors: Vec<(String, Vec<usize>, Vec<u8>)> = (matrices.iter().enumerate().map(drawn).chain(norms))
        .map(|(name, shape, numbers)| {
            (format!("layer.{name}.weight"), shape, numbers.iter().flat_map(|x| x.to_le_bytes()).collect())
        })
        .collect();
    let views =
        tensors.iter().map(|(name, shape, bytes)| Ok((name, TensorView::new(Dtype::BF16, shape.clone(), bytes)?)));
    let views: Vec<_> = views.collect::<Result<_, safetensors::SafeTensorError>>()?;
    Ok(Weights::from_bytes(serialize(views, None)?)?)
}

/// Numbers below `most` in size, by a linear congruence: the same in every run.
fn drawn(seed: usize, count: usize, most: f32) -> Vec<bf16> {
    let mut state = seed as u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..count).map(|_| bf16::from_f32(next() * most)).collect()
}
