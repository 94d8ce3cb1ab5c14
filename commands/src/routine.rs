//! Routines: when they are due, what is live, and how each window ends.
//!
//! Holds promises 1 (one live run) and 2 (one window, one ending). A window ends by exactly one of
//! [`RoutineEvent::RunClaimed`], [`RoutineEvent::WindowsMissed`] and [`RoutineEvent::WindowSkipped`], and each of them
//! moves the high-water mark: the next window is always strictly later than the last, and is never looked for behind
//! it. The clock's part is in `windows.rs`.

mod limits;
mod windows;
mod zone_data;

use std::sync::Arc;

use midwatch_events::{
    Micros, New,
    id::{BotId, ProcessId, RoutineId, RunId, UserId},
    key::Key,
    routine::{
        Limits, MissedReason, RearmCause, RoutineContent, RoutineEvent, RunClaimed, RunSettled, SuspendCause, Work,
    },
    run::{Cause, Outcome, Reason, WorkKind},
};
use serde::{Deserialize, Serialize};

use crate::{
    Decider, Refusal,
    calendar::Schedule,
    refusal::named,
    target::{ClaimNext, FAILURES_MAX, Queueing, Target, TargetEvent, claim_key, delivery_key},
};

pub(crate) use limits::check_limits;
pub use windows::Tick;

/// Whether a routine is due at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// Nothing was created here.
    #[default]
    Absent,
    /// Due at its windows.
    Active,
    /// Switched off by a person.
    Paused,
    /// Switched off by the engine.
    Suspended,
    /// Gone.
    Deleted,
}

/// A routine as its stream tells it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Routine {
    /// Its id, once created.
    pub id: Option<RoutineId>,
    /// Its name.
    pub name: String,
    /// Whose it is.
    pub owner: Option<UserId>,
    /// Who does the work.
    pub bot: Option<BotId>,
    /// When, as stored.
    pub schedule_text: String,
    /// When; none where the stored text cannot be read any more.
    #[serde(with = "as_text")]
    pub schedule: Option<Arc<Schedule>>,
    /// What kind of work it holds.
    pub work: Option<WorkKind>,
    /// The version of the event whose content is the work in force.
    pub work_at: u64,
    /// Events taken in: the stream's version.
    pub version: u64,
    /// How it runs.
    pub limits: Limits,
    /// The instant its windows are counted from.
    pub anchor: Micros,
    /// The next window.
    pub next: Option<Micros>,
    /// The last window that ended or waits: claimed, missed, skipped or queued. No window up to it is ever due again.
    pub ended_up_to: Option<Micros>,
    /// The window that waits for the live run to end.
    pub queued: Option<Micros>,
    /// The window that nobody could run when it was looked at, and why.
    pub held: Option<(Micros, MissedReason)>,
    /// The next window is the first later than this, or than [`Routine::ended_up_to`].
    pub counted_from: Option<Micros>,
    /// The release of the time-zone data that was in use last.
    pub tzdb: Option<String>,
    /// Whether it is due at all.
    pub phase: Phase,
    /// What is live and what waits.
    pub target: Target,
}

/// A schedule is kept as its text, and read again.
mod as_text {
    use std::sync::Arc;

    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer, de::Error as _};

    use crate::calendar::Schedule;

    pub(super) fn serialize<S: Serializer>(schedule: &Option<Arc<Schedule>>, to: S) -> Result<S::Ok, S::Error> {
        schedule.as_ref().map(|schedule| schedule.to_json()).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Arc<Schedule>>, D::Error> {
        let text = Option::<String>::deserialize(from)?;
        text.map(|text| Schedule::parse(&text).map(Arc::new).map_err(D::Error::custom)).transpose()
    }
}

