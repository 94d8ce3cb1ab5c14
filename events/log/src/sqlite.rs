//! The ledger in one SQLite file.
//!
//! One connection writes (WAL, `synchronous = FULL`); a small pool of read-only connections reads. Another process may
//! write too: `BEGIN IMMEDIATE` waits for it up to 30 s, and its appends are noticed through `PRAGMA data_version`.

mod files;
mod read;
mod readers;
mod session;

use std::{
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    time::Duration,
};

use midwatch_events::{Micros, Recorded, StreamName};
use rusqlite::{Connection, Transaction, TransactionBehavior};
use sqlx::SqlitePool;
use tokio::{
    sync::{Mutex, watch},
    task::{AbortHandle, JoinHandle},
    time::sleep,
};
use uuid::Uuid;

use crate::{
    append::{Append, AppendError, Submitted},
    desk::Announce,
    log::{Filter, LogError, Open},
    memory::Memory,
    metrics::Counters,
    session::Session,
    writer::Writer,
};
pub(crate) use read::failed;
pub(crate) use readers::Readers;
use session::Pen;
pub(crate) use session::SqliteSession;

/// How often other processes' appends are looked for. One look reads a page of shared memory.
const LOOK: Duration = Duration::from_millis(200);

/// A ledger in one SQLite file.
#[derive(Clone, Debug)]
pub struct SqliteLog(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    open: Open,
    /// The connection that writes; empty while it is to be opened again. Shared by appends and blobs.
    pen: Pen,
    writer: Option<Writer>,
    readers: Readers,
    to_read: files::ToRead,
    head: watch::Sender<u64>,
    memory: Arc<Memory>,
    counters: Arc<Counters>,
    tailer: OnceLock<AbortHandle>,
    leases: tokio::sync::OnceCell<SqlitePool>,
    snapshots: tokio::sync::OnceCell<SqlitePool>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(tailer) = self.tailer.get() {
            tailer.abort();
        }
    }
}

impl SqliteLog {
    pub(crate) async fn open(url: &str, open: Open) -> Result<Self, LogError> {
        let path = files::path(url)?;
        let (pen, to_read) = match open {
            Open::ReadWrite => (Some(on_file(&path, files::open_to_write).await?), files::ToRead::new(&path)),
            Open::ReadOnly => (None, on_file(&path, files::open_to_read).await?),
        };
        let readers = Readers::new(to_read.clone());
        let position = read::head(&readers).await?;
        let head = watch::Sender::new(position);
        let pen = Arc::new(Mutex::new(pen));
        let memory = Arc::new(Memory::default());
        let counters = Arc::new(Counters::default());
        let writer = (open == Open::ReadWrite).then(|| {
            let session = SqliteSession::new(path.clone(), Arc::clone(&pen));
            let announce =
                Announce { heads: vec![head.clone()], memory: Arc::clone(&memory), counters: Arc::clone(&counters) };
            Writer::start(Session::Sqlite(session), announce, None)
        });
        Ok(Self(Arc::new(Inner {
            path,
            open,
            pen,
            writer,
            readers,
            to_read,
            head,
            memory,
            counters,
            tailer: OnceLock::new(),
            leases: tokio::sync::OnceCell::new(),
            snapshots: tokio::sync::OnceCell::new(),
        })))
    }

    /// The ledger's file; what can be thrown away lies beside it.
    pub(crate) fn path(&self) -> &Path {
        &self.0.path
    }

    /// How it was opened.
    pub(crate) fn mode(&self) -> Open {
        self.0.open
    }

    /// The read-only connections.
    pub(crate) fn readers(&self) -> &Readers {
        &self.0.readers
    }

