//! Claims and settles: the two appends that make a target busy and free again. Hold promise 1.
//!
//! A claim is one append over the target's stream, at the version that was loaded, and the run's stream; it carries
//! the condition that the halt is at the version that was read, and a key under which the same window, request or
//! delivery can never be claimed again. A settle is one append too: the run's ending and the target's freedom.

mod ahead;
mod pace;
mod settles;

use std::time::Duration;

use midwatch_commands::{
    Decider, Refusal, calendar,
    engine::Engine as Deployment,
    mutant::{Mutant, active},
    reactions::TargetId,
    routine::{self, Routine, RoutineCommand, Tick},
    run::{End, Run, RunCommand},
    trigger::{self, Trigger, TriggerCommand},
};
use midwatch_events::{
    Actor, Family, Micros, New, StreamName,
    delivery::Received,
    id::{BotId, RoutineId, RunId, TriggerId, UserId},
    key::Key,
    routine::{Limits, MissedReason, RoutineEvent, RunClaimed, Work},
    run::{Cause, Opened, Outcome, Reason, WorkKind},
    trigger::{TriggerContent, TriggerEvent},
};
use midwatch_log::{AppendError, Pending};

pub(crate) use ahead::{ReadAhead, read_ahead};
use pace::CATCH_UP_EVERY_US;
pub(crate) use pace::Pace;
pub(crate) use settles::SettleOn;

use crate::{
    Done, Engine, EngineError, Origin,
    behind::{Behind, gone_refusal},
    handle::{Loaded, Plan, TRIES, contended},
    lane::Turn,
};

/// What became of a command on a target.
#[derive(Clone, Debug, Default)]
pub struct Claimed {
    /// The run that was opened now, if one was.
    pub run: Option<RunId>,
    /// Whether anything was appended at all.
    pub appended: bool,
    /// Somebody had claimed the same before.
    pub duplicate: bool,
    /// A catch-up waits so long for its turn.
    pub turn_in: Option<Duration>,
}

/// With what a routine's windows are looked at.
#[derive(Clone, Copy, Debug)]
pub struct Ticking {
    /// The store's time.
    pub now: Micros,
    /// Whether somebody is there who executes runs.
    pub runner: bool,
    /// Whether it is this routine's turn to catch up.
    pub turn: bool,
}

impl Engine {
    /// Decides one command on a routine and appends what follows, with the run it opens, if it opens one; a halt refuses
    /// that.
    ///
    /// `extra` are further keys of the append: a request's, or a reaction's.
    ///
    /// # Errors
    /// The routine's refusal, [`Refusal::Halted`], or a fault.
    #[tracing::instrument(name = "claim", level = "debug", skip_all)]
    pub async fn claim_on_routine(
        &self,
        id: RoutineId,
        origin: &Origin,
        extra: impl IntoIterator<Item = Key>,
        command: impl Fn(&Routine) -> RoutineCommand,
    ) -> Result<Done<Claimed>, EngineError> {
        let extra: Vec<Key> = extra.into_iter().collect();
        self.on_routine(id, origin, &extra, Asked::Command(command), None).await
    }

