//! What every page has around it, and how a page becomes an answer.

use askama::Template;
use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use midwatch_engine::projector;
use midwatch_events::{Micros, user::Access};
use midwatch_log::views::{Cell, Condition, Test};
use midwatch_projections::{
    engine_deployment::{self, Deployment},
    runs::Runs,
};

use super::{
    fields::Fields,
    names, scope,
    text::{Shown, counted, grouped},
    time::{When, span},
};
use crate::{api::status::gone_back, app::App, auth::Caller, error::Problem};

/// What a handler answers.
pub(crate) type Page = Result<Response, Failure>;

/// A page's place in the navigation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    Watch,
    Routines,
    Runs,
    Audit,
    Triggers,
    Boundaries,
    Bots,
    System,
}

/// One entry of the navigation.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) path: &'static str,
    pub(crate) name: &'static str,
    pub(crate) here: bool,
}

/// What every page has around it.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) title: String,
    pub(crate) links: Vec<Link>,
    /// Who is signed in.
    pub(crate) person: Shown,
    pub(crate) role: &'static str,
    pub(crate) admin: bool,
    /// Whether they may change anything at all.
    pub(crate) changes: bool,
    pub(crate) csrf: String,
    /// A new id for the page's form: sent twice it is one request.
    pub(crate) request: String,
    pub(crate) halted: Option<Halted>,
    /// What was done by the form that led here.
    pub(crate) done: Option<&'static str>,
    /// The position the page's rows are as of.
    pub(crate) position_text: String,
    pub(crate) lag: String,
    pub(crate) live_runs: String,
    /// Where the page hears what is new.
    pub(crate) live: String,
    pub(crate) now: Micros,
}

/// The scheduling halt, while it is in force.
#[derive(Debug)]
pub(crate) struct Halted {
    pub(crate) reason: Option<Shown>,
    pub(crate) by: Shown,
    pub(crate) since: Option<When>,
}

impl Frame {
    /// The frame around a page for this caller.
    pub(crate) async fn new(
        app: &App,
        caller: &Caller,
        section: Section,
        title: impl Into<String>,
        query: &Fields,
    ) -> Result<Self, Failure> {
        let engine = &app.engine;
        let now = engine.world().clock.now();
        let standing = standing(app).await?;
        let live = live_runs(app, caller).await?;
        let deployment = projector::get::<Deployment>(engine, engine_deployment::KEY).await?.unwrap_or_default();
        let halted = if let Some(went_back) = engine.went_back() {
            let reason = Some(Shown::line(&gone_back(went_back)));
            Some(Halted { reason, by: names::actor(engine, "engine").await?, since: None })
        } else if deployment.halted {
            let by = names::actor(engine, deployment.by.as_deref().unwrap_or_default()).await?;
            let reason = deployment.reason.as_deref().map(Shown::line);
            Some(Halted { reason, by, since: When::maybe(deployment.since, now) })
        } else {
            None
        };
        Ok(Self {
            title: title.into(),
            links: links(section),
            person: names::caller(engine, caller).await?,
            role: role(caller.role),
            admin: caller.role == Access::Admin,
            changes: caller.must_change().is_ok(),
            csrf: caller.csrf().unwrap_or_default().to_owned(),
            request: engine.world().uuid().to_string(),
            halted,
            done: done(query.get("done")),
            position_text: grouped(standing.position),
            lag: lag(standing.behind, standing.lag_ms),
            live_runs: counted(live, "live run", "live runs"),
            live: format!("/live?since={}", standing.position),
            now,
        })
    }
}

/// Where the slowest projection stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    /// The position its rows are as of.
    pub(crate) position: u64,
    /// How many events are not in it yet.
    pub(crate) behind: u64,
    /// How long the first of them has waited, in milliseconds.
    pub(crate) lag_ms: u64,
}

pub(crate) async fn standing(app: &App) -> Result<Standing, Failure> {
    let all = projector::status(&app.engine).await?;
    let slowest = all.iter().min_by_key(|status| status.position);
    Ok(slowest.map_or_else(Standing::default, |status| Standing {
        position: status.position,
        behind: status.behind,
        lag_ms: status.lag_ms,
    }))
}

/// How many runs are live, of those this caller sees.
pub(crate) async fn live_runs(app: &App, caller: &Caller) -> Result<u64, Failure> {
    let states = vec![Cell::Text("waiting".to_owned()), Cell::Text("running".to_owned())];
    let mut filters = vec![Condition { column: "state", is: Test::In(states) }];
    filters.extend(scope::owned(caller));
    Ok(projector::count::<Runs>(&app.engine, &filters).await?)
}

