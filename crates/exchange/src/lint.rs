//! Tuned tables held against the rules of the tool that reads them, and against the calls that are to find their rows.

use crate::row::Row;
use crate::words::{TORCH, typed};
use crate::{aiter, overrides, tunableop};
use std::collections::HashMap;
use std::fmt;

/// Something that is wrong with a table, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Finding {
    /// Of the table, counted from 1; none where it is a call that finds nothing.
    pub line: Option<usize>,
    pub kind: Fault,
    pub what: String,
    pub cure: String,
}

/// Kinds of what is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A cell that the tool cannot read.
    Unreadable,
    /// A key that stands twice.
    Duplicate,
    /// Made for another GPU.
    OtherDevice,
    /// No call of the workload looks it up.
    Unreachable,
    /// A call that finds no row.
    Missing,
    /// What the tool checks before it reads the rest.
    Validator,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Fault::Unreadable => "unreadable",
            Fault::Duplicate => "duplicate",
            Fault::OtherDevice => "other device",
            Fault::Unreachable => "unreachable",
            Fault::Missing => "missing",
            Fault::Validator => "validator",
        })
    }
}

/// The GPU that the table is for.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Device {
    pub gfx: String,
    pub units: i64,
}

/// What wrote a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Table {
    Aiter,
    TunableOp,
    /// Solutions that hipBLASLt or rocBLAS is told to take.
    Overrides,
}

/// What a table seems to be.
pub fn kind(text: &str) -> Option<Table> {
    let head = text.lines().next().unwrap_or("");
    if head.split(',').any(|cell| cell.trim() == "cu_num") {
        return Some(Table::Aiter);
    }
    if overrides::is_one(text) {
        return Some(Table::Overrides);
    }
    let known = |line: &str| line.starts_with("Validator,") || tunableop::line(line).is_some();
    text.lines().any(known).then_some(Table::TunableOp)
}

/// All that is wrong; `calls` are those of the workload, where one was given.
pub fn lint(text: &str, table: Table, device: Option<&Device>, calls: Option<&[Row]>) -> Vec<Finding> {
    match table {
        Table::Aiter => aiter_table(text, device, calls),
        Table::TunableOp => tunableop_table(text, calls),
        Table::Overrides => override_table(text, calls),
    }
}

/// Where an entry of the table stands, with its product.
type Entry = (usize, Row);

/// Only AMD's architectures are aiter's; a table of ours has the same columns for others too.
fn is_ours(gfx: &str) -> bool {
    !gfx.is_empty() && !gfx.starts_with("gfx")
}

/// How a call finds its row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LookUp {
    /// By all of its arguments.
    Exact,
    /// By M, and by M rounded up.
    Ladder,
    /// By the nearest M on each side.
    Neighbours,
}

/// Architectures that a number of units belongs to.
fn gfx_of(units: &str) -> Option<&'static str> {
    match units {
        "256" => Some("gfx950"),
        "80" | "304" => Some("gfx942"),
        _ => None,
    }
}

fn finding(line: Option<usize>, kind: Fault, what: String, cure: &str) -> Finding {
    Finding { line, kind, what, cure: cure.into() }
}

