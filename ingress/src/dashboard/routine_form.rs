//! The form that makes or changes a routine. What was typed is kept until it is right.

use askama::Template;
use axum::{
    extract::{Path, State},
    http::StatusCode,
};
use midwatch_commands::{
    calendar::{Schedule, Zone, zone_names},
    routine::Edit,
};
use midwatch_engine::{projector, routines::NewRoutine};
use midwatch_events::{
    id::BotId,
    routine::{Limits, Work},
    run::WorkKind,
};
use midwatch_log::views::{Cell, Condition, Order, Test};
use midwatch_projections::{bots::Bots, routines_list::RoutineRow};

use super::{
    days::Choice,
    fields::Fields,
    frame::{Failure, Frame, Page, Section, html, ok},
    limits_form::LimitFields,
    routine,
    schedule_form::{Previewing, ScheduleFields, Wrong},
    scope,
    text::{Shown, indented},
    viewing::Viewing,
    visitor::{Posted, Visitor, seen},
};
use crate::{app::App, auth::Caller, error::Problem};

#[derive(Template)]
#[template(path = "routine_form.html")]
struct RoutineForm {
    frame: Frame,
    /// The routine that is changed; none for a new one.
    id: Option<String>,
    /// What was refused; with the field it is about, where it is about one.
    wrong: Option<Wrong>,
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
    limits: LimitFields,
    version: String,
    bot: String,
}

impl Typed {
    fn fresh(reader: &Zone) -> Self {
        Self {
            name: String::new(),
            recorded: false,
            instruction: String::new(),
            recording: String::new(),
            schedule: ScheduleFields::fresh(reader),
            limits: LimitFields::stored(&Limits::default()),
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
            limits: LimitFields::typed(fields),
            version: fields.get("version").to_owned(),
            bot: fields.get("bot").to_owned(),
        }
    }

