//! Tables of chosen solutions that hipBLASLt (`HIPBLASLT_TUNING_OVERRIDE_FILE`) and rocBLAS
//! (`ROCBLAS_TENSILE_GEMM_OVERRIDE_PATH`) read: a head of names, a product a line. hipBLASLt's begins with its version.

use crate::row::{Row, dense_batch, gemm};
use crate::words::{ROC, flag, typed};
use gemwright_core::blas::Batch;

/// The line of hipBLASLt's version.
pub const VERSION: &str = "Git Version:";

/// The head's place among the lines, where there is one.
fn head(text: &str) -> Option<usize> {
    text.lines().take(4).position(|line| line.trim().starts_with("transA,transB,"))
}

pub fn is_one(text: &str) -> bool {
    head(text).is_some()
}

/// A line of the table: its number, and the product or why it is none.
pub type Line = (usize, Result<Row, String>);

pub fn lines(text: &str) -> Vec<Line> {
    let Some(first) = head(text) else { return Vec::new() };
    let mut all = text.lines().enumerate().skip(first);
    let names: Vec<String> =
        all.next().map_or("", |(_, line)| line).split(',').map(|name| name.trim().to_ascii_lowercase()).collect();
    all.filter(|(_, line)| !line.trim().is_empty()).map(|(i, line)| (i + 1, row(&names, line))).collect()
}

fn row(names: &[String], line: &str) -> Result<Row, String> {
    let cells: Vec<&str> = line.split(',').map(str::trim).collect();
    let cell = |wanted: &[&str]| {
        let place = names.iter().position(|name| wanted.contains(&name.as_str()));
        place.and_then(|place| cells.get(place).copied()).ok_or_else(|| format!("there is no {}", wanted[0]))
    };
    let number = |name: &str| -> Result<i64, String> {
        let text = cell(&[name])?;
        text.parse::<i64>().ok().filter(|n| *n >= 0).ok_or_else(|| format!("{name} is `{text}`"))
    };
    let trans = |name: &str| cell(&[name]).and_then(|text| flag(text).ok_or_else(|| format!("{name} is `{text}`")));
    let kind =
        |wanted: &[&str]| cell(wanted).and_then(|text| typed(ROC, text).ok_or_else(|| format!("`{text}` is no type")));
    let mut gemm = gemm(
        [trans("transa")?, trans("transb")?],
        [number("m")?, number("n")?, number("k")?],
        [number("lda")?, number("ldb")?, number("ldc")?],
    );
    let count = number("batch_count").unwrap_or(1);
    if count > 1 {
        let Batch { a, b, c, .. } = dense_batch([gemm.m, gemm.n, gemm.k], count);
        let [a, b, c] = [("stride_a", a), ("stride_b", b), ("stride_c", c)].map(|(n, d)| number(n).unwrap_or(d));
        gemm.batch = Some(Batch { a, b, c, count });
    }
    let solution = cell(&["soulution_index", "solution_index"])?;
    if solution.parse::<i64>().map_or(true, |index| index < 0) {
        return Err(format!("the solution is `{solution}`"));
    }
    let us = cell(&["us"]).ok().and_then(|text| text.parse::<f64>().ok()).filter(|us| us.is_finite() && *us > 0.0);
    let tuned = us.map(|us| (us * 1e-6, format!("solution {solution}")));
    let (dtype, out_dtype) = (kind(&["a_type", "input_type"])?, kind(&["d_type", "c_type", "output_type"])?);
    Ok(Row { tuned, ..Row::new(gemm, dtype, out_dtype) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use gemwright_core::DType;

    #[test]
    fn both_libraries_tables() {
        let text = "Git Version: abc\ntransA,transB,grouped_gemm,batch_count,m,n,k,alpha,lda,stride_a,beta,ldb,stride_b,ldc,stride_c,ldd,\
                    stride_d,a_type,b_type,c_type,d_type,us,soulution_index\n\
                    T,N,0,1,6144,128,4096,1,4096,0,0,4096,0,6144,0,6144,0,bf16_r,bf16_r,bf16_r,bf16_r,21.3,61169\n\
                    T,N,0,1,6144,x,4096,1,4096,0,0,4096,0,6144,0,6144,0,bf16_r,bf16_r,bf16_r,bf16_r,21.3,61169\n";
        let found = lines(text);
        let row = found[0].1.as_ref().unwrap();
        assert_eq!((found[0].0, row.gemm.m, row.gemm.n, row.gemm.k, row.dtype), (3, 6144, 128, 4096, DType::Bf16));
        assert!(found[1].1.as_ref().unwrap_err().contains("n is `x`"));
        let rocblas = "transA,transB,M,N,batch_count,K,alpha,beta,lda,ldb,ldc,input_type,output_type,compute_type,solution_index\n\
                       N,T,8,16,4,32,1,0,8,16,8,f32_r,f32_r,f32_r,3\n";
        let row = lines(rocblas)[0].1.clone().unwrap();
        assert_eq!(row.gemm.batch, Some(Batch { a: 256, b: 512, c: 128, count: 4 }));
    }
}
