//! The `clock` role: claims windows as they fall due, and closes what nobody else closes.
//!
//! No timer per routine: `due` is an indexed projection, read in pages. The clock sleeps to the next due instant, at
//! most [`SLEEP_MAX`], so a jump of the time of day or a sleeping laptop costs at most that.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use midwatch_commands::{
    Refusal,
    reactions::TargetId,
    routine::{Phase, Routine, RoutineCommand},
    run::{End, Overdue, Run},
};
use midwatch_events::{
    Actor, Micros, StreamName,
    id::{RoutineId, RunId, TriggerId},
    routine::SuspendCause,
    run::{Outcome, Reason},
};
use midwatch_log::views::{Cell, Condition, Order, Test};
use midwatch_projections::due::{Due, DueRow};
use tokio::sync::watch;

use crate::{Engine, EngineError, Origin, handle::handle, projector, runs, world::told};

/// The longest the clock sleeps.
pub const SLEEP_MAX: Duration = Duration::from_secs(30);
const PAGE: u32 = 500;
/// Events that come together are looked at together.
const SETTLE: Duration = Duration::from_millis(50);
/// How long the clock leaves a target alone that had nothing to do although its row was due, at first: its projection is
/// behind. It doubles while the row stays as it is.
const AGAIN: Duration = Duration::from_millis(200);
/// So many targets in a row that cannot be looked at are the database's fault and not theirs.
const FAULTS_MAX: u32 = 3;

/// Ticks until told to stop.
pub async fn run(engine: Engine, mut stop: watch::Receiver<bool>) {
    let mut head = engine.log().follow();
    let mut swept = None;
    let mut looks = Looks::default();
    loop {
        let now = engine.world().clock.monotonic();
        if swept.is_none_or(|at| now.saturating_sub(at) >= SLEEP_MAX) {
            swept = Some(now);
            if let Err(error) = sweep(&engine).await {
                tracing::warn!(%error, "overdue runs cannot be closed; trying again");
            }
        }
        let known = *head.borrow_and_update();
        let sleep = match looks.tick(&engine, known).await {
            Ok(sleep) => sleep,
            Err(error) => {
                tracing::warn!(%error, "due windows cannot be claimed; trying again");
                Duration::from_secs(1)
            }
        };
        tokio::select! {
            biased;
            () = told(&mut stop) => break,
            () = engine.world().clock.sleep(sleep) => {}
            // New events may have made something due; many at once are looked at together.
            _ = head.changed() => engine.world().clock.sleep(SETTLE).await,
        }
    }
}

/// Looks at everything that is due, and says how long nothing will be.
///
/// # Errors
/// A fault of the database. A target that cannot be looked at is no fault: it is logged or suspended, and the others
/// go on.
pub async fn tick(engine: &Engine) -> Result<Duration, EngineError> {
    Looks::default().tick(engine, 0).await
}

/// What the clock has looked at without finding anything to do, although the row is due: its window waits for its
/// jitter, its projection is behind, or it cannot be read. Without this memory it would look again and again.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    quiet: BTreeMap<String, Quiet>,
    /// Rounds in a row in which `due` was behind the head.
    behind: u32,
}

#[derive(Debug)]
struct Quiet {
    row: DueRow,
    /// In monotonic time.
    until: Duration,
    /// How long it was left alone the last time.
    pause: Duration,
}

/// What came of looking at one target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Looked {
    /// Something was appended: its row will change.
    Moved,
    /// There was nothing to do, and is nothing before this time has passed.
    Nothing(Duration),
    /// There was nothing to do, although its row says that there is.
    Stale,
}

impl Looks {
    /// As [`tick`]; `head` is the position up to which something may have become due.
    pub(crate) async fn tick(&mut self, engine: &Engine, head: u64) -> Result<Duration, EngineError> {
        if engine.halt().await?.state.halted.is_some() {
            return Ok(SLEEP_MAX);
        }
        let now = engine.log().store_time().await?;
        // Asked before the rows are read: they are at least as new.
        let behind = projector::as_of::<Due>(engine).await?.0 < head;
        let mut seen = BTreeSet::new();
        let (mut moved, mut faults, mut after) = (false, 0, None);
        loop {
            let filters = vec![Condition { column: "at", is: Test::Le(Cell::Int(now.0)) }];
            let order = Order { column: "at", descending: false };
            let page = projector::page::<Due>(engine, filters, order, PAGE, after).await?;
            for (row, _) in &page {
                seen.insert(row.stream.clone());
                match self.look(engine, row).await {
                    Ok(appended) => (moved, faults) = (moved || appended, 0),
                    Err(error) if faults + 1 < FAULTS_MAX => {
                        tracing::warn!(stream = %row.stream, %error, "a target cannot be looked at; the others go on");
                        faults += 1;
                    }
                    Err(error) => return Err(error),
                }
            }
            match page.last() {
                Some((_, cursor)) if page.len() == PAGE as usize => after = Some(cursor.clone()),
                _ => break,
            }
        }
        self.quiet.retain(|stream, _| seen.contains(stream));
        self.behind = if behind { self.behind.saturating_add(1) } else { 0 };
        self.sleep(engine, now, moved).await
    }

