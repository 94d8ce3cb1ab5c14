//! Projections on PostgreSQL: two schemas in the ledger's database.

use std::time::Duration;

use midwatch_events::Micros;
use sqlx::{
    AssertSqlSafe, ConnectOptions as _, PgConnection, PgPool, Row as _,
    postgres::{PgConnectOptions, PgPoolOptions, PgRow},
};
use uuid::Uuid;

use super::{
    address, fault,
    generations::{Known, Listing, Make, State, Step, Swap},
    query::{Row, Statement},
    table::{Cell, Changes, Kept, Kind, Table},
    unsigned,
};
use crate::log::{LogError, Open};

const SCHEMA: [&str; 6] = [
    "CREATE SCHEMA IF NOT EXISTS midwatch_projections",
    "CREATE TABLE IF NOT EXISTS midwatch_projections.projection (
         name text PRIMARY KEY, active bigint, last_number bigint NOT NULL DEFAULT 0)",
    "CREATE TABLE IF NOT EXISTS midwatch_projections.generation (
         projection text NOT NULL, number bigint NOT NULL, version bigint NOT NULL, position bigint NOT NULL DEFAULT 0,
         at_us bigint NOT NULL DEFAULT 0, stopped_at bigint, error text, PRIMARY KEY (projection, number))",
    "CREATE SCHEMA IF NOT EXISTS midwatch_engine",
    "CREATE TABLE IF NOT EXISTS midwatch_engine.checkpoint (name text PRIMARY KEY, position bigint NOT NULL)",
    "CREATE TABLE IF NOT EXISTS midwatch_engine.leader (
         name text PRIMARY KEY, process text NOT NULL, expires_at timestamptz NOT NULL)",
];

const SCHEMA_THERE: &str = "SELECT to_regclass('midwatch_projections.projection') IS NOT NULL
     AND to_regclass('midwatch_projections.generation') IS NOT NULL
     AND to_regclass('midwatch_engine.checkpoint') IS NOT NULL AND to_regclass('midwatch_engine.leader') IS NOT NULL";

/// One statement, so that what is active and what exists are of one moment.
const LISTING: &str = "SELECT p.active, g.number, g.version, g.position FROM midwatch_projections.projection AS p
     LEFT JOIN midwatch_projections.generation AS g ON g.projection = p.name WHERE p.name = $1 ORDER BY g.number";

const NAME_PROJECTION: &str =
    "INSERT INTO midwatch_projections.projection (name) VALUES ($1) ON CONFLICT (name) DO NOTHING";
const LOCK_PROJECTION: &str = "SELECT last_number FROM midwatch_projections.projection WHERE name = $1 FOR UPDATE";
const LOCK_GENERATIONS: &str =
    "SELECT number FROM midwatch_projections.generation WHERE projection = $1 ORDER BY number FOR UPDATE";
const NUMBER_PROJECTION: &str = "UPDATE midwatch_projections.projection
     SET last_number = $2, active = coalesce(active, $2) WHERE name = $1";
const ACTIVATE: &str = "UPDATE midwatch_projections.projection SET active = $2 WHERE name = $1";
const ADD_GENERATION: &str =
    "INSERT INTO midwatch_projections.generation (projection, number, version) VALUES ($1, $2, $3)";
const DROP_GENERATION: &str = "DELETE FROM midwatch_projections.generation WHERE projection = $1 AND number = $2";
const STATE: &str = "SELECT position, at_us, stopped_at, error FROM midwatch_projections.generation
     WHERE projection = $1 AND number = $2";
const MOVE: &str = "UPDATE midwatch_projections.generation
     SET position = $4, at_us = $5, stopped_at = NULL, error = NULL
     WHERE projection = $1 AND number = $2 AND position = $3";
const STOP: &str = "UPDATE midwatch_projections.generation SET stopped_at = $3, error = $4
     WHERE projection = $1 AND number = $2 AND position < $3";

