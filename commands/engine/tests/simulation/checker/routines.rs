//! One live run, and each window one ending.

use std::collections::BTreeSet;

use midwatch_commands::calendar::Schedule;
use midwatch_events::{
    Micros, Recorded,
    id::{RoutineId, RunId},
    routine::{Limits, Missed, RearmCause, RoutineEvent, RunClaimed},
    run::Cause,
    time::SECOND_US,
};

use super::{Checker, Place, Scene, Target, Verdict};

/// How far ahead windows are worked out: farther than any clock of a play comes.
const AHEAD_S: i64 = 80 * 86_400;
/// How much later than due a window may end when nothing goes wrong, in seconds.
const LATE_S: i64 = 120;

/// A routine, as its events tell it.
#[derive(Debug)]
pub(crate) struct Routine {
    pub(super) target: Target,
    /// All its windows, in order.
    windows: Vec<Micros>,
    /// What its jitter adds, in microseconds.
    delay_us: i64,
    grace_us: i64,
    /// How late the newest missed window may still run, in microseconds; 0 where it may not.
    catch_up_us: i64,
    max_runs: Option<u64>,
    /// The window that waits for the live run's end.
    waits: Option<Micros>,
    /// The window that nobody could run when it was due.
    held: Option<Micros>,
    active: bool,
    deleted: bool,
    /// When it was made or given its schedule.
    anchor: Micros,
    /// No window before this exists.
    floor: Micros,
    /// From here on every window has to end. In between it may: what a person's command saw of the time is not known to
    /// the microsecond.
    required_from: Micros,
    ended_up_to: Micros,
    /// Windows that ended.
    pub(crate) endings: u64,
    pub(crate) ran: u64,
    claimed: BTreeSet<Micros>,
}

impl Routine {
    fn new(id: RoutineId, schedule: &str, anchor: Micros, limits: &Limits) -> Result<Self, String> {
        let mut routine = Self {
            target: Target::default(),
            windows: Vec::new(),
            delay_us: 0,
            grace_us: 0,
            catch_up_us: 0,
            max_runs: None,
            waits: None,
            held: None,
            active: true,
            deleted: false,
            anchor,
            floor: anchor,
            required_from: anchor,
            ended_up_to: Micros(i64::MIN),
            endings: 0,
            ran: 0,
            claimed: BTreeSet::new(),
        };
        routine.limit(limits);
        routine.reschedule(id, schedule, anchor)?;
        // The newest window before it was made runs, if its grace is not over.
        let oldest = Micros(anchor.0 - routine.grace_us - routine.delay_us);
        let before = routine.windows.iter().rev().find(|window| **window <= anchor);
        if let Some(within_grace) = before.filter(|window| **window >= oldest) {
            (routine.floor, routine.required_from) = (*within_grace, *within_grace);
        }
        Ok(routine)
    }

    fn limit(&mut self, limits: &Limits) {
        self.grace_us = i64::from(limits.grace_s) * SECOND_US;
        self.catch_up_us = match limits.missed {
            Missed::Record => 0,
            Missed::RunOnceWithin(within_s) => i64::from(within_s) * SECOND_US,
        };
        self.max_runs = limits.max_runs;
    }

    fn reschedule(&mut self, id: RoutineId, schedule: &str, anchor: Micros) -> Verdict {
        let schedule = Schedule::parse(schedule).map_err(|error| error.to_string())?;
        self.delay_us = schedule.effective_at(Micros(0), id.uuid().as_bytes()).0;
        let from = Micros(anchor.0 - self.grace_us - self.delay_us - 1);
        let windows = schedule.windows(from, anchor, anchor.plus_s(AHEAD_S), usize::MAX);
        self.windows = windows.into_iter().map(|window| window.at).collect();
        (self.anchor, self.floor, self.required_from) = (anchor, anchor, anchor);
        self.undo();
        Ok(())
    }

    /// What waited or was held does not exist any more.
    fn undo(&mut self) {
        (self.waits, self.held) = (None, None);
    }

    /// As many windows ran as ever may.
    fn is_over(&self) -> bool {
        self.max_runs.is_some_and(|max| self.ran >= max)
    }

    fn due(&self, window: Micros) -> Micros {
        Micros(window.0 + self.delay_us)
    }

    fn late(&self, window: Micros) -> Micros {
        Micros(window.0 + self.delay_us + self.grace_us)
    }

