//! Keeps the projections: reads events, lets the pure folds say what changes, and does the SQL. Holds promise 9.
//!
//! Rows and checkpoint move in one transaction that starts with a guarded update of the checkpoint: any number of
//! processes may do this at once, and each event is applied once. A poison event stops its projection and is shown as
//! its health; the others go on. An event of a newer binary stops it too, but that is no poison: a newer process goes
//! on.

use std::{collections::BTreeMap, sync::OnceLock, time::Duration};

use futures_util::future::BoxFuture;
use midwatch_events::{AnyEvent, Micros, Recorded, codec::CodecError};
use midwatch_log::{
    Filter, Pending,
    views::{Attached, Cell, Column, Condition, Cursor, Generation, Kind, Order, Query, RowWrite, Table},
};
use midwatch_projections::{self as pure, Projection, View};
use tokio::sync::watch;

use crate::{Engine, EngineError, world::told};

const NAME: &str = "projector";
/// Events applied in one transaction at the most.
const BATCH: u32 = 500;
/// How long a follower waits when nothing wakes it.
const POLL: Duration = Duration::from_secs(1);
/// How long a process that could not go on lets others lead.
const STAND_BACK: Duration = Duration::from_secs(2);
/// How long a projector leads before it has to say so again, in seconds.
const LEAD_S: u32 = 5;

/// The tables of all projections, in the log's words. Made once for the life of the process.
pub(crate) fn tables() -> &'static [(View, Table)] {
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
        if built_from_another_ledger(engine, table).await? {
            tracing::info!(projection = table.name, "its rows were built from another ledger; they are built again");
            engine.views().restart(table).await?;
        }
    }
    Ok(())
}

/// Whether a projection stands where this ledger has no event, or another one: the ledger's file was replaced by an
/// older copy beside the projections of the newer one.
async fn built_from_another_ledger(engine: &Engine, table: &'static Table) -> Result<bool, EngineError> {
    let (position, at) = engine.views().as_of(table).await?;
    Ok(position > 0 && engine.log().read_at(position).await?.is_none_or(|event| event.recorded_at != at))
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
    /// Its lag: how long ago the first of them was recorded, in milliseconds, on the store's clock; 0 where there is none.
    pub lag_ms: u64,
    /// The event that stopped it and why, if one did.
    pub stopped: Option<(u64, String)>,
}

/// Where every projection stands.
///
/// # Errors
/// A fault of the database.
pub fn status(engine: &Engine) -> Pending<'_, Vec<Status>, EngineError> {
    Box::pin(async move {
        let head = engine.log().head().await?;
        let mut all = Vec::new();
        // Most that are behind stand at the same place.
        let mut lags = BTreeMap::new();
        for (_, table) in tables() {
            let (position, _) = engine.views().as_of(table).await?;
            let stopped = engine.views().health(table).await?;
            let lag_ms = match lags.get(&position) {
                Some(known) => *known,
                None => *lags.entry(position).or_insert(lag_ms(engine, position, head).await?),
            };
            all.push(Status { name: table.name, position, behind: head.saturating_sub(position), lag_ms, stopped });
        }
        Ok(all)
    })
}

/// The age of the event after `position`, in milliseconds.
async fn lag_ms(engine: &Engine, position: u64, head: u64) -> Result<u64, EngineError> {
    if position >= head {
        return Ok(0);
    }
    let Some(next) = engine.log().read_at(position + 1).await? else { return Ok(0) };
    let age_us = engine.log().store_time().await?.since(next.recorded_at);
    Ok(u64::try_from(age_us).unwrap_or_default() / 1_000)
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
pub fn catch_up(engine: &Engine) -> Pending<'_, u64, EngineError> {
    Box::pin(async move {
        let head = engine.log().head().await?;
        loop {
            let round = round(engine).await?;
            // Stopped projections never reach the head: when nothing moves any more, this is as far as it goes.
            if round.lowest >= head || !round.moved {
                return Ok(head);
            }
        }
    })
}

