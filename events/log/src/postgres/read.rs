//! What readers ask of the database. Each is one short statement, and sees what is durable, and no more; but for
//! [`load_stream`].

use midwatch_events::{Micros, Recorded, StreamName};
use sqlx::{PgConnection, PgExecutor, PgPool, Row as _, postgres::PgRow};
use uuid::Uuid;

use super::{connect::failed, seat::durable};
use crate::log::{Filter, LogError, Risk};

/// The channel of the hints.
pub(super) const CHANNEL: &str = "midwatch_ledger";

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
    pool: &PgPool,
    stream: &StreamName,
    from: u64,
    limit: u32,
) -> Result<Vec<Recorded>, LogError> {
    const SQL: &str = concat!(
        select!("WHERE stream = $1 AND version >= $2 AND position <= "),
        durable!(),
        " ORDER BY version LIMIT $3"
    );
    page_of_stream(pool, SQL, stream, from, limit).await
}

/// As [`stream`], of many.
pub(super) async fn streams(pool: &PgPool, asked: &[(StreamName, u64)], limit: u32) -> Result<Vec<Recorded>, LogError> {
    const SQL: &str = concat!(
        "SELECT e.* FROM unnest($1::text[], $2::bigint[]) asked (name, version) CROSS JOIN LATERAL (",
        select!("WHERE stream = asked.name COLLATE \"C\" AND events.version >= asked.version AND position <= "),
        durable!(),
        " ORDER BY events.version LIMIT $3) e"
    );
    let names: Vec<&str> = asked.iter().map(|(stream, _)| stream.as_str()).collect();
    let versions: Vec<i64> = asked.iter().map(|(_, version)| signed(*version)).collect();
    let rows = sqlx::query(SQL).bind(names).bind(versions).bind(i64::from(limit)).fetch_all(pool).await;
    all_recorded(&rows.map_err(|e| failed("read streams", &e))?)
}

/// As [`stream`], but also what is committed and not flushed yet.
pub(super) async fn load_stream(
    pool: &PgPool,
    stream: &StreamName,
    from: u64,
    limit: u32,
) -> Result<Vec<Recorded>, LogError> {
    const SQL: &str = select!("WHERE stream = $1 AND version >= $2 ORDER BY version LIMIT $3");
    page_of_stream(pool, SQL, stream, from, limit).await
}

async fn page_of_stream(
    pool: &PgPool,
    sql: &'static str,
    stream: &StreamName,
    version: u64,
    limit: u32,
) -> Result<Vec<Recorded>, LogError> {
    let query = sqlx::query(sql).bind(stream.as_str()).bind(signed(version)).bind(i64::from(limit));
    all_recorded(&query.fetch_all(pool).await.map_err(|e| failed("read a stream", &e))?)
}

pub(super) async fn stream_back(
    pool: &PgPool,
    stream: &StreamName,
    before: u64,
    limit: u32,
) -> Result<Vec<Recorded>, LogError> {
    const SQL: &str = concat!(
        select!("WHERE stream = $1 AND version < $2 AND position <= "),
        durable!(),
        " ORDER BY version DESC LIMIT $3"
    );
    page_of_stream(pool, SQL, stream, before, limit).await
}

pub(super) async fn all(
    pool: &PgPool,
    after: u64,
    limit: u32,
    filter: &Filter,
) -> Result<(Vec<Recorded>, u64), LogError> {
    if filter.event_types.is_empty() && filter.categories.is_empty() {
        const SQL: &str =
            concat!(select!("WHERE position > $1 AND position <= "), durable!(), " ORDER BY position LIMIT $2");
        let rows = sqlx::query(SQL).bind(signed(after)).bind(i64::from(limit)).fetch_all(pool).await;
        let events = all_recorded(&rows.map_err(|e| failed("read the ledger", &e))?)?;
        let scanned = events.last().map_or(after, |event| event.position);
        return Ok((events, scanned));
    }
    // Read first: what is appended meanwhile is the next page's.
    let head = head(pool).await?;
    if head <= after || limit == 0 {
        return Ok((Vec::new(), after));
    }
    let events = filtered(pool, after, head, limit, filter).await?;
    let full = u32::try_from(events.len()).is_ok_and(|read| read >= limit);
    let scanned = events.last().filter(|_| full).map_or(head, |event| event.position);
    Ok((events, scanned))
}

/// One look into an index per name, each in order and with the limit, so that a rare name costs nothing, however long
/// the ledger is. `DISTINCT`: a name given twice must not give its events twice.
const BY_CATEGORY: &str = "SELECT e.* FROM (SELECT DISTINCT unnest($1::text[]) COLLATE \"C\" AS name) names
    CROSS JOIN LATERAL (
        SELECT position, stream, version, event_id, event_type, schema, recorded_at, actor, correlation_id,
            causation_id, facts, content, salt, commitment, leaf_hash
        FROM events
        WHERE split_part(stream, '-', 1) = names.name AND position > $2 AND position <= $3
        ORDER BY position LIMIT $4
    ) e
    ORDER BY e.position LIMIT $4";

