//! What must be so after every append: promises 1, 2, 3, 4 and 7, from the raw events alone.
//!
//! It folds nothing with the engine's own code. When windows are due it works out by itself, from the schedule's text,
//! as one long list; what a process may have known of the time is what the store has shown it.

mod deliveries;
mod routines;
mod runs;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use midwatch_events::{
    AnyEvent, Micros, Recorded, StreamName,
    engine::EngineEvent,
    id::{DeliveryId, ProcessId, RoutineId, RunId, TriggerId},
    key::Key,
};

pub(crate) use deliveries::Delivery;
pub(crate) use routines::Routine;
pub(crate) use runs::Run;

/// Events kept to be shown with a failure.
const TAIL: usize = 60;

/// What a rule says: nothing, or what is wrong.
type Verdict = Result<(), String>;

/// Who appended, when, and what it may have known of the time.
#[derive(Debug)]
pub(crate) struct Scene<'a> {
    pub(crate) port: u32,
    /// True time.
    pub(crate) now_us: u64,
    /// The last times the process was shown.
    pub(crate) shown: &'a VecDeque<Micros>,
}

impl Scene<'_> {
    /// Whether the process may have decided between these instants, both inclusive.
    fn may_have_decided(&self, from: Micros, to: Micros) -> bool {
        self.shown.iter().any(|shown| (from..=to).contains(shown))
    }
}

/// What runs are claimed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    Routine(RoutineId),
    Trigger(TriggerId),
}

/// The live run and what waits.
#[derive(Debug, Default)]
pub(crate) struct Target {
    live: Option<RunId>,
    queue: VecDeque<(DeliveryId, Micros)>,
}

/// A trigger, as far as rules ask.
#[derive(Debug, Default)]
pub(crate) struct Trigger {
    target: Target,
    closed: bool,
    sampled: bool,
    confirmed: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Checker {
    /// The first rule that was broken.
    pub(crate) failure: Option<String>,
    tail: VecDeque<Recorded>,
    position: u64,
    at: Micros,
    versions: BTreeMap<StreamName, u64>,
    halted: bool,
    lifted_at: Micros,
    pub(crate) routines: BTreeMap<RoutineId, Routine>,
    triggers: BTreeMap<TriggerId, Trigger>,
    pub(crate) runs: BTreeMap<RunId, Run>,
    pub(crate) deliveries: BTreeMap<DeliveryId, Delivery>,
    /// Each sender's id at each trigger.
    senders: BTreeMap<(TriggerId, String), DeliveryId>,
    ports: BTreeMap<ProcessId, u32>,
    /// When something last happened to a process, in true time; and to all of them.
    disturbed: BTreeMap<u32, u64>,
    all_disturbed: u64,
    /// The process that was just allowed a call: a good moment to be cut off.
    pub(crate) allowed: Option<u32>,
    /// Runs that were claimed and opened, ended and settled by the append that is looked at.
    together: Together,
}

#[derive(Debug, Default)]
struct Together {
    claimed: BTreeSet<RunId>,
    opened: BTreeSet<RunId>,
    ended: BTreeSet<RunId>,
    settled: BTreeSet<RunId>,
    /// Hashes of the append's keys.
    keys: Vec<[u8; 32]>,
}

impl Checker {
    /// Takes in one append that is durable.
    pub(crate) fn append(&mut self, scene: &Scene<'_>, events: &[Recorded], keys: &[[u8; 32]]) {
        self.together = Together { keys: keys.to_vec(), ..Together::default() };
        for event in events {
            if self.tail.len() == TAIL {
                self.tail.pop_front();
            }
            self.tail.push_back(event.clone());
            let verdict = self.ordered(event).and_then(|()| self.event(scene, event));
            self.note(verdict.map_err(|error| format!("position {}: {error}", event.position)));
        }
        let verdict = self.whole();
        self.note(verdict.map_err(|error| format!("the append up to position {}: {error}", self.position)));
    }

    /// Keeps the first failure.
    pub(crate) fn note(&mut self, verdict: Verdict) {
        if let (Err(error), None) = (verdict, &self.failure) {
            self.failure = Some(error);
        }
    }

    /// The last events, for a person.
    pub(crate) fn tail(&self) -> String {
        let shown = self.tail.iter().map(|event| {
            let facts = AnyEvent::decode(event).map_or_else(|error| error.to_string(), |event| format!("{event:?}"));
            let facts: String = facts.chars().take(600).collect();
            format!("{:>5} {} {} {facts}\n", event.position, event.recorded_at, event.stream.as_str())
        });
        shown.collect()
    }

    fn ordered(&mut self, event: &Recorded) -> Verdict {
        let version = self.versions.entry(event.stream.clone()).or_default();
        (self.position, *version) = (self.position + 1, *version + 1);
        if event.position != self.position || event.version != *version {
            return Err(format!("expected position {} and version {version}", self.position));
        }
        if event.recorded_at < self.at {
            return Err("ledger time went back".to_owned());
        }
        self.at = event.recorded_at;
        Ok(())
    }

