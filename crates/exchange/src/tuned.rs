//! The tuned table as text: in aiter's columns what aiter can key, in columns of our own everything, and what it was made with.

use crate::aiter::{self, word};
use crate::words::{TORCH, named};
use gemwright_core::{Catalog, DType, Runner, Timed, TunedDevice, TunedKey, TunedKind, TunedRow, TunedTable};
use serde_json::{Value, json};

/// What a table is made of, as it lies on the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TunedText {
    /// `T.csv`.
    pub aiter: String,
    /// `T.ours.csv`.
    pub ours: String,
    /// `T.meta.json`.
    pub meta: String,
}

/// Columns of `T.ours.csv`.
pub const HEAD: [&str; 18] = [
    "gfx",
    "cu_num",
    "flags",
    "batch",
    "M",
    "N",
    "K",
    "dtype",
    "outdtype",
    "epilogue",
    "prepacked",
    "candidate",
    "us",
    "second",
    "second_us",
    "spread",
    "all",
    "dropped",
];
/// Between the times of a row, and between what was dropped.
const BETWEEN: char = ';';

/// A runner as one word: `mkl`, `own.avx512-f32:packed`, `openblas:split`.
pub fn runner_word(runner: &Runner) -> String {
    let packed = if runner.packed { ":packed" } else { "" };
    format!("{}{packed}{}", runner.candidate, if runner.split { ":split" } else { "" })
}

fn runner_of(word: &str) -> Runner {
    let (word, split) = word.strip_suffix(":split").map_or((word, false), |rest| (rest, true));
    let (word, packed) = word.strip_suffix(":packed").map_or((word, false), |rest| (rest, true));
    Runner { candidate: word.into(), packed, split }
}

/// Commas, quotes and ends of lines are nothing for a cell of ours.
pub fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() || matches!(c, ',' | '"' | BETWEEN) { ' ' } else { c }).collect()
}

/// The table as it is kept; `facts` go into `T.meta.json`.
pub fn write(table: &TunedTable, facts: &Value) -> TunedText {
    let TunedDevice { name, units, flops, bytes, versions } = &table.device;
    let gfx = architecture(name);
    let mut ours = format!("{}\n", HEAD.join(","));
    let mut aiter = format!("{}\n", aiter::TUNED);
    for row in table.rows() {
        let Some(best) = row.best() else { continue };
        ours += &row_line(name, *units, row);
        if let Some(line) = aiter_line(&gfx, *units, row, best) {
            aiter += &line;
        }
    }
    let versions: Vec<Value> =
        versions.iter().map(|(name, version)| json!({"name": name, "version": version})).collect();
    let mut meta = json!({
        "format": 1, "device": name, "units": units, "flops_per_second": flops, "bytes_per_second": bytes, "candidates": versions,
    });
    if let (Some(meta), Some(facts)) = (meta.as_object_mut(), facts.as_object()) {
        meta.extend(facts.clone());
    }
    TunedText { aiter, ours, meta: format!("{meta:#}\n") }
}

/// What aiter calls a device: `gfx942`, `sm_90`; one that is not in the catalog by its name.
fn architecture(device: &str) -> String {
    let catalog = Catalog::builtin();
    let arch = catalog.recognise(device, None, None).and_then(|chip| chip.arch.split_whitespace().last());
    plain(arch.filter(|arch| arch.starts_with("sm_") || arch.starts_with("gfx")).unwrap_or(device))
}

/// A row as a line of `T.ours.csv`; nothing where nothing was measured.
pub fn row_line(device: &str, units: u64, row: &TunedRow) -> String {
    let Some(best) = row.best() else { return String::new() };
    let (gfx, TunedKey { kind, m, n, k }) = (plain(device), &row.key);
    let us = |seconds: f64| format!("{:.4}", seconds * 1e6);
    let second = row.second();
    let one = |t: &Timed| format!("{}={}@{:.4}", plain(&runner_word(&t.runner)), us(t.seconds), t.spread);
    let all: Vec<String> = row.times.iter().map(one).collect();
    let dropped: Vec<String> = row.dropped.iter().map(|(who, why)| format!("{}={}", plain(who), plain(why))).collect();
    let cells = [
        gfx,
        units.to_string(),
        kind.flags.clone(),
        kind.batch.to_string(),
        m.to_string(),
        n.to_string(),
        k.to_string(),
        kind.dtype.name().into(),
        kind.out_dtype.name().into(),
        kind.epilogue.clone(),
        word(kind.prepacked).into(),
        plain(&runner_word(&best.runner)),
        us(best.seconds),
        second.map_or(String::new(), |t| plain(&runner_word(&t.runner))),
        second.map_or(String::new(), |t| us(t.seconds)),
        format!("{:.4}", best.spread),
        all.join(&BETWEEN.to_string()),
        dropped.join(&BETWEEN.to_string()),
    ];
    format!("{}\n", cells.join(","))
}

