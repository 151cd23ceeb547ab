//! The logs of cuBLAS (`CUBLAS_LOGINFO_DBG=1`) and cuBLASLt (`CUBLASLT_LOG_LEVEL=5`). cuBLAS 13 hands its products on to
//! cuBLASLt, whose line then follows the call's own: only what PyTorch called is taken.

use crate::row::{Row, gemm};
use crate::words::flag;
use gemwright_core::DType;
use gemwright_core::blas::{Arguments, Batch, Gemm, Trans};

/// A type by the library's name, with or without `CUDA_`.
fn typed(name: &str) -> Option<DType> {
    Some(match name.trim_start_matches("CUDA_") {
        "R_16BF" => DType::Bf16,
        "R_16F" => DType::F16,
        "R_32F" => DType::F32,
        "R_64F" => DType::F64,
        "C_32F" => DType::C64,
        "C_64F" => DType::C128,
        "R_8F_E4M3" => DType::F8E4m3,
        "R_8F_E5M2" => DType::F8E5m2,
        "R_8I" => DType::I8,
        "R_32I" => DType::I32,
        _ => return None,
    })
}

/// A call of cuBLAS as its lines come in: `  m (int) = 160`.
#[derive(Default)]
struct Open {
    routine: String,
    arguments: Vec<(String, String)>,
}

impl Open {
    fn text(&self, name: &str) -> Option<&str> {
        self.arguments.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    fn number(&self, name: &str) -> Option<i64> {
        self.text(name)?.parse().ok()
    }

    fn trans(&self, name: &str) -> Option<Trans> {
        flag(self.text(name)?.strip_prefix("CUBLAS_OP_")?.get(..1)?)
    }

    /// The types of operands and result, where the routine or an argument says so.
    fn types(&self, operand: &str, result: &str) -> Option<[DType; 2]> {
        let of_routine = match self.routine.strip_prefix("cublas")?.get(..1)? {
            "S" => Some(DType::F32),
            "D" => Some(DType::F64),
            "C" => Some(DType::C64),
            "Z" => Some(DType::C128),
            "H" => Some(DType::F16),
            _ => None,
        };
        let kind = |name: &str| self.text(name).map_or(of_routine, typed);
        Some([kind(operand)?, kind(result)?])
    }

    fn row(&self) -> Option<Row> {
        let routine = self.routine.as_str();
        match () {
            () if routine.contains("emm") => self.matrices(),
            () if routine.ends_with("gemv") => self.with_vector(),
            () if routine.contains("dot") || routine.contains("Dot") => self.vectors(),
            () => None,
        }
    }

    /// `gemv`, as the matrix product of one row that it amounts to.
    fn with_vector(&self) -> Option<Row> {
        let trans = self.trans("trans")?;
        let [m, n, lda, incx, incy] = ["m", "n", "lda", "incx", "incy"].map(|name| self.number(name));
        let (m, n, lda, incx, incy) = (m?, n?, lda?, incx?, incy?);
        let (results, sums, transb) = match trans {
            Trans::T => (n, m, Trans::N),
            Trans::N => (m, n, Trans::T),
        };
        let [dtype, out_dtype] = self.types("Atype", "ytype")?;
        let asked = Some(Arguments::Gemv { trans, m, n, lda, incx, incy });
        let gemm = gemm([Trans::N, transb], [1, results, sums], [incx, lda, incy]);
        Some(Row { asked, ..Row::new(gemm, dtype, out_dtype) })
    }

    /// `dot`, likewise.
    fn vectors(&self) -> Option<Row> {
        let (n, incx, incy) = (self.number("n")?, self.number("incx")?, self.number("incy")?);
        let [dtype, out_dtype] = self.types("xType", "resultType")?;
        let asked = Some(Arguments::Dot { n, incx, incy });
        Some(Row { asked, ..Row::new(gemm([Trans::N, Trans::T], [1, 1, n], [incx, incy, 1]), dtype, out_dtype) })
    }

    fn matrices(&self) -> Option<Row> {
        let extents = ["m", "n", "k"].map(|name| self.number(name));
        let leading = ["lda", "ldb", "ldc"].map(|name| self.number(name));
        let ([Some(m), Some(n), Some(k)], [Some(lda), Some(ldb), Some(ldc)]) = (extents, leading) else { return None };
        let mut gemm = gemm([self.trans("transa")?, self.trans("transb")?], [m, n, k], [lda, ldb, ldc]);
        if let Some(count) = self.number("batchCount") {
            let stride = |name: &str| self.number(name).unwrap_or(0);
            gemm.batch = Some(Batch { a: stride("strideA"), b: stride("strideB"), c: stride("strideC"), count });
        }
        let [dtype, out_dtype] = self.types("Atype", "Ctype")?;
        Some(Row::new(gemm, dtype, out_dtype))
    }
}

/// The value after `name=`, up to a blank or the end of a bracket.
fn value<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let start = text.find(&format!("{name}="))? + name.len() + 1;
    Some(text[start..].split([' ', ']']).next().unwrap_or(""))
}

