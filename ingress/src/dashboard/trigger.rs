//! One trigger: its address, its sample to read and confirm, and its deliveries.

use askama::Template;
use axum::extract::{Path, State};
use midwatch_commands::trigger::TriggerCommand;
use midwatch_engine::{Done, EngineError, projector};
use midwatch_events::{
    StreamName,
    trigger::{TriggerContent, TriggerEvent, WhenBusy},
};
use midwatch_log::views::{Cell, Condition, Order, Test};
use midwatch_projections::{
    deliveries::Deliveries,
    triggers::{TriggerRow, TriggerState},
};

use super::{
    delivery::{DeliveryLine, Sample, sample},
    fields::Fields,
    frame::{Failure, Frame, Page, Section, html, ok},
    listing::{self, ROWS},
    names::{self, Names},
    routine::Words,
    scope,
    status::Mark,
    text::{Shown, bytes},
    time::{When, span},
    triggers::{Shows, made, mark, target},
    visitor::{Posted, Visitor, seen},
};
use crate::{
    app::App,
    auth::Caller,
    error::Problem,
    senders::{self, check::Verdict},
};

/// How long the old secret stays good after a rotation, in seconds, as a form may say.
const OVERLAPS: [(u32, &str); 4] = [
    (86_400, "for 24 hours more"),
    (3_600, "for an hour more"),
    (604_800, "for a week more"),
    (0, "no longer: it opens nothing from now on"),
];

#[derive(Template)]
#[template(path = "trigger.html")]
struct TriggerPage {
    frame: Frame,
    error: Option<String>,
    id: String,
    path: String,
    name: Shown,
    mark: Mark,
    to: Shown,
    to_path: String,
    owner: Shown,
    created: When,
    paused: bool,
    confirmed: Option<When>,
    address: Address,
    sender: Sender,
    checked: Option<Checked>,
    instruction: Option<Words>,
    sample: Option<Sample>,
    confirms: bool,
    /// It must be read, and was not confirmed.
    reads_first: bool,
    /// How many deliveries ever had each outcome.
    counts: Vec<(Mark, u64)>,
    when_busy: &'static str,
    event_types: String,
    filter: Option<Shown>,
    pointers: String,
    per_minute: Option<u32>,
    kept_days: Option<u32>,
    old_secret_until: Option<When>,
    overlaps: &'static [(u32, &'static str)],
    body_max: String,
    duplicate_window: String,
    queue_max: u32,
    queue_age: String,
    waiting: usize,
    live_run: Option<String>,
    deliveries: Vec<DeliveryLine>,
    next: Option<String>,
    first: bool,
}

/// Who sends, and with which secrets.
struct Sender {
    title: String,
    setup: String,
    source: String,
    /// Whether its secret must be given when it is replaced.
    gives: bool,
    signs: bool,
    /// It signs the public address, which is not known here.
    needs_url: bool,
    used: Option<When>,
    old_used: Option<When>,
}

/// A sample that was pasted, and what became of it.
struct Checked {
    request: String,
    verdict: Verdict,
}

/// Where to post, as far as that is known.
#[derive(Debug)]
pub(crate) struct Address {
    pub(crate) path: String,
    /// The whole URL; none where `--public-url` was not said.
    pub(crate) url: Option<String>,
    /// A command that posts a first delivery, where a command can.
    pub(crate) curl: Option<String>,
}

/// The address of an endpoint. Without `--public-url` it is not guessed.
///
/// Only a bearer secret can be typed into a command; for the others it says which verb signs.
pub(crate) fn address(app: &App, endpoint: &str, secret: Option<&str>, preset: Option<&str>) -> Address {
    let path = format!("/hooks/{endpoint}");
    let public = app.settings.public_url.as_deref().map(|url| url.trim_end_matches('/'));
    let url = public.map(|public| format!("{public}{path}"));
    let to = url.clone().unwrap_or_else(|| format!("\"$MIDWATCH_URL\"{path}"));
    if preset != Some("bearer") {
        return Address { path, url, curl: None };
    }
    let secret = secret.unwrap_or("$MIDWATCH_SECRET");
    let curl = format!(
        "curl -sS {to} \\\n  -H \"Authorization: Bearer {secret}\" \\\n  -H \"Content-Type: application/json\" \\\n  \
         -d '{{\"hello\":\"midwatch\"}}'"
    );
    Address { path, url, curl: Some(curl) }
}

/// `GET /triggers/{id}`.
pub(super) async fn page(
    State(app): State<App>,
    Visitor(caller): Visitor,
    Path(id): Path<String>,
    query: Fields,
) -> Page {
    let row = scope::trigger(&app, &caller, &id).await?;
    ok(&view(&app, &caller, &row, &query, None, false).await?)
}

