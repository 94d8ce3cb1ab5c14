//! One routine: what it does, when, and how it went.

use askama::Template;
use axum::extract::{Path, State};
use midwatch_commands::{
    calendar::{Schedule, Zone},
    routine::Routine,
};
use midwatch_engine::projector;
use midwatch_events::{
    Micros, StreamName,
    id::RoutineId,
    routine::{RoutineContent, RoutineEvent, SuspendCause, Work},
    run::WorkKind,
};
use midwatch_log::views::{Cell, Condition, Order, Test};
use midwatch_projections::{
    routines_list::{Ending, RoutineRow, RoutineState},
    runs::Runs,
};

use super::{
    fields::Fields,
    frame::{Failure, Frame, Page, Section, html, ok},
    limits_form,
    names::{self, Names},
    routines::Row,
    runs::RunLine,
    schedule_form::{a_week, second_opinion},
    scope,
    status::{Mark, reason},
    text::{Shown, counted, grouped, indented, word},
    time::{Previewed, When, span},
    viewing::Viewing,
    visitor::{Posted, Visitor, seen},
};
use crate::app::App;

const RUNS: u32 = 20;
const WINDOWS: usize = 5;
/// Windows at which nothing ran that are shown, the latest.
const UNRUN: usize = 5;

#[derive(Template)]
#[template(path = "routine.html")]
struct RoutinePage {
    frame: Frame,
    row: Row,
    error: Option<String>,
    owner: Shown,
    created: When,
    changes: bool,
    off: Option<Off>,
    live: Option<Live>,
    work: Option<Words>,
    recording: bool,
    per_week: Option<String>,
    windows: Vec<Previewed>,
    jitter: bool,
    unrun: Vec<Unrun>,
    /// Where two copies of the time-zone data differ.
    zone_data: Option<String>,
    viewing: Viewing,
    /// Where the reader comes back to, having chosen a zone.
    back: String,
    schedule_json: Shown,
    grace: String,
    deadline: String,
    max_turns: u32,
    /// How many windows became what.
    totals: String,
    options: Vec<String>,
    held: Option<HeldNow>,
    /// The window that waits for the live run to end.
    queued: Option<When>,
    waiting: usize,
    runs: Vec<RunLine>,
}

/// Why a routine is switched off. It can be resumed.
struct Off {
    title: &'static str,
    /// What was found, or a person's reason.
    words: Option<Shown>,
    /// What a person might do first.
    hint: &'static str,
}

impl Off {
    fn of(row: &RoutineRow) -> Option<Self> {
        let (title, hint) = match (row.state, row.suspended) {
            (RoutineState::Paused, _) => ("Paused", "Its windows do not exist until it is resumed."),
            (RoutineState::Suspended, Some(SuspendCause::Failing)) => {
                ("Suspended: ten endings in a row were no success", "Look at the last runs, then resume it.")
            }
            (RoutineState::Suspended, Some(SuspendCause::OwnerRevoked)) => {
                ("Suspended: its owner may not do anything any more", "Give it to somebody else.")
            }
            (RoutineState::Suspended, Some(SuspendCause::BotRetired)) => {
                ("Suspended: its Bot was retired", "Make it anew with another Bot.")
            }
            (RoutineState::Suspended, Some(SuspendCause::NotEvaluable)) => {
                ("Suspended: its schedule cannot be evaluated", "Change its schedule, then resume it.")
            }
            (RoutineState::Suspended, None) => ("Suspended", "Resume it once that is cured."),
            (RoutineState::Active | RoutineState::Ended | RoutineState::Deleted, _) => return None,
        };
        Some(Self { title, words: row.reason.as_deref().map(Shown::line), hint })
    }
}

/// The run that is live.
struct Live {
    run: String,
    since: Option<When>,
    window: Option<When>,
}

impl Live {
    fn of(row: &RoutineRow, schedule: Option<&Schedule>, now: Micros) -> Option<Self> {
        let window = row.live_window.map(|at| in_zone(at, schedule.map(Schedule::zone), now));
        Some(Self { run: row.live_run?.to_string(), since: When::maybe(row.live_since, now), window })
    }
}

