//! aiter: untuned and tuned files of bf16 products, and the lines that say what was looked up in vain. M, N and K are
//! PyTorch's.

use crate::row::{Row, gemm};
use crate::words::{TORCH, named, typed};
use gemwright_core::DType;
use gemwright_core::blas::Trans;
use std::fmt::Write;

pub fn refuses(row: &Row) -> Option<&'static str> {
    match () {
        () if row.gemm.batch.is_some() => Some("aiter's file of bf16 products has no batches"),
        () if !row.is_plain_linear() => Some("aiter's keys have no layout: rows of K against weights [N, K] only"),
        () if !matches!(row.dtype, DType::Bf16 | DType::F16) => Some("aiter's file has bf16 and f16 only"),
        () if named(TORCH, row.out_dtype).is_none() => Some("aiter has no name for the result's type"),
        () => None,
    }
}

/// Columns of a tuned file.
pub const TUNED: &str =
    "gfx,cu_num,M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle,libtype,solidx,splitK,us,kernelName,err_ratio,tflops,bw";

/// Whose kernels aiter dispatches to.
pub const LIBTYPES: [&str; 7] = ["asm", "opus", "flydsl", "triton", "skinny", "torch", "hipblaslt"];

/// Columns that a row is looked up by.
pub const KEYS: [&str; 10] = ["gfx", "cu_num", "M", "N", "K", "bias", "dtype", "outdtype", "scaleAB", "bpreshuffle"];

/// The rows of a tuned file that aiter itself can use, as they stand, and how many are left out: those of a library it does
/// not know or without a time, and of several with one key all but the fastest, since it raises on such a file.
///
/// # Errors
/// What is no tuned file.
pub fn usable(text: &str) -> Result<(String, usize), String> {
    let mut lines = text.lines();
    let heads: Vec<&str> = lines.next().unwrap_or_default().split(',').map(str::trim).collect();
    let place = |name: &str| heads.iter().position(|head| *head == name).ok_or(format!("it has no column `{name}`"));
    // Older files have no gfx.
    let keyed = KEYS.into_iter().filter(|name| *name != "gfx" || heads.contains(name));
    let keys: Vec<usize> = keyed.map(place).collect::<Result<_, _>>()?;
    let (library, time) = (place("libtype")?, place("us")?);
    let mut kept: Vec<(Vec<&str>, f64, &str)> = Vec::new();
    let mut left = 0;
    for (i, line) in lines.enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let cells: Vec<&str> = line.split(',').collect();
        let cell = |at: usize| cells.get(at).copied().ok_or(format!("line {} is cut off", i + 2));
        let key: Vec<&str> = keys.iter().map(|at| cell(*at)).collect::<Result<_, _>>()?;
        let us = cell(time)?.trim().parse::<f64>().unwrap_or(f64::NAN);
        if !LIBTYPES.contains(&cell(library)?) || !us.is_finite() || us <= 0.0 {
            left += 1;
            continue;
        }
        match kept.iter_mut().find(|(known, ..)| *known == key) {
            Some(known) => {
                left += 1;
                if us < known.1 {
                    (known.1, known.2) = (us, line);
                }
            }
            None => kept.push((key, us, line)),
        }
    }
    let lines: Vec<&str> = kept.into_iter().map(|(_, _, line)| line).collect();
    Ok((format!("{}\n{}\n", heads.join(","), lines.join("\n")).trim_end().to_string() + "\n", left))
}

/// Python's word.
pub fn word(holds: bool) -> &'static str {
    if holds { "True" } else { "False" }
}

pub fn write(rows: &[Row]) -> String {
    let mut out = String::from("M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle\n");
    for row in rows {
        let name = |dtype| named(TORCH, dtype).unwrap_or_default();
        // Writing into a string cannot fail.
        let _ = writeln!(
            out,
            "{},{},{},{},{},{},False,False",
            row.gemm.n,
            row.gemm.m,
            row.gemm.k,
            word(row.bias),
            name(row.dtype),
            name(row.out_dtype)
        );
    }
    out
}

/// The devices that a tuned file has rows of, as it names them.
pub fn devices(text: &str) -> Vec<String> {
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(text.as_bytes());
    let places = reader
        .headers()
        .map_or([None; 2], |heads| ["gfx", "cu_num"].map(|name| heads.iter().position(|head| head.trim() == name)));
    let mut found: Vec<String> = Vec::new();
    for record in reader.records().map_while(Result::ok) {
        let cells: Vec<&str> =
            places.into_iter().flatten().filter_map(|place| record.get(place)).map(str::trim).collect();
        let device = cells.join(" with ") + if places[1].is_some() { " units" } else { "" };
        if !cells.is_empty() && !found.contains(&device) {
            found.push(device);
        }
    }
    found
}

fn linear([m, n, k]: [i64; 3], bias: bool, dtype: DType, out_dtype: DType) -> Row {
    // The library's m is our N.
    let gemm = gemm([Trans::T, Trans::N], [n, m, k], [k, k, n]);
    Row { bias, ..Row::new(gemm, dtype, out_dtype) }
}

