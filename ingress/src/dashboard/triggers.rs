//! Triggers: the list, and making one.

use askama::Template;
use axum::{extract::State, http::StatusCode};
use midwatch_engine::{projector, triggers::NewTrigger};
use midwatch_events::{
    id::{BotId, RoutineId},
    routine::Limits,
    trigger::Intake,
};
use midwatch_log::views::{Cell, Condition, Order, Test};
use midwatch_projections::{
    bots::Bots,
    deliveries::DeliveryStatus,
    routines_list::RoutinesList,
    triggers::{TriggerRow, TriggerState, Triggers},
};

use super::{
    days::Choice,
    fields::Fields,
    frame::{Failure, Frame, Page, Section, html, ok},
    listing::{self, ROWS},
    names::Names,
    status::Mark,
    text::Shown,
    time::When,
    trigger::{Address, address},
    trigger_sender::{Choosing, prepared, tried},
    visitor::{Posted, Visitor},
};
use crate::{
    app::App,
    auth::Caller,
    error::Problem,
    senders::{Prepared, check::Verdict},
};

#[derive(Template)]
#[template(path = "triggers.html")]
struct TriggersPage {
    frame: Frame,
    rows: Vec<Row>,
    next: Option<String>,
    first: bool,
}

/// One trigger in a list.
struct Row {
    id: String,
    name: Shown,
    /// What takes its work: a routine or a Bot.
    to: Shown,
    to_path: String,
    mark: Mark,
    last: Option<When>,
    started: u64,
    stopped: u64,
}

/// What a trigger is doing.
pub(crate) fn mark(row: &TriggerRow) -> Mark {
    match (row.state, row.sample, row.confirmed) {
        (TriggerState::Paused, ..) => Mark { shape: "‖", ..Mark::idle("paused") },
        (TriggerState::Deleted, ..) => Mark::idle("deleted"),
        (TriggerState::Active, _, true) => Mark::good("active"),
        (TriggerState::Active, Some(_), false) => Mark { shape: "◇", ..Mark::warn("sample waits to be read") },
        (TriggerState::Active, None, false) => Mark::idle("waits for its first delivery"),
    }
}

/// `GET /triggers`.
pub(super) async fn page(State(app): State<App>, Visitor(caller): Visitor, query: Fields) -> Page {
    caller.must_read_all()?;
    let frame = Frame::new(&app, &caller, Section::Triggers, "Triggers", &query).await?;
    let filters = vec![Condition { column: "state", is: Test::Ne(Cell::Text("deleted".to_owned())) }];
    let order = Order { column: "name", descending: false };
    let after = listing::after(&query);
    let first = after.is_none();
    let found = projector::page::<Triggers>(&app.engine, filters, order, ROWS, after).await?;
    let next = found.last().filter(|_| found.len() == ROWS as usize);
    let next = next.map(|(_, cursor)| listing::next("/triggers", &query, cursor));
    let mut names = Names::default();
    let mut rows = Vec::with_capacity(found.len());
    for (row, _) in &found {
        let (to, to_path) = target(&app, row, &mut names).await?;
        let count = |status| row.counts.get(&status).copied().unwrap_or(0);
        rows.push(Row {
            id: row.id.to_string(),
            name: Shown::line(&row.name),
            to,
            to_path,
            mark: mark(row),
            last: When::maybe(row.last_received_at, frame.now),
            started: count(DeliveryStatus::Started),
            stopped: count(DeliveryStatus::Refused) + count(DeliveryStatus::Expired),
        });
    }
    ok(&TriggersPage { frame, rows, next, first })
}

/// What takes a trigger's work, and its page.
pub(crate) async fn target(app: &App, row: &TriggerRow, names: &mut Names) -> Result<(Shown, String), Failure> {
    Ok(match (row.routine, row.bot) {
        (Some(id), _) => (names.routine(&app.engine, id).await?, format!("/routines/{id}")),
        (None, Some(id)) => (names.bot(&app.engine, id).await?, format!("/bots/{id}")),
        (None, None) => (Shown::line("nothing"), "/triggers".to_owned()),
    })
}

#[derive(Template)]
#[template(path = "trigger_form.html")]
struct TriggerForm {
    frame: Frame,
    error: Option<String>,
    name: String,
    own: bool,
    instruction: String,
    choosing: Choosing,
    bots: Vec<Choice<String, Shown>>,
    routines: Vec<Choice<String, Shown>>,
}

async fn form(
    app: &App,
    caller: &Caller,
    fields: &Fields,
    verdict: Option<Verdict>,
    error: Option<String>,
) -> Result<TriggerForm, Failure> {
    let frame = Frame::new(app, caller, Section::Triggers, "New trigger", &Fields::default()).await?;
    let order = Order { column: "name", descending: false };
    let filters = vec![Condition { column: "retired", is: Test::Eq(Cell::Int(0)) }];
    let bots = projector::page::<Bots>(&app.engine, filters, order, 200, None).await?;
    let bots = bots.into_iter().filter(|(row, _)| row.agui.is_some()).map(|(row, _)| {
        let value = row.id.to_string();
        Choice { chosen: value == fields.get("bot"), value, name: Shown::line(&row.name) }
    });
    let filters = vec![Condition { column: "state", is: Test::Ne(Cell::Text("deleted".to_owned())) }];
    let routines = projector::page::<RoutinesList>(&app.engine, filters, order, 200, None).await?;
    let routines = routines.into_iter().map(|(row, _)| {
        let value = row.id.to_string();
        Choice { chosen: value == fields.get("routine"), value, name: Shown::line(&row.name) }
    });
    Ok(TriggerForm {
        frame,
        error,
        name: fields.get("name").to_owned(),
        own: fields.get("work") != "routine",
        instruction: fields.text("instruction"),
        choosing: Choosing::of(fields, verdict),
        bots: bots.collect(),
        routines: routines.collect(),
    })
}

