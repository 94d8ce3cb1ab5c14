//! Who posts to a trigger: choosing the kind of sender, for a new trigger and for one that is there, and whether a sample
//! request of it would be let in before anything is saved.

use askama::Template;
use axum::{
    extract::{Path, State},
    http::StatusCode,
};
use midwatch_projections::triggers::TriggerRow;

use super::{
    days::Choice,
    fields::Fields,
    frame::{Failure, Frame, Page, Section, html, ok},
    scope,
    text::Shown,
    triggers::{Shows, made},
    visitor::{Posted, Visitor},
};
use crate::{
    app::App,
    auth::Caller,
    error::Problem,
    senders::{
        self, Prepared,
        check::{self, Verdict},
    },
};

/// What a form asks about a sender, and what stands there.
pub(super) struct Choosing {
    pub(super) presets: Vec<Choice<String, Shown>>,
    /// What to do at each sender's, by the preset's name.
    pub(super) setups: Vec<(String, String)>,
    pub(super) template: String,
    /// A sample request that was pasted.
    pub(super) sample: String,
    /// What became of it.
    pub(super) verdict: Option<Verdict>,
}

impl Choosing {
    /// With what was typed. A secret is never given back to a page.
    pub(super) fn of(fields: &Fields, verdict: Option<Verdict>) -> Self {
        let template = Some(fields.text("template")).filter(|text| !text.trim().is_empty());
        Self {
            presets: senders::all()
                .map(|preset| Choice {
                    chosen: preset.name == fields.get("preset"),
                    value: preset.name.clone(),
                    name: Shown::line(&preset.title),
                })
                .collect(),
            setups: senders::all().map(|preset| (preset.title.clone(), preset.setup.clone())).collect(),
            template: template.unwrap_or_else(|| senders::text("template").unwrap_or_default().to_owned()),
            sample: fields.text("sample"),
            verdict,
        }
    }
}

fn preset(fields: &Fields) -> (&str, Option<String>) {
    let preset = fields.filled("preset").unwrap_or("bearer");
    (preset, Some(fields.text("template")).filter(|_| preset == "template"))
}

/// The sender that a form chose.
pub(super) fn prepared(app: &App, fields: &Fields) -> Result<Prepared, Failure> {
    let (preset, template) = preset(fields);
    let random = app.engine.world().random::<32>();
    let prepared = senders::prepare(preset, template.as_deref(), Some(fields.get("secret")), random);
    prepared.map_err(|sentence| Problem::bad("invalid", sentence).into())
}

/// Whether the sample in a form would be let in by what it chose. Nothing is kept.
pub(super) fn tried(app: &App, fields: &Fields, url: Option<&str>) -> Result<Verdict, Failure> {
    let bad = |sentence: String| Failure::from(Problem::bad("sample", sentence));
    let Some(secret) = fields.filled("secret") else {
        return Err(bad("give the secret that the sample was sent or signed with".to_owned()));
    };
    let pasted = check::paste(&fields.text("sample")).map_err(bad)?;
    let (preset, template) = preset(fields);
    let now = app.engine.world().clock.now();
    check::by_preset((preset, template.as_deref()), secret, &pasted, url, now).map_err(bad)
}

#[derive(Template)]
#[template(path = "trigger_sender.html")]
struct SenderPage {
    frame: Frame,
    error: Option<String>,
    id: String,
    name: Shown,
    /// The trigger's version when the form was shown: somebody else's change is never overwritten.
    version: u64,
    choosing: Choosing,
}

async fn view(
    app: &App,
    caller: &Caller,
    row: &TriggerRow,
    (fields, version): (&Fields, u64),
    verdict: Option<Verdict>,
    error: Option<String>,
) -> Result<SenderPage, Failure> {
    let frame = Frame::new(app, caller, Section::Triggers, "Another sender", &Fields::default()).await?;
    let choosing = Choosing::of(fields, verdict);
    Ok(SenderPage { frame, error, id: row.id.to_string(), name: Shown::line(&row.name), version, choosing })
}

/// `GET /triggers/{id}/sender`.
pub(super) async fn page(State(app): State<App>, Visitor(caller): Visitor, Path(id): Path<String>) -> Page {
    caller.must_be_admin()?;
    let row = scope::trigger(&app, &caller, &id).await?;
    let scheme = row.scheme.clone();
    let preset = scheme.as_ref().map_or("bearer", |scheme| &scheme.preset).to_owned();
    let template = scheme.and_then(|scheme| scheme.template).unwrap_or_default();
    let now = Fields::new(vec![("preset".to_owned(), preset), ("template".to_owned(), template)]);
    ok(&view(&app, &caller, &row, (&now, row.version), None, None).await?)
}

/// `POST /triggers/{id}/sender`: tries a sample by what was chosen, or lets that sender post from now on.
pub(super) async fn change(State(app): State<App>, Path(id): Path<String>, posted: Posted) -> Page {
    let posted = posted.admin()?;
    let row = scope::trigger(&app, &posted.caller, &id).await?;
    let (fields, caller) = (&posted.fields, &posted.caller);
    let version = fields.get("version").parse().unwrap_or(row.version);
    if fields.get("do") == "check" {
        let public = app.settings.public_url.as_deref().map(|url| url.trim_end_matches('/'));
        let url = public.map(|public| format!("{public}/hooks/{}", row.endpoint));
        let (status, verdict, error) = match tried(&app, fields, url.as_deref()) {
            Ok(verdict) => (StatusCode::OK, Some(verdict), None),
            Err(failure) => {
                let (status, sentence) = failure.sentence()?;
                (status, None, Some(sentence))
            }
        };
        return html(status, &view(&app, caller, &row, (fields, version), verdict, error).await?);
    }
    let replaced = async {
        let prepared = prepared(&app, fields)?;
        let sender = (prepared.scheme.clone(), &prepared.secret);
        let (origin, request) = (caller.origin(), posted.request.as_ref());
        let done = app.engine.replace_sender(row.id, sender, Some(version), &origin, request).await?;
        Ok::<_, Failure>((prepared, done))
    };
    match replaced.await {
        Ok((prepared, done)) => {
            midwatch_engine::projector::wait_for(&app.engine, done.position).await;
            let secret = prepared.made.clone().or(done.value).filter(|_| !done.duplicate);
            let title = "Another sender posts to";
            let old = Some("The old secret opens nothing any more.".to_owned());
            made(&app, caller, Shows::of(&row, title, &prepared, secret, old)).await
        }
        Err(failure) => {
            let (status, sentence) = failure.sentence()?;
            html(status, &view(&app, caller, &row, (fields, version), None, Some(sentence)).await?)
        }
    }
}
