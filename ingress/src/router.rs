//! Every URL, on one screen.

use std::{sync::Arc, time::Duration};

use axum::{
    Extension, Json, Router,
    body::{Body, HttpBody as _},
    extract::{DefaultBodyLimit, Request},
    http::{HeaderName, HeaderValue, StatusCode, header},
    middleware::{from_fn_with_state, map_request, map_response},
    response::Response,
    routing::{any, delete, get, post, put},
};
use futures_util::{StreamExt as _, stream};
use serde_json::json;
use tokio::time::sleep;

use crate::{
    api::{
        approvals, audit, bots, boundary, deliveries, halt, live, mcp_servers, notices, openapi, routines, runs,
        schedules, senders, status, triggers,
    },
    app::{App, Stopping},
    auth, dashboard,
    error::{Kind, Problem},
    hooks::{self, Doors},
    mcp, metrics,
};

/// Longest body the API takes, in bytes.
const API_BODY_BYTES_MAX: usize = 1 << 20;
/// How long a body may take, but for a delivery's.
const BODY_DEADLINE: Duration = Duration::from_secs(30);

/// What `--listen` serves: everything.
pub(crate) fn everything(app: App, doors: Arc<Doors>, stopping: Stopping) -> Router {
    let api = api_v1(&app);
    dashboard::routes()
        .nest("/api/v1", api)
        .route("/mcp", any(mcp::serve))
        .route("/ready", get(status::ready))
        .route("/metrics", get(metrics::show))
        .with_state(app)
        .layer(map_request(in_time))
        .merge(hooks(doors))
        .fallback(nothing_here)
        .method_not_allowed_fallback(wrong_method)
        .layer(Extension(stopping))
        .layer(map_response(secured))
}

/// What `--hooks-listen` serves: hooks, and whether we are there.
pub(crate) fn hooks_only(doors: Arc<Doors>) -> Router {
    hooks(doors).fallback(nothing_here).method_not_allowed_fallback(wrong_method).layer(map_response(secured))
}

fn hooks(doors: Arc<Doors>) -> Router {
    hooks::router(doors).route("/health", get(health))
}

