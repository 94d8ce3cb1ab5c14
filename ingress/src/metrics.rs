//! `GET /metrics`: numbers for Prometheus, of this process and of what it sees of the deployment.
//!
//! They need no sign-in, so they name nothing that anybody made: no person, Bot, routine, run, trigger or sender.

use std::fmt::Write as _;

use axum::{extract::State, http::header, response::IntoResponse};
use midwatch_engine::{projector, reactor};
use midwatch_log::views::{Cell, Condition, Test};
use midwatch_projections::runs::Runs;

use crate::{app::App, error::Problem};

/// Prometheus' text format.
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// `GET /metrics`.
pub(crate) async fn show(State(app): State<App>) -> Result<impl IntoResponse, Problem> {
    let engine = &app.engine;
    let statuses = projector::status(engine).await?;
    // Whoever leads moves the checkpoints; how far they are is the same for every process that is asked.
    let slowest = statuses.iter().map(|status| status.position).min().unwrap_or_default();
    for (name, position) in [("projector", slowest), ("reactor", reactor::checkpoint(engine).await?)] {
        engine.log().follower(name).reached(position);
    }
    let mut out = engine.log().metrics().render();
    family(&mut out, "projection_lag_events", "Events that a projection has still to take in.");
    for status in &statuses {
        line(&mut out, "projection_lag_events", &format!("{{projection=\"{}\"}}", status.name), status.behind);
    }
    family(&mut out, "projection_lag_seconds", "Age of the oldest event that a projection has still to take in.");
    for status in &statuses {
        let (s, ms) = (status.lag_ms / 1_000, status.lag_ms % 1_000);
        // Writing to a string cannot fail.
        let _ = writeln!(out, "midwatch_projection_lag_seconds{{projection=\"{}\"}} {s}.{ms:03}", status.name);
    }
    family(&mut out, "projection_stopped", "Whether an event stopped a projection: 1 or 0.");
    for status in &statuses {
        let stopped = u64::from(status.stopped.is_some());
        line(&mut out, "projection_stopped", &format!("{{projection=\"{}\"}}", status.name), stopped);
    }
    let states = ["waiting", "running"].map(|state| Cell::Text(state.to_owned())).to_vec();
    let live = projector::count::<Runs>(engine, &[Condition { column: "state", is: Test::In(states) }]).await?;
    family(&mut out, "runs_live", "Runs that wait for a runner or are under way.");
    line(&mut out, "runs_live", "", live);
    let halted = u64::from(engine.halt().await?.state.halted.is_some());
    family(&mut out, "scheduling_halted", "Whether scheduling is halted: 1 or 0.");
    line(&mut out, "scheduling_halted", "", halted);
    Ok(([(header::CONTENT_TYPE, TEXT)], out))
}

fn family(out: &mut String, name: &str, help: &str) {
    // Writing to a string cannot fail.
    let _ = write!(out, "# HELP midwatch_{name} {help}\n# TYPE midwatch_{name} gauge\n");
}

fn line(out: &mut String, name: &str, labels: &str, value: u64) {
    let _ = writeln!(out, "midwatch_{name}{labels} {value}");
}

#[cfg(test)]
mod tests;
