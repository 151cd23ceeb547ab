//! hipblaslt-bench and rocblas-bench: command lines, as their logs have them too, and YAML with a map a line.

use crate::row::{Row, gemm};
use crate::words::{ROC, flag, letter, named, typed};
use gemwright_core::DType;
use gemwright_core::blas::{Batch, Gemm};
use std::fmt::Write;

pub fn refuses(row: &Row) -> Option<&'static str> {
    let unknown = named(ROC, row.dtype).is_none() || named(ROC, row.out_dtype).is_none();
    unknown.then_some("these benches name no such type")
}

/// Of the sums.
fn compute(dtype: DType) -> &'static str {
    match dtype {
        DType::F64 => "f64_r",
        DType::I8 => "i32_r",
        _ => "f32_r",
    }
}

struct Names {
    a: &'static str,
    out: &'static str,
    compute: &'static str,
}

fn names(row: &Row) -> Names {
    let name = |dtype| named(ROC, dtype).unwrap_or_default();
    Names { a: name(row.dtype), out: name(row.out_dtype), compute: compute(row.dtype) }
}

pub fn hipblaslt(rows: &[Row]) -> String {
    let mut out = String::new();
    for row in rows {
        let Gemm { transa, transb, m, n, k, lda, ldb, ldc, batch, .. } = &row.gemm;
        let Names { a, out: c, compute } = names(row);
        let strides = batch.map_or(String::new(), |batch| {
            format!(" --stride_a {} --stride_b {} --stride_c {} --stride_d {}", batch.a, batch.b, batch.c, batch.c)
        });
        let bias = if row.bias { " --bias_vector" } else { "" };
        // Writing into a string cannot fail.
        let _ = writeln!(
            out,
            "hipblaslt-bench --api_method c -m {m} -n {n} -k {k} --lda {lda} --ldb {ldb} --ldc {ldc} --ldd {ldc}{strides} \
             --transA {} --transB {} --batch_count {} --alpha 1 --beta 0 --a_type {a} --b_type {a} --c_type {c} --d_type {c} \
             --scale_type {compute} --bias_type {compute} --compute_type {compute}{bias} --algo_method all --rotating 512 \
             --cold_iters 100 --iters 1000",
            letter(*transa),
            letter(*transb),
            batch.map_or(1, |batch| batch.count),
        );
    }
    out
}

pub fn hipblaslt_yaml(rows: &[Row]) -> String {
    let mut out = String::new();
    for row in rows {
        let Gemm { transa, transb, m, n, k, lda, ldb, ldc, batch, .. } = &row.gemm;
        let Names { a, out: c, compute } = names(row);
        let Batch { a: sa, b: sb, c: sc, count } = batch.unwrap_or(Batch { a: 0, b: 0, c: 0, count: 1 });
        let bias = if row.bias { ", bias_vector: true" } else { "" };
        let _ = writeln!(
            out,
            "- {{ function: matmul, M: {m}, N: {n}, K: {k}, lda: {lda}, ldb: {ldb}, ldc: {ldc}, ldd: {ldc}, stride_a: {sa}, \
             stride_b: {sb}, stride_c: {sc}, stride_d: {sc}, alpha: 1.0, beta: 0.0, transA: {}, transB: {}, \
             batch_count: {count}, a_type: {a}, b_type: {a}, c_type: {c}, d_type: {c}, scale_type: {compute}, \
             bias_type: {compute}, compute_type: {compute}{bias} }}",
            letter(*transa),
            letter(*transb),
        );
    }
    out
}

/// What a batch says beside one product: nothing of a single one.
fn strides(batch: Option<Batch>) -> Vec<(&'static str, i64)> {
    batch.map_or_else(Vec::new, |Batch { a, b, c, count }| {
        vec![("stride_a", a), ("stride_b", b), ("stride_c", c), ("stride_d", c), ("batch_count", count)]
    })
}

/// rocBLAS's function.
fn function(row: &Row) -> &'static str {
    if row.gemm.batch.is_some() { "gemm_strided_batched_ex" } else { "gemm_ex" }
}

pub fn rocblas(rows: &[Row]) -> String {
    let mut out = String::new();
    for row in rows {
        let Gemm { transa, transb, m, n, k, lda, ldb, ldc, batch, .. } = &row.gemm;
        let Names { a, out: c, compute } = names(row);
        let more: String = strides(*batch).iter().map(|(name, value)| format!(" --{name} {value}")).collect();
        let _ = writeln!(
            out,
            "rocblas-bench -f {} --transposeA {} --transposeB {} -m {m} -n {n} -k {k} --a_type {a} --lda {lda} \
             --b_type {a} --ldb {ldb} --c_type {c} --ldc {ldc} --d_type {c} --ldd {ldc}{more} --compute_type {compute} \
             --alpha 1 --beta 0",
            function(row),
            letter(*transa),
            letter(*transb),
        );
    }
    out
}

pub fn rocblas_yaml(rows: &[Row]) -> String {
    let mut out = String::new();
    for row in rows {
        let Gemm { transa, transb, m, n, k, lda, ldb, ldc, batch, .. } = &row.gemm;
        let Names { a, out: c, compute } = names(row);
        let more: String = strides(*batch).iter().map(|(name, value)| format!(", {name}: {value}")).collect();
        let _ = writeln!(
            out,
            "- {{ rocblas_function: \"rocblas_{}\", transA: {}, transB: {}, M: {m}, N: {n}, K: {k}, alpha: 1, a_type: {a}, \
             lda: {lda}, b_type: {a}, ldb: {ldb}, beta: 0, c_type: {c}, ldc: {ldc}, d_type: {c}, ldd: {ldc}{more}, \
             compute_type: {compute}, cold_iters: 100, iters: 1000 }}",
            function(row),
            letter(*transa),
            letter(*transb),
        );
    }
    out
}

