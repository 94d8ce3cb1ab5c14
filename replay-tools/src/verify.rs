//! Whether everything that stands in the ledger is what was written.
//!
//! ```json
//! {"ok": true, "events": N}
//! {"ok": false, "first_bad": POSITION, "error": SENTENCE}
//! ```
//!
//! `unknown`, beside either, counts the events that a newer version wrote, by wire name. They are held by their hashes
//! like all others; only what they mean is not known here.

use std::collections::BTreeMap;

use midwatch_events::{AnyEvent, Recorded, codec::CodecError};
use midwatch_log::{Filter, Log, LogError, verify::Bad};
use serde::Serialize;

use crate::ReplayError;

/// Events in a page. Bounds memory: at 64 KiB each, two pages are 128 MiB at the very most.
const PAGE: u32 = 1_024;

/// What a verification came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verification {
    /// Every event holds.
    pub ok: bool,
    /// How many there are; absent where one does not hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub events: Option<u64>,
    /// The position of the first event that does not hold, or of the gap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_bad: Option<u64>,
    /// What is wrong with it, in a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Events of a newer version, by wire name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub unknown: BTreeMap<String, u64>,
}

/// Checks the whole ledger: positions, versions, event ids, time, commitments and leaf hashes over the stored bytes;
/// then that each event this binary knows decodes, facts and content.
///
/// # Errors
/// The ledger cannot be read. What does not hold is no error but an answer.
pub async fn verify(log: &Log) -> Result<Verification, ReplayError> {
    let verified = midwatch_log::verify::verify(log).await?;
    let decoded = decode(log, verified.events).await?;
    // Whatever does not decode stands before what the hashes found: only what they passed was decoded.
    let first_bad = decoded.first_bad.or(verified.first_bad);
    Ok(Verification {
        ok: first_bad.is_none(),
        events: first_bad.is_none().then_some(verified.events),
        first_bad: first_bad.as_ref().map(|bad| bad.position),
        error: first_bad.map(|bad| bad.error),
        unknown: decoded.unknown,
    })
}

#[derive(Default)]
struct Decoded {
    first_bad: Option<Bad>,
    unknown: BTreeMap<String, u64>,
}

/// Decodes the first `events` of the ledger, and reads nothing beyond them: what follows may not be readable.
async fn decode(log: &Log, events: u64) -> Result<Decoded, ReplayError> {
    let mut decoded = Decoded::default();
    let mut next = tokio::spawn(page(log.clone(), 0, events));
    loop {
        let page = next.await.unwrap_or_else(|error| Err(stopped(&error)))?;
        let Some(end) = page.last().map(|event| event.position) else { return Ok(decoded) };
        // The next page is read while this one is decoded.
        next = tokio::spawn(self::page(log.clone(), end, events));
        for recorded in &page {
            match AnyEvent::decode(recorded) {
                Ok(_) => {}
                Err(CodecError::Unknown { wire }) => *decoded.unknown.entry(wire).or_default() += 1,
                Err(error) => {
                    decoded.first_bad = Some(Bad { position: recorded.position, error: error.to_string() });
                    return Ok(decoded);
                }
            }
        }
    }
}

async fn page(log: Log, after: u64, last: u64) -> Result<Vec<Recorded>, LogError> {
    let limit = u32::try_from(last.saturating_sub(after)).map_or(PAGE, |left| left.min(PAGE));
    if limit == 0 {
        return Ok(Vec::new());
    }
    log.read_all(after, limit, &Filter::default()).await.map(|(events, _)| events)
}

fn stopped(error: &tokio::task::JoinError) -> LogError {
    LogError::Unavailable { operation: "verify", reason: error.to_string() }
}

/// For people.
#[must_use]
pub fn text(verification: &Verification) -> String {
    let mut out = match (verification.first_bad, verification.events) {
        (Some(position), _) => {
            let error = verification.error.as_deref().unwrap_or_default();
            format!("The record does not hold. The first bad event is at position {position}: {error}\n")
        }
        (None, events) => format!("The record holds: {} events, each as it was written\n", events.unwrap_or_default()),
    };
    for (wire, count) in &verification.unknown {
        out.push_str(&format!("{count} of {wire}, which a newer version of Midwatch wrote\n"));
    }
    out
}

#[cfg(test)]
mod tests;