/// What aiter can key: a linear layer, one matrix, nothing but a bias behind it. Of two that differ in what may be laid out
/// beforehand, the key says so.
fn aiter_line(gfx: &str, units: u64, row: &TunedRow, best: &Timed) -> Option<String> {
    let TunedKey { kind, m, n, k } = &row.key;
    let bias = match kind.epilogue.as_str() {
        "" => false,
        "bias" => true,
        _ => return None,
    };
    let (dtype, out_dtype) = (named(TORCH, kind.dtype)?, named(TORCH, kind.out_dtype)?);
    if kind.flags != "TN" || kind.batch != 1 {
        return None;
    }
    let [m_, n_, k_] = [*m, *n, *k].map(|x| x as f64);
    let bytes = (m_ * k_ + k_ * n_) * kind.dtype.bytes() as f64 + m_ * n_ * kind.out_dtype.bytes() as f64;
    let (libtype, _) = best.runner.candidate.split_once('.').unwrap_or((&best.runner.candidate, ""));
    let tflops = 2.0 * m_ * n_ * k_ / best.seconds * 1e-12;
    let bandwidth = bytes / best.seconds * 1e-9;
    Some(format!(
        "{gfx},{units},{m},{n},{k},{},{dtype},{out_dtype},False,{},{},0,0,{:.4},{},0.0,{tflops:.4},{bandwidth:.2}\n",
        word(bias),
        word(kind.prepacked),
        plain(libtype),
        best.seconds * 1e6,
        plain(&runner_word(&best.runner)),
    ))
}

/// Rows of `T.ours.csv`.
///
/// # Errors
/// Which line is not what the head says.
pub fn read_rows(text: &str) -> Result<Vec<TunedRow>, String> {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let heads = reader.headers().map_err(|e| e.to_string())?.clone();
    if heads.iter().ne(HEAD) {
        return Err(format!("its head is not `{}`", HEAD.join(",")));
    }
    let mut rows = Vec::new();
    for (i, record) in reader.records().enumerate() {
        let line = i + 2;
        let record = record.map_err(|e| format!("line {line}: {e}"))?;
        let cell =
            |name: &str| HEAD.iter().position(|known| *known == name).and_then(|at| record.get(at)).unwrap_or("");
        rows.push(read_row(&cell).map_err(|why| format!("line {line}: {why}"))?);
    }
    Ok(rows)
}

/// Whose the rows of a `T.ours.csv` are, where nothing else says so; rates are not known then.
///
/// # Errors
/// There is no row, or rows of several devices.
pub fn device_of_rows(text: &str) -> Result<TunedDevice, String> {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let mut found: Option<(String, u64)> = None;
    for record in reader.records().map_while(Result::ok) {
        let units =
            record.get(1).and_then(|text| text.parse().ok()).ok_or("a row does not say of which device it is")?;
        let this = (record.get(0).unwrap_or("").to_string(), units);
        if found.as_ref().is_some_and(|known| *known != this) {
            return Err("its rows are of several devices".into());
        }
        found = Some(this);
    }
    let (name, units) = found.ok_or("it has no rows")?;
    Ok(TunedDevice { name, units, flops: 1.0, bytes: 1.0, versions: Vec::new() })
}

