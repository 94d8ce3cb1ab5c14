//! Deployments to try, and short words for what happens in them.

use std::{path::Path, sync::Arc, time::Duration};

use midwatch_events::{
    Actor, AnyEvent, Family, Micros, New, Recorded, StreamName,
    id::{BotId, ProcessId, RoutineId, RunId, TriggerId},
    routine::{Limits, RoutineEvent, Work},
    run::Outcome,
    trigger::{Intake, TriggerEvent},
};
use midwatch_log::{
    Filter,
    testing::{self, Guard},
};
use serde_json::json;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Row as _, sqlite::SqliteConnectOptions};
use tempfile::TempDir;
use tokio::{sync::watch, task::JoinSet, time::Instant};

use crate::{
    Engine, EngineError, Opening, Origin,
    deployment::Outside,
    handle::Plan,
    intake::Posted,
    projector,
    routines::NewRoutine,
    runner::{Ending, Executor, Job},
    triggers::{MadeTrigger, NewSecret, NewTrigger},
    world::{Boxed, Clock, World},
};

/// A schedule whose first window is far away.
pub(super) const FAR: &str = r#"{"kind":"once","at":"2400-01-01T00:00:00Z"}"#;

/// One ledger and what lies outside it.
pub(super) struct Place {
    pub(super) backend: &'static str,
    pub(super) url: String,
    pub(super) home: TempDir,
    #[expect(dead_code, reason = "keeps the database until the case ends")]
    guard: Guard,
}

impl Place {
    /// One on each backend.
    pub(super) async fn each() -> Vec<Self> {
        let fresh = testing::fresh_urls().await.into_iter();
        fresh.map(|(backend, url, guard)| Self { backend, url, home: TempDir::new().unwrap(), guard }).collect()
    }

    pub(super) fn sqlite() -> Self {
        let (url, guard) = testing::fresh_sqlite();
        Self { backend: "sqlite", url, home: TempDir::new().unwrap(), guard }
    }

    pub(super) fn opening(&self) -> Opening {
        opening(&self.url, outside(self.home.path()))
    }

    /// One process more.
    pub(super) async fn engine(&self) -> Engine {
        self.engine_in(World::system()).await
    }

    pub(super) async fn engine_in(&self, world: World) -> Engine {
        Engine::open(world, self.opening()).await.unwrap()
    }

    /// Runs SQL behind everybody's back; on SQLite in the ledger's file.
    pub(super) async fn sql(&self, sql: &str) {
        let sql = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()));
        if let Some(file) = self.url.strip_prefix("sqlite://") {
            let options = SqliteConnectOptions::new().filename(file).busy_timeout(Duration::from_secs(9));
            let mut connection = options.connect().await.unwrap();
            sql.execute(&mut connection).await.unwrap();
            connection.close().await.unwrap();
        } else {
            let mut connection = sqlx::PgConnection::connect(&self.url).await.unwrap();
            sql.execute(&mut connection).await.unwrap();
            connection.close().await.unwrap();
        }
    }

    /// Forgets all snapshots, as anybody may at any time.
    pub(super) async fn drop_snapshots(&self) {
        match self.url.strip_prefix("sqlite://") {
            Some(file) => {
                let options = SqliteConnectOptions::new().filename(format!("{file}-snapshots"));
                let mut connection = options.busy_timeout(Duration::from_secs(9)).connect().await.unwrap();
                sqlx::raw_sql("DELETE FROM stream_snapshot").execute(&mut connection).await.unwrap();
            }
            None => self.sql("DELETE FROM stream_snapshot").await,
        }
    }

    /// A number that SQL finds.
    pub(super) async fn number(&self, sql: &str) -> i64 {
        let sql = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()));
        if let Some(file) = self.url.strip_prefix("sqlite://") {
            let mut connection = SqliteConnectOptions::new().filename(file).connect().await.unwrap();
            sql.fetch_one(&mut connection).await.unwrap().get(0)
        } else {
            let mut connection = sqlx::PgConnection::connect(&self.url).await.unwrap();
            sql.fetch_one(&mut connection).await.unwrap().get(0)
        }
    }

    /// Damages the facts of one event, as a failing disk or somebody with the database's password could.
    pub(super) async fn damage(&self, position: u64) {
        let sql = match self.backend {
            "sqlite" => format!(
                "DROP TRIGGER events_only_erased; UPDATE events SET facts = x'a16178' WHERE position = {position}"
            ),
            _ => format!(
                "ALTER TABLE events DISABLE TRIGGER ALL;
                 UPDATE events SET facts = '\\xa16178' WHERE position = {position}"
            ),
        };
        self.sql(&sql).await;
    }
}

