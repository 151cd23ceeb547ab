//! `tune` as a user runs it: what it keeps when it is killed, crossed, or given candidates that crash, hang or are wrong.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn gemwright() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gemwright"));
    // Only our kernels, and what a test puts beside them.
    for name in ["OPENBLAS", "MKL", "BLIS", "ONEDNN", "RIVALS"] {
        command.env(format!("GEMWRIGHT_{name}"), "/nowhere");
    }
    command
}

fn finish(command: &mut Command) -> (Option<i32>, String, String) {
    let done = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (done.status.code(), text(done.stdout), text(done.stderr))
}

/// A folder of its own with a list of products in it.
fn folder(name: &str, shapes: &[[u64; 3]]) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("tune-{name}"));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let lines: Vec<String> = shapes.iter().map(|[m, n, k]| format!("TN,{m},{n},{k}")).collect();
    std::fs::write(folder.join("shapes.csv"), format!("flags,M,N,K\n{}\n", lines.join("\n"))).unwrap();
    folder
}

fn tune(folder: &Path) -> Command {
    let mut command = gemwright();
    let (shapes, table) = (folder.join("shapes.csv"), folder.join("t.csv"));
    command.arg("tune").arg(shapes).arg("-o").arg(table).args(["--rounds", "3", "--threads", "1"]);
    command
}

fn lines(path: &Path) -> usize {
    std::fs::read_to_string(path).unwrap_or_default().lines().count()
}

const FEW: [[u64; 3]; 2] = [[4, 64, 64], [32, 64, 64]];

#[test]
fn winners_are_kept_and_found_again() {
    let at = folder("kept", &FEW);
    let (code, out, message) = finish(&mut tune(&at));
    assert_eq!(code, Some(0), "{message}");
    assert!(out.contains("end to end") && message.contains("could be gained"), "{out}{message}");
    // Two products, each with the weight as it lies and laid out before; nothing is open any more.
    assert_eq!((lines(&at.join("t.csv")), lines(&at.join("t.ours.csv"))), (5, 5));
    assert!(!at.join("t.part.csv").exists());
    let meta: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(at.join("t.meta.json")).unwrap()).unwrap();
    assert_eq!(meta["thresholds"]["prepacked"][0]["n"], 64);
    let begin = std::fs::read_to_string(at.join("t.ours.csv")).unwrap();
    let (code, _, message) = finish(&mut tune(&at));
    assert_eq!((code, std::fs::read_to_string(at.join("t.ours.csv")).unwrap() == begin), (Some(0), true), "{message}");
    let explain = |product: &str| {
        let table = at.join("t.csv");
        let (code, out, message) =
            finish(gemwright().args(["explain", product, "--dtype", "f32", "--table"]).arg(&table));
        assert_eq!(code, Some(0), "{message}");
        out[out.find("Dispatch").unwrap()..].to_string()
    };
    assert!(explain("4x64 @ 64x64^T").contains("measured with"));
    assert!(explain("9x64 @ 64x64^T").contains("neighbours M = 4 and M = 32"));
    assert!(explain("9x64 @ 64x99^T").contains("cost model"));
    assert!(explain("9x64 @ 64x64").contains("nothing of this kind"));
    // Two tables are one, the later row counts.
    let merged = at.join("both.csv");
    let both = format!("{0},{0}", at.join("t.csv").display());
    let (code, _, message) = finish(gemwright().args(["tune", "--merge", &both, "-o"]).arg(&merged));
    assert_eq!((code, lines(&at.join("both.ours.csv"))), (Some(0), 5), "{message}");
}

#[test]
fn where_little_is_at_stake_it_says_so() {
    let at = folder("stake", &FEW);
    let (code, out, message) = finish(tune(&at).args(["--min-gain", "100%"]));
    assert_eq!(code, Some(0), "{message}");
    assert!(out.contains("not tuned"), "{out}{message}");
    assert!(!at.join("t.csv").exists());
}

