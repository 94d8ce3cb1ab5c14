//! Whether we are well, and who is asking.

use axum::{
    Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use midwatch_engine::{
    Engine, clock,
    projector::{self, Status},
};
use midwatch_events::user::Access;
use midwatch_log::WentBack;
use serde::Serialize;
use utoipa::ToSchema;

use super::{shapes, unkept};
use crate::{
    app::App,
    auth::Caller,
    error::{Kind, Problem},
};

/// A projection whose next event has waited longer than this stands still, in seconds.
const STANDS_STILL_S: u64 = 30;
/// A clock that has not gone round for longer than this stands still, in seconds: it goes round each 30 s at the least.
const CLOCK_STILL_S: u64 = 75;

/// Who asks.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Me {
    /// Who, as audit rows name them.
    actor: String,
    /// What they may do.
    #[schema(value_type = shapes::Access)]
    role: Access,
    /// The person, if it is one.
    #[schema(value_type = Option<String>, format = Uuid)]
    user: Option<String>,
    /// What a browser sends as `X-CSRF-Token` with every change; null for a token's bearer, who needs none.
    csrf: Option<String>,
}

/// Who asks.
#[utoipa::path(get, path = "/api/v1/me", tag = "status",
    responses((status = 200, body = Me), (status = 401, body = shapes::Problem)))]
pub(crate) async fn me(caller: Caller) -> Response {
    unkept(Json(Me {
        actor: caller.actor.to_string(),
        role: caller.role,
        user: caller.user().map(|user| user.to_string()),
        csrf: caller.csrf().map(str::to_owned),
    }))
}

/// Where every projection stands.
#[utoipa::path(get, path = "/api/v1/projections", tag = "status",
    responses((status = 200, body = Vec<shapes::ProjectionStatus>)))]
pub(crate) async fn projections(State(app): State<App>) -> Result<Json<Vec<Status>>, Problem> {
    Ok(Json(projector::status(&app.engine).await?))
}

/// `GET /ready`: 200 when what is read here is so and what is due is done; 503 when the ledger went back, a projection
/// stopped or stands still, or no clock goes.
pub(crate) async fn ready(State(app): State<App>) -> Response {
    let failing = match unwell(&app.engine, STANDS_STILL_S).await {
        Ok(None) => None,
        Ok(Some(sentence)) => Some(sentence),
        Err(problem) => return problem.into_response(),
    };
    let failing = match failing {
        Some(sentence) => sentence,
        None => match no_clock(&app.engine).await {
            Ok(None) => return Json(serde_json::json!({ "ok": true })).into_response(),
            Ok(Some(sentence)) => sentence,
            Err(problem) => return problem.into_response(),
        },
    };
    let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, Kind::Fault, "not_ready", failing);
    problem.retry_after(crate::error::RETRY_S).into_response()
}

/// That no process keeps time, where that is so and nothing says that none should.
async fn no_clock(engine: &Engine) -> Result<Option<String>, Problem> {
    if engine.halt().await?.state.halted.is_some() {
        return Ok(None);
    }
    Ok(match clock::still_for_s(engine).await? {
        Some(still_s) if still_s <= CLOCK_STILL_S => None,
        Some(still_s) => Some(format!("the clock has stood still for {still_s} s: nothing that is due is done")),
        None => Some("no process keeps time: one needs the role `clock`".to_owned()),
    })
}

/// What keeps this deployment from being ready: a ledger that went back, a projection that stopped, or one whose next
/// event has waited longer than `patience_s` seconds.
pub(crate) async fn unwell(engine: &Engine, patience_s: u64) -> Result<Option<String>, Problem> {
    if let Some(went_back) = engine.went_back() {
        return Ok(Some(gone_back(went_back)));
    }
    let all = projector::status(engine).await?;
    if let Some(stopped) = all.iter().find(|status| status.stopped.is_some()) {
        let position = stopped.stopped.as_ref().map_or(0, |(position, _)| *position);
        return Ok(Some(format!("the projection {} stopped at position {position}", stopped.name)));
    }
    let Some(slowest) = all.iter().filter(|status| status.behind > 0).min_by_key(|status| status.position) else {
        return Ok(None);
    };
    let sentence = format!("the projection {} stands still at position {}", slowest.name, slowest.position);
    Ok((slowest.lag_ms >= patience_s * 1_000).then_some(sentence))
}

/// Both heads, in a sentence.
pub(crate) fn gone_back(WentBack { seen, head }: WentBack) -> String {
    format!(
        "the ledger went back: this process has seen position {seen}, the ledger now ends at {head}; nothing is appended \
         and nothing starts until it is started again"
    )
}
