//! Where projections keep their rows. Nothing here is history: all of it can be dropped and built again from the
//! events.
//!
//! A projection's [`Table`] exists in **generations**, numbered tables beside each other. One is active and answers
//! readers; another may be under construction, because its version was raised or a rebuild was asked for. A
//! generation's rows and its checkpoint move in one transaction that starts with a guarded update of the checkpoint,
//! so any number of processes can apply the same events and each is applied once.
//!
//! * On SQLite the generations live in a second file, `<ledger>-projections`, which is not synced at every commit. It
//!   can be deleted at any time, together with its `-wal` and `-shm`: the next use makes it again, empty, at position
//!   0. A process that has it open notices at its next use.
//! * On PostgreSQL they live in the ledger's database, in the schema `midwatch_projections`.
//!
//! After the ledger's database was restored from an older copy, a checkpoint may lie above the ledger's head. Nothing
//! here can see that; compare [`Views::as_of`] with the event at that position, and rebuild when they differ.
//!
//! The **named checkpoints** (how far the reactor came) are here too, but in the ledger's own file or, on PostgreSQL, in
//! the schema `midwatch_engine`: deleting the projections does not touch them, and a copy of the ledger holds those that
//! belong to it. They are no truth either: a reactor whose checkpoint is lost reads from 0 again, and what it appends
//! twice is recognised by its keys. **Leaders** are rows that are renewed every few seconds; on SQLite they are in the
//! projections' file, so that they wake nobody who follows the ledger. Where they are lost two processes do the same
//! work for a moment, and one of them finds it done.

mod generations;
mod postgres;
mod query;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod simulated;
mod sqlite;
mod table;
#[cfg(test)]
mod tests;

use futures_util::future::BoxFuture;
use midwatch_events::Micros;
use uuid::Uuid;

pub use query::{Condition, Cursor, Order, Query, Row, Test};
pub use table::{Cell, Column, KEY, Kind, RowWrite, Table};

use crate::log::{LogError, Open, Pending};
use generations::{Known, Listing, Make, State, Step, Swap};
use postgres::PostgresViews;
use query::{Dialect, Statement};
use sqlite::SqliteViews;

/// All projections' rows of one ledger. Cheap to clone; all clones share their connections.
#[derive(Clone, Debug)]
pub struct Views {
    backend: Backend,
    open: Open,
}

#[derive(Clone, Debug)]
enum Backend {
    Sqlite(SqliteViews),
    Postgres(PostgresViews),
    #[cfg(any(test, feature = "testing"))]
    Simulated(simulated::SimulatedViews),
}

/// What this binary has to do with a projection.
#[derive(Clone, Debug)]
pub enum Attached {
    /// It writes the generation that readers see.
    Active(Generation),
    /// Its version was raised: it writes a generation of its own from position 0 while readers see the older one.
    /// [`Views::swap`] it when it has caught up.
    Building(Generation),
    /// A newer binary's version is active. Apply nothing and give up the lead; a [`Views::begin_rebuild`] goes back to
    /// this binary's version on purpose.
    Superseded {
        /// The version that is active.
        active: u32,
    },
}

impl Attached {
    /// The generation to write, if there is one.
    #[must_use]
    pub fn generation(self) -> Option<Generation> {
        match self {
            Self::Active(generation) | Self::Building(generation) => Some(generation),
            Self::Superseded { .. } => None,
        }
    }
}

/// Keys, each with its row as it is stored.
pub type Documents = Vec<(String, Vec<u8>)>;

/// One generation of a projection's rows, to write them. It can go at any time, because a newer one took its place;
/// then nothing is written any more, and [`Views::attach`] says what is to be done instead.
#[derive(Clone, Debug)]
pub struct Generation {
    views: Views,
    table: &'static Table,
    number: i64,
}

/// The longest lead, in seconds; one that is asked for longer is as long as this.
const LEAD_MAX_S: u32 = 90;
/// One that would last longer than this, in seconds, was taken before the clock was set back: it is over, or nobody would
/// lead until that time comes again. More than the longest lead, because clocks differ.
const SET_BACK_S: u32 = 120;