    async fn on_routine<C: Fn(&Routine) -> RoutineCommand>(
        &self,
        id: RoutineId,
        origin: &Origin,
        extra: &[Key],
        asked: Asked<C>,
        ahead: Option<ReadAhead>,
    ) -> Result<Done<Claimed>, EngineError> {
        let stream = StreamName::routine(id);
        let under = asked.under();
        let (mut ahead, work) = ahead.map_or((None, None), |ahead| (Some(ahead.loaded), ahead.work));
        // Whoever appends nothing is answered on what is durable only.
        let mut durable = false;
        for attempt in 0..TRIES {
            let halt = self.halt_known(attempt > 0).await?;
            let turn = self.enter_with::<Routine>(&stream, durable, ahead.take()).await?;
            let loaded = turn.loaded();
            let behind = self.behind((loaded.state.bot, loaded.state.owner), attempt > 0).await?;
            let around = Around { halt, behind };
            let decided = self.decided(&loaded.state, &around, &asked);
            let nothing = match &decided {
                Ok((events, _)) => events.is_empty(),
                Err(_) => true,
            };
            if nothing && !turn.is_durable() {
                durable = true;
                continue;
            }
            let (mut events, turn_in) = decided?;
            let mut claim = claim_in(&events);
            if let (Some(found), Some(gone)) = (&claim, around.behind.gone) {
                if found.cause == Cause::Person {
                    return Err(gone_refusal(gone).into());
                }
                let error = gone_refusal(gone).to_string();
                events = loaded.state.decide(RoutineCommand::Suspend { cause: gone, error })?;
                claim = None;
            }
            let mut plan = Plan::default();
            let keys = routine::keys(id, &events).into_iter().filter(|_| !active(Mutant::ClaimWithoutKey));
            keys.chain(extra.iter().copied()).for_each(|key| plan.key(key));
            if under == Under::All || claim.is_some() {
                around.behind.condition(&mut plan);
            }
            let opened = match &claim {
                None => None,
                Some(claim) => Some(self.open_for_routine(loaded, claim, work.as_ref()).await?),
            };
            if let Some(replaced) = claim.as_ref().and_then(|_| replaced_in(&events)) {
                self.replace(&mut plan, replaced, origin).await?;
            }
            let slot = asked.slot(id).filter(|_| claim.as_ref().is_some_and(|claim| claim.cause == Cause::CatchUp));
            slot.into_iter().for_each(|slot| plan.key(slot));
            let claiming = Claiming { stream: &stream, turn, events: &events, opened, under, slot };
            if let Some(mut done) = self.claim(plan, claiming, &around.halt, origin).await? {
                done.value.turn_in = done.value.turn_in.or(turn_in);
                return Ok(done);
            }
        }
        Err(contended(&stream))
    }

    /// What is decided of a routine; and, where a catch-up has to wait for its turn, for how long.
    fn decided<C: Fn(&Routine) -> RoutineCommand>(
        &self,
        routine: &Routine,
        around: &Around,
        asked: &Asked<C>,
    ) -> Result<(Vec<New<RoutineEvent>>, Option<Duration>), EngineError> {
        let ticking = match asked {
            Asked::Command(command) => return Ok((routine.decide(command(routine))?, None)),
            Asked::Tick(ticking) => ticking,
        };
        // What was lifted is read together with the version that becomes the append's condition: after a halt and its
        // lift, no window before the lift can be claimed on what was so before.
        let tick = |catch_up| Tick {
            now: ticking.now,
            process: self.process(),
            namespace: self.namespace(),
            lifted_at: around.halt.state.lifted_at,
            tzdb: calendar::tzdb_version(),
            // A recording needs no endpoint.
            unable: match (ticking.runner, around.behind.unreachable && routine.work == Some(WorkKind::Instruction)) {
                (false, _) => Some(MissedReason::NoRunner),
                (true, true) => Some(MissedReason::BotUnreachable),
                (true, false) => None,
            },
            catch_up,
        };
        let events = routine.decide(RoutineCommand::Tick(tick(true)))?;
        if ticking.turn || claim_in(&events).is_none_or(|claim| claim.cause != Cause::CatchUp) {
            return Ok((events, None));
        }
        match self.pace().reserve(self.world().clock.monotonic()) {
            None => Ok((events, None)),
            waits => Ok((routine.decide(RoutineCommand::Tick(tick(false)))?, waits)),
        }
    }

    /// Whether scheduling is halted, as this process knows it, unless it knows that it is: what is known too long is
    /// found by the append's condition.
    async fn halt_known(&self, fresh: bool) -> Result<Loaded<Deployment>, EngineError> {
        match self.known::<Deployment>(&StreamName::halt()) {
            Some(known) if !fresh && known.state.halted.is_none() && !self.opening().halted => Ok(known),
            Some(_) | None => self.halt().await,
        }
    }

    /// Ends the run that another takes the place of, in the same append.
    async fn replace(&self, plan: &mut Plan, run: RunId, origin: &Origin) -> Result<(), EngineError> {
        let stream = StreamName::run(run);
        let loaded = self.load::<Run>(&stream).await?;
        let end = End {
            take: None,
            outcome: Outcome::Cancelled,
            reason: Some(Reason::Replaced),
            headline: "A newer window took its place".to_owned(),
            error: None,
            now: self.log().store_time().await?,
        };
        let events = loaded.state.decide(RunCommand::End(end))?;
        let origin = origin.clone().within(&stream);
        plan.add(self.world(), &stream, loaded.version, &events, &origin).map(|_| ())
    }

