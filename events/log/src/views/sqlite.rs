//! Projections on SQLite: a second file beside the ledger, that can be deleted; named checkpoints in the ledger's
//! own file.

mod files;

use std::{path::PathBuf, sync::Arc};

use midwatch_events::Micros;
use sqlx::{
    AssertSqlSafe, ConnectOptions as _, Row as _, SqliteConnection, SqlitePool,
    sqlite::{SqliteConnectOptions, SqlitePoolOptions, SqliteRow, SqliteSynchronous},
};
use tokio::sync::{OnceCell, RwLock};
use uuid::Uuid;

use super::{
    fault,
    generations::{Known, Listing, Make, State, Step, Swap},
    query::{Row, Statement},
    table::{Cell, Changes, Kept, Kind, Table},
    unsigned,
};
use crate::log::{LogError, Open};
use files::{BEGIN, BUSY, Pools, identity, ledger_file, make_tables, says};

const LEDGER_SCHEMA: [&str; 1] =
    ["CREATE TABLE IF NOT EXISTS named_checkpoint (name TEXT PRIMARY KEY, position INTEGER NOT NULL) STRICT"];

/// One statement, so that what is active and what exists are of one moment.
const LISTING: &str = "SELECT p.active, g.number, g.version, g.position FROM projection AS p
     LEFT JOIN generation AS g ON g.projection = p.name WHERE p.name = $1 ORDER BY g.number";

const NAME_PROJECTION: &str = "INSERT INTO projection (name) VALUES ($1) ON CONFLICT (name) DO NOTHING";
const LAST_NUMBER: &str = "SELECT last_number FROM projection WHERE name = $1";
const NUMBER_PROJECTION: &str = "UPDATE projection SET last_number = $2, active = coalesce(active, $2) WHERE name = $1";
const ACTIVATE: &str = "UPDATE projection SET active = $2 WHERE name = $1";
const ADD_GENERATION: &str = "INSERT INTO generation (projection, number, version) VALUES ($1, $2, $3)";
const DROP_GENERATION: &str = "DELETE FROM generation WHERE projection = $1 AND number = $2";
const STATE: &str = "SELECT position, at_us, stopped_at, error FROM generation WHERE projection = $1 AND number = $2";
const MOVE: &str = "UPDATE generation SET position = $4, at_us = $5, stopped_at = NULL, error = NULL
     WHERE projection = $1 AND number = $2 AND position = $3";
const STOP: &str = "UPDATE generation SET stopped_at = $3, error = $4
     WHERE projection = $1 AND number = $2 AND position < $3";

const CHECKPOINT: &str = "SELECT position FROM named_checkpoint WHERE name = $1";
const ADVANCE: &str = "UPDATE named_checkpoint SET position = $3 WHERE name = $1 AND position = $2";
const ADVANCE_FIRST: &str =
    "INSERT INTO named_checkpoint (name, position) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING";
const LEAD: &str = "INSERT INTO leader (name, process, expires_us) VALUES ($1, $2, $3)
     ON CONFLICT (name) DO UPDATE SET process = excluded.process, expires_us = excluded.expires_us
     WHERE leader.process = excluded.process OR leader.expires_us <= $4 OR leader.expires_us > $5";
const GIVE_UP: &str = "DELETE FROM leader WHERE name = $1 AND process = $2";

/// Rows, or keys, in one statement.
const CHUNK: usize = 100;

/// The generation's table.
pub(super) fn table_name(table: &Table, number: i64) -> String {
    format!("v_{}_{number}", table.name)
}

#[derive(Clone, Debug)]
pub(super) struct SqliteViews {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    file: PathBuf,
    open: Open,
    pools: RwLock<Pools>,
    /// On the ledger's own file.
    ledger: SqlitePool,
    ledger_table: OnceCell<()>,
}

