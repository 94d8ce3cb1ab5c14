//! Taking in an authenticated POST: keys and event in one append, answered when it is durable. Holds promise 4.
//!
//! Nothing here is trusted to be current but what is appended under a condition: the trigger's and the halt's versions
//! are conditions of the append, so a door that was just closed cannot be passed on a stale cache.

mod bodies;
mod keys;
mod places;
mod sight;

use midwatch_boundary::filter::Passes;
use midwatch_commands::{
    Decider, Refusal,
    delivery::{Delivery, DeliveryCommand, Passing, Standing, status},
    mutant::{Mutant, active},
    routine::{Routine, RoutineCommand},
    target::Queueing,
    trigger::{Secret, Trigger, TriggerCommand},
};
use midwatch_events::{
    Actor, Family, Micros, New, StreamName,
    delivery::{DeliveryContent, DeliveryEvent, HeldCause, Received, ReceivedStatus},
    id::{DeliveryId, TriggerId},
    key::{Bytes, Digest, Key},
    routine::DeliveryQueued,
    time::SECOND_US,
    trigger::{Intake, WhenBusy},
};
use midwatch_log::{Append, AppendError, Pending};

use crate::{
    Engine, EngineError, Origin,
    filters::Seen,
    handle::{Loaded, Plan, TRIES},
};

use keys::Keys;
pub(crate) use places::{Places, Slots};
pub(crate) use sight::Gates;
use sight::Sight;

/// Bodies and results up to this long stay in an event's content; longer ones are blobs.
pub const CONTENT_BYTES_MAX: usize = 48 << 10;

/// An authenticated POST, as it came.
#[derive(Clone, Debug)]
pub struct Posted {
    /// Names and values in the order they came, secrets redacted.
    pub headers: Vec<(String, String)>,
    /// Its query, secrets redacted, where its sender signs it.
    pub query: Option<String>,
    /// The body, byte for byte.
    pub body: Vec<u8>,
    /// The sender's own id for it.
    pub sender_id: Option<String>,
    /// The id counts whatever the body: it stands in the body itself, or an admin chose it.
    pub id_alone: bool,
    /// Hash of what the sender signed, if it signs.
    pub signed: Option<[u8; 32]>,
    /// Hash of what makes two bodies without an id the same; the body's own, if nothing is said.
    pub alike: Option<[u8; 32]>,
    /// What the secret that opened the door is recognised by; none where no door was passed.
    pub secret: Option<Digest>,
    /// What the sender says it is about.
    pub event_type: Option<String>,
    /// Why the body could not be read as JSON, if it could not.
    pub unparsed: Option<String>,
}

/// What the sender is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The delivery; the first one, if this is the same again.
    pub delivery: DeliveryId,
    /// What happens with it.
    pub status: ReceivedStatus,
    /// It had been taken in before.
    pub duplicate: bool,
}

impl Engine {
    /// Takes in a delivery.
    ///
    /// # Errors
    /// [`Refusal::Halted`]; [`Refusal::NotFound`] for a trigger that was closed meanwhile; or a fault.
    #[tracing::instrument(name = "intake", level = "debug", skip_all)]
    pub fn receive<'a>(&'a self, trigger: TriggerId, posted: &'a Posted) -> Pending<'a, Taken, EngineError> {
        Box::pin(async move {
            let keys = Keys::of(trigger, posted);
            let mut receipt = Receipt::new(self, trigger, posted)?;
            let mut step = self.receive_unlooked(&mut receipt, &keys).await?;
            if matches!(step, Some(Step::Again)) {
                step = self.receive_unlooked(&mut receipt, &keys).await?;
            }
            if let Some(Step::Done(taken)) = step {
                return Ok(taken);
            }
            for _ in 0..TRIES {
                match self.receive_once(&mut receipt, &keys).await? {
                    Step::Done(taken) => return Ok(taken),
                    Step::Again => {}
                }
            }
            Err(EngineError::Fault("too many deliveries arrive at once; try again".to_owned()))
        })
    }

