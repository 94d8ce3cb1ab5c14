//! The boundary: the rules in force, older ones, and checking and publishing new ones.

use std::collections::BTreeSet;

use axum::{Json, extract::State, http::StatusCode, response::Response};
use midwatch_boundary::{
    Boundary, check as compile, check_args,
    what_if::{Trial, WhatIf},
};
use midwatch_engine::{Engine, projector};
use midwatch_gateway::tools::{built_in, command};
use midwatch_log::{
    Filter,
    views::{Cell, Condition, Order, Test},
};
use midwatch_projections::{
    bots::Bots,
    boundaries::{Boundaries, BoundaryRow},
    projection::padded,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::{
    Asked, Listed, Paging, Path, Query, Recorded, list as page, recorded, routines::overtaken, shapes, tagged,
};
use crate::{
    app::App,
    auth::Caller,
    error::{Finding, Problem},
};

/// Decisions tried where nothing else is said.
pub(crate) const TRY_LAST: u32 = 1_000;
/// Decisions tried at once.
const TRY_MAX: u32 = 100_000;
/// Bots whose tools are looked at; with more of them some argument may be taken for unknown.
const BOTS_MAX: u32 = 10_000;

/// The boundary in force.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct InForce {
    /// Its version.
    version: u64,
    /// The rules.
    #[schema(value_type = Object)]
    document: Box<RawValue>,
}

/// A boundary to check.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ToCheck {
    /// The whole document: `{"mode":…,"zone":…,"rules":[{"id":…,"name":…,"verdict":…,"when":…}]}`.
    #[schema(value_type = Object)]
    document: Box<RawValue>,
}

/// A boundary to put in force.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ToPublish {
    /// The whole document.
    #[schema(value_type = Object)]
    document: Box<RawValue>,
    /// Why, in its author's words.
    #[serde(default)]
    note: String,
}

/// A boundary to try on what was decided.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = BoundaryToTry)]
pub(crate) struct ToTry {
    /// The whole document.
    #[schema(value_type = Object)]
    document: Box<RawValue>,
    /// How many decisions, the last ones; 1,000 if nothing is said, at most 100,000.
    last: Option<u32>,
}

/// Whether a boundary could be published.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Checked {
    /// Whether it could.
    ok: bool,
    /// Why not, each with its place.
    findings: Vec<Finding>,
}

/// The boundary in force. Its `ETag` is its version.
#[utoipa::path(get, path = "/api/v1/boundary", tag = "boundary",
    responses((status = 200, body = InForce), (status = 403, body = shapes::Problem)))]
pub(crate) async fn show(State(app): State<App>, caller: Caller) -> Result<Response, Problem> {
    caller.must_read_all()?;
    let (document, version) = app.engine.boundary().await?;
    let document = document.and_then(|text| RawValue::from_string(text).ok());
    let document = document.ok_or_else(|| Problem::not_found("boundary"))?;
    Ok(tagged(version, InForce { version, document }))
}

/// Every boundary that was published, the newest first.
#[utoipa::path(get, path = "/api/v1/boundary/versions", tag = "boundary", params(Paging),
    responses((status = 200, body = Listed<shapes::BoundaryVersion>), (status = 403, body = shapes::Problem)))]
pub(crate) async fn versions(
    State(app): State<App>,
    caller: Caller,
    Query(paging): Query<Paging>,
) -> Result<Json<Listed<BoundaryRow>>, Problem> {
    caller.must_read_all()?;
    let order = Order { column: "version", descending: true };
    Ok(Json(page::<Boundaries>(&app.engine, Vec::new(), order, &paging).await?))
}

/// One published boundary.
#[utoipa::path(get, path = "/api/v1/boundary/versions/{version}", tag = "boundary",
    params(("version" = u64, Path, description = "Its version, from 1")),
    responses((status = 200, body = shapes::BoundaryVersion), (status = 404, body = shapes::Problem)))]
pub(crate) async fn version(
    State(app): State<App>,
    caller: Caller,
    Path(version): Path<u64>,
) -> Result<Json<BoundaryRow>, Problem> {
    caller.must_read_all()?;
    let row = projector::get::<Boundaries>(&app.engine, &padded(version)).await?;
    row.map(Json).ok_or_else(|| Problem::not_found("boundary"))
}

/// Whether a boundary could be published, and why not. Changes nothing.
#[utoipa::path(post, path = "/api/v1/boundary/check", tag = "boundary", request_body = ToCheck,
    responses((status = 200, body = Checked), (status = 403, body = shapes::Problem)))]
pub(crate) async fn check(State(app): State<App>, asked: Asked<ToCheck>) -> Result<Json<Checked>, Problem> {
    asked.caller.must_read_all()?;
    let findings = checked(&app.engine, asked.body.document).await?.err().unwrap_or_default();
    Ok(Json(Checked { ok: findings.is_empty(), findings }))
}

/// What a boundary would have said to the last calls that were decided. Changes nothing. The answer's `calls` are those
/// that would come out otherwise, its `not_told` those of which it cannot be said.
#[utoipa::path(post, path = "/api/v1/boundary/what-if", tag = "boundary", request_body = ToTry,
    responses((status = 200, body = shapes::WhatIf), (status = 400, body = shapes::Problem)))]
