//! Files and logs of other tools, recognised by what stands in them.

use crate::cublas::Log;
use crate::row::Row;
use crate::{aiter, bench_lines, nvidia, overrides, tunableop};
use gemwright_core::Workload;

/// What was found.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub struct Found {
    /// What it seems to be.
    pub kind: &'static str,
    pub rows: Vec<Row>,
    /// Lines that name no product.
    pub other_lines: usize,
}

/// Heads of aiter's files of bf16 products.
fn is_aiter(text: &str) -> bool {
    let head = text.lines().next().unwrap_or("");
    let has = |name: &str| head.split(',').any(|cell| cell.trim() == name);
    has("M") && has("N") && has("K") && (has("outdtype") || has("cu_num") || has("bpreshuffle"))
}

/// Reads a file or a log; `None` where nothing in it is known.
///
/// # Errors
/// A table whose cells are not what its head says.
pub fn read(text: &str) -> Result<Option<Found>, String> {
    if is_aiter(text) {
        let rows = aiter::read(text)?;
        return Ok(Some(Found { kind: "a file of aiter", rows, other_lines: 0 }));
    }
    if overrides::is_one(text) {
        let lines = overrides::lines(text);
        let wrong = lines.iter().find_map(|(line, row)| row.as_ref().err().map(|why| format!("line {line}: {why}")));
        let rows: Vec<Row> = lines.into_iter().filter_map(|(_, row)| row.ok()).collect();
        return match wrong {
            Some(why) => Err(why),
            None => Ok(Some(Found { kind: "a table of solutions of hipBLASLt or rocBLAS", rows, other_lines: 0 })),
        };
    }
    if let Some(rows) = nvidia::problems(text).filter(|rows| !rows.is_empty()) {
        return Ok(Some(Found { kind: "a list of problems for nvMatmulHeuristics", rows, other_lines: 0 }));
    }
    type Reader = fn(&str) -> Option<Row>;
    let readers: [(&str, Reader); 4] = [
        ("a file of TunableOp", tunableop::line),
        ("lines of hipblaslt-bench or rocblas-bench", bench_lines::line),
        ("lines of CUTLASS's profiler", nvidia::profiler_line),
        ("aiter's lines of what was not found", aiter::missed),
    ];
    let mut log = Log::default();
    let mut counts = [0usize; 4];
    let (mut rows, mut other, mut logged) = (Vec::new(), 0, 0);
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        if log.line(line) {
            logged += 1;
            continue;
        }
        match readers.iter().enumerate().find_map(|(i, (_, reader))| Some((i, reader(line)?))) {
            Some((i, row)) => {
                counts[i] += 1;
                rows.push(row);
            }
            None => other += 1,
        }
    }
    rows.extend(log.end());
    if rows.is_empty() {
        return Ok(None);
    }
    let most = counts.iter().enumerate().max_by_key(|(_, count)| **count).map_or(0, |(i, _)| i);
    let kind = if counts[most] > 0 { readers[most].0 } else { "a log of cuBLAS" };
    Ok(Some(Found { kind, rows, other_lines: if logged > 0 { 0 } else { other } }))
}

impl Found {
    /// The products, equal ones counted.
    pub fn workload(&self) -> Workload {
        let mut rows: Vec<Row> = Vec::new();
        for row in &self.rows {
            match rows.iter_mut().find(|known| known.same(row)) {
                Some(known) => known.count += row.count,
                None => rows.push(row.clone()),
            }
        }
        let mut workload = Workload::default();
        for row in rows {
            workload.push(&row.call());
        }
        workload
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_known_by_what_stands_in_it() {
        let kind = |text: &str| read(text).unwrap().map(|found| (found.kind, found.rows.len(), found.other_lines));
        assert_eq!(
            kind("M,N,K,bias,dtype,outdtype\n1,2,3,False,torch.bfloat16,torch.bfloat16\n"),
            Some(("a file of aiter", 1, 0))
        );
        let tuned = "Validator,PT_VERSION,2.11.0\nGemmTunableOp_BFloat16_TN,tn_8_16_32_ld_32_32_8,Default,0.1\n";
        assert_eq!(kind(tuned), Some(("a file of TunableOp", 1, 1)));
        assert_eq!(kind("nothing here\n"), None);
        let miss = "x\nshape is M:5, N:8, K:16, not found tuned config in a.csv\nshape is M:5, N:8, K:16, not found tuned config in a.csv";
        let found = read(miss).unwrap().unwrap();
        assert_eq!(found.workload().calls()[0].count, 2);
    }
}
