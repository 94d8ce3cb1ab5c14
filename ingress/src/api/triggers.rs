//! Triggers. Only admins change them; admins and auditors see them.

use axum::{Json, extract::State, http::StatusCode, response::Response};
use midwatch_boundary::filter::Passes;
use midwatch_commands::trigger::TriggerCommand;
use midwatch_engine::{projector, triggers::NewTrigger};
use midwatch_events::{
    id::{BotId, DeliveryId, RoutineId, TriggerId, UserId},
    routine::Limits,
    trigger::{Intake, WhenBusy},
};
use midwatch_log::views::{Cell, Condition, Order, Test};
use midwatch_projections::triggers::{TriggerRow, TriggerState, Triggers};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    Asked, Listed, Nothing, Paging, Path, Query, Recorded, equals, list as page, recorded,
    routines::{LimitsGiven, owner},
    shapes, tagged, unkept, word,
};
use crate::{app::App, auth::Caller, error::Problem, senders};

/// Which triggers. Deleted ones are never listed.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Wanted {
    /// `active` or `paused`.
    #[param(value_type = Option<String>)]
    state: Option<TriggerState>,
    /// Only those that hand work to this routine.
    #[param(value_type = Option<String>)]
    routine: Option<RoutineId>,
    /// Only those whose own instruction this Bot follows.
    #[param(value_type = Option<String>)]
    bot: Option<BotId>,
}

/// A trigger to make: for a routine, or for a Bot with an instruction of its own.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewTrigger)]
pub(crate) struct New {
    name: String,
    /// The routine it hands work to.
    #[schema(value_type = Option<String>, format = Uuid)]
    routine: Option<RoutineId>,
    /// Or the Bot that follows `instruction`.
    #[schema(value_type = Option<String>, format = Uuid)]
    bot: Option<BotId>,
    /// What that Bot is told.
    instruction: Option<String>,
    /// The kind of sender, as `GET /presets` names it; `bearer` if nothing is said.
    preset: Option<String>,
    /// How the sender signs, with the preset `template`.
    template: Option<String>,
    /// The key the sender signs with, where it is the sender who makes it. It is kept sealed and never shown.
    secret: Option<String>,
    #[serde(default)]
    intake: IntakeGiven,
    #[serde(default)]
    limits: LimitsGiven,
    /// Whose rights its runs have.
    #[schema(value_type = Option<String>, format = Uuid)]
    owner: Option<UserId>,
}

/// How deliveries are taken in; what is absent has its default.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Intake)]
pub(crate) struct IntakeGiven {
    /// The largest body, in bytes; 1,000,000 or what the preset says, at most 25,000,000.
    body_bytes_max: Option<u32>,
    /// How long an equal body without an id is the same delivery, in seconds; 600, 0 is off.
    duplicate_window_s: Option<u32>,
    /// How many deliveries may wait; 100.
    queue_max: Option<u32>,
    /// How long one may wait, in seconds; 86,400.
    queue_age_s: Option<u32>,
    /// JSON pointers into the body whose values together are a delivery's id, where the sender gives no good one; at most
    /// eight.
    #[serde(default)]
    id_pointers: Vec<String>,
    /// What happens while its target is busy: `queue` (it waits), `coalesce` (the newest alone waits) or `refuse` (409).
    #[schema(value_type = Option<String>)]
    when_busy: Option<WhenBusy>,
    /// The event types it takes, each whole or the beginning of one and `*`; all, if there is none.
    #[serde(default)]
    event_types: Vec<String>,
    /// A condition in CEL over `headers`, `body` and `event_type`.
    filter: Option<String>,
    /// How many authentic deliveries it takes in a minute, over all processes; any number, if nothing is said.
    per_minute_max: Option<u32>,
    /// For how many days headers and bodies are kept; for ever, if nothing is said.
    kept_days: Option<u32>,
}

impl From<&IntakeGiven> for Intake {
    fn from(given: &IntakeGiven) -> Self {
        let others = Self::default();
        Self {
            body_bytes_max: given.body_bytes_max.unwrap_or(others.body_bytes_max),
            duplicate_window_s: given.duplicate_window_s.unwrap_or(others.duplicate_window_s),
            queue_max: given.queue_max.unwrap_or(others.queue_max),
            queue_age_s: given.queue_age_s.unwrap_or(others.queue_age_s),
            id_pointers: given.id_pointers.clone(),
            when_busy: given.when_busy.unwrap_or_default(),
            event_types: given.event_types.clone(),
            filter: given.filter.clone().filter(|filter| !filter.trim().is_empty()),
            per_minute_max: given.per_minute_max,
            kept_days: given.kept_days,
        }
    }
}

/// A trigger that was made.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MadeTrigger {
    #[schema(value_type = String, format = Uuid)]
    id: String,
    /// The public part of its address.
    endpoint: String,
    /// Where senders post.
    path: String,
    /// The whole address, where the deployment knows its own.
    url: Option<String>,
    /// Its secret, where it was made here: the only time it is shown. Null when the same request had made the trigger
    /// before.
    secret: Option<String>,
    /// The token that some senders ask for beside the secret, else null.
    verify_token: Option<String>,
    position: u64,
}

