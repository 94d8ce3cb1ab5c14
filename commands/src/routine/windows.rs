//! What a tick does with the windows that are due.

use midwatch_events::{
    Micros, New,
    id::{ProcessId, RunId},
    routine::{MissedReason, RoutineEvent, RunClaimed, SkippedReason},
    run::Cause,
    time::SECOND_US,
};
use uuid::Uuid;

use super::{Phase, Routine};
use crate::{calendar::Schedule, target::claim_key};

/// A process with the `clock` role looks at a routine.
#[derive(Clone, Debug)]
pub struct Tick {
    /// The store's time.
    pub now: Micros,
    /// Who looks.
    pub process: ProcessId,
    /// Namespace of derived ids.
    pub namespace: Uuid,
    /// When scheduling was last lifted: windows before that do not exist.
    pub lifted_at: Option<Micros>,
    /// The release of the time-zone data in use.
    pub tzdb: &'static str,
}

/// Windows handled by one tick at the most; the next tick goes on.
const STEPS_MAX: usize = 1_000;

/// The first window of a new routine: the newest that is still inside the grace ("weekdays at eight", written at
/// 08:03, runs today), else the next one.
pub(super) fn first(schedule: &Schedule, now: Micros, grace_s: u32) -> Option<Micros> {
    let after = Micros(now.plus_s(-i64::from(grace_s)).0 - 1);
    match schedule.stretch(after, now, now) {
        Some(within_grace) => Some(within_grace.last.at),
        None => schedule.next_after(now, now).map(|window| window.at),
    }
}

impl Routine {
    /// How each window up to now ends. Nothing is recorded for windows that do not exist (design: routine paused,
    /// suspended, deleted; before the lift of a halt), but the move of the next window over them is.
    pub(super) fn tick(&self, tick: Tick) -> Vec<New<RoutineEvent>> {
        let (Phase::Active, Some(id), Some(schedule)) = (self.phase, self.id, self.schedule.as_ref()) else {
            return vec![];
        };
        let mut events = Vec::new();
        let mut next = self.next;
        let mut live = self.target.live;
        let after = |window: Micros| schedule.next_after(window, self.anchor).map(|window| window.at);
        if let (Some(window), Some(lifted)) = (next, tick.lifted_at)
            && window < lifted
        {
            next = after(Micros(lifted.0 - 1));
            events.push(RoutineEvent::Rearmed { next_us: next });
        }
        let grace_us = i64::from(self.limits.grace_s) * SECOND_US;
        for _ in 0..STEPS_MAX {
            let Some(window) = next.filter(|window| tick.now >= self.due_at(schedule, *window)) else { break };
            if tick.now.since(self.due_at(schedule, window)) > grace_us {
                let missed = self.missed(schedule, window, Micros(tick.now.0 - grace_us));
                next = missed.next;
                events.push(missed.event());
                continue;
            }
            next = after(window);
            if let Some(live) = live {
                let reason = SkippedReason::Live;
                events.push(RoutineEvent::WindowSkipped { window_us: window, reason, live, next_us: next });
            } else {
                let key = claim_key(&id.to_string(), &[&window.0.to_string()]);
                let run = RunId::derived(tick.namespace, &key.hash);
                live = Some(run);
                events.push(RoutineEvent::RunClaimed(RunClaimed {
                    run,
                    cause: Cause::Schedule,
                    window_us: Some(window),
                    delivery: None,
                    claimed_by: tick.process,
                    tzdb: Some(tick.tzdb.to_owned()),
                    next_us: next,
                }));
            }
        }
        events.into_iter().map(New::from).collect()
    }

    /// When a window may start: its own time, and its jitter.
    fn due_at(&self, schedule: &Schedule, window: Micros) -> Micros {
        match self.id {
            Some(id) => schedule.effective_at(window, id.uuid().as_bytes()),
            None => window,
        }
    }

    /// The windows from `first` on that are later than the grace: all that were due before `until`.
    fn missed(&self, schedule: &Schedule, first: Micros, until: Micros) -> Missed {
        let stretch = schedule.stretch(first, self.anchor, Micros(until.0 - 1));
        // A jittered window near the edge may still be inside its grace: then it is not part of the stretch.
        let stretch = stretch.filter(|stretch| self.due_at(schedule, stretch.last.at) < until);
        let (last, count) = stretch.map_or((first, 1), |more| (more.last.at, more.count + 1));
        let next = schedule.next_after(last, self.anchor).map(|window| window.at);
        Missed { first, last, count, next }
    }
}

struct Missed {
    first: Micros,
    last: Micros,
    count: u64,
    next: Option<Micros>,
}

impl Missed {
    fn event(self) -> RoutineEvent {
        RoutineEvent::WindowsMissed {
            first_us: self.first,
            last_us: self.last,
            count: self.count,
            reason: MissedReason::Late,
            next_us: self.next,
        }
    }
}