pub(crate) async fn what_if(State(app): State<App>, asked: Asked<ToTry>) -> Result<Json<WhatIf>, Problem> {
    asked.caller.must_read_all()?;
    let last = asked.body.last.unwrap_or(TRY_LAST);
    if last > TRY_MAX {
        return Err(Problem::bad("invalid", format!("at most {TRY_MAX} decisions are tried at once")));
    }
    tried(&app.engine, asked.body.document.get(), last).await.map(Json)
}

/// Judges the last decisions by a document. What does not compile is broken in it.
pub(crate) async fn tried(engine: &Engine, document: &str, last: u32) -> Result<WhatIf, Problem> {
    let document = Boundary::parse(document).map_err(|error| Problem::bad("boundary", error.sentence))?;
    let filter = Filter { event_types: vec!["run.tool_call_decided".to_owned()], categories: Vec::new() };
    let decided = engine.log().read_last(0, last, &filter).await?;
    let judge = move || {
        let mut trial = Trial::new(&document);
        decided.iter().for_each(|recorded| trial.look(recorded));
        trial.found()
    };
    #[expect(clippy::disallowed_methods, reason = "judging many calls takes longer than a request may hold a worker")]
    let found = tokio::task::spawn_blocking(judge).await;
    found.map_err(|error| midwatch_engine::EngineError::Fault(error.to_string()).into())
}

/// Puts a boundary in force. With `If-Match`, only if nobody else did meanwhile.
#[utoipa::path(put, path = "/api/v1/boundary", tag = "boundary", request_body = ToPublish,
    params(("If-Match" = Option<String>, Header, description = "The ETag of the boundary that was looked at")),
    responses((status = 200, body = Recorded), (status = 400, body = shapes::Problem),
        (status = 412, body = shapes::Problem)))]
pub(crate) async fn publish(State(app): State<App>, asked: Asked<ToPublish>) -> Result<Json<Recorded>, Problem> {
    asked.caller.must_be_admin()?;
    let origin = asked.origin();
    let document = checked(&app.engine, asked.body.document).await?.map_err(|findings| {
        let first = findings.first().map(sentence).unwrap_or_default();
        Problem::new(StatusCode::BAD_REQUEST, crate::error::Kind::BadRequest, "boundary", first).findings(findings)
    })?;
    let request = asked.request.as_ref();
    let done = app.engine.publish_boundary(&document, &asked.body.note, asked.if_match, &origin, request).await;
    let done = done.map_err(|error| overtaken(error, asked.if_match))?;
    Ok(recorded(&app.engine, &done).await)
}

fn sentence(finding: &Finding) -> String {
    match &finding.rule {
        Some(rule) => format!("rule `{rule}`, line {}, column {}: {}", finding.line, finding.column, finding.sentence),
        None => finding.sentence.clone(),
    }
}

/// The canonical text of a document that may be published, or everything that is wrong with it.
pub(crate) async fn checked(engine: &Engine, document: Box<RawValue>) -> Result<Result<String, Vec<Finding>>, Problem> {
    let granted = granted_arguments(engine).await?;
    #[expect(clippy::disallowed_methods, reason = "compiling many rules takes longer than a request may hold a worker")]
    let checked = tokio::task::spawn_blocking(move || findings(document.get(), granted.as_ref())).await;
    checked.map_err(|error| midwatch_engine::EngineError::Fault(error.to_string()).into())
}

/// The argument names of all tools that Bots are granted; none where a tool is granted that is not known here.
async fn granted_arguments(engine: &Engine) -> Result<Option<BTreeSet<String>>, Problem> {
    let working = vec![Condition { column: "retired", is: Test::Eq(Cell::Int(0)) }];
    let order = Order { column: "name", descending: false };
    let bots = projector::page::<Bots>(engine, working, order, BOTS_MAX, None).await?;
    let mut granted: BTreeSet<String> = bots.into_iter().flat_map(|(bot, _)| bot.tools).collect();
    if granted.remove(command::RUN_COMMAND_UNATTENDED) {
        granted.insert(command::RUN_COMMAND.to_owned());
    }
    let known = built_in();
    if granted.iter().any(|name| known.iter().all(|tool| tool.name != *name)) {
        return Ok(None);
    }
    let tools = known.iter().filter(|tool| granted.contains(&tool.name));
    let arguments = tools.filter_map(|tool| tool.parameters.get("properties")?.as_object());
    Ok(Some(arguments.flat_map(|properties| properties.keys().cloned()).collect()))
}

fn findings(document: &str, granted: Option<&BTreeSet<String>>) -> Result<String, Vec<Finding>> {
    let document = Boundary::parse(document).map_err(|error| {
        let midwatch_boundary::DocumentError { rule, line, column, sentence } = error;
        vec![Finding { rule, line, column, sentence, corrected: None }]
    })?;
    let refused = match compile(&document) {
        Ok(_) => granted.map(|granted| check_args(&document, granted)).unwrap_or_default(),
        Err(findings) => findings,
    };
    if refused.is_empty() { Ok(document.to_json()) } else { Err(refused.into_iter().map(Finding::from).collect()) }
}

impl From<midwatch_boundary::Finding> for Finding {
    fn from(finding: midwatch_boundary::Finding) -> Self {
        let midwatch_boundary::Finding { rule, line, column, sentence, corrected } = finding;
        Self { rule: Some(rule), line, column, sentence, corrected }
    }
}
