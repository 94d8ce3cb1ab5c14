//! Letting many deliveries run once more: they are counted first, it is confirmed, and it can be watched and stopped.

use askama::Template;
use axum::extract::{Path, State};
use midwatch_engine::{projector, redeliveries::Counted};
use midwatch_events::{Micros, id::RedeliveryId};
use midwatch_log::views::Order;
use midwatch_projections::delivery_redeliveries::{Redeliveries, RedeliveryRow, RedeliveryState};

use super::{
    deliveries::{FIELDS, Search, query_of},
    fields::Fields,
    frame::{Failure, Frame, Page, Section, html, ok},
    listing::{self, ROWS},
    names::Names,
    status::Mark,
    text::{Shown, counted},
    time::When,
    visitor::{Posted, Visitor, seen},
};
use crate::{app::App, auth::Caller, error::Problem};

#[derive(Template)]
#[template(path = "redelivery_plan.html")]
struct PlanPage {
    frame: Frame,
    error: Option<String>,
    count: u64,
    counted: String,
    through: u64,
    /// The search, field by field.
    fields: Vec<(&'static str, String)>,
    back: String,
}

async fn planned(app: &App, caller: &Caller, fields: &Fields, error: Option<String>) -> Result<PlanPage, Failure> {
    let frame = Frame::new(app, caller, Section::Triggers, "Let many run once more", &Fields::default()).await?;
    let search = Search::of(fields)?;
    if search.sender_id.is_some() {
        let sentence = "many are let run once more by trigger, outcome, event type and time, not by their sender's id";
        return Err(Problem::bad("invalid", sentence).into());
    }
    let Counted { count, through } = app.engine.count_redelivery(&search.matching).await?;
    let filled = FIELDS.iter().filter_map(|name| Some((*name, fields.filled(name)?.to_owned())));
    Ok(PlanPage {
        frame,
        error,
        count,
        counted: counted(count, "delivery", "deliveries"),
        through,
        fields: filled.collect(),
        back: format!("/deliveries?{}", query_of(fields)),
    })
}

/// `GET /redeliveries/plan`: counts, and changes nothing.
pub(super) async fn plan(State(app): State<App>, Visitor(caller): Visitor, query: Fields) -> Page {
    caller.must_be_admin()?;
    ok(&planned(&app, &caller, &query, None).await?)
}

/// `POST /redeliveries`: those that were counted, and no others.
pub(super) async fn start(State(app): State<App>, posted: Posted) -> Page {
    let posted = posted.admin()?;
    let number = |name| posted.fields.get(name).parse().unwrap_or(0);
    let counted = Counted { count: number("count"), through: number("through") };
    let matching = Search::of(&posted.fields)?.matching;
    let done = app.engine.start_redelivery(&matching, counted, &posted.caller.origin(), posted.request.as_ref()).await;
    match done {
        Ok(done) => seen(&app, done.position, "/redeliveries?done=redelivering").await,
        Err(error) => {
            let (status, sentence) = Failure::from(error).sentence()?;
            html(status, &planned(&app, &posted.caller, &posted.fields, Some(sentence)).await?)
        }
    }
}

#[derive(Template)]
#[template(path = "redeliveries.html")]
struct RedeliveriesPage {
    frame: Frame,
    rows: Vec<Line>,
    next: Option<String>,
    first: bool,
}

struct Line {
    id: String,
    of: Shown,
    mark: Mark,
    running: bool,
    count: u64,
    looked_at: u64,
    redelivered: u64,
    left_out: u64,
    started: When,
    ended: Option<When>,
}

impl Line {
    async fn new(app: &App, names: &mut Names, row: &RedeliveryRow, now: Micros) -> Result<Self, Failure> {
        let mut of = Vec::new();
        if let Some(trigger) = row.trigger {
            of.push(format!("to {}", names.trigger(&app.engine, trigger).await?));
        }
        of.extend(row.status.as_ref().map(|status| status.replace('_', " ")));
        of.extend(row.event_type.as_ref().map(|kind| format!("about {kind}")));
        of.extend(row.since.map(|since| format!("since {since}")));
        of.extend(row.until.map(|until| format!("before {until}")));
        let of = if of.is_empty() { "all".to_owned() } else { of.join(", ") };
        Ok(Self {
            id: row.id.to_string(),
            of: Shown::short(&of, 300),
            mark: match row.state {
                RedeliveryState::Running => Mark::live("goes on"),
                RedeliveryState::Finished => Mark::good("finished"),
                RedeliveryState::Cancelled => Mark::idle("stopped"),
            },
            running: row.state == RedeliveryState::Running,
            count: row.count,
            looked_at: row.redelivered.saturating_add(row.left_out),
            redelivered: row.redelivered,
            left_out: row.left_out,
            started: When::utc(row.started_at, now),
            ended: When::maybe(row.ended_at, now),
        })
    }
}

/// `GET /redeliveries`.
pub(super) async fn page(State(app): State<App>, Visitor(caller): Visitor, query: Fields) -> Page {
    caller.must_read_all()?;
    let frame = Frame::new(&app, &caller, Section::Triggers, "Redeliveries", &query).await?;
    let after = listing::after(&query);
    let first = after.is_none();
    let order = Order { column: "position", descending: true };
    let found = projector::page::<Redeliveries>(&app.engine, vec![], order, ROWS, after).await?;
    let next = found.last().filter(|_| found.len() == ROWS as usize);
    let next = next.map(|(_, cursor)| listing::next("/redeliveries", &query, cursor));
    let (mut names, mut rows) = (Names::default(), Vec::with_capacity(found.len()));
    for (row, _) in &found {
        rows.push(Line::new(&app, &mut names, row, frame.now).await?);
    }
    ok(&RedeliveriesPage { frame, rows, next, first })
}

/// `POST /redeliveries/{id}/cancel`.
pub(super) async fn cancel(State(app): State<App>, Path(id): Path<String>, posted: Posted) -> Page {
    let posted = posted.admin()?;
    let id: RedeliveryId = id.parse().map_err(|_| Failure(Problem::not_found("redelivery")))?;
    let done = app.engine.cancel_redelivery(id, &posted.caller.origin(), posted.request.as_ref()).await?;
    seen(&app, done.position, "/redeliveries?done=redelivery-cancelled").await
}