impl SqliteViews {
    pub(super) async fn open(url: &str, open: Open) -> Result<Self, LogError> {
        let path = ledger_file(url)?;
        if tokio::fs::metadata(&path).await.is_err() {
            return Err(LogError::Absent(path.display().to_string()));
        }
        let mut file = path.clone().into_os_string();
        file.push("-projections");
        let file = PathBuf::from(file);
        let pools = Pools::open(&file, open).await?;
        // Not synced at every commit: what this connection writes can be lost, and what the ledger's own commits is
        // synced all the same. The ledger moves its WAL into the file by itself.
        let options = SqliteConnectOptions::new()
            .filename(&path)
            .read_only(open == Open::ReadOnly)
            .busy_timeout(BUSY)
            .synchronous(SqliteSynchronous::Normal)
            .pragma("wal_autocheckpoint", "0")
            .disable_statement_logging();
        let ledger = SqlitePoolOptions::new().max_connections(1).acquire_timeout(BUSY).connect_lazy_with(options);
        let ledger_table = OnceCell::new();
        Ok(Self { shared: Arc::new(Shared { file, open, pools: RwLock::new(pools), ledger, ledger_table }) })
    }

    /// The connections, to the file that has the name now.
    async fn pools(&self) -> Result<Pools, LogError> {
        let Shared { file, open, pools, .. } = &*self.shared;
        let now = identity(file).await;
        {
            let known = pools.read().await;
            if known.identity == now && now.is_some() {
                return Ok(known.clone());
            }
        }
        let mut known = pools.write().await;
        if known.identity != identity(file).await || known.identity.is_none() {
            tracing::warn!(file = %file.display(), "the projections' file was replaced or deleted; opening it again");
            // All of the old file's connections go first: its and the new file's share what stands beside it.
            known.writer.close().await;
            known.reader.close().await;
            // Until this has worked there is nothing to go on with.
            known.identity = None;
            *known = Pools::open(file, *open).await?;
        }
        Ok(known.clone())
    }

    pub(super) async fn listing(&self, table: &Table) -> Result<Listing, LogError> {
        let reader = self.pools().await?.reader;
        let mut connection = reader.acquire().await.map_err(fault("find a projection"))?;
        list(&mut connection, table).await.map_err(fault("find a projection"))
    }

    pub(super) async fn make(&self, table: &Table, make: Make) -> Result<Option<i64>, LogError> {
        let writer = self.pools().await?.writer;
        try_make(&writer, table, make).await.map_err(fault("make a projection's tables"))
    }

    pub(super) async fn swap(&self, table: &Table, number: i64, swap: Swap) -> Result<bool, LogError> {
        let writer = self.pools().await?.writer;
        let swapped = try_swap(&writer, table, number, swap).await.map_err(fault("swap a projection's tables"))?;
        if swapped {
            // What was dropped may be words that were erased, and the write-ahead log still has them. Whoever reads an
            // old snapshot just now keeps them there until the log is next emptied; nobody waits for that.
            let empty = "PRAGMA busy_timeout = 200; PRAGMA wal_checkpoint(TRUNCATE); PRAGMA busy_timeout = 30000";
            if let Err(error) = sqlx::raw_sql(empty).execute(&writer).await {
                tracing::warn!(%error, "what was dropped is still in the projections' write-ahead log");
            }
        }
        Ok(swapped)
    }

    pub(super) async fn discard(&self, table: &Table, number: i64) -> Result<(), LogError> {
        let writer = self.pools().await?.writer;
        try_discard(&writer, table, number).await.map_err(fault("drop a projection's tables"))
    }

    pub(super) async fn state(&self, table: &Table, number: i64) -> Result<Option<State>, LogError> {
        let operation = "read a projection's state";
        let row = sqlx::query_as::<_, (i64, i64, Option<i64>, Option<String>)>(STATE)
            .bind(table.name)
            .bind(number)
            .fetch_optional(&self.pools().await?.reader)
            .await
            .map_err(fault(operation))?;
        Ok(row.map(|(position, at_us, stopped_at, error)| State {
            position: unsigned(position),
            at: Micros(at_us),
            stopped: stopped_at.map(unsigned).zip(error),
        }))
    }