    /// The same on a trigger with an instruction of its own.
    ///
    /// # Errors
    /// As [`Engine::claim_on_routine`].
    #[tracing::instrument(name = "claim", level = "debug", skip_all)]
    pub async fn claim_on_trigger(
        &self,
        id: TriggerId,
        origin: &Origin,
        extra: impl IntoIterator<Item = Key>,
        command: impl Fn(&Trigger) -> TriggerCommand,
    ) -> Result<Done<Claimed>, EngineError> {
        let stream = StreamName::trigger(id);
        let extra: Vec<Key> = extra.into_iter().collect();
        for attempt in 0..TRIES {
            let halt = self.halt().await?;
            let decide = |loaded: &Loaded<Trigger>| loaded.state.decide(command(&loaded.state));
            let Some((turn, mut events)) = self.decide::<Trigger>(&stream, decide).await? else {
                let position = self.log().head().await?;
                return Ok(Done { value: Claimed::default(), position, duplicate: false });
            };
            let mut claim = events.iter().find_map(|event| match &event.facts {
                TriggerEvent::RunClaimed(claim) => Some(claim.clone()),
                _ => None,
            });
            let mut plan = Plan::default();
            if claim.is_some() {
                let state = &turn.loaded().state;
                let behind = self.behind((state.bot, state.owner), attempt > 0).await?;
                behind.condition(&mut plan);
                if behind.gone.is_some() {
                    // Nobody is left to work for it: its door closes, and what waits is dropped.
                    events = state.decide(TriggerCommand::Close)?;
                    claim = None;
                }
            }
            trigger::keys(id, &events).into_iter().chain(extra.iter().copied()).for_each(|key| plan.key(key));
            let opened = match &claim {
                None => None,
                Some(claim) => Some(self.open_for_trigger(id, &turn.loaded().state, claim).await?),
            };
            let under = Under::ClaimsOnly;
            let claimed = Claiming { stream: &stream, turn, events: &events, opened, under, slot: None };
            if let Some(done) = self.claim(plan, claimed, &halt, origin).await? {
                return Ok(done);
            }
        }
        Err(contended(&stream))
    }

    /// Appends a claim; none on a conflict.
    async fn claim<D: Decider>(
        &self,
        mut plan: Plan,
        claiming: Claiming<'_, D>,
        halt: &Loaded<Deployment>,
        origin: &Origin,
    ) -> Result<Option<Done<Claimed>>, EngineError> {
        let Claiming { stream, turn, events, opened, under, slot } = claiming;
        if events.is_empty() {
            let position = self.log().head().await?;
            return Ok(Some(Done { value: Claimed::default(), position, duplicate: false }));
        }
        let run = opened.as_ref().map(|(opened, _)| opened.run);
        let origin = run.map_or_else(|| origin.clone(), |run| origin.clone().within(&StreamName::run(run)));
        let last = plan.add(self.world(), stream, turn.expected(), events, &origin)?;
        if opened.is_some() || under == Under::All {
            if halt.state.halted.is_some() {
                return Err(Refusal::Halted.into());
            }
            if !active(Mutant::ClaimIgnoresHalt) {
                plan.condition(StreamName::halt(), halt.version);
            }
        }
        if let Some((opened, work)) = opened {
            let run = StreamName::run(opened.run);
            let events = Run::default().decide(RunCommand::Open(Box::new(opened), work))?;
            let caused = last.map_or_else(|| origin.clone(), |event| origin.clone().because(event));
            plan.add(self.world(), &run, 0, &events, &caused)?;
        }
        let appended = match turn.append(plan, events).await {
            Ok(appended) => appended,
            Err(AppendError::Conflict { .. }) => return Ok(None),
            // Another catch-up of the deployment has this moment.
            Err(AppendError::KeyReused { key_hash, .. }) if slot.is_some_and(|slot| slot.hash == key_hash) => {
                let turn_in = Some(self.pace().next(self.world().clock.monotonic()));
                let position = self.log().head().await?;
                let value = Claimed { turn_in, ..Claimed::default() };
                return Ok(Some(Done { value, position, duplicate: false }));
            }
            Err(error) => return Err(error.into()),
        };
        // Of a duplicate it is not known which run it stands for: the key may be a reaction's that claimed another.
        let run = run.filter(|_| !appended.duplicate);
        let value = Claimed { run, appended: !appended.duplicate, duplicate: appended.duplicate, turn_in: None };
        Ok(Some(Done { value, position: appended.last(), duplicate: appended.duplicate }))
    }