async fn view(
    app: &App,
    caller: &Caller,
    row: &TriggerRow,
    query: &Fields,
    error: Option<String>,
    read: bool,
) -> Result<TriggerPage, Failure> {
    let engine = &app.engine;
    let frame = Frame::new(app, caller, Section::Triggers, row.name.clone(), query).await?;
    let now = frame.now;
    let filters = vec![Condition { column: "trigger", is: Test::Eq(Cell::Text(row.id.to_string())) }];
    let order = Order { column: "received_at", descending: true };
    let after = listing::after(query);
    let first = after.is_none();
    let found = projector::page::<Deliveries>(engine, filters, order, ROWS, after).await?;
    let next = found.last().filter(|_| found.len() == ROWS as usize);
    let next = next.map(|(_, cursor)| listing::next(&format!("/triggers/{}", row.id), query, cursor));
    let mut names = Names::default();
    let (to, to_path) = target(app, row, &mut names).await?;
    let sample = match row.sample {
        Some(id) => match projector::get::<Deliveries>(engine, &id.to_string()).await? {
            Some(of) => Some(sample(app, caller, &of, format!("/triggers/{}/sample#sample", row.id), read, now).await?),
            None => None,
        },
        None => None,
    };
    let seconds = |seconds: u32| span(u64::from(seconds) * 1_000_000);
    Ok(TriggerPage {
        error,
        id: row.id.to_string(),
        path: format!("/triggers/{}", row.id),
        name: Shown::line(&row.name),
        mark: mark(row),
        to,
        to_path,
        owner: names::person(engine, row.owner).await?,
        created: When::utc(row.created_at, now),
        paused: row.state == TriggerState::Paused,
        confirmed: When::maybe(row.confirmed_at, now),
        address: address(app, &row.endpoint, None, Some(row.scheme.as_ref().map_or("bearer", |scheme| &scheme.preset))),
        sender: sender(app, row, now),
        checked: None,
        instruction: instruction(app, caller, row).await?,
        confirms: frame.admin && sample.as_ref().is_some_and(|sample| sample.read) && !row.confirmed,
        reads_first: !row.confirmed,
        counts: counts(row),
        when_busy: when_busy(row.intake.when_busy),
        event_types: row.intake.event_types.join(", "),
        filter: row.intake.filter.as_deref().map(Shown::lines),
        pointers: row.intake.id_pointers.join(", "),
        per_minute: row.intake.per_minute_max,
        kept_days: row.intake.kept_days,
        sample,
        old_secret_until: When::maybe(row.old_secret_until.filter(|until| *until > now), now),
        overlaps: &OVERLAPS,
        body_max: bytes(u64::from(row.intake.body_bytes_max)),
        duplicate_window: seconds(row.intake.duplicate_window_s),
        queue_max: row.intake.queue_max,
        queue_age: seconds(row.intake.queue_age_s),
        waiting: row.waiting.len(),
        live_run: row.live_run.map(|run| run.to_string()),
        deliveries: found.iter().map(|(row, _)| DeliveryLine::new(row, now)).collect(),
        next,
        first,
        frame,
    })
}

fn counts(row: &TriggerRow) -> Vec<(Mark, u64)> {
    row.counts
        .iter()
        .filter(|(_, count)| **count > 0)
        .map(|(status, count)| (Mark::delivery(*status), *count))
        .collect()
}

fn when_busy(what: WhenBusy) -> &'static str {
    match what {
        WhenBusy::Queue => "deliveries wait, in order",
        WhenBusy::Coalesce => "the newest delivery alone waits",
        WhenBusy::Refuse => "deliveries are answered 409, and their sender sends them again",
    }
}

fn sender(app: &App, row: &TriggerRow, now: midwatch_events::Micros) -> Sender {
    let preset = senders::of_scheme(row.scheme.as_ref()).ok();
    let named = row.scheme.as_ref().and_then(|scheme| senders::find(&scheme.preset).ok()).or_else(|| preset.clone());
    let unknown = || "a sender that this version does not know".to_owned();
    Sender {
        title: named.as_ref().map_or_else(unknown, |preset| preset.title.clone()),
        setup: named.as_ref().map(|preset| preset.setup.clone()).unwrap_or_default(),
        source: named.as_ref().map(|preset| preset.source.clone()).unwrap_or_default(),
        gives: preset.as_ref().is_some_and(|preset| preset.secret == senders::Maker::Sender),
        signs: preset.as_ref().is_some_and(|preset| preset.signs()),
        needs_url: app.settings.public_url.is_none() && preset.is_some_and(|preset| preset.signs_url()),
        used: When::maybe(row.secret_used_at, now),
        old_used: When::maybe(row.old_secret_used_at, now),
    }
}

/// `POST /triggers/{id}/sample`: the sample, to be read and then confirmed. That it was read is recorded.
pub(super) async fn read(State(app): State<App>, Path(id): Path<String>, posted: Posted) -> Page {
    posted.caller.must_read_evidence(&app).await?;
    let row = scope::trigger(&app, &posted.caller, &id).await?;
    ok(&view(&app, &posted.caller, &row, &Fields::default(), None, true).await?)
}

