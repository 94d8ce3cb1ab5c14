//! Settles: the append that ends a run and frees its target.

use std::collections::BTreeMap;

use midwatch_commands::{
    Decider as _,
    mutant::{Mutant, active},
    routine::{Routine, RoutineCommand},
    run::{End, Run, RunCommand},
    trigger::{Trigger, TriggerCommand},
};
use midwatch_events::{
    StreamName,
    id::{RoutineId, RunId},
    run::Opened,
};

use super::add_some;
use crate::{
    Done, Engine, EngineError, Origin,
    folds::{Loaded, load_many},
    handle::{Plan, TRIES, contended},
};
use midwatch_log::Pending;

/// What a settle rests on, where it was read together with others moments ago. The append still stands on the versions.
#[derive(Clone, Debug, Default)]
pub(crate) struct SettleOn {
    run: Option<Loaded<Run>>,
    routine: Option<Loaded<Routine>>,
}

impl SettleOn {
    /// Reads what the endings of these runs rest on, in two statements for each kind of stream. What cannot be read is
    /// left out: whoever settles reads it, and hears why.
    pub(crate) async fn read(engine: &Engine, runs: &[(RunId, Option<RoutineId>)]) -> BTreeMap<RunId, Self> {
        let streams: Vec<StreamName> = runs.iter().map(|(run, _)| StreamName::run(*run)).collect();
        let targets: Vec<StreamName> =
            runs.iter().filter_map(|(_, routine)| routine.map(StreamName::routine)).collect();
        let (log, folds) = (engine.log(), engine.folds());
        let both = (load_many::<Run>(log, folds, &streams), load_many::<Routine>(log, folds, &targets));
        let (loaded, freed) = futures_util::future::join(both.0, both.1).await;
        let (mut loaded, mut freed) = (loaded.unwrap_or_default(), freed.unwrap_or_default());
        let mut on = |(run, routine): &(RunId, Option<RoutineId>)| {
            let routine = routine.and_then(|id| freed.remove(&StreamName::routine(id)));
            let of = loaded.remove(&StreamName::run(*run));
            (*run, Self { run: of.map(|read| read.loaded), routine: routine.map(|read| read.loaded) })
        };
        runs.iter().map(&mut on).collect()
    }
}

impl Engine {
    /// Ends a run and frees its target, in one append.
    ///
    /// # Errors
    /// The run's refusal ([`Refusal::RunEnded`](midwatch_commands::Refusal::RunEnded),
    /// [`Refusal::Stale`](midwatch_commands::Refusal::Stale)), or a fault.
    pub fn settle<'a>(&'a self, run: RunId, end: End, origin: &'a Origin) -> Pending<'a, Done<()>, EngineError> {
        Box::pin(async move { self.settle_on(SettleOn::default(), run, end, origin).await })
    }

    /// As [`Engine::settle`], first on what was read ahead.
    #[tracing::instrument(name = "settle", level = "debug", skip_all)]
    pub(crate) async fn settle_on(
        &self,
        mut on: SettleOn,
        run: RunId,
        end: End,
        origin: &Origin,
    ) -> Result<Done<()>, EngineError> {
        let stream = StreamName::run(run);
        let origin = origin.clone().within(&stream);
        for _ in 0..TRIES {
            let decide = |loaded: &Loaded<Run>| {
                loaded.state.live()?;
                loaded.state.decide(RunCommand::End(end.clone()))
            };
            // What was read ahead is tried once: after a conflict it is known to be behind.
            let SettleOn { run: ahead, routine } = std::mem::take(&mut on);
            let Some((turn, events)) = self.decide_on::<Run>(&stream, ahead, decide).await? else {
                return Ok(Done { value: (), position: self.log().head().await?, duplicate: true });
            };
            let opened = turn.loaded().state.live()?.clone();
            let mut plan = Plan::default();
            let last = plan.add(self.world(), &stream, turn.expected(), &events, &origin)?;
            let caused = last.map_or_else(|| origin.clone(), |event| origin.clone().because(event));
            if !active(Mutant::SettleIsForgotten) {
                self.free(&mut plan, &opened, &end, &caused, routine).await?;
            }
            if let Some(appended) = turn.submit(plan, &events).await? {
                return Ok(Done { value: (), position: appended.last(), duplicate: appended.duplicate });
            }
        }
        Err(contended(&stream))
    }

    async fn free(
        &self,
        plan: &mut Plan,
        opened: &Opened,
        end: &End,
        origin: &Origin,
        routine: Option<Loaded<Routine>>,
    ) -> Result<(), EngineError> {
        let (run, outcome, reason) = (opened.run, end.outcome, end.reason);
        match (opened.routine, opened.trigger) {
            (Some(id), _) => {
                let stream = StreamName::routine(id);
                // Only one that still has this run is worth an append; what is behind may say that it was settled.
                let loaded = match routine.filter(|ahead| ahead.state.target.live == Some(run)) {
                    Some(ahead) => ahead,
                    None => self.load::<Routine>(&stream).await?,
                };
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
}
