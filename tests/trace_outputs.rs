//! The tables of a trace in every form hold the same cells; several files; little memory.
#![allow(clippy::unwrap_used)]

#[path = "trace_help.rs"]
mod trace_help;

use calamine::{Data, Reader, Xlsx, open_workbook};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use trace_help::{object, two};

fn traces(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/traces").join(name).join("trace.json.gz")
}

fn scratch(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("outputs").join(name);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

fn run(words: &[&str]) -> (Option<i32>, String, String) {
    let done = Command::new(env!("CARGO_BIN_EXE_gemwright")).arg("trace").args(words).output().unwrap();
    (done.status.code(), String::from_utf8(done.stdout).unwrap(), String::from_utf8(done.stderr).unwrap())
}

type Cells = Vec<Vec<String>>;

/// Numbers as one spelling.
fn cell(text: &str) -> String {
    text.parse::<f64>().map_or_else(|_| text.to_string(), |number| format!("{number:.9e}"))
}

fn from_csv(path: &Path) -> Cells {
    let mut reader = csv::ReaderBuilder::new().has_headers(false).from_path(path).unwrap();
    reader.records().map(|row| row.unwrap().iter().map(cell).collect()).collect()
}

fn from_sheet(book: &mut Xlsx<std::io::BufReader<std::fs::File>>, name: &str) -> Cells {
    let text = |data: &Data| match data {
        Data::Empty => String::new(),
        other => cell(&other.to_string()),
    };
    let name: String = name.chars().take(31).collect();
    let range = book.worksheet_range(&name).unwrap();
    range.rows().map(|row| row.iter().map(text).collect()).collect()
}

fn from_parquet(path: &Path) -> Cells {
    let reader = SerializedFileReader::new(std::fs::File::open(path).unwrap()).unwrap();
    let columns = reader.metadata().file_metadata().schema_descr().columns().to_vec();
    let mut rows = vec![columns.iter().map(|column| column.name().to_string()).collect::<Vec<_>>()];
    for row in reader.get_row_iter(None).unwrap() {
        let text = |(_, field): (&String, &Field)| match field {
            Field::Null => String::new(),
            Field::Str(text) => cell(text),
            Field::Double(value) => format!("{value:.9e}"),
            Field::Long(value) => cell(&value.to_string()),
            other => panic!("{other:?}"),
        };
        rows.push(row.unwrap().get_column_iter().map(text).collect());
    }
    rows
}

#[test]
fn every_form_holds_the_same_cells() {
    let out = scratch("forms");
    let path = |name: &str| out.join(name).to_str().unwrap().to_string();
    for name in ["h200_gpt3xl_train", "synth_train"] {
        let trace = traces(name);
        let (csv, parquet, xlsx) = (path("csv"), path("parquet"), path("book.xlsx"));
        let (code, _, message) = run(&[trace.to_str().unwrap(), "--csv", &csv, "--parquet", &parquet, "--xlsx", &xlsx]);
        assert_eq!(code, Some(0), "{message}");
        let mut book: Xlsx<_> = open_workbook(&xlsx).unwrap();
        let mut compared = 0;
        for file in std::fs::read_dir(&csv).unwrap().map(|e| e.unwrap().path()) {
            let stem = file.file_stem().unwrap().to_str().unwrap().to_string();
            let want = from_csv(&file);
            assert_eq!(from_parquet(&Path::new(&parquet).join(format!("{stem}.parquet"))), want, "{name}/{stem}");
            assert_eq!(from_sheet(&mut book, &stem), want, "{name}/{stem}");
            compared += 1;
        }
        assert!(compared >= 7, "{compared}");
        std::fs::remove_dir_all(&csv).unwrap();
    }
}

#[test]
fn several_files_have_a_folder_each() {
    let out = scratch("several");
    let one = out.join("one.json");
    std::fs::write(&one, object(&two())).unwrap();
    let again = out.join("again");
    std::fs::create_dir_all(&again).unwrap();
    std::fs::copy(&one, again.join("one.json")).unwrap();
    let second = again.join("one.json");
    let tables = out.join("tables");
    let words = [one.to_str().unwrap(), second.to_str().unwrap(), "--csv", tables.to_str().unwrap()];
    let (code, text, _) = run(&words);
    assert_eq!((code, text.matches("first to last").count()), (Some(0), 2));
    assert!(tables.join("one/ops_summary.csv").exists() && tables.join("one-2/ops_summary.csv").exists());
    let (_, text, _) = run(&[words[0], words[1], "--format", "json"]);
    let answer: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(answer["traces"].as_array().unwrap().len(), 2);
    let (code, _, message) = run(&[words[0], words[1], "--save", "x.json"]);
    assert!(code == Some(2) && message.contains("one FILE"), "{message}");
}

#[test]
fn little_memory_gives_the_same_answer() {
    for name in ["h200_gpt3xl_stacks", "synth_serve"] {
        let trace = traces(name);
        for mode in [&[][..], &["--compat", "tracelens"]] {
            let words = [&[trace.to_str().unwrap(), "--format", "json"][..], mode].concat();
            let little = [&words[..], &["--low-memory"]].concat();
            assert_eq!(run(&words).1, run(&little).1, "{name}");
        }
    }
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let trace = traces("synth_serve");
    for option in ["--csv", "--parquet", "--xlsx", "--html", "--save"] {
        let (code, _, message) = run(&[trace.to_str().unwrap(), option, "/dev/null/x"]);
        assert!(code == Some(2) && message.contains("/dev/null/x"), "{option}: {message}");
    }
}

/// Every file of a folder, and of the folders in it, by its name.
fn files(folder: &Path) -> std::collections::BTreeMap<String, Vec<u8>> {
    let mut found = std::collections::BTreeMap::new();
    for path in std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()) {
        let name = path.file_name().unwrap().to_str().unwrap().to_string();
        if path.is_dir() {
            found.extend(files(&path).into_iter().map(|(file, bytes)| (format!("{name}/{file}"), bytes)));
        } else {
            found.insert(name, std::fs::read(&path).unwrap());
        }
    }
    found
}