fn aiter_table(text: &str, device: Option<&Device>, calls: Option<&[Row]>) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(text.as_bytes());
    let heads: Vec<String> = match reader.headers() {
        Ok(heads) => heads.iter().map(|head| head.trim().to_string()).collect(),
        Err(e) => return vec![finding(Some(1), Fault::Unreadable, e.to_string(), "write it as CSV again")],
    };
    for name in aiter::KEYS.iter().filter(|name| **name != "gfx") {
        if !heads.iter().any(|head| head == name) {
            let what = format!("there is no column {name}");
            found.push(finding(Some(1), Fault::Unreadable, what, "aiter looks rows up by it: add the column"));
        }
    }
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut entries: Vec<Entry> = Vec::new();
    let mut look_up = LookUp::Ladder;
    for (i, record) in reader.records().enumerate() {
        let line = i + 2;
        let record = match record {
            Ok(record) => record,
            Err(e) => {
                found.push(finding(Some(line), Fault::Unreadable, e.to_string(), "write the line as CSV again"));
                continue;
            }
        };
        let cell = |name: &str| {
            heads.iter().position(|head| head == name).and_then(|place| record.get(place)).map_or("", str::trim)
        };
        if is_ours(cell("gfx")) {
            look_up = LookUp::Neighbours;
        }
        let before = found.len();
        cells(&cell, line, &mut found);
        let key = aiter::KEYS.map(cell).join(",");
        if let Some(first) = seen.get(&key) {
            let what = format!("the key of line {first} again: M {} N {} K {}", cell("M"), cell("N"), cell("K"));
            found.push(finding(
                Some(line),
                Fault::Duplicate,
                what,
                "keep the faster one: aiter rewrites the file and stops",
            ));
        } else {
            seen.insert(key, line);
        }
        devices(&cell, device, line, &mut found);
        if found[before..].iter().any(|finding| finding.kind == Fault::Unreadable) {
            continue;
        }
        let row = format!(
            "M,N,K,bias,dtype,outdtype\n{},{},{},{},{},{}\n",
            cell("M"),
            cell("N"),
            cell("K"),
            cell("bias"),
            cell("dtype"),
            cell("outdtype")
        );
        entries.extend(aiter::read(&row).ok().and_then(|rows| rows.into_iter().next()).map(|row| (line, row)));
    }
    if let Some(calls) = calls {
        reach(&entries, calls, look_up, &mut found);
    }
    found
}

/// Cells that aiter cannot read as they stand.
fn cells<'a>(cell: &impl Fn(&str) -> &'a str, line: usize, found: &mut Vec<Finding>) {
    let mut wrong = |what: String, cure: &str| found.push(finding(Some(line), Fault::Unreadable, what, cure));
    for name in ["M", "N", "K", "cu_num"] {
        if cell(name).parse::<i64>().map_or(true, |n| n <= 0) {
            wrong(format!("{name} is `{}`", cell(name)), "it is a number above 0");
        }
    }
    for name in ["bias", "scaleAB", "bpreshuffle"] {
        if !matches!(cell(name), "True" | "False") {
            wrong(format!("{name} is `{}`", cell(name)), "write True or False, as Python does: other words are no key");
        }
    }
    for name in ["dtype", "outdtype"] {
        if typed(TORCH, cell(name)).is_none() {
            wrong(format!("{name} is `{}`", cell(name)), "write torch.bfloat16, torch.float16 or torch.float32");
        }
    }
    let libtype = cell("libtype");
    // A table of ours names candidates of any device.
    if !is_ours(cell("gfx")) && !libtype.is_empty() && !aiter::LIBTYPES.contains(&libtype) {
        wrong(format!("libtype is `{libtype}`"), "aiter has asm, opus, flydsl, triton, skinny, torch and hipblaslt");
    }
    let us = cell("us");
    if !us.is_empty() && us.parse::<f64>().map_or(true, |us| !us.is_finite() || us <= 0.0) {
        wrong(format!("us is `{us}`"), "it is the time of the kernel: tune the row again");
    }
}

fn devices<'a>(cell: &impl Fn(&str) -> &'a str, device: Option<&Device>, line: usize, found: &mut Vec<Finding>) {
    let (gfx, units) = (cell("gfx"), cell("cu_num"));
    let mut wrong = |what: String| {
        found.push(finding(
            Some(line),
            Fault::OtherDevice,
            what,
            "rows of another GPU are never looked up: tune them there",
        ));
    };
    match (gfx_of(units), device) {
        (_, Some(device)) if units.parse() != Ok(device.units) => {
            wrong(format!("cu_num is {units}; this GPU has {}", device.units));
        }
        (_, Some(device)) if !gfx.is_empty() && gfx != device.gfx => {
            wrong(format!("gfx is {gfx}; this GPU is {}", device.gfx));
        }
        (Some(known), None) if !gfx.is_empty() && gfx != known => {
            wrong(format!("gfx is {gfx}, but {units} units are those of {known}"));
        }
        _ => {}
    }
}

/// Values of M under which aiter looks for a call's row, in order.
fn looked_up(m: i64, n: i64) -> Vec<i64> {
    let up = |step: i64| (m + step - 1) / step * step;
    let rounded = match m {
        ..=256 => up(16),
        257..=1024 => up(32),
        1025..=4096 => up(64),
        _ => up(128),
    };
    let power = if m > 8192 && n > 4096 { 8192 } else { (m as u64).next_power_of_two() as i64 };
    let mut all = vec![m, rounded, power];
    all.dedup();
    all
}

