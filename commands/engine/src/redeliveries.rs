//! Letting deliveries run once more: one, or all that match, with a plan that is counted first.
//!
//! A redelivery is one append over the delivery's stream and its target's, which is the queue: it waits there as any
//! delivery does, and is refused where the queue is full. One of many adds to the same append how far it has come, so
//! whoever goes on after a crash or a halt, in whatever process, does nothing twice and counts right.

use std::time::Duration;

use futures_util::future::BoxFuture;
use midwatch_commands::{
    Decider as _, Refusal,
    delivery::{Delivery, DeliveryCommand, Redelivery, RedeliveryCommand},
    routine::{Routine, RoutineCommand},
    target::Queueing,
    trigger::{Trigger, TriggerCommand},
};
use midwatch_events::{
    Actor, New, StreamName,
    delivery::{DeliveryEvent, RedeliveryStarted},
    id::{DeliveryId, RedeliveryId},
    key::Key,
    routine::{DeliveryQueued, DropReason, RoutineEvent},
    trigger::TriggerEvent,
};
use midwatch_log::{
    Pending,
    views::{Cell, Condition, Order, Test},
};
use midwatch_projections::{
    deliveries::{Deliveries, DeliveryRow},
    delivery_redeliveries::Redeliveries,
};
use tokio::sync::watch;

use crate::{
    Done, Engine, EngineError, Origin, Request,
    handle::{Loaded, Plan, TRIES, handle},
    projector,
    world::told,
};

const NAME: &str = "redeliveries";
const PAGE: u32 = 50;
/// How long the others' turn is, where there is nothing to do or no room in the queue.
const PAUSE: Duration = Duration::from_secs(1);

/// Which deliveries.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Matching {
    /// Only this trigger's.
    pub trigger: Option<midwatch_events::id::TriggerId>,
    /// Only those with this status.
    pub status: Option<String>,
    /// Only those about this.
    pub event_type: Option<String>,
    /// Only those received at or after this instant.
    pub since: Option<midwatch_events::Micros>,
    /// Only those received before this instant.
    pub until: Option<midwatch_events::Micros>,
}

impl Matching {
    /// What a row of the deliveries must hold.
    #[must_use]
    pub fn conditions(&self) -> Vec<Condition> {
        // No text of PostgreSQL holds a NUL.
        let text = |column, value: Option<String>| {
            value.map(|value| Condition { column, is: Test::Eq(Cell::Text(value.replace('\0', "\u{fffd}"))) })
        };
        let conditions = [
            text("trigger", self.trigger.map(|id| id.to_string())),
            text("status", self.status.clone()),
            text("event_type", self.event_type.clone()),
            self.since.map(|since| Condition { column: "received_at", is: Test::Ge(Cell::Int(since.0)) }),
            self.until.map(|until| Condition { column: "received_at", is: Test::Lt(Cell::Int(until.0)) }),
        ];
        conditions.into_iter().flatten().collect()
    }

    fn up_to(&self, through: u64) -> Vec<Condition> {
        let through = i64::try_from(through).unwrap_or(i64::MAX);
        let mut conditions = self.conditions();
        conditions.push(Condition { column: "position", is: Test::Le(Cell::Int(through)) });
        conditions
    }
}

/// What a redelivery of many would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// How many deliveries match.
    pub count: u64,
    /// Of those that stand at or below this position.
    pub through: u64,
}

/// What became of one delivery of many.
enum Went {
    Redelivered,
    LeftOut,
    /// There is no room for it now, or nothing may start.
    NotNow,
}

