//! What a simulated store holds.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use midwatch_events::{Micros, Recorded, StreamName};
use sha2::{Digest as _, Sha256};
use tokio::sync::{oneshot, watch};
use uuid::Uuid;

use crate::{
    append::{Append, AppendError, Appended, Expected},
    judge::{End, Ground, Head, KnownKey, Prepared},
    log::Filter,
    memory::Memory,
    metrics::Counters,
    views::simulated::Projections,
};

/// An append on its way to the store.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) port: u32,
    pub(super) prepared: Prepared,
    pub(super) flush: Option<Duration>,
    pub(super) counters: Arc<Counters>,
    pub(super) reply: oneshot::Sender<Result<Appended, AppendError>>,
}

/// An append that was judged, and whose answer rests on `position`.
#[derive(Debug)]
pub(super) struct Unanswered {
    pub(super) position: u64,
    pub(super) sent: Sent,
    pub(super) answer: Result<Appended, AppendError>,
}

/// An append that is committed and not durable: who made it, up to where, under which keys.
#[derive(Debug)]
struct Unflushed {
    port: u32,
    last: u64,
    keys: Vec<[u8; 32]>,
}

/// An append that is durable now.
#[derive(Debug)]
pub(super) struct Flushed {
    pub(super) port: u32,
    pub(super) events: Vec<Recorded>,
    pub(super) keys: Vec<[u8; 32]>,
}

/// What a simulated store holds.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(super) made: bool,
    events: Vec<Recorded>,
    /// Positions of each stream's events.
    streams: BTreeMap<StreamName, Vec<u64>>,
    ids: BTreeMap<Uuid, u64>,
    keys: BTreeMap<[u8; 32], KnownKey>,
    pub(super) durable: u64,
    pub(super) chain: [u8; 32],
    /// Each append that is committed and not durable.
    unflushed: VecDeque<Unflushed>,
    /// See [`super::Store::open_the_gate`].
    pub(super) gate_is_open: bool,
    unanswered: Vec<Unanswered>,
    /// What each process has sent and has not arrived, with how long it takes.
    pub(super) under_way: BTreeMap<u32, VecDeque<(Sent, Option<Duration>)>>,
    pub(super) dead: BTreeSet<u32>,
    pub(super) heads: Vec<(u32, watch::Sender<u64>)>,
    pub(super) memories: Vec<Arc<Memory>>,
    pub(crate) leases: BTreeMap<Uuid, (u32, u64)>,
    /// Length, and the bytes until they expire.
    pub(crate) blobs: BTreeMap<Uuid, (usize, Option<Vec<u8>>)>,
    pub(crate) views: Projections,
    /// By stream and fold.
    pub(crate) snapshots: BTreeMap<(StreamName, u32), crate::snapshot::Snapshot>,
}

impl State {
    fn committed(&self) -> u64 {
        self.events.len() as u64
    }

    /// Up to where readers see.
    pub(super) fn shown(&self) -> u64 {
        if self.gate_is_open { self.committed() } else { self.durable }
    }

    fn at(&self, position: u64) -> Option<&Recorded> {
        self.events.get(usize::try_from(position.checked_sub(1)?).ok()?)
    }

    /// Judges an append and takes it up; the position its answer rests on.
    pub(super) fn write(&mut self, sent: Sent, clock: Micros) -> u64 {
        let last = self.events.last();
        let head = Head {
            position: self.committed(),
            leaf_hash: last.map(|event| event.leaf_hash),
            recorded_at: last.map_or(Micros(0), |event| event.recorded_at),
            clock,
        };
        let streams = sent.prepared.append.entries.iter().map(|entry| &entry.stream);
        let ends: HashMap<_, _> = streams.map(|stream| (stream.clone(), End::at(self.version(stream)))).collect();
        let asked = sent.prepared.append.keys.iter();
        let keys = asked.filter_map(|key| Some((key.hash, *self.keys.get(&key.hash)?))).collect();
        let found = self.found(&sent.prepared.append);
        let mut ground = Ground::new(head, ends, keys, &found);
        let answer = judge(&mut ground, &sent.prepared, &found);
        let (wrote, events) = (!ground.rows.is_empty(), ground.rows.len() as u64);
        for event in ground.rows {
            self.streams.entry(event.stream.clone()).or_default().push(event.position);
            self.ids.insert(event.event_id, event.position);
            self.events.push(event);
        }
        for key in ground.new_keys {
            let recorded_at = self.at(key.first).map_or(clock, |event| event.recorded_at);
            let known = KnownKey { digest: key.digest, first: key.first, count: key.count, recorded_at };
            self.keys.insert(key.hash, known);
        }
        let mut erased = 0;
        for position in ground.erased {
            if let Some(event) = usize::try_from(position - 1).ok().and_then(|at| self.events.get_mut(at)) {
                erased += u64::from(event.content.is_some());
                (event.content, event.salt) = (None, None);
            }
        }
        let position = self.committed();
        if wrote {
            sent.counters.committed(events, erased, Duration::ZERO);
            let keys = sent.prepared.append.keys.iter().map(|key| key.hash).collect();
            self.unflushed.push_back(Unflushed { port: sent.port, last: position, keys });
        }
        self.unanswered.push(Unanswered { position, sent, answer });
        position
    }

