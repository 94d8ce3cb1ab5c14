//! The `clock` role: claims windows as they fall due, and closes what nobody else closes.
//!
//! No timer per routine: `due` is an indexed projection, read in pages. The clock sleeps to the next due instant, at
//! most [`SLEEP_MAX`], so a jump of the time of day or a sleeping laptop costs at most that.

use std::time::Duration;

use midwatch_commands::{
    Refusal,
    reactions::TargetId,
    routine::RoutineCommand,
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

use crate::{Engine, EngineError, Origin, handle::handle, projector, runs};

/// The longest the clock sleeps.
pub const SLEEP_MAX: Duration = Duration::from_secs(30);
const PAGE: u32 = 500;
/// How long the clock leaves a target alone that had nothing to do although its row was due: its projection is behind.
const SETTLE: Duration = Duration::from_millis(50);

/// Ticks until told to stop.
pub async fn run(engine: Engine, mut stop: watch::Receiver<bool>) {
    let mut head = engine.log().follow();
    let mut swept = None;
    while !*stop.borrow() {
        let now = engine.world().clock.monotonic();
        if swept.is_none_or(|at| now.saturating_sub(at) >= SLEEP_MAX) {
            swept = Some(now);
            if let Err(error) = sweep(&engine).await {
                tracing::warn!(%error, "overdue runs cannot be closed; trying again");
            }
        }
        let sleep = match tick(&engine).await {
            Ok(sleep) => sleep,
            Err(error) => {
                tracing::warn!(%error, "due windows cannot be claimed; trying again");
                Duration::from_secs(1)
            }
        };
        tokio::select! {
            biased;
            _ = stop.changed() => {}
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
    if engine.halt().await?.state.halted.is_some() {
        return Ok(SLEEP_MAX);
    }
    let now = engine.log().store_time().await?;
    let mut after = None;
    loop {
        let filters = vec![Condition { column: "at", is: Test::Le(Cell::Int(now.0)) }];
        let order = Order { column: "at", descending: false };
        let page = projector::page::<Due>(engine, filters, order, PAGE, after).await?;
        for (row, _) in &page {
            look(engine, row).await?;
        }
        match page.last() {
            Some((_, cursor)) if page.len() == PAGE as usize => after = Some(cursor.clone()),
            _ => break,
        }
    }
    next_sleep(engine, now).await
}

async fn next_sleep(engine: &Engine, now: Micros) -> Result<Duration, EngineError> {
    let filters = vec![Condition { column: "at", is: Test::NotNull }];
    let order = Order { column: "at", descending: false };
    let first = projector::page::<Due>(engine, filters, order, 1, None).await?;
    let Some(at) = first.first().and_then(|(row, _)| row.at) else { return Ok(SLEEP_MAX) };
    let ahead = Duration::from_micros(u64::try_from(at.since(now)).unwrap_or(0));
    // A row that is still due was just looked at; its projection, or its jitter, has yet to catch up.
    Ok(ahead.max(SETTLE * 4).min(SLEEP_MAX))
}

/// Looks at one target: its windows, then its queue.
async fn look(engine: &Engine, row: &DueRow) -> Result<(), EngineError> {
    let stream = StreamName::stored(row.stream.clone());
    let Some(id) = stream.uuid() else { return Ok(()) };
    let target = match stream.category() {
        "routine" => TargetId::Routine(RoutineId::new(id)),
        _ => TargetId::Trigger(TriggerId::new(id)),
    };
    let looked = look_at(engine, row, target).await;
    match looked {
        Ok(()) | Err(EngineError::Refused(Refusal::Halted | Refusal::NotFound(_))) => Ok(()),
        Err(EngineError::Refused(refusal)) => suspend(engine, target, &refusal.to_string()).await,
        Err(EngineError::Corrupt(error)) => {
            tracing::error!(stream = %row.stream, %error, "a target cannot be read; the others go on");
            Ok(())
        }
        Err(error) => Err(error),
    }
}

async fn look_at(engine: &Engine, row: &DueRow, target: TargetId) -> Result<(), EngineError> {
    if let (TargetId::Routine(id), true) = (target, row.next_window.is_some() && row.may_start) {
        engine.tick(id).await?;
    }
    if !row.queue.is_empty() {
        engine.claim_next(target, &Origin::of(Actor::Clock), None).await?;
    }
    Ok(())
}

/// A routine that cannot be evaluated is switched off with the reason, so that it does not hold up the others.
async fn suspend(engine: &Engine, target: TargetId, error: &str) -> Result<(), EngineError> {
    let TargetId::Routine(id) = target else {
        tracing::warn!(?target, error, "a trigger's next delivery cannot be taken");
        return Ok(());
    };
    let origin = Origin::of(Actor::Clock);
    let stream = StreamName::routine(id);
    handle::<midwatch_commands::routine::Routine>(engine, &stream, &origin, None, |_| {
        Ok(RoutineCommand::Suspend { cause: SuspendCause::NotEvaluable, error: error.to_owned() })
    })
    .await
    .map(|_| ())
}

/// Closes runs that nobody took in time, and runs long past their deadline, whoever holds them.
///
/// # Errors
/// A fault of the database.
pub async fn sweep(engine: &Engine) -> Result<(), EngineError> {
    let now = engine.log().store_time().await?;
    for row in runs::live(engine).await? {
        let run: RunId = row.id;
        let state = engine.load::<Run>(&StreamName::run(run)).await?.state;
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
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
