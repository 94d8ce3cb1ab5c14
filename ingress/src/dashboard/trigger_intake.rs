//! What a trigger takes: sizes, ids, event types, its filter, its queue, its budget, and how long bodies are kept. A
//! change can be tried on the last 100 deliveries before it is saved.

use askama::Template;
use axum::{
    extract::{Path, State},
    http::StatusCode,
};
use midwatch_boundary::filter::Passes;
use midwatch_engine::filters::Previewed;
use midwatch_events::{
    Micros,
    trigger::{Intake, WhenBusy},
};
use midwatch_projections::triggers::TriggerRow;

use super::{
    days::Choice,
    fields::Fields,
    frame::{Failure, Frame, Page, Section, html, ok},
    scope,
    status::Mark,
    text::{Shown, short_id, word},
    time::When,
    visitor::{Posted, Visitor, seen},
};
use crate::{app::App, auth::Caller, error::Problem, senders};

#[derive(Template)]
#[template(path = "trigger_intake.html")]
struct IntakePage {
    frame: Frame,
    error: Option<String>,
    id: String,
    name: Shown,
    form: Form,
    preview: Option<Preview>,
}

/// What stands in the fields.
struct Form {
    /// The rules as they were when the form was shown: somebody else's change is never overwritten.
    was: String,
    filter: String,
    event_types: String,
    id_pointers: String,
    when_busy: Vec<Choice<String>>,
    body_bytes_max: String,
    duplicate_window_s: String,
    queue_max: String,
    queue_age_s: String,
    per_minute_max: String,
    kept_days: String,
}

/// Which of the last deliveries would pass.
struct Preview {
    yes: usize,
    no: usize,
    broken: usize,
    rows: Vec<Tried>,
}

struct Tried {
    id: String,
    short: String,
    at: When,
    event_type: Option<Shown>,
    mark: Mark,
    why: Option<Shown>,
}

const BUSY: [(WhenBusy, &str); 3] = [
    (WhenBusy::Queue, "deliveries wait, in order"),
    (WhenBusy::Coalesce, "the newest alone waits"),
    (WhenBusy::Refuse, "answer 409: its sender sends it again"),
];

fn written(intake: &Intake) -> String {
    serde_json::to_string(intake).unwrap_or_default()
}

impl Form {
    fn of(intake: &Intake) -> Self {
        let some = |number: Option<u32>| number.map(|number| number.to_string()).unwrap_or_default();
        Self {
            was: written(intake),
            filter: intake.filter.clone().unwrap_or_default(),
            event_types: intake.event_types.join("\n"),
            id_pointers: intake.id_pointers.join("\n"),
            when_busy: busy(&word(intake.when_busy)),
            body_bytes_max: intake.body_bytes_max.to_string(),
            duplicate_window_s: intake.duplicate_window_s.to_string(),
            queue_max: intake.queue_max.to_string(),
            queue_age_s: intake.queue_age_s.to_string(),
            per_minute_max: some(intake.per_minute_max),
            kept_days: some(intake.kept_days),
        }
    }

    /// As it was typed.
    fn typed(fields: &Fields) -> Self {
        let get = |name| fields.get(name).to_owned();
        Self {
            was: get("was"),
            filter: fields.text("filter"),
            event_types: fields.text("event_types"),
            id_pointers: fields.text("id_pointers"),
            when_busy: busy(fields.get("when_busy")),
            body_bytes_max: get("body_bytes_max"),
            duplicate_window_s: get("duplicate_window_s"),
            queue_max: get("queue_max"),
            queue_age_s: get("queue_age_s"),
            per_minute_max: get("per_minute_max"),
            kept_days: get("kept_days"),
        }
    }
}

fn busy(chosen: &str) -> Vec<Choice<String>> {
    BUSY.map(|(what, name)| Choice { chosen: word(what) == chosen, value: word(what), name }).into()
}

fn number(fields: &Fields, name: &str, what: &str) -> Result<u32, Failure> {
    let sentence = || Failure(Problem::bad("invalid", format!("{what}: write a whole number")));
    fields.get(name).parse().map_err(|_| sentence())
}

fn maybe(fields: &Fields, name: &str, what: &str) -> Result<Option<u32>, Failure> {
    fields.filled(name).map(|_| number(fields, name, what)).transpose()
}