fn api_v1(app: &App) -> Router<App> {
    let authenticated = Router::new()
        .route("/me", get(status::me))
        .route("/projections", get(status::projections))
        .route("/live", get(live::live))
        .route("/bots", get(bots::list).post(bots::create))
        .route("/bots/{id}", get(bots::show))
        .route("/bots/{id}/retire", post(bots::retire))
        .route("/bots/{id}/stop", post(bots::stop))
        .route("/bots/{id}/tools", post(bots::change_tools))
        .route("/mcp-servers", get(mcp_servers::list).post(mcp_servers::add))
        .route("/mcp-servers/{server}", delete(mcp_servers::remove))
        .route("/mcp-servers/{server}/tools", get(mcp_servers::tools))
        .route("/mcp-servers/{server}/accept", post(mcp_servers::accept))
        .route("/mcp-servers/{server}/drop", post(mcp_servers::drop_tools))
        .route("/schedules/preview", post(schedules::preview))
        .route("/routines", get(routines::list).post(routines::create))
        .route("/routines/{id}", get(routines::show).patch(routines::edit).delete(routines::remove))
        .route("/routines/{id}/windows", get(schedules::windows))
        .route("/routines/{id}/pause", post(routines::pause))
        .route("/routines/{id}/resume", post(routines::resume))
        .route("/routines/{id}/run", post(routines::run_now))
        .route("/runs", get(runs::list))
        .route("/runs/{id}", get(runs::show))
        .route("/runs/{id}/timeline", get(runs::timeline))
        .route("/runs/{id}/cancel", post(runs::cancel))
        .route("/triggers", get(triggers::list).post(triggers::create))
        .route("/triggers/{id}", get(triggers::show).delete(triggers::remove))
        .route("/triggers/{id}/confirm", post(triggers::confirm))
        .route("/triggers/{id}/pause", post(triggers::pause))
        .route("/triggers/{id}/resume", post(triggers::resume))
        .route("/triggers/{id}/rotate", post(senders::rotate))
        .route("/triggers/{id}/sender", put(senders::replace_sender))
        .route("/triggers/{id}/check", post(senders::by_trigger))
        .route("/presets", get(senders::presets))
        .route("/presets/check", post(senders::by_preset))
        .route("/triggers/{id}/intake", put(triggers::replace_intake))
        .route("/triggers/{id}/intake/preview", post(triggers::preview))
        .route("/triggers/{id}/deliveries", get(deliveries::list))
        .route("/deliveries", get(deliveries::search))
        .route("/deliveries/{id}", get(deliveries::show))
        .route("/deliveries/{id}/body", get(deliveries::body))
        .route("/deliveries/{id}/verify", post(deliveries::verify))
        .route("/deliveries/{id}/redeliver", post(deliveries::redeliver))
        .route("/redeliveries", get(deliveries::list_redeliveries).post(deliveries::redeliver_all))
        .route("/redeliveries/plan", post(deliveries::plan))
        .route("/redeliveries/{id}", get(deliveries::show_redelivery))
        .route("/redeliveries/{id}/cancel", post(deliveries::cancel_redelivery))
        .route("/receivers", get(notices::receivers).post(notices::add))
        .route("/receivers/{id}", delete(notices::remove))
        .route("/receivers/{id}/secret", get(notices::secret))
        .route("/notices", get(notices::list))
        .route("/notices/{id}", get(notices::show))
        .route("/notices/{id}/again", post(notices::again))
        .route("/boundary", get(boundary::show).put(boundary::publish))
        .route("/boundary/check", post(boundary::check))
        .route("/boundary/what-if", post(boundary::what_if))
        .route("/boundary/versions", get(boundary::versions))
        .route("/boundary/versions/{version}", get(boundary::version))
        .route("/approvals", get(approvals::list))
        .route("/approvals/{id}", get(approvals::show))
        .route("/approvals/{id}/answer", post(approvals::answer))
        .route("/audit", get(audit::list))
        .route("/halt", get(halt::show).post(halt::halt).delete(halt::lift))
        .layer(DefaultBodyLimit::max(API_BODY_BYTES_MAX))
        .layer(from_fn_with_state(app.clone(), auth::api_guard));
    // Merged afterwards: the description is nobody's secret.
    authenticated.merge(Router::new().route("/openapi.json", get(openapi::document)))
}

/// It serves.
async fn health() -> Json<serde_json::Value> {
    Json(json!({ "ok": true }))
}

async fn nothing_here() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, Kind::Refusal, "not_found", "there is nothing here")
}

async fn wrong_method() -> Problem {
    let sentence = "this address does not take this method";
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, Kind::Refusal, "method", sentence)
}

/// A body that is not whole in time breaks off. Hooks have a deadline of their own, with an answer of its own.
async fn in_time(request: Request) -> Request {
    request.map(|body| {
        if body.is_end_stream() {
            return body;
        }
        let late = Box::pin(sleep(BODY_DEADLINE));
        Body::from_stream(stream::unfold((body.into_data_stream(), late), |(mut data, mut late)| async move {
            tokio::select! {
                biased;
                chunk = data.next() => Some((chunk?, (data, late))),
                () = &mut late => Some((Err(axum::Error::new(TooSlow)), (data, late))),
            }
        }))
    })
}

#[derive(Debug, thiserror::Error)]
#[error("the body was not whole after {} s", BODY_DEADLINE.as_secs())]
struct TooSlow;

/// What every answer says to browsers. A page that needs more than our own files needs another design.
async fn secured(mut response: Response) -> Response {
    let headers = response.headers_mut();
    for (name, value) in [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CONTENT_SECURITY_POLICY, CSP),
        (header::REFERRER_POLICY, "same-origin"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        // An answer may say otherwise, as blobs and files of ours do; none says nothing by chance.
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}

/// Nothing inline, nothing from elsewhere, in nobody's frame.
const CSP: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; \
                   connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
