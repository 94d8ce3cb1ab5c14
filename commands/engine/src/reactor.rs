//! Lets follow what follows: reads events in position order and appends their consequences, each under the key
//! `react/<event>/<reaction>`, so that reacting twice is reacting once. Runs with the `clock` role, one process leads.
//!
//! The checkpoint moves after the appends are durable. Losing it costs time and nothing else.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures_util::future::BoxFuture;
use midwatch_commands::{
    Refusal,
    delivery::{Delivery, DeliveryCommand},
    engine::{Engine as Deployment, EngineCommand},
    mutant::{Mutant, active},
    reactions::{Reaction, TargetId, WorksFor, reactions},
    routine::{Routine, RoutineCommand},
    target::Queueing,
    trigger::{Trigger, TriggerCommand},
};
use midwatch_events::{
    Actor, AnyEvent, Micros, Recorded, StreamName,
    id::{BotId, DeliveryId, RoutineId, TriggerId},
    key::Key,
    routine::{DeliveryQueued, RoutineEvent, SuspendCause},
    trigger::WhenBusy,
};
use midwatch_log::{
    Filter, Pending,
    views::{Cell, Condition, Order, Test},
};
use midwatch_projections::{
    routines_list::{RoutineState, RoutinesList},
    triggers::Triggers,
};
use tokio::sync::watch;

use crate::{
    Engine, EngineError, Origin, Request, behind::gone_refusal, folds::load_many, handle::handle, projector,
    world::told,
};

const NAME: &str = "reactor";
const BATCH: u32 = 500;
const POLL: Duration = Duration::from_secs(1);
/// How long a process that could not go on lets others lead.
const STAND_BACK: Duration = Duration::from_secs(2);

/// Follows the head until told to stop.
pub fn run(engine: Engine, mut stop: watch::Receiver<bool>) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        let mut head = engine.log().follow();
        loop {
            let led = projector::lead(&engine, NAME).await;
            let moved = match led {
                Ok(true) => react(&engine).await,
                Ok(false) => Ok(false),
                Err(error) => Err(error),
            };
            if let Err(error) = &moved {
                tracing::warn!(%error, "what follows from events cannot be appended; leaving it to another, then trying again");
                projector::give_up(&engine, NAME).await;
            }
            tokio::select! {
                biased;
                () = told(&mut stop) => break,
                () = std::future::ready(()), if matches!(moved, Ok(true)) => {}
                () = engine.world().clock.sleep(STAND_BACK), if moved.is_err() => {}
                _ = head.changed(), if moved.is_ok() => {}
                () = engine.world().clock.sleep(POLL), if moved.is_ok() => {}
            }
        }
        projector::give_up(&engine, NAME).await;
    })
}

/// The position up to which reactions stand.
///
/// # Errors
/// A fault of the database.
pub fn checkpoint(engine: &Engine) -> Pending<'_, u64, EngineError> {
    Box::pin(async move { Ok(engine.views().named_checkpoint(NAME).await?) })
}

/// Reacts to one batch; whether there was one.
///
/// # Errors
/// A fault; the checkpoint then stands before the event that could not be followed up.
pub fn react(engine: &Engine) -> Pending<'_, bool, EngineError> {
    Box::pin(async move {
        if engine.went_back().is_some() {
            return Ok(false);
        }
        let from = engine.views().named_checkpoint(NAME).await?;
        let categories = ["bot", "delivery", "routine", "trigger", "user"].map(str::to_owned).to_vec();
        let filter = Filter { categories, ..Filter::default() };
        let (events, scanned) = engine.log().read_all(from, BATCH, &filter).await?;
        if active(Mutant::CheckpointMovesFirst) && scanned > from {
            engine.views().advance(NAME, from, scanned).await?;
        }
        let idle = idle(engine, &events).await;
        let started = started(engine, &Reaction::NAMES).await?;
        for recorded in &events {
            if let Err(error) = react_to(engine, recorded, &idle, started).await {
                let reached = recorded.position.saturating_sub(1);
                if reached > from {
                    engine.views().advance(NAME, from, reached).await?;
                }
                return Err(error);
            }
        }
        if scanned > from {
            engine.views().advance(NAME, from, scanned).await?;
        }
        Ok(scanned > from)
    })
}

