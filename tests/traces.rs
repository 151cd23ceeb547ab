//! Holds `gemwright trace --compat tracelens` to TraceLens's own tables, cell by cell, and the default
//! to what is right; then files that are broken in every way that was thought of.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

#[path = "trace_help.rs"]
mod trace_help;

use flate2::read::GzDecoder;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use trace_help::{answer, busy, launched, object, problems, tables, two};

fn traces() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/traces")
}

fn scratch(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("traces").join(name);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

fn inflated(path: &Path) -> Vec<u8> {
    let mut out = Vec::new();
    GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_end(&mut out).unwrap();
    out
}

fn trace(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gemwright")).arg("trace").args(words).output().unwrap()
}

/// Text and numbers in turn: `np.float64(3.5)` is the number 3.5.
fn tokens(cell: &str) -> Vec<Result<f64, String>> {
    let cell = cell.replace("np.float64(", "(").replace("np.int64(", "(");
    let mut found = Vec::new();
    let mut text = String::new();
    let bytes = cell.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let boundary = at == 0 || !(bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_');
        let starts =
            bytes[at].is_ascii_digit() || (bytes[at] == b'-' && bytes.get(at + 1).is_some_and(u8::is_ascii_digit));
        let end = at + bytes[at..].iter().take_while(|c| c.is_ascii_digit() || b"+-.e".contains(c)).count();
        match cell.get(at..end).and_then(|word| word.parse::<f64>().ok()).filter(|_| boundary && starts) {
            Some(number) => {
                found.push(Err(std::mem::take(&mut text)));
                found.push(Ok(number));
                at = end;
            }
            None => {
                let c = cell[at..].chars().next().unwrap();
                text.push(c);
                at += c.len_utf8();
            }
        }
    }
    // A number alone and one in brackets are the same.
    found.push(Err(text));
    found.retain(|t| !matches!(t, Err(text) if text.chars().all(|c| "()[] ,".contains(c))));
    found
}

fn same(column: &str, ours: &str, theirs: &str) -> bool {
    let loose = if column.starts_with("trunc_") { 0.0101 } else { 1e-12 };
    let (ours, theirs) = (tokens(ours), tokens(theirs));
    ours.len() == theirs.len()
        && ours.iter().zip(&theirs).all(|pair| match pair {
            (Ok(x), Ok(y)) => (x - y).abs() <= loose + 1e-6 * x.abs().max(y.abs()),
            (Err(x), Err(y)) => x == y,
            _ => false,
        })
}

type Rows = (Vec<String>, Vec<Vec<String>>);

fn rows(text: &[u8]) -> Rows {
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(text);
    let head = reader.headers().unwrap().iter().map(str::to_string).collect();
    (head, reader.records().map(|r| r.unwrap().iter().map(str::to_string).collect()).collect())
}

/// Columns by which tables are sorted; rows that are equal there may stand in any order.
const SORTED_BY: [&str; 7] = [
    "Kernel Time (µs)_sum",
    "dur_sum",
    "Total comm latency (ms)",
    "total_direct_kernel_time_sum",
    "total_direct_kernel_time_ms",
    "Kernel duration (µs)_sum",
    "Short Kernel duration (µs) sum",
];

fn compare(place: &str, ours: &Rows, theirs: &Rows) {
    assert_eq!(ours.0, theirs.0, "{place}: columns");
    assert_eq!(ours.1.len(), theirs.1.len(), "{place}: rows");
    let key = theirs.0.iter().position(|name| SORTED_BY.contains(&name.as_str()));
    let mut left: Vec<&Vec<String>> = theirs.1.iter().collect();
    for row in &ours.1 {
        let fits = |other: &Vec<String>| {
            let cells = ours.0.iter().zip(row.iter().zip(other));
            // Running sums depend on the order of equal rows.
            cells.clone().all(|(name, (x, y))| name.starts_with("Cumulative") || same(name, x, y))
        };
        let tied = |other: &&&Vec<String>| key.is_none_or(|k| same("", &other[k], &left[0][k]));
        let reach = left.iter().take_while(tied).count();
        let found = left[..reach].iter().position(|other| fits(other));
        assert!(found.is_some(), "{place}:\nours   {row:?}\ntheirs {:?}", left[0]);
        left.remove(found.unwrap());
    }
}

#[test]
fn the_tables_are_tracelens_own() {
    let mut compared = 0;
    let folders = std::fs::read_dir(traces()).unwrap().map(|e| e.unwrap().path());
    for folder in folders.filter(|path| path.join("trace.json.gz").exists()) {
        let name = folder.file_name().unwrap().to_str().unwrap().to_string();
        let out = scratch(&name);
        let file = folder.join("trace.json.gz");
        let done = trace(&[file.to_str().unwrap(), "--compat", "tracelens", "--csv", out.to_str().unwrap()]);
        assert!(done.status.success(), "{name}: {}", String::from_utf8_lossy(&done.stderr));
        compared += compare_folder(&name, &folder, &out);
    }
    println!("{compared} tables");
    assert_eq!(compared, 115);
}

/// Every table of a folder against ours, and that we write no other.
fn compare_folder(name: &str, folder: &Path, out: &Path) -> usize {
    let mut theirs = Vec::new();
    for table in std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()) {
        let Some(stem) = table.file_name().unwrap().to_str().unwrap().strip_suffix(".csv.gz") else { continue };
        let ours = std::fs::read(out.join(format!("{stem}.csv"))).unwrap_or_else(|e| panic!("{name}/{stem}: {e}"));
        compare(&format!("{name}/{stem}"), &rows(&ours), &rows(&inflated(&table)));
        theirs.push(format!("{stem}.csv"));
    }
    let mut ours: Vec<String> =
        std::fs::read_dir(out).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    ours.sort();
    theirs.sort();
    assert_eq!(ours, theirs, "{name}");
    theirs.len()
}

