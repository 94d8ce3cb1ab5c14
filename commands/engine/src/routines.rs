//! Routines: making, changing and running them.

use midwatch_commands::routine::{Create, Edit, Routine, RoutineCommand};
use midwatch_events::{
    StreamName,
    id::{BotId, RoutineId, RunId, UserId},
    routine::{Limits, Work},
};

use crate::{
    Done, Engine, EngineError, Origin, Request,
    handle::{handle, handle_at, handle_for},
};
use midwatch_log::Pending;

/// A routine to make.
#[derive(Clone, Debug)]
pub struct NewRoutine {
    /// Its name.
    pub name: String,
    /// Who does the work.
    pub bot: BotId,
    /// The schedule's JSON text.
    pub schedule: String,
    /// What to do.
    pub work: Work,
    /// How it runs.
    pub limits: Limits,
    /// Whose it is; the first admin's, if nothing is said.
    pub owner: Option<UserId>,
}

impl Engine {
    /// Makes a routine.
    ///
    /// # Errors
    /// Anything about it that makes no sense, each with a sentence; or a fault.
    pub fn create_routine<'a>(
        &'a self,
        new: &'a NewRoutine,
        origin: &'a Origin,
        request: Option<&'a Request>,
    ) -> Pending<'a, Done<RoutineId>, EngineError> {
        Box::pin(async move {
            let routine = self.new_id(request);
            if let Some(done) = self.done_before(request).await? {
                return Ok(done.with(routine));
            }
            let owner = self.owner(new.owner).await?;
            self.workable_bot(new.bot).await?;
            let now = self.log().store_time().await?;
            let (stream, who) = (StreamName::routine(routine), (Some(new.bot), Some(owner)));
            let done = handle_for::<Routine>(self, who, &stream, origin, request, |_| {
                Ok(RoutineCommand::Create(Box::new(Create {
                    routine,
                    name: new.name.clone(),
                    owner,
                    bot: new.bot,
                    schedule: new.schedule.clone(),
                    work: new.work.clone(),
                    limits: new.limits.clone(),
                    now,
                })))
            });
            Ok(done.await?.with(routine))
        })
    }

    /// Changes what `edit` names; its `now` is set here. With `expected`, a routine that was changed meanwhile is a
    /// refusal.
    ///
    /// # Errors
    /// There is no such routine, the change makes no sense, or a fault.
    pub fn edit_routine<'a>(
        &'a self,
        routine: RoutineId,
        edit: Edit,
        expected: Option<u64>,
        origin: &'a Origin,
        request: Option<&'a Request>,
    ) -> Pending<'a, Done<()>, EngineError> {
        Box::pin(async move {
            let stream = StreamName::routine(routine);
            let now = self.log().store_time().await?;
            let seen =
                expected.map(|version| (version, "this routine was changed meanwhile; look at it and try again"));
            handle_at::<Routine>(self, &stream, seen, origin, request, |_| {
                Ok(RoutineCommand::Edit(Box::new(Edit { now, ..edit.clone() })))
            })
            .await
        })
    }

    /// Pauses a routine; its windows do not exist until it is resumed.
    ///
    /// # Errors
    /// There is no such routine, it is paused already, or a fault.
    pub fn pause_routine<'a>(
        &'a self,
        routine: RoutineId,
        reason: &'a str,
        origin: &'a Origin,
        request: Option<&'a Request>,
    ) -> Pending<'a, Done<()>, EngineError> {
        Box::pin(async move {
            handle::<Routine>(self, &StreamName::routine(routine), origin, request, |_| {
                Ok(RoutineCommand::Pause { reason: reason.to_owned() })
            })
            .await
        })
    }

    /// Resumes a paused or suspended routine.
    ///
    /// # Errors
    /// There is no such routine, it is not paused, its Bot or owner is gone, or a fault.
    pub fn resume_routine<'a>(
        &'a self,
        routine: RoutineId,
        origin: &'a Origin,
        request: Option<&'a Request>,
    ) -> Pending<'a, Done<()>, EngineError> {
        Box::pin(async move {
            let stream = StreamName::routine(routine);
            let state = self.load::<Routine>(&stream).await?.state;
            let now = self.log().store_time().await?;
            let who = (state.bot, state.owner);
            handle_for::<Routine>(self, who, &stream, origin, request, |_| Ok(RoutineCommand::Resume { now })).await
        })
    }

    /// Removes a routine from every list; its history stays.
    ///
    /// # Errors
    /// There is no such routine, or a fault.
    pub fn delete_routine<'a>(
        &'a self,
        routine: RoutineId,
        origin: &'a Origin,
        request: Option<&'a Request>,
    ) -> Pending<'a, Done<()>, EngineError> {
        Box::pin(async move {
            handle::<Routine>(self, &StreamName::routine(routine), origin, request, |_| Ok(RoutineCommand::Delete))
                .await
        })
    }

    /// Runs a routine now. The request's id makes the run's id, so that a repeated request is one run.
    ///
    /// # Errors
    /// [`midwatch_commands::Refusal::Busy`] with the live run, [`midwatch_commands::Refusal::Halted`], or a fault.
    pub fn run_now<'a>(
        &'a self,
        routine: RoutineId,
        origin: &'a Origin,
        request: Option<&'a Request>,
    ) -> Pending<'a, Done<RunId>, EngineError> {
        Box::pin(async move {
            let id = routine.to_string();
            let asked = request.map_or_else(
                || self.world().uuid().to_string(),
                |request| midwatch_events::key::Digest(request.key.hash).to_string(),
            );
            let claim = midwatch_commands::target::claim_key(&id, &["now", &asked]);
            let run = RunId::derived(self.namespace(), &claim.hash);
            if let Some(done) = self.done_before(request).await? {
                return Ok(done.with(run));
            }
            let process = self.process();
            let keys = std::iter::once(claim).chain(request.map(|request| request.key));
            let claimed =
                self.claim_on_routine(routine, origin, keys, |_| RoutineCommand::RunNow { run, process }).await;
            match claimed {
                Ok(done) => Ok(Done { value: run, position: done.position, duplicate: done.duplicate }),
                // Busy, perhaps with the very run that the same request has opened meanwhile.
                Err(EngineError::Refused(refusal)) => Ok(self.seen(request, refusal).await?.with(run)),
                Err(error) => Err(error),
            }
        })
    }
}