/// A window that nobody can run at present. It stays due.
struct HeldNow {
    window: When,
    since: When,
    reason: String,
}

/// A window's time in its routine's zone.
fn in_zone(at: Micros, zone: Option<&Zone>, now: Micros) -> When {
    zone.map_or_else(|| When::utc(at, now), |zone| When::in_zone(at, zone, now))
}

fn totals(row: &RoutineRow) -> String {
    let claimed = match row.limits.max_runs {
        Some(max) => format!("{} of at most {} claimed", grouped(row.windows_claimed), grouped(max)),
        None => format!("{} claimed", grouped(row.windows_claimed)),
    };
    format!("{claimed}, {} missed, {} skipped", grouped(row.missed_total), grouped(row.skipped_total))
}

/// Windows at which nothing ran, and why.
struct Unrun {
    mark: Mark,
    /// `3 windows` where it was more than one.
    many: Option<String>,
    /// The window, or the last of them.
    at: When,
    reason: Option<String>,
    /// The run that was live then.
    run: Option<String>,
}

impl Unrun {
    fn of(ending: &Ending, zone: Option<&Zone>, now: Micros) -> Option<Self> {
        let window = ending.window.filter(|_| matches!(ending.outcome.as_str(), "missed" | "skipped"))?;
        Some(Self {
            mark: Mark::ending(&ending.outcome),
            many: (ending.count > 1).then(|| format!("{}, the last", counted(ending.count, "window", "windows"))),
            at: in_zone(window, zone, now),
            reason: ending.reason.as_deref().map(reason),
            run: ending.run.map(|run| run.to_string()),
        })
    }
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
    viewing: Viewing,
    query: Fields,
) -> Page {
    let row = scope::routine(&app, &caller, &id).await?;
    ok(&view(&app, &caller, row, viewing, &query, None).await?)
}

async fn view(
    app: &App,
    caller: &crate::auth::Caller,
    row: RoutineRow,
    viewing: Viewing,
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
    let schedule = Schedule::parse(&row.schedule).ok();
    let recording = row.work == WorkKind::Recording;
    let zone = schedule.as_ref().map(Schedule::zone);
    let unrun = row.recent.iter().rev().filter_map(|ending| Unrun::of(ending, zone, now));
    Ok(RoutinePage {
        error,
        owner: names::person(engine, row.owner).await?,
        created: When::utc(row.created_at, now),
        changes: caller.must_change().is_ok(),
        off: Off::of(&row),
        live: Live::of(&row, schedule.as_ref(), now),
        work,
        recording,
        per_week: schedule.as_ref().map(|schedule| a_week(schedule.runs_per_week(now, Some(row.anchor)))),
        windows: schedule.as_ref().map(|schedule| windows(&row, schedule, &viewing.zone, now)).unwrap_or_default(),
        jitter: schedule.as_ref().is_some_and(|schedule| delay(&row, schedule) > Micros(0)),
        unrun: unrun.take(UNRUN).collect(),
        zone_data: schedule.as_ref().and_then(|schedule| second_opinion(schedule, now)),
        schedule_json: Shown::lines(&indented(&row.schedule)),
        grace: span(u64::from(row.limits.grace_s) * 1_000_000),
        deadline: span(u64::from(row.limits.deadline_s) * 1_000_000),
        max_turns: row.limits.max_turns,
        totals: totals(&row),
        options: limits_form::in_words(&row.limits),
        held: row.held.map(|held| HeldNow {
            window: in_zone(held.window, zone, now),
            since: When::utc(held.since, now),
            reason: reason(&word(held.reason)),
        }),
        queued: row.queued_window.map(|at| in_zone(at, zone, now)),
        waiting: row.waiting.len(),
        runs,
        row: Row::new(&row, names.bot(engine, row.bot).await?, now),
        back: format!("/routines/{}", row.id),
        viewing,
        frame,
    })
}

/// How far this routine's jitter puts its windows off.
fn delay(row: &RoutineRow, schedule: &Schedule) -> Micros {
    schedule.effective_at(Micros(0), row.id.uuid().as_bytes())
}

