//! Which processes are or were part of the deployment? Key: the process's id. Whether one that never left is alive is
//! not known here: its beats are no events.

use midwatch_events::{
    AnyEvent, Micros, Recorded,
    engine::{EngineEvent, Role},
    id::ProcessId,
};
use serde::{Deserialize, Serialize};

use crate::projection::{Cell, Kind, Projection, Rows, Table, rfc3339};

/// The projection.
#[derive(Debug)]
pub enum Processes {}

/// One process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessRow {
    /// The process.
    pub id: ProcessId,
    /// Its version of Midwatch.
    pub version: String,
    /// What it does.
    pub roles: Vec<Role>,
    /// The release of its time-zone data.
    pub tzdb: String,
    /// When it joined.
    #[serde(with = "rfc3339")]
    pub started_at: Micros,
    /// When it left in order; null also for one that was killed.
    #[serde(with = "rfc3339::option")]
    pub stopped_at: Option<Micros>,
}

/// The process an event of the engine is about.
fn process(event: &EngineEvent) -> Option<ProcessId> {
    match event {
        EngineEvent::ProcessStarted { process, .. } | EngineEvent::ProcessStopped { process } => Some(*process),
        EngineEvent::LedgerCreated { .. }
        | EngineEvent::DeploymentAdopted { .. }
        | EngineEvent::SchedulingHalted { .. }
        | EngineEvent::SchedulingLifted {}
        | EngineEvent::ReactionStarted { .. }
        | EngineEvent::ContentErased { .. }
        | EngineEvent::ReceiverAdded { .. }
        | EngineEvent::ReceiverRemoved { .. }
        | EngineEvent::NoticeRaised { .. }
        | EngineEvent::NoticeAttempted { .. }
        | EngineEvent::NoticeAskedAgain {} => None,
    }
}

impl Projection for Processes {
    type Row = ProcessRow;

    const TABLE: Table = Table {
        name: "processes",
        version: 1,
        columns: &[("started_at", Kind::Int), ("stopped_at", Kind::Int)],
        indexes: &[&["started_at"], &["stopped_at"]],
    };

    fn keys(event: &AnyEvent, _: &Recorded) -> Vec<String> {
        match event {
            AnyEvent::Engine(event, _) => process(event).map(|id| id.to_string()).into_iter().collect(),
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

    fn apply(rows: &mut Rows<ProcessRow>, event: &AnyEvent, recorded: &Recorded) {
        match event {
            AnyEvent::Engine(EngineEvent::ProcessStarted { process, version, roles, tzdb }, _) => rows.put(
                &process.to_string(),
                ProcessRow {
                    id: *process,
                    version: version.clone(),
                    roles: roles.clone(),
                    tzdb: tzdb.clone(),
                    started_at: recorded.recorded_at,
                    stopped_at: None,
                },
            ),
            AnyEvent::Engine(EngineEvent::ProcessStopped { process }, _) => {
                rows.change(&process.to_string(), |row| row.stopped_at = Some(recorded.recorded_at));
            }
            AnyEvent::Engine(
                EngineEvent::LedgerCreated { .. }
                | EngineEvent::DeploymentAdopted { .. }
                | EngineEvent::SchedulingHalted { .. }
                | EngineEvent::SchedulingLifted {}
                | EngineEvent::ReactionStarted { .. }
                | EngineEvent::ContentErased { .. }
                | EngineEvent::ReceiverAdded { .. }
                | EngineEvent::ReceiverRemoved { .. }
                | EngineEvent::NoticeRaised { .. }
                | EngineEvent::NoticeAttempted { .. }
                | EngineEvent::NoticeAskedAgain {},
                _,
            )
            | AnyEvent::Bot(_)
            | AnyEvent::Boundary(..)
            | AnyEvent::Delivery(..)
            | AnyEvent::Repeat(..)
            | AnyEvent::Routine(..)
            | AnyEvent::Run(..)
            | AnyEvent::Trigger(..)
            | AnyEvent::User(..) => {}
        }
    }

    fn cells(row: &ProcessRow) -> Vec<Cell> {
        vec![Cell::Int(row.started_at.0), Cell::at(row.stopped_at)]
    }
}
