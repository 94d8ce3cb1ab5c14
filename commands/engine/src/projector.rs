//! Keeps the projections: reads events, lets the pure folds say what changes, and does the SQL. Holds promise 9.
//!
//! Rows and checkpoint move in one transaction that starts with a guarded update of the checkpoint: any number of
//! processes may do this at once, and each event is applied once. A poison event stops its projection and is shown as
//! its health; the others go on. An event of a newer binary stops it too, but that is no poison: a newer process goes
//! on.

use std::{collections::BTreeMap, sync::OnceLock, time::Duration};

use midwatch_events::{AnyEvent, Micros, Recorded, codec::CodecError};
use midwatch_log::{
    Filter,
    views::{Attached, Cell, Column, Condition, Cursor, Generation, Kind, Order, Query, RowWrite, Table},
};
use midwatch_projections::{self as pure, Projection, View};
use tokio::sync::watch;

use crate::{Engine, EngineError};

/// Events applied in one transaction at the most.
const BATCH: u32 = 500;
/// How long a follower waits when nothing wakes it.
const POLL: Duration = Duration::from_secs(1);
/// How long a projector leads before it has to say so again, in seconds.
const LEAD_S: u32 = 5;

/// The tables of all projections, in the log's words. Made once for the life of the process.
fn tables() -> &'static [(View, Table)] {
    static TABLES: OnceLock<Vec<(View, Table)>> = OnceLock::new();
    TABLES.get_or_init(|| View::ALL.iter().map(|view| (*view, in_log_words(view.table()))).collect())
}

fn in_log_words(table: pure::Table) -> Table {
    let columns: Vec<Column> = table
        .columns
        .iter()
        .map(|(name, kind)| Column {
            name,
            kind: match kind {
                pure::Kind::Int => Kind::Int,
                pure::Kind::Text => Kind::Text,
            },
        })
        .collect();
    Table { name: table.name, version: table.version, columns: Vec::leak(columns), indexes: table.indexes }
}

/// The table a projection's rows are in.
fn table(name: &str) -> Result<&'static Table, EngineError> {
    let found = tables().iter().map(|(_, table)| table).find(|table| table.name == name);
    found.ok_or_else(|| {
        let known: Vec<_> = tables().iter().map(|(_, table)| table.name).collect();
        let sentence = format!("there is no projection `{name}`; there are {}", known.join(", "));
        midwatch_commands::Refusal::Invalid(sentence).into()
    })
}

pub(crate) async fn attach(engine: &Engine) -> Result<(), EngineError> {
    for (_, table) in tables() {
        engine.views().attach(table).await?;
    }
    Ok(())
}

/// What readers are told of where a projection stands.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Status {
    /// The projection.
    pub name: &'static str,
    /// The position its rows are as of.
    pub position: u64,
    /// Events that are not in it yet.
    pub behind: u64,
    /// The event that stopped it and why, if one did.
    pub stopped: Option<(u64, String)>,
}

/// Where every projection stands.
///
/// # Errors
/// A fault of the database.
pub async fn status(engine: &Engine) -> Result<Vec<Status>, EngineError> {
    let head = engine.log().head().await?;
    let mut all = Vec::new();
    for (_, table) in tables() {
        let (position, _) = engine.views().as_of(table).await?;
        let stopped = engine.views().health(table).await?;
        all.push(Status { name: table.name, position, behind: head.saturating_sub(position), stopped });
    }
    Ok(all)
}

/// One row of a projection.
///
/// # Errors
/// A fault of the database, or a row that cannot be read.
pub async fn get<P: Projection>(engine: &Engine, key: &str) -> Result<Option<P::Row>, EngineError> {
    let doc = engine.views().get(table(P::TABLE.name)?, key).await?;
    doc.map(|doc| row::<P>(key, &doc)).transpose()
}

/// A page of a projection's rows, each with its place, to go on from.
///
/// # Errors
/// As [`get`].
pub async fn page<P: Projection>(
    engine: &Engine,
    filters: Vec<Condition>,
    order: Order,
    limit: u32,
    after: Option<Cursor>,
) -> Result<Vec<(P::Row, Cursor)>, EngineError> {
    let query = Query { filters, order, limit, after };
    let rows = engine.views().query(table(P::TABLE.name)?, &query).await?;
    rows.into_iter().map(|found| Ok((row::<P>(&found.key, &found.doc)?, found.cursor()))).collect()
}

