//! nvMatmulHeuristics through CUTLASS, and the CUTLASS profiler. Extents are PyTorch's; letters say which way an operand
//! lies: t by rows, n by columns.

use crate::row::{Row, dense_batch, gemm};
use crate::words::{CUTLASS, named, typed};
use gemwright_core::DType;
use gemwright_core::blas::{Gemm, Trans};
use serde_json::{Value, json};
use std::fmt::Write;

pub fn refuses(row: &Row) -> Option<&'static str> {
    match () {
        () if named(CUTLASS, row.dtype).is_none() || named(CUTLASS, row.out_dtype).is_none() => {
            Some("CUTLASS names no such type here")
        }
        () if !row.is_dense() => Some("there is no place for leading dimensions: only operands without gaps"),
        () if row.bias => Some("there is no place for a bias"),
        () => None,
    }
}

/// Whether our a and b lie by rows.
fn by_rows(row: &Row) -> [bool; 2] {
    [row.gemm.transb == Trans::N, row.gemm.transa == Trans::N]
}

fn sums(dtype: DType) -> &'static str {
    if dtype == DType::F64 { "f64" } else { "f32" }
}

pub fn heuristics(rows: &[Row]) -> String {
    let one = |row: &Row| -> Value {
        let name = |dtype| named(CUTLASS, dtype).unwrap_or_default();
        let [a, b] = by_rows(row).map(|rows| if rows { 't' } else { 'n' });
        json!({
            "m": row.gemm.n, "n": row.gemm.m, "k": row.gemm.k,
            "batch_count": row.gemm.batch.map_or(1, |batch| batch.count), "layout": format!("{a}{b}t"),
            "dtype_a": name(row.dtype), "dtype_b": name(row.dtype), "dtype_c": name(row.out_dtype),
            "dtype_acc": sums(row.dtype), "dtype_d": name(row.out_dtype), "beta": 0.0, "use_fast_acc": false,
        })
    };
    let lines: Vec<String> = rows.iter().map(|row| format!("  {}", one(row))).collect();
    format!("[\n{}\n]\n", lines.join(",\n"))
}

pub fn profiler(rows: &[Row]) -> String {
    let mut out = String::new();
    for row in rows {
        let name = |dtype| named(CUTLASS, dtype).unwrap_or_default();
        let [a, b] = by_rows(row).map(|rows| if rows { "row" } else { "column" });
        let batch = row.gemm.batch.map_or(String::new(), |batch| format!(" --batch_count={}", batch.count));
        // Writing into a string cannot fail.
        let _ = writeln!(
            out,
            "cutlass_profiler --operation=Gemm --m={} --n={} --k={}{batch} --A={t}:{a} --B={t}:{b} --C={}:row \
             --accumulator-type={} --providers=cutlass,cublas",
            row.gemm.n,
            row.gemm.m,
            row.gemm.k,
            name(row.out_dtype),
            sums(row.dtype),
            t = name(row.dtype),
        );
    }
    out
}

/// A dense product of extents in PyTorch's order.
fn dense([m, n, k]: [i64; 3], [a_by_rows, b_by_rows]: [bool; 2], batch: i64, [dtype, out_dtype]: [DType; 2]) -> Row {
    let (transb, ldb) = if a_by_rows { (Trans::N, k) } else { (Trans::T, m) };
    let (transa, lda) = if b_by_rows { (Trans::N, n) } else { (Trans::T, k) };
    let batch = (batch > 1).then(|| dense_batch([n, m, k], batch));
    Row::new(Gemm { batch, ..gemm([transa, transb], [n, m, k], [lda, ldb, n]) }, dtype, out_dtype)
}

/// A command line of the profiler with one problem; lists and ranges of extents are many, and not read.
pub fn profiler_line(text: &str) -> Option<Row> {
    let words = text[text.find("cutlass_profiler")?..].split_whitespace();
    let options: Vec<(&str, &str)> = words.filter_map(|word| word.trim_start_matches('-').split_once('=')).collect();
    let option = |name: &str| options.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
    let extent = |name: &str| option(name)?.parse::<i64>().ok().filter(|n| *n >= 0);
    let operand = |name: &str| -> Option<(DType, bool)> {
        let (dtype, layout) = option(name)?.split_once(':')?;
        let by_rows = match layout {
            "row" | "t" => true,
            "column" | "n" => false,
            _ => return None,
        };
        Some((typed(CUTLASS, dtype)?, by_rows))
    };
    let ((dtype, a), (_, b), (out_dtype, true)) = (operand("A")?, operand("B")?, operand("C")?) else { return None };
    let extents = [extent("m")?, extent("n")?, extent("k")?];
    let batch = if option("batch_count").is_some() { extent("batch_count")? } else { 1 };
    Some(dense(extents, [a, b], batch, [dtype, out_dtype]))
}

/// A list of problems for nvMatmulHeuristics; nothing where the text is none.
pub fn problems(text: &str) -> Option<Vec<Row>> {
    let one = |problem: &Value| -> Option<Row> {
        let number = |name: &str| problem[name].as_i64().filter(|n| *n >= 0);
        let dtype = |name: &str| typed(CUTLASS, problem[name].as_str()?);
        let layout = problem["layout"].as_str()?.as_bytes();
        let [a @ (b't' | b'n'), b @ (b't' | b'n'), b't'] = *layout else { return None };
        let extents = [number("m")?, number("n")?, number("k")?];
        let batch = number("batch_count").unwrap_or(1);
        Some(dense(extents, [a == b't', b == b't'], batch, [dtype("dtype_a")?, dtype("dtype_d")?]))
    };
    serde_json::from_str::<Vec<Value>>(text).ok()?.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tunableop;

    #[test]
    fn a_linear_layer_is_tnt() {
        let row = tunableop::line("GemmTunableOp_BFloat16_TN,tn_6144_128_4096_ld_4096_4096_6144").unwrap();
        let list: Value = serde_json::from_str(&heuristics(std::slice::from_ref(&row))).unwrap();
        let problem = &list[0];
        assert_eq!((&problem["m"], &problem["n"], &problem["layout"]), (&json!(128), &json!(6144), &json!("tnt")));
        assert!(profiler(&[row]).contains("--m=128 --n=6144 --k=4096 --A=bf16:row --B=bf16:column --C=bf16:row"));
        let lines = "GemmTunableOp_Half_NN,nn_40_12_64_ld_40_64_40\nGemmTunableOp_float_NT,nt_40_12_64_ld_40_12_40\n\
                     GemmStridedBatchedTunableOp_double_TT,tt_128_100_64_B_32_ld_64_100_128";
        let rows: Vec<Row> = lines.lines().map(|text| tunableop::line(text).unwrap()).collect();
        assert_eq!(problems(&heuristics(&rows)).unwrap(), rows);
        assert_eq!(profiler(&rows).lines().filter_map(profiler_line).collect::<Vec<_>>(), rows);
        let many = "cutlass_profiler --m=8:64:8 --n=64 --k=64 --A=f16:row --B=f16:row --C=f16:row";
        assert_eq!((profiler_line(many), problems("[1]"), problems("x")), (None, None, None));
        let gap = tunableop::line("GemmTunableOp_BFloat16_TN,tn_6144_128_4096_ld_8192_4096_6144").unwrap();
        assert!(refuses(&gap).is_some());
    }
}