/// How often a reader looks again for the active generation when it was dropped under its hands.
const READ_ATTEMPTS: u32 = 5;

impl Views {
    /// Opens the projections of the ledger at `url`, which must be there. To read only, nothing is made.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn open(url: &str, open: Open) -> Pending<'_, Self> {
        Box::pin(async move {
            let backend = if url.starts_with("sqlite:") {
                Backend::Sqlite(SqliteViews::open(url, open).await?)
            } else if url.starts_with("postgres:") || url.starts_with("postgresql:") {
                Backend::Postgres(PostgresViews::open(url, open).await?)
            } else {
                #[cfg(any(test, feature = "testing"))]
                if url.starts_with("simulated:") {
                    let backend = Backend::Simulated(simulated::SimulatedViews::open(url, open).await?);
                    return Ok(Self { backend, open });
                }
                return Err(address(url));
            };
            Ok(Self { backend, open })
        })
    }

    /// What this binary has to do with the projection. Makes its first generation, or the first of a raised version,
    /// when it is missing; costs one small read otherwise, so that a projector asks before each batch.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn attach(&self, table: &'static Table) -> Pending<'_, Attached> {
        Box::pin(async move {
            table.check()?;
            let mut listing = self.listing(table).await?;
            if listing.to_make(Make::Missing, table.version).is_some() {
                self.make(table, Make::Missing).await?;
                listing = self.listing(table).await?;
            }
            if let Some(active) = listing.superseded_by(table.version) {
                return Ok(Attached::Superseded { active });
            }
            let Some(writes) = listing.writes(table.version) else {
                return Err(table.misused("its generation went while it was made; try again".to_owned()));
            };
            let generation = Generation { views: self.clone(), table, number: writes.number };
            Ok(if listing.active == Some(writes.number) {
                Attached::Active(generation)
            } else {
                Attached::Building(generation)
            })
        })
    }

    /// Starts a new generation at position 0 beside the active one, which stays as it is and goes on. Apply all events
    /// to the handle, then [`Views::swap`] it. An earlier rebuild that was not finished is dropped.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn begin_rebuild(&self, table: &'static Table) -> Pending<'_, Generation> {
        Box::pin(async move {
            table.check()?;
            match self.make(table, Make::Rebuild).await? {
                Some(number) => Ok(Generation { views: self.clone(), table, number }),
                None => Err(table.misused("no generation was made".to_owned())),
            }
        })
    }

    /// Makes a generation active and drops those it replaces. `false`: it is behind the active one (apply what is
    /// missing and try again; readers never go back in time), or it is gone.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn swap<'a>(&'a self, generation: &'a Generation) -> Pending<'a, bool> {
        Box::pin(async move {
            match &self.backend {
                Backend::Sqlite(views) => views.swap(generation.table, generation.number, Swap::Forward).await,
                Backend::Postgres(views) => views.swap(generation.table, generation.number, Swap::Forward).await,
                #[cfg(any(test, feature = "testing"))]
                Backend::Simulated(views) => views.swap(generation.table, generation.number, Swap::Forward).await,
            }
        })
    }

    /// Drops a projection's rows and begins again at position 0, in sight of readers: only where its rows were built
    /// from another ledger than the one beside them.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn restart(&self, table: &'static Table) -> Pending<'_, ()> {
        Box::pin(async move {
            let generation = self.begin_rebuild(table).await?;
            match &self.backend {
                Backend::Sqlite(views) => views.swap(table, generation.number, Swap::Replace).await,
                Backend::Postgres(views) => views.swap(table, generation.number, Swap::Replace).await,
                #[cfg(any(test, feature = "testing"))]
                Backend::Simulated(views) => views.swap(table, generation.number, Swap::Replace).await,
            }
            .map(drop)
        })
    }

    /// Drops a rebuild that will not be finished, so that nothing stays in it that is later erased. The active
    /// generation is never dropped.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn discard(&self, generation: Generation) -> Pending<'_, ()> {
        Box::pin(async move {
            match &self.backend {
                Backend::Sqlite(views) => views.discard(generation.table, generation.number).await,
                Backend::Postgres(views) => views.discard(generation.table, generation.number).await,
                #[cfg(any(test, feature = "testing"))]
                Backend::Simulated(views) => views.discard(generation.table, generation.number).await,
            }
        })
    }

    /// The active rows that `query` asks for, in its order. While a raised version is under construction these are
    /// rows of the version before.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn query<'a>(&'a self, table: &'static Table, query: &'a Query) -> Pending<'a, Vec<Row>> {
        Box::pin(async move {
            let kind = table.kind(query.order.column)?;
            for _ in 0..READ_ATTEMPTS {
                let number = self.active(table).await?.number;
                let select = |dialect, from: &str| Statement::select(dialect, from, table, query);
                let rows = match &self.backend {
                    Backend::Sqlite(views) => {
                        views.select(select(Dialect::Sqlite, &sqlite::table_name(table, number))?, kind).await?
                    }
                    Backend::Postgres(views) => {
                        views.select(select(Dialect::Postgres, &postgres::table_name(table, number))?, kind).await?
                    }
                    #[cfg(any(test, feature = "testing"))]
                    Backend::Simulated(views) => views.select(table, number, query).await?,
                };
                if let Some(rows) = rows {
                    return Ok(rows);
                }
            }
            Err(table.misused("its rows are replaced over and over".to_owned()))
        })
    }

    /// One active row.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn get<'a>(&'a self, table: &'static Table, key: &'a str) -> Pending<'a, Option<Vec<u8>>> {
        Box::pin(async move {
            let query = Query {
                filters: vec![Condition { column: KEY, is: Test::Eq(Cell::Text(key.to_owned())) }],
                order: Order { column: KEY, descending: false },
                limit: 1,
                after: None,
            };
            Ok(self.query(table, &query).await?.into_iter().next().map(|row| row.doc))
        })
    }

    /// How many active rows pass all of `filters`.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn count<'a>(&'a self, table: &'static Table, filters: &'a [Condition]) -> Pending<'a, u64> {
        Box::pin(async move {
            for _ in 0..READ_ATTEMPTS {
                let number = self.active(table).await?.number;
                let count = |dialect, from: &str| Statement::count(dialect, from, table, filters);
                let count = match &self.backend {
                    Backend::Sqlite(views) => {
                        views.count(count(Dialect::Sqlite, &sqlite::table_name(table, number))?).await?
                    }
                    Backend::Postgres(views) => {
                        views.count(count(Dialect::Postgres, &postgres::table_name(table, number))?).await?
                    }
                    #[cfg(any(test, feature = "testing"))]
                    Backend::Simulated(views) => views.count(table, number, filters).await?,
                };
                if let Some(count) = count {
                    return Ok(count);
                }
            }
            Err(table.misused("its rows are replaced over and over".to_owned()))
        })
    }

    /// The position up to which the active rows are true, and the time of the event there. Rows that are read after
    /// this answer are at least as new.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn as_of(&self, table: &'static Table) -> Pending<'_, (u64, Micros)> {
        Box::pin(async move {
            for _ in 0..READ_ATTEMPTS {
                let number = self.active(table).await?.number;
                if let Some(state) = self.state(table, number).await? {
                    return Ok((state.position, state.at));
                }
            }
            Err(table.misused("its rows are replaced over and over".to_owned()))
        })
    }

    /// The event that stopped the projection, and why. Of what this binary writes; where it writes nothing, of what is
    /// active. `None` when it is well.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn health(&self, table: &'static Table) -> Pending<'_, Option<(u64, String)>> {
        Box::pin(async move {
            let listing = self.listing(table).await?;
            let Some(shown) = listing.writes(table.version).or_else(|| listing.active()) else {
                return Ok(None);
            };
            Ok(self.state(table, shown.number).await?.and_then(|state| state.stopped))
        })
    }

    /// How far the reader of this name came; 0 when it never said so.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn named_checkpoint<'a>(&'a self, name: &'a str) -> Pending<'a, u64> {
        Box::pin(async move {
            match &self.backend {
                Backend::Sqlite(views) => views.named_checkpoint(name).await,
                Backend::Postgres(views) => views.named_checkpoint(name).await,
                #[cfg(any(test, feature = "testing"))]
                Backend::Simulated(views) => views.named_checkpoint(name).await,
            }
        })
    }

    /// Moves the checkpoint of this name. `false`: it does not stand at `from`, nothing was moved. Move it after what
    /// was done up to `to` is durable; the move itself may be lost with the machine.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn advance<'a>(&'a self, name: &'a str, from: u64, to: u64) -> Pending<'a, bool> {
        Box::pin(async move {
            let (from, to) = (signed(from)?, signed(to)?);
            match &self.backend {
                Backend::Sqlite(views) => views.advance(name, from, to).await,
                Backend::Postgres(views) => views.advance(name, from, to).await,
                #[cfg(any(test, feature = "testing"))]
                Backend::Simulated(views) => views.advance(name, from, to).await,
            }
        })
    }

    /// Whether `process` leads `name` for the next `ttl_s` seconds: nobody did, the leader's time is up, or it is the
    /// leader already. Time goes by the database's clock; SQLite has none of its own, so there it goes by `now`, which
    /// all processes on that machine share. At most 60 s.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn lead<'a>(&'a self, name: &'a str, process: Uuid, ttl_s: u32, now: Micros) -> Pending<'a, bool> {
        Box::pin(async move {
            let ttl_s = ttl_s.min(LEAD_MAX_S);
            match &self.backend {
                Backend::Sqlite(views) => views.lead(name, process, ttl_s, now).await,
                Backend::Postgres(views) => views.lead(name, process, ttl_s).await,
                #[cfg(any(test, feature = "testing"))]
                Backend::Simulated(views) => views.lead(name, process, ttl_s).await,
            }
        })
    }

    /// Ends the lead of `process`, if it has it, so that another need not wait for its time to be up.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn give_up<'a>(&'a self, name: &'a str, process: Uuid) -> Pending<'a, ()> {
        Box::pin(async move {
            match &self.backend {
                Backend::Sqlite(views) => views.give_up(name, process).await,
                Backend::Postgres(views) => views.give_up(name, process).await,
                #[cfg(any(test, feature = "testing"))]
                Backend::Simulated(views) => views.give_up(name, process).await,
            }
        })
    }

    /// Closes the connections, after what is under way.
    pub fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            match &self.backend {
                Backend::Sqlite(views) => views.close().await,
                Backend::Postgres(views) => views.close().await,
                #[cfg(any(test, feature = "testing"))]
                Backend::Simulated(views) => views.close().await,
            }
        })
    }

    async fn listing(&self, table: &'static Table) -> Result<Listing, LogError> {
        match &self.backend {
            Backend::Sqlite(views) => views.listing(table).await,
            Backend::Postgres(views) => views.listing(table).await,
            #[cfg(any(test, feature = "testing"))]
            Backend::Simulated(views) => views.listing(table).await,
        }
    }

    async fn state(&self, table: &'static Table, number: i64) -> Result<Option<State>, LogError> {
        match &self.backend {
            Backend::Sqlite(views) => views.state(table, number).await,
            Backend::Postgres(views) => views.state(table, number).await,
            #[cfg(any(test, feature = "testing"))]
            Backend::Simulated(views) => views.state(table, number).await,
        }
    }

    async fn make(&self, table: &'static Table, make: Make) -> Result<Option<i64>, LogError> {
        if self.open == Open::ReadOnly {
            return Err(table.misused("it was not built yet, and this is opened to read only".to_owned()));
        }
        match &self.backend {
            Backend::Sqlite(views) => views.make(table, make).await,
            Backend::Postgres(views) => views.make(table, make).await,
            #[cfg(any(test, feature = "testing"))]
            Backend::Simulated(views) => views.make(table, make).await,
        }
    }

    /// The generation that readers see. Made when there is none yet: then there are no rows, as of position 0.
    async fn active(&self, table: &'static Table) -> Result<Known, LogError> {
        if let Some(active) = self.listing(table).await?.active() {
            return Ok(active);
        }
        self.attach(table).await?;
        let made = self.listing(table).await?.active();
        made.ok_or_else(|| table.misused("it has no active rows".to_owned()))
    }
}

