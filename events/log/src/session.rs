//! The one connection that appends: what the writer needs of a backend, step by step.

use std::collections::HashMap;

use midwatch_events::{Recorded, StreamName};
use uuid::Uuid;

use crate::{
    judge::{Head, KnownKey, NewKey},
    known::Passed,
    log::LogError,
    postgres::PostgresSession,
    sqlite::SqliteSession,
};

/// Why a step of a transaction failed.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The database refused the rows; nothing stands, and the connection is good.
    Refused(LogError),
    /// The connection, or the database behind it, is in trouble; nothing of this transaction stands.
    Lost(LogError),
    /// The commit was sent, and what became of it is not known.
    Unknown(LogError),
}

/// The one connection that appends, on either backend.
#[derive(Debug)]
pub(crate) enum Session {
    Sqlite(SqliteSession),
    Postgres(Box<PostgresSession>),
}

impl Session {
    /// Opens a transaction for which this many appends wait, takes the lock, and then reads the end of the ledger.
    pub(crate) async fn begin(&mut self, waiting: usize) -> Result<Head, Fault> {
        match self {
            Self::Sqlite(session) => session.begin().await,
            Self::Postgres(session) => session.begin(waiting).await,
        }
    }
    pub(crate) async fn versions(&mut self, streams: &[&StreamName]) -> Result<HashMap<StreamName, u64>, Fault> {
        match self {
            Self::Sqlite(session) => session.versions(streams).await,
            Self::Postgres(session) => session.versions(streams).await,
        }
    }
    /// Everything from the event at `from` on; no more than are asked for by [`crate::known::Known::between`].
    pub(crate) async fn passed(&mut self, from: u64) -> Result<Vec<Passed>, Fault> {
        match self {
            Self::Sqlite(session) => session.passed(from).await,
            Self::Postgres(session) => session.passed(from).await,
        }
    }
    pub(crate) async fn keys(&mut self, hashes: &[[u8; 32]]) -> Result<HashMap<[u8; 32], KnownKey>, Fault> {
        match self {
            Self::Sqlite(session) => session.keys(hashes).await,
            Self::Postgres(session) => session.keys(hashes).await,
        }
    }
    /// Both of them in one way to the database and back.
    pub(crate) async fn versions_and_keys(
        &mut self,
        streams: &[&StreamName],
        hashes: &[[u8; 32]],
    ) -> Result<(HashMap<StreamName, u64>, HashMap<[u8; 32], KnownKey>), Fault> {
        match self {
            Self::Sqlite(session) => session.versions_and_keys(streams, hashes).await,
            Self::Postgres(session) => session.versions_and_keys(streams, hashes).await,
        }
    }
    pub(crate) async fn events(&mut self, ids: &[Uuid]) -> Result<HashMap<Uuid, Recorded>, Fault> {
        match self {
            Self::Sqlite(session) => session.events(ids).await,
            Self::Postgres(session) => session.events(ids).await,
        }
    }
    pub(crate) async fn insert(&mut self, rows: Vec<Recorded>, keys: Vec<NewKey>) -> Result<(), Fault> {
        match self {
            Self::Sqlite(session) => session.insert(rows, keys).await,
            Self::Postgres(session) => session.insert(rows, keys).await,
        }
    }
    /// Erases content and salt at these positions, where there are any; gives how many had some.
    pub(crate) async fn erase(&mut self, positions: &[u64]) -> Result<u64, Fault> {
        match self {
            Self::Sqlite(session) => session.erase(positions).await,
            Self::Postgres(session) => session.erase(positions).await,
        }
    }
    /// Commits a transaction that `wrote` up to `last`, or ends one that did not; true when everything up to `last` is
    /// durable, else it has to be flushed.
    pub(crate) async fn finish(&mut self, wrote: bool, last: u64) -> Result<bool, Fault> {
        match self {
            Self::Sqlite(session) => session.finish(wrote).await,
            Self::Postgres(session) => session.finish(wrote, last).await,
        }
    }
    /// Whether this transaction is the first of its connection.
    pub(crate) fn is_new(&self) -> bool {
        match self {
            Self::Sqlite(session) => session.is_new(),
            Self::Postgres(session) => session.is_new(),
        }
    }
    /// The leaf hash of the event at a position.
    pub(crate) async fn leaf_at(&mut self, position: u64) -> Result<Option<[u8; 32]>, Fault> {
        match self {
            Self::Sqlite(session) => session.leaf_at(position).await,
            Self::Postgres(session) => session.leaf_at(position).await,
        }
    }
    /// Gives up the connection for good.
    pub(crate) async fn leave(&mut self) {
        match self {
            Self::Sqlite(session) => session.drop_connection().await,
            Self::Postgres(session) => session.leave().await,
        }
    }
    /// Ends a transaction that failed, or drops the connection.
    pub(crate) async fn roll_back(&mut self) {
        match self {
            Self::Sqlite(session) => session.roll_back().await,
            Self::Postgres(session) => session.roll_back().await,
        }
    }
    /// Drops the connection; the next transaction opens another.
    pub(crate) async fn drop_connection(&mut self) {
        match self {
            Self::Sqlite(session) => session.drop_connection().await,
            Self::Postgres(session) => session.drop_connection().await,
        }
    }
}
