//! Mutated configs: an answer or exit 2 with a message, never a panic, never long, never large.
//! GEMWRIGHT_HOSTILE gives the number of mutations; CI's full run takes ten thousand.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// A small generator of its own, so that a seed means the same everywhere.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % sides
    }
}

/// The program with at most 100 MB of address space and a second of a core, where the shell can say so.
/// The time on the clock would judge the machine: beside other work a short command can wait for seconds.
fn limited(words: &[String]) -> Command {
    let binary = env!("CARGO_BIN_EXE_gemwright");
    if cfg!(target_os = "linux") {
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -v 100000 && ulimit -t 1 && exec \"$0\" \"$@\"", binary]).args(words);
        return command;
    }
    let mut command = Command::new(binary);
    command.args(words);
    command
}

fn hostile_value(dice: &mut Dice) -> Value {
    match dice.roll(16) {
        0 => json!(null),
        1 => json!(-1),
        2 => json!(0),
        3 => json!(1),
        4 => json!(i64::MAX),
        5 => json!(u64::MAX),
        6 => json!(1e308),
        7 => json!(0.5),
        8 => json!("4096"),
        9 => json!([]),
        10 => json!([1, "x", null]),
        11 => json!({"a": {"b": []}}),
        12 => json!(true),
        13 => json!("\u{0}\u{1F600}\n"),
        14 => json!(16_777_216),
        _ => json!(7),
    }
}

fn mutate(config: &Value, dice: &mut Dice) -> String {
    let mut config = config.as_object().unwrap().clone();
    for _ in 0..=dice.roll(3) {
        let keys: Vec<String> = config.keys().cloned().collect();
        let key = keys[dice.roll(keys.len())].clone();
        match dice.roll(6) {
            0 => {
                config.remove(&key);
            }
            1 => {
                config.insert("layer_types".into(), hostile_value(dice));
            }
            2 => {
                config.insert("rope_parameters".into(), json!({"partial_rotary_factor": hostile_value(dice)}));
            }
            _ => match config.get_mut(&key).and_then(Value::as_object_mut).filter(|o| !o.is_empty()) {
                Some(inner) => {
                    let keys: Vec<String> = inner.keys().cloned().collect();
                    inner.insert(keys[dice.roll(keys.len())].clone(), hostile_value(dice));
                }
                None => {
                    config.insert(key, hostile_value(dice));
                }
            },
        }
        if config.is_empty() {
            break;
        }
    }
    let text = Value::Object(config).to_string();
    match dice.roll(20) {
        0 => text.chars().take(dice.roll(text.len())).collect(),
        1 => "[".repeat(50_000),
        2 => format!("{{\"a\": {}", "{\"a\":".repeat(5_000)),
        3 => text.replace(':', "::"),
        _ => text,
    }
}

fn words(dice: &mut Dice) -> Vec<String> {
    let numbers = ["0", "1", "2", "7", "100", "-3", "16777216", "99999999999999999999", "x"];
    let phase = ["prefill", "decode", "generate", "forward", "train"][dice.roll(5)];
    let mut words: Vec<String> = vec!["--phase".into(), phase.into(), "--steps".into(), "3".into()];
    for flag in ["--batch", "--seq", "--past", "--layers"] {
        if dice.roll(4) == 0 {
            words.extend([flag.into(), numbers[dice.roll(numbers.len())].into()]);
        }
    }
    if dice.roll(3) == 0 {
        words.extend(["--attention".into(), ["sdpa", "eager"][dice.roll(2)].into()]);
    }
    words
}

/// A view of these sizes with strides of some kind; one time in four something in it is spoilt.
fn hostile_view(sizes: &[usize], dice: &mut Dice) -> String {
    let join = |words: &[String], with: &str| words.join(with);
    let mut text = join(&sizes.iter().map(usize::to_string).collect::<Vec<_>>(), "x");
    if dice.roll(2) == 0 {
        let mut steps: Vec<String> = sizes
            .iter()
            .map(|_| ["0", "1", "2", "7", "64", "4096", "1099511627776"][dice.roll(7)].to_string())
            .collect();
        if dice.roll(10) == 0 {
            steps.push("1".into());
        }
        text = format!("{text}:{}", join(&steps, ","));
    }
    if dice.roll(4) == 0 {
        let at = dice.roll(text.len());
        let spoilt = ["x", "-", "", ":", ",", "99999999999999999999", "1099511627777", "0"][dice.roll(8)];
        text.replace_range(at..=at, spoilt);
    }
    text
}

