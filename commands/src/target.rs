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
use serde::{Deserialize, Serialize};

use crate::mutant::{Mutant, active};

/// Endings in a row, other than succeeded or cancelled, that switch a routine off.
pub const FAILURES_MAX: u32 = 10;

/// The run a target is busy with, and the deliveries that wait for it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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
    /// The newest only: what waits of the same trigger gives way to it.
    pub newest_only: bool,
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
        let trigger = asked.delivery.trigger;
        let gives_way = |waiting: &&DeliveryQueued| asked.newest_only && waiting.trigger == trigger;
        let older = self.queue.iter().filter(gives_way);
        let mut events: Vec<_> =
            older.map(|waiting| TargetEvent::Dropped(waiting.delivery, DropReason::Coalesced)).collect();
        if self.queue.len() - events.len() >= asked.queue_max as usize {
            return vec![TargetEvent::Dropped(delivery, DropReason::QueueFull)];
        }
        events.push(TargetEvent::Queued(asked.delivery));
        events
    }

    /// Drops what waited too long, then claims the oldest delivery if nothing is live. `may_start` is false while the
    /// target is paused or suspended: deliveries then wait until their age is over.
    #[must_use]
    pub fn claim_next(&self, scope: &str, claim: ClaimNext, may_start: bool) -> Vec<TargetEvent> {
        // Not only at the front: triggers that share a routine have ages of their own.
        let expired = |waiting: &&DeliveryQueued| claim.now >= waiting.expires_us;
        let dropped = self.queue.iter().filter(expired);
        let mut events: Vec<_> =
            dropped.map(|waiting| TargetEvent::Dropped(waiting.delivery, DropReason::Expired)).collect();
        let mut waiting = self.queue.iter().filter(|waiting| !expired(waiting));
        let next = if active(Mutant::NewestDeliveryFirst) { waiting.next_back() } else { waiting.next() };
        if let (Some(next), None, true) = (next, self.live, may_start) {
            let key = delivery_key(scope, next.delivery, next.redelivery);
            let run = RunId::derived(claim.namespace, &key.hash);
            events.push(TargetEvent::Claimed(RunClaimed {
                bot: None,
                run,
                cause: Cause::Delivery,
                window_us: None,
                delivery: Some(next.delivery),
                redelivery: next.redelivery,
                claimed_by: claim.process,
                tzdb: None,
                next_us: None,
            }));
            events.push(TargetEvent::Taken(next.delivery, run));
        }
        events
    }

    /// Whether a delivery that comes now would have to wait.
    #[must_use]
    pub fn busy(&self) -> bool {
        self.live.is_some() || !self.queue.is_empty()
    }

    /// All that waits, dropped because the target goes.
    #[must_use]
    pub fn drop_all(&self) -> Vec<TargetEvent> {
        let gone = |waiting: &DeliveryQueued| TargetEvent::Dropped(waiting.delivery, DropReason::TargetGone);
        self.queue.iter().map(gone).collect()
    }

    /// The first instant at which there is something to do for waiting deliveries, if there is one.
    #[must_use]
    pub fn attention_at(&self, may_start: bool) -> Option<Micros> {
        let expires = self.queue.iter().map(|waiting| waiting.expires_us).min()?;
        Some(if self.live.is_none() && may_start { Micros(0) } else { expires })
    }

    /// [`Target::failures`] once the live run has ended so.
    pub(crate) fn failures_after(&self, outcome: Outcome) -> u32 {
        match outcome {
            Outcome::Succeeded => 0,
            Outcome::Cancelled => self.failures,
            Outcome::Failed | Outcome::Refused | Outcome::Stopped | Outcome::TimedOut | Outcome::Abandoned => {
                self.failures.saturating_add(1)
            }
        }
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
            self.windows_claimed = self.windows_claimed.saturating_add(1);
        }
    }

    pub(crate) fn settled(&mut self, settled: &RunSettled) {
        // A late settle of an older run must not free a target that is busy with another one.
        if self.live != Some(settled.run) {
            return;
        }
        self.live = None;
        self.live_cause = None;
        self.failures = self.failures_after(settled.outcome);
    }
}

/// The key under which a delivery is claimed once, and each of its redeliveries once.
#[must_use]
pub fn delivery_key(scope: &str, delivery: DeliveryId, redelivery: Option<u32>) -> midwatch_events::key::Key {
    let delivery = delivery.to_string();
    match redelivery {
        None => claim_key(scope, &["delivery", &delivery]),
        Some(nth) => claim_key(scope, &["delivery", &delivery, &nth.to_string()]),
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

#[cfg(test)]
mod tests;
