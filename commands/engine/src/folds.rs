//! Streams folded to their states: from what this process folded before, else from a snapshot, else from the first event.
//!
//! Streams are append-only, so a kept state is never wrong, only behind. A snapshot is believed where its seal is the
//! deployment's and the stream still holds, at the snapshot's version, the event that was folded last; everything else is
//! left aside, and the stream is read from its first event.

use std::{
    any::Any,
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use midwatch_commands::Decider;
use midwatch_events::{Family as _, Recorded, StreamName};
use midwatch_log::{
    Log,
    snapshot::{self, Snapshot},
};
use uuid::Uuid;

use crate::{EngineError, secrets::Secrets, world::World};

/// Events after which a stream's state is kept again.
pub(crate) const SNAPSHOT_EVERY: u64 = 128;
const PAGE: u32 = 512;
/// Folded streams of one generation; of two generations the older is dropped when the newer is full, which costs a reload
/// each and nothing else. What is asked for stays. A long run's state is tens of kilobytes.
const GENERATION: usize = 2_048;

/// A stream's state, and the version it was folded up to.
#[derive(Clone, Debug, Default)]
pub struct Loaded<D> {
    /// The state.
    pub state: D,
    /// The version; 0 for a stream nobody has written to.
    pub version: u64,
    /// The event at that version.
    pub(crate) last: Option<Uuid>,
    /// The version of the newest snapshot that is known of.
    snapshot: u64,
}

/// Folded streams, so that a load reads only what is new.
#[derive(Default)]
pub struct Folds {
    kept: Mutex<Kept>,
    /// What seals snapshots. Without it there are none: who only reads believes events alone.
    sealing: Option<(World, Secrets)>,
    /// Events that loads have read.
    read: AtomicU64,
}

/// What is kept, by when it was last put or asked for.
#[derive(Default)]
struct Kept {
    newer: BTreeMap<StreamName, Arc<dyn Any + Send + Sync>>,
    older: BTreeMap<StreamName, Arc<dyn Any + Send + Sync>>,
}

impl Kept {
    fn get(&mut self, stream: &StreamName) -> Option<Arc<dyn Any + Send + Sync>> {
        if let Some((stream, state)) = self.older.remove_entry(stream) {
            self.put(stream, state);
        }
        self.newer.get(stream).map(Arc::clone)
    }

    fn put(&mut self, stream: StreamName, state: Arc<dyn Any + Send + Sync>) {
        if self.newer.len() >= GENERATION && !self.newer.contains_key(&stream) {
            self.older = std::mem::take(&mut self.newer);
        }
        self.older.remove(&stream);
        self.newer.insert(stream, state);
    }
}

impl std::fmt::Debug for Folds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Folds")
    }
}

impl Folds {
    /// Folds that keep snapshots.
    pub(crate) fn sealing(world: World, secrets: Secrets) -> Self {
        Self { sealing: Some((world, secrets)), ..Self::default() }
    }

    /// What is kept of a stream.
    pub(crate) fn known<D: Decider>(&self, stream: &StreamName) -> Option<Loaded<D>> {
        self.shared(stream).map(|loaded| (*loaded).clone())
    }

