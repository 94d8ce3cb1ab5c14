//! Sessions: an agent that runs elsewhere makes its calls in a run of its own, which the process that it came to holds.
//!
//! The run is opened and taken in one append, so no runner ever waits for it; its lease, its take and its end are those
//! of any other run, and so is the halt that keeps it from being opened. Nobody ends it but the process that holds it,
//! whoever calls it off, and, where that process is gone, the runners' watchman.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures_util::future::join_all;
use midwatch_commands::{
    Decider as _, Refusal,
    run::{End, Run, RunCommand},
    user::User,
};
use midwatch_events::{
    Actor, StreamName,
    id::{RunId, TokenId},
    run::{Cause, Opened, Outcome, Reason, Work, WorkKind},
};
use midwatch_log::{Filter, Pending, lease};
use tokio::sync::watch;

use crate::{
    Engine, EngineError, Origin,
    behind::gone_refusal,
    handle::{Plan, TRIES, contended},
    leases::{Alive, BEAT},
    people::Agent,
    progress::Progress,
    runner::{Ending, Job},
    world::{Boxed, told},
};

/// A session's run is over after so long, in seconds; the agent opens another.
pub const SESSION_S: u32 = 43_200;
/// Events that come together are looked at together.
const SETTLE: Duration = Duration::from_millis(20);
/// How often an ending is tried to be recorded before it is left to the watchman.
const END_TRIES: u32 = 5;
/// What ends a session, or changes what it is offered.
const FOLLOWED: [&str; 6] = [
    "run.ended",
    "user.token_revoked",
    "bot.tools_granted",
    "bot.tools_withdrawn",
    "boundary.tool_accepted",
    "boundary.tool_dropped",
];

/// A run in which an agent's calls are made.
#[derive(Clone, Debug)]
pub struct Sitting {
    /// The run.
    pub job: Job,
    /// Becomes true when nothing may go on in it any more.
    pub called_off: watch::Receiver<bool>,
}

/// The sessions that a process holds. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Sessions {
    engine: Engine,
    held: Arc<Mutex<BTreeMap<RunId, Held>>>,
    /// Whether there is anything to look after.
    awake: Arc<watch::Sender<bool>>,
    offers: Arc<watch::Sender<u64>>,
}

#[derive(Debug)]
struct Held {
    take: u32,
    token: TokenId,
    beat: u64,
    alive: Alive,
    call_off: watch::Sender<bool>,
}

impl Sessions {
    /// None yet.
    #[must_use]
    pub fn new(engine: Engine) -> Self {
        let (awake, offers) = (watch::Sender::new(false), watch::Sender::new(0));
        Self { engine, held: Arc::default(), awake: Arc::new(awake), offers: Arc::new(offers) }
    }

    /// Where they are recorded.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Says, by a position, that Bots may be offered other tools by now.
    #[must_use]
    pub fn offers(&self) -> watch::Receiver<u64> {
        self.offers.subscribe()
    }

    /// Whether anybody is there for whom it must be known what happens.
    pub fn watch(&self, somebody: bool) {
        let awake = somebody || !self.lock().is_empty();
        self.awake.send_if_modified(|was| std::mem::replace(was, awake) != awake);
    }

