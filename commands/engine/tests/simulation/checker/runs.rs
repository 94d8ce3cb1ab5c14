//! A run is taken once, judged before it acts, and over once.

use std::collections::BTreeMap;

use midwatch_events::{
    Micros, Recorded,
    id::{CallId, ProcessId, RunId},
    run::{DecisionKind, Outcome, Reason, RunEvent},
    time::SECOND_US,
};

use super::{Checker, Place, Scene, Verdict};

/// For how long nothing must have happened to a process before it counts as sound, in microseconds of true time.
const SOUND_US: u64 = 200_000_000;
/// How much longer than its deadline a run of a sound process may last, in microseconds.
const OVER_US: u64 = 45_000_000;

/// A run, as its events tell it.
#[derive(Debug)]
pub(crate) struct Run {
    place: Place,
    deadline_s: u32,
    opened_at: Micros,
    taken: Option<(ProcessId, u64)>,
    calls: BTreeMap<CallId, Call>,
    ended: bool,
    /// Others closed it because its holder was gone.
    given_up: bool,
}

#[derive(Debug, Default)]
struct Call {
    acted: bool,
    ended: bool,
}

impl Run {
    pub(super) fn ended_in_time(&self, store: Micros) -> Verdict {
        let most_s = i64::from(self.deadline_s) + 900 + 300;
        if self.ended || store.since(self.opened_at) < most_s * SECOND_US {
            return Ok(());
        }
        Err(format!("opened at {}, and never over", self.opened_at))
    }
}

impl Checker {
    pub(super) fn run(&mut self, scene: &Scene<'_>, recorded: &Recorded, event: &RunEvent) -> Verdict {
        let id = RunId::new(recorded.stream.uuid().ok_or("a stream without an id")?);
        if let RunEvent::Opened(opened) = event {
            let trigger = opened.trigger.map(Place::Trigger);
            let place = opened.routine.map(Place::Routine).or(trigger).ok_or("a run of nothing")?;
            if self.target(place)?.live != Some(id) {
                return Err("opened without a claim (promise 1)".to_owned());
            }
            let (deadline_s, opened_at) = (opened.deadline_s, recorded.recorded_at);
            let run = Run {
                place,
                deadline_s,
                opened_at,
                taken: None,
                calls: BTreeMap::new(),
                ended: false,
                given_up: false,
            };
            self.together.opened.insert(id);
            return self.runs.insert(id, run).map_or(Ok(()), |_| Err("opened twice".to_owned()));
        }
        let worker = self.runs.get(&id).and_then(|run| run.taken).and_then(|(worker, _)| self.ports.get(&worker));
        let worker = worker.copied();
        let run = self.runs.get_mut(&id).ok_or("a run that was never opened")?;
        let late = matches!(event, RunEvent::CallOutcomeLate { .. } | RunEvent::ReportedLate { .. });
        if run.ended != late {
            return Err("something happens to a run that is over, or is late to one that is not".to_owned());
        }
        match event {
            RunEvent::Taken { .. } if run.taken.is_some() => return Err("taken twice".to_owned()),
            RunEvent::Taken { worker, .. } => run.taken = Some((*worker, scene.now_us)),
            RunEvent::ToolCallDecided(decision) => {
                if worker != Some(scene.port) {
                    return Err("a call of somebody who does not hold the run (promise 3)".to_owned());
                }
                if decision.decision != DecisionKind::Refused {
                    run.calls.insert(decision.call, Call::default());
                    self.allowed = Some(scene.port);
                }
            }
            RunEvent::ToolCallEnded { decision, .. } => {
                let call = run.calls.get_mut(&decision.call).ok_or("a call ended that was never judged (promise 3)")?;
                if std::mem::replace(&mut call.ended, true) {
                    return Err("a call ended twice (promise 3)".to_owned());
                }
            }
            RunEvent::Ended(ended) => {
                run.ended = true;
                run.given_up = ended.reason == Some(Reason::Lease) && worker != Some(scene.port);
                self.together.ended.insert(id);
                if self.runs[&id].calls.values().any(|call| !call.ended) {
                    return Err("it is over, and a call of it is neither done nor unknown (promise 3)".to_owned());
                }
                return self.ended_rightly(scene, id, worker, (ended.outcome, ended.reason));
            }
            RunEvent::CallOutcomeLate { .. } | RunEvent::ReportedLate { .. } => {
                if worker != Some(scene.port) {
                    return Err("a late report of somebody who never held the run".to_owned());
                }
            }
            RunEvent::Opened(_)
            | RunEvent::TurnStarted { .. }
            | RunEvent::TurnFinished { .. }
            | RunEvent::AttemptFailed { .. }
            | RunEvent::ApprovalRequested(_)
            | RunEvent::ApprovalAnswered(_) => {}
        }
        Ok(())
    }

    fn ended_rightly(
        &self,
        scene: &Scene<'_>,
        id: RunId,
        worker: Option<u32>,
        how: (Outcome, Option<Reason>),
    ) -> Verdict {
        let run = &self.runs[&id];
        let (Some(worker), Some((_, taken_us))) = (worker, run.taken) else { return Ok(()) };
        let since = self.undisturbed_since(worker);
        let sound = since.max(taken_us).saturating_add(SOUND_US) < scene.now_us;
        if sound && worker != scene.port && how == (Outcome::Abandoned, Some(Reason::Lease)) {
            return Err("given up although its holder is well (promise 1)".to_owned());
        }
        let most_us = u64::from(run.deadline_s) * 1_000_000 + OVER_US;
        if since < taken_us && scene.now_us - taken_us > most_us {
            return Err(format!("its holder was well, and it lasted {} s", (scene.now_us - taken_us) / 1_000_000));
        }
        Ok(())
    }

    /// A tool acts. What let it is durable by now, and it acts once.
    pub(crate) fn acts(&mut self, id: RunId, call: CallId) {
        if self.runs.get(&id).is_some_and(|run| run.given_up) {
            self.note(Err("a tool acts for a run that others gave up (promise 1)".to_owned()));
        }
        let found = self.runs.get_mut(&id).and_then(|run| run.calls.get_mut(&call));
        let verdict = match found.map(|call| std::mem::replace(&mut call.acted, true)) {
            None => Err("a tool acts before its decision is durable (promise 3)".to_owned()),
            Some(true) => Err("a tool acts twice (promise 3)".to_owned()),
            Some(false) => Ok(()),
        };
        self.note(verdict);
    }

    /// Runs that are live, and whose they are.
    pub(crate) fn live_runs(&self) -> Vec<(RunId, Place)> {
        self.runs.iter().filter(|(_, run)| !run.ended).map(|(id, run)| (*id, run.place)).collect()
    }
}
