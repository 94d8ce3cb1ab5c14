//! The ledger in one SQLite file.
//!
//! One connection writes (WAL, `synchronous = FULL`); a small pool of read-only connections reads. Another process may
//! write too: `BEGIN IMMEDIATE` waits for it up to 30 s, and its appends are noticed through `PRAGMA data_version`.

mod files;
mod read;
mod session;

use std::{
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    time::Duration,
};

use midwatch_events::{Micros, Recorded, StreamName};
use sqlx::{
    ConnectOptions as _, Connection as _, Row as _, SqliteConnection, SqlitePool,
    sqlite::{SqliteConnectOptions, SqlitePoolOptions},
};
use tokio::{
    sync::{Mutex, watch},
    task::AbortHandle,
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
pub(crate) use files::set_patience;
pub(crate) use read::failed;
pub(crate) use session::SqliteSession;

/// How often other processes' appends are looked for. One look reads a page of shared memory.
const LOOK: Duration = Duration::from_millis(200);
/// Read-only connections; each is a thread.
const READERS: u32 = 4;

/// A ledger in one SQLite file.
#[derive(Clone, Debug)]
pub struct SqliteLog(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    open: Open,
    /// The connection that writes; empty while it is to be opened again. Shared by appends and blobs.
    pen: Arc<Mutex<Option<SqliteConnection>>>,
    writer: Option<Writer>,
    readers: SqlitePool,
    read_options: SqliteConnectOptions,
    head: watch::Sender<u64>,
    memory: Arc<Memory>,
    counters: Arc<Counters>,
    tailer: OnceLock<AbortHandle>,
    leases: tokio::sync::OnceCell<SqlitePool>,
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
        let (pen, read_options) = match open {
            Open::ReadWrite => (Some(files::open_to_write(&path).await?), files::read_options(&path)),
            Open::ReadOnly => (None, files::open_to_read(&path).await?),
        };
        let readers = SqlitePoolOptions::new()
            .min_connections(0)
            .max_connections(READERS)
            .connect_lazy_with(read_options.clone());
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
            read_options,
            head,
            memory,
            counters,
            tailer: OnceLock::new(),
            leases: tokio::sync::OnceCell::new(),
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
    pub(crate) fn readers(&self) -> &SqlitePool {
        &self.0.readers
    }

    /// The connection that writes, between two batches.
    pub(crate) fn pen(&self) -> &Arc<Mutex<Option<SqliteConnection>>> {
        &self.0.pen
    }

    /// Opens the writing connection again after a fault.
    pub(crate) async fn open_again(&self) -> Result<SqliteConnection, LogError> {
        files::open_again(&self.0.path).await
    }

    /// Where the lease file's connections are kept once it is open.
    pub(crate) fn lease_pool(&self) -> &tokio::sync::OnceCell<SqlitePool> {
        &self.0.leases
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

    pub(crate) async fn repeated_event(&self, first: u64, last: u64) -> Result<Option<u64>, LogError> {
        read::repeated_event(&self.0.readers, first, last).await
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
        self.0.tailer.get_or_init(|| {
            let (options, head) = (self.0.read_options.clone(), self.0.head.clone());
            tokio::spawn(tail(options, head)).abort_handle()
        });
        self.0.head.subscribe()
    }

    pub(crate) async fn close(&self) {
        if let Some(tailer) = self.0.tailer.get() {
            tailer.abort();
        }
        if let Some(writer) = &self.0.writer {
            writer.close().await;
        }
        if let Some(leases) = self.0.leases.get() {
            leases.close().await;
        }
        self.0.readers.close().await;
        // Last, so that it is the one that folds the WAL into the file.
        if let Some(pen) = self.0.pen.lock().await.take() {
            // The file is as good without: the WAL is read again.
            let _ = pen.close().await;
        }
    }
}

/// Looks for other processes' appends: one pragma that changes when anybody else has committed.
async fn tail(options: SqliteConnectOptions, head: watch::Sender<u64>) {
    let mut connection: Option<SqliteConnection> = None;
    let mut seen = None;
    loop {
        let looked = match &mut connection {
            Some(connection) => look(connection, &mut seen, &head).await,
            None => match options.connect().await {
                Ok(opened) => {
                    connection = Some(opened);
                    continue;
                }
                Err(error) => Err(error),
            },
        };
        if let Err(error) = looked {
            tracing::warn!(%error, "the ledger's tailer lost its connection; it tries again");
            (connection, seen) = (None, None);
            sleep(Duration::from_secs(1)).await;
        }
        sleep(LOOK).await;
    }
}

async fn look(
    connection: &mut SqliteConnection,
    seen: &mut Option<i64>,
    head: &watch::Sender<u64>,
) -> Result<(), sqlx::Error> {
    let version: i64 = sqlx::query("PRAGMA data_version").fetch_one(&mut *connection).await?.try_get(0)?;
    if *seen != Some(version) {
        let position: i64 =
            sqlx::query("SELECT coalesce(max(position), 0) FROM events").fetch_one(connection).await?.try_get(0)?;
        *seen = Some(version);
        crate::writer::raise(head, position.unsigned_abs());
    }
    Ok(())
}
