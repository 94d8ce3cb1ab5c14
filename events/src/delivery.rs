//! Deliveries: streams `delivery-{id}`, one authenticated POST and what became of it; and `redelivery-{id}`, many of them
//! let run once more.

use serde::{Deserialize, Serialize};

use crate::{
    codec::Family,
    id::{DeliveryId, RedeliveryId, RoutineId, RunId, TriggerId},
    key::{Bytes, Digest},
    routine::DropReason,
    run::BlobRef,
    time::Micros,
};

/// What can happen to a delivery.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum DeliveryEvent {
    /// It was authentic and is in the log; whoever sent it was told so after this.
    #[serde(rename = "delivery.received/1")]
    Received(Received),
    /// It waits for its turn.
    #[serde(rename = "delivery.queued/1")]
    Queued {
        /// The trigger.
        trigger: TriggerId,
    },
    /// It became a run.
    #[serde(rename = "delivery.started/1")]
    Started {
        /// The trigger.
        trigger: TriggerId,
        /// Its run.
        run: RunId,
    },
    /// It will not run.
    #[serde(rename = "delivery.dropped/1")]
    Dropped {
        /// The trigger.
        trigger: TriggerId,
        /// Why.
        reason: DropReason,
    },
    /// Somebody lets it run once more. The same append put it into its target's queue.
    #[serde(rename = "delivery.redelivered/1")]
    Redelivered {
        /// The trigger.
        trigger: TriggerId,
        /// The how-manieth time, from 1.
        redelivery: u32,
        /// The redelivery of many that it belongs to.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        batch: Option<RedeliveryId>,
    },
    /// Somebody lets many deliveries run once more. Stream `redelivery-{id}`, like the three that follow.
    #[serde(rename = "delivery.redelivery_started/1")]
    RedeliveryStarted(RedeliveryStarted),
    /// It has come this far.
    #[serde(rename = "delivery.redelivery_progressed/1")]
    RedeliveryProgressed {
        /// The position of the last delivery it looked at.
        reached: u64,
        /// How many it has let run so far.
        redelivered: u64,
        /// How many it left out so far, because they wait already or cannot run.
        left_out: u64,
    },
    /// It has come to its end.
    #[serde(rename = "delivery.redelivery_finished/1")]
    RedeliveryFinished {
        /// How many it let run.
        redelivered: u64,
        /// How many it left out.
        left_out: u64,
    },
    /// Somebody stopped it. What it let run before runs.
    #[serde(rename = "delivery.redelivery_cancelled/1")]
    RedeliveryCancelled {},
}

/// Many deliveries to let run once more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RedeliveryStarted {
    /// The redelivery.
    pub redelivery: RedeliveryId,
    /// Only deliveries of this trigger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger: Option<TriggerId>,
    /// Only those with this status when they are looked at, such as `held`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// Only those about this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_type: Option<String>,
    /// Only those received at or after this instant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_us: Option<Micros>,
    /// Only those received before this instant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_us: Option<Micros>,
    /// Only those that stand at or below this position: what came later was not counted when it was confirmed.
    pub through: u64,
    /// How many there were when it was confirmed.
    pub count: u64,
}

/// What can be erased of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum DeliveryContent {
    /// Beside [`DeliveryEvent::Received`].
    #[serde(rename = "delivery.received/1")]
    Received {
        /// Header names and values in the order they came, secrets redacted.
        headers: Vec<(String, String)>,
        /// The query as it came, secrets redacted, where its sender signs it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        query: Option<String>,
        /// The body exactly as it came, where it is short enough.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        body: Option<Bytes>,
        /// Where a longer one is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        blob: Option<BlobRef>,
        /// The sender's own id for it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sender_id: Option<String>,
        /// Why the trigger's filter could not be evaluated on it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        filter_error: Option<String>,
    },
}

impl Family for DeliveryEvent {
    type Content = DeliveryContent;
    const NAME: &'static str = "delivery";
}

/// An authenticated POST.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Received {
    /// The delivery.
    pub delivery: DeliveryId,
    /// The trigger it was posted to.
    pub trigger: TriggerId,
    /// The routine the trigger hands work to, if it has none of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routine: Option<RoutineId>,
    /// What happens with it.
    pub status: ReceivedStatus,
    /// What the sender says it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_type: Option<String>,
    /// Length of the body in bytes.
    pub body_bytes: u64,
    /// HMAC of the body.
    pub body_digest: Digest,
    /// Whether the body could be read as JSON.
    pub parsed: bool,
    /// Why it could not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unparsed: Option<String>,
    /// The sender's id was used before for another body.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub id_conflict: bool,
    /// It came with the trigger's old secret, which was still good.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub old_secret: bool,
    /// Why it is held, where it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<HeldCause>,
    /// Until when it is held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_until_us: Option<Micros>,
    /// The same append put it into its target's queue.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub queued: bool,
}

/// What happens with a delivery, as the sender is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReceivedStatus {
    /// It becomes a run.
    Accepted,
    /// It is the trigger's sample.
    Captured,
    /// The sample has not been confirmed yet.
    AwaitingConfirmation,
    /// The trigger does not want this kind.
    Filtered,
    /// It waits for a person: the filter is broken or the routine paused.
    Held,
    /// Its target was busy, and its sender is to send it again. It was recorded without its keys: sent again, it is new.
    Refused,
}

/// Why a delivery is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeldCause {
    /// The trigger's filter could not be evaluated on it.
    FilterBroken,
    /// What it is for is switched off.
    TargetOff,
}
