//! Deliveries: what an authenticated POST is, and what became of it.

use midwatch_events::{
    Micros, New,
    delivery::{DeliveryContent, DeliveryEvent, Received, ReceivedStatus},
    id::{RunId, TriggerId},
    routine::DropReason,
};
use serde::{Deserialize, Serialize};

use crate::{Decider, Refusal, trigger::Trigger};

/// What became of a delivery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub enum Fate {
    /// It was never received.
    #[default]
    Absent,
    /// It was received, with this status.
    Received(ReceivedStatus),
    /// It waits.
    Queued,
    /// It became a run.
    Started(RunId),
    /// It will not run.
    Dropped(DropReason),
}

impl Fate {
    /// Its name in lists and answers.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Received(ReceivedStatus::Accepted) => "accepted",
            Self::Received(ReceivedStatus::Captured) => "captured",
            Self::Received(ReceivedStatus::AwaitingConfirmation) => "awaiting_confirmation",
            Self::Received(ReceivedStatus::Filtered) => "filtered",
            Self::Received(ReceivedStatus::Held) => "held",
            Self::Queued => "queued",
            Self::Started(_) => "started",
            Self::Dropped(DropReason::Expired) => "expired",
            Self::Dropped(DropReason::QueueFull | DropReason::TargetGone) => "refused",
        }
    }
}

/// A delivery as its stream tells it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Delivery {
    /// What was received.
    pub received: Option<Received>,
    /// What became of it.
    pub fate: Fate,
}

/// What can be asked of a delivery.
#[derive(Clone, Debug)]
pub enum DeliveryCommand {
    /// Record it.
    Receive(Box<Received>, DeliveryContent),
    /// It waits.
    MarkQueued(TriggerId),
    /// It became a run.
    MarkStarted(TriggerId, RunId),
    /// It will not run.
    MarkDropped(TriggerId, DropReason),
}

/// What happens with a delivery that a trigger takes in: the first is the sample and starts nothing, later ones before
/// the confirmation start nothing either, and one for a routine that is switched off is held.
#[must_use]
pub fn status(trigger: &Trigger, target_may_start: bool) -> ReceivedStatus {
    match (trigger.sample, trigger.confirmed, target_may_start) {
        (None, ..) => ReceivedStatus::Captured,
        (Some(_), false, _) => ReceivedStatus::AwaitingConfirmation,
        (Some(_), true, true) => ReceivedStatus::Accepted,
        (Some(_), true, false) => ReceivedStatus::Held,
    }
}

impl Decider for Delivery {
    type Event = DeliveryEvent;
    type Command = DeliveryCommand;

    const FOLD_VERSION: u32 = 1;

    fn decide(&self, command: DeliveryCommand) -> Result<Vec<New<DeliveryEvent>>, Refusal> {
        Ok(match command {
            DeliveryCommand::Receive(received, content) => {
                if self.received.is_some() {
                    return Err(Refusal::Exists("delivery"));
                }
                vec![New::with(DeliveryEvent::Received(*received), content)]
            }
            DeliveryCommand::MarkQueued(trigger) => {
                let accepted = self.fate == Fate::Received(ReceivedStatus::Accepted);
                if accepted { vec![DeliveryEvent::Queued { trigger }.into()] } else { vec![] }
            }
            DeliveryCommand::MarkStarted(trigger, run) => match self.fate {
                Fate::Received(_) | Fate::Queued => vec![DeliveryEvent::Started { trigger, run }.into()],
                Fate::Absent | Fate::Started(_) | Fate::Dropped(_) => vec![],
            },
            DeliveryCommand::MarkDropped(trigger, reason) => match self.fate {
                Fate::Received(_) | Fate::Queued => vec![DeliveryEvent::Dropped { trigger, reason }.into()],
                Fate::Absent | Fate::Started(_) | Fate::Dropped(_) => vec![],
            },
        })
    }

    fn evolve(&mut self, event: &DeliveryEvent, _at: Micros) {
        match event {
            DeliveryEvent::Received(received) => {
                self.fate = Fate::Received(received.status);
                self.received = Some(received.clone());
            }
            DeliveryEvent::Queued { .. } => self.fate = Fate::Queued,
            DeliveryEvent::Started { run, .. } => self.fate = Fate::Started(*run),
            DeliveryEvent::Dropped { reason, .. } => self.fate = Fate::Dropped(*reason),
        }
    }
}

#[cfg(test)]
mod tests;
