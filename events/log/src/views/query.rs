//! Which rows a reader wants, and the one statement that asks for them.

use super::table::{Cell, KEY, Kind, Table};
use crate::log::LogError;

/// Which rows, in which order, and how many of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// All of them hold for every row that is answered.
    pub filters: Vec<Condition>,
    /// The order; rows that are equal in it are ordered by their keys.
    pub order: Order,
    /// How many rows at most.
    pub limit: u32,
    /// Only rows that come after this place in the order. For the page before a row, turn the order round and start
    /// at that row.
    pub after: Option<Cursor>,
}

/// What rows are ordered by: one column, then the key, both in the same direction. Null is lower than everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// A column, or [`KEY`].
    pub column: &'static str,
    /// From the highest to the lowest.
    pub descending: bool,
}

/// A place in an order. It stays good when its row changes or goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// The row's cell in the column that orders.
    pub cell: Cell,
    /// The row's key.
    pub key: String,
}

/// One condition on one column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// A column, or [`KEY`].
    pub column: &'static str,
    /// What must be so.
    pub is: Test,
}

/// What must be so of a cell. Except for [`Test::Eq`], [`Test::Ne`] and [`Test::IsNull`], null passes none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Test {
    /// Equal; null equals null.
    Eq(Cell),
    /// Not equal; null differs from everything but null.
    Ne(Cell),
    /// Lower.
    Lt(Cell),
    /// Lower or equal.
    Le(Cell),
    /// Higher.
    Gt(Cell),
    /// Higher or equal.
    Ge(Cell),
    /// Null.
    IsNull,
    /// Not null.
    NotNull,
    /// Equal to one of them; none of them may be null, and of no cells none is equal.
    In(Vec<Cell>),
    /// The text holds this text, byte for byte: who wants `A` and `a` to be the same keeps a column in lower case.
    Contains(String),
}

/// A row that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its primary key.
    pub key: String,
    /// The row itself, as the projection wrote it.
    pub doc: Vec<u8>,
    /// Its cell in the column that orders.
    pub order: Cell,
}

impl Row {
    /// The row's place in the order it was asked for in.
    #[must_use]
    pub fn cursor(&self) -> Cursor {
        Cursor { cell: self.order.clone(), key: self.key.clone() }
    }
}

/// What differs between the backends in these statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    Sqlite,
    Postgres,
}

/// A statement and what is bound to its `$1`, `$2` …; no bound cell is null.
#[derive(Debug)]
pub(super) struct Statement {
    pub(super) text: String,
    pub(super) binds: Vec<Cell>,
}

impl Statement {
    fn bind(&mut self, cell: Cell) {
        self.binds.push(cell);
        self.text.push_str(&format!("${}", self.binds.len()));
    }

    /// The rows of `query`: key, doc, and the column that orders.
    pub(super) fn select(dialect: Dialect, from: &str, table: &Table, query: &Query) -> Result<Self, LogError> {
        let Order { column, descending } = query.order;
        let kind = table.kind(column)?;
        let text = format!("SELECT v.\"key\", v.doc, v.\"{column}\" FROM {from} AS v WHERE 1 = 1");
        let mut statement = Self { text, binds: Vec::new() };
        statement.filters(dialect, table, &query.filters)?;
        let filtered = std::mem::take(&mut statement.text);
        let ranges = match &query.after {
            Some(cursor) => statement.ranges_after(table, kind, query.order, cursor)?,
            None => vec![String::new()],
        };
        statement.binds.push(Cell::Int(i64::from(query.limit)));
        let limit = format!("LIMIT ${}", statement.binds.len());
        // PostgreSQL would put null above everything; SQLite puts it below.
        let (of_cell, of_key) = if descending { ("DESC NULLS LAST", "DESC") } else { ("ASC NULLS FIRST", "ASC") };
        let order = if column == KEY {
            format!("v.\"key\" {of_key}")
        } else {
            format!("v.\"{column}\" {of_cell}, v.\"key\" {of_key}")
        };
        let parts: Vec<String> =
            ranges.iter().map(|range| format!("{filtered}{range} ORDER BY {order} {limit}")).collect();
        statement.text = match parts.as_slice() {
            [all] => all.clone(),
            parts => {
                let parts: Vec<String> =
                    parts.iter().enumerate().map(|(n, part)| format!("SELECT * FROM ({part}) AS p{n}")).collect();
                format!("{} ORDER BY 3 {of_cell}, 1 {of_key} {limit}", parts.join(" UNION ALL "))
            }
        };
        Ok(statement)
    }