/// As [`BY_CATEGORY`], by type; categories, where there are some, are checked at each event found.
const BY_TYPE: &str = "SELECT e.* FROM (SELECT DISTINCT unnest($1::text[]) COLLATE \"C\" AS name) names
    CROSS JOIN LATERAL (
        SELECT position, stream, version, event_id, event_type, schema, recorded_at, actor, correlation_id,
            causation_id, facts, content, salt, commitment, leaf_hash
        FROM events
        WHERE event_type = names.name AND position > $2 AND position <= $3
            AND (cardinality($5::text[]) = 0 OR split_part(stream, '-', 1) = ANY ($5))
        ORDER BY position LIMIT $4
    ) e
    ORDER BY e.position LIMIT $4";

async fn filtered(
    pool: &PgPool,
    after: u64,
    head: u64,
    limit: u32,
    filter: &Filter,
) -> Result<Vec<Recorded>, LogError> {
    let by_type = !filter.event_types.is_empty();
    let (sql, names) = if by_type { (BY_TYPE, &filter.event_types) } else { (BY_CATEGORY, &filter.categories) };
    let mut query = sqlx::query(sql).bind(names).bind(signed(after)).bind(signed(head)).bind(i64::from(limit));
    if by_type {
        query = query.bind(&filter.categories);
    }
    all_recorded(&query.fetch_all(pool).await.map_err(|e| failed("read the ledger", &e))?)
}

pub(super) async fn event(pool: &PgPool, event_id: Uuid) -> Result<Option<Recorded>, LogError> {
    const SQL: &str = concat!(select!("WHERE event_id = $1 AND position <= "), durable!());
    let row = sqlx::query(SQL).bind(event_id).fetch_optional(pool).await;
    let row = row.map_err(|e| failed("read an event", &e))?;
    Ok(all_recorded(row.as_slice())?.pop())
}

pub(super) async fn head(pool: &PgPool) -> Result<u64, LogError> {
    Ok(head_event(pool).await?.map_or(0, |(position, _)| position))
}

/// Position and leaf hash of the last event that is durable.
pub(super) async fn head_event(pool: &PgPool) -> Result<Option<(u64, [u8; 32])>, LogError> {
    last(pool).await.map_err(|e| failed("read the head", &e))
}

pub(super) async fn last(database: impl PgExecutor<'_>) -> Result<Option<(u64, [u8; 32])>, sqlx::Error> {
    const SQL: &str = concat!(
        "SELECT position, leaf_hash FROM events WHERE position <= ",
        durable!(),
        " ORDER BY position DESC LIMIT 1"
    );
    sqlx::query(SQL).fetch_optional(database).await?.as_ref().map(position_and_hash).transpose()
}

/// Whether there is a commit above the durable mark.
pub(super) async fn is_unflushed(pool: &PgPool) -> Result<bool, LogError> {
    const SQL: &str = concat!("SELECT coalesce(max(position) > ", durable!(), ", false) FROM events");
    let row = sqlx::query(SQL).fetch_one(pool).await;
    row.and_then(|row| row.try_get(0)).map_err(|e| failed("read the head", &e))
}

/// The leaf hash of the event at a position, durable or not.
pub(super) async fn leaf_at(connection: &mut PgConnection, position: u64) -> Result<Option<[u8; 32]>, sqlx::Error> {
    let row = sqlx::query("SELECT leaf_hash FROM events WHERE position = $1").bind(signed(position));
    row.fetch_optional(connection).await?.map(|row| row.try_get(0).and_then(array)).transpose()
}

pub(super) async fn store_time(pool: &PgPool) -> Result<Micros, LogError> {
    let row = sqlx::query("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint").fetch_one(pool).await;
    row.and_then(|row| row.try_get(0)).map(Micros).map_err(|e| failed("read the clock", &e))
}

pub(super) async fn find_key(pool: &PgPool, key_hash: &[u8; 32]) -> Result<Option<(u64, [u8; 32])>, LogError> {
    const SQL: &str =
        concat!("SELECT first_position, digest FROM ledger_key WHERE key_hash = $1 AND first_position <= ", durable!());
    let row = sqlx::query(SQL).bind(key_hash.as_slice()).fetch_optional(pool).await;
    row.and_then(|row| row.as_ref().map(position_and_hash).transpose()).map_err(|e| failed("find a key", &e))
}

