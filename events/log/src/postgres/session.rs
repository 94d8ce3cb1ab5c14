//! The one connection that appends.

use std::{collections::HashMap, future::Future, sync::Arc, time::Duration};

use midwatch_events::{Micros, Recorded, StreamName};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _, postgres::PgConnectOptions, postgres::PgRow};
use tokio::time::timeout;
use uuid::Uuid;

use super::{
    connect::{self, failed},
    read::{self, select, signed},
    seat::{HEAD, Seat, Standing},
};
use crate::{
    judge::{Head, KnownKey, NewKey},
    known::{GAP, Passed},
    log::LogError,
    session::Fault,
};

/// How long a step may take, the wait for the lock included; a server that is silent for longer is left.
const STEP: Duration = Duration::from_secs(25);

/// Planned once per connection, as all its statements are: each has its index, whatever it is asked. See [`begin`].
fn prepare() -> String {
    format!(
        "SET plan_cache_mode = force_generic_plan; \
         PREPARE midwatch_lock AS SELECT FROM ledger_lock WHERE id = 1 FOR UPDATE; PREPARE midwatch_head (uuid) AS {HEAD}"
    )
}

/// Words are packed by the quicker of the server's two ways, where it was built with it: with the other, packing costs more
/// than all indexes. It is no setting of the table, so a server without it takes the same ledger.
const PACK: &str = "SELECT set_config(name, 'lz4', false) FROM pg_settings
    WHERE name = 'default_toast_compression' AND 'lz4' = ANY (enumvals)";

/// Three statements in one message, each with a snapshot of its own. The second locks and reads nothing: a statement
/// that locks and reads at once sees the head from before its wait. The row is never updated: an updated one rots under
/// an open snapshot.
fn begin(writer: Uuid) -> String {
    format!("BEGIN; EXECUTE midwatch_lock; EXECUTE midwatch_head('{writer}')")
}

const ERASE: &str = "UPDATE events SET content = NULL, salt = NULL
    WHERE position = ANY ($1::bigint[]) AND content IS NOT NULL";

/// The lock must not be held while the disk works: the flusher waits for that.
const COMMIT_UNFLUSHED: &str = "SET LOCAL synchronous_commit = off; COMMIT";

const VERSIONS: &str = "SELECT name, (SELECT max(version) FROM events WHERE stream = name)
    FROM (SELECT unnest($1::text[]) COLLATE \"C\" AS name) names";

const PASSED: &str =
    "SELECT position, leaf_hash, stream, version, event_id FROM events WHERE position >= $1 ORDER BY position LIMIT $2";

const KEYS: &str = "SELECT k.key_hash, k.digest, k.first_position, k.count, e.recorded_at
    FROM unnest($1::bytea[]) asked JOIN ledger_key k ON k.key_hash = asked JOIN events e ON e.position = k.first_position";

/// Both in one; a row of the first kind has a name.
const VERSIONS_AND_KEYS: &str = "SELECT NULL::bytea, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint, name,
        (SELECT max(version) FROM events WHERE stream = name)
    FROM (SELECT unnest($1::text[]) COLLATE \"C\" AS name) names
    UNION ALL
    SELECT k.key_hash, k.digest, k.first_position, k.count, e.recorded_at, NULL, NULL
    FROM unnest($2::bytea[]) asked JOIN ledger_key k ON k.key_hash = asked JOIN events e ON e.position = k.first_position";

macro_rules! insert {
    ($first:literal) => {
        concat!(
            $first,
            "INSERT INTO events (position, stream, version, event_id, event_type, schema, recorded_at, actor,
                correlation_id, causation_id, facts, content, salt, commitment, leaf_hash)
            SELECT * FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::uuid[], $5::text[], $6::int[],
                $7::bigint[], $8::text[], $9::text[], $10::uuid[], $11::bytea[], $12::bytea[], $13::bytea[],
                $14::bytea[], $15::bytea[])"
        )
    };
}

const INSERT: &str = insert!("");

