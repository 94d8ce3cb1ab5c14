//! The interface, and the choice of backend.

use std::{path::PathBuf, time::Duration};

use futures_util::future::BoxFuture;
use midwatch_events::{Micros, Recorded, StreamName};
use tokio::{sync::watch, time::timeout};
use uuid::Uuid;

use crate::{
    append::{Append, AppendError, Appended, Submitted},
    memory::{Memory, WentBack},
    metrics::{Follower, Metrics},
    postgres::{PostgresLog, without_password},
    sqlite::SqliteLog,
};

/// An operation under way. It is a box so that it is compiled here, and not again wherever it is awaited.
pub type Pending<'a, T, E = LogError> = BoxFuture<'a, Result<T, E>>;

/// How a ledger is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    /// To read and append; made and migrated when it is not there.
    ReadWrite,
    /// To read only; a ledger that is not there, or not migrated, is a fault.
    ReadOnly,
}

/// Which events a reader wants. An empty list means all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Event types without version, such as `run.tool_call_decided`.
    pub event_types: Vec<String>,
    /// Stream categories, such as `routine`.
    pub categories: Vec<String>,
}

/// A ledger on one of the backends. Cheap to clone; all clones share one writer and one tailer.
///
/// What it promises, on every backend:
///
/// * An append is all or nothing, over any number of streams. It is answered after it is durable, and once.
/// * Positions are 1, 2, 3 … in order of commit; a reader that sees one has seen, or can see, every lower one.
/// * Versions are 1, 2, 3 … within each stream. A wrong expected version writes nothing and consumes no position.
/// * The same key with the same digest gets the original positions, for the whole history, whatever version was
///   expected; with another digest it is refused.
/// * Nobody reads an event before it is durable; only [`Log::load_stream`] does, for those who then append.
/// * `recorded_at` never goes back.
/// * The database refuses to change, remove or reorder events, whoever asks; only content and salt can be erased.
#[derive(Clone, Debug)]
pub enum Log {
    /// One file, one binary, nothing else.
    Sqlite(SqliteLog),
    /// One PostgreSQL, any number of processes.
    Postgres(PostgresLog),
    /// In memory, for tests alone.
    #[cfg(any(test, feature = "testing"))]
    Simulated(crate::simulated::SimulatedLog),
}

/// What about a database can lose what was acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Risk {
    /// What it is, and what to do, in a sentence.
    pub sentence: String,
    /// No ledger belongs on such a database: a power cut alone can lose or damage it.
    pub refused: bool,
}

/// Why the ledger could not do its part.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The address is not one we know.
    #[error("`{0}` is no ledger address; use sqlite://FILE or postgres://USER@HOST/DATABASE")]
    Address(String),
    /// There is no ledger here.
    #[error("there is no ledger at {0}; a command that writes makes one, for example `midwatch serve`")]
    Absent(String),
    /// The database holds something else.
    #[error("{0} is a database, but not a Midwatch ledger; choose another with --db")]
    Foreign(String),
    /// The database was written by a newer Midwatch.
    #[error("the ledger has schema {found}, this midwatch knows up to {known}; use a newer midwatch")]
    Newer {
        /// The schema found.
        found: u32,
        /// The newest this binary knows.
        known: u32,
    },
    /// The directory or file cannot be written.
    #[error("cannot open {path}: {reason}")]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// The database did not answer, or not as it should.
    #[error("{operation}: the database did not do it: {reason}")]
    Unavailable {
        /// What was tried.
        operation: &'static str,
        /// What the driver said; never carries the address's password.
        reason: String,
    },
    /// The ledger lacks what this process has seen to be durable: it is an older copy, or another one.
    #[error(
        "ledger_went_back: this process has seen position {seen}, the ledger now ends at {head} or says something else \
         there; nothing is appended until the process is started again"
    )]
    WentBack {
        /// The highest position that this process had seen.
        seen: u64,
        /// The head that it found instead.
        head: u64,
    },
    /// What is stored is not what was written.
    #[error("the ledger is damaged at position {position}: {reason}")]
    Corrupt {
        /// The first event that does not hold.
        position: u64,
        /// What is wrong with it.
        reason: String,
    },
}

impl LogError {
    /// A word for programs; stable.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Address(_) => "address",
            Self::Absent(_) => "absent",
            Self::Foreign(_) => "foreign",
            Self::Newer { .. } => "newer",
            Self::File { .. } => "file",
            Self::Unavailable { .. } => "unavailable",
            Self::WentBack { .. } => "ledger_went_back",
            Self::Corrupt { .. } => "corrupt",
        }
    }
}

