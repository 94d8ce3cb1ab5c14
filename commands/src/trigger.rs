//! Triggers: a public endpoint, its sample, and the runs of its own instruction.

use midwatch_events::{
    Micros, New,
    id::{BotId, DeliveryId, RoutineId, TriggerId, UserId},
    key::{Bytes, Digest, Key},
    routine::{Limits, RunClaimed, RunSettled, Work},
    run::{Outcome, Reason},
    trigger::{Intake, Scheme, TriggerContent, TriggerEvent},
};
use serde::{Deserialize, Serialize};

use crate::{
    Decider, Refusal,
    refusal::named,
    routine::check_limits,
    target::{ClaimNext, Queueing, Target, TargetEvent, delivery_key},
};

/// A trigger as its stream tells it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Trigger {
    /// Its id, once created.
    pub id: Option<TriggerId>,
    /// Its name.
    pub name: String,
    /// Whose rights its runs have.
    pub owner: Option<UserId>,
    /// The public part of its URL.
    pub endpoint: String,
    /// The routine it hands work to.
    pub routine: Option<RoutineId>,
    /// The Bot that works by its own instruction.
    pub bot: Option<BotId>,
    /// How its sender shows who it is; none is a bearer secret.
    pub scheme: Option<Scheme>,
    /// Its secret.
    pub secret: Option<Secret>,
    /// The secret before, and until when it is good.
    pub old_secret: Option<(Secret, Micros)>,
    /// How deliveries are taken in.
    pub intake: Intake,
    /// How runs of its own instruction run.
    pub limits: Limits,
    /// The first authenticated delivery.
    pub sample: Option<DeliveryId>,
    /// An admin has read the sample.
    pub confirmed: bool,
    /// It answers as if it did not exist.
    pub paused: bool,
    /// It is gone.
    pub deleted: bool,
    /// What is live and what waits, for its own instruction.
    pub target: Target,
}

/// A secret as it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret {
    /// What it is recognised by: SHA-256 of one that is sent along, a keyed digest of one that signs.
    pub digest: Digest,
    /// A key that signs, sealed under the deployment's key.
    pub sealed: Option<Bytes>,
}

/// A trigger to make.
#[derive(Clone, Debug)]
pub struct Create {
    /// Its id.
    pub trigger: TriggerId,
    /// Its name.
    pub name: String,
    /// Whose rights its runs have.
    pub owner: UserId,
    /// The public part of its URL: 24 base64url characters, 144 random bits.
    pub endpoint: String,
    /// The routine it hands work to; seen to exist by the caller.
    pub routine: Option<RoutineId>,
    /// The Bot that works by its own instruction; seen to be workable by the caller.
    pub bot: Option<BotId>,
    /// What that Bot is told.
    pub instruction: Option<String>,
    /// How its sender shows who it is; seen to make sense by the caller. None is a bearer secret.
    pub scheme: Option<Scheme>,
    /// Its secret.
    pub secret: Secret,
    /// How deliveries are taken in.
    pub intake: Intake,
    /// How runs of its own instruction run.
    pub limits: Limits,
}

/// What can be asked of a trigger.
#[derive(Clone, Debug)]
pub enum TriggerCommand {
    /// Make one.
    Create(Box<Create>),
    /// Give it another secret.
    Rotate {
        /// The new secret.
        secret: Secret,
        /// Until when the old one is good.
        old_until: Micros,
    },
    /// Let another kind of sender post to it, with another secret.
    ReplaceSender {
        /// How it shows who it is; seen to make sense by the caller. None is a bearer secret.
        scheme: Option<Scheme>,
        /// Its secret.
        secret: Secret,
    },
    /// Take deliveries in by other rules; its filter was seen to compile by the caller.
    ReplaceIntake(Intake),
    /// The first authenticated delivery has arrived.
    Capture(DeliveryId),
    /// An admin has read the sample.
    Confirm {
        /// The delivery that was read; the sample, when it is not said.
        delivery: Option<DeliveryId>,
    },
    /// Answer as if it did not exist.
    Pause,
    /// Its Bot or owner is gone: nobody is left to do what waits.
    Close,
    /// Answer again.
    Resume,
    /// Remove it.
    Delete,
    /// Let a delivery wait for it.
    Queue(Queueing),
    /// Take the next delivery, if it is free.
    ClaimNext(ClaimNext),
    /// Its live run has ended.
    Settle {
        /// The run.
        run: midwatch_events::id::RunId,
        /// How it ended.
        outcome: Outcome,
        /// Why.
        reason: Option<Reason>,
    },
}

