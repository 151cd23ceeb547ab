//! A table whose columns appear as its rows need them.

use gemwright_core::{Cell, Table};

/// Rows of named cells.
#[derive(Default)]
pub struct Frame {
    names: Vec<String>,
    rows: Vec<Vec<(usize, Cell)>>,
}

impl Frame {
    /// A row; names that are new become columns, in order.
    pub fn row(&mut self, cells: Vec<(String, Cell)>) {
        let mut row = Vec::with_capacity(cells.len());
        for (name, cell) in cells {
            let place = self.names.iter().position(|own| *own == name).unwrap_or_else(|| {
                self.names.push(name);
                self.names.len() - 1
            });
            row.push((place, cell));
        }
        self.rows.push(row);
    }

    /// With gaps where a row has nothing; columns named in `first` come first.
    pub fn table(self, first: &[&str]) -> Table {
        let mut order: Vec<usize> =
            first.iter().filter_map(|name| self.names.iter().position(|own| own == name)).collect();
        let rest: Vec<usize> = (0..self.names.len()).filter(|i| !order.contains(i)).collect();
        order.extend(rest);
        let names: Vec<&str> = order.iter().map(|i| self.names[*i].as_str()).collect();
        let mut table = Table::new(&names);
        for row in &self.rows {
            let cell = |i: &usize| row.iter().find(|(place, _)| place == i).map_or(Cell::Empty, |(_, c)| c.clone());
            table.row(order.iter().map(cell).collect());
        }
        table
    }
}
