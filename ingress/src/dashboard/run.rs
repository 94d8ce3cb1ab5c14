//! One run: what it was told, each call, the rule that let it through or stopped it, and how it ended.

use askama::Template;
use axum::extract::{Path, State};
use midwatch_commands::calendar::Schedule;
use midwatch_engine::projector;
use midwatch_events::{
    StreamName,
    run::{RunContent, RunEvent},
};
use midwatch_log::views::{Cell, Condition, Cursor, Order, Test};
use midwatch_projections::{
    routines_list::RoutinesList,
    run_timeline::{RunTimeline, key},
    runs::{RunRow, RunState},
};

use super::{
    fields::Fields,
    frame::{Failure, Frame, Page, Section, html, ok},
    names::{self, Names},
    routine::Words,
    run_steps::{Contents, Scale, Step, steps},
    runs::{self, RunLine},
    scope,
    text::{Shown, short_id},
    time::When,
    visitor::{Posted, Visitor, seen},
};
use crate::{app::App, auth::Caller};

/// Steps on a page.
const STEPS: u32 = 200;

#[derive(Template)]
#[template(path = "run.html")]
struct RunPage {
    frame: Frame,
    line: RunLine,
    error: Option<String>,
    live: bool,
    state: String,
    cancels: bool,
    bot_id: String,
    owner: Shown,
    /// The window in its routine's zone.
    window: Option<When>,
    delivery: Option<String>,
    event_type: Option<Shown>,
    taken: Option<When>,
    ended: Option<When>,
    deadline: Option<When>,
    take: u32,
    worker: Option<String>,
    turns: u32,
    max_turns: u32,
    work: Option<Words>,
    steps: Vec<Step>,
    first: bool,
    next: Option<String>,
}

/// `GET /runs/{id}`.
pub(super) async fn page(
    State(app): State<App>,
    Visitor(caller): Visitor,
    Path(id): Path<String>,
    query: Fields,
) -> Page {
    let row = scope::run(&app, &caller, &id).await?;
    ok(&view(&app, &caller, &row, &query, None).await?)
}

async fn view(
    app: &App,
    caller: &Caller,
    row: &RunRow,
    query: &Fields,
    error: Option<String>,
) -> Result<RunPage, Failure> {
    let engine = &app.engine;
    let title = format!("Run {}", short_id(row.id));
    let mut frame = Frame::new(app, caller, Section::Runs, title, query).await?;
    frame.live.push_str(&format!("&run={}", row.id));
    let now = frame.now;
    let words = scope::reads_words(caller, row.owner);
    let after: Option<u64> = query.filled("after").and_then(|position| position.parse().ok());
    let rows = timeline(app, row, after).await?;
    let mut contents = Contents::read(engine, row.id, &rows).await?;
    let last = rows.last().map_or(row.opened_at, |row| row.at);
    let scale = Scale { from: row.opened_at, to: row.ended_at.unwrap_or(last) };
    let work = if words { work(app, row, &mut contents, &rows).await? } else { None };
    let next = rows.last().filter(|_| rows.len() == STEPS as usize);
    let next = next.map(|last| format!("/runs/{}?after={}", row.id, last.position));
    let mut names = Names::default();
    Ok(RunPage {
        line: RunLine::new(engine, row, &mut names, now).await?,
        error,
        live: row.state != RunState::Ended,
        state: runs::state(row),
        cancels: row.state != RunState::Ended && caller.must_change().is_ok(),
        bot_id: row.bot.to_string(),
        owner: names::person(engine, row.owner).await?,
        window: window(app, row, now).await?,
        delivery: row.delivery.map(|id| id.to_string()).filter(|_| caller.reads_all()),
        event_type: row.event_type.as_deref().map(Shown::line),
        taken: When::maybe(row.taken_at, now),
        ended: When::maybe(row.ended_at, now),
        deadline: When::maybe(row.deadline.filter(|_| row.state == RunState::Running), now),
        take: row.take,
        worker: row.worker.map(short_id),
        turns: row.turns,
        max_turns: row.max_turns,
        work,
        steps: steps(&rows, &mut contents, scale, now, words),
        first: after.is_none(),
        next,
        frame,
    })
}

async fn timeline(
    app: &App,
    row: &RunRow,
    after: Option<u64>,
) -> Result<Vec<midwatch_projections::run_timeline::TimelineRow>, Failure> {
    let filters = vec![Condition { column: "run", is: Test::Eq(Cell::Text(row.id.to_string())) }];
    let order = Order { column: "position", descending: false };
    let cursor = after.map(|position| Cursor {
        cell: Cell::Int(i64::try_from(position).unwrap_or(i64::MAX)),
        key: key(row.id, position),
    });
    let found = projector::page::<RunTimeline>(&app.engine, filters, order, STEPS, cursor).await?;
    Ok(found.into_iter().map(|(row, _)| row).collect())
}

/// What the run was told: from this page's words, or, on a later page, from the run's first event.
async fn work(
    app: &App,
    row: &RunRow,
    contents: &mut Contents,
    rows: &[midwatch_projections::run_timeline::TimelineRow],
) -> Result<Option<Words>, Failure> {
    if let Some(first) = rows.first()
        && let Some(work) = contents.work(first.position)
    {
        return Ok(Words::of(work));
    }
    let events = app.engine.log().read_stream(&StreamName::run(row.id), 1, 1).await?;
    Ok(match events.first().map(|event| event.content::<RunEvent>()).transpose()?.flatten() {
        Some(RunContent::Opened { work }) => Words::of(work),
        Some(_) | None => None,
    })
}

async fn window(app: &App, row: &RunRow, now: midwatch_events::Micros) -> Result<Option<When>, Failure> {
    let Some(window) = row.window else { return Ok(None) };
    let routine = match row.routine {
        Some(id) => projector::get::<RoutinesList>(&app.engine, &id.to_string()).await?,
        None => None,
    };
    let schedule = routine.and_then(|routine| Schedule::parse(&routine.schedule).ok());
    Ok(Some(schedule.map_or_else(|| When::utc(window, now), |schedule| When::in_zone(window, schedule.zone(), now))))
}

/// `POST /runs/{id}/cancel`.
pub(super) async fn cancel(State(app): State<App>, Path(id): Path<String>, posted: Posted) -> Page {
    let row = scope::run(&app, &posted.caller, &id).await?;
    posted.caller.must_change()?;
    match app.engine.cancel_run(row.id, &posted.caller.origin()).await {
        Ok(done) => seen(&app, done.position, &format!("/runs/{}?done=cancelled", row.id)).await,
        Err(error) => {
            let (status, sentence) = Failure::from(error).sentence()?;
            html(status, &view(&app, &posted.caller, &row, &Fields::default(), Some(sentence)).await?)
        }
    }
}
