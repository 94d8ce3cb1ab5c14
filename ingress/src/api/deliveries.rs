//! Deliveries: what came, and what became of it. Bodies are for admins.

use axum::{Json, extract::State, response::Response};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use midwatch_engine::projector;
use midwatch_events::{
    StreamName,
    delivery::{DeliveryContent, DeliveryEvent},
    id::{DeliveryId, TriggerId},
};
use midwatch_log::views::Order;
use midwatch_projections::{
    deliveries::{Deliveries, DeliveryRow, DeliveryStatus},
    triggers::Triggers,
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{Listed, Paging, Path, Query, equals, list as page, shapes, unkept, word};
use crate::{app::App, auth::Caller, error::Problem};

/// Which deliveries.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Wanted {
    /// What became of it: `accepted`, `captured`, `awaiting_confirmation`, `filtered`, `held`, `queued`, `started`,
    /// `expired` or `refused`.
    #[param(value_type = Option<String>)]
    status: Option<DeliveryStatus>,
    /// What the sender says it is about.
    event_type: Option<String>,
    /// The sender's own id.
    sender_id: Option<String>,
}

/// What a sender sent.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Sent {
    /// Names and values, secrets redacted.
    #[schema(value_type = Vec<Vec<String>>)]
    headers: Vec<(String, String)>,
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
    let conditions = [
        equals("trigger", Some(id)),
        equals("status", wanted.status.and_then(word)),
        equals("event_type", wanted.event_type),
        equals("sender_id", wanted.sender_id),
    ];
    let order = Order { column: "position", descending: true };
    let filters = conditions.into_iter().flatten().collect();
    Ok(Json(page::<Deliveries>(&app.engine, filters, order, &paging).await?))
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

/// Headers and body of a delivery. The body is text, so that nothing reads it on the way: numbers keep their digits.
#[utoipa::path(get, path = "/api/v1/deliveries/{id}/body", tag = "triggers",
    params(("id" = String, Path, description = "The delivery")),
    responses((status = 200, body = Sent), (status = 403, body = shapes::Problem)))]
pub(crate) async fn body(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<DeliveryId>,
) -> Result<Response, Problem> {
    caller.must_be_admin()?;
    let events = app.engine.log().read_stream(&StreamName::delivery(id), 1, 1).await?;
    let first = events.first().ok_or_else(|| Problem::not_found("delivery"))?;
    let headers = match first.content::<DeliveryEvent>()? {
        Some(DeliveryContent::Received { headers, .. }) => headers,
        None => Vec::new(),
    };
    let (encoding, body) = match app.engine.body(id).await?.map(String::from_utf8) {
        None => ("utf8", None),
        Some(Ok(text)) => ("utf8", Some(text)),
        Some(Err(bytes)) => ("base64", Some(STANDARD.encode(bytes.as_bytes()))),
    };
    Ok(unkept(Json(Sent { headers, encoding, body })))
}
