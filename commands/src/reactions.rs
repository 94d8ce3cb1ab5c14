//! What follows from what: every consequence that crosses a stream, in one match.
//!
//! A reaction does no I/O and names its command's target by id. The reactor appends it under the key
//! `react/<event>/<reaction>`, so that reacting twice is reacting once.

use midwatch_events::{
    AnyEvent, Recorded,
    bot::BotEvent,
    delivery::{DeliveryEvent, Received, ReceivedStatus},
    id::{BotId, DeliveryId, RoutineId, RunId, TriggerId, UserId},
    routine::{DeliveryQueued, DropReason, RoutineEvent},
    trigger::TriggerEvent,
    user::UserEvent,
};

/// What a delivery, or the next run, belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TargetId {
    /// A routine.
    Routine(RoutineId),
    /// A trigger with its own instruction.
    Trigger(TriggerId),
}

/// Whose end is the end of a routine's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WorksFor {
    /// The Bot that does it.
    Bot(BotId),
    /// The person it belongs to.
    Owner(UserId),
}

/// One consequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reaction {
    /// An accepted delivery joins its target's queue. How long it may wait and how many may is the trigger's to say.
    Queue {
        /// The delivery.
        delivery: DeliveryId,
        /// Its trigger.
        trigger: TriggerId,
        /// Where it waits.
        target: TargetId,
    },
    /// A target may be free for the next window or delivery that waits.
    ClaimNext(TargetId),
    /// Routines that cannot go on are switched off.
    Suspend(WorksFor),
    /// A delivery waits.
    MarkQueued(DeliveryQueued),
    /// A delivery became a run.
    MarkStarted {
        /// The delivery.
        delivery: DeliveryId,
        /// Its run.
        run: RunId,
    },
    /// A delivery will not run.
    MarkDropped {
        /// The delivery.
        delivery: DeliveryId,
        /// Why.
        reason: DropReason,
    },
}

impl Reaction {
    /// The names of all of them.
    pub const NAMES: [&str; 6] = Self::FIRST;
    /// Those that every ledger has had from its first event. A later one is recorded where it starts.
    pub const FIRST: [&str; 6] = ["queue", "claim_next", "suspend", "mark_queued", "mark_started", "mark_dropped"];

    /// Its name in the key `react/<event>/<reaction>`. Stored; never change one.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Queue { .. } => "queue",
            Self::ClaimNext(_) => "claim_next",
            Self::Suspend(_) => "suspend",
            Self::MarkQueued(_) => "mark_queued",
            Self::MarkStarted { .. } => "mark_started",
            Self::MarkDropped { .. } => "mark_dropped",
        }
    }
}

/// All that follows from `event`.
#[must_use]
pub fn reactions(event: &AnyEvent, recorded: &Recorded) -> Vec<Reaction> {
    match event {
        AnyEvent::Delivery(event, _) => of_delivery(event),
        AnyEvent::Routine(event, _) => of_routine(event, recorded.stream.uuid().map(RoutineId::new)),
        AnyEvent::Trigger(event, _) => of_trigger(event, recorded.stream.uuid().map(TriggerId::new)),
        AnyEvent::Bot(event) => of_bot(event, recorded.stream.uuid().map(BotId::new)),
        AnyEvent::User(event, _) => of_user(event),
        AnyEvent::Boundary(..) | AnyEvent::Engine(..) | AnyEvent::Repeat(..) | AnyEvent::Run(..) => vec![],
    }
}

fn of_bot(event: &BotEvent, stream: Option<BotId>) -> Vec<Reaction> {
    match event {
        BotEvent::Retired {} => stream.map(|bot| Reaction::Suspend(WorksFor::Bot(bot))).into_iter().collect(),
        BotEvent::Registered { .. }
        | BotEvent::ToolsGranted { .. }
        | BotEvent::ToolsWithdrawn { .. }
        | BotEvent::Unreachable {}
        | BotEvent::Reachable {} => vec![],
    }
}

fn of_user(event: &UserEvent) -> Vec<Reaction> {
    match event {
        UserEvent::Revoked { user } => vec![Reaction::Suspend(WorksFor::Owner(*user))],
        UserEvent::Invited { .. }
        | UserEvent::LinkIssued { .. }
        | UserEvent::SignedIn { .. }
        | UserEvent::SignedOut { .. }
        | UserEvent::TokenIssued { .. }
        | UserEvent::BotTokenIssued { .. }
        | UserEvent::TokenRevoked { .. }
        | UserEvent::EvidenceGranted {}
        | UserEvent::EvidenceWithdrawn {}
        | UserEvent::EvidenceRead { .. } => vec![],
    }
}

