//! What a stream folded to at one of its versions, kept so that a long stream need not be read from its first event.
//!
//! Not history: it can all be deleted at any time, and nothing in it is believed before the event it names is found at
//! its place in the stream. What the bytes mean, and who sealed them, the ledger does not know. Who opened the ledger to
//! read finds none, and folds from the first event.
//!
//! On SQLite it lies in a file of its own, `<ledger>-snapshots`, which costs no flush.

use std::{path::PathBuf, time::Duration};

use midwatch_events::StreamName;
use sqlx::{
    ConnectOptions as _, Row, SqlitePool,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};
use uuid::Uuid;

use crate::{
    log::{Log, LogError, Open, Pending},
    postgres,
    sqlite::SqliteLog,
};

/// A state, and what it rests on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The version up to which it was folded.
    pub version: u64,
    /// The event at that version: a stream that has another one there is not the stream that was folded.
    pub event_id: Uuid,
    /// Over all of it, by somebody who had the deployment's key.
    pub seal: [u8; 32],
    /// The state's bytes.
    pub state: Vec<u8>,
}

/// The newest snapshot of a stream that was folded by this version of its fold.
///
/// # Errors
/// [`LogError`]. Whoever asks can fold from the first event instead.
pub fn read<'a>(log: &'a Log, stream: &'a StreamName, fold: u32) -> Pending<'a, Option<Snapshot>> {
    Box::pin(async move {
        match log {
            Log::Sqlite(log) => {
                let Some(snapshots) = snapshots(log).await? else { return Ok(None) };
                let row = sqlx::query(
                    "SELECT version, event_id, seal, state FROM stream_snapshot WHERE stream = ? AND fold = ?",
                )
                .bind(stream.as_str())
                .bind(fold)
                .fetch_optional(snapshots)
                .await;
                let read = row.and_then(|row| row.map(|row| snapshot(&row)).transpose());
                read.map_err(|e| failed("read a snapshot", &e))
            }
            Log::Postgres(log) if log.mode() == Open::ReadOnly => Ok(None),
            Log::Postgres(log) => {
                let row = sqlx::query(
                    "SELECT version, event_id, seal, state FROM stream_snapshot WHERE stream = $1 AND fold = $2",
                )
                .bind(stream.as_str())
                .bind(i64::from(fold))
                .fetch_optional(log.pool())
                .await;
                let read = row.and_then(|row| row.map(|row| snapshot(&row)).transpose());
                read.map_err(|e| postgres::failed("read a snapshot", &e))
            }
            #[cfg(any(test, feature = "testing"))]
            Log::Simulated(log) => {
                let kept = (stream.clone(), fold);
                let find = move |state: &mut crate::simulated::State| Ok(state.snapshots.get(&kept).cloned());
                log.ask(crate::simulated::Operation::Look, find).await
            }
        }
    })
}

/// The newest snapshots of many streams, as by [`read`]; a stream that has none is left out. On PostgreSQL one statement.
///
/// # Errors
/// [`LogError`]. Whoever asks can fold from the first events instead.
pub fn read_many<'a>(log: &'a Log, streams: &'a [StreamName], fold: u32) -> Pending<'a, Vec<(StreamName, Snapshot)>> {
    Box::pin(async move {
        let mut found = Vec::new();
        match log {
            Log::Postgres(log) if log.mode() == Open::ReadOnly => {}
            Log::Postgres(log) => {
                let names: Vec<&str> = streams.iter().map(StreamName::as_str).collect();
                let rows = sqlx::query(
                "SELECT version, event_id, seal, state, stream FROM stream_snapshot WHERE stream = ANY ($1) AND fold = $2",
            )
            .bind(names)
            .bind(i64::from(fold))
            .fetch_all(log.pool())
            .await
            .map_err(|e| postgres::failed("read snapshots", &e))?;
                for row in &rows {
                    let stream = row.try_get(4).map_err(|e| postgres::failed("read snapshots", &e))?;
                    let kept = snapshot(row).map_err(|e| postgres::failed("read snapshots", &e))?;
                    found.push((StreamName::stored(stream), kept));
                }
            }
            other => {
                for stream in streams {
                    found.extend(read(other, stream, fold).await?.map(|kept| (stream.clone(), kept)));
                }
            }
        }
        Ok(found)
    })
}

