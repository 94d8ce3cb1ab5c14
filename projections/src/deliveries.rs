//! Which deliveries came, and what became of each? Key: the delivery's id.

use midwatch_events::{
    AnyEvent, Micros, Recorded,
    delivery::{DeliveryContent, DeliveryEvent, Received, ReceivedStatus},
    id::{DeliveryId, RoutineId, RunId, TriggerId},
    routine::DropReason,
};
use serde::{Deserialize, Serialize};

use crate::projection::{Cell, Kind, Projection, Rows, Table, rfc3339, stream_key, word};

/// The projection.
#[derive(Debug)]
pub enum Deliveries {}

/// What became of a delivery so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryStatus {
    /// It is to become a run.
    Accepted,
    /// It is the trigger's sample.
    Captured,
    /// The sample had not been confirmed.
    AwaitingConfirmation,
    /// The trigger does not want this kind.
    Filtered,
    /// It waits for a person.
    Held,
    /// It waits for its turn.
    Queued,
    /// It became a run.
    Started,
    /// It waited too long.
    Expired,
    /// It will not run: the queue was full, or what it was for is gone.
    Refused,
}

impl From<ReceivedStatus> for DeliveryStatus {
    fn from(status: ReceivedStatus) -> Self {
        match status {
            ReceivedStatus::Accepted => Self::Accepted,
            ReceivedStatus::Captured => Self::Captured,
            ReceivedStatus::AwaitingConfirmation => Self::AwaitingConfirmation,
            ReceivedStatus::Filtered => Self::Filtered,
            ReceivedStatus::Held => Self::Held,
        }
    }
}

impl From<DropReason> for DeliveryStatus {
    fn from(reason: DropReason) -> Self {
        match reason {
            DropReason::Expired => Self::Expired,
            DropReason::QueueFull | DropReason::TargetGone => Self::Refused,
        }
    }
}

/// One delivery.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeliveryRow {
    /// The delivery.
    pub id: DeliveryId,
    /// The trigger it was posted to.
    pub trigger: TriggerId,
    /// The routine the trigger hands work to.
    pub routine: Option<RoutineId>,
    /// When it was recorded.
    #[serde(with = "rfc3339")]
    pub received_at: Micros,
    /// What became of it so far.
    pub status: DeliveryStatus,
    /// Why it will not run.
    pub reason: Option<DropReason>,
    /// What the sender says it is about.
    pub event_type: Option<String>,
    /// Its run.
    pub run: Option<RunId>,
    /// Length of the body in bytes.
    pub body_bytes: u64,
    /// Whether the body could be read as JSON.
    pub parsed: bool,
    /// Why it could not.
    pub unparsed: Option<String>,
    /// The sender's id was used before for another body.
    pub id_conflict: bool,
    /// The sender's own id for it; absent also when it was erased.
    pub sender_id: Option<String>,
    /// Where it stands in the ledger; headers and body are the content there.
    pub position: u64,
    /// When its status changed last.
    #[serde(with = "rfc3339")]
    pub changed_at: Micros,
}

impl Projection for Deliveries {
    type Row = DeliveryRow;

    const TABLE: Table = Table {
        name: "deliveries",
        version: 1,
        columns: &[
            ("trigger", Kind::Text),
            ("status", Kind::Text),
            ("event_type", Kind::Text),
            ("sender_id", Kind::Text),
            ("run", Kind::Text),
            ("received_at", Kind::Int),
            ("position", Kind::Int),
        ],
        indexes: &[
            &["position"],
            &["trigger", "position"],
            &["trigger", "status", "position"],
            &["status", "position"],
            &["trigger", "sender_id"],
        ],
    };

    fn keys(event: &AnyEvent, recorded: &Recorded) -> Vec<String> {
        match event {
            AnyEvent::Delivery(..) => stream_key(recorded),
            AnyEvent::Bot(_)
            | AnyEvent::Boundary(..)
            | AnyEvent::Engine(..)
            | AnyEvent::Repeat(..)
            | AnyEvent::Routine(..)
            | AnyEvent::Run(..)
            | AnyEvent::Trigger(..)
            | AnyEvent::User(..) => Vec::new(),
        }
    }

    fn apply(rows: &mut Rows<DeliveryRow>, event: &AnyEvent, recorded: &Recorded) {
        match event {
            AnyEvent::Delivery(event, content) => {
                let Some(key) = stream_key(recorded).pop() else { return };
                if let DeliveryEvent::Received(received) = event {
                    rows.put(&key, DeliveryRow::new(received, content.as_ref(), recorded));
                }
                rows.change(&key, |row| row.evolve(event, recorded.recorded_at));
            }
            AnyEvent::Bot(_)
            | AnyEvent::Boundary(..)
            | AnyEvent::Engine(..)
            | AnyEvent::Repeat(..)
            | AnyEvent::Routine(..)
            | AnyEvent::Run(..)
            | AnyEvent::Trigger(..)
            | AnyEvent::User(..) => {}
        }
    }

    fn cells(row: &DeliveryRow) -> Vec<Cell> {
        vec![
            Cell::shown(Some(row.trigger)),
            Cell::Text(word(row.status)),
            Cell::shown(row.event_type.as_deref()),
            Cell::shown(row.sender_id.as_deref()),
            Cell::shown(row.run),
            Cell::Int(row.received_at.0),
            Cell::int(Some(row.position)),
        ]
    }
}

impl DeliveryRow {
    fn new(received: &Received, content: Option<&DeliveryContent>, recorded: &Recorded) -> Self {
        let sender_id = content.and_then(|DeliveryContent::Received { sender_id, .. }| sender_id.clone());
        Self {
            id: received.delivery,
            trigger: received.trigger,
            routine: received.routine,
            received_at: recorded.recorded_at,
            status: received.status.into(),
            reason: None,
            event_type: received.event_type.clone(),
            run: None,
            body_bytes: received.body_bytes,
            parsed: received.parsed,
            unparsed: received.unparsed.clone(),
            id_conflict: received.id_conflict,
            sender_id,
            position: recorded.position,
            changed_at: recorded.recorded_at,
        }
    }

    fn evolve(&mut self, event: &DeliveryEvent, at: Micros) {
        match event {
            DeliveryEvent::Received(_) => {}
            DeliveryEvent::Queued { .. } => self.status = DeliveryStatus::Queued,
            DeliveryEvent::Started { run, .. } => {
                self.status = DeliveryStatus::Started;
                self.run = Some(*run);
            }
            DeliveryEvent::Dropped { reason, .. } => {
                self.status = (*reason).into();
                self.reason = Some(*reason);
            }
        }
        self.changed_at = at;
    }
}
