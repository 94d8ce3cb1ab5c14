//! What a boundary would have changed, had it been in force.

use std::fmt::Write as _;

use midwatch_boundary::{
    BoundaryDoc,
    what_if::{Looked, Said, Trial, WhatIf},
};
use midwatch_events::Recorded;
use midwatch_log::{Filter, Log};

use crate::{Moment, ReplayError, terminal::clean, titles::spaced};

/// Decisions looked at where nothing else is said.
pub const LAST: u32 = 10_000;

/// Judges the last decisions by `document`: at most `last` of them, and none that was recorded before `since`.
///
/// # Errors
/// The document is none, or the ledger cannot be read. A rule that does not compile is no error: it is broken, as it
/// would be in force.
pub async fn what_if(log: &Log, document: &str, since: Option<Moment>, last: u32) -> Result<WhatIf, ReplayError> {
    let document = BoundaryDoc::parse(document).map_err(|error| ReplayError::BadRequest(error.to_string()))?;
    let filter = Filter { event_types: vec!["run.tool_call_decided".to_owned()], categories: Vec::new() };
    let after = match since {
        Some(Moment::Position(position)) => position.saturating_sub(1),
        Some(Moment::Time(_)) | None => 0,
    };
    let decided = log.read_last(after, last, &filter).await?;
    let mut trial = Trial::new(&document);
    for recorded in decided.iter().filter(|recorded| in_time(recorded, since)) {
        trial.look(recorded);
    }
    Ok(trial.found())
}

fn in_time(recorded: &Recorded, since: Option<Moment>) -> bool {
    match since {
        Some(Moment::Time(at)) => recorded.recorded_at >= at,
        Some(Moment::Position(_)) | None => true,
    }
}

/// The answer for people.
#[must_use]
pub fn text(found: &WhatIf) -> String {
    let mut out = format!(
        "{} decisions: {} would come out as they did, {} otherwise",
        found.decisions, found.same, found.changed
    );
    if found.before_any_rule > 0 {
        // Writing to a string cannot fail.
        let _ = write!(out, ", {} were refused before any rule was asked", found.before_any_rule);
    }
    if found.unevaluable > 0 {
        let _ = write!(out, ", {} cannot be told", found.unevaluable);
    }
    out.push('\n');
    for (change, count) in &found.changes {
        let _ = writeln!(out, "{count:>8}  {change}");
    }
    for call in &found.calls {
        line(&mut out, call, None);
    }
    if !found.not_told.is_empty() {
        out.push_str("Cannot be told:\n");
        for call in &found.not_told {
            line(&mut out, call, call.unevaluable.as_deref());
        }
    }
    out
}

fn line(out: &mut String, call: &Looked, why: Option<&str>) {
    let said = |said: &Said| match &said.rule {
        Some(rule) => format!("{} ({rule})", spaced(said.verdict)),
        None => spaced(said.verdict),
    };
    let what = if call.fingerprint.is_empty() { &call.tool } else { &call.fingerprint };
    let would_be = call.would_be.as_ref().map_or_else(|| "?".to_owned(), said);
    let why = why.map(|why| format!(": {why}")).unwrap_or_default();
    let text = format!("{what}: {} → {would_be}{why}", said(&call.was));
    let _ = writeln!(out, "{:>8}  {:<27}  {}", call.position, call.at_us.to_string(), clean(&text));
}