    async fn open_for_routine(
        &self,
        loaded: &Loaded<Routine>,
        claim: &RunClaimed,
        known: Option<&(u64, Work)>,
    ) -> Result<(Opened, Work), EngineError> {
        let routine = &loaded.state;
        let id = routine.existing()?;
        let work = match known {
            Some((version, work)) if *version == routine.work_at => work.clone(),
            _ => self.routine_work(id, routine.work_at).await?,
        };
        let limits = Some(&routine.limits);
        let mut opened = self.opened(claim, routine.bot.zip(routine.owner), limits, routine.work).await?;
        opened.routine = Some(id);
        Ok((opened, work))
    }

    async fn open_for_trigger(
        &self,
        id: TriggerId,
        trigger: &Trigger,
        claim: &RunClaimed,
    ) -> Result<(Opened, Work), EngineError> {
        let created = self.log().read_stream(&StreamName::trigger(id), 1, 1).await?;
        let work = match created.first().map(|event| event.content::<TriggerEvent>()).transpose()?.flatten() {
            Some(TriggerContent::Created(work)) => work,
            None => Work::default(),
        };
        let kind = Some(WorkKind::Instruction);
        let mut opened = self.opened(claim, trigger.bot.zip(trigger.owner), Some(&trigger.limits), kind).await?;
        opened.trigger = Some(id);
        Ok((opened, work))
    }

    async fn opened(
        &self,
        claim: &RunClaimed,
        who: Option<(BotId, UserId)>,
        limits: Option<&Limits>,
        work: Option<WorkKind>,
    ) -> Result<Opened, EngineError> {
        let ((bot, owner), Some(limits), Some(work)) = (who.ok_or(Refusal::NotFound("Bot"))?, limits, work) else {
            return Err(Refusal::NotFound("routine").into());
        };
        let received = match claim.delivery {
            None => None,
            Some(delivery) => self.received(delivery).await?,
        };
        Ok(Opened {
            run: claim.run,
            bot,
            owner,
            routine: None,
            trigger: received.as_ref().map(|received| received.trigger),
            delivery: claim.delivery,
            event_type: received.and_then(|received| received.event_type),
            cause: claim.cause,
            window_us: claim.window_us,
            work,
            deadline_s: limits.deadline_s,
            max_turns: limits.max_turns,
            unattended: true,
            retry: limits.retry,
        })
    }

    async fn received(&self, id: midwatch_events::id::DeliveryId) -> Result<Option<Received>, EngineError> {
        let delivery = self.load::<midwatch_commands::delivery::Delivery>(&StreamName::delivery(id)).await?;
        Ok(delivery.state.received)
    }

    /// The work a routine does: the content of the event at `version` of its stream.
    async fn routine_work(&self, id: RoutineId, version: u64) -> Result<Work, EngineError> {
        let events = self.log().read_stream(&StreamName::routine(id), version, 1).await?;
        let work = events.first().map(ahead::work_in).transpose()?.flatten();
        let erased = || Refusal::Invalid("this routine's work was erased; give it new work".to_owned()).into();
        work.ok_or_else(erased)
    }