    /// As [`known`](Self::known), for many who only look at it.
    pub(crate) fn shared<D: Decider>(&self, stream: &StreamName) -> Option<Arc<Loaded<D>>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).get(stream);
        kept.and_then(|any| any.downcast::<Loaded<D>>().ok())
    }

    pub(crate) fn put<D: Decider>(&self, stream: &StreamName, loaded: Loaded<D>) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).put(stream.clone(), Arc::new(loaded));
    }

    /// Drops everything: the ledger is not the one the states were folded from.
    pub fn clear(&self) {
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = Kept::default();
    }

    /// How many events loads have read since the process joined.
    #[cfg(test)]
    pub(crate) fn events_read(&self) -> u64 {
        self.read.load(Relaxed)
    }

    /// Seals what it is given, as if it had been folded.
    #[cfg(test)]
    pub(crate) fn sealed<D: Decider>(&self, stream: &StreamName, snapshot: Snapshot) -> Snapshot {
        let (_, secrets) = self.sealing.as_ref().unwrap();
        Snapshot { seal: seal::<D>(secrets, stream, &snapshot), ..snapshot }
    }

    /// The state's bytes, if it is time to keep them. They may be written once the state is durable.
    pub(crate) fn due<D: Decider>(&self, stream: &StreamName, loaded: &mut Loaded<D>) -> Option<Snapshot> {
        let (_, secrets) = self.sealing.as_ref()?;
        let event_id = loaded.last?;
        if loaded.version - loaded.snapshot < SNAPSHOT_EVERY {
            return None;
        }
        loaded.snapshot = loaded.version;
        let mut state = Vec::with_capacity(1_024);
        if let Err(error) = ciborium::into_writer(&loaded.state, &mut state) {
            tracing::error!(%stream, %error, "a state has no bytes");
            return None;
        }
        let mut snapshot = Snapshot { version: loaded.version, event_id, seal: [0; 32], state };
        snapshot.seal = seal::<D>(secrets, stream, &snapshot);
        Some(snapshot)
    }

    /// Writes a snapshot of what is durable. Nobody waits for it.
    pub(crate) fn keep<D: Decider>(&self, log: &Log, stream: &StreamName, due: Option<Snapshot>) {
        let (Some(due), Some((world, _))) = (due, &self.sealing) else { return };
        let (log, stream) = (log.clone(), stream.clone());
        world.tasks.spawn(Box::pin(async move {
            if let Err(error) = snapshot::write(&log, &stream, D::FOLD_VERSION, &due).await {
                tracing::debug!(%stream, %error, "a snapshot is not kept; the next load reads more");
            }
        }));
    }

    /// The state that was kept, if there is one to believe; whether the stream still holds its last event is to be seen.
    async fn snapshot<D: Decider>(&self, log: &Log, stream: &StreamName) -> Option<Loaded<D>> {
        let (_, secrets) = self.sealing.as_ref()?;
        let found = match snapshot::read(log, stream, D::FOLD_VERSION).await {
            Ok(found) => found?,
            Err(error) => {
                tracing::debug!(%stream, %error, "no snapshot can be read");
                return None;
            }
        };
        believed(secrets, stream, found)
    }

    /// As [`Self::snapshot`], of many streams.
    async fn snapshots<D: Decider>(&self, log: &Log, streams: &[StreamName]) -> BTreeMap<StreamName, Loaded<D>> {
        let Some((_, secrets)) = self.sealing.as_ref().filter(|_| !streams.is_empty()) else { return BTreeMap::new() };
        match snapshot::read_many(log, streams, D::FOLD_VERSION).await {
            Ok(found) => found
                .into_iter()
                .filter_map(|(stream, found)| believed(secrets, &stream, found).map(|loaded| (stream, loaded)))
                .collect(),
            Err(error) => {
                tracing::debug!(%error, "no snapshots can be read");
                BTreeMap::new()
            }
        }
    }
}

/// The state in a snapshot that the deployment sealed.
fn believed<D: Decider>(secrets: &Secrets, stream: &StreamName, found: Snapshot) -> Option<Loaded<D>> {
    if found.seal != seal::<D>(secrets, stream, &found) {
        tracing::warn!(%stream, "a snapshot is not what was kept; it is left aside");
        return None;
    }
    match ciborium::from_reader(found.state.as_slice()) {
        Ok(state) => {
            Some(Loaded { state, version: found.version, last: Some(found.event_id), snapshot: found.version })
        }
        Err(error) => {
            tracing::warn!(%stream, %error, "a snapshot cannot be decoded; it is left aside");
            None
        }
    }
}

fn seal<D: Decider>(secrets: &Secrets, stream: &StreamName, kept: &Snapshot) -> [u8; 32] {
    let (fold, version) = (D::FOLD_VERSION.to_be_bytes(), kept.version.to_be_bytes());
    let name = stream.as_str().as_bytes();
    secrets.snapshot(&[D::Event::NAME.as_bytes(), &fold, name, &version, kept.event_id.as_bytes(), &kept.state]).0
}

impl<D: Decider> Loaded<D> {
    fn take_in(&mut self, page: &[Recorded]) -> Result<(), EngineError> {
        for event in page {
            self.state.evolve(&event.facts()?, event.recorded_at);
            self.version = event.version;
            self.last = Some(event.event_id);
        }
        Ok(())
    }
}