const CHECKPOINT: &str = "SELECT position FROM midwatch_engine.checkpoint WHERE name = $1";
const ADVANCE: &str = "UPDATE midwatch_engine.checkpoint SET position = $3 WHERE name = $1 AND position = $2";
const ADVANCE_FIRST: &str =
    "INSERT INTO midwatch_engine.checkpoint (name, position) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING";
const LEAD: &str = "INSERT INTO midwatch_engine.leader AS leads (name, process, expires_at)
     VALUES ($1, $2, clock_timestamp() + $3 * interval '1 second')
     ON CONFLICT (name) DO UPDATE SET process = excluded.process, expires_at = excluded.expires_at
     WHERE leads.process = excluded.process OR leads.expires_at <= clock_timestamp()
        OR leads.expires_at > clock_timestamp() + $4 * interval '1 second'";
const GIVE_UP: &str = "DELETE FROM midwatch_engine.leader WHERE name = $1 AND process = $2";

/// How often the schema is tried when another process makes it at the same moment.
const SCHEMA_ATTEMPTS: u32 = 10;

/// The generation's table, with its schema.
pub(super) fn table_name(table: &Table, number: i64) -> String {
    format!("midwatch_projections.v_{}_{number}", table.name)
}

#[derive(Clone, Debug)]
pub(super) struct PostgresViews {
    pool: PgPool,
}

impl PostgresViews {
    pub(super) async fn open(url: &str, open: Open) -> Result<Self, LogError> {
        let operation = "open the projections";
        let options: PgConnectOptions = url.parse().map_err(|_| address(url))?;
        // All of it can be lost and made again, so no commit waits for the disk. A frozen process must not keep its
        // locks, and no dead one is waited for. A plan that was kept while a table was empty would stay bad.
        let settings = [
            ("synchronous_commit", "off"),
            ("client_min_messages", "warning"),
            ("statement_timeout", "60s"),
            ("idle_in_transaction_session_timeout", "30s"),
            ("tcp_user_timeout", "10000"),
            ("tcp_keepalives_idle", "5"),
            ("tcp_keepalives_interval", "2"),
            ("tcp_keepalives_count", "3"),
            ("plan_cache_mode", "force_custom_plan"),
            ("default_transaction_read_only", if open == Open::ReadOnly { "on" } else { "off" }),
        ];
        let options = options.application_name("midwatch projections").options(settings).disable_statement_logging();
        let pool = PgPoolOptions::new().max_connections(4).acquire_timeout(Duration::from_secs(10));
        let views = Self { pool: pool.connect_with(options).await.map_err(fault(operation))? };
        if open == Open::ReadWrite {
            views.make_schema().await?;
        }
        Ok(views)
    }

    /// `IF NOT EXISTS` looks before it leaps: of two processes that make the same thing at once, one fails.
    async fn make_schema(&self) -> Result<(), LogError> {
        let operation = "make the projections' schema";
        for attempt in 1.. {
            match self.try_schema().await {
                Ok(()) => return Ok(()),
                Err(error) if attempt < SCHEMA_ATTEMPTS && made_meanwhile(&error) => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                Err(error) => return Err(fault(operation)(error)),
            }
        }
        Ok(())
    }

    async fn try_schema(&self) -> Result<(), sqlx::Error> {
        if sqlx::query_scalar(SCHEMA_THERE).fetch_one(&self.pool).await? {
            return Ok(());
        }
        let mut tx = self.pool.begin().await?;
        for statement in SCHEMA {
            sqlx::query(statement).execute(&mut *tx).await?;
        }
        tx.commit().await
    }

    pub(super) async fn listing(&self, table: &Table) -> Result<Listing, LogError> {
        let mut connection = self.pool.acquire().await.map_err(fault("find a projection"))?;
        list(&mut connection, table).await.map_err(fault("find a projection"))
    }