    fn stored(row: &RoutineRow, work: Option<Work>, reader: &Zone) -> Self {
        let work = work.unwrap_or_default();
        Self {
            name: row.name.clone(),
            recorded: row.work == WorkKind::Recording,
            instruction: work.instruction.unwrap_or_default(),
            recording: work.recording.map(|text| indented(&text)).unwrap_or_default(),
            schedule: ScheduleFields::stored(&row.schedule, reader),
            limits: LimitFields::stored(&row.limits),
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

    /// Whether the schedule has bounds, which are then shown.
    fn bounded(&self) -> bool {
        let ScheduleFields { starts_at, ends_at, jitter_s, .. } = &self.schedule;
        [starts_at, ends_at, jitter_s].iter().any(|field| !field.is_empty())
    }

    /// Everything that can be seen to be wrong before it is asked for.
    ///
    /// # Errors
    /// The first field that is wrong, in the order of the form.
    fn check(&self) -> Result<(String, Limits), Wrong> {
        if self.name.is_empty() {
            return Err(Wrong::new("name", "A routine needs a name."));
        }
        if self.bot.parse::<BotId>().is_err() {
            return Err(Wrong::new("bot", "Choose the Bot that does the work."));
        }
        self.schedule.schedule()?;
        Ok((self.schedule.to_json()?, self.limits.read()?))
    }
}

/// Why a form comes again.
enum Refused {
    /// A field of it.
    Field(Wrong),
    /// What it asked for.
    Whole(Failure),
}

impl Refused {
    fn whole(error: impl Into<Problem>) -> Self {
        Self::Whole(Failure(error.into()))
    }
}

async fn form(
    app: &App,
    caller: &Caller,
    viewing: &Viewing,
    id: Option<String>,
    typed: Typed,
    wrong: Option<Wrong>,
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
    let previewing = Previewing::of(&typed.schedule, typed.recorded, &viewing.zone, frame.now);
    Ok(RoutineForm { bots: bots.collect(), zones: zone_names(), previewing, frame, id, wrong, typed })
}

/// `GET /routines/new`; with a query, the fields as typed, which is the preview where no script runs.
pub(super) async fn new(State(app): State<App>, Visitor(caller): Visitor, viewing: Viewing, query: Fields) -> Page {
    caller.must_change()?;
    let typed = if query.has("kind") { Typed::from(&query) } else { Typed::fresh(&viewing.zone) };
    ok(&form(&app, &caller, &viewing, None, typed, None).await?)
}

/// `GET /routines/{id}/edit`.
pub(super) async fn edit_page(
    State(app): State<App>,
    Visitor(caller): Visitor,
    Path(id): Path<String>,
    viewing: Viewing,
    query: Fields,
) -> Page {
    let row = scope::changes_routine(&app, &caller, &id).await?;
    let typed = if query.has("kind") {
        Typed::from(&query)
    } else {
        Typed::stored(&row, routine::work(&app, row.id).await?, &viewing.zone)
    };
    ok(&form(&app, &caller, &viewing, Some(row.id.to_string()), typed, None).await?)
}

/// `POST /routines`.
pub(super) async fn create(State(app): State<App>, viewing: Viewing, posted: Posted) -> Page {
    posted.caller.must_change()?;
    let typed = Typed::from(&posted.fields);
    match created(&app, &posted, &typed).await {
        Ok((position, path)) => seen(&app, position, &path).await,
        Err(refused) => again(&app, &posted, &viewing, None, typed, refused).await,
    }
}

async fn created(app: &App, posted: &Posted, typed: &Typed) -> Result<(u64, String), Refused> {
    let (schedule, limits) = typed.check().map_err(Refused::Field)?;
    let no_bot = || Refused::Field(Wrong::new("bot", "Choose the Bot that does the work."));
    let new = NewRoutine {
        name: typed.name.clone(),
        bot: typed.bot.parse().map_err(|_| no_bot())?,
        schedule,
        work: typed.work(),
        limits,
        owner: posted.caller.user(),
    };
    let done = app.engine.create_routine(&new, &posted.caller.origin(), posted.request.as_ref()).await;
    let done = done.map_err(Refused::whole)?;
    Ok((done.position, format!("/routines/{}?done=created", done.value)))
}

/// `POST /routines/{id}`.
pub(super) async fn edit(State(app): State<App>, Path(id): Path<String>, viewing: Viewing, posted: Posted) -> Page {
    let row = scope::changes_routine(&app, &posted.caller, &id).await?;
    let typed = Typed::from(&posted.fields);
    match edited(&app, &posted, &row, &typed).await {
        Ok((position, path)) => seen(&app, position, &path).await,
        Err(refused) => again(&app, &posted, &viewing, Some(row.id.to_string()), typed, refused).await,
    }
}

/// Only what differs becomes a change: a schedule that is written again would otherwise drop the windows that are due.
async fn edited(app: &App, posted: &Posted, row: &RoutineRow, typed: &Typed) -> Result<(u64, String), Refused> {
    let (schedule, limits) = typed.check().map_err(Refused::Field)?;
    let same = Schedule::parse(&schedule).is_ok_and(|new| new.to_json() == row.schedule);
    let before = routine::work(app, row.id).await.map_err(Refused::Whole)?;
    let unchanged = before.as_ref().is_some_and(|before| same_work(before, &typed.work()));
    let edit = Edit {
        name: Some(typed.name.clone()).filter(|name| *name != row.name),
        schedule: Some(schedule).filter(|_| !same),
        work: Some(typed.work()).filter(|_| !unchanged),
        limits: Some(limits).filter(|limits| *limits != row.limits),
        ..Edit::default()
    };
    let expected = typed.version.parse().ok();
    let done = app.engine.edit_routine(row.id, edit, expected, &posted.caller.origin(), posted.request.as_ref()).await;
    Ok((done.map_err(Refused::whole)?.position, format!("/routines/{}?done=saved", row.id)))
}

/// The form shows a recording with line breaks of its own.
fn same_work(before: &Work, after: &Work) -> bool {
    let recording = |work: &Work| work.recording.as_deref().map(indented);
    before.instruction == after.instruction && recording(before) == recording(after)
}

async fn again(
    app: &App,
    posted: &Posted,
    viewing: &Viewing,
    id: Option<String>,
    typed: Typed,
    refused: Refused,
) -> Page {
    let (status, wrong) = match refused {
        Refused::Field(wrong) => (StatusCode::BAD_REQUEST, wrong),
        Refused::Whole(failure) => {
            let (status, sentence) = failure.sentence()?;
            let status = if status == StatusCode::CONFLICT { status } else { StatusCode::BAD_REQUEST };
            (status, Wrong::new("", sentence))
        }
    };
    html(status, &form(app, &posted.caller, viewing, id, typed, Some(wrong)).await?)
}
