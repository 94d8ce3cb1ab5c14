//! Deliveries: what came, and what became of it. Bodies are for whoever may read them.

use axum::{
    Json,
    extract::State,
    response::{IntoResponse as _, Response},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use midwatch_engine::{
    projector,
    redeliveries::{self, Counted},
};
use midwatch_events::{
    Micros,
    id::{DeliveryId, RedeliveryId, TriggerId},
};
use midwatch_log::views::{Condition, Order};
use midwatch_projections::{
    deliveries::{Deliveries, DeliveryRow, DeliveryStatus},
    delivery_redeliveries::{Redeliveries, RedeliveryRow},
    triggers::Triggers,
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    Asked, Listed, Made, Nothing, Paging, Path, Query, Recorded, equals, list as page, made, recorded, shapes, unkept,
    word,
};
use crate::{
    app::App,
    auth::Caller,
    error::Problem,
    hooks::{Again, verify_again},
};

/// Which deliveries.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Wanted {
    /// What became of it: `accepted`, `captured`, `awaiting_confirmation`, `filtered`, `held`, `queued`, `started`,
    /// `expired`,
    /// `coalesced`, `redelivered` or `refused`.
    #[param(value_type = Option<String>)]
    status: Option<DeliveryStatus>,
    /// What the sender says it is about.
    event_type: Option<String>,
    /// The sender's own id.
    sender_id: Option<String>,
    /// Only those received at or after this instant, RFC 3339.
    since: Option<String>,
    /// Only those received before this instant, RFC 3339.
    until: Option<String>,
}

/// Only one trigger's.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct OfTrigger {
    /// The trigger.
    #[param(value_type = Option<String>)]
    trigger: Option<TriggerId>,
}

/// An instant in a query; 400 for what is none.
pub(crate) fn instant(name: &str, given: Option<&str>) -> Result<Option<Micros>, Problem> {
    let Some(text) = given.filter(|text| !text.is_empty()) else { return Ok(None) };
    let read = chrono::DateTime::parse_from_rfc3339(text).map(|at| Micros(at.timestamp_micros()));
    let sentence = || format!("`{name}` is no instant; write it as 2026-12-01T08:00:00Z");
    read.map(Some).map_err(|_| Problem::bad("invalid_instant", sentence()))
}

impl Wanted {
    fn conditions(self, trigger: Option<TriggerId>) -> Result<Vec<Condition>, Problem> {
        let matching = redeliveries::Matching {
            trigger,
            status: self.status.and_then(word),
            event_type: self.event_type,
            since: instant("since", self.since.as_deref())?,
            until: instant("until", self.until.as_deref())?,
        };
        let mut conditions = matching.conditions();
        conditions.extend(equals("sender_id", self.sender_id));
        Ok(conditions)
    }
}

/// Deliveries to let run once more: all that match.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Matching {
    /// Only this trigger's.
    #[schema(value_type = Option<String>, format = Uuid)]
    trigger: Option<TriggerId>,
    /// Only those with this status.
    #[schema(value_type = Option<String>)]
    status: Option<DeliveryStatus>,
    /// Only those about this.
    event_type: Option<String>,
    /// Only those received at or after this instant.
    #[schema(format = DateTime)]
    since: Option<String>,
    /// Only those received before this instant.
    #[schema(format = DateTime)]
    until: Option<String>,
    /// What the plan counted; a redelivery is started only with it, and only if it still holds.
    count: Option<u64>,
    /// The position the plan counted up to.
    through: Option<u64>,
}

impl Matching {
    fn read(&self) -> Result<redeliveries::Matching, Problem> {
        Ok(redeliveries::Matching {
            trigger: self.trigger,
            status: self.status.and_then(word),
            event_type: self.event_type.clone(),
            since: instant("since", self.since.as_deref())?,
            until: instant("until", self.until.as_deref())?,
        })
    }
}

/// What a redelivery of many would let run.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RedeliveryPlan {
    /// How many deliveries match.
    count: u64,
    /// Of those up to this position.
    through: u64,
}

/// What a sender sent.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Sent {
    /// Names and values, secrets redacted.
    #[schema(value_type = Vec<Vec<String>>)]
    headers: Vec<(String, String)>,
    /// Its query, secrets redacted, where its sender signs it.
    query: Option<String>,
    /// `utf8` or `base64`.
    encoding: &'static str,
    /// The body, byte for byte, in that encoding; null once it was erased.
    body: Option<String>,
}

