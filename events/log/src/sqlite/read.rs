//! What readers ask of the file. Each is one short statement.

use std::{collections::BTreeSet, fmt::Write as _};

use midwatch_events::{Micros, Recorded, StreamName};
use sqlx::{AssertSqlSafe, Row as _, SqlitePool, sqlite::SqliteRow};
use uuid::Uuid;

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
    readers: &SqlitePool,
    stream: &StreamName,
    from: u64,
    limit: u32,
) -> Result<Vec<Recorded>, LogError> {
    let rows = sqlx::query(select!("WHERE stream = ? AND version >= ? ORDER BY version LIMIT ?"))
        .bind(stream.as_str())
        .bind(signed(from))
        .bind(limit)
        .fetch_all(readers)
        .await;
    all_recorded(rows.map_err(|e| failed("read a stream", &e))?)
}

pub(super) async fn stream_back(
    readers: &SqlitePool,
    stream: &StreamName,
    before: u64,
    limit: u32,
) -> Result<Vec<Recorded>, LogError> {
    let rows = sqlx::query(select!("WHERE stream = ? AND version < ? ORDER BY version DESC LIMIT ?"))
        .bind(stream.as_str())
        .bind(signed(before))
        .bind(limit)
        .fetch_all(readers)
        .await;
    all_recorded(rows.map_err(|e| failed("read a stream", &e))?)
}

pub(super) async fn all(
    readers: &SqlitePool,
    after: u64,
    limit: u32,
    filter: &Filter,
) -> Result<(Vec<Recorded>, u64), LogError> {
    if filter.event_types.is_empty() && filter.categories.is_empty() {
        let events = unfiltered(readers, after, limit).await?;
        let scanned = events.last().map_or(after, |event| event.position);
        return Ok((events, scanned));
    }
    // Read first: what is appended meanwhile is the next page's.
    let head = head(readers).await?;
    if head <= after || limit == 0 {
        return Ok((Vec::new(), after));
    }
    let events = filtered(readers, after, head, limit, filter).await?;
    let full = u32::try_from(events.len()).is_ok_and(|read| read >= limit);
    let scanned = events.last().filter(|_| full).map_or(head, |event| event.position);
    Ok((events, scanned))
}

async fn unfiltered(readers: &SqlitePool, after: u64, limit: u32) -> Result<Vec<Recorded>, LogError> {
    let rows = sqlx::query(select!("WHERE position > ? ORDER BY position LIMIT ?"))
        .bind(signed(after))
        .bind(limit)
        .fetch_all(readers)
        .await;
    all_recorded(rows.map_err(|e| failed("read the ledger", &e))?)
}

