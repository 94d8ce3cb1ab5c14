//! Triggers: streams `trigger-{id}`.

use serde::{Deserialize, Serialize};

use crate::{
    codec::Family,
    id::{BotId, DeliveryId, RoutineId, RunId, TriggerId, UserId},
    key::{Bytes, Digest},
    routine::{DeliveryQueued, DropReason, Limits, RunClaimed, RunSettled, Work},
    time::Micros,
};

/// What can happen to a trigger.
#[expect(
    clippy::large_enum_variant,
    reason = "an event is decoded, looked at and dropped; a box would be in every match"
)]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum TriggerEvent {
    /// A public endpoint waits for its first delivery.
    #[serde(rename = "trigger.created/1")]
    Created {
        /// The trigger.
        trigger: TriggerId,
        /// Its name.
        name: String,
        /// Whose rights its runs have.
        owner: UserId,
        /// The public part of its URL: 24 base64url characters.
        endpoint: String,
        /// The routine it hands work to; else `bot` is present.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        routine: Option<RoutineId>,
        /// The Bot that works by the trigger's own instruction.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bot: Option<BotId>,
        /// What its secret is recognised by: SHA-256 of a secret that is sent along, a keyed digest of one that signs.
        secret: Digest,
        /// How deliveries are taken in.
        intake: Intake,
        /// How runs of its own instruction run.
        limits: Limits,
        /// How its sender shows who it is; a bearer secret, if nothing is said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        scheme: Option<Scheme>,
        /// The key its sender signs with, sealed under the deployment's key.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sealed: Option<Bytes>,
    },
    /// It has another secret; the old one is good for a while.
    #[serde(rename = "trigger.secret_rotated/1")]
    SecretRotated {
        /// What the new secret is recognised by.
        secret: Digest,
        /// The old secret is not good at or after this instant.
        old_until_us: Micros,
        /// The new key its sender signs with, sealed under the deployment's key.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sealed: Option<Bytes>,
    },
    /// It takes deliveries in by other rules.
    #[serde(rename = "trigger.intake_replaced/1")]
    IntakeReplaced {
        /// The new rules, all of them.
        intake: Intake,
    },
    /// Another kind of sender posts to it, with another secret; the old one opens nothing any more.
    #[serde(rename = "trigger.sender_replaced/1")]
    SenderReplaced {
        /// How that sender shows who it is; none is a bearer secret.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        scheme: Option<Scheme>,
        /// What the secret is recognised by: SHA-256 of one that is sent along, a keyed digest of one that signs.
        secret: Digest,
        /// A key that signs, sealed under the deployment's key.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sealed: Option<Bytes>,
    },
    /// The first authenticated delivery is there for an admin to look at.
    #[serde(rename = "trigger.sample_captured/1")]
    SampleCaptured {
        /// The delivery.
        delivery: DeliveryId,
    },
    /// An admin has read the sample; deliveries become runs from here on.
    #[serde(rename = "trigger.confirmed/1")]
    Confirmed {
        /// The sample that was read.
        delivery: DeliveryId,
    },
    /// It answers as if it did not exist, until resumed.
    #[serde(rename = "trigger.paused/1")]
    Paused {},
    /// It takes deliveries again.
    #[serde(rename = "trigger.resumed/1")]
    Resumed {},
    /// It is gone for good. Its history stays.
    #[serde(rename = "trigger.deleted/1")]
    Deleted {},
    /// One process took a delivery for execution.
    #[serde(rename = "trigger.run_claimed/1")]
    RunClaimed(RunClaimed),
    /// Its live run ended; it is free.
    #[serde(rename = "trigger.run_settled/1")]
    RunSettled(RunSettled),
    /// An accepted delivery waits for its turn.
    #[serde(rename = "trigger.delivery_queued/1")]
    DeliveryQueued(DeliveryQueued),
    /// A waiting delivery became a run.
    #[serde(rename = "trigger.delivery_taken/1")]
    DeliveryTaken {
        /// The delivery.
        delivery: DeliveryId,
        /// Its run.
        run: RunId,
    },
    /// A delivery will not run.
    #[serde(rename = "trigger.delivery_dropped/1")]
    DeliveryDropped {
        /// The delivery.
        delivery: DeliveryId,
        /// Why.
        reason: DropReason,
    },
}

/// What can be erased of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum TriggerContent {
    /// Beside [`TriggerEvent::Created`], where it has an instruction of its own.
    #[serde(rename = "trigger.created/1")]
    Created(Work),
}

impl Family for TriggerEvent {
    type Content = TriggerContent;
    const NAME: &'static str = "trigger";
}

/// How a sender shows who it is: by a preset, or by a template that an admin wrote in a preset's form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scheme {
    /// The preset's name, such as `github`.
    pub preset: String,
    /// What the admin wrote, where the preset is `template`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
}

/// How deliveries are taken in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intake {
    /// The largest body, in bytes.
    pub body_bytes_max: u32,
    /// How long an equal body without an id is the same delivery, in seconds; 0 is off.
    pub duplicate_window_s: u32,
    /// How many deliveries may wait.
    pub queue_max: u32,
    /// How long one may wait, in seconds.
    pub queue_age_s: u32,
    /// JSON pointers into the body whose values together are the delivery's id, where the sender gives no good one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub id_pointers: Vec<String>,
    /// What happens to a delivery while its target is busy.
    #[serde(default, skip_serializing_if = "WhenBusy::is_queue")]
    pub when_busy: WhenBusy,
    /// The event types it takes, each whole or the beginning of one and `*`; none stands for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub event_types: Vec<String>,
    /// A condition in CEL over `headers`, `body` and `event_type`; what does not meet it is filtered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// How many authentic deliveries it takes in a minute, over all processes; any number, if it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_minute_max: Option<u32>,
    /// For how many days headers and bodies are kept; for ever, if it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_days: Option<u32>,
}

/// What happens to a delivery while its target is busy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhenBusy {
    /// It waits its turn.
    #[default]
    Queue,
    /// It waits, and what waited before it will not run.
    Coalesce,
    /// Its sender is told to send it again later.
    Refuse,
}

impl WhenBusy {
    fn is_queue(&self) -> bool {
        *self == Self::Queue
    }
}

impl Default for Intake {
    fn default() -> Self {
        Self {
            body_bytes_max: 1_000_000,
            duplicate_window_s: 600,
            queue_max: 100,
            queue_age_s: 86_400,
            id_pointers: Vec::new(),
            when_busy: WhenBusy::Queue,
            event_types: Vec::new(),
            filter: None,
            per_minute_max: None,
            kept_days: None,
        }
    }
}
