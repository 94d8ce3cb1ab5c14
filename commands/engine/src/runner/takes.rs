//! Taking runs: the append that makes a run this process's, and the first beat of its lease.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use midwatch_commands::{
    Decider as _,
    run::{Run, RunCommand},
};
use midwatch_events::{
    Actor, AnyEvent, Micros, Recorded, StreamName,
    id::RunId,
    run::{Opened, RunContent, RunEvent, Work},
};
use midwatch_log::lease;

use super::Job;
use crate::{
    Engine, EngineError, Origin,
    folds::{Read, load_many},
    handle::{Plan, handle},
    leases::Alive,
    progress::Progress,
};

/// Takes runs, all at once: what they rest on is read together, their appends are one group in the ledger, and their
/// leases begin together. Beside each, whether this process may have taken it before and not begun.
pub(super) async fn take_all(
    engine: &Engine,
    runs: Vec<(RunId, bool)>,
) -> Result<Vec<(RunId, Result<Option<Job>, EngineError>)>, EngineError> {
    if runs.is_empty() {
        return Ok(Vec::new());
    }
    let now = engine.log().store_time().await?;
    let streams: Vec<StreamName> = runs.iter().map(|(run, _)| StreamName::run(*run)).collect();
    let mut read = match streams.len() {
        1 => BTreeMap::new(),
        _ => load_many::<Run>(engine.log(), engine.folds(), &streams).await.unwrap_or_default(),
    };
    let takes = runs.into_iter().zip(streams).map(|((run, again), stream)| {
        let ahead = read.remove(&stream);
        async move { (run, take(engine, &stream, now, again, ahead).await) }
    });
    let taken = join_all(takes).await;
    let begins: Vec<_> =
        taken.iter().filter_map(|(run, taken)| Some((run.uuid(), taken.as_ref().ok()?.as_ref()?.take))).collect();
    let sent = engine.world().clock.monotonic();
    let begun = lease::begin(engine.log(), &begins).await;
    let job = |(run, taken): (RunId, Result<Option<Taken>, EngineError>)| {
        let job = match (taken, &begun) {
            (Err(error), _) => Err(error),
            (Ok(None), _) => Ok(None),
            (Ok(Some(_)), Err(error)) => Err(EngineError::Fault(error.to_string())),
            (Ok(Some(Taken { take, opened, work })), Ok(begun)) => {
                let alive = Alive::default();
                if begun.contains(&run.uuid()) {
                    alive.renewed(sent);
                }
                let progress = Progress::from(engine.world().clock.monotonic());
                Ok(Some(Job { engine: engine.clone(), run, take, opened, work, alive, progress }))
            }
        };
        (run, job)
    };
    Ok(taken.into_iter().map(job).collect())
}

/// Takes a run; none when another runner was quicker, or it has ended.
async fn take(
    engine: &Engine,
    stream: &StreamName,
    now: Micros,
    again: bool,
    ahead: Option<Read<Run>>,
) -> Result<Option<Taken>, EngineError> {
    let Some(ahead) = ahead else { return take_by_itself(engine, stream, now, again).await };
    match take_ahead(engine, stream, now, ahead).await {
        Ok(Some(taken)) => Ok(Some(taken)),
        Ok(None) | Err(EngineError::Unknown) => take_by_itself(engine, stream, now, again).await,
        Err(error) => Err(error),
    }
}

/// A run that this process has taken.
struct Taken {
    take: u32,
    opened: Opened,
    work: Work,
}

/// Takes a run on what was read of it together with others; none where that is not enough.
async fn take_ahead(
    engine: &Engine,
    stream: &StreamName,
    now: Micros,
    ahead: Read<Run>,
) -> Result<Option<Taken>, EngineError> {
    let Some(work) = ahead.events.first().filter(|event| event.version == 1).map(work_in).transpose()? else {
        return Ok(None);
    };
    let turn = engine.enter_with::<Run>(stream, false, Some(ahead.loaded)).await?;
    let state = &turn.loaded().state;
    let (Some(opened), Ok(events)) =
        (state.opened.clone(), state.decide(RunCommand::Take { worker: engine.process(), now }))
    else {
        return Ok(None);
    };
    let take = events.iter().find_map(|event| match &event.facts {
        RunEvent::Taken { take, .. } => Some(*take),
        _ => None,
    });
    let Some(take) = take else { return Ok(None) };
    let origin = Origin::of(Actor::Engine).within(stream);
    let mut plan = Plan::default();
    plan.add(engine.world(), stream, turn.expected(), &events, &origin)?;
    Ok(turn.submit(plan, &events).await?.map(|_| Taken { take, opened, work }))
}

async fn take_by_itself(
    engine: &Engine,
    stream: &StreamName,
    now: Micros,
    again: bool,
) -> Result<Option<Taken>, EngineError> {
    let (origin, worker) = (Origin::of(Actor::Engine).within(stream), engine.process());
    let taken = handle::<Run>(engine, stream, &origin, None, |_| Ok(RunCommand::Take { worker, now })).await;
    match taken {
        // Where the answer was lost, the run itself says whose it is: one that nobody knows to hold would be given up.
        Ok(_) | Err(EngineError::Unknown) => {}
        Err(EngineError::Refused(_)) if again => {}
        Err(EngineError::Refused(_)) => return Ok(None),
        Err(error) => return Err(error),
    }
    let state = engine.load::<Run>(stream).await?.state;
    let own = state.worker == Some(worker) && state.ended.is_none();
    let Some(opened) = state.opened.filter(|_| own) else { return Ok(None) };
    let work = opened_work(engine, stream).await?;
    Ok(Some(Taken { take: state.take, opened, work }))
}

/// What a run is to do: the content of its first event.
async fn opened_work(engine: &Engine, stream: &StreamName) -> Result<Work, EngineError> {
    let events = engine.log().read_stream(stream, 1, 1).await?;
    Ok(events.first().map(work_in).transpose()?.unwrap_or_default())
}

fn work_in(first: &Recorded) -> Result<Work, EngineError> {
    match AnyEvent::decode(first)? {
        AnyEvent::Run(RunEvent::Opened(_), Some(RunContent::Opened { work })) => Ok(work),
        _ => Ok(Work::default()),
    }
}
