//! Bodies that are too large for an event: rows of up to 256 KiB in the ledger's own database, under random ids.
//!
//! A blob is durable before the event that names it, because [`put`] answers after its own commit. It is no history:
//! it can expire, and then says so; its id, length and digest stay in the event.

use rusqlite::{Connection, params};
use sqlx::Row as _;
use uuid::Uuid;

use crate::{
    log::{Log, LogError, Open, Pending},
    postgres::{self, PostgresLog},
    sqlite::{self, SqliteLog},
};

/// Bytes of a chunk.
const CHUNK: usize = 256 << 10;

const READ: &str = "read a blob";

/// Keeps `bytes` under `id`, durably. The same blob under the same id is kept once.
///
/// # Errors
/// [`LogError`]; also where `id` stands for a blob of another length.
pub fn put<'a>(log: &'a Log, id: Uuid, bytes: &'a [u8]) -> Pending<'a, ()> {
    Box::pin(async move {
        match log {
            Log::Sqlite(log) => put_sqlite(log, id, bytes).await,
            Log::Postgres(log) => put_postgres(log, id, bytes).await,
            #[cfg(any(test, feature = "testing"))]
            Log::Simulated(log) => {
                let put = |state: &mut crate::simulated::State| {
                    let fresh = (bytes.len(), Some(bytes.to_vec()));
                    let (stored, _) = state.blobs.entry(id).or_insert(fresh);
                    same_length(id, bytes, i64::try_from(*stored).unwrap_or(i64::MAX))
                };
                log.change("keep a blob", put).await
            }
        }
    })
}

/// The bytes of a blob; none where there never was one, or it has expired.
///
/// # Errors
/// [`LogError`]; [`LogError::Unavailable`] where some of its chunks are missing.
pub fn get(log: &Log, id: Uuid) -> Pending<'_, Option<Vec<u8>>> {
    Box::pin(async move {
        let (length, bytes) = match log {
            Log::Sqlite(log) => {
                // One statement, so that an expiry cannot come between.
                let find = move |file: &Connection| {
                    let mut statement = file.prepare_cached(
                        "SELECT length, bytes FROM blob LEFT JOIN blob_chunk ON blob = id
                     WHERE id = ? AND expired_at IS NULL ORDER BY n",
                    )?;
                    let mut rows = statement.query([id.as_bytes()])?;
                    let mut found = None;
                    while let Some(row) = rows.next()? {
                        let (_, bytes) = found.get_or_insert((row.get::<_, i64>(0)?, Vec::new()));
                        bytes.extend_from_slice(row.get_ref(1)?.as_blob_or_null()?.unwrap_or_default());
                    }
                    Ok(found)
                };
                let found = log.readers().read(READ, move |file| find(file).map_err(sqlite::failed(READ))).await?;
                let Some(found) = found else { return Ok(None) };
                found
            }
            Log::Postgres(log) => {
                let failed = |e| postgres::failed(READ, &e);
                let rows = sqlx::query(
                    "SELECT length, bytes FROM blob LEFT JOIN blob_chunk ON blob = id
                 WHERE id = $1 AND expired_at IS NULL ORDER BY n",
                )
                .bind(id)
                .fetch_all(log.pool())
                .await
                .map_err(failed)?;
                let Some(first) = rows.first() else { return Ok(None) };
                let length: i64 = first.try_get(0).map_err(failed)?;
                let mut bytes = Vec::new();
                for row in &rows {
                    bytes.extend_from_slice(row.try_get::<Option<&[u8]>, _>(1).map_err(failed)?.unwrap_or_default());
                }
                (length, bytes)
            }
            #[cfg(any(test, feature = "testing"))]
            Log::Simulated(log) => {
                let get =
                    |state: &mut crate::simulated::State| Ok(state.blobs.get(&id).and_then(|(_, bytes)| bytes.clone()));
                return log.ask(crate::simulated::Operation::Read, get).await;
            }
        };
        if i64::try_from(bytes.len()) == Ok(length) {
            Ok(Some(bytes))
        } else {
            let reason = format!("blob {id} has {} bytes of its {length}", bytes.len());
            Err(LogError::Unavailable { operation: READ, reason })
        }
    })
}

/// Drops the bytes of a blob, durably; that there was one stays. A blob that has expired already, or never was, is left
/// as it is. On SQLite the write-ahead log holds the bytes until its next checkpoint, as after an erasure.
///
/// # Errors
/// [`LogError`].
pub fn expire(log: &Log, id: Uuid) -> Pending<'_, ()> {
    Box::pin(async move {
        match log {
            Log::Sqlite(log) => expire_sqlite(log, id).await,
            Log::Postgres(log) => expire_postgres(log, id).await,
            #[cfg(any(test, feature = "testing"))]
            Log::Simulated(log) => {
                let expire = |state: &mut crate::simulated::State| {
                    state.blobs.entry(id).and_modify(|(_, bytes)| *bytes = None);
                    Ok(())
                };
                log.change("expire a blob", expire).await
            }
        }
    })
}

