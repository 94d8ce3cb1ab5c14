//! Typed ids: a UUID that knows what it names.
//!
//! In CBOR an id is a 16-byte string, in JSON and on the command line a bare lower-case UUID.

use std::{cmp::Ordering, fmt, hash, marker::PhantomData, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

/// An id of one kind of thing. `Of` is a marker and never exists at run time.
pub struct Id<Of>(Uuid, PhantomData<fn() -> Of>);

/// Marks ids of Bots.
#[derive(Debug)]
pub enum Bot {}
/// Marks ids of routines.
#[derive(Debug)]
pub enum Routine {}
/// Marks ids of runs.
#[derive(Debug)]
pub enum Run {}
/// Marks ids of triggers.
#[derive(Debug)]
pub enum Trigger {}
/// Marks ids of deliveries.
#[derive(Debug)]
pub enum Delivery {}
/// Marks ids of people.
#[derive(Debug)]
pub enum User {}
/// Marks ids of API tokens.
#[derive(Debug)]
pub enum Token {}
/// Marks ids of engine processes.
#[derive(Debug)]
pub enum Process {}
/// Marks ids of tool calls.
#[derive(Debug)]
pub enum Call {}
/// Marks ids of approvals.
#[derive(Debug)]
pub enum Approval {}
/// Marks ids of blobs.
#[derive(Debug)]
pub enum Blob {}
/// Marks ids of redeliveries.
#[derive(Debug)]
pub enum Redelivery {}
/// Marks ids of receivers of notices.
#[derive(Debug)]
pub enum Receiver {}
/// Marks ids of notices.
#[derive(Debug)]
pub enum Notice {}

/// Id of a Bot.
pub type BotId = Id<Bot>;
/// Id of a routine.
pub type RoutineId = Id<Routine>;
/// Id of a run.
pub type RunId = Id<Run>;
/// Id of a trigger.
pub type TriggerId = Id<Trigger>;
/// Id of a delivery.
pub type DeliveryId = Id<Delivery>;
/// Id of a person.
pub type UserId = Id<User>;
/// Id of an API token.
pub type TokenId = Id<Token>;
/// Id of an engine process.
pub type ProcessId = Id<Process>;
/// Id of one tool call.
pub type CallId = Id<Call>;
/// Id of an approval.
pub type ApprovalId = Id<Approval>;
/// Id of a blob.
pub type BlobId = Id<Blob>;
/// Id of a redelivery of many.
pub type RedeliveryId = Id<Redelivery>;
/// Id of a receiver of notices.
pub type ReceiverId = Id<Receiver>;
/// Id of a notice.
pub type NoticeId = Id<Notice>;

impl<Of> Id<Of> {
    /// Names a UUID's kind.
    #[must_use]
    pub const fn new(uuid: Uuid) -> Self {
        Self(uuid, PhantomData)
    }

    /// The UUID itself.
    #[must_use]
    pub const fn uuid(self) -> Uuid {
        self.0
    }

    /// An id that follows from its cause, so that twice is once: UUIDv5 in the namespace of the deployment that
    /// created the ledger, over a 32-byte key hash.
    #[must_use]
    pub fn derived(namespace: Uuid, key_hash: &[u8; 32]) -> Self {
        Self::new(Uuid::new_v5(&namespace, key_hash))
    }
}

impl<Of> Clone for Id<Of> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<Of> Copy for Id<Of> {}
impl<Of> PartialEq for Id<Of> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}
impl<Of> Eq for Id<Of> {}
impl<Of> PartialOrd for Id<Of> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl<Of> Ord for Id<Of> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.cmp(&other.0)
    }
}
impl<Of> hash::Hash for Id<Of> {
    fn hash<H: hash::Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}
impl<Of> fmt::Debug for Id<Of> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}
impl<Of> fmt::Display for Id<Of> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}
impl<Of> FromStr for Id<Of> {
    type Err = uuid::Error;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Uuid::try_parse(text).map(Self::new)
    }
}
impl<Of> Serialize for Id<Of> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}
impl<'de, Of> Deserialize<'de> for Id<Of> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Uuid::deserialize(deserializer).map(Self::new)
    }
}
