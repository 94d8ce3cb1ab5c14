//! One play: a seed, thirty days, and whether every promise held.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
};

use midwatch_commands::mutant::{Mutant, active};
use midwatch_events::id::{BotId, DeliveryId, RoutineId, RunId, TriggerId};
use midwatch_log::simulated::Store;

use crate::{
    chance::Chance,
    checker::Checker,
    climate::Climate,
    machine::{Machine, Starting},
    people,
    script::{DAY, DAYS, Deed, HOUR, MINUTE, SECOND, Script},
    stage::{Owner, Stage, Troupe, locked},
    workers::Worker,
};

/// How long after the last thing that happened time goes on step by step, in microseconds.
const SETTLES: u64 = SECOND;
/// How much later than asked those who poll may be woken while a run is live.
const SLACK: u64 = 9 * SECOND;
/// How long nothing goes wrong at the end.
const QUIET: u64 = 4 * HOUR;
/// Appends a play may have.
const APPENDS_MAX: u32 = 4_000;
/// Steps after which it goes round in circles: many times what any play takes.
const POLLS_MAX: u64 = 3_000_000;

/// What people know, whichever process they asked.
#[derive(Debug, Default)]
pub(crate) struct Book {
    pub(crate) bot: Option<BotId>,
    pub(crate) routines: BTreeMap<usize, RoutineId>,
    pub(crate) triggers: BTreeMap<usize, TriggerId>,
    /// The run each request was told of.
    pub(crate) runs: BTreeMap<u64, RunId>,
    /// The delivery each sender was told of.
    pub(crate) posts: BTreeMap<(usize, u64), DeliveryId>,
    /// Deeds that were answered.
    pub(crate) done: BTreeSet<u64>,
}

/// How a play went.
#[derive(Debug)]
pub(crate) struct Ending {
    pub(crate) hash: [u8; 32],
    pub(crate) appends: u32,
    pub(crate) polls: u64,
    pub(crate) windows: u64,
    pub(crate) ran: u64,
    /// What was broken, and the events before it.
    pub(crate) failure: Option<(String, String)>,
}

pub(crate) struct Play {
    stage: Arc<Stage>,
    troupe: Troupe,
    chance: Chance,
    climate: Arc<Climate>,
    store: Store,
    script: Script,
    book: Arc<Mutex<Book>>,
    /// By their number in the script; those that live.
    machines: BTreeMap<usize, Machine>,
    /// How far each machine's time of day is off.
    offs: Vec<Arc<AtomicI64>>,
    next_port: u32,
    /// Processes that are stopped, until when.
    stalled: BTreeMap<u32, u64>,
    /// Deeds that people wait for: whom they asked how often.
    asked: BTreeMap<u64, (Deed, u32)>,
    next_deed: u64,
    last_move: u64,
    appends: u32,
    calm: bool,
    polls: u64,
}

/// Plays it from beginning to end.
pub(crate) fn play(seed: u64) -> Ending {
    let mut play = Play::new(seed);
    play.run();
    play.end()
}

impl Play {
    fn new(seed: u64) -> Self {
        static PLAYS: AtomicU64 = AtomicU64::new(0);
        let mut chance = Chance::new(seed);
        let script = Script::write(&mut chance.fork());
        let stage = Stage::new();
        let climate = Arc::new(Climate::new(
            Arc::clone(&stage),
            script.epoch_us,
            chance.fork(),
            Checker::default(),
            script.to_the_edge,
        ));
        let name = format!("play-{}", PLAYS.fetch_add(1, Ordering::Relaxed));
        let store = Store::register(&name, Arc::clone(&climate) as Arc<dyn midwatch_log::simulated::Weather>);
        if active(Mutant::DurableGateIsOpen) {
            store.open_the_gate();
        }
        let offs = script.machines.iter().map(|_| Arc::default()).collect();
        Self {
            troupe: Troupe::new(Arc::clone(&stage)),
            stage,
            chance,
            climate,
            store,
            script,
            book: Arc::default(),
            machines: BTreeMap::new(),
            offs,
            next_port: 0,
            stalled: BTreeMap::new(),
            asked: BTreeMap::new(),
            next_deed: 0,
            last_move: 0,
            appends: 0,
            calm: false,
            polls: 0,
        }
    }

    fn run(&mut self) {
        loop {
            let stalled = &self.stalled;
            let may = |owner: Owner| owner.is_none_or(|port| !stalled.contains_key(&port));
            match self.troupe.step(&mut self.chance, may) {
                Some(owner) => {
                    self.polls += 1;
                    self.after(owner);
                    if self.polls > POLLS_MAX {
                        self.object("it goes round in circles");
                    }
                    if self.failed() {
                        return;
                    }
                }
                None if !self.advance() => return,
                None => {}
            }
        }
    }

    fn object(&self, sentence: &str) {
        locked(&self.climate.inner).checker.note(Err(sentence.to_owned()));
    }

    fn failed(&self) -> bool {
        locked(&self.climate.inner).checker.failure.is_some()
    }

