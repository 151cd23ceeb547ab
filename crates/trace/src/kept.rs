//! A table as a line of text that gives it back whole, for parts that carry tables along.

use gemwright_core::{Align, Cell, Table};
use serde_json::{Value, json};

/// As JSON: nothing is `null`, a text itself, an integer `["7"]`, another number `["0.5", "as people see it"]`.
pub fn text_of(table: &Table) -> String {
    let side = |align: Align| if align == Align::Right { ">" } else { "" };
    let columns: Vec<String> = table.columns.iter().map(|c| format!("{}{}", side(c.align), c.name)).collect();
    let cell = |cell: &Cell| match cell {
        Cell::Empty => Value::Null,
        Cell::Text(text) => json!(text),
        Cell::Integer(value) => json!([value.to_string()]),
        // Shortest digits that mean the same number.
        Cell::Shown { value, text } => json!([value.to_string(), text]),
    };
    let rows: Vec<Vec<Value>> = table.rows.iter().map(|row| row.iter().map(cell).collect()).collect();
    json!({"columns": columns, "rows": rows}).to_string()
}

/// The table again, unless the text is not one of [`text_of`].
pub fn table_of(text: &str) -> Option<Table> {
    let kept: Value = serde_json::from_str(text).ok()?;
    let names: Vec<&str> = kept["columns"].as_array()?.iter().map(Value::as_str).collect::<Option<_>>()?;
    let mut table = Table::new(&names);
    let cell = |value: &Value| match value {
        Value::Null => Some(Cell::Empty),
        Value::String(text) => Some(Cell::Text(text.clone())),
        Value::Array(parts) => match parts.as_slice() {
            [integer] => Some(Cell::Integer(integer.as_str()?.parse().ok()?)),
            [value, text] => Some(Cell::shown(value.as_str()?.parse().ok()?, text.as_str()?)),
            _ => None,
        },
        _ => None,
    };
    for row in kept["rows"].as_array()? {
        let cells: Vec<Cell> = row.as_array()?.iter().map(cell).collect::<Option<_>>()?;
        if cells.len() != names.len() {
            return None;
        }
        table.row(cells);
    }
    Some(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_comes_back_whole() {
        let mut table = Table::new(&["name", ">value"]);
        for value in [0.1 + 0.2, f64::MIN_POSITIVE, 1e300, f64::INFINITY, -0.0] {
            table.row(vec!["a \"text\"\n".into(), Cell::shown(value, "about")]);
        }
        table.row(vec![Cell::Empty, Cell::Integer(u128::MAX)]);
        let again = table_of(&text_of(&table)).unwrap();
        assert_eq!(again.rows, table.rows);
        assert_eq!(again.columns[1].align, Align::Right);
        for broken in ["", "[]", "{\"columns\":[\"a\"],\"rows\":[[]]}", "{\"columns\":[\"a\"],\"rows\":[[[]]]}"] {
            assert!(table_of(broken).is_none(), "{broken}");
        }
    }
}