    /// Writes something that is no event, between two batches of appends and on their connection: two writers of one
    /// file would only wait for each other.
    pub(crate) async fn write<T: Send + 'static>(
        &self,
        operation: &'static str,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, LogError> + Send + 'static,
    ) -> Result<T, LogError> {
        let mut pen = Arc::clone(&self.0.pen).lock_owned().await;
        let path = self.0.path.clone();
        let done = blocking(move || {
            let connection = match &mut *pen {
                Some(connection) => connection,
                None => pen.insert(files::open_again(&path)?),
            };
            let failed = failed(operation);
            connection.busy_timeout(files::BUSY).map_err(failed)?;
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
            transaction.busy_timeout(files::TURN).map_err(failed)?;
            let done = work(&transaction)?;
            transaction.commit().map_err(failed)?;
            Ok(done)
        });
        done.await.unwrap_or_else(|error| Err(LogError::Unavailable { operation, reason: error.to_string() }))
    }

    /// Where the lease file's connections are kept once it is open.
    pub(crate) fn lease_pool(&self) -> &tokio::sync::OnceCell<SqlitePool> {
        &self.0.leases
    }

    /// Where the snapshot file's connection is kept once it is open.
    pub(crate) fn snapshot_pool(&self) -> &tokio::sync::OnceCell<SqlitePool> {
        &self.0.snapshots
    }

    pub(crate) async fn submit(&self, append: Append) -> Result<Submitted, AppendError> {
        let read_only =
            || LogError::Unavailable { operation: "append", reason: "it was opened to read only".to_owned() };
        self.0.writer.as_ref().ok_or_else(read_only)?.submit(append).await
    }

    pub(crate) async fn read_stream(
        &self,
        stream: &StreamName,
        from: u64,
        limit: u32,
    ) -> Result<Vec<Recorded>, LogError> {
        read::stream(&self.0.readers, stream, from, limit).await
    }

    pub(crate) async fn read_stream_back(
        &self,
        stream: &StreamName,
        before: u64,
        limit: u32,
    ) -> Result<Vec<Recorded>, LogError> {
        read::stream_back(&self.0.readers, stream, before, limit).await
    }

    pub(crate) async fn read_all(
        &self,
        after: u64,
        limit: u32,
        filter: &Filter,
    ) -> Result<(Vec<Recorded>, u64), LogError> {
        read::all(&self.0.readers, after, limit, filter).await
    }

    pub(crate) async fn read_event(&self, event_id: Uuid) -> Result<Option<Recorded>, LogError> {
        read::event(&self.0.readers, event_id).await
    }

    pub(crate) async fn head(&self) -> Result<u64, LogError> {
        read::head(&self.0.readers).await
    }

    pub(crate) async fn store_time(&self) -> Result<Micros, LogError> {
        read::store_time(&self.0.readers).await
    }

    pub(crate) async fn find_key(&self, key_hash: &[u8; 32]) -> Result<Option<(u64, [u8; 32])>, LogError> {
        read::find_key(&self.0.readers, key_hash).await
    }

    pub(crate) async fn keys_between(&self, first: u64, last: u64) -> Result<Vec<(u64, [u8; 32])>, LogError> {
        read::keys_between(&self.0.readers, first, last).await
    }

    pub(crate) async fn repeated_event(&self, events: Vec<(u64, Uuid)>) -> Result<Option<u64>, LogError> {
        read::repeated_event(&self.0.readers, events).await
    }

    /// Bytes of the write-ahead log; 0 where there is none.
    pub(crate) fn wal_bytes(&self) -> u64 {
        files::wal_bytes(&self.0.path)
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.0.counters
    }

    pub(crate) fn known_head(&self) -> u64 {
        *self.0.head.borrow()
    }

    pub(crate) fn memory(&self) -> &Memory {
        &self.0.memory
    }

    pub(crate) fn follow(&self) -> watch::Receiver<u64> {
        self.0.tailer.get_or_init(|| tokio::spawn(tail(self.0.to_read.clone(), self.0.head.clone())).abort_handle());
        self.0.head.subscribe()
    }

    pub(crate) async fn close(&self) {
        if let Some(tailer) = self.0.tailer.get() {
            tailer.abort();
        }
        if let Some(writer) = &self.0.writer {
            writer.close().await;
        }
        for pool in [self.0.leases.get(), self.0.snapshots.get()].into_iter().flatten() {
            pool.close().await;
        }
        self.0.readers.close().await;
        // Last, so that it is the one that folds the WAL into the file.
        if let Some(pen) = self.0.pen.lock().await.take() {
            // The file is as good without: the WAL is read again.
            let _ = blocking(move || drop(pen)).await;
        }
    }
}

/// Starts work on a thread that may wait for the disk.
#[expect(clippy::disallowed_methods, reason = "SQLite blocks; it runs outside of any simulated executor")]
fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    tokio::task::spawn_blocking(work)
}

/// Does something with the file.
async fn on_file<T: Send + 'static>(
    path: &Path,
    work: impl FnOnce(&Path) -> Result<T, LogError> + Send + 'static,
) -> Result<T, LogError> {
    let path = path.to_owned();
    let done = blocking(move || work(&path)).await;
    done.unwrap_or_else(|error| Err(LogError::Unavailable { operation: "open", reason: error.to_string() }))
}

/// Looks for other processes' appends: one pragma that changes when anybody else has committed.
async fn tail(to_read: files::ToRead, head: watch::Sender<u64>) {
    let mut glass = None;
    loop {
        let (to_read, head) = (to_read.clone(), head.clone());
        let looked = blocking(move || {
            let (connection, seen) = match glass {
                Some(glass) => glass,
                None => (to_read.connect()?, None),
            };
            look(&connection, seen, &head).map(|seen| (connection, Some(seen)))
        });
        glass = match looked.await {
            Ok(Ok(glass)) => Some(glass),
            Ok(Err(error)) => {
                tracing::warn!(%error, "the ledger's tailer lost its connection; it tries again");
                sleep(Duration::from_secs(1)).await;
                None
            }
            // The runtime ends.
            Err(_) => return,
        };
        sleep(LOOK).await;
    }
}

fn look(connection: &Connection, seen: Option<i64>, head: &watch::Sender<u64>) -> rusqlite::Result<i64> {
    let one = |sql: &str| connection.prepare_cached(sql)?.query_row([], |row| row.get::<_, i64>(0));
    let version = one("PRAGMA data_version")?;
    if seen != Some(version) {
        crate::writer::raise(head, one("SELECT coalesce(max(position), 0) FROM events")?.unsigned_abs());
    }
    Ok(version)
}