impl Engine {
    /// Lets one delivery run once more.
    ///
    /// # Errors
    /// [`Refusal::Halted`]; it waits already, its queue is full, its words were erased, or its trigger is gone; or a
    /// fault.
    pub fn redeliver<'a>(
        &'a self,
        id: DeliveryId,
        origin: &'a Origin,
        request: Option<&'a Request>,
    ) -> Pending<'a, Done<()>, EngineError> {
        Box::pin(async move {
            if let Some(done) = self.done_before(request).await? {
                return Ok(done);
            }
            for _ in 0..TRIES {
                let (mut plan, _) = self.plan_redelivery(id, origin, None).await?;
                if let Some(request) = request {
                    plan.key(request.key);
                }
                if let Some(appended) = plan.commit(self.log()).await? {
                    return Ok(Done { value: (), position: appended.last(), duplicate: appended.duplicate });
                }
            }
            Err(EngineError::Fault(format!("delivery {id} is changed by too many processes at once; try again")))
        })
    }

    async fn plan_redelivery(
        &self,
        id: DeliveryId,
        origin: &Origin,
        batch: Option<RedeliveryId>,
    ) -> Result<(Plan, Loaded<Delivery>), EngineError> {
        let halt = self.halt().await?;
        if halt.state.halted.is_some() {
            return Err(Refusal::Halted.into());
        }
        let stream = StreamName::delivery(id);
        let delivery = self.load::<Delivery>(&stream).await?;
        let received = delivery.state.received.clone().ok_or(Refusal::NotFound("delivery"))?;
        let events = delivery.state.decide(DeliveryCommand::Redeliver { batch })?;
        if self.log().read_stream(&stream, 1, 1).await?.first().is_none_or(|first| first.erased()) {
            return Err(Refusal::AlreadySo("its headers and body were erased; there is nothing to hand over").into());
        }
        let trigger_stream = StreamName::trigger(received.trigger);
        let trigger = self.load::<Trigger>(&trigger_stream).await?;
        trigger.state.existing()?;
        let expires_us = self.log().store_time().await?.plus_s(i64::from(trigger.state.intake.queue_age_s));
        let redelivery = Some(delivery.state.redeliveries.saturating_add(1));
        let asked = Queueing {
            delivery: DeliveryQueued { delivery: id, trigger: received.trigger, expires_us, redelivery },
            queue_max: trigger.state.intake.queue_max.max(1),
            newest_only: false,
        };
        let origin = origin.clone().within(&stream);
        let mut plan = Plan::default();
        let last = plan.add(self.world(), &stream, delivery.version, &events, &origin)?;
        let origin = last.map_or_else(|| origin.clone(), |event| origin.clone().because(event));
        match received.routine {
            Some(routine) => {
                let target = StreamName::routine(routine);
                let loaded = self.load::<Routine>(&target).await?;
                let events = loaded.state.decide(RoutineCommand::Queue(asked))?;
                let dropped = events.iter().find_map(|event| match &event.facts {
                    RoutineEvent::DeliveryDropped { reason, .. } => Some(*reason),
                    _ => None,
                });
                refuse_dropped(dropped, loaded.state.target.queue.len())?;
                plan.add(self.world(), &target, loaded.version, &events, &origin)?;
                plan.condition(trigger_stream, trigger.version);
            }
            None => {
                let events = trigger.state.decide(TriggerCommand::Queue(asked))?;
                let dropped = events.iter().find_map(|event| match &event.facts {
                    TriggerEvent::DeliveryDropped { reason, .. } => Some(*reason),
                    _ => None,
                });
                refuse_dropped(dropped, trigger.state.target.queue.len())?;
                plan.add(self.world(), &trigger_stream, trigger.version, &events, &origin)?;
            }
        }
        plan.condition(StreamName::halt(), halt.version);
        Ok((plan, delivery))
    }

    /// Counts what a redelivery of many would let run.
    ///
    /// # Errors
    /// A fault of the database.
    pub fn count_redelivery<'a>(&'a self, matching: &'a Matching) -> Pending<'a, Counted, EngineError> {
        Box::pin(async move {
            let through = projector::as_of::<Deliveries>(self).await?.0;
            let count = projector::count::<Deliveries>(self, &matching.up_to(through)).await?;
            Ok(Counted { count, through })
        })
    }

    /// Lets all deliveries that match run once more, in the order they came. `counted` is what was confirmed.
    ///
    /// # Errors
    /// There are none, or others than were counted; [`Refusal::Halted`]; or a fault.
    pub fn start_redelivery<'a>(
        &'a self,
        matching: &'a Matching,
        counted: Counted,
        origin: &'a Origin,
        request: Option<&'a Request>,
    ) -> Pending<'a, Done<RedeliveryId>, EngineError> {
        Box::pin(async move {
            let redelivery = self.new_id(request);
            if self.done_before(request).await?.is_none() {
                if self.halt().await?.state.halted.is_some() {
                    return Err(Refusal::Halted.into());
                }
                let now = projector::count::<Deliveries>(self, &matching.up_to(counted.through)).await?;
                if now != counted.count {
                    let sentence = format!("{now} deliveries match now, and not {}; look at them again", counted.count);
                    return Err(Refusal::Invalid(sentence).into());
                }
                if now == 0 {
                    return Err(Refusal::AlreadySo("no delivery matches").into());
                }
            }
            let started = RedeliveryStarted {
                redelivery,
                trigger: matching.trigger,
                status: matching.status.clone(),
                event_type: matching.event_type.clone(),
                since_us: matching.since,
                until_us: matching.until,
                through: counted.through,
                count: counted.count,
            };
            let done = handle::<Redelivery>(self, &StreamName::redelivery(redelivery), origin, request, |_| {
                Ok(RedeliveryCommand::Start(Box::new(started.clone())))
            })
            .await?;
            Ok(done.with(redelivery))
        })
    }

    /// Stops a redelivery of many. What it let run before runs.
    ///
    /// # Errors
    /// There is none with this id, it is over, or a fault.
    pub fn cancel_redelivery<'a>(
        &'a self,
        id: RedeliveryId,
        origin: &'a Origin,
        request: Option<&'a Request>,
    ) -> Pending<'a, Done<()>, EngineError> {
        Box::pin(async move {
            let stream = StreamName::redelivery(id);
            handle::<Redelivery>(self, &stream, origin, request, |_| Ok(RedeliveryCommand::Cancel)).await
        })
    }
}

