//! One process: its clocks, its chance, and the roles it plays.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use midwatch_engine::{
    Engine, Opening, clock,
    deployment::Outside,
    projector, reactor,
    runner::{self, Executor},
    world::{Boxed, Clock, Entropy, Spawn, World},
};
use midwatch_events::{Actor, Micros, engine::Role, id::ProcessId};
use tokio::sync::watch;
use uuid::Uuid;

use crate::{
    chance::Chance,
    stage::{Stage, Wakes, locked},
};

/// 2026-01-01T00:00:00Z in microseconds; a play begins some days or months later.
pub(crate) const YEAR_US: i64 = 1_767_225_600_000_000;

/// What a process may have of its own: clocks that jump.
struct OwnClock {
    stage: Arc<Stage>,
    begun_us: u64,
    epoch_us: i64,
    /// How far its time of day is off, in microseconds.
    off_us: Arc<AtomicI64>,
}

impl Clock for OwnClock {
    fn now(&self) -> Micros {
        let now = i64::try_from(self.stage.now_us()).unwrap_or(i64::MAX);
        Micros(self.epoch_us + now + self.off_us.load(Ordering::Relaxed))
    }

    fn monotonic(&self) -> Duration {
        Duration::from_micros(self.stage.now_us() - self.begun_us)
    }

    fn sleep(&self, span: Duration) -> Boxed<'static, ()> {
        Box::pin(self.stage.sleep(span, Wakes::NotBefore))
    }
}

struct OwnEntropy(Mutex<Chance>);

impl Entropy for OwnEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        let mut chance = locked(&self.0);
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&chance.next().to_le_bytes()[..chunk.len()]);
        }
    }
}

struct OwnTasks {
    stage: Arc<Stage>,
    port: u32,
}

impl Spawn for OwnTasks {
    fn spawn(&self, task: Boxed<'static, ()>) {
        self.stage.spawn(Some(self.port), task);
    }
}

/// One process from its start to its death.
pub(crate) struct Machine {
    /// Its number; no two that ever lived share one.
    pub(crate) port: u32,
    /// Once it has joined.
    pub(crate) engine: Arc<Mutex<Option<Engine>>>,
    pub(crate) stop: watch::Sender<bool>,
}

/// What a process is started with.
pub(crate) struct Starting {
    pub(crate) stage: Arc<Stage>,
    pub(crate) chance: Chance,
    pub(crate) epoch_us: i64,
    pub(crate) off_us: Arc<AtomicI64>,
    pub(crate) port: u32,
    pub(crate) url: String,
    pub(crate) roles: Vec<Role>,
    pub(crate) executor: Arc<dyn Executor>,
}

impl Machine {
    pub(crate) fn start(with: Starting) -> Self {
        let Starting { stage, mut chance, epoch_us, off_us, port, url, roles, executor } = with;
        let process = ProcessId::new(Uuid::from_u64_pair(chance.next(), u64::from(port)));
        let clock = OwnClock { stage: Arc::clone(&stage), begun_us: stage.now_us(), epoch_us, off_us };
        let world = World {
            clock: Arc::new(clock),
            entropy: Arc::new(OwnEntropy(Mutex::new(chance))),
            tasks: Arc::new(OwnTasks { stage: Arc::clone(&stage), port }),
        };
        let outside = Outside {
            deployment: Some(Uuid::from_u128(7)),
            key: Some(URL_SAFE_NO_PAD.encode([7; 32])),
            key_file: None,
            state_home: "/nowhere".into(),
        };
        let opening = Opening { url, outside, process, actor: Actor::Cli(0), repeat_window_s: None, halted: false };
        let engine = Arc::new(Mutex::new(None));
        let (stop, stopped) = watch::channel(false);
        let life = live(world, opening, roles, executor, Arc::clone(&engine), stopped);
        stage.spawn(Some(port), Box::pin(life));
        Self { port, engine, stop }
    }

    pub(crate) fn engine(&self) -> Option<Engine> {
        locked(&self.engine).clone()
    }
}

/// What `midwatch serve` does, with the roles it is given.
async fn live(
    world: World,
    opening: Opening,
    roles: Vec<Role>,
    executor: Arc<dyn Executor>,
    joined: Arc<Mutex<Option<Engine>>>,
    stopped: watch::Receiver<bool>,
) {
    let engine = loop {
        match Engine::open(world.clone(), opening.clone()).await {
            Ok(engine) => break engine,
            // As whatever starts processes does with one that ended.
            Err(_) => world.clock.sleep(Duration::from_secs(2)).await,
        }
    };
    while engine.start_process("simulated", &roles).await.is_err() {
        world.clock.sleep(Duration::from_secs(2)).await;
    }
    *locked(&joined) = Some(engine.clone());
    let spawn = |role: Boxed<'static, ()>| world.tasks.spawn(role);
    if roles.contains(&Role::Projector) {
        spawn(Box::pin(projector::run(engine.clone(), stopped.clone())));
    }
    if roles.contains(&Role::Clock) {
        spawn(Box::pin(clock::run(engine.clone(), stopped.clone())));
        spawn(Box::pin(reactor::run(engine.clone(), stopped.clone())));
    }
    if roles.contains(&Role::Runner) {
        spawn(Box::pin(runner::run(engine.clone(), executor, stopped.clone())));
    }
}
