//! Opening the file: what is there, whose it is, and one clear sentence where it cannot be.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use sqlx::{
    ConnectOptions as _, Connection as _, Row as _, SqliteConnection,
    sqlite::{SqliteConnectOptions, SqliteSynchronous},
};
use tokio::time::{Instant, sleep};

use crate::{
    log::LogError,
    migrate::{APPLICATION_ID, Found},
};

/// How long a connection waits for another process that writes.
const BUSY: Duration = Duration::from_secs(30);
/// How long it waits in one go to append. SQLite asks for the lock ever more rarely the longer it waits, and never
/// gets it from a process that writes all the time; so it begins anew after a few tries.
const TURN: &str = "PRAGMA busy_timeout = 5";
const PATIENT: &str = "PRAGMA busy_timeout = 30000";

/// The file that `sqlite://FILE` names.
pub(super) fn path(url: &str) -> Result<PathBuf, LogError> {
    let rest = url.strip_prefix("sqlite:").unwrap_or(url);
    let file = rest.strip_prefix("//").unwrap_or(rest);
    // SQLite would take these for databases that vanish, or for options.
    if file.is_empty() || file.starts_with(':') || file.contains('?') || file.contains('\0') {
        return Err(LogError::Address(url.to_owned()));
    }
    Ok(PathBuf::from(file))
}

pub(super) fn read_options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .read_only(true)
        .busy_timeout(BUSY)
        .row_buffer_size(512)
        .disable_statement_logging()
}

fn write_options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .busy_timeout(BUSY)
        // An append that was answered survives a power cut.
        .synchronous(SqliteSynchronous::Full)
        // What is erased leaves no trace in free pages.
        .pragma("secure_delete", "ON")
        .pragma("journal_size_limit", "67108864")
        .disable_statement_logging()
}

/// Opens the file to write; makes and migrates the ledger where there is none.
pub(super) async fn open_to_write(path: &Path) -> Result<SqliteConnection, LogError> {
    check_writable(path)?;
    let mut connection = write_options(path).connect().await.map_err(|e| fault(path, "open", &e))?;
    // Looked at before anything is changed: another application's file stays as it is.
    inspect(&mut connection).await.map_err(|e| fault(path, "open", &e))?.missing(&shown(path))?;
    set_wal(&mut connection).await.map_err(|e| fault(path, "open", &e))?;
    migrate(&mut connection, path).await?;
    set_patience(&mut connection, false).await.map_err(|e| fault(path, "open", &e))?;
    Ok(connection)
}

/// Whether the connection itself waits as long as it takes, or [`begin`] does.
pub(crate) async fn set_patience(connection: &mut SqliteConnection, patient: bool) -> Result<(), sqlx::Error> {
    sqlx::query(if patient { PATIENT } else { TURN }).execute(connection).await.map(drop)
}

/// Takes the lock of the only writer, at once: a read that turns into a write later may find it has no way on.
pub(crate) async fn begin(connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    let begun = Instant::now();
    loop {
        match sqlx::query("BEGIN IMMEDIATE").execute(&mut *connection).await {
            Err(error) if primary_code(&error) == Some(BUSY_CODE) && begun.elapsed() < BUSY => {}
            done => return done.map(drop),
        }
    }
}

/// Opens the connection again after a fault; the file has to be there.
pub(super) async fn open_again(path: &Path) -> Result<SqliteConnection, LogError> {
    let options = write_options(path).create_if_missing(false);
    let mut connection = options.connect().await.map_err(|e| fault(path, "open", &e))?;
    set_patience(&mut connection, false).await.map_err(|e| fault(path, "open", &e))?;
    Ok(connection)
}

/// How to read the ledger, if there is one this binary knows. Makes no ledger; SQLite itself may put its `-wal` and `-shm` beside
/// one, as every reader of a WAL database does.
pub(super) async fn open_to_read(path: &Path) -> Result<SqliteConnectOptions, LogError> {
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => return Err(file(path, "it is a directory")),
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(LogError::Absent(shown(path))),
        Err(error) => return Err(file(path, &error.to_string())),
    }
    let mut options = read_options(path);
    let found = match look(&options).await {
        // On a medium that cannot be written there is no room for SQLite's own files, and nobody who changes ours.
        Err(error) if primary_code(&error) == Some(CANNOT_OPEN) && !has_wal(path) => {
            options = options.immutable(true);
            look(&options).await
        }
        found => found,
    };
    found.map_err(|e| fault(path, "open", &e))?.readable(&shown(path))?;
    Ok(options)
}

async fn look(options: &SqliteConnectOptions) -> Result<Found, sqlx::Error> {
    let mut connection = options.connect().await?;
    let found = inspect(&mut connection).await?;
    // It was only read.
    let _ = connection.close().await;
    Ok(found)
}

/// Whether appends may stand beside the file that are not in it yet.
fn has_wal(path: &Path) -> bool {
    wal_bytes(path) > 0
}

pub(super) fn wal_bytes(path: &Path) -> u64 {
    let mut wal = path.as_os_str().to_owned();
    wal.push("-wal");
    fs::metadata(wal).map_or(0, |wal| wal.len())
}

