//! Kernels compile, without a GPU: no spills, no serialised wgmma, products on the tensor cores' own instructions, no more
//! shared memory than a block has. Where there is no compiler nothing can be shown; `GEMWRIGHT_NEEDS_NVRTC` makes that an error, and `GEMWRIGHT_ALL_KERNELS` takes every
//! configuration, not one in many.

use gemwright_core::{Activation, Cluster, DType, DecodeChoice, KernelChoice, KernelTile, Product, Schedule};
use gemwright_cuda::{
    Compiled, Config, CudaError, DecodeConfig, Gate, Grouping, Layouts, MmaConfig, MmaTile, OutWay, Output, PartWay,
    compile_bias_grad, compile_pad, compiler_version,
};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Everything that goes together.
fn configs() -> Vec<Config> {
    let mut all = Vec::new();
    for KernelChoice { tile, turned, cluster, schedule } in KernelChoice::all() {
        for (a_mn, b_mn) in [(false, false), (false, true), (true, true), (true, false)] {
            all.push(Config { cluster, layouts: Layouts { a_mn, b_mn }, ..Config::new(tile, schedule, turned) });
        }
    }
    // Types and epilogues, on a few tiles.
    for (tile, turned, schedule) in [
        ("128x256", false, Schedule::Persistent),
        ("128x128p", false, Schedule::Persistent),
        ("128x192p", false, Schedule::Persistent),
        ("64x32p", true, Schedule::Persistent),
        ("128x64", true, Schedule::Persistent),
        ("128x128", false, Schedule::DataParallel),
        ("192x128p", false, Schedule::DataParallel),
        ("64x104p", true, Schedule::DataParallel),
    ] {
        let plain = Config::new(KernelTile::named(tile).expect("a tile of the table"), schedule, turned);
        for output in [
            (DType::F16, false, OutWay::Boxes),
            (DType::F32, false, OutWay::Boxes),
            (DType::F32, true, OutWay::Boxes),
            (DType::Bf16, false, OutWay::Elements),
            (DType::F16, false, OutWay::Rows),
        ] {
            let output = Output { dtype: output.0, add: output.1, way: output.2 };
            let dtype = if output.dtype == DType::F16 { DType::F16 } else { DType::Bf16 };
            all.push(Config { output, dtype, ..plain });
        }
        for activation in Activation::ALL {
            for way in [PartWay::PerColumn, PartWay::PerRow, PartWay::PerElement, PartWay::PerPair] {
                for kept in [false, true] {
                    all.push(Config {
                        activation,
                        parts: [PartWay::PerRow, PartWay::PerColumn, way, way],
                        kept,
                        ..plain
                    });
                    all.push(Config {
                        activation,
                        parts: [PartWay::None, way, PartWay::None, PartWay::None],
                        kept,
                        ..plain
                    });
                    all.push(Config { activation, gate: Gate::First, kept, ..plain });
                }
            }
        }
    }
    // Groups, and operands of e4m3, on every tile.
    for tile in KernelTile::ALL {
        for turned in [false, true] {
            let plain = Config::new(tile, Schedule::Persistent, turned);
            let mn = |a_mn, b_mn| Layouts { a_mn, b_mn };
            let added = Output { dtype: DType::F32, add: true, way: OutWay::Boxes };
            let eight = Config { dtype: DType::F8E4m3, ..plain };
            all.extend([
                Config { grouping: Grouping::Rows, ..plain },
                Config {
                    grouping: Grouping::Rows,
                    layouts: if turned { mn(true, false) } else { mn(false, true) },
                    ..plain
                },
                Config { grouping: Grouping::Rows, gate: Gate::First, activation: Activation::Silu, ..plain },
                Config { grouping: Grouping::K, layouts: mn(true, true), ..plain },
                Config { grouping: Grouping::K, layouts: mn(true, true), output: added, ..plain },
                eight,
                Config { scales: true, ..eight },
                Config { scales: true, promoted: true, cluster: Cluster::PAIR, ..eight },
                Config { scales: true, gate: Gate::First, activation: Activation::Silu, ..eight },
            ]);
        }
    }
    all.retain(|config| config.check().is_ok());
    all
}

