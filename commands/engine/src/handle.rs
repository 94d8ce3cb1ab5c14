//! Load, decide, append; on a conflict load and decide again.

use std::{
    any::Any,
    collections::HashMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Mutex,
};

use midwatch_commands::{Decider, Refusal};
use midwatch_events::{Actor, Family, New, StreamName, codec, key::Key};
use midwatch_log::{Append, AppendError, Appended, Expected, Log, NewEvent, StreamAppend};
use uuid::Uuid;

use crate::{EngineError, world::World};

/// How often a conflict is answered by loading and deciding again.
pub const TRIES: u32 = 64;
const PAGE: u32 = 512;
/// Folded streams kept per process; beyond it all are dropped, which costs a reload each and nothing else. A long run's
/// state is tens of kilobytes.
const CACHE_MAX: usize = 4_096;
const LANES: usize = 64;

/// A stream's state, and the version it was folded up to.
#[derive(Clone, Debug, Default)]
pub struct Loaded<D> {
    /// The state.
    pub state: D,
    /// The version; 0 for a stream nobody has written to.
    pub version: u64,
}

/// Who did it, in whose context, because of what.
#[derive(Clone, Debug)]
pub struct Origin {
    /// Who.
    pub actor: Actor,
    /// The stream of the run or delivery it belongs to.
    pub correlation: Option<String>,
    /// The event that caused it.
    pub causation: Option<Uuid>,
}

impl Origin {
    /// Somebody acts by themselves.
    #[must_use]
    pub fn of(actor: Actor) -> Self {
        Self { actor, correlation: None, causation: None }
    }

    /// The same, as part of a run or delivery.
    #[must_use]
    pub fn within(self, stream: &StreamName) -> Self {
        Self { correlation: Some(stream.as_str().to_owned()), ..self }
    }

    /// The same, because of an event.
    #[must_use]
    pub fn because(self, event: Uuid) -> Self {
        Self { causation: Some(event), ..self }
    }
}

/// A request that may be repeated: the same key and the same content is the same request, for ever.
#[derive(Clone, Debug)]
pub struct Request {
    /// Its key; also what ids of things it makes are derived from.
    pub key: Key,
}

impl Request {
    /// The request `asked` (method, path, body …), sent under the idempotency key `id`.
    #[must_use]
    pub fn new(id: &str, asked: &[&[u8]]) -> Self {
        Self { key: Key::new(&["api", id], asked) }
    }
}

/// What came of a command.
#[derive(Clone, Debug)]
pub struct Done<T> {
    /// The answer.
    pub value: T,
    /// The last position it rests on; the next read of the caller waits for it.
    pub position: u64,
    /// It had been done before under the same key; nothing was done now.
    pub duplicate: bool,
}

/// One append in the making.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    append: Append,
}

impl Plan {
    /// Adds events to a stream that must still be at `version`.
    ///
    /// # Errors
    /// [`EngineError::Fault`] when a family cannot be encoded.
    pub fn add<F: Family>(
        &mut self,
        world: &World,
        stream: &StreamName,
        version: u64,
        events: &[New<F>],
        origin: &Origin,
    ) -> Result<Option<Uuid>, EngineError> {
        let mut last = None;
        let mut encoded = Vec::with_capacity(events.len());
        for event in events {
            let bytes = codec::encode(event)?;
            let event_id = world.uuid();
            last = Some(event_id);
            encoded.push(NewEvent {
                event_id,
                event_type: bytes.event_type,
                schema: bytes.schema,
                actor: origin.actor.to_string(),
                correlation_id: origin.correlation.clone(),
                causation_id: origin.causation,
                facts: bytes.facts,
                content: bytes.content,
            });
        }
        self.append.entries.push(StreamAppend {
            stream: stream.clone(),
            expected: Expected::Exact(version),
            events: encoded,
        });
        Ok(last)
    }

    /// Demands that a stream is still at `version`, and adds nothing to it.
    pub fn condition(&mut self, stream: StreamName, version: u64) {
        self.append.entries.push(StreamAppend { stream, expected: Expected::Exact(version), events: Vec::new() });
    }

    /// Adds a key.
    pub fn key(&mut self, key: Key) {
        if !self.append.keys.contains(&key) {
            self.append.keys.push(key);
        }
    }

