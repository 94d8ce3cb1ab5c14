//! What runs are claimed on: a routine, or a trigger with an instruction of its own. Both hold at most one live run
//! and a queue of deliveries; the fold of the stream **is** the queue, so its length, order and age are exact in any
//! number of processes. Holds promise 1: one live run.

use std::collections::VecDeque;

use midwatch_events::{
    Micros,
    id::{DeliveryId, ProcessId, RunId},
    routine::{DeliveryQueued, DropReason, RunClaimed, RunSettled},
    run::{Cause, Outcome},
};

/// The run a target is busy with, and the deliveries that wait for it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Target {
    /// The live run.
    pub live: Option<RunId>,
    /// Why it runs.
    pub live_cause: Option<Cause>,
    /// Deliveries that wait, oldest first.
    pub queue: VecDeque<DeliveryQueued>,
    /// Endings in a row that were neither succeeded nor cancelled.
    pub failures: u32,
    /// Windows claimed so far.
    pub windows_claimed: u64,
}

/// What a target may say, in the words both families share.
#[derive(Clone, Debug, PartialEq)]
pub enum TargetEvent {
    /// A delivery waits.
    Queued(DeliveryQueued),
    /// A delivery became a run.
    Taken(DeliveryId, RunId),
    /// A delivery will not run.
    Dropped(DeliveryId, DropReason),
    /// A run was claimed.
    Claimed(RunClaimed),
}

/// A delivery that asks to wait.
#[derive(Clone, Debug)]
pub struct Queueing {
    /// The delivery and how long it may wait.
    pub delivery: DeliveryQueued,
    /// How many may wait.
    pub queue_max: u32,
}

/// A process that would take the next delivery.
#[derive(Clone, Copy, Debug)]
pub struct ClaimNext {
    /// Namespace of derived ids.
    pub namespace: uuid::Uuid,
    /// Who claims.
    pub process: ProcessId,
    /// The store's time.
    pub now: Micros,
}

impl Target {
    /// What happens to a delivery that asks to wait: queued, or dropped where the queue is full or the target gone.
    #[must_use]
    pub fn queue(&self, asked: Queueing, gone: bool) -> Vec<TargetEvent> {
        let delivery = asked.delivery.delivery;
        if self.queue.iter().any(|waiting| waiting.delivery == delivery) {
            return vec![];
        }
        if gone {
            return vec![TargetEvent::Dropped(delivery, DropReason::TargetGone)];
        }
        if self.queue.len() >= asked.queue_max as usize {
            return vec![TargetEvent::Dropped(delivery, DropReason::QueueFull)];
        }
        vec![TargetEvent::Queued(asked.delivery)]
    }

    /// Drops what waited too long, then claims the oldest delivery if nothing is live. `may_start` is false while the
    /// target is paused or suspended: deliveries then wait until their age is over.
    #[must_use]
    pub fn claim_next(&self, scope: &str, claim: ClaimNext, may_start: bool) -> Vec<TargetEvent> {
        let expired = self.queue.iter().take_while(|waiting| claim.now >= waiting.expires_us);
        let mut events: Vec<_> =
            expired.map(|waiting| TargetEvent::Dropped(waiting.delivery, DropReason::Expired)).collect();
        let next = self.queue.get(events.len());
        if let (Some(next), None, true) = (next, self.live, may_start) {
            let key = claim_key(scope, &["delivery", &next.delivery.to_string()]);
            let run = RunId::derived(claim.namespace, &key.hash);
            events.push(TargetEvent::Claimed(RunClaimed {
                run,
                cause: Cause::Delivery,
                window_us: None,
                delivery: Some(next.delivery),
                claimed_by: claim.process,
                tzdb: None,
                next_us: None,
            }));
            events.push(TargetEvent::Taken(next.delivery, run));
        }
        events
    }

    /// The first instant at which there is something to do for waiting deliveries, if there is one.
    #[must_use]
    pub fn attention_at(&self, may_start: bool) -> Option<Micros> {
        let oldest = self.queue.front()?;
        Some(if self.live.is_none() && may_start { Micros(0) } else { oldest.expires_us })
    }

    pub(crate) fn queued(&mut self, delivery: &DeliveryQueued) {
        if self.queue.iter().all(|waiting| waiting.delivery != delivery.delivery) {
            self.queue.push_back(delivery.clone());
        }
    }

    pub(crate) fn left_queue(&mut self, delivery: DeliveryId) {
        self.queue.retain(|waiting| waiting.delivery != delivery);
    }

    pub(crate) fn claimed(&mut self, claim: &RunClaimed) {
        self.live = Some(claim.run);
        self.live_cause = Some(claim.cause);
        if claim.window_us.is_some() {
            self.windows_claimed += 1;
        }
    }

    pub(crate) fn settled(&mut self, settled: &RunSettled) {
        // A late settle of an older run must not free a target that is busy with another one.
        if self.live != Some(settled.run) {
            return;
        }
        self.live = None;
        self.live_cause = None;
        match settled.outcome {
            Outcome::Succeeded => self.failures = 0,
            Outcome::Cancelled => {}
            Outcome::Failed | Outcome::Refused | Outcome::Stopped | Outcome::TimedOut | Outcome::Abandoned => {
                self.failures = self.failures.saturating_add(1);
            }
        }
    }
}

/// The key of a claim on `scope` (a stream name): `claim/<scope>/<what>`. The same window, request or delivery can so
/// be claimed once in the whole history, also when its first run has long ended.
#[must_use]
pub fn claim_key(scope: &str, what: &[&str]) -> midwatch_events::key::Key {
    let mut parts = vec!["claim", scope];
    parts.extend_from_slice(what);
    let asked: Vec<&[u8]> = parts[1..].iter().map(|part| part.as_bytes()).collect();
    midwatch_events::key::Key::new(&parts, &asked)
}
