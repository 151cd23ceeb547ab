//! A table as text for a terminal, as Markdown, as CSV and as JSON rows.

use comfy_table::{CellAlignment, ContentArrangement, LineStyle, TableStyle, presets};
use gemwright_core::{Align, Cell, Table};
use serde_json::{Map, Value, json};

fn shown(cell: &Cell) -> String {
    match cell {
        Cell::Empty => "-".into(),
        Cell::Text(text) => text.clone(),
        Cell::Integer(value) => value.to_string(),
        Cell::Shown { text, .. } => text.clone(),
    }
}

fn exact(cell: &Cell) -> String {
    match cell {
        Cell::Empty => String::new(),
        Cell::Shown { value, .. } => value.to_string(),
        other => shown(other),
    }
}

fn lay_out(table: &Table, style: TableStyle) -> comfy_table::Table {
    let mut out = comfy_table::Table::new();
    out.load_style(style);
    out.set_header(table.columns.iter().map(|c| c.name.as_str()));
    for row in &table.rows {
        out.add_row(row.iter().map(shown));
    }
    for (column, format) in table.columns.iter().zip(out.column_iter_mut()) {
        let side = if column.align == Align::Right { CellAlignment::Right } else { CellAlignment::Left };
        format.set_cell_alignment(side);
    }
    out
}

/// A rule under the heads and no other line: rows are many and their columns narrow.
const PLAIN: TableStyle = TableStyle::new().header_separator(LineStyle::new('─', '─', '─', '─'));

/// For people; folded to `width` columns where that is known.
pub fn terminal(table: &Table, width: Option<u16>) -> String {
    let mut out = lay_out(table, PLAIN);
    if let Some(width) = width {
        out.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    }
    // A line need not be filled up to its end.
    out.lines().map(|line| line.trim_end().to_string() + "\n").collect()
}

/// For pull requests.
pub fn markdown(table: &Table) -> String {
    lay_out(table, presets::ASCII_MARKDOWN).to_string()
}

/// For spreadsheets: exact numbers, no units.
pub fn csv(table: &Table) -> String {
    let mut out = csv::Writer::from_writer(Vec::new());
    let rows = table.rows.iter().map(|row| row.iter().map(exact).collect::<Vec<_>>());
    let head = table.columns.iter().map(|c| c.name.clone()).collect::<Vec<_>>();
    for row in std::iter::once(head).chain(rows) {
        // Writing to memory fails only where rows have different lengths, which a Table refuses.
        out.write_record(row).expect("rows have one length");
    }
    String::from_utf8(out.into_inner().expect("memory takes everything")).expect("cells are text")
}

/// One object a row, numbers as numbers.
pub fn json_rows(table: &Table) -> Value {
    let value = |cell: &Cell| match cell {
        Cell::Empty => Value::Null,
        Cell::Text(text) => json!(text),
        Cell::Integer(value) => integer(*value),
        Cell::Shown { value, .. } => json!(value),
    };
    let object = |row: &Vec<Cell>| {
        let pairs = table.columns.iter().zip(row).map(|(c, cell)| (c.name.clone(), value(cell)));
        Value::Object(pairs.collect::<Map<_, _>>())
    };
    table.rows.iter().map(object).collect()
}

/// An integer of any size; JSON's own integers end at 64 bits here.
fn integer(value: u128) -> Value {
    u64::try_from(value).map_or_else(|_| json!(value as f64), |small| json!(small))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(&["name", ">time"]);
        table.row(vec!["a,b".into(), Cell::shown(0.25, "250 ms")]);
        table.row(vec!["c".into(), Cell::Empty]);
        table
    }

    #[test]
    fn machines_get_the_value_and_people_the_text() {
        assert_eq!(csv(&table()), "name,time\n\"a,b\",0.25\nc,\n");
        assert_eq!(json_rows(&table()), json!([{"name": "a,b", "time": 0.25}, {"name": "c", "time": null}]));
        assert!(markdown(&table()).contains("| a,b  | 250 ms |"), "{}", markdown(&table()));
        assert!(terminal(&table(), Some(40)).contains("250 ms"));
    }
}