/// M, N and K as PyTorch has them.
fn extents(row: &Row) -> [i64; 3] {
    [row.gemm.n, row.gemm.m, row.gemm.k]
}

/// What engines round an extent up to.
const ROUNDED: [i64; 5] = [16, 32, 64, 128, 256];

/// How two extents may have come to differ.
fn rounding(call: i64, row: i64) -> Option<String> {
    let up = |n: i64, step: i64| (n + step - 1) / step * step;
    let step = ROUNDED.into_iter().find(|step| call != row && up(row, *step) == call)?;
    Some(format!("{call} is {row} rounded up to {step}"))
}

/// Rows that no call finds, and calls that find no row.
fn reach(entries: &[Entry], calls: &[Row], look_up: LookUp, found: &mut Vec<Finding>) {
    let keys = |call: &Row| {
        let [m, n, _] = extents(call);
        if look_up == LookUp::Ladder { looked_up(m, n) } else { vec![m] }
    };
    let fits = |call: &Row, row: &Row| {
        let ([_, n, k], [m, row_n, row_k]) = (extents(call), extents(row));
        let kinds = (call.dtype, call.out_dtype, call.bias) == (row.dtype, row.out_dtype, row.bias);
        let lies = look_up != LookUp::Exact || call.same(row);
        let found = look_up == LookUp::Neighbours || keys(call).contains(&m);
        (n, k) == (row_n, row_k) && kinds && lies && found
    };
    for (line, row) in entries {
        if calls.iter().any(|call| fits(call, row)) {
            continue;
        }
        let [m, n, k] = extents(row);
        let near = calls.iter().find_map(|call| {
            let [_, call_n, call_k] = extents(call);
            match (call_n == n, call_k == k) {
                (false, true) => rounding(call_n, n).map(|why| (call_n, why)),
                (true, false) => rounding(call_k, k).map(|why| (call_k, why)),
                _ => None,
            }
        });
        let (what, cure) = match near {
            Some((to, why)) => (
                format!("no call finds M {m} N {n} K {k}: calls have {to}, and {why}"),
                format!("tune it with {to}: the engine pads before it multiplies"),
            ),
            None => (
                format!("no call of the workload finds M {m} N {n} K {k}"),
                "drop the row, or give the workload it is for".into(),
            ),
        };
        found.push(Finding { line: Some(*line), kind: Fault::Unreachable, what, cure });
    }
    for call in calls.iter().filter(|call| !entries.iter().any(|(_, row)| fits(call, row))) {
        let [m, n, k] = extents(call);
        let list = keys(call).iter().map(i64::to_string).collect::<Vec<_>>().join(", ");
        let what = format!("a call of M {m} N {n} K {k} ({} runs) finds no row; it looks for M {list}", call.count);
        found.push(finding(None, Fault::Missing, what, "tune it: gemwright export writes the list"));
    }
}

/// Validators that every results file has.
const VALIDATORS: [&str; 4] = ["PT_VERSION", "GCN_ARCH_NAME", "ROCBLAS_VERSION", "HIPBLASLT_VERSION"];