/// Kernels of mma.sync: layouts, grains, types and epilogues on each tile.
fn mma_configs() -> Vec<MmaConfig> {
    let mut all = Vec::new();
    for tile in MmaTile::ALL {
        let plain = MmaConfig::new(tile);
        for (a_mn, b_mn) in [(false, false), (false, true), (true, true), (true, false)] {
            for grains in [[16, 16], [8, 4], [2, 2]] {
                all.push(MmaConfig { layouts: Layouts { a_mn, b_mn }, grains, ..plain });
            }
        }
        all.push(MmaConfig { dtype: DType::F16, out_dtype: DType::F16, ..plain });
        all.push(MmaConfig { out_dtype: DType::F32, add: true, scaled: true, ..plain });
        for activation in Activation::ALL {
            for way in [PartWay::PerColumn, PartWay::PerRow, PartWay::PerElement, PartWay::PerPair] {
                all.push(MmaConfig {
                    activation,
                    parts: [PartWay::PerRow, PartWay::PerColumn, way, way],
                    kept: true,
                    ..plain
                });
            }
        }
    }
    all
}

/// `None` where there is no compiler and none is asked for.
fn compiler() -> Option<()> {
    match compiler_version() {
        Err(absent) if std::env::var_os("GEMWRIGHT_NEEDS_NVRTC").is_some() => panic!("{absent}"),
        Err(_) => None,
        Ok(_) => Some(()),
    }
}

/// One in so many, or every one.
fn step(few: usize) -> usize {
    if std::env::var_os("GEMWRIGHT_ALL_KERNELS").is_some() { 1 } else { few }
}

/// The instruction that multiplies, by the low bits of its code on Ampere to Hopper.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Multiply {
    /// wgmma on 16 bits, and on 8.
    Hgmma = 0x1f0,
    Qgmma = 0x1f3,
    /// mma.sync.
    Hmma = 0x03c,
}

/// How often it stands in what was compiled: an ELF file, whose executable sections are instructions of 16 bytes.
fn count(cubin: &[u8], multiply: Multiply) -> usize {
    let number = |at: usize, bytes: usize| -> usize {
        let number = cubin.get(at..at + bytes).expect("a whole file");
        number.iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte))
    };
    let (table, size, sections) = (number(0x28, 8), number(0x3a, 2), number(0x3c, 2));
    let executable = (0..sections).map(|i| table + i * size).filter(|at| number(at + 8, 8) & 4 != 0);
    let codes = executable.flat_map(|at| {
        let (first, bytes) = (number(at + 0x18, 8), number(at + 0x20, 8));
        (first..first + bytes).step_by(16).map(|at| number(at, 8))
    });
    codes.filter(|code| code & 0x1ff == multiply as usize).count()
}

/// Lines of the compiler's that nobody wants to see, and whether it left out the instruction that is there to multiply.
fn complaints(compiled: Result<Compiled, CudaError>, multiply: Option<Multiply>) -> Vec<String> {
    let compiled = match compiled {
        Err(why) => return vec![why.to_string()],
        Ok(compiled) => compiled,
    };
    let spilled = |line: &&str| line.contains("spill stores") && !line.contains(" 0 bytes spill stores");
    let serialised = |line: &&str| ["C7508", "C7510", "serialized"].iter().any(|x| line.contains(x));
    let lacks = multiply.filter(|multiply| count(&compiled.cubin, *multiply) == 0);
    let lacks = lacks.map(|multiply| format!("it has no {multiply:?}"));
    compiled.log.lines().filter(|line| spilled(line) || serialised(line)).map(String::from).chain(lacks).collect()
}

/// Compiles all of them, as many at a time as there are processors.
fn none_complains<T: Sync>(
    all: &[T],
    compile: impl Fn(&T) -> (String, Result<Compiled, CudaError>, Option<Multiply>) + Sync,
) {
    let (next, bad) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, |count| count.get()) {
            scope.spawn(|| {
                while let Some(one) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (name, compiled, multiply) = compile(one);
                    let lines = complaints(compiled, multiply).into_iter().map(|line| format!("{name}: {line}"));
                    bad.lock().expect("nobody panics with it").extend(lines);
                }
            });
        }
    });
    let bad = bad.into_inner().expect("nobody panics with it");
    assert!(bad.is_empty(), "{} of {}:\n{}", bad.len(), all.len(), bad.join("\n"));
}

#[test]
fn kernels_compile_without_spills() {
    let Some(()) = compiler() else { return };
    // Every tile, and by and by everything else.
    let all = configs();
    let some: Vec<&Config> = all.iter().step_by(step(86)).collect();
    let multiply = |config: &Config| if config.dtype == DType::F8E4m3 { Multiply::Qgmma } else { Multiply::Hgmma };
    none_complains(&some, |config| (format!("{config:?}"), config.compile(true), Some(multiply(config))));
}