pub(super) async fn keys_between(pool: &PgPool, first: u64, last: u64) -> Result<Vec<(u64, [u8; 32])>, LogError> {
    const SQL: &str = concat!(
        "SELECT first_position, key_hash FROM ledger_key WHERE first_position BETWEEN $1 AND $2
            AND first_position <= ",
        durable!(),
        " ORDER BY 1, 2"
    );
    let rows = sqlx::query(SQL).bind(signed(first)).bind(signed(last)).fetch_all(pool).await;
    rows.and_then(|rows| rows.iter().map(position_and_hash).collect()).map_err(|e| failed("read keys", &e))
}

/// The first of these whose event id stands at a lower position too.
pub(super) async fn repeated_event(pool: &PgPool, events: Vec<(u64, Uuid)>) -> Result<Option<u64>, LogError> {
    let (positions, ids): (Vec<i64>, Vec<Uuid>) =
        events.into_iter().map(|(position, id)| (signed(position), id)).unzip();
    let row = sqlx::query(
        "SELECT min(asked.position) FROM unnest($1::bigint[], $2::uuid[]) AS asked (position, id)
         WHERE EXISTS (SELECT FROM events e WHERE e.event_id = asked.id AND e.position < asked.position)",
    )
    .bind(positions)
    .bind(ids)
    .fetch_one(pool)
    .await;
    let position: Option<i64> = row.and_then(|row| row.try_get(0)).map_err(|e| failed("read event ids", &e))?;
    Ok(position.map(i64::unsigned_abs))
}

pub(super) async fn notify(pool: &PgPool, position: u64) -> Result<(), LogError> {
    // A notification takes a transaction id, and a commit that nobody has to wait for.
    let told = sqlx::query("SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2)")
        .bind(CHANNEL)
        .bind(position.to_string())
        .execute(pool)
        .await;
    told.map(drop).map_err(|e| failed("tell other processes", &e))
}

pub(super) async fn durability(pool: &PgPool) -> Result<Vec<Risk>, LogError> {
    let row = sqlx::query(
        "SELECT current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_commit'),
            current_setting('synchronous_standby_names')",
    )
    .fetch_one(pool)
    .await
    .map_err(|e| failed("read the settings", &e))?;
    let setting = |column: usize| row.try_get::<String, _>(column).map_err(|e| failed("read the settings", &e));
    let mut risks = Vec::new();
    let mut risk = |refused, sentence: &str| risks.push(Risk { sentence: sentence.to_owned(), refused });
    if setting(0)? != "on" {
        risk(true, "fsync is off: a power cut can lose or damage what was acknowledged; switch it on");
    }
    if setting(1)? != "on" {
        risk(true, "full_page_writes is off: a power cut can damage the ledger; switch it on");
    }
    if setting(2)? == "off" {
        risk(
            false,
            "synchronous_commit is off: what others write to this database can be lost; the ledger sets its own",
        );
    }
    if setting(3)?.is_empty() {
        risk(false, "there is no synchronous standby: a failover can lose what was acknowledged");
    }
    Ok(risks)
}

/// Old versions of events' rows that no `VACUUM` has removed: of those that were erased, with what they said.
pub(super) async fn unvacuumed(pool: &PgPool) -> Result<u64, LogError> {
    let row = sqlx::query("SELECT n_dead_tup FROM pg_stat_user_tables WHERE relid = 'events'::regclass");
    let rows: Result<i64, _> = row.fetch_one(pool).await.and_then(|row| row.try_get(0));
    rows.map(i64::unsigned_abs).map_err(|e| failed("read the statistics", &e))
}

/// What PostgreSQL takes: no position or version reaches its limit.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn position_and_hash(row: &PgRow) -> Result<(u64, [u8; 32]), sqlx::Error> {
    Ok((row.try_get::<i64, _>(0)?.unsigned_abs(), row.try_get(1).and_then(array)?))
}

fn all_recorded(rows: &[PgRow]) -> Result<Vec<Recorded>, LogError> {
    rows.iter().map(|row| recorded(row).map_err(|error| damaged(row, &error))).collect()
}

fn damaged(row: &PgRow, error: &sqlx::Error) -> LogError {
    LogError::Corrupt {
        position: row.try_get::<i64, _>(0).unwrap_or_default().unsigned_abs(),
        reason: error.to_string(),
    }
}

pub(super) fn recorded(row: &PgRow) -> Result<Recorded, sqlx::Error> {
    let schema: i32 = row.try_get(5)?;
    Ok(Recorded {
        position: row.try_get::<i64, _>(0)?.unsigned_abs(),
        stream: StreamName::stored(row.try_get(1)?),
        version: row.try_get::<i64, _>(2)?.unsigned_abs(),
        event_id: row.try_get(3)?,
        event_type: row.try_get(4)?,
        schema: u16::try_from(schema).map_err(|error| sqlx::Error::Decode(Box::new(error)))?,
        recorded_at: Micros(row.try_get(6)?),
        actor: row.try_get(7)?,
        correlation_id: row.try_get(8)?,
        causation_id: row.try_get(9)?,
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