fn refuse_dropped(dropped: Option<DropReason>, waiting: usize) -> Result<(), Refusal> {
    match dropped {
        None => Ok(()),
        Some(DropReason::QueueFull) => Err(Refusal::QueueFull { waiting }),
        Some(DropReason::TargetGone | DropReason::Expired | DropReason::Coalesced) => {
            Err(Refusal::NotFound("routine or Bot"))
        }
    }
}

/// Goes on with redeliveries of many until told to stop. One process leads; runs with the `clock` role.
pub fn run(engine: Engine, mut stop: watch::Receiver<bool>) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        loop {
            let moved = match projector::lead(&engine, NAME).await {
                Ok(true) => go_on(&engine).await,
                Ok(false) => Ok(false),
                Err(error) => Err(error),
            };
            if let Err(error) = &moved {
                tracing::warn!(%error, "redeliveries cannot go on; trying again");
                projector::give_up(&engine, NAME).await;
            }
            tokio::select! {
                biased;
                () = told(&mut stop) => break,
                () = std::future::ready(()), if matches!(moved, Ok(true)) => {}
                () = engine.world().clock.sleep(PAUSE), if !matches!(moved, Ok(true)) => {}
            }
        }
        projector::give_up(&engine, NAME).await;
    })
}

/// Goes on with every redelivery that is open, by a page each; whether anything moved.
///
/// # Errors
/// A fault of the database.
pub fn go_on(engine: &Engine) -> Pending<'_, bool, EngineError> {
    Box::pin(async move {
        if engine.halt().await?.state.halted.is_some() {
            return Ok(false);
        }
        let running = Condition { column: "state", is: Test::Eq(Cell::Text("running".to_owned())) };
        let order = Order { column: "position", descending: false };
        let rows = projector::page::<Redeliveries>(engine, vec![running], order, PAGE, None).await?;
        let mut moved = false;
        for (row, _) in rows {
            moved |= page(engine, row.id).await?;
        }
        Ok(moved)
    })
}