fn read_row<'a>(cell: &dyn Fn(&str) -> &'a str) -> Result<TunedRow, String> {
    let number = |name: &str| {
        let text = cell(name);
        text.parse::<u64>().ok().filter(|n| *n < 1 << 40).ok_or_else(|| format!("{name} is `{text}`"))
    };
    let dtype = |name: &str| {
        let text = cell(name);
        DType::parse(text).ok_or_else(|| format!("{name} is `{text}`"))
    };
    let kind = TunedKind {
        flags: cell("flags").into(),
        batch: number("batch")?,
        dtype: dtype("dtype")?,
        out_dtype: dtype("outdtype")?,
        epilogue: cell("epilogue").into(),
        prepacked: cell("prepacked") == "True",
    };
    let key = TunedKey { kind, m: number("M")?, n: number("N")?, k: number("K")? };
    let mut times = Vec::new();
    for part in cell("all").split(BETWEEN).filter(|part| !part.is_empty()) {
        let timed = || -> Option<Timed> {
            let (runner, rest) = part.rsplit_once('=')?;
            let (us, spread) = rest.split_once('@')?;
            let us = us.parse::<f64>().ok().filter(|us| us.is_finite() && *us > 0.0)?;
            Some(Timed { runner: runner_of(runner), seconds: us * 1e-6, spread: spread.parse().ok()? })
        };
        times.push(timed().ok_or_else(|| format!("a time is `{part}`"))?);
    }
    times.sort_by(|x, y| x.seconds.total_cmp(&y.seconds));
    if times.is_empty() {
        return Err("it has no time".into());
    }
    // Who is named need not be the fastest.
    if let Some(at) = times.iter().position(|timed| plain(&runner_word(&timed.runner)) == cell("candidate")) {
        times[..=at].rotate_right(1);
    }
    let dropped = cell("dropped")
        .split(BETWEEN)
        .filter_map(|part| part.split_once('='))
        .map(|(x, y)| (x.into(), y.into()))
        .collect();
    Ok(TunedRow { key, times, dropped, foreign: false })
}

/// The device and versions of `T.meta.json`.
///
/// # Errors
/// What is missing there.
pub fn read_device(text: &str) -> Result<TunedDevice, String> {
    let meta: Value = serde_json::from_str(text).map_err(|e| e.to_string())?;
    let number = |name: &str| {
        let found = meta[name].as_f64().filter(|x| x.is_finite() && *x > 0.0);
        found.ok_or_else(|| format!("`{name}` is no number"))
    };
    let text = |value: &Value| value.as_str().unwrap_or("").to_string();
    let versions = meta["candidates"].as_array().map_or(&[][..], Vec::as_slice);
    Ok(TunedDevice {
        name: meta["device"].as_str().ok_or("`device` is missing")?.into(),
        // Of another tool's table nobody knows.
        units: meta["units"].as_u64().ok_or("`units` is no number")?,
        flops: number("flops_per_second")?,
        bytes: number("bytes_per_second")?,
        versions: versions.iter().map(|one| (text(&one["name"]), text(&one["version"]))).collect(),
    })
}

/// A tuned file of aiter or TunableOp as rows: each says who won, and nothing of the others.
///
/// # Errors
/// A file that is none of theirs, or cells that are not what its head says.
pub fn foreign_rows(text: &str) -> Result<Vec<TunedRow>, String> {
    let found = crate::read(text)?.ok_or("it is no tuned table that is known: ours, aiter's, TunableOp's")?;
    let devices = aiter::devices(text);
    if devices.len() > 1 {
        return Err(format!("it has rows of several devices, {}: keep those of one", devices.join(", ")));
    }
    let rows: Vec<TunedRow> = found.rows.iter().filter_map(foreign_row).collect();
    if rows.is_empty() { Err("no row of it says what won".into()) } else { Ok(rows) }
}

