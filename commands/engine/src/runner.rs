//! The `runner` role: takes opened runs and executes them under a lease.
//!
//! Everything a runner does to a run carries its take, so a runner that was given up can change nothing any more. What
//! executes the work is handed in as an [`Executor`]; the engine knows no tools.

mod ends;
mod takes;
pub(crate) mod waiting;

use std::{
    collections::{BTreeMap, BTreeSet},
    panic::AssertUnwindSafe,
    sync::Arc,
    time::Duration,
};

use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, future::join_all};
use midwatch_commands::{
    bot::{Bot, BotCommand},
    mutant::{Mutant, active},
    run::{Run, RunCommand},
};
use midwatch_events::{
    Actor, StreamName,
    id::{RoutineId, RunId},
    run::{Opened, Outcome, Reason, Work, WorkKind},
};
use midwatch_log::{Filter, lease};
use tokio::sync::{mpsc, watch};
use uuid::Uuid;

use crate::{
    Engine, EngineError, Origin,
    handle::handle,
    leases::{Alive, BEAT, Watchman},
    probes::Probes,
    processes::{RENEW, runner_is_there, runner_leaves},
    progress::{Progress, SILENCE},
    world::{Boxed, Clock, told},
};

use ends::{Ends, cut};
use takes::take_all;
use waiting::Waiting;

/// Runs executed at once by one process.
pub const RUNS_MAX: usize = 256;
const POLL: Duration = Duration::from_secs(1);
/// How long runs may go on after the process was told to stop.
const LAST_ORDERS: Duration = Duration::from_secs(5);
/// Events that come together are looked at together.
const SETTLE: Duration = Duration::from_millis(10);
/// How long a run that could not be taken is left alone.
const AGAIN: Duration = Duration::from_secs(10);
/// So many runs in a row that cannot be taken are the database's fault and not theirs.
const FAULTS_MAX: u32 = 3;
/// The longest error an event has room for, in bytes.
const ERROR_BYTES_MAX: usize = 16 << 10;

/// A run to execute.
#[derive(Clone, Debug)]
pub struct Job {
    /// Where its events go.
    pub engine: Engine,
    /// The run.
    pub run: RunId,
    /// The runner's take; every command carries it.
    pub take: u32,
    /// What it is.
    pub opened: Opened,
    /// What it is to do.
    pub work: Work,
    /// Whether it may still act.
    pub alive: Alive,
    /// Where it says that it goes on: a run that says nothing for a minute is over.
    pub progress: Progress,
}

/// How an execution went.
#[derive(Clone, Debug)]
pub struct Ending {
    /// How.
    pub outcome: Outcome,
    /// Why.
    pub reason: Option<Reason>,
    /// One line that says how it went.
    pub headline: String,
    /// What went wrong.
    pub error: Option<String>,
}

/// What executes runs. Dropping the future stops it.
pub trait Executor: Send + Sync + 'static {
    /// Does the work, every call through the gateway, and says how it went.
    fn execute(&self, job: Job) -> Boxed<'static, Ending>;

    /// Whether a Bot's endpoint answers. One that cannot be asked counts as answering: the next run finds out.
    fn answers(&self, bot: &Bot) -> Boxed<'static, bool> {
        let _ = bot;
        Box::pin(std::future::ready(true))
    }
}

struct Held {
    take: u32,
    routine: Option<RoutineId>,
    beat: u64,
    alive: Alive,
    call_off: watch::Sender<bool>,
}

/// Takes and executes runs until told to stop, and closes those whose runner is gone.
pub fn run(engine: Engine, executor: Arc<dyn Executor>, stop: watch::Receiver<bool>) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        let seen = engine.log().head().await.unwrap_or(0);
        let beaten = engine.world().clock.monotonic();
        let (finished, ended) = mpsc::unbounded_channel();
        let (held, left_alone, half_taken) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        let (watchman, present, probes) = (Watchman::default(), None, Probes::default());
        let runner = Runner {
            engine,
            executor,
            held,
            left_alone,
            half_taken,
            finished,
            opened: Waiting::default(),
            seen,
            beaten,
            present,
            probes,
            watchman,
            ends: Arc::default(),
        };
        runner.run(stop, ended).await;
    })
}

/// Says that a run's task is over when it is dropped, however that came: a task that died silently would hold its run,
/// and renew its lease, for ever.
struct Over {
    run: RunId,
    finished: mpsc::UnboundedSender<RunId>,
}

impl Drop for Over {
    fn drop(&mut self) {
        // The runner itself is gone only when the process is.
        let _ = self.finished.send(self.run);
    }
}