/// Waits until a position is in the projections, at most a second, so that callers read their own writes.
pub fn wait_for(engine: &Engine, position: u64) -> BoxFuture<'_, ()> {
    Box::pin(async move {
        let clock = &engine.world().clock;
        let until = clock.monotonic() + Duration::from_secs(1);
        let mut pause = Duration::from_millis(2);
        for (_, table) in tables() {
            // One after the other: what has reached the position once is never asked again.
            loop {
                match engine.views().as_of(table).await {
                    Ok((reached, _)) if reached >= position => break,
                    Ok(_) | Err(_) if clock.monotonic() >= until => return,
                    // A stopped projection answers at once.
                    Ok(_) if matches!(engine.views().health(table).await, Ok(Some(_))) => break,
                    Ok(_) | Err(_) => clock.sleep(pause).await,
                }
                pause = (pause * 2).min(Duration::from_millis(50));
            }
        }
    })
}

/// The `projector` role: follows the head until told to stop. One process leads; the others stand by.
pub fn run(engine: Engine, mut stop: watch::Receiver<bool>) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        let mut head = engine.log().follow();
        let mut failing = false;
        let mut rested = Rested::default();
        loop {
            let led = lead(&engine, NAME).await;
            let outcome = match led {
                Ok(true) => rested.round(&engine).await,
                Ok(false) => Ok(Round::default()),
                Err(error) => Err(error),
            };
            if let Err(error) = &outcome
                && !failing
            {
                tracing::warn!(%error, "projections cannot be kept; leaving them to another, then trying again");
            }
            failing = outcome.is_err();
            let (moved, newer) = outcome.map_or((false, true), |round| (round.moved, round.newer));
            let stands_back = newer && !moved;
            if stands_back {
                give_up(&engine, NAME).await;
            }
            tokio::select! {
                biased;
                () = told(&mut stop) => break,
                () = std::future::ready(()), if moved => {}
                () = engine.world().clock.sleep(STAND_BACK), if stands_back => {}
                _ = head.changed(), if !stands_back => {}
                () = engine.world().clock.sleep(POLL), if !stands_back => {}
            }
        }
        give_up(&engine, NAME).await;
    })
}

/// Leaves the lead of `name` to whoever takes it.
pub(crate) async fn give_up(engine: &Engine, name: &str) {
    if let Err(error) = engine.views().give_up(name, engine.process().uuid()).await {
        tracing::debug!(%error, name, "the lead runs out by itself");
    }
}

/// Keeps the projections where nobody else does, so that no window and no deadline waits for a process with the projector
/// role to come back. A clock asks for it every half minute.
///
/// # Errors
/// A fault of the database.
pub(crate) async fn stand_in(engine: &Engine) -> Result<(), EngineError> {
    let head = engine.log().head().await?;
    if as_of::<pure::runs::Runs>(engine).await?.0 < head && lead(engine, NAME).await? {
        catch_up(engine).await?;
    }
    Ok(())
}

/// Takes or keeps the lead of `name` for this process.
pub(crate) async fn lead(engine: &Engine, name: &str) -> Result<bool, EngineError> {
    let now = engine.world().clock.now();
    Ok(engine.views().lead(name, engine.process().uuid(), LEAD_S, now).await?)
}

/// What came of one batch for every projection that was behind.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    /// Whether any moved.
    moved: bool,
    /// The lowest position before.
    lowest: u64,
    /// Whether one waits for a newer binary.
    newer: bool,
}

/// How long nothing is looked at again where everything stood at the head, and the head has not moved.
const REST: Duration = Duration::from_secs(10);

/// The head at which the last round found nothing to do, and until when that is believed: a projection that was lost, or
/// begun by a newer binary, is found then.
#[derive(Debug, Default)]
struct Rested(Option<(u64, Duration)>);

impl Rested {
    async fn round(&mut self, engine: &Engine) -> Result<Round, EngineError> {
        let now = engine.world().clock.monotonic();
        let head = engine.log().head().await?;
        if self.0.is_some_and(|(at, until)| at == head && now < until) {
            return Ok(Round { lowest: head, ..Round::default() });
        }
        self.0 = None;
        let round = round(engine).await?;
        if !round.moved && !round.newer && round.lowest == head {
            self.0 = Some((head, now + REST));
        }
        Ok(round)
    }
}

