//! Notices: who is told what happens here, and what became of telling it. Admins only: who knows a receiver's address may
//! be let in by it alone.

use axum::{
    Json,
    extract::State,
    response::{IntoResponse as _, Response},
};
use midwatch_engine::{notices::NewReceiver, projector};
use midwatch_events::{
    engine::NoticeKind,
    id::{NoticeId, ReceiverId},
};
use midwatch_gateway::{
    dialer::{self, Reach},
    notices::shown,
};
use midwatch_log::views::{Cell, Condition, Order, Test};
use midwatch_projections::{
    engine_notices::{NoticeRow, NoticeState, Notices},
    engine_receivers::{ReceiverRow, Receivers},
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    Asked, Listed, Made, Nothing, Paging, Path, Query, Recorded, equals, list as page, made, recorded, shapes, unkept,
    word,
};
use crate::{app::App, auth::Caller, error::Problem};

/// Somebody to tell what happens here.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewReceiver)]
pub(crate) struct New {
    name: String,
    /// Where notices are posted to.
    url: String,
    /// What it is told: `run_ended`, `run_failed`, `run_refused`, `missed`, `held`, `suspended`, `approval_waiting`,
    /// `going_in_circles`, `halt`.
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    about: Vec<NoticeKind>,
    /// How often it is told that the clock goes, in seconds: 10 to 86,400.
    heartbeat_s: Option<u32>,
}

/// The key a receiver checks notices with.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ReceiverSecret {
    /// As Standard Webhooks writes it: `whsec_…`.
    secret: String,
}

/// Which notices.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Wanted {
    /// Only those to this receiver.
    #[param(value_type = Option<String>)]
    receiver: Option<ReceiverId>,
    /// `waiting`, `delivered` or `failed`.
    #[param(value_type = Option<String>)]
    state: Option<NoticeState>,
    /// Only those of this kind.
    #[param(value_type = Option<String>)]
    kind: Option<NoticeKind>,
}

/// Who is told what happens here.
#[utoipa::path(get, path = "/api/v1/receivers", tag = "notices", params(Paging),
    responses((status = 200, body = Listed<shapes::Receiver>), (status = 403, body = shapes::Problem)))]
pub(crate) async fn receivers(
    State(app): State<App>,
    caller: Caller,
    Query(paging): Query<Paging>,
) -> Result<Json<Listed<ReceiverRow>>, Problem> {
    caller.must_be_admin()?;
    let active = Condition { column: "state", is: Test::Eq(Cell::Text("active".to_owned())) };
    let order = Order { column: "position", descending: false };
    Ok(Json(page::<Receivers>(&app.engine, vec![active], order, &paging).await?))
}

/// Tells somebody what happens here from now on. Whether its address may be reached is judged when it is posted to.
#[utoipa::path(post, path = "/api/v1/receivers", tag = "notices", request_body = New,
    params(("Idempotency-Key" = Option<String>, Header, description = "Makes a repeated request one request")),
    responses((status = 201, body = Made), (status = 400, body = shapes::Problem)))]
pub(crate) async fn add(State(app): State<App>, asked: Asked<New>) -> Result<Response, Problem> {
    asked.caller.must_be_admin()?;
    let New { name, url, about, heartbeat_s } = &asked.body;
    let url = dialer::address(url, Reach::Private).map_err(|barred| Problem::bad("invalid_url", barred.to_string()))?;
    let new = NewReceiver { name: name.clone(), url: url.into(), about: about.clone(), heartbeat_s: *heartbeat_s };
    let done = app.engine.add_receiver(&new, &asked.origin(), asked.request.as_ref()).await?;
    Ok(made(&app.engine, done.value, &done).await.into_response())
}

/// Tells somebody nothing more.
#[utoipa::path(delete, path = "/api/v1/receivers/{id}", tag = "notices",
    params(("id" = String, Path, description = "The receiver")),
    responses((status = 200, body = Recorded), (status = 404, body = shapes::Problem)))]
pub(crate) async fn remove(
    State(app): State<App>,
    Path(id): Path<ReceiverId>,
    asked: Asked<Nothing>,
) -> Result<Json<Recorded>, Problem> {
    asked.caller.must_be_admin()?;
    let done = app.engine.remove_receiver(id, &asked.origin(), asked.request.as_ref()).await?;
    Ok(recorded(&app.engine, &done).await)
}

/// The key that a receiver's notices are signed with.
#[utoipa::path(get, path = "/api/v1/receivers/{id}/secret", tag = "notices",
    params(("id" = String, Path, description = "The receiver")),
    responses((status = 200, body = ReceiverSecret), (status = 404, body = shapes::Problem)))]
pub(crate) async fn secret(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<ReceiverId>,
) -> Result<Response, Problem> {
    caller.must_be_admin()?;
    let secret = shown(&app.engine.receiver_secret(id).await?);
    Ok(unkept(Json(ReceiverSecret { secret })))
}

/// What was told to whom, the newest first.
#[utoipa::path(get, path = "/api/v1/notices", tag = "notices", params(Wanted, Paging),
    responses((status = 200, body = Listed<shapes::Notice>), (status = 403, body = shapes::Problem)))]
pub(crate) async fn list(
    State(app): State<App>,
    caller: Caller,
    Query(wanted): Query<Wanted>,
    Query(paging): Query<Paging>,
) -> Result<Json<Listed<NoticeRow>>, Problem> {
    caller.must_be_admin()?;
    let conditions = [
        equals("receiver", wanted.receiver),
        equals("state", wanted.state.and_then(word)),
        equals("kind", wanted.kind.and_then(word)),
    ];
    let order = Order { column: "position", descending: true };
    Ok(Json(page::<Notices>(&app.engine, conditions.into_iter().flatten().collect(), order, &paging).await?))
}

/// One notice, and what came of its last attempt.
#[utoipa::path(get, path = "/api/v1/notices/{id}", tag = "notices",
    params(("id" = String, Path, description = "The notice")),
    responses((status = 200, body = shapes::Notice), (status = 404, body = shapes::Problem)))]
pub(crate) async fn show(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<NoticeId>,
) -> Result<Json<NoticeRow>, Problem> {
    caller.must_be_admin()?;
    let row = projector::get::<Notices>(&app.engine, &id.to_string()).await?;
    row.map(Json).ok_or_else(|| Problem::not_found("notice"))
}

/// Posts a notice once more.
#[utoipa::path(post, path = "/api/v1/notices/{id}/again", tag = "notices",
    params(("id" = String, Path, description = "The notice")),
    responses((status = 200, body = Recorded), (status = 409, body = shapes::Problem)))]
pub(crate) async fn again(
    State(app): State<App>,
    Path(id): Path<NoticeId>,
    asked: Asked<Nothing>,
) -> Result<Json<Recorded>, Problem> {
    asked.caller.must_be_admin()?;
    let done = app.engine.ask_notice_again(id, &asked.origin(), asked.request.as_ref()).await?;
    Ok(recorded(&app.engine, &done).await)
}
