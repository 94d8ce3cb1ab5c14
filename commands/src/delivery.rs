//! Deliveries: what an authenticated POST is, and what became of it.

use midwatch_events::{
    Micros, New,
    delivery::{DeliveryContent, DeliveryEvent, HeldCause, Received, ReceivedStatus},
    id::{RedeliveryId, RunId, TriggerId},
    routine::DropReason,
    trigger::WhenBusy,
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
    /// It is let run once more.
    Redelivered,
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
            Self::Received(ReceivedStatus::Refused) => "refused",
            Self::Redelivered => "redelivered",
            Self::Queued => "queued",
            Self::Started(_) => "started",
            Self::Dropped(DropReason::Expired) => "expired",
            Self::Dropped(DropReason::Coalesced) => "coalesced",
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
    /// How often it was let run once more.
    pub redeliveries: u32,
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
    /// It is not held any longer, if its time is over.
    Expire {
        /// The store's time.
        now: Micros,
    },
    /// Let it run once more.
    Redeliver {
        /// The redelivery of many that it belongs to.
        batch: Option<RedeliveryId>,
    },
}

/// What happens with a delivery that a trigger takes in: the first is the sample and starts nothing, later ones before
/// the confirmation start nothing either; then the trigger's filter has its say, and one for a target that is switched
/// off, or whose filter cannot be evaluated, is held. A busy target refuses where its trigger says so.
#[must_use]
pub fn status(trigger: &Trigger, passing: Passing, target: Standing) -> (ReceivedStatus, Option<HeldCause>) {
    match (trigger.sample, trigger.confirmed, passing, target) {
        (None, ..) => (ReceivedStatus::Captured, None),
        (Some(_), false, ..) => (ReceivedStatus::AwaitingConfirmation, None),
        (Some(_), true, Passing::Filtered, _) => (ReceivedStatus::Filtered, None),
        (Some(_), true, Passing::Broken, _) => (ReceivedStatus::Held, Some(HeldCause::FilterBroken)),
        (Some(_), true, Passing::Passes, Standing::Off) => (ReceivedStatus::Held, Some(HeldCause::TargetOff)),
        (Some(_), true, Passing::Passes, Standing::Busy) if trigger.intake.when_busy == WhenBusy::Refuse => {
            (ReceivedStatus::Refused, None)
        }
        (Some(_), true, Passing::Passes, Standing::Free | Standing::Busy) => (ReceivedStatus::Accepted, None),
    }
}

/// How a trigger's target stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It would take the delivery at once.
    Free,
    /// Something is live on it or waits for it.
    Busy,
    /// It is switched off.
    Off,
}

impl Delivery {
    fn expire(&self, now: Micros) -> Vec<New<DeliveryEvent>> {
        let held = self.received.as_ref().filter(|_| self.fate == Fate::Received(ReceivedStatus::Held));
        let over = held.filter(|received| received.held_until_us.is_some_and(|until| now >= until));
        let dropped =
            |received: &Received| DeliveryEvent::Dropped { trigger: received.trigger, reason: DropReason::Expired };
        over.map(|received| dropped(received).into()).into_iter().collect()
    }

    /// Anything may run once more but what has yet to run.
    fn redeliver(&self, batch: Option<RedeliveryId>) -> Result<DeliveryEvent, Refusal> {
        let received = self.received.as_ref().ok_or(Refusal::NotFound("delivery"))?;
        match self.fate {
            Fate::Received(ReceivedStatus::Accepted) | Fate::Queued | Fate::Redelivered => {
                Err(Refusal::AlreadySo("this delivery waits for its turn already"))
            }
            Fate::Absent | Fate::Received(_) | Fate::Started(_) | Fate::Dropped(_) => Ok(DeliveryEvent::Redelivered {
                trigger: received.trigger,
                redelivery: self.redeliveries.saturating_add(1),
                batch,
            }),
        }
    }
}

/// What a delivery meets on its way in, beside its trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passing {
    /// The trigger wants this kind.
    Passes,
    /// It does not.
    Filtered,
    /// Its filter cannot be evaluated on it.
    Broken,
}

impl Decider for Delivery {
    type Event = DeliveryEvent;
    type Command = DeliveryCommand;

    const FOLD_VERSION: u32 = 2;

    fn decide(&self, command: DeliveryCommand) -> Result<Vec<New<DeliveryEvent>>, Refusal> {
        Ok(match command {
            DeliveryCommand::Receive(received, content) => {
                if self.received.is_some() {
                    return Err(Refusal::Exists("delivery"));
                }
                vec![New::with(DeliveryEvent::Received(*received), content)]
            }
            DeliveryCommand::MarkQueued(trigger) => {
                let accepted = matches!(self.fate, Fate::Received(ReceivedStatus::Accepted) | Fate::Redelivered);
                if accepted { vec![DeliveryEvent::Queued { trigger }.into()] } else { vec![] }
            }
            DeliveryCommand::MarkStarted(trigger, run) => match self.fate {
                Fate::Received(_) | Fate::Queued | Fate::Redelivered => {
                    vec![DeliveryEvent::Started { trigger, run }.into()]
                }
                Fate::Absent | Fate::Started(_) | Fate::Dropped(_) => vec![],
            },
            DeliveryCommand::MarkDropped(trigger, reason) => match self.fate {
                Fate::Received(_) | Fate::Queued | Fate::Redelivered => {
                    vec![DeliveryEvent::Dropped { trigger, reason }.into()]
                }
                Fate::Absent | Fate::Started(_) | Fate::Dropped(_) => vec![],
            },
            DeliveryCommand::Expire { now } => self.expire(now),
            DeliveryCommand::Redeliver { batch } => vec![self.redeliver(batch)?.into()],
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
            DeliveryEvent::Redelivered { redelivery, .. } => {
                self.fate = Fate::Redelivered;
                self.redeliveries = *redelivery;
            }
            // They are in streams of their own.
            DeliveryEvent::RedeliveryStarted(_)
            | DeliveryEvent::RedeliveryProgressed { .. }
            | DeliveryEvent::RedeliveryFinished { .. }
            | DeliveryEvent::RedeliveryCancelled {} => {}
        }
    }
}

mod redelivery;
#[cfg(test)]
mod tests;

pub use redelivery::{Redelivery, RedeliveryCommand};
