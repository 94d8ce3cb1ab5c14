//! What becomes of each append of a batch, decided in memory from what was read under the lock.
//!
//! Pure, and the same for every backend: appends are judged in order, and later ones see what earlier ones of the same
//! batch will have written.

use std::collections::HashMap;

use midwatch_events::{
    Micros, Recorded, StreamName,
    leaf::{commitment, leaf_hash},
};
use uuid::Uuid;

use crate::append::{Append, AppendError, Appended, Expected, NewEvent};

/// An append as it waits for the lock: everything that needs no lock is done.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) append: Append,
    /// Salt and commitment of each event, in order.
    pub(crate) seals: Vec<Option<Seal>>,
    pub(crate) bytes: usize,
}

/// What binds an event to its content.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seal {
    pub(crate) salt: [u8; 16],
    pub(crate) commitment: [u8; 32],
}

/// A key that is in the ledger, and the append it stands for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KnownKey {
    pub(crate) digest: [u8; 32],
    pub(crate) first: u64,
    pub(crate) count: u64,
    pub(crate) recorded_at: Micros,
}

/// A key to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewKey {
    pub(crate) hash: [u8; 32],
    pub(crate) digest: [u8; 32],
    pub(crate) first: u64,
    pub(crate) count: u64,
}

/// The end of the ledger, and the store's clock, as they are under the lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub(crate) position: u64,
    /// Of the last event.
    pub(crate) leaf_hash: Option<[u8; 32]>,
    pub(crate) recorded_at: Micros,
    pub(crate) clock: Micros,
}

/// The end of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) version: u64,
    /// Its last event, where it is known.
    pub(crate) event_id: Option<Uuid>,
}

impl End {
    /// A stream of which the version alone is known.
    pub(crate) fn at(version: u64) -> Self {
        Self { version, event_id: None }
    }
}

/// What a batch stands on, and what it adds.
#[derive(Debug)]
pub(crate) struct Ground {
    pub(crate) head: u64,
    now: Micros,
    pub(crate) ends: HashMap<StreamName, End>,
    keys: HashMap<[u8; 32], KnownKey>,
    pub(crate) rows: Vec<Recorded>,
    pub(crate) new_keys: Vec<NewKey>,
    /// Positions whose content goes.
    pub(crate) erased: Vec<u64>,
}

impl Prepared {
    /// Takes an append on its way to the lock; its salts are drawn here.
    pub(crate) fn new(append: Append, bytes: usize) -> Result<Self, getrandom::Error> {
        Self::salted(append, bytes, |salt| getrandom::fill(salt))
    }

    /// As [`Self::new`], with salts from elsewhere.
    pub(crate) fn salted<E>(
        append: Append,
        bytes: usize,
        fill: impl Fn(&mut [u8; 16]) -> Result<(), E>,
    ) -> Result<Self, E> {
        let mut seals = Vec::new();
        for event in append.entries.iter().flat_map(|entry| &entry.events) {
            seals.push(match &event.content {
                Some(content) => {
                    let mut salt = [0; 16];
                    fill(&mut salt)?;
                    Some(Seal { salt, commitment: commitment(&salt, content) })
                }
                None => None,
            });
        }
        Ok(Self { append, seals, bytes })
    }

    pub(crate) fn events(&self) -> impl Iterator<Item = (&StreamName, &NewEvent)> {
        self.append.entries.iter().flat_map(|entry| entry.events.iter().map(|event| (&entry.stream, event)))
    }

    /// Where this append stands already, if `found`, the events with its ids, are its own.
    pub(crate) fn stands_at(&self, found: &HashMap<Uuid, Recorded>, duplicate: bool) -> Option<Appended> {
        let mut first = None;
        let mut next = 0;
        for (stream, event) in self.events() {
            let stored = found.get(&event.event_id)?;
            if first.is_none() {
                first = Some(stored);
                next = stored.position;
            }
            if stored.position != next || stored.stream != *stream || !says_the_same(stored, event) {
                return None;
            }
            next += 1;
        }
        let first = first?;
        Some(Appended {
            first: first.position,
            count: next - first.position,
            recorded_at: first.recorded_at,
            duplicate,
        })
    }
}

fn says_the_same(stored: &Recorded, event: &NewEvent) -> bool {
    let content = match (stored.salt, stored.commitment, &event.content) {
        (_, None, None) => true,
        (Some(salt), Some(sealed), Some(content)) => commitment(&salt, content) == sealed,
        // Erased: what it said is no longer known.
        (None, Some(_), Some(_)) => true,
        _ => false,
    };
    content && stored.event_type == event.event_type && stored.schema == event.schema && stored.facts == event.facts
}

