//! Many deliveries let run once more: what was asked, how far it is, and that it ended.

use midwatch_events::{
    Micros, New,
    delivery::{DeliveryEvent, RedeliveryStarted},
};

use serde::{Deserialize, Serialize};

use crate::{Decider, Refusal};

/// A redelivery of many, as the stream `redelivery-{id}` tells it. Whoever goes on with it, in whatever process, goes on
/// from here.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Redelivery {
    /// What was asked.
    pub started: Option<RedeliveryStarted>,
    /// The position of the last delivery that was looked at.
    pub reached: u64,
    /// How many were let run.
    pub redelivered: u64,
    /// How many were left out.
    pub left_out: u64,
    /// It is over.
    pub ended: bool,
}

/// What can be asked of a redelivery.
#[derive(Clone, Debug)]
pub enum RedeliveryCommand {
    /// Begin.
    Start(Box<RedeliveryStarted>),
    /// It came this far.
    Progress {
        /// The position of the last delivery looked at.
        reached: u64,
        /// Let run, of those looked at since.
        redelivered: u64,
        /// Left out, of those looked at since.
        left_out: u64,
    },
    /// There is nothing left.
    Finish,
    /// Stop.
    Cancel,
}

impl Redelivery {
    /// Whether there is still something to do.
    #[must_use]
    pub fn open(&self) -> bool {
        self.started.is_some() && !self.ended
    }
}

impl Decider for Redelivery {
    type Event = DeliveryEvent;
    type Command = RedeliveryCommand;

    const FOLD_VERSION: u32 = 1;

    fn decide(&self, command: RedeliveryCommand) -> Result<Vec<New<DeliveryEvent>>, Refusal> {
        let event = match command {
            RedeliveryCommand::Start(_) if self.started.is_some() => return Err(Refusal::Exists("redelivery")),
            RedeliveryCommand::Start(started) => DeliveryEvent::RedeliveryStarted(*started),
            RedeliveryCommand::Cancel if self.started.is_none() => return Err(Refusal::NotFound("redelivery")),
            RedeliveryCommand::Cancel if self.ended => return Err(Refusal::AlreadySo("this redelivery is over")),
            RedeliveryCommand::Cancel => DeliveryEvent::RedeliveryCancelled {},
            // Somebody cancelled it meanwhile, or another process was further already.
            RedeliveryCommand::Progress { .. } | RedeliveryCommand::Finish if !self.open() => return Ok(vec![]),
            RedeliveryCommand::Progress { reached, .. } if reached <= self.reached => return Ok(vec![]),
            RedeliveryCommand::Progress { reached, redelivered, left_out } => DeliveryEvent::RedeliveryProgressed {
                reached,
                redelivered: self.redelivered.saturating_add(redelivered),
                left_out: self.left_out.saturating_add(left_out),
            },
            RedeliveryCommand::Finish => {
                DeliveryEvent::RedeliveryFinished { redelivered: self.redelivered, left_out: self.left_out }
            }
        };
        Ok(vec![event.into()])
    }

    fn evolve(&mut self, event: &DeliveryEvent, _at: Micros) {
        match event {
            DeliveryEvent::RedeliveryStarted(started) => {
                self.started.get_or_insert_with(|| started.clone());
            }
            DeliveryEvent::RedeliveryProgressed { reached, redelivered, left_out } => {
                self.reached = *reached;
                self.redelivered = *redelivered;
                self.left_out = *left_out;
            }
            DeliveryEvent::RedeliveryFinished { .. } | DeliveryEvent::RedeliveryCancelled {} => self.ended = true,
            DeliveryEvent::Received(_)
            | DeliveryEvent::Queued { .. }
            | DeliveryEvent::Started { .. }
            | DeliveryEvent::Dropped { .. }
            | DeliveryEvent::Redelivered { .. } => {}
        }
    }
}
