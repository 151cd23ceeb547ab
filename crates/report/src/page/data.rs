//! What the script of a page reads: tables by column, texts that come often kept once.

use super::Page;
use gemwright_core::{Align, Cell, Table};
use serde_json::{Value, json};
use std::collections::HashMap;

/// Texts that come often are kept once.
#[derive(Default)]
struct Strings {
    all: Vec<String>,
    places: HashMap<String, usize>,
}

impl Strings {
    fn place(&mut self, of: &str) -> usize {
        if let Some(place) = self.places.get(of) {
            return *place;
        }
        self.all.push(of.to_string());
        self.places.insert(of.to_string(), self.all.len() - 1);
        self.all.len() - 1
    }
}

/// Six digits are more than anyone reads off a page.
pub(super) fn short(value: f64) -> Value {
    if !value.is_finite() {
        return Value::Null;
    }
    let digits = format!("{value:.5e}").parse::<f64>().unwrap_or(value);
    if digits.fract() == 0.0 && digits.abs() < 1e15 { json!(digits as i64) } else { json!(digits) }
}

/// Digits of a number as it stands elsewhere.
fn digits(cell: &Cell) -> usize {
    let Cell::Shown { text, .. } = cell else { return 0 };
    let mantissa = text.split(['e', 'E']).next().unwrap_or("");
    mantissa.trim_start_matches(['-', '0', '.']).chars().filter(char::is_ascii_digit).count()
}

fn columns(table: &Table, strings: &mut Strings) -> Vec<Value> {
    let column = |(i, column): (usize, &gemwright_core::Column)| {
        let cells = table.rows.iter().map(|row| &row[i]);
        let textual = cells.clone().any(|cell| matches!(cell, Cell::Text(_)));
        let cells = cells.map(|cell| match cell {
            Cell::Empty => Value::Null,
            Cell::Text(of) => json!(strings.place(of)),
            Cell::Integer(n) if textual => json!(strings.place(&n.to_string())),
            Cell::Shown { text, .. } if textual => json!(strings.place(text)),
            Cell::Integer(n) => json!(*n as f64),
            Cell::Shown { value, .. } => short(*value),
        });
        let cells: Vec<Value> = cells.collect();
        let digits = table.rows.iter().map(|row| digits(&row[i])).max().unwrap_or(0).clamp(3, 6);
        let mut out = json!({
            "name": column.name, "right": column.align == Align::Right, "text": textual, "digits": digits, "cells": cells,
        });
        // Numbers with a unit are shown as they stand elsewhere, and sorted by what they are.
        let unit = |cell: &Cell| matches!(cell, Cell::Shown { text, .. } if text.ends_with(|c: char| c.is_alphabetic() || c == '%'));
        if !textual && table.rows.iter().any(|row| unit(&row[i])) {
            let shown = table.rows.iter().map(|row| match &row[i] {
                Cell::Shown { text, .. } => json!(strings.place(text)),
                _ => Value::Null,
            });
            out["shown"] = shown.collect();
        }
        out
    };
    table.columns.iter().enumerate().map(column).collect()
}

/// The data of the script. No `<` is left in it, so that nothing in it ends the element that holds it.
pub(super) fn data(page: &Page) -> String {
    let mut strings = Strings::default();
    let tables: Vec<Value> = page
        .tables
        .iter()
        .map(|(name, table)| json!({"name": name, "columns": columns(table, &mut strings)}))
        .collect();
    let all = json!({"plot": page.plot.json(), "strings": strings.all, "tables": tables, "open": page.open});
    all.to_string().replace('<', "\\u003c").replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_numbers_stay_numbers() {
        let mut table = Table::new(&["name", ">time"]);
        table.row(vec!["mm".into(), Cell::shown(1.234_567_89, "1.23")]);
        table.row(vec!["mm".into(), Cell::Empty]);
        let mut strings = Strings::default();
        let columns = columns(&table, &mut strings);
        assert_eq!(columns[1].get("shown"), None);
        assert_eq!(columns[0]["cells"], json!([0, 0]));
        assert_eq!(columns[1]["cells"], json!([1.23457, null]));
        assert_eq!(strings.all, ["mm"]);
        let mut table = Table::new(&[">time"]);
        table.row(vec![Cell::shown(1e-6, "1 us")]);
        let columns = super::columns(&table, &mut strings);
        assert_eq!((digits(&Cell::shown(0.0123, "0.0123")), digits(&Cell::shown(12345.0, "1.2345e4"))), (3, 5));
        assert_eq!((&columns[0]["cells"], &columns[0]["shown"]), (&json!([1e-6]), &json!([1])));
    }
}
