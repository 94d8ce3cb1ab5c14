//! The scheduling halt, from any page.

use axum::extract::State;

use super::{
    frame::{Failure, Page},
    visitor::{Posted, seen},
    watch,
};
use crate::{app::App, error::Problem};

/// `POST /halt`.
pub(super) async fn halt(State(app): State<App>, posted: Posted) -> Page {
    let posted = posted.admin()?;
    let reason = posted.fields.get("reason");
    let (origin, request) = (posted.caller.origin(), posted.request.as_ref());
    let outcome = if reason.is_empty() {
        Err(Failure(Problem::bad("invalid", "say why scheduling is halted; everybody sees it")))
    } else if posted.fields.has("stop_runs") {
        let done = app.engine.stop_everything(&origin, reason, request).await;
        done.map(|done| (done.position, "/?done=halted-and-stopped")).map_err(Failure::from)
    } else {
        let done = app.engine.halt_scheduling(&origin, reason, request).await;
        done.map(|done| (done.position, "/?done=halted")).map_err(Failure::from)
    };
    match outcome {
        Ok((position, path)) => seen(&app, position, path).await,
        Err(failure) => watch::refused(&app, &posted.caller, reason, failure).await,
    }
}

/// `POST /halt/lift`.
pub(super) async fn lift(State(app): State<App>, posted: Posted) -> Page {
    let posted = posted.admin()?;
    match app.engine.lift_halt(&posted.caller.origin(), posted.request.as_ref()).await {
        Ok(done) => seen(&app, done.position, "/?done=lifted").await,
        Err(error) => watch::refused(&app, &posted.caller, "", error.into()).await,
    }
}
