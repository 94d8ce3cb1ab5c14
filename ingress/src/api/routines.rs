//! Routines. Members see and change their own, admins all of them; auditors see all.

use axum::{Json, extract::State, http::StatusCode, response::Response};
use midwatch_commands::{
    Refusal,
    routine::{Edit, Routine},
};
use midwatch_engine::{EngineError, projector, routines::NewRoutine};
use midwatch_events::{
    StreamName,
    id::{BotId, RoutineId, UserId},
    routine::{Limits, Missed, Overlap, Retry, Work},
    user::Access,
};
use midwatch_log::views::{Cell, Condition, Order, Test};
use midwatch_projections::routines_list::{RoutineRow, RoutineState, RoutinesList};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

use super::{
    Asked, Listed, Made, Nothing, Paging, Path, Query, Recorded, equals, list as page, made, recorded, shapes, tagged,
    word,
};
use crate::{
    app::App,
    auth::Caller,
    error::{Kind, Problem},
};

/// Which routines. Deleted ones are never listed.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Wanted {
    /// `active`, `paused`, `suspended` or `ended`.
    #[param(value_type = Option<String>)]
    state: Option<RoutineState>,
    /// Only this Bot's.
    #[param(value_type = Option<String>)]
    bot: Option<BotId>,
}

/// A routine to make. One of `instruction` and `recording` is present.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewRoutine)]
pub(crate) struct New {
    name: String,
    /// Who does the work.
    #[schema(value_type = String, format = Uuid)]
    bot: BotId,
    /// When, such as `{"kind":"every","zone":"UTC","minutes":15}`.
    #[schema(value_type = Object)]
    schedule: Box<RawValue>,
    /// What the Bot is told.
    instruction: Option<String>,
    /// Tool steps that are replayed without a model: `{"goal":…,"steps":[{"tool":…,"arguments":{}}]}`.
    #[schema(value_type = Option<Object>)]
    recording: Option<Box<RawValue>>,
    #[serde(default)]
    limits: LimitsGiven,
    /// Whose it is; an admin may make one for somebody else.
    #[schema(value_type = Option<String>, format = Uuid)]
    owner: Option<UserId>,
}

/// How it runs; what is absent has its default.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Limits)]
pub(crate) struct LimitsGiven {
    /// How late a window may still be claimed, in seconds; 600.
    grace_s: Option<u32>,
    /// How long a run may last, in seconds from its take; 900.
    deadline_s: Option<u32>,
    /// How many turns a run may take; 20.
    max_turns: Option<u32>,
    /// How many windows may be claimed in all; 0 for any number.
    max_runs: Option<u64>,
    /// What becomes of windows later than the grace: `"record"`, or `{"run_once_within_s": 21600}` to run the newest of
    /// them once.
    #[schema(value_type = Option<Object>)]
    missed: Option<Missed>,
    /// What becomes of a window that finds the previous run live: `skip`, `queue_one` or `cancel_live`.
    #[schema(value_type = Option<String>)]
    overlap: Option<Overlap>,
    /// How a run that failed before anything acted is tried again: `{"times": 3, "backoff_s": 10}`; 0 times for never.
    #[schema(value_type = Option<Object>)]
    retry: Option<Retry>,
}

impl LimitsGiven {
    /// These limits, and `others` where nothing is said.
    pub(crate) fn or(&self, others: &Limits) -> Limits {
        Limits {
            grace_s: self.grace_s.unwrap_or(others.grace_s),
            deadline_s: self.deadline_s.unwrap_or(others.deadline_s),
            max_turns: self.max_turns.unwrap_or(others.max_turns),
            max_runs: self.max_runs.map_or(others.max_runs, |max| (max > 0).then_some(max)),
            missed: self.missed.unwrap_or(others.missed),
            overlap: self.overlap.unwrap_or(others.overlap),
            retry: self.retry.map_or(others.retry, |retry| (retry.times > 0).then_some(retry)),
        }
    }
}

/// Changes to a routine; what is absent stays.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = RoutineEdit)]
pub(crate) struct Changes {
    name: Option<String>,
    #[schema(value_type = Option<Object>)]
    schedule: Option<Box<RawValue>>,
    instruction: Option<String>,
    #[schema(value_type = Option<Object>)]
    recording: Option<Box<RawValue>>,
    limits: Option<LimitsGiven>,
}

/// Why a routine is paused.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PauseReason {
    /// In a person's words.
    #[serde(default)]
    reason: String,
}

/// A run that was opened.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Opened {
    /// The run.
    #[schema(value_type = String, format = Uuid)]
    run: String,
    /// Where its claim stands in the ledger.
    position: u64,
}

