//! A layer of LLaMA's shape in bf16, out of a safetensors file:
//!
//!   cargo run --release -p gemwright-nn --example decoder_layer -- FILE HEADS KEY_HEADS THREADS
//!
//! The file has the layer's tensors (`layer.self_attn.q_proj.weight` and so on) and tokens `x`. Lines come in on standard
//! input: `time M` runs the first M tokens and says how many seconds that took; `step M` runs M tokens, then one more behind
//! them, and says how long the last took; `write M PATH` writes the output of the first M tokens as f32.
//! benches/decoder_layer.py talks to it.
#![allow(clippy::print_stdout)]

use gemwright_cpu::half::bf16;
use gemwright_nn::{Backend, Cache, DecoderLayer, DecoderShape, LayerError, Weights};
use std::io::BufRead;
use std::path::Path;
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [file, numbers @ ..] = args.as_slice() else { return Err("decoder_layer FILE HEADS KEY_HEADS THREADS".into()) };
    let numbers: Vec<usize> = numbers.iter().map(|x| x.parse()).collect::<Result<_, _>>()?;
    let [heads, key_heads, threads] = numbers[..] else {
        return Err("HEADS KEY_HEADS THREADS are three numbers".into());
    };
    let weights = Weights::read(Path::new(file))?;
    let shape = DecoderShape { heads, key_heads, norm_eps: 1e-5, rope_theta: 10_000.0 };
    let layer = DecoderLayer::<bf16>::load(&weights, "layer", shape)?;
    let (_, x) = weights.tensor::<bf16>("x")?;
    drop(weights);
    let backend = Backend::new(threads);
    let tokens =
        |m: usize| x.get(..m * layer.hidden()).ok_or(LayerError::Shape(format!("x has fewer than {m} tokens")));
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["time", m] => {
                let x = tokens(m.parse()?)?;
                let begin = Instant::now();
                layer.forward(&backend, x, &mut Cache::default())?;
                println!("{}", begin.elapsed().as_secs_f64());
            }
            ["step", m] => {
                let (m, mut cache) = (m.parse::<usize>()?, Cache::default());
                layer.forward(&backend, tokens(m)?, &mut cache)?;
                let next = &tokens(m + 1)?[m * layer.hidden()..];
                let begin = Instant::now();
                layer.forward(&backend, next, &mut cache)?;
                println!("{}", begin.elapsed().as_secs_f64());
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
