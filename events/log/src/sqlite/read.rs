//! What readers ask of the file. Each is one short statement.

use std::{collections::BTreeSet, fmt::Write as _};

use midwatch_events::{Micros, Recorded, StreamName};
use rusqlite::{Connection, OptionalExtension as _, Params, Row, ToSql, params, params_from_iter};
use uuid::Uuid;

use super::readers::Readers;
use crate::log::{Filter, LogError};

/// `SELECT` over an event's columns, in the order that [`recorded`] reads them.
macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT position, stream, version, event_id, event_type, schema, recorded_at, actor, correlation_id, ",
            "causation_id, facts, content, salt, commitment, leaf_hash FROM events ",
            $rest
        )
    };
}
pub(super) use select;

pub(super) async fn stream(
    readers: &Readers,
    stream: &StreamName,
    from: u64,
    limit: u32,
) -> Result<Vec<Recorded>, LogError> {
    const SQL: &str = select!("WHERE stream = ? AND version >= ? ORDER BY version LIMIT ?");
    page_of_stream(readers, SQL, stream, from, limit).await
}

pub(super) async fn stream_back(
    readers: &Readers,
    stream: &StreamName,
    before: u64,
    limit: u32,
) -> Result<Vec<Recorded>, LogError> {
    const SQL: &str = select!("WHERE stream = ? AND version < ? ORDER BY version DESC LIMIT ?");
    page_of_stream(readers, SQL, stream, before, limit).await
}

async fn page_of_stream(
    readers: &Readers,
    sql: &'static str,
    stream: &StreamName,
    version: u64,
    limit: u32,
) -> Result<Vec<Recorded>, LogError> {
    const READ: &str = "read a stream";
    let stream = stream.clone();
    readers.read(READ, move |file| events(file, READ, sql, params![stream.as_str(), signed(version), limit])).await
}

/// What of a page is read.
const READ_ALL: &str = "read the ledger";

pub(super) async fn all(
    readers: &Readers,
    after: u64,
    limit: u32,
    filter: &Filter,
) -> Result<(Vec<Recorded>, u64), LogError> {
    if filter.event_types.is_empty() && filter.categories.is_empty() {
        const SQL: &str = select!("WHERE position > ? ORDER BY position LIMIT ?");
        let page = readers.read(READ_ALL, move |file| events(file, READ_ALL, SQL, params![signed(after), limit]));
        let events = page.await?;
        let scanned = events.last().map_or(after, |event| event.position);
        return Ok((events, scanned));
    }
    // Read first: what is appended meanwhile is the next page's.
    let head = head(readers).await?;
    if head <= after || limit == 0 {
        return Ok((Vec::new(), after));
    }
    let filter = filter.clone();
    let events = readers.read(READ_ALL, move |file| filtered(file, after, head, limit, &filter)).await?;
    let full = u32::try_from(events.len()).is_ok_and(|read| read >= limit);
    let scanned = events.last().filter(|_| full).map_or(head, |event| event.position);
    Ok((events, scanned))
}

fn filtered(file: &Connection, after: u64, head: u64, limit: u32, filter: &Filter) -> Result<Vec<Recorded>, LogError> {
    // As sets: a name given twice must not give its events twice.
    let types: BTreeSet<&String> = filter.event_types.iter().collect();
    let categories: BTreeSet<&String> = filter.categories.iter().collect();
    let sql = filtered_sql(types.len(), categories.len());
    let (after, head) = (signed(after), signed(head));
    let mut values: Vec<&dyn ToSql> = Vec::new();
    let parts = if types.is_empty() { &categories } else { &types };
    for part in parts {
        values.extend([*part as &dyn ToSql, &after, &head]);
        if !types.is_empty() {
            values.extend(categories.iter().map(|category| *category as &dyn ToSql));
        }
        values.push(&limit);
    }
    values.push(&limit);
    events(file, READ_ALL, &sql, params_from_iter(values))
}

/// One look into an index per name, each in order and with the limit, so that a rare name costs nothing, however long
/// the ledger is. The text holds counts only, never a name.
fn filtered_sql(types: usize, categories: usize) -> String {
    let (parts, by) = if types == 0 { (categories, "category") } else { (types, "event_type") };
    let mut also = String::new();
    if types > 0 && categories > 0 {
        also = format!(" AND category IN (?{})", ", ?".repeat(categories - 1));
    }
    let mut sql = String::new();
    for part in 0..parts {
        let union = if part == 0 { "" } else { " UNION ALL " };
        // Writing to a string cannot fail.
        let _ = write!(
            sql,
            "{union}SELECT * FROM ({} {by} = ? AND position > ? AND position <= ?{also} ORDER BY position LIMIT ?)",
            select!("WHERE")
        );
    }
    sql.push_str(" ORDER BY position LIMIT ?");
    sql
}