pub(super) fn outside(home: &Path) -> Outside {
    Outside { deployment: None, key: None, key_file: None, state_home: home.to_owned() }
}

pub(super) fn opening(url: &str, outside: Outside) -> Opening {
    Opening {
        url: url.to_owned(),
        outside,
        process: ProcessId::new(World::system().uuid()),
        actor: Actor::Cli(0),
        repeat_window_s: None,
        halted: false,
    }
}

pub(super) fn me() -> Origin {
    Origin::of(Actor::Cli(0))
}

pub(super) async fn bot(engine: &Engine) -> BotId {
    engine.register_bot("ops", None, &me(), None).await.unwrap().value
}

pub(super) fn new_routine(bot: BotId, schedule: &str) -> NewRoutine {
    let recording = json!({"steps": [{"tool": "computer_list_files", "arguments": {}}]}).to_string();
    NewRoutine {
        name: "watch".to_owned(),
        bot,
        schedule: schedule.to_owned(),
        work: Work { instruction: None, recording: Some(recording) },
        limits: Limits::default(),
        owner: None,
    }
}

pub(super) async fn routine(engine: &Engine, bot: BotId, schedule: &str) -> RoutineId {
    engine.create_routine(&new_routine(bot, schedule), &me(), None).await.unwrap().value
}

/// A routine whose only window has just come.
pub(super) async fn due_routine(engine: &Engine, bot: BotId) -> RoutineId {
    // Weekdays at the minute that runs: inside the grace, so it is due at once.
    let minutes = r#"{"kind":"every","zone":"UTC","minutes":1,"anchor":"2026-01-01T00:00:00Z"}"#;
    routine(engine, bot, minutes).await
}

/// A schedule that is due once, this many seconds from now, in whole seconds.
pub(super) async fn once_in(engine: &Engine, seconds: i64) -> (String, Micros) {
    let at = Micros(engine.log().store_time().await.unwrap().plus_s(seconds).seconds() * 1_000_000);
    (json!({"kind": "once", "at": at.to_string()}).to_string(), at)
}

pub(super) fn new_trigger(bot: BotId, intake: Intake) -> NewTrigger {
    NewTrigger {
        name: "hook".to_owned(),
        routine: None,
        bot: Some(bot),
        instruction: Some("Look at it.".to_owned()),
        intake,
        limits: Limits::default(),
        scheme: None,
        secret: NewSecret::Made,
        owner: None,
    }
}

/// A trigger whose sample is confirmed.
pub(super) async fn open_trigger(engine: &Engine, new: &NewTrigger) -> TriggerId {
    let made: MadeTrigger = engine.create_trigger(new, &me(), None).await.unwrap().value;
    engine.receive(made.id, &posted(Some("sample"), "sample")).await.unwrap();
    engine.confirm_trigger(made.id, None, &me(), None).await.unwrap();
    made.id
}

pub(super) fn posted(id: Option<&str>, body: &str) -> Posted {
    Posted {
        headers: vec![],
        query: None,
        body: body.as_bytes().to_vec(),
        sender_id: id.map(str::to_owned),
        id_alone: false,
        signed: None,
        alike: None,
        secret: None,
        event_type: None,
        unparsed: None,
    }
}

