//! Tables that `GEMWRIGHT_TABLE` names, in processes of their own: the variable is of a whole process.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

// Its `main`, which nobody calls here, is the program's.
#[allow(dead_code)]
#[path = "../examples/decoder_layer.rs"]
mod decoder_layer;

use gemwright_core::DType;
use gemwright_engine::{Problem, TABLES, candidates, cpu_name};
use gemwright_nn::{Backend, Linear, PackedLinear};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

const THREADS: usize = 2;
const M: usize = 2;
const N: usize = 3;
const K: usize = 4;

/// Kernels of ours for f32, the one that a backend takes by itself first.
fn kernels() -> Vec<String> {
    let (all, _) = candidates();
    let fits = |types: &[(DType, DType)]| types.contains(&(DType::F32, DType::F32));
    all.iter().filter(|c| c.is_own() && fits(c.contract().dtypes)).map(|c| c.name().to_string()).collect()
}

/// A table of this machine, or of one that has another number of threads, that names one candidate for the product of
/// these tests, with its weight as it lies and laid out.
fn table(name: &str, candidate: &str, threads: usize) -> PathBuf {
    let path = env::temp_dir().join(format!("gemwright-table-{name}-{}.csv", std::process::id()));
    let flags = Problem::linear(M as u64, N as u64, K as u64, DType::F32).tuned_key().kind.flags;
    let device = cpu_name();
    let mut rows = String::from(
        "gfx,cu_num,flags,batch,M,N,K,dtype,outdtype,epilogue,prepacked,candidate,us,second,second_us,spread,all,dropped\n",
    );
    for (prepacked, runner) in [("False", candidate.to_string()), ("True", format!("{candidate}:packed"))] {
        rows += &format!(
            "{device},{threads},{flags},1,{M},{N},{K},f32,f32,,{prepacked},{runner},1.0,,,0.0,{runner}=1.0@0.0,\n"
        );
    }
    let meta = serde_json::json!({
        "format": 1, "device": device, "units": threads, "flops_per_second": 1e11, "bytes_per_second": 1e10,
        "candidates": [{"name": "gemwright", "version": env!("CARGO_PKG_VERSION")}],
    });
    fs::write(path.with_extension("ours.csv"), rows).unwrap();
    fs::write(path.with_extension("meta.json"), meta.to_string()).unwrap();
    path
}

fn remove(table: &Path) {
    for ending in ["ours.csv", "meta.json"] {
        fs::remove_file(table.with_extension(ending)).unwrap();
    }
}

/// What a child of this process, that runs one test, says: on its output and beside it.
fn child(test: &str, tables: &[&Path]) -> (String, String) {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--ignored", "--exact", test, "--nocapture"]).env_remove(TABLES);
    if !tables.is_empty() {
        command.env(TABLES, env::join_paths(tables).unwrap());
    }
    let out = command.output().unwrap();
    let [said, beside] = [out.stdout, out.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    assert!(out.status.success(), "{said}{beside}");
    (said, beside)
}

#[test]
#[ignore = "the others run it with tables"]
fn multiplies() {
    let backend = Backend::new(THREADS);
    let weight: Vec<f32> = (0..N * K).map(|i| i as f32).collect();
    let layer = Linear::new(N, K, weight, None).unwrap();
    let x = [1.0, 0.0, 0.0, 1.0, 0.0, 2.0, 0.0, 0.0];
    let expected = [3.0, 11.0, 19.0, 2.0, 10.0, 18.0];
    assert_eq!(layer.forward(&backend, &x).unwrap(), expected);
    let as_it_lies = backend.used();
    let packed = PackedLinear::new(layer);
    assert_eq!(packed.forward(&backend, &x).unwrap(), expected);
    println!("as it lies {as_it_lies:?}, laid out by {:?}", packed.laid_out_by());
}

#[test]
fn whom_a_table_names_multiplies() {
    let kernels = kernels();
    let by = |name: &str| format!("as it lies [{name:?}], laid out by {:?}", Some(name));
    let (first, last) = (kernels.first().unwrap(), kernels.last().unwrap());
    let (said, _) = child("multiplies", &[]);
    assert!(said.contains(&by(first)), "{said}");
    // Where there is one kernel alone, it says little.
    let table = table("last", last, THREADS);
    let (said, _) = child("multiplies", &[&table]);
    remove(&table);
    assert!(said.contains(&by(last)), "{said}");
}

/// A table that names nobody who is here is no reason not to multiply.
#[test]
fn whom_nobody_knows_gives_way() {
    let table = table("nobody", "nobody.at-all", THREADS);
    let (said, _) = child("multiplies", &[&table]);
    remove(&table);
    assert!(said.contains(&format!("as it lies [{:?}], laid out by None", kernels()[0])), "{said}");
}

#[test]
#[ignore = "another runs it with tables"]
fn runs_the_example() {
    decoder_layer::run(&[]).unwrap();
}

#[test]
fn the_example_tells_refused_tables_once() {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let of_another = table("another", &kernels()[0], threads + 1);
    let absent = env::temp_dir().join("gemwright-no-such-table.csv");
    let (said, beside) = child("runs_the_example", &[&of_another, &absent]);
    remove(&of_another);
    for (table, why) in [(&of_another, "it was made on"), (&absent, "gemwright-no-such-table.csv")] {
        let told = format!("the table {} is not used: ", table.display());
        let lines: Vec<&str> = beside.lines().filter(|line| line.contains(&told)).collect();
        assert!(lines.len() == 1 && lines[0].split_once(&told).unwrap().1.contains(why), "{beside}");
    }
    assert!(said.contains("tokens at once: ") && said.contains("multiplied by own."), "{said}");
}