    /// The events that stand under ids which an append brings, or wants to follow.
    fn found(&self, append: &Append) -> HashMap<Uuid, Recorded> {
        let brought = append.entries.iter().flat_map(|entry| entry.events.iter().map(|event| event.event_id));
        let followed = append.entries.iter().filter_map(|entry| match entry.expected {
            Expected::After { event_id, .. } => Some(event_id),
            Expected::Exact(_) | Expected::NoStream | Expected::Any => None,
        });
        let stand = brought.chain(followed).filter_map(|id| self.at(*self.ids.get(&id)?));
        stand.map(|event| (event.event_id, event.clone())).collect()
    }

    fn version(&self, stream: &StreamName) -> u64 {
        self.streams.get(stream).map_or(0, |positions| positions.len() as u64)
    }

    /// Makes everything up to `position` durable; the appends that are so by that.
    pub(super) fn flush(&mut self, position: u64) -> Vec<Flushed> {
        let mut flushed = Vec::new();
        while let Some(Unflushed { port, last, keys }) = self.unflushed.pop_front_if(|append| append.last <= position) {
            let events: Vec<Recorded> = (self.durable + 1..=last).filter_map(|at| self.at(at)).cloned().collect();
            for event in &events {
                self.chain = Sha256::new().chain_update(self.chain).chain_update(event.leaf_hash).finalize().into();
            }
            self.durable = last;
            flushed.push(Flushed { port, events, keys });
        }
        flushed
    }

    /// What may be answered now.
    pub(super) fn answers(&mut self) -> Vec<Unanswered> {
        let durable = self.durable;
        self.unanswered.extract_if(.., |waiting| waiting.position <= durable).collect()
    }

    /// Loses what is not durable; who waited for it, and who has to hear that something may be lost.
    pub(super) fn crash(&mut self) -> (Vec<Unanswered>, Vec<Arc<Memory>>) {
        let durable = self.durable;
        self.events.truncate(usize::try_from(durable).unwrap_or(usize::MAX));
        self.streams.values_mut().for_each(|positions| positions.retain(|position| *position <= durable));
        self.ids.retain(|_, position| *position <= durable);
        self.keys.retain(|_, key| key.first <= durable);
        self.unflushed.clear();
        (std::mem::take(&mut self.unanswered), self.memories.clone())
    }

    pub(super) fn forget(&mut self, head: &watch::Sender<u64>, memory: &Arc<Memory>) {
        self.heads.retain(|(_, known)| !known.same_channel(head));
        self.memories.retain(|known| !Arc::ptr_eq(known, memory));
    }

    pub(super) fn stream(&self, stream: &StreamName, from: u64, limit: u32, up_to: u64) -> Vec<Recorded> {
        let Some(positions) = self.streams.get(stream) else { return Vec::new() };
        let first = usize::try_from(from.saturating_sub(1)).unwrap_or(usize::MAX);
        let shown = positions.iter().skip(first).take_while(|position| **position <= up_to).take(limit as usize);
        shown.filter_map(|position| self.at(*position)).cloned().collect()
    }

    pub(super) fn stream_back(&self, stream: &StreamName, before: u64, limit: u32) -> Vec<Recorded> {
        let Some(positions) = self.streams.get(stream) else { return Vec::new() };
        let end = usize::try_from(before.saturating_sub(1)).unwrap_or(usize::MAX).min(positions.len());
        let shown = positions[..end].iter().rev().filter(|position| **position <= self.durable).take(limit as usize);
        shown.filter_map(|position| self.at(*position)).cloned().collect()
    }

    pub(super) fn all(&self, after: u64, limit: u32, filter: &Filter) -> (Vec<Recorded>, u64) {
        let Filter { event_types, categories } = filter;
        let every = event_types.is_empty() && categories.is_empty();
        let passes = |event: &&Recorded| {
            (event_types.is_empty() || event_types.contains(&event.event_type))
                && (categories.is_empty() || categories.iter().any(|category| category == event.stream.category()))
        };
        let shown = self.shown();
        let durable = usize::try_from(shown).unwrap_or(usize::MAX);
        let after_at = usize::try_from(after).unwrap_or(usize::MAX).min(durable);
        let events: Vec<Recorded> =
            self.events[after_at..durable].iter().filter(passes).take(limit as usize).cloned().collect();
        let full = every || events.len() >= limit as usize;
        let scanned = if full { events.last().map_or(after, |event| event.position) } else { shown.max(after) };
        (events, scanned)
    }

    pub(super) fn event(&self, id: Uuid) -> Option<Recorded> {
        let position = self.ids.get(&id).filter(|position| **position <= self.durable)?;
        self.at(*position).cloned()
    }

    pub(super) fn key(&self, hash: &[u8; 32]) -> Option<(u64, [u8; 32])> {
        let known = self.keys.get(hash).filter(|known| known.first <= self.durable)?;
        Some((known.first, known.digest))
    }

    pub(super) fn keys_between(&self, first: u64, last: u64) -> Vec<(u64, [u8; 32])> {
        let within = self.keys.iter().filter(|(_, known)| (first..=last.min(self.durable)).contains(&known.first));
        let mut keys: Vec<_> = within.map(|(hash, known)| (known.first, *hash)).collect();
        keys.sort_unstable();
        keys
    }
}

/// An append whose ids stand already is only what it was before, or not valid.
fn judge(ground: &mut Ground, asked: &Prepared, found: &HashMap<Uuid, Recorded>) -> Result<Appended, AppendError> {
    if !asked.events().any(|(_, event)| found.contains_key(&event.event_id)) {
        return ground.judge(asked);
    }
    let taken = || AppendError::Invalid("one of its event ids is already in the ledger".to_owned());
    match ground.probe(asked)? {
        Some(original) => Ok(original),
        None => asked.stands_at(found, true).ok_or_else(taken),
    }
}
