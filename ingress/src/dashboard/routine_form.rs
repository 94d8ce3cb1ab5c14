//! The form that makes or changes a routine. What was typed is kept until it is right.

use askama::Template;
use axum::{
    extract::{Path, State},
    http::StatusCode,
};
use midwatch_commands::{
    calendar::{Schedule, zone_names},
    routine::Edit,
};
use midwatch_engine::{projector, routines::NewRoutine};
use midwatch_events::{
    routine::{Limits, Work},
    run::WorkKind,
};
use midwatch_log::views::{Cell, Condition, Order, Test};
use midwatch_projections::{bots::Bots, routines_list::RoutineRow};

use super::{
    days::Choice,
    fields::Fields,
    frame::{Failure, Frame, Page, Section, html, ok},
    routine,
    schedule_form::{Previewing, ScheduleFields},
    scope,
    text::{Shown, indented},
    visitor::{Posted, Visitor, seen},
};
use crate::{app::App, auth::Caller, error::Problem};

#[derive(Template)]
#[template(path = "routine_form.html")]
struct RoutineForm {
    frame: Frame,
    /// The routine that is changed; none for a new one.
    id: Option<String>,
    error: Option<String>,
    typed: Typed,
    bots: Vec<Choice<String, Shown>>,
    zones: Vec<&'static str>,
    previewing: Previewing,
}

/// What stands in the form.
#[derive(Debug)]
struct Typed {
    name: String,
    recorded: bool,
    instruction: String,
    recording: String,
    schedule: ScheduleFields,
    grace_s: String,
    deadline_s: String,
    max_turns: String,
    version: String,
    bot: String,
}

impl Typed {
    fn fresh() -> Self {
        let limits = Limits::default();
        Self {
            name: String::new(),
            recorded: false,
            instruction: String::new(),
            recording: String::new(),
            schedule: ScheduleFields::fresh(),
            grace_s: limits.grace_s.to_string(),
            deadline_s: limits.deadline_s.to_string(),
            max_turns: limits.max_turns.to_string(),
            version: String::new(),
            bot: String::new(),
        }
    }

    fn from(fields: &Fields) -> Self {
        Self {
            name: fields.get("name").to_owned(),
            recorded: fields.get("work") == "recording",
            instruction: fields.text("instruction"),
            recording: fields.text("recording"),
            schedule: ScheduleFields::typed(fields),
            grace_s: fields.get("grace_s").to_owned(),
            deadline_s: fields.get("deadline_s").to_owned(),
            max_turns: fields.get("max_turns").to_owned(),
            version: fields.get("version").to_owned(),
            bot: fields.get("bot").to_owned(),
        }
    }

    fn stored(row: &RoutineRow, work: Option<Work>) -> Self {
        let work = work.unwrap_or_default();
        Self {
            name: row.name.clone(),
            recorded: row.work == WorkKind::Recording,
            instruction: work.instruction.unwrap_or_default(),
            recording: work.recording.map(|text| indented(&text)).unwrap_or_default(),
            schedule: ScheduleFields::stored(&row.schedule),
            grace_s: row.limits.grace_s.to_string(),
            deadline_s: row.limits.deadline_s.to_string(),
            max_turns: row.limits.max_turns.to_string(),
            version: row.version.to_string(),
            bot: row.bot.to_string(),
        }
    }

    fn work(&self) -> Work {
        if self.recorded {
            Work { instruction: None, recording: Some(self.recording.clone()) }
        } else {
            Work { instruction: Some(self.instruction.clone()), recording: None }
        }
    }

    fn limits(&self, others: &Limits) -> Result<Limits, Failure> {
        let number = |text: &str, what: &str| {
            let sentence = format!("{what}: write a whole number");
            text.parse::<u32>().map_err(|_| Failure(Problem::bad("invalid", sentence)))
        };
        // What the form does not show stays as it is.
        Ok(Limits {
            grace_s: number(&self.grace_s, "how late a window may still run")?,
            deadline_s: number(&self.deadline_s, "how long a run may last")?,
            max_turns: number(&self.max_turns, "how many turns a run may take")?,
            ..others.clone()
        })
    }

    fn schedule(&self) -> Result<String, Failure> {
        self.schedule.to_json().map_err(|sentence| Failure(Problem::bad("schedule_shape", sentence)))
    }
}

