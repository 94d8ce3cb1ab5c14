//! What a projection's table looks like, and what is written to it.

use std::collections::BTreeMap;

use crate::log::LogError;

/// A projection's table. Every table has a text primary key (`key`) and the row itself (`doc`, bytes that only the
/// projection reads); what rows are found and ordered by is kept beside them in columns.
#[derive(Debug, PartialEq, Eq)]
pub struct Table {
    /// Lower-case letters, digits and `_`, at most 40; unique among the projections.
    pub name: &'static str,
    /// Raised whenever the same events would give other rows: the rows are then built again from position 0.
    pub version: u32,
    /// The columns, in the order in which [`RowWrite::row`] gives their cells.
    pub columns: &'static [Column],
    /// Which columns have an index together. The key is always its last part, so that pages need no sorting.
    pub indexes: &'static [&'static [&'static str]],
}

/// One column that rows are found or ordered by. Every column may be null.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// As [`Table::name`]; `key` and `doc` are taken.
    pub name: &'static str,
    /// What it holds.
    pub kind: Kind,
}

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Integers of 64 bits; instants as microseconds.
    Int,
    /// Text, ordered by its UTF-8 bytes on every backend.
    Text,
}

/// A column's value in one row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cell {
    /// Nothing; lower than everything.
    Null,
    /// For [`Kind::Int`].
    Int(i64),
    /// For [`Kind::Text`]; never with NUL, which PostgreSQL cannot keep.
    Text(String),
}

/// What becomes of one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowWrite {
    /// The row's primary key; never with NUL.
    pub key: String,
    /// The row as it is now: the encoded row and one cell for each column. `None` deletes it.
    pub row: Option<(Vec<u8>, Vec<Cell>)>,
}

/// The column name that stands for the primary key in conditions and orders.
pub const KEY: &str = "key";

impl Table {
    /// What the column holds; the key is text.
    pub(super) fn kind(&self, column: &str) -> Result<Kind, LogError> {
        if column == KEY {
            return Ok(Kind::Text);
        }
        let found = self.columns.iter().find(|known| known.name == column);
        found.map(|known| known.kind).ok_or_else(|| self.misused(format!("it has no column `{column}`")))
    }

    /// Refuses names that cannot stand in a statement, before any statement is made of them.
    pub(super) fn check(&self) -> Result<(), LogError> {
        let names = self.columns.iter().map(|column| column.name);
        for name in std::iter::once(self.name).chain(names) {
            let first = name.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase());
            let rest = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
            if !first || !rest || name.len() > 40 {
                return Err(self.misused(format!("`{name}` cannot be a name")));
            }
        }
        for (index, column) in self.columns.iter().enumerate() {
            let twice = self.columns.iter().skip(index + 1).any(|other| other.name == column.name);
            if twice || column.name == KEY || column.name == "doc" {
                return Err(self.misused(format!("the column `{}` is there already", column.name)));
            }
        }
        for column in self.indexes.iter().flat_map(|columns| columns.iter()) {
            self.kind(column)?;
        }
        Ok(())
    }

    /// Refuses a cell that its column cannot hold.
    pub(super) fn check_cell(&self, column: &str, kind: Kind, cell: &Cell) -> Result<(), LogError> {
        match (kind, cell) {
            (_, Cell::Null) | (Kind::Int, Cell::Int(_)) => Ok(()),
            (Kind::Text, Cell::Text(text)) if text.contains('\0') => {
                Err(self.misused(format!("text with NUL for `{column}`")))
            }
            (Kind::Text, Cell::Text(_)) => Ok(()),
            (Kind::Int, Cell::Text(_)) | (Kind::Text, Cell::Int(_)) => {
                Err(self.misused(format!("`{column}` holds another kind")))
            }
        }
    }

    /// The one change that each key ends with, in the order of the keys.
    pub(super) fn last_writes(&self, writes: Vec<RowWrite>) -> Result<Changes, LogError> {
        let mut last = BTreeMap::new();
        for write in writes {
            self.check_cell(KEY, Kind::Text, &Cell::Text(write.key.clone()))?;
            if let Some((_, cells)) = &write.row {
                if cells.len() != self.columns.len() {
                    return Err(self.misused(format!("{} cells for {} columns", cells.len(), self.columns.len())));
                }
                for (column, cell) in self.columns.iter().zip(cells) {
                    self.check_cell(column.name, column.kind, cell)?;
                }
            }
            last.insert(write.key, write.row);
        }
        let mut changes = Changes::default();
        for (key, row) in last {
            match row {
                Some((doc, cells)) => changes.kept.push(Kept { key, doc, cells }),
                None => changes.deleted.push(key),
            }
        }
        Ok(changes)
    }

    /// A fault of the code that uses the table.
    pub(super) fn misused(&self, what: String) -> LogError {
        LogError::Unavailable { operation: "use a projection", reason: format!("`{}`: {what}", self.name) }
    }
}

/// What one transaction does to a table; no key stands in it twice.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Rows that are there afterwards.
    pub(super) kept: Vec<Kept>,
    /// Keys that are not.
    pub(super) deleted: Vec<String>,
}

/// A row to insert or replace.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) key: String,
    pub(super) doc: Vec<u8>,
    pub(super) cells: Vec<Cell>,
}
