//! A fresh database on each backend, for tests of everything that stands on a ledger.
//!
//! `MIDWATCH_TEST_POSTGRES` names the server (`scripts/with-postgres.sh` starts one); without it tests fail, they are
//! not skipped.
#![expect(clippy::expect_used, reason = "it is compiled for tests only, and a test fails by panicking")]

use std::{
    env,
    sync::Arc,
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use midwatch_events::{Micros, Recorded};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, postgres::PgConnectOptions};
use tempfile::TempDir;
use uuid::Uuid;

use crate::simulated::{Boxed, Operation, Passage, Store, Weather};

/// Keeps a fresh database; drop it to remove the database.
#[derive(Debug)]
pub enum Guard {
    /// A directory that holds the file.
    Sqlite(TempDir),
    /// A database on the test server.
    Postgres(Box<PostgresGuard>),
    /// A store in memory.
    Simulated(SimulatedGuard),
}

/// A store in memory, registered.
#[derive(Debug)]
pub struct SimulatedGuard(Store);

impl Drop for SimulatedGuard {
    fn drop(&mut self) {
        self.0.unregister();
    }
}

/// A simulated store's weather when nothing goes wrong: the machine's time and chance, and no delay.
#[derive(Debug)]
pub struct Calm;

impl Weather for Calm {
    #[expect(clippy::disallowed_methods, reason = "it stands for a database, which has a clock of its own")]
    fn now(&self, _port: Option<u32>) -> Micros {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }

    fn fill(&self, bytes: &mut [u8]) {
        getrandom::fill(bytes).expect("randomness");
    }

    fn passage(&self, _port: u32, _operation: Operation) -> Passage {
        Passage::default()
    }

    fn news(&self, _port: u32) -> Option<Duration> {
        None
    }

    fn tries_again(&self, _port: u32) -> bool {
        true
    }

    fn pause(&self, span: Duration) -> Boxed {
        Box::pin(tokio::time::sleep(span))
    }

    fn spawn(&self, task: Boxed) {
        drop(tokio::spawn(task));
    }

    fn durable(&self, _port: u32, _events: &[Recorded], _keys: &[[u8; 32]]) {}
}

/// An address of an empty store in memory, in calm weather.
///
/// # Panics
/// Without randomness.
#[must_use]
pub fn fresh_simulated() -> (String, Guard) {
    let mut random = [0; 16];
    getrandom::fill(&mut random).expect("randomness");
    let store = Store::register(&Uuid::from_bytes(random).simple().to_string(), Arc::new(Calm));
    (store.url(0), Guard::Simulated(SimulatedGuard(store)))
}

/// A database on the test server.
#[derive(Debug)]
pub struct PostgresGuard {
    server: PgConnectOptions,
    name: String,
}

impl Drop for PostgresGuard {
    fn drop(&mut self) {
        let (server, name) = (self.server.clone(), self.name.clone());
        // Dropping cannot wait in an executor; a thread of its own can.
        let dropped = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let sql = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)");
                let mut connection = server.connect().await?;
                sqlx::query(AssertSqlSafe(sql)).execute(&mut connection).await?;
                connection.close().await
            })
        });
        // A server that is gone took the database with it.
        let _ = dropped.join();
    }
}

/// An address for each backend at which there is nothing yet: `(backend's name, address, guard)`.
///
/// # Panics
/// Where there is no test server.
pub async fn fresh_urls() -> Vec<(&'static str, String, Guard)> {
    let (url, guard) = fresh_sqlite();
    let mut fresh = vec![("sqlite", url, guard)];
    let (url, guard) = fresh_postgres().await;
    fresh.push(("postgres", url, guard));
    fresh
}

/// An address of a SQLite file that is not there yet.
///
/// # Panics
/// Where no directory can be made.
#[must_use]
pub fn fresh_sqlite() -> (String, Guard) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let url = format!("sqlite://{}/ledger.db", directory.path().display());
    (url, Guard::Sqlite(directory))
}

/// An address of an empty PostgreSQL database.
///
/// # Panics
/// Where there is no test server.
pub async fn fresh_postgres() -> (String, Guard) {
    let url = env::var("MIDWATCH_TEST_POSTGRES")
        .expect("MIDWATCH_TEST_POSTGRES names no server; run this through scripts/with-postgres.sh");
    let server: PgConnectOptions = url.parse().expect("MIDWATCH_TEST_POSTGRES is a PostgreSQL address");
    let mut random = [0; 16];
    getrandom::fill(&mut random).expect("randomness");
    let name = format!("mw_test_{}", Uuid::from_bytes(random).simple());
    let mut connection = server.connect().await.expect("the test server answers");
    let sql = format!("CREATE DATABASE {name}");
    sqlx::query(AssertSqlSafe(sql)).execute(&mut connection).await.expect("the test server makes a database");
    connection.close().await.expect("the test server says goodbye");
    let (base, _) = url.rsplit_once('/').expect("the address names a database");
    (format!("{base}/{name}"), Guard::Postgres(Box::new(PostgresGuard { server, name })))
}
