//! Looking at what is due: which rows, how many at once, and when again.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use midwatch_commands::{
    Refusal,
    bot::Bot,
    reactions::TargetId,
    routine::{Phase, Routine, RoutineCommand},
};
use midwatch_events::{
    Actor, Micros, StreamName,
    engine::Role,
    id::{BotId, RoutineId, TriggerId},
    routine::{MissedReason, SuspendCause},
};
use midwatch_log::views::{Cell, Condition, Cursor, Order, Test};
use midwatch_projections::due::{Due, DueRow};

use super::{
    SLEEP_MAX,
    presence::{Presence, There},
};
use crate::{
    Engine, EngineError, Origin,
    claims::{ReadAhead, Ticking, read_ahead},
    handle::handle,
    projector,
    shares::{Patience, Shares, Whose},
    world::Boxed,
};

const PAGE: u32 = 500;
/// So many targets are looked at at once; what they append is one group in the ledger.
const AT_ONCE: usize = 512;
/// How long the clock leaves a target alone that had nothing to do although its row was due, at first: its projection is
/// behind. It doubles while the row stays as it is.
const AGAIN: Duration = Duration::from_millis(200);
/// As long for a target to which something was appended: its row will come.
const COMES: Duration = Duration::from_secs(1);
/// How many that others have left are looked at beside one's own: none of them waits long for a clock that died, and of
/// those that a slow one still works off few are raced for.
const LEFT_MAX: usize = 64;
/// Many that are due at once are worked off by all clocks, each at its own and at a few of the others'.
const PATIENCE: Patience = Patience { left_after: Duration::from_secs(2), at_last: Duration::from_secs(10) };
/// How soon a window that nobody can run is looked at again when somebody can.
const HELD_SOON: Duration = Duration::from_secs(2);
/// So many targets in a row that cannot be looked at are the database's fault and not theirs.
const FAULTS_MAX: u32 = 3;

/// What the clock has looked at without finding anything to do, although the row is due: its window waits for its
/// jitter, its turn or somebody to run it, its projection is behind, or it cannot be read. Without this memory it would
/// look again and again.
#[derive(Debug)]
pub(crate) struct Looks {
    quiet: BTreeMap<String, Quiet>,
    /// The position that the due rows are as of.
    reached: u64,
    /// Rounds in a row in which `due` was behind the head.
    behind: u32,
    presence: Presence,
    shares: Shares,
}

#[derive(Debug)]
struct Quiet {
    row: DueRow,
    /// In monotonic time.
    until: Duration,
    /// The row is known to be behind up to this position: it is not looked at before that is in it, or `believed` is over.
    behind_to: u64,
    /// In monotonic time: a projection that stands still keeps nobody waiting for ever.
    believed: Duration,
    /// How long it was left alone the last time.
    pause: Duration,
    /// When it is looked at again, it is its turn to catch up.
    turn: bool,
    /// Why nobody can run it.
    held: Option<(MissedReason, Option<BotId>)>,
}

impl Quiet {
    /// Whether to look would only find again what the row does not show yet.
    fn is_behind(&self, reached: u64, at: Duration) -> bool {
        reached < self.behind_to && at < self.believed
    }
}

/// What came of looking at one target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Looked {
    /// Something was appended, up to this position: its row will change.
    Moved(u64),
    /// There was nothing to do, and is nothing before this time has passed.
    Nothing(Duration),
    /// It is its turn to catch up when this time has passed.
    Turn(Duration),
    /// Nobody can run it.
    Held(MissedReason, Option<BotId>),
    /// There was nothing to do, although its row says that there is.
    Stale,
}

/// A row to look at.
struct ToLook {
    row: DueRow,
    ticking: Ticking,
    ahead: Option<ReadAhead>,
}

/// What is read while earlier rows are worked off: a page of due rows, then the targets of those that are looked at.
enum Coming {
    /// As of the store's time.
    Page(Vec<(DueRow, Cursor)>, Micros),
    Ready(Vec<ToLook>, Option<Cursor>),
}

