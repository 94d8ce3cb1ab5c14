//! Deliveries: streams `delivery-{id}`. One authenticated POST and what became of it.

use serde::{Deserialize, Serialize};

use crate::{
    codec::Family,
    id::{DeliveryId, RoutineId, RunId, TriggerId},
    key::{Bytes, Digest},
    routine::DropReason,
    run::BlobRef,
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
}

/// What can be erased of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum DeliveryContent {
    /// Beside [`DeliveryEvent::Received`].
    #[serde(rename = "delivery.received/1")]
    Received {
        /// Header names and values in the order they came, secrets redacted.
        headers: Vec<(String, String)>,
        /// The body exactly as it came, where it is short enough.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        body: Option<Bytes>,
        /// Where a longer one is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        blob: Option<BlobRef>,
        /// The sender's own id for it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sender_id: Option<String>,
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
}
