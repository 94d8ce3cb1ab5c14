//! Senders: the presets there are, and whether a sample request would be let in. Only admins may ask the latter: what it
//! says is what no sender is told.

use axum::{Json, extract::State};
use midwatch_commands::trigger::Trigger;
use midwatch_engine::reading::UNPACKED_BYTES_MAX;
use midwatch_events::{StreamName, id::TriggerId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Asked, Path, shapes};
use crate::{
    app::App,
    auth::Caller,
    error::Problem,
    hooks::Lock,
    senders::{self, check},
};

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
    let (preset, held) = check::by(&given.preset, given.template.as_deref(), &given.secret).map_err(bad)?;
    let cap = u32::try_from(UNPACKED_BYTES_MAX).unwrap_or(u32::MAX);
    let now = app.engine.world().clock.now();
    Ok(Json(check::check(&preset, &[held], &[], &pasted, given.url.as_deref(), cap, now).into()))
}