    /// Opens a run for an agent's calls: always unattended, for no token is a person who watches.
    ///
    /// # Errors
    /// [`Refusal::Halted`]; Bot, owner or token are gone; or a fault.
    pub fn open(&self, agent: Agent) -> Pending<'_, Sitting, EngineError> {
        Box::pin(self.opened(agent))
    }

    #[tracing::instrument(name = "open_session", level = "debug", skip_all)]
    async fn opened(&self, agent: Agent) -> Result<Sitting, EngineError> {
        self.watch(true);
        let engine = &self.engine;
        let run = RunId::new(engine.world().uuid());
        let stream = StreamName::run(run);
        let origin = Origin::of(Actor::Mcp(agent.token)).within(&stream);
        let opened = opened(run, agent);
        for _ in 0..TRIES {
            let halt = engine.halt().await?;
            if halt.state.halted.is_some() {
                return Err(Refusal::Halted.into());
            }
            let behind = engine.behind((Some(agent.bot), Some(agent.owner)), true).await?;
            if let Some(gone) = behind.gone {
                return Err(gone_refusal(gone).into());
            }
            let token_stream = StreamName::token(agent.token);
            let token = engine.load::<User>(&token_stream).await?;
            if token.state.revoked {
                return Err(Refusal::NotFound("token").into());
            }
            let now = engine.log().store_time().await?;
            let mut state = Run::default();
            let mut events = state.decide(RunCommand::Open(Box::new(opened.clone()), Work::default()))?;
            events.iter().for_each(|event| state.evolve(&event.facts, now));
            events.extend(state.decide(RunCommand::Take { worker: engine.process(), now })?);
            let mut plan = Plan::default();
            plan.add(engine.world(), &stream, 0, &events, &origin)?;
            plan.condition(StreamName::halt(), halt.version);
            plan.condition(token_stream, token.version);
            behind.condition(&mut plan);
            if plan.commit(engine.log()).await?.is_some() {
                return self.hold(agent, opened).await;
            }
        }
        Err(contended(&stream))
    }

    /// Holds a run that was opened and taken.
    async fn hold(&self, agent: Agent, opened: Opened) -> Result<Sitting, EngineError> {
        let (engine, run, take) = (&self.engine, opened.run, 1);
        let clock = &engine.world().clock;
        let alive = Alive::default();
        let sent = clock.monotonic();
        let begun = lease::begin(engine.log(), &[(run.uuid(), take)]).await?;
        if begun.contains(&run.uuid()) {
            alive.renewed(sent);
        }
        let (call_off, called_off) = watch::channel(false);
        let held = Held { take, token: agent.token, beat: 1, alive: alive.clone(), call_off };
        self.lock().insert(run, held);
        let progress = Progress::from(clock.monotonic());
        let job = Job { engine: engine.clone(), run, take, opened, work: Work::default(), alive, progress };
        Ok(Sitting { job, called_off })
    }

    /// Ends a session's run and lets it go. Whoever ended it before is right.
    pub fn close<'a>(&'a self, run: RunId, ending: &'a Ending) -> Boxed<'a, ()> {
        Box::pin(self.closed(run, ending))
    }

    async fn closed(&self, run: RunId, ending: &Ending) {
        let Some(held) = self.lock().remove(&run) else { return };
        held.call_off.send_replace(true);
        let engine = &self.engine;
        for _ in 0..END_TRIES {
            match self.ended(run, held.take, ending).await {
                Ok(()) | Err(EngineError::Refused(_)) => break,
                Err(error) => {
                    tracing::warn!(%run, %error, "the end of a session cannot be recorded; trying again");
                    engine.world().clock.sleep(Duration::from_secs(1)).await;
                }
            }
        }
        if let Err(error) = lease::give_up(engine.log(), &[(run.uuid(), held.take)]).await {
            tracing::debug!(%error, "a lease stays behind; it means nothing any more");
        }
    }

    async fn ended(&self, run: RunId, take: u32, ending: &Ending) -> Result<(), EngineError> {
        let Ending { outcome, reason, headline, error } = ending.clone();
        let now = self.engine.log().store_time().await?;
        let end = End { take: Some(take), outcome, reason, headline, error, now };
        self.engine.settle(run, end, &Origin::of(Actor::Engine)).await.map(|_| ())
    }

    /// Renews leases and follows what ends sessions, until told to stop; then none of this process goes on.
    pub fn look_after(&self, stop: watch::Receiver<bool>) -> Boxed<'_, ()> {
        Box::pin(self.looked_after(stop))
    }

    async fn looked_after(&self, mut stop: watch::Receiver<bool>) {
        let mut awake = self.awake.subscribe();
        let mut head = self.engine.log().follow();
        let (mut seen, mut beaten, mut asleep) = (0, Duration::ZERO, true);
        loop {
            if *stop.borrow() {
                break;
            }
            if !*awake.borrow_and_update() {
                asleep = true;
                tokio::select! {
                    biased;
                    () = told(&mut stop) => break,
                    _ = awake.changed() => continue,
                }
            }
            let now = self.engine.world().clock.monotonic();
            if asleep {
                // What happened before is found by looking at each.
                seen = self.engine.log().head().await.unwrap_or(seen);
            }
            if asleep || now.saturating_sub(beaten) >= BEAT {
                (asleep, beaten) = (false, now);
                self.beat().await;
            }
            head.borrow_and_update();
            if let Err(error) = self.follow(&mut seen).await {
                tracing::warn!(%error, "what ends sessions cannot be read; trying again");
            }
            tokio::select! {
                biased;
                () = told(&mut stop) => break,
                () = self.engine.world().clock.sleep(BEAT) => {}
                _ = awake.changed() => {}
                _ = head.changed() => self.engine.world().clock.sleep(SETTLE).await,
            }
        }
        self.give_back().await;
    }

    async fn follow(&self, seen: &mut u64) -> Result<(), EngineError> {
        let filter = Filter { event_types: FOLLOWED.map(str::to_owned).to_vec(), ..Filter::default() };
        loop {
            let (events, scanned) = self.engine.log().read_all(*seen, 500, &filter).await?;
            for event in &events {
                match (event.event_type.as_str(), event.stream.uuid()) {
                    ("run.ended", Some(id)) => self.call_off(|run, _| run.uuid() == id),
                    ("user.token_revoked", Some(id)) => self.revoked(TokenId::new(id)).await,
                    _ => {
                        self.offers.send_replace(event.position);
                    }
                }
            }
            let moved = scanned > *seen;
            *seen = scanned;
            if events.is_empty() || !moved {
                return Ok(());
            }
        }
    }

    fn call_off(&self, whom: impl Fn(&RunId, &Held) -> bool) {
        for (_, held) in self.lock().iter().filter(|(run, held)| whom(run, held)) {
            held.call_off.send_replace(true);
        }
    }

    async fn revoked(&self, token: TokenId) {
        let runs: Vec<RunId> =
            self.lock().iter().filter(|(_, held)| held.token == token).map(|(run, _)| *run).collect();
        for run in runs {
            self.close(run, &ending(Outcome::Cancelled, Some(Reason::Person), "Its token was revoked")).await;
        }
    }

    /// Renews all leases, and looks whether their runs are still live: the net under what is followed.
    async fn beat(&self) {
        let (clock, log) = (&self.engine.world().clock, self.engine.log());
        let beats: Vec<(RunId, u32, u64, Alive)> = self
            .lock()
            .iter_mut()
            .map(|(run, held)| {
                held.beat += 1;
                (*run, held.take, held.beat, held.alive.clone())
            })
            .collect();
        join_all(beats.into_iter().map(|(run, take, beat, alive)| async move {
            let sent = clock.monotonic();
            match lease::beat(log, run.uuid(), take, beat).await {
                Ok(true) => alive.renewed(sent),
                Ok(false) => self.call_off(|other, _| *other == run),
                Err(error) => tracing::warn!(%run, %error, "a lease could not be renewed"),
            }
            match self.engine.load::<Run>(&StreamName::run(run)).await {
                Ok(loaded) if loaded.state.ended.is_some() => self.call_off(|other, _| *other == run),
                Ok(_) => {}
                Err(error) => tracing::warn!(%run, %error, "whether a session was ended cannot be read"),
            }
        }))
        .await;
    }

    async fn give_back(&self) {
        let runs: Vec<RunId> = self.lock().keys().copied().collect();
        let ending = ending(Outcome::Abandoned, Some(Reason::Lease), "Its process was stopped");
        join_all(runs.into_iter().map(|run| self.close(run, &ending))).await;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<RunId, Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How a session ends, in one line.
#[must_use]
pub fn ending(outcome: Outcome, reason: Option<Reason>, headline: &str) -> Ending {
    Ending { outcome, reason, headline: headline.to_owned(), error: None }
}

fn opened(run: RunId, agent: Agent) -> Opened {
    Opened {
        run,
        bot: agent.bot,
        owner: agent.owner,
        routine: None,
        trigger: None,
        delivery: None,
        event_type: None,
        cause: Cause::Session,
        window_us: None,
        work: WorkKind::Session,
        deadline_s: SESSION_S,
        max_turns: 0,
        unattended: true,
        retry: None,
    }
}