    /// After any poll its process may die, rather more often when it has just sent something.
    fn after(&mut self, owner: Owner) {
        let (hot, appends, allowed) = {
            let mut inner = locked(&self.climate.inner);
            (std::mem::take(&mut inner.hot), inner.appends, inner.checker.allowed.take())
        };
        if appends != self.appends {
            self.appends = appends;
            self.last_move = self.stage.now_us();
        }
        if let Some(port) = allowed.filter(|_| !self.calm)
            && self.chance.one_in(10)
        {
            let span = self.chance.between(30 * SECOND, 5 * MINUTE);
            self.isolate(port, span);
        }
        let Some(port) = owner.filter(|_| !self.calm) else { return };
        if self.chance.one_in(if hot { 150 } else { 20_000 })
            && let Some(machine) = self.machines.iter().find(|(_, machine)| machine.port == port).map(|(n, _)| *n)
        {
            self.kill(machine);
        }
        if hot && self.chance.one_in(100) {
            // What it has just sent may be committed, and not be durable; and somebody may have read it.
            match self.chance.below(3) {
                0 => self.store.crash(),
                _ => self.script.at(self.stage.now_us() + self.chance.below(2 * SECOND), Deed::CrashStore),
            }
        }
    }

    fn isolate(&self, port: u32, span: u64) {
        let until = self.stage.now_us() + span;
        let mut inner = locked(&self.climate.inner);
        inner.isolated.insert(port, until);
        inner.checker.disturb(Some(port), until);
    }

    /// Nobody wants to go on: lets time pass up to whatever comes next. False at the end.
    fn advance(&mut self) -> bool {
        let now = self.stage.now_us();
        self.stalled.retain(|_, until| *until > now);
        if let Some(((at, n), deed)) = self.script.deeds.pop_first() {
            if at <= now {
                self.last_move = now;
                self.act(deed);
                return true;
            }
            self.script.deeds.insert((at, n), deed);
        }
        let quiet_at = DAYS * DAY;
        if now >= quiet_at && !self.calm {
            self.calm_down();
            return true;
        }
        let end = quiet_at + QUIET;
        if now >= end {
            return false;
        }
        let (exact, late) = self.stage.next_wakes();
        let deed = self.script.deeds.keys().next().map(|(at, _)| *at);
        let phase = if self.calm { end } else { quiet_at };
        let resumes = self.stalled.values().min().copied();
        let (due, busy) = self.due(now);
        let hard = [exact, deed, due, resumes].into_iter().flatten().fold(phase, u64::min);
        let settles = now < self.last_move + SETTLES;
        let at = match late {
            Some(late) if settles => hard.min(late + self.chance.below(SECOND)),
            Some(late) if busy => hard.min(late + self.chance.between(SLACK * 2 / 3, SLACK)),
            _ => hard,
        };
        if [deed, due, resumes].contains(&Some(at)) {
            // Whatever this is, it may make others move.
            self.last_move = at;
        }
        self.stage.pass(at.max(now));
        true
    }

    /// When a window, a grace or a waiting delivery is next due, and whether a run is live.
    fn due(&self, now: u64) -> (Option<u64>, bool) {
        let store_now = self.climate.store_now();
        let (next, busy) = {
            let inner = locked(&self.climate.inner);
            (inner.checker.next_instant(store_now), inner.checker.busy(store_now))
        };
        (next.map(|at| self.climate.true_us(at)).filter(|at| *at > now), busy)
    }

    /// The adversary leaves; everybody comes back.
    fn calm_down(&mut self) {
        self.calm = true;
        self.stalled.clear();
        let now = self.stage.now_us();
        {
            let mut inner = locked(&self.climate.inner);
            (inner.calm, inner.outage) = (true, None);
            inner.isolated.clear();
            inner.checker.disturb(None, now);
        }
        // Who was told to stop does nothing any more, and is started again like those that died.
        let stopping = self.machines.iter().filter(|(_, machine)| *machine.stop.borrow()).map(|(n, _)| *n);
        for machine in stopping.collect::<Vec<_>>() {
            self.kill(machine);
        }
        for machine in 0..self.script.machines.len() {
            self.act(Deed::Start(machine));
        }
        if locked(&self.climate.inner).checker.halted() {
            self.script.at(now + MINUTE, Deed::Lift);
        }
        self.last_move = now;
    }

    fn kill(&mut self, machine: usize) {
        let Some(gone) = self.machines.remove(&machine) else { return };
        self.store.cut(gone.port);
        self.troupe.drop_all_of(gone.port);
        let now = self.stage.now_us();
        locked(&self.climate.inner).checker.disturb(Some(gone.port), u64::MAX);
        self.stalled.remove(&gone.port);
        let span = match self.chance.below(10) {
            0..=6 => self.chance.between(SECOND, 5 * MINUTE),
            7..=8 => self.chance.between(MINUTE, HOUR),
            _ => self.chance.between(HOUR, 12 * HOUR),
        };
        self.script.at(now + span, Deed::Start(machine));
    }