/// The reactions of `names` that came with a later release, each with the last position it leaves alone: what happened
/// before it was known is not answered by it, on no new reading of the ledger either. The first process that knows it
/// records where it starts. Looked at once in the life of a process.
///
/// # Errors
/// A fault of the database.
pub async fn started<'e>(engine: &'e Engine, names: &[&str]) -> Result<&'e BTreeMap<String, u64>, EngineError> {
    let look = async {
        let stream = StreamName::engine();
        let known = engine.load::<Deployment>(&stream).await?.state.reactions;
        let is_new = |name: &&&str| !Reaction::FIRST.contains(*name) && !known.contains_key(**name);
        let names: Vec<String> = names.iter().filter(is_new).map(|name| (*name).to_owned()).collect();
        if names.is_empty() {
            return Ok(known);
        }
        let head = engine.log().head().await?;
        let start = |_: &Deployment| Ok(EngineCommand::StartReactions { names: names.clone(), head });
        handle::<Deployment>(engine, &stream, &Origin::of(Actor::Engine), None, start).await?;
        Ok(engine.load::<Deployment>(&stream).await?.state.reactions)
    };
    engine.reactions().get_or_try_init(|| look).await
}

/// Routines that became free in these events and for which nothing waits, read all at once. What comes to wait later is
/// an event of its own and looks for itself.
async fn idle(engine: &Engine, events: &[Recorded]) -> BTreeSet<RoutineId> {
    let settled = events.iter().filter(|event| event.event_type == "routine.run_settled");
    let streams: BTreeSet<StreamName> = settled.map(|event| event.stream.clone()).collect();
    if streams.len() < 2 {
        return BTreeSet::new();
    }
    let streams: Vec<StreamName> = streams.into_iter().collect();
    let read = match load_many::<Routine>(engine.log(), engine.folds(), &streams).await {
        Ok(read) => read,
        Err(error) => {
            tracing::debug!(%error, "routines cannot be read together; each is looked at by itself");
            return BTreeSet::new();
        }
    };
    let idle = read.iter().filter(|(_, read)| {
        let routine = &read.loaded.state;
        routine.queued.is_none() && routine.target.queue.is_empty()
    });
    idle.filter_map(|(stream, _)| stream.uuid().map(RoutineId::new)).collect()
}

async fn react_to(
    engine: &Engine,
    recorded: &Recorded,
    idle: &BTreeSet<RoutineId>,
    started: &BTreeMap<String, u64>,
) -> Result<(), EngineError> {
    // A newer version knows what follows from an event that is unknown here; this process must not run past it.
    let event = AnyEvent::decode(recorded)?;
    let settled = matches!(event, AnyEvent::Routine(RoutineEvent::RunSettled(_), _));
    for reaction in reactions(&event, recorded) {
        if let (true, Reaction::ClaimNext(TargetId::Routine(id))) = (settled, &reaction)
            && idle.contains(id)
        {
            continue;
        }
        if started.get(reaction.name()).is_some_and(|after| recorded.position <= *after) {
            continue;
        }
        follow(engine, recorded, reaction).await?;
    }
    Ok(())
}

#[tracing::instrument(name = "react", level = "debug", skip_all)]
async fn follow(engine: &Engine, cause: &Recorded, reaction: Reaction) -> Result<(), EngineError> {
    let event = if active(Mutant::ReactsWithoutKey) { engine.world().uuid() } else { cause.event_id }.to_string();
    let key = Key::new(&["react", &event, reaction.name()], &[event.as_bytes(), reaction.name().as_bytes()]);
    let mut origin = Origin::of(Actor::Engine).because(cause.event_id);
    origin.correlation.clone_from(&cause.correlation_id);
    let done = match reaction {
        Reaction::Queue { delivery, trigger, target } => {
            queue(engine, (delivery, trigger, target), cause.recorded_at, &origin, key).await
        }
        Reaction::ClaimNext(target) => engine.claim_next(target, &origin, Some(key)).await.map(|_| ()),
        Reaction::Suspend(works_for) => suspend(engine, works_for, cause.position, &origin).await,
        Reaction::MarkQueued(DeliveryQueued { delivery, trigger, .. }) => {
            mark(engine, delivery, &origin, key, |_| DeliveryCommand::MarkQueued(trigger)).await
        }
        Reaction::MarkStarted { delivery, run } => {
            mark(engine, delivery, &origin, key, |trigger| DeliveryCommand::MarkStarted(trigger, run)).await
        }
        Reaction::MarkDropped { delivery, reason } => {
            mark(engine, delivery, &origin, key, |trigger| DeliveryCommand::MarkDropped(trigger, reason)).await
        }
    };
    match done {
        // A halt, or work that was erased: the clock looks at the target again, nothing is lost.
        Err(EngineError::Refused(refusal)) => {
            tracing::debug!(%refusal, position = cause.position, "a reaction was refused");
            Ok(())
        }
        other => other,
    }
}

