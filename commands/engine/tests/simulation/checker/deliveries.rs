//! Nothing accepted is lost, and nothing is done twice.

use midwatch_events::{
    Micros, Recorded,
    delivery::{DeliveryContent, DeliveryEvent, Received, ReceivedStatus},
    id::{DeliveryId, RunId, TriggerId},
    routine::{DeliveryQueued, DropReason},
    time::SECOND_US,
    trigger::TriggerEvent,
};

use super::{Checker, Place, Scene, Trigger, Verdict};

/// How long after its end a delivery may wait until its own stream says so, in seconds.
const MARK_S: i64 = 300;

/// A delivery, as events tell it.
#[derive(Debug)]
pub(crate) struct Delivery {
    place: Place,
    accepted: bool,
    at: Micros,
    queued: bool,
    /// What its target made of it.
    fate: Option<Fate>,
    /// What its own stream says.
    marked: Option<Fate>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Run(RunId),
    Dropped(DropReason),
}

impl Delivery {
    pub(super) fn ended_in_time(&self, store: Micros) -> Verdict {
        if !self.accepted || store.since(self.at) < MARK_S * SECOND_US {
            return Ok(());
        }
        match (self.fate, self.marked) {
            (Some(fate), Some(marked)) if fate == marked => Ok(()),
            (None, _) => Err("accepted, and nothing ever came of it (promise 4)".to_owned()),
            (fate, marked) => Err(format!("its target says {fate:?}, its own stream {marked:?}")),
        }
    }
}

impl Checker {
    pub(super) fn trigger(&mut self, scene: &Scene<'_>, recorded: &Recorded, event: &TriggerEvent) -> Verdict {
        let id = TriggerId::new(recorded.stream.uuid().ok_or("a stream without an id")?);
        let place = Place::Trigger(id);
        if matches!(event, TriggerEvent::Created { .. }) {
            self.triggers.insert(id, Trigger::default());
            return Ok(());
        }
        match event {
            TriggerEvent::RunClaimed(claim) => {
                if self.triggers.get(&id).is_some_and(|trigger| trigger.closed) {
                    return Err("claimed though it is closed".to_owned());
                }
                return self.live(place, claim.run);
            }
            TriggerEvent::RunSettled(settled) => return self.settled(place, settled.run),
            TriggerEvent::DeliveryQueued(queued) => return self.queued(place, queued),
            TriggerEvent::DeliveryTaken { delivery, run } => return self.taken_from_queue(place, *delivery, *run),
            TriggerEvent::DeliveryDropped { delivery, reason } => {
                return self.dropped(scene, place, *delivery, *reason);
            }
            _ => {}
        }
        let trigger = self.triggers.get_mut(&id).ok_or("a trigger that was never made")?;
        match event {
            TriggerEvent::SampleCaptured { .. } if trigger.sampled => return Err("a second sample".to_owned()),
            TriggerEvent::SampleCaptured { .. } => trigger.sampled = true,
            TriggerEvent::Confirmed { .. } => trigger.confirmed = true,
            TriggerEvent::Paused {} | TriggerEvent::Deleted {} => trigger.closed = true,
            TriggerEvent::Resumed {} => trigger.closed = false,
            _ => {}
        }
        Ok(())
    }

    pub(super) fn delivery(
        &mut self,
        _scene: &Scene<'_>,
        recorded: &Recorded,
        event: &DeliveryEvent,
        content: Option<DeliveryContent>,
    ) -> Verdict {
        let id = DeliveryId::new(recorded.stream.uuid().ok_or("a stream without an id")?);
        let fate = match event {
            DeliveryEvent::Received(received) => return self.received(recorded, received, content),
            // Nobody has one run again here.
            DeliveryEvent::Queued { .. }
            | DeliveryEvent::Redelivered { .. }
            | DeliveryEvent::RedeliveryStarted(_)
            | DeliveryEvent::RedeliveryProgressed { .. }
            | DeliveryEvent::RedeliveryFinished { .. }
            | DeliveryEvent::RedeliveryCancelled {} => return Ok(()),
            DeliveryEvent::Started { run, .. } => Fate::Run(*run),
            DeliveryEvent::Dropped { reason, .. } => Fate::Dropped(*reason),
        };
        let delivery = self.deliveries.get_mut(&id).ok_or("a delivery that never came")?;
        match delivery.marked.replace(fate) {
            Some(_) => Err("a delivery ends twice".to_owned()),
            None => Ok(()),
        }
    }