/// What one pass over the due rows found.
#[derive(Default)]
struct Pass {
    seen: BTreeSet<String>,
    /// The position up to which something may have become due.
    head: u64,
    moved: bool,
    faults: u32,
    /// When the first row that is another process's is looked at here.
    others: Option<Duration>,
    /// What others have left, to be looked at after what is our own.
    left: Vec<ToLook>,
}

impl Default for Looks {
    fn default() -> Self {
        let shares = Shares::new(Role::Clock, PATIENCE);
        Self { quiet: BTreeMap::new(), reached: 0, behind: 0, presence: Presence::default(), shares }
    }
}

impl Looks {
    /// Takes for granted that somebody executes runs.
    pub(crate) fn with_runner() -> Self {
        Self { presence: Presence::certain(), ..Self::default() }
    }

    /// Looks at everything that is due and says how long nothing will be; `head` is the position up to which something
    /// may have become due.
    pub(crate) async fn tick(&mut self, engine: &Engine, head: u64) -> Result<Duration, EngineError> {
        self.shares.say(engine).await?;
        if engine.halt().await?.state.halted.is_some() {
            return Ok(SLEEP_MAX);
        }
        let now = engine.log().store_time().await?;
        // Asked before the rows are read: they are at least as new.
        self.reached = projector::as_of::<Due>(engine).await?.0;
        let behind = self.reached < head;
        let mut pass = Pass { head, ..Pass::default() };
        let page = due(engine, now, None).await?;
        if !page.is_empty() {
            self.shares.look(engine).await?;
            let there = self.presence.look(engine).await?;
            self.release_held(engine, there).await?;
        }
        let first = Box::pin(std::future::ready(Ok(Coming::Page(page, now))));
        self.work_off(engine, first, &mut pass).await?;
        let mut left = std::mem::take(&mut pass.left);
        if pass.moved && left.len() > LEFT_MAX {
            left.truncate(LEFT_MAX);
            pass.others = Some(AGAIN);
        }
        let first = Box::pin(ready(engine, left, None));
        self.work_off(engine, first, &mut pass).await?;
        self.quiet.retain(|stream, _| pass.seen.contains(stream));
        self.behind = if behind { self.behind.saturating_add(1) } else { 0 };
        self.sleep(engine, now, &pass).await
    }

