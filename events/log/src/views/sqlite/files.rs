//! The file of the projections: made, opened, and told from another one that took its name.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use sqlx::{
    ConnectOptions as _, SqlitePool,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};

use crate::log::{LogError, Open};

const SCHEMA: [&str; 3] = [
    "CREATE TABLE IF NOT EXISTS projection (
         name TEXT PRIMARY KEY, active INTEGER, last_number INTEGER NOT NULL DEFAULT 0) STRICT",
    "CREATE TABLE IF NOT EXISTS generation (
         projection TEXT NOT NULL, number INTEGER NOT NULL, version INTEGER NOT NULL,
         position INTEGER NOT NULL DEFAULT 0, at_us INTEGER NOT NULL DEFAULT 0, stopped_at INTEGER, error TEXT,
         PRIMARY KEY (projection, number)) STRICT",
    "CREATE TABLE IF NOT EXISTS leader (
         name TEXT PRIMARY KEY, process TEXT NOT NULL, expires_us INTEGER NOT NULL) STRICT",
];

/// Takes the write lock at once; a transaction that asks for it later fails instead of waiting.
pub(super) const BEGIN: &str = "BEGIN IMMEDIATE";

/// How long a process waits for another one's transaction.
pub(super) const BUSY: Duration = Duration::from_secs(30);

/// How often a file is opened when another process is making it; SQLite does not wait for the change to WAL.
const OPEN_ATTEMPTS: u32 = 100;

/// The connections to one file. One writer, so that those who wait in this process stand in a queue.
#[derive(Clone, Debug)]
pub(super) struct Pools {
    pub(super) identity: Option<Identity>,
    pub(super) writer: SqlitePool,
    pub(super) reader: SqlitePool,
}

/// Tells a file from another one that took its name.
pub(super) type Identity = (u64, u64);

/// The ledger's file.
pub(super) fn ledger_file(url: &str) -> Result<PathBuf, LogError> {
    let rest = url.strip_prefix("sqlite:").unwrap_or(url);
    let file = rest.strip_prefix("//").unwrap_or(rest);
    // SQLite would take these for databases that vanish, or for options.
    if file.is_empty() || file.starts_with(':') || file.contains('?') || file.contains('\0') {
        return Err(LogError::Address(url.to_owned()));
    }
    Ok(PathBuf::from(file))
}

impl Pools {
    pub(super) async fn open(file: &Path, open: Open) -> Result<Self, LogError> {
        if open == Open::ReadOnly && identity(file).await.is_none() {
            return Err(LogError::Absent(file.display().to_string()));
        }
        for attempt in 1.. {
            match Self::try_open(file, open).await {
                Ok(pools) => return Ok(pools),
                Err(error) if attempt < OPEN_ATTEMPTS && is_busy(&error) => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                Err(error) => return Err(LogError::File { path: file.to_owned(), reason: error.to_string() }),
            }
        }
        Err(LogError::File { path: file.to_owned(), reason: "it stayed busy".to_owned() })
    }

    async fn try_open(file: &Path, open: Open) -> Result<Self, sqlx::Error> {
        let options = SqliteConnectOptions::new().filename(file).busy_timeout(BUSY).disable_statement_logging();
        let reading = options.clone().read_only(true);
        let writing = options
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Normal)
            .pragma("secure_delete", "ON");
        let writer = SqlitePoolOptions::new().max_connections(1).acquire_timeout(BUSY);
        let writer = match open {
            Open::ReadOnly => writer.connect_lazy_with(reading.clone()),
            Open::ReadWrite => {
                // Only this connection may make the file: one that is opened later must not make another.
                let making = SqlitePoolOptions::new().max_connections(1);
                let making = making.connect_with(writing.clone().create_if_missing(true)).await?;
                make_tables(&making, &SCHEMA).await?;
                let writer = writer.connect_with(writing).await;
                making.close().await;
                writer?
            }
        };
        let reader = SqlitePoolOptions::new().max_connections(3).acquire_timeout(BUSY).connect_with(reading).await?;
        Ok(Self { identity: identity(file).await, writer, reader })
    }
}

#[cfg(unix)]
pub(super) async fn identity(file: &Path) -> Option<Identity> {
    use std::os::unix::fs::MetadataExt as _;
    let found = tokio::fs::metadata(file).await.ok()?;
    Some((found.dev(), found.ino()))
}

/// Where an open file cannot be replaced, it is enough that it is there.
#[cfg(not(unix))]
pub(super) async fn identity(file: &Path) -> Option<Identity> {
    tokio::fs::metadata(file).await.ok().map(|_| (0, 0))
}

pub(super) async fn make_tables(pool: &SqlitePool, statements: &[&'static str]) -> Result<(), sqlx::Error> {
    let mut tx = pool.begin_with(BEGIN).await?;
    for statement in statements {
        sqlx::query(*statement).execute(&mut *tx).await?;
    }
    tx.commit().await
}

pub(super) fn says(error: &sqlx::Error, what: &str) -> bool {
    error.as_database_error().is_some_and(|error| error.message().contains(what))
}

/// Another process has the file, in a way that is not waited for.
fn is_busy(error: &sqlx::Error) -> bool {
    says(error, "database is locked") || says(error, "database schema is locked")
}