impl Trigger {
    /// The id of a trigger that was created and not deleted.
    ///
    /// # Errors
    /// [`Refusal::NotFound`].
    pub fn existing(&self) -> Result<TriggerId, Refusal> {
        self.id.filter(|_| !self.deleted).ok_or(Refusal::NotFound("trigger"))
    }

    /// Whether senders find it at all.
    #[must_use]
    pub fn open(&self) -> bool {
        self.id.is_some() && !self.deleted && !self.paused
    }

    fn create(&self, create: Create) -> Result<Vec<New<TriggerEvent>>, Refusal> {
        if self.id.is_some() {
            return Err(Refusal::Exists("trigger"));
        }
        named("trigger", &create.name)?;
        check_limits(&create.limits)?;
        let Limits { grace_s: _, deadline_s: _, max_turns: _, max_runs, missed, overlap, retry: _ } = &create.limits;
        if max_runs.is_some() || !missed.is_record() || !overlap.is_skip() {
            let sentence = "a trigger has no windows; leave `max_runs`, `missed` and `overlap` out".to_owned();
            return Err(Refusal::Invalid(sentence));
        }
        intake_makes_sense(&create.intake)?;
        let instruction = create.instruction.filter(|text| !text.trim().is_empty());
        let content = match (create.routine, create.bot, instruction) {
            (Some(_), None, None) => None,
            (None, Some(_), Some(text)) => {
                Some(TriggerContent::Created(Work { instruction: Some(text), recording: None }))
            }
            (None, Some(_), None) => {
                return Err(Refusal::Invalid("say what the Bot is to do with a delivery: --instruction".to_owned()));
            }
            _ => {
                return Err(Refusal::Invalid("give either a routine, or a Bot with an instruction".to_owned()));
            }
        };
        let facts = TriggerEvent::Created {
            trigger: create.trigger,
            name: create.name,
            owner: create.owner,
            endpoint: create.endpoint,
            routine: create.routine,
            bot: create.bot,
            secret: create.secret.digest,
            intake: create.intake,
            limits: create.limits,
            scheme: create.scheme,
            sealed: create.secret.sealed,
        };
        Ok(vec![New { facts, content }])
    }

    fn rotate(&self, secret: Secret, old_until: Micros) -> Result<Vec<New<TriggerEvent>>, Refusal> {
        self.existing()?;
        let Some(old) = &self.secret else { return Err(Refusal::NotFound("trigger")) };
        if old.sealed.is_some() != secret.sealed.is_some() {
            let sentence = "this trigger's sender signs: give the new key it signs with";
            let other = "this trigger's secret is made here and sent along: it cannot be given";
            return Err(Refusal::Invalid(if old.sealed.is_some() { sentence } else { other }.to_owned()));
        }
        if old.digest == secret.digest {
            return Err(Refusal::AlreadySo("this is the secret the trigger has already"));
        }
        let event =
            TriggerEvent::SecretRotated { secret: secret.digest, old_until_us: old_until, sealed: secret.sealed };
        Ok(vec![event.into()])
    }

    fn confirm(&self, delivery: Option<DeliveryId>) -> Result<Vec<New<TriggerEvent>>, Refusal> {
        self.existing()?;
        let sample = self.sample.ok_or(Refusal::NoSample)?;
        if delivery.is_some_and(|read| read != sample) {
            return Err(Refusal::OtherSample);
        }
        if self.confirmed {
            return Err(Refusal::AlreadySo("this trigger is confirmed already"));
        }
        Ok(vec![TriggerEvent::Confirmed { delivery: sample }.into()])
    }

    fn switch(&self, pause: bool) -> Result<Vec<New<TriggerEvent>>, Refusal> {
        self.existing()?;
        match (pause, self.paused) {
            (true, false) => Ok(vec![TriggerEvent::Paused {}.into()]),
            (false, true) => Ok(vec![TriggerEvent::Resumed {}.into()]),
            (true, true) => Err(Refusal::AlreadySo("this trigger is paused already")),
            (false, false) => Err(Refusal::AlreadySo("this trigger is not paused")),
        }
    }
}