struct Runner {
    engine: Engine,
    executor: Arc<dyn Executor>,
    held: BTreeMap<RunId, Held>,
    /// Runs that could not be taken, until then in monotonic time: they keep nobody else from being taken.
    left_alone: BTreeMap<RunId, Duration>,
    /// Runs that it may have taken without going on: the projection does not name them as waiting any more.
    half_taken: BTreeSet<RunId>,
    /// Each run's task says here that it is over.
    finished: mpsc::UnboundedSender<RunId>,
    /// Runs that were opened and wait for a runner.
    opened: Waiting,
    /// Openings and endings were looked at up to this position.
    seen: u64,
    /// When leases were last renewed, in monotonic time.
    beaten: Duration,
    /// When it last said that it is there.
    present: Option<Duration>,
    probes: Probes,
    watchman: Watchman,
    ends: Arc<Ends>,
}

impl Runner {
    async fn run(mut self, mut stop: watch::Receiver<bool>, mut ended: mpsc::UnboundedReceiver<RunId>) {
        let mut head = self.engine.log().follow();
        let mut stopping: Option<Duration> = None;
        loop {
            let now = self.engine.world().clock.monotonic();
            if stopping.is_none() && *stop.borrow() {
                stopping = Some(now);
            }
            if stopping.is_some_and(|since| self.held.is_empty() || now.saturating_sub(since) >= LAST_ORDERS) {
                break;
            }
            self.be_there(now, stopping.is_some()).await;
            if let Err(error) = self.follow_runs().await {
                tracing::warn!(%error, "the ends of runs cannot be read; trying again");
            }
            if stopping.is_none()
                && let Err(error) = self.take_waiting().await
            {
                tracing::warn!(%error, "waiting runs cannot be taken; trying again");
            }
            if now.saturating_sub(self.beaten) >= BEAT {
                self.beaten = now;
                self.beat().await;
            }
            tokio::select! {
                biased;
                Some(run) = ended.recv() => {
                    // Whoever ended at the same time makes room for the same takes.
                    let others = std::iter::from_fn(|| ended.try_recv().ok());
                    self.let_go(std::iter::once(run).chain(others));
                }
                () = told(&mut stop), if stopping.is_none() => stopping = Some(now),
                () = self.engine.world().clock.sleep(self.opened.soon(&self.engine).map_or(POLL, |soon| soon.clamp(SETTLE, POLL))) => {}
                _ = head.changed() => self.engine.world().clock.sleep(SETTLE).await,
            }
        }
        runner_leaves(&self.engine).await;
        self.opened.leave(&self.engine).await;
        self.give_back().await;
    }

    /// Says that a runner is there, and tries the Bots that did not answer.
    async fn be_there(&mut self, now: Duration, stopping: bool) {
        if stopping {
            if self.present.take().is_some() {
                runner_leaves(&self.engine).await;
            }
            return;
        }
        if self.present.is_none_or(|said| now.saturating_sub(said) >= RENEW) {
            self.present = Some(now);
            runner_is_there(&self.engine).await;
        }
        self.opened.say(&self.engine).await;
        self.probes.round(&self.engine, &self.executor).await;
    }

    /// Takes note of runs that were opened, and stops those that were ended elsewhere.
    async fn follow_runs(&mut self) -> Result<(), EngineError> {
        let types = ["run.opened", "run.taken", "run.ended"].map(str::to_owned).to_vec();
        let filter = Filter { event_types: types, ..Filter::default() };
        loop {
            let (events, scanned) = self.engine.log().read_all(self.seen, 500, &filter).await?;
            let mut gone = BTreeSet::new();
            for event in &events {
                let Some(run) = event.stream.uuid().map(RunId::new) else { continue };
                match event.event_type.as_str() {
                    "run.opened" => {}
                    "run.taken" => {
                        gone.insert(run);
                    }
                    _ => {
                        gone.insert(run);
                        if let Some(held) = self.held.get(&run) {
                            held.call_off.send_replace(true);
                        }
                    }
                }
            }
            self.opened.opened(&self.engine, &events).await;
            self.opened.gone(&gone);
            let moved = scanned > self.seen;
            self.seen = scanned;
            if events.is_empty() || !moved {
                return Ok(());
            }
        }
    }

    async fn take_waiting(&mut self) -> Result<(), EngineError> {
        if self.engine.went_back().is_some() {
            return Ok(());
        }
        let free = RUNS_MAX.saturating_sub(self.held.len());
        if free == 0 {
            return Ok(());
        }
        let now = self.engine.world().clock.monotonic();
        self.left_alone.retain(|_, until| now < *until);
        let waiting = self.waiting(free).await?;
        let waiting = waiting.into_iter().map(|run| (run, self.half_taken.contains(&run))).collect();
        let (mut faults, mut last) = (0, None);
        // All of them are looked at: those that were taken are this process's to work on, whatever became of the others.
        for (run, taken) in take_all(&self.engine, waiting).await? {
            match taken {
                Ok(job) => {
                    self.half_taken.remove(&run);
                    job.into_iter().for_each(|job| self.start(job));
                }
                Err(error) => {
                    self.left_alone.insert(run, now + AGAIN);
                    self.half_taken.insert(run);
                    faults += 1;
                    tracing::warn!(%run, %error, "a run cannot be taken; the others go on");
                    last = Some(error);
                }
            }
        }
        last.filter(|_| faults >= FAULTS_MAX).map_or(Ok(()), Err)
    }