fn check_writable(path: &Path) -> Result<(), LogError> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    match fs::metadata(directory) {
        Ok(found) if !found.is_dir() => return Err(file(path, &format!("{} is no directory", directory.display()))),
        Ok(found) if found.permissions().readonly() => {
            return Err(file(path, &format!("the directory {} is read-only", directory.display())));
        }
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(file(path, &format!("the directory {} does not exist", directory.display())));
        }
        Err(error) => return Err(file(path, &error.to_string())),
    }
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => Err(file(path, "it is a directory")),
        Ok(found) if found.permissions().readonly() => Err(file(path, "it is read-only")),
        _ => Ok(()),
    }
}

/// What the file holds. Tables are looked for first: another process may make them, and the id with them, meanwhile.
async fn inspect(connection: &mut SqliteConnection) -> Result<Found, sqlx::Error> {
    let tables: i64 =
        sqlx::query("SELECT count(*) FROM sqlite_schema").fetch_one(&mut *connection).await?.try_get(0)?;
    let application: i32 = sqlx::query("PRAGMA application_id").fetch_one(&mut *connection).await?.try_get(0)?;
    match (tables, application) {
        (0, 0 | APPLICATION_ID) => Ok(Found::Nothing),
        (_, APPLICATION_ID) => {
            let row = sqlx::query("SELECT coalesce(max(version), 0) FROM ledger_schema WHERE application = 'midwatch'")
                .fetch_one(connection)
                .await?;
            Ok(Found::Ledger(row.try_get(0)?))
        }
        _ => Ok(Found::Foreign),
    }
}

/// WAL stays set in the file. The switch needs the file for itself and does not wait, so it is tried for a while.
async fn set_wal(connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    for pause_ms in [1, 5, 20, 50, 100, 200, 400] {
        match sqlx::query("PRAGMA journal_mode = WAL").fetch_one(&mut *connection).await {
            Ok(_) => return Ok(()),
            Err(error) if primary_code(&error) == Some(BUSY_CODE) => sleep(Duration::from_millis(pause_ms)).await,
            Err(error) => return Err(error),
        }
    }
    sqlx::query("PRAGMA journal_mode = WAL").fetch_one(connection).await.map(drop)
}

async fn migrate(connection: &mut SqliteConnection, path: &Path) -> Result<(), LogError> {
    let failed = |error: sqlx::Error| fault(path, "migrate", &error);
    if inspect(connection).await.map_err(failed)?.missing(&shown(path))?.is_empty() {
        return Ok(());
    }
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await.map_err(failed)?;
    // Again, under the lock: another process may have been quicker.
    for migration in inspect(&mut transaction).await.map_err(failed)?.missing(&shown(path))? {
        sqlx::raw_sql(migration.sqlite).execute(&mut *transaction).await.map_err(failed)?;
        sqlx::query("INSERT INTO ledger_schema (version, application) VALUES (?, 'midwatch')")
            .bind(migration.number)
            .execute(&mut *transaction)
            .await
            .map_err(failed)?;
    }
    sqlx::raw_sql(SET_APPLICATION_ID).execute(&mut *transaction).await.map_err(failed)?;
    transaction.commit().await.map_err(failed)
}

/// A pragma takes no parameter; a test holds it to [`APPLICATION_ID`].
const SET_APPLICATION_ID: &str = "PRAGMA application_id = 1297566791";

const BUSY_CODE: u32 = 5;
const CANNOT_OPEN: u32 = 14;
pub(super) const IO_FAILED: u32 = 10;
pub(super) const DISK_FULL: u32 = 13;

/// SQLite's own code, without the extension in its upper bits.
pub(super) fn primary_code(error: &sqlx::Error) -> Option<u32> {
    extended_code(error).map(|code| code & 0xff)
}

pub(super) fn extended_code(error: &sqlx::Error) -> Option<u32> {
    error.as_database_error()?.code()?.parse().ok()
}

/// What went wrong with the file, in a sentence that names it.
pub(super) fn fault(path: &Path, operation: &'static str, error: &sqlx::Error) -> LogError {
    match primary_code(error) {
        Some(3 | 23) => file(path, "the system does not permit it"),
        Some(8) => file(path, "it is read-only"),
        Some(DISK_FULL) => file(path, "the disk is full"),
        Some(CANNOT_OPEN) => file(path, "the system does not let SQLite open it"),
        Some(26) => file(path, "it is not a SQLite database"),
        Some(BUSY_CODE) => LogError::Unavailable {
            operation,
            reason: format!("another process has been writing to {} for {} s", path.display(), BUSY.as_secs()),
        },
        _ => LogError::Unavailable { operation, reason: error.to_string() },
    }
}

fn file(path: &Path, reason: &str) -> LogError {
    LogError::File { path: path.to_owned(), reason: reason.to_owned() }
}

fn shown(path: &Path) -> String {
    format!("sqlite://{}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pragma_sets_our_application_id() {
        assert_eq!(SET_APPLICATION_ID, format!("PRAGMA application_id = {APPLICATION_ID}"));
    }
}