    /// How many rows pass `filters`.
    pub(super) fn count(dialect: Dialect, from: &str, table: &Table, filters: &[Condition]) -> Result<Self, LogError> {
        let text = format!("SELECT count(*) FROM {from} AS v WHERE 1 = 1");
        let mut statement = Self { text, binds: Vec::new() };
        statement.filters(dialect, table, filters)?;
        Ok(statement)
    }

    fn filters(&mut self, dialect: Dialect, table: &Table, filters: &[Condition]) -> Result<(), LogError> {
        for Condition { column, is } in filters {
            let kind = table.kind(column)?;
            // Qualified, because SQLite takes an unknown name in double quotes alone for a text.
            let name = format!("v.\"{column}\"");
            self.text.push_str(" AND ");
            match is {
                Test::IsNull | Test::Eq(Cell::Null) => self.text.push_str(&format!("{name} IS NULL")),
                Test::NotNull | Test::Ne(Cell::Null) => self.text.push_str(&format!("{name} IS NOT NULL")),
                Test::Eq(cell) => self.compare(table, column, kind, "=", cell)?,
                Test::Ne(cell) => {
                    self.text.push_str(&format!("({name} IS NULL OR "));
                    self.compare(table, column, kind, "<>", cell)?;
                    self.text.push(')');
                }
                Test::Lt(cell) => self.compare(table, column, kind, "<", cell)?,
                Test::Le(cell) => self.compare(table, column, kind, "<=", cell)?,
                Test::Gt(cell) => self.compare(table, column, kind, ">", cell)?,
                Test::Ge(cell) => self.compare(table, column, kind, ">=", cell)?,
                Test::In(cells) => self.one_of(table, column, kind, cells)?,
                Test::Contains(part) => {
                    let part = Cell::Text(part.clone());
                    table.check_cell(column, kind, &part)?;
                    let find = match dialect {
                        Dialect::Sqlite => "instr",
                        Dialect::Postgres => "strpos",
                    };
                    self.text.push_str(&format!("{find}({name}, "));
                    self.bind(part);
                    self.text.push_str(") > 0");
                }
            }
        }
        Ok(())
    }

    fn compare(&mut self, table: &Table, column: &str, kind: Kind, with: &str, cell: &Cell) -> Result<(), LogError> {
        if *cell == Cell::Null {
            return Err(table.misused(format!("`{column}` is compared with null")));
        }
        table.check_cell(column, kind, cell)?;
        self.text.push_str(&format!("v.\"{column}\" {with} "));
        self.bind(cell.clone());
        Ok(())
    }

    fn one_of(&mut self, table: &Table, column: &str, kind: Kind, cells: &[Cell]) -> Result<(), LogError> {
        if cells.is_empty() {
            self.text.push_str("1 = 0");
            return Ok(());
        }
        for (index, cell) in cells.iter().enumerate() {
            if *cell == Cell::Null {
                return Err(table.misused(format!("`{column}` is compared with null")));
            }
            table.check_cell(column, kind, cell)?;
            let before = if index == 0 { format!("v.\"{column}\" IN (") } else { ", ".to_owned() };
            self.text.push_str(&before);
            self.bind(cell.clone());
        }
        self.text.push(')');
        Ok(())
    }

    /// What comes after the cursor, as one or two ranges. Two where it lies on both sides of null: `OR` would make
    /// both databases sort everything that is left, and each range by itself is read from an index.
    fn ranges_after(
        &mut self,
        table: &Table,
        kind: Kind,
        order: Order,
        cursor: &Cursor,
    ) -> Result<Vec<String>, LogError> {
        let Order { column, descending } = order;
        table.check_cell(column, kind, &cursor.cell)?;
        let key = Cell::Text(cursor.key.clone());
        table.check_cell(KEY, Kind::Text, &key)?;
        self.binds.push(key);
        let key = format!("${}", self.binds.len());
        let than = if descending { "<" } else { ">" };
        if column == KEY {
            return Ok(vec![format!(" AND v.\"key\" {than} {key}")]);
        }
        let name = format!("v.\"{column}\"");
        if cursor.cell == Cell::Null {
            let mut ranges = vec![format!(" AND {name} IS NULL AND v.\"key\" {than} {key}")];
            if !descending {
                ranges.push(format!(" AND {name} IS NOT NULL"));
            }
            return Ok(ranges);
        }
        self.binds.push(cursor.cell.clone());
        let mut ranges = vec![format!(" AND ({name}, v.\"key\") {than} (${}, {key})", self.binds.len())];
        if descending {
            ranges.push(format!(" AND {name} IS NULL"));
        }
        Ok(ranges)
    }
}