/// Both in one statement, which is one way to the server and back less.
const INSERT_WITH_KEYS: &str = insert!(
    "WITH keys AS (
        INSERT INTO ledger_key (key_hash, digest, first_position, count)
        SELECT * FROM unnest($16::bytea[], $17::bytea[], $18::bigint[], $19::bigint[])
    ) "
);

/// The appending connection; opened again after a fault.
#[derive(Debug)]
pub(crate) struct PostgresSession {
    options: PgConnectOptions,
    seat: Arc<Seat>,
    connection: Option<PgConnection>,
    is_new: bool,
    /// As this transaction found it.
    standing: Standing,
}

impl PostgresSession {
    pub(crate) fn new(options: PgConnectOptions, seat: Arc<Seat>) -> Self {
        Self { options, seat, connection: None, is_new: false, standing: Standing::Settle { alone: false } }
    }

    fn connection(&mut self) -> Result<&mut PgConnection, Fault> {
        self.connection.as_mut().ok_or_else(|| lost("no connection"))
    }

    pub(crate) async fn begin(&mut self, waiting: usize) -> Result<Head, Fault> {
        self.seat.waiting(waiting);
        self.is_new = self.connection.is_none();
        if self.is_new {
            let mut connection = step(connect::appending(&self.options)).await?;
            step(sqlx::raw_sql(PACK).execute(&mut connection)).await?;
            step(sqlx::raw_sql(AssertSqlSafe(prepare())).execute(&mut connection)).await?;
            self.connection = Some(connection);
        }
        let begin = sqlx::raw_sql(AssertSqlSafe(begin(self.seat.writer)));
        let rows = step(begin.fetch_all(self.connection()?)).await?;
        // The lock's own row has nothing in it.
        let row = rows.last().ok_or_else(|| lost("no answer"))?;
        self.standing = self.seat.standing(row).map_err(|error| fault(&error))?;
        head(row).map_err(|error| fault(&error))
    }

    pub(crate) fn is_new(&self) -> bool {
        self.is_new
    }

    pub(crate) async fn leaf_at(&mut self, position: u64) -> Result<Option<[u8; 32]>, Fault> {
        let leaf = step(read::leaf_at(self.connection()?, position)).await?;
        Ok(leaf)
    }

    pub(crate) async fn versions(&mut self, streams: &[&StreamName]) -> Result<HashMap<StreamName, u64>, Fault> {
        let names: Vec<&str> = streams.iter().map(|stream| stream.as_str()).collect();
        let rows = step(sqlx::query(VERSIONS).bind(names).fetch_all(self.connection()?)).await?;
        rows.iter().map(stream_and_version).collect::<Result<_, _>>().map_err(|error| fault(&error))
    }

    pub(crate) async fn passed(&mut self, from: u64) -> Result<Vec<Passed>, Fault> {
        let query = sqlx::query(PASSED).bind(signed(from)).bind(signed(GAP + 1));
        let rows = step(query.fetch_all(self.connection()?)).await?;
        rows.iter().map(passed).collect::<Result<_, _>>().map_err(|error| fault(&error))
    }

    pub(crate) async fn keys(&mut self, hashes: &[[u8; 32]]) -> Result<HashMap<[u8; 32], KnownKey>, Fault> {
        let hashes: Vec<&[u8]> = hashes.iter().map(<[u8; 32]>::as_slice).collect();
        let rows = step(sqlx::query(KEYS).bind(hashes).fetch_all(self.connection()?)).await?;
        rows.iter().map(key).collect::<Result<_, _>>().map_err(|error| fault(&error))
    }