/// One batch for every projection that is behind.
async fn round(engine: &Engine) -> Result<Round, EngineError> {
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
    let mut round = Round { lowest: by_position.keys().next().copied().unwrap_or_default(), ..Round::default() };
    for (position, generations) in by_position {
        // One read feeds all that stand at the same place, which is nearly always all of them.
        let events = engine.log().read_all(position, BATCH, &Filter::default()).await?.0;
        let decoded = decode_all(&events);
        for (view, generation, building) in generations {
            let applied = match events.is_empty() {
                true => Applied { to: position, stopped: None, by_another: false },
                false => apply(engine, view, &generation, position, &decoded).await?,
            };
            // Moved by another it may stand before the head that this round saw: whoever catches up looks again.
            round.moved |= applied.to > position || applied.by_another;
            round.newer |= matches!(applied.stopped, Some(Stopped::Newer { .. }));
            // Also where there was nothing to apply: its last batch may have come to the head of that moment only.
            if building && applied.to >= engine.log().head().await? {
                engine.views().swap(&generation).await?;
            }
        }
    }
    Ok(round)
}

/// How far a batch came, and what it came to a stop at.
struct Applied {
    to: u64,
    stopped: Option<Stopped>,
    /// Somebody else moved or replaced the rows meanwhile, and nothing was applied.
    by_another: bool,
}

impl Applied {
    fn by_another(from: u64) -> Self {
        Self { to: from, stopped: None, by_another: true }
    }
}

/// An event that cannot be taken in.
#[derive(Clone, Debug)]
enum Stopped {
    /// It is of a newer version; a newer process goes on.
    Newer { position: u64, wire: String },
    /// It is poison, and why.
    Poison { position: u64, error: String },
}

/// Applies a page of events to one generation.
async fn apply(
    engine: &Engine,
    view: View,
    generation: &Generation,
    from: u64,
    events: &[Decoded<'_>],
) -> Result<Applied, EngineError> {
    let (decoded, mut stopped) = readable(view, events);
    let keys: Vec<String> = {
        let known = decoded.iter().filter_map(|(event, recorded)| Some(((*event)?, *recorded)));
        let mut keys: Vec<String> = known.flat_map(|(event, recorded)| view.keys(event, recorded)).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    };
    let mut rows: BTreeMap<String, Option<Vec<u8>>> = keys.iter().map(|key| (key.clone(), None)).collect();
    // A generation that was replaced meanwhile is no fault: the next round attaches to its successor.
    let Some(loaded) = generation.load(&keys).await? else { return Ok(Applied::by_another(from)) };
    rows.extend(loaded.into_iter().map(|(key, doc)| (key, Some(doc))));
    let mut writes = BTreeMap::new();
    let (mut to, mut at) = (from, Micros::default());
    for (event, recorded) in &decoded {
        match event.map(|event| view.apply(&mut rows, event, recorded)).transpose() {
            Ok(changed) => {
                let changed = changed.into_iter().flatten();
                writes.extend(changed.map(|write| (write.key.clone(), write)));
                (to, at) = (recorded.position, recorded.recorded_at);
            }
            Err(poison) => {
                stopped = Some(Stopped::Poison { position: recorded.position, error: poison.to_string() });
                break;
            }
        }
    }
    if to > from {
        let writes = writes.into_values().map(row_write).collect();
        if !generation.apply(from, to, at, writes).await? {
            return Ok(Applied::by_another(from));
        }
    }
    if let Some(Stopped::Poison { position, error }) = &stopped {
        // Said once, and not at every look at an event that stays where it is.
        let known = engine.views().health(generation.table()).await?;
        if known.is_none_or(|(at, _)| at != *position) {
            tracing::error!(projection = generation.table().name, position, %error, "a projection stopped");
            generation.stop(*position, error).await?;
        }
    }
    Ok(Applied { to, stopped, by_another: false })
}

/// An event, or why it cannot be read.
type Decoded<'a> = (Result<AnyEvent, CodecError>, &'a Recorded);