    /// Runs to take, at most so many.
    async fn waiting(&mut self, free: usize) -> Result<Vec<RunId>, EngineError> {
        let mut waiting: Vec<RunId> = self.half_taken.iter().copied().take(free).collect();
        self.opened.take(&self.engine, &mut waiting, free).await?;
        waiting.retain(|run| !self.held.contains_key(run) && !self.left_alone.contains_key(run));
        Ok(waiting)
    }

    /// Lets a run go on in a task of its own.
    fn start(&mut self, job: Job) {
        let (call_off, called_off) = watch::channel(false);
        let (take, routine, alive) = (job.take, job.opened.routine, job.alive.clone());
        self.held.insert(job.run, Held { take, routine, beat: 1, alive, call_off });
        let over = Over { run: job.run, finished: self.finished.clone() };
        let (executor, ends) = (Arc::clone(&self.executor), Arc::clone(&self.ends));
        self.engine.world().tasks.spawn(Box::pin(async move {
            let _over = over;
            work(job, executor, ends, called_off).await;
        }));
    }

    /// Renews all leases and looks at those of others. One that another take holds is lost: its run stops here.
    async fn beat(&mut self) {
        let clock = &self.engine.world().clock;
        let log = self.engine.log();
        // All at once: a database that is slow to answer must not make the last of many leases too old.
        let beats = self.held.iter_mut().map(|(run, held)| async move {
            held.beat += 1;
            let by_wall = active(Mutant::LeaseByWallClock);
            let sent = if by_wall { Duration::from_micros(clock.now().0.unsigned_abs()) } else { clock.monotonic() };
            match lease::beat(log, run.uuid(), held.take, held.beat).await {
                Ok(true) => held.alive.renewed(sent),
                Ok(false) => {
                    held.call_off.send_replace(true);
                }
                Err(error) => tracing::warn!(%run, %error, "a lease could not be renewed"),
            }
        });
        join_all(beats).await;
        let held = &self.held;
        if let Err(error) = self.watchman.round(&self.engine, |run| held.contains_key(&run)).await {
            tracing::warn!(%error, "leases cannot be read; nothing is given up");
        }
    }

    /// Forgets runs that are over, and gives up their leases. Nobody waits for that.
    fn let_go(&mut self, over: impl Iterator<Item = RunId>) {
        let gone: Vec<_> = over.filter_map(|run| Some((run.uuid(), self.held.remove(&run)?.take))).collect();
        let engine = self.engine.clone();
        self.engine.world().tasks.spawn(Box::pin(async move { give_up(&engine, &gone).await }));
    }

    /// What this process could not finish is closed by itself, so that nobody has to wait for the lease.
    async fn give_back(self) {
        let mut gone = Vec::with_capacity(self.held.len());
        for (run, held) in self.held {
            held.call_off.send_replace(true);
            let ending = Ending {
                outcome: Outcome::Abandoned,
                reason: Some(Reason::Lease),
                headline: "Its process was stopped".to_owned(),
                error: None,
            };
            self.ends.settle(&self.engine, (run, held.routine), held.take, ending).await;
            gone.push((run.uuid(), held.take));
        }
        give_up(&self.engine, &gone).await;
    }
}

async fn give_up(engine: &Engine, leases: &[(Uuid, u32)]) {
    if let Err(error) = lease::give_up(engine.log(), leases).await {
        tracing::debug!(%error, "leases stay behind; they mean nothing any more");
    }
}

/// Executes one run to its end, whatever that is.
#[tracing::instrument(name = "run", level = "debug", skip_all)]
async fn work(job: Job, executor: Arc<dyn Executor>, ends: Arc<Ends>, mut called_off: watch::Receiver<bool>) {
    let (engine, run, take, alive) = (job.engine.clone(), job.run, job.take, job.alive.clone());
    let routine = job.opened.routine;
    let deadline = Duration::from_secs(u64::from(job.opened.deadline_s));
    let clock = Arc::clone(&engine.world().clock);
    let watched = job.clone();
    let ending = tokio::select! {
        biased;
        () = told(&mut called_off) => None,
        () = too_old(&alive, clock.as_ref()) => {
            tracing::warn!(%run, "its lease could not be renewed in time: it stops here, and others close it");
            None
        }
        ending = attempts(job, executor) => Some(ending),
        () = clock.sleep(deadline), if !active(Mutant::DeadlineIsIgnored) => Some(Ending {
            outcome: Outcome::TimedOut,
            reason: Some(Reason::Deadline),
            headline: format!("It took longer than its {} s", deadline.as_secs()),
            error: None,
        }),
        () = silent(&watched) => Some(Ending {
            outcome: Outcome::TimedOut,
            reason: Some(Reason::Silence),
            headline: format!("It made no progress for {} s", SILENCE.as_secs()),
            error: None,
        }),
    };
    if let Some(ending) = ending {
        ends.settle(&engine, (run, routine), take, ending).await;
    }
}

