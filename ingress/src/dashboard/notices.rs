//! Notices: who is told what happens here, what they were told, and each attempt at it. Admins only: whoever knows a
//! receiver's address may be let in by it alone.

use askama::Template;
use axum::{
    extract::{Path, State},
    http::StatusCode,
};
use midwatch_engine::{notices::NewReceiver, projector};
use midwatch_events::{
    Micros, StreamName,
    engine::{EngineContent, EngineEvent, NoticeKind},
    id::{NoticeId, ReceiverId},
};
use midwatch_gateway::{
    dialer::{self, Reach},
    notices::shown,
};
use midwatch_log::views::{Cell, Condition, Order, Test};
use midwatch_projections::{
    engine_notices::{NoticeRow, NoticeState, Notices},
    engine_receivers::{ReceiverRow, ReceiverState, Receivers},
};

use super::{
    days::Choice,
    fields::Fields,
    frame::{Failure, Frame, Page, Section, html, ok},
    listing::{self, ROWS},
    status::Mark,
    text::{Shown, indented, short_id, spaced, word},
    time::{When, span},
    visitor::{Posted, Visitor, seen},
};
use crate::{app::App, auth::Caller, error::Problem};

/// Attempts that a page shows of one notice; ten are made unless somebody asks again.
const ATTEMPTS: u32 = 200;

#[derive(Template)]
#[template(path = "notices.html")]
struct NoticesPage {
    frame: Frame,
    error: Option<String>,
    receivers: Vec<ReceiverLine>,
    name: String,
    url: String,
    heartbeat: String,
    kinds: Vec<Choice<String, String>>,
    log: Log,
}

/// A page of what was told.
struct Log {
    rows: Vec<NoticeLine>,
    states: Vec<Choice<&'static str, &'static str>>,
    path: String,
    next: Option<String>,
    first: bool,
}

struct ReceiverLine {
    id: String,
    name: Shown,
    url: Shown,
    about: String,
    heartbeat: Option<String>,
    added: When,
    removed: bool,
}

struct NoticeLine {
    id: String,
    short: String,
    kind: String,
    receiver: String,
    receiver_name: Shown,
    mark: Mark,
    attempts: u32,
    raised: When,
    due: Option<When>,
    error: Option<Shown>,
}

fn mark(row: &NoticeRow) -> Mark {
    match (row.state, row.attempts) {
        (NoticeState::Delivered, _) => Mark::good("delivered"),
        (NoticeState::Failed, _) => Mark::bad("given up"),
        (NoticeState::Waiting, 0) => Mark::live("waits"),
        (NoticeState::Waiting, _) => Mark::warn("is tried again"),
    }
}

impl ReceiverLine {
    fn new(row: &ReceiverRow, now: Micros) -> Self {
        let erased = || Shown::line("erased");
        let about: Vec<String> = row.about.iter().map(spaced).collect();
        Self {
            id: row.id.to_string(),
            name: row.name.as_deref().map_or_else(erased, Shown::line),
            url: row.url.as_deref().map_or_else(erased, |url| Shown::short(url, 200)),
            about: if about.is_empty() { "nothing but the heartbeat".to_owned() } else { about.join(", ") },
            heartbeat: row.heartbeat_s.map(|every| span(u64::from(every) * 1_000_000)),
            added: When::utc(row.added_at, now),
            removed: row.state == ReceiverState::Removed,
        }
    }
}

async fn receivers(app: &App, now: Micros) -> Result<Vec<ReceiverLine>, Failure> {
    let active = Condition { column: "state", is: Test::Eq(Cell::Text("active".to_owned())) };
    let order = Order { column: "position", descending: false };
    let rows = projector::page::<Receivers>(&app.engine, vec![active], order, 200, None).await?;
    Ok(rows.iter().map(|(row, _)| ReceiverLine::new(row, now)).collect())
}