/// The largest cap on bodies, in bytes.
pub const BODY_BYTES_MAX: u32 = 25_000_000;
const EVENT_TYPES_MAX: usize = 200;
const EVENT_TYPE_CHARS_MAX: usize = 200;
const QUEUE_MAX: u32 = 10_000;
const YEAR_S: u32 = 366 * 86_400;

/// Refuses rules that no delivery could live by.
fn intake_makes_sense(intake: &Intake) -> Result<(), Refusal> {
    let within = |what: &str, value: u32, from: u32, to: u32| {
        let sentence = || Refusal::Invalid(format!("{what} is {from} to {to}, not {value}"));
        (from..=to).contains(&value).then_some(()).ok_or_else(sentence)
    };
    within("the largest body (body_bytes_max)", intake.body_bytes_max, 1, BODY_BYTES_MAX)?;
    within("the length of the queue (queue_max)", intake.queue_max, 0, QUEUE_MAX)?;
    within("the age of the queue in seconds (queue_age_s)", intake.queue_age_s, 1, YEAR_S)?;
    within("the budget of a minute (per_minute_max)", intake.per_minute_max.unwrap_or(1), 1, 1_000_000)?;
    within("the number of days bodies are kept (kept_days)", intake.kept_days.unwrap_or(1), 1, 36_500)?;
    if intake.event_types.len() > EVENT_TYPES_MAX {
        return Err(Refusal::Invalid(format!("a trigger takes up to {EVENT_TYPES_MAX} event types by name")));
    }
    let odd = |name: &&String| {
        let star = name.find('*').is_some_and(|at| at + 1 < name.len());
        star || name.is_empty() || name.chars().count() > EVENT_TYPE_CHARS_MAX || name.chars().any(char::is_control)
    };
    match intake.event_types.iter().find(odd) {
        None => Ok(()),
        Some(name) => Err(Refusal::Invalid(format!(
            "`{name}` is no event type: write 1 to {EVENT_TYPE_CHARS_MAX} characters, and a * at its end or nowhere"
        ))),
    }
}

/// Whether a trigger with these rules takes deliveries about `event_type`. One that says nothing is of no listed kind.
#[must_use]
pub fn takes_type(intake: &Intake, event_type: Option<&str>) -> bool {
    let is = |wanted: &String, given: &str| match wanted.strip_suffix('*') {
        Some(beginning) => given.starts_with(beginning),
        None => wanted == given,
    };
    intake.event_types.is_empty()
        || event_type.is_some_and(|given| intake.event_types.iter().any(|wanted| is(wanted, given)))
}

/// The keys under which `events` of one append are recognised for ever: a delivery is claimed once.
#[must_use]
pub fn keys(trigger: TriggerId, events: &[New<TriggerEvent>]) -> Vec<Key> {
    let id = trigger.to_string();
    let claimed = events.iter().filter_map(|event| {
        let TriggerEvent::RunClaimed(RunClaimed { delivery, redelivery, .. }) = &event.facts else { return None };
        delivery.map(|delivery| (delivery, *redelivery))
    });
    claimed.map(|(delivery, redelivery)| delivery_key(&id, delivery, redelivery)).collect()
}

fn target_events(events: Vec<TargetEvent>, bot: Option<BotId>) -> Vec<New<TriggerEvent>> {
    let family = |event| match event {
        TargetEvent::Queued(queued) => TriggerEvent::DeliveryQueued(queued),
        TargetEvent::Taken(delivery, run) => TriggerEvent::DeliveryTaken { delivery, run },
        TargetEvent::Dropped(delivery, reason) => TriggerEvent::DeliveryDropped { delivery, reason },
        TargetEvent::Claimed(claim) => TriggerEvent::RunClaimed(RunClaimed { bot, ..claim }),
    };
    events.into_iter().map(|event| New::from(family(event))).collect()
}

impl Decider for Trigger {
    type Event = TriggerEvent;
    type Command = TriggerCommand;

    const FOLD_VERSION: u32 = 4;