/// Four ranks: TraceLens's report of their exchanges.
#[test]
fn the_tables_of_many_ranks_are_tracelens_own() {
    let folder = traces().join("synth_ranks4");
    let out = scratch("ranks");
    let files: Vec<String> = (0..4).map(|i| folder.join(format!("rank{i}.json.gz")).display().to_string()).collect();
    // In any order: the rank stands in the name.
    let words = [&files[2], &files[0], &files[3], &files[1]].map(String::as_str);
    let done = trace(&[&words[..], &["--compat", "tracelens", "--csv", out.to_str().unwrap()]].concat());
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert_eq!(compare_folder("ranks", &folder, &out), 7);
}

#[test]
fn every_form_of_a_file_gives_the_same() {
    let whole = object(&two());
    let want = tables(&whole, &[]);
    assert_eq!(busy(&want), 0.03075);
    assert_eq!(want["tables"]["ops_summary"][0]["name"], "aten::mm");
    assert_eq!(want["tables"]["ops_summary"][0]["Count"], 2);
    let bare = Value::Array(two()).to_string().into_bytes();
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    packed.write_all(&whole).unwrap();
    let packed = packed.finish().unwrap();
    let marked = [&[0xef, 0xbb, 0xbf][..], &whole].concat();
    for form in [bare, packed.clone(), marked] {
        assert_eq!(tables(&form, &[])["tables"], want["tables"]);
    }
    // Two members one after the other are one text.
    let cut = whole.len() / 2;
    let mut members = Vec::new();
    for half in [&whole[..cut], &whole[cut..]] {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        packed.write_all(half).unwrap();
        members.extend(packed.finish().unwrap());
    }
    assert_eq!(tables(&members, &[])["tables"], want["tables"]);
}

#[test]
fn a_truncated_file_is_read_as_far_as_it_goes() {
    let file = inflated(&traces().join("synth_serve/trace.json.gz"));
    let packed = std::fs::read(traces().join("synth_serve/trace.json.gz")).unwrap();
    let whole = tables(&file, &[])["events"].as_u64().unwrap();
    let mut last = 0;
    for place in 1..=50 {
        let (code, out, message) = answer(&packed[..packed.len() * place / 51], &[]);
        if code == Some(0) {
            let found: Value = serde_json::from_str(&out).unwrap();
            let events = found["events"].as_u64().unwrap();
            assert!(events >= last && events <= whole, "{place}: {events}");
            assert!(problems(&found).contains("breaks off"), "{place}");
            last = events;
        } else {
            assert_eq!(code, Some(2), "{place}: {message}");
        }
    }
    assert!(last > whole / 2, "{last} of {whole}");
    // As plain text, inside an event.
    let text = object(&two());
    let found = tables(&text[..text.len() - 60], &[]);
    assert_eq!((&found["events"], problems(&found).contains("breaks off")), (&9.into(), true));
}

