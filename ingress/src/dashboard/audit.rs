//! Audit: every row with when, what, on what, Bot, attended and decision, by one filter language.

use askama::Template;
use axum::extract::State;
use midwatch_engine::projector;
use midwatch_events::Micros;
use midwatch_log::views::{Cell, Condition, Cursor, Order, Test};
use midwatch_projections::audit::{
    Audit, AuditRow,
    filter::{Filter, Op, WORDS},
};

use super::{
    fields::Fields,
    frame::{Failure, Frame, Page, Section, ok},
    listing::{self, ROWS},
    names::{self, Names},
    scope,
    status::{Mark, reason},
    text::{Shown, encoded},
    time::When,
    visitor::Visitor,
};
use crate::{api::audit::resolved, app::App, auth::Caller};

mod words;

/// Rows looked at for one page at the most, where the store cannot judge the filter alone.
const LOOKED_AT: usize = 2_000;

/// The quick filters: their name and what they stand for.
const QUICK: [(&str, &str); 6] = [
    ("Everything", ""),
    ("Refused", "decision:refused"),
    ("Going in circles", "event:repeat.threshold_crossed"),
    ("Missed", "outcome:missed"),
    ("Did not happen", "outcome:missed outcome:skipped outcome:unknown"),
    ("Unattended", "unattended:true"),
];

#[derive(Template)]
#[template(path = "audit.html")]
struct AuditPage {
    frame: Frame,
    q: Shown,
    error: Option<Shown>,
    quick: Vec<Quick>,
    rows: Vec<Row>,
    next: Option<String>,
    first: bool,
    words: String,
    json: String,
}

struct Quick {
    name: &'static str,
    path: String,
    here: bool,
}

/// One row of the audit view.
struct Row {
    position: u64,
    at: When,
    what: String,
    /// The event's type; its words alone say it where this binary knows it.
    event: Shown,
    known: bool,
    who: Shown,
    on: Option<Shown>,
    bot: Option<Shown>,
    routine: Option<(Shown, String)>,
    trigger: Option<(Shown, String)>,
    run: Option<String>,
    unattended: Option<bool>,
    mark: Option<Mark>,
    rule: Option<Shown>,
    why: Option<String>,
    repeat: Option<u32>,
    noted: bool,
}

/// `GET /audit`.
pub(super) async fn page(State(app): State<App>, Visitor(caller): Visitor, query: Fields) -> Page {
    let frame = Frame::new(&app, &caller, Section::Audit, "Audit", &query).await?;
    let q = query.get("q");
    let after = listing::after(&query);
    let first = after.is_none();
    let (found, last, error) = match resolved(&app.engine, q).await {
        Ok(filter) => {
            let (found, last) = rows(&app, &caller, &filter, after).await?;
            (found, last, None)
        }
        Err(problem) => {
            let (_, sentence) = Failure(problem).sentence()?;
            (Vec::new(), None, Some(Shown::line(&sentence)))
        }
    };
    let mut names = Names::default();
    let mut rows = Vec::with_capacity(found.len());
    for row in &found {
        rows.push(Row::new(&app, row, &mut names, frame.now).await?);
    }
    let quick = QUICK.iter().map(|(name, filter)| {
        let path = if filter.is_empty() { "/audit".to_owned() } else { format!("/audit?q={}", encoded(filter)) };
        Quick { name, path, here: *filter == q }
    });
    ok(&AuditPage {
        q: Shown::line(q),
        error,
        quick: quick.collect(),
        rows,
        next: last.map(|cursor| listing::next("/audit", &query, &cursor)),
        first,
        words: WORDS.join(", "),
        json: format!("/api/v1/audit?q={}", encoded(q)),
        frame,
    })
}

/// The store's form of a condition.
fn stored(condition: &midwatch_projections::audit::filter::Condition) -> Condition {
    let cell = |cell: &midwatch_projections::Cell| match cell {
        midwatch_projections::Cell::Null => Cell::Null,
        midwatch_projections::Cell::Int(number) => Cell::Int(*number),
        midwatch_projections::Cell::Text(text) => Cell::Text(text.clone()),
    };
    let is = match &condition.is {
        Op::OneOf(cells) => Test::In(cells.iter().map(cell).collect()),
        Op::AtLeast(least) => Test::Ge(cell(least)),
        Op::Below(limit) => Test::Lt(cell(limit)),
    };
    Condition { column: condition.column, is }
}

/// A page of rows, the newest first, and where the next begins.
async fn rows(
    app: &App,
    caller: &Caller,
    filter: &Filter,
    mut after: Option<Cursor>,
) -> Result<(Vec<AuditRow>, Option<Cursor>), Failure> {
    let mut filters: Vec<Condition> = filter.conditions().iter().map(stored).collect();
    filters.extend(scope::of_own_routines(app, caller).await?);
    let order = Order { column: "position", descending: true };
    let (mut found, mut looked) = (Vec::new(), 0);
    loop {
        let page = projector::page::<Audit>(&app.engine, filters.clone(), order, ROWS, after.clone()).await?;
        let full = page.len() == ROWS as usize;
        looked += page.len();
        for (row, cursor) in page {
            after = Some(cursor);
            if filter.matches(&row) {
                found.push(row);
            }
            if found.len() == ROWS as usize {
                return Ok((found, after));
            }
        }
        if !full {
            return Ok((found, None));
        }
        if looked >= LOOKED_AT {
            return Ok((found, after));
        }
    }
}

impl Row {
    async fn new(app: &App, row: &AuditRow, names: &mut Names, now: Micros) -> Result<Self, Failure> {
        let engine = &app.engine;
        let bot = match row.bot {
            Some(id) => Some(names.bot(engine, id).await?),
            None => None,
        };
        let routine = match row.routine {
            Some(id) => Some((names.routine(engine, id).await?, format!("/routines/{id}"))),
            None => None,
        };
        let trigger = match row.trigger {
            Some(id) => Some((names.trigger(engine, id).await?, format!("/triggers/{id}"))),
            None => None,
        };
        let on = row.fingerprint.as_deref().or(row.tool.as_deref()).or(row.subject.as_deref());
        let (what, known) = words::event(&row.event);
        Ok(Self {
            position: row.position,
            at: When::utc(row.at, now),
            what,
            event: Shown::line(&row.event),
            known,
            who: names::actor(engine, &row.actor).await?,
            on: on.map(|on| Shown::short(on, 200)),
            bot,
            routine,
            trigger,
            run: row.run.map(|run| run.to_string()),
            unattended: row.unattended,
            mark: mark(row),
            rule: row.rule.as_deref().map(Shown::line),
            why: row.reason.as_deref().filter(|_| row.decision.is_none() || row.rule.is_none()).map(reason),
            repeat: row.repeat_count.filter(|count| *count > 1),
            noted: row.enforced == Some(false),
        })
    }
}

/// An event that is no decision and has no ending gets no mark: nothing is ever dressed as allowed.
fn mark(row: &AuditRow) -> Option<Mark> {
    match (row.decision, row.outcome.as_deref(), row.event.as_str()) {
        // A call that ended carries its decision too; what it came to says more.
        (Some(_), Some(outcome), _) | (None, Some(outcome), _) => Some(Mark::ending(outcome)),
        (Some(decision), None, _) => Some(Mark::decision(decision)),
        (None, None, "repeat.threshold_crossed") => Some(Mark { shape: "↻", ..Mark::warn("going in circles") }),
        (None, None, _) => None,
    }
}