pub(super) async fn all(engine: &Engine) -> Vec<(Recorded, AnyEvent)> {
    let (mut events, mut after) = (Vec::new(), 0);
    loop {
        let (page, scanned) = engine.log().read_all(after, 500, &Filter::default()).await.unwrap();
        if page.is_empty() {
            return events;
        }
        events.extend(page.into_iter().map(|recorded| (recorded.clone(), AnyEvent::decode(&recorded).unwrap())));
        after = scanned;
    }
}

pub(super) async fn events<F: Family>(engine: &Engine, stream: &StreamName) -> Vec<F> {
    let recorded = engine.log().read_stream(stream, 1, 1_000).await.unwrap();
    recorded.iter().map(|event| event.facts().unwrap()).collect()
}

pub(super) async fn on_routine(engine: &Engine, id: RoutineId) -> Vec<RoutineEvent> {
    events(engine, &StreamName::routine(id)).await
}

pub(super) async fn on_trigger(engine: &Engine, id: TriggerId) -> Vec<TriggerEvent> {
    events(engine, &StreamName::trigger(id)).await
}

/// Appends events that no decider would, as an older or a newer version could have.
pub(super) async fn append<F: Family>(engine: &Engine, stream: &StreamName, events: &[New<F>]) -> u64 {
    let version = engine.log().version(stream).await.unwrap();
    let mut plan = Plan::default();
    plan.add(engine.world(), stream, version, events, &me()).unwrap();
    plan.commit(engine.log()).await.unwrap().unwrap().last()
}

pub(super) fn refused<T: std::fmt::Debug>(result: Result<T, EngineError>) -> midwatch_commands::Refusal {
    match result {
        Err(EngineError::Refused(refusal)) => refusal,
        other => panic!("not refused: {other:?}"),
    }
}

pub(super) async fn verified(engine: &Engine) {
    assert_eq!(midwatch_log::verify::verify(engine.log()).await.unwrap().first_bad, None);
}

/// Waits for something at most 20 s.
pub(super) async fn until(what: &str, mut so: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !so().await {
        assert!(began.elapsed() < Duration::from_secs(20), "never: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Roles that run until the case stops them.
pub(super) struct Roles {
    pub(super) stop: watch::Sender<bool>,
    pub(super) stopped: watch::Receiver<bool>,
    pub(super) tasks: JoinSet<()>,
}

impl Roles {
    pub(super) fn new() -> Self {
        let (stop, stopped) = watch::channel(false);
        Self { stop, stopped, tasks: JoinSet::new() }
    }

    pub(super) fn project(&mut self, engine: &Engine) {
        self.tasks.spawn(projector::run(engine.clone(), self.stopped.clone()));
    }

    pub(super) async fn end(mut self) {
        self.stop.send_replace(true);
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap();
        }
    }
}

/// Executes runs as a function says.
pub(super) struct Does(pub(super) fn(Job) -> Boxed<'static, Ending>);

impl Executor for Does {
    fn execute(&self, job: Job) -> Boxed<'static, Ending> {
        (self.0)(job)
    }
}

pub(super) fn done() -> Ending {
    Ending { outcome: Outcome::Succeeded, reason: None, headline: "done".to_owned(), error: None }
}

/// An executor that is done at once.
pub(super) fn at_once() -> Arc<dyn Executor> {
    Arc::new(Does(|_| Box::pin(async { done() })))
}

/// Monotonic time and waiting, so many times as fast as they are.
pub(super) struct Fast {
    began: Instant,
    times: u32,
}

impl Fast {
    pub(super) fn world(times: u32) -> World {
        World { clock: Arc::new(Self { began: Instant::now(), times }), ..World::system() }
    }
}

impl Clock for Fast {
    fn now(&self) -> Micros {
        World::system().clock.now()
    }

    fn monotonic(&self) -> Duration {
        self.began.elapsed() * self.times
    }

    fn sleep(&self, span: Duration) -> Boxed<'static, ()> {
        Box::pin(tokio::time::sleep(span / self.times))
    }
}

pub(super) async fn run_now(engine: &Engine, routine: RoutineId) -> RunId {
    engine.run_now(routine, &me(), None).await.unwrap().value
}