/// What can be asked of a routine.
#[derive(Clone, Debug)]
pub enum RoutineCommand {
    /// Make one.
    Create(Box<Create>),
    /// Change what is given.
    Edit(Box<Edit>),
    /// Switch it off.
    Pause {
        /// Why.
        reason: String,
    },
    /// Switch it on again; also after a suspension.
    Resume {
        /// The store's time.
        now: Micros,
    },
    /// Switch it off, because it cannot work.
    Suspend {
        /// What is wrong.
        cause: SuspendCause,
        /// In words.
        error: String,
    },
    /// Remove it from every list.
    Delete,
    /// Look at its windows.
    Tick(Tick),
    /// Look whether time-zone data of this release moves its next window.
    Rearm(&'static str),
    /// Run it now, whatever its windows say.
    RunNow {
        /// The run's id, derived from the request.
        run: RunId,
        /// Who claims.
        process: ProcessId,
    },
    /// Let a delivery wait for it.
    Queue(Queueing),
    /// Take the next delivery, if it is free.
    ClaimNext(ClaimNext),
    /// Its live run has ended.
    Settle {
        /// The run.
        run: RunId,
        /// How it ended.
        outcome: Outcome,
        /// Why.
        reason: Option<Reason>,
    },
}

/// A routine to make.
#[derive(Clone, Debug)]
pub struct Create {
    /// Its id.
    pub routine: RoutineId,
    /// Its name.
    pub name: String,
    /// Whose it is.
    pub owner: UserId,
    /// Who does the work; known and not retired, which the caller has seen in the Bot's own stream.
    pub bot: BotId,
    /// The schedule's JSON text.
    pub schedule: String,
    /// What to do.
    pub work: Work,
    /// How it runs.
    pub limits: Limits,
    /// The store's time.
    pub now: Micros,
}

/// Changes to a routine; what is absent stays.
#[derive(Clone, Debug, Default)]
pub struct Edit {
    /// A new name.
    pub name: Option<String>,
    /// A new schedule, as JSON text.
    pub schedule: Option<String>,
    /// New work.
    pub work: Option<Work>,
    /// New limits.
    pub limits: Option<Limits>,
    /// The store's time.
    pub now: Micros,
}

impl Routine {
    /// The id and schedule of a routine that was created and not deleted.
    ///
    /// # Errors
    /// [`Refusal::NotFound`].
    pub fn existing(&self) -> Result<RoutineId, Refusal> {
        match (self.phase, self.id) {
            (Phase::Active | Phase::Paused | Phase::Suspended, Some(id)) => Ok(id),
            (Phase::Absent | Phase::Deleted, _) | (_, None) => Err(Refusal::NotFound("routine")),
        }
    }

    /// Whether windows and waiting deliveries may start a run.
    #[must_use]
    pub fn may_start(&self) -> bool {
        self.phase == Phase::Active
    }

    /// A deleted routine stays deleted, and one that was never created stays absent.
    fn turn(&mut self, phase: Phase) {
        if self.existing().is_ok() {
            self.phase = phase;
        }
    }

    /// A window has ended or waits; one that had waited does so no more.
    fn ended(&mut self, window: Micros, next: Option<Micros>) {
        self.ended_up_to = self.ended_up_to.max(Some(window));
        // Not those before it: one that waits has still to end when a later one has ended.
        self.queued = self.queued.filter(|queued| *queued != window);
        self.held = self.held.filter(|(held, _)| *held != window);
        self.next = next;
    }

    /// The next window was looked for anew at `at`; what waited or was held does not exist any more.
    fn counts_from(&mut self, at: Micros, next: Option<Micros>) {
        self.queued = None;
        self.held = None;
        self.next = next;
        self.counted_from = Some(windows::just_before(next.map_or(at, |next| next.min(at))));
    }

    fn off(&mut self, phase: Phase) {
        self.turn(phase);
        self.queued = None;
        self.held = None;
    }

    fn create(&self, create: Create) -> Result<Vec<New<RoutineEvent>>, Refusal> {
        if self.id.is_some() {
            return Err(Refusal::Exists("routine"));
        }
        named("routine", &create.name)?;
        let work = work_kind(&create.work)?;
        check_limits(&create.limits)?;
        let schedule = parse(&create.schedule)?;
        if schedule.once_at().is_some_and(|at| at < create.now) {
            return Err(Refusal::Invalid("the one time of this schedule has passed; choose a later `at`".to_owned()));
        }
        let next_us = windows::first(&schedule, create.routine, create.now, create.limits.grace_s);
        let facts = RoutineEvent::Created {
            routine: create.routine,
            name: create.name,
            owner: create.owner,
            bot: create.bot,
            schedule: schedule.to_json(),
            work,
            limits: create.limits,
            anchor_us: create.now,
            next_us,
        };
        Ok(vec![New::with(facts, RoutineContent::Created(create.work))])
    }

