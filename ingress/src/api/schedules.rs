//! When is something due? Of a schedule before there is a routine, and of a routine.

use axum::{Json, extract::State};
use midwatch_commands::calendar::{Dst, Schedule, Window, Zone, disagreements, tzdb_version};
use midwatch_engine::projector;
use midwatch_events::{Micros, id::RoutineId};
use midwatch_projections::{
    projection::rfc3339,
    routines_list::{RoutineState, RoutinesList},
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

use super::{Asked, Path, Query, shapes};
use crate::{app::App, auth::Caller, error::Problem};

const COUNT: usize = 10;
const COUNT_MAX: usize = 200;
const YEAR_S: i64 = 365 * 86_400;

/// A schedule to try.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PreviewOf {
    /// The schedule, such as `{"kind":"weekly","zone":"Europe/Berlin","days":["mon"],"times":["08:00"]}`.
    #[schema(value_type = Object)]
    schedule: Box<RawValue>,
    /// Windows strictly after this instant (RFC 3339); now, if nothing is said.
    from: Option<String>,
    /// How many windows, 1 to 200; 10 if nothing is said.
    count: Option<usize>,
    /// Whether the work is a recording, which runs no Bot.
    #[serde(default)]
    recording: bool,
    /// A zone in which the windows are shown as well, such as `America/New_York`.
    reader_zone: Option<String>,
}

/// When a routine would be due.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SchedulePreview)]
pub(crate) struct Preview {
    /// The schedule as a sentence.
    in_words: String,
    windows: Vec<PreviewWindow>,
    /// What is not obvious about it, in sentences.
    notes: Vec<String>,
    /// Where an older copy of the time-zone data says something else for its zone within a year.
    zone_data: Option<String>,
    /// The release of the time-zone data.
    tzdb: &'static str,
    /// Windows in the 28 days after `from`, by 4.
    runs_per_week: f64,
    /// The same for a Bot; 0 for a recording.
    agent_runs_per_week: f64,
}

/// One window.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PreviewWindow {
    /// In UTC.
    #[schema(value_type = String, format = DateTime)]
    utc: String,
    /// The same instant with the zone's offset.
    #[schema(value_type = String, format = DateTime)]
    local: String,
    /// What daylight saving did to it.
    #[schema(value_type = shapes::Dst)]
    dst: Dst,
    /// The same instant in the reader's zone, where one was named.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    reader: Option<String>,
    /// When it starts, with the routine's jitter: lateness counts from here.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    effective: Option<String>,
}

impl PreviewWindow {
    fn new(window: Window, reader: Option<&Zone>) -> Self {
        let reader = reader.map(|zone| zone.local(window.at));
        Self { utc: window.at.to_string(), local: window.local, dst: window.dst, reader, effective: None }
    }
}

/// The next windows of a schedule, and how many runs a week it makes. Changes nothing.
#[utoipa::path(post, path = "/api/v1/schedules/preview", tag = "routines", request_body = PreviewOf,
    responses((status = 200, body = Preview), (status = 400, body = shapes::Problem)))]
pub(crate) async fn preview(State(app): State<App>, asked: Asked<PreviewOf>) -> Result<Json<Preview>, Problem> {
    let PreviewOf { schedule, from, count, recording, reader_zone } = asked.body;
    let schedule = Schedule::parse(schedule.get())?;
    let reader = reader_zone.as_deref().map(Zone::named).transpose()?;
    let from = match from {
        None => app.engine.log().store_time().await?,
        Some(text) => instant(&text)?,
    };
    let windows = schedule.preview(from, None, counted(count)?);
    let runs_per_week = schedule.runs_per_week(from, None);
    Ok(Json(Preview {
        in_words: schedule.in_words(),
        windows: windows.into_iter().map(|window| PreviewWindow::new(window, reader.as_ref())).collect(),
        notes: schedule.notes(),
        zone_data: zone_data(&schedule, from),
        tzdb: tzdb_version(),
        runs_per_week,
        agent_runs_per_week: if recording { 0.0 } else { runs_per_week },
    }))
}

/// Which windows of a routine.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Wanted {
    /// How many, 1 to 200; 10 if nothing is said.
    count: Option<usize>,
    /// A zone in which they are shown as well.
    reader_zone: Option<String>,
}

/// When a routine is due.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Windows {
    /// None while it is switched off.
    windows: Vec<PreviewWindow>,
    /// Where an older copy of the time-zone data says something else for its zone within a year.
    zone_data: Option<String>,
    /// The release of the time-zone data.
    tzdb: &'static str,
}

/// A routine's next windows, each with the instant at which it starts.
#[utoipa::path(get, path = "/api/v1/routines/{id}/windows", tag = "routines",
    params(("id" = String, Path, description = "The routine"), Wanted),
    responses((status = 200, body = Windows), (status = 404, body = shapes::Problem)))]
pub(crate) async fn windows(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<RoutineId>,
    Query(wanted): Query<Wanted>,
) -> Result<Json<Windows>, Problem> {
    let row = projector::get::<RoutinesList>(&app.engine, &id.to_string()).await?;
    let row = row.filter(|row| row.state != RoutineState::Deleted && caller.sees(row.owner));
    let row = row.ok_or_else(|| Problem::not_found("routine"))?;
    let reader = wanted.reader_zone.as_deref().map(Zone::named).transpose()?;
    let count = counted(wanted.count)?;
    let schedule = Schedule::parse(&row.schedule)?;
    let due = row.next_window.map(|next| schedule.preview(next.plus_s(-1), Some(row.anchor), count));
    let shown = |window: Window| {
        let effective = schedule.effective_at(window.at, id.uuid().as_bytes());
        PreviewWindow {
            effective: Some(schedule.zone().local(effective)),
            ..PreviewWindow::new(window, reader.as_ref())
        }
    };
    Ok(Json(Windows {
        windows: due.unwrap_or_default().into_iter().map(shown).collect(),
        zone_data: zone_data(&schedule, app.engine.log().store_time().await?),
        tzdb: tzdb_version(),
    }))
}

fn counted(count: Option<usize>) -> Result<usize, Problem> {
    let count = count.unwrap_or(COUNT);
    if (1..=COUNT_MAX).contains(&count) {
        return Ok(count);
    }
    Err(Problem::bad("invalid", format!("`count` is 1 to {COUNT_MAX}, not {count}")))
}

/// The first difference of the two copies of the zone data, in words; a one-off has its offset and needs neither.
fn zone_data(schedule: &Schedule, from: Micros) -> Option<String> {
    if schedule.once_at().is_some() {
        return None;
    }
    let zone = schedule.zone().name();
    disagreements(zone, from, from.plus_s(YEAR_S)).ok()?.first().map(|first| first.in_words(zone))
}

fn instant(text: &str) -> Result<Micros, Problem> {
    rfc3339::parse(text).ok_or_else(|| {
        Problem::bad(
            "invalid",
            format!("`from` {text:?} is not an instant; write one such as 2026-12-01T08:00:00+01:00"),
        )
    })
}