/// `GET /triggers/new`.
pub(super) async fn new(State(app): State<App>, Visitor(caller): Visitor, query: Fields) -> Page {
    caller.must_be_admin()?;
    ok(&form(&app, &caller, &query, None, None).await?)
}

#[derive(Template)]
#[template(path = "trigger_made.html")]
struct TriggerMade {
    frame: Frame,
    id: String,
    name: Shown,
    /// Shown this once; none where the same form was sent before.
    secret: Option<String>,
    /// The sender signs with a secret of its own, that was given.
    given: bool,
    verify_token: Option<String>,
    /// What to do at the sender's; none for a bearer secret.
    setup: Option<String>,
    address: Address,
    /// What became of the secret before, if there was one.
    old: Option<String>,
}

/// What the page that shows a secret is about.
pub(crate) struct Shows<'a> {
    id: String,
    name: &'a str,
    endpoint: &'a str,
    title: &'static str,
    prepared: &'a Prepared,
    secret: Option<String>,
    old: Option<String>,
}

impl<'a> Shows<'a> {
    /// A secret of a trigger that is there, and what became of the one before.
    pub(crate) fn of(
        row: &'a TriggerRow,
        title: &'static str,
        prepared: &'a Prepared,
        secret: Option<String>,
        old: Option<String>,
    ) -> Self {
        let TriggerRow { id, name, endpoint, .. } = row;
        Self { id: id.to_string(), name, endpoint, title, prepared, secret, old }
    }
}

/// The one page that shows a secret; it is an answer to a POST and kept nowhere.
pub(crate) async fn made(app: &App, caller: &Caller, shows: Shows<'_>) -> Page {
    let Shows { id, name, endpoint, title, prepared, secret, old } = shows;
    let frame = Frame::new(app, caller, Section::Triggers, title, &Fields::default()).await?;
    let bearer = prepared.scheme.is_none();
    let address = address(app, endpoint, secret.as_deref().filter(|_| bearer), bearer.then_some("bearer"));
    ok(&TriggerMade {
        frame,
        id,
        name: Shown::line(name),
        given: prepared.made.is_none() && prepared.preset.signs(),
        secret,
        verify_token: prepared.verify_token.clone(),
        setup: (!bearer).then(|| prepared.preset.setup.clone()),
        address,
        old,
    })
}

/// `POST /triggers`.
pub(super) async fn create(State(app): State<App>, posted: Posted) -> Page {
    let posted = posted.admin()?;
    if posted.fields.get("do") == "check" {
        let (status, verdict, error) = match tried(&app, &posted.fields, None) {
            Ok(verdict) => (StatusCode::OK, Some(verdict), None),
            Err(failure) => (StatusCode::BAD_REQUEST, None, Some(failure.sentence()?.1)),
        };
        return html(status, &form(&app, &posted.caller, &posted.fields, verdict, error).await?);
    }
    match created(&app, &posted).await {
        Ok((prepared, done)) => {
            projector::wait_for(&app.engine, done.position).await;
            let secret = if done.duplicate { None } else { prepared.made.clone().or(done.value.secret) };
            let (id, endpoint, name) = (done.value.id.to_string(), &done.value.endpoint, posted.fields.get("name"));
            let (prepared, title) = (&prepared, "Trigger created");
            made(&app, &posted.caller, Shows { id, name, endpoint, title, prepared, secret, old: None }).await
        }
        Err(failure) => {
            let (_, sentence) = failure.sentence()?;
            let page = form(&app, &posted.caller, &posted.fields, None, Some(sentence)).await?;
            html(StatusCode::BAD_REQUEST, &page)
        }
    }
}

type Made = midwatch_engine::Done<midwatch_engine::triggers::MadeTrigger>;

async fn created(app: &App, posted: &Posted) -> Result<(Prepared, Made), Failure> {
    let fields = &posted.fields;
    let to_routine = fields.get("work") == "routine";
    let routine: Option<RoutineId> = fields.get("routine").parse().ok().filter(|_| to_routine);
    let bot: Option<BotId> = fields.get("bot").parse().ok().filter(|_| !to_routine);
    if routine.is_none() && bot.is_none() {
        let sentence = if to_routine { "choose the routine it starts" } else { "choose the Bot that does the work" };
        return Err(Problem::bad("invalid", sentence).into());
    }
    let prepared = prepared(app, fields)?;
    let mut intake = Intake::default();
    intake.body_bytes_max = prepared.preset.body_bytes_max.unwrap_or(intake.body_bytes_max);
    let new = NewTrigger {
        name: fields.get("name").to_owned(),
        routine,
        bot,
        instruction: Some(fields.text("instruction")).filter(|_| !to_routine),
        intake,
        limits: Limits::default(),
        scheme: prepared.scheme.clone(),
        secret: prepared.secret.clone(),
        owner: posted.caller.user(),
    };
    let done = app.engine.create_trigger(&new, &posted.caller.origin(), posted.request.as_ref()).await?;
    Ok((prepared, done))
}
