//! An event of any family, for readers that look at all of them.

use crate::{
    bot::BotEvent,
    boundary::{BoundaryContent, BoundaryEvent},
    codec::{CodecError, Family},
    delivery::{DeliveryContent, DeliveryEvent},
    engine::{EngineContent, EngineEvent},
    envelope::Recorded,
    repeat::{RepeatContent, RepeatEvent},
    routine::{RoutineContent, RoutineEvent},
    run::{RunContent, RunEvent},
    trigger::{TriggerContent, TriggerEvent},
    user::{UserContent, UserEvent},
};

/// Facts of one of the families, with the content where there is some and it was not erased.
#[derive(Clone, Debug, PartialEq)]
pub enum AnyEvent {
    /// Of a Bot.
    Bot(BotEvent),
    /// Of the boundary.
    Boundary(BoundaryEvent, Option<BoundaryContent>),
    /// Of a delivery.
    Delivery(DeliveryEvent, Option<DeliveryContent>),
    /// Of the deployment.
    Engine(EngineEvent, Option<EngineContent>),
    /// Of a repeated call.
    Repeat(RepeatEvent, Option<RepeatContent>),
    /// Of a routine.
    Routine(RoutineEvent, Option<RoutineContent>),
    /// Of a run.
    Run(RunEvent, Option<RunContent>),
    /// Of a trigger.
    Trigger(TriggerEvent, Option<TriggerContent>),
    /// Of a person or token.
    User(UserEvent, Option<UserContent>),
}

impl AnyEvent {
    /// The event that stands at one place of the ledger.
    ///
    /// # Errors
    /// [`CodecError::Unknown`] for a wire name of a newer version, [`CodecError::Decode`] for damaged bytes.
    pub fn decode(event: &Recorded) -> Result<Self, CodecError> {
        Ok(match event.family() {
            BotEvent::NAME => Self::Bot(event.facts()?),
            BoundaryEvent::NAME => Self::Boundary(event.facts()?, event.content::<BoundaryEvent>()?),
            DeliveryEvent::NAME => Self::Delivery(event.facts()?, event.content::<DeliveryEvent>()?),
            EngineEvent::NAME => Self::Engine(event.facts()?, event.content::<EngineEvent>()?),
            RepeatEvent::NAME => Self::Repeat(event.facts()?, event.content::<RepeatEvent>()?),
            RoutineEvent::NAME => Self::Routine(event.facts()?, event.content::<RoutineEvent>()?),
            RunEvent::NAME => Self::Run(event.facts()?, event.content::<RunEvent>()?),
            TriggerEvent::NAME => Self::Trigger(event.facts()?, event.content::<TriggerEvent>()?),
            UserEvent::NAME => Self::User(event.facts()?, event.content::<UserEvent>()?),
            _ => return Err(CodecError::Unknown { wire: event.wire() }),
        })
    }
}
