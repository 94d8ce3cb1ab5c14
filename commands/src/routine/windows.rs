//! What a tick does with the windows that are due.
//!
//! A tick is a walk in steps: each looks at the routine as the steps before have left it, and ends at most one window.

use midwatch_events::{
    Micros, New,
    id::{ProcessId, RoutineId, RunId},
    routine::{Missed, MissedReason, Overlap, RearmCause, RoutineEvent, RunClaimed, RunSettled, SkippedReason},
    run::{Cause, Outcome, Reason},
    time::SECOND_US,
};
use uuid::Uuid;

use super::{Phase, Routine, zone_data};
use crate::{
    Decider as _,
    calendar::Schedule,
    mutant::{Mutant, active},
    target::claim_key,
};

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
    /// Why nobody can run it at present; none where somebody can.
    pub unable: Option<MissedReason>,
    /// Whether a catch-up may start now. Without it one waits for its turn.
    pub catch_up: bool,
}

/// Windows handled by one tick at the most; the next tick goes on.
const STEPS_MAX: usize = 500;

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

pub(super) fn just_before(instant: Micros) -> Micros {
    Micros(instant.0.saturating_sub(1))
}

impl Routine {
    /// The first window that is not before `from` (an edit, a resume, the lift of a halt). A clock that was set back
    /// brings no window again: it is also later than every window that has ended or waits (promise 2), and not before the
    /// routine was made or given its schedule.
    pub(super) fn next_from(&self, schedule: &Schedule, from: Micros, anchor: Micros) -> Option<Micros> {
        if self.over_max_runs() {
            return None;
        }
        let ended_up_to = self.ended_up_to.filter(|_| !active(Mutant::HighWaterIsForgotten));
        let from = just_before(from.max(anchor));
        let after = ended_up_to.map_or(from, |ended| ended.max(from));
        schedule.next_after(after, anchor).map(|window| window.at)
    }

    /// Whether as many windows were claimed as ever may be.
    #[must_use]
    pub fn over_max_runs(&self) -> bool {
        let more = u64::from(active(Mutant::OneRunMore));
        self.limits.max_runs.is_some_and(|max| self.target.windows_claimed >= max + more)
    }

    /// How each window up to now ends. Nothing is recorded for windows that do not exist (design: routine paused,
    /// suspended, deleted; before the lift of a halt), but the move of the next window over them is.
    pub(super) fn tick(&self, tick: &Tick) -> Vec<New<RoutineEvent>> {
        let mut walked = self.clone();
        let mut events = Vec::new();
        while events.len() < STEPS_MAX {
            let step = walked.step(tick, self.target.live);
            if step.is_empty() {
                break;
            }
            step.iter().for_each(|event| walked.evolve(event, tick.now));
            events.extend(step);
        }
        events.into_iter().map(New::from).collect()
    }

    /// The next thing to record; nothing when there is nothing more. `before` is the run that was live before the tick.
    fn step(&self, tick: &Tick, before: Option<RunId>) -> Vec<RoutineEvent> {
        let (Phase::Active, Some(id), Some(schedule)) = (self.phase, self.id, self.schedule.as_ref()) else {
            return vec![];
        };
        if let Some(rearmed) = self.rearm(schedule, tick) {
            return vec![rearmed];
        }
        let look = Look { routine: self, id, schedule, tick, delay_us: delay_us(schedule, id) };
        if let (Some(window), None, false) = (self.queued, self.target.live, active(Mutant::QueuedIsForgotten)) {
            return look.free_for(window, Cause::Schedule, self.next);
        }
        match self.next.filter(|window| look.late_us(*window) >= 0) {
            None => vec![],
            Some(window) if look.is_late(window) => look.late(window),
            Some(window) => look.on_time(window, before),
        }
    }

    /// Moves the next window over those that do not exist.
    fn rearm(&self, schedule: &Schedule, tick: &Tick) -> Option<RoutineEvent> {
        let earliest = self.queued.or(self.next)?;
        if let Some(lifted) = tick.lifted_at.filter(|lifted| earliest < *lifted) {
            let next_us = self.next.and_then(|_| self.next_from(schedule, lifted, self.anchor));
            return Some(RoutineEvent::Rearmed { next_us, cause: RearmCause::Lifted, tzdb: None });
        }
        if self.over_max_runs() {
            return Some(RoutineEvent::Rearmed { next_us: None, cause: RearmCause::MaxRuns, tzdb: None });
        }
        zone_data::moved_away(self, schedule, tick.tzdb)
    }
}

/// One routine, looked at at one instant.
struct Look<'a> {
    routine: &'a Routine,
    id: RoutineId,
    schedule: &'a Schedule,
    tick: &'a Tick,
    delay_us: i64,
}

