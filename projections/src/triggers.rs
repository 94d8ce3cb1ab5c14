//! Which triggers are there, and what came through them? Key: the trigger's id. Deleted ones stay, with the state
//! `deleted`; lists leave them out. Secrets are not here: whoever checks one reads the trigger's own stream.

use std::collections::{BTreeMap, BTreeSet};

use midwatch_events::{
    AnyEvent, Micros, Recorded,
    delivery::DeliveryEvent,
    id::{BotId, DeliveryId, RoutineId, RunId, TriggerId, UserId},
    routine::Limits,
    trigger::{Intake, Scheme, TriggerEvent},
};
use serde::{Deserialize, Serialize};

use crate::{
    deliveries::DeliveryStatus,
    projection::{Cell, Kind, Projection, Rows, Table, of_stream, rfc3339, stream_key, word},
};

/// The projection.
#[derive(Debug)]
pub enum Triggers {}

/// Whether a trigger's endpoint answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TriggerState {
    /// It takes deliveries.
    Active,
    /// It answers as if it did not exist.
    Paused,
    /// It is gone for good.
    Deleted,
}

/// One trigger.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TriggerRow {
    /// The trigger.
    pub id: TriggerId,
    /// Its name.
    pub name: String,
    /// Whose rights its runs have.
    pub owner: UserId,
    /// The public part of its URL.
    pub endpoint: String,
    /// The routine it hands work to.
    pub routine: Option<RoutineId>,
    /// The Bot that works by the trigger's own instruction.
    pub bot: Option<BotId>,
    /// How its sender shows who it is; a bearer secret, if nothing is said.
    pub scheme: Option<Scheme>,
    /// How deliveries are taken in.
    pub intake: Intake,
    /// How runs of its own instruction run.
    pub limits: Limits,
    /// Whether its endpoint answers.
    pub state: TriggerState,
    /// The first authenticated delivery.
    pub sample: Option<DeliveryId>,
    /// Whether an admin has read the sample, so that deliveries become runs.
    pub confirmed: bool,
    /// When.
    #[serde(with = "rfc3339::option")]
    pub confirmed_at: Option<Micros>,
    /// Until when the old secret is good too.
    #[serde(with = "rfc3339::option")]
    pub old_secret_until: Option<Micros>,
    /// When the secret last brought a delivery that was recorded.
    #[serde(with = "rfc3339::option")]
    pub secret_used_at: Option<Micros>,
    /// When the old one last did.
    #[serde(with = "rfc3339::option")]
    pub old_secret_used_at: Option<Micros>,
    /// How many deliveries ever had each status; of `queued`, see [`TriggerRow::waiting`].
    pub counts: BTreeMap<DeliveryStatus, u64>,
    /// Deliveries that wait for their turn now.
    pub waiting: BTreeSet<DeliveryId>,
    /// When the last delivery came.
    #[serde(with = "rfc3339::option")]
    pub last_received_at: Option<Micros>,
    /// The live run of its own instruction.
    pub live_run: Option<RunId>,
    /// When it was created.
    #[serde(with = "rfc3339")]
    pub created_at: Micros,
    /// The version of its stream.
    pub version: u64,
}

impl Projection for Triggers {
    type Row = TriggerRow;

    const TABLE: Table = Table {
        name: "triggers",
        version: 3,
        columns: &[
            ("name", Kind::Text),
            ("state", Kind::Text),
            ("endpoint", Kind::Text),
            ("routine", Kind::Text),
            ("bot", Kind::Text),
        ],
        indexes: &[&["name"], &["state", "name"], &["endpoint"], &["routine"], &["bot"]],
    };

    fn keys(event: &AnyEvent, recorded: &Recorded) -> Vec<String> {
        match event {
            AnyEvent::Trigger(..) => stream_key(recorded),
            AnyEvent::Delivery(event, _) => of_delivery(event).map(|id| id.to_string()).into_iter().collect(),
            AnyEvent::Bot(_)
            | AnyEvent::Boundary(..)
            | AnyEvent::Engine(..)
            | AnyEvent::Repeat(..)
            | AnyEvent::Routine(..)
            | AnyEvent::Run(..)
            | AnyEvent::User(..) => Vec::new(),
        }
    }

    fn apply(rows: &mut Rows<TriggerRow>, event: &AnyEvent, recorded: &Recorded) {
        match event {
            AnyEvent::Trigger(event, _) => {
                let Some(key) = stream_key(recorded).pop() else { return };
                if let Some(row) = created(event, recorded) {
                    rows.put(&key, row);
                }
                rows.change(&key, |row| {
                    row.evolve(event, recorded.recorded_at);
                    row.version = recorded.version;
                });
            }
            AnyEvent::Delivery(event, _) => {
                let Some(delivery) = of_stream(recorded) else { return };
                let Some(key) = of_delivery(event).map(|id| id.to_string()) else { return };
                rows.change(&key, |row| row.delivered(delivery, event, recorded.recorded_at));
            }
            AnyEvent::Bot(_)
            | AnyEvent::Boundary(..)
            | AnyEvent::Engine(..)
            | AnyEvent::Repeat(..)
            | AnyEvent::Routine(..)
            | AnyEvent::Run(..)
            | AnyEvent::User(..) => {}
        }
    }

