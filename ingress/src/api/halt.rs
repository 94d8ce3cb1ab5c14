//! The scheduling halt. Everybody may know of it; only admins halt and lift.

use axum::{Json, extract::State};
use midwatch_engine::{Engine, projector, runs::Stopped};
use midwatch_projections::engine_deployment::{Deployment, KEY};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Asked, Nothing, Recorded, recorded, shapes};
use crate::{app::App, error::Problem};

/// Whether anything starts.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HaltStatus {
    /// Nothing starts: no clock, no Run now, no deliveries.
    pub(crate) halted: bool,
    /// Why, in words.
    pub(crate) reason: Option<String>,
    /// Who halted.
    pub(crate) by: Option<String>,
    /// Since when.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub(crate) since: Option<String>,
}

/// Why scheduling is halted.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct HaltReason {
    /// In a person's words.
    #[serde(default)]
    reason: String,
    /// Call off the runs that are live, too; else they finish.
    #[serde(default)]
    stop_runs: bool,
}

/// A halt that was recorded.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Halted {
    position: u64,
    /// Runs that are still live: a halt by itself lets them finish.
    live_runs: Vec<String>,
    /// Runs that were called off.
    stopped_runs: Vec<String>,
    /// Calls of those that had been decided and had no outcome: they may have acted, and end as unknown.
    calls: Vec<String>,
}

/// Whether scheduling is halted, by the ledger itself; the words beside it are a projection's and may come a moment
/// later.
///
/// # Errors
/// A fault.
pub(crate) async fn status(engine: &Engine) -> Result<HaltStatus, Problem> {
    let halted = engine.halt().await?.state.halted.is_some();
    let row = projector::get::<Deployment>(engine, KEY).await?.filter(|row| halted && row.halted);
    let (reason, by, since) = row.map(|row| (row.reason, row.by, row.since)).unwrap_or_default();
    Ok(HaltStatus { halted, reason, by, since: since.map(|at| at.to_string()) })
}

/// Whether scheduling is halted.
#[utoipa::path(get, path = "/api/v1/halt", tag = "halt", responses((status = 200, body = HaltStatus)))]
pub(crate) async fn show(State(app): State<App>) -> Result<Json<HaltStatus>, Problem> {
    status(&app.engine).await.map(Json)
}

/// Halts scheduling. From the answer on nothing starts, on any process; with `stop_runs` no call is decided
/// either.
#[utoipa::path(post, path = "/api/v1/halt", tag = "halt", request_body = HaltReason,
    responses((status = 200, body = Halted), (status = 409, body = shapes::Problem)))]
pub(crate) async fn halt(State(app): State<App>, asked: Asked<HaltReason>) -> Result<Json<Halted>, Problem> {
    asked.caller.must_be_admin()?;
    let engine = &app.engine;
    let (origin, reason, request) = (asked.origin(), &asked.body.reason, asked.request.as_ref());
    let (position, stopped) = if asked.body.stop_runs {
        let done = engine.stop_everything(&origin, reason, request).await?;
        (done.position, done.value)
    } else {
        (engine.halt_scheduling(&origin, reason, request).await?.position, Stopped::default())
    };
    projector::wait_for(engine, position).await;
    let live_runs = engine.live_runs().await?.iter().map(ToString::to_string).collect();
    let stopped_runs = stopped.runs.iter().map(ToString::to_string).collect();
    let calls = stopped.calls.iter().map(ToString::to_string).collect();
    Ok(Json(Halted { position, live_runs, stopped_runs, calls }))
}

/// Lifts the halt. Windows that lay in it do not exist.
#[utoipa::path(delete, path = "/api/v1/halt", tag = "halt",
    responses((status = 200, body = Recorded), (status = 409, body = shapes::Problem)))]
pub(crate) async fn lift(State(app): State<App>, asked: Asked<Nothing>) -> Result<Json<Recorded>, Problem> {
    asked.caller.must_be_admin()?;
    let done = app.engine.lift_halt(&asked.origin(), asked.request.as_ref()).await?;
    Ok(recorded(&app.engine, &done).await)
}
