//! The one connection that appends.

use std::{collections::HashMap, path::PathBuf, sync::Arc};

use midwatch_events::{Micros, Recorded, StreamName};
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use tokio::{
    sync::{Mutex, OwnedMutexGuard},
    time::Instant,
};
use uuid::Uuid;

use super::{
    blocking, files,
    read::{self, select, signed},
};
use crate::{
    judge::{Head, KnownKey, NewKey},
    known::{GAP, Passed},
    log::LogError,
    session::Fault,
};

/// The connection that writes; empty while it is to be opened again.
pub(crate) type Pen = Arc<Mutex<Option<Connection>>>;

/// Takes the lock of the only writer, at once: a read that turns into a write later may find it has no way on.
const BEGIN: &str = "BEGIN IMMEDIATE";

const HEAD: &str = "SELECT CAST(round(unixepoch('subsec') * 1000000) AS INTEGER), position, recorded_at, leaf_hash
    FROM (SELECT 1) LEFT JOIN (SELECT position, recorded_at, leaf_hash FROM events ORDER BY position DESC LIMIT 1)";

const PASSED: &str =
    "SELECT position, leaf_hash, stream, version, event_id FROM events WHERE position >= ? ORDER BY position LIMIT ?";

const KEY: &str = "SELECT key_hash, digest, first_position, count, recorded_at
    FROM ledger_key JOIN events ON position = first_position WHERE key_hash = ?";

const INSERT: &str = "INSERT INTO events (position, stream, version, event_id, event_type, schema, recorded_at, actor,
    correlation_id, causation_id, facts, content, salt, commitment, leaf_hash)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";

const INSERT_KEY: &str = "INSERT INTO ledger_key (key_hash, digest, first_position, count) VALUES (?, ?, ?, ?)";

const ERASE: &str = "UPDATE events SET content = NULL, salt = NULL WHERE position = ? AND content IS NOT NULL";

/// Takes the erased words out of the WAL too.
const TRUNCATE: &str = "PRAGMA busy_timeout = 200; PRAGMA wal_checkpoint(TRUNCATE); PRAGMA busy_timeout = 5";

/// The writing connection, held from `begin` to the end of the transaction.
#[derive(Debug)]
pub(crate) struct SqliteSession {
    path: PathBuf,
    pen: Pen,
    held: Option<OwnedMutexGuard<Option<Connection>>>,
    is_new: bool,
    has_erased: bool,
}

impl SqliteSession {
    pub(crate) fn new(path: PathBuf, pen: Pen) -> Self {
        Self { path, pen, held: None, is_new: false, has_erased: false }
    }

    /// One step of a transaction, on a thread that may wait for the disk.
    async fn step<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, Fault> {
        match self.tried(work).await? {
            Ok(done) => Ok(done),
            Err(error) => Err(self.fault(&error)),
        }
    }

    /// As [`Self::step`], with what SQLite said.
    async fn tried<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<rusqlite::Result<T>, Fault> {
        let lost = |reason: String| Fault::Lost(LogError::Unavailable { operation: "append", reason });
        let held = self.held.as_mut().ok_or_else(|| lost("no connection".to_owned()))?;
        let mut connection = held.take().ok_or_else(|| lost("no connection".to_owned()))?;
        let done = blocking(move || {
            let done = work(&mut connection);
            (connection, done)
        });
        let (connection, done) = done.await.map_err(|error| lost(error.to_string()))?;
        **held = Some(connection);
        Ok(done)
    }

    pub(crate) async fn begin(&mut self) -> Result<Head, Fault> {
        let mut held = Arc::clone(&self.pen).lock_owned().await;
        self.is_new = held.is_none();
        if self.is_new {
            let path = self.path.clone();
            let opened = blocking(move || files::open_again(&path)).await;
            *held = Some(opened.unwrap_or_else(|error| Err(stopped(&error))).map_err(Fault::Lost)?);
        }
        self.held = Some(held);
        let begun = Instant::now();
        loop {
            let found = self.tried(|connection| {
                connection.prepare_cached(BEGIN)?.execute([])?;
                connection.prepare_cached(HEAD)?.query_row([], head)
            });
            match found.await? {
                Ok(head) => return Ok(head),
                Err(error)
                    if files::primary_code(&error) == Some(files::BUSY_CODE) && begun.elapsed() < files::BUSY => {}
                Err(error) => return Err(self.fault(&error)),
            }
        }
    }