async fn log(app: &App, query: &Fields, path: &str, receiver: Option<ReceiverId>, now: Micros) -> Result<Log, Failure> {
    let engine = &app.engine;
    let text = |column, value: String| Condition { column, is: Test::Eq(Cell::Text(value)) };
    let mut filters: Vec<Condition> = receiver.map(|id| text("receiver", id.to_string())).into_iter().collect();
    let state = Some(query.get("state")).filter(|state| ["waiting", "delivered", "failed"].contains(state));
    filters.extend(state.map(|state| text("state", state.to_owned())));
    let after = listing::after(query);
    let first = after.is_none();
    let order = Order { column: "position", descending: true };
    let found = projector::page::<Notices>(engine, filters, order, ROWS, after).await?;
    let next = found.last().filter(|_| found.len() == ROWS as usize);
    let next = next.map(|(_, cursor)| listing::next(path, query, cursor));
    let mut rows = Vec::with_capacity(found.len());
    for (row, _) in &found {
        let to = projector::get::<Receivers>(engine, &row.receiver.to_string()).await?;
        let name = to.and_then(|to| to.name).unwrap_or_else(|| short_id(row.receiver));
        rows.push(NoticeLine {
            id: row.id.to_string(),
            short: short_id(row.id),
            kind: spaced(row.kind),
            receiver: row.receiver.to_string(),
            receiver_name: Shown::line(&name),
            mark: mark(row),
            attempts: row.attempts,
            raised: When::utc(row.raised_at, now),
            due: When::maybe(row.due, now),
            error: row.error.as_deref().map(|error| Shown::short(error, 200)),
        });
    }
    let chosen = state.unwrap_or_default();
    let states = [("", "all"), ("waiting", "waiting"), ("delivered", "delivered"), ("failed", "given up")];
    let states = states.map(|(value, name)| Choice { chosen: value == chosen, value, name }).into();
    Ok(Log { rows, states, path: path.to_owned(), next, first })
}

async fn view(
    app: &App,
    caller: &Caller,
    query: &Fields,
    given: &Fields,
    error: Option<String>,
) -> Result<NoticesPage, Failure> {
    let frame = Frame::new(app, caller, Section::System, "Notices", query).await?;
    let wanted = given.all("about");
    let kinds = NoticeKind::ALL.map(|kind| {
        let value = word(kind);
        Choice { chosen: wanted.contains(&value.as_str()), name: spaced(kind), value }
    });
    Ok(NoticesPage {
        error,
        receivers: receivers(app, frame.now).await?,
        name: given.get("name").to_owned(),
        url: given.get("url").to_owned(),
        heartbeat: given.get("heartbeat").to_owned(),
        kinds: kinds.into(),
        log: log(app, query, "/notices", None, frame.now).await?,
        frame,
    })
}

/// `GET /notices`.
pub(super) async fn page(State(app): State<App>, Visitor(caller): Visitor, query: Fields) -> Page {
    caller.must_be_admin()?;
    ok(&view(&app, &caller, &query, &Fields::default(), None).await?)
}

/// `POST /notices`: one more receiver.
pub(super) async fn add(State(app): State<App>, posted: Posted) -> Page {
    let posted = posted.admin()?;
    match added(&app, &posted).await {
        Ok((id, position)) => seen(&app, position, &format!("/notices/receivers/{id}?done=created")).await,
        Err(failure) => {
            let (_, sentence) = failure.sentence()?;
            let page = view(&app, &posted.caller, &Fields::default(), &posted.fields, Some(sentence)).await?;
            html(StatusCode::BAD_REQUEST, &page)
        }
    }
}

async fn added(app: &App, posted: &Posted) -> Result<(ReceiverId, u64), Failure> {
    let fields = &posted.fields;
    let url = dialer::address(fields.get("url"), Reach::Private)
        .map_err(|barred| Problem::bad("invalid_url", barred.to_string()))?;
    let wanted = fields.all("about");
    let heartbeat_s = match fields.filled("heartbeat") {
        None => None,
        Some(text) => Some(text.parse().map_err(|_| {
            Problem::bad("invalid", "a heartbeat comes every so many seconds: write a whole number, or leave it empty")
        })?),
    };
    let new = NewReceiver {
        name: fields.get("name").to_owned(),
        url: url.into(),
        about: NoticeKind::ALL.into_iter().filter(|kind| wanted.contains(&word(kind).as_str())).collect(),
        heartbeat_s,
    };
    let done = app.engine.add_receiver(&new, &posted.caller.origin(), posted.request.as_ref()).await?;
    Ok((done.value, done.position))
}

#[derive(Template)]
#[template(path = "receiver.html")]
struct ReceiverPage {
    frame: Frame,
    line: ReceiverLine,
    /// What its notices are signed with; none for one that is told nothing more.
    secret: Option<String>,
    log: Log,
}

async fn receiver_row(app: &App, id: &str) -> Result<ReceiverRow, Failure> {
    let missing = || Failure(Problem::not_found("receiver"));
    let id: ReceiverId = id.parse().map_err(|_| missing())?;
    projector::get::<Receivers>(&app.engine, &id.to_string()).await?.ok_or_else(missing)
}

