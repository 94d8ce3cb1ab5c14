//! From an event on: what names it as its cause, and what its run, call or delivery brought.

use std::collections::HashMap;

use midwatch_events::{
    AnyEvent, StreamName,
    delivery::DeliveryEvent,
    id::{ApprovalId, CallId, DeliveryId, RunId},
    repeat::RepeatEvent,
    routine::RoutineEvent,
    run::RunEvent,
    trigger::TriggerEvent,
};
use midwatch_log::{Filter, Log};
use uuid::Uuid;

use super::{Followed, Read};
use crate::ReplayError;

/// Consequences that are listed; more are counted.
const LISTED_MAX: usize = 1_000;
/// How far beyond the last event of every run and delivery in it consequences are looked for.
const BEYOND: u64 = 10_000;
const PAGE: u32 = 500;

/// What followed, and how far it was looked for.
pub(super) struct Onwards {
    pub(super) followed: Vec<Followed>,
    pub(super) left_out: u64,
    pub(super) scanned_to: u64,
}

/// All that followed from an event.
pub(super) async fn followed(log: &Log, event: Read, head: u64) -> Result<Onwards, ReplayError> {
    let start = event.recorded.position;
    let mut known = Known::default();
    known.learn(&event);
    let mut ends = Ends { streams: Vec::new(), last: start };
    let mut out = Onwards { followed: Vec::new(), left_out: 0, scanned_to: start };
    loop {
        ends.look(log, &known).await?;
        let bound = head.min(ends.last.saturating_add(BEYOND));
        if out.scanned_to >= bound {
            return Ok(out);
        }
        let (page, scanned) = log.read_all(out.scanned_to, PAGE, &Filter::default()).await?;
        if page.is_empty() {
            return Ok(out);
        }
        for recorded in page.into_iter().take_while(|recorded| recorded.position <= bound) {
            let read = Read::of(recorded)?;
            let Some((because, goes_on)) = known.because(&read) else { continue };
            if goes_on {
                known.learn(&read);
            }
            if out.followed.len() < LISTED_MAX {
                out.followed.push(Followed { link: read.link(), because });
            } else {
                out.left_out += 1;
            }
        }
        out.scanned_to = scanned.min(bound);
    }
}

/// How far the runs and deliveries in it reach. A run's end is looked up once: what comes after is near it.
struct Ends {
    streams: Vec<StreamName>,
    last: u64,
}

impl Ends {
    async fn look(&mut self, log: &Log, known: &Known) -> Result<(), ReplayError> {
        let runs = known.runs.keys().map(|run| StreamName::run(*run));
        let deliveries = known.deliveries.keys().map(|delivery| StreamName::delivery(*delivery));
        for stream in runs.chain(deliveries) {
            if self.streams.contains(&stream) {
                continue;
            }
            if let Some(last) = log.read_stream_back(&stream, u64::MAX, 1).await?.first() {
                self.last = self.last.max(last.position);
            }
            self.streams.push(stream);
        }
        Ok(())
    }
}

/// The events that belong to it so far, by what others can know them by; each with its position.
#[derive(Default)]
struct Known {
    events: HashMap<Uuid, u64>,
    /// Endings of runs: what they make room for is shown, and is another story.
    endings: HashMap<Uuid, u64>,
    runs: HashMap<RunId, u64>,
    /// The turn whose calls follow, by run.
    turns: HashMap<(RunId, u32), u64>,
    calls: HashMap<CallId, u64>,
    /// The last that was said of each: asked, or answered.
    approvals: HashMap<ApprovalId, u64>,
    deliveries: HashMap<DeliveryId, u64>,
}