/// Which sample was read.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Confirmation {
    /// The delivery that was read; refused if it is not the sample. The sample, if nothing is said.
    #[schema(value_type = Option<String>, format = Uuid)]
    delivery: Option<DeliveryId>,
}

/// Triggers by name.
#[utoipa::path(get, path = "/api/v1/triggers", tag = "triggers", params(Wanted, Paging),
    responses((status = 200, body = Listed<shapes::Trigger>), (status = 403, body = shapes::Problem)))]
pub(crate) async fn list(
    State(app): State<App>,
    caller: Caller,
    Query(wanted): Query<Wanted>,
    Query(paging): Query<Paging>,
) -> Result<Json<Listed<TriggerRow>>, Problem> {
    caller.must_read_all()?;
    let deleted = Cell::Text(word(TriggerState::Deleted).unwrap_or_default());
    let mut filters = vec![Condition { column: "state", is: Test::Ne(deleted) }];
    filters.extend(equals("state", wanted.state.and_then(word)));
    filters.extend(equals("routine", wanted.routine));
    filters.extend(equals("bot", wanted.bot));
    let order = Order { column: "name", descending: false };
    Ok(Json(page::<Triggers>(&app.engine, filters, order, &paging).await?))
}

/// One trigger. Its `ETag` is the version of its stream.
#[utoipa::path(get, path = "/api/v1/triggers/{id}", tag = "triggers",
    params(("id" = String, Path, description = "The trigger")),
    responses((status = 200, body = shapes::Trigger), (status = 404, body = shapes::Problem)))]
pub(crate) async fn show(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<TriggerId>,
) -> Result<Response, Problem> {
    caller.must_read_all()?;
    let row = projector::get::<Triggers>(&app.engine, &id.to_string()).await?;
    let row = row.filter(|row| row.state != TriggerState::Deleted).ok_or_else(|| Problem::not_found("trigger"))?;
    Ok(tagged(row.version, row))
}

/// Makes a trigger. The answer is the only one that shows its secret.
#[utoipa::path(post, path = "/api/v1/triggers", tag = "triggers", request_body = New,
    params(("Idempotency-Key" = Option<String>, Header, description = "Makes a repeated request one request")),
    responses((status = 201, body = MadeTrigger), (status = 400, body = shapes::Problem)))]
pub(crate) async fn create(State(app): State<App>, asked: Asked<New>) -> Result<Response, Problem> {
    asked.caller.must_be_admin()?;
    let new = &asked.body;
    let random = app.engine.world().random::<32>();
    let preset = new.preset.as_deref().unwrap_or("bearer");
    let prepared = senders::prepare(preset, new.template.as_deref(), new.secret.as_deref(), random).map_err(invalid)?;
    let mut intake = Intake::from(&new.intake);
    senders::id_pointers(&intake.id_pointers).map_err(invalid)?;
    if let (None, Some(usual)) = (new.intake.body_bytes_max, prepared.preset.body_bytes_max) {
        intake.body_bytes_max = usual;
    }
    let trigger = NewTrigger {
        name: new.name.clone(),
        routine: new.routine,
        bot: new.bot,
        instruction: new.instruction.clone(),
        intake,
        scheme: prepared.scheme.clone(),
        secret: prepared.secret.clone(),
        limits: new.limits.or(&Limits::default()),
        owner: owner(&asked.caller, new.owner)?,
    };
    let done = app.engine.create_trigger(&trigger, &asked.origin(), asked.request.as_ref()).await?;
    projector::wait_for(&app.engine, done.position).await;
    let path = format!("/hooks/{}", done.value.endpoint);
    let url = app.settings.public_url.as_ref().map(|public| format!("{}{path}", public.trim_end_matches('/')));
    let made = MadeTrigger {
        id: done.value.id.to_string(),
        endpoint: done.value.endpoint,
        path,
        url,
        secret: if done.duplicate { None } else { prepared.made.or(done.value.secret) },
        verify_token: prepared.verify_token,
        position: done.position,
    };
    Ok(unkept((StatusCode::CREATED, Json(made))))
}

async fn change<T>(
    app: &App,
    id: TriggerId,
    asked: &Asked<T>,
    command: TriggerCommand,
) -> Result<Json<Recorded>, Problem> {
    asked.caller.must_be_admin()?;
    let done = app.engine.change_trigger(id, &asked.origin(), asked.request.as_ref(), command).await?;
    Ok(recorded(&app.engine, &done).await)
}

/// Lets a trigger take deliveries in by these rules instead; what is absent has its default.
#[utoipa::path(put, path = "/api/v1/triggers/{id}/intake", tag = "triggers", request_body = IntakeGiven,
    params(("id" = String, Path, description = "The trigger"),
           ("If-Match" = Option<String>, Header, description = "The version the trigger must still have")),
    responses((status = 200, body = Recorded), (status = 400, body = shapes::Problem)))]