/// Rows of an untuned or a tuned file.
pub fn read(text: &str) -> Result<Vec<Row>, String> {
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(text.as_bytes());
    let heads = reader.headers().map_err(|e| e.to_string())?.clone();
    let place = |name: &str| heads.iter().position(|head| head.trim() == name);
    let [Some(m), Some(n), Some(k)] = ["M", "N", "K"].map(place) else {
        return Err("needs the columns M, N and K".into());
    };
    let (bias, dtype, out) = (place("bias"), place("dtype"), place("outdtype"));
    let (us, kernel, library) = (place("us"), place("kernelName"), place("libtype"));
    let (scaled, shuffled) = (place("scaleAB"), place("bpreshuffle"));
    let mut rows = Vec::new();
    for (i, record) in reader.records().enumerate() {
        let at = |why: String| format!("line {}: {why}", i + 2);
        let record = record.map_err(|e| at(e.to_string()))?;
        let cell = |place: Option<usize>| place.and_then(|place| record.get(place)).map(str::trim);
        let extent = |place: usize| {
            let text = record.get(place).unwrap_or("").trim();
            text.parse::<i64>().ok().filter(|n| *n > 0).ok_or_else(|| at(format!("`{text}` is no extent")))
        };
        let kind = |place: Option<usize>| match cell(place) {
            Some(name) => typed(TORCH, name).ok_or_else(|| at(format!("unknown type `{name}`"))),
            None => Ok(DType::Bf16),
        };
        let holds = |place: Option<usize>| cell(place).is_some_and(|word| word == "True");
        let bias = holds(bias);
        // A library's own choice has no name but the library's.
        let name = [kernel, library].into_iter().find_map(|place| cell(place).filter(|name| !name.is_empty()));
        let seconds = cell(us).and_then(|text| text.parse::<f64>().ok()).filter(|us| us.is_finite() && *us > 0.0);
        // What multiplies scaled operands is no time of the plain product.
        let seconds = seconds.filter(|_| !holds(scaled));
        let tuned = seconds.map(|us| (us * 1e-6, name.unwrap_or("").to_string()));
        let row = linear([extent(m)?, extent(n)?, extent(k)?], bias, kind(dtype)?, kind(out)?);
        rows.push(Row { tuned, prepacked: holds(shuffled), ..row });
    }
    Ok(rows)
}

/// The number after a letter such as `M:`.
fn after(line: &str, letter: &str) -> Option<i64> {
    let rest = &line[line.find(letter)? + letter.len()..];
    let digits: String = rest.trim_start().chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok().filter(|n| *n > 0)
}

/// A line that says that a product has no row: `shape is M:1, N:6144, K:4096 ... not found tuned config in ...`.
pub fn missed(line: &str) -> Option<Row> {
    let shape = &line[line.find("shape is M:")?..];
    if !line.contains("not found tuned config") {
        return None;
    }
    let extents = [after(shape, "M:")?, after(shape, "N:")?, after(shape, "K:")?];
    let dtype = TORCH.iter().find(|(_, name)| shape.contains(name)).map_or(DType::Bf16, |(dtype, _)| *dtype);
    Some(linear(extents, shape.contains("bias:True") || shape.contains("bias=True"), dtype, dtype))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_back() {
        let rows = [
            linear([1, 6144, 4096], false, DType::Bf16, DType::Bf16),
            linear([128, 8, 16], true, DType::F16, DType::F32),
        ];
        let text = write(&rows);
        assert!(text.contains("1,6144,4096,False,torch.bfloat16,torch.bfloat16,False,False"), "{text}");
        assert_eq!(read(&text).unwrap(), rows);
        assert!(read("M,N,K\n1,x,3\n").unwrap_err().contains("line 2"));
        assert!(read("a,b\n").is_err());
    }

    #[test]
    fn what_aiter_can_use_of_a_table() {
        let row = |m: u32, library: &str, us: f64| {
            format!(
                "gfx942,304,{m},8,16,False,torch.bfloat16,torch.bfloat16,False,False,{library},7,0,{us},name,0.0,1.0,2.0"
            )
        };
        let text =
            [TUNED, &row(1, "own", 1.0), &row(1, "asm", 9.0), &row(2, "torch", 3.0), "", &row(1, "hipblaslt", 2.5)]
                .join("\n");
        let expected = [TUNED, &row(1, "hipblaslt", 2.5), &row(2, "torch", 3.0)].join("\n") + "\n";
        assert_eq!(usable(&text), Ok((expected, 2)));
        assert!(usable("M,N,K\n").unwrap_err().contains("`cu_num`"));
        assert_eq!(usable(&[TUNED, &row(1, "asm", -1.0), &row(1, "asm", f64::NAN)].join("\n")).unwrap().1, 2);
        assert!(usable(&format!("{TUNED}\ngfx942,304")).unwrap_err().contains("line 2"));
    }

    #[test]
    fn lines_of_misses() {
        let line = "[aiter] shape is M:5, N:2688, K:6144 dtype=torch.bfloat16, not found tuned config in /x.csv, will use default";
        let row = missed(line).unwrap();
        assert_eq!((row.gemm.n, row.gemm.m, row.gemm.k), (5, 2688, 6144));
        assert_eq!(missed("shape is M:5"), None);
    }
}