    pub(super) async fn make(&self, table: &Table, make: Make) -> Result<Option<i64>, LogError> {
        self.try_make(table, make).await.map_err(fault("make a projection's tables"))
    }

    async fn try_make(&self, table: &Table, make: Make) -> Result<Option<i64>, sqlx::Error> {
        let mut tx = self.pool.begin().await?;
        sqlx::query(NAME_PROJECTION).bind(table.name).execute(&mut *tx).await?;
        let last: i64 = sqlx::query_scalar(LOCK_PROJECTION).bind(table.name).fetch_one(&mut *tx).await?;
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

    pub(super) async fn swap(&self, table: &Table, number: i64, swap: Swap) -> Result<bool, LogError> {
        self.try_swap(table, number, swap).await.map_err(fault("swap a projection's tables"))
    }

    async fn try_swap(&self, table: &Table, number: i64, swap: Swap) -> Result<bool, sqlx::Error> {
        let mut tx = self.pool.begin().await?;
        sqlx::query(LOCK_PROJECTION).bind(table.name).fetch_optional(&mut *tx).await?;
        // Waits for who is applying, so that no position moves between the comparison and the swap.
        sqlx::query(LOCK_GENERATIONS).bind(table.name).fetch_all(&mut *tx).await?;
        let listing = list(&mut tx, table).await?;
        let Some(dropped) = listing.to_swap(number, swap) else {
            return Ok(false);
        };
        sqlx::query(ACTIVATE).bind(table.name).bind(number).execute(&mut *tx).await?;
        for number in dropped {
            drop_generation(&mut tx, table, number).await?;
        }
        tx.commit().await?;
        Ok(true)
    }

    pub(super) async fn discard(&self, table: &Table, number: i64) -> Result<(), LogError> {
        self.try_discard(table, number).await.map_err(fault("drop a projection's tables"))
    }

    async fn try_discard(&self, table: &Table, number: i64) -> Result<(), sqlx::Error> {
        let mut tx = self.pool.begin().await?;
        sqlx::query(LOCK_PROJECTION).bind(table.name).fetch_optional(&mut *tx).await?;
        if list(&mut tx, table).await?.active == Some(number) {
            return Ok(());
        }
        drop_generation(&mut tx, table, number).await?;
        tx.commit().await
    }

    pub(super) async fn state(&self, table: &Table, number: i64) -> Result<Option<State>, LogError> {
        let operation = "read a projection's state";
        let row = sqlx::query_as::<_, (i64, i64, Option<i64>, Option<String>)>(STATE)
            .bind(table.name)
            .bind(number)
            .fetch_optional(&self.pool)
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
        let text = format!("SELECT \"key\", doc FROM {} WHERE \"key\" = ANY($1)", table_name(table, number));
        match sqlx::query_as(AssertSqlSafe(text)).bind(keys).fetch_all(&self.pool).await {
            Ok(rows) => Ok(Some(rows)),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(fault("load a projection's rows")(error)),
        }
    }

    pub(super) async fn apply(
        &self,
        table: &Table,
        number: i64,
        step: Step,
        changes: Changes,
    ) -> Result<bool, LogError> {
        self.try_apply(table, number, step, changes).await.map_err(fault("apply events to a projection"))
    }

    async fn try_apply(&self, table: &Table, number: i64, step: Step, changes: Changes) -> Result<bool, sqlx::Error> {
        let mut tx = self.pool.begin().await?;
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
        if !changes.deleted.is_empty() {
            let text = format!("DELETE FROM {name} WHERE \"key\" = ANY($1)");
            sqlx::query(AssertSqlSafe(text)).bind(changes.deleted).execute(&mut *tx).await?;
        }
        if !changes.kept.is_empty() {
            upsert(&mut tx, table, &name, changes.kept).await?;
        }
        tx.commit().await?;
        Ok(true)
    }

    pub(super) async fn stop(&self, table: &Table, number: i64, position: i64, error: &str) -> Result<(), LogError> {
        let stop = sqlx::query(STOP).bind(table.name).bind(number).bind(position).bind(error);
        stop.execute(&self.pool).await.map_err(fault("stop a projection"))?;
        Ok(())
    }

    pub(super) async fn select(&self, statement: Statement, kind: Kind) -> Result<Option<Vec<Row>>, LogError> {
        let query = bound(sqlx::query(AssertSqlSafe(statement.text)), statement.binds);
        let rows = match query.fetch_all(&self.pool).await {
            Ok(rows) => rows,
            Err(error) if is_missing(&error) => return Ok(None),
            Err(error) => return Err(fault("read a projection's rows")(error)),
        };
        let rows = rows.iter().map(|row| read_row(row, kind)).collect::<Result<_, _>>();
        rows.map(Some).map_err(fault("read a projection's rows"))
    }

    pub(super) async fn count(&self, statement: Statement) -> Result<Option<u64>, LogError> {
        let query = bound(sqlx::query(AssertSqlSafe(statement.text)), statement.binds);
        match query.fetch_one(&self.pool).await.and_then(|row| row.try_get(0)) {
            Ok(count) => Ok(Some(unsigned(count))),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(fault("count a projection's rows")(error)),
        }
    }

    pub(super) async fn named_checkpoint(&self, name: &str) -> Result<u64, LogError> {
        let found = sqlx::query_scalar(CHECKPOINT).bind(name).fetch_optional(&self.pool).await;
        match found {
            Ok(position) => Ok(position.map_or(0, unsigned)),
            Err(error) if is_missing(&error) => Ok(0),
            Err(error) => Err(fault("read a checkpoint")(error)),
        }
    }

    pub(super) async fn advance(&self, name: &str, from: i64, to: i64) -> Result<bool, LogError> {
        let operation = "move a checkpoint";
        let advance = sqlx::query(ADVANCE).bind(name).bind(from).bind(to);
        let moved = advance.execute(&self.pool).await.map_err(fault(operation))?.rows_affected();
        if moved == 1 || from != 0 {
            return Ok(moved == 1);
        }
        let first = sqlx::query(ADVANCE_FIRST).bind(name).bind(to);
        Ok(first.execute(&self.pool).await.map_err(fault(operation))?.rows_affected() == 1)
    }

    pub(super) async fn lead(&self, name: &str, process: Uuid, ttl_s: u32) -> Result<bool, LogError> {
        let lead = sqlx::query(LEAD).bind(name).bind(process.to_string()).bind(f64::from(ttl_s));
        let lead = lead.bind(f64::from(super::SET_BACK_S));
        Ok(lead.execute(&self.pool).await.map_err(fault("lead"))?.rows_affected() == 1)
    }

    pub(super) async fn give_up(&self, name: &str, process: Uuid) -> Result<(), LogError> {
        let give_up = sqlx::query(GIVE_UP).bind(name).bind(process.to_string());
        give_up.execute(&self.pool).await.map_err(fault("give up the lead"))?;
        Ok(())
    }

    pub(super) async fn close(&self) {
        self.pool.close().await;
    }
}

async fn list(connection: &mut PgConnection, table: &Table) -> Result<Listing, sqlx::Error> {
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

async fn drop_generation(connection: &mut PgConnection, table: &Table, number: i64) -> Result<(), sqlx::Error> {
    // The row first: who applies holds it, and whoever comes later finds that the generation is gone.
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
            Kind::Int => "bigint",
            Kind::Text => "text COLLATE \"C\"",
        };
        columns.push_str(&format!(", \"{}\" {kind}", column.name));
    }
    let mut statements =
        vec![format!("CREATE TABLE {name} (\"key\" text COLLATE \"C\" PRIMARY KEY, doc bytea NOT NULL{columns})")];
    for (index, columns) in table.indexes.iter().enumerate() {
        let columns: String = columns.iter().map(|column| format!("\"{column}\" NULLS FIRST, ")).collect();
        statements.push(format!("CREATE INDEX v_{}_{number}_{index} ON {name} ({columns}\"key\")", table.name));
    }
    statements
}

