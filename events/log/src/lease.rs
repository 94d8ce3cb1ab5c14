//! Lease rows: who is working on which run. Not history, and not the truth either: the decider refuses any take but
//! the current one. A lost row only makes others wait.
//!
//! On SQLite they live in a file of their own, `<ledger>-leases`, that is not synced at every commit and can be
//! deleted: a beat every 10 s for each run would otherwise flush the ledger and wake everybody who follows it.

use std::{path::PathBuf, time::Duration};

use sqlx::{
    ConnectOptions as _, Row as _, SqlitePool,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};
use uuid::Uuid;

use crate::{
    log::{Log, LogError, Open, Pending},
    postgres,
    sqlite::SqliteLog,
};

/// One run's lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The run.
    pub run: Uuid,
    /// Which take holds it.
    pub take: u32,
    /// Raised by one with each renewal.
    pub beat: u64,
}

/// Writes the lease of `take`; false where a newer take holds the run, and nothing was written.
///
/// # Errors
/// [`LogError`].
pub fn beat(log: &Log, run: Uuid, take: u32, beat: u64) -> Pending<'_, bool> {
    Box::pin(async move {
        let beat = i64::try_from(beat).unwrap_or(i64::MAX);
        let written = match log {
            Log::Sqlite(log) => {
                let Some(leases) = leases(log).await? else { return Err(read_only()) };
                sqlx::query(
                    "INSERT INTO run_lease (run, take, beat) VALUES (?, ?, ?)
                 ON CONFLICT (run) DO UPDATE SET take = excluded.take, beat = excluded.beat
                 WHERE (excluded.take, excluded.beat) >= (run_lease.take, run_lease.beat)",
                )
                .bind(run)
                .bind(take)
                .bind(beat)
                .execute(leases)
                .await
                .map_err(|e| failed("renew a lease", &e))?
                .rows_affected()
            }
            Log::Postgres(log) if log.mode() == Open::ReadOnly => return Err(read_only()),
            Log::Postgres(log) => sqlx::query(
                // Nobody waits for the disk for what may be lost.
                "WITH off AS (SELECT set_config('synchronous_commit', 'off', true))
             INSERT INTO run_lease (run, take, beat) SELECT $1, $2, $3 FROM off
             ON CONFLICT (run) DO UPDATE SET take = excluded.take, beat = excluded.beat
             WHERE (excluded.take, excluded.beat) >= (run_lease.take, run_lease.beat)",
            )
            .bind(run)
            .bind(i64::from(take))
            .bind(beat)
            .execute(log.pool())
            .await
            .map_err(|e| postgres::failed("renew a lease", &e))?
            .rows_affected(),
            #[cfg(any(test, feature = "testing"))]
            Log::Simulated(log) => {
                let renew = |state: &mut crate::simulated::State| {
                    let held = state.leases.entry(run).or_default();
                    let renews = (take, beat.unsigned_abs()) >= *held;
                    if renews {
                        *held = (take, beat.unsigned_abs());
                    }
                    Ok(u64::from(renews))
                };
                log.change("renew a lease", renew).await?
            }
        };
        Ok(written == 1)
    })
}

/// Writes the first beat of many takes, on PostgreSQL in one statement; says of which runs it was written: of the others
/// a newer take holds the run.
///
/// # Errors
/// [`LogError`]; nothing was written then, or only some of it.
pub fn begin<'a>(log: &'a Log, takes: &'a [(Uuid, u32)]) -> Pending<'a, Vec<Uuid>> {
    Box::pin(async move {
        let Log::Postgres(log) = log else {
            let mut begun = Vec::new();
            for (run, take) in takes {
                if beat(log, *run, *take, 1).await? {
                    begun.push(*run);
                }
            }
            return Ok(begun);
        };
        if log.mode() == Open::ReadOnly {
            return Err(read_only());
        }
        let runs: Vec<Uuid> = takes.iter().map(|(run, _)| *run).collect();
        let takes: Vec<i64> = takes.iter().map(|(_, take)| i64::from(*take)).collect();
        let begun = sqlx::query_scalar(
        "WITH off AS (SELECT set_config('synchronous_commit', 'off', true))
         INSERT INTO run_lease (run, take, beat) SELECT t.run, t.take, 1 FROM off, unnest($1::uuid[], $2::bigint[]) t (run, take)
         ON CONFLICT (run) DO UPDATE SET take = excluded.take, beat = excluded.beat
         WHERE (excluded.take, excluded.beat) >= (run_lease.take, run_lease.beat)
         RETURNING run",
    )
    .bind(runs)
    .bind(takes)
    .fetch_all(log.pool());
        begun.await.map_err(|e| postgres::failed("begin leases", &e))
    })
}

/// The leases of these runs; a run without a row is left out.
///
/// # Errors
/// [`LogError`].
pub fn read<'a>(log: &'a Log, runs: &'a [Uuid]) -> Pending<'a, Vec<Lease>> {
    Box::pin(async move {
        // There are as many rows as live runs: few enough to read them all.
        Ok(read_all(log).await?.into_iter().filter(|lease| runs.contains(&lease.run)).collect())
    })
}