impl Look<'_> {
    fn late_us(&self, window: Micros) -> i64 {
        self.tick.now.since(window).saturating_sub(self.delay_us)
    }

    /// Later than the grace: exactly the grace still runs.
    fn is_late(&self, window: Micros) -> bool {
        let early_us = i64::from(active(Mutant::GraceEndsEarly));
        self.late_us(window) > i64::from(self.routine.limits.grace_s) * SECOND_US - early_us
    }

    fn within_catch_up(&self, window: Micros) -> bool {
        match self.routine.limits.missed {
            Missed::Record => false,
            Missed::RunOnceWithin(within_s) => self.late_us(window) <= i64::from(within_s) * SECOND_US,
        }
    }

    fn after(&self, window: Micros) -> Option<Micros> {
        let window = if active(Mutant::NextFromNow) { self.tick.now } else { window };
        self.schedule.next_after(window, self.routine.anchor).map(|window| window.at)
    }

    /// A window inside its grace.
    fn on_time(&self, window: Micros, before: Option<RunId>) -> Vec<RoutineEvent> {
        let routine = self.routine;
        let Some(live) = routine.target.live.filter(|_| !active(Mutant::LiveIsNotLookedAt)) else {
            return self.free_for(window, Cause::Schedule, self.after(window));
        };
        let (bot, next_us) = (routine.bot, self.after(window));
        let skip = |reason| vec![RoutineEvent::WindowSkipped { window_us: window, reason, live, bot, next_us }];
        match routine.limits.overlap {
            Overlap::QueueOne if routine.queued.is_none() => {
                vec![RoutineEvent::WindowQueued { window_us: window, live, bot, next_us }]
            }
            Overlap::QueueOne => skip(SkippedReason::QueueFull),
            // A run that this very tick opened is not cancelled by its next window.
            Overlap::CancelLive if before == Some(live) => match self.tick.unable {
                Some(reason) => self.held(window, reason),
                None => {
                    let (outcome, reason) = (Outcome::Cancelled, Some(Reason::Replaced));
                    let replaced = RunSettled { run: live, outcome, reason, bot };
                    vec![RoutineEvent::RunSettled(replaced), self.claim(window, Cause::Schedule, next_us)]
                }
            },
            Overlap::Skip | Overlap::CancelLive => skip(SkippedReason::Live),
        }
    }

    /// Nothing is live, so the window runs, or is held where nobody can run it; one that waited too long is missed.
    fn free_for(&self, window: Micros, cause: Cause, next: Option<Micros>) -> Vec<RoutineEvent> {
        match self.tick.unable {
            None => vec![self.claim(window, cause, next)],
            Some(reason) if self.is_late(window) && !self.within_catch_up(window) => {
                vec![self.missed(window, window, 1, reason, next)]
            }
            Some(reason) => self.held(window, reason),
        }
    }

    /// Nobody can run it: said once.
    fn held(&self, window_us: Micros, reason: MissedReason) -> Vec<RoutineEvent> {
        if self.routine.held.is_some_and(|(held, _)| held == window_us) {
            return vec![];
        }
        vec![RoutineEvent::WindowHeld { window_us, reason, bot: self.routine.bot }]
    }

    /// The windows from `first` on that are later than the grace: one event for all of them, except for one that was
    /// held, which has a reason of its own, and one that is caught up on.
    fn late(&self, first: Micros) -> Vec<RoutineEvent> {
        let until = just_before(Micros(self.tick.now.0 - self.grace_us() - self.delay_us));
        let stretch = self.schedule.stretch(first, self.routine.anchor, until);
        let one = u64::from(!active(Mutant::MissedCountIsShort));
        let (last, count) = stretch.map_or((first, 1), |more| (more.last.at, more.count + one));
        let next = self.after(last);
        // A newer window that is on time runs by itself: then there is nothing to catch up on.
        let on_time = next.is_some_and(|next| self.late_us(next) >= 0);
        if active(Mutant::CatchesUpOnEach) && self.within_catch_up(first) {
            return self.catch_up(first, first, 1, self.after(first));
        }
        if self.within_catch_up(last) && !on_time {
            return self.catch_up(first, last, count, next);
        }
        match self.routine.held.filter(|(held, _)| *held == first) {
            Some((_, reason)) => {
                let reason = self.tick.unable.unwrap_or(reason);
                vec![self.missed(first, first, 1, reason, self.after(first))]
            }
            None => vec![self.missed(first, last, count, MissedReason::Late, next)],
        }
    }

    /// The newest missed window runs, the ones before it are recorded. While the previous run is live, or it is not its
    /// turn, it stays due.
    fn catch_up(&self, first: Micros, last: Micros, count: u64, next: Option<Micros>) -> Vec<RoutineEvent> {
        if self.routine.target.live.is_some() || (self.tick.unable.is_none() && !self.tick.catch_up) {
            return vec![];
        }
        let mut events = Vec::new();
        if first < last {
            let before = self.schedule.stretch(just_before(first), self.routine.anchor, just_before(last));
            let before = before.map_or(first, |stretch| stretch.last.at);
            events.push(self.missed(first, before, count - 1, MissedReason::Late, Some(last)));
        }
        match self.tick.unable {
            Some(reason) => events.extend(self.held(last, reason)),
            None => events.push(self.claim(last, Cause::CatchUp, next)),
        }
        events
    }

    fn grace_us(&self) -> i64 {
        i64::from(self.routine.limits.grace_s) * SECOND_US
    }

    fn claim(&self, window: Micros, cause: Cause, next: Option<Micros>) -> RoutineEvent {
        let key = claim_key(&self.id.to_string(), &[&window.0.to_string()]);
        let claimed = self.routine.target.windows_claimed.saturating_add(1);
        let one_more = u64::from(active(Mutant::OneRunMore));
        let more = self.routine.limits.max_runs.is_none_or(|max| claimed < max + one_more);
        RoutineEvent::RunClaimed(RunClaimed {
            run: RunId::derived(self.tick.namespace, &key.hash),
            cause,
            bot: self.routine.bot,
            window_us: Some(window),
            delivery: None,
            redelivery: None,
            claimed_by: self.tick.process,
            tzdb: Some(self.tick.tzdb.to_owned()),
            next_us: next.filter(|_| more),
        })
    }

    fn missed(
        &self,
        first_us: Micros,
        last_us: Micros,
        count: u64,
        reason: MissedReason,
        next_us: Option<Micros>,
    ) -> RoutineEvent {
        RoutineEvent::WindowsMissed { first_us, last_us, count, bot: self.routine.bot, reason, next_us }
    }
}