/// `GET /notices/receivers/{id}`.
pub(super) async fn receiver(
    State(app): State<App>,
    Visitor(caller): Visitor,
    Path(id): Path<String>,
    query: Fields,
) -> Page {
    caller.must_be_admin()?;
    let row = receiver_row(&app, &id).await?;
    let frame = Frame::new(&app, &caller, Section::System, "Receiver of notices", &query).await?;
    let line = ReceiverLine::new(&row, frame.now);
    let secret = if line.removed { None } else { Some(shown(&app.engine.receiver_secret(row.id).await?)) };
    let log = log(&app, &query, &format!("/notices/receivers/{id}"), Some(row.id), frame.now).await?;
    ok(&ReceiverPage { frame, line, secret, log })
}

/// `POST /notices/receivers/{id}/remove`.
pub(super) async fn remove(State(app): State<App>, Path(id): Path<String>, posted: Posted) -> Page {
    let posted = posted.admin()?;
    let row = receiver_row(&app, &id).await?;
    let done = app.engine.remove_receiver(row.id, &posted.caller.origin(), posted.request.as_ref()).await?;
    seen(&app, done.position, "/notices?done=saved").await
}

#[derive(Template)]
#[template(path = "notice.html")]
struct NoticePage {
    frame: Frame,
    id: String,
    kind: String,
    mark: Mark,
    receiver: String,
    receiver_name: Shown,
    subject: Shown,
    subject_path: String,
    raised: When,
    due: Option<When>,
    body: Option<Shown>,
    attempts: Vec<Attempt>,
}

struct Attempt {
    at: When,
    n: u32,
    mark: Mark,
    error: Option<Shown>,
}

/// `GET /notices/{id}`.
pub(super) async fn notice(
    State(app): State<App>,
    Visitor(caller): Visitor,
    Path(id): Path<String>,
    query: Fields,
) -> Page {
    caller.must_be_admin()?;
    let missing = || Failure(Problem::not_found("notice"));
    let id: NoticeId = id.parse().map_err(|_| missing())?;
    let row = projector::get::<Notices>(&app.engine, &id.to_string()).await?.ok_or_else(missing)?;
    let frame = Frame::new(&app, &caller, Section::System, "Notice", &query).await?;
    let to = projector::get::<Receivers>(&app.engine, &row.receiver.to_string()).await?;
    let mut body = None;
    let mut attempts = Vec::new();
    let events = app.engine.log().read_stream(&StreamName::notice(id), 1, ATTEMPTS).await?;
    for event in &events {
        let content = event.content::<EngineEvent>()?;
        if let Some(EngineContent::NoticeRaised { body: text }) = &content {
            body = Some(Shown::lines(&indented(text)));
        }
        if let EngineEvent::NoticeAttempted { attempt, status, delivered, .. } = event.facts::<EngineEvent>()? {
            let said = status.map_or_else(|| "no answer".to_owned(), |status| format!("answered {status}"));
            let error = match &content {
                Some(EngineContent::NoticeAttempted { error }) => Some(Shown::short(error, 300)),
                Some(_) | None => None,
            };
            let mark = if delivered { Mark::good(said) } else { Mark::bad(said) };
            attempts.push(Attempt { at: When::utc(event.recorded_at, frame.now), n: attempt, mark, error });
        }
    }
    ok(&NoticePage {
        id: id.to_string(),
        kind: spaced(row.kind),
        mark: mark(&row),
        receiver: row.receiver.to_string(),
        receiver_name: Shown::line(&to.and_then(|to| to.name).unwrap_or_else(|| short_id(row.receiver))),
        subject: Shown::line(&row.subject),
        subject_path: subject_path(&row.subject),
        raised: When::utc(row.raised_at, frame.now),
        due: When::maybe(row.due, frame.now),
        body,
        attempts,
        frame,
    })
}

/// The page of what a stream is about.
fn subject_path(stream: &str) -> String {
    let of = [("run-", "runs"), ("routine-", "routines"), ("trigger-", "triggers"), ("delivery-", "deliveries")];
    let found = of.iter().find_map(|(prefix, pages)| Some(format!("/{pages}/{}", stream.strip_prefix(prefix)?)));
    found.unwrap_or_else(|| "/audit".to_owned())
}

/// `POST /notices/{id}/again`.
pub(super) async fn again(State(app): State<App>, Path(id): Path<String>, posted: Posted) -> Page {
    let posted = posted.admin()?;
    let id: NoticeId = id.parse().map_err(|_| Failure(Problem::not_found("notice")))?;
    let done = app.engine.ask_notice_again(id, &posted.caller.origin(), posted.request.as_ref()).await?;
    seen(&app, done.position, &format!("/notices/{id}?done=again")).await
}