    /// Looks at one target, unless it was looked at and nothing has changed; whether something was appended.
    async fn look(&mut self, engine: &Engine, row: &DueRow) -> Result<bool, EngineError> {
        let at = engine.world().clock.monotonic();
        let before = self.quiet.get(&row.stream).filter(|quiet| quiet.row == *row);
        if before.is_some_and(|quiet| at < quiet.until) {
            return Ok(false);
        }
        let doubled = before.map_or(AGAIN, |quiet| quiet.pause * 2).min(SLEEP_MAX);
        let looked = look(engine, row).await;
        let pause = match &looked {
            Ok(Looked::Moved) => None,
            Ok(Looked::Nothing(pause)) => Some((*pause).clamp(AGAIN, SLEEP_MAX)),
            Ok(Looked::Stale) | Err(_) => Some(doubled),
        };
        match pause {
            None => drop(self.quiet.remove(&row.stream)),
            Some(pause) => {
                let quiet = Quiet { row: row.clone(), until: at + pause, pause };
                self.quiet.insert(row.stream.clone(), quiet);
            }
        }
        looked.map(|looked| looked == Looked::Moved)
    }

    async fn sleep(&self, engine: &Engine, now: Micros, moved: bool) -> Result<Duration, EngineError> {
        let filters = vec![Condition { column: "at", is: Test::Gt(Cell::Int(now.0)) }];
        let order = Order { column: "at", descending: false };
        let first = projector::page::<Due>(engine, filters, order, 1, None).await?;
        let next = first.first().and_then(|(row, _)| row.at).map(|at| span(now, at));
        let at = engine.world().clock.monotonic();
        let again = self.quiet.values().map(|quiet| quiet.until.saturating_sub(at)).min();
        // Rows that have yet to come in may be due earlier than those that are there.
        let moved = moved.then_some(AGAIN);
        let behind = (self.behind > 0).then(|| AGAIN * (1 << self.behind.min(5)) / 2);
        let sleep = [next, again, moved, behind].into_iter().flatten().min().unwrap_or(SLEEP_MAX);
        Ok(sleep.clamp(Duration::from_millis(1), SLEEP_MAX))
    }
}

/// From one instant to a later one; nothing where it is not later.
fn span(from: Micros, to: Micros) -> Duration {
    Duration::from_micros(u64::try_from(to.since(from)).unwrap_or(0))
}

/// Looks at one target: its windows, then its queue.
async fn look(engine: &Engine, row: &DueRow) -> Result<Looked, EngineError> {
    let stream = StreamName::stored(row.stream.clone());
    let Some(id) = stream.uuid() else { return Ok(Looked::Stale) };
    let target = match stream.category() {
        "routine" => TargetId::Routine(RoutineId::new(id)),
        _ => TargetId::Trigger(TriggerId::new(id)),
    };
    match look_at(engine, row, target).await {
        Ok(looked) => Ok(looked),
        Err(EngineError::Refused(Refusal::Halted | Refusal::NotFound(_))) => Ok(Looked::Stale),
        Err(EngineError::Refused(refusal)) => suspend(engine, target, &refusal.to_string()).await,
        Err(EngineError::Corrupt(error)) => {
            tracing::error!(stream = %row.stream, %error, "a target cannot be read; the others go on");
            Ok(Looked::Stale)
        }
        Err(error) => Err(error),
    }
}

async fn look_at(engine: &Engine, row: &DueRow, target: TargetId) -> Result<Looked, EngineError> {
    let mut moved = false;
    if let (TargetId::Routine(id), true) = (target, row.next_window.is_some() && row.may_start) {
        moved |= engine.tick(id).await?.value.appended;
    }
    if !row.queue.is_empty() {
        moved |= engine.claim_next(target, &Origin::of(Actor::Clock), None).await?.value.appended;
    }
    if moved {
        return Ok(Looked::Moved);
    }
    let TargetId::Routine(id) = target else { return Ok(Looked::Stale) };
    let routine = engine.load::<Routine>(&StreamName::routine(id)).await?.state;
    match (&routine.schedule, routine.next) {
        (None, _) if routine.phase == Phase::Active => {
            let sentence = "its schedule cannot be read; give it a new one with `midwatch routine edit`";
            suspend(engine, target, sentence).await
        }
        // Not due before its jitter is over.
        (Some(schedule), Some(window)) if routine.phase == Phase::Active && routine.target.queue.is_empty() => {
            let now = engine.log().store_time().await?;
            let pause = span(now, schedule.effective_at(window, id.uuid().as_bytes()));
            Ok(if pause.is_zero() { Looked::Stale } else { Looked::Nothing(pause) })
        }
        _ => Ok(Looked::Stale),
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
    .map(|done| if done.duplicate { Looked::Stale } else { Looked::Moved })
}

/// Closes runs that nobody took in time, and runs long past their deadline, whoever holds them.
///
/// # Errors
/// A fault of the database.
pub async fn sweep(engine: &Engine) -> Result<(), EngineError> {
    let now = engine.log().store_time().await?;
    for row in runs::live(engine).await? {
        let run: RunId = row.id;
        let state = match engine.load::<Run>(&StreamName::run(run)).await {
            Ok(loaded) => loaded.state,
            Err(EngineError::Corrupt(error)) => {
                tracing::error!(%run, %error, "a run cannot be read; the others go on");
                continue;
            }
            Err(error) => return Err(error),
        };
        let end = match state.overdue(now) {
            None => continue,
            Some(Overdue::Untaken) => End {
                take: None,
                outcome: Outcome::Abandoned,
                reason: Some(Reason::NoRunner),
                headline: "Nobody took it: no runner was there for 15 minutes".to_owned(),
                error: None,
                now,
            },
            Some(Overdue::Deadline) => End {
                take: None,
                outcome: Outcome::TimedOut,
                reason: Some(Reason::Deadline),
                headline: "It ran past its deadline".to_owned(),
                error: None,
                now,
            },
        };
        match engine.settle(run, end, &Origin::of(Actor::Clock)).await {
            Ok(_) | Err(EngineError::Refused(_)) => {}
            Err(EngineError::Corrupt(error)) => {
                tracing::error!(%run, %error, "a run cannot be closed; the others go on");
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
