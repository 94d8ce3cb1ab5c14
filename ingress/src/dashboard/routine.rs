//! One routine: what it does, when, and how it went.

use askama::Template;
use axum::extract::{Path, State};
use midwatch_commands::{calendar::Schedule, routine::Routine};
use midwatch_engine::projector;
use midwatch_events::{
    StreamName,
    id::RoutineId,
    routine::{RoutineContent, RoutineEvent, Work},
};
use midwatch_log::views::{Cell, Condition, Order, Test};
use midwatch_projections::{
    routines_list::{RoutineRow, RoutineState},
    runs::Runs,
};

use super::{
    fields::Fields,
    frame::{Failure, Frame, Page, Section, html, ok},
    names::{self, Names},
    routines::Row,
    runs::RunLine,
    scope,
    text::{Shown, counted, indented},
    time::{Previewed, When, span},
    visitor::{Posted, Visitor, seen},
};
use crate::app::App;

const RUNS: u32 = 20;
const WINDOWS: usize = 5;

#[derive(Template)]
#[template(path = "routine.html")]
struct RoutinePage {
    frame: Frame,
    row: Row,
    error: Option<String>,
    owner: Shown,
    created: When,
    changes: bool,
    /// A paused or suspended one can be resumed.
    off: bool,
    work: Option<Words>,
    windows: Vec<Previewed>,
    schedule_json: Shown,
    grace: String,
    deadline: String,
    max_turns: u32,
    missed: u64,
    missed_text: String,
    waiting: usize,
    runs: Vec<RunLine>,
}

/// What a routine or run is told to do.
pub(crate) struct Words {
    pub(crate) kind: &'static str,
    pub(crate) text: Shown,
}

impl Words {
    /// None where there is nothing, or it was erased.
    pub(crate) fn of(work: Work) -> Option<Self> {
        match (work.instruction, work.recording) {
            (Some(text), _) => Some(Self { kind: "instruction", text: Shown::lines(&text) }),
            (None, Some(text)) => Some(Self { kind: "recording", text: Shown::lines(&indented(&text)) }),
            (None, None) => None,
        }
    }
}

/// A routine's work, as its stream tells it.
pub(crate) async fn work(app: &App, id: RoutineId) -> Result<Option<Work>, Failure> {
    let stream = StreamName::routine(id);
    let at = app.engine.load::<Routine>(&stream).await?.state.work_at;
    let events = app.engine.log().read_stream(&stream, at, 1).await?;
    let content = events.first().map(|event| event.content::<RoutineEvent>()).transpose()?.flatten();
    Ok(match content {
        Some(RoutineContent::Created(work) | RoutineContent::WorkReplaced(work)) => Some(work),
        Some(RoutineContent::Paused { .. } | RoutineContent::Suspended { .. }) | None => None,
    })
}

/// `GET /routines/{id}`.
pub(super) async fn page(
    State(app): State<App>,
    Visitor(caller): Visitor,
    Path(id): Path<String>,
    query: Fields,
) -> Page {
    let row = scope::routine(&app, &caller, &id).await?;
    ok(&view(&app, &caller, row, &query, None).await?)
}

