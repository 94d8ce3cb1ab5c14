//! Watch: what runs now, what comes next, and what needs somebody.

use askama::Template;
use axum::{extract::State, http::StatusCode};
use midwatch_commands::calendar::Schedule;
use midwatch_engine::projector;
use midwatch_events::Micros;
use midwatch_log::views::{Cell, Condition, Order, Test};
use midwatch_projections::{
    routines_list::RoutinesList,
    runs::{RunRow, Runs},
};

use super::{
    fields::Fields,
    frame::{Failure, Frame, Page, Section, html, ok},
    names::Names,
    runs::RunLine,
    scope,
    text::Shown,
    time::When,
    visitor::Visitor,
};
use crate::{app::App, auth::Caller};

mod attention;

use attention::Item;

/// Live runs shown, of each kind.
const LIVE: u32 = 20;
/// Routines on the time line.
const LANES: u32 = 12;
/// What the time line spans, in seconds.
const SPAN_S: i64 = 86_400;
/// Windows drawn on one lane at the most: those of a minute routine.
const WINDOWS: usize = 1_441;
/// How wide a window is drawn, in thousandths of the time line.
const TICK: u32 = 4;

#[derive(Template)]
#[template(path = "watch.html")]
struct WatchPage {
    frame: Frame,
    live: Live,
    lanes: Vec<Lane>,
    attention: Vec<Item>,
    error: Option<String>,
    reason: String,
}

/// What runs now: what a person is watching apart from what nobody is.
#[derive(Template)]
#[template(path = "live_runs.html")]
struct LiveFragment {
    live: Live,
}

struct Live {
    attended: Vec<RunLine>,
    unattended: Vec<RunLine>,
}

/// One routine on the time line.
struct Lane {
    id: String,
    name: Shown,
    next: When,
    /// How many windows there are on it.
    windows: usize,
    /// Where they begin and how wide they are, in thousandths of the time line; those that touch are one.
    bars: Vec<(u32, u32)>,
}

/// `GET /`.
pub(super) async fn page(State(app): State<App>, Visitor(caller): Visitor, query: Fields) -> Page {
    ok(&view(&app, &caller, &query, None, "").await?)
}

/// The page again, with why the halt was not changed.
pub(crate) async fn refused(app: &App, caller: &Caller, reason: &str, failure: Failure) -> Page {
    let (status, sentence) = failure.sentence()?;
    html(status, &view(app, caller, &Fields::default(), Some(sentence), reason).await?)
}

/// `GET /watch/live`: the live runs alone, for the page that is open.
pub(super) async fn live_runs(State(app): State<App>, Visitor(caller): Visitor) -> Page {
    let now = app.engine.world().clock.now();
    html(StatusCode::OK, &LiveFragment { live: live(&app, &caller, now).await? })
}

async fn view(
    app: &App,
    caller: &Caller,
    query: &Fields,
    error: Option<String>,
    reason: &str,
) -> Result<WatchPage, Failure> {
    let frame = Frame::new(app, caller, Section::Watch, "Watch", query).await?;
    let now = frame.now;
    Ok(WatchPage {
        live: live(app, caller, now).await?,
        lanes: lanes(app, caller, now).await?,
        attention: attention::items(app, caller, now).await?,
        error,
        reason: reason.to_owned(),
        frame,
    })
}

/// Runs that have not ended and run attended or not, the newest first.
pub(crate) async fn live_rows(app: &App, caller: &Caller, unattended: bool) -> Result<Vec<RunRow>, Failure> {
    let states = vec![Cell::Text("waiting".to_owned()), Cell::Text("running".to_owned())];
    let mut filters = vec![
        Condition { column: "state", is: Test::In(states) },
        Condition { column: "unattended", is: Test::Eq(Cell::Int(i64::from(unattended))) },
    ];
    filters.extend(scope::owned(caller));
    let order = Order { column: "opened_at", descending: true };
    let found = projector::page::<Runs>(&app.engine, filters, order, LIVE, None).await?;
    Ok(found.into_iter().map(|(row, _)| row).collect())
}

async fn live(app: &App, caller: &Caller, now: Micros) -> Result<Live, Failure> {
    let mut names = Names::default();
    let mut sides = [Vec::new(), Vec::new()];
    for (side, unattended) in sides.iter_mut().zip([false, true]) {
        for row in live_rows(app, caller, unattended).await? {
            side.push(RunLine::new(&app.engine, &row, &mut names, now).await?);
        }
    }
    let [attended, unattended] = sides;
    Ok(Live { attended, unattended })
}

async fn lanes(app: &App, caller: &Caller, now: Micros) -> Result<Vec<Lane>, Failure> {
    let mut filters = vec![Condition { column: "next_window", is: Test::NotNull }];
    filters.extend(scope::owned(caller));
    let order = Order { column: "next_window", descending: false };
    let mut lanes = Vec::new();
    for (row, _) in projector::page::<RoutinesList>(&app.engine, filters, order, LANES, None).await? {
        let (Ok(schedule), Some(next)) = (Schedule::parse(&row.schedule), row.next_window) else { continue };
        // One second earlier, so that the next window itself is on the line.
        let windows = schedule.windows(next.plus_s(-1), row.anchor, now.plus_s(SPAN_S), WINDOWS);
        lanes.push(Lane {
            id: row.id.to_string(),
            name: Shown::line(&row.name),
            next: When::in_zone(next, schedule.zone(), now),
            windows: windows.len(),
            bars: bars(windows.iter().map(|window| place(window.at, now))),
        });
    }
    Ok(lanes)
}

fn bars(places: impl Iterator<Item = u32>) -> Vec<(u32, u32)> {
    let mut bars: Vec<(u32, u32)> = Vec::new();
    for x in places {
        match bars.last_mut() {
            Some((start, width)) if x <= *start + *width + 1 => *width = x + TICK - *start,
            _ => bars.push((x, TICK)),
        }
    }
    bars
}

/// In thousandths of the time line.
fn place(at: Micros, now: Micros) -> u32 {
    let seconds = (at.since(now) / 1_000_000).clamp(0, SPAN_S);
    u32::try_from(seconds * 1_000 / SPAN_S).unwrap_or(0).min(1_000 - TICK)
}