    /// Whether nothing would be written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.append.entries.iter().all(|entry| entry.events.is_empty())
    }

    /// Appends it. A conflict comes back as `Ok(None)`: load and decide again.
    ///
    /// # Errors
    /// Anything but a conflict.
    pub async fn commit(self, log: &Log) -> Result<Option<Appended>, EngineError> {
        match log.append(self.append).await {
            Ok(appended) => Ok(Some(appended)),
            Err(AppendError::Conflict { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl From<Plan> for Append {
    fn from(plan: Plan) -> Self {
        plan.append
    }
}

/// Folded streams, so that a load reads only what is new. Streams are append-only: a kept state is never wrong, only
/// behind.
#[derive(Default)]
pub struct Folds {
    kept: Mutex<HashMap<StreamName, Box<dyn Any + Send>>>,
}

impl std::fmt::Debug for Folds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Folds")
    }
}

impl Folds {
    fn get<D: Decider>(&self, stream: &StreamName) -> Loaded<D> {
        self.known(stream).unwrap_or_else(|| Loaded { state: D::default(), version: 0 })
    }

    /// What is kept of a stream.
    pub(crate) fn known<D: Decider>(&self, stream: &StreamName) -> Option<Loaded<D>> {
        let kept = self.kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        kept.get(stream).and_then(|any| any.downcast_ref::<Loaded<D>>()).cloned()
    }

    fn put<D: Decider>(&self, stream: &StreamName, loaded: &Loaded<D>) {
        let mut kept = self.kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if kept.len() >= CACHE_MAX {
            kept.clear();
        }
        kept.insert(stream.clone(), Box::new(loaded.clone()));
    }

    /// Drops everything: the ledger is not the one the states were folded from.
    pub fn clear(&self) {
        self.kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clear();
    }
}

/// Who lost a race on a stream waits here for those who lost before: of many callers in one process only one at a time
/// then tries again, so that none of them loses for ever. Streams share lanes; that costs a wait and nothing else.
#[derive(Debug)]
pub(crate) struct Lanes([tokio::sync::Mutex<()>; LANES]);

impl Default for Lanes {
    fn default() -> Self {
        Self(std::array::from_fn(|_| tokio::sync::Mutex::new(())))
    }
}

impl Lanes {
    pub(crate) async fn enter(&self, stream: &StreamName) -> tokio::sync::MutexGuard<'_, ()> {
        let mut hasher = DefaultHasher::new();
        stream.hash(&mut hasher);
        let lane = usize::try_from(hasher.finish() % LANES as u64).unwrap_or_default();
        self.0[lane].lock().await
    }
}

/// Folds a stream up to its end.
///
/// # Errors
/// A fault of the database, an event of a newer version, or damaged bytes.
pub async fn load<D: Decider>(log: &Log, folds: &Folds, stream: &StreamName) -> Result<Loaded<D>, EngineError> {
    let mut loaded = folds.get::<D>(stream);
    let known = loaded.version;
    loop {
        let page = log.read_stream(stream, loaded.version + 1, PAGE).await?;
        for event in &page {
            loaded.state.evolve(&event.facts()?, event.recorded_at);
            loaded.version = event.version;
        }
        if page.len() < PAGE as usize {
            break;
        }
    }
    if loaded.version > known {
        folds.put(stream, &loaded);
    }
    Ok(loaded)
}

/// The one way to change a stream by itself: load, decide, append, and again on a conflict.
///
/// # Errors
/// The decider's refusal, or a fault.
#[tracing::instrument(name = "handle", level = "debug", skip_all)]
pub async fn handle<D: Decider>(
    engine: &crate::Engine,
    stream: &StreamName,
    origin: &Origin,
    request: Option<&Request>,
    command: impl Fn(&D) -> Result<D::Command, Refusal>,
) -> Result<Done<()>, EngineError> {
    handle_at::<D>(engine, stream, None, origin, request, command).await
}

/// A version that somebody has looked at, and the sentence for them when the stream is at another one.
pub(crate) type Seen = (u64, &'static str);

/// As [`handle`]; with `seen`, only on what was looked at. That is judged by the version the append rests on: of two
/// who looked at the same, one is told so.
pub(crate) async fn handle_at<D: Decider>(
    engine: &crate::Engine,
    stream: &StreamName,
    seen: Option<Seen>,
    origin: &Origin,
    request: Option<&Request>,
    command: impl Fn(&D) -> Result<D::Command, Refusal>,
) -> Result<Done<()>, EngineError> {
    let mut lane = None;
    for _ in 0..TRIES {
        let loaded = engine.load::<D>(stream).await?;
        if let Some((version, sentence)) = seen
            && version != loaded.version
        {
            return engine.seen(request, Refusal::AlreadySo(sentence)).await;
        }
        let decided = command(&loaded.state).and_then(|command| loaded.state.decide(command));
        let events = match decided {
            Ok(events) => events,
            Err(refusal) => return engine.seen(request, refusal).await,
        };
        if events.is_empty() {
            return match engine.done_before(request).await? {
                Some(done) => Ok(done),
                None => Ok(Done { value: (), position: engine.log().head().await?, duplicate: true }),
            };
        }
        let mut plan = Plan::default();
        plan.add(engine.world(), stream, loaded.version, &events, origin)?;
        if let Some(request) = request {
            plan.key(request.key);
        }
        if let Some(appended) = plan.commit(engine.log()).await? {
            return Ok(Done { value: (), position: appended.last(), duplicate: appended.duplicate });
        }
        if lane.is_none() {
            lane = Some(engine.lanes().enter(stream).await);
        }
    }
    Err(EngineError::Fault(format!("{stream} is changed by too many processes at once; try again")))
}