async fn upsert(connection: &mut PgConnection, table: &Table, name: &str, kept: Vec<Kept>) -> Result<(), sqlx::Error> {
    let mut columns = String::new();
    let mut arrays = "$1::text[], $2::bytea[]".to_owned();
    let mut sets = "doc = excluded.doc".to_owned();
    for (index, column) in table.columns.iter().enumerate() {
        let kind = match column.kind {
            Kind::Int => "bigint",
            Kind::Text => "text",
        };
        columns.push_str(&format!(", \"{}\"", column.name));
        arrays.push_str(&format!(", ${}::{kind}[]", index + 3));
        sets.push_str(&format!(", \"{0}\" = excluded.\"{0}\"", column.name));
    }
    let text = format!(
        "INSERT INTO {name} (\"key\", doc{columns}) SELECT * FROM unnest({arrays})
         ON CONFLICT (\"key\") DO UPDATE SET {sets}"
    );
    let mut keys = Vec::with_capacity(kept.len());
    let mut docs = Vec::with_capacity(kept.len());
    let mut rows = Vec::with_capacity(kept.len());
    for row in kept {
        keys.push(row.key);
        docs.push(row.doc);
        rows.push(row.cells);
    }
    let mut query = sqlx::query(AssertSqlSafe(text)).bind(keys).bind(docs);
    for (index, column) in table.columns.iter().enumerate() {
        let cells = rows.iter_mut().map(|row| row.get_mut(index).map(|cell| std::mem::replace(cell, Cell::Null)));
        query = match column.kind {
            Kind::Int => query.bind(cells.map(int).collect::<Vec<Option<i64>>>()),
            Kind::Text => query.bind(cells.map(text_of).collect::<Vec<Option<String>>>()),
        };
    }
    query.execute(connection).await?;
    Ok(())
}

fn int(cell: Option<Cell>) -> Option<i64> {
    match cell {
        Some(Cell::Int(value)) => Some(value),
        Some(Cell::Text(_) | Cell::Null) | None => None,
    }
}

fn text_of(cell: Option<Cell>) -> Option<String> {
    match cell {
        Some(Cell::Text(value)) => Some(value),
        Some(Cell::Int(_) | Cell::Null) | None => None,
    }
}

type PgQuery<'q> = sqlx::query::Query<'q, sqlx::Postgres, sqlx::postgres::PgArguments>;

fn bound(mut query: PgQuery<'_>, binds: Vec<Cell>) -> PgQuery<'_> {
    for cell in binds {
        query = match cell {
            Cell::Null => query.bind(None::<i64>),
            Cell::Int(value) => query.bind(value),
            Cell::Text(value) => query.bind(value),
        };
    }
    query
}

fn read_row(row: &PgRow, kind: Kind) -> Result<Row, sqlx::Error> {
    let order = match kind {
        Kind::Int => row.try_get::<Option<i64>, _>(2)?.map_or(Cell::Null, Cell::Int),
        Kind::Text => row.try_get::<Option<String>, _>(2)?.map_or(Cell::Null, Cell::Text),
    };
    Ok(Row { key: row.try_get(0)?, doc: row.try_get(1)?, order })
}

fn has_code(error: &sqlx::Error, codes: &[&str]) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    code.is_some_and(|code| codes.contains(&code.as_ref()))
}

/// The table is not there (any more).
fn is_missing(error: &sqlx::Error) -> bool {
    has_code(error, &["42P01"])
}

/// Another process made the same schema, table or type in the meantime.
fn made_meanwhile(error: &sqlx::Error) -> bool {
    has_code(error, &["23505", "42P06", "42P07", "42710"])
}