/// A trigger's deliveries, the newest first.
#[utoipa::path(get, path = "/api/v1/triggers/{id}/deliveries", tag = "triggers",
    params(("id" = String, Path, description = "The trigger"), Wanted, Paging),
    responses((status = 200, body = Listed<shapes::Delivery>), (status = 404, body = shapes::Problem)))]
pub(crate) async fn list(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<TriggerId>,
    Query(wanted): Query<Wanted>,
    Query(paging): Query<Paging>,
) -> Result<Json<Listed<DeliveryRow>>, Problem> {
    caller.must_read_all()?;
    // The deliveries of a deleted trigger are history, and stay.
    projector::get::<Triggers>(&app.engine, &id.to_string()).await?.ok_or_else(|| Problem::not_found("trigger"))?;
    let filters = wanted.conditions(Some(id))?;
    let order = Order { column: "position", descending: true };
    Ok(Json(page::<Deliveries>(&app.engine, filters, order, &paging).await?))
}

/// Deliveries of all triggers, the newest first.
#[utoipa::path(get, path = "/api/v1/deliveries", tag = "triggers", params(OfTrigger, Wanted, Paging),
    responses((status = 200, body = Listed<shapes::Delivery>), (status = 403, body = shapes::Problem)))]
pub(crate) async fn search(
    State(app): State<App>,
    caller: Caller,
    Query(of): Query<OfTrigger>,
    Query(wanted): Query<Wanted>,
    Query(paging): Query<Paging>,
) -> Result<Json<Listed<DeliveryRow>>, Problem> {
    caller.must_read_all()?;
    let order = Order { column: "position", descending: true };
    Ok(Json(page::<Deliveries>(&app.engine, wanted.conditions(of.trigger)?, order, &paging).await?))
}

/// Lets a delivery run once more.
#[utoipa::path(post, path = "/api/v1/deliveries/{id}/redeliver", tag = "triggers",
    params(("id" = String, Path, description = "The delivery"),
           ("Idempotency-Key" = Option<String>, Header, description = "Makes a repeated request one request")),
    responses((status = 200, body = Recorded), (status = 409, body = shapes::Problem)))]
pub(crate) async fn redeliver(
    State(app): State<App>,
    Path(id): Path<DeliveryId>,
    asked: Asked<Nothing>,
) -> Result<Json<Recorded>, Problem> {
    asked.caller.must_be_admin()?;
    let done = app.engine.redeliver(id, &asked.origin(), asked.request.as_ref()).await?;
    Ok(recorded(&app.engine, &done).await)
}

/// Counts what a redelivery of all that match would let run. Nothing is changed.
#[utoipa::path(post, path = "/api/v1/redeliveries/plan", tag = "triggers", request_body = Matching,
    responses((status = 200, body = RedeliveryPlan), (status = 400, body = shapes::Problem)))]
pub(crate) async fn plan(State(app): State<App>, asked: Asked<Matching>) -> Result<Json<RedeliveryPlan>, Problem> {
    asked.caller.must_be_admin()?;
    let Counted { count, through } = app.engine.count_redelivery(&asked.body.read()?).await?;
    Ok(Json(RedeliveryPlan { count, through }))
}

/// Lets all deliveries that match run once more, in the order they came; `count` and `through` are the plan's.
#[utoipa::path(post, path = "/api/v1/redeliveries", tag = "triggers", request_body = Matching,
    params(("Idempotency-Key" = Option<String>, Header, description = "Makes a repeated request one request")),
    responses((status = 201, body = Made), (status = 400, body = shapes::Problem)))]
pub(crate) async fn redeliver_all(State(app): State<App>, asked: Asked<Matching>) -> Result<Response, Problem> {
    asked.caller.must_be_admin()?;
    let (Some(count), Some(through)) = (asked.body.count, asked.body.through) else {
        return Err(Problem::bad("no_plan", "send `count` and `through` of the plan you looked at"));
    };
    let (matching, counted) = (asked.body.read()?, Counted { count, through });
    let request = asked.request.as_ref();
    let done = app.engine.start_redelivery(&matching, counted, &asked.origin(), request).await?;
    Ok(made(&app.engine, done.value, &done).await.into_response())
}