/// Executes it, and again where it failed before anything acted and its routine says so.
async fn attempts(job: Job, executor: Arc<dyn Executor>) -> Ending {
    loop {
        let (once, executor) = (job.clone(), Arc::clone(&executor));
        let ending = AssertUnwindSafe(async move { executor.execute(once).await }).catch_unwind().await;
        let ending = ending.unwrap_or_else(|_| panicked());
        tell_of_bot(&job, &ending).await;
        match again(&job, &ending).await {
            Ok(Some(wait)) => job.engine.world().clock.sleep(wait).await,
            Ok(None) => return ending,
            Err(error) => {
                tracing::warn!(run = %job.run, %error, "whether it is tried again cannot be recorded: it is not");
                return ending;
            }
        }
        job.progress.goes_on(job.engine.world().clock.monotonic());
    }
}

/// How long to wait before it is tried again; none when it is not.
async fn again(job: &Job, ending: &Ending) -> Result<Option<Duration>, EngineError> {
    if ending.outcome != Outcome::Failed || job.opened.retry.is_none() {
        return Ok(None);
    }
    let stream = StreamName::run(job.run);
    let origin = Origin::of(Actor::Engine).within(&stream);
    let now = job.engine.log().store_time().await?;
    let failed = handle::<Run>(&job.engine, &stream, &origin, None, |_| {
        let error = cut(ending.error.as_deref().unwrap_or(&ending.headline), ERROR_BYTES_MAX);
        Ok(RunCommand::FailAttempt { take: job.take, reason: ending.reason, error, now })
    });
    match failed.await {
        Ok(done) if !done.duplicate => {
            let retry_at = job.engine.load::<Run>(&stream).await?.state.retry_at;
            Ok(retry_at.map(|at| Duration::from_micros(u64::try_from(at.since(now)).unwrap_or(0))))
        }
        Ok(_) | Err(EngineError::Refused(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// What this run found of its Bot's endpoint is said for all its routines.
async fn tell_of_bot(job: &Job, ending: &Ending) {
    if job.opened.work != WorkKind::Instruction {
        return;
    }
    let answered = ending.reason != Some(Reason::BotUnreachable);
    let stream = StreamName::bot(job.opened.bot);
    let known = job.engine.known::<Bot>(&stream).is_some_and(|bot| bot.state.unreachable);
    if known != answered {
        return;
    }
    let (origin, command) = (Origin::of(Actor::Engine), BotCommand::Tried(answered));
    if let Err(error) = job.engine.change_bot(job.opened.bot, &origin, None, command).await {
        tracing::warn!(bot = %job.opened.bot, %error, "whether the Bot answers cannot be recorded");
    }
}

/// Comes back when the run has made no progress for too long. One that waits for a person, or for its next attempt, is
/// not silent.
async fn silent(job: &Job) {
    let clock = &job.engine.world().clock;
    loop {
        let left = job.progress.left(clock.monotonic());
        if !left.is_zero() {
            clock.sleep(left).await;
            continue;
        }
        match job.engine.load::<Run>(&StreamName::run(job.run)).await {
            Ok(loaded) => {
                let asks = Run::waits_for_a_person;
                if loaded.state.retry_at.is_none() && !asks(&loaded.state) {
                    return;
                }
            }
            Err(error) => tracing::debug!(%error, "whether a silent run waits for something cannot be read"),
        }
        job.progress.goes_on(clock.monotonic());
    }
}

/// Comes back when the lease is too old to act on. Beside the renewals and not in their turn, so that a renewal that
/// hangs keeps nothing in flight.
async fn too_old(alive: &Alive, clock: &dyn Clock) {
    loop {
        let left = alive.left(clock.monotonic());
        if left.is_zero() {
            return;
        }
        clock.sleep(left).await;
    }
}

/// A bug of ours ends the run it was found in, and nothing else.
fn panicked() -> Ending {
    Ending {
        outcome: Outcome::Failed,
        reason: Some(Reason::Error),
        headline: "Midwatch itself failed".to_owned(),
        error: Some("Midwatch failed while it executed this run; its log says where.".to_owned()),
    }
}