impl Ground {
    /// `found` are events of the ledger; those that are the last of their stream can be followed.
    pub(crate) fn new(
        head: Head,
        mut ends: HashMap<StreamName, End>,
        keys: HashMap<[u8; 32], KnownKey>,
        found: &HashMap<Uuid, Recorded>,
    ) -> Self {
        for event in found.values() {
            if let Some(end) = ends.get_mut(&event.stream).filter(|end| end.version == event.version) {
                end.event_id = Some(event.event_id);
            }
        }
        Self {
            head: head.position,
            // Ledger time never goes back, whatever the store's clock does.
            now: head.clock.max(head.recorded_at),
            ends,
            keys,
            rows: Vec::new(),
            new_keys: Vec::new(),
            erased: Vec::new(),
        }
    }

    fn end(&self, stream: &StreamName) -> End {
        self.ends.get(stream).copied().unwrap_or_default()
    }

    /// Says what becomes of `asked`, and takes up what it writes.
    pub(crate) fn judge(&mut self, asked: &Prepared) -> Result<Appended, AppendError> {
        match self.probe(asked)? {
            Some(original) => Ok(original),
            None => Ok(self.take_up(asked)),
        }
    }

    /// As [`Self::judge`], without writing: the original of a known key, or nothing where it may be written.
    pub(crate) fn probe(&self, asked: &Prepared) -> Result<Option<Appended>, AppendError> {
        let original = self.known(&asked.append)?;
        if original.is_none() {
            self.check_versions(&asked.append)?;
            if let Some(position) = asked.append.erase.iter().find(|position| !(1..=self.head).contains(*position)) {
                return Err(AppendError::Invalid(format!("there is no event to erase at position {position}")));
            }
        }
        Ok(original)
    }

    /// The original of this append, if one of its keys was used for the same request.
    fn known(&self, append: &Append) -> Result<Option<Appended>, AppendError> {
        let mut original = None;
        for key in &append.keys {
            let Some(known) = self.keys.get(&key.hash) else { continue };
            if known.digest != key.digest {
                return Err(AppendError::KeyReused { key_hash: key.hash, position: known.first });
            }
            original.get_or_insert(Appended {
                first: known.first,
                count: known.count,
                recorded_at: known.recorded_at,
                duplicate: true,
            });
        }
        Ok(original)
    }

    fn check_versions(&self, append: &Append) -> Result<(), AppendError> {
        let mut ahead: HashMap<&StreamName, End> = HashMap::new();
        for entry in &append.entries {
            let end = ahead.entry(&entry.stream).or_insert_with(|| self.end(&entry.stream));
            let holds = match entry.expected {
                Expected::Exact(expected) => expected == end.version,
                Expected::After { version, event_id } => version == end.version && Some(event_id) == end.event_id,
                Expected::NoStream => end.version == 0,
                Expected::Any => true,
            };
            if !holds {
                let (stream, expected, actual) = (entry.stream.clone(), entry.expected, end.version);
                return Err(AppendError::Conflict { stream, expected, actual });
            }
            end.version += entry.events.len() as u64;
            end.event_id = entry.events.last().map(|event| event.event_id).or(end.event_id);
        }
        Ok(())
    }

    fn take_up(&mut self, asked: &Prepared) -> Appended {
        let count = asked.seals.len() as u64;
        if count == 0 {
            return Appended { first: self.head, count, recorded_at: self.now, duplicate: false };
        }
        let first = self.head + 1;
        let hashes: Vec<[u8; 32]> = asked.append.keys.iter().map(|key| key.hash).collect();
        for ((stream, event), seal) in asked.events().zip(&asked.seals) {
            self.head += 1;
            let version = self.end(stream).version + 1;
            self.ends.insert(stream.clone(), End { version, event_id: Some(event.event_id) });
            let keys = if self.head == first { hashes.as_slice() } else { &[] };
            self.rows.push(recorded(self.head, stream, version, self.now, event, *seal, keys));
        }
        self.erased.extend_from_slice(&asked.append.erase);
        for key in &asked.append.keys {
            let (hash, digest) = (key.hash, key.digest);
            self.keys.insert(hash, KnownKey { digest, first, count, recorded_at: self.now });
            self.new_keys.push(NewKey { hash, digest, first, count });
        }
        Appended { first, count, recorded_at: self.now, duplicate: false }
    }
}

fn recorded(
    position: u64,
    stream: &StreamName,
    version: u64,
    recorded_at: Micros,
    event: &NewEvent,
    seal: Option<Seal>,
    keys: &[[u8; 32]],
) -> Recorded {
    let mut row = Recorded {
        position,
        stream: stream.clone(),
        version,
        event_id: event.event_id,
        event_type: event.event_type.clone(),
        schema: event.schema,
        recorded_at,
        actor: event.actor.clone(),
        correlation_id: event.correlation_id.clone(),
        causation_id: event.causation_id,
        facts: event.facts.clone(),
        content: event.content.clone(),
        salt: seal.map(|seal| seal.salt),
        commitment: seal.map(|seal| seal.commitment),
        leaf_hash: [0; 32],
    };
    row.leaf_hash = leaf_hash(&row, keys);
    row
}
