//! Claims and settles: the two appends that make a target busy and free again. Hold promise 1.
//!
//! A claim is one append over the target's stream, at the version that was loaded, and the run's stream; it carries
//! the condition that the halt is at the version that was read, and a key under which the same window, request or
//! delivery can never be claimed again. A settle is one append too: the run's ending and the target's freedom.

use midwatch_commands::{
    Decider, Refusal,
    engine::Engine as Deployment,
    reactions::TargetId,
    routine::{self, Routine, RoutineCommand},
    run::{End, Run, RunCommand},
    trigger::{self, Trigger, TriggerCommand},
};
use midwatch_events::{
    Actor, Family, New, StreamName,
    delivery::Received,
    id::{RoutineId, RunId, TriggerId},
    key::Key,
    routine::{Limits, RoutineContent, RoutineEvent, RunClaimed, Work},
    run::{Opened, WorkKind},
    trigger::{TriggerContent, TriggerEvent},
};

use crate::{
    Done, Engine, EngineError, Origin,
    handle::{Loaded, Plan, TRIES},
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
        self.on_routine(id, origin, extra, Under::ClaimsOnly, |routine, _| command(routine)).await
    }

    async fn on_routine(
        &self,
        id: RoutineId,
        origin: &Origin,
        extra: impl IntoIterator<Item = Key>,
        under: Under,
        command: impl Fn(&Routine, &Deployment) -> RoutineCommand,
    ) -> Result<Done<Claimed>, EngineError> {
        let stream = StreamName::routine(id);
        let extra: Vec<Key> = extra.into_iter().collect();
        for _ in 0..TRIES {
            let halt = self.halt().await?;
            let loaded = self.load::<Routine>(&stream).await?;
            let events = loaded.state.decide(command(&loaded.state, &halt.state))?;
            let claim = events.iter().find_map(|event| match &event.facts {
                RoutineEvent::RunClaimed(claim) => Some(claim.clone()),
                _ => None,
            });
            let mut plan = Plan::default();
            routine::keys(id, &events).into_iter().chain(extra.iter().copied()).for_each(|key| plan.key(key));
            let opened = match &claim {
                None => None,
                Some(claim) => Some(self.open_for_routine(&loaded, claim).await?),
            };
            let claimed = Claiming { stream: &stream, version: loaded.version, events: &events, opened, under };
            if let Some(done) = self.claim(plan, claimed, &halt, origin).await? {
                return Ok(done);
            }
        }
        Err(contended(&stream))
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
        for _ in 0..TRIES {
            let halt = self.halt().await?;
            let loaded = self.load::<Trigger>(&stream).await?;
            let events = loaded.state.decide(command(&loaded.state))?;
            let claim = events.iter().find_map(|event| match &event.facts {
                TriggerEvent::RunClaimed(claim) => Some(claim.clone()),
                _ => None,
            });
            let mut plan = Plan::default();
            trigger::keys(id, &events).into_iter().chain(extra.iter().copied()).for_each(|key| plan.key(key));
            let opened = match &claim {
                None => None,
                Some(claim) => Some(self.open_for_trigger(id, &loaded.state, claim).await?),
            };
            let under = Under::ClaimsOnly;
            let claimed = Claiming { stream: &stream, version: loaded.version, events: &events, opened, under };
            if let Some(done) = self.claim(plan, claimed, &halt, origin).await? {
                return Ok(done);
            }
        }
        Err(contended(&stream))
    }

    /// Appends a claim; none on a conflict.
    async fn claim<F: Family>(
        &self,
        mut plan: Plan,
        claiming: Claiming<'_, F>,
        halt: &Loaded<Deployment>,
        origin: &Origin,
    ) -> Result<Option<Done<Claimed>>, EngineError> {
        let Claiming { stream, version, events, opened, under } = claiming;
        if events.is_empty() {
            let position = self.log().head().await?;
            return Ok(Some(Done { value: Claimed::default(), position, duplicate: false }));
        }
        let run = opened.as_ref().map(|(opened, _)| opened.run);
        let origin = run.map_or_else(|| origin.clone(), |run| origin.clone().within(&StreamName::run(run)));
        let last = plan.add(self.world(), stream, version, events, &origin)?;
        if opened.is_some() || under == Under::All {
            if halt.state.halted.is_some() {
                return Err(Refusal::Halted.into());
            }
            plan.condition(StreamName::halt(), halt.version);
        }
        if let Some((opened, work)) = opened {
            let run = StreamName::run(opened.run);
            let events = Run::default().decide(RunCommand::Open(Box::new(opened), work))?;
            let caused = last.map_or_else(|| origin.clone(), |event| origin.clone().because(event));
            plan.add(self.world(), &run, 0, &events, &caused)?;
        }
        let Some(appended) = plan.commit(self.log()).await? else { return Ok(None) };
        // Of a duplicate it is not known which run it stands for: the key may be a reaction's that claimed another.
        let run = run.filter(|_| !appended.duplicate);
        let value = Claimed { run, appended: !appended.duplicate, duplicate: appended.duplicate };
        Ok(Some(Done { value, position: appended.last(), duplicate: appended.duplicate }))
    }

    async fn open_for_routine(
        &self,
        loaded: &Loaded<Routine>,
        claim: &RunClaimed,
    ) -> Result<(Opened, Work), EngineError> {
        let routine = &loaded.state;
        let id = routine.existing()?;
        let work = self.routine_work(id, routine.work_at).await?;
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
        who: Option<(midwatch_events::id::BotId, midwatch_events::id::UserId)>,
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
        })
    }

    async fn received(&self, id: midwatch_events::id::DeliveryId) -> Result<Option<Received>, EngineError> {
        let delivery = self.load::<midwatch_commands::delivery::Delivery>(&StreamName::delivery(id)).await?;
        Ok(delivery.state.received)
    }

    /// The work a routine does: the content of the event at `version` of its stream.
    async fn routine_work(&self, id: RoutineId, version: u64) -> Result<Work, EngineError> {
        let events = self.log().read_stream(&StreamName::routine(id), version, 1).await?;
        let content = events.first().map(|event| event.content::<RoutineEvent>()).transpose()?.flatten();
        match content {
            Some(RoutineContent::Created(work) | RoutineContent::WorkReplaced(work)) => Ok(work),
            _ => Err(Refusal::Invalid("this routine's work was erased; give it new work".to_owned()).into()),
        }
    }

    /// Ends a run and frees its target, in one append.
    ///
    /// # Errors
    /// The run's refusal ([`Refusal::RunEnded`], [`Refusal::Stale`]), or a fault.
    #[tracing::instrument(name = "settle", level = "debug", skip_all)]
    pub async fn settle(&self, run: RunId, end: End, origin: &Origin) -> Result<Done<()>, EngineError> {
        let stream = StreamName::run(run);
        let origin = origin.clone().within(&stream);
        for _ in 0..TRIES {
            let loaded = self.load::<Run>(&stream).await?;
            let opened = loaded.state.live()?.clone();
            let events = loaded.state.decide(RunCommand::End(end.clone()))?;
            let mut plan = Plan::default();
            let last = plan.add(self.world(), &stream, loaded.version, &events, &origin)?;
            let caused = last.map_or_else(|| origin.clone(), |event| origin.clone().because(event));
            self.free(&mut plan, &opened, &end, &caused).await?;
            if let Some(appended) = plan.commit(self.log()).await? {
                return Ok(Done { value: (), position: appended.last(), duplicate: appended.duplicate });
            }
        }
        Err(contended(&stream))
    }

    async fn free(&self, plan: &mut Plan, opened: &Opened, end: &End, origin: &Origin) -> Result<(), EngineError> {
        let (run, outcome, reason) = (opened.run, end.outcome, end.reason);
        match (opened.routine, opened.trigger) {
            (Some(id), _) => {
                let stream = StreamName::routine(id);
                let loaded = self.load::<Routine>(&stream).await?;
                let events = loaded.state.decide(RoutineCommand::Settle { run, outcome, reason })?;
                add_some(self, plan, &stream, loaded.version, &events, origin)
            }
            (None, Some(id)) => {
                let stream = StreamName::trigger(id);
                let loaded = self.load::<Trigger>(&stream).await?;
                let events = loaded.state.decide(TriggerCommand::Settle { run, outcome, reason })?;
                add_some(self, plan, &stream, loaded.version, &events, origin)
            }
            (None, None) => Ok(()),
        }
    }

    /// Takes the next delivery of a target's queue, if the target is free.
    ///
    /// # Errors
    /// [`Refusal::Halted`], or a fault.
    pub async fn claim_next(
        &self,
        target: TargetId,
        origin: &Origin,
        key: Option<Key>,
    ) -> Result<Done<Claimed>, EngineError> {
        let now = self.log().store_time().await?;
        let next = midwatch_commands::target::ClaimNext { namespace: self.namespace(), process: self.process(), now };
        match target {
            TargetId::Routine(id) => self.claim_on_routine(id, origin, key, |_| RoutineCommand::ClaimNext(next)).await,
            TargetId::Trigger(id) => self.claim_on_trigger(id, origin, key, |_| TriggerCommand::ClaimNext(next)).await,
        }
    }

    /// Looks at a routine's windows.
    ///
    /// # Errors
    /// [`Refusal::Halted`], or a fault.
    pub async fn tick(&self, id: RoutineId) -> Result<Done<Claimed>, EngineError> {
        let now = self.log().store_time().await?;
        let origin = Origin::of(Actor::Clock);
        // What was lifted is read together with the version that becomes the append's condition: after a halt and its
        // lift, no window before the lift can be claimed on what was so before.
        self.on_routine(id, &origin, None, Under::All, |_, halt| {
            RoutineCommand::Tick(midwatch_commands::routine::Tick {
                now,
                process: self.process(),
                namespace: self.namespace(),
                lifted_at: halt.lifted_at,
                tzdb: midwatch_commands::calendar::tzdb_version(),
            })
        })
        .await
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

struct Claiming<'a, F: Family> {
    stream: &'a StreamName,
    version: u64,
    events: &'a [New<F>],
    opened: Option<(Opened, Work)>,
    under: Under,
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

fn contended(stream: &StreamName) -> EngineError {
    EngineError::Fault(format!("{stream} is changed by too many processes at once; try again"))
}