    /// Takes what waits for a target, if the target is free: a window that waits goes before the queue's next delivery.
    ///
    /// # Errors
    /// [`Refusal::Halted`], or a fault.
    pub fn claim_next<'a>(
        &'a self,
        target: TargetId,
        origin: &'a Origin,
        key: Option<Key>,
    ) -> Pending<'a, Done<Claimed>, EngineError> {
        Box::pin(async move {
            let now = self.log().store_time().await?;
            let next =
                midwatch_commands::target::ClaimNext { namespace: self.namespace(), process: self.process(), now };
            match target {
                TargetId::Routine(id) => {
                    let routine = self.load::<Routine>(&StreamName::routine(id)).await?.state;
                    if routine.queued.is_some() && routine.target.live.is_none() {
                        return self.tick_as(id, Ticking { now, runner: true, turn: true }).await;
                    }
                    self.claim_on_routine(id, origin, key, |_| RoutineCommand::ClaimNext(next)).await
                }
                TargetId::Trigger(id) => {
                    self.claim_on_trigger(id, origin, key, |_| TriggerCommand::ClaimNext(next)).await
                }
            }
        })
    }

    /// Looks at a routine's windows, as if somebody were there to run it.
    ///
    /// # Errors
    /// [`Refusal::Halted`], or a fault.
    pub fn tick(&self, id: RoutineId) -> Pending<'_, Done<Claimed>, EngineError> {
        Box::pin(async move {
            let now = self.log().store_time().await?;
            self.tick_as(id, Ticking { now, runner: true, turn: true }).await
        })
    }

    /// Looks at a routine's windows.
    ///
    /// # Errors
    /// [`Refusal::Halted`], or a fault.
    pub fn tick_as(&self, id: RoutineId, ticking: Ticking) -> Pending<'_, Done<Claimed>, EngineError> {
        Box::pin(async move { self.tick_ahead(id, ticking, None).await })
    }

    /// As [`Engine::tick_as`], on what was read of the routine before.
    pub(crate) async fn tick_ahead(
        &self,
        id: RoutineId,
        ticking: Ticking,
        ahead: Option<ReadAhead>,
    ) -> Result<Done<Claimed>, EngineError> {
        let wall = active(Mutant::LatenessByWallClock).then(|| self.world().clock.now());
        let ticking = Ticking { now: wall.unwrap_or(ticking.now), ..ticking };
        let asked = Asked::<fn(&Routine) -> RoutineCommand>::Tick(ticking);
        self.on_routine(id, &Origin::of(Actor::Clock), &[], asked, ahead).await
    }
}

/// What a halt stands in the way of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Under {
    /// Of runs that would be opened.
    ClaimsOnly,
    /// Of everything: a window under a halt does not exist, so nothing is recorded about it either.
    All,
}

struct Claiming<'a, D: Decider> {
    stream: &'a StreamName,
    turn: Turn<D>,
    events: &'a [New<D::Event>],
    opened: Option<(Opened, Work)>,
    under: Under,
    /// The moment of a catch-up.
    slot: Option<Key>,
}

/// What a routine is asked, and under what.
enum Asked<C> {
    Command(C),
    Tick(Ticking),
}

impl<C> Asked<C> {
    fn under(&self) -> Under {
        match self {
            Self::Command(_) => Under::ClaimsOnly,
            Self::Tick(_) => Under::All,
        }
    }

    /// The key of the moment at which a catch-up starts: one is started in each tenth of a second of the store's time,
    /// by whichever process comes first.
    fn slot(&self, id: RoutineId) -> Option<Key> {
        let Self::Tick(ticking) = self else { return None };
        let tenth = ticking.now.0.div_euclid(CATCH_UP_EVERY_US).to_string();
        Some(Key::new(&["catch_up", &tenth], &[tenth.as_bytes(), id.to_string().as_bytes()]))
    }
}

/// What a decision on a routine rests on besides the routine.
struct Around {
    halt: Loaded<Deployment>,
    behind: Behind,
}

fn claim_in(events: &[New<RoutineEvent>]) -> Option<RunClaimed> {
    events.iter().find_map(|event| match &event.facts {
        RoutineEvent::RunClaimed(claim) => Some(claim.clone()),
        _ => None,
    })
}

/// The run whose place the claim among `events` takes.
fn replaced_in(events: &[New<RoutineEvent>]) -> Option<RunId> {
    events.iter().find_map(|event| match &event.facts {
        RoutineEvent::RunSettled(settled) => Some(settled.run),
        _ => None,
    })
}

fn add_some<F: Family>(
    engine: &Engine,
    plan: &mut Plan,
    stream: &StreamName,
    version: u64,
    events: &[New<F>],
    origin: &Origin,
) -> Result<(), EngineError> {
    if !events.is_empty() {
        plan.add(engine.world(), stream, version, events, origin)?;
    }
    Ok(())
}