fn foreign_row(row: &crate::Row) -> Option<TunedRow> {
    let (seconds, candidate) = row.tuned.clone()?;
    let letter = crate::words::letter;
    let kind = TunedKind {
        flags: format!("{}{}", letter(row.gemm.transa), letter(row.gemm.transb)),
        batch: row.gemm.batch.map_or(1, |batch| batch.count.max(1) as u64),
        dtype: row.dtype,
        out_dtype: row.out_dtype,
        epilogue: if row.bias { "bias".into() } else { String::new() },
        prepacked: false,
    };
    let extent = |x: i64| u64::try_from(x).ok();
    let key = TunedKey { kind, m: extent(row.gemm.n)?, n: extent(row.gemm.m)?, k: extent(row.gemm.k)? };
    // Ours, where only the part in aiter's columns is there, says so in its name.
    let runner = runner_of(&candidate);
    let prepacked = row.prepacked || runner.packed;
    let key = TunedKey { kind: TunedKind { prepacked, ..key.kind }, ..key };
    Some(TunedRow { key, times: vec![Timed { runner, seconds, spread: 0.0 }], dropped: Vec::new(), foreign: true })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> TunedTable {
        let kind = TunedKind {
            flags: "TN".into(),
            batch: 1,
            dtype: DType::F32,
            out_dtype: DType::F32,
            epilogue: String::new(),
            prepacked: true,
        };
        let timed = |candidate: &str, packed, split, us: f64| Timed {
            runner: Runner { candidate: candidate.into(), packed, split },
            seconds: us * 1e-6,
            spread: 0.0125,
        };
        let row = |m, epilogue: &str, times| TunedRow {
            key: TunedKey { kind: TunedKind { epilogue: epilogue.into(), ..kind.clone() }, m, n: 4096, k: 11_008 },
            times,
            dropped: vec![("blis".into(), "crashed".into())],
            foreign: false,
        };
        let rows = vec![
            row(1, "", vec![timed("own.avx512-f32", true, false, 100.5), timed("mkl", false, false, 140.25)]),
            // Who is named need not be the fastest.
            row(2, "bias+silu", vec![timed("openblas", false, true, 200.0), timed("mkl", false, true, 199.0)]),
        ];
        let versions = vec![("mkl".into(), "2026.1".into())];
        let device = TunedDevice { name: "Xeon @ 2.50GHz".into(), units: 2, flops: 1.5e11, bytes: 2e10, versions };
        TunedTable::new(device, rows)
    }

    #[test]
    fn a_table_comes_back() {
        let table = table();
        let text = write(&table, &json!({"note": "x"}));
        assert_eq!(read_rows(&text.ours).unwrap(), table.rows());
        assert_eq!(read_device(&text.meta).unwrap(), table.device);
        // Only what aiter can key is in its columns.
        assert_eq!(text.aiter.lines().count(), 2);
        let line = text.aiter.lines().nth(1).unwrap();
        assert!(
            line.starts_with(
                "Xeon @ 2.50GHz,2,1,4096,11008,False,torch.float32,torch.float32,False,True,own,0,0,100.5000,"
            ),
            "{line}"
        );
        assert_eq!(line.split(',').count(), aiter::TUNED.split(',').count());
        assert_eq!(["NVIDIA H200", "AMD Instinct MI300X"].map(architecture), ["sm_90", "gfx942"]);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let text = write(&table(), &json!({})).ours;
        let why = |text: &str| read_rows(text).unwrap_err();
        assert!(why(&text.replace(",4096,", ",x,")).contains("line 2: N is `x`"));
        assert!(why(&text[..text.len() - 60]).contains("line 3"));
        assert!(why("M,N,K\n1,2,3\n").contains("head"));
        assert!(read_device("{}").unwrap_err().contains("number") || read_device("{}").unwrap_err().contains("device"));
    }

    #[test]
    fn other_tools_tables_say_who_won() {
        let rows =
            foreign_rows("GemmTunableOp_BFloat16_TN,tn_6144_128_4096_ld_4096_4096_6144,Gemm_Hipblaslt_61169,0.0213\n")
                .unwrap();
        assert_eq!(
            (rows[0].key.m, rows[0].key.n, rows[0].times[0].runner.candidate.as_str()),
            (128, 6144, "Gemm_Hipblaslt_61169")
        );
        assert!(foreign_rows("nothing\n").is_err());
    }

    #[test]
    fn aiters_rows_are_told_apart_by_all_that_its_key_has() {
        let row = |gfx: &str, shuffled, scaled, library: &str, name: &str, us| {
            let kind = "False,torch.bfloat16,torch.bfloat16";
            format!("{gfx},304,64,4096,4096,{kind},{scaled},{shuffled},{library},7,0,{us},{name},0.0,1.0,1.0\n")
        };
        let head = format!("{}\n", aiter::TUNED);
        let rows = [
            row("gfx942", "False", "False", "torch", "", 10.5),
            row("gfx942", "True", "False", "asm", "asm_shuffled", 7.5),
            row("gfx942", "False", "True", "asm", "asm_scaled", 5.0),
        ];
        let found = foreign_rows(&(head.clone() + &rows.concat())).unwrap();
        let told: Vec<(bool, &str)> =
            found.iter().map(|row| (row.key.kind.prepacked, row.times[0].runner.candidate.as_str())).collect();
        assert_eq!(told, [(false, "torch"), (true, "asm_shuffled")]);
        let two = head + &rows[0] + &row("gfx950", "False", "False", "asm", "other", 1.0);
        assert!(foreign_rows(&two).unwrap_err().contains("gfx942 with 304 units, gfx950"), "{:?}", foreign_rows(&two));
    }
}
