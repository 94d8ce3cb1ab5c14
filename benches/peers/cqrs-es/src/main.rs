//! postgres-es and sqlite-es, called where they write events: `midwatch-bench-cqrs-es URL CALLERS SECONDS`.

use std::{
    error::Error,
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use cqrs_es::{
    Aggregate, DomainEvent,
    event_sink::EventSink,
    persist::{PersistedEventRepository, SerializedEvent},
};
use postgres_es::PostgresEventRepository;
use serde::{Deserialize, Serialize};
use serde_json::json;
use sqlite_es::SqliteEventRepository;
use sqlx::{
    postgres::PgPoolOptions,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};

const WARM_UP: Duration = Duration::from_millis(500);
/// Connections beyond the callers would do nothing; the server has room for this many.
const MOST_CONNECTIONS: u32 = 64;

const POSTGRES_TABLE: &str = "CREATE TABLE IF NOT EXISTS events (aggregate_type text NOT NULL, aggregate_id text NOT NULL,
    sequence bigint CHECK (sequence >= 0) NOT NULL, event_type text NOT NULL, event_version text NOT NULL,
    payload json NOT NULL, metadata json NOT NULL, PRIMARY KEY (aggregate_type, aggregate_id, sequence))";
const SQLITE_TABLE: &str = "CREATE TABLE IF NOT EXISTS events (aggregate_type text NOT NULL, aggregate_id text NOT NULL,
    sequence integer CHECK (sequence >= 0) NOT NULL, event_type text NOT NULL, event_version text NOT NULL,
    payload text NOT NULL, metadata text NOT NULL, PRIMARY KEY (aggregate_type, aggregate_id, sequence)) STRICT";

#[derive(Default, Serialize, Deserialize)]
struct Run;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum RunEvent {
    TurnFinished,
}

impl DomainEvent for RunEvent {
    fn event_type(&self) -> String {
        "run.turn_finished".to_owned()
    }
    fn event_version(&self) -> String {
        "1".to_owned()
    }
}

impl Aggregate for Run {
    const TYPE: &'static str = "run";
    type Command = ();
    type Event = RunEvent;
    type Error = std::io::Error;
    type Services = ();

    async fn handle(&mut self, _: (), _: &(), _: &EventSink<Self>) -> Result<(), Self::Error> {
        Ok(())
    }
    fn apply(&mut self, _: RunEvent) {}
}

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().collect();
    let [_, url, callers, seconds] = words.as_slice() else { return Err("URL CALLERS SECONDS".into()) };
    let (callers, seconds) = (callers.parse()?, Duration::from_secs_f64(seconds.parse()?));
    let connections = u32::min(u32::try_from(callers)?, MOST_CONNECTIONS);
    if let Some(file) = url.strip_prefix("sqlite://") {
        let options = SqliteConnectOptions::new()
            .filename(file)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(Duration::from_secs(30));
        let patience = Duration::from_secs(60);
        let pool = SqlitePoolOptions::new().max_connections(connections).acquire_timeout(patience);
        let pool = pool.connect_with(options).await?;
        sqlx::query(SQLITE_TABLE).execute(&pool).await?;
        measure(SqliteEventRepository::new(pool), callers, seconds).await
    } else {
        let pool = PgPoolOptions::new().max_connections(connections).min_connections(connections).connect(url).await?;
        sqlx::query(POSTGRES_TABLE).execute(&pool).await?;
        measure(PostgresEventRepository::new(pool), callers, seconds).await
    }
}

async fn measure<R: PersistedEventRepository + 'static>(store: R, callers: usize, seconds: Duration) -> Outcome<()> {
    let run = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos();
    let from = Instant::now() + WARM_UP;
    let to = from + seconds;
    let store = Arc::new(store);
    let tasks: Vec<_> = (0..callers)
        .map(|n| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                let mut took_us = Vec::new();
                let mut sequence = 0;
                while Instant::now() < to {
                    let began = Instant::now();
                    sequence += 1;
                    let event = SerializedEvent::new(
                        format!("{run}-{n}"),
                        sequence,
                        Run::TYPE.to_owned(),
                        RunEvent::TurnFinished.event_type(),
                        RunEvent::TurnFinished.event_version(),
                        json!({"x": "m".repeat(192)}),
                        json!({}),
                    );
                    store.persist::<Run>(&[event], None).await?;
                    let now = Instant::now();
                    if from <= now && now < to {
                        took_us.push((now - began).as_micros());
                    }
                }
                Ok::<_, cqrs_es::persist::PersistenceError>(took_us)
            })
        })
        .collect();
    let mut took_us = Vec::new();
    for task in tasks {
        took_us.extend(task.await??);
    }
    took_us.sort_unstable();
    let at = |percent: usize| took_us.get(took_us.len() * percent / 100).copied().unwrap_or(0);
    let line = json!({"callers": callers, "events": took_us.len(), "seconds": seconds.as_secs_f64(),
        "p50_us": u64::try_from(at(50))?, "p99_us": u64::try_from(at(99))?});
    println!("{line}");
    Ok(())
}
