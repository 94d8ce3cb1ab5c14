//! Schedules before there is a routine: when would it be due?

use axum::{Json, extract::State};
use midwatch_commands::calendar::{Dst, Schedule, Window};
use midwatch_events::Micros;
use midwatch_projections::projection::rfc3339;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::{Asked, shapes};
use crate::{app::App, error::Problem};

const COUNT: usize = 10;
const COUNT_MAX: usize = 200;

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
}

/// When a routine would be due.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Preview {
    windows: Vec<PreviewWindow>,
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
}

impl From<Window> for PreviewWindow {
    fn from(window: Window) -> Self {
        Self { utc: window.at.to_string(), local: window.local, dst: window.dst }
    }
}

/// The next windows of a schedule, and how many runs a week it makes. Changes nothing.
#[utoipa::path(post, path = "/api/v1/schedules/preview", tag = "routines", request_body = PreviewOf,
    responses((status = 200, body = Preview), (status = 400, body = shapes::Problem)))]
pub(crate) async fn preview(State(app): State<App>, asked: Asked<PreviewOf>) -> Result<Json<Preview>, Problem> {
    let PreviewOf { schedule, from, count, recording } = asked.body;
    let schedule = Schedule::parse(schedule.get())?;
    let from = match from {
        None => app.engine.log().store_time().await?,
        Some(text) => instant(&text)?,
    };
    let count = count.unwrap_or(COUNT);
    if !(1..=COUNT_MAX).contains(&count) {
        return Err(Problem::bad("invalid", format!("`count` is 1 to {COUNT_MAX}, not {count}")));
    }
    let runs_per_week = schedule.runs_per_week(from, None);
    Ok(Json(Preview {
        windows: schedule.preview(from, None, count).into_iter().map(PreviewWindow::from).collect(),
        runs_per_week,
        agent_runs_per_week: if recording { 0.0 } else { runs_per_week },
    }))
}

fn instant(text: &str) -> Result<Micros, Problem> {
    rfc3339::parse(text).ok_or_else(|| {
        Problem::bad(
            "invalid",
            format!("`from` {text:?} is not an instant; write one such as 2026-12-01T08:00:00+01:00"),
        )
    })
}