/// What stands in `name=[...]`.
fn inside<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let start = text.find(&format!("{name}=["))? + name.len() + 2;
    text[start..].split(']').next()
}

/// A product of cuBLASLt: `Adesc=[type=R_32F rows=224 cols=160 ld=224] ...`.
fn lt(line: &str) -> Option<Row> {
    let [a, b, c, d] = ["Adesc", "Bdesc", "Cdesc", "Ddesc"].map(|name| inside(line, name));
    let (a, b, d, compute) = (a?, b?, d.or(c)?, inside(line, "computeDesc")?);
    let number = |text: &str, name: &str| value(text, name).and_then(|text| text.parse::<i64>().ok());
    let trans = |name: &str| value(compute, name).map_or(Some(Trans::N), |text| flag(text.strip_prefix("OP_")?));
    let (ta, tb) = (trans("transa")?, trans("transb")?);
    let k = number(a, if ta == Trans::N { "cols" } else { "rows" })?;
    let leading = [number(a, "ld")?, number(b, "ld")?, number(d, "ld")?];
    let mut gemm = Gemm { epilogue: None, ..gemm([ta, tb], [number(d, "rows")?, number(d, "cols")?, k], leading) };
    if let Some(count) = number(d, "batchCount").filter(|count| *count > 1) {
        let stride = |text: &str| number(text, "stridedBatchOffset").unwrap_or(0);
        gemm.batch = Some(Batch { a: stride(a), b: stride(b), c: stride(d), count });
    }
    let bias = value(compute, "epilogue").is_some_and(|name| name.contains("BIAS"));
    Some(Row { bias, ..Row::new(gemm, typed(value(a, "type")?)?, typed(value(d, "type")?)?) })
}

/// Reads a log line by line.
#[derive(Default)]
pub struct Log {
    open: Option<Open>,
    /// cuBLAS's call whose line of cuBLASLt is still to come.
    handed_on: Option<Row>,
    pub rows: Vec<Row>,
}

impl Log {
    fn close(&mut self) {
        let Some(open) = self.open.take() else { return };
        self.handed_on = open.row();
        self.rows.extend(self.handed_on.clone());
    }

    /// Whether the line belongs to such a log.
    pub fn line(&mut self, text: &str) -> bool {
        if let Some((_, rest)) = text.split_once("! cuBLAS (") {
            self.close();
            let routine = rest.split_whitespace().nth(1).unwrap_or("");
            if routine.starts_with("cublas") {
                self.open = Some(Open { routine: routine.trim_end_matches("_v2").into(), arguments: Vec::new() });
            }
            return true;
        }
        if let (Some(open), true) = (&mut self.open, text.starts_with(' '))
            && let Some((left, right)) = text.split_once(" = ")
        {
            let name = left.split_whitespace().next().unwrap_or("");
            let value = right.trim().split('(').next().unwrap_or("").trim();
            open.arguments.push((name.into(), value.into()));
            return true;
        }
        if text.contains("Adesc=[") && text.contains("algo=[") {
            self.close();
            let found = lt(text);
            // cuBLAS's own product under another name: the call is there already.
            let handed_on = self.handed_on.take();
            let inner = text.contains("smCountTarget=");
            if let Some(row) = found
                && !inner
                && handed_on.is_none_or(|before| !before.same(&row))
            {
                self.rows.push(row);
            }
            return true;
        }
        false
    }