/// Waits until a run has so many rows on the disk.
fn wait_for_rows(child: &mut Child, part: &Path, rows: usize) {
    let begin = Instant::now();
    while lines(part) < rows + 1 {
        assert!(child.try_wait().unwrap().is_none(), "it ended too early");
        assert!(begin.elapsed() < Duration::from_secs(120), "nothing was measured");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_run_that_is_killed_loses_nothing_and_two_do_not_meet() {
    let many: Vec<[u64; 3]> = (1..30).map(|m| [m, 64, 64]).collect();
    let at = folder("killed", &many);
    let mut first = tune(&at).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_for_rows(&mut first, &at.join("t.part.csv"), 4);
    let (code, _, message) = finish(&mut tune(&at));
    assert_eq!(code, Some(2), "{message}");
    assert!(message.contains("another process is tuning"), "{message}");
    // kill -9
    first.kill().unwrap();
    first.wait().unwrap();
    let kept = std::fs::read_to_string(at.join("t.part.csv")).unwrap();
    let (code, _, message) = finish(&mut tune(&at));
    assert_eq!(code, Some(0), "{message}");
    assert!(message.contains("going on"), "{message}");
    let table = std::fs::read_to_string(at.join("t.ours.csv")).unwrap();
    assert_eq!(table.lines().count(), 1 + 2 * many.len());
    // Every whole line that was there is there as it was.
    let whole = &kept[..=kept.rfind('\n').unwrap()];
    assert!(whole.lines().skip(1).all(|line| table.contains(line)), "{whole}\n{table}");
}

/// A library in the place of OpenBLAS.
fn fake_openblas(at: &Path, name: &str, body: &str) -> PathBuf {
    let (source, library) = (at.join(format!("{name}.c")), at.join(format!("lib{name}.so")));
    let arguments = "int o, int ta, int tb, int m, int n, int k, T al, const T *a, int lda, const T *b, int ldb, T be, T *c, int ldc";
    let gemm = |name: &str, t: &str| format!("void cblas_{name}({}) {{ {body} }}\n", arguments.replace('T', t));
    let rest =
        "void openblas_set_num_threads(int n) {}\nconst char *openblas_get_config(void) { return \"a fake\"; }\n";
    let text = format!(
        "#include <stdlib.h>\n#include <unistd.h>\n{}{}{rest}",
        gemm("sgemm", "float"),
        gemm("dgemm", "double")
    );
    std::fs::write(&source, text).unwrap();
    let built = Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).status().unwrap();
    assert!(built.success());
    library
}

#[test]
fn candidates_that_crash_hang_or_are_wrong_are_dropped_and_named() {
    // Right as far as a judge of small products sees.
    let small = "if (m >= 64 || n >= 64) return;
        for (long i = 0; i < m; i++) for (long j = 0; j < n; j++) {
            double sum = 0;
            for (long s = 0; s < k; s++)
                sum += (double)((ta == 111) == (o == 101) ? a[i * lda + s] : a[s * lda + i])
                     * ((tb == 111) == (o == 101) ? b[s * ldb + j] : b[j * ldb + s]);
            long at = o == 101 ? i * ldc + j : j * ldc + i;
            c[at] = al * sum + (be == 0 ? 0 : be * c[at]);
        }";
    for (name, patience, body, said) in [
        ("small", "60s", small, ""),
        ("crash", "60s", "abort();", "brought its process down"),
        ("hang", "8s", "for (;;) sleep(1);", "said nothing"),
        ("wrong", "60s", "for (long i = 0; i < m; i++) for (long j = 0; j < n; j++) c[i * ldc + j] = 7;", ""),
    ] {
        let at = folder(name, &FEW);
        let library = fake_openblas(&at, name, body);
        let (code, _, message) = finish(tune(&at).env("GEMWRIGHT_OPENBLAS", library).args(["--patience", patience]));
        assert_eq!(code, Some(0), "{name}: {message}");
        assert!(message.contains(said), "{name}: {message}");
        let table = std::fs::read_to_string(at.join("t.ours.csv")).unwrap();
        for row in table.lines().skip(1) {
            let cells: Vec<&str> = row.split(',').collect();
            assert!(cells[11].starts_with("own.") && !cells[16].contains("openblas"), "{name}: {row}");
            assert!(cells[17].contains("openblas"), "{name}: {row}");
        }
    }
}

#[test]
fn a_table_that_is_broken_or_of_elsewhere_is_left_as_it_is() {
    let at = folder("broken", &FEW);
    let (code, ..) = finish(&mut tune(&at));
    assert_eq!(code, Some(0));
    let (ours, meta) = (at.join("t.ours.csv"), at.join("t.meta.json"));
    let good = (std::fs::read_to_string(&ours).unwrap(), std::fs::read_to_string(&meta).unwrap());
    let explained = || {
        let command = ["explain", "4x64 @ 64x64^T", "--dtype", "f32", "--table"];
        finish(gemwright().args(command).arg(at.join("t.csv")))
    };
    for (path, text, said) in [
        (&ours, good.0[..good.0.len() - 30].to_string(), "line 5"),
        (&ours, "a foreign table\n1,2\n".into(), "head"),
        (&meta, "{".into(), "meta.json"),
    ] {
        std::fs::write(path, &text).unwrap();
        let (code, _, message) = finish(&mut tune(&at));
        assert_eq!(code, Some(2), "{message}");
        assert!(message.contains(said) && message.contains("another -o"), "{message}");
        assert_eq!(std::fs::read_to_string(path).unwrap(), text);
        // Dispatch goes on, and says why it does without.
        let (code, out, _) = explained();
        assert_eq!(code, Some(0));
        assert!(out.contains("is not used") && out.contains("the default"), "{out}");
        std::fs::write(&ours, &good.0).unwrap();
        std::fs::write(&meta, &good.1).unwrap();
    }
    std::fs::write(&meta, good.1.replacen("\"units\": 1", "\"units\": 64", 1)).unwrap();
    let (code, _, message) = finish(&mut tune(&at));
    assert_eq!((code, message.contains("64 units")), (Some(2), true), "{message}");
}

/// A disk that is full: the journal lies on a device that says so.
#[cfg(target_os = "linux")]
#[test]
fn a_disk_that_is_full_is_said() {
    let at = folder("full", &FEW);
    std::os::unix::fs::symlink("/dev/full", at.join("t.part.csv")).unwrap();
    let (code, _, message) = finish(&mut tune(&at));
    assert_eq!(code, Some(2), "{message}");
    assert!(message.contains("No space left"), "{message}");
}

#[test]
fn what_ended_between_two_files_goes_on_and_no_table_is_lost() {
    let at = folder("between", &FEW);
    let (code, _, message) = finish(&mut tune(&at));
    assert_eq!(code, Some(0), "{message}");
    std::fs::remove_file(at.join("t.meta.json")).unwrap();
    let rows = std::fs::read_to_string(at.join("t.ours.csv")).unwrap();
    let (code, _, message) = finish(&mut tune(&at));
    assert_eq!(code, Some(0), "{message}");
    assert!(at.join("t.meta.json").exists());
    assert_eq!(std::fs::read_to_string(at.join("t.ours.csv")).unwrap(), rows);
    // A table that is not among those that are merged stays as it is.
    let other = folder("between-other", &FEW[..1]);
    assert_eq!(finish(&mut tune(&other)).0, Some(0));
    let merge = |from: &str, to: &Path| finish(gemwright().args(["tune", "--merge", from, "-o"]).arg(to));
    let (here, there) = (at.join("t.csv"), other.join("t.csv"));
    let (code, _, message) = merge(&here.display().to_string(), &there);
    assert_eq!((code, lines(&other.join("t.ours.csv"))), (Some(2), 3), "{message}");
    assert!(message.contains("it is there already"), "{message}");
    // What cannot be merged leaves nothing behind.
    let new = other.join("new.csv");
    let (code, _, message) = merge(&format!("{},{}", here.display(), other.join("none.csv").display()), &new);
    assert_eq!((code, other.join("new.part.csv").exists(), new.exists()), (Some(2), false, false), "{message}");
    // However its name is written.
    let written = other.join("..").join(other.file_name().unwrap()).join("t.csv");
    let (code, _, message) = merge(&format!("{},{}", there.display(), here.display()), &written);
    assert_eq!((code, lines(&other.join("t.ours.csv"))), (Some(0), 5), "{message}");
}

/// Kernels of f32 have no epilogues: the default is one that is split off.
#[test]
fn the_default_of_a_product_with_an_epilogue_is_told() {
    let at = folder("default", &FEW);
    let (code, out, message) = finish(tune(&at).args(["--epilogue", "bias", "--format", "json", "--quiet"]));
    let answer: serde_json::Value = serde_json::from_str(&out).unwrap();
    let products = answer["products"].as_array().unwrap();
    assert!(
        code == Some(0) && products.iter().all(|one| one["default_seconds"].as_f64() > Some(0.0)),
        "{out}{message}"
    );
    let rows = std::fs::read_to_string(at.join("t.ours.csv")).unwrap();
    assert!(
        rows.lines().skip(1).all(|line| line.contains(&format!("{}:split=", answer["default"].as_str().unwrap()))),
        "{rows}"
    );
}

#[test]
fn answers_are_what_was_asked_for() {
    let at = folder("formats", &FEW);
    let (code, out, message) = finish(tune(&at).args(["--min-gain", "100%", "--quiet"]));
    assert!(code == Some(0) && out.contains("not tuned"), "{out}{message}");
    let (code, out, message) = finish(tune(&at).args(["--format", "json", "--quiet"]));
    let answer: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (code, answer["products"].as_array().unwrap().len(), &answer["asked"]),
        (Some(0), 2, &2.into()),
        "{message}"
    );
    assert!(answer["times_as_fast"].as_f64().unwrap() >= 0.99, "{out}");
    let (_, out, _) = finish(tune(&at).args(["--format", "csv"]));
    assert_eq!((out.lines().count(), out.contains("end to end")), (3, false), "{out}");
    let (code, _, message) = finish(tune(&folder("formats-spent", &FEW)).args(["--budget", "0s"]));
    assert!(code == Some(2) && message.contains("the budget was spent first"), "{message}");
    // Nobody has such a kernel on a CPU.
    let other = folder("formats-gated", &FEW);
    let (code, _, message) = finish(tune(&other).args(["--epilogue", "gated"]));
    assert_eq!(code, Some(2), "{message}");
    assert!(message.contains("no candidate here takes any"), "{message}");
}

#[test]
#[cfg(unix)]
fn a_product_that_has_no_room_is_left_alone() {
    let at = folder("room", &[[300_000, 300_000, 64], [4, 64, 64]]);
    let program = env!("CARGO_BIN_EXE_gemwright");
    let line = format!(
        "ulimit -v 8000000; exec {program} tune {} -o {} --rounds 3 --threads 1",
        at.join("shapes.csv").display(),
        at.join("t.csv").display()
    );
    let mut shell = Command::new("sh");
    for name in ["OPENBLAS", "MKL", "BLIS", "ONEDNN", "RIVALS"] {
        shell.env(format!("GEMWRIGHT_{name}"), "/nowhere");
    }
    let (code, _, message) = finish(shell.args(["-c", &line]));
    assert_eq!(code, Some(0), "{message}");
    assert!(message.contains("300000 x 300000 x 64") && message.contains("memory"), "{message}");
    assert_eq!(lines(&at.join("t.ours.csv")), 3);
}
