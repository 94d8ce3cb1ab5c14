//! What a caller sees: admins and auditors everything, members what is theirs. What they do not see is not there.

use midwatch_engine::projector;
use midwatch_events::{
    id::{RoutineId, RunId, TriggerId},
    user::Access,
};
use midwatch_log::views::{Cell, Condition, Order, Test};
use midwatch_projections::{
    routines_list::{RoutineRow, RoutineState, RoutinesList},
    runs::{RunRow, Runs},
    triggers::{TriggerRow, TriggerState, Triggers},
};

use super::frame::Failure;
use crate::{app::App, auth::Caller, error::Problem};

/// Rows of somebody's own, where they see no others; for tables with an `owner`.
pub(crate) fn owned(caller: &Caller) -> Option<Condition> {
    if caller.reads_all() {
        return None;
    }
    // Somebody who is no person owns nothing.
    let owner = caller.user().map(|user| user.to_string()).unwrap_or_default();
    Some(Condition { column: "owner", is: Test::Eq(Cell::Text(owner)) })
}

/// Rows about somebody's own routines, where they see no others; for tables with a `routine`.
pub(crate) async fn of_own_routines(app: &App, caller: &Caller) -> Result<Option<Condition>, Failure> {
    let Some(owned) = owned(caller) else { return Ok(None) };
    let order = Order { column: "name", descending: false };
    let rows = projector::page::<RoutinesList>(&app.engine, vec![owned], order, 200, None).await?;
    let own = rows.into_iter().map(|(row, _)| Cell::Text(row.id.to_string())).collect();
    Ok(Some(Condition { column: "routine", is: Test::In(own) }))
}

/// Whether instructions, arguments and results may be read: by admins and by whoever they belong to.
pub(crate) fn reads_words(caller: &Caller, owner: midwatch_events::id::UserId) -> bool {
    caller.role == Access::Admin || caller.user() == Some(owner)
}

/// A routine this caller sees.
pub(crate) async fn routine(app: &App, caller: &Caller, id: &str) -> Result<RoutineRow, Failure> {
    let missing = || Failure(Problem::not_found("routine"));
    let id: RoutineId = id.parse().map_err(|_| missing())?;
    let row = projector::get::<RoutinesList>(&app.engine, &id.to_string()).await?;
    let row = row.filter(|row| row.state != RoutineState::Deleted && caller.sees(row.owner));
    row.ok_or_else(missing)
}

/// A routine this caller may change.
pub(crate) async fn changes_routine(app: &App, caller: &Caller, id: &str) -> Result<RoutineRow, Failure> {
    let row = routine(app, caller, id).await?;
    caller.must_change()?;
    Ok(row)
}

/// A run this caller sees.
pub(crate) async fn run(app: &App, caller: &Caller, id: &str) -> Result<RunRow, Failure> {
    let missing = || Failure(Problem::not_found("run"));
    let id: RunId = id.parse().map_err(|_| missing())?;
    let row = projector::get::<Runs>(&app.engine, &id.to_string()).await?;
    row.filter(|row| caller.sees(row.owner)).ok_or_else(missing)
}

/// A trigger; they are the admins' to change and the auditors' to read.
pub(crate) async fn trigger(app: &App, caller: &Caller, id: &str) -> Result<TriggerRow, Failure> {
    caller.must_read_all()?;
    let missing = || Failure(Problem::not_found("trigger"));
    let id: TriggerId = id.parse().map_err(|_| missing())?;
    let row = projector::get::<Triggers>(&app.engine, &id.to_string()).await?;
    row.filter(|row| row.state != TriggerState::Deleted).ok_or_else(missing)
}
