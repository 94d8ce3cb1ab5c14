//! Which deployment is this, and is scheduling halted? One row, with the key [`KEY`].

use midwatch_events::{
    AnyEvent, Micros, Recorded,
    engine::{EngineContent, EngineEvent, HaltCause},
};
use serde::{Deserialize, Serialize};

use crate::projection::{Cell, Projection, Rows, Table, rfc3339};

/// The key of the one row.
pub const KEY: &str = "deployment";

/// The projection.
#[derive(Debug)]
pub enum Deployment {}

/// The deployment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeploymentRow {
    /// Its identity, a UUID.
    pub deployment: Option<String>,
    /// The identity it had before this copy was adopted.
    pub previous: Option<String>,
    /// When the ledger was made.
    #[serde(with = "rfc3339::option")]
    pub created_at: Option<Micros>,
    /// The sliding window in which equal calls are counted, in seconds.
    pub repeat_window_s: Option<u32>,
    /// Whether nothing starts.
    pub halted: bool,
    /// What brought the halt about.
    pub cause: Option<HaltCause>,
    /// Why, in words; absent also when they were erased.
    pub reason: Option<String>,
    /// Who halted.
    pub by: Option<String>,
    /// Since when.
    #[serde(with = "rfc3339::option")]
    pub since: Option<Micros>,
    /// When the last halt was lifted.
    #[serde(with = "rfc3339::option")]
    pub lifted_at: Option<Micros>,
    /// Who lifted it.
    pub lifted_by: Option<String>,
}

impl Projection for Deployment {
    type Row = DeploymentRow;

    const TABLE: Table = Table { name: "deployment", version: 1, columns: &[], indexes: &[] };

    fn keys(event: &AnyEvent, _: &Recorded) -> Vec<String> {
        match event {
            AnyEvent::Engine(event, _) => match event {
                EngineEvent::LedgerCreated { .. }
                | EngineEvent::DeploymentAdopted { .. }
                | EngineEvent::SchedulingHalted { .. }
                | EngineEvent::SchedulingLifted {} => vec![KEY.to_owned()],
                EngineEvent::ProcessStarted { .. }
                | EngineEvent::ProcessStopped { .. }
                | EngineEvent::ReactionStarted { .. }
                | EngineEvent::ContentErased { .. }
                | EngineEvent::ReceiverAdded { .. }
                | EngineEvent::ReceiverRemoved { .. }
                | EngineEvent::NoticeRaised { .. }
                | EngineEvent::NoticeAttempted { .. }
                | EngineEvent::NoticeAskedAgain {} => Vec::new(),
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

    fn apply(rows: &mut Rows<DeploymentRow>, event: &AnyEvent, recorded: &Recorded) {
        match event {
            AnyEvent::Engine(event, content) => {
                let mut row = rows.get(KEY).cloned().unwrap_or_default();
                row.evolve(event, content.as_ref(), recorded);
                rows.put(KEY, row);
            }
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

    fn cells(_: &DeploymentRow) -> Vec<Cell> {
        Vec::new()
    }
}

impl DeploymentRow {
    fn evolve(&mut self, event: &EngineEvent, content: Option<&EngineContent>, recorded: &Recorded) {
        match event {
            EngineEvent::LedgerCreated { deployment, key_id: _, repeat_window_s } => {
                self.deployment = Some(deployment.to_string());
                self.created_at = Some(recorded.recorded_at);
                self.repeat_window_s = Some(*repeat_window_s);
            }
            EngineEvent::DeploymentAdopted { deployment, previous, key_id: _ } => {
                self.deployment = Some(deployment.to_string());
                self.previous = Some(previous.to_string());
            }
            EngineEvent::SchedulingHalted { cause } => {
                self.halted = true;
                self.cause = Some(*cause);
                self.reason = match content {
                    Some(EngineContent::SchedulingHalted { reason }) => Some(reason.clone()),
                    Some(
                        EngineContent::ContentErased { .. }
                        | EngineContent::ReceiverAdded { .. }
                        | EngineContent::NoticeRaised { .. }
                        | EngineContent::NoticeAttempted { .. },
                    )
                    | None => None,
                };
                self.by = Some(recorded.actor.clone());
                self.since = Some(recorded.recorded_at);
            }
            EngineEvent::SchedulingLifted {} => {
                self.halted = false;
                self.cause = None;
                self.reason = None;
                self.by = None;
                self.since = None;
                self.lifted_at = Some(recorded.recorded_at);
                self.lifted_by = Some(recorded.actor.clone());
            }
            EngineEvent::ProcessStarted { .. }
            | EngineEvent::ProcessStopped { .. }
            | EngineEvent::ReactionStarted { .. }
            | EngineEvent::ContentErased { .. }
            | EngineEvent::ReceiverAdded { .. }
            | EngineEvent::ReceiverRemoved { .. }
            | EngineEvent::NoticeRaised { .. }
            | EngineEvent::NoticeAttempted { .. }
            | EngineEvent::NoticeAskedAgain {} => {}
        }
    }
}