pub(crate) async fn replace_intake(
    State(app): State<App>,
    Path(id): Path<TriggerId>,
    asked: Asked<IntakeGiven>,
) -> Result<Json<Recorded>, Problem> {
    asked.caller.must_be_admin()?;
    let intake = Intake::from(&asked.body);
    let request = asked.request.as_ref();
    let done = app.engine.replace_intake(id, &intake, asked.if_match, &asked.origin(), request).await?;
    Ok(recorded(&app.engine, &done).await)
}

/// What a filter says of one delivery.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Previewed {
    #[schema(value_type = String, format = Uuid)]
    delivery: DeliveryId,
    event_type: Option<String>,
    /// `yes`, `no`, `broken`, or `erased` where its words are gone.
    passes: &'static str,
    /// Why it is broken.
    why: Option<String>,
}

/// What a filter says of a trigger's last deliveries.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Preview {
    /// How many pass.
    yes: usize,
    /// How many do not.
    no: usize,
    /// How many would be held, because it cannot be said of them.
    broken: usize,
    /// The newest first, at most 100.
    items: Vec<Previewed>,
}

/// Which of the last 100 deliveries these rules would let pass. Nothing is changed.
#[utoipa::path(post, path = "/api/v1/triggers/{id}/intake/preview", tag = "triggers", request_body = IntakeGiven,
    params(("id" = String, Path, description = "The trigger")),
    responses((status = 200, body = Preview), (status = 400, body = shapes::Problem)))]
pub(crate) async fn preview(
    State(app): State<App>,
    Path(id): Path<TriggerId>,
    asked: Asked<IntakeGiven>,
) -> Result<Json<Preview>, Problem> {
    asked.caller.must_be_admin()?;
    let previewed = app.engine.preview_filter(id, &Intake::from(&asked.body)).await?;
    let items: Vec<Previewed> = previewed
        .into_iter()
        .map(|one| {
            let (passes, why) = match one.passes {
                Some(Passes::Yes) => ("yes", None),
                Some(Passes::No) => ("no", None),
                Some(Passes::Broken(why)) => ("broken", Some(why)),
                None => ("erased", None),
            };
            Previewed { delivery: one.delivery.id, event_type: one.delivery.event_type, passes, why }
        })
        .collect();
    let count = |wanted: &str| items.iter().filter(|item| item.passes == wanted).count();
    Ok(Json(Preview { yes: count("yes"), no: count("no"), broken: count("broken"), items }))
}

/// Confirms the sample: deliveries become runs from here on.
#[utoipa::path(post, path = "/api/v1/triggers/{id}/confirm", tag = "triggers", request_body = Confirmation,
    params(("id" = String, Path, description = "The trigger")),
    responses((status = 200, body = Recorded), (status = 409, body = shapes::Problem)))]
pub(crate) async fn confirm(
    State(app): State<App>,
    Path(id): Path<TriggerId>,
    asked: Asked<Confirmation>,
) -> Result<Json<Recorded>, Problem> {
    change(&app, id, &asked, TriggerCommand::Confirm { delivery: asked.body.delivery }).await
}

/// Makes a trigger answer as if it did not exist.
#[utoipa::path(post, path = "/api/v1/triggers/{id}/pause", tag = "triggers",
    params(("id" = String, Path, description = "The trigger")),
    responses((status = 200, body = Recorded), (status = 409, body = shapes::Problem)))]
pub(crate) async fn pause(
    State(app): State<App>,
    Path(id): Path<TriggerId>,
    asked: Asked<Nothing>,
) -> Result<Json<Recorded>, Problem> {
    change(&app, id, &asked, TriggerCommand::Pause).await
}

/// Makes a trigger answer again.
#[utoipa::path(post, path = "/api/v1/triggers/{id}/resume", tag = "triggers",
    params(("id" = String, Path, description = "The trigger")),
    responses((status = 200, body = Recorded), (status = 409, body = shapes::Problem)))]
pub(crate) async fn resume(
    State(app): State<App>,
    Path(id): Path<TriggerId>,
    asked: Asked<Nothing>,
) -> Result<Json<Recorded>, Problem> {
    change(&app, id, &asked, TriggerCommand::Resume).await
}

/// Removes a trigger for good. Its history stays.
#[utoipa::path(delete, path = "/api/v1/triggers/{id}", tag = "triggers",
    params(("id" = String, Path, description = "The trigger")),
    responses((status = 200, body = Recorded), (status = 404, body = shapes::Problem)))]
pub(crate) async fn remove(
    State(app): State<App>,
    Path(id): Path<TriggerId>,
    asked: Asked<Nothing>,
) -> Result<Json<Recorded>, Problem> {
    change(&app, id, &asked, TriggerCommand::Delete).await
}

pub(super) fn invalid(sentence: String) -> Problem {
    Problem::bad("invalid", sentence)
}