    fn edit(&self, edit: Edit) -> Result<Vec<New<RoutineEvent>>, Refusal> {
        self.existing()?;
        let mut events = Vec::new();
        if let Some(name) = edit.name.filter(|name| *name != self.name) {
            named("routine", &name)?;
            events.push(RoutineEvent::Renamed { name }.into());
        }
        let limits = edit.limits.filter(|limits| *limits != self.limits);
        limits.as_ref().map(check_limits).transpose()?;
        let mut after = self.clone();
        after.limits = limits.clone().unwrap_or(after.limits);
        let mut rescheduled = None;
        if let Some(text) = edit.schedule {
            let schedule = parse(&text)?;
            let text = schedule.to_json();
            if text != self.schedule_text {
                if schedule.once_at().is_some_and(|at| at < edit.now) {
                    let sentence = "the one time of this schedule has passed; choose a later `at`";
                    return Err(Refusal::Invalid(sentence.to_owned()));
                }
                let next_us = after.next_from(&schedule, edit.now, edit.now);
                rescheduled = Some(RoutineEvent::Rescheduled { schedule: text, anchor_us: edit.now, next_us });
            }
        }
        let rearmed = after.rearm_for_max_runs(edit.now).filter(|_| limits.is_some() && rescheduled.is_none());
        events.extend(rescheduled.map(New::from));
        if let Some(work) = edit.work {
            let kind = work_kind(&work)?;
            events.push(New::with(RoutineEvent::WorkReplaced { work: kind }, RoutineContent::WorkReplaced(work)));
        }
        events.extend(limits.map(|limits| New::from(RoutineEvent::LimitsReplaced { limits })));
        events.extend(rearmed.map(New::from));
        Ok(events)
    }

    /// Another number of runs ends the routine, or begins it again: windows before this instant then do not exist.
    fn rearm_for_max_runs(&self, now: Micros) -> Option<RoutineEvent> {
        let cause = RearmCause::MaxRuns;
        match (self.over_max_runs(), self.next) {
            (true, Some(_)) => Some(RoutineEvent::Rearmed { next_us: None, cause, tzdb: None }),
            (false, None) => {
                let next_us = self.next_from(self.schedule.as_ref()?, now, self.anchor);
                next_us.map(|_| RoutineEvent::Rearmed { next_us, cause, tzdb: None })
            }
            (true, None) | (false, Some(_)) => None,
        }
    }

    fn resume(&self, now: Micros) -> Result<Vec<New<RoutineEvent>>, Refusal> {
        self.existing()?;
        if self.phase == Phase::Active {
            return Err(Refusal::AlreadySo("this routine is not paused"));
        }
        let schedule = self.schedule.as_ref().ok_or_else(|| {
            Refusal::Invalid("its schedule cannot be read; give it a new one with `midwatch routine edit`".to_owned())
        })?;
        let next_us = self.next_from(schedule, now, self.anchor);
        Ok(vec![RoutineEvent::Resumed { next_us }.into()])
    }