fn tunableop_table(text: &str, calls: Option<&[Row]>) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut validators: Vec<&str> = Vec::new();
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut entries: Vec<Entry> = Vec::new();
    for (line, text) in (1..).zip(text.lines()).filter(|(_, text)| !text.trim().is_empty()) {
        let cells: Vec<&str> = text.trim().split(',').collect();
        if cells[0] == "Validator" {
            let name = cells.get(1).copied().unwrap_or("");
            if validators.contains(&name) {
                found.push(finding(Some(line), Fault::Validator, format!("{name} stands twice"), "keep one"));
            }
            validators.push(name);
            continue;
        }
        let Some(row) = tunableop::line(text) else {
            let what = format!("`{}` is no row of TunableOp", cells[0]);
            found.push(finding(Some(line), Fault::Unreadable, what, "drop the line, or write it again"));
            continue;
        };
        let solution = cells.get(2).copied().unwrap_or("");
        let known =
            solution == "Default" || ["Gemm_Rocblas_", "Gemm_Hipblaslt_"].iter().any(|s| solution.starts_with(s));
        if cells.len() > 2 && !known {
            let what = format!("the solution is `{solution}`");
            found.push(finding(Some(line), Fault::Unreadable, what, "Default, Gemm_Rocblas_<i> or Gemm_Hipblaslt_<i>"));
        }
        let key = cells[..2].join(",");
        match seen.get(&key) {
            Some(first) => {
                let what = format!("the row of line {first} again: {}", cells[1]);
                found.push(finding(Some(line), Fault::Duplicate, what, "keep the faster one"));
            }
            None => {
                seen.insert(key, line);
            }
        }
        entries.push((line, row));
    }
    let results = text.lines().any(|line| line.split(',').count() > 3 && tunableop::line(line).is_some());
    if results {
        for name in VALIDATORS.iter().filter(|name| !validators.contains(name)) {
            let what = format!("the validator {name} is missing");
            found.push(finding(None, Fault::Validator, what, "PyTorch rejects the whole file: record it again"));
        }
    }
    if let Some(calls) = calls {
        reach(&entries, calls, LookUp::Exact, &mut found);
    }
    found
}