    pub(crate) async fn versions(&mut self, streams: &[&StreamName]) -> Result<HashMap<StreamName, u64>, Fault> {
        let streams: Vec<StreamName> = streams.iter().map(|stream| (*stream).clone()).collect();
        self.step(|connection| versions(connection, streams)).await
    }

    pub(crate) async fn versions_and_keys(
        &mut self,
        streams: &[&StreamName],
        hashes: &[[u8; 32]],
    ) -> Result<(HashMap<StreamName, u64>, HashMap<[u8; 32], KnownKey>), Fault> {
        let streams: Vec<StreamName> = streams.iter().map(|stream| (*stream).clone()).collect();
        let hashes = hashes.to_vec();
        self.step(move |connection| Ok((versions(connection, streams)?, keys(connection, &hashes)?))).await
    }

    pub(crate) async fn passed(&mut self, from: u64) -> Result<Vec<Passed>, Fault> {
        let work = move |connection: &mut Connection| {
            let mut statement = connection.prepare_cached(PASSED)?;
            let rows = statement.query_map([signed(from), signed(GAP + 1)], passed)?;
            rows.collect::<rusqlite::Result<Vec<_>>>()
        };
        self.step(work).await
    }

    pub(crate) async fn keys(&mut self, hashes: &[[u8; 32]]) -> Result<HashMap<[u8; 32], KnownKey>, Fault> {
        let hashes = hashes.to_vec();
        self.step(move |connection| keys(connection, &hashes)).await
    }

    pub(crate) async fn events(&mut self, ids: &[Uuid]) -> Result<HashMap<Uuid, Recorded>, Fault> {
        let ids = ids.to_vec();
        let work = move |connection: &mut Connection| {
            let mut statement = connection.prepare_cached(select!("WHERE event_id = ?"))?;
            let find = |id: Uuid| statement.query_row([id.as_bytes()], read::recorded).optional().transpose();
            let found = ids.into_iter().filter_map(find);
            found.map(|event| event.map(|event| (event.event_id, event))).collect::<rusqlite::Result<HashMap<_, _>>>()
        };
        self.step(work).await
    }

    pub(crate) async fn insert(&mut self, rows: Vec<Recorded>, keys: Vec<NewKey>) -> Result<(), Fault> {
        self.step(move |connection| insert(connection, &rows, &keys)).await
    }

    pub(crate) fn is_new(&self) -> bool {
        self.is_new
    }

    pub(crate) async fn leaf_at(&mut self, position: u64) -> Result<Option<[u8; 32]>, Fault> {
        let sql = "SELECT leaf_hash FROM events WHERE position = ?";
        self.step(move |connection| connection.query_row(sql, [signed(position)], |row| row.get(0)).optional()).await
    }

    pub(crate) async fn erase(&mut self, positions: &[u64]) -> Result<u64, Fault> {
        let positions = positions.to_vec();
        let work = move |connection: &mut Connection| {
            let mut statement = connection.prepare_cached(ERASE)?;
            positions.iter().try_fold(0, |erased, position| Ok(erased + statement.execute([signed(*position)])? as u64))
        };
        let erased = self.step(work).await?;
        self.has_erased = erased > 0;
        Ok(erased)
    }