    /// The first window that has to end and has not.
    fn pending(&self, lifted_at: Micros) -> impl Iterator<Item = Micros> + '_ {
        let from = self.required_from.max(lifted_at);
        let first = self.windows.partition_point(|window| *window < from || *window <= self.ended_up_to);
        self.windows[first..].iter().copied().filter(|_| self.active && !self.is_over())
    }

    /// A window is held or waits: whoever looks again has to be woken for it.
    pub(super) fn is_waiting(&self, now: Micros) -> bool {
        let held = self.held.filter(|held| *held > self.ended_up_to && now <= self.late(*held).plus_s(60));
        self.active && (held.is_some() || self.waits.is_some())
    }

    pub(super) fn next_instant(&self, now: Micros, lifted_at: Micros) -> Option<Micros> {
        let window = self.pending(lifted_at).next()?;
        let given_up = Micros(self.due(window).0 + self.catch_up_us);
        [self.due(window), self.late(window), given_up].into_iter().find(|at| *at > now)
    }

    pub(super) fn edge(&self, now: Micros, lifted_at: Micros) -> Option<Micros> {
        let mut late = self.pending(lifted_at).take_while(|window| self.due(*window) <= now).map(|due| self.late(due));
        late.find(|late| *late >= now)
    }

    /// Between which instants a window may be claimed for this cause.
    fn may_run(&self, window: Micros, cause: Cause) -> (Micros, Micros) {
        if self.waits == Some(window) {
            return (self.due(window), Micros(i64::MAX));
        }
        if cause != Cause::CatchUp {
            return (self.due(window), self.late(window));
        }
        // Once for the newest alone: as soon as the next one is due, there is nothing to catch up on.
        let next = self.windows.get(self.windows.partition_point(|known| *known <= window));
        let next_due = next.map_or(i64::MAX, |next| self.due(*next).0 - 1);
        (Micros(self.late(window).0 + 1), Micros(next_due.min(self.due(window).0 + self.catch_up_us)))
    }

    /// Windows from `first` to `last` end, and none before them is forgotten.
    fn end(&mut self, first: Micros, last: Micros, count: u64, lifted_at: Micros) -> Verdict {
        let from = self.windows.partition_point(|window| *window < first);
        let to = self.windows.partition_point(|window| *window <= last);
        let within = self.windows.get(from..to).unwrap_or_default();
        if within.first() != Some(&first) || within.last() != Some(&last) {
            return Err(format!("{first} to {last} are not windows of its schedule"));
        }
        if within.len() as u64 != count {
            return Err(format!("{} windows lie from {first} to {last}, not {count}", within.len()));
        }
        if self.is_over() {
            return Err(format!("the window {first} ends although {} have run, and no more may", self.ran));
        }
        let floor = self.floor.max(lifted_at);
        if self.waits == Some(first) && first == last && first >= floor {
            self.waits = None;
            self.endings += 1;
            return Ok(());
        }
        if first <= self.ended_up_to {
            return Err(format!("the window {first} ends again; all up to {} had ended (promise 2)", self.ended_up_to));
        }
        if first < floor {
            return Err(format!("the window {first} does not exist: it lies before {floor} (promise 2)"));
        }
        if let Some(forgotten) = self.pending(lifted_at).next().filter(|window| *window < first) {
            return Err(format!("the window {forgotten} was passed over without an ending (promise 2)"));
        }
        self.ended_up_to = last;
        self.endings += count;
        Ok(())
    }

    pub(super) fn ended_all(&self, store: Micros, lifted_at: Micros) -> Verdict {
        if let Some(waits) = self.waits.filter(|_| self.active && self.target.live.is_none() && !self.is_over()) {
            return Err(format!("the window {waits} waits for nothing (promise 2)"));
        }
        // One that is caught up on waits for the live run as well.
        let most_s = if self.catch_up_us > 0 { LATE_S + 2_000 } else { LATE_S };
        match self.pending(lifted_at).next() {
            Some(window) if self.due(window).plus_s(most_s) < store => {
                Err(format!("the window {window} never ended (promise 2)"))
            }
            _ => Ok(()),
        }
    }
}