async fn filtered(
    readers: &SqlitePool,
    after: u64,
    head: u64,
    limit: u32,
    filter: &Filter,
) -> Result<Vec<Recorded>, LogError> {
    // As sets: a name given twice must not give its events twice.
    let types: BTreeSet<&String> = filter.event_types.iter().collect();
    let categories: BTreeSet<&String> = filter.categories.iter().collect();
    let mut query = sqlx::query(AssertSqlSafe(filtered_sql(types.len(), categories.len())));
    let parts = if types.is_empty() { &categories } else { &types };
    for part in parts {
        query = query.bind(part.as_str()).bind(signed(after)).bind(signed(head));
        if !types.is_empty() {
            query = categories.iter().fold(query, |query, category| query.bind(category.as_str()));
        }
        query = query.bind(limit);
    }
    let rows = query.bind(limit).fetch_all(readers).await;
    all_recorded(rows.map_err(|e| failed("read the ledger", &e))?)
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

pub(super) async fn event(readers: &SqlitePool, event_id: Uuid) -> Result<Option<Recorded>, LogError> {
    let row = sqlx::query(select!("WHERE event_id = ?")).bind(event_id).fetch_optional(readers).await;
    let row = row.map_err(|e| failed("read an event", &e))?;
    Ok(all_recorded(row.into_iter().collect())?.pop())
}

pub(super) async fn head(readers: &SqlitePool) -> Result<u64, LogError> {
    let row = sqlx::query("SELECT coalesce(max(position), 0) FROM events").fetch_one(readers).await;
    number("read the head", row, 0)
}

pub(super) async fn store_time(readers: &SqlitePool) -> Result<Micros, LogError> {
    let row = sqlx::query("SELECT CAST(round(unixepoch('subsec') * 1000000) AS INTEGER)").fetch_one(readers).await;
    let failed = |e| failed("read the clock", &e);
    row.and_then(|row| row.try_get(0)).map(Micros).map_err(failed)
}

pub(super) async fn find_key(readers: &SqlitePool, key_hash: &[u8; 32]) -> Result<Option<(u64, [u8; 32])>, LogError> {
    let row = sqlx::query("SELECT first_position, digest FROM ledger_key WHERE key_hash = ?")
        .bind(key_hash.as_slice())
        .fetch_optional(readers)
        .await;
    row.and_then(|row| row.as_ref().map(position_and_hash).transpose()).map_err(|e| failed("find a key", &e))
}

pub(super) async fn keys_between(
    readers: &SqlitePool,
    first: u64,
    last: u64,
) -> Result<Vec<(u64, [u8; 32])>, LogError> {
    let rows = sqlx::query(
        "SELECT first_position, key_hash FROM ledger_key WHERE first_position BETWEEN ? AND ? ORDER BY 1, 2",
    )
    .bind(signed(first))
    .bind(signed(last))
    .fetch_all(readers)
    .await;
    rows.and_then(|rows| rows.iter().map(position_and_hash).collect()).map_err(|e| failed("read keys", &e))
}

/// The first position in `first..=last` whose event id stands at a lower one too.
pub(super) async fn repeated_event(readers: &SqlitePool, first: u64, last: u64) -> Result<Option<u64>, LogError> {
    let row = sqlx::query(
        "SELECT position FROM events AS e WHERE position BETWEEN ? AND ?
            AND EXISTS (SELECT 1 FROM events AS o WHERE o.event_id = e.event_id AND o.position < e.position)
         ORDER BY position LIMIT 1",
    )
    .bind(signed(first))
    .bind(signed(last))
    .fetch_optional(readers)
    .await;
    match row.map_err(|e| failed("read event ids", &e))? {
        Some(row) => number("read event ids", Ok(row), 0).map(Some),
        None => Ok(None),
    }
}

/// What SQLite takes: no position or version reaches its limit.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn number(operation: &'static str, row: Result<SqliteRow, sqlx::Error>, column: usize) -> Result<u64, LogError> {
    let value: i64 = row.and_then(|row| row.try_get(column)).map_err(|e| failed(operation, &e))?;
    Ok(value.unsigned_abs())
}

pub(super) fn position_and_hash(row: &SqliteRow) -> Result<(u64, [u8; 32]), sqlx::Error> {
    Ok((row.try_get::<i64, _>(0)?.unsigned_abs(), row.try_get(1).and_then(array)?))
}

fn all_recorded(rows: Vec<SqliteRow>) -> Result<Vec<Recorded>, LogError> {
    rows.iter().map(|row| recorded(row).map_err(|error| damaged(row, &error))).collect()
}

fn damaged(row: &SqliteRow, error: &sqlx::Error) -> LogError {
    LogError::Corrupt {
        position: row.try_get::<i64, _>(0).unwrap_or_default().unsigned_abs(),
        reason: error.to_string(),
    }
}

pub(super) fn recorded(row: &SqliteRow) -> Result<Recorded, sqlx::Error> {
    Ok(Recorded {
        position: row.try_get::<i64, _>(0)?.unsigned_abs(),
        stream: StreamName::stored(row.try_get(1)?),
        version: row.try_get::<i64, _>(2)?.unsigned_abs(),
        event_id: row.try_get::<Uuid, _>(3)?,
        event_type: row.try_get(4)?,
        schema: row.try_get(5)?,
        recorded_at: Micros(row.try_get(6)?),
        actor: row.try_get(7)?,
        correlation_id: row.try_get(8)?,
        causation_id: row.try_get::<Option<Uuid>, _>(9)?,
        facts: row.try_get(10)?,
        content: row.try_get(11)?,
        salt: row.try_get::<Option<&[u8]>, _>(12)?.map(array).transpose()?,
        commitment: row.try_get::<Option<&[u8]>, _>(13)?.map(array).transpose()?,
        leaf_hash: row.try_get(14).and_then(array)?,
    })
}

pub(super) fn array<const N: usize>(bytes: &[u8]) -> Result<[u8; N], sqlx::Error> {
    bytes.try_into().map_err(|_| sqlx::Error::Decode(format!("{} bytes where {N} belong", bytes.len()).into()))
}

pub(crate) fn failed(operation: &'static str, error: &sqlx::Error) -> LogError {
    LogError::Unavailable { operation, reason: error.to_string() }
}
