//! Senders: the presets there are, who posts to a trigger and with which secret, and whether a sample request would be
//! let in. Only admins may ask the latter: what it says is what no sender is told.

use axum::{Json, extract::State, response::Response};
use midwatch_commands::trigger::Trigger;
use midwatch_engine::{Done, projector};
use midwatch_events::{StreamName, id::TriggerId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Asked, Path, shapes, triggers::invalid, unkept};
use crate::{
    app::App,
    auth::Caller,
    error::Problem,
    hooks::Lock,
    senders::{self, Prepared, check},
};

/// How long an old secret stays good if nothing is said, in seconds.
const OVERLAP_S: u32 = 86_400;
/// And at the most.
const OVERLAP_S_MAX: u32 = 30 * 86_400;

/// A kind of sender.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Preset {
    /// Its name, for `preset`.
    name: String,
    /// Its name for people.
    title: String,
    /// What to do at the sender's.
    setup: String,
    /// The sender's documentation that it follows.
    source: String,
    /// Whether it signs; else a secret is sent along.
    signs: bool,
    /// Whether its secret must be given, because it is the sender who makes it.
    secret_is_given: bool,
    /// How it is read here, as TOML: what a template can start from.
    text: String,
}

/// A sample to check for a trigger.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sample {
    /// The request as HTTP writes it: headers, an empty line, the body.
    request: String,
}

/// A sample to check by a preset.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SampleBy {
    /// The request as HTTP writes it: headers, an empty line, the body.
    request: String,
    /// The preset.
    preset: String,
    /// How the sender signs, with the preset `template`.
    template: Option<String>,
    /// The secret it was signed with. It is kept nowhere.
    secret: String,
    /// The public address it was posted to, for senders that sign it.
    url: Option<String>,
}

/// What became of a sample.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Verdict {
    /// It would be let in.
    verified: bool,
    /// Where it failed: `secret`, `packing`, `url`, `id`, `timestamp`, `form`, `header`, `encoding` or `signature`.
    #[schema(value_type = Option<String>)]
    step: Option<senders::Step>,
    /// What that means, in a sentence.
    sentence: String,
    /// The signature is right and only the time is not.
    only_too_old: bool,
    /// The sender's own id.
    id: Option<String>,
    /// What it is about.
    event_type: Option<String>,
}

impl From<check::Verdict> for Verdict {
    fn from(verdict: check::Verdict) -> Self {
        let check::Verdict { verified, step, sentence, only_too_old, id, event_type } = verdict;
        Self { verified, step, sentence, only_too_old, id, event_type }
    }
}

/// How a secret is replaced.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rotation {
    /// How long the old one stays good, in seconds; 86,400 if nothing is said, at most 30 days.
    overlap_s: Option<u32>,
    /// The new key, where the sender signs and makes it itself.
    secret: Option<String>,
}

/// Who posts to a trigger from now on.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewSender {
    /// The kind of sender, as `GET /presets` names it.
    preset: String,
    /// How the sender signs, with the preset `template`.
    template: Option<String>,
    /// The key the sender signs with, where it is the sender who makes it. It is kept sealed and never shown.
    secret: Option<String>,
}

/// A secret that was made.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Rotated {
    /// The new secret, where it was made here: the only time it is shown. Null when the same request had made it before.
    secret: Option<String>,
    /// The token that some senders ask for beside the secret, else null.
    verify_token: Option<String>,
    position: u64,
}

/// The presets, in the order people read them.
#[utoipa::path(get, path = "/api/v1/presets", tag = "triggers", responses((status = 200, body = Vec<Preset>)))]
pub(crate) async fn presets(_caller: Caller) -> Json<Vec<Preset>> {
    let all = senders::all().map(|preset| Preset {
        text: senders::text(&preset.name).unwrap_or_default().to_owned(),
        signs: preset.signs(),
        secret_is_given: preset.secret == senders::Maker::Sender,
        name: preset.name.clone(),
        title: preset.title.clone(),
        setup: preset.setup.clone(),
        source: preset.source.clone(),
    });
    Json(all.collect())
}

/// Whether a sample would be let in by a trigger, and if not, at which step it fails. Nothing is recorded.
#[utoipa::path(post, path = "/api/v1/triggers/{id}/check", tag = "triggers", request_body = Sample,
    params(("id" = String, Path, description = "The trigger")),
    responses((status = 200, body = Verdict), (status = 404, body = shapes::Problem)))]
pub(crate) async fn by_trigger(
    State(app): State<App>,
    Path(id): Path<TriggerId>,
    asked: Asked<Sample>,
) -> Result<Json<Verdict>, Problem> {
    asked.caller.must_be_admin()?;
    Ok(Json(of_trigger(&app, id, &asked.body.request).await?.into()))
}