/// Keeps a snapshot in place of an older one of the same fold; those of older folds go.
///
/// # Errors
/// [`LogError`]. Nothing is lost but time.
pub fn write<'a>(log: &'a Log, stream: &'a StreamName, fold: u32, kept: &'a Snapshot) -> Pending<'a, ()> {
    Box::pin(async move {
        let version = i64::try_from(kept.version).unwrap_or(i64::MAX);
        match log {
            Log::Sqlite(log) => {
                let Some(snapshots) = snapshots(log).await? else { return Ok(()) };
                let insert = "INSERT INTO stream_snapshot (stream, fold, version, event_id, seal, state)
                VALUES (?, ?, ?, ?, ?, ?)
                ON CONFLICT (stream, fold) DO UPDATE SET version = excluded.version, event_id = excluded.event_id,
                    seal = excluded.seal, state = excluded.state";
                let insert = sqlx::query(insert).bind(stream.as_str()).bind(fold).bind(version);
                let insert = insert.bind(kept.event_id).bind(kept.seal.as_slice()).bind(&kept.state);
                let older = sqlx::query("DELETE FROM stream_snapshot WHERE stream = ? AND fold < ?");
                let older = older.bind(stream.as_str()).bind(fold);
                let written = async {
                    insert.execute(snapshots).await?;
                    older.execute(snapshots).await
                };
                written.await.map(drop).map_err(|e| failed("keep a snapshot", &e))
            }
            Log::Postgres(log) if log.mode() == Open::ReadOnly => Ok(()),
            Log::Postgres(log) => {
                // Nobody waits for the disk for what can be thrown away.
                let insert = "WITH off AS (SELECT set_config('synchronous_commit', 'off', true)),
                older AS (DELETE FROM stream_snapshot WHERE stream = $1 AND fold < $2)
                INSERT INTO stream_snapshot (stream, fold, version, event_id, seal, state)
                SELECT $1, $2, $3, $4, $5, $6 FROM off
                ON CONFLICT (stream, fold) DO UPDATE SET version = excluded.version, event_id = excluded.event_id,
                    seal = excluded.seal, state = excluded.state";
                let insert = sqlx::query(insert).bind(stream.as_str()).bind(i64::from(fold)).bind(version);
                let insert = insert.bind(kept.event_id).bind(kept.seal.as_slice()).bind(&kept.state);
                let written = insert.execute(log.pool()).await;
                written.map(drop).map_err(|e| postgres::failed("keep a snapshot", &e))
            }
            #[cfg(any(test, feature = "testing"))]
            Log::Simulated(log) => {
                let (place, kept) = ((stream.clone(), fold), kept.clone());
                let keep = move |state: &mut crate::simulated::State| {
                    state.snapshots.retain(|(stream, older), _| *stream != place.0 || *older >= fold);
                    state.snapshots.insert(place.clone(), kept.clone());
                    Ok(())
                };
                log.change("keep a snapshot", keep).await
            }
        }
    })
}

fn snapshot<'r, R>(row: &'r R) -> Result<Snapshot, sqlx::Error>
where
    R: Row,
    usize: sqlx::ColumnIndex<R>,
    i64: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,
    Uuid: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,
    Vec<u8>: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,
{
    let seal: Vec<u8> = row.try_get(2)?;
    Ok(Snapshot {
        version: row.try_get::<i64, _>(0)?.unsigned_abs(),
        event_id: row.try_get(1)?,
        seal: seal.try_into().map_err(|_| sqlx::Error::Decode("a seal is 32 bytes".into()))?,
        state: row.try_get(3)?,
    })
}

/// The file's connection; none for who only reads.
async fn snapshots(log: &SqliteLog) -> Result<Option<&SqlitePool>, LogError> {
    if log.mode() == Open::ReadOnly {
        return Ok(None);
    }
    let mut file = log.path().as_os_str().to_owned();
    file.push("-snapshots");
    let opened = log.snapshot_pool().get_or_try_init(|| async {
        let options = SqliteConnectOptions::new()
            .filename(PathBuf::from(file))
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Normal)
            .busy_timeout(Duration::from_secs(5))
            .disable_statement_logging();
        let pool = SqlitePoolOptions::new().max_connections(1).connect_with(options).await?;
        sqlx::query(
            "CREATE TABLE IF NOT EXISTS stream_snapshot (
                stream TEXT NOT NULL, fold INTEGER NOT NULL, version INTEGER NOT NULL, event_id BLOB NOT NULL,
                seal BLOB NOT NULL, state BLOB NOT NULL, PRIMARY KEY (stream, fold)
            ) STRICT, WITHOUT ROWID",
        )
        .execute(&pool)
        .await?;
        Ok(pool)
    });
    opened.await.map(Some).map_err(|e: sqlx::Error| failed("open the snapshots", &e))
}

/// What SQLite said of the lease file.
fn failed(operation: &'static str, error: &sqlx::Error) -> LogError {
    LogError::Unavailable { operation, reason: error.to_string() }
}