/// How many rows pass.
///
/// # Errors
/// A fault of the database.
pub async fn count<P: Projection>(engine: &Engine, filters: &[Condition]) -> Result<u64, EngineError> {
    Ok(engine.views().count(table(P::TABLE.name)?, filters).await?)
}

/// The position a projection's rows are as of, and when that event was recorded.
///
/// # Errors
/// A fault of the database.
pub async fn as_of<P: Projection>(engine: &Engine) -> Result<(u64, Micros), EngineError> {
    Ok(engine.views().as_of(table(P::TABLE.name)?).await?)
}

fn row<P: Projection>(key: &str, doc: &[u8]) -> Result<P::Row, EngineError> {
    serde_json::from_slice(doc).map_err(|error| {
        let name = P::TABLE.name;
        EngineError::Corrupt(format!("the row {key} of {name} cannot be read ({error}); `midwatch rebuild {name}`"))
    })
}

/// Brings all projections up to the head, and says where that was.
///
/// # Errors
/// A fault of the database. A projection that stopped is not one; see [`status`].
pub async fn catch_up(engine: &Engine) -> Result<u64, EngineError> {
    let head = engine.log().head().await?;
    loop {
        let (moved, at) = round(engine).await?;
        // Stopped projections never reach the head: when nothing moves any more, this is as far as it goes.
        if at >= head || !moved {
            return Ok(head);
        }
    }
}

/// Waits until a position is in the projections, at most a second, so that callers read their own writes.
pub async fn wait_for(engine: &Engine, position: u64) {
    let clock = &engine.world().clock;
    let until = clock.monotonic() + Duration::from_secs(1);
    while clock.monotonic() < until {
        let reached = |status: &Status| status.position >= position || status.stopped.is_some();
        if status(engine).await.is_ok_and(|all| all.iter().all(reached)) {
            return;
        }
        clock.sleep(Duration::from_millis(10)).await;
    }
}

/// The `projector` role: follows the head until told to stop. One process leads; the others stand by.
pub async fn run(engine: Engine, mut stop: watch::Receiver<bool>) {
    let mut head = engine.log().follow();
    let mut failing = false;
    while !*stop.borrow() {
        let led = lead(&engine, "projector").await;
        let outcome = match led {
            Ok(true) => round(&engine).await.map(|(moved, _)| moved),
            Ok(false) => Ok(false),
            Err(error) => Err(error),
        };
        if let Err(error) = &outcome {
            if !failing {
                tracing::warn!(%error, "projections cannot be kept; trying again");
            }
            failing = true;
        } else {
            failing = false;
        }
        if matches!(outcome, Ok(true)) {
            continue;
        }
        tokio::select! {
            biased;
            _ = stop.changed() => {}
            _ = head.changed(), if !failing => {}
            () = engine.world().clock.sleep(POLL) => {}
        }
    }
    if let Err(error) = engine.views().give_up("projector", engine.process().uuid()).await {
        tracing::debug!(%error, "the lead runs out by itself");
    }
}

/// Takes or keeps the lead of `name` for this process.
pub(crate) async fn lead(engine: &Engine, name: &str) -> Result<bool, EngineError> {
    let now = engine.world().clock.now();
    Ok(engine.views().lead(name, engine.process().uuid(), LEAD_S, now).await?)
}

/// One batch for every projection that is behind; whether anything moved, and the lowest position now.
async fn round(engine: &Engine) -> Result<(bool, u64), EngineError> {
    let mut by_position: BTreeMap<u64, Vec<(View, Generation, bool)>> = BTreeMap::new();
    for (view, table) in tables() {
        let (generation, building) = match engine.views().attach(table).await? {
            Attached::Active(generation) => (generation, false),
            Attached::Building(generation) => (generation, true),
            Attached::Superseded { .. } => continue,
        };
        if let Some(position) = generation.checkpoint().await? {
            by_position.entry(position).or_default().push((*view, generation, building));
        }
    }
    let lowest = by_position.keys().next().copied().unwrap_or_default();
    let mut moved = false;
    for (position, generations) in by_position {
        // One read feeds all that stand at the same place, which is nearly always all of them.
        let events = engine.log().read_all(position, BATCH, &Filter::default()).await?.0;
        if events.is_empty() {
            continue;
        }
        for (view, generation, building) in generations {
            let reached = apply(view, &generation, position, &events).await?;
            moved |= reached > position;
            if building && reached >= engine.log().head().await? {
                engine.views().swap(&generation).await?;
            }
        }
    }
    Ok((moved, lowest))
}