impl Log {
    /// Opens the ledger at `url` (`sqlite://FILE`, `postgres://…`).
    ///
    /// # Errors
    /// [`LogError`]; each message says what to do.
    pub fn open(url: &str, open: Open) -> Pending<'_, Self> {
        Box::pin(async move {
            if url.starts_with("sqlite:") {
                SqliteLog::open(url, open).await.map(Self::Sqlite)
            } else if url.starts_with("postgres:") || url.starts_with("postgresql:") {
                PostgresLog::open(url, open).await.map(Self::Postgres)
            } else {
                #[cfg(any(test, feature = "testing"))]
                if url.starts_with("simulated:") {
                    return crate::simulated::SimulatedLog::open(url, open).await.map(Self::Simulated);
                }
                Err(LogError::Address(without_password(url)))
            }
        })
    }

    /// Appends, and answers when it is durable.
    ///
    /// # Errors
    /// [`AppendError`]; after anything but `Unknown` and `Log`, nothing was written.
    pub fn append(&self, append: Append) -> Pending<'_, Appended, AppendError> {
        Box::pin(async move { self.submit(append).await?.answer().await })
    }

    /// As [`Self::append`], in two steps: comes back once the append has its place behind those that this process
    /// submitted before. What is decided on the state that it will make is appended with [`Expected::After`] it, and
    /// nothing may be answered because of it before its own answer is there.
    ///
    /// [`Expected::After`]: crate::Expected::After
    ///
    /// # Errors
    /// [`AppendError::Invalid`], or a fault; it then has no place, and nothing was written.
    pub fn submit(&self, append: Append) -> Pending<'_, Submitted, AppendError> {
        Box::pin(async move {
            match self {
                Self::Sqlite(log) => log.submit(append).await,
                Self::Postgres(log) => log.submit(append).await,
                #[cfg(any(test, feature = "testing"))]
                Self::Simulated(log) => log.submit(append).await,
            }
        })
    }

    /// Up to `limit` events of one stream, from version `from` upwards.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn read_stream<'a>(&'a self, stream: &'a StreamName, from: u64, limit: u32) -> Pending<'a, Vec<Recorded>> {
        Box::pin(async move {
            match self {
                Self::Sqlite(log) => log.read_stream(stream, from, limit).await,
                Self::Postgres(log) => log.read_stream(stream, from, limit).await,
                #[cfg(any(test, feature = "testing"))]
                Self::Simulated(log) => log.read_stream(stream, from, limit).await,
            }
        })
    }

    /// Up to `limit` events of each of these streams, each from its version upwards; those of one stream in order. On
    /// PostgreSQL one statement, however many they are.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn read_streams<'a>(&'a self, asked: &'a [(StreamName, u64)], limit: u32) -> Pending<'a, Vec<Recorded>> {
        Box::pin(async move {
            if let Self::Postgres(log) = self {
                return log.read_streams(asked, limit).await;
            }
            let mut events = Vec::new();
            for (stream, from) in asked {
                events.append(&mut self.read_stream(stream, *from, limit).await?);
            }
            Ok(events)
        })
    }

    /// As [`Self::read_stream`], for a command that decides: also what another process has committed and not flushed
    /// yet. A crash of the database can take that back, so whatever is answered because of it, a refusal too, has to
    /// [wait](Self::wait_durable), and what was folded has to be thrown away when [`Self::losses`] changes.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn load_stream<'a>(&'a self, stream: &'a StreamName, from: u64, limit: u32) -> Pending<'a, Vec<Recorded>> {
        Box::pin(async move {
            match self {
                Self::Sqlite(log) => log.read_stream(stream, from, limit).await,
                Self::Postgres(log) => log.load_stream(stream, from, limit).await,
                #[cfg(any(test, feature = "testing"))]
                Self::Simulated(log) => log.load_stream(stream, from, limit).await,
            }
        })
    }

    /// Up to `limit` events of one stream, from version `before - 1` downwards; `u64::MAX` starts at its end.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn read_stream_back<'a>(
        &'a self,
        stream: &'a StreamName,
        before: u64,
        limit: u32,
    ) -> Pending<'a, Vec<Recorded>> {
        Box::pin(async move {
            match self {
                Self::Sqlite(log) => log.read_stream_back(stream, before, limit).await,
                Self::Postgres(log) => log.read_stream_back(stream, before, limit).await,
                #[cfg(any(test, feature = "testing"))]
                Self::Simulated(log) => log.read_stream_back(stream, before, limit).await,
            }
        })
    }

    /// Up to `limit` events with a position above `after` that pass `filter`, in order, and the position that was
    /// scanned up to: the last event's when the page is full, else the head's. Continue from there.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn read_all<'a>(&'a self, after: u64, limit: u32, filter: &'a Filter) -> Pending<'a, (Vec<Recorded>, u64)> {
        Box::pin(async move {
            match self {
                Self::Sqlite(log) => log.read_all(after, limit, filter).await,
                Self::Postgres(log) => log.read_all(after, limit, filter).await,
                #[cfg(any(test, feature = "testing"))]
                Self::Simulated(log) => log.read_all(after, limit, filter).await,
            }
        })
    }

    /// As [`Self::read_all`] without a filter, the quickest way; for [`crate::verify`]. Not to be dropped half-way.
    pub(crate) async fn read_page(&self, after: u64, limit: u32) -> Result<Vec<Recorded>, LogError> {
        match self {
            Self::Postgres(log) => log.read_page(after, limit).await,
            _ => Ok(self.read_all(after, limit, &Filter::default()).await?.0),
        }
    }

    /// The event at one position.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn read_at(&self, position: u64) -> Pending<'_, Option<Recorded>> {
        Box::pin(async move {
            let (events, _) = self.read_all(position.saturating_sub(1), 1, &Filter::default()).await?;
            Ok(events.into_iter().next().filter(|event| event.position == position))
        })
    }

    /// The event with this id.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn read_event(&self, event_id: Uuid) -> Pending<'_, Option<Recorded>> {
        Box::pin(async move {
            match self {
                Self::Sqlite(log) => log.read_event(event_id).await,
                Self::Postgres(log) => log.read_event(event_id).await,
                #[cfg(any(test, feature = "testing"))]
                Self::Simulated(log) => log.read_event(event_id).await,
            }
        })
    }

    /// The version a stream is at; 0 when nobody has written to it.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn version<'a>(&'a self, stream: &'a StreamName) -> Pending<'a, u64> {
        Box::pin(async move {
            Ok(self.read_stream_back(stream, u64::MAX, 1).await?.first().map_or(0, |event| event.version))
        })
    }

    /// The highest position that is durable, 0 in an empty ledger.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn head(&self) -> Pending<'_, u64> {
        Box::pin(async move {
            match self {
                Self::Sqlite(log) => log.head().await,
                Self::Postgres(log) => log.head().await,
                #[cfg(any(test, feature = "testing"))]
                Self::Simulated(log) => log.head().await,
            }
        })
    }

    /// The store's clock. Leases and lateness go by it, so that processes with wrong clocks agree.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn store_time(&self) -> Pending<'_, Micros> {
        Box::pin(async move {
            match self {
                Self::Sqlite(log) => log.store_time().await,
                Self::Postgres(log) => log.store_time().await,
                #[cfg(any(test, feature = "testing"))]
                Self::Simulated(log) => log.store_time().await,
            }
        })
    }

    /// How far the time of the newest event is ahead of the store's clock, in microseconds; 0 where it is not. More than
    /// moments come of a clock that was set back: until it has caught up, all that happens is recorded at one instant.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn ahead_us(&self) -> Pending<'_, u64> {
        Box::pin(async move {
            let Some(newest) = self.read_at(self.head().await?).await? else { return Ok(0) };
            let ahead_us = newest.recorded_at.since(self.store_time().await?);
            Ok(u64::try_from(ahead_us).unwrap_or_default())
        })
    }

    /// The first position and the request's digest of a key that was used before.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn find_key<'a>(&'a self, key_hash: &'a [u8; 32]) -> Pending<'a, Option<(u64, [u8; 32])>> {
        Box::pin(async move {
            match self {
                Self::Sqlite(log) => log.find_key(key_hash).await,
                Self::Postgres(log) => log.find_key(key_hash).await,
                #[cfg(any(test, feature = "testing"))]
                Self::Simulated(log) => log.find_key(key_hash).await,
            }
        })
    }

    /// The hashes of the keys of the appends whose first event lies in `first..=last`, each with that position.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn keys_between(&self, first: u64, last: u64) -> Pending<'_, Vec<(u64, [u8; 32])>> {
        Box::pin(async move {
            match self {
                Self::Sqlite(log) => log.keys_between(first, last).await,
                Self::Postgres(log) => log.keys_between(first, last).await,
                #[cfg(any(test, feature = "testing"))]
                Self::Simulated(log) => log.keys_between(first, last).await,
            }
        })
    }

    /// Follows the head: the receiver is woken after appends of this process and, within the poll ceiling of one
    /// second, of others. A missed wake-up is never a missed event: read from your own position.
    ///
    /// # Panics
    /// Outside of a Tokio runtime: the first call starts the tailer.
    #[must_use]
    pub fn follow(&self) -> watch::Receiver<u64> {
        match self {
            Self::Sqlite(log) => log.follow(),
            Self::Postgres(log) => log.follow(),
            #[cfg(any(test, feature = "testing"))]
            Self::Simulated(log) => log.follow(),
        }
    }

    /// Waits until everything up to `position` is durable; false when that took longer than `patience`.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn wait_durable(&self, position: u64, patience: Duration) -> Pending<'_, bool> {
        Box::pin(async move {
            #[cfg(any(test, feature = "testing"))]
            if let Self::Simulated(log) = self {
                return log.wait_durable(position, patience).await;
            }
            let mut heads = self.follow();
            if *heads.borrow_and_update() >= position || self.head().await? >= position {
                return Ok(true);
            }
            Ok(matches!(timeout(patience, heads.wait_for(|head| *head >= position)).await, Ok(Ok(_))))
        })
    }

    /// Says so once a new connection finds a ledger that lacks what this process has seen, as after a failover to a
    /// standby that lagged. From then on nothing is appended; fold nothing, schedule nothing, and show both heads.
    #[must_use]
    pub fn went_back(&self) -> watch::Receiver<Option<WentBack>> {
        self.memory().went_back()
    }

    /// Counts the times that a connection to append was lost. What was folded from [`Self::load_stream`] and is above
    /// the durable head may be gone then.
    #[must_use]
    pub fn losses(&self) -> watch::Receiver<u64> {
        self.memory().losses()
    }

    /// What this process did with the ledger since it opened it.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        let losses = *self.losses().borrow();
        match self {
            Self::Sqlite(log) => log.counters().read(log.known_head(), losses, Some(log.wal_bytes())),
            Self::Postgres(log) => log.counters().read(log.known_head(), losses, None),
            #[cfg(any(test, feature = "testing"))]
            Self::Simulated(log) => log.counters().read(log.known_head(), losses, None),
        }
    }

    /// Somebody who follows, for the metric of its lag.
    #[must_use]
    pub fn follower(&self, name: &str) -> Follower {
        match self {
            Self::Sqlite(log) => log.counters().follower(name),
            Self::Postgres(log) => log.counters().follower(name),
            #[cfg(any(test, feature = "testing"))]
            Self::Simulated(log) => log.counters().follower(name),
        }
    }

    /// As if a new connection had found that the ledger lacks what this process has seen.
    #[cfg(any(test, feature = "testing"))]
    #[doc(hidden)]
    pub fn go_back(&self, went_back: WentBack) {
        self.memory().go_back(went_back);
    }

    fn memory(&self) -> &Memory {
        match self {
            Self::Sqlite(log) => log.memory(),
            Self::Postgres(log) => log.memory(),
            #[cfg(any(test, feature = "testing"))]
            Self::Simulated(log) => log.memory(),
        }
    }

    /// The first of these positions and event ids whose id stands at a lower position too; for [`crate::verify`].
    pub(crate) async fn repeated_event(&self, events: Vec<(u64, Uuid)>) -> Result<Option<u64>, LogError> {
        match self {
            Self::Sqlite(log) => log.repeated_event(events).await,
            Self::Postgres(log) => log.repeated_event(events).await,
            #[cfg(any(test, feature = "testing"))]
            Self::Simulated(_) => Ok(None),
        }
    }

    /// What about the database's settings can lose what was acknowledged; for `doctor`.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn durability(&self) -> Pending<'_, Vec<Risk>> {
        Box::pin(async move {
            match self {
                // The one connection that writes sets what it needs itself.
                Self::Sqlite(_) => Ok(Vec::new()),
                Self::Postgres(log) => log.durability().await,
                #[cfg(any(test, feature = "testing"))]
                Self::Simulated(_) => Ok(Vec::new()),
            }
        })
    }

    /// What was erased and may still lie in the database's files, in rows; none where erasing overwrites. For `doctor`.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn unvacuumed(&self) -> Pending<'_, Option<u64>> {
        Box::pin(async move {
            match self {
                // `secure_delete` is on.
                Self::Sqlite(_) => Ok(None),
                Self::Postgres(log) => log.unvacuumed().await.map(Some),
                #[cfg(any(test, feature = "testing"))]
                Self::Simulated(_) => Ok(None),
            }
        })
    }

    /// Ends the writer and the tailer after what is under way, and closes the connections.
    pub fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            match self {
                Self::Sqlite(log) => log.close().await,
                Self::Postgres(log) => log.close().await,
                #[cfg(any(test, feature = "testing"))]
                Self::Simulated(log) => log.close().await,
            }
        })
    }
}