    fn start(&mut self, machine: usize) {
        if self.machines.contains_key(&machine) {
            return;
        }
        self.next_port += 1;
        let executor = Worker { climate: Arc::clone(&self.climate), chance: Mutex::new(self.chance.fork()) };
        let starting = Starting {
            stage: Arc::clone(&self.stage),
            chance: self.chance.fork(),
            epoch_us: self.script.epoch_us,
            off_us: Arc::clone(&self.offs[machine]),
            port: self.next_port,
            url: self.store.url(self.next_port),
            roles: self.script.machines[machine].clone(),
            executor: Arc::new(executor),
        };
        self.machines.insert(machine, Machine::start(starting));
    }

    fn act(&mut self, deed: Deed) {
        let now = self.stage.now_us();
        match deed {
            Deed::Start(machine) => self.start(machine),
            _ if self.calm && !matches!(deed, Deed::Lift | Deed::Again(_)) => {}
            Deed::Kill(machine) => self.kill(machine),
            Deed::Stop(machine) => {
                if let Some(stopping) = self.machines.get(&machine) {
                    stopping.stop.send_replace(true);
                    locked(&self.climate.inner).checker.disturb(Some(stopping.port), now);
                    self.script.at(now + 20 * SECOND, Deed::Kill(machine));
                }
            }
            Deed::Stall(machine, span) => {
                if let Some(stalling) = self.machines.get(&machine) {
                    self.stalled.insert(stalling.port, now + span);
                    locked(&self.climate.inner).checker.disturb(Some(stalling.port), now + span);
                }
            }
            Deed::WallJump(machine, off_us) => self.offs[machine].store(off_us, Ordering::Relaxed),
            Deed::StoreJump(off_us) => locked(&self.climate.inner).off_us = off_us,
            Deed::CrashStore => self.store.crash(),
            Deed::Outage(span, which) => {
                let mut inner = locked(&self.climate.inner);
                inner.outage = Some((now + span, which));
                inner.checker.disturb(None, now + span);
            }
            Deed::Isolate(machine, span) => {
                if let Some(machine) = self.machines.get(&machine) {
                    self.isolate(machine.port, span);
                }
            }
            Deed::LoseProjections => self.store.lose_projections(),
            Deed::PowerCut(span) => {
                for machine in 0..self.script.machines.len() {
                    self.kill(machine);
                }
                self.script.deeds.retain(|_, deed| !matches!(deed, Deed::Start(_)));
                for machine in 0..self.script.machines.len() {
                    self.script.at(now + span, Deed::Start(machine));
                }
            }
            Deed::Again(n) => self.ask_again(n),
            Deed::WhenDue(deed) => {
                let due = self.due(now).0.filter(|due| due - now < 3 * DAY).unwrap_or(now);
                // Just then, or while what began then is under way.
                let later = self.chance.pick(&[0, 0, 1_000, 20_000, 10 * SECOND]);
                self.script.at(due + self.chance.below(later + 1), *deed);
            }
            deed => {
                if let Deed::Halt(span) = deed {
                    self.script.at(now + span, Deed::Lift);
                }
                self.next_deed += 1;
                self.asked.insert(self.next_deed, (deed, 0));
                self.ask_again(self.next_deed);
            }
        }
    }

    /// People ask some process, and another when they get no answer.
    fn ask_again(&mut self, n: u64) {
        if locked(&self.book).done.contains(&n) {
            return;
        }
        let Some((deed, tries)) = self.asked.get_mut(&n) else { return };
        *tries += 1;
        if *tries > 40 {
            return;
        }
        let able: Vec<(u32, midwatch_engine::Engine)> =
            self.machines.values().filter_map(|machine| Some((machine.port, machine.engine()?))).collect();
        if !able.is_empty() {
            let at = usize::try_from(self.chance.below(able.len() as u64)).unwrap_or_default();
            let (port, engine) = able[at].clone();
            let asking = people::Asking {
                engine,
                n,
                deed: deed.clone(),
                book: Arc::clone(&self.book),
                climate: Arc::clone(&self.climate),
                routines: self.script.routines.clone(),
                triggers: self.script.triggers.clone(),
                chance: self.chance.fork(),
            };
            self.stage.spawn(Some(port), Box::pin(asking.ask()));
        }
        self.script.at(self.stage.now_us() + 30 * SECOND, Deed::Again(n));
    }

    fn end(mut self) -> Ending {
        let store_now = self.climate.store_now();
        let mut inner = locked(&self.climate.inner);
        let inner = &mut *inner;
        let due: u64 = inner.checker.routines.values().map(|routine| routine.endings).sum();
        if inner.checker.failure.is_none() {
            inner.checker.at_the_end(store_now);
            if inner.appends > APPENDS_MAX {
                inner.checker.note(Err(format!("{} appends are more than {APPENDS_MAX}", inner.appends)));
            }
        }
        let failure = inner.checker.failure.clone().map(|failure| (failure, inner.checker.tail()));
        self.store.unregister();
        self.machines.clear();
        Ending {
            hash: self.store.last_hash(),
            appends: inner.appends,
            polls: self.polls,
            windows: due,
            ran: inner.checker.routines.values().map(|routine| routine.ran).sum(),
            failure,
        }
    }
}