/// Routines by name.
#[utoipa::path(get, path = "/api/v1/routines", tag = "routines", params(Wanted, Paging),
    responses((status = 200, body = Listed<shapes::Routine>)))]
pub(crate) async fn list(
    State(app): State<App>,
    caller: Caller,
    Query(wanted): Query<Wanted>,
    Query(paging): Query<Paging>,
) -> Result<Json<Listed<RoutineRow>>, Problem> {
    let deleted = Cell::Text(word(RoutineState::Deleted).unwrap_or_default());
    let mut filters = vec![Condition { column: "state", is: Test::Ne(deleted) }];
    filters.extend(equals("state", wanted.state.and_then(word)));
    filters.extend(equals("bot", wanted.bot));
    filters.extend(own(&caller, "owner"));
    let order = Order { column: "name", descending: false };
    Ok(Json(page::<RoutinesList>(&app.engine, filters, order, &paging).await?))
}

/// The condition that hides what belongs to others from members.
pub(crate) fn own(caller: &Caller, column: &'static str) -> Option<Condition> {
    if caller.reads_all() {
        return None;
    }
    let none = Condition { column, is: Test::In(Vec::new()) };
    Some(caller.user().and_then(|user| equals(column, Some(user))).unwrap_or(none))
}

/// One routine. Its `ETag` is the version of its stream.
#[utoipa::path(get, path = "/api/v1/routines/{id}", tag = "routines",
    params(("id" = String, Path, description = "The routine")),
    responses((status = 200, body = shapes::Routine), (status = 404, body = shapes::Problem)))]
pub(crate) async fn show(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<RoutineId>,
) -> Result<Response, Problem> {
    let row = projector::get::<RoutinesList>(&app.engine, &id.to_string()).await?;
    let row = row.filter(|row| row.state != RoutineState::Deleted && caller.sees(row.owner));
    let row = row.ok_or_else(|| Problem::not_found("routine"))?;
    Ok(tagged(row.version, row))
}

/// Makes a routine.
#[utoipa::path(post, path = "/api/v1/routines", tag = "routines", request_body = New,
    params(("Idempotency-Key" = Option<String>, Header, description = "Makes a repeated request one request")),
    responses((status = 201, body = Made), (status = 400, body = shapes::Problem)))]
pub(crate) async fn create(State(app): State<App>, asked: Asked<New>) -> Result<(StatusCode, Json<Made>), Problem> {
    asked.caller.must_change()?;
    let new = &asked.body;
    let routine = NewRoutine {
        name: new.name.clone(),
        bot: new.bot,
        schedule: new.schedule.get().to_owned(),
        work: work(new.instruction.clone(), new.recording.as_deref()),
        limits: new.limits.or(&Limits::default()),
        owner: owner(&asked.caller, new.owner)?,
    };
    let done = app.engine.create_routine(&routine, &asked.origin(), asked.request.as_ref()).await?;
    Ok(made(&app.engine, done.value, &done).await)
}

fn work(instruction: Option<String>, recording: Option<&RawValue>) -> Work {
    Work { instruction, recording: recording.map(|recording| recording.get().to_owned()) }
}

/// Whose the new thing is. Only an admin makes something for somebody else.
pub(crate) fn owner(caller: &Caller, named: Option<UserId>) -> Result<Option<UserId>, Problem> {
    match (caller.role, caller.user(), named) {
        (Access::Admin, user, named) => Ok(named.or(user)),
        (Access::Member, Some(user), named) if named.is_none_or(|named| named == user) => Ok(Some(user)),
        (Access::Member, None, _) => Err(Problem::forbidden("this token is no person, so nothing can belong to it")),
        (Access::Member | Access::Auditor, _, _) => Err(Problem::forbidden("only an admin may name another owner")),
    }
}

/// Changes a routine. With `If-Match`, only if nobody else did meanwhile.
#[utoipa::path(patch, path = "/api/v1/routines/{id}", tag = "routines", request_body = Changes,
    params(("id" = String, Path, description = "The routine"),
        ("If-Match" = Option<String>, Header, description = "The ETag of the routine that was looked at")),
    responses((status = 200, body = Recorded), (status = 412, body = shapes::Problem)))]