impl Checker {
    #[expect(clippy::too_many_lines, reason = "one arm for each event of a routine")]
    pub(super) fn routine(&mut self, scene: &Scene<'_>, recorded: &Recorded, event: &RoutineEvent) -> Verdict {
        let id = RoutineId::new(recorded.stream.uuid().ok_or("a stream without an id")?);
        let place = Place::Routine(id);
        if let RoutineEvent::Created { schedule, limits, anchor_us, .. } = event {
            self.routines.insert(id, Routine::new(id, schedule, *anchor_us, limits)?);
            return Ok(());
        }
        match event {
            RoutineEvent::RunClaimed(claim) => return self.claimed(scene, id, claim),
            RoutineEvent::RunSettled(settled) => return self.settled(place, settled.run),
            RoutineEvent::DeliveryQueued(queued) => return self.queued(place, queued),
            RoutineEvent::DeliveryTaken { delivery, run } => return self.taken_from_queue(place, *delivery, *run),
            RoutineEvent::DeliveryDropped { delivery, reason } => {
                return self.dropped(scene, place, *delivery, *reason);
            }
            _ => {}
        }
        let (halted, lifted_at) = (self.halted, self.lifted_at);
        let routine = self.routines.get_mut(&id).ok_or("a routine that was never made")?;
        let windows_may_end = || match (halted, routine.active) {
            (true, _) => Err("a window under a halt does not exist (promise 7)".to_owned()),
            (_, false) => Err("a window of a routine that is switched off does not exist".to_owned()),
            _ => Ok(()),
        };
        let mut missed = None;
        match event {
            RoutineEvent::Rescheduled { schedule, anchor_us, .. } => routine.reschedule(id, schedule, *anchor_us)?,
            RoutineEvent::LimitsReplaced { limits } => routine.limit(limits),
            RoutineEvent::Paused {} | RoutineEvent::Suspended { .. } => {
                routine.active = false;
                routine.undo();
            }
            RoutineEvent::Deleted {} => {
                (routine.active, routine.deleted) = (false, true);
                routine.undo();
            }
            RoutineEvent::Rearmed { cause: RearmCause::Lifted | RearmCause::MaxRuns, .. } => routine.undo(),
            RoutineEvent::WindowHeld { window_us, .. } => {
                windows_may_end()?;
                if routine.held.replace(*window_us) == Some(*window_us) {
                    return Err(format!("the window {window_us} is held twice"));
                }
            }
            RoutineEvent::WindowQueued { window_us, live, .. } => {
                windows_may_end()?;
                if routine.target.live != Some(*live) || routine.waits.is_some() {
                    return Err("a window waits for nothing, or behind another".to_owned());
                }
                if !scene.may_have_decided(routine.due(*window_us), routine.late(*window_us)) {
                    return Err("queued at no time at which it was due".to_owned());
                }
                routine.end(*window_us, *window_us, 1, lifted_at)?;
                // It has still to end.
                routine.endings -= 1;
                routine.waits = Some(*window_us);
            }
            RoutineEvent::Resumed { .. } => {
                routine.active = !routine.deleted;
                routine.undo();
                // A clock that was set back brings no window from before it was made.
                let (from, to) = (scene.shown.iter().copied().min(), scene.shown.iter().copied().max());
                routine.floor = from.unwrap_or(recorded.recorded_at).max(routine.anchor);
                routine.required_from = to.unwrap_or(recorded.recorded_at).max(routine.anchor);
            }
            RoutineEvent::WindowsMissed { first_us, last_us, count, .. } => {
                windows_may_end()?;
                let late = routine.late(*last_us);
                if !scene.may_have_decided(Micros(late.0 + 1), Micros(i64::MAX)) {
                    return Err(format!("missed before its grace was over at {late} (promise 2)"));
                }
                missed = Some(*last_us);
                routine.end(*first_us, *last_us, *count, lifted_at)?;
            }
            RoutineEvent::WindowSkipped { window_us, live, .. } => {
                windows_may_end()?;
                if routine.target.live != Some(*live) {
                    return Err(format!("skipped for {live}, which is not live (promise 2)"));
                }
                if !scene.may_have_decided(routine.due(*window_us), routine.late(*window_us)) {
                    return Err("skipped at no time at which it was due".to_owned());
                }
                routine.end(*window_us, *window_us, 1, lifted_at)?;
            }
            _ => {}
        }
        missed.map_or(Ok(()), |last| self.carries(&["missed", &id.to_string(), &last.0.to_string()]))
    }

    fn claimed(&mut self, scene: &Scene<'_>, id: RoutineId, claim: &RunClaimed) -> Verdict {
        self.live(Place::Routine(id), claim.run)?;
        let lifted_at = self.lifted_at;
        let routine = self.routines.get_mut(&id).ok_or("a routine that was never made")?;
        if routine.deleted || !routine.active && claim.cause != Cause::Person {
            return Err("claimed though it is switched off".to_owned());
        }
        if let Some(delivery) = claim.delivery {
            self.carries(&["claim", &id.to_string(), "delivery", &delivery.to_string()])?;
        }
        let Some(window) = claim.window_us else { return Ok(()) };
        self.carries(&["claim", &id.to_string(), &window.0.to_string()])?;
        let routine = self.routines.get_mut(&id).ok_or("a routine that was never made")?;
        if !routine.claimed.insert(window) {
            return Err(format!("the window {window} fired twice (promise 2)"));
        }
        let (due, late) = routine.may_run(window, claim.cause);
        if !scene.may_have_decided(due, late) {
            return Err(format!("the window {window} was claimed at no time between {due} and {late} (promise 2)"));
        }
        routine.end(window, window, 1, lifted_at)?;
        routine.ran += 1;
        Ok(())
    }

    /// A claim makes its target busy, if it may.
    pub(super) fn live(&mut self, place: Place, run: RunId) -> Verdict {
        if self.halted {
            return Err("claimed under a halt (promise 7)".to_owned());
        }
        if self.runs.contains_key(&run) {
            return Err(format!("{run} is claimed again"));
        }
        self.together.claimed.insert(run);
        match self.target(place)?.live.replace(run) {
            Some(live) => Err(format!("{run} was claimed while {live} is live (promise 1)")),
            None => Ok(()),
        }
    }

    pub(super) fn settled(&mut self, place: Place, run: RunId) -> Verdict {
        self.together.settled.insert(run);
        match self.target(place)?.live.take() {
            Some(live) if live == run => Ok(()),
            live => Err(format!("{run} was settled while {live:?} is live (promise 1)")),
        }
    }
}