/// How far behind, in words.
pub(crate) fn lag(behind: u64, lag_ms: u64) -> String {
    match behind {
        0 => "up to date".to_owned(),
        behind => format!("{} behind, for {}", counted(behind, "event", "events"), span(lag_ms * 1_000)),
    }
}

fn links(section: Section) -> Vec<Link> {
    [
        (Section::Watch, "/", "Watch"),
        (Section::Routines, "/routines", "Routines"),
        (Section::Runs, "/runs", "Runs"),
        (Section::Audit, "/audit", "Audit"),
        (Section::Triggers, "/triggers", "Triggers"),
        (Section::Boundaries, "/boundaries", "Boundaries"),
        (Section::Bots, "/bots", "Bots"),
        (Section::System, "/system", "System"),
    ]
    .into_iter()
    .map(|(of, path, name)| Link { path, name, here: of == section })
    .collect()
}

fn role(role: Access) -> &'static str {
    match role {
        Access::Admin => "admin",
        Access::Member => "member",
        Access::Auditor => "auditor",
    }
}

/// A closed list: what a page says of itself never comes out of a URL.
fn done(code: &str) -> Option<&'static str> {
    Some(match code {
        "created" => "It was created.",
        "saved" => "The change is saved.",
        "paused" => "It is paused.",
        "resumed" => "It is due again.",
        "deleted" => "It was deleted. Its history stays in the audit view.",
        "claimed" => "A run was claimed.",
        "cancelled" => "The run was called off.",
        "approved" => "You approved the call.",
        "declined" => "You declined the call.",
        "stopped" => "Its live runs were called off.",
        "halted-and-stopped" => "Scheduling is halted, and the runs that were live were called off.",
        "confirmed" => "The sample is confirmed: from now on deliveries become runs.",
        "published" => "The boundary is published and in force.",
        "redelivered" => "It waits to run once more.",
        "redelivering" => "The redelivery has begun.",
        "redelivery-cancelled" => "The redelivery is stopped. What it let run before runs.",
        "again" => "It is posted once more.",
        "retired" => "The Bot is retired: it gets no more work.",
        "halted" => "Scheduling is halted: nothing starts until the halt is lifted.",
        "lifted" => "The halt is lifted.",
        _ => return None,
    })
}

/// A page as an answer. It is never kept: it is about this moment and for this person.
pub(crate) fn html(status: StatusCode, page: &impl Template) -> Page {
    let body = page.render().map_err(|error| {
        tracing::error!(%error, "a page could not be rendered");
        let sentence = "this page could not be rendered";
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, crate::error::Kind::Fault, "render", sentence)
    })?;
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    Ok((status, headers, body).into_response())
}

/// The same, with 200.
pub(crate) fn ok(page: &impl Template) -> Page {
    html(StatusCode::OK, page)
}

/// A problem as a page.
#[derive(Debug)]
pub(crate) struct Failure(pub(crate) Problem);

impl<E: Into<Problem>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl Failure {
    /// The sentence to show beside the form it is about; anything that is no answer to the form stays a failure.
    pub(crate) fn sentence(self) -> Result<(StatusCode, String), Self> {
        let answer = matches!(self.0.status, StatusCode::BAD_REQUEST | StatusCode::CONFLICT);
        if answer { Ok((self.0.status, capital(&self.0.sentence))) } else { Err(self) }
    }
}

/// A sentence begins with a capital and ends with a full stop.
pub(crate) fn capital(sentence: &str) -> String {
    let mut chars = sentence.chars();
    let Some(first) = chars.next() else { return String::new() };
    let ends = sentence.ends_with(['.', '!', '?']);
    format!("{}{}{}", first.to_uppercase(), chars.as_str(), if ends { "" } else { "." })
}

#[derive(Template)]
#[template(path = "problem.html")]
struct ProblemPage<'a> {
    title: &'static str,
    sentence: &'a str,
    code: &'static str,
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let title = match self.0.status {
            StatusCode::NOT_FOUND => "Not here",
            StatusCode::FORBIDDEN => "Not with these rights",
            StatusCode::CONFLICT => "Not now",
            StatusCode::BAD_REQUEST => "That makes no sense here",
            _ => "It did not work",
        };
        let sentence = capital(&self.0.sentence);
        let page = ProblemPage { title, sentence: &sentence, code: self.0.code };
        match html(self.0.status, &page) {
            Ok(response) => response,
            Err(Self(problem)) => problem.into_response(),
        }
    }
}