fn override_table(text: &str, calls: Option<&[Row]>) -> Vec<Finding> {
    let mut found = Vec::new();
    // hipBLASLt's own head has the strides that rocBLAS's lacks.
    let head = text.lines().find(|line| line.starts_with("transA")).unwrap_or("");
    if head.contains("stride_a") && !text.starts_with(overrides::VERSION) {
        let what = format!("the first line is not `{} ...`", overrides::VERSION);
        found.push(finding(
            Some(1),
            Fault::Validator,
            what,
            "hipBLASLt takes the file for another version's: tune again",
        ));
    }
    let mut entries: Vec<Entry> = Vec::new();
    for (line, row) in overrides::lines(text) {
        match row {
            Err(why) => found.push(finding(Some(line), Fault::Unreadable, why, "tune the row again, or drop it")),
            Ok(row) => {
                if let Some((first, _)) = entries.iter().find(|(_, known)| known.same(&row)) {
                    let what = format!("the product of line {first} again");
                    found.push(finding(Some(line), Fault::Duplicate, what, "keep the faster one"));
                }
                entries.push((line, row));
            }
        }
    }
    if let Some(calls) = calls {
        // Solutions are chosen whatever is added to the product.
        let calls: Vec<Row> = calls.iter().map(|call| Row { bias: false, ..call.clone() }).collect();
        reach(&entries, &calls, LookUp::Exact, &mut found);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "gfx,cu_num,M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle,libtype,solidx,splitK,us,kernelName,err_ratio,tflops,bw";

    fn table(rows: &[&str]) -> String {
        let line = |row: &&str| format!("{row},hipblaslt,7,0,12.5,k,0.0,1.0,2.0");
        format!("{HEAD}\n{}\n", rows.iter().map(line).collect::<Vec<_>>().join("\n"))
    }

    const GOOD: &str = "gfx942,304,16,6144,4096,False,torch.bfloat16,torch.bfloat16,False,False";

    fn calls(list: &[[i64; 3]]) -> Vec<Row> {
        let lines: Vec<String> =
            list.iter().map(|[m, n, k]| format!("{m},{n},{k},False,torch.bfloat16,torch.bfloat16")).collect();
        aiter::read(&format!("M,N,K,bias,dtype,outdtype\n{}\n", lines.join("\n"))).unwrap()
    }

    #[test]
    fn a_clean_table_has_nothing_wrong() {
        let device = Device { gfx: "gfx942".into(), units: 304 };
        // Nine rows look for the row of sixteen.
        let found = lint(&table(&[GOOD]), Table::Aiter, Some(&device), Some(&calls(&[[9, 6144, 4096]])));
        assert_eq!(found, []);
        assert_eq!(lint(&table(&[GOOD]), Table::Aiter, None, None), []);
    }

    #[test]
    fn a_table_of_ours_is_looked_up_by_neighbours() {
        let row = "sm_90,132,16,6144,4096,False,torch.bfloat16,torch.bfloat16,False,False,own.128x16-turned-data-parallel,0,0,9.1,k,0,1,1";
        let device = Device { gfx: "sm_90".into(), units: 132 };
        let text = format!("{HEAD}\n{row}\n");
        assert_eq!(lint(&text, Table::Aiter, Some(&device), Some(&calls(&[[100, 6144, 4096]]))), []);
        assert_eq!(lint(&text, Table::Aiter, Some(&device), Some(&calls(&[[100, 6144, 512]]))).len(), 2);
    }

    #[test]
    fn planted_faults_are_found() {
        let rows = [
            GOOD,
            GOOD,
            "gfx942,304,32,6144,4096,false,torch.bfloat16,torch.bfloat16,False,False",
            "gfx942,304,48,6144,4096,False,bf16,torch.bfloat16,False,False",
            "gfx942,80,64,6144,4096,False,torch.bfloat16,torch.bfloat16,False,False",
            "gfx950,304,80,6144,4096,False,torch.bfloat16,torch.bfloat16,False,False",
            "gfx942,304,16,2624,6144,False,torch.bfloat16,torch.bfloat16,False,False",
        ];
        let device = Device { gfx: "gfx942".into(), units: 304 };
        let calls = calls(&[[16, 6144, 4096], [5, 2688, 6144], [64, 6144, 4096], [80, 6144, 4096]]);
        let found = lint(&table(&rows), Table::Aiter, Some(&device), Some(&calls));
        let at = |line: usize| found.iter().find(|finding| finding.line == Some(line)).map(|finding| finding.kind);
        assert_eq!(at(2), None);
        assert_eq!([3, 4, 5].map(at), [Some(Fault::Duplicate), Some(Fault::Unreadable), Some(Fault::Unreadable)]);
        assert_eq!([6, 7, 8].map(at), [Some(Fault::OtherDevice), Some(Fault::OtherDevice), Some(Fault::Unreachable)]);
        let row = found.iter().find(|finding| finding.line == Some(8)).unwrap();
        assert!(row.what.contains("2688 is 2624 rounded up to 128"), "{}", row.what);
        let missing = found.iter().find(|finding| finding.kind == Fault::Missing).unwrap();
        assert!(missing.what.contains("M 5 N 2688 K 6144") && missing.what.contains("5, 16, 8"), "{}", missing.what);
    }

    #[test]
    fn solutions_of_libraries() {
        let head = "transA,transB,grouped_gemm,batch_count,m,n,k,alpha,lda,stride_a,beta,ldb,stride_b,ldc,stride_c,ldd,stride_d,\
                    a_type,b_type,c_type,d_type,us,soulution_index";
        let row = "T,N,0,1,6144,128,4096,1,4096,0,0,4096,0,6144,0,6144,0,bf16_r,bf16_r,bf16_r,bf16_r,21.3,61169";
        let clean = format!("Git Version: abc\n{head}\n{row}\n");
        assert_eq!(kind(&clean), Some(Table::Overrides));
        assert_eq!(lint(&clean, Table::Overrides, None, Some(&calls(&[[128, 6144, 4096]]))), []);
        let bad = format!("{head}\n{row}\n{row}\n{}\n", row.replace("61169", "-1"));
        let kinds: Vec<Fault> = lint(&bad, Table::Overrides, None, None).iter().map(|finding| finding.kind).collect();
        assert_eq!(kinds, [Fault::Validator, Fault::Duplicate, Fault::Unreadable]);
    }

    #[test]
    fn results_of_tunableop() {
        let row = "GemmTunableOp_BFloat16_TN,tn_6144_128_4096_ld_4096_4096_6144,Gemm_Hipblaslt_61169,0.0213";
        let validators = VALIDATORS.map(|name| format!("Validator,{name},1")).join("\n");
        let clean = format!("{validators}\n{row}\n");
        assert_eq!(kind(&clean), Some(Table::TunableOp));
        assert_eq!(lint(&clean, Table::TunableOp, None, Some(&calls(&[[128, 6144, 4096]]))), []);
        let found = lint(&format!("{row}\n{row}\nnonsense\n"), Table::TunableOp, None, None);
        let count = |kind: Fault| found.iter().filter(|finding| finding.kind == kind).count();
        assert_eq!((count(Fault::Duplicate), count(Fault::Unreadable), count(Fault::Validator)), (1, 1, 4));
    }
}
