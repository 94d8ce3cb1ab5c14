//! What every projection is made of.

pub mod rfc3339;
mod view;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use midwatch_events::{AnyEvent, Recorded};
use serde::{Serialize, de::DeserializeOwned};

pub use view::View;

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Whole numbers; instants as microseconds since the epoch.
    Int,
    /// Text.
    Text,
}

/// A column's value in one row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cell {
    /// Nothing.
    Null,
    /// For [`Kind::Int`]; flags are 0 and 1.
    Int(i64),
    /// For [`Kind::Text`]. Never holds NUL, which PostgreSQL cannot keep.
    Text(String),
}

impl Cell {
    /// Text, with U+FFFD for each NUL.
    #[must_use]
    pub fn text(text: &str) -> Self {
        Self::Text(text.replace('\0', "\u{fffd}"))
    }

    pub(crate) fn shown(value: Option<impl fmt::Display>) -> Self {
        value.map_or(Self::Null, |value| Self::text(&value.to_string()))
    }

    pub(crate) fn int(value: Option<impl TryInto<i64>>) -> Self {
        value.map_or(Self::Null, |value| Self::Int(value.try_into().unwrap_or(i64::MAX)))
    }

    pub(crate) fn at(value: Option<midwatch_events::Micros>) -> Self {
        value.map_or(Self::Null, |at| Self::Int(at.0))
    }
}

/// Where a projection's rows are kept: beside each row's key and document, the columns that rows are found by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    /// Its name.
    pub name: &'static str,
    /// Raised with every change after which the same events give other rows or cells.
    pub version: u32,
    /// The columns, in the order of [`Projection::cells`].
    pub columns: &'static [(&'static str, Kind)],
    /// What is looked for, each by these columns in this order.
    pub indexes: &'static [&'static [&'static str]],
}

/// One question, answered by a fold over the events.
pub trait Projection {
    /// One row of the answer.
    type Row: Serialize + DeserializeOwned + Clone;

    /// Where the rows are kept.
    const TABLE: Table;

    /// The rows that [`Projection::apply`] reads or writes for this event; none for most events.
    fn keys(event: &AnyEvent, recorded: &Recorded) -> Vec<String>;

    /// Takes in one event. An event that cannot have happened leaves the rows alone.
    fn apply(rows: &mut Rows<Self::Row>, event: &AnyEvent, recorded: &Recorded);

    /// The columns of a row.
    fn cells(row: &Self::Row) -> Vec<Cell>;
}

/// The rows one event touches, and what became of them.
#[derive(Clone, Debug)]
pub struct Rows<R> {
    rows: BTreeMap<String, Option<R>>,
    changed: BTreeSet<String>,
    stray: Option<String>,
}

impl<R> Rows<R> {
    /// The rows as they are before the event; `None` for one that does not exist.
    #[must_use]
    pub fn new(rows: BTreeMap<String, Option<R>>) -> Self {
        Self { rows, changed: BTreeSet::new(), stray: None }
    }

    /// A row, if it exists.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&R> {
        self.rows.get(key)?.as_ref()
    }

    /// Inserts or replaces a row.
    pub fn put(&mut self, key: &str, row: R) {
        self.set(key, Some(row));
    }

    /// Changes a row, if it exists.
    pub fn change(&mut self, key: &str, change: impl FnOnce(&mut R)) {
        if let Some(Some(row)) = self.rows.get_mut(key) {
            change(row);
            self.changed.insert(key.to_owned());
        }
    }

    /// Deletes a row, if it exists.
    pub fn remove(&mut self, key: &str) {
        if self.get(key).is_some() {
            self.set(key, None);
        }
    }

    fn set(&mut self, key: &str, row: Option<R>) {
        match self.rows.get_mut(key) {
            Some(place) => {
                *place = row;
                self.changed.insert(key.to_owned());
            }
            None => self.stray = Some(key.to_owned()),
        }
    }
}

/// What becomes of one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The row's key.
    pub key: String,
    /// Its document and its cells; none deletes it.
    pub row: Option<(Vec<u8>, Vec<Cell>)>,
}

/// Why a projection cannot take in an event. It stops there; the others go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Poison {
    /// A stored row is not what this binary writes.
    Undecodable {
        /// The projection's table.
        table: &'static str,
        /// The row.
        key: String,
        /// What the decoder said.
        reason: String,
    },
    /// A row that cannot be written; a bug in its type.
    Unencodable {
        /// The projection's table.
        table: &'static str,
        /// The row.
        key: String,
        /// What the encoder said.
        reason: String,
    },
    /// A row that was to be loaded was not; a bug in the projection's keys, or in whoever loads them.
    NotLoaded {
        /// The projection's table.
        table: &'static str,
        /// The row.
        key: String,
    },
}

impl fmt::Display for Poison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Undecodable { table, key, reason } => write!(f, "the row {key} of {table} cannot be read: {reason}"),
            Self::Unencodable { table, key, reason } => {
                write!(f, "the row {key} of {table} cannot be written: {reason}")
            }
            Self::NotLoaded { table, key } => write!(f, "the row {key} of {table} was not loaded"),
        }
    }
}

impl std::error::Error for Poison {}

/// Takes one event into the stored `rows`, and says which of them changed.
fn apply<P: Projection>(
    rows: &mut BTreeMap<String, Option<Vec<u8>>>,
    event: &AnyEvent,
    recorded: &Recorded,
) -> Result<Vec<Write>, Poison> {
    let table = P::TABLE.name;
    let mut loaded = BTreeMap::new();
    for key in P::keys(event, recorded) {
        let doc = rows.get(&key).ok_or_else(|| Poison::NotLoaded { table, key: key.clone() })?;
        let row = doc.as_deref().map(serde_json::from_slice::<P::Row>).transpose();
        let row = row.map_err(|error| Poison::Undecodable { table, key: key.clone(), reason: error.to_string() })?;
        loaded.insert(key, row);
    }
    if loaded.is_empty() {
        return Ok(Vec::new());
    }
    let mut loaded = Rows::new(loaded);
    P::apply(&mut loaded, event, recorded);
    if let Some(key) = loaded.stray {
        return Err(Poison::NotLoaded { table, key });
    }
    let mut writes = Vec::with_capacity(loaded.changed.len());
    for key in loaded.changed {
        let row = match loaded.rows.get(&key).and_then(Option::as_ref) {
            None => None,
            Some(row) => {
                let doc = serde_json::to_vec(row);
                let reason = |error: serde_json::Error| error.to_string();
                let doc =
                    doc.map_err(|error| Poison::Unencodable { table, key: key.clone(), reason: reason(error) })?;
                Some((doc, P::cells(row)))
            }
        };
        rows.insert(key.clone(), row.as_ref().map(|(doc, _)| doc.clone()));
        writes.push(Write { key, row });
    }
    Ok(writes)
}

/// The word that stands for a value on the wire, such as `timed_out`.
pub(crate) fn word(value: impl Serialize) -> String {
    serde_json::to_string(&value).unwrap_or_default().trim_matches('"').to_owned()
}

/// A key that sorts as its number does.
#[must_use]
pub fn padded(position: u64) -> String {
    format!("{position:020}")
}

/// The id a stream is named for, where it is.
pub(crate) fn of_stream<Of>(recorded: &Recorded) -> Option<midwatch_events::id::Id<Of>> {
    recorded.stream.uuid().map(midwatch_events::id::Id::new)
}

/// The key of the row that is about an event's own stream.
pub(crate) fn stream_key(recorded: &Recorded) -> Vec<String> {
    recorded.stream.uuid().map(|uuid| uuid.to_string()).into_iter().collect()
}