    fn event(&mut self, scene: &Scene<'_>, recorded: &Recorded) -> Verdict {
        let event = AnyEvent::decode(recorded).map_err(|error| error.to_string())?;
        match event {
            AnyEvent::Routine(event, _) => self.routine(scene, recorded, &event),
            AnyEvent::Trigger(event, _) => self.trigger(scene, recorded, &event),
            AnyEvent::Delivery(event, content) => self.delivery(scene, recorded, &event, content),
            AnyEvent::Run(event, _) => self.run(scene, recorded, &event),
            AnyEvent::Engine(event, _) => {
                self.engine(scene, recorded, &event);
                Ok(())
            }
            AnyEvent::Bot(_) | AnyEvent::Boundary(..) | AnyEvent::Repeat(..) | AnyEvent::User(..) => Ok(()),
        }
    }

    fn engine(&mut self, scene: &Scene<'_>, recorded: &Recorded, event: &EngineEvent) {
        match event {
            EngineEvent::SchedulingHalted { .. } => self.halted = true,
            EngineEvent::SchedulingLifted {} => (self.halted, self.lifted_at) = (false, recorded.recorded_at),
            EngineEvent::ProcessStarted { process, .. } => {
                self.ports.insert(*process, scene.port);
                self.disturb(Some(scene.port), scene.now_us);
            }
            _ => {}
        }
    }

    /// What one append must hold together.
    fn whole(&self) -> Verdict {
        let Together { claimed, opened, ended, settled, keys: _ } = &self.together;
        if claimed != opened {
            return Err("a claim and the opening of its run are one append (promise 1)".to_owned());
        }
        if ended != settled {
            return Err("a run's ending and its target's freedom are one append (promise 1)".to_owned());
        }
        Ok(())
    }

    fn target(&mut self, place: Place) -> Result<&mut Target, String> {
        let found = match place {
            Place::Routine(id) => self.routines.get_mut(&id).map(|routine| &mut routine.target),
            Place::Trigger(id) => self.triggers.get_mut(&id).map(|trigger| &mut trigger.target),
        };
        found.ok_or_else(|| "a target that does not exist".to_owned())
    }

    /// The append must carry this key: what it says can then never be said again, whatever anybody believes.
    fn carries(&self, parts: &[&str]) -> Verdict {
        let hash = Key::new(parts, &[]).hash;
        if self.together.keys.contains(&hash) { Ok(()) } else { Err(format!("appended without its key {parts:?}")) }
    }

    /// Whether scheduling is halted.
    pub(crate) fn halted(&self) -> bool {
        self.halted
    }

    /// Something happened to a process, or to all of them: what it held may have been given up for good reasons.
    pub(crate) fn disturb(&mut self, port: Option<u32>, now_us: u64) {
        match port {
            Some(port) => {
                let until = self.disturbed.entry(port).or_default();
                *until = now_us.max(*until);
            }
            None => self.all_disturbed = now_us.max(self.all_disturbed),
        }
    }

    /// Since when nothing has happened to this process.
    fn undisturbed_since(&self, port: u32) -> u64 {
        self.disturbed.get(&port).copied().unwrap_or(0).max(self.all_disturbed)
    }

    /// The next instant by the store's clock, after `now`, at which something may have to happen.
    pub(crate) fn next_instant(&self, now: Micros) -> Option<Micros> {
        let windows = self
            .routines
            .values()
            .filter_map(|routine| if self.halted { None } else { routine.next_instant(now, self.lifted_at) });
        let triggers = self.triggers.values().map(|trigger| &trigger.target);
        let targets = self.routines.values().map(|routine| &routine.target).chain(triggers);
        let queued = targets.flat_map(|target| target.queue.iter().map(|(_, expires)| *expires));
        windows.chain(queued.filter(|at| *at > now)).min()
    }

    /// The end of the grace of a window that is due and has not ended, not before `now`.
    pub(crate) fn next_edge(&self, now: Micros) -> Option<Micros> {
        self.routines.values().filter_map(|routine| routine.edge(now, self.lifted_at)).min()
    }

    /// Whether a run is live, or a window waits.
    pub(crate) fn busy(&self, now: Micros) -> bool {
        if self.routines.values().any(|routine| routine.is_waiting(now)) {
            return true;
        }
        let triggers = self.triggers.values().map(|trigger| &trigger.target);
        self.routines.values().map(|routine| &routine.target).chain(triggers).any(|target| target.live.is_some())
    }

    /// After a quiet time in which nothing went wrong: whatever had to end has ended.
    pub(crate) fn at_the_end(&mut self, store: Micros) {
        let verdict = self.ended_all(store);
        self.note(verdict.map_err(|error| format!("at the end, {store}: {error}")));
    }

    fn ended_all(&self, store: Micros) -> Verdict {
        if self.halted {
            return Err("scheduling is still halted".to_owned());
        }
        for (id, routine) in &self.routines {
            routine.ended_all(store, self.lifted_at).map_err(|error| format!("routine {id}: {error}"))?;
        }
        for (id, run) in &self.runs {
            run.ended_in_time(store).map_err(|error| format!("run {id}: {error}"))?;
        }
        for (id, delivery) in &self.deliveries {
            delivery.ended_in_time(store).map_err(|error| format!("delivery {id}: {error}"))?;
        }
        Ok(())
    }
}