async fn page(engine: &Engine, id: RedeliveryId) -> Result<bool, EngineError> {
    let stream = StreamName::redelivery(id);
    let state = engine.load::<Redelivery>(&stream).await?.state;
    let Some(started) = state.started.clone().filter(|_| state.open()) else { return Ok(false) };
    let matching = Matching {
        trigger: started.trigger,
        // Of what was counted: a delivery that was let run has another status now.
        status: started.status.clone(),
        event_type: started.event_type.clone(),
        since: started.since_us,
        until: started.until_us,
    };
    let mut filters = matching.up_to(started.through);
    let reached = i64::try_from(state.reached).unwrap_or(i64::MAX);
    filters.push(Condition { column: "position", is: Test::Gt(Cell::Int(reached)) });
    let order = Order { column: "position", descending: false };
    let rows = projector::page::<Deliveries>(engine, filters, order, PAGE, None).await?;
    let mut moved = false;
    for (row, _) in &rows {
        match one(engine, id, &matching, row).await? {
            Went::Redelivered | Went::LeftOut => moved = true,
            Went::NotNow => return Ok(moved),
        }
    }
    if rows.len() < PAGE as usize {
        let origin = Origin::of(Actor::Clock);
        handle::<Redelivery>(engine, &stream, &origin, None, |_| Ok(RedeliveryCommand::Finish)).await?;
    }
    Ok(moved)
}

/// One delivery of many, and how far that is, in one append.
async fn one(engine: &Engine, id: RedeliveryId, matching: &Matching, row: &DeliveryRow) -> Result<Went, EngineError> {
    let stream = StreamName::redelivery(id);
    let origin = Origin::of(Actor::Clock);
    for _ in 0..TRIES {
        let redelivery = engine.load::<Redelivery>(&stream).await?;
        if !redelivery.state.open() {
            return Ok(Went::NotNow);
        }
        if row.position <= redelivery.state.reached {
            return Ok(Went::LeftOut);
        }
        let planned = match engine.plan_redelivery(row.id, &origin, Some(id)).await {
            // Its row was behind: it is of another kind by now.
            Ok((_, delivery)) if other_status(matching, &delivery.state) => None,
            Ok((plan, _)) => Some(plan),
            Err(EngineError::Refused(Refusal::Halted | Refusal::QueueFull { .. })) => return Ok(Went::NotNow),
            Err(EngineError::Refused(refusal)) => {
                tracing::debug!(delivery = %row.id, %refusal, "a delivery is left out of a redelivery");
                None
            }
            Err(error) => return Err(error),
        };
        let went = if planned.is_some() { Went::Redelivered } else { Went::LeftOut };
        let (redelivered, left_out) = if planned.is_some() { (1, 0) } else { (0, 1) };
        let reached = row.position;
        let progress: Vec<New<DeliveryEvent>> =
            redelivery.state.decide(RedeliveryCommand::Progress { reached, redelivered, left_out })?;
        let mut plan = planned.unwrap_or_default();
        plan.add(engine.world(), &stream, redelivery.version, &progress, &origin)?;
        let (batch, delivery) = (id.to_string(), row.id.to_string());
        plan.key(Key::new(&["redeliver", &batch, &delivery], &[batch.as_bytes(), delivery.as_bytes()]));
        if plan.commit(engine.log()).await?.is_some() {
            return Ok(went);
        }
    }
    Err(EngineError::Fault(format!("{stream} is changed by too many processes at once; try again")))
}

fn other_status(matching: &Matching, delivery: &Delivery) -> bool {
    matching.status.as_deref().is_some_and(|status| status != delivery.fate.name())
}
