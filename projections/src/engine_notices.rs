//! What was told to whom, and did it arrive? Key: the notice's id.

use midwatch_events::{
    AnyEvent, Micros, Recorded,
    engine::{EngineContent, EngineEvent, NoticeKind},
    id::{NoticeId, ReceiverId},
};
use serde::{Deserialize, Serialize};

use crate::projection::{Cell, Kind, Projection, Rows, Table, rfc3339, stream_key, word};

/// The projection.
#[derive(Debug)]
pub enum Notices {}

/// Whether a notice arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoticeState {
    /// It is to be posted, or posted again.
    Waiting,
    /// Its receiver took it.
    Delivered,
    /// It was given up.
    Failed,
}

/// One notice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NoticeRow {
    /// The notice; its receiver knows it as `webhook-id`.
    pub id: NoticeId,
    /// Who is told.
    pub receiver: ReceiverId,
    /// What kind of thing happened.
    pub kind: NoticeKind,
    /// The stream it happened to.
    pub subject: String,
    /// Whether it arrived.
    pub state: NoticeState,
    /// How often it was posted.
    pub attempts: u32,
    /// The HTTP status of the last answer.
    pub status: Option<u16>,
    /// What stood in the way the last time.
    pub error: Option<String>,
    /// When it is posted next.
    #[serde(with = "rfc3339::option")]
    pub due: Option<Micros>,
    /// When it was raised.
    #[serde(with = "rfc3339")]
    pub raised_at: Micros,
    /// When it was posted last.
    #[serde(with = "rfc3339::option")]
    pub attempted_at: Option<Micros>,
    /// Where it stands in the ledger.
    pub position: u64,
}

impl Projection for Notices {
    type Row = NoticeRow;

    const TABLE: Table = Table {
        name: "notices",
        version: 2,
        columns: &[
            ("receiver", Kind::Text),
            ("state", Kind::Text),
            ("kind", Kind::Text),
            ("due", Kind::Int),
            ("position", Kind::Int),
        ],
        indexes: &[
            &["position"],
            &["receiver", "position"],
            &["state", "position"],
            &["kind", "position"],
            &["due"],
            &["receiver", "due"],
        ],
    };

    fn keys(event: &AnyEvent, recorded: &Recorded) -> Vec<String> {
        match event {
            AnyEvent::Engine(event, _) => match event {
                EngineEvent::NoticeRaised { .. }
                | EngineEvent::NoticeAttempted { .. }
                | EngineEvent::NoticeAskedAgain {} => stream_key(recorded),
                EngineEvent::ReceiverAdded { .. }
                | EngineEvent::ReceiverRemoved { .. }
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

    fn apply(rows: &mut Rows<NoticeRow>, event: &AnyEvent, recorded: &Recorded) {
        match event {
            AnyEvent::Engine(event, content) => {
                let Some(key) = stream_key(recorded).pop() else { return };
                if let EngineEvent::NoticeRaised { notice, receiver, kind, subject } = event {
                    let row = NoticeRow {
                        id: *notice,
                        receiver: *receiver,
                        kind: *kind,
                        subject: subject.clone(),
                        state: NoticeState::Waiting,
                        attempts: 0,
                        status: None,
                        error: None,
                        due: Some(recorded.recorded_at),
                        raised_at: recorded.recorded_at,
                        attempted_at: None,
                        position: recorded.position,
                    };
                    rows.put(&key, row);
                }
                rows.change(&key, |row| row.evolve(event, content.as_ref(), recorded.recorded_at));
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

    fn cells(row: &NoticeRow) -> Vec<Cell> {
        vec![
            Cell::shown(Some(row.receiver)),
            Cell::Text(word(row.state)),
            Cell::Text(word(row.kind)),
            Cell::at(row.due),
            Cell::int(Some(row.position)),
        ]
    }
}

impl NoticeRow {
    fn evolve(&mut self, event: &EngineEvent, content: Option<&EngineContent>, at: Micros) {
        match event {
            EngineEvent::NoticeAttempted { attempt, status, delivered, next_us } => {
                self.attempts = *attempt;
                self.status = *status;
                self.error = match content {
                    Some(EngineContent::NoticeAttempted { error }) => Some(error.clone()),
                    Some(_) | None => None,
                };
                self.attempted_at = Some(at);
                self.due = *next_us;
                self.state = match (delivered, next_us) {
                    (true, _) => NoticeState::Delivered,
                    (false, Some(_)) => NoticeState::Waiting,
                    (false, None) => NoticeState::Failed,
                };
            }
            EngineEvent::NoticeAskedAgain {} => {
                self.state = NoticeState::Waiting;
                self.due = Some(at);
            }
            EngineEvent::NoticeRaised { .. }
            | EngineEvent::ReceiverAdded { .. }
            | EngineEvent::ReceiverRemoved { .. }
            | EngineEvent::LedgerCreated { .. }
            | EngineEvent::DeploymentAdopted { .. }
            | EngineEvent::SchedulingHalted { .. }
            | EngineEvent::SchedulingLifted {}
            | EngineEvent::ProcessStarted { .. }
            | EngineEvent::ProcessStopped { .. }
            | EngineEvent::ReactionStarted { .. }
            | EngineEvent::ContentErased { .. } => {}
        }
    }
}