/// Once for all projections.
fn decode_all(events: &[Recorded]) -> Vec<Decoded<'_>> {
    events.iter().map(|recorded| (AnyEvent::decode(recorded), recorded)).collect()
}

/// The events this binary can read, up to the first it cannot; and that one. A damaged event of a family that `view`
/// does not look at is passed by.
fn readable<'a>(view: View, events: &'a [Decoded<'a>]) -> (Vec<(Option<&'a AnyEvent>, &'a Recorded)>, Option<Stopped>) {
    let mut decoded = Vec::with_capacity(events.len());
    for (event, recorded) in events {
        let position = recorded.position;
        match event {
            Ok(event) => decoded.push((Some(event), *recorded)),
            Err(CodecError::Unknown { wire }) => {
                tracing::debug!(wire, position, "an event of a newer version; leaving it to one");
                return (decoded, Some(Stopped::Newer { position, wire: wire.clone() }));
            }
            Err(_) if !looks_at(view, recorded.family()) => decoded.push((None, *recorded)),
            Err(error) => return (decoded, Some(Stopped::Poison { position, error: error.to_string() })),
        }
    }
    (decoded, None)
}

/// Whether a projection takes in events of a family at all.
pub(crate) fn looks_at(view: View, family: &str) -> bool {
    let families: &[&str] = match view {
        View::RoutinesList => &["routine"],
        View::Due => &["routine", "trigger"],
        View::Runs | View::Approvals => &["run"],
        View::Audit => return true,
        View::RunTimeline => &["run", "repeat"],
        View::Triggers => &["trigger", "delivery"],
        View::Deliveries => &["delivery", "engine"],
        View::Redeliveries => &["delivery"],
        View::Bots => &["bot"],
        View::Boundaries => &["boundary"],
        View::People => &["user"],
        View::Processes | View::Deployment | View::Receivers | View::Notices => &["engine"],
    };
    families.contains(&family)
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
        if let Err(error) = build(engine, *view, &generation, &mut progress).await {
            engine.views().discard(generation).await?;
            return Err(error);
        }
        rebuilt.push(table.name);
    }
    Ok(rebuilt)
}

/// Applies all events to a new generation and makes it the active one.
async fn build(
    engine: &Engine,
    view: View,
    generation: &Generation,
    progress: &mut impl FnMut(&str, u64, u64),
) -> Result<(), EngineError> {
    let name = generation.table().name;
    loop {
        // Asked each time: a projector may build the same generation, where its version was raised.
        let Some(position) = generation.checkpoint().await? else {
            // Swapped in by that projector, or dropped by another rebuild.
            return Err(EngineError::Fault(format!("{name} is being rebuilt by somebody else; try again")));
        };
        let (events, _) = engine.log().read_all(position, BATCH, &Filter::default()).await?;
        if events.is_empty() {
            if engine.views().swap(generation).await? {
                return Ok(());
            }
            // A projector applies to the active rows what has come meanwhile; no ledger that went back does.
            let (active, head) = (engine.views().as_of(generation.table()).await?.0, engine.log().head().await?);
            if active > head {
                let sentence = format!(
                    "{name} stands at position {active}, but the ledger ends at {head}: it was restored from an older \
                     copy. Delete the file that ends in `-projections` beside the ledger; it is made again"
                );
                return Err(EngineError::Fault(sentence));
            }
            continue;
        }
        let applied = apply(engine, view, generation, position, &decode_all(&events)).await?;
        progress(name, applied.to, engine.log().head().await?);
        match applied.stopped {
            Some(Stopped::Newer { position, wire }) => {
                let sentence = format!("position {position} holds {wire}, which is of a newer version of Midwatch");
                return Err(EngineError::Fault(sentence));
            }
            Some(Stopped::Poison { position, error }) => {
                let sentence = format!("{name} cannot take in the event at position {position}: {error}");
                return Err(EngineError::Corrupt(sentence));
            }
            None => {}
        }
    }
}