#[test]
fn what_real_traces_contain_is_tolerated() {
    let text = String::from_utf8(object(&two())).unwrap();
    let whole = tables(text.as_bytes(), &[]);
    // A control character and bytes that are no UTF-8 in a name.
    let odd = [text.replace("\"gemm\"", "\"ge\u{1}mm\"").into_bytes(), {
        let mut bytes = text.clone().into_bytes();
        let at = text.find("\"gemm\"").unwrap();
        bytes[at + 2] = 0xff;
        bytes
    }];
    for bytes in odd {
        assert_eq!(busy(&tables(&bytes, &[])), busy(&whole));
    }
    // A time that is no number: the event is left out, and said to be.
    let found = tables(text.replacen("\"dur\":10.5", "\"dur\":NaN", 1).as_bytes(), &[]);
    assert_eq!((busy(&found), problems(&found).contains("readable duration")), (0.02025, true));
    for huge in ["1e400", "1e300", "99999999999999999999999999", "-1e25"] {
        let found = tables(text.replacen("\"ts\":150.0", &format!("\"ts\":{huge}"), 1).as_bytes(), &[]);
        assert!(problems(&found).contains("readable time") && busy(&found) == 0.02025, "{huge}");
    }
    let found = tables(text.replacen("\"dur\":10.5", "\"dur\":9e15", 1).as_bytes(), &[]);
    assert!(busy(&found) > 0.02);
    // A time as text is a time.
    let found = tables(text.replacen("\"ts\":150.0", "\"ts\":\"150.0\"", 1).as_bytes(), &[]);
    assert_eq!(busy(&found), busy(&whole));
    // A broken event in the middle.
    let found = tables(text.replacen("\"ph\":\"s\",", "\"ph\":\"s\" \"x\",", 1).as_bytes(), &[]);
    assert!(problems(&found).contains("no JSON") && busy(&found) == busy(&whole), "{found}");
    // No arrows: the correlation is enough, except to TraceLens.
    let bare: Vec<Value> = two().into_iter().filter(|e| e["cat"] != "ac2g").collect();
    assert_eq!(tables(&object(&bare), &[])["tables"], whole["tables"]);
    assert!(tables(&object(&bare), &["--compat", "tracelens"])["tables"]["ops_summary"].is_null());
    // Host events alone.
    let host: Vec<Value> = two().into_iter().filter(|e| e["cat"] == "cpu_op").collect();
    let found = tables(&object(&host), &[]);
    assert_eq!(found["tables"].as_object().unwrap().keys().collect::<Vec<_>>(), ["host_ops"]);
    assert_eq!(found["tables"]["host_ops"][0]["self_host_time_ms"], 0.04);
    // A kernel whose launch was not recorded counts, and is said to be without an operation.
    let mut orphan = two();
    orphan.push(json!({"ph": "X", "cat": "kernel", "name": "lost", "pid": 0, "tid": 7, "ts": 300, "dur": 5,
        "args": {"correlation": 9, "stream": 7, "device": 0}}));
    let found = tables(&object(&orphan), &[]);
    assert_eq!((busy(&found), problems(&found).contains("outside the recording")), (0.03575, true));
    assert_eq!(busy(&tables(&object(&orphan), &["--compat", "tracelens"])), 0.03075);
    // No events at all, deep nesting, an unknown metadata event.
    assert_eq!(tables(&object(&[]), &[])["events"], 0);
    let deep = format!("{{\"x\": {}{}, \"traceEvents\": []}}", "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(tables(deep.as_bytes(), &[])["events"], 0);
}

/// Nanoseconds at the time of day: float64 microseconds would round the length of a kernel to 10.5 or 10.25.
#[test]
fn times_are_exact_where_float64_is_not() {
    let start = 1_790_857_026_000_000.0;
    let text = object(&launched(1, start, 0.0, 0.0));
    let text = String::from_utf8(text).unwrap().replace("\"ts\":0.0", "\"ts\":1790857026000050.125");
    let text = text.replace("\"dur\":0.0", "\"dur\":10.333");
    assert_eq!(busy(&tables(text.as_bytes(), &[])), 0.010_333);
    assert_eq!(busy(&tables(text.as_bytes(), &["--compat", "tracelens"])), 0.010_25);
}

#[test]
fn what_is_no_trace_is_refused_with_what_it_seems() {
    let mut bomb = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    for _ in 0..64 {
        bomb.write_all(&vec![b' '; 1 << 20]).unwrap();
    }
    let bomb = bomb.finish().unwrap();
    for (bytes, cause) in [
        (&b""[..], "empty"),
        (b"hello", "no JSON"),
        (b"{\"a\": 1}", "without traceEvents"),
        (b"{\"traceEvents\": 5}", "no list"),
        (b"PK\x03\x04", "zip"),
        (b"\x1f\x8b\x08broken", "broken"),
        (b"[1, 2, 3]", "no events"),
        (&bomb, "inflates to more"),
    ] {
        let (code, out, message) = answer(bytes, &[]);
        assert_eq!((code, out.as_str(), message.contains(cause)), (Some(2), "", true), "{cause}: {message}");
    }
    assert_eq!(trace(&["/nonexistent/trace.json"]).status.code(), Some(2));
}

#[test]
fn a_bare_command_answers_on_one_screen() {
    let file = traces().join("h200_gpt3xl_train/trace.json.gz");
    let done = trace(&[file.to_str().unwrap()]);
    let text = String::from_utf8(done.stdout).unwrap();
    for word in ["NVIDIA H200", "computing", "idle", "GEMM", "aten::mm", "nvjet"] {
        assert!(text.contains(word), "{word}");
    }
    assert!(text.lines().count() <= 50, "{}", text.lines().count());
}
