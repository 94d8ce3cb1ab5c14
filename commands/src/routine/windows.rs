//! What a tick does with the windows that are due.

use midwatch_events::{
    Micros, New,
    id::{BotId, ProcessId, RoutineId, RunId},
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
pub(super) fn first(schedule: &Schedule, routine: RoutineId, now: Micros, grace_s: u32) -> Option<Micros> {
    let oldest = now.plus_s(-i64::from(grace_s)).0.saturating_sub(delay_us(schedule, routine));
    let after = just_before(Micros(oldest));
    match schedule.stretch(after, now, now) {
        Some(within_grace) => Some(within_grace.last.at),
        None => schedule.next_after(now, now).map(|window| window.at),
    }
}

/// How long each of the routine's windows is put off by its jitter, in microseconds; the same for all of them.
fn delay_us(schedule: &Schedule, routine: RoutineId) -> i64 {
    schedule.effective_at(Micros(0), routine.uuid().as_bytes()).0
}

fn just_before(instant: Micros) -> Micros {
    Micros(instant.0.saturating_sub(1))
}

impl Routine {
    /// The first window that is not before `from` (an edit, a resume, the lift of a halt). A clock that was set back
    /// brings no window again: it is also later than every window that has ended (promise 2).
    pub(super) fn next_from(&self, schedule: &Schedule, from: Micros, anchor: Micros) -> Option<Micros> {
        let after = self.ended_up_to.map_or(just_before(from), |ended| ended.max(just_before(from)));
        schedule.next_after(after, anchor).map(|window| window.at)
    }

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
            next = self.next_from(schedule, lifted, self.anchor);
            events.push(RoutineEvent::Rearmed { next_us: next });
        }
        let grace_us = i64::from(self.limits.grace_s) * SECOND_US;
        let delay_us = delay_us(schedule, id);
        for _ in 0..STEPS_MAX {
            let Some(window) = next.filter(|window| tick.now.since(*window) >= delay_us) else { break };
            if tick.now.since(window) > delay_us + grace_us {
                let missed = self.missed(schedule, window, Micros(tick.now.0 - grace_us - delay_us));
                next = missed.next;
                events.push(missed.event(self.bot));
                continue;
            }
            next = after(window);
            if let Some(live) = live {
                let reason = SkippedReason::Live;
                events.push(RoutineEvent::WindowSkipped {
                    bot: self.bot,
                    window_us: window,
                    reason,
                    live,
                    next_us: next,
                });
            } else {
                let key = claim_key(&id.to_string(), &[&window.0.to_string()]);
                let run = RunId::derived(tick.namespace, &key.hash);
                live = Some(run);
                events.push(RoutineEvent::RunClaimed(RunClaimed {
                    bot: self.bot,
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

    /// The windows from `first` on that are later than the grace: all before `until`.
    fn missed(&self, schedule: &Schedule, first: Micros, until: Micros) -> Missed {
        let stretch = schedule.stretch(first, self.anchor, just_before(until));
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
    fn event(self, bot: Option<BotId>) -> RoutineEvent {
        RoutineEvent::WindowsMissed {
            bot,
            first_us: self.first,
            last_us: self.last,
            count: self.count,
            reason: MissedReason::Late,
            next_us: self.next,
        }
    }
}