/// Redeliveries of many, the newest first.
#[utoipa::path(get, path = "/api/v1/redeliveries", tag = "triggers", params(Paging),
    responses((status = 200, body = Listed<shapes::Redelivery>), (status = 403, body = shapes::Problem)))]
pub(crate) async fn list_redeliveries(
    State(app): State<App>,
    caller: Caller,
    Query(paging): Query<Paging>,
) -> Result<Json<Listed<RedeliveryRow>>, Problem> {
    caller.must_read_all()?;
    let order = Order { column: "position", descending: true };
    Ok(Json(page::<Redeliveries>(&app.engine, vec![], order, &paging).await?))
}

/// One redelivery of many, and how far it is.
#[utoipa::path(get, path = "/api/v1/redeliveries/{id}", tag = "triggers",
    params(("id" = String, Path, description = "The redelivery")),
    responses((status = 200, body = shapes::Redelivery), (status = 404, body = shapes::Problem)))]
pub(crate) async fn show_redelivery(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<RedeliveryId>,
) -> Result<Json<RedeliveryRow>, Problem> {
    caller.must_read_all()?;
    let row = projector::get::<Redeliveries>(&app.engine, &id.to_string()).await?;
    row.map(Json).ok_or_else(|| Problem::not_found("redelivery"))
}

/// Stops a redelivery of many. What it let run before runs.
#[utoipa::path(post, path = "/api/v1/redeliveries/{id}/cancel", tag = "triggers",
    params(("id" = String, Path, description = "The redelivery")),
    responses((status = 200, body = Recorded), (status = 409, body = shapes::Problem)))]
pub(crate) async fn cancel_redelivery(
    State(app): State<App>,
    Path(id): Path<RedeliveryId>,
    asked: Asked<Nothing>,
) -> Result<Json<Recorded>, Problem> {
    asked.caller.must_be_admin()?;
    let done = app.engine.cancel_redelivery(id, &asked.origin(), asked.request.as_ref()).await?;
    Ok(recorded(&app.engine, &done).await)
}

/// One delivery, without what is in it.
#[utoipa::path(get, path = "/api/v1/deliveries/{id}", tag = "triggers",
    params(("id" = String, Path, description = "The delivery")),
    responses((status = 200, body = shapes::Delivery), (status = 404, body = shapes::Problem)))]
pub(crate) async fn show(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<DeliveryId>,
) -> Result<Json<DeliveryRow>, Problem> {
    caller.must_read_all()?;
    let row = projector::get::<Deliveries>(&app.engine, &id.to_string()).await?;
    row.map(Json).ok_or_else(|| Problem::not_found("delivery"))
}

/// Headers and body of a delivery, for whoever may read them; that they did is recorded. The body is text, so that nothing
/// reads it on the way: numbers keep their digits.
#[utoipa::path(get, path = "/api/v1/deliveries/{id}/body", tag = "triggers",
    params(("id" = String, Path, description = "The delivery")),
    responses((status = 200, body = Sent), (status = 403, body = shapes::Problem)))]
pub(crate) async fn body(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<DeliveryId>,
) -> Result<Response, Problem> {
    caller.must_read_evidence(&app).await?;
    let (headers, query, body) = match app.engine.read_delivery(id, &caller.origin()).await? {
        Some(read) => (read.headers, read.query, Some(read.body)),
        None => (Vec::new(), None, None),
    };
    let (encoding, body) = match body.map(String::from_utf8) {
        None => ("utf8", None),
        Some(Ok(text)) => ("utf8", Some(text)),
        Some(Err(bytes)) => ("base64", Some(STANDARD.encode(bytes.as_bytes()))),
    };
    Ok(unkept(Json(Sent { headers, query, encoding, body })))
}

/// Checks a delivery's signature again, with the keys that are sealed now. Its timestamp was judged when it came.
#[utoipa::path(post, path = "/api/v1/deliveries/{id}/verify", tag = "triggers",
    params(("id" = String, Path, description = "The delivery")),
    responses((status = 200, body = Again), (status = 404, body = shapes::Problem)))]
pub(crate) async fn verify(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<DeliveryId>,
) -> Result<Json<Again>, Problem> {
    caller.must_read_all()?;
    Ok(Json(verify_again(&app.engine, app.settings.public_url.as_deref(), id).await?))
}
