//! Products that are only numbers: three words, or a CSV of shapes.

use crate::error::Error;
use gemwright_core::{Call, DType, Op, Operands, View, Workload};

/// The largest extent that is a product's and not a typing error.
const LARGEST: i64 = 1 << 31;

fn extent(name: &str, word: &str) -> Result<i64, String> {
    let valid = word.trim().parse().ok().filter(|n| (1..=LARGEST).contains(n));
    valid.ok_or_else(|| format!("{name} is `{word}`; it must be an integer from 1 to {LARGEST}"))
}

/// Which operands are stored the other way round, by the library's letters: its first operand is our second.
#[derive(Clone, Copy)]
struct Flags {
    a: bool,
    b: bool,
}

impl Flags {
    const PLAIN: Flags = Flags { a: false, b: false };

    fn parse(word: &str) -> Result<Flags, String> {
        match word {
            "NN" => Ok(Flags::PLAIN),
            "TN" => Ok(Flags { a: false, b: true }),
            "NT" => Ok(Flags { a: true, b: false }),
            "TT" => Ok(Flags { a: true, b: true }),
            _ => Err(format!("flags are `{word}`; they must be NN, TN, NT or TT")),
        }
    }
}

fn call(batch: i64, [m, n, k]: [i64; 3], flags: Flags, dtype: DType, count: u64) -> Call {
    let view = |rows: i64, columns: i64| match batch {
        1 => View::contiguous(&[rows, columns], dtype),
        _ => View::contiguous(&[batch, rows, columns], dtype),
    };
    let stored = |rows: i64, columns: i64, turned: bool| match turned {
        true => view(columns, rows).transpose(usize::from(batch > 1), 1 + usize::from(batch > 1)),
        false => view(rows, columns),
    };
    let op = if batch == 1 { Op::Mm } else { Op::Bmm };
    let operands = Operands::Product {
        a: stored(m, k, flags.a),
        b: stored(k, n, flags.b),
        bias: None,
        out: view(m, n),
        alpha: 1.0,
        beta: 1.0,
    };
    Call { count, ..Call::once(op, operands) }
}

/// Refuses what no memory could hold.
fn check(batch: i64, [m, n, k]: [i64; 3]) -> Result<(), String> {
    let product = |extents: [i64; 3]| extents.map(|x| x as f64).iter().product::<f64>();
    if [[batch, m, n], [batch, m, k], [batch, k, n]].into_iter().any(|e| product(e) > 2f64.powi(60)) {
        return Err("an operand of more than 2^60 elements".into());
    }
    Ok(())
}

/// M N K as words.
pub fn one_product(words: [&String; 3], dtype: DType) -> Result<Workload, Error> {
    let mut extents = [0; 3];
    for ((place, word), name) in extents.iter_mut().zip(words).zip(["M", "N", "K"]) {
        *place = extent(name, word).map_err(Error::Usage)?;
    }
    check(1, extents).map_err(Error::Usage)?;
    let mut workload = Workload::default();
    workload.push(&call(1, extents, Flags::PLAIN, dtype, 1));
    Ok(workload)
}

/// A CSV with columns M, N and K, whatever their case; `batch` (or `B`), `count`, `dtype` and `flags` (NN, TN, NT, TT)
/// where they are there.
pub fn products_of_csv(path: &str, dtype: DType) -> Result<Workload, Error> {
    let failed = |why: String| Error::File { path: path.into(), why };
    let bytes = std::fs::read(path).map_err(|e| failed(e.to_string()))?;
    // Another tool's table says how its operands lie.
    if let Some(found) = gemwright_exchange::read(&String::from_utf8_lossy(&bytes)).map_err(failed)? {
        return Ok(found.workload());
    }
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(bytes.as_slice());
    let heads = reader.headers().map_err(|e| failed(e.to_string()))?.clone();
    let column = |names: &[&str]| heads.iter().position(|h| names.iter().any(|n| h.trim().eq_ignore_ascii_case(n)));
    let [Some(m), Some(n), Some(k)] = ["M", "N", "K"].map(|name| column(&[name])) else {
        return Err(failed("needs the columns M, N and K".into()));
    };
    let (batch, count, kind) = (column(&["batch", "B"]), column(&["count"]), column(&["dtype"]));
    let flags = column(&["flags"]);
    let mut workload = Workload::default();
    for (i, row) in reader.records().enumerate() {
        let at = |why: String| failed(format!("line {}: {why}", i + 2));
        let row = row.map_err(|e| at(e.to_string()))?;
        let word = |column: Option<usize>| column.and_then(|c| row.get(c)).map(str::trim).filter(|w| !w.is_empty());
        let number = |name: &str, column: Option<usize>| match word(column) {
            Some(word) => extent(name, word).map_err(at),
            None => Ok(1),
        };
        let mut extents = [0; 3];
        for ((place, column), name) in extents.iter_mut().zip([m, n, k]).zip(["M", "N", "K"]) {
            *place = extent(name, row.get(column).unwrap_or("")).map_err(at)?;
        }
        let dtype = match word(kind) {
            Some(word) => DType::parse(word).ok_or_else(|| at(format!("unknown dtype `{word}`")))?,
            None => dtype,
        };
        let batch = number("batch", batch)?;
        check(batch, extents).map_err(at)?;
        let flags = word(flags).map_or(Ok(Flags::PLAIN), Flags::parse).map_err(at)?;
        workload.push(&call(batch, extents, flags, dtype, number("count", count)? as u64));
    }
    if workload.calls().is_empty() {
        return Err(failed("has no rows".into()));
    }
    Ok(workload)
}
