//! `/api/v1`: JSON for programs. One file per family, and what they share here.
//!
//! * Lists are `{items, next, as_of}`; [`paging`] goes through them.
//! * What changes something answers with the `position` it was recorded at, and waits until the projections are there,
//!   at most a second: callers read their own writes.
//! * `Idempotency-Key` makes a request that is sent twice one request; `If-Match` refuses to overwrite what somebody
//!   else changed meanwhile ([`asked`]).

pub(crate) mod approvals;
mod asked;
pub(crate) mod audit;
pub(crate) mod bots;
pub(crate) mod boundary;
pub(crate) mod deliveries;
pub(crate) mod halt;
pub(crate) mod live;
pub(crate) mod mcp_servers;
pub(crate) mod notices;
pub(crate) mod openapi;
mod paging;
pub(crate) mod routines;
pub(crate) mod runs;
pub(crate) mod schedules;
pub(crate) mod senders;
mod shapes;
pub(crate) mod status;
pub(crate) mod triggers;

use axum::{
    Json,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use midwatch_engine::{Done, Engine, projector};
use midwatch_log::views::{Cell, Condition, Test};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::error::Problem;

pub(crate) use asked::{Asked, Path, Query};
pub(crate) use paging::{AsOf, Listed, Paging, list};

/// Where a change stands in the ledger.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Recorded {
    /// The last position it rests on.
    pub(crate) position: u64,
}

/// A thing that was made.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Made {
    /// Its id.
    #[schema(value_type = String, format = Uuid)]
    pub(crate) id: String,
    /// The last position it rests on.
    pub(crate) position: u64,
}

/// A request that says nothing more than its address does.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nothing {}

/// The answer to a change that has nothing else to say.
async fn recorded<T>(engine: &Engine, done: &Done<T>) -> Json<Recorded> {
    projector::wait_for(engine, done.position).await;
    Json(Recorded { position: done.position })
}

/// The answer to something that was made.
async fn made<T>(engine: &Engine, id: impl ToString, done: &Done<T>) -> (StatusCode, Json<Made>) {
    projector::wait_for(engine, done.position).await;
    (StatusCode::CREATED, Json(Made { id: id.to_string(), position: done.position }))
}

/// A thing, with its stream's version as its `ETag`.
fn tagged<T: Serialize>(version: u64, thing: T) -> Response {
    let mut response = Json(thing).into_response();
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{version}\"")) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response
}

/// An answer with a secret in it, or somebody's words, which no cache may keep.
fn unkept(answer: impl IntoResponse) -> Response {
    let mut response = answer.into_response();
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// A condition, where a query asks for one.
pub(crate) fn equals(column: &'static str, wanted: Option<impl ToString>) -> Option<Condition> {
    let wanted = wanted?;
    Some(Condition { column, is: Test::Eq(Cell::Text(wanted.to_string().replace('\0', "\u{fffd}"))) })
}

/// The word a value has on the wire.
fn word(value: impl Serialize) -> Option<String> {
    serde_json::to_value(value).ok()?.as_str().map(str::to_owned)
}

/// A header's text; 400 for one that is none.
fn header_text<'a>(headers: &'a HeaderMap, name: &header::HeaderName) -> Result<Option<&'a str>, Problem> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    let text = value.to_str().map_err(|_| Problem::bad("invalid", format!("the header {name} is no text")))?;
    Ok(Some(text.trim()))
}

#[cfg(test)]
mod tests;