    /// Looks at everything that comes, many at once, and reads ahead meanwhile: what they append is one group in the
    /// ledger, and it is never waited for a page to be over.
    async fn work_off<'e>(
        &mut self,
        engine: &'e Engine,
        first: Boxed<'e, Result<Coming, EngineError>>,
        pass: &mut Pass,
    ) -> Result<(), EngineError> {
        let mut coming = Some(first);
        let (mut rows, mut looks) = (VecDeque::new(), FuturesUnordered::new());
        loop {
            while looks.len() < AT_ONCE
                && let Some(look) = rows.pop_front()
            {
                looks.push(looked_at(engine, look));
            }
            let came = tokio::select! {
                biased;
                Some((row, looked)) = looks.next() => {
                    self.remember(engine, row, looked, pass)?;
                    continue;
                }
                came = next(&mut coming), if coming.is_some() && rows.len() < AT_ONCE => came?,
                else => return Ok(()),
            };
            coming = match came {
                Coming::Page(page, now) => {
                    let cursor = page.last().filter(|_| page.len() == PAGE as usize).map(|(_, cursor)| cursor.clone());
                    Some(Box::pin(ready(engine, self.to_look(engine, page, now, pass), cursor)))
                }
                Coming::Ready(more, cursor) => {
                    rows.extend(more);
                    cursor.map(|cursor| Box::pin(page_after(engine, cursor)) as Boxed<'e, _>)
                }
            };
        }
    }

    /// The rows of a page that are looked at now.
    fn to_look(&self, engine: &Engine, page: Vec<(DueRow, Cursor)>, now: Micros, pass: &mut Pass) -> Vec<ToLook> {
        let at = engine.world().clock.monotonic();
        let mut rows = Vec::with_capacity(page.len());
        for (row, _) in page {
            pass.seen.insert(row.stream.clone());
            let quiet = self.quiet.get(&row.stream).filter(|quiet| quiet.row == row);
            if quiet.is_some_and(|quiet| at < quiet.until || quiet.is_behind(self.reached, at)) {
                continue;
            }
            let since = row.at.map_or(Duration::ZERO, |due| span(due, now));
            let whose = self.shares.whose(engine, &row.stream, since);
            if let Whose::Others(wait) = whose {
                pass.others = Some(pass.others.map_or(wait, |others| others.min(wait)));
                continue;
            }
            let runner = self.presence.there != There::No;
            let turn = quiet.is_some_and(|quiet| quiet.turn);
            let waits = row.next_window.is_some() || row.queued_window.is_some();
            // Whether a runner is there is not known yet: windows wait for that.
            if waits && self.presence.there == There::NotSure && row.queue.is_empty() {
                pass.others = Some(AGAIN);
                continue;
            }
            let look = ToLook { row, ticking: Ticking { now, runner, turn }, ahead: None };
            match whose {
                Whose::Left if pass.left.len() < PAGE as usize => pass.left.push(look),
                Whose::Left => pass.others = Some(AGAIN),
                Whose::Own | Whose::Others(_) => rows.push(look),
            }
        }
        rows
    }

    /// Takes in what came of a look.
    fn remember(
        &mut self,
        engine: &Engine,
        row: DueRow,
        looked: Result<Looked, EngineError>,
        pass: &mut Pass,
    ) -> Result<(), EngineError> {
        let at = engine.world().clock.monotonic();
        let before = self.quiet.get(&row.stream).filter(|quiet| quiet.row == row);
        let doubled = before.map_or(AGAIN, |quiet| quiet.pause * 2).min(SLEEP_MAX);
        let (pause, turn, held) = match &looked {
            Ok(Looked::Moved(_)) => (COMES, false, None),
            Ok(Looked::Nothing(pause)) => ((*pause).clamp(AGAIN, SLEEP_MAX), false, None),
            Ok(Looked::Turn(wait)) => (*wait, true, None),
            Ok(Looked::Held(reason, bot)) => (SLEEP_MAX, false, Some((*reason, *bot))),
            Ok(Looked::Stale) | Err(_) => (doubled, false, None),
        };
        let behind_to = match &looked {
            Ok(Looked::Moved(position)) => *position,
            Ok(Looked::Stale) => pass.head,
            Ok(Looked::Nothing(_) | Looked::Turn(_) | Looked::Held(..)) | Err(_) => 0,
        };
        let believed = at + SLEEP_MAX;
        let quiet = Quiet { row: row.clone(), until: at + pause, behind_to, believed, pause, turn, held };
        self.quiet.insert(row.stream.clone(), quiet);
        match looked {
            Ok(looked) => {
                pass.moved |= matches!(looked, Looked::Moved(_));
                pass.faults = 0;
                Ok(())
            }
            Err(error) if pass.faults + 1 < FAULTS_MAX => {
                tracing::warn!(stream = %row.stream, %error, "a target cannot be looked at; the others go on");
                pass.faults += 1;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Held windows that somebody can run again are looked at now and not when their pause is over.
    async fn release_held(&mut self, engine: &Engine, there: There) -> Result<(), EngineError> {
        let bots: BTreeSet<BotId> = self.quiet.values().filter_map(|quiet| quiet.held?.1).collect();
        let mut answer = BTreeSet::new();
        for bot in bots {
            if !engine.load::<Bot>(&StreamName::bot(bot)).await?.state.unreachable {
                answer.insert(bot);
            }
        }
        for quiet in self.quiet.values_mut() {
            let can = match quiet.held {
                Some((MissedReason::NoRunner, _)) => there == There::Yes,
                Some((MissedReason::BotUnreachable, bot)) => bot.is_some_and(|bot| answer.contains(&bot)),
                Some((MissedReason::Late, _)) | None => false,
            };
            if can {
                quiet.until = Duration::ZERO;
            }
        }
        Ok(())
    }

    async fn sleep(&self, engine: &Engine, now: Micros, pass: &Pass) -> Result<Duration, EngineError> {
        let filters = vec![Condition { column: "at", is: Test::Gt(Cell::Int(now.0)) }];
        let order = Order { column: "at", descending: false };
        let first = projector::page::<Due>(engine, filters, order, 1, None).await?;
        let next = first.first().and_then(|(row, _)| row.at).map(|at| span(now, at));
        let at = engine.world().clock.monotonic();
        let again = |quiet: &Quiet| match quiet.is_behind(self.reached, at) {
            true => quiet.until.saturating_sub(at).max(COMES),
            false => quiet.until.saturating_sub(at),
        };
        let again = self.quiet.values().map(again).min();
        let held = self.quiet.values().any(|quiet| quiet.held.is_some()).then_some(HELD_SOON);
        // Rows that have yet to come in may be due earlier than those that are there.
        let rows = self.quiet.values().filter(|quiet| quiet.is_behind(self.reached, at)).count();
        // After a flood, reading all of them again and again would only keep the projection from coming up.
        let flood = u32::try_from(rows / PAGE as usize).unwrap_or(u32::MAX);
        let moved = pass.moved.then_some(AGAIN.saturating_mul(flood.saturating_add(1)).min(COMES));
        let behind = (self.behind > 0).then(|| AGAIN * (1 << self.behind.min(5)) / 2);
        let behind = behind.map(|behind| behind.max(moved.unwrap_or_default()));
        let sleep = [next, again, held, pass.others, moved, behind].into_iter().flatten().min().unwrap_or(SLEEP_MAX);
        Ok(sleep.clamp(Duration::from_millis(1), SLEEP_MAX))
    }

    /// This process keeps time no more.
    pub(super) async fn leave(&self, engine: &Engine) {
        self.shares.leave(engine).await;
    }
}

/// What comes next; there is something to come.
async fn next(coming: &mut Option<Boxed<'_, Result<Coming, EngineError>>>) -> Result<Coming, EngineError> {
    let came = match coming {
        Some(coming) => coming.await,
        None => std::future::pending().await,
    };
    *coming = None;
    came
}

async fn page_after(engine: &Engine, cursor: Cursor) -> Result<Coming, EngineError> {
    let now = engine.log().store_time().await?;
    Ok(Coming::Page(due(engine, now, Some(cursor)).await?, now))
}

/// Reads the routines whose windows are looked at, all at once.
async fn ready(engine: &Engine, mut rows: Vec<ToLook>, cursor: Option<Cursor>) -> Result<Coming, EngineError> {
    let windows = |row: &DueRow| (row.next_window.is_some() || row.queued_window.is_some()) && row.may_start;
    let ids: Vec<RoutineId> =
        rows.iter().filter(|look| windows(&look.row)).filter_map(|look| routine_of(&look.row)).collect();
    if ids.len() > 1 {
        let mut read = read_ahead(engine, &ids).await;
        for look in &mut rows {
            look.ahead = routine_of(&look.row).and_then(|id| read.remove(&id));
        }
    }
    Ok(Coming::Ready(rows, cursor))
}

fn routine_of(row: &DueRow) -> Option<RoutineId> {
    let stream = StreamName::stored(row.stream.clone());
    stream.uuid().filter(|_| stream.category() == "routine").map(RoutineId::new)
}

async fn looked_at(engine: &Engine, mut look: ToLook) -> (DueRow, Result<Looked, EngineError>) {
    let looked = look_at(engine, &mut look).await;
    (look.row, looked)
}

/// A page of what is due at `now`, the longest due first.
async fn due(engine: &Engine, now: Micros, after: Option<Cursor>) -> Result<Vec<(DueRow, Cursor)>, EngineError> {
    let filters = vec![Condition { column: "at", is: Test::Le(Cell::Int(now.0)) }];
    let order = Order { column: "at", descending: false };
    projector::page::<Due>(engine, filters, order, PAGE, after).await
}

/// From one instant to a later one; nothing where it is not later.
fn span(from: Micros, to: Micros) -> Duration {
    Duration::from_micros(u64::try_from(to.since(from)).unwrap_or(0))
}

/// Looks at one target: its windows, then its queue.
async fn look_at(engine: &Engine, look: &mut ToLook) -> Result<Looked, EngineError> {
    let stream = StreamName::stored(look.row.stream.clone());
    let Some(id) = stream.uuid() else { return Ok(Looked::Stale) };
    let target = match stream.category() {
        "routine" => TargetId::Routine(RoutineId::new(id)),
        _ => TargetId::Trigger(TriggerId::new(id)),
    };
    match look_at_target(engine, look, target).await {
        Ok(looked) => Ok(looked),
        Err(EngineError::Refused(Refusal::Halted | Refusal::NotFound(_))) => Ok(Looked::Stale),
        Err(EngineError::Refused(refusal)) => suspend(engine, target, &refusal.to_string()).await,
        Err(EngineError::Corrupt(error)) => {
            tracing::error!(%stream, %error, "a target cannot be read; the others go on");
            Ok(Looked::Stale)
        }
        Err(error) => Err(error),
    }
}

async fn look_at_target(engine: &Engine, look: &mut ToLook, target: TargetId) -> Result<Looked, EngineError> {
    let row = &look.row;
    let mut moved = None;
    let windows = row.next_window.is_some() || row.queued_window.is_some();
    if let (TargetId::Routine(id), true) = (target, windows && row.may_start) {
        let ticked = engine.tick_ahead(id, look.ticking, look.ahead.take()).await?;
        if let (Some(wait), false) = (ticked.value.turn_in, ticked.value.appended) {
            return Ok(Looked::Turn(wait));
        }
        moved = ticked.value.appended.then_some(ticked.position);
    }
    if !row.queue.is_empty() {
        let claimed = engine.claim_next(target, &Origin::of(Actor::Clock), None).await?;
        moved = claimed.value.appended.then_some(claimed.position).or(moved);
    }
    if let Some(position) = moved {
        return Ok(Looked::Moved(position));
    }
    let TargetId::Routine(id) = target else { return Ok(Looked::Stale) };
    let routine = engine.load::<Routine>(&StreamName::routine(id)).await?.state;
    nothing_to_do(engine, look, id, &routine).await
}

/// Why there was nothing to do on a routine whose row is due.
async fn nothing_to_do(
    engine: &Engine,
    look: &ToLook,
    id: RoutineId,
    routine: &Routine,
) -> Result<Looked, EngineError> {
    if routine.phase != Phase::Active {
        return Ok(Looked::Stale);
    }
    let Some(schedule) = &routine.schedule else {
        let sentence = "its schedule cannot be read; give it a new one with `midwatch routine edit`";
        return suspend(engine, TargetId::Routine(id), sentence).await;
    };
    if let Some((window, reason)) = routine.held
        && (routine.next == Some(window) || routine.queued == Some(window))
    {
        return Ok(Looked::Held(reason, routine.bot));
    }
    match routine.next {
        // Not due before its jitter is over.
        Some(window) if routine.target.queue.is_empty() => {
            let pause = span(look.ticking.now, schedule.effective_at(window, id.uuid().as_bytes()));
            Ok(if pause.is_zero() { Looked::Stale } else { Looked::Nothing(pause) })
        }
        Some(_) | None => Ok(Looked::Stale),
    }
}

/// A routine that cannot be evaluated is switched off with the reason, so that it does not hold up the others.
async fn suspend(engine: &Engine, target: TargetId, error: &str) -> Result<Looked, EngineError> {
    let TargetId::Routine(id) = target else {
        tracing::warn!(?target, error, "a trigger's next delivery cannot be taken");
        return Ok(Looked::Stale);
    };
    let origin = Origin::of(Actor::Clock);
    let stream = StreamName::routine(id);
    handle::<Routine>(engine, &stream, &origin, None, |_| {
        Ok(RoutineCommand::Suspend { cause: SuspendCause::NotEvaluable, error: error.to_owned() })
    })
    .await
    .map(|done| if done.duplicate { Looked::Stale } else { Looked::Moved(done.position) })
}
