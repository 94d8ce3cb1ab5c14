//! What one would write without a writer: a pool of SQLite connections, one transaction per append.

use std::time::Duration;

use midwatch_events::StreamName;
use sqlx::{
    ConnectOptions as _, Connection as _, Row as _, SqliteConnection,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous},
};
use tokio::time::Instant;

use crate::{
    Outcome,
    append::{Counted, Span, line},
    samples::Ids,
};

const TABLE: &str = "CREATE TABLE events (position INTEGER PRIMARY KEY, stream TEXT NOT NULL, version INTEGER NOT NULL,
    event_id BLOB NOT NULL, event_type TEXT NOT NULL, actor TEXT NOT NULL, facts BLOB NOT NULL, content BLOB,
    UNIQUE (stream, version))";

pub(crate) async fn one_transaction_each(file: &str, connections: usize, seconds: Duration) -> Outcome<String> {
    let options = SqliteConnectOptions::new()
        .filename(file)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(Duration::from_secs(30));
    let mut first = options.connect().await?;
    sqlx::query(TABLE).execute(&mut first).await?;
    first.close().await?;
    let mut opened = Vec::new();
    for _ in 0..connections {
        opened.push(options.connect().await?);
    }
    let span = Span::next(seconds);
    let run = Ids::new()?.next()?;
    let tasks: Vec<_> = opened
        .into_iter()
        .enumerate()
        .map(|(n, connection)| tokio::spawn(caller(connection, StreamName::stored(format!("run-{run}-{n}")), span)))
        .collect();
    let mut all = Counted::default();
    for task in tasks {
        all.took_us.extend(task.await??.took_us);
    }
    Ok(line(connections, span.seconds(), all))
}

async fn caller(mut connection: SqliteConnection, stream: StreamName, span: Span) -> Outcome<Counted> {
    let (mut ids, mut counted, mut version) = (Ids::new()?, Counted::default(), 0_i64);
    while !span.is_over() {
        let began = Instant::now();
        let event = ids.event()?;
        sqlx::query("BEGIN IMMEDIATE").execute(&mut connection).await?;
        let found: Option<i64> = sqlx::query("SELECT max(version) FROM events WHERE stream = ?")
            .bind(stream.as_str())
            .fetch_one(&mut connection)
            .await?
            .try_get(0)?;
        if found.unwrap_or(0) != version {
            return Err("another version than expected".into());
        }
        version += 1;
        let insert = "INSERT INTO events (stream, version, event_id, event_type, actor, facts, content)
            VALUES (?, ?, ?, ?, ?, ?, ?)";
        sqlx::query(insert)
            .bind(stream.as_str())
            .bind(version)
            .bind(event.event_id)
            .bind(event.event_type)
            .bind(event.actor)
            .bind(event.facts)
            .bind(event.content)
            .execute(&mut connection)
            .await?;
        sqlx::query("COMMIT").execute(&mut connection).await?;
        span.count(&mut counted, began);
    }
    Ok(counted)
}
