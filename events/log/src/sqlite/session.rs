//! The one connection that appends.

use std::{collections::HashMap, path::PathBuf, sync::Arc};

use midwatch_events::{Micros, Recorded, StreamName};
use sqlx::{AssertSqlSafe, Row as _, SqliteConnection, sqlite::SqliteRow};
use tokio::sync::{Mutex, OwnedMutexGuard};
use uuid::Uuid;

use super::{
    files,
    read::{self, select, signed},
};
use crate::{
    judge::{Head, KnownKey, NewKey},
    known::{GAP, Passed},
    log::LogError,
    session::Fault,
};

/// Rows or names per statement: few shapes, so that each is prepared once. The largest stays below SQLite's 32,766
/// parameters.
const SHAPES: [usize; 3] = [256, 16, 1];

/// The writing connection, held from `begin` to the end of the transaction.
#[derive(Debug)]
pub(crate) struct SqliteSession {
    path: PathBuf,
    pen: Arc<Mutex<Option<SqliteConnection>>>,
    held: Option<OwnedMutexGuard<Option<SqliteConnection>>>,
    is_new: bool,
    has_erased: bool,
}

impl SqliteSession {
    pub(crate) fn new(path: PathBuf, pen: Arc<Mutex<Option<SqliteConnection>>>) -> Self {
        Self { path, pen, held: None, is_new: false, has_erased: false }
    }

    fn connection(&mut self) -> Result<&mut SqliteConnection, Fault> {
        let lost = || Fault::Lost(LogError::Unavailable { operation: "append", reason: "no connection".to_owned() });
        self.held.as_mut().and_then(|held| held.as_mut()).ok_or_else(lost)
    }

    pub(crate) async fn begin(&mut self) -> Result<Head, Fault> {
        let mut held = Arc::clone(&self.pen).lock_owned().await;
        self.is_new = held.is_none();
        if self.is_new {
            *held = Some(files::open_again(&self.path).await.map_err(Fault::Lost)?);
        }
        self.held = Some(held);
        self.head().await.map_err(|error| self.fault(&error))
    }

    async fn head(&mut self) -> Result<Head, sqlx::Error> {
        let Ok(connection) = self.connection() else { return Err(sqlx::Error::WorkerCrashed) };
        files::begin(connection).await?;
        let row = sqlx::query(
            "SELECT CAST(round(unixepoch('subsec') * 1000000) AS INTEGER), position, recorded_at, leaf_hash
             FROM (SELECT 1) LEFT JOIN (SELECT position, recorded_at, leaf_hash FROM events ORDER BY position DESC LIMIT 1)",
        )
        .fetch_one(connection)
        .await?;
        Ok(Head {
            clock: Micros(row.try_get(0)?),
            position: row.try_get::<Option<i64>, _>(1)?.unwrap_or_default().unsigned_abs(),
            recorded_at: Micros(row.try_get::<Option<i64>, _>(2)?.unwrap_or_default()),
            leaf_hash: row.try_get::<Option<&[u8]>, _>(3)?.map(read::array).transpose()?,
        })
    }

    pub(crate) async fn versions(&mut self, streams: &[&StreamName]) -> Result<HashMap<StreamName, u64>, Fault> {
        let mut versions = HashMap::with_capacity(streams.len());
        for part in shaped(streams) {
            let sql = format!(
                "SELECT column1, (SELECT max(version) FROM events WHERE stream = column1) FROM (VALUES (?){})",
                ", (?)".repeat(part.len() - 1)
            );
            let query = part.iter().fold(sqlx::query(AssertSqlSafe(sql)), |query, stream| query.bind(stream.as_str()));
            let rows = query.fetch_all(self.connection()?).await.map_err(|error| self.fault(&error))?;
            for row in rows {
                let (stream, version) = stream_and_version(&row).map_err(|error| self.fault(&error))?;
                versions.insert(stream, version);
            }
        }
        Ok(versions)
    }

    pub(crate) async fn passed(&mut self, from: u64) -> Result<Vec<Passed>, Fault> {
        const SQL: &str =
            "SELECT position, leaf_hash, stream, version FROM events WHERE position >= ? ORDER BY position LIMIT ?";
        let query = sqlx::query(SQL).bind(signed(from)).bind(signed(GAP + 1));
        let rows = query.fetch_all(self.connection()?).await.map_err(|error| self.fault(&error))?;
        rows.iter().map(passed).collect::<Result<_, _>>().map_err(|error| self.fault(&error))
    }

