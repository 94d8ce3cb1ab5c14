//! Whether the ledger holds what was written: everything that can be computed again is, from the stored bytes alone.
//!
//! It decodes no event. What it cannot see is an end that was cut off, or a ledger that was made anew as a whole; that
//! is what signed checkpoints outside of the database are for.

use std::collections::{HashMap, hash_map::Entry};

use midwatch_events::{
    Micros, Recorded, StreamName,
    leaf::{commitment, leaf_hash},
};

use crate::log::{Filter, Log, LogError};

/// Events in a page. Bounds memory: at 64 KiB each, 64 MiB.
const PAGE: u32 = 1_024;

/// What a verification came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// Events that were checked and hold, from the first on.
    pub events: u64,
    /// The first that does not hold.
    pub first_bad: Option<Bad>,
}

/// An event that is not what was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bad {
    /// Its position, or that of the gap.
    pub position: u64,
    /// What is wrong, in a sentence.
    pub error: String,
}

/// Checks the whole ledger, in pages: positions without gaps, versions without gaps in each stream, each event id once,
/// time that does not go back, commitments over what content is left, leaf hashes over columns and keys.
///
/// # Errors
/// [`LogError`] where the ledger cannot be read; what does not hold is no error but an answer.
pub async fn verify(log: &Log) -> Result<Verified, LogError> {
    let mut check = Check { last: 0, recorded_at: Micros(i64::MIN), versions: HashMap::new() };
    let mut next = tokio::spawn(page(log.clone(), 0));
    loop {
        let read = match next.await.unwrap_or_else(|error| Err(stopped(&error))) {
            Ok(page) => page,
            Err(LogError::Corrupt { position, reason }) => return Ok(check.bad(Bad { position, error: reason })),
            Err(error) => return Err(error),
        };
        let Some(end) = read.events.last().map(|event| event.position) else { break };
        // The next page is read while this one is hashed.
        next = tokio::spawn(page(log.clone(), end));
        if let Some(bad) = check.page(&read) {
            return Ok(check.bad(bad));
        }
    }
    // Keys of an append that is not there, and has not come meanwhile.
    match log.keys_between(check.last + 1, u64::MAX).await?.first() {
        Some((position, _)) if log.read_at(*position).await?.is_none() => {
            let bad = Bad { position: *position, error: "a key stands for an event that is not there".to_owned() };
            Ok(check.bad(bad))
        }
        _ => Ok(Verified { events: check.last, first_bad: None }),
    }
}

/// What is read of some events in one go.
struct Page {
    events: Vec<Recorded>,
    /// The keys that stand at them.
    keys: Vec<(u64, [u8; 32])>,
    /// The first whose id stands at an earlier position too.
    repeated: Option<u64>,
}

/// The events above `after`.
async fn page(log: Log, after: u64) -> Result<Page, LogError> {
    let (events, end) = log.read_all(after, PAGE, &Filter::default()).await?;
    if events.is_empty() {
        return Ok(Page { events, keys: Vec::new(), repeated: None });
    }
    let keys = log.keys_between(after + 1, end).await?;
    let repeated = log.repeated_event(after + 1, end).await?;
    Ok(Page { events, keys, repeated })
}

fn stopped(error: &tokio::task::JoinError) -> LogError {
    LogError::Unavailable { operation: "verify", reason: error.to_string() }
}

/// What has been seen so far.
struct Check {
    last: u64,
    recorded_at: Micros,
    versions: HashMap<StreamName, u64>,
}

impl Check {
    fn bad(&self, bad: Bad) -> Verified {
        Verified { events: self.last, first_bad: Some(bad) }
    }

    /// The first of these that does not hold.
    fn page(&mut self, page: &Page) -> Option<Bad> {
        let mut keys = page.keys.iter().peekable();
        let mut own = Vec::new();
        for event in &page.events {
            own.clear();
            while let Some((_, hash)) = keys.next_if(|(position, _)| *position <= event.position) {
                own.push(*hash);
            }
            if let Err(error) = self.event(event, &own, page.repeated) {
                // A gap is where the event should be.
                return Some(Bad { position: event.position.min(self.last + 1), error });
            }
        }
        None
    }

    fn event(&mut self, event: &Recorded, keys: &[[u8; 32]], repeated: Option<u64>) -> Result<(), String> {
        let next = self.last + 1;
        if event.position != next {
            return Err(format!("position {next} is missing"));
        }
        if repeated == Some(event.position) {
            return Err(format!("event id {} stands at an earlier position too", event.event_id));
        }
        let expected = match self.versions.entry(event.stream.clone()) {
            Entry::Occupied(entry) => {
                let version = entry.into_mut();
                *version += 1;
                *version
            }
            Entry::Vacant(entry) => *entry.insert(1),
        };
        if event.version != expected {
            return Err(format!("{} has version {} where {expected} belongs", event.stream, event.version));
        }
        if event.recorded_at < self.recorded_at {
            return Err(format!("it was recorded at {}, before the event before it", event.recorded_at));
        }
        check_content(event)?;
        if leaf_hash(event, keys) != event.leaf_hash {
            return Err("its leaf hash is not that of its columns and keys".to_owned());
        }
        self.recorded_at = event.recorded_at;
        self.last = next;
        Ok(())
    }
}

fn check_content(event: &Recorded) -> Result<(), String> {
    match (&event.content, &event.salt, &event.commitment) {
        // Never had content, or it was erased.
        (None, None, _) => Ok(()),
        (Some(content), Some(salt), Some(sealed)) if commitment(salt, content) == *sealed => Ok(()),
        (Some(_), Some(_), Some(_)) => Err("its content is not what its commitment was made over".to_owned()),
        (Some(_), _, None) => Err("it has content without a commitment".to_owned()),
        _ => Err("of its content and salt one is missing".to_owned()),
    }
}
