//! From an event up to what it all began with: by the event that is named as its cause, and where a runner or a claim
//! names none, by what the facts say.

use midwatch_events::{
    AnyEvent, Recorded, StreamName,
    delivery::DeliveryEvent,
    id::{CallId, DeliveryId, RoutineId},
    repeat::RepeatEvent,
    routine::{DeliveryQueued, RoutineEvent, RunClaimed},
    run::RunEvent,
    trigger::TriggerEvent,
};
use midwatch_log::{Filter, Log};

use super::{Link, Origin, Read};
use crate::{ReplayError, error::facts, run::claim_before};

/// Far more than any run can have: a ledger that leads in circles must not hold us.
const LINKS_MAX: usize = 10_000;
/// Events read at once when looking back in a stream.
const BACK: u32 = 100;
/// What is counted stands right before the decision it was counted for, in the same append.
const NEAR: u32 = 8;

/// The chain, from its origin to the event.
pub(super) async fn chain(log: &Log, event: Read) -> Result<(Origin, Vec<Link>), ReplayError> {
    let mut links = vec![event.link()];
    let mut top = event;
    while links.len() < LINKS_MAX {
        // Only what stands earlier can be a cause; anything else would be a circle.
        let Some(parent) = parent(log, &top).await?.filter(|parent| earlier(parent, &top.recorded)) else { break };
        top = Read::of(parent)?;
        links.push(top.link());
    }
    links.reverse();
    Ok((origin(log, &top).await?, links))
}

/// A decision stands after the count it was made from, in one append; nothing else is caused by what comes later.
fn earlier(parent: &Recorded, child: &Recorded) -> bool {
    parent.position < child.position
        || child.family() == "repeat" && parent.position <= child.position + u64::from(NEAR)
}

async fn origin(log: &Log, top: &Read) -> Result<Origin, ReplayError> {
    Ok(match &top.event {
        Some(AnyEvent::Delivery(DeliveryEvent::Received(received), _)) => {
            let created = log.read_stream(&StreamName::trigger(received.trigger), 1, 1).await?;
            let trigger_name = match created.first().map(facts::<TriggerEvent>).transpose()? {
                Some(TriggerEvent::Created { name, .. }) => Some(name),
                _ => None,
            };
            Origin::Delivery { delivery: received.delivery, trigger: received.trigger, trigger_name }
        }
        Some(AnyEvent::Routine(RoutineEvent::RunClaimed(RunClaimed { window_us: Some(window), .. }), _)) => {
            Origin::Window { routine: top.recorded.stream.uuid().map(RoutineId::new), window: *window }
        }
        _ => Origin::Actor { actor: top.recorded.actor.clone() },
    })
}

/// What an event followed from; none where somebody acted by themselves, or a window was due.
async fn parent(log: &Log, child: &Read) -> Result<Option<Recorded>, ReplayError> {
    let recorded = &child.recorded;
    match &child.event {
        Some(AnyEvent::Run(event, _)) => of_run(log, recorded, event).await,
        Some(AnyEvent::Repeat(event, _)) => of_repeat(log, recorded, event).await,
        Some(AnyEvent::Routine(RoutineEvent::RunClaimed(claim), _))
        | Some(AnyEvent::Trigger(TriggerEvent::RunClaimed(claim), _)) => of_claim(log, recorded, claim).await,
        Some(AnyEvent::Routine(RoutineEvent::DeliveryTaken { run, .. }, _))
        | Some(AnyEvent::Trigger(TriggerEvent::DeliveryTaken { run, .. }, _)) => {
            let claim = |event: &Recorded| claimed(event).is_some_and(|claim| claim.run == *run);
            look_back(log, &recorded.stream, recorded.version, claim).await
        }
        Some(AnyEvent::Routine(RoutineEvent::DeliveryQueued(DeliveryQueued { delivery, .. }), _))
        | Some(AnyEvent::Trigger(TriggerEvent::DeliveryQueued(DeliveryQueued { delivery, .. }), _)) => {
            received(log, *delivery).await
        }
        _ => match caused(log, recorded).await? {
            Some(parent) => Ok(Some(parent)),
            None => beginning(log, recorded).await,
        },
    }
}

/// The event that is named as the cause.
async fn caused(log: &Log, recorded: &Recorded) -> Result<Option<Recorded>, ReplayError> {
    match recorded.causation_id {
        Some(id) => Ok(log.read_event(id).await?),
        None => Ok(None),
    }
}

/// The first event of the run or delivery that something belongs to without being of its stream.
async fn beginning(log: &Log, recorded: &Recorded) -> Result<Option<Recorded>, ReplayError> {
    let Some(correlation) = recorded.correlation_id.clone() else { return Ok(None) };
    Ok(log.read_stream(&StreamName::stored(correlation), 1, 1).await?.pop())
}

