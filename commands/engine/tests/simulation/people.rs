//! People and senders: what they ask of a process, and what they hold it to.

use std::sync::{Arc, Mutex};

use midwatch_commands::{Refusal, routine::Edit, trigger::TriggerCommand};
use midwatch_engine::{
    Engine, EngineError, Origin, Request,
    intake::Posted,
    routines::NewRoutine,
    triggers::{NewSecret, NewTrigger},
};
use midwatch_events::{
    Actor,
    id::{RoutineId, TriggerId},
    routine::{Limits, Work},
    trigger::Intake,
};

use crate::{
    chance::Chance,
    climate::Climate,
    play::Book,
    script::{Casting, Deed},
    stage::locked,
};

/// One question to one process.
pub(crate) struct Asking {
    pub(crate) engine: Engine,
    /// The deed's number; what is asked again is asked under the same.
    pub(crate) n: u64,
    pub(crate) deed: Deed,
    pub(crate) book: Arc<Mutex<Book>>,
    pub(crate) climate: Arc<Climate>,
    pub(crate) routines: Vec<Casting>,
    pub(crate) triggers: Vec<(Option<usize>, Intake)>,
    pub(crate) chance: Chance,
}

fn me() -> Origin {
    Origin::of(Actor::Cli(0))
}

/// A refusal is an answer.
fn answered<T>(result: Result<T, EngineError>) -> Result<Option<T>, EngineError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(EngineError::Refused(_) | EngineError::KeyReused) => Ok(None),
        Err(error) => Err(error),
    }
}

impl Asking {
    pub(crate) async fn ask(mut self) {
        let answer = self.put().await;
        // Without an answer somebody is asked again.
        if answer.is_ok() {
            locked(&self.book).done.insert(self.n);
        }
    }

    fn request(&self) -> Request {
        Request::new(&format!("deed-{}", self.n), &[])
    }

    fn routine(&self, n: usize) -> Option<RoutineId> {
        locked(&self.book).routines.get(&n).copied()
    }

    fn trigger(&self, n: usize) -> Option<TriggerId> {
        locked(&self.book).triggers.get(&n).copied()
    }

    fn object(&self, sentence: String) {
        locked(&self.climate.inner).checker.note(Err(sentence));
    }