pub(super) async fn event(readers: &Readers, event_id: Uuid) -> Result<Option<Recorded>, LogError> {
    const READ: &str = "read an event";
    const SQL: &str = select!("WHERE event_id = ?");
    let found = readers.read(READ, move |file| events(file, READ, SQL, params![event_id.as_bytes()])).await;
    Ok(found?.pop())
}

pub(super) async fn head(readers: &Readers) -> Result<u64, LogError> {
    let number = number(readers, "read the head", "SELECT coalesce(max(position), 0) FROM events").await?;
    Ok(number.unsigned_abs())
}

pub(super) async fn store_time(readers: &Readers) -> Result<Micros, LogError> {
    let sql = "SELECT CAST(round(unixepoch('subsec') * 1000000) AS INTEGER)";
    number(readers, "read the clock", sql).await.map(Micros)
}

async fn number(readers: &Readers, operation: &'static str, sql: &'static str) -> Result<i64, LogError> {
    let one = move |file: &Connection| file.prepare_cached(sql)?.query_row([], |row| row.get(0));
    readers.read(operation, move |file| one(file).map_err(failed(operation))).await
}

pub(super) async fn find_key(readers: &Readers, key_hash: &[u8; 32]) -> Result<Option<(u64, [u8; 32])>, LogError> {
    let key_hash = *key_hash;
    let find = move |file: &Connection| {
        let mut statement = file.prepare_cached("SELECT first_position, digest FROM ledger_key WHERE key_hash = ?")?;
        statement.query_row([key_hash], position_and_hash).optional()
    };
    readers.read("find a key", move |file| find(file).map_err(failed("find a key"))).await
}

pub(super) async fn keys_between(readers: &Readers, first: u64, last: u64) -> Result<Vec<(u64, [u8; 32])>, LogError> {
    let find = move |file: &Connection| {
        let sql = "SELECT first_position, key_hash FROM ledger_key WHERE first_position BETWEEN ? AND ? ORDER BY 1, 2";
        let mut statement = file.prepare_cached(sql)?;
        let rows = statement.query_map([signed(first), signed(last)], position_and_hash)?;
        rows.collect::<rusqlite::Result<Vec<_>>>()
    };
    readers.read("read keys", move |file| find(file).map_err(failed("read keys"))).await
}

/// The first of these whose event id stands at a lower position too.
pub(super) async fn repeated_event(readers: &Readers, events: Vec<(u64, Uuid)>) -> Result<Option<u64>, LogError> {
    let find = move |file: &Connection| {
        let mut statement = file.prepare_cached("SELECT 1 FROM events WHERE event_id = ? AND position < ?")?;
        for (position, id) in &events {
            if statement.exists(params![id.as_bytes(), signed(*position)])? {
                return Ok(Some(*position));
            }
        }
        Ok(None)
    };
    readers.read("read event ids", move |file| find(file).map_err(failed("read event ids"))).await
}

/// What SQLite takes: no position or version reaches its limit.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn position_and_hash(row: &Row<'_>) -> rusqlite::Result<(u64, [u8; 32])> {
    Ok((row.get::<_, i64>(0)?.unsigned_abs(), row.get(1)?))
}

/// The events that a statement finds; one that does not hold together is damage, not a failure.
fn events(
    file: &Connection,
    operation: &'static str,
    sql: &str,
    values: impl Params,
) -> Result<Vec<Recorded>, LogError> {
    let failed = failed(operation);
    let mut statement = file.prepare_cached(sql).map_err(failed)?;
    let mut rows = statement.query(values).map_err(failed)?;
    let mut events = Vec::new();
    while let Some(row) = rows.next().map_err(failed)? {
        events.push(recorded(row).map_err(|error| damaged(row, &error))?);
    }
    Ok(events)
}

fn damaged(row: &Row<'_>, error: &rusqlite::Error) -> LogError {
    let position: i64 = row.get(0).unwrap_or_default();
    LogError::Corrupt { position: position.unsigned_abs(), reason: error.to_string() }
}

pub(super) fn recorded(row: &Row<'_>) -> rusqlite::Result<Recorded> {
    Ok(Recorded {
        position: row.get::<_, i64>(0)?.unsigned_abs(),
        stream: StreamName::stored(row.get(1)?),
        version: row.get::<_, i64>(2)?.unsigned_abs(),
        event_id: Uuid::from_bytes(row.get(3)?),
        event_type: row.get(4)?,
        schema: row.get(5)?,
        recorded_at: Micros(row.get(6)?),
        actor: row.get(7)?,
        correlation_id: row.get(8)?,
        causation_id: row.get::<_, Option<[u8; 16]>>(9)?.map(Uuid::from_bytes),
        facts: row.get(10)?,
        content: row.get(11)?,
        salt: row.get(12)?,
        commitment: row.get(13)?,
        leaf_hash: row.get(14)?,
    })
}

/// What SQLite said of a failed operation.
pub(crate) fn failed(operation: &'static str) -> impl Fn(rusqlite::Error) -> LogError + Copy {
    move |error| LogError::Unavailable { operation, reason: error.to_string() }
}