/// Words and what they stand for, of a command line or of a map.
struct Pairs(Vec<(String, String)>);

impl Pairs {
    fn of_line(line: &str) -> Pairs {
        let mut pairs = Vec::new();
        let mut words = line.split_whitespace().peekable();
        while let Some(word) = words.next() {
            let Some(name) = word.strip_prefix("--").or_else(|| word.strip_prefix('-')).filter(|n| !n.is_empty())
            else {
                continue;
            };
            // A word of its own where another option follows; a number may be below zero.
            let value = words.next_if(|next| !next.starts_with('-') || next.parse::<f64>().is_ok());
            pairs.push((name.to_string(), value.unwrap_or("true").to_string()));
        }
        Pairs(pairs)
    }

    fn of_map(line: &str) -> Option<Pairs> {
        let inner = line.trim().strip_prefix('-')?.trim().strip_prefix('{')?.strip_suffix('}')?;
        let bare = |text: &str| text.trim().trim_matches(['\'', '"']).to_string();
        Some(Pairs(inner.split(',').filter_map(|pair| pair.split_once(':')).map(|(n, v)| (bare(n), bare(v))).collect()))
    }

    fn text(&self, names: &[&str]) -> Option<&str> {
        self.0.iter().find(|(name, _)| names.contains(&name.as_str())).map(|(_, value)| value.as_str())
    }

    fn number(&self, names: &[&str]) -> Option<i64> {
        self.text(names)?.parse::<i64>().ok().filter(|n| *n >= 0)
    }

    fn row(&self) -> Option<Row> {
        let trans = [&["transA", "transposeA"], &["transB", "transposeB"]].map(|names| self.text(names).and_then(flag));
        let extents = [&["m", "M"], &["n", "N"], &["k", "K"]].map(|names| self.number(names));
        let leading = ["lda", "ldb", "ldc"].map(|name| self.number(&[name]));
        let ([Some(ta), Some(tb)], [Some(m), Some(n), Some(k)], [Some(lda), Some(ldb), Some(ldc)]) =
            (trans, extents, leading)
        else {
            return None;
        };
        let mut gemm = gemm([ta, tb], [m, n, k], [lda, ldb, ldc]);
        if let Some(count) = self.number(&["batch_count"]).filter(|count| *count > 1) {
            let stride = |name: &str| self.number(&[name]);
            gemm.batch = Some(Batch { a: stride("stride_a")?, b: stride("stride_b")?, c: stride("stride_c")?, count });
        }
        // A bench of one type (`-r`) gives no others.
        let dtype = typed(ROC, self.text(&["a_type", "r", "precision"])?)?;
        let out_dtype = self.text(&["d_type", "c_type"]).map_or(Some(dtype), |name| typed(ROC, name))?;
        let bias = self.text(&["bias_vector"]).is_some_and(|word| word != "false");
        let count = self.number(&["call_count"]).filter(|count| *count > 0).unwrap_or(1) as u64;
        Some(Row { bias, count, ..Row::new(gemm, dtype, out_dtype) })
    }
}

/// A line of a log or of YAML that names a product.
pub fn line(text: &str) -> Option<Row> {
    if let Some(start) = text.find("hipblaslt-bench ").or_else(|| text.find("rocblas-bench ")) {
        return Pairs::of_line(&text[start..]).row();
    }
    let map = Pairs::of_map(text)?;
    let function = map.text(&["function", "rocblas_function"])?;
    let product = function == "matmul" || function.contains("gemm");
    if product { map.row() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tunableop;

    fn rows() -> Vec<Row> {
        let lines = "GemmTunableOp_BFloat16_TN,tn_6144_128_4096_ld_4096_4096_6144\n\
                     GemmAndBiasTunableOp_Half_NT,nt_40_12_64_ld_48_16_40\n\
                     GemmStridedBatchedTunableOp_float_NN,nn_128_100_64_B_32_ld_128_64_128";
        lines.lines().map(|text| tunableop::line(text).unwrap()).collect()
    }

    #[test]
    fn lines_and_maps_come_back() {
        let rows = rows();
        for text in [hipblaslt(&rows), hipblaslt_yaml(&rows)] {
            assert_eq!(text.lines().filter_map(line).collect::<Vec<_>>(), rows, "{text}");
        }
        // rocBLAS has no bias.
        let plain: Vec<Row> = rows.into_iter().map(|row| Row { bias: false, ..row }).collect();
        for text in [rocblas(&plain), rocblas_yaml(&plain)] {
            assert_eq!(text.lines().filter_map(line).collect::<Vec<_>>(), plain, "{text}");
        }
    }

    #[test]
    fn a_profile_counts() {
        let text = "- {'rocblas_function': 'gemm_ex', 'transA': 'T', 'transB': 'N', 'M': 6144, 'N': 128, 'K': 4096, 'alpha': 1, \
                    'a_type': 'bf16_r', 'lda': 4096, 'b_type': 'bf16_r', 'ldb': 4096, 'beta': 0, 'c_type': 'bf16_r', \
                    'ldc': 6144, 'd_type': 'bf16_r', 'ldd': 6144, 'compute_type': 'f32_r', 'device': 0, 'call_count': 36}";
        assert_eq!(line(text).unwrap().count, 36);
        assert_eq!(line("- { rocblas_function: rocblas_axpy, n: 3 }"), None);
        assert_eq!(line("hipblaslt-bench -m 3"), None);
    }
}
