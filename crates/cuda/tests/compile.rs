//! Kernels compile, without a GPU: no spills, no serialised wgmma, no more shared memory than a block has. Where there is
//! no compiler nothing can be shown; `GEMWRIGHT_NEEDS_NVRTC` makes that an error, and `GEMWRIGHT_ALL_KERNELS` takes every
//! configuration, not one in many.

use gemwright_core::{Activation, DType, KernelTile, Schedule};
use gemwright_cuda::{Config, Gate, Layouts, Output, compiler_version};

/// Everything that goes together.
fn configs() -> Vec<Config> {
    let mut all = Vec::new();
    for tile in KernelTile::ALL {
        for schedule in Schedule::ALL {
            for turned in [false, true] {
                for (a_mn, b_mn) in [(false, false), (false, true), (true, true), (true, false)] {
                    for cluster in [1, 2] {
                        let plain = Config::new(tile, schedule, turned);
                        all.push(Config { cluster, layouts: Layouts { a_mn, b_mn }, ..plain });
                    }
                }
            }
        }
    }
    // Types and epilogues, on a few tiles.
    for (tile, turned) in
        [("128x256", false), ("128x128p", false), ("128x176", false), ("64x32p", true), ("128x64", true)]
    {
        let plain = Config::new(KernelTile::named(tile).expect("a tile of the table"), Schedule::Persistent, turned);
        for output in [
            (DType::F16, false, false),
            (DType::F32, false, false),
            (DType::F32, true, false),
            (DType::Bf16, false, true),
        ] {
            let output = Output { dtype: output.0, add: output.1, direct: output.2 };
            let dtype = if output.dtype == DType::F16 { DType::F16 } else { DType::Bf16 };
            all.push(Config { output, dtype, ..plain });
        }
        for activation in Activation::ALL {
            all.push(Config { activation, parts: [true; 4], ..plain });
            all.push(Config { activation, gate: Gate::First, ..plain });
        }
    }
    all.retain(|config| config.check().is_ok());
    all
}

#[test]
fn kernels_compile_without_spills() {
    let needed = std::env::var_os("GEMWRIGHT_NEEDS_NVRTC").is_some();
    match compiler_version() {
        Err(absent) if needed => panic!("{absent}"),
        Err(_) => return,
        Ok(_) => {}
    }
    let all = configs();
    // Every tile, and by and by everything else.
    let step = if std::env::var_os("GEMWRIGHT_ALL_KERNELS").is_some() { 1 } else { 29 };
    let mut bad = Vec::new();
    for config in all.iter().step_by(step) {
        match config.compile(true) {
            Err(why) => bad.push(format!("{}: {why}", config.name())),
            Ok(compiled) => {
                let spilled = |line: &&str| line.contains("spill stores") && !line.contains(" 0 bytes spill stores");
                let serialised = |line: &&str| ["C7508", "C7510", "serialized"].iter().any(|x| line.contains(x));
                let lines = compiled.log.lines().filter(|line| spilled(line) || serialised(line));
                bad.extend(lines.map(|line| format!("{} {:?}: {line}", config.name(), config.layouts)));
            }
        }
    }
    assert!(bad.is_empty(), "{} of {}:\n{}", bad.len(), all.len().div_ceil(step), bad.join("\n"));
}