#[test]
fn the_gradient_of_a_bias_compiles() {
    let Some(()) = compiler() else { return };
    for dtypes in [(DType::Bf16, DType::Bf16), (DType::F16, DType::F32), (DType::F32, DType::F32)] {
        assert_eq!(
            complaints(compile_bias_grad(dtypes, dtypes.1 == DType::F32, "sm_80", true), None),
            Vec::<String>::new()
        );
    }
}

/// Every way of streaming weights, plain and with everything that may be asked of it.
fn decode_configs() -> Vec<(&'static str, DecodeConfig)> {
    let mut all = Vec::new();
    // Short enough to keep x in registers, and too long for that.
    let product = Product { batch: 1, m: 1, n: 64, k: 1024 };
    let long = Product { k: 8192, ..product };
    for choice in DecodeChoice::all() {
        let plain = DecodeConfig::new(choice).of_length(product.k);
        let parts = [PartWay::None, PartWay::PerColumn, PartWay::None, PartWay::PerElement];
        let kinds = [
            plain,
            DecodeConfig { x_rows: 16, dtype: DType::F16, out_dtype: DType::F32, add: true, ..plain },
            DecodeConfig { x_rows: 1, ..plain },
            DecodeConfig { x_rows: 2, ..plain },
            DecodeConfig { x_rows: 32, ..plain }.of_length(product.k),
            DecodeConfig { x_rows: 32, gated: true, activation: Activation::Silu, ..plain }.of_length(long.k),
            DecodeConfig { x_rows: 32, out_dtype: DType::F32, add: true, parts, ..plain }.of_length(long.k),
            DecodeConfig { x_rows: 4, gated: true, ..DecodeConfig::new(choice).of_length(long.k) },
            DecodeConfig { activation: Activation::Silu, gated: true, kept: true, ..plain },
            DecodeConfig { activation: Activation::GeluTanh, parts, scaled: true, ..plain },
            DecodeConfig { shifted: [true, true], tail: true, ..plain }.of_length(product.k),
            DecodeConfig { shifted: [false, true], x_rows: 16, ..plain }.of_length(product.k),
            DecodeConfig { weight_dtype: DType::F8E4m3, scales: true, ..plain },
            DecodeConfig { weight_dtype: DType::F8E4m3, x_rows: 1, ..plain },
            DecodeConfig { weight_dtype: DType::F8E4m3, gated: true, ..DecodeConfig::new(choice).of_length(long.k) },
            DecodeConfig { weight_dtype: DType::F8E4m3, dtype: DType::F16, x_rows: 16, gated: true, ..plain },
        ];
        all.extend(
            kinds
                .into_iter()
                .filter(|config| config.refuses(&product).is_none() || config.refuses(&long).is_none())
                .map(|config| ("sm_90", config)),
        );
        if matches!(choice, DecodeChoice::Direct(direct) if direct.split == 1) {
            all.push(("sm_80", plain));
        }
    }
    all
}

#[test]
fn kernels_that_stream_weights_compile() {
    let Some(()) = compiler() else { return };
    let all = decode_configs();
    let some: Vec<_> = all.iter().step_by(step(34)).collect();
    // A single row is multiplied without tensor cores.
    let multiply = |config: &DecodeConfig| (config.x_rows > 1).then_some(Multiply::Hmma);
    none_complains(&some, |(arch, config)| {
        (format!("{arch} {config:?}"), config.compile(arch, true), multiply(config))
    });
}

#[test]
fn copies_compile() {
    let Some(()) = compiler() else { return };
    assert_eq!(complaints(compile_pad("sm_90", true), None), Vec::<String>::new());
}

#[test]
fn mma_kernels_compile_for_every_architecture() {
    let Some(()) = compiler() else { return };
    let all = mma_configs();
    let architectures = ["sm_80", "sm_86", "sm_89", "sm_90"];
    let pairs: Vec<_> = architectures.iter().flat_map(|arch| all.iter().map(move |config| (arch, config))).collect();
    let some: Vec<_> = pairs.iter().step_by(step(58)).collect();
    none_complains(&some, |(arch, config)| {
        (format!("{arch} {config:?}"), config.compile(arch, true), Some(Multiply::Hmma))
    });
}