    pub(crate) async fn keys(&mut self, hashes: &[[u8; 32]]) -> Result<HashMap<[u8; 32], KnownKey>, Fault> {
        let mut keys = HashMap::new();
        for part in shaped(hashes) {
            let sql = format!(
                "SELECT key_hash, digest, first_position, count, recorded_at
                 FROM ledger_key JOIN events ON position = first_position WHERE key_hash IN (?{})",
                ", ?".repeat(part.len() - 1)
            );
            let query = part.iter().fold(sqlx::query(AssertSqlSafe(sql)), |query, hash| query.bind(hash.as_slice()));
            let rows = query.fetch_all(self.connection()?).await.map_err(|error| self.fault(&error))?;
            for row in rows {
                let (hash, known) = key(&row).map_err(|error| self.fault(&error))?;
                keys.insert(hash, known);
            }
        }
        Ok(keys)
    }

    pub(crate) async fn events(&mut self, ids: &[Uuid]) -> Result<HashMap<Uuid, Recorded>, Fault> {
        let mut events = HashMap::new();
        for part in shaped(ids) {
            let sql = format!("{} event_id IN (?{})", select!("WHERE"), ", ?".repeat(part.len() - 1));
            let query = part.iter().fold(sqlx::query(AssertSqlSafe(sql)), |query, id| query.bind(*id));
            let rows = query.fetch_all(self.connection()?).await.map_err(|error| self.fault(&error))?;
            for row in rows {
                let event = read::recorded(&row).map_err(|error| self.fault(&error))?;
                events.insert(event.event_id, event);
            }
        }
        Ok(events)
    }

    pub(crate) async fn insert(&mut self, rows: &[Recorded], keys: &[NewKey]) -> Result<(), Fault> {
        self.insert_all(rows, keys).await.map_err(|error| self.fault(&error))
    }

    async fn insert_all(&mut self, rows: &[Recorded], keys: &[NewKey]) -> Result<(), sqlx::Error> {
        let Ok(connection) = self.connection() else { return Err(sqlx::Error::WorkerCrashed) };
        for part in shaped(rows) {
            let row = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
            let sql = format!(
                "INSERT INTO events (position, stream, version, event_id, event_type, schema, recorded_at, actor,
                 correlation_id, causation_id, facts, content, salt, commitment, leaf_hash) VALUES {row}{}",
                format!(", {row}").repeat(part.len() - 1)
            );
            let mut query = sqlx::query(AssertSqlSafe(sql));
            for event in part {
                query = query
                    .bind(signed(event.position))
                    .bind(event.stream.as_str())
                    .bind(signed(event.version))
                    .bind(event.event_id)
                    .bind(event.event_type.as_str())
                    .bind(event.schema)
                    .bind(event.recorded_at.0)
                    .bind(event.actor.as_str())
                    .bind(event.correlation_id.as_deref())
                    .bind(event.causation_id)
                    .bind(event.facts.as_slice())
                    .bind(event.content.as_deref())
                    .bind(event.salt.as_ref().map(<[u8; 16]>::as_slice))
                    .bind(event.commitment.as_ref().map(<[u8; 32]>::as_slice))
                    .bind(event.leaf_hash.as_slice());
            }
            query.execute(&mut *connection).await?;
        }
        for part in shaped(keys) {
            let sql = format!(
                "INSERT INTO ledger_key (key_hash, digest, first_position, count) VALUES (?, ?, ?, ?){}",
                ", (?, ?, ?, ?)".repeat(part.len() - 1)
            );
            let mut query = sqlx::query(AssertSqlSafe(sql));
            for key in part {
                query = query.bind(key.hash.as_slice()).bind(key.digest.as_slice());
                query = query.bind(signed(key.first)).bind(signed(key.count));
            }
            query.execute(&mut *connection).await?;
        }
        Ok(())
    }

    pub(crate) fn is_new(&self) -> bool {
        self.is_new
    }

    pub(crate) async fn leaf_at(&mut self, position: u64) -> Result<Option<[u8; 32]>, Fault> {
        let query = sqlx::query("SELECT leaf_hash FROM events WHERE position = ?").bind(signed(position));
        let row = query.fetch_optional(self.connection()?).await.map_err(|error| self.fault(&error))?;
        let leaf = row.map(|row| row.try_get(0).and_then(read::array)).transpose();
        leaf.map_err(|error| self.fault(&error))
    }

    pub(crate) async fn erase(&mut self, positions: &[u64]) -> Result<u64, Fault> {
        let mut erased = 0;
        for part in shaped(positions) {
            let sql = format!(
                "UPDATE events SET content = NULL, salt = NULL WHERE position IN (?{}) AND content IS NOT NULL",
                ", ?".repeat(part.len() - 1)
            );
            let query =
                part.iter().fold(sqlx::query(AssertSqlSafe(sql)), |query, position| query.bind(signed(*position)));
            let done = query.execute(self.connection()?).await.map_err(|error| self.fault(&error))?;
            erased += done.rows_affected();
        }
        self.has_erased = erased > 0;
        Ok(erased)
    }

    /// Takes the erased words out of the WAL too. Who reads just now keeps them there until the next time that the WAL
    /// is folded into the file; nobody waits for that.
    async fn truncate_wal(&mut self) {
        if std::mem::take(&mut self.has_erased)
            && let Ok(connection) = self.connection()
        {
            let truncate = "PRAGMA busy_timeout = 200; PRAGMA wal_checkpoint(TRUNCATE); PRAGMA busy_timeout = 5";
            if let Err(error) = sqlx::raw_sql(truncate).execute(connection).await {
                tracing::warn!(%error, "what was erased is still in the write-ahead log");
            }
        }
    }

    /// One file has one writer at a time, which flushes under the lock: what is committed is durable.
    pub(crate) async fn finish(&mut self, wrote: bool) -> Result<bool, Fault> {
        if wrote {
            self.commit().await?;
        } else {
            self.roll_back().await;
        }
        Ok(true)
    }

    async fn commit(&mut self) -> Result<(), Fault> {
        if let Err(error) = sqlx::query("COMMIT").execute(self.connection()?).await {
            die_of_failed_fsync(&error);
            let said = files::fault(&self.path, "commit", &error);
            // Whatever else goes wrong with the disk comes before the flush that makes it stand.
            return Err(match files::primary_code(&error) {
                Some(files::DISK_FULL | files::IO_FAILED) => Fault::Lost(said),
                _ => Fault::Unknown(said),
            });
        }
        self.truncate_wal().await;
        self.held = None;
        Ok(())
    }

    pub(crate) async fn roll_back(&mut self) {
        if let Ok(connection) = self.connection()
            && sqlx::query("ROLLBACK").execute(connection).await.is_err()
        {
            self.drop_connection().await;
        }
        self.held = None;
    }

    pub(crate) async fn drop_connection(&mut self) {
        if let Some(mut held) = self.held.take() {
            // Dropping it closes the file, and with it an open transaction.
            *held = None;
        }
    }

    fn fault(&self, error: &sqlx::Error) -> Fault {
        let said = files::fault(&self.path, "append", error);
        // Too big, a constraint, a wrong type: it is the rows, not the file.
        match files::primary_code(error) {
            Some(18..=20) => Fault::Refused(said),
            _ => Fault::Lost(said),
        }
    }
}