    fn cells(row: &TriggerRow) -> Vec<Cell> {
        vec![
            Cell::text(&row.name),
            Cell::Text(word(row.state)),
            Cell::text(&row.endpoint),
            Cell::shown(row.routine),
            Cell::shown(row.bot),
        ]
    }
}

fn of_delivery(event: &DeliveryEvent) -> Option<TriggerId> {
    match event {
        DeliveryEvent::Received(received) => Some(received.trigger),
        DeliveryEvent::Queued { trigger }
        | DeliveryEvent::Started { trigger, .. }
        | DeliveryEvent::Redelivered { trigger, .. }
        | DeliveryEvent::Dropped { trigger, .. } => Some(*trigger),
        DeliveryEvent::RedeliveryStarted(_)
        | DeliveryEvent::RedeliveryProgressed { .. }
        | DeliveryEvent::RedeliveryFinished { .. }
        | DeliveryEvent::RedeliveryCancelled {} => None,
    }
}

fn created(event: &TriggerEvent, recorded: &Recorded) -> Option<TriggerRow> {
    let TriggerEvent::Created {
        trigger,
        name,
        owner,
        endpoint,
        routine,
        bot,
        secret: _,
        intake,
        limits,
        scheme,
        sealed: _,
    } = event
    else {
        return None;
    };
    Some(TriggerRow {
        id: *trigger,
        name: name.clone(),
        owner: *owner,
        endpoint: endpoint.clone(),
        routine: *routine,
        bot: *bot,
        scheme: scheme.clone(),
        intake: intake.clone(),
        limits: limits.clone(),
        state: TriggerState::Active,
        sample: None,
        confirmed: false,
        confirmed_at: None,
        old_secret_until: None,
        secret_used_at: None,
        old_secret_used_at: None,
        counts: BTreeMap::new(),
        waiting: BTreeSet::new(),
        last_received_at: None,
        live_run: None,
        created_at: recorded.recorded_at,
        version: recorded.version,
    })
}

impl TriggerRow {
    fn evolve(&mut self, event: &TriggerEvent, at: Micros) {
        match event {
            TriggerEvent::SecretRotated { old_until_us, .. } => {
                self.old_secret_until = Some(*old_until_us);
                self.old_secret_used_at = self.secret_used_at.take();
            }
            TriggerEvent::IntakeReplaced { intake } => self.intake = intake.clone(),
            TriggerEvent::SenderReplaced { scheme, .. } => {
                self.scheme.clone_from(scheme);
                (self.old_secret_until, self.old_secret_used_at, self.secret_used_at) = (None, None, None);
            }
            TriggerEvent::SampleCaptured { delivery } => self.sample = Some(*delivery),
            TriggerEvent::Confirmed { .. } => {
                self.confirmed = true;
                self.confirmed_at = Some(at);
            }
            TriggerEvent::Paused {} => self.state = TriggerState::Paused,
            TriggerEvent::Resumed {} => self.state = TriggerState::Active,
            TriggerEvent::Deleted {} => self.state = TriggerState::Deleted,
            TriggerEvent::RunClaimed(claim) => self.live_run = Some(claim.run),
            TriggerEvent::RunSettled(settled) => self.live_run = self.live_run.filter(|run| *run != settled.run),
            // What becomes of a delivery is counted from its own stream, which knows it for every kind of target.
            TriggerEvent::Created { .. }
            | TriggerEvent::DeliveryQueued(_)
            | TriggerEvent::DeliveryTaken { .. }
            | TriggerEvent::DeliveryDropped { .. } => {}
        }
    }

    fn delivered(&mut self, delivery: DeliveryId, event: &DeliveryEvent, at: Micros) {
        let status = match event {
            DeliveryEvent::Received(received) => {
                self.last_received_at = Some(at);
                let used = if received.old_secret { &mut self.old_secret_used_at } else { &mut self.secret_used_at };
                *used = Some(at);
                received.status.into()
            }
            DeliveryEvent::Redelivered { .. } => DeliveryStatus::Redelivered,
            DeliveryEvent::RedeliveryStarted(_)
            | DeliveryEvent::RedeliveryProgressed { .. }
            | DeliveryEvent::RedeliveryFinished { .. }
            | DeliveryEvent::RedeliveryCancelled {} => return,
            DeliveryEvent::Queued { .. } => {
                self.waiting.insert(delivery);
                DeliveryStatus::Queued
            }
            DeliveryEvent::Started { .. } => {
                self.waiting.remove(&delivery);
                DeliveryStatus::Started
            }
            DeliveryEvent::Dropped { reason, .. } => {
                self.waiting.remove(&delivery);
                (*reason).into()
            }
        };
        let count = self.counts.entry(status).or_default();
        *count = count.saturating_add(1);
    }
}