    fn decide(&self, command: TriggerCommand) -> Result<Vec<New<TriggerEvent>>, Refusal> {
        match command {
            TriggerCommand::Create(create) => self.create(*create),
            TriggerCommand::Rotate { secret, old_until } => self.rotate(secret, old_until),
            TriggerCommand::ReplaceSender { scheme, secret } => {
                self.existing()?;
                let Secret { digest, sealed } = secret;
                Ok(vec![TriggerEvent::SenderReplaced { scheme, secret: digest, sealed }.into()])
            }
            TriggerCommand::ReplaceIntake(intake) => {
                self.existing()?;
                intake_makes_sense(&intake)?;
                let same = intake == self.intake;
                Ok(if same { vec![] } else { vec![TriggerEvent::IntakeReplaced { intake }.into()] })
            }
            TriggerCommand::Capture(delivery) => {
                self.existing()?;
                if self.sample.is_some() {
                    return Err(Refusal::Exists("sample"));
                }
                Ok(vec![TriggerEvent::SampleCaptured { delivery }.into()])
            }
            TriggerCommand::Confirm { delivery } => self.confirm(delivery),
            TriggerCommand::Pause => self.switch(true),
            TriggerCommand::Close => {
                self.existing()?;
                let closed = (!self.paused).then(|| TriggerEvent::Paused {}.into());
                Ok(closed.into_iter().chain(target_events(self.target.drop_all(), self.bot)).collect())
            }
            TriggerCommand::Resume => self.switch(false),
            TriggerCommand::Delete => {
                self.existing()?;
                let mut events = vec![TriggerEvent::Deleted {}.into()];
                events.extend(target_events(self.target.drop_all(), self.bot));
                Ok(events)
            }
            TriggerCommand::Queue(asked) => {
                let gone = self.deleted || self.bot.is_none();
                Ok(target_events(self.target.queue(asked, gone), self.bot))
            }
            TriggerCommand::ClaimNext(claim) => {
                let Ok(id) = self.existing() else { return Ok(vec![]) };
                Ok(target_events(self.target.claim_next(&id.to_string(), claim, self.open()), self.bot))
            }
            TriggerCommand::Settle { run, outcome, reason } => {
                if self.target.live != Some(run) {
                    return Ok(vec![]);
                }
                Ok(vec![TriggerEvent::RunSettled(RunSettled { bot: self.bot, run, outcome, reason }).into()])
            }
        }
    }

    fn evolve(&mut self, event: &TriggerEvent, _at: Micros) {
        match event {
            TriggerEvent::Created { .. } if self.id.is_some() => {}
            TriggerEvent::Created {
                trigger,
                name,
                owner,
                endpoint,
                routine,
                bot,
                secret,
                intake,
                limits,
                scheme,
                sealed,
            } => {
                self.id = Some(*trigger);
                self.name.clone_from(name);
                self.owner = Some(*owner);
                self.endpoint.clone_from(endpoint);
                self.routine = *routine;
                self.bot = *bot;
                self.scheme.clone_from(scheme);
                self.secret = Some(Secret { digest: *secret, sealed: sealed.clone() });
                self.intake = intake.clone();
                self.limits = limits.clone();
            }
            TriggerEvent::SecretRotated { secret, old_until_us, sealed } => {
                let new = Secret { digest: *secret, sealed: sealed.clone() };
                self.old_secret = self.secret.replace(new).map(|old| (old, *old_until_us));
            }
            TriggerEvent::SenderReplaced { scheme, secret, sealed } => {
                self.scheme.clone_from(scheme);
                self.secret = Some(Secret { digest: *secret, sealed: sealed.clone() });
                // Its keys are of another kind: none of them opens the door of the new sender.
                self.old_secret = None;
            }
            TriggerEvent::IntakeReplaced { intake } => self.intake = intake.clone(),
            TriggerEvent::SampleCaptured { delivery } => {
                self.sample.get_or_insert(*delivery);
            }
            TriggerEvent::Confirmed { .. } => self.confirmed = true,
            TriggerEvent::Paused {} => self.paused = true,
            TriggerEvent::Resumed {} => self.paused = false,
            TriggerEvent::Deleted {} => self.deleted = true,
            TriggerEvent::RunClaimed(claim) => self.target.claimed(claim),
            TriggerEvent::RunSettled(settled) => self.target.settled(settled),
            TriggerEvent::DeliveryQueued(queued) => self.target.queued(queued),
            TriggerEvent::DeliveryTaken { delivery, .. } | TriggerEvent::DeliveryDropped { delivery, .. } => {
                self.target.left_queue(*delivery);
            }
        }
    }
}

#[cfg(test)]
mod tests;