    pub(super) async fn load(
        &self,
        table: &Table,
        number: i64,
        keys: &[String],
    ) -> Result<Option<Vec<(String, Vec<u8>)>>, LogError> {
        let reader = self.pools().await?.reader;
        let mut found = Vec::with_capacity(keys.len());
        for keys in keys.chunks(CHUNK) {
            let marks = marks(keys.len(), 1);
            let text = format!("SELECT \"key\", doc FROM {} WHERE \"key\" IN {marks}", table_name(table, number));
            let mut query = sqlx::query_as(AssertSqlSafe(text));
            for key in keys {
                query = query.bind(key);
            }
            match query.fetch_all(&reader).await {
                Ok(rows) => found.extend(rows),
                Err(error) if is_missing(&error) => return Ok(None),
                Err(error) => return Err(fault("load a projection's rows")(error)),
            }
        }
        Ok(Some(found))
    }

    pub(super) async fn apply(
        &self,
        table: &Table,
        number: i64,
        step: Step,
        changes: Changes,
    ) -> Result<bool, LogError> {
        let writer = self.pools().await?.writer;
        try_apply(&writer, table, number, step, changes).await.map_err(fault("apply events to a projection"))
    }

    pub(super) async fn stop(&self, table: &Table, number: i64, position: i64, error: &str) -> Result<(), LogError> {
        let stop = sqlx::query(STOP).bind(table.name).bind(number).bind(position).bind(error);
        stop.execute(&self.pools().await?.writer).await.map_err(fault("stop a projection"))?;
        Ok(())
    }

    pub(super) async fn select(&self, statement: Statement, kind: Kind) -> Result<Option<Vec<Row>>, LogError> {
        let query = bound(sqlx::query(AssertSqlSafe(statement.text)), statement.binds);
        let rows = match query.fetch_all(&self.pools().await?.reader).await {
            Ok(rows) => rows,
            Err(error) if is_missing(&error) => return Ok(None),
            Err(error) => return Err(fault("read a projection's rows")(error)),
        };
        let rows = rows.iter().map(|row| read_row(row, kind)).collect::<Result<_, _>>();
        rows.map(Some).map_err(fault("read a projection's rows"))
    }

    pub(super) async fn count(&self, statement: Statement) -> Result<Option<u64>, LogError> {
        let query = bound(sqlx::query(AssertSqlSafe(statement.text)), statement.binds);
        match query.fetch_one(&self.pools().await?.reader).await.and_then(|row| row.try_get(0)) {
            Ok(count) => Ok(Some(unsigned(count))),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(fault("count a projection's rows")(error)),
        }
    }

    /// The ledger's file, with the table for named checkpoints. Made at its first use, so that the ledger itself is made
    /// first.
    async fn ledger(&self) -> Result<&SqlitePool, LogError> {
        let Shared { open, ledger, ledger_table, .. } = &*self.shared;
        if *open == Open::ReadWrite {
            let made = ledger_table.get_or_try_init(|| make_tables(ledger, &LEDGER_SCHEMA)).await;
            made.map_err(fault("make the table for checkpoints"))?;
        }
        Ok(ledger)
    }

    pub(super) async fn named_checkpoint(&self, name: &str) -> Result<u64, LogError> {
        match sqlx::query_scalar(CHECKPOINT).bind(name).fetch_optional(self.ledger().await?).await {
            Ok(position) => Ok(position.map_or(0, unsigned)),
            Err(error) if is_missing(&error) => Ok(0),
            Err(error) => Err(fault("read a checkpoint")(error)),
        }
    }

    pub(super) async fn advance(&self, name: &str, from: i64, to: i64) -> Result<bool, LogError> {
        let operation = "move a checkpoint";
        let ledger = self.ledger().await?;
        let advance = sqlx::query(ADVANCE).bind(name).bind(from).bind(to);
        let moved = advance.execute(ledger).await.map_err(fault(operation))?.rows_affected();
        if moved == 1 || from != 0 {
            return Ok(moved == 1);
        }
        let first = sqlx::query(ADVANCE_FIRST).bind(name).bind(to);
        Ok(first.execute(ledger).await.map_err(fault(operation))?.rows_affected() == 1)
    }

    pub(super) async fn lead(&self, name: &str, process: Uuid, ttl_s: u32, now: Micros) -> Result<bool, LogError> {
        let expires = now.plus_s(i64::from(ttl_s));
        let never = now.plus_s(i64::from(super::SET_BACK_S));
        let lead = sqlx::query(LEAD).bind(name).bind(process.to_string()).bind(expires.0).bind(now.0).bind(never.0);
        Ok(lead.execute(&self.pools().await?.writer).await.map_err(fault("lead"))?.rows_affected() == 1)
    }