/// Applies a page of events to one generation; the position it stands at then.
async fn apply(view: View, generation: &Generation, from: u64, events: &[Recorded]) -> Result<u64, EngineError> {
    let (decoded, mut stopped) = decode(events);
    let keys: Vec<String> = {
        let mut keys: Vec<String> = decoded.iter().flat_map(|(event, recorded)| view.keys(event, recorded)).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    };
    let mut rows: BTreeMap<String, Option<Vec<u8>>> = keys.iter().map(|key| (key.clone(), None)).collect();
    // A generation that was replaced meanwhile is no fault: the next round attaches to its successor.
    let Some(loaded) = generation.load(&keys).await? else { return Ok(from) };
    rows.extend(loaded.into_iter().map(|(key, doc)| (key, Some(doc))));
    let mut writes = BTreeMap::new();
    let (mut to, mut at) = (from, Micros::default());
    for (event, recorded) in &decoded {
        match view.apply(&mut rows, event, recorded) {
            Ok(changed) => {
                writes.extend(changed.into_iter().map(|write| (write.key.clone(), write)));
                (to, at) = (recorded.position, recorded.recorded_at);
            }
            Err(poison) => {
                stopped = Some((recorded.position, poison.to_string()));
                break;
            }
        }
    }
    if to > from {
        let writes = writes.into_values().map(row_write).collect();
        if !generation.apply(from, to, at, writes).await? {
            return Ok(from);
        }
    }
    if let Some((position, error)) = stopped {
        tracing::error!(projection = generation.table().name, position, %error, "a projection stopped");
        generation.stop(position, &error).await?;
    }
    Ok(to)
}

/// The position of an event that cannot be taken in, and why.
type Stopped = Option<(u64, String)>;

/// The events this binary can read, up to the first it cannot; and that one, where it is damaged.
fn decode(events: &[Recorded]) -> (Vec<(AnyEvent, &Recorded)>, Stopped) {
    let mut decoded = Vec::with_capacity(events.len());
    for recorded in events {
        match AnyEvent::decode(recorded) {
            Ok(event) => decoded.push((event, recorded)),
            Err(CodecError::Unknown { wire }) => {
                tracing::debug!(wire, position = recorded.position, "an event of a newer version; leaving it to one");
                return (decoded, None);
            }
            Err(error) => return (decoded, Some((recorded.position, error.to_string()))),
        }
    }
    (decoded, None)
}

fn row_write(write: pure::Write) -> RowWrite {
    let cell = |cell| match cell {
        pure::Cell::Null => Cell::Null,
        pure::Cell::Int(value) => Cell::Int(value),
        pure::Cell::Text(text) => Cell::Text(text),
    };
    let row = write.row.map(|(doc, cells)| (doc, cells.into_iter().map(cell).collect()));
    RowWrite { key: write.key, row }
}

/// Builds a projection again beside the active one and swaps it in; all of them, if none is named. `progress` is told
/// name, position and head after each batch.
///
/// # Errors
/// There is no such projection, an event stops it, or a fault.
pub async fn rebuild(
    engine: &Engine,
    name: Option<&str>,
    mut progress: impl FnMut(&str, u64, u64),
) -> Result<Vec<&'static str>, EngineError> {
    let only = name.map(table).transpose()?;
    let mut rebuilt = Vec::new();
    for (view, table) in tables().iter().filter(|(_, table)| only.is_none_or(|only| only.name == table.name)) {
        let generation = engine.views().begin_rebuild(table).await?;
        let mut position = 0;
        loop {
            let (events, _) = engine.log().read_all(position, BATCH, &Filter::default()).await?;
            if events.is_empty() {
                if engine.views().swap(&generation).await? {
                    break;
                }
                continue;
            }
            let reached = apply(*view, &generation, position, &events).await?;
            progress(table.name, reached, engine.log().head().await?);
            if reached == position {
                engine.views().discard(generation).await?;
                let sentence = format!("{} cannot take in the event at position {}", table.name, position + 1);
                return Err(EngineError::Corrupt(sentence));
            }
            position = reached;
        }
        rebuilt.push(table.name);
    }
    Ok(rebuilt)
}
