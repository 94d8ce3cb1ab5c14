//! Connections, and the tables behind them.

use std::{str::FromStr as _, sync::Arc, time::Duration};

use sqlx::{
    ConnectOptions as _, Connection as _, PgConnection, PgPool, Row as _,
    postgres::{PgConnectOptions, PgPoolOptions},
};

use super::read;
use crate::{
    log::{LogError, Open},
    memory::Memory,
    migrate::{Found, Migration},
};

/// Connections for everything but appends.
const POOL: u32 = 8;
/// How long to wait for a connection.
const PATIENCE: Duration = Duration::from_secs(10);

/// How every session is opened: no frozen client may hold the lock for long, and no dead one is waited for.
///
/// Each statement here has its index, row by row. What else the planner knows is off, because a plan that was cached
/// while a table was empty would scan it when it is full.
///
/// Statements of a millisecond gain nothing from being compiled, and "off" counts as expensive.
const SETTINGS: [(&str, &str); 11] = [
    ("idle_in_transaction_session_timeout", "5000"),
    ("statement_timeout", "25000"),
    ("tcp_user_timeout", "10000"),
    ("tcp_keepalives_idle", "5"),
    ("tcp_keepalives_interval", "2"),
    ("tcp_keepalives_count", "3"),
    ("enable_seqscan", "off"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    ("jit", "off"),
    ("client_min_messages", "warning"),
];

pub(crate) fn options(url: &str, open: Open) -> Result<PgConnectOptions, LogError> {
    let options = PgConnectOptions::from_str(url).map_err(|_| LogError::Address(without_password(url)))?;
    let options = options.application_name("midwatch").options(SETTINGS).disable_statement_logging();
    Ok(match open {
        Open::ReadWrite => options,
        Open::ReadOnly => options.options([("default_transaction_read_only", "on")]),
    })
}

/// A pool over a database that is a ledger; made and migrated first where that may be.
///
/// # Errors
/// [`LogError`].
pub(crate) async fn migrated_pool(
    options: &PgConnectOptions,
    open: Open,
    memory: &Arc<Memory>,
) -> Result<PgPool, LogError> {
    let shown = shown(options);
    let mut connection = match tokio::time::timeout(PATIENCE, options.connect()).await {
        Ok(connected) => connected.map_err(|e| connection_failed(&shown, &e))?,
        Err(_) => return Err(unreachable_sentence(&shown, "it does not answer")),
    };
    let found = inspect(&mut connection).await.map_err(|e| failed("open", &e))?;
    match open {
        Open::ReadOnly => found.readable(&shown)?,
        Open::ReadWrite if found.missing(&shown)?.is_empty() => {}
        Open::ReadWrite => migrate(&mut connection, &shown).await?,
    }
    // It did its work.
    let _ = connection.close().await;
    let memory = Arc::clone(memory);
    Ok(PgPoolOptions::new()
        .after_connect(move |connection, _| {
            let memory = Arc::clone(&memory);
            Box::pin(async move { recognise(connection, &memory).await })
        })
        .min_connections(0)
        .max_connections(POOL)
        .acquire_timeout(PATIENCE)
        .connect_lazy_with(options.clone()))
}

/// Looks whether behind a new connection there is the ledger that this process knows. Reading goes on where it is not:
/// somebody will want to see both.
async fn recognise(connection: &mut PgConnection, memory: &Memory) -> Result<(), sqlx::Error> {
    if let Some(mark) = memory.mark() {
        let found = read::leaf_at(&mut *connection, mark.position).await?;
        let head = read::last(connection).await?.map_or(0, |(position, _)| position);
        let _ = memory.compare(mark, found, head);
    }
    Ok(())
}

/// A connection that appends or flushes; where the server's own default is not to flush, it does all the same.
pub(super) async fn appending(options: &PgConnectOptions) -> Result<PgConnection, sqlx::Error> {
    let mut connection = options.connect().await?;
    sqlx::query(
        "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'",
    )
    .execute(&mut connection)
    .await?;
    Ok(connection)
}

async fn inspect(connection: &mut PgConnection) -> Result<Found, sqlx::Error> {
    let row = sqlx::query(
        "SELECT count(*) FILTER (WHERE c.relname = 'ledger_schema'), count(*) FROM pg_class c
         WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p')",
    )
    .fetch_one(&mut *connection)
    .await?;
    match (row.try_get::<i64, _>(0)?, row.try_get::<i64, _>(1)?) {
        (0, 0) => return Ok(Found::Nothing),
        (0, _) => return Ok(Found::Foreign),
        _ => {}
    }
    let row = sqlx::query("SELECT max(version) FROM ledger_schema WHERE application = 'midwatch'")
        .fetch_one(connection)
        .await;
    match row {
        Ok(row) => {
            let version: Option<i32> = row.try_get(0)?;
            Ok(version.map_or(Found::Foreign, |version| Found::Ledger(version.unsigned_abs())))
        }
        // A table of that name with other columns.
        Err(error) if error.as_database_error().and_then(|e| e.code()).as_deref() == Some("42703") => {
            Ok(Found::Foreign)
        }
        Err(error) => Err(error),
    }
}

/// Applies what is missing. Several processes may come here at once: in a ledger they wait for the row that appends
/// lock too; in an empty database the second one's first table waits for the first one's, and is then one too many.
async fn migrate(connection: &mut PgConnection, shown: &str) -> Result<(), LogError> {
    let failed = |error: sqlx::Error| failed("migrate", &error);
    loop {
        let found = inspect(connection).await.map_err(failed)?;
        let mut transaction = connection.begin().await.map_err(failed)?;
        if matches!(found, Found::Ledger(_)) {
            let lock = "SELECT FROM ledger_lock WHERE id = 1 FOR UPDATE";
            sqlx::query(lock).execute(&mut *transaction).await.map_err(failed)?;
        }
        // Again: another process may have been quicker.
        let missing = inspect(&mut transaction).await.map_err(failed)?.missing(shown)?;
        match apply(&mut transaction, missing).await {
            Ok(()) => return transaction.commit().await.map_err(failed),
            Err(error) if found == Found::Nothing && is_there_already(&error) => {
                transaction.rollback().await.map_err(failed)?;
            }
            Err(error) => return Err(failed(error)),
        }
    }
}

async fn apply(connection: &mut PgConnection, missing: &[Migration]) -> Result<(), sqlx::Error> {
    for migration in missing {
        sqlx::raw_sql(migration.postgres).execute(&mut *connection).await?;
        sqlx::query("INSERT INTO ledger_schema (version, application) VALUES ($1, 'midwatch')")
            .bind(i32::try_from(migration.number).unwrap_or(i32::MAX))
            .execute(&mut *connection)
            .await?;
    }
    Ok(())
}

/// A table, or its name among PostgreSQL's own rows.
fn is_there_already(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    matches!(code.as_deref(), Some("42P07" | "23505"))
}

/// What of a text that should be an address can be shown: a password stands before the last `@` or after a `?`.
pub(crate) fn without_password(url: &str) -> String {
    let place = url.rsplit_once('@').map_or(url, |(_, place)| place);
    place.split('?').next().unwrap_or_default().to_owned()
}

/// The address without its password.
fn shown(options: &PgConnectOptions) -> String {
    format!(
        "postgres://{}@{}:{}/{}",
        options.get_username(),
        options.get_socket().map_or(options.get_host().to_owned(), |socket| socket.display().to_string()),
        options.get_port(),
        options.get_database().unwrap_or(options.get_username()),
    )
}

fn connection_failed(shown: &str, error: &sqlx::Error) -> LogError {
    let database = error.as_database_error();
    match database.and_then(|error| error.code()).as_deref() {
        Some("28P01" | "28000") => unreachable_sentence(shown, "it refuses this user or password"),
        Some("3D000") => unreachable_sentence(shown, "there is no such database; create it with `createdb`"),
        Some("53300") => unreachable_sentence(shown, "it has no connection left"),
        _ => unreachable_sentence(shown, &error.to_string()),
    }
}

fn unreachable_sentence(shown: &str, reason: &str) -> LogError {
    LogError::Unavailable { operation: "connect", reason: format!("{shown}: {reason}") }
}

/// What the driver said of a failed operation.
pub(crate) fn failed(operation: &'static str, error: &sqlx::Error) -> LogError {
    let reason = match error.as_database_error() {
        Some(database) => database.message().to_owned(),
        None => error.to_string(),
    };
    LogError::Unavailable { operation, reason }
}