/// Folds a stream up to its end, as far as that is durable.
///
/// # Errors
/// A fault of the database, an event of a newer version, or damaged bytes.
pub async fn load<D: Decider>(log: &Log, folds: &Folds, stream: &StreamName) -> Result<Loaded<D>, EngineError> {
    let (mut loaded, mut known) = match folds.known::<D>(stream) {
        Some(loaded) => {
            let known = loaded.version;
            (loaded, Some(known))
        }
        None => (from_snapshot(log, folds, stream).await?.unwrap_or_default(), None),
    };
    loop {
        let page = read(log, folds, stream, loaded.version + 1).await?;
        loaded.take_in(&page)?;
        if page.len() < PAGE as usize {
            break;
        }
    }
    if loaded.version == 0 {
        known = Some(0);
    }
    if known != Some(loaded.version) {
        let due = folds.due(stream, &mut loaded);
        folds.keep::<D>(log, stream, due);
        folds.put(stream, loaded.clone());
    }
    Ok(loaded)
}

/// A stream that was read together with others.
pub(crate) struct Read<D> {
    pub(crate) loaded: Loaded<D>,
    /// The events that were read for it; its last ones.
    pub(crate) events: Vec<Recorded>,
}

/// Folds many streams at once, each as by [`load`], in two statements. One that cannot be read, or not in one page, is
/// left out: whoever needs it loads it, and hears why.
pub(crate) async fn load_many<D: Decider>(
    log: &Log,
    folds: &Folds,
    streams: &[StreamName],
) -> Result<BTreeMap<StreamName, Read<D>>, EngineError> {
    let mut begun: BTreeMap<StreamName, Loaded<D>> =
        streams.iter().filter_map(|stream| Some((stream.clone(), folds.known(stream)?))).collect();
    let unknown: Vec<StreamName> = streams.iter().filter(|stream| !begun.contains_key(*stream)).cloned().collect();
    begun.append(&mut folds.snapshots(log, &unknown).await);
    // The last event that was folded is read again: the stream has to hold it still.
    let from = |stream| begun.get(stream).map_or(1, |loaded: &Loaded<D>| loaded.version);
    let asked: Vec<_> = streams.iter().map(|stream| (stream.clone(), from(stream))).collect();
    let events = log.read_streams(&asked, PAGE).await?;
    folds.read.fetch_add(events.len() as u64, Relaxed);
    let mut pages: BTreeMap<StreamName, Vec<Recorded>> = BTreeMap::new();
    for event in events {
        pages.entry(event.stream.clone()).or_default().push(event);
    }
    let whole = pages.into_iter().filter(|(_, events)| events.len() < PAGE as usize);
    let folded = whole.filter_map(|(stream, events)| {
        let mut loaded = begun.remove(&stream).unwrap_or_default();
        let rest = match (loaded.version, events.split_first()) {
            (0, _) => events.as_slice(),
            (version, Some((last, rest))) if last.version == version && Some(last.event_id) == loaded.last => rest,
            _ => return None,
        };
        loaded.take_in(rest).ok()?;
        Some((stream, Read { loaded, events }))
    });
    Ok(folded.collect())
}

async fn read(log: &Log, folds: &Folds, stream: &StreamName, from: u64) -> Result<Vec<Recorded>, EngineError> {
    let page = log.read_stream(stream, from, PAGE).await?;
    folds.read.fetch_add(page.len() as u64, Relaxed);
    Ok(page)
}

/// A state from a snapshot of this very stream, and what follows in the page that shows that it is.
async fn from_snapshot<D: Decider>(
    log: &Log,
    folds: &Folds,
    stream: &StreamName,
) -> Result<Option<Loaded<D>>, EngineError> {
    let Some(mut loaded) = folds.snapshot::<D>(log, stream).await else { return Ok(None) };
    let page = read(log, folds, stream, loaded.version).await?;
    match page.split_first() {
        Some((last, rest)) if Some(last.event_id) == loaded.last && last.version == loaded.version => {
            loaded.take_in(rest)?;
            Ok(Some(loaded))
        }
        _ => {
            tracing::warn!(%stream, version = loaded.version, "a snapshot is of another history; it is left aside");
            Ok(None)
        }
    }
}