async fn put_sqlite(log: &SqliteLog, id: Uuid, bytes: &[u8]) -> Result<(), LogError> {
    const KEEP: &str = "keep a blob";
    if log.mode() == Open::ReadOnly {
        return Err(read_only());
    }
    let bytes = bytes.to_vec();
    // Some length where there is one already.
    let keep = move |file: &Connection, bytes: &[u8]| {
        let made = file.execute(
            "INSERT INTO blob (id, length, created_at)
             VALUES (?, ?, CAST(round(unixepoch('subsec') * 1000000) AS INTEGER)) ON CONFLICT (id) DO NOTHING",
            params![id.as_bytes(), length(bytes)],
        )?;
        if made == 0 {
            return file.query_row("SELECT length FROM blob WHERE id = ?", [id.as_bytes()], |row| row.get(0)).map(Some);
        }
        let mut statement = file.prepare_cached("INSERT INTO blob_chunk (blob, n, bytes) VALUES (?, ?, ?)")?;
        for (n, chunk) in (0_i64..).zip(bytes.chunks(CHUNK)) {
            statement.execute(params![id.as_bytes(), n, chunk])?;
        }
        Ok(None)
    };
    log.write(KEEP, move |file| match keep(file, &bytes).map_err(sqlite::failed(KEEP))? {
        Some(stored) => same_length(id, &bytes, stored),
        None => Ok(()),
    })
    .await
}

async fn expire_sqlite(log: &SqliteLog, id: Uuid) -> Result<(), LogError> {
    const EXPIRE: &str = "expire a blob";
    if log.mode() == Open::ReadOnly {
        return Err(read_only());
    }
    let expire = move |file: &Connection| {
        let sql = "UPDATE blob SET expired_at = CAST(round(unixepoch('subsec') * 1000000) AS INTEGER)
             WHERE id = ? AND expired_at IS NULL";
        file.execute(sql, [id.as_bytes()])?;
        file.execute("DELETE FROM blob_chunk WHERE blob = ?", [id.as_bytes()]).map(drop)
    };
    log.write(EXPIRE, move |file| expire(file).map_err(sqlite::failed(EXPIRE))).await
}

async fn expire_postgres(log: &PostgresLog, id: Uuid) -> Result<(), LogError> {
    let failed = |e: sqlx::Error| postgres::failed("expire a blob", &e);
    if log.mode() == Open::ReadOnly {
        return Err(read_only());
    }
    let mut transaction = log.pool().begin().await.map_err(failed)?;
    sqlx::query(
        "UPDATE blob SET expired_at = (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
         WHERE id = $1 AND expired_at IS NULL",
    )
    .bind(id)
    .execute(&mut *transaction)
    .await
    .map_err(failed)?;
    sqlx::query("DELETE FROM blob_chunk WHERE blob = $1").bind(id).execute(&mut *transaction).await.map_err(failed)?;
    transaction.commit().await.map_err(failed)
}

async fn put_postgres(log: &PostgresLog, id: Uuid, bytes: &[u8]) -> Result<(), LogError> {
    let failed = |e: sqlx::Error| postgres::failed("keep a blob", &e);
    if log.mode() == Open::ReadOnly {
        return Err(read_only());
    }
    let mut transaction = log.pool().begin().await.map_err(failed)?;
    let made = sqlx::query(
        "INSERT INTO blob (id, length, created_at) VALUES ($1, $2, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
         ON CONFLICT (id) DO NOTHING",
    )
    .bind(id)
    .bind(length(bytes))
    .execute(&mut *transaction)
    .await
    .map_err(failed)?;
    if made.rows_affected() == 0 {
        let row = sqlx::query("SELECT length FROM blob WHERE id = $1").bind(id).fetch_one(&mut *transaction).await;
        return same_length(id, bytes, row.and_then(|row| row.try_get(0)).map_err(failed)?);
    }
    for (n, chunk) in (0_i32..).zip(bytes.chunks(CHUNK)) {
        sqlx::query("INSERT INTO blob_chunk (blob, n, bytes) VALUES ($1, $2, $3)")
            .bind(id)
            .bind(n)
            .bind(chunk)
            .execute(&mut *transaction)
            .await
            .map_err(failed)?;
    }
    transaction.commit().await.map_err(failed)
}

fn length(bytes: &[u8]) -> i64 {
    i64::try_from(bytes.len()).unwrap_or(i64::MAX)
}

fn same_length(id: Uuid, bytes: &[u8], stored: i64) -> Result<(), LogError> {
    if stored == length(bytes) {
        return Ok(());
    }
    Err(LogError::Unavailable { operation: "keep a blob", reason: format!("{id} is another blob's id") })
}

fn read_only() -> LogError {
    LogError::Unavailable { operation: "change a blob", reason: "the ledger was opened to read only".to_owned() }
}