/// All leases, by run.
///
/// # Errors
/// [`LogError`].
pub fn read_all(log: &Log) -> Pending<'_, Vec<Lease>> {
    Box::pin(async move {
        const ALL: &str = "SELECT run, take, beat FROM run_lease ORDER BY run";
        match log {
            Log::Sqlite(log) => {
                let Some(leases) = leases(log).await? else { return Ok(Vec::new()) };
                let rows = sqlx::query(ALL).fetch_all(leases).await;
                let leases = rows.and_then(|rows| {
                    rows.iter().map(|row| Ok(lease(row.try_get(0)?, row.try_get(1)?, row.try_get(2)?))).collect()
                });
                leases.map_err(|e: sqlx::Error| failed("read leases", &e))
            }
            Log::Postgres(log) => {
                let rows = sqlx::query(ALL).fetch_all(log.pool()).await;
                let leases = rows.and_then(|rows| {
                    rows.iter().map(|row| Ok(lease(row.try_get(0)?, row.try_get(1)?, row.try_get(2)?))).collect()
                });
                leases.map_err(|e: sqlx::Error| postgres::failed("read leases", &e))
            }
            #[cfg(any(test, feature = "testing"))]
            Log::Simulated(log) => {
                let all = |state: &mut crate::simulated::State| {
                    Ok(state
                        .leases
                        .iter()
                        .map(|(run, (take, beat))| Lease { run: *run, take: *take, beat: *beat })
                        .collect())
                };
                log.ask(crate::simulated::Operation::Look, all).await
            }
        }
    })
}

/// Gives up leases, each unless a newer take holds its run; on PostgreSQL in one statement.
///
/// # Errors
/// [`LogError`]; some may be given up then.
pub fn give_up<'a>(log: &'a Log, takes: &'a [(Uuid, u32)]) -> Pending<'a, ()> {
    Box::pin(async move {
        match log {
            Log::Sqlite(log) => {
                let Some(leases) = leases(log).await? else { return Err(read_only()) };
                for (run, take) in takes {
                    let dropped = sqlx::query("DELETE FROM run_lease WHERE run = ? AND take <= ?").bind(run).bind(take);
                    dropped.execute(leases).await.map_err(|e| failed("drop a lease", &e))?;
                }
                Ok(())
            }
            Log::Postgres(log) if log.mode() == Open::ReadOnly => Err(read_only()),
            Log::Postgres(log) => {
                let runs: Vec<Uuid> = takes.iter().map(|(run, _)| *run).collect();
                let takes: Vec<i64> = takes.iter().map(|(_, take)| i64::from(*take)).collect();
                let dropped = sqlx::query(
                    "WITH off AS (SELECT set_config('synchronous_commit', 'off', true))
                 DELETE FROM run_lease l USING off, unnest($1::uuid[], $2::bigint[]) t (run, take)
                 WHERE l.run = t.run AND l.take <= t.take",
                );
                let dropped = dropped.bind(runs).bind(takes).execute(log.pool()).await;
                dropped.map(drop).map_err(|e| postgres::failed("drop leases", &e))
            }
            #[cfg(any(test, feature = "testing"))]
            Log::Simulated(log) => {
                let drop_them = |state: &mut crate::simulated::State| {
                    for (run, take) in takes {
                        state.leases.retain(|known, (held, _)| known != run || *held > *take);
                    }
                    Ok(())
                };
                log.change("drop leases", drop_them).await
            }
        }
    })
}

fn lease(run: Uuid, take: i64, beat: i64) -> Lease {
    Lease { run, take: u32::try_from(take).unwrap_or(u32::MAX), beat: beat.unsigned_abs() }
}

fn read_only() -> LogError {
    LogError::Unavailable { operation: "renew a lease", reason: "the ledger was opened to read only".to_owned() }
}

/// The lease file's connection; a reader gets none where there is no file.
async fn leases(log: &SqliteLog) -> Result<Option<&SqlitePool>, LogError> {
    let mut file = log.path().as_os_str().to_owned();
    file.push("-leases");
    let file = PathBuf::from(file);
    let read_only = log.mode() == Open::ReadOnly;
    if read_only && log.lease_pool().get().is_none() && !file.exists() {
        return Ok(None);
    }
    let opened = log.lease_pool().get_or_try_init(|| async {
        let mut options = SqliteConnectOptions::new()
            .filename(&file)
            .busy_timeout(Duration::from_secs(5))
            .read_only(read_only)
            .disable_statement_logging();
        if !read_only {
            options = options
                .create_if_missing(true)
                .journal_mode(SqliteJournalMode::Wal)
                .synchronous(SqliteSynchronous::Normal);
        }
        let pool = SqlitePoolOptions::new().max_connections(1).connect_with(options).await?;
        if !read_only {
            sqlx::query(
                "CREATE TABLE IF NOT EXISTS run_lease
                 (run BLOB NOT NULL PRIMARY KEY, take INTEGER NOT NULL, beat INTEGER NOT NULL) STRICT, WITHOUT ROWID",
            )
            .execute(&pool)
            .await?;
        }
        Ok(pool)
    });
    opened.await.map(Some).map_err(|e: sqlx::Error| failed("open the leases", &e))
}

/// What SQLite said of the lease file.
fn failed(operation: &'static str, error: &sqlx::Error) -> LogError {
    LogError::Unavailable { operation, reason: error.to_string() }
}