    /// Who reads just now keeps the erased words in the WAL until the next time that it is folded into the file; nobody
    /// waits for that.
    async fn truncate_wal(&mut self) {
        if std::mem::take(&mut self.has_erased)
            && let Ok(Err(error)) = self.tried(|connection| connection.execute_batch(TRUNCATE)).await
        {
            tracing::warn!(%error, "what was erased is still in the write-ahead log");
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
        let committed = self.tried(|connection| connection.prepare_cached("COMMIT")?.execute([]));
        if let Err(error) = committed.await? {
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
        if !matches!(self.tried(|connection| connection.execute_batch("ROLLBACK")).await, Ok(Ok(()))) {
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

    fn fault(&self, error: &rusqlite::Error) -> Fault {
        let said = files::fault(&self.path, "append", error);
        // Too big, a constraint, a wrong type: it is the rows, not the file.
        match files::primary_code(error) {
            Some(18..=20) => Fault::Refused(said),
            _ => Fault::Lost(said),
        }
    }
}

fn stopped(error: &tokio::task::JoinError) -> LogError {
    LogError::Unavailable { operation: "open", reason: error.to_string() }
}

fn versions(connection: &Connection, streams: Vec<StreamName>) -> rusqlite::Result<HashMap<StreamName, u64>> {
    let mut version = connection.prepare_cached("SELECT max(version) FROM events WHERE stream = ?")?;
    let mut versions = HashMap::with_capacity(streams.len());
    for stream in streams {
        let found: Option<i64> = version.query_row([stream.as_str()], |row| row.get(0))?;
        versions.insert(stream, found.unwrap_or_default().unsigned_abs());
    }
    Ok(versions)
}

fn keys(connection: &Connection, hashes: &[[u8; 32]]) -> rusqlite::Result<HashMap<[u8; 32], KnownKey>> {
    let mut statement = connection.prepare_cached(KEY)?;
    let found = hashes.iter().filter_map(|hash| statement.query_row([hash], key).optional().transpose());
    found.collect()
}

fn insert(connection: &Connection, rows: &[Recorded], keys: &[NewKey]) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(INSERT)?;
    for event in rows {
        statement.execute(params![
            signed(event.position),
            event.stream.as_str(),
            signed(event.version),
            event.event_id.as_bytes(),
            event.event_type,
            event.schema,
            event.recorded_at.0,
            event.actor,
            event.correlation_id,
            event.causation_id.as_ref().map(Uuid::as_bytes),
            event.facts,
            event.content,
            event.salt,
            event.commitment,
            event.leaf_hash,
        ])?;
    }
    if keys.is_empty() {
        return Ok(());
    }
    let mut statement = connection.prepare_cached(INSERT_KEY)?;
    for key in keys {
        statement.execute(params![key.hash, key.digest, signed(key.first), signed(key.count)])?;
    }
    Ok(())
}

/// After a failed flush the kernel may have dropped what was to be written and say "flushed" the next time; only the
/// file itself can be trusted, and reading it anew.
fn die_of_failed_fsync(error: &rusqlite::Error) {
    const IOERR_FSYNC: i32 = 10 | 4 << 8;
    const IOERR_DIR_FSYNC: i32 = 10 | 5 << 8;
    if matches!(files::extended_code(error), Some(IOERR_FSYNC | IOERR_DIR_FSYNC)) {
        tracing::error!(%error, "the disk did not flush the ledger; this process ends, start it again");
        std::process::abort();
    }
}

fn head(row: &Row<'_>) -> rusqlite::Result<Head> {
    Ok(Head {
        clock: Micros(row.get(0)?),
        position: row.get::<_, Option<i64>>(1)?.unwrap_or_default().unsigned_abs(),
        recorded_at: Micros(row.get::<_, Option<i64>>(2)?.unwrap_or_default()),
        leaf_hash: row.get(3)?,
    })
}

fn passed(row: &Row<'_>) -> rusqlite::Result<Passed> {
    let (position, leaf_hash) = read::position_and_hash(row)?;
    Ok(Passed {
        position,
        leaf_hash,
        stream: StreamName::stored(row.get(2)?),
        version: row.get::<_, i64>(3)?.unsigned_abs(),
        event_id: Uuid::from_bytes(row.get(4)?),
    })
}

fn key(row: &Row<'_>) -> rusqlite::Result<([u8; 32], KnownKey)> {
    let known = KnownKey {
        digest: row.get(1)?,
        first: row.get::<_, i64>(2)?.unsigned_abs(),
        count: row.get::<_, i64>(3)?.unsigned_abs(),
        recorded_at: Micros(row.get(4)?),
    };
    Ok((row.get(0)?, known))
}
