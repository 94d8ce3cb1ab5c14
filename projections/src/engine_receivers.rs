//! Who is told what happens here? Key: the receiver's id. Removed ones stay, with the state `removed`.

use midwatch_events::{
    AnyEvent, Micros, Recorded,
    engine::{EngineContent, EngineEvent, NoticeKind},
    id::ReceiverId,
};
use serde::{Deserialize, Serialize};

use crate::projection::{Cell, Kind, Projection, Rows, Table, rfc3339, stream_key, word};

/// The projection.
#[derive(Debug)]
pub enum Receivers {}

/// Whether a receiver is told anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReceiverState {
    /// It is.
    Active,
    /// It is told nothing more.
    Removed,
}

/// One receiver of notices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReceiverRow {
    /// The receiver.
    pub id: ReceiverId,
    /// What people call it; absent once it was erased.
    pub name: Option<String>,
    /// Where notices are posted to; absent once it was erased.
    pub url: Option<String>,
    /// What it is told.
    pub about: Vec<NoticeKind>,
    /// How often it is told that the clock goes, in seconds.
    pub heartbeat_s: Option<u32>,
    /// Whether it is told anything.
    pub state: ReceiverState,
    /// When it was added.
    #[serde(with = "rfc3339")]
    pub added_at: Micros,
    /// Where it stands in the ledger: it is told what happened after.
    pub position: u64,
}

impl Projection for Receivers {
    type Row = ReceiverRow;

    const TABLE: Table = Table {
        name: "receivers",
        version: 1,
        columns: &[("state", Kind::Text), ("position", Kind::Int)],
        indexes: &[&["state", "position"], &["position"]],
    };

    fn keys(event: &AnyEvent, recorded: &Recorded) -> Vec<String> {
        match event {
            AnyEvent::Engine(event, _) => match event {
                EngineEvent::ReceiverAdded { .. } | EngineEvent::ReceiverRemoved { .. } => stream_key(recorded),
                EngineEvent::NoticeRaised { .. }
                | EngineEvent::NoticeAttempted { .. }
                | EngineEvent::NoticeAskedAgain {}
                | EngineEvent::LedgerCreated { .. }
                | EngineEvent::DeploymentAdopted { .. }
                | EngineEvent::SchedulingHalted { .. }
                | EngineEvent::SchedulingLifted {}
                | EngineEvent::ProcessStarted { .. }
                | EngineEvent::ProcessStopped { .. }
                | EngineEvent::ReactionStarted { .. }
                | EngineEvent::ContentErased { .. } => Vec::new(),
            },
            AnyEvent::Bot(_)
            | AnyEvent::Boundary(..)
            | AnyEvent::Delivery(..)
            | AnyEvent::Repeat(..)
            | AnyEvent::Routine(..)
            | AnyEvent::Run(..)
            | AnyEvent::Trigger(..)
            | AnyEvent::User(..) => Vec::new(),
        }
    }

    fn apply(rows: &mut Rows<ReceiverRow>, event: &AnyEvent, recorded: &Recorded) {
        match event {
            AnyEvent::Engine(EngineEvent::ReceiverAdded { receiver, about, heartbeat_s }, content) => {
                let (name, url) = match content {
                    Some(EngineContent::ReceiverAdded { name, url }) => (Some(name.clone()), Some(url.clone())),
                    Some(_) | None => (None, None),
                };
                let row = ReceiverRow {
                    id: *receiver,
                    name,
                    url,
                    about: about.clone(),
                    heartbeat_s: *heartbeat_s,
                    state: ReceiverState::Active,
                    added_at: recorded.recorded_at,
                    position: recorded.position,
                };
                rows.put(&receiver.to_string(), row);
            }
            AnyEvent::Engine(EngineEvent::ReceiverRemoved { receiver }, _) => {
                rows.change(&receiver.to_string(), |row| row.state = ReceiverState::Removed);
            }
            AnyEvent::Engine(
                EngineEvent::NoticeRaised { .. }
                | EngineEvent::NoticeAttempted { .. }
                | EngineEvent::NoticeAskedAgain {}
                | EngineEvent::LedgerCreated { .. }
                | EngineEvent::DeploymentAdopted { .. }
                | EngineEvent::SchedulingHalted { .. }
                | EngineEvent::SchedulingLifted {}
                | EngineEvent::ProcessStarted { .. }
                | EngineEvent::ProcessStopped { .. }
                | EngineEvent::ReactionStarted { .. }
                | EngineEvent::ContentErased { .. },
                _,
            ) => {}
            AnyEvent::Bot(_)
            | AnyEvent::Boundary(..)
            | AnyEvent::Delivery(..)
            | AnyEvent::Repeat(..)
            | AnyEvent::Routine(..)
            | AnyEvent::Run(..)
            | AnyEvent::Trigger(..)
            | AnyEvent::User(..) => {}
        }
    }

    fn cells(row: &ReceiverRow) -> Vec<Cell> {
        vec![Cell::Text(word(row.state)), Cell::int(Some(row.position))]
    }
}
