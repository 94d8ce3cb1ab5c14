//! Which deliveries came, and what became of each? Key: the delivery's id.

use midwatch_events::{
    AnyEvent, Micros, Recorded, StreamName,
    delivery::{DeliveryContent, DeliveryEvent, HeldCause, Received, ReceivedStatus},
    engine::EngineEvent,
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
    /// A newer one took its place.
    Coalesced,
    /// It waited too long.
    Expired,
    /// Somebody lets it run once more.
    Redelivered,
    /// It will not run: what it is for was busy, the queue full, or what it was for is gone.
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
            ReceivedStatus::Refused => Self::Refused,
        }
    }
}

impl From<DropReason> for DeliveryStatus {
    fn from(reason: DropReason) -> Self {
        match reason {
            DropReason::Expired => Self::Expired,
            DropReason::Coalesced => Self::Coalesced,
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
    /// Why it is held, or was.
    pub held: Option<HeldCause>,
    /// Until when it is held.
    #[serde(with = "rfc3339::option")]
    pub held_until: Option<Micros>,
    /// How often it was let run once more.
    pub redeliveries: u32,
    /// Whether headers and body were erased.
    pub erased: bool,
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
        version: 2,
        columns: &[
            ("trigger", Kind::Text),
            ("status", Kind::Text),
            ("event_type", Kind::Text),
            ("sender_id", Kind::Text),
            ("run", Kind::Text),
            ("received_at", Kind::Int),
            ("position", Kind::Int),
            ("held_until", Kind::Int),
            ("erased", Kind::Int),
        ],
        indexes: &[
            &["position"],
            &["trigger", "position"],
            &["trigger", "status", "position"],
            &["status", "position"],
            &["trigger", "sender_id"],
            &["sender_id"],
            &["event_type", "position"],
            &["held_until"],
            &["trigger", "erased", "position"],
        ],
    };

    fn keys(event: &AnyEvent, recorded: &Recorded) -> Vec<String> {
        match event {
            AnyEvent::Delivery(..) => stream_key(recorded),
            AnyEvent::Engine(event, _) => erased(event).into_iter().collect(),
            AnyEvent::Bot(_)
            | AnyEvent::Boundary(..)
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
            AnyEvent::Engine(event, _) => {
                if let Some(key) = erased(event) {
                    rows.change(&key, |row| {
                        row.sender_id = None;
                        row.erased = true;
                    });
                }
            }
            AnyEvent::Bot(_)
            | AnyEvent::Boundary(..)
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
            Cell::at(row.held_until.filter(|_| row.status == DeliveryStatus::Held)),
            Cell::Int(i64::from(row.erased)),
        ]
    }
}

/// The row of the delivery whose words an event erased.
fn erased(event: &EngineEvent) -> Option<String> {
    match event {
        EngineEvent::ContentErased { subject, .. } => {
            let stream = StreamName::stored(subject.clone());
            (stream.category() == "delivery").then(|| stream.uuid()).flatten().map(|uuid| uuid.to_string())
        }
        EngineEvent::LedgerCreated { .. }
        | EngineEvent::DeploymentAdopted { .. }
        | EngineEvent::SchedulingHalted { .. }
        | EngineEvent::SchedulingLifted {}
        | EngineEvent::ProcessStarted { .. }
        | EngineEvent::ProcessStopped { .. }
        | EngineEvent::ReceiverAdded { .. }
        | EngineEvent::ReactionStarted { .. }
        | EngineEvent::ReceiverRemoved { .. }
        | EngineEvent::NoticeRaised { .. }
        | EngineEvent::NoticeAttempted { .. }
        | EngineEvent::NoticeAskedAgain {} => None,
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
            held: received.held,
            held_until: received.held_until_us,
            redeliveries: 0,
            erased: content.is_none(),
            sender_id,
            position: recorded.position,
            changed_at: recorded.recorded_at,
        }
    }

    fn evolve(&mut self, event: &DeliveryEvent, at: Micros) {
        match event {
            DeliveryEvent::Received(_)
            | DeliveryEvent::RedeliveryStarted(_)
            | DeliveryEvent::RedeliveryProgressed { .. }
            | DeliveryEvent::RedeliveryFinished { .. }
            | DeliveryEvent::RedeliveryCancelled {} => {}
            DeliveryEvent::Redelivered { redelivery, .. } => {
                self.status = DeliveryStatus::Redelivered;
                self.redeliveries = *redelivery;
                self.reason = None;
            }
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