/// Switches off the routines that cannot go on. One that is made at this very moment and not found here is refused when it
/// is made, or switched off at its next claim.
async fn suspend(engine: &Engine, works_for: WorksFor, position: u64, origin: &Origin) -> Result<(), EngineError> {
    projector::wait_for(engine, position).await;
    let (column, id, cause) = match works_for {
        WorksFor::Bot(bot) => ("bot", bot.to_string(), SuspendCause::BotRetired),
        WorksFor::Owner(user) => ("owner", user.to_string(), SuspendCause::OwnerRevoked),
    };
    let error = gone_refusal(cause).to_string();
    let mut after = None;
    loop {
        let filters = vec![Condition { column, is: Test::Eq(Cell::Text(id.clone())) }];
        let order = Order { column: "name", descending: false };
        let page = projector::page::<RoutinesList>(engine, filters, order, BATCH, after).await?;
        for (row, _) in page.iter().filter(|(row, _)| row.state != RoutineState::Deleted) {
            let command = |_: &Routine| Ok(RoutineCommand::Suspend { cause, error: error.clone() });
            match handle::<Routine>(engine, &StreamName::routine(row.id), origin, None, command).await {
                Ok(_) | Err(EngineError::Refused(_)) => {}
                Err(error) => return Err(error),
            }
        }
        match page.last() {
            Some((_, cursor)) if page.len() == BATCH as usize => after = Some(cursor.clone()),
            _ => break,
        }
    }
    match works_for {
        WorksFor::Bot(bot) => close(engine, bot, origin).await,
        // Those of a person close at their next claim.
        WorksFor::Owner(_) => Ok(()),
    }
}

/// Closes the triggers of a Bot that gets no more work: nobody is left to do what they ask for.
async fn close(engine: &Engine, bot: BotId, origin: &Origin) -> Result<(), EngineError> {
    let mut after = None;
    loop {
        let filters = vec![Condition { column: "bot", is: Test::Eq(Cell::Text(bot.to_string())) }];
        let order = Order { column: "name", descending: false };
        let page = projector::page::<Triggers>(engine, filters, order, BATCH, after).await?;
        for (row, _) in &page {
            let stream = StreamName::trigger(row.id);
            match handle::<Trigger>(engine, &stream, origin, None, |_| Ok(TriggerCommand::Close)).await {
                Ok(_) | Err(EngineError::Refused(_)) => {}
                Err(error) => return Err(error),
            }
        }
        match page.last() {
            Some((_, cursor)) if page.len() == BATCH as usize => after = Some(cursor.clone()),
            _ => return Ok(()),
        }
    }
}

async fn queue(
    engine: &Engine,
    (delivery, trigger, target): (DeliveryId, TriggerId, TargetId),
    received_at: Micros,
    origin: &Origin,
    key: Key,
) -> Result<(), EngineError> {
    let intake = engine.load::<Trigger>(&StreamName::trigger(trigger)).await?.state.intake;
    // Its age counts from its receipt, whenever this is done.
    let expires_us = received_at.plus_s(i64::from(intake.queue_age_s));
    let asked = Queueing {
        delivery: DeliveryQueued { delivery, trigger, expires_us, redelivery: None },
        queue_max: intake.queue_max,
        newest_only: intake.when_busy == WhenBusy::Coalesce,
    };
    let origin = origin.clone().within(&StreamName::delivery(delivery));
    let done = match target {
        TargetId::Routine(id) => {
            engine.claim_on_routine(id, &origin, Some(key), |_| RoutineCommand::Queue(asked.clone())).await
        }
        TargetId::Trigger(id) => {
            engine.claim_on_trigger(id, &origin, Some(key), |_| TriggerCommand::Queue(asked.clone())).await
        }
    };
    done.map(|_| ())
}

async fn mark(
    engine: &Engine,
    id: DeliveryId,
    origin: &Origin,
    key: Key,
    command: impl Fn(TriggerId) -> DeliveryCommand,
) -> Result<(), EngineError> {
    let request = Request { key };
    let done = handle::<Delivery>(engine, &StreamName::delivery(id), origin, Some(&request), |state| {
        let received = state.received.as_ref().ok_or(Refusal::NotFound("delivery"))?;
        Ok(command(received.trigger))
    })
    .await;
    done.map(|_| ())
}