    pub(super) async fn give_up(&self, name: &str, process: Uuid) -> Result<(), LogError> {
        let give_up = sqlx::query(GIVE_UP).bind(name).bind(process.to_string());
        give_up.execute(&self.pools().await?.writer).await.map_err(fault("give up the lead"))?;
        Ok(())
    }

    pub(super) async fn close(&self) {
        let pools = self.shared.pools.read().await;
        pools.reader.close().await;
        pools.writer.close().await;
        self.shared.ledger.close().await;
    }
}

async fn list(connection: &mut SqliteConnection, table: &Table) -> Result<Listing, sqlx::Error> {
    type Found = (Option<i64>, Option<i64>, Option<i64>, Option<i64>);
    let rows: Vec<Found> = match sqlx::query_as(LISTING).bind(table.name).fetch_all(connection).await {
        Err(error) if is_missing(&error) => Vec::new(),
        rows => rows?,
    };
    let mut listing = Listing::default();
    for (active, number, version, position) in rows {
        listing.active = active;
        if let (Some(number), Some(version), Some(position)) = (number, version, position) {
            let version = u32::try_from(version).unwrap_or(u32::MAX);
            listing.generations.push(Known { number, version, position: unsigned(position) });
        }
    }
    Ok(listing)
}

async fn try_make(writer: &SqlitePool, table: &Table, make: Make) -> Result<Option<i64>, sqlx::Error> {
    let mut tx = writer.begin_with(BEGIN).await?;
    sqlx::query(NAME_PROJECTION).bind(table.name).execute(&mut *tx).await?;
    let last: i64 = sqlx::query_scalar(LAST_NUMBER).bind(table.name).fetch_one(&mut *tx).await?;
    let Some(dropped) = list(&mut tx, table).await?.to_make(make, table.version) else {
        return Ok(None);
    };
    for number in dropped {
        drop_generation(&mut tx, table, number).await?;
    }
    let number = last + 1;
    sqlx::query(NUMBER_PROJECTION).bind(table.name).bind(number).execute(&mut *tx).await?;
    let version = i64::from(table.version);
    sqlx::query(ADD_GENERATION).bind(table.name).bind(number).bind(version).execute(&mut *tx).await?;
    for statement in ddl(table, number) {
        sqlx::query(AssertSqlSafe(statement)).execute(&mut *tx).await?;
    }
    tx.commit().await?;
    Ok(Some(number))
}

async fn try_swap(writer: &SqlitePool, table: &Table, number: i64, swap: Swap) -> Result<bool, sqlx::Error> {
    let mut tx = writer.begin_with(BEGIN).await?;
    let Some(dropped) = list(&mut tx, table).await?.to_swap(number, swap) else {
        return Ok(false);
    };
    sqlx::query(ACTIVATE).bind(table.name).bind(number).execute(&mut *tx).await?;
    for number in dropped {
        drop_generation(&mut tx, table, number).await?;
    }
    tx.commit().await?;
    Ok(true)
}

async fn try_discard(writer: &SqlitePool, table: &Table, number: i64) -> Result<(), sqlx::Error> {
    let mut tx = writer.begin_with(BEGIN).await?;
    if list(&mut tx, table).await?.active == Some(number) {
        return Ok(());
    }
    drop_generation(&mut tx, table, number).await?;
    tx.commit().await
}

async fn drop_generation(connection: &mut SqliteConnection, table: &Table, number: i64) -> Result<(), sqlx::Error> {
    sqlx::query(DROP_GENERATION).bind(table.name).bind(number).execute(&mut *connection).await?;
    let text = format!("DROP TABLE IF EXISTS {}", table_name(table, number));
    sqlx::query(AssertSqlSafe(text)).execute(&mut *connection).await?;
    Ok(())
}