#[test]
fn no_operation_makes_explain_panic() {
    let count: usize = std::env::var("GEMWRIGHT_HOSTILE").ok().and_then(|n| n.parse().ok()).unwrap_or(400);
    let mut dice = Dice(11);
    let mut answered = 0;
    for _ in 0..count {
        let op = ["linear", "matmul", "mm", "addmm", "bmm", "baddbmm", "mv", "aten::mm", "conv"][dice.roll(9)];
        let mut words = vec!["explain".to_string(), "--op".into(), op.into(), "--format".into(), "json".into()];
        let mut extent = || [0, 1, 2, 3, 8, 64, 100, 4096][dice.roll(8)];
        let (batch, m, n, k) = (extent(), extent(), extent(), extent());
        let (a, b, bias) = match op {
            "linear" => (vec![batch, m, k], vec![n, k], vec![n]),
            "matmul" => (vec![batch, m, k], vec![k, n], vec![]),
            "bmm" | "baddbmm" => (vec![batch, m, k], vec![batch, k, n], vec![batch, m, n]),
            "mv" => (vec![m, k], vec![k], vec![]),
            _ => (vec![m, k], vec![k, n], vec![n]),
        };
        words.extend(["--a".into(), hostile_view(&a, &mut dice), "--b".into(), hostile_view(&b, &mut dice)]);
        if !bias.is_empty() && (op.contains("add") || dice.roll(3) == 0) {
            words.extend(["--bias".into(), hostile_view(&bias, &mut dice)]);
        }
        if dice.roll(4) == 0 {
            words.extend(["--beta".into(), ["0", "0.5", "-1", "nan", "1e400", "x"][dice.roll(6)].into()]);
        }
        if dice.roll(4) == 0 {
            words.push("--frozen".into());
        }
        let done = limited(&words).output().unwrap();
        let message = String::from_utf8_lossy(&done.stderr);
        match done.status.code() {
            Some(0) => answered += 1,
            Some(2) => assert!(message.starts_with("error: "), "{words:?}: {message}"),
            code => panic!("{code:?} for {words:?}: {message}"),
        }
    }
    println!("{count} operations: {answered} answered, the rest refused");
    assert!(answered > count / 10, "only {answered} of {count} were answered");
}

#[test]
fn nothing_makes_it_panic() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden");
    let mut configs = Vec::new();
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        let text = std::fs::read_to_string(path).unwrap();
        configs.extend(
            text.lines().filter_map(|l| l.strip_prefix("config ")).map(|j| serde_json::from_str::<Value>(j).unwrap()),
        );
    }
    let count: usize = std::env::var("GEMWRIGHT_HOSTILE").ok().and_then(|n| n.parse().ok()).unwrap_or(400);
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("hostile.json");
    let mut dice = Dice(7);
    let (mut answered, mut slowest) = (0, 0.0f64);
    for i in 0..count {
        let text = mutate(&configs[i % configs.len()], &mut dice);
        std::fs::write(&file, &text).unwrap();
        let words = words(&mut dice);
        let start = Instant::now();
        let start_words = ["model".to_string(), file.display().to_string(), "--format".into(), "json".into()];
        let done = limited(&[&start_words[..], &words[..]].concat()).output().unwrap();
        let took = start.elapsed().as_secs_f64();
        slowest = slowest.max(took);
        let message = String::from_utf8_lossy(&done.stderr);
        let shown: String = text.chars().take(2000).collect();
        match done.status.code() {
            Some(0) => answered += 1,
            Some(2) => assert!(message.starts_with("error: "), "{words:?} {shown}: {message}"),
            code => panic!("{code:?} for {words:?} {shown}: {message}"),
        }
    }
    println!("{count} mutations: {answered} answered, the rest refused; slowest {slowest:.3} s");
    assert!(answered > count / 20, "only {answered} of {count} were answered: the mutations are too coarse");
}
