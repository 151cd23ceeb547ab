//! A table of typed columns: what is computed, before anyone decides how it is printed.

/// How a column stands in a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Align {
    Left,
    Right,
}

/// A column's name and how it is shown.
#[derive(Debug, Clone)]
pub struct Column {
    /// The name, also the key in JSON and CSV.
    pub name: String,
    /// The side its cells stand on.
    pub align: Align,
}

/// One value. `Shown` carries the exact value for machines and a rounded text for people.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub enum Cell {
    Empty,
    Text(String),
    Integer(u128),
    Shown { value: f64, text: String },
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        Cell::Text(text.to_string())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Cell {
        Cell::Text(text)
    }
}

impl From<u64> for Cell {
    fn from(value: u64) -> Cell {
        Cell::Integer(u128::from(value))
    }
}

impl From<u128> for Cell {
    fn from(value: u128) -> Cell {
        Cell::Integer(value)
    }
}

impl<T: Into<Cell>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Cell {
        value.map_or(Cell::Empty, Into::into)
    }
}

impl Cell {
    /// A number with the text people see in its place.
    pub fn shown(value: f64, text: impl Into<String>) -> Cell {
        Cell::Shown { value, text: text.into() }
    }
}

/// Rows of cells under named columns.
#[derive(Debug, Clone, Default)]
pub struct Table {
    /// Column heads, left to right.
    pub columns: Vec<Column>,
    /// One vector of cells per row, as many as there are columns.
    pub rows: Vec<Vec<Cell>>,
}

impl Table {
    /// An empty table; a name that starts with `>` makes a column that stands right.
    pub fn new(names: &[&str]) -> Table {
        let column = |name: &&str| match name.strip_prefix('>') {
            Some(name) => Column { name: name.to_string(), align: Align::Right },
            None => Column { name: (*name).to_string(), align: Align::Left },
        };
        Table { columns: names.iter().map(column).collect(), rows: Vec::new() }
    }

    /// Adds a row.
    ///
    /// # Panics
    /// If it has not one cell per column.
    pub fn row(&mut self, cells: Vec<Cell>) {
        assert_eq!(cells.len(), self.columns.len(), "a row of {} cells", cells.len());
        self.rows.push(cells);
    }
}