async fn of_run(log: &Log, recorded: &Recorded, event: &RunEvent) -> Result<Option<Recorded>, ReplayError> {
    let back = |matches: fn(&RunEvent, &RunEvent) -> bool| {
        let is = move |earlier: &Recorded| earlier.facts().is_ok_and(|earlier: RunEvent| matches(event, &earlier));
        look_back(log, &recorded.stream, recorded.version, is)
    };
    match event {
        RunEvent::Opened(opened) => {
            let claim = claim_before(log, opened.run, recorded.position).await?;
            Ok(claim.map(|(claim, _)| claim))
        }
        RunEvent::Taken { .. } => back(|_, earlier| matches!(earlier, RunEvent::Opened(_))).await,
        // A turn goes on from the one before; the first, and a recording's calls, from the take.
        RunEvent::TurnStarted { .. } => {
            back(|_, earlier| matches!(earlier, RunEvent::TurnFinished { .. } | RunEvent::Taken { .. })).await
        }
        RunEvent::TurnFinished { .. } => back(|_, earlier| matches!(earlier, RunEvent::TurnStarted { .. })).await,
        // A call that a person let through goes on from their answer.
        RunEvent::ToolCallDecided(decision) if decision.approval.is_some() => {
            let answered = back(|decided, earlier| match (decided, earlier) {
                (RunEvent::ToolCallDecided(decided), RunEvent::ApprovalAnswered(answered)) => {
                    decided.approval == Some(answered.approval)
                }
                _ => false,
            });
            match answered.await? {
                Some(answered) => Ok(Some(answered)),
                None => {
                    back(|_, earlier| matches!(earlier, RunEvent::TurnFinished { .. } | RunEvent::Taken { .. })).await
                }
            }
        }
        RunEvent::ApprovalAnswered(_) => {
            back(|answered, earlier| match (answered, earlier) {
                (RunEvent::ApprovalAnswered(answered), RunEvent::ApprovalRequested(asked)) => {
                    asked.approval == answered.approval
                }
                _ => false,
            })
            .await
        }
        RunEvent::ToolCallDecided(_) | RunEvent::ApprovalRequested(_) => {
            back(|_, earlier| matches!(earlier, RunEvent::TurnFinished { .. } | RunEvent::Taken { .. })).await
        }
        RunEvent::ToolCallEnded { .. } | RunEvent::CallOutcomeLate { .. } => {
            back(|ended, earlier| match (ended, earlier) {
                (
                    RunEvent::ToolCallEnded { decision, .. } | RunEvent::CallOutcomeLate { decision, .. },
                    RunEvent::ToolCallDecided(decided),
                ) => decided.call == decision.call,
                _ => false,
            })
            .await
        }
        RunEvent::AttemptFailed { .. } | RunEvent::ReportedLate { .. } => {
            back(|_, earlier| matches!(earlier, RunEvent::Taken { .. })).await
        }
        RunEvent::Ended(_) => match caused(log, recorded).await? {
            Some(parent) => Ok(Some(parent)),
            None => back(|_, earlier| matches!(earlier, RunEvent::Taken { .. } | RunEvent::Opened(_))).await,
        },
    }
}

async fn of_repeat(log: &Log, recorded: &Recorded, event: &RepeatEvent) -> Result<Option<Recorded>, ReplayError> {
    let call = match event {
        RepeatEvent::Attempted { call, .. } | RepeatEvent::ThresholdCrossed { call, .. } => *call,
        RepeatEvent::Settled { .. } => return caused(log, recorded).await,
    };
    let (near, _) = log.read_all(recorded.position, NEAR, &Filter::default()).await?;
    match near.into_iter().find(|event| decides(event, call)) {
        Some(decision) => Ok(Some(decision)),
        None => beginning(log, recorded).await,
    }
}

fn decides(event: &Recorded, call: CallId) -> bool {
    matches!(event.facts(), Ok(RunEvent::ToolCallDecided(decision)) if decision.call == call)
}

/// A claim of a delivery follows from its wait, or from its receipt; of a window, from nothing but the time; of a Run
/// now, from whoever asked. The ending that made the target free is when, not why.
async fn of_claim(log: &Log, recorded: &Recorded, claim: &RunClaimed) -> Result<Option<Recorded>, ReplayError> {
    let Some(delivery) = claim.delivery else { return Ok(None) };
    let queued = |event: &Recorded| queues(event, delivery);
    match look_back(log, &recorded.stream, recorded.version, queued).await? {
        Some(queued) => Ok(Some(queued)),
        None => received(log, delivery).await,
    }
}

fn queues(event: &Recorded, delivery: DeliveryId) -> bool {
    match AnyEvent::decode(event) {
        Ok(
            AnyEvent::Routine(RoutineEvent::DeliveryQueued(queued), _)
            | AnyEvent::Trigger(TriggerEvent::DeliveryQueued(queued), _),
        ) => queued.delivery == delivery,
        _ => false,
    }
}

/// The claim an event is, if it is one.
pub(super) fn claimed(event: &Recorded) -> Option<RunClaimed> {
    match AnyEvent::decode(event) {
        Ok(
            AnyEvent::Routine(RoutineEvent::RunClaimed(claim), _)
            | AnyEvent::Trigger(TriggerEvent::RunClaimed(claim), _),
        ) => Some(claim),
        _ => None,
    }
}

async fn received(log: &Log, delivery: DeliveryId) -> Result<Option<Recorded>, ReplayError> {
    Ok(log.read_stream(&StreamName::delivery(delivery), 1, 1).await?.pop())
}

/// The last event of a stream before `version` that `is` what is looked for.
async fn look_back(
    log: &Log,
    stream: &StreamName,
    version: u64,
    is: impl Fn(&Recorded) -> bool,
) -> Result<Option<Recorded>, ReplayError> {
    let mut before = version;
    loop {
        let page = log.read_stream_back(stream, before, BACK).await?;
        let Some(first) = page.last().map(|event| event.version) else { return Ok(None) };
        if let Some(found) = page.into_iter().find(|event| is(event)) {
            return Ok(Some(found));
        }
        before = first;
    }
}