/// What a trigger's door would say to a sample.
pub(crate) async fn of_trigger(app: &App, id: TriggerId, request: &str) -> Result<check::Verdict, Problem> {
    let pasted = check::paste(request).map_err(|sentence| Problem::bad("sample", sentence))?;
    let state = app.engine.load::<Trigger>(&StreamName::trigger(id)).await?.state;
    state.existing()?;
    let lock = Lock::of(&app.engine, id, &state)?;
    let url = app.settings.public_url.as_ref();
    let url = url.map(|url| format!("{}/hooks/{}", url.trim_end_matches('/'), state.endpoint));
    let now = app.engine.world().clock.now();
    let (pointers, cap) = (&state.intake.id_pointers, state.intake.body_bytes_max);
    Ok(check::check(&lock.preset, &lock.held(now), pointers, &pasted, url.as_deref(), cap, now))
}

/// Whether a sample would be let in by a preset and a secret, before there is a trigger. Nothing is kept.
#[utoipa::path(post, path = "/api/v1/presets/check", tag = "triggers", request_body = SampleBy,
    responses((status = 200, body = Verdict), (status = 400, body = shapes::Problem)))]
pub(crate) async fn by_preset(State(app): State<App>, asked: Asked<SampleBy>) -> Result<Json<Verdict>, Problem> {
    asked.caller.must_be_admin()?;
    let given = &asked.body;
    let bad = |sentence| Problem::bad("sample", sentence);
    let pasted = check::paste(&given.request).map_err(bad)?;
    let (sender, now) = ((given.preset.as_str(), given.template.as_deref()), app.engine.world().clock.now());
    let verdict = check::by_preset(sender, &given.secret, &pasted, given.url.as_deref(), now).map_err(bad)?;
    Ok(Json(verdict.into()))
}

/// Gives a trigger another secret. The old one stays good for a while.
#[utoipa::path(post, path = "/api/v1/triggers/{id}/rotate", tag = "triggers", request_body = Rotation,
    params(("id" = String, Path, description = "The trigger")),
    responses((status = 200, body = Rotated), (status = 404, body = shapes::Problem)))]
pub(crate) async fn rotate(
    State(app): State<App>,
    Path(id): Path<TriggerId>,
    asked: Asked<Rotation>,
) -> Result<Response, Problem> {
    asked.caller.must_be_admin()?;
    let overlap_s = asked.body.overlap_s.unwrap_or(OVERLAP_S);
    if overlap_s > OVERLAP_S_MAX {
        return Err(Problem::bad("invalid", format!("`overlap_s` is at most {OVERLAP_S_MAX}, not {overlap_s}")));
    }
    let state = app.engine.load::<Trigger>(&StreamName::trigger(id)).await?.state;
    state.existing()?;
    let random = app.engine.world().random::<32>();
    let renewed = senders::renew(state.scheme.as_ref(), asked.body.secret.as_deref(), random).map_err(invalid)?;
    let request = asked.request.as_ref();
    let done = app.engine.rotate_secret(id, &renewed.secret, overlap_s, &asked.origin(), request).await?;
    Ok(shown_once(&app, renewed, done).await)
}

/// Lets another kind of sender post to a trigger. The old secret opens nothing from here on, and there is no overlap:
/// what signs otherwise is another sender.
#[utoipa::path(put, path = "/api/v1/triggers/{id}/sender", tag = "triggers", request_body = NewSender,
    params(("id" = String, Path, description = "The trigger"),
           ("If-Match" = Option<String>, Header, description = "The version the trigger must still have")),
    responses((status = 200, body = Rotated), (status = 400, body = shapes::Problem)))]
pub(crate) async fn replace_sender(
    State(app): State<App>,
    Path(id): Path<TriggerId>,
    asked: Asked<NewSender>,
) -> Result<Response, Problem> {
    asked.caller.must_be_admin()?;
    let NewSender { preset, template, secret } = &asked.body;
    let random = app.engine.world().random::<32>();
    let prepared = senders::prepare(preset, template.as_deref(), secret.as_deref(), random).map_err(invalid)?;
    let sender = (prepared.scheme.clone(), &prepared.secret);
    let (origin, request) = (asked.origin(), asked.request.as_ref());
    let done = app.engine.replace_sender(id, sender, asked.if_match, &origin, request).await?;
    Ok(shown_once(&app, prepared, done).await)
}

/// A secret that was made, where this request is the one that made it.
async fn shown_once(app: &App, prepared: Prepared, done: Done<Option<String>>) -> Response {
    projector::wait_for(&app.engine, done.position).await;
    let (made, position) = (prepared.made.or(done.value), done.position);
    let first = |text: Option<String>| text.filter(|_| !done.duplicate);
    unkept(Json(Rotated { secret: first(made), verify_token: first(prepared.verify_token), position }))
}
