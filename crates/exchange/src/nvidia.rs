//! nvMatmulHeuristics through CUTLASS, and the CUTLASS profiler. Extents are PyTorch's; letters say which way an operand
//! lies: t by rows, n by columns.

use crate::row::Row;
use crate::words::{CUTLASS, named};
use gemwright_core::DType;
use gemwright_core::blas::Trans;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tunableop;

    #[test]
    fn a_linear_layer_is_tnt() {
        let row = tunableop::line("GemmTunableOp_BFloat16_TN,tn_6144_128_4096_ld_4096_4096_6144").unwrap();
        let problems: Value = serde_json::from_str(&heuristics(std::slice::from_ref(&row))).unwrap();
        let problem = &problems[0];
        assert_eq!((&problem["m"], &problem["n"], &problem["layout"]), (&json!(128), &json!(6144), &json!("tnt")));
        assert!(profiler(&[row]).contains("--m=128 --n=6144 --k=4096 --A=bf16:row --B=bf16:column --C=bf16:row"));
        let gap = tunableop::line("GemmTunableOp_BFloat16_TN,tn_6144_128_4096_ld_8192_4096_6144").unwrap();
        assert!(refuses(&gap).is_some());
    }
}
