//! Opening the file: what is there, whose it is, and one clear sentence where it cannot be.
//!
//! Everything here waits for the disk; call it on a thread that may.

use std::{
    fmt::Write as _,
    fs,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    thread::sleep,
    time::Duration,
};

use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use crate::{
    log::LogError,
    migrate::{APPLICATION_ID, Found},
};

/// How long a connection waits for another process that writes.
pub(super) const BUSY: Duration = Duration::from_secs(30);
/// How long it waits in one go to append. SQLite asks for the lock ever more rarely the longer it waits, and never
/// gets it from a process that writes all the time; so it begins anew after a few tries.
pub(super) const TURN: Duration = Duration::from_millis(5);

/// The write-ahead log is folded into the file when it has this many pages of 4 kB. Four times SQLite's own number: a
/// page that many commits change is written back once, and it takes a fifth less of the disk's time.
const CHECKPOINT_PAGES: u32 = 4_000;
/// To this many bytes the log's file is cut when it starts anew, should a long reader have let it grow.
const WAL_BYTES: u32 = 64 << 20;

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

/// How a reader opens the file.
#[derive(Clone, Debug)]
pub(super) struct ToRead {
    path: PathBuf,
    /// On a medium that cannot be written there is no room for SQLite's own files, and nobody who changes ours.
    immutable: bool,
}

impl ToRead {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), immutable: false }
    }

    pub(super) fn connect(&self) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = if self.immutable {
            let uri = immutable_uri(&self.path);
            Connection::open_with_flags(uri, flags | OpenFlags::SQLITE_OPEN_URI)?
        } else {
            Connection::open_with_flags(&self.path, flags)?
        };
        connection.busy_timeout(BUSY)?;
        Ok(connection)
    }
}

fn immutable_uri(path: &Path) -> String {
    let mut uri = "file:".to_owned();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => uri.push(char::from(*byte)),
            // Writing to a string cannot fail.
            _ => drop(write!(uri, "%{byte:02x}")),
        }
    }
    uri + "?immutable=1"
}

fn connect_to_write(path: &Path, more: OpenFlags) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | more;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY)?;
    // An append that was answered survives a power cut.
    connection.pragma_update(None, "synchronous", "FULL")?;
    // What is erased leaves no trace in free pages.
    connection.pragma_update(None, "secure_delete", "ON")?;
    connection.pragma_update(None, "foreign_keys", "ON")?;
    connection.pragma_update(None, "journal_size_limit", WAL_BYTES)?;
    connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
    Ok(connection)
}

/// Opens the file to write; makes and migrates the ledger where there is none.
pub(super) fn open_to_write(path: &Path) -> Result<Connection, LogError> {
    check_writable(path)?;
    let failed = |error: rusqlite::Error| fault(path, "open", &error);
    let mut connection = connect_to_write(path, OpenFlags::SQLITE_OPEN_CREATE).map_err(failed)?;
    // Looked at before anything is changed: another application's file stays as it is.
    inspect(&connection).map_err(failed)?.missing(&shown(path))?;
    set_wal(&connection).map_err(failed)?;
    migrate(&mut connection, path)?;
    connection.busy_timeout(TURN).map_err(failed)?;
    Ok(connection)
}

/// Opens the connection again after a fault; the file has to be there.
pub(super) fn open_again(path: &Path) -> Result<Connection, LogError> {
    let failed = |error: rusqlite::Error| fault(path, "open", &error);
    let connection = connect_to_write(path, OpenFlags::empty()).map_err(failed)?;
    connection.busy_timeout(TURN).map_err(failed)?;
    Ok(connection)
}

/// How to read the ledger, if there is one this binary knows. Makes no ledger; SQLite itself may put its `-wal` and
/// `-shm` beside one, as every reader of a WAL database does.
pub(super) fn open_to_read(path: &Path) -> Result<ToRead, LogError> {
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => return Err(file(path, "it is a directory")),
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(LogError::Absent(shown(path))),
        Err(error) => return Err(file(path, &error.to_string())),
    }
    let mut to_read = ToRead::new(path);
    let look = |to_read: &ToRead| to_read.connect().and_then(|connection| inspect(&connection));
    let found = match look(&to_read) {
        Err(error) if primary_code(&error) == Some(CANNOT_OPEN) && wal_bytes(path) == 0 => {
            to_read.immutable = true;
            look(&to_read)
        }
        found => found,
    };
    found.map_err(|e| fault(path, "open", &e))?.readable(&shown(path))?;
    Ok(to_read)
}

/// Bytes of the write-ahead log; 0 where nothing stands beside the file that is not in it yet.
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
fn inspect(connection: &Connection) -> rusqlite::Result<Found> {
    let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    let application: i32 = connection.query_row("PRAGMA application_id", [], |row| row.get(0))?;
    match (tables, application) {
        (0, 0 | APPLICATION_ID) => Ok(Found::Nothing),
        (_, APPLICATION_ID) => {
            let sql = "SELECT coalesce(max(version), 0) FROM ledger_schema WHERE application = 'midwatch'";
            connection.query_row(sql, [], |row| row.get(0)).map(Found::Ledger)
        }
        _ => Ok(Found::Foreign),
    }
}

/// WAL stays set in the file. The switch needs the file for itself and does not wait, so it is tried for a while.
fn set_wal(connection: &Connection) -> rusqlite::Result<()> {
    let set = || connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()));
    for pause_ms in [1, 5, 20, 50, 100, 200, 400] {
        match set() {
            Err(error) if primary_code(&error) == Some(BUSY_CODE) => sleep(Duration::from_millis(pause_ms)),
            done => return done,
        }
    }
    set()
}

fn migrate(connection: &mut Connection, path: &Path) -> Result<(), LogError> {
    let failed = |error: rusqlite::Error| fault(path, "migrate", &error);
    if inspect(connection).map_err(failed)?.missing(&shown(path))?.is_empty() {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    // Again, under the lock: another process may have been quicker.
    for migration in inspect(&transaction).map_err(failed)?.missing(&shown(path))? {
        transaction.execute_batch(migration.sqlite).map_err(failed)?;
        let sql = "INSERT INTO ledger_schema (version, application) VALUES (?, 'midwatch')";
        transaction.execute(sql, [migration.number]).map_err(failed)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID).map_err(failed)?;
    transaction.commit().map_err(failed)
}

pub(super) const BUSY_CODE: i32 = 5;
const CANNOT_OPEN: i32 = 14;
pub(super) const READ_ONLY: i32 = 8;
pub(super) const IO_FAILED: i32 = 10;
pub(super) const DISK_FULL: i32 = 13;

/// SQLite's own code, without the extension in its upper bits.
pub(super) fn primary_code(error: &rusqlite::Error) -> Option<i32> {
    extended_code(error).map(|code| code & 0xff)
}

pub(super) fn extended_code(error: &rusqlite::Error) -> Option<i32> {
    error.sqlite_error().map(|error| error.extended_code)
}

/// What went wrong with the file, in a sentence that names it.
pub(super) fn fault(path: &Path, operation: &'static str, error: &rusqlite::Error) -> LogError {
    match primary_code(error) {
        Some(3 | 23) => file(path, "the system does not permit it"),
        Some(READ_ONLY) => file(path, "it is read-only"),
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
    fn a_path_with_signs_of_an_address_stays_a_path() {
        let path = Path::new("/media/a disk/50%#1/ä.db");
        assert_eq!(immutable_uri(path), "file:/media/a%20disk/50%25%231/%c3%a4.db?immutable=1");
    }
}