    fn run_now(&self, run: RunId, process: ProcessId) -> Result<Vec<New<RoutineEvent>>, Refusal> {
        self.existing()?;
        if let Some(live) = self.target.live {
            return Err(Refusal::Busy { live });
        }
        Ok(vec![
            RoutineEvent::RunClaimed(RunClaimed {
                bot: self.bot,
                run,
                cause: Cause::Person,
                window_us: None,
                delivery: None,
                redelivery: None,
                claimed_by: process,
                tzdb: None,
                // Run now does not eat the next window.
                next_us: self.next,
            })
            .into(),
        ])
    }
}

/// The keys under which `events` of one append are recognised for ever: a window is claimed or missed once.
#[must_use]
pub fn keys(routine: RoutineId, events: &[New<RoutineEvent>]) -> Vec<Key> {
    let id = routine.to_string();
    let mut keys = Vec::new();
    for event in events {
        if let RoutineEvent::RunClaimed(claim) = &event.facts {
            if let Some(window) = claim.window_us {
                keys.push(claim_key(&id, &[&window.0.to_string()]));
            } else if let Some(delivery) = claim.delivery {
                keys.push(delivery_key(&id, delivery, claim.redelivery));
            }
        } else if let RoutineEvent::WindowsMissed { last_us, .. } = &event.facts {
            let last = last_us.0.to_string();
            keys.push(Key::new(&["missed", &id, &last], &[id.as_bytes(), last.as_bytes()]));
        }
    }
    keys
}

fn parse(text: &str) -> Result<Schedule, Refusal> {
    Schedule::parse(text).map_err(|error| Refusal::Invalid(error.to_string()))
}

fn work_kind(work: &Work) -> Result<WorkKind, Refusal> {
    match (&work.instruction, &work.recording) {
        (Some(instruction), None) if !instruction.trim().is_empty() => Ok(WorkKind::Instruction),
        (None, Some(recording)) => {
            crate::recording::Recording::parse(recording).map_err(Refusal::Invalid)?;
            Ok(WorkKind::Recording)
        }
        (Some(_), None) => Err(Refusal::Invalid("the instruction is empty; say what the Bot is to do".to_owned())),
        _ => Err(Refusal::Invalid("give either an instruction or a recording".to_owned())),
    }
}

fn target_events(events: Vec<TargetEvent>, bot: Option<BotId>, next: Option<Micros>) -> Vec<New<RoutineEvent>> {
    let family = |event| match event {
        TargetEvent::Queued(queued) => RoutineEvent::DeliveryQueued(queued),
        TargetEvent::Taken(delivery, run) => RoutineEvent::DeliveryTaken { delivery, run },
        TargetEvent::Dropped(delivery, reason) => RoutineEvent::DeliveryDropped { delivery, reason },
        TargetEvent::Claimed(claim) => RoutineEvent::RunClaimed(RunClaimed { bot, next_us: next, ..claim }),
    };
    events.into_iter().map(|event| New::from(family(event))).collect()
}

impl Decider for Routine {
    type Event = RoutineEvent;
    type Command = RoutineCommand;

    const FOLD_VERSION: u32 = 2;

    fn rests_on_instant(event: &RoutineEvent) -> bool {
        matches!(event, RoutineEvent::Resumed { .. } | RoutineEvent::Rearmed { .. })
    }

    fn decide(&self, command: RoutineCommand) -> Result<Vec<New<RoutineEvent>>, Refusal> {
        match command {
            RoutineCommand::Create(create) => self.create(*create),
            RoutineCommand::Edit(edit) => self.edit(*edit),
            RoutineCommand::Pause { reason } => {
                self.existing()?;
                if self.phase == Phase::Paused {
                    return Err(Refusal::AlreadySo("this routine is paused already"));
                }
                let content = (!reason.is_empty()).then_some(RoutineContent::Paused { reason });
                Ok(vec![New { facts: RoutineEvent::Paused {}, content }])
            }
            RoutineCommand::Resume { now } => self.resume(now),
            RoutineCommand::Suspend { cause, error } => {
                self.existing()?;
                if self.phase != Phase::Active {
                    return Ok(vec![]);
                }
                Ok(vec![New::with(RoutineEvent::Suspended { cause }, RoutineContent::Suspended { error })])
            }
            RoutineCommand::Delete => {
                self.existing()?;
                let mut events = vec![RoutineEvent::Deleted {}.into()];
                events.extend(target_events(self.target.drop_all(), self.bot, self.next));
                Ok(events)
            }
            RoutineCommand::Tick(tick) => Ok(self.tick(&tick)),
            RoutineCommand::Rearm(tzdb) => {
                let (Phase::Active, Some(schedule)) = (self.phase, self.schedule.as_ref()) else { return Ok(vec![]) };
                Ok(zone_data::rearmed(self, schedule, tzdb).into_iter().map(New::from).collect())
            }
            RoutineCommand::RunNow { run, process } => self.run_now(run, process),
            RoutineCommand::Queue(asked) => {
                Ok(target_events(self.target.queue(asked, self.existing().is_err()), self.bot, self.next))
            }
            RoutineCommand::ClaimNext(claim) => {
                let Ok(id) = self.existing() else { return Ok(vec![]) };
                // A window that waits goes first.
                let may_start = self.may_start() && self.queued.is_none();
                Ok(target_events(self.target.claim_next(&id.to_string(), claim, may_start), self.bot, self.next))
            }
            RoutineCommand::Settle { run, outcome, reason } => {
                if self.target.live != Some(run) {
                    return Ok(vec![]);
                }
                let mut events =
                    vec![RoutineEvent::RunSettled(RunSettled { bot: self.bot, run, outcome, reason }).into()];
                if self.phase == Phase::Active && self.target.failures_after(outcome) >= FAILURES_MAX {
                    let error = format!("{FAILURES_MAX} runs in a row did not succeed");
                    let facts = RoutineEvent::Suspended { cause: SuspendCause::Failing };
                    events.push(New::with(facts, RoutineContent::Suspended { error }));
                }
                Ok(events)
            }
        }
    }

