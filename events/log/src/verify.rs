//! Whether the ledger holds what was written: everything that can be computed again is, from the stored bytes alone.
//!
//! It decodes no event. What it cannot see is an end that was cut off, or a ledger that was made anew as a whole; that
//! is what signed checkpoints outside of the database are for.

use std::collections::{BTreeSet, HashMap, VecDeque};

use midwatch_events::{
    Micros, Recorded, StreamName,
    leaf::{commitment, leaf_hash},
};
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::log::{Log, LogError, Pending};

/// Events in a page.
const PAGE: u32 = 1_024;
/// Pages that are read and hashed at once. Bounds memory: at 64 KiB for each event, 256 MiB.
const AHEAD: usize = 4;
/// Event ids that are kept, the highest that were seen.
const IDS: usize = 1 << 15;

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
pub fn verify(log: &Log) -> Pending<'_, Verified> {
    Box::pin(async move {
        let mut check = Check::default();
        let mut pages: VecDeque<JoinHandle<_>> = VecDeque::new();
        let mut after = 0;
        loop {
            while pages.len() < AHEAD {
                pages.push_back(tokio::spawn(page(log.clone(), after)));
                after += u64::from(PAGE);
            }
            let Some(next) = pages.pop_front() else { break };
            let read = match next.await.unwrap_or_else(|error| Err(stopped(&error))) {
                Ok(page) => page,
                Err(LogError::Corrupt { position, reason }) => return Ok(check.bad(Bad { position, error: reason })),
                Err(error) => return Err(error),
            };
            let repeated = match check.ids.doubtful(&read.events) {
                Ok(doubtful) if doubtful.is_empty() => None,
                Ok(doubtful) => log.repeated_event(doubtful).await?,
                Err(repeated) => Some(repeated),
            };
            if let Some(bad) = check.page(&read, repeated) {
                return Ok(check.bad(bad));
            }
            if read.events.len() < PAGE as usize {
                break;
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
    })
}

/// Some events, and what each of them says by itself.
struct Page {
    events: Vec<Recorded>,
    /// The first whose content or leaf hash does not hold.
    bad: Option<Bad>,
}

/// The events above `after`, hashed.
async fn page(log: Log, after: u64) -> Result<Page, LogError> {
    let events = log.read_page(after, PAGE).await?;
    let Some(last) = events.last() else { return Ok(Page { events, bad: None }) };
    let keys = log.keys_between(after + 1, last.position).await?;
    let mut keys = keys.iter().peekable();
    let (mut own, mut bad) = (Vec::new(), None);
    for event in &events {
        own.clear();
        while let Some((_, hash)) = keys.next_if(|(position, _)| *position <= event.position) {
            own.push(*hash);
        }
        if let Err(error) = check_hashes(event, &own) {
            bad = Some(Bad { position: event.position, error });
            break;
        }
    }
    Ok(Page { events, bad })
}

fn stopped(error: &tokio::task::JoinError) -> LogError {
    LogError::Unavailable { operation: "verify", reason: error.to_string() }
}

/// The event ids that were seen, as far as they are not forgotten. Ids rise with time, so one that is not above all
/// forgotten ones is rare, and is looked up in the ledger.
#[derive(Default)]
struct Ids {
    kept: BTreeSet<Uuid>,
    /// All that are forgotten are at most this.
    forgotten: Option<Uuid>,
}

impl Ids {
    /// Takes up a page; gives those that may stand at an earlier position too, or the position of one that does.
    fn doubtful(&mut self, events: &[Recorded]) -> Result<Vec<(u64, Uuid)>, u64> {
        let mut doubtful = Vec::new();
        for event in events {
            if !self.kept.insert(event.event_id) {
                return Err(event.position);
            }
            if self.forgotten.is_some_and(|forgotten| event.event_id <= forgotten) {
                doubtful.push((event.position, event.event_id));
            }
        }
        if self.kept.len() > 2 * IDS
            && let Some(first) = self.kept.iter().rev().nth(IDS - 1).copied()
        {
            let kept = self.kept.split_off(&first);
            self.forgotten = self.forgotten.max(self.kept.last().copied());
            self.kept = kept;
        }
        Ok(doubtful)
    }
}

/// What has been seen so far.
struct Check {
    last: u64,
    recorded_at: Micros,
    versions: HashMap<StreamName, u64>,
    ids: Ids,
}

impl Default for Check {
    fn default() -> Self {
        Self { last: 0, recorded_at: Micros(i64::MIN), versions: HashMap::new(), ids: Ids::default() }
    }
}

impl Check {
    fn bad(&self, bad: Bad) -> Verified {
        Verified { events: self.last, first_bad: Some(bad) }
    }

    /// The first of these that does not hold; `repeated` is the first whose id stands at an earlier position too.
    fn page(&mut self, page: &Page, repeated: Option<u64>) -> Option<Bad> {
        for event in &page.events {
            let hashes = page.bad.as_ref().filter(|bad| bad.position == event.position);
            if let Err(error) = self.event(event, repeated, hashes) {
                // A gap is where the event should be.
                return Some(Bad { position: event.position.min(self.last + 1), error });
            }
        }
        None
    }

    fn event(&mut self, event: &Recorded, repeated: Option<u64>, hashes: Option<&Bad>) -> Result<(), String> {
        let next = self.last + 1;
        if event.position != next {
            return Err(format!("position {next} is missing"));
        }
        if repeated == Some(event.position) {
            return Err(format!("event id {} stands at an earlier position too", event.event_id));
        }
        let expected = match self.versions.get_mut(&event.stream) {
            Some(version) => {
                *version += 1;
                *version
            }
            None => {
                self.versions.insert(event.stream.clone(), 1);
                1
            }
        };
        if event.version != expected {
            return Err(format!("{} has version {} where {expected} belongs", event.stream, event.version));
        }
        if event.recorded_at < self.recorded_at {
            return Err(format!("it was recorded at {}, before the event before it", event.recorded_at));
        }
        if let Some(bad) = hashes {
            return Err(bad.error.clone());
        }
        self.recorded_at = event.recorded_at;
        self.last = next;
        Ok(())
    }
}

fn check_hashes(event: &Recorded, keys: &[[u8; 32]]) -> Result<(), String> {
    check_content(event)?;
    if leaf_hash(event, keys) != event.leaf_hash {
        return Err("its leaf hash is not that of its columns and keys".to_owned());
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    fn event(position: u64, id: u128) -> Recorded {
        Recorded {
            position,
            stream: StreamName::stored("run-a".to_owned()),
            version: position,
            event_id: Uuid::from_u128(id),
            event_type: "run.opened".to_owned(),
            schema: 1,
            recorded_at: Micros(0),
            actor: "engine".to_owned(),
            correlation_id: None,
            causation_id: None,
            facts: Vec::new(),
            content: None,
            salt: None,
            commitment: None,
            leaf_hash: [0; 32],
        }
    }

    #[test]
    fn an_id_that_is_seen_again_is_known_or_looked_up() {
        let mut ids = Ids::default();
        let many = 5 * IDS as u64;
        let page: Vec<_> = (1..=many).map(|n| event(n, 10 * u128::from(n))).collect();
        for part in page.chunks(1_000) {
            assert_eq!(ids.doubtful(part), Ok(Vec::new()), "ids that rise are not doubted");
            assert!(ids.kept.len() <= 2 * IDS + 1_000);
        }
        assert_eq!(ids.doubtful(&[event(many + 1, 10 * u128::from(many))]), Err(many + 1), "one that is kept");
        let old = event(many + 2, 20);
        assert_eq!(
            ids.doubtful(std::slice::from_ref(&old)),
            Ok(vec![(many + 2, old.event_id)]),
            "one that is forgotten"
        );
    }
}