    /// Takes in what is new and plainly wanted without a look at the database: the append itself demands that the door is
    /// as it was last seen, and that its keys are new. None where that is not so; then nothing has happened, and it is
    /// looked at properly. Again where the target did not stand as still as it was taken to.
    async fn receive_unlooked(&self, receipt: &mut Receipt<'_>, keys: &Keys) -> Result<Option<Step>, EngineError> {
        let Some(sight) = self.remembered(receipt.trigger).await? else { return Ok(None) };
        let trigger = &sight.trigger.state;
        let halted = sight.halt.state.halted.is_some() || self.opening().halted;
        // A long body is written before its event, and what counts for a while or by the minute is looked up first.
        let DeliveryContent::Received { body: short, .. } = &receipt.content;
        let plain = short.is_some()
            && !(keys.for_a_while && trigger.intake.duplicate_window_s > 0)
            && trigger.intake.per_minute_max.is_none();
        let Ok(old) = old_secret(trigger, receipt.posted.secret) else { return Ok(None) };
        if halted || !plain || !trigger.open() {
            return Ok(None);
        }
        receipt.old_secret = old;
        let passing = self.passing(trigger, receipt).await;
        let status = status(trigger, passing, standing(trigger, sight.routine.as_deref()));
        // What is refused is recorded without its keys: only a look says whether it is new.
        if status.0 == ReceivedStatus::Refused {
            return Ok(None);
        }
        let recorded_under = keys.by_id.into_iter().chain(keys.by_signed).collect();
        let append = self.append_of(receipt, &sight, status, recorded_under, None).await?;
        match self.log().append(append).await {
            Ok(appended) if !appended.duplicate => {
                let taken = Taken { delivery: receipt.delivery, status: status.0, duplicate: false };
                Ok(Some(Step::Done(taken)))
            }
            Err(AppendError::Conflict { .. }) if sight.unlooked => {
                self.forget_calm(receipt.trigger);
                Ok(Some(Step::Again))
            }
            Err(AppendError::Conflict { .. }) => Ok(None),
            Ok(_) | Err(AppendError::KeyReused { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn receive_once(&self, receipt: &mut Receipt<'_>, keys: &Keys) -> Result<Step, EngineError> {
        let sight = self.look(receipt.trigger).await?;
        if sight.halt.state.halted.is_some() {
            return Err(Refusal::Halted.into());
        }
        let trigger = &sight.trigger.state;
        if !trigger.open() {
            return Err(Refusal::NotFound("trigger").into());
        }
        receipt.old_secret = old_secret(trigger, receipt.posted.secret)?;
        let window_s = trigger.intake.duplicate_window_s;
        let recorded_under = match self.keys(keys, receipt, window_s).await? {
            Ok(keys) => keys,
            Err(first) => return Ok(Step::Done(first)),
        };
        let passing = self.passing(trigger, receipt).await;
        let (status, held) = status(trigger, passing, standing(trigger, sight.routine.as_deref()));
        receipt.keep(self).await?;
        let slot = self.slot(&trigger.intake, receipt).await?;
        let append = self.append_of(receipt, &sight, (status, held), recorded_under, slot).await?;
        match self.log().append(append).await {
            Ok(appended) if !appended.duplicate => {
                Ok(Step::Done(Taken { delivery: receipt.delivery, status, duplicate: false }))
            }
            // Lost to the same delivery at the same moment, or to a change of the trigger: look again.
            Ok(_) | Err(AppendError::Conflict { .. }) => Ok(Step::Again),
            // Another delivery has this place in the minute.
            Err(AppendError::KeyReused { key_hash, .. }) if slot.is_some_and(|slot| slot.hash == key_hash) => {
                receipt.slot = None;
                Ok(Step::Again)
            }
            Err(AppendError::KeyReused { .. }) => {
                receipt.id_conflict = true;
                Ok(Step::Again)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The keys this delivery is recorded under, or the first delivery under one of them. What was signed counts for
    /// ever, like the sender's id; only where there is neither, or what is signed differs at each attempt, the body
    /// counts for a while.
    async fn keys(
        &self,
        keys: &Keys,
        receipt: &mut Receipt<'_>,
        window_s: u32,
    ) -> Result<Result<Vec<Key>, Taken>, EngineError> {
        let mut new = Vec::new();
        if let Some(by_id) = keys.by_id {
            match self.log().find_key(&by_id.hash).await? {
                None => new.push(by_id),
                Some((position, digest)) if digest == by_id.digest => return Ok(Err(self.first(position).await?)),
                // The same id for another body: a delivery of its own, and marked.
                Some(_) => {
                    receipt.id_conflict = true;
                    match self.log().find_key(&keys.conflict.hash).await? {
                        None => new.push(keys.conflict),
                        Some((position, _)) => return Ok(Err(self.first(position).await?)),
                    }
                }
            }
        }
        if let Some(by_signed) = keys.by_signed {
            match self.log().find_key(&by_signed.hash).await? {
                None => new.push(by_signed),
                Some((position, _)) => return Ok(Err(self.first(position).await?)),
            }
        }
        if keys.for_a_while && window_s > 0 {
            match self.key_by_body(keys, window_s).await? {
                Ok(by_body) => new.push(by_body),
                Err(position) => return Ok(Err(self.first(position).await?)),
            }
        }
        Ok(Ok(new))
    }

    /// The key of a body that counts for a while, or where the first one of this while stands.
    async fn key_by_body(&self, keys: &Keys, window_s: u32) -> Result<Result<Key, u64>, EngineError> {
        let now = self.log().store_time().await?;
        let body = keys.by_body(0).hash;
        let mut place = self.places().get(&body);
        loop {
            let key = keys.by_body(place);
            let Some((position, _)) = self.log().find_key(&key.hash).await? else { return Ok(Ok(key)) };
            let at = self.log().read_at(position).await?.map_or(Micros(0), |event| event.recorded_at);
            if now.since(at) < i64::from(window_s) * SECOND_US {
                return Ok(Err(position));
            }
            place = position;
            self.places().put(body, place);
        }
    }

    /// The delivery whose first event stands at `position`.
    async fn first(&self, position: u64) -> Result<Taken, EngineError> {
        let recorded = self.log().read_at(position).await?;
        let Some(recorded) = recorded else {
            return Err(EngineError::Corrupt(format!("a key names position {position}, where nothing is")));
        };
        match recorded.facts::<DeliveryEvent>()? {
            DeliveryEvent::Received(Received { delivery, status, .. }) => {
                Ok(Taken { delivery, status, duplicate: true })
            }
            _ => Err(EngineError::Corrupt(format!("a delivery's key names position {position}, which is none"))),
        }
    }

    /// The append of a delivery, on the condition that everything is as it was seen.
    async fn append_of(
        &self,
        receipt: &Receipt<'_>,
        sight: &Sight,
        status: (ReceivedStatus, Option<HeldCause>),
        recorded_under: Vec<Key>,
        slot: Option<Key>,
    ) -> Result<Append, EngineError> {
        let mut plan = self.plan(receipt, sight, status).await?;
        if !active(Mutant::IntakeIgnoresHalt) {
            plan.condition(StreamName::halt(), sight.halt.version);
        }
        // One that was refused is recorded without its keys: sent again, it is new work.
        if status.0 != ReceivedStatus::Refused && !active(Mutant::IntakeWithoutKey) {
            recorded_under.into_iter().for_each(|key| plan.key(key));
        }
        if let Some(slot) = slot {
            plan.key(slot);
        }
        Ok(Append::from(plan))
    }

    async fn plan(
        &self,
        receipt: &Receipt<'_>,
        sight: &Sight,
        (status, held): (ReceivedStatus, Option<HeldCause>),
    ) -> Result<Plan, EngineError> {
        let (trigger, routine) = (&sight.trigger, sight.routine.as_deref());
        let intake = &trigger.state.intake;
        // Where a busy target refuses, a delivery that it takes makes it busy at once: not only when it is reacted to.
        let refuses = intake.when_busy == WhenBusy::Refuse;
        let queued = refuses && status == ReceivedStatus::Accepted;
        let over = match held.is_some() || queued {
            true => Some(self.log().store_time().await?.plus_s(i64::from(intake.queue_age_s))),
            false => None,
        };
        let held_until_us = over.filter(|_| held.is_some());
        let received = receipt.received(&trigger.state, status, (held, held_until_us), queued);
        let command = DeliveryCommand::Receive(Box::new(received), receipt.content.clone());
        let events = Delivery::default().decide(command)?;
        let stream = StreamName::delivery(receipt.delivery);
        let origin = Origin::of(Actor::Trigger(receipt.trigger)).within(&stream);
        let mut plan = Plan::default();
        plan.add(self.world(), &stream, 0, &events, &origin)?;
        let asked = over.filter(|_| queued).map(|expires_us| Queueing {
            delivery: DeliveryQueued {
                delivery: receipt.delivery,
                trigger: receipt.trigger,
                expires_us,
                redelivery: None,
            },
            queue_max: intake.queue_max.max(1),
            newest_only: false,
        });
        let mut on_trigger: Vec<New<_>> = Vec::new();
        if status == ReceivedStatus::Captured {
            on_trigger = trigger.state.decide(TriggerCommand::Capture(receipt.delivery))?;
        }
        match (trigger.state.routine, routine) {
            (Some(id), Some(loaded)) => {
                let events = match asked {
                    Some(asked) => loaded.state.decide(RoutineCommand::Queue(asked))?,
                    None => Vec::new(),
                };
                let condition = refuses || sight.unlooked;
                add_or_condition(
                    self,
                    &mut plan,
                    &StreamName::routine(id),
                    loaded.version,
                    &events,
                    &origin,
                    condition,
                )?;
            }
            _ => on_trigger.extend(match asked {
                Some(asked) => trigger.state.decide(TriggerCommand::Queue(asked))?,
                None => Vec::new(),
            }),
        }
        let stream = StreamName::trigger(receipt.trigger);
        let door = !active(Mutant::IntakeIgnoresTheDoor);
        add_or_condition(self, &mut plan, &stream, trigger.version, &on_trigger, &origin, door)?;
        Ok(plan)
    }

    /// Whether the trigger wants it; why that cannot be said is kept beside it.
    async fn passing(&self, trigger: &Trigger, receipt: &mut Receipt<'_>) -> Passing {
        // The sample is taken whatever it is: it is there to be read.
        if !trigger.confirmed {
            return Passing::Passes;
        }
        let posted = receipt.posted;
        let seen = Seen { headers: &posted.headers, body: &posted.body, event_type: posted.event_type.as_deref() };
        let DeliveryContent::Received { filter_error, .. } = &mut receipt.content;
        *filter_error = None;
        match self.wants(&trigger.intake, seen).await {
            Passes::Yes => Passing::Passes,
            Passes::No => Passing::Filtered,
            Passes::Broken(why) => {
                *filter_error = Some(why);
                Passing::Broken
            }
        }
    }

    /// A place in this minute's budget, as a key: so many keys there are, and who finds none free comes too late. Exact
    /// in any number of processes, because keys are looked at in the append's own transaction.
    async fn slot(&self, intake: &Intake, receipt: &mut Receipt<'_>) -> Result<Option<Key>, EngineError> {
        let Some(max) = intake.per_minute_max else { return Ok(None) };
        let now_s = self.log().store_time().await?.seconds();
        let minute = now_s.div_euclid(60);
        let key = |slot: u32| {
            let parts = ["budget", &receipt.trigger.to_string(), &minute.to_string(), &slot.to_string()];
            Key::new(&parts, &[receipt.delivery.uuid().as_bytes()])
        };
        if let Some((_, slot)) = receipt.slot.filter(|(known, _)| *known == minute) {
            return Ok(Some(key(slot)));
        }
        let mut slot = self.slots().next(receipt.trigger, minute);
        // Others take places too. They are taken in order, so the first free one is found by ever larger steps and then
        // by halves.
        let (mut step, mut taken) = (1_u32, None);
        while slot < max && self.log().find_key(&key(slot).hash).await?.is_some() {
            taken = Some(slot);
            slot = slot.saturating_add(step);
            step = step.saturating_mul(2);
        }
        let mut free = slot.min(max);
        let mut below = taken.map_or(free, |taken| taken + 1);
        while below < free {
            let middle = below + (free - below) / 2;
            match self.log().find_key(&key(middle).hash).await? {
                Some(_) => below = middle + 1,
                None => free = middle,
            }
        }
        self.slots().took(receipt.trigger, minute, free);
        if free >= max {
            let retry_s = u32::try_from(60 - now_s.rem_euclid(60)).unwrap_or(60);
            return Err(Refusal::OverBudget { max, retry_s }.into());
        }
        receipt.slot = Some((minute, free));
        Ok(Some(key(free)))
    }
}

/// How the trigger's target stands.
fn standing(trigger: &Trigger, routine: Option<&Loaded<Routine>>) -> Standing {
    let (may_start, busy) = match routine {
        None => (true, trigger.target.busy()),
        Some(routine) => (routine.state.may_start(), routine.state.target.busy()),
    };
    match (may_start, busy) {
        (false, _) => Standing::Off,
        (true, true) => Standing::Busy,
        (true, false) => Standing::Free,
    }
}

fn add_or_condition<F: Family>(
    engine: &Engine,
    plan: &mut Plan,
    stream: &StreamName,
    version: u64,
    events: &[New<F>],
    origin: &Origin,
    condition: bool,
) -> Result<(), EngineError> {
    if !events.is_empty() {
        plan.add(engine.world(), stream, version, events, origin)?;
    } else if condition {
        plan.condition(stream.clone(), version);
    }
    Ok(())
}

enum Step {
    Done(Taken),
    Again,
}

/// A POST on its way into the log.
struct Receipt<'a> {
    trigger: TriggerId,
    delivery: DeliveryId,
    posted: &'a Posted,
    digest: Digest,
    content: DeliveryContent,
    id_conflict: bool,
    old_secret: bool,
    /// Its place in a minute's budget.
    slot: Option<(i64, u32)>,
}

impl<'a> Receipt<'a> {
    fn new(engine: &Engine, trigger: TriggerId, posted: &'a Posted) -> Result<Self, EngineError> {
        let digest = engine.secrets()?.digest(&posted.body);
        // Headers stand in the same event, which has a limit.
        let headers: usize = posted.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        let headers = headers + posted.query.as_ref().map_or(0, String::len);
        let short = posted.body.len() + headers <= CONTENT_BYTES_MAX;
        let content = DeliveryContent::Received {
            headers: posted.headers.clone(),
            query: posted.query.clone(),
            body: short.then(|| Bytes(posted.body.clone())),
            blob: None,
            sender_id: posted.sender_id.clone(),
            filter_error: None,
        };
        let delivery = DeliveryId::new(engine.world().uuid());
        Ok(Self { trigger, delivery, posted, digest, content, id_conflict: false, old_secret: false, slot: None })
    }

    /// What becomes true of it.
    fn received(
        &self,
        trigger: &Trigger,
        status: ReceivedStatus,
        (held, held_until_us): (Option<HeldCause>, Option<Micros>),
        queued: bool,
    ) -> Received {
        Received {
            delivery: self.delivery,
            trigger: self.trigger,
            routine: trigger.routine,
            status,
            event_type: self.posted.event_type.clone(),
            body_bytes: self.posted.body.len() as u64,
            body_digest: self.digest,
            parsed: self.posted.unparsed.is_none(),
            unparsed: self.posted.unparsed.clone(),
            id_conflict: self.id_conflict,
            old_secret: self.old_secret,
            held,
            held_until_us,
            queued,
        }
    }

    /// Makes a long body durable, before the event that names it; once, and only for a delivery that is taken in.
    async fn keep(&mut self, engine: &Engine) -> Result<(), EngineError> {
        let DeliveryContent::Received { body: None, blob: blob @ None, .. } = &mut self.content else { return Ok(()) };
        *blob = Some(engine.keep(&self.posted.body).await?);
        Ok(())
    }
}

/// Whether the secret that opened the door is the old one by now.
fn old_secret(trigger: &Trigger, secret: Option<Digest>) -> Result<bool, EngineError> {
    let Some(secret) = secret else { return Ok(false) };
    let is = |kept: &Secret| kept.digest == secret;
    match (&trigger.secret, &trigger.old_secret) {
        (Some(current), _) if is(current) => Ok(false),
        (_, Some((old, _))) if is(old) => Ok(true),
        // It was replaced between the door and here.
        _ => Err(Refusal::NotFound("trigger").into()),
    }
}