    async fn put(&mut self) -> Result<(), EngineError> {
        let engine = self.engine.clone();
        let request = self.request();
        match self.deed.clone() {
            Deed::Create(n) => self.create(n, &request).await,
            Deed::MakeTrigger(n) => self.make_trigger(n, &request).await,
            Deed::Halt(_) => answered(engine.halt_scheduling(&me(), "enough", Some(&request)).await).map(drop),
            Deed::Lift => answered(engine.lift_halt(&me(), Some(&request)).await).map(drop),
            Deed::CancelOne => self.cancel_one().await,
            Deed::Post(n, sender) => match self.trigger(n) {
                Some(trigger) => self.post(trigger, n, sender).await,
                None => Ok(()),
            },
            Deed::PauseTrigger(n) | Deed::ResumeTrigger(n) => {
                let Some(trigger) = self.trigger(n) else { return Ok(()) };
                let pause = matches!(self.deed, Deed::PauseTrigger(_));
                let command = if pause { TriggerCommand::Pause } else { TriggerCommand::Resume };
                answered(engine.change_trigger(trigger, &me(), Some(&request), command).await).map(drop)
            }
            Deed::RunNow(n, asked) => match self.routine(n) {
                Some(routine) => self.run_now(routine, asked).await,
                None => Ok(()),
            },
            Deed::Edit(n, _)
            | Deed::Limit(n, _)
            | Deed::Pause(n)
            | Deed::Resume(n)
            | Deed::Delete(n)
            | Deed::Tick(n) => match self.routine(n) {
                Some(routine) => self.change(routine, &request).await,
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }

    async fn create(&self, n: usize, request: &Request) -> Result<(), EngineError> {
        let engine = &self.engine;
        let named = Request::new("the Bot", &[]);
        let bot = engine.register_bot("ops", None, &me(), Some(&named)).await?.value;
        locked(&self.book).bot = Some(bot);
        let Casting { schedule, limits } = self.routines[n].clone();
        let work = Work { instruction: Some("Look after it.".to_owned()), recording: None };
        let new = NewRoutine { name: format!("routine {n}"), bot, schedule, work, limits, owner: None };
        if let Some(made) = answered(engine.create_routine(&new, &me(), Some(request)).await)? {
            locked(&self.book).routines.insert(n, made.value);
        }
        Ok(())
    }

    async fn change(&self, routine: RoutineId, request: &Request) -> Result<(), EngineError> {
        let engine = &self.engine;
        let request = Some(request);
        match &self.deed {
            Deed::Edit(_, schedule) => {
                let edit = Edit { schedule: Some(schedule.clone()), ..Edit::default() };
                answered(engine.edit_routine(routine, edit, None, &me(), request).await).map(drop)
            }
            Deed::Limit(_, limits) => {
                let edit = Edit { limits: Some(limits.clone()), ..Edit::default() };
                answered(engine.edit_routine(routine, edit, None, &me(), request).await).map(drop)
            }
            Deed::Pause(_) => answered(engine.pause_routine(routine, "", &me(), request).await).map(drop),
            Deed::Resume(_) => answered(engine.resume_routine(routine, &me(), request).await).map(drop),
            Deed::Delete(_) => answered(engine.delete_routine(routine, &me(), request).await).map(drop),
            _ => {
                let (_, _) = tokio::join!(engine.tick(routine), engine.tick(routine));
                Ok(())
            }
        }
    }

    async fn run_now(&self, routine: RoutineId, asked: u64) -> Result<(), EngineError> {
        let request = Request::new(&format!("run-{asked}-{routine}"), &[]);
        let Some(done) = answered(self.engine.run_now(routine, &me(), Some(&request)).await)? else { return Ok(()) };
        let known = locked(&self.climate.inner).checker.runs.contains_key(&done.value);
        if !known {
            self.object(format!("a person was told of the run {}, which is not in the log", done.value));
        }
        // The same request again, for another routine, is another request here.
        locked(&self.book).runs.insert(asked, done.value);
        Ok(())
    }

    async fn cancel_one(&mut self) -> Result<(), EngineError> {
        let live = locked(&self.climate.inner).checker.live_runs();
        if live.is_empty() {
            return Ok(());
        }
        let (run, _) = self.chance.pick(&live);
        answered(self.engine.cancel_run(run, &me()).await).map(drop)
    }

    async fn make_trigger(&self, n: usize, request: &Request) -> Result<(), EngineError> {
        let Some(bot) = locked(&self.book).bot else { return Err(EngineError::Unknown) };
        let (routine, intake) = self.triggers[n].clone();
        let routine = match routine {
            None => None,
            Some(n) => Some(self.routine(n).ok_or(EngineError::Unknown)?),
        };
        let new = NewTrigger {
            name: format!("trigger {n}"),
            routine,
            bot: routine.is_none().then_some(bot),
            instruction: routine.is_none().then(|| "Look at it.".to_owned()),
            intake,
            limits: Limits::default(),
            scheme: None,
            secret: NewSecret::Made,
            owner: None,
        };
        let Some(made) = answered(self.engine.create_trigger(&new, &me(), Some(request)).await)? else {
            return Ok(());
        };
        let trigger = made.value.id;
        match self.engine.receive(trigger, &posted("sample")).await {
            Ok(_) => {}
            // Tomorrow, then.
            Err(EngineError::Refused(Refusal::Halted)) => return Err(EngineError::Unknown),
            Err(error) => return Err(error),
        }
        answered(self.engine.confirm_trigger(trigger, None, &me(), None).await)?;
        locked(&self.book).triggers.insert(n, trigger);
        Ok(())
    }

    async fn post(&self, trigger: TriggerId, n: usize, sender: u64) -> Result<(), EngineError> {
        let posted = posted(&format!("{n}-{sender}"));
        let Some(taken) = answered(self.engine.receive(trigger, &posted).await)? else { return Ok(()) };
        if !locked(&self.climate.inner).checker.deliveries.contains_key(&taken.delivery) {
            self.object(format!("{} was answered with success, and is not in the log (promise 4)", taken.delivery));
        }
        let first = locked(&self.book).posts.insert((n, sender), taken.delivery);
        if first.is_some_and(|first| first != taken.delivery) {
            self.object(format!("one delivery was taken in as {first:?} and as {} (promise 4)", taken.delivery));
        }
        Ok(())
    }
}

fn posted(id: &str) -> Posted {
    Posted {
        headers: vec![],
        query: None,
        body: id.as_bytes().to_vec(),
        sender_id: Some(id.to_owned()),
        id_alone: false,
        signed: None,
        alike: None,
        secret: None,
        event_type: None,
        unparsed: None,
    }
}
