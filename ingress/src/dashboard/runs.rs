//! Runs: the newest first.

use askama::Template;
use axum::extract::State;
use midwatch_engine::{Engine, projector};
use midwatch_events::{Micros, run::Cause};
use midwatch_log::views::{Cell, Condition, Order, Test};
use midwatch_projections::runs::{RunRow, Runs};

use super::{
    days::Choice,
    fields::Fields,
    frame::{Failure, Frame, Page, Section, ok},
    listing::{self, ROWS},
    names::Names,
    scope,
    status::{Mark, reason},
    text::{Shown, short_id, spaced},
    time::{When, span},
    visitor::Visitor,
};
use crate::app::App;

#[derive(Template)]
#[template(path = "runs.html")]
struct RunsPage {
    frame: Frame,
    rows: Vec<RunLine>,
    next: Option<String>,
    first: bool,
    filters: Vec<Choice>,
}

/// A run in a list.
pub(crate) struct RunLine {
    pub(crate) id: String,
    pub(crate) short: String,
    /// What it belongs to: a routine or a trigger.
    pub(crate) of: Shown,
    pub(crate) of_path: Option<String>,
    pub(crate) bot: Shown,
    pub(crate) cause: &'static str,
    pub(crate) mark: Mark,
    pub(crate) reason: Option<String>,
    pub(crate) opened: When,
    pub(crate) took: Option<String>,
    pub(crate) calls: u32,
    pub(crate) refused: u32,
    pub(crate) unattended: bool,
    pub(crate) headline: Option<Shown>,
}

/// Why it runs, in words.
pub(crate) fn cause(cause: Cause) -> &'static str {
    match cause {
        Cause::Schedule => "by its schedule",
        Cause::CatchUp => "to catch up on a missed window",
        Cause::Person => "Run now, by a person",
        Cause::Delivery => "by a delivery",
        Cause::Session => "by an agent's session",
    }
}

impl RunLine {
    pub(crate) async fn new(engine: &Engine, row: &RunRow, names: &mut Names, now: Micros) -> Result<Self, Failure> {
        let (of, of_path) = match (row.routine, row.trigger) {
            (Some(id), _) => (names.routine(engine, id).await?, Some(format!("/routines/{id}"))),
            (None, Some(id)) => (names.trigger(engine, id).await?, Some(format!("/triggers/{id}"))),
            (None, None) => (Shown::line("no routine"), None),
        };
        Ok(Self {
            id: row.id.to_string(),
            short: short_id(row.id),
            of,
            of_path,
            bot: names.bot(engine, row.bot).await?,
            cause: cause(row.cause),
            mark: Mark::run(row),
            reason: row.reason.map(|why| reason(&super::text::word(why))),
            opened: When::utc(row.opened_at, now),
            took: row.duration_us.map(span),
            calls: row.tool_calls,
            refused: row.refused_calls,
            unattended: row.unattended,
            headline: row.headline.as_deref().map(|line| Shown::short(line, 160)),
        })
    }
}

const SHOWN: [(&str, &str); 6] = [
    ("", "All"),
    ("live", "Live"),
    ("succeeded", "Succeeded"),
    ("failed", "Failed"),
    ("refused", "Refused"),
    ("unattended", "Unattended"),
];

fn conditions(show: &str) -> Vec<Condition> {
    let texts = |words: &[&str]| words.iter().map(|word| Cell::Text((*word).to_owned())).collect();
    match show {
        "live" => vec![Condition { column: "state", is: Test::In(texts(&["waiting", "running"])) }],
        "succeeded" | "refused" => vec![Condition { column: "outcome", is: Test::In(texts(&[show])) }],
        // Whatever was neither a success nor somebody's wish.
        "failed" => {
            let outcomes = texts(&["failed", "stopped", "timed_out", "abandoned"]);
            vec![Condition { column: "outcome", is: Test::In(outcomes) }]
        }
        "unattended" => vec![Condition { column: "unattended", is: Test::Eq(Cell::Int(1)) }],
        _ => Vec::new(),
    }
}

/// `GET /runs`.
pub(super) async fn page(State(app): State<App>, Visitor(caller): Visitor, query: Fields) -> Page {
    let frame = Frame::new(&app, &caller, Section::Runs, "Runs", &query).await?;
    let show = query.get("show");
    let mut filters = conditions(show);
    filters.extend(scope::owned(&caller));
    let order = Order { column: "opened_at", descending: true };
    let after = listing::after(&query);
    let first = after.is_none();
    let found = projector::page::<Runs>(&app.engine, filters, order, ROWS, after).await?;
    let next = found.last().filter(|_| found.len() == ROWS as usize);
    let next = next.map(|(_, cursor)| listing::next("/runs", &query, cursor));
    let mut names = Names::default();
    let mut rows = Vec::with_capacity(found.len());
    for (row, _) in &found {
        rows.push(RunLine::new(&app.engine, row, &mut names, frame.now).await?);
    }
    let filters = SHOWN.iter().map(|(value, name)| Choice { value: *value, name: *name, chosen: *value == show });
    ok(&RunsPage { frame, rows, next, first, filters: filters.collect() })
}

/// `waiting` or `running`, for a run's header.
pub(crate) fn state(row: &RunRow) -> String {
    spaced(row.state)
}
