//! Closing what nobody else closes.

use midwatch_commands::run::{DEADLINE_SLACK_S, End, Overdue, Run, UNTAKEN_S};
use midwatch_events::{
    Actor, Micros, StreamName,
    id::RunId,
    run::{Outcome, Reason},
};
use midwatch_projections::runs::RunRow;

use crate::{Engine, EngineError, Origin, approvals, runs};
use midwatch_log::Pending;

/// Closes runs that nobody took in time, and runs long past their deadline, whoever holds them; lets approvals expire.
///
/// # Errors
/// A fault of the database.
pub fn sweep(engine: &Engine) -> Pending<'_, (), EngineError> {
    Box::pin(async move {
        let now = engine.log().store_time().await?;
        approvals::sweep(engine, now).await?;
        for row in runs::live(engine).await?.into_iter().filter(|row| perhaps_overdue(row, now)) {
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
    })
}

/// By its row, which may be behind: then the next look finds it.
fn perhaps_overdue(row: &RunRow, now: Micros) -> bool {
    match row.deadline {
        None => now >= row.opened_at.plus_s(UNTAKEN_S),
        Some(deadline) => now >= deadline.plus_s(DEADLINE_SLACK_S),
    }
}