async fn view(
    app: &App,
    caller: &crate::auth::Caller,
    row: RoutineRow,
    query: &Fields,
    error: Option<String>,
) -> Result<RoutinePage, Failure> {
    let engine = &app.engine;
    let frame = Frame::new(app, caller, Section::Routines, row.name.clone(), query).await?;
    let now = frame.now;
    let words = scope::reads_words(caller, row.owner);
    let work = if words { work(app, row.id).await?.and_then(Words::of) } else { None };
    let filters = vec![Condition { column: "routine", is: Test::Eq(Cell::Text(row.id.to_string())) }];
    let order = Order { column: "opened_at", descending: true };
    let mut names = Names::default();
    let mut runs = Vec::new();
    for (run, _) in projector::page::<Runs>(engine, filters, order, RUNS, None).await? {
        runs.push(RunLine::new(engine, &run, &mut names, now).await?);
    }
    let schedule = Schedule::parse(&row.schedule).ok().filter(|_| row.next_window.is_some());
    let windows = schedule.map(|schedule| {
        let windows = schedule.preview(now, Some(row.anchor), WINDOWS);
        windows.iter().map(|window| Previewed::new(window, schedule.zone(), now)).collect()
    });
    Ok(RoutinePage {
        error,
        owner: names::person(engine, row.owner).await?,
        created: When::utc(row.created_at, now),
        changes: caller.must_change().is_ok(),
        off: matches!(row.state, RoutineState::Paused | RoutineState::Suspended),
        work,
        windows: windows.unwrap_or_default(),
        schedule_json: Shown::lines(&indented(&row.schedule)),
        grace: span(u64::from(row.limits.grace_s) * 1_000_000),
        deadline: span(u64::from(row.limits.deadline_s) * 1_000_000),
        max_turns: row.limits.max_turns,
        missed: row.missed_total,
        missed_text: counted(row.missed_total, "window missed in all", "windows missed in all"),
        waiting: row.waiting.len(),
        runs,
        row: Row::new(&row, names.bot(engine, row.bot).await?, now),
        frame,
    })
}

/// What a form on a routine's page came to: on to `path`, or the page again with the sentence.
async fn answered(app: &App, posted: &Posted, row: RoutineRow, outcome: Result<(u64, String), Failure>) -> Page {
    match outcome {
        Ok((position, path)) => seen(app, position, &path).await,
        Err(failure) => {
            let (status, sentence) = failure.sentence()?;
            let page = view(app, &posted.caller, row, &Fields::default(), Some(sentence)).await?;
            html(status, &page)
        }
    }
}

/// `POST /routines/{id}/pause`.
pub(super) async fn pause(State(app): State<App>, Path(id): Path<String>, posted: Posted) -> Page {
    let row = scope::changes_routine(&app, &posted.caller, &id).await?;
    let (reason, origin) = (posted.fields.get("reason"), posted.caller.origin());
    let done = app.engine.pause_routine(row.id, reason, &origin, posted.request.as_ref()).await;
    let outcome = done.map(|done| (done.position, format!("/routines/{}?done=paused", row.id)));
    answered(&app, &posted, row, outcome.map_err(Failure::from)).await
}

/// `POST /routines/{id}/resume`.
pub(super) async fn resume(State(app): State<App>, Path(id): Path<String>, posted: Posted) -> Page {
    let row = scope::changes_routine(&app, &posted.caller, &id).await?;
    let done = app.engine.resume_routine(row.id, &posted.caller.origin(), posted.request.as_ref()).await;
    let outcome = done.map(|done| (done.position, format!("/routines/{}?done=resumed", row.id)));
    answered(&app, &posted, row, outcome.map_err(Failure::from)).await
}

/// `POST /routines/{id}/run`: Run now.
pub(super) async fn run_now(State(app): State<App>, Path(id): Path<String>, posted: Posted) -> Page {
    let row = scope::changes_routine(&app, &posted.caller, &id).await?;
    let done = app.engine.run_now(row.id, &posted.caller.origin(), posted.request.as_ref()).await;
    let outcome = done.map(|done| (done.position, format!("/runs/{}?done=claimed", done.value)));
    answered(&app, &posted, row, outcome.map_err(Failure::from)).await
}

/// `POST /routines/{id}/delete`.
pub(super) async fn delete(State(app): State<App>, Path(id): Path<String>, posted: Posted) -> Page {
    let row = scope::changes_routine(&app, &posted.caller, &id).await?;
    let done = app.engine.delete_routine(row.id, &posted.caller.origin(), posted.request.as_ref()).await;
    let outcome = done.map(|done| (done.position, "/routines?done=deleted".to_owned()));
    answered(&app, &posted, row, outcome.map_err(Failure::from)).await
}
