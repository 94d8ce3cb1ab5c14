//! A stream's state at any moment, folded by the same rules that decided with it; and what changed between two moments.
//!
//! ```json
//! {"stream": NAME, "version": N, "position": POSITION, "at": INSTANT, "state": {…}}
//! {"stream": NAME, "from": {version, position, at}, "to": {…}, "changed": [{"member": PATH, "before": …, "after": …}]}
//! ```
//!
//! `version`, `position` and `at` are those of the last event that was taken in; 0, 0 and null before the first. A
//! state holds facts only: words can be erased, and nothing is decided by them. A member's path names it from the
//! outside in, such as `target.live`; lists are one member.

mod diff;
mod views;

use midwatch_commands::{
    Decider,
    bot::Bot,
    boundary::{Boundary, ToolServers},
    delivery::Delivery,
    engine::Engine,
    repeat::Repeat,
    routine::Routine,
    run::Run,
    trigger::Trigger,
    user::User,
};
use midwatch_events::{Micros, StreamName};
use midwatch_log::Log;
use midwatch_projections::projection::rfc3339;
use serde::Serialize;
use serde_json::Value;

use crate::{
    Moment, ReplayError,
    error::facts,
    terminal::{clean, clean_json},
};

pub use diff::Change;

const PAGE: u32 = 500;

/// A stream's state at a moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StateAt {
    /// The stream.
    pub stream: String,
    /// The last event that was taken in.
    #[serde(flatten)]
    pub last: Last,
    /// The state.
    pub state: Value,
}

/// What changed between two moments.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// The stream.
    pub stream: String,
    /// The last event before.
    pub from: Last,
    /// The last event after.
    pub to: Last,
    /// The members that differ.
    pub changed: Vec<Change>,
}

/// The last event a state rests on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Last {
    /// Its version in the stream; 0 before the first.
    pub version: u64,
    /// Its position.
    pub position: u64,
    /// When it was recorded.
    #[serde(with = "rfc3339::option")]
    pub at: Option<Micros>,
}

/// The state of a stream at a moment, or now.
///
/// # Errors
/// [`ReplayError::BadRequest`] for a kind of stream there is not, [`ReplayError::NotThere`] where nobody had written
/// to it by then; or the ledger cannot be read.
pub async fn state(log: &Log, stream: &StreamName, until: Option<Moment>) -> Result<StateAt, ReplayError> {
    let (last, state) = folded(log, stream, until).await?;
    if last.version == 0 {
        let by = until.map_or_else(String::new, |moment| format!(" up to {moment}"));
        return Err(ReplayError::NotThere(format!("nothing was written to {stream}{by}")));
    }
    Ok(StateAt { stream: stream.to_string(), last, state })
}

/// What changed in a stream's state from one moment to another. Before its first event everything is as it never was.
///
/// # Errors
/// As [`state`]; the stream must be there at one of the moments.
pub async fn difference(log: &Log, stream: &StreamName, from: Moment, to: Moment) -> Result<Difference, ReplayError> {
    let (before, old) = folded(log, stream, Some(from)).await?;
    let (after, new) = folded(log, stream, Some(to)).await?;
    if before.version == 0 && after.version == 0 {
        return Err(ReplayError::NotThere(format!("nothing was written to {stream} up to {from} or {to}")));
    }
    Ok(Difference { stream: stream.to_string(), from: before, to: after, changed: diff::changes(&old, &new) })
}

async fn folded(log: &Log, stream: &StreamName, until: Option<Moment>) -> Result<(Last, Value), ReplayError> {
    match stream.category() {
        "bot" => fold::<Bot>(log, stream, until, views::bot).await,
        "boundary" => fold::<Boundary>(log, stream, until, views::boundary).await,
        "delivery" => fold::<Delivery>(log, stream, until, views::delivery).await,
        "engine" => fold::<Engine>(log, stream, until, views::engine).await,
        "halt" => fold::<Engine>(log, stream, until, views::halt).await,
        "process" => fold::<Engine>(log, stream, until, views::process).await,
        "repeat" => fold::<Repeat>(log, stream, until, views::repeat).await,
        "routine" => fold::<Routine>(log, stream, until, views::routine).await,
        "run" => fold::<Run>(log, stream, until, views::run).await,
        "tools" => fold::<ToolServers>(log, stream, until, views::tools).await,
        "trigger" => fold::<Trigger>(log, stream, until, views::trigger).await,
        "user" | "token" => fold::<User>(log, stream, until, views::user).await,
        _ => Err(ReplayError::BadRequest(format!(
            "`{stream}` is no stream; streams are boundary, engine, halt, and bot-ID, delivery-ID, process-ID, \
             repeat-BOT-FINGERPRINT, routine-ID, run-ID, token-ID, tools, trigger-ID, user-ID"
        ))),
    }
}

async fn fold<D: Decider>(
    log: &Log,
    stream: &StreamName,
    until: Option<Moment>,
    view: fn(&D) -> Value,
) -> Result<(Last, Value), ReplayError> {
    let mut state = D::default();
    let mut last = Last::default();
    loop {
        let page = log.read_stream(stream, last.version + 1, PAGE).await?;
        for recorded in &page {
            if until.is_some_and(|moment| !moment.includes(recorded)) {
                return Ok((last, view(&state)));
            }
            state.evolve(&facts(recorded)?, recorded.recorded_at);
            let (version, position) = (recorded.version, recorded.position);
            last = Last { version, position, at: Some(recorded.recorded_at) };
        }
        if page.len() < PAGE as usize {
            return Ok((last, view(&state)));
        }
    }
}

/// A state for people: its members, one a line.
#[must_use]
pub fn state_text(state: &StateAt) -> String {
    let mut out = format!("{} {}\n", clean(&state.stream), last(&state.last));
    lines(&mut out, "", &state.state);
    out
}

/// A difference for people: one line a member.
#[must_use]
pub fn difference_text(difference: &Difference) -> String {
    let stream = clean(&difference.stream);
    let mut out = format!("{stream}\n  from {}\n  to   {}\n", last(&difference.from), last(&difference.to));
    if difference.changed.is_empty() {
        out.push_str("nothing changed\n");
    }
    for Change { member, before, after } in &difference.changed {
        out.push_str(&format!(
            "{}: {} -> {}\n",
            clean(member),
            clean_json(&before.to_string()),
            clean_json(&after.to_string())
        ));
    }
    out
}

fn last(last: &Last) -> String {
    match last.at {
        Some(at) => format!("at version {}, position {}, {at}", last.version, last.position),
        None => "before its first event".to_owned(),
    }
}

fn lines(out: &mut String, path: &str, value: &Value) {
    let Value::Object(members) = value else {
        out.push_str(&format!("  {}: {}\n", clean(path), clean_json(&value.to_string())));
        return;
    };
    if members.is_empty() {
        out.push_str(&format!("  {}: none\n", clean(path)));
    }
    for (name, value) in members {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        lines(out, &path, value);
    }
}

#[cfg(test)]
mod tests;
