//! Where the tables of traces are written to.

use crate::error::Error;
use crate::output::write_file;
use gemwright_core::Table;
use gemwright_report as report;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// Tables with their names.
pub type Tables = Vec<(String, Table)>;

#[derive(clap::Args)]
pub struct TableFiles {
    /// Write every table into this folder, one CSV file each
    #[arg(long, value_name = "DIR")]
    csv: Option<PathBuf>,
    /// Write every table into this workbook, one sheet each
    #[arg(long, value_name = "FILE")]
    pub xlsx: Option<PathBuf>,
    /// Write every table into this folder, one parquet file each
    #[arg(long, value_name = "DIR")]
    parquet: Option<PathBuf>,
}

impl TableFiles {
    /// Into every folder, below `folder` there, and every file that was asked for.
    pub fn write(&self, folder: &Path, tables: &Tables) -> Result<(), Error> {
        if let Some(base) = &self.csv {
            // What pandas writes of a table without columns.
            let text = |table: &Table| if table.columns.is_empty() { "\n".into() } else { report::csv(table) };
            write_all(&base.join(folder), "csv", tables, |table| Ok(text(table).into_bytes()))?;
        }
        if let Some(base) = &self.parquet {
            write_all(&base.join(folder), "parquet", tables, report::parquet)?;
        }
        if let Some(path) = &self.xlsx {
            let sheets: Vec<(&str, &Table)> = tables.iter().map(|(name, table)| (name.as_str(), table)).collect();
            let wrong = |why: String| Error::File { path: path.display().to_string(), why };
            write_file(path, &report::xlsx(&sheets).map_err(wrong)?)?;
        }
        Ok(())
    }
}

/// One file a table, in a folder that is made where it is missing.
fn write_all(
    folder: &Path,
    end: &str,
    tables: &Tables,
    bytes: impl Fn(&Table) -> Result<Vec<u8>, String>,
) -> Result<(), Error> {
    let wrong = |path: &Path, why: String| Error::File { path: path.display().to_string(), why };
    std::fs::create_dir_all(folder).map_err(|e| wrong(folder, e.to_string()))?;
    for (name, table) in tables {
        let path = folder.join(format!("{name}.{end}"));
        write_file(&path, &bytes(table).map_err(|why| wrong(&path, why))?)?;
    }
    Ok(())
}

/// As JSON, one list of rows a table.
pub fn json_tables(tables: &Tables) -> Map<String, Value> {
    tables.iter().map(|(name, table)| (name.clone(), report::json_rows(table))).collect()
}
