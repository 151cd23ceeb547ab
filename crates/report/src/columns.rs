//! A table as a parquet file: typed columns, every cell may be missing.

use gemwright_core::{Cell, Table};
use parquet::basic::{Compression, ConvertedType, GzipLevel, Repetition, Type as Physical};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::record::Field;
use parquet::schema::types::Type;
use std::sync::Arc;

/// What a column holds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Integers,
    Numbers,
    Texts,
}

fn kind(table: &Table, column: usize) -> Kind {
    let mut kind = Kind::Integers;
    for row in &table.rows {
        kind = match &row[column] {
            Cell::Empty => kind,
            Cell::Integer(value) if i64::try_from(*value).is_ok() => kind,
            Cell::Integer(_) | Cell::Shown { .. } => Kind::Numbers,
            Cell::Text(_) => return Kind::Texts,
        };
    }
    kind
}

/// A file of columns as a table again.
pub fn from_parquet(bytes: Vec<u8>) -> Result<Table, String> {
    let reader =
        SerializedFileReader::new(bytes::Bytes::from(bytes)).map_err(|e| format!("is no parquet file: {e}"))?;
    let columns = reader.metadata().file_metadata().schema_descr().columns().to_vec();
    let names: Vec<&str> = columns.iter().map(|column| column.name()).collect();
    let mut table = Table::new(&names);
    for row in reader.get_row_iter(None).map_err(|e| e.to_string())? {
        let row = row.map_err(|e| e.to_string())?;
        let cell = |(_, field): (&String, &Field)| match field {
            Field::Str(text) => Cell::Text(text.clone()),
            Field::Long(value) if *value >= 0 => Cell::Integer(*value as u128),
            Field::Long(value) => Cell::Text(value.to_string()),
            Field::Double(value) => Cell::shown(*value, value.to_string()),
            _ => Cell::Empty,
        };
        let cells: Vec<Cell> = row.get_column_iter().map(cell).collect();
        if cells.len() != table.columns.len() {
            return Err("its columns are nested".into());
        }
        table.row(cells);
    }
    Ok(table)
}

/// The bytes of the file.
pub fn parquet(table: &Table) -> Result<Vec<u8>, String> {
    written(table).map_err(|e| e.to_string())
}

fn written(table: &Table) -> Result<Vec<u8>, ParquetError> {
    let kinds: Vec<Kind> = (0..table.columns.len()).map(|i| kind(table, i)).collect();
    let field = |(head, kind): (&gemwright_core::Column, &Kind)| {
        let (physical, converted) = match kind {
            Kind::Integers => (Physical::INT64, ConvertedType::NONE),
            Kind::Numbers => (Physical::DOUBLE, ConvertedType::NONE),
            Kind::Texts => (Physical::BYTE_ARRAY, ConvertedType::UTF8),
        };
        Type::primitive_type_builder(&head.name, physical)
            .with_converted_type(converted)
            .with_repetition(Repetition::OPTIONAL)
            .build()
            .map(Arc::new)
    };
    let fields = table.columns.iter().zip(&kinds).map(field).collect::<Result<Vec<_>, _>>()?;
    let schema = Arc::new(Type::group_type_builder("table").with_fields(fields).build()?);
    let compression = Compression::GZIP(GzipLevel::default());
    let properties = Arc::new(WriterProperties::builder().set_compression(compression).build());
    let mut bytes = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut bytes, schema, properties)?;
    let mut group = writer.next_row_group()?;
    let mut column = 0;
    while let Some(mut out) = group.next_column()? {
        let cells = table.rows.iter().map(|row| &row[column]);
        let there: Vec<i16> = cells.clone().map(|cell| i16::from(*cell != Cell::Empty)).collect();
        match out.untyped() {
            ColumnWriter::Int64ColumnWriter(out) => {
                let value = |cell: &Cell| if let Cell::Integer(v) = cell { i64::try_from(*v).ok() } else { None };
                out.write_batch(&cells.filter_map(value).collect::<Vec<_>>(), Some(&there), None)?;
            }
            ColumnWriter::DoubleColumnWriter(out) => {
                let value = |cell: &Cell| match cell {
                    Cell::Integer(v) => Some(*v as f64),
                    Cell::Shown { value, .. } => Some(*value),
                    _ => None,
                };
                out.write_batch(&cells.filter_map(value).collect::<Vec<_>>(), Some(&there), None)?;
            }
            ColumnWriter::ByteArrayColumnWriter(out) => {
                let value = |cell: &Cell| match cell {
                    Cell::Empty => None,
                    Cell::Integer(v) => Some(ByteArray::from(v.to_string().as_str())),
                    Cell::Text(text) | Cell::Shown { text, .. } => Some(ByteArray::from(text.as_str())),
                };
                out.write_batch(&cells.filter_map(value).collect::<Vec<_>>(), Some(&there), None)?;
            }
            _ => {}
        }
        out.close()?;
        column += 1;
    }
    group.close()?;
    writer.close()?;
    Ok(bytes)
}
