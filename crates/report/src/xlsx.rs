//! Tables as sheets of one workbook.

use gemwright_core::{Cell, Table};
use rust_xlsxwriter::{Format, Workbook, XlsxError};

/// A sheet's name has at most this many characters.
const LONGEST_NAME: usize = 31;
/// And a cell this many; the rest of a list of kernels is cut.
const LONGEST_CELL: usize = 32_767;
/// Rows of a sheet, its head counted.
const MOST_ROWS: usize = 1 << 20;

/// One sheet a table, heads fixed and with filters, numbers as numbers. Gives the bytes of the file.
pub fn xlsx(tables: &[(&str, &Table)]) -> Result<Vec<u8>, String> {
    workbook(tables).map_err(|e| e.to_string())
}

fn workbook(tables: &[(&str, &Table)]) -> Result<Vec<u8>, XlsxError> {
    let mut book = Workbook::new();
    let bold = Format::new().set_bold();
    for (name, table) in tables {
        let sheet = book.add_worksheet();
        sheet.set_name(name.chars().take(LONGEST_NAME).collect::<String>())?;
        sheet.set_freeze_panes(1, 0)?;
        for (column, head) in (0u16..).zip(&table.columns) {
            sheet.write_with_format(0, column, head.name.as_str(), &bold)?;
        }
        for (row, cells) in (1u32..).zip(table.rows.iter().take(MOST_ROWS - 1)) {
            for (column, cell) in (0u16..).zip(cells) {
                match cell {
                    Cell::Empty => {}
                    Cell::Integer(value) => {
                        sheet.write(row, column, *value as f64)?;
                    }
                    Cell::Shown { value, .. } if value.is_finite() => {
                        sheet.write(row, column, *value)?;
                    }
                    Cell::Shown { text, .. } | Cell::Text(text) => {
                        let shown: String = text.chars().take(LONGEST_CELL).collect();
                        sheet.write_string(row, column, shown)?;
                    }
                }
            }
        }
        if let (Some(last), rows @ 1..) = (table.columns.len().checked_sub(1), table.rows.len()) {
            sheet.autofilter(0, 0, rows.min(MOST_ROWS - 1) as u32, last as u16)?;
        }
    }
    book.save_to_buffer()
}
