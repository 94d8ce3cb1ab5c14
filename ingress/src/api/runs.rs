//! Runs: which there are, what happened in one, and calling one off.

use axum::{Json, extract::State, response::Response};
use midwatch_engine::{Done, projector, runs::Stopped};
use midwatch_events::{
    id::{BotId, RoutineId, RunId, TriggerId},
    run::Outcome,
};
use midwatch_log::views::Order;
use midwatch_projections::{
    run_timeline::{RunTimeline, TimelineRow},
    runs::{RunRow, RunState, Runs},
};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{Asked, Listed, Nothing, Paging, Path, Query, equals, list as page, routines::own, shapes, tagged, word};
use crate::{app::App, auth::Caller, error::Problem};

/// Which runs.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Wanted {
    /// `waiting`, `running` or `ended`.
    #[param(value_type = Option<String>)]
    state: Option<RunState>,
    /// `succeeded`, `failed`, `refused`, `stopped`, `timed_out`, `cancelled` or `abandoned`.
    #[param(value_type = Option<String>)]
    outcome: Option<Outcome>,
    /// Only this routine's.
    #[param(value_type = Option<String>)]
    routine: Option<RoutineId>,
    /// Only those that came through this trigger.
    #[param(value_type = Option<String>)]
    trigger: Option<TriggerId>,
    /// Only this Bot's.
    #[param(value_type = Option<String>)]
    bot: Option<BotId>,
}

/// Runs, the newest first.
#[utoipa::path(get, path = "/api/v1/runs", tag = "runs", params(Wanted, Paging),
    responses((status = 200, body = Listed<shapes::Run>)))]
pub(crate) async fn list(
    State(app): State<App>,
    caller: Caller,
    Query(wanted): Query<Wanted>,
    Query(paging): Query<Paging>,
) -> Result<Json<Listed<RunRow>>, Problem> {
    let conditions = [
        equals("state", wanted.state.and_then(word)),
        equals("outcome", wanted.outcome.and_then(word)),
        equals("routine", wanted.routine),
        equals("trigger", wanted.trigger),
        equals("bot", wanted.bot),
        own(&caller, "owner"),
    ];
    let order = Order { column: "opened_at", descending: true };
    let filters = conditions.into_iter().flatten().collect();
    Ok(Json(page::<Runs>(&app.engine, filters, order, &paging).await?))
}

/// One run. Its `ETag` is the version of its stream.
#[utoipa::path(get, path = "/api/v1/runs/{id}", tag = "runs", params(("id" = String, Path, description = "The run")),
    responses((status = 200, body = shapes::Run), (status = 404, body = shapes::Problem)))]
pub(crate) async fn show(State(app): State<App>, caller: Caller, Path(id): Path<RunId>) -> Result<Response, Problem> {
    let row = seen(&app, id, &caller).await?;
    Ok(tagged(row.version, row))
}

async fn seen(app: &App, id: RunId, caller: &Caller) -> Result<RunRow, Problem> {
    let row = projector::get::<Runs>(&app.engine, &id.to_string()).await?;
    row.filter(|row| caller.sees(row.owner)).ok_or_else(|| Problem::not_found("run"))
}

/// What happened in a run, step by step. Facts only; words are read from the ledger.
#[utoipa::path(get, path = "/api/v1/runs/{id}/timeline", tag = "runs",
    params(("id" = String, Path, description = "The run"), Paging),
    responses((status = 200, body = Listed<shapes::Step>), (status = 404, body = shapes::Problem)))]
pub(crate) async fn timeline(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<RunId>,
    Query(paging): Query<Paging>,
) -> Result<Json<Listed<TimelineRow>>, Problem> {
    seen(&app, id, &caller).await?;
    let order = Order { column: "position", descending: false };
    let filters = equals("run", Some(id)).into_iter().collect();
    Ok(Json(page::<RunTimeline>(&app.engine, filters, order, &paging).await?))
}

/// Calls a run off. From the answer on none of its calls is decided any more; those that had
/// been and have no outcome are listed.
#[utoipa::path(post, path = "/api/v1/runs/{id}/cancel", tag = "runs",
    params(("id" = String, Path, description = "The run")),
    responses((status = 200, body = Called), (status = 409, body = shapes::Problem)))]
pub(crate) async fn cancel(
    State(app): State<App>,
    Path(id): Path<RunId>,
    asked: Asked<Nothing>,
) -> Result<Json<Called>, Problem> {
    seen(&app, id, &asked.caller).await?;
    asked.caller.must_change()?;
    let done = app.engine.cancel_run(id, &asked.origin()).await?;
    called(&app, done).await
}

/// What was stopped.
#[derive(Debug, serde::Serialize, utoipa::ToSchema)]
pub(crate) struct Called {
    /// The last position it rests on.
    position: u64,
    /// The runs that were called off.
    runs: Vec<String>,
    /// Calls that had been decided and had no outcome: they may have acted, and end as unknown.
    calls: Vec<String>,
}

/// The answer to something that was stopped.
pub(crate) async fn called(app: &App, done: Done<Stopped>) -> Result<Json<Called>, Problem> {
    projector::wait_for(&app.engine, done.position).await;
    let runs = done.value.runs.iter().map(ToString::to_string).collect();
    let calls = done.value.calls.iter().map(ToString::to_string).collect();
    Ok(Json(Called { position: done.position, runs, calls }))
}