fn lines(fields: &Fields, name: &str) -> Vec<String> {
    fields.text(name).lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

fn read(fields: &Fields) -> Result<Intake, Failure> {
    let pointers = senders::id_pointers(&lines(fields, "id_pointers"));
    let when_busy = BUSY.iter().find(|(what, _)| word(what) == fields.get("when_busy")).map(|(what, _)| *what);
    Ok(Intake {
        body_bytes_max: number(fields, "body_bytes_max", "the largest body")?,
        duplicate_window_s: number(fields, "duplicate_window_s", "how long an equal body is the same delivery")?,
        queue_max: number(fields, "queue_max", "how many may wait")?,
        queue_age_s: number(fields, "queue_age_s", "how long one may wait")?,
        id_pointers: pointers.map_err(|sentence| Problem::bad("invalid", sentence))?,
        when_busy: when_busy.ok_or_else(|| Problem::bad("invalid", "choose what happens while it is busy"))?,
        event_types: lines(fields, "event_types"),
        filter: Some(fields.text("filter")).filter(|filter| !filter.trim().is_empty()),
        per_minute_max: maybe(fields, "per_minute_max", "the budget of a minute")?,
        kept_days: maybe(fields, "kept_days", "how long bodies are kept")?,
    })
}

impl Preview {
    fn of(previewed: &[Previewed], now: Micros) -> Self {
        let mut preview = Self { yes: 0, no: 0, broken: 0, rows: Vec::with_capacity(previewed.len()) };
        for one in previewed {
            let (mark, why) = match &one.passes {
                Some(Passes::Yes) => {
                    preview.yes += 1;
                    (Mark::good("passes"), None)
                }
                Some(Passes::No) => {
                    preview.no += 1;
                    (Mark::idle("does not pass"), None)
                }
                Some(Passes::Broken(why)) => {
                    preview.broken += 1;
                    (Mark::warn("would be held"), Some(Shown::short(why, 300)))
                }
                None => (Mark::idle("was erased"), None),
            };
            preview.rows.push(Tried {
                id: one.delivery.id.to_string(),
                short: short_id(one.delivery.id),
                at: When::utc(one.delivery.received_at, now),
                event_type: one.delivery.event_type.as_deref().map(|text| Shown::short(text, 80)),
                mark,
                why,
            });
        }
        preview
    }
}

async fn view(
    app: &App,
    caller: &Caller,
    row: &TriggerRow,
    form: Form,
    previewed: Option<&[Previewed]>,
    error: Option<String>,
) -> Result<IntakePage, Failure> {
    let frame = Frame::new(app, caller, Section::Triggers, "What a trigger takes", &Fields::default()).await?;
    let preview = previewed.map(|previewed| Preview::of(previewed, frame.now));
    Ok(IntakePage { frame, error, id: row.id.to_string(), name: Shown::line(&row.name), form, preview })
}

/// `GET /triggers/{id}/intake`.
pub(super) async fn page(State(app): State<App>, Visitor(caller): Visitor, Path(id): Path<String>) -> Page {
    caller.must_be_admin()?;
    let row = scope::trigger(&app, &caller, &id).await?;
    ok(&view(&app, &caller, &row, Form::of(&row.intake), None, None).await?)
}

/// `POST /triggers/{id}/intake`: tries the rules on the last deliveries, or saves them.
pub(super) async fn change(State(app): State<App>, Path(id): Path<String>, posted: Posted) -> Page {
    let posted = posted.admin()?;
    let row = scope::trigger(&app, &posted.caller, &id).await?;
    let form = Form::typed(&posted.fields);
    let failure = match read(&posted.fields) {
        Err(failure) => failure,
        Ok(intake) if posted.fields.get("do") == "preview" => match app.engine.preview_filter(row.id, &intake).await {
            Ok(previewed) => return ok(&view(&app, &posted.caller, &row, form, Some(&previewed), None).await?),
            Err(error) => error.into(),
        },
        Ok(_) if form.was != written(&row.intake) => {
            let sentence = "somebody changed this trigger meanwhile; look again";
            let page = view(&app, &posted.caller, &row, form, None, Some(sentence.to_owned())).await?;
            return html(StatusCode::CONFLICT, &page);
        }
        Ok(intake) => {
            let (origin, request) = (posted.caller.origin(), posted.request.as_ref());
            match app.engine.replace_intake(row.id, &intake, None, &origin, request).await {
                Ok(done) => return seen(&app, done.position, &format!("/triggers/{}?done=saved", row.id)).await,
                Err(error) => error.into(),
            }
        }
    };
    let (status, sentence) = failure.sentence()?;
    html(status, &view(&app, &posted.caller, &row, form, None, Some(sentence)).await?)
}
