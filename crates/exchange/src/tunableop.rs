//! PyTorch's TunableOp: untuned files, and the results file with its validators. Extents are the library's.

use crate::row::{Row, dense_batch, gemm};
use crate::words::{TUNABLE, flag, letter, named, typed};
use gemwright_core::blas::Gemm;
use std::fmt::Write;

pub fn refuses(row: &Row) -> Option<&'static str> {
    match () {
        () if named(TUNABLE, row.dtype).is_none() => Some("TunableOp names no such type here"),
        () if row.dtype != row.out_dtype => Some("TunableOp has one type for operands and result"),
        () if row.bias && row.gemm.transa == row.gemm.transb => {
            Some("PyTorch's offline tuner stops at a bias with both operands stored one way")
        }
        () if row.bias && row.gemm.batch.is_some() => Some("TunableOp has no batched product with a bias"),
        () if row.gemm.batch.is_some() && !row.is_dense() => {
            Some("TunableOp's batched products have no strides between matrices: only dense ones")
        }
        () => None,
    }
}

pub fn write(rows: &[Row]) -> String {
    let mut out = String::new();
    for row in rows {
        let Gemm { transa, transb, m, n, k, lda, ldb, ldc, batch, .. } = &row.gemm;
        let flags = format!("{}{}", letter(*transa), letter(*transb));
        let kind = match (batch, row.bias) {
            (Some(_), _) => "GemmStridedBatchedTunableOp",
            (None, true) => "GemmAndBiasTunableOp",
            (None, false) => "GemmTunableOp",
        };
        let times = batch.map_or(String::new(), |batch| format!("_B_{}", batch.count));
        let name = named(TUNABLE, row.dtype).unwrap_or_default();
        // Writing into a string cannot fail.
        let _ = writeln!(
            out,
            "{kind}_{name}_{flags},{}_{m}_{n}_{k}{times}_ld_{lda}_{ldb}_{ldc}",
            flags.to_ascii_lowercase()
        );
    }
    out
}

/// A line of an untuned or a results file; nothing where it is no product.
pub fn line(text: &str) -> Option<Row> {
    let mut cells = text.trim().split(',');
    let (operation, parameters) = (cells.next()?, cells.next()?);
    let (kind, rest) = operation.split_once('_')?;
    let bias = match kind {
        "GemmTunableOp" | "GemmStridedBatchedTunableOp" => false,
        "GemmAndBiasTunableOp" => true,
        _ => return None,
    };
    let (name, _) = rest.rsplit_once('_')?;
    let dtype = typed(TUNABLE, name)?;
    let words: Vec<&str> = parameters.split('_').collect();
    let [flags, m, n, k, rest @ ..] = words.as_slice() else { return None };
    let number = |word: &str| word.parse::<i64>().ok().filter(|n| *n >= 0);
    let (count, rest) = match rest {
        ["B", count, rest @ ..] => (Some(number(count)?), rest),
        rest => (None, rest),
    };
    let ["ld", lda, ldb, ldc, ..] = rest else { return None };
    let trans = [flag(flags.get(..1)?)?, flag(flags.get(1..2)?)?];
    let [m, n, k] = [number(m)?, number(n)?, number(k)?];
    let mut gemm = gemm(trans, [m, n, k], [number(lda)?, number(ldb)?, number(ldc)?]);
    gemm.batch = count.map(|count| dense_batch([m, n, k], count));
    // A results file says what won, and its milliseconds.
    let solution = cells.next().unwrap_or("").to_string();
    let ms = cells.next().and_then(|text| text.parse::<f64>().ok()).filter(|ms| ms.is_finite() && *ms > 0.0);
    let tuned = ms.map(|ms| (ms * 1e-3, solution));
    Some(Row { bias, tuned, ..Row::new(gemm, dtype, dtype) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_back() {
        let lines = "GemmTunableOp_BFloat16_TN,tn_6144_128_4096_ld_4096_4096_6144\n\
                     GemmAndBiasTunableOp_BFloat16_TN,tn_4096_128_4096_ld_4096_4096_4096\n\
                     GemmStridedBatchedTunableOp_BFloat16_NN,nn_128_128_64_B_32_ld_128_64_128\n";
        let rows: Vec<Row> = lines.lines().map(|text| line(text).unwrap()).collect();
        assert_eq!(write(&rows), lines);
        assert_eq!(line("Validator,PT_VERSION,2.11.0"), None);
        // A results file says more.
        assert!(
            line("GemmTunableOp_BFloat16_TN,tn_6144_128_4096_ld_4096_4096_6144,Gemm_Hipblaslt_61169,0.0213").is_some()
        );
    }
}