fn of_delivery(event: &DeliveryEvent) -> Vec<Reaction> {
    match event {
        DeliveryEvent::Received(Received {
            delivery,
            trigger,
            routine,
            status: ReceivedStatus::Accepted,
            queued: false,
            ..
        }) => {
            let target = routine.map_or(TargetId::Trigger(*trigger), TargetId::Routine);
            vec![Reaction::Queue { delivery: *delivery, trigger: *trigger, target }]
        }
        DeliveryEvent::Received(_)
        | DeliveryEvent::Queued { .. }
        | DeliveryEvent::Started { .. }
        | DeliveryEvent::Dropped { .. }
        // Its own append put it into the queue.
        | DeliveryEvent::Redelivered { .. }
        | DeliveryEvent::RedeliveryStarted(_)
        | DeliveryEvent::RedeliveryProgressed { .. }
        | DeliveryEvent::RedeliveryFinished { .. }
        | DeliveryEvent::RedeliveryCancelled {} => vec![],
    }
}

/// A routine's and a trigger's streams say the same of queues; the clock looks at both again when a reaction is lost
/// to a conflict or a halt.
fn of_routine(event: &RoutineEvent, stream: Option<RoutineId>) -> Vec<Reaction> {
    let claim_next = || stream.map(|id| Reaction::ClaimNext(TargetId::Routine(id)));
    match event {
        RoutineEvent::DeliveryQueued(queued) => {
            std::iter::once(Reaction::MarkQueued(queued.clone())).chain(claim_next()).collect()
        }
        RoutineEvent::RunSettled(_) | RoutineEvent::Resumed { .. } => claim_next().into_iter().collect(),
        RoutineEvent::DeliveryTaken { delivery, run } => {
            vec![Reaction::MarkStarted { delivery: *delivery, run: *run }]
        }
        RoutineEvent::DeliveryDropped { delivery, reason } => {
            vec![Reaction::MarkDropped { delivery: *delivery, reason: *reason }]
        }
        RoutineEvent::Created { .. }
        | RoutineEvent::Renamed { .. }
        | RoutineEvent::Rescheduled { .. }
        | RoutineEvent::WorkReplaced { .. }
        | RoutineEvent::LimitsReplaced { .. }
        | RoutineEvent::Paused {}
        | RoutineEvent::Suspended { .. }
        | RoutineEvent::Deleted {}
        | RoutineEvent::Rearmed { .. }
        | RoutineEvent::RunClaimed(_)
        | RoutineEvent::WindowsMissed { .. }
        | RoutineEvent::WindowSkipped { .. }
        | RoutineEvent::WindowQueued { .. }
        | RoutineEvent::WindowHeld { .. } => vec![],
    }
}

fn of_trigger(event: &TriggerEvent, stream: Option<TriggerId>) -> Vec<Reaction> {
    let claim_next = || stream.map(|id| Reaction::ClaimNext(TargetId::Trigger(id)));
    match event {
        TriggerEvent::DeliveryQueued(queued) => {
            std::iter::once(Reaction::MarkQueued(queued.clone())).chain(claim_next()).collect()
        }
        TriggerEvent::RunSettled(_) | TriggerEvent::Resumed { .. } => claim_next().into_iter().collect(),
        TriggerEvent::DeliveryTaken { delivery, run } => {
            vec![Reaction::MarkStarted { delivery: *delivery, run: *run }]
        }
        TriggerEvent::DeliveryDropped { delivery, reason } => {
            vec![Reaction::MarkDropped { delivery: *delivery, reason: *reason }]
        }
        TriggerEvent::Created { .. }
        | TriggerEvent::SecretRotated { .. }
        | TriggerEvent::IntakeReplaced { .. }
        | TriggerEvent::SenderReplaced { .. }
        | TriggerEvent::SampleCaptured { .. }
        | TriggerEvent::Confirmed { .. }
        | TriggerEvent::Paused {}
        | TriggerEvent::Deleted {}
        | TriggerEvent::RunClaimed(_) => vec![],
    }
}

#[cfg(test)]
mod tests;
