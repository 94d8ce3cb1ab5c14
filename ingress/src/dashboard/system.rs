//! System: the deployment, its processes, its projections, its time-zone data.

use askama::Template;
use axum::extract::State;
use midwatch_commands::calendar::{second_opinion_version, tzdb_version};
use midwatch_engine::projector;
use midwatch_log::views::{Condition, Order, Test};
use midwatch_projections::{
    engine_deployment::{self, Deployment},
    engine_processes::{ProcessRow, Processes},
};

use super::{
    fields::Fields,
    frame::{Frame, Page, Section, lag, ok},
    status::Mark,
    text::{Shown, grouped, short_id},
    time::{When, span},
    visitor::Visitor,
};
use crate::app::App;

#[derive(Template)]
#[template(path = "system.html")]
struct SystemPage {
    frame: Frame,
    deployment: Option<Shown>,
    previous: Option<Shown>,
    created: Option<When>,
    repeat_window: String,
    head: String,
    tzdb: &'static str,
    second_opinion: String,
    warnings: Vec<Shown>,
    projections: Vec<ProjectionLine>,
    processes: Vec<ProcessLine>,
    left: Vec<ProcessLine>,
    public_url: Option<Shown>,
}

struct ProjectionLine {
    name: &'static str,
    position: String,
    lag: String,
    mark: Mark,
    error: Option<Shown>,
}

struct ProcessLine {
    id: String,
    this: bool,
    version: Shown,
    roles: String,
    tzdb: Shown,
    started: When,
    stopped: Option<When>,
}

async fn processes(app: &App, test: Test, frame: &Frame) -> Result<Vec<ProcessLine>, super::frame::Failure> {
    let filters = vec![Condition { column: "stopped_at", is: test }];
    let order = Order { column: "started_at", descending: true };
    let found = projector::page::<Processes>(&app.engine, filters, order, 20, None).await?;
    let line = |row: ProcessRow| ProcessLine {
        id: short_id(row.id),
        this: row.id == app.engine.process(),
        version: Shown::line(&row.version),
        roles: row.roles.iter().map(|role| role.name()).collect::<Vec<_>>().join(", "),
        tzdb: Shown::line(&row.tzdb),
        started: When::utc(row.started_at, frame.now),
        stopped: When::maybe(row.stopped_at, frame.now),
    };
    Ok(found.into_iter().map(|(row, _)| line(row)).collect())
}

/// `GET /system`.
pub(super) async fn page(State(app): State<App>, Visitor(caller): Visitor, query: Fields) -> Page {
    caller.must_read_all()?;
    let frame = Frame::new(&app, &caller, Section::System, "System", &query).await?;
    let engine = &app.engine;
    let deployment = projector::get::<Deployment>(engine, engine_deployment::KEY).await?.unwrap_or_default();
    let projections = projector::status(engine).await?.into_iter().map(|status| ProjectionLine {
        name: status.name,
        position: grouped(status.position),
        lag: lag(status.behind, status.lag_ms),
        mark: if status.stopped.is_some() { Mark::bad("stopped") } else { Mark::good("follows") },
        error: status.stopped.map(|(at, error)| Shown::short(&format!("at position {at}: {error}"), 300)),
    });
    let risks = engine.log().durability().await?;
    ok(&SystemPage {
        deployment: deployment.deployment.as_deref().map(Shown::line),
        previous: deployment.previous.as_deref().map(Shown::line),
        created: When::maybe(deployment.created_at, frame.now),
        repeat_window: span(u64::from(engine.repeat_window_s()) * 1_000_000),
        head: grouped(engine.log().head().await?),
        tzdb: tzdb_version(),
        second_opinion: second_opinion_version().to_string(),
        warnings: risks.iter().map(|risk| Shown::line(&risk.sentence)).collect(),
        projections: projections.collect(),
        processes: processes(&app, Test::IsNull, &frame).await?,
        left: processes(&app, Test::NotNull, &frame).await?,
        public_url: app.settings.public_url.as_deref().map(Shown::line),
        frame,
    })
}