/// The windows that come, each with the instant at which it starts.
fn windows(row: &RoutineRow, schedule: &Schedule, reader: &Zone, now: Micros) -> Vec<Previewed> {
    let Some(next) = row.next_window else { return Vec::new() };
    // From the routine's own next window on, which may be due already.
    let windows = schedule.preview(next.plus_s(-1), Some(row.anchor), WINDOWS);
    let shown = windows.iter().map(|window| {
        let effective = schedule.effective_at(window.at, row.id.uuid().as_bytes());
        Previewed::new(window, schedule.zone(), reader, now).starting(window, effective, schedule.zone())
    });
    shown.collect()
}

/// What a form on a routine's page came to: on to `path`, or the page again with the sentence.
async fn answered(
    app: &App,
    posted: &Posted,
    viewing: Viewing,
    row: RoutineRow,
    outcome: Result<(u64, String), Failure>,
) -> Page {
    match outcome {
        Ok((position, path)) => seen(app, position, &path).await,
        Err(failure) => {
            let (status, sentence) = failure.sentence()?;
            let page = view(app, &posted.caller, row, viewing, &Fields::default(), Some(sentence)).await?;
            html(status, &page)
        }
    }
}

/// `POST /routines/{id}/pause`.
pub(super) async fn pause(State(app): State<App>, Path(id): Path<String>, viewing: Viewing, posted: Posted) -> Page {
    let row = scope::changes_routine(&app, &posted.caller, &id).await?;
    let (reason, origin) = (posted.fields.get("reason"), posted.caller.origin());
    let done = app.engine.pause_routine(row.id, reason, &origin, posted.request.as_ref()).await;
    let outcome = done.map(|done| (done.position, format!("/routines/{}?done=paused", row.id)));
    answered(&app, &posted, viewing, row, outcome.map_err(Failure::from)).await
}

/// `POST /routines/{id}/resume`.
pub(super) async fn resume(State(app): State<App>, Path(id): Path<String>, viewing: Viewing, posted: Posted) -> Page {
    let row = scope::changes_routine(&app, &posted.caller, &id).await?;
    let done = app.engine.resume_routine(row.id, &posted.caller.origin(), posted.request.as_ref()).await;
    let outcome = done.map(|done| (done.position, format!("/routines/{}?done=resumed", row.id)));
    answered(&app, &posted, viewing, row, outcome.map_err(Failure::from)).await
}

/// `POST /routines/{id}/run`: Run now.
pub(super) async fn run_now(State(app): State<App>, Path(id): Path<String>, viewing: Viewing, posted: Posted) -> Page {
    let row = scope::changes_routine(&app, &posted.caller, &id).await?;
    let done = app.engine.run_now(row.id, &posted.caller.origin(), posted.request.as_ref()).await;
    let outcome = done.map(|done| (done.position, format!("/runs/{}?done=claimed", done.value)));
    answered(&app, &posted, viewing, row, outcome.map_err(Failure::from)).await
}

/// `POST /routines/{id}/delete`.
pub(super) async fn delete(State(app): State<App>, Path(id): Path<String>, viewing: Viewing, posted: Posted) -> Page {
    let row = scope::changes_routine(&app, &posted.caller, &id).await?;
    let done = app.engine.delete_routine(row.id, &posted.caller.origin(), posted.request.as_ref()).await;
    let outcome = done.map(|done| (done.position, "/routines?done=deleted".to_owned()));
    answered(&app, &posted, viewing, row, outcome.map_err(Failure::from)).await
}

/// `POST /routines/{id}/cancel`: calls the live run off.
pub(super) async fn cancel(State(app): State<App>, Path(id): Path<String>, viewing: Viewing, posted: Posted) -> Page {
    let row = scope::changes_routine(&app, &posted.caller, &id).await?;
    let outcome = match row.live_run {
        Some(run) => {
            let done = app.engine.cancel_run(run, &posted.caller.origin()).await;
            done.map(|done| (done.position, format!("/routines/{}?done=cancelled", row.id))).map_err(Failure::from)
        }
        // It ended while the page was being read.
        None => Ok((0, format!("/routines/{}", row.id))),
    };
    answered(&app, &posted, viewing, row, outcome).await
}