/// Ranks reduced one by one and joined in any order are the same to the byte as read all at once.
#[test]
fn mapped_and_joined_is_read_at_once() {
    let out = scratch("parts");
    let folder = traces("synth_ranks4").parent().unwrap().to_path_buf();
    let trace = |rank: usize| folder.join(format!("rank{rank}.json.gz")).display().to_string();
    let part = |rank: usize| out.join(format!("part{rank}.parquet")).display().to_string();
    for rank in 0..4 {
        let (code, _, message) = run(&["map", &trace(rank), "-o", &part(rank)]);
        assert_eq!(code, Some(0), "{message}");
    }
    for ranks in [&[2][..], &[0, 1], &[3, 1], &[0, 1, 2, 3], &[2, 0, 3, 1]] {
        let (at_once, joined) = (out.join("at-once"), out.join("joined"));
        for folder in [&at_once, &joined] {
            let _ = std::fs::remove_dir_all(folder);
        }
        let mut sorted = ranks.to_vec();
        sorted.sort_unstable();
        let traces: Vec<String> = sorted.iter().map(|rank| trace(*rank)).collect();
        let parts: Vec<String> = ranks.iter().map(|rank| part(*rank)).collect();
        let csv = |folder: &Path| ["--csv".to_string(), folder.display().to_string()];
        let words = |list: &[String], folder: &Path| [list, &csv(folder)].concat();
        let read = words(&traces, &at_once);
        assert_eq!(run(&read.iter().map(String::as_str).collect::<Vec<_>>()).0, Some(0));
        let words = [vec!["join".to_string()], words(&parts, &joined)].concat();
        let (code, text, message) = run(&words.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(code, Some(0), "{message}");
        assert!(text.starts_with(&format!("{} ranks", ranks.len())), "{text}");
        let joined = files(&joined);
        assert!(joined.len() >= 8 * ranks.len(), "{:?}", joined.keys());
        assert!(files(&at_once) == joined, "{ranks:?}: {:?}", joined.keys());
    }
    let (code, _, message) = run(&["join", &part(0), &part(1), &part(0)]);
    assert!(code == Some(2) && message.contains("rank 0") && message.contains("--rank"), "{message}");
    let (code, _, message) = run(&["join", &trace(0)]);
    assert!(code == Some(2) && message.contains("no parquet file"), "{message}");
}

/// The example under Ray gives the same tables; where Ray is not installed there is nothing to run.
#[test]
#[allow(clippy::print_stdout)]
fn ray_runs_the_map_where_it_is_installed() {
    let python = std::env::var("GEMWRIGHT_PYTHON").unwrap_or_else(|_| "python3".into());
    let has_ray = Command::new(&python).args(["-c", "import ray"]).output().is_ok_and(|done| done.status.success());
    if !has_ray {
        println!("ray is not installed: not run");
        return;
    }
    let out = scratch("ray");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let traces: Vec<String> = (0..4)
        .map(|rank| root.join(format!("tests/traces/synth_ranks4/rank{rank}.json.gz")).display().to_string())
        .collect();
    let (ray, at_once) = (out.join("ray"), out.join("at-once"));
    let done = Command::new(&python)
        .arg(root.join("examples/ray_ranks.py"))
        .args([env!("CARGO_BIN_EXE_gemwright"), ray.to_str().unwrap()])
        .args(&traces)
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let words: Vec<&str> = traces.iter().map(String::as_str).chain(["--csv", at_once.to_str().unwrap()]).collect();
    assert_eq!(run(&words).0, Some(0));
    assert!(files(&ray) == files(&at_once));
}

/// What the script of a page gets.
fn page_data(html: &str) -> Value {
    let start = html.find("application/json\">").unwrap() + 18;
    let end = start + html[start..].find("</script>").unwrap();
    serde_json::from_str(&html[start..end]).unwrap()
}

#[test]
fn a_page_has_the_tables_and_the_products() {
    let folder = scratch("page");
    let path = folder.join("page.html").to_str().unwrap().to_string();
    let (code, _, message) = run(&[traces("h200_gpt3xl_train").to_str().unwrap(), "--html", &path]);
    assert_eq!(code, Some(0), "{message}");
    let html = std::fs::read_to_string(&path).unwrap();
    assert!(html.len() < 1_500_000, "{} bytes", html.len());
    let data = page_data(&html);
    let (_, text, _) = run(&[traces("h200_gpt3xl_train").to_str().unwrap(), "--format", "json"]);
    let tables: Value = serde_json::from_str(&text).unwrap();
    for table in data["tables"].as_array().unwrap() {
        let rows = tables["tables"][table["name"].as_str().unwrap()].as_array().map(Vec::len);
        let columns = table["columns"].as_array().unwrap();
        if let (Some(rows), Some(first)) = (rows, columns.first()) {
            assert_eq!(first["cells"].as_array().unwrap().len(), rows, "{}", table["name"]);
        }
    }
    // The products stand where the table has them: the longest first, at its speed.
    let longest = &data["plot"]["dots"][0];
    let of_table = &tables["tables"]["unified_perf_summary"];
    let row = of_table.as_array().unwrap().iter().max_by(|x, y| {
        let time = |row: &Value| row["Kernel Time (µs)_sum"].as_f64().unwrap_or(0.0);
        time(x).total_cmp(&time(y))
    });
    let speed = row.unwrap()["TFLOPS/s_mean"].as_f64().unwrap() * 1e12;
    assert!((longest["y"].as_f64().unwrap() / speed - 1.0).abs() < 1e-4, "{longest}");
    assert!(html.contains("What would save most") && html.contains("50257"));
}

#[test]
fn a_page_knows_several_chips_and_the_modules() {
    let folder = scratch("page-chips");
    let path = folder.join("page.html").to_str().unwrap().to_string();
    let trace = traces("h200_gpt3xl_stacks");
    let (code, _, message) = run(&[trace.to_str().unwrap(), "--on", "h200,mi300x", "--html", &path]);
    assert_eq!(code, Some(0), "{message}");
    let html = std::fs::read_to_string(&path).unwrap();
    let curves = page_data(&html)["plot"]["curves"].clone();
    let names: Vec<&str> = curves.as_array().unwrap().iter().map(|curve| curve["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["H200 SXM 141GB", "MI300X"]);
    assert!(html.contains("Time by module") && html.contains("GPT.Block.Linear"));
}

#[test]
fn pictures_for_slides() {
    let folder = scratch("pictures");
    let trace = traces("synth_train");
    let draw = |name: &str, of: &str| {
        let path = folder.join(name);
        let done = run(&[trace.to_str().unwrap(), "--plot", path.to_str().unwrap(), "--plot-of", of]);
        (done, std::fs::read(&path).unwrap_or_default())
    };
    let ((code, _, message), png) = draw("both.png", "both");
    assert_eq!((code, &png[..8]), (Some(0), &b"\x89PNG\r\n\x1a\n"[..]), "{message}");
    let [timeline, roofline, both] = [("t.svg", "timeline"), ("r.svg", "roofline"), ("b.svg", "both")]
        .map(|(name, of)| String::from_utf8(draw(name, of).1).unwrap());
    assert!(timeline.contains("computing") && timeline.contains("last") && !timeline.contains("TFLOP/s"));
    assert!(roofline.contains("TFLOP/s") && !roofline.contains("computing"));
    assert!(both.contains("computing") && both.contains("TFLOP/s"));
    let ((code, _, message), _) = draw("picture.jpg", "both");
    assert_eq!(code, Some(2), "{message}");
    assert!(message.contains(".svg or .png"), "{message}");
}

#[test]
fn names_in_a_trace_are_no_markup_on_the_page() {
    let folder = scratch("hostile-page");
    let evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)>";
    let name = serde_json::to_string(evil).unwrap();
    let trace = format!(
        r#"{{"traceEvents": [{{"ph": "X", "cat": "kernel", "name": {name}, "pid": 0, "tid": 7, "ts": 1, "dur": 5,
            "args": {{"device": 0, "stream": 7, "correlation": 3}}}}]}}"#
    );
    let (file, path) = (folder.join("evil.json"), folder.join("page.html"));
    std::fs::write(&file, trace).unwrap();
    let (code, _, message) = run(&[file.to_str().unwrap(), "--html", path.to_str().unwrap()]);
    assert_eq!(code, Some(0), "{message}");
    let html = std::fs::read_to_string(&path).unwrap();
    assert_eq!(html.matches("<script").count(), 2);
    assert!(!html.contains("<img"));
    assert!(page_data(&html)["strings"].as_array().unwrap().iter().any(|text| text == evil));
}
