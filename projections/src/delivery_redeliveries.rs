//! Which redeliveries of many are there, and how far are they? Key: the redelivery's id.

use midwatch_events::{
    AnyEvent, Micros, Recorded,
    delivery::{DeliveryEvent, RedeliveryStarted},
    id::{RedeliveryId, TriggerId},
};
use serde::{Deserialize, Serialize};

use crate::projection::{Cell, Kind, Projection, Rows, Table, rfc3339, stream_key, word};

/// The projection.
#[derive(Debug)]
pub enum Redeliveries {}

/// Where a redelivery stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RedeliveryState {
    /// It goes on.
    Running,
    /// It came to its end.
    Finished,
    /// Somebody stopped it.
    Cancelled,
}

/// One redelivery of many.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RedeliveryRow {
    /// The redelivery.
    pub id: RedeliveryId,
    /// Where it stands.
    pub state: RedeliveryState,
    /// Only deliveries of this trigger.
    pub trigger: Option<TriggerId>,
    /// Only those with this status.
    pub status: Option<String>,
    /// Only those about this.
    pub event_type: Option<String>,
    /// Only those received at or after this instant.
    #[serde(with = "rfc3339::option")]
    pub since: Option<Micros>,
    /// Only those received before this instant.
    #[serde(with = "rfc3339::option")]
    pub until: Option<Micros>,
    /// How many there were when it was confirmed.
    pub count: u64,
    /// How many were let run so far.
    pub redelivered: u64,
    /// How many were left out so far.
    pub left_out: u64,
    /// When it was confirmed.
    #[serde(with = "rfc3339")]
    pub started_at: Micros,
    /// When it was over.
    #[serde(with = "rfc3339::option")]
    pub ended_at: Option<Micros>,
    /// Where it stands in the ledger.
    pub position: u64,
}

impl Projection for Redeliveries {
    type Row = RedeliveryRow;

    const TABLE: Table = Table {
        name: "redeliveries",
        version: 1,
        columns: &[("state", Kind::Text), ("trigger", Kind::Text), ("position", Kind::Int)],
        indexes: &[&["position"], &["state", "position"], &["trigger", "position"]],
    };

    fn keys(event: &AnyEvent, recorded: &Recorded) -> Vec<String> {
        match event {
            AnyEvent::Delivery(event, _) => match event {
                DeliveryEvent::RedeliveryStarted(_)
                | DeliveryEvent::RedeliveryProgressed { .. }
                | DeliveryEvent::RedeliveryFinished { .. }
                | DeliveryEvent::RedeliveryCancelled {} => stream_key(recorded),
                DeliveryEvent::Received(_)
                | DeliveryEvent::Queued { .. }
                | DeliveryEvent::Started { .. }
                | DeliveryEvent::Dropped { .. }
                | DeliveryEvent::Redelivered { .. } => Vec::new(),
            },
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

    fn apply(rows: &mut Rows<RedeliveryRow>, event: &AnyEvent, recorded: &Recorded) {
        match event {
            AnyEvent::Delivery(event, _) => {
                let Some(key) = stream_key(recorded).pop() else { return };
                if let DeliveryEvent::RedeliveryStarted(started) = event {
                    rows.put(&key, RedeliveryRow::new(started, recorded));
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

    fn cells(row: &RedeliveryRow) -> Vec<Cell> {
        vec![Cell::Text(word(row.state)), Cell::shown(row.trigger), Cell::int(Some(row.position))]
    }
}

impl RedeliveryRow {
    fn new(started: &RedeliveryStarted, recorded: &Recorded) -> Self {
        Self {
            id: started.redelivery,
            state: RedeliveryState::Running,
            trigger: started.trigger,
            status: started.status.clone(),
            event_type: started.event_type.clone(),
            since: started.since_us,
            until: started.until_us,
            count: started.count,
            redelivered: 0,
            left_out: 0,
            started_at: recorded.recorded_at,
            ended_at: None,
            position: recorded.position,
        }
    }

    fn evolve(&mut self, event: &DeliveryEvent, at: Micros) {
        match event {
            DeliveryEvent::RedeliveryProgressed { redelivered, left_out, .. } => {
                self.redelivered = *redelivered;
                self.left_out = *left_out;
            }
            DeliveryEvent::RedeliveryFinished { redelivered, left_out } => {
                self.redelivered = *redelivered;
                self.left_out = *left_out;
                self.state = RedeliveryState::Finished;
                self.ended_at = Some(at);
            }
            DeliveryEvent::RedeliveryCancelled {} => {
                self.state = RedeliveryState::Cancelled;
                self.ended_at = Some(at);
            }
            DeliveryEvent::RedeliveryStarted(_)
            | DeliveryEvent::Received(_)
            | DeliveryEvent::Queued { .. }
            | DeliveryEvent::Started { .. }
            | DeliveryEvent::Dropped { .. }
            | DeliveryEvent::Redelivered { .. } => {}
        }
    }
}
