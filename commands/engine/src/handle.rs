//! Load, decide, append; on a conflict load and decide again.

use midwatch_commands::{Decider, Refusal};
use midwatch_events::{Actor, Family, New, StreamName, codec, key::Key};
use midwatch_log::{Append, AppendError, Appended, Expected, Log, NewEvent, Pending, StreamAppend};
use uuid::Uuid;

pub use crate::folds::{Folds, Loaded, load};
use crate::{
    EngineError,
    behind::{Behind, Who, gone_refusal},
    world::World,
};

/// How often a conflict is answered by loading and deciding again.
pub const TRIES: u32 = 64;
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
    /// Adds events to a stream that must still be where it is expected to be: at a version, or after an event.
    ///
    /// # Errors
    /// [`EngineError::Fault`] when a family cannot be encoded.
    pub fn add<F: Family>(
        &mut self,
        world: &World,
        stream: &StreamName,
        expected: impl Into<Expected>,
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
        let entry = StreamAppend { stream: stream.clone(), expected: expected.into(), events: encoded };
        self.append.entries.push(entry);
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
    pub fn commit(self, log: &Log) -> Pending<'_, Option<Appended>, EngineError> {
        Box::pin(async move { unless_conflict(log.append(self.append).await) })
    }
}

pub(crate) fn unless_conflict(answer: Result<Appended, AppendError>) -> Result<Option<Appended>, EngineError> {
    match answer {
        Ok(appended) => Ok(Some(appended)),
        Err(AppendError::Conflict { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

impl From<Plan> for Append {
    fn from(plan: Plan) -> Self {
        plan.append
    }
}

/// The one way to change a stream by itself: load, decide, append, and again on a conflict. Commands on one stream take
/// turns in its [lane](crate::lane).
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
    handle_on::<D>(engine, stream, RestsOn::default(), origin, request, command).await
}

/// A version that somebody has looked at, and the sentence for them when the stream is at another one.
pub(crate) type Seen = (u64, &'static str);

/// What a command rests on besides the state of its own stream.
#[derive(Clone, Copy, Default)]
struct RestsOn {
    seen: Option<Seen>,
    who: Option<Who>,
}

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
    handle_on::<D>(engine, stream, RestsOn { seen, who: None }, origin, request, command).await
}

/// As [`handle`], for work of this Bot and person: refused where one of them is gone, also at this very moment.
pub(crate) async fn handle_for<D: Decider>(
    engine: &crate::Engine,
    who: Who,
    stream: &StreamName,
    origin: &Origin,
    request: Option<&Request>,
    command: impl Fn(&D) -> Result<D::Command, Refusal>,
) -> Result<Done<()>, EngineError> {
    handle_on::<D>(engine, stream, RestsOn { seen: None, who: Some(who) }, origin, request, command).await
}

async fn handle_on<D: Decider>(
    engine: &crate::Engine,
    stream: &StreamName,
    rests_on: RestsOn,
    origin: &Origin,
    request: Option<&Request>,
    command: impl Fn(&D) -> Result<D::Command, Refusal>,
) -> Result<Done<()>, EngineError> {
    let decide = |loaded: &Loaded<D>| match rests_on.seen {
        Some((version, sentence)) if version != loaded.version => Err(Refusal::AlreadySo(sentence)),
        _ => loaded.state.decide(command(&loaded.state)?),
    };
    for _ in 0..TRIES {
        // Before the decision: whatever is decided is decided on them.
        let behind = match rests_on.who {
            None => Behind::default(),
            Some(who) => engine.behind(who, true).await?,
        };
        if let Some(gone) = behind.gone {
            return engine.seen(request, gone_refusal(gone)).await;
        }
        let (turn, events) = match engine.decide::<D>(stream, decide).await {
            Ok(Some(decided)) => decided,
            Ok(None) => {
                return match engine.done_before(request).await? {
                    Some(done) => Ok(done),
                    None => Ok(Done { value: (), position: engine.log().head().await?, duplicate: true }),
                };
            }
            Err(EngineError::Refused(refusal)) => return engine.seen(request, refusal).await,
            Err(error) => return Err(error),
        };
        let mut plan = Plan::default();
        plan.add(engine.world(), stream, turn.expected(), &events, origin)?;
        behind.condition(&mut plan);
        if let Some(request) = request {
            plan.key(request.key);
        }
        if let Some(appended) = turn.submit(plan, &events).await? {
            return Ok(Done { value: (), position: appended.last(), duplicate: appended.duplicate });
        }
    }
    Err(contended(stream))
}

/// Others were quicker [`TRIES`] times in a row.
pub(crate) fn contended(stream: &StreamName) -> EngineError {
    EngineError::Fault(format!("{stream} is changed by too many processes at once; try again"))
}