    fn received(&mut self, recorded: &Recorded, received: &Received, content: Option<DeliveryContent>) -> Verdict {
        if self.halted {
            return Err("a delivery was taken in under a halt (promise 7)".to_owned());
        }
        let trigger = self.triggers.get(&received.trigger).ok_or("a delivery to no trigger")?;
        if trigger.closed {
            return Err("a delivery passed a door that was closed".to_owned());
        }
        let accepted = received.status == ReceivedStatus::Accepted;
        if accepted && !trigger.confirmed {
            return Err("accepted before its trigger's sample was confirmed".to_owned());
        }
        let place = received.routine.map_or(Place::Trigger(received.trigger), Place::Routine);
        let delivery = Delivery { place, accepted, at: recorded.recorded_at, queued: false, fate: None, marked: None };
        if self.deliveries.insert(received.delivery, delivery).is_some() {
            return Err("received twice".to_owned());
        }
        if let (Some(DeliveryContent::Received { sender_id: Some(sender), .. }), false) =
            (content, received.id_conflict)
            && let Some(first) = self.senders.insert((received.trigger, sender.clone()), received.delivery)
        {
            return Err(format!("{sender} was taken in before, as {first} (promise 4)"));
        }
        Ok(())
    }

    pub(super) fn queued(&mut self, place: Place, queued: &DeliveryQueued) -> Verdict {
        let delivery = self.deliveries.get_mut(&queued.delivery).ok_or("a delivery that never came is queued")?;
        if !delivery.accepted || delivery.place != place {
            return Err("a delivery is queued where it does not belong".to_owned());
        }
        if std::mem::replace(&mut delivery.queued, true) || delivery.fate.is_some() {
            return Err("a delivery is queued again (promise 4)".to_owned());
        }
        self.target(place)?.queue.push_back((queued.delivery, queued.expires_us));
        Ok(())
    }

    pub(super) fn taken_from_queue(&mut self, place: Place, delivery: DeliveryId, run: RunId) -> Verdict {
        let target = self.target(place)?;
        if target.live != Some(run) {
            return Err("a delivery is taken by a run that is not live".to_owned());
        }
        match target.queue.pop_front() {
            Some((first, _)) if first == delivery => self.ends(delivery, Fate::Run(run)),
            first => Err(format!("{delivery} is taken, but {first:?} is the first in the queue")),
        }
    }

    pub(super) fn dropped(
        &mut self,
        scene: &Scene<'_>,
        place: Place,
        delivery: DeliveryId,
        reason: DropReason,
    ) -> Verdict {
        let queue = &mut self.target(place)?.queue;
        let waiting = queue.iter().position(|(waiting, _)| *waiting == delivery).and_then(|at| queue.remove(at));
        if let (DropReason::Expired, Some((_, expires))) = (reason, waiting)
            && !scene.may_have_decided(expires, Micros(i64::MAX))
        {
            return Err(format!("dropped as expired before {expires}"));
        }
        self.ends(delivery, Fate::Dropped(reason))
    }

    fn ends(&mut self, delivery: DeliveryId, fate: Fate) -> Verdict {
        let known = self.deliveries.get_mut(&delivery).ok_or("a delivery that never came ends")?;
        match known.fate.replace(fate) {
            Some(before) => Err(format!("{delivery} ends again, as {fate:?}; it was {before:?} (promise 4)")),
            None => Ok(()),
        }
    }
}