fn ddl(table: &Table, number: i64) -> Vec<String> {
    let name = table_name(table, number);
    let mut columns = String::new();
    for column in table.columns {
        let kind = match column.kind {
            Kind::Int => "INTEGER",
            Kind::Text => "TEXT",
        };
        columns.push_str(&format!(", \"{}\" {kind}", column.name));
    }
    let mut statements =
        vec![format!("CREATE TABLE {name} (\"key\" TEXT NOT NULL PRIMARY KEY, doc BLOB NOT NULL{columns}) STRICT")];
    for (index, columns) in table.indexes.iter().enumerate() {
        let columns: String = columns.iter().map(|column| format!("\"{column}\", ")).collect();
        statements.push(format!("CREATE INDEX {name}_{index} ON {name} ({columns}\"key\")"));
    }
    statements
}

async fn try_apply(
    writer: &SqlitePool,
    table: &Table,
    number: i64,
    step: Step,
    changes: Changes,
) -> Result<bool, sqlx::Error> {
    let mut tx = writer.begin_with(BEGIN).await?;
    let moved = sqlx::query(MOVE)
        .bind(table.name)
        .bind(number)
        .bind(step.from)
        .bind(step.to)
        .bind(step.at.0)
        .execute(&mut *tx)
        .await?;
    if moved.rows_affected() != 1 {
        return Ok(false);
    }
    let name = table_name(table, number);
    for keys in changes.deleted.chunks(CHUNK) {
        let text = format!("DELETE FROM {name} WHERE \"key\" IN {}", marks(keys.len(), 1));
        let mut query = sqlx::query(AssertSqlSafe(text));
        for key in keys {
            query = query.bind(key);
        }
        query.execute(&mut *tx).await?;
    }
    for rows in changes.kept.chunks(CHUNK) {
        upsert(&mut tx, table, &name, rows).await?;
    }
    tx.commit().await?;
    Ok(true)
}

async fn upsert(
    connection: &mut SqliteConnection,
    table: &Table,
    name: &str,
    rows: &[Kept],
) -> Result<(), sqlx::Error> {
    let mut columns = String::new();
    let mut sets = "doc = excluded.doc".to_owned();
    for column in table.columns {
        columns.push_str(&format!(", \"{}\"", column.name));
        sets.push_str(&format!(", \"{0}\" = excluded.\"{0}\"", column.name));
    }
    let width = table.columns.len() + 2;
    let tuples: Vec<String> = (0..rows.len()).map(|row| marks(width, row * width + 1)).collect();
    let text = format!(
        "INSERT INTO {name} (\"key\", doc{columns}) VALUES {} ON CONFLICT (\"key\") DO UPDATE SET {sets}",
        tuples.join(", ")
    );
    let mut query = sqlx::query(AssertSqlSafe(text));
    for row in rows {
        query = query.bind(&row.key).bind(&row.doc);
        for cell in &row.cells {
            query = match cell {
                Cell::Null => query.bind(None::<i64>),
                Cell::Int(value) => query.bind(*value),
                Cell::Text(value) => query.bind(value),
            };
        }
    }
    query.execute(connection).await?;
    Ok(())
}

/// `($first, …)`, `count` of them.
fn marks(count: usize, first: usize) -> String {
    let marks: Vec<String> = (first..first + count).map(|mark| format!("${mark}")).collect();
    format!("({})", marks.join(", "))
}

type SqliteQuery<'q> = sqlx::query::Query<'q, sqlx::Sqlite, sqlx::sqlite::SqliteArguments>;

fn bound(mut query: SqliteQuery<'_>, binds: Vec<Cell>) -> SqliteQuery<'_> {
    for cell in binds {
        query = match cell {
            Cell::Null => query.bind(None::<i64>),
            Cell::Int(value) => query.bind(value),
            Cell::Text(value) => query.bind(value),
        };
    }
    query
}

fn read_row(row: &SqliteRow, kind: Kind) -> Result<Row, sqlx::Error> {
    let order = match kind {
        Kind::Int => row.try_get::<Option<i64>, _>(2)?.map_or(Cell::Null, Cell::Int),
        Kind::Text => row.try_get::<Option<String>, _>(2)?.map_or(Cell::Null, Cell::Text),
    };
    Ok(Row { key: row.try_get(0)?, doc: row.try_get(1)?, order })
}

/// The table is not there (any more).
fn is_missing(error: &sqlx::Error) -> bool {
    says(error, "no such table")
}
