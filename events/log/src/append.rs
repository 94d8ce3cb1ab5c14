//! What callers ask of the ledger, and what it answers.

use std::{future::Future, pin::Pin};

use midwatch_events::{Micros, StreamName, key::Key};
use uuid::Uuid;

use crate::log::{LogError, Pending};

/// The version a caller believes a stream to be at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Exactly this one; `Exact(0)` is [`Expected::NoStream`].
    Exact(u64),
    /// Exactly this one, and its last event is this one. What is appended to a state that another append of the same
    /// process is still to make: were only the number compared, another process' event could stand in for it.
    After {
        /// The version.
        version: u64,
        /// The last event.
        event_id: Uuid,
    },
    /// The stream has no events yet.
    NoStream,
    /// Whatever it is.
    Any,
}

impl From<u64> for Expected {
    fn from(version: u64) -> Self {
        Self::Exact(version)
    }
}

/// An event that asks for a position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEvent {
    /// UUIDv7, made before the first attempt, so that a retry is recognised.
    pub event_id: Uuid,
    /// The wire name without its version.
    pub event_type: String,
    /// The wire name's version.
    pub schema: u16,
    /// Who did it.
    pub actor: String,
    /// The stream name of the run or delivery it belongs to.
    pub correlation_id: Option<String>,
    /// The event that caused it.
    pub causation_id: Option<Uuid>,
    /// CBOR map of what became true.
    pub facts: Vec<u8>,
    /// CBOR map of the words that go with it. Salt and commitment are made by the ledger.
    pub content: Option<Vec<u8>>,
}

/// One stream's part of an append. With an expected version and no events it is a **condition**: it is checked under
/// the lock and writes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamAppend {
    /// The stream.
    pub stream: StreamName,
    /// The version it must be at.
    pub expected: Expected,
    /// What is added to it, in order.
    pub events: Vec<NewEvent>,
}

/// One atomic append: all of it is written, or nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Append {
    /// Parts, in order. A stream may stand in several of them; later parts see the events of earlier ones.
    pub entries: Vec<StreamAppend>,
    /// Keys under which the same request is recognised for ever. A key stands at the append's first event, and is
    /// bound to it by its leaf; so an append of conditions only has none.
    pub keys: Vec<Key>,
    /// Positions whose content and salt are erased with it, because its events say so; at most 1,024. What has no
    /// content stays as it is. Commitment, facts and leaf of the erased stay, and prove what they proved.
    pub erase: Vec<u64>,
}

/// An append that stands in the ledger, durably.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Position of its first event; for an append that holds only conditions, the head it was judged at.
    pub first: u64,
    /// How many events it has; they stand at `first`, `first + 1` …
    pub count: u64,
    /// When, by the store's clock. For a duplicate, when the original was.
    pub recorded_at: Micros,
    /// One of its keys was known: nothing was written now, and the positions are the original's.
    pub duplicate: bool,
}

impl Appended {
    /// Position of its last event.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.first + self.count.saturating_sub(1)
    }
}

/// An append that has its place: those of one process are judged in the order in which they were submitted. Dropped, it
/// is judged all the same.
pub struct Submitted(Pin<Box<dyn Future<Output = Result<Appended, AppendError>> + Send>>);

impl std::fmt::Debug for Submitted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Submitted")
    }
}

impl Submitted {
    pub(crate) fn new(answer: impl Future<Output = Result<Appended, AppendError>> + Send + 'static) -> Self {
        Self(Box::pin(answer))
    }

    /// What became of it, once that is durable.
    ///
    /// # Errors
    /// As [`crate::Log::append`].
    pub fn answer(self) -> Pending<'static, Appended, AppendError> {
        Box::pin(self.0)
    }
}

/// Why an append was not made.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// A stream is not at the version its caller believed. Nothing was written, no position consumed: load and decide
    /// again.
    #[error("{stream} is at version {actual}, not {expected:?}")]
    Conflict {
        /// The first stream that differs, in the order of the append.
        stream: StreamName,
        /// What was believed.
        expected: Expected,
        /// What is so.
        actual: u64,
    },
    /// A key was used before for another request.
    #[error("an idempotency key was already used for another request, at position {position}")]
    KeyReused {
        /// The key's hash.
        key_hash: [u8; 32],
        /// First position of the request it was used for.
        position: u64,
    },
    /// The caller asked for something the ledger never takes: NUL in text, an event over 64 KiB, no entries, more than
    /// 1,024 events or 4 MiB, a key twice or without an event, an event id that is already another event's, an erasure
    /// without an event or of a position that is not there.
    #[error("the append is not valid: {0}")]
    Invalid(String),
    /// Whether it was written is not known; the same request under the same keys is safe to repeat.
    #[error("it is not known whether the append was written; retry it under the same key")]
    Unknown,
    /// The database did not do its part.
    #[error(transparent)]
    Log(#[from] LogError),
}
