//! A workload as another tool reads it.

use crate::row::Row;
use crate::{aiter, bench_lines, experts, nvidia, tunableop};
use gemwright_core::Workload;
use gemwright_core::blas::{Settings, Stack};

/// What can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Format {
    /// `bf16_untuned_gemm.csv`.
    Aiter,
    /// An untuned file.
    TunableOp,
    HipblasltBench,
    HipblasltYaml,
    RocblasBench,
    RocblasYaml,
    NvMatmulHeuristics,
    CutlassProfiler,
    /// Names of files with configurations of expert kernels.
    VllmMoe,
    SglangMoe,
}

/// Products that a format cannot hold.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct LeftOut {
    pub why: String,
    /// Different products, and how often they run.
    pub products: usize,
    pub runs: u64,
}

/// What was written, and what was not.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Export {
    pub text: String,
    pub rows: usize,
    /// Rows that stand for a product with a bias, which the format has no word for.
    pub without_bias: usize,
    pub left_out: Vec<LeftOut>,
}

impl Format {
    /// Whose libraries the rows are called for.
    pub fn stack(self) -> Stack {
        match self {
            Format::NvMatmulHeuristics | Format::CutlassProfiler => Stack::Cuda,
            _ => Stack::Rocm,
        }
    }

    /// Why the format cannot hold a row.
    fn refuses(self, row: &Row) -> Option<&'static str> {
        match self {
            Format::Aiter => aiter::refuses(row),
            Format::TunableOp => tunableop::refuses(row),
            Format::HipblasltBench | Format::HipblasltYaml | Format::RocblasBench | Format::RocblasYaml => {
                bench_lines::refuses(row)
            }
            Format::NvMatmulHeuristics | Format::CutlassProfiler => nvidia::refuses(row),
            Format::VllmMoe | Format::SglangMoe => Some("only experts have such files"),
        }
    }

    fn write(self, rows: &[Row]) -> String {
        match self {
            Format::Aiter => aiter::write(rows),
            Format::TunableOp => tunableop::write(rows),
            Format::HipblasltBench => bench_lines::hipblaslt(rows),
            Format::HipblasltYaml => bench_lines::hipblaslt_yaml(rows),
            Format::RocblasBench => bench_lines::rocblas(rows),
            Format::RocblasYaml => bench_lines::rocblas_yaml(rows),
            Format::NvMatmulHeuristics => nvidia::heuristics(rows),
            Format::CutlassProfiler => nvidia::profiler(rows),
            Format::VllmMoe | Format::SglangMoe => String::new(),
        }
    }
}

/// Each reason with what it leaves out.
#[derive(Default)]
struct Reasons(Vec<LeftOut>);

impl Reasons {
    fn add(&mut self, why: &str, runs: u64) {
        match self.0.iter_mut().find(|known| known.why == why) {
            Some(known) => {
                known.products += 1;
                known.runs += runs;
            }
            None => self.0.push(LeftOut { why: why.into(), products: 1, runs }),
        }
    }
}

/// Writes what the format can hold, equal products once; `device` is the GPU's name in names of files.
pub fn export(workload: &Workload, format: Format, device: &str) -> Export {
    let settings = Settings { stack: format.stack(), ..Settings::default() };
    let mut reasons = Reasons::default();
    if matches!(format, Format::VllmMoe | Format::SglangMoe) {
        let (text, rows) = experts::write(workload, format, device);
        for call in workload.calls().iter().filter(|call| call.groups().is_none()) {
            reasons.add("only experts have such files", call.count);
        }
        return Export { text, rows, without_bias: 0, left_out: reasons.0 };
    }
    let mut rows: Vec<Row> = Vec::new();
    for call in workload.calls() {
        let row = match Row::of(call, settings) {
            Ok(row) => row,
            Err(why) => {
                reasons.add(why, call.count);
                continue;
            }
        };
        if let Some(why) = format.refuses(&row) {
            reasons.add(why, call.count);
            continue;
        }
        match rows.iter_mut().find(|known| known.same(&row)) {
            Some(known) => known.count += row.count,
            None => rows.push(row),
        }
    }
    let rocblas = matches!(format, Format::RocblasBench | Format::RocblasYaml);
    let without_bias = if rocblas { rows.iter().filter(|row| row.bias).count() } else { 0 };
    Export { text: format.write(&rows), rows: rows.len(), without_bias, left_out: reasons.0 }
}