async fn form(
    app: &App,
    caller: &Caller,
    id: Option<String>,
    typed: Typed,
    error: Option<String>,
) -> Result<RoutineForm, Failure> {
    let title = if id.is_some() { "Change a routine" } else { "New routine" };
    let frame = Frame::new(app, caller, Section::Routines, title, &Fields::default()).await?;
    let filters = vec![Condition { column: "retired", is: Test::Eq(Cell::Int(0)) }];
    let order = Order { column: "name", descending: false };
    let found = projector::page::<Bots>(&app.engine, filters, order, 200, None).await?;
    let bots = found.into_iter().map(|(row, _)| {
        let value = row.id.to_string();
        let replays = if row.agui.is_none() { " (recordings only)" } else { "" };
        Choice { chosen: value == typed.bot, value, name: Shown::line(&format!("{}{replays}", row.name)) }
    });
    let previewing = Previewing::of(&typed.schedule, typed.recorded, frame.now);
    Ok(RoutineForm { bots: bots.collect(), zones: zone_names(), previewing, frame, id, error, typed })
}

/// `GET /routines/new`; with a query, the fields as typed, which is the preview where no script runs.
pub(super) async fn new(State(app): State<App>, Visitor(caller): Visitor, query: Fields) -> Page {
    caller.must_change()?;
    let typed = if query.has("kind") { Typed::from(&query) } else { Typed::fresh() };
    ok(&form(&app, &caller, None, typed, None).await?)
}

/// `GET /routines/{id}/edit`.
pub(super) async fn edit_page(
    State(app): State<App>,
    Visitor(caller): Visitor,
    Path(id): Path<String>,
    query: Fields,
) -> Page {
    let row = scope::changes_routine(&app, &caller, &id).await?;
    let typed =
        if query.has("kind") { Typed::from(&query) } else { Typed::stored(&row, routine::work(&app, row.id).await?) };
    ok(&form(&app, &caller, Some(row.id.to_string()), typed, None).await?)
}

/// `POST /routines`.
pub(super) async fn create(State(app): State<App>, posted: Posted) -> Page {
    posted.caller.must_change()?;
    let typed = Typed::from(&posted.fields);
    match created(&app, &posted, &typed).await {
        Ok((position, path)) => seen(&app, position, &path).await,
        Err(failure) => again(&app, &posted, None, typed, failure).await,
    }
}

async fn created(app: &App, posted: &Posted, typed: &Typed) -> Result<(u64, String), Failure> {
    let bot = typed.bot.parse().map_err(|_| Problem::bad("invalid", "choose the Bot that does the work"))?;
    let new = NewRoutine {
        name: typed.name.clone(),
        bot,
        schedule: typed.schedule()?,
        work: typed.work(),
        limits: typed.limits(&Limits::default())?,
        owner: posted.caller.user(),
    };
    let done = app.engine.create_routine(&new, &posted.caller.origin(), posted.request.as_ref()).await?;
    Ok((done.position, format!("/routines/{}?done=created", done.value)))
}

/// `POST /routines/{id}`.
pub(super) async fn edit(State(app): State<App>, Path(id): Path<String>, posted: Posted) -> Page {
    let row = scope::changes_routine(&app, &posted.caller, &id).await?;
    let typed = Typed::from(&posted.fields);
    match edited(&app, &posted, &row, &typed).await {
        Ok((position, path)) => seen(&app, position, &path).await,
        Err(failure) => again(&app, &posted, Some(row.id.to_string()), typed, failure).await,
    }
}

/// Only what differs becomes a change: a schedule that is written again would otherwise drop the windows that are due.
async fn edited(app: &App, posted: &Posted, row: &RoutineRow, typed: &Typed) -> Result<(u64, String), Failure> {
    let (schedule, limits) = (typed.schedule()?, typed.limits(&row.limits)?);
    let same = Schedule::parse(&schedule).is_ok_and(|new| new.to_json() == row.schedule);
    let before = routine::work(app, row.id).await?;
    let unchanged = before.as_ref().is_some_and(|before| same_work(before, &typed.work()));
    let edit = Edit {
        name: Some(typed.name.clone()).filter(|name| *name != row.name),
        schedule: Some(schedule).filter(|_| !same),
        work: Some(typed.work()).filter(|_| !unchanged),
        limits: Some(limits).filter(|limits| *limits != row.limits),
        ..Edit::default()
    };
    let expected = typed.version.parse().ok();
    let done =
        app.engine.edit_routine(row.id, edit, expected, &posted.caller.origin(), posted.request.as_ref()).await?;
    Ok((done.position, format!("/routines/{}?done=saved", row.id)))
}

/// The form shows a recording with line breaks of its own.
fn same_work(before: &Work, after: &Work) -> bool {
    let recording = |work: &Work| work.recording.as_deref().map(indented);
    before.instruction == after.instruction && recording(before) == recording(after)
}

async fn again(app: &App, posted: &Posted, id: Option<String>, typed: Typed, failure: Failure) -> Page {
    let (status, sentence) = failure.sentence()?;
    let status = if status == StatusCode::CONFLICT { status } else { StatusCode::BAD_REQUEST };
    html(status, &form(app, &posted.caller, id, typed, Some(sentence)).await?)
}