    fn evolve(&mut self, event: &RoutineEvent, at: Micros) {
        self.version += 1;
        match event {
            RoutineEvent::Created { .. } if self.id.is_some() => {}
            RoutineEvent::Created { routine, name, owner, bot, schedule, work, limits, anchor_us, next_us } => {
                self.id = Some(*routine);
                self.name.clone_from(name);
                self.owner = Some(*owner);
                self.bot = Some(*bot);
                self.schedule_text.clone_from(schedule);
                self.schedule = Schedule::parse(schedule).ok().map(Arc::new);
                self.work = Some(*work);
                self.work_at = self.version;
                self.limits = limits.clone();
                self.anchor = *anchor_us;
                self.counts_from(*anchor_us, *next_us);
                self.phase = Phase::Active;
            }
            RoutineEvent::Renamed { name } => self.name.clone_from(name),
            RoutineEvent::Rescheduled { schedule, anchor_us, next_us } => {
                self.schedule_text.clone_from(schedule);
                self.schedule = Schedule::parse(schedule).ok().map(Arc::new);
                self.anchor = *anchor_us;
                self.counts_from(*anchor_us, *next_us);
            }
            RoutineEvent::WorkReplaced { work } => {
                self.work = Some(*work);
                self.work_at = self.version;
            }
            RoutineEvent::LimitsReplaced { limits } => self.limits = limits.clone(),
            RoutineEvent::Paused {} => self.off(Phase::Paused),
            RoutineEvent::Suspended { .. } => self.off(Phase::Suspended),
            RoutineEvent::Deleted {} => self.off(Phase::Deleted),
            RoutineEvent::Resumed { next_us } => {
                self.turn(Phase::Active);
                self.counts_from(at, *next_us);
                self.target.failures = 0;
            }
            RoutineEvent::Rearmed { next_us, cause: RearmCause::Lifted | RearmCause::MaxRuns, .. } => {
                self.counts_from(at, *next_us);
            }
            RoutineEvent::Rearmed { next_us, cause: RearmCause::ZoneData, tzdb } => {
                self.next = *next_us;
                self.held = None;
                self.tzdb.clone_from(tzdb);
            }
            RoutineEvent::WindowQueued { window_us, next_us, .. } => {
                self.ended(*window_us, *next_us);
                self.queued = Some(*window_us);
            }
            RoutineEvent::WindowHeld { window_us, reason, .. } => self.held = Some((*window_us, *reason)),
            RoutineEvent::WindowsMissed { last_us, next_us, .. } => self.ended(*last_us, *next_us),
            RoutineEvent::WindowSkipped { window_us, next_us, .. } => self.ended(*window_us, *next_us),
            RoutineEvent::RunClaimed(claim) => {
                self.target.claimed(claim);
                match claim.window_us {
                    Some(window) => {
                        self.ended(window, claim.next_us);
                        self.tzdb.clone_from(&claim.tzdb);
                    }
                    None => self.next = claim.next_us,
                }
            }
            RoutineEvent::RunSettled(settled) => self.target.settled(settled),
            RoutineEvent::DeliveryQueued(queued) => self.target.queued(queued),
            RoutineEvent::DeliveryTaken { delivery, .. } | RoutineEvent::DeliveryDropped { delivery, .. } => {
                self.target.left_queue(*delivery);
            }
        }
    }
}

#[cfg(test)]
mod tests;
