//! A ledger to try, and short words for what is appended to it.

use std::sync::atomic::{AtomicU64, Ordering};

use midwatch_events::{Recorded, StreamName, key::Key};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, sqlite::SqliteConnectOptions};
use uuid::Uuid;

use crate::{Append, Appended, Expected, Filter, Log, NewEvent, Open, StreamAppend, testing::Guard};

/// One backend's fresh database.
pub(crate) struct Backend {
    pub(crate) name: &'static str,
    pub(crate) url: String,
    #[expect(dead_code, reason = "keeps the database until the case ends")]
    pub(crate) guard: Guard,
}

impl Backend {
    pub(crate) fn is_sqlite(&self) -> bool {
        self.name == "sqlite"
    }

    pub(crate) fn file(&self) -> &str {
        self.url.trim_start_matches("sqlite://")
    }

    pub(crate) async fn open(&self) -> Log {
        Log::open(&self.url, Open::ReadWrite).await.unwrap()
    }

    /// Runs SQL behind the ledger's back; gives the rows affected or what the database said.
    pub(crate) async fn sql(&self, sql: &str) -> Result<u64, String> {
        let sql = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()));
        let done = if self.is_sqlite() {
            let options = SqliteConnectOptions::new()
                .filename(self.file())
                .create_if_missing(true)
                .busy_timeout(std::time::Duration::from_secs(9));
            let mut connection = options.connect().await.unwrap();
            let done = sql.execute(&mut connection).await.map(|done| done.rows_affected());
            connection.close().await.unwrap();
            done
        } else {
            let mut connection = sqlx::PgConnection::connect(&self.url).await.unwrap();
            let done = sql.execute(&mut connection).await.map(|done| done.rows_affected());
            connection.close().await.unwrap();
            done
        };
        done.map_err(|error| error.to_string())
    }

    /// Takes the guards off, as somebody with the database's password could.
    pub(crate) async fn drop_guards(&self) {
        let sql = if self.is_sqlite() {
            "DROP TRIGGER events_only_at_head; DROP TRIGGER events_only_erased; DROP TRIGGER events_never_deleted;
             DROP TRIGGER ledger_key_only_added; DROP TRIGGER ledger_key_never_changed;
             DROP TRIGGER ledger_key_never_deleted"
        } else {
            "ALTER TABLE events DISABLE TRIGGER ALL; ALTER TABLE ledger_key DISABLE TRIGGER ALL"
        };
        self.sql(sql).await.unwrap();
    }
}

/// Event ids that are new in this test process.
pub(crate) fn new_id() -> Uuid {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    Uuid::from_u64_pair(0x0198_c0de_0000_7000, 0x8000_0000_0000_0000 | n)
}

pub(crate) fn stream(name: &str) -> StreamName {
    StreamName::stored(name.to_owned())
}

pub(crate) fn event(event_type: &str) -> NewEvent {
    NewEvent {
        event_id: new_id(),
        event_type: event_type.to_owned(),
        schema: 1,
        actor: "engine".to_owned(),
        correlation_id: None,
        causation_id: None,
        facts: b"\xa0".to_vec(),
        content: None,
    }
}

pub(crate) fn worded(event_type: &str, content: &str) -> NewEvent {
    NewEvent { content: Some(content.as_bytes().to_vec()), ..event(event_type) }
}

pub(crate) fn to(name: &str, expected: Expected, events: Vec<NewEvent>) -> StreamAppend {
    StreamAppend { stream: stream(name), expected, events }
}

pub(crate) fn append(entries: Vec<StreamAppend>) -> Append {
    Append { entries, ..Append::default() }
}

/// One event, wherever the stream is.
pub(crate) fn one(name: &str, event_type: &str) -> Append {
    append(vec![to(name, Expected::Any, vec![event(event_type)])])
}

pub(crate) fn key(part: &str, asked: &str) -> Key {
    Key::new(&["test", part], &[asked.as_bytes()])
}

pub(crate) async fn write(log: &Log, name: &str, count: usize) -> Appended {
    let events = (0..count).map(|_| event("run.opened")).collect();
    log.append(append(vec![to(name, Expected::Any, events)])).await.unwrap()
}

pub(crate) async fn all(log: &Log) -> Vec<Recorded> {
    let mut events = Vec::new();
    loop {
        let after = events.last().map_or(0, |event: &Recorded| event.position);
        let (page, _) = log.read_all(after, 1_000, &Filter::default()).await.unwrap();
        if page.is_empty() {
            return events;
        }
        events.extend(page);
    }
}