/// After a failed flush the kernel may have dropped what was to be written and say "flushed" the next time; only the
/// file itself can be trusted, and reading it anew.
fn die_of_failed_fsync(error: &sqlx::Error) {
    const IOERR_FSYNC: u32 = 10 | 4 << 8;
    const IOERR_DIR_FSYNC: u32 = 10 | 5 << 8;
    if matches!(files::extended_code(error), Some(IOERR_FSYNC | IOERR_DIR_FSYNC)) {
        tracing::error!(%error, "the disk did not flush the ledger; this process ends, start it again");
        std::process::abort();
    }
}

/// Cuts into parts whose lengths are [`SHAPES`].
fn shaped<T>(mut items: &[T]) -> impl Iterator<Item = &[T]> {
    std::iter::from_fn(move || {
        let shape = SHAPES.into_iter().find(|shape| *shape <= items.len())?;
        let (part, rest) = items.split_at(shape);
        items = rest;
        Some(part)
    })
}

fn stream_and_version(row: &SqliteRow) -> Result<(StreamName, u64), sqlx::Error> {
    let version = row.try_get::<Option<i64>, _>(1)?.unwrap_or_default();
    Ok((StreamName::stored(row.try_get(0)?), version.unsigned_abs()))
}

fn passed(row: &SqliteRow) -> Result<Passed, sqlx::Error> {
    let (position, leaf_hash) = read::position_and_hash(row)?;
    Ok((position, leaf_hash, StreamName::stored(row.try_get(2)?), row.try_get::<i64, _>(3)?.unsigned_abs()))
}

fn key(row: &SqliteRow) -> Result<([u8; 32], KnownKey), sqlx::Error> {
    let known = KnownKey {
        digest: row.try_get(1).and_then(read::array)?,
        first: row.try_get::<i64, _>(2)?.unsigned_abs(),
        count: row.try_get::<i64, _>(3)?.unsigned_abs(),
        recorded_at: Micros(row.try_get(4)?),
    };
    Ok((row.try_get(0).and_then(read::array)?, known))
}