    pub(crate) async fn versions_and_keys(
        &mut self,
        streams: &[&StreamName],
        hashes: &[[u8; 32]],
    ) -> Result<(HashMap<StreamName, u64>, HashMap<[u8; 32], KnownKey>), Fault> {
        let names: Vec<&str> = streams.iter().map(|stream| stream.as_str()).collect();
        let hashes: Vec<&[u8]> = hashes.iter().map(<[u8; 32]>::as_slice).collect();
        let query = sqlx::query(VERSIONS_AND_KEYS).bind(names).bind(hashes);
        let rows = step(query.fetch_all(self.connection()?)).await?;
        let (mut versions, mut keys) = (HashMap::with_capacity(streams.len()), HashMap::new());
        for row in &rows {
            match row.try_get::<Option<String>, _>(5).map_err(|error| fault(&error))? {
                Some(name) => {
                    let version = row.try_get::<Option<i64>, _>(6).map_err(|error| fault(&error))?;
                    versions.insert(StreamName::stored(name), version.unwrap_or_default().unsigned_abs());
                }
                None => keys.extend([key(row).map_err(|error| fault(&error))?]),
            }
        }
        Ok((versions, keys))
    }

    pub(crate) async fn events(&mut self, ids: &[Uuid]) -> Result<HashMap<Uuid, Recorded>, Fault> {
        let query = sqlx::query(select!("WHERE event_id = ANY ($1::uuid[])")).bind(ids);
        let rows = step(query.fetch_all(self.connection()?)).await?;
        let events = rows.iter().map(|row| read::recorded(row).map(|event| (event.event_id, event)));
        events.collect::<Result<_, _>>().map_err(|error| fault(&error))
    }

    pub(crate) async fn insert(&mut self, rows: Vec<Recorded>, keys: Vec<NewKey>) -> Result<(), Fault> {
        let mut query = sqlx::query(if keys.is_empty() { INSERT } else { INSERT_WITH_KEYS })
            .bind(column(&rows, |event| signed(event.position)))
            .bind(column(&rows, |event| event.stream.as_str()))
            .bind(column(&rows, |event| signed(event.version)))
            .bind(column(&rows, |event| event.event_id))
            .bind(column(&rows, |event| event.event_type.as_str()))
            .bind(column(&rows, |event| i32::from(event.schema)))
            .bind(column(&rows, |event| event.recorded_at.0))
            .bind(column(&rows, |event| event.actor.as_str()))
            .bind(column(&rows, |event| event.correlation_id.as_deref()))
            .bind(column(&rows, |event| event.causation_id))
            .bind(column(&rows, |event| event.facts.as_slice()))
            .bind(column(&rows, |event| event.content.as_deref()))
            .bind(column(&rows, |event| event.salt.as_ref().map(<[u8; 16]>::as_slice)))
            .bind(column(&rows, |event| event.commitment.as_ref().map(<[u8; 32]>::as_slice)))
            .bind(column(&rows, |event| event.leaf_hash.as_slice()));
        if !keys.is_empty() {
            query = query
                .bind(column(&keys, |key| key.hash.as_slice()))
                .bind(column(&keys, |key| key.digest.as_slice()))
                .bind(column(&keys, |key| signed(key.first)))
                .bind(column(&keys, |key| signed(key.count)));
        }
        step(query.execute(self.connection()?)).await.map(drop)
    }

    pub(crate) async fn erase(&mut self, positions: &[u64]) -> Result<u64, Fault> {
        let erase = sqlx::query(ERASE).bind(column(positions, |position| signed(*position)));
        Ok(step(erase.execute(self.connection()?)).await?.rows_affected())
    }

    pub(crate) async fn finish(&mut self, wrote: bool, last: u64) -> Result<bool, Fault> {
        match self.standing {
            Standing::Settle { alone } => {
                let seat = Arc::clone(&self.seat);
                step(seat.settle(self.connection()?, alone, last)).await?;
                self.commit("COMMIT").await.map(|()| true)
            }
            Standing::Alone if wrote => self.commit("COMMIT").await.map(|()| true),
            Standing::Shared { .. } if wrote => self.commit(COMMIT_UNFLUSHED).await.map(|()| false),
            Standing::Alone => {
                self.roll_back().await;
                Ok(true)
            }
            Standing::Shared { durable } => {
                self.roll_back().await;
                Ok(durable >= last)
            }
        }
    }

