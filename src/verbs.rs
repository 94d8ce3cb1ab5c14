//! One thin file per verb: read what was typed, ask, show the answer.

#[cfg(feature = "serve")]
pub(crate) mod approval;
#[cfg(feature = "serve")]
pub(crate) mod audit;
#[cfg(feature = "serve")]
pub(crate) mod bot;
#[cfg(feature = "serve")]
pub(crate) mod boundary;
#[cfg(feature = "serve")]
pub(crate) mod delivery;
#[cfg(feature = "serve")]
pub(crate) mod demo;
#[cfg(feature = "serve")]
pub(crate) mod doctor;
#[cfg(feature = "serve")]
pub(crate) mod erase;
#[cfg(feature = "serve")]
pub(crate) mod halt;
#[cfg(feature = "serve")]
pub(crate) mod mcp;
#[cfg(feature = "serve")]
pub(crate) mod notice;
#[cfg(feature = "serve")]
pub(crate) mod rebuild;
pub(crate) mod replay;
#[cfg(feature = "serve")]
pub(crate) mod routine;
#[cfg(feature = "serve")]
pub(crate) mod run;
#[cfg(feature = "serve")]
pub(crate) mod schedule;
#[cfg(feature = "serve")]
pub(crate) mod sender;
#[cfg(feature = "serve")]
pub(crate) mod serve;
#[cfg(feature = "serve")]
pub(crate) mod token;
#[cfg(feature = "serve")]
pub(crate) mod trigger;
#[cfg(feature = "serve")]
pub(crate) mod user;
pub(crate) mod verify;

use std::process::ExitCode;

use crate::{
    cli::{Globals, Verb},
    failure::Failure,
};

/// Does what was asked. The exit code is 0, or 1 where a check found something.
pub(crate) async fn run(verb: Verb, globals: &Globals) -> Result<ExitCode, Failure> {
    match verb {
        Verb::Replay(replay) => Box::pin(replay.run(globals)).await,
        Verb::Verify(verify) => Box::pin(verify.run(globals)).await,
        #[cfg(feature = "serve")]
        Verb::Serve(serve) => Box::pin(serve.run(globals)).await,
        #[cfg(feature = "serve")]
        Verb::Demo(demo) => Box::pin(demo.run(globals)).await,
        #[cfg(feature = "serve")]
        Verb::Routine(routine) => Box::pin(routine.run(globals)).await,
        #[cfg(feature = "serve")]
        Verb::Run(run) => Box::pin(run.run(globals)).await,
        #[cfg(feature = "serve")]
        Verb::Trigger(trigger) => Box::pin(trigger.run(globals)).await,
        #[cfg(feature = "serve")]
        Verb::Approval(approval) => Box::pin(approval.run(globals)).await,
        #[cfg(feature = "serve")]
        Verb::Delivery(delivery) => Box::pin(delivery.run(globals)).await,
        #[cfg(feature = "serve")]
        Verb::Mcp(mcp) => Box::pin(mcp.run(globals)).await,
        #[cfg(feature = "serve")]
        Verb::Notice(notice) => Box::pin(notice.run(globals)).await,
        #[cfg(feature = "serve")]
        Verb::Bot(bot) => Box::pin(bot.run(globals)).await,
        #[cfg(feature = "serve")]
        Verb::Boundary(boundary) => Box::pin(boundary.run(globals)).await,
        #[cfg(feature = "serve")]
        Verb::Audit(audit) => Box::pin(audit.run(globals)).await,
        #[cfg(feature = "serve")]
        Verb::Rebuild(rebuild) => Box::pin(rebuild.run(globals)).await,
        #[cfg(feature = "serve")]
        Verb::Erase(erase) => Box::pin(erase.run(globals)).await,
        #[cfg(feature = "serve")]
        Verb::Halt(halt) => Box::pin(halt.run(globals)).await,
        #[cfg(feature = "serve")]
        Verb::User(user) => Box::pin(user.run(globals)).await,
        #[cfg(feature = "serve")]
        Verb::Token(token) => Box::pin(token.run(globals)).await,
        #[cfg(feature = "serve")]
        Verb::Schedule(schedule) => schedule.run(globals),
        #[cfg(feature = "serve")]
        Verb::Doctor(doctor) => Box::pin(doctor.run(globals)).await,
    }
}

/// Rows of a projection, in order; all of them where no limit is said.
#[cfg(feature = "serve")]
pub(crate) async fn all<P: midwatch_projections::Projection>(
    engine: &midwatch_engine::Engine,
    filters: Vec<midwatch_log::views::Condition>,
    order: midwatch_log::views::Order,
    limit: Option<usize>,
) -> Result<Vec<P::Row>, Failure> {
    const PAGE: usize = 500;
    let limit = limit.unwrap_or(usize::MAX);
    let mut rows = Vec::new();
    let mut after = None;
    while rows.len() < limit {
        let asked = PAGE.min(limit - rows.len());
        let size = u32::try_from(asked).unwrap_or(u32::MAX);
        let page = midwatch_engine::projector::page::<P>(engine, filters.clone(), order, size, after).await?;
        let full = page.len() == asked;
        after = page.last().map(|(_, cursor)| cursor.clone());
        rows.extend(page.into_iter().map(|(row, _)| row));
        if !full {
            break;
        }
    }
    Ok(rows)
}

/// A column that must hold this text.
#[cfg(feature = "serve")]
pub(crate) fn equal(column: &'static str, text: impl ToString) -> midwatch_log::views::Condition {
    use midwatch_log::views::{Cell, Condition, Test};
    Condition { column, is: Test::Eq(Cell::Text(text.to_string())) }
}

/// A column that must hold this number.
#[cfg(feature = "serve")]
pub(crate) fn equal_int(column: &'static str, number: u64) -> midwatch_log::views::Condition {
    use midwatch_log::views::{Cell, Condition, Test};
    Condition { column, is: Test::Eq(Cell::Int(i64::try_from(number).unwrap_or(i64::MAX))) }
}