/// `POST /triggers/{id}/check`: a sample that was pasted. Nothing is recorded.
pub(super) async fn check(State(app): State<App>, Path(id): Path<String>, posted: Posted) -> Page {
    let posted = posted.admin()?;
    let row = scope::trigger(&app, &posted.caller, &id).await?;
    let request = posted.fields.text("request");
    match crate::api::senders::of_trigger(&app, row.id, &request).await {
        Ok(verdict) => {
            let mut page = view(&app, &posted.caller, &row, &Fields::default(), None, false).await?;
            page.checked = Some(Checked { request, verdict });
            ok(&page)
        }
        Err(problem) => {
            let (status, sentence) = Failure::from(problem).sentence()?;
            html(status, &view(&app, &posted.caller, &row, &Fields::default(), Some(sentence), false).await?)
        }
    }
}

async fn instruction(app: &App, caller: &Caller, row: &TriggerRow) -> Result<Option<Words>, Failure> {
    if row.routine.is_some() || !scope::reads_words(caller, row.owner) {
        return Ok(None);
    }
    let events = app.engine.log().read_stream(&StreamName::trigger(row.id), 1, 1).await?;
    let content = events.first().map(|event| event.content::<TriggerEvent>()).transpose()?.flatten();
    Ok(content.and_then(|TriggerContent::Created(work)| Words::of(work)))
}

async fn answered(
    app: &App,
    posted: &Posted,
    row: &TriggerRow,
    path: &str,
    done: Result<Done<()>, EngineError>,
) -> Page {
    match done {
        Ok(done) => seen(app, done.position, path).await,
        Err(error) => {
            let (status, sentence) = Failure::from(error).sentence()?;
            html(status, &view(app, &posted.caller, row, &Fields::default(), Some(sentence), false).await?)
        }
    }
}

/// `POST /triggers/{id}/confirm`: names the delivery that was read, so that another sample is never confirmed unread.
pub(super) async fn confirm(State(app): State<App>, Path(id): Path<String>, posted: Posted) -> Page {
    let posted = posted.admin()?;
    let row = scope::trigger(&app, &posted.caller, &id).await?;
    let delivery = posted.fields.get("delivery").parse().ok();
    let done = app.engine.confirm_trigger(row.id, delivery, &posted.caller.origin(), posted.request.as_ref()).await;
    answered(&app, &posted, &row, &format!("/triggers/{}?done=confirmed", row.id), done).await
}

async fn change(app: &App, id: &str, posted: Posted, command: TriggerCommand, path: fn(&str) -> String) -> Page {
    let posted = posted.admin()?;
    let row = scope::trigger(app, &posted.caller, id).await?;
    let done = app.engine.change_trigger(row.id, &posted.caller.origin(), posted.request.as_ref(), command).await;
    answered(app, &posted, &row, &path(&row.id.to_string()), done).await
}

/// `POST /triggers/{id}/pause`.
pub(super) async fn pause(State(app): State<App>, Path(id): Path<String>, posted: Posted) -> Page {
    change(&app, &id, posted, TriggerCommand::Pause, |id| format!("/triggers/{id}?done=paused")).await
}

/// `POST /triggers/{id}/resume`.
pub(super) async fn resume(State(app): State<App>, Path(id): Path<String>, posted: Posted) -> Page {
    change(&app, &id, posted, TriggerCommand::Resume, |id| format!("/triggers/{id}?done=resumed")).await
}

/// `POST /triggers/{id}/delete`.
pub(super) async fn delete(State(app): State<App>, Path(id): Path<String>, posted: Posted) -> Page {
    change(&app, &id, posted, TriggerCommand::Delete, |_| "/triggers?done=deleted".to_owned()).await
}

/// `POST /triggers/{id}/rotate`.
pub(super) async fn rotate(State(app): State<App>, Path(id): Path<String>, posted: Posted) -> Page {
    let posted = posted.admin()?;
    let row = scope::trigger(&app, &posted.caller, &id).await?;
    let given = posted.fields.filled("secret");
    let overlap_s = posted.fields.get("overlap_s");
    let overlap = OVERLAPS.iter().find(|(seconds, _)| seconds.to_string() == overlap_s);
    let &(overlap_s, overlap) = overlap.unwrap_or(&OVERLAPS[0]);
    let rotated = async {
        let prepared = senders::renew(row.scheme.as_ref(), given, app.engine.world().random::<32>())
            .map_err(|sentence| Failure::from(Problem::bad("invalid", sentence)))?;
        let (origin, request) = (posted.caller.origin(), posted.request.as_ref());
        let done = app.engine.rotate_secret(row.id, &prepared.secret, overlap_s, &origin, request).await?;
        Ok::<_, Failure>((prepared, done))
    };
    match rotated.await {
        Ok((prepared, done)) => {
            projector::wait_for(&app.engine, done.position).await;
            let secret = prepared.made.clone().or(done.value).filter(|_| !done.duplicate);
            let old = Some(format!("The old secret is good {overlap}."));
            made(&app, &posted.caller, Shows::of(&row, "New secret", &prepared, secret, old)).await
        }
        Err(failure) => {
            let (status, sentence) = failure.sentence()?;
            html(status, &view(&app, &posted.caller, &row, &Fields::default(), Some(sentence), false).await?)
        }
    }
}