    async fn commit(&mut self, commit: &'static str) -> Result<(), Fault> {
        match timeout(STEP, sqlx::raw_sql(commit).execute(self.connection()?)).await {
            Ok(Ok(_)) => Ok(()),
            // A refusal is an answer too; everything else is not.
            Ok(Err(error)) => Err(match fault(&error) {
                Fault::Lost(said) => Fault::Unknown(said),
                refused => refused,
            }),
            Err(_) => Err(Fault::Unknown(silent("commit"))),
        }
    }

    pub(crate) async fn leave(&mut self) {
        if let Some(mut connection) = self.connection.take() {
            // Without it the others notice after some seconds.
            let _ = step(self.seat.leave(&mut connection)).await;
            let _ = timeout(Duration::from_secs(2), connection.close()).await;
        }
    }

    pub(crate) async fn roll_back(&mut self) {
        let rolled_back = match &mut self.connection {
            Some(connection) => step(sqlx::raw_sql("ROLLBACK").execute(connection)).await.is_ok(),
            None => true,
        };
        if !rolled_back {
            self.connection = None;
        }
    }

    pub(crate) async fn drop_connection(&mut self) {
        // Without a farewell: the server sees the end of the socket and gives up the lock.
        self.connection = None;
    }
}

/// One value of each row, for one bound array.
fn column<'r, R, V>(rows: &'r [R], value: impl Fn(&'r R) -> V) -> Vec<V> {
    rows.iter().map(value).collect()
}

async fn step<T>(statement: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, Fault> {
    match timeout(STEP, statement).await {
        Ok(done) => done.map_err(|error| fault(&error)),
        Err(_) => Err(Fault::Lost(silent("append"))),
    }
}

fn silent(operation: &'static str) -> LogError {
    LogError::Unavailable { operation, reason: format!("it was silent for {} s", STEP.as_secs()) }
}

fn lost(reason: &str) -> Fault {
    Fault::Lost(LogError::Unavailable { operation: "append", reason: reason.to_owned() })
}

fn fault(error: &sqlx::Error) -> Fault {
    let said = failed("append", error);
    let code = error.as_database_error().and_then(|error| error.code());
    // Bad data, a constraint, a guard, a limit: it is the rows, not the connection.
    match code.as_deref().and_then(|code| code.get(..2)) {
        Some("22" | "23" | "P0" | "54") => Fault::Refused(said),
        _ => Fault::Lost(said),
    }
}

fn head(row: &PgRow) -> Result<Head, sqlx::Error> {
    Ok(Head {
        clock: Micros(row.try_get(0)?),
        // It comes as text.
        leaf_hash: row.try_get::<Option<Vec<u8>>, _>(3)?.map(|hash| read::array(&hash)).transpose()?,
        position: row.try_get::<Option<i64>, _>(1)?.unwrap_or_default().unsigned_abs(),
        recorded_at: Micros(row.try_get::<Option<i64>, _>(2)?.unwrap_or_default()),
    })
}

fn stream_and_version(row: &PgRow) -> Result<(StreamName, u64), sqlx::Error> {
    let version = row.try_get::<Option<i64>, _>(1)?.unwrap_or_default();
    Ok((StreamName::stored(row.try_get(0)?), version.unsigned_abs()))
}

fn passed(row: &PgRow) -> Result<Passed, sqlx::Error> {
    let (position, leaf_hash) = read::position_and_hash(row)?;
    Ok(Passed {
        position,
        leaf_hash,
        stream: StreamName::stored(row.try_get(2)?),
        version: row.try_get::<i64, _>(3)?.unsigned_abs(),
        event_id: row.try_get(4)?,
    })
}

fn key(row: &PgRow) -> Result<([u8; 32], KnownKey), sqlx::Error> {
    let known = KnownKey {
        digest: row.try_get(1).and_then(read::array)?,
        first: row.try_get::<i64, _>(2)?.unsigned_abs(),
        count: row.try_get::<i64, _>(3)?.unsigned_abs(),
        recorded_at: Micros(row.try_get(4)?),
    };
    Ok((row.try_get(0).and_then(read::array)?, known))
}