impl Generation {
    /// Its projection's table.
    #[must_use]
    pub fn table(&self) -> &'static Table {
        self.table
    }

    /// The position of the last event that was applied to it; 0 at its beginning, `None` when it is gone.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn checkpoint(&self) -> Pending<'_, Option<u64>> {
        Box::pin(async move { Ok(self.views.state(self.table, self.number).await?.map(|state| state.position)) })
    }

    /// The rows with these keys, those that exist; `None` when the generation is gone. Ask for the checkpoint first and
    /// for the rows then: what another process applies in between makes [`Generation::apply`] say `false`.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn load<'a>(&'a self, keys: &'a [String]) -> Pending<'a, Option<Documents>> {
        Box::pin(async move {
            match &self.views.backend {
                Backend::Sqlite(views) => views.load(self.table, self.number, keys).await,
                Backend::Postgres(views) => views.load(self.table, self.number, keys).await,
                #[cfg(any(test, feature = "testing"))]
                Backend::Simulated(views) => views.load(self.table, self.number, keys).await,
            }
        })
    }

    /// Writes rows and moves the checkpoint over the events after `from` up to `to`, whose last was recorded at `at`;
    /// all of it or nothing. Of several writes to one key the last counts. An event that stopped the projection counts
    /// as passed.
    ///
    /// `false`: nothing was written, because the checkpoint does not stand at `from` (somebody else has applied these
    /// events) or the generation is gone.
    ///
    /// # Errors
    /// [`LogError`]; a write that does not fit the table is one too.
    pub fn apply(&self, from: u64, to: u64, at: Micros, writes: Vec<RowWrite>) -> Pending<'_, bool> {
        Box::pin(async move {
            if to <= from {
                return Err(self.table.misused(format!("applied from {from} to {to}, which guards nothing")));
            }
            let changes = self.table.last_writes(writes)?;
            let step = Step { from: signed(from)?, to: signed(to)?, at };
            match &self.views.backend {
                Backend::Sqlite(views) => views.apply(self.table, self.number, step, changes).await,
                Backend::Postgres(views) => views.apply(self.table, self.number, step, changes).await,
                #[cfg(any(test, feature = "testing"))]
                Backend::Simulated(views) => views.apply(self.table, self.number, step, changes).await,
            }
        })
    }

    /// Records that the event at `position` cannot be applied, and why. It is the projection's health until the event
    /// is passed (by another process, by a newer binary) or the projection is rebuilt; nothing recorded here when it
    /// is passed already.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn stop<'a>(&'a self, position: u64, error: &'a str) -> Pending<'a, ()> {
        Box::pin(async move {
            let position = signed(position)?;
            let error = error.replace('\0', "\u{fffd}");
            match &self.views.backend {
                Backend::Sqlite(views) => views.stop(self.table, self.number, position, &error).await,
                Backend::Postgres(views) => views.stop(self.table, self.number, position, &error).await,
                #[cfg(any(test, feature = "testing"))]
                Backend::Simulated(views) => views.stop(self.table, self.number, position, &error).await,
            }
        })
    }
}

/// A position as the databases keep it.
fn signed(position: u64) -> Result<i64, LogError> {
    i64::try_from(position).map_err(|_| LogError::Unavailable {
        operation: "use a projection",
        reason: format!("{position} is no position"),
    })
}

/// A position as it was kept; what is stored is never negative.
fn unsigned(position: i64) -> u64 {
    u64::try_from(position).unwrap_or_default()
}

/// An address that is not understood, without its password.
fn address(url: &str) -> LogError {
    LogError::Address(url.split('@').next_back().unwrap_or_default().to_owned())
}

/// Names what was tried when a database says no.
fn fault(operation: &'static str) -> impl Fn(sqlx::Error) -> LogError {
    move |error| LogError::Unavailable { operation, reason: error.to_string() }
}
