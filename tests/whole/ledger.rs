//! What a ledger says became of every window and every run, from the raw events alone.

use std::collections::BTreeMap;

use midwatch_events::{
    AnyEvent, Micros, Recorded,
    id::{CallId, RoutineId, RunId},
    routine::RoutineEvent,
    run::{DecisionKind, RunEvent},
};
use midwatch_log::{Filter, Log, Open};

/// What was found, and everything that must not be.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) routines: BTreeMap<RoutineId, Story>,
    runs: BTreeMap<RunId, Run>,
    /// Runs by how they ended.
    pub(crate) endings: BTreeMap<String, usize>,
    /// One sentence for each thing that is wrong.
    pub(crate) violations: Vec<String>,
}

/// What became of one routine's windows.
#[derive(Debug, Default)]
pub(crate) struct Story {
    pub(crate) name: String,
    live: Option<RunId>,
    /// Windows by the instants of which they are, and each ending they had.
    claimed: Vec<Micros>,
    skipped: Vec<Micros>,
    /// First, last and count.
    missed: Vec<(Micros, Micros, u64)>,
    claims: usize,
    settles: usize,
    off: bool,
    /// Calls that were let through, and those of them that came back.
    pub(crate) let_through: usize,
    pub(crate) finished: usize,
}

#[derive(Debug)]
struct Run {
    routine: Option<RoutineId>,
    taken: u32,
    ended: bool,
    calls: BTreeMap<CallId, bool>,
}

/// How many windows there were, and what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) windows: usize,
    pub(crate) claimed: usize,
    pub(crate) missed: usize,
    pub(crate) skipped: usize,
    pub(crate) runs: usize,
}

