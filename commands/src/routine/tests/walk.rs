//! A random walk on one routine, and what holds after every step (promises 1 and 2).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use midwatch_events::{
    id::DeliveryId,
    routine::{DeliveryQueued, Missed, Overlap},
};
use proptest::prelude::*;

use super::*;

const SCHEDULES: [&str; 4] = [
    QUARTERS,
    AT_EIGHT,
    r#"{"kind":"every","zone":"UTC","minutes":7,"jitter_s":400}"#,
    r#"{"kind":"cron","zone":"Europe/Berlin","expr":"*/20 6-20 * * *"}"#,
];

#[derive(Clone, Debug)]
enum Step {
    Tick { able: bool, catch_up: bool },
    Jump { seconds: i64 },
    Lift,
    RunNow,
    Settle { older: bool, outcome: Outcome },
    Pause,
    Suspend,
    Resume,
    Edit { schedule: usize },
    Limits(Limits),
    Queue { age_s: i64, queue_max: u32 },
    ClaimNext,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let outcome = prop::sample::select(vec![Outcome::Succeeded, Outcome::Failed, Outcome::Cancelled]);
    let step = prop_oneof![
        6 => Just(Step::Tick { able: true, catch_up: true }),
        2 => any::<(bool, bool)>().prop_map(|(able, catch_up)| Step::Tick { able, catch_up }),
        5 => (0_i64..1_200).prop_map(|seconds| Step::Jump { seconds }),
        1 => (-4_000_i64..12_000).prop_map(|seconds| Step::Jump { seconds }),
        1 => Just(Step::Lift),
        2 => Just(Step::RunNow),
        5 => (prop::bool::weighted(0.2), outcome).prop_map(|(older, outcome)| Step::Settle { older, outcome }),
        1 => Just(Step::Pause),
        1 => Just(Step::Suspend),
        2 => Just(Step::Resume),
        1 => (0..SCHEDULES.len()).prop_map(|schedule| Step::Edit { schedule }),
        2 => limits().prop_map(Step::Limits),
        3 => (1_i64..3_000, 0_u32..4).prop_map(|(age_s, queue_max)| Step::Queue { age_s, queue_max }),
        3 => Just(Step::ClaimNext),
    ];
    prop::collection::vec(step, 1..80)
}

fn limits() -> impl Strategy<Value = Limits> {
    let overlap = prop::sample::select(vec![Overlap::Skip, Overlap::QueueOne, Overlap::CancelLive]);
    let missed = prop_oneof![Just(Missed::Record), (1_u32..9_000).prop_map(Missed::RunOnceWithin)];
    let max_runs = prop::option::weighted(0.2, 1_u64..30);
    (0_u32..3_000, overlap, missed, max_runs).prop_map(|(grace_s, overlap, missed, max_runs)| Limits {
        grace_s,
        overlap,
        missed,
        max_runs,
        ..Limits::default()
    })
}

/// What is known from the events alone, without asking the routine.
struct World {
    routine: Routine,
    now: Micros,
    lifted: Option<Micros>,
    things: u128,
    live: Option<RunId>,
    runs: Vec<RunId>,
    /// How each window ended.
    endings: BTreeMap<Micros, &'static str>,
    /// Windows later than this exist: since the last creation, edit, resume or lift, and none that had ended by then.
    exists_after: Micros,
    waiting: VecDeque<DeliveryQueued>,
    delivered: BTreeSet<DeliveryId>,
}

impl World {
    fn new(schedule: usize, grace_s: u32) -> Self {
        let routine = with_grace(SCHEDULES[schedule], "2026-12-01T07:58:30Z", grace_s).0;
        let first = routine.next.expect("a first window");
        Self {
            routine,
            now: at("2026-12-01T07:58:30Z"),
            lifted: None,
            things: 1_000,
            live: None,
            runs: vec![],
            endings: BTreeMap::new(),
            exists_after: Micros(first.0 - 1),
            waiting: VecDeque::new(),
            delivered: BTreeSet::new(),
        }
    }

    fn windows(&self, after: Micros, up_to: Micros) -> Vec<Micros> {
        let schedule = self.routine.schedule.as_ref().expect("a schedule");
        schedule.windows(after, self.routine.anchor, up_to, 100_000).into_iter().map(|window| window.at).collect()
    }

    /// Windows whose instant, and jitter, are over and that must have ended by now.
    fn due(&self) -> Vec<Micros> {
        let routine: RoutineId = id(1);
        let schedule = self.routine.schedule.as_ref().expect("a schedule");
        if self.routine.over_max_runs() {
            return vec![];
        }
        let lifted = self.lifted.map_or(self.exists_after, |lifted| Micros(lifted.0 - 1));
        let due = |window: &Micros| schedule.effective_at(*window, routine.uuid().as_bytes()) <= self.now;
        self.windows(self.exists_after.max(lifted), self.now).into_iter().filter(due).collect()
    }

    fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        self.things += 1;
        let command = match step {
            Step::Jump { seconds } => {
                self.now = self.now.plus_s(*seconds);
                return Ok(());
            }
            Step::Lift => {
                self.lifted = Some(self.now);
                return Ok(());
            }
            Step::Tick { able, catch_up } => {
                let (now, lifted_at, catch_up) = (self.now, self.lifted, *catch_up);
                let unable = (!able).then_some(MissedReason::NoRunner);
                RoutineCommand::Tick(Tick { now, lifted_at, unable, catch_up, ..tick_of("08:00:00") })
            }
            Step::RunNow => run_now(self.things),
            Step::Settle { older, outcome } => {
                let run = if *older { self.runs.first().copied() } else { self.live };
                settle(run.unwrap_or(id(9_999)), *outcome)
            }
            Step::Pause => pause(),
            Step::Suspend => suspend(),
            Step::Resume => RoutineCommand::Resume { now: self.now },
            Step::Edit { schedule } => RoutineCommand::Edit(Box::new(Edit {
                schedule: Some(SCHEDULES[*schedule].to_owned()),
                now: self.now,
                ..Edit::default()
            })),
            Step::Limits(limits) => {
                let limits = Some(limits.clone());
                RoutineCommand::Edit(Box::new(Edit { limits, now: self.now, ..Edit::default() }))
            }
            Step::Queue { age_s, queue_max } => {
                let delivery = DeliveryQueued {
                    delivery: id(self.things),
                    trigger: id(4),
                    expires_us: self.now.plus_s(*age_s),
                    redelivery: None,
                };
                RoutineCommand::Queue(Queueing { delivery, queue_max: *queue_max, newest_only: false })
            }
            Step::ClaimNext => {
                RoutineCommand::ClaimNext(ClaimNext { namespace: NAMESPACE, process: id(9), now: self.now })
            }
        };
        // A refusal changes nothing.
        let Ok(events) = self.routine.decide(command) else { return Ok(()) };
        for event in events {
            self.happens(&event.facts)?;
        }
        self.afterwards(step)
    }

    fn happens(&mut self, event: &RoutineEvent) -> Result<(), TestCaseError> {
        let (before, queued) = (self.routine.next, self.routine.queued);
        self.routine.evolve(event, self.now);
        let next = self.routine.next;
        match event {
            RoutineEvent::RunClaimed(claim) => {
                prop_assert_eq!(self.live, None, "a second live run");
                prop_assert!(!self.runs.contains(&claim.run), "a run twice");
                self.live = Some(claim.run);
                self.runs.push(claim.run);
                match claim.window_us {
                    Some(window) => {
                        let from = if queued == Some(window) { queued } else { before };
                        self.window_ends(window, window, "ran", from)?;
                        self.claimed_within_limits(claim.cause, window)?;
                    }
                    None => prop_assert_eq!(before, next, "only windows move the next window"),
                }
                if let Some(delivery) = claim.delivery {
                    let oldest = self.waiting.iter().find(|waiting| waiting.expires_us > self.now);
                    prop_assert_eq!(oldest.map(|waiting| waiting.delivery), Some(delivery), "out of order");
                }
            }
            RoutineEvent::RunSettled(settled) => {
                prop_assert_eq!(self.live, Some(settled.run));
                self.live = None;
            }
            RoutineEvent::WindowsMissed { first_us, last_us, count, .. } => {
                let windows = self.windows(Micros(first_us.0 - 1), *last_us);
                prop_assert_eq!(windows.len() as u64, *count);
                let from = if queued == Some(*first_us) { queued } else { before };
                for window in windows {
                    self.window_ends(window, *last_us, "missed", from)?;
                }
                prop_assert_eq!(from, Some(*first_us));
            }
            RoutineEvent::WindowSkipped { window_us, live, .. } => {
                prop_assert_eq!(self.live, Some(*live));
                self.window_ends(*window_us, *window_us, "skipped", before)?;
            }
            RoutineEvent::WindowQueued { .. } | RoutineEvent::WindowHeld { .. } => self.waits(event, before, queued)?,
            RoutineEvent::Rearmed { cause: RearmCause::Lifted, .. } => {
                prop_assert!(before <= next || next.is_none(), "{before:?} {next:?}");
                self.exists_after = self.exists_after.max(Micros(self.lifted.expect("a lift").0 - 1));
            }
            RoutineEvent::Rearmed { cause: RearmCause::ZoneData, .. } => prop_assert!(false, "the data is the same"),
            RoutineEvent::Rearmed { cause: RearmCause::MaxRuns, .. }
            | RoutineEvent::Rescheduled { .. }
            | RoutineEvent::Resumed { .. } => {
                // None from before it was made or given its schedule either, whatever the clock says now.
                let from = Micros(self.now.max(self.routine.anchor).0 - 1);
                self.exists_after = self.routine.ended_up_to.map_or(from, |ended| ended.max(from));
                prop_assert!(next.is_none_or(|next| next > self.exists_after));
            }
            RoutineEvent::DeliveryQueued(queued) => self.waiting.push_back(queued.clone()),
            RoutineEvent::DeliveryTaken { delivery, .. } | RoutineEvent::DeliveryDropped { delivery, .. } => {
                prop_assert!(self.delivered.insert(*delivery), "a delivery ends twice");
                self.waiting.retain(|waiting| waiting.delivery != *delivery);
            }
            RoutineEvent::Created { .. }
            | RoutineEvent::Renamed { .. }
            | RoutineEvent::WorkReplaced { .. }
            | RoutineEvent::LimitsReplaced { .. }
            | RoutineEvent::Paused {}
            | RoutineEvent::Suspended { .. }
            | RoutineEvent::Deleted {} => prop_assert_eq!(before, next, "only windows move the next window"),
        }
        Ok(())
    }

    /// A window that waits, or that nobody can run, has not ended.
    fn waits(&self, event: &RoutineEvent, before: Option<Micros>, queued: Option<Micros>) -> Result<(), TestCaseError> {
        let next = self.routine.next;
        if let RoutineEvent::WindowQueued { window_us, live, .. } = event {
            prop_assert_eq!((self.live, queued, before), (Some(*live), None, Some(*window_us)));
            prop_assert!(!self.endings.contains_key(window_us) && (next > before || next.is_none()));
        }
        if let RoutineEvent::WindowHeld { window_us, .. } = event {
            prop_assert!(before == Some(*window_us) || queued == Some(*window_us));
            prop_assert_eq!(before, next, "a held window stays due");
        }
        Ok(())
    }

    fn window_ends(
        &mut self,
        window: Micros,
        last: Micros,
        how: &'static str,
        before: Option<Micros>,
    ) -> Result<(), TestCaseError> {
        prop_assert_eq!(self.routine.phase, Phase::Active);
        prop_assert!(window > self.exists_after, "it does not exist");
        prop_assert!(self.lifted.is_none_or(|lifted| window >= lifted), "it lay in a halt");
        prop_assert!(before.is_some_and(|before| before <= window));
        prop_assert!(self.routine.next.is_none_or(|next| next > last), "the next window is strictly later");
        prop_assert_eq!(self.endings.insert(window, how), None, "a window ends twice");
        Ok(())
    }

    /// A catch-up is later than the grace and inside its own time, any other claim inside the grace or one that waited;
    /// and there are never more claims than there may be.
    fn claimed_within_limits(&self, cause: Cause, window: Micros) -> Result<(), TestCaseError> {
        let (limits, routine): (_, RoutineId) = (&self.routine.limits, id(1));
        let schedule = self.routine.schedule.as_ref().expect("a schedule");
        let late_us = self.now.since(schedule.effective_at(window, routine.uuid().as_bytes()));
        let grace_us = i64::from(limits.grace_s) * 1_000_000;
        if let (Cause::CatchUp, Missed::RunOnceWithin(within_s)) = (cause, limits.missed) {
            prop_assert!(late_us > grace_us && late_us <= i64::from(within_s) * 1_000_000);
        }
        prop_assert!(cause != Cause::CatchUp || !limits.missed.is_record());
        prop_assert!(limits.max_runs.is_none_or(|max| self.routine.target.windows_claimed <= max));
        Ok(())
    }

    fn afterwards(&self, step: &Step) -> Result<(), TestCaseError> {
        prop_assert_eq!(self.routine.target.live, self.live);
        prop_assert_eq!(&self.routine.target.queue, &self.waiting);
        if let (Step::Tick { able, catch_up }, Phase::Active) = (step, self.routine.phase) {
            let at_once = *able && *catch_up && self.routine.limits.missed.is_record();
            let waits = |window: &Micros| {
                self.routine.queued == Some(*window)
                    || (!at_once && self.routine.next.is_some_and(|next| *window >= next))
            };
            let open = |window: &Micros| !self.endings.contains_key(window) && !waits(window);
            let open: Vec<_> = self.due().into_iter().filter(open).collect();
            prop_assert_eq!(open, vec![], "windows without an ending");
        }
        if matches!(step, Step::ClaimNext) {
            prop_assert!(self.waiting.iter().all(|waiting| waiting.expires_us > self.now), "too old");
            let free = self.live.is_none() && self.routine.queued.is_none();
            let stuck = free && self.routine.may_start() && !self.waiting.is_empty();
            prop_assert!(!stuck, "a delivery waits for a free routine");
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn one_live_run_and_one_ending_for_each_window(
        schedule in 0..SCHEDULES.len(),
        grace_s in 0_u32..3_000,
        steps in steps(),
    ) {
        let mut world = World::new(schedule, grace_s);
        for step in steps.iter().chain([&Step::Resume, &Step::Tick { able: true, catch_up: true }]) {
            world.step(step)?;
        }
    }
}