pub(crate) async fn edit(
    State(app): State<App>,
    Path(id): Path<RoutineId>,
    asked: Asked<Changes>,
) -> Result<Json<Recorded>, Problem> {
    let routine = owned(&app, id, &asked.caller).await?;
    let changes = &asked.body;
    let work = work(changes.instruction.clone(), changes.recording.as_deref());
    let edit = Edit {
        name: changes.name.clone(),
        schedule: changes.schedule.as_ref().map(|schedule| schedule.get().to_owned()),
        work: (work != Work::default()).then_some(work),
        limits: changes.limits.as_ref().map(|limits| limits.or(&routine.limits)),
        ..Edit::default()
    };
    let done = app.engine.edit_routine(id, edit, asked.if_match, &asked.origin(), asked.request.as_ref()).await;
    let done = done.map_err(|error| overtaken(error, asked.if_match))?;
    Ok(recorded(&app.engine, &done).await)
}

/// What was changed meanwhile is a failed precondition (RFC 9110, 13.1.1) where one was given.
pub(crate) fn overtaken(error: EngineError, if_match: Option<u64>) -> Problem {
    match (error, if_match) {
        (EngineError::Refused(Refusal::AlreadySo(sentence)), Some(_)) => {
            Problem::new(StatusCode::PRECONDITION_FAILED, Kind::Refusal, "changed", sentence)
        }
        (error, _) => error.into(),
    }
}

/// A routine that this caller may change. What belongs to others is not there.
async fn owned(app: &App, id: RoutineId, caller: &Caller) -> Result<Routine, Problem> {
    let routine = app.engine.load::<Routine>(&StreamName::routine(id)).await?.state;
    routine.existing()?;
    if !routine.owner.is_some_and(|owner| caller.sees(owner)) {
        return Err(Problem::not_found("routine"));
    }
    caller.must_change()?;
    Ok(routine)
}

/// Pauses a routine. Its windows do not exist until it is resumed.
#[utoipa::path(post, path = "/api/v1/routines/{id}/pause", tag = "routines", request_body = PauseReason,
    params(("id" = String, Path, description = "The routine")),
    responses((status = 200, body = Recorded), (status = 409, body = shapes::Problem)))]
pub(crate) async fn pause(
    State(app): State<App>,
    Path(id): Path<RoutineId>,
    asked: Asked<PauseReason>,
) -> Result<Json<Recorded>, Problem> {
    owned(&app, id, &asked.caller).await?;
    let (reason, request) = (&asked.body.reason, asked.request.as_ref());
    let done = app.engine.pause_routine(id, reason, &asked.origin(), request).await?;
    Ok(recorded(&app.engine, &done).await)
}

/// Resumes a paused or suspended routine.
#[utoipa::path(post, path = "/api/v1/routines/{id}/resume", tag = "routines",
    params(("id" = String, Path, description = "The routine")),
    responses((status = 200, body = Recorded), (status = 409, body = shapes::Problem)))]
pub(crate) async fn resume(
    State(app): State<App>,
    Path(id): Path<RoutineId>,
    asked: Asked<Nothing>,
) -> Result<Json<Recorded>, Problem> {
    owned(&app, id, &asked.caller).await?;
    let done = app.engine.resume_routine(id, &asked.origin(), asked.request.as_ref()).await?;
    Ok(recorded(&app.engine, &done).await)
}

/// Removes a routine from every list. Its history stays.
#[utoipa::path(delete, path = "/api/v1/routines/{id}", tag = "routines",
    params(("id" = String, Path, description = "The routine")),
    responses((status = 200, body = Recorded), (status = 404, body = shapes::Problem)))]
pub(crate) async fn remove(
    State(app): State<App>,
    Path(id): Path<RoutineId>,
    asked: Asked<Nothing>,
) -> Result<Json<Recorded>, Problem> {
    owned(&app, id, &asked.caller).await?;
    let done = app.engine.delete_routine(id, &asked.origin(), asked.request.as_ref()).await?;
    Ok(recorded(&app.engine, &done).await)
}

/// Runs a routine now, whatever its windows say.
#[utoipa::path(post, path = "/api/v1/routines/{id}/run", tag = "routines",
    params(("id" = String, Path, description = "The routine"),
        ("Idempotency-Key" = Option<String>, Header, description = "Makes a repeated request one run")),
    responses((status = 202, body = Opened), (status = 409, body = shapes::Problem)))]
pub(crate) async fn run_now(
    State(app): State<App>,
    Path(id): Path<RoutineId>,
    asked: Asked<Nothing>,
) -> Result<(StatusCode, Json<Opened>), Problem> {
    owned(&app, id, &asked.caller).await?;
    let done = app.engine.run_now(id, &asked.origin(), asked.request.as_ref()).await?;
    projector::wait_for(&app.engine, done.position).await;
    Ok((StatusCode::ACCEPTED, Json(Opened { run: done.value.to_string(), position: done.position })))
}
