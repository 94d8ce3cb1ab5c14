//! Routines: one row each.

use askama::Template;
use axum::extract::State;
use midwatch_commands::calendar::Schedule;
use midwatch_engine::projector;
use midwatch_events::Micros;
use midwatch_log::views::{Cell, Condition, Order, Test};
use midwatch_projections::routines_list::{RoutineRow, RoutinesList};

use super::{
    fields::Fields,
    frame::{Frame, Page, Section, ok},
    listing::{self, ROWS},
    names::Names,
    scope,
    status::{Mark, Ticked, reason},
    text::Shown,
    time::When,
    visitor::Visitor,
};
use crate::app::App;

#[derive(Template)]
#[template(path = "routines.html")]
struct RoutinesPage {
    frame: Frame,
    rows: Vec<Row>,
    next: Option<String>,
    first: bool,
}

/// One routine in a list.
pub(crate) struct Row {
    pub(crate) id: String,
    pub(crate) name: Shown,
    pub(crate) bot: Shown,
    pub(crate) bot_id: String,
    pub(crate) schedule: Shown,
    pub(crate) mark: Mark,
    pub(crate) live_run: Option<String>,
    /// Why it is paused or suspended.
    pub(crate) why: Option<Shown>,
    pub(crate) next: Option<When>,
    pub(crate) last: Option<Last>,
    /// The last endings, the oldest first; the projection keeps 30.
    pub(crate) strip: Vec<Ticked>,
    /// The same in words: `27 succeeded, 2 missed, 1 failed`.
    pub(crate) tally: String,
}

/// How a routine ended last.
pub(crate) struct Last {
    pub(crate) mark: Mark,
    pub(crate) reason: Option<String>,
    pub(crate) at: Option<When>,
}

impl Row {
    pub(crate) fn new(row: &RoutineRow, bot: Shown, now: Micros) -> Self {
        let schedule = Schedule::parse(&row.schedule).ok();
        let next = match (&schedule, row.next_window) {
            (Some(schedule), Some(at)) => Some(When::in_zone(at, schedule.zone(), now)),
            (None, Some(at)) => Some(When::utc(at, now)),
            (_, None) => None,
        };
        let last = row.last_outcome.as_deref().map(|outcome| Last {
            mark: Mark::ending(outcome),
            reason: row.last_reason.as_deref().map(reason),
            at: When::maybe(row.last_at, now),
        });
        Self {
            id: row.id.to_string(),
            name: Shown::line(&row.name),
            bot,
            bot_id: row.bot.to_string(),
            schedule: Shown::line(&in_words(&row.schedule, schedule.as_ref())),
            mark: Mark::routine(row),
            live_run: row.live_run.map(|run| run.to_string()),
            why: row.reason.as_deref().map(Shown::line),
            next,
            last,
            strip: row.recent.iter().map(|ending| Ticked::new(ending, schedule.as_ref(), now)).collect(),
            tally: tally(row),
        }
    }
}

/// How many of the last endings were which, the most first.
fn tally(row: &RoutineRow) -> String {
    let mut counts: Vec<(String, usize)> = Vec::new();
    for ending in &row.recent {
        match counts.iter_mut().find(|(outcome, _)| *outcome == ending.outcome) {
            Some((_, count)) => *count += 1,
            None => counts.push((ending.outcome.clone(), 1)),
        }
    }
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let said: Vec<String> =
        counts.iter().map(|(outcome, count)| format!("{count} {}", outcome.replace('_', " "))).collect();
    said.join(", ")
}

/// A schedule in words; one that cannot be read, as it is stored.
pub(crate) fn in_words(stored: &str, schedule: Option<&Schedule>) -> String {
    schedule.map_or_else(|| stored.to_owned(), Schedule::in_words)
}

/// `GET /routines`.
pub(super) async fn page(State(app): State<App>, Visitor(caller): Visitor, query: Fields) -> Page {
    let frame = Frame::new(&app, &caller, Section::Routines, "Routines", &query).await?;
    let mut filters = vec![Condition { column: "state", is: Test::Ne(Cell::Text("deleted".to_owned())) }];
    filters.extend(scope::owned(&caller));
    let order = Order { column: "name", descending: false };
    let after = listing::after(&query);
    let first = after.is_none();
    let found = projector::page::<RoutinesList>(&app.engine, filters, order, ROWS, after).await?;
    let next = found.last().filter(|_| found.len() == ROWS as usize);
    let next = next.map(|(_, cursor)| listing::next("/routines", &query, cursor));
    let mut names = Names::default();
    let mut rows = Vec::with_capacity(found.len());
    for (row, _) in &found {
        rows.push(Row::new(row, names.bot(&app.engine, row.bot).await?, frame.now));
    }
    ok(&RoutinesPage { frame, rows, next, first })
}