impl Known {
    /// Takes in an event that belongs to it.
    fn learn(&mut self, read: &Read) {
        let (id, position) = (read.recorded.event_id, read.recorded.position);
        let run = read.recorded.stream.uuid().map(RunId::new);
        match &read.event {
            Some(
                AnyEvent::Routine(RoutineEvent::RunSettled(_), _) | AnyEvent::Trigger(TriggerEvent::RunSettled(_), _),
            ) => {
                self.endings.insert(id, position);
                return;
            }
            Some(
                AnyEvent::Routine(RoutineEvent::RunClaimed(claim), _)
                | AnyEvent::Trigger(TriggerEvent::RunClaimed(claim), _),
            ) => {
                self.runs.insert(claim.run, position);
            }
            Some(
                AnyEvent::Routine(RoutineEvent::DeliveryQueued(queued), _)
                | AnyEvent::Trigger(TriggerEvent::DeliveryQueued(queued), _),
            ) => {
                self.deliveries.insert(queued.delivery, position);
            }
            Some(AnyEvent::Delivery(DeliveryEvent::Received(received), _)) => {
                self.deliveries.insert(received.delivery, position);
            }
            Some(AnyEvent::Run(event, _)) => self.learn_of_run(event, run, position),
            _ => {}
        }
        self.events.insert(id, position);
    }

    fn learn_of_run(&mut self, event: &RunEvent, run: Option<RunId>, position: u64) {
        match (event, run) {
            (RunEvent::Opened(_) | RunEvent::Taken { .. }, Some(run)) => {
                self.runs.insert(run, position);
            }
            (RunEvent::TurnFinished { turn, .. }, Some(run)) => {
                self.turns.insert((run, *turn), position);
            }
            (RunEvent::ApprovalRequested(asked), _) => {
                self.approvals.insert(asked.approval, position);
            }
            (RunEvent::ApprovalAnswered(answered), _) => {
                self.approvals.insert(answered.approval, position);
            }
            (RunEvent::ToolCallDecided(decision), _) => {
                self.calls.insert(decision.call, position);
            }
            _ => {}
        }
    }

    /// The position of what an event followed from, if it belongs to it, and whether what follows from the event
    /// belongs to it too.
    fn because(&self, read: &Read) -> Option<(u64, bool)> {
        if let Some(position) = self.by_facts(read) {
            return Some((position, true));
        }
        if let Some(position) = read.recorded.causation_id.and_then(|id| self.events.get(&id)) {
            return Some((*position, true));
        }
        let correlation = read.recorded.correlation_id.as_deref().unwrap_or(read.recorded.stream.as_str());
        if let Some(position) = self.correlated(correlation) {
            return Some((position, true));
        }
        let made_room = read.recorded.causation_id.and_then(|id| self.endings.get(&id));
        made_room.map(|position| (*position, false))
    }

    /// What the facts say, which is nearer than what the same run has in common.
    fn by_facts(&self, read: &Read) -> Option<u64> {
        let position = match &read.event {
            Some(AnyEvent::Run(RunEvent::ToolCallEnded { decision, .. }, _)) => self.calls.get(&decision.call),
            Some(AnyEvent::Run(RunEvent::ApprovalAnswered(answered), _)) => self.approvals.get(&answered.approval),
            Some(AnyEvent::Run(RunEvent::ToolCallDecided(decision), _)) => {
                let answered = decision.approval.and_then(|approval| self.approvals.get(&approval));
                answered
                    .or_else(|| self.turns.get(&(decision.run, decision.turn)))
                    .or_else(|| self.runs.get(&decision.run))
            }
            Some(AnyEvent::Repeat(
                RepeatEvent::Attempted { call, .. }
                | RepeatEvent::ThresholdCrossed { call, .. }
                | RepeatEvent::Settled { call, .. },
                _,
            )) => self.calls.get(call),
            Some(
                AnyEvent::Routine(RoutineEvent::RunClaimed(claim), _)
                | AnyEvent::Trigger(TriggerEvent::RunClaimed(claim), _),
            ) => claim.delivery.and_then(|delivery| self.deliveries.get(&delivery)),
            Some(
                AnyEvent::Routine(RoutineEvent::DeliveryTaken { run, .. }, _)
                | AnyEvent::Trigger(TriggerEvent::DeliveryTaken { run, .. }, _),
            ) => self.runs.get(run),
            _ => None,
        };
        position.copied()
    }

    fn correlated(&self, stream: &str) -> Option<u64> {
        let stream = StreamName::stored(stream.to_owned());
        let uuid = stream.uuid()?;
        match stream.category() {
            "run" => self.runs.get(&RunId::new(uuid)).copied(),
            "delivery" => self.deliveries.get(&DeliveryId::new(uuid)).copied(),
            _ => None,
        }
    }
}