    /// What is still open is whole now.
    pub fn end(mut self) -> Vec<Row> {
        self.close();
        self.rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Logs of an H200 with the calls that were made (`>>`), one of each kind.
    #[test]
    fn recorded_logs_read_back_to_their_calls() {
        // GEMWRIGHT_CUBLAS_LOGS names a longer list of the same form.
        let longer = std::env::var("GEMWRIGHT_CUBLAS_LOGS").ok().map(|path| std::fs::read_to_string(path).unwrap());
        let recorded = longer.as_deref().unwrap_or(include_str!("../../../tests/cublas-logs.txt"));
        let mut cases = 0;
        for case in recorded.split("== ").skip(1) {
            let mut lines = case.lines();
            let name = lines.next().unwrap();
            let mut log = Log::default();
            let mut expected: Vec<&str> = Vec::new();
            for line in lines {
                match line.strip_prefix(">> ") {
                    Some(call) => expected.push(call),
                    None => assert!(log.line(line), "{name}: {line}"),
                }
            }
            let text = |row: &Row| {
                match row.asked {
                    Some(Arguments::Gemv { trans, m, n, lda, incx, incy }) => {
                        return format!("gemv {trans:?} {m} {n} {lda} {incx} {incy}");
                    }
                    Some(Arguments::Dot { n, incx, incy }) => return format!("dot {n} {incx} {incy}"),
                    _ => {}
                }
                let Gemm { transa, transb, m, n, k, lda, ldb, ldc, batch, .. } = &row.gemm;
                let more = batch.map_or(String::new(), |b| format!(" {} {} {} {}", b.a, b.b, b.c, b.count));
                format!("{transa:?}{transb:?} {m} {n} {k} {lda} {ldb} {ldc}{more}")
            };
            assert_eq!(log.end().iter().map(text).collect::<Vec<_>>(), expected, "{name}");
            cases += 1;
        }
        assert!(cases > 40, "{cases}");
    }

    #[test]
    fn a_call_and_what_it_is_handed_on_to_are_one() {
        let text = "I! cuBLAS (v13.1.0) cublasGemmStridedBatchedEx\n  transa (cublasOperation_t) = CUBLAS_OP_T(1)\n  \
                    transb (cublasOperation_t) = CUBLAS_OP_N(0)\n  m (int) = 160\n  n (int) = 24\n  k (int) = 224\n  \
                    Atype (cudaDataType_t) = CUDA_R_16BF(14)\n  lda (int) = 224\n  strideA (SOME TYPE) = 0\n  \
                    ldb (int) = 896\n  strideB (SOME TYPE) = 224\n  Ctype (cudaDataType_t) = CUDA_R_16BF(14)\n  ldc (int) = 160\n  \
                    strideC (SOME TYPE) = 3840\n  batchCount (int) = 4\n\
                    A=PTR Adesc=[type=R_16BF rows=224 cols=160 ld=224 batchCount=4] B=PTR Bdesc=[type=R_16BF rows=224 cols=24 \
                    ld=896 batchCount=4 stridedBatchOffset=224] C=PTR Cdesc=[type=R_16BF rows=160 cols=24 ld=160 batchCount=4 \
                    stridedBatchOffset=3840] D=PTR Ddesc=[type=R_16BF rows=160 cols=24 ld=160 batchCount=4 \
                    stridedBatchOffset=3840] computeDesc=[computeType=COMPUTE_32F scaleType=R_32F transa=OP_T smCountTarget=132] \
                    algo=[algoId=66] beta=0\n\
                    A=PTR Adesc=[type=R_32F rows=224 cols=160 ld=224] B=PTR Bdesc=[type=R_32F rows=224 cols=96 ld=224] C=PTR \
                    Cdesc=[type=R_32F rows=160 cols=96 ld=160] D=PTR Ddesc=[type=R_32F rows=160 cols=96 ld=160] \
                    computeDesc=[computeType=COMPUTE_32F scaleType=R_32F transa=OP_T epilogue=EPILOGUE_BIAS biasPointer=PTR] \
                    algo=[algoId=55] beta=0";
        let mut log = Log::default();
        assert!(text.lines().all(|line| log.line(line)));
        let rows = log.end();
        assert_eq!(rows.len(), 2);
        let batch = Some(Batch { a: 0, b: 224, c: 3840, count: 4 });
        assert_eq!(rows[0].gemm, Gemm { batch, ..gemm([Trans::T, Trans::N], [160, 24, 224], [224, 896, 160]) });
        assert!(rows[1].bias && rows[1].dtype == DType::F32);
    }
}
