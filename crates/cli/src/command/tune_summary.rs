//! What `gemwright tune` says when it is done.

use super::tune::Tuning;
use crate::error::Error;
use crate::output::{Format, OutputArgs};
use gemwright_core::{Cell, Table, TunedTable};
use gemwright_exchange::tuned::runner_word;
use gemwright_report as report;
use serde_json::json;

/// What the table gains over the default, per product and end to end.
pub(super) fn summary(tuning: &Tuning<'_>, table: &TunedTable) -> Result<(), Error> {
    let mut shown = Table::new(&[
        "product",
        "flags",
        ">M",
        ">N",
        ">K",
        ">count",
        "fastest",
        ">takes",
        ">default takes",
        ">times as fast",
    ]);
    let (mut now, mut then, mut told, mut products, mut beside) = (0.0, 0.0, 0, Vec::new(), Vec::new());
    for asked in &tuning.asked {
        let Some(row) = table.row(&asked.problem.tuned_key()) else { continue };
        let Some(best) = row.best() else { continue };
        let default = tuning.default_of(&asked.problem);
        let default = row.times.iter().find(|t| t.runner.candidate == default && !t.runner.packed);
        let (p, count) = (asked.problem.product, asked.count as f64);
        let seconds = |s: f64| Cell::shown(s, report::seconds(s));
        let mut cells: Vec<Cell> = vec![asked.name.as_str().into(), asked.problem.letters().into()];
        cells.extend([p.m, p.n, p.k, asked.count].map(Cell::from));
        cells.extend([runner_word(&best.runner).into(), seconds(best.seconds)]);
        if let Some(default) = default {
            if !beside.contains(&default.runner.candidate) {
                beside.push(default.runner.candidate.clone());
            }
            now += default.seconds * count;
            then += best.seconds * count;
            told += 1;
            let ratio = default.seconds / best.seconds;
            cells.extend([seconds(default.seconds), Cell::shown(ratio, report::significant(ratio, 3))]);
        } else {
            cells.extend([Cell::Empty, Cell::Empty]);
        }
        shown.row(cells);
        products.push(json!({
            "product": asked.name, "flags": asked.problem.letters(), "batch": p.batch, "m": p.m, "n": p.n, "k": p.k,
            "count": asked.count, "epilogue": asked.problem.epilogue.names(), "fastest": runner_word(&best.runner),
            "seconds": best.seconds, "default_seconds": default.map(|default| default.seconds),
        }));
    }
    let gain = (then > 0.0).then(|| now / then);
    // The table is the file; this is for people, or for programs.
    let answer = OutputArgs { output: None, ..tuning.args.output.clone() };
    if answer.format == Format::Json {
        let facts = json!({
            "tuned": true, "table": tuning.path, "rows": table.rows().len(), "default": tuning.place.default,
            "products": products, "asked": tuning.asked.len(), "times_as_fast": gain, "dropped": tuning.dropped,
        });
        return answer.write(&facts.to_string());
    }
    let mut lines = Vec::new();
    if let Some(gain) = gain {
        let of = match tuning.asked.len() {
            all if all == told => String::new(),
            all => format!(", of {told} of {all} products"),
        };
        lines.push(format!(
            "end to end   {} times as fast as {}{of}; {} rows in {}",
            report::significant(gain, 3),
            // With an epilogue it may be somebody else than without.
            match &beside[..] {
                [one] => format!("{one} alone"),
                several => several.join(" and "),
            },
            table.rows().len(),
            tuning.path.display()
        ));
    }
    lines.extend(tuning.dropped.iter().map(|(who, why)| format!("dropped      {who}: {why}")));
    let text = answer.table(&shown);
    if answer.format == Format::Csv {
        lines.iter().for_each(|line| tuning.say(line));
        return answer.write(&text);
    }
    answer.write(&format!("{text}\n\n{}", lines.join("\n")))
}