impl Found {
    /// Reads the whole ledger.
    pub(crate) fn read(url: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let log = Log::open(url, Open::ReadOnly).await.unwrap();
            let (mut found, mut after) = (Self::default(), 0);
            loop {
                let (events, scanned) = log.read_all(after, 1_000, &Filter::default()).await.unwrap();
                if events.is_empty() {
                    return found;
                }
                for event in &events {
                    found.take_in(event);
                }
                after = scanned;
            }
        })
    }

    fn wrong(&mut self, at: &Recorded, what: &str) {
        self.violations.push(format!("position {} ({}): {what}", at.position, at.stream));
    }

    fn take_in(&mut self, at: &Recorded) {
        match AnyEvent::decode(at) {
            Ok(AnyEvent::Routine(event, _)) => self.of_routine(at, RoutineId::new(at.stream.uuid().unwrap()), event),
            Ok(AnyEvent::Run(event, _)) => self.of_run(at, RunId::new(at.stream.uuid().unwrap()), event),
            Ok(_) => {}
            Err(error) => self.wrong(at, &error.to_string()),
        }
    }

    fn of_routine(&mut self, at: &Recorded, id: RoutineId, event: RoutineEvent) {
        let story = self.routines.entry(id).or_default();
        let mut wrong = None;
        match event {
            RoutineEvent::Created { name, .. } => story.name = name,
            RoutineEvent::RunClaimed(claim) => {
                story.claims += 1;
                story.claimed.extend(claim.window_us);
                if let Some(live) = story.live.replace(claim.run) {
                    wrong = Some(format!("{} was claimed while {live} was live", claim.run));
                }
            }
            RoutineEvent::RunSettled(settled) => {
                story.settles += 1;
                let live = story.live.take();
                if live != Some(settled.run) {
                    wrong = Some(format!("{} was settled while {live:?} was live", settled.run));
                }
            }
            RoutineEvent::WindowsMissed { first_us, last_us, count, .. } => {
                story.missed.push((first_us, last_us, count));
            }
            RoutineEvent::WindowSkipped { window_us, .. } => story.skipped.push(window_us),
            RoutineEvent::Paused {} | RoutineEvent::Suspended { .. } | RoutineEvent::Deleted {} => story.off = true,
            _ => {}
        }
        if let Some(wrong) = wrong {
            self.wrong(at, &wrong);
        }
    }

    fn of_run(&mut self, at: &Recorded, id: RunId, event: RunEvent) {
        if let RunEvent::Opened(opened) = event {
            let routine = opened.routine;
            let live = routine.and_then(|routine| self.routines.get(&routine)?.live);
            let run = Run { routine, taken: 0, ended: false, calls: BTreeMap::new() };
            if self.runs.insert(id, run).is_some() || live != Some(id) {
                self.wrong(at, "opened without a claim, or twice");
            }
            return;
        }
        let Some(run) = self.runs.get_mut(&id) else { return self.wrong(at, "a run that was never opened") };
        let late = matches!(event, RunEvent::CallOutcomeLate { .. } | RunEvent::ReportedLate { .. });
        if run.ended != late {
            return self.wrong(at, "something happens to a run that is over, or is late to one that is not");
        }
        let mut story = run.routine.and_then(|routine| self.routines.get_mut(&routine));
        let mut wrong = None;
        match event {
            RunEvent::Taken { .. } => {
                run.taken += 1;
                if run.taken > 1 {
                    wrong = Some("taken by a second holder");
                }
            }
            RunEvent::ToolCallDecided(decision) => {
                if run.taken == 0 || run.calls.insert(decision.call, false).is_some() {
                    wrong = Some("a call of a run that nobody holds, or decided twice");
                }
                if decision.decision != DecisionKind::Refused {
                    story.iter_mut().for_each(|story| story.let_through += 1);
                }
            }
            RunEvent::ToolCallEnded { decision, result, .. } => {
                if run.calls.insert(decision.call, true) != Some(false) {
                    wrong = Some("a call came back that was not on its way");
                }
                if result == midwatch_events::run::CallResult::Finished {
                    story.iter_mut().for_each(|story| story.finished += 1);
                }
            }
            RunEvent::Ended(ended) => {
                run.ended = true;
                *self.endings.entry(format!("{:?}", ended.outcome).to_lowercase()).or_default() += 1;
            }
            _ => {}
        }
        if let Some(wrong) = wrong {
            self.wrong(at, wrong);
        }
    }

    /// Holds every routine against the windows it has by `windows`, which says so without the product's own calendar.
    pub(crate) fn check(&mut self, windows: impl Fn(&Story) -> Vec<Micros>) -> Counts {
        let mut counts = Counts { runs: self.runs.len(), ..Counts::default() };
        for (id, story) in &self.routines {
            let expected = windows(story);
            let mut ended: BTreeMap<Micros, u32> = BTreeMap::new();
            let once = story.claimed.iter().chain(&story.skipped).copied();
            let ranges = story.missed.iter().flat_map(|(first, last, count)| {
                let within: Vec<_> = expected.iter().copied().filter(|at| first <= at && at <= last).collect();
                if within.len() as u64 != *count {
                    self.violations.push(format!("{id}: {count} windows missed, and {} are due there", within.len()));
                }
                counts.missed += within.len();
                within
            });
            for window in once.chain(ranges.collect::<Vec<_>>()) {
                *ended.entry(window).or_default() += 1;
            }
            for window in &expected {
                match ended.remove(window) {
                    Some(1) => {}
                    times => {
                        self.violations.push(format!("{id}: the window {window} ended {} times", times.unwrap_or(0)))
                    }
                }
            }
            for window in ended.keys() {
                self.violations.push(format!("{id}: {window} is no window of it"));
            }
            if story.live.is_some() || story.claims != story.settles {
                self.violations.push(format!("{id}: {} claims and {} settles", story.claims, story.settles));
            }
            if story.off {
                self.violations.push(format!("{id}: it was switched off"));
            }
            counts.windows += expected.len();
            counts.claimed += story.claimed.len();
            counts.skipped += story.skipped.len();
        }
        for (id, run) in &self.runs {
            if !run.ended || run.calls.values().any(|came_back| !came_back) {
                self.violations.push(format!("{id}: it never ended, or a call of it has no outcome"));
            }
        }
        counts
    }
}
