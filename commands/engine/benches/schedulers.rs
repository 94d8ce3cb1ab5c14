//! Routines that are due at one instant, and when each of their runs was claimed and began: one line of JSON.
//!
//! `schedulers URL JOBS LEAD_S`, on an empty database. The clock, the reactor, the runner and the projector of one
//! process, as `midwatch serve` has them; the executor only writes down that it was called, and ends well.
#![expect(clippy::print_stdout, reason = "its output is the measurement")]

use std::{
    collections::HashMap,
    env,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use midwatch_engine::{
    Engine, Opening, Origin, clock,
    deployment::Outside,
    projector, reactor,
    routines::NewRoutine,
    runner::{self, Ending, Executor, Job},
    world::{Boxed, World},
};
use midwatch_events::{
    Actor, AnyEvent, Micros,
    engine::Role,
    id::{BotId, ProcessId, RunId},
    routine::{Limits, RoutineEvent, Work},
    run::Outcome,
};
use midwatch_log::Filter;
use serde_json::json;
use tokio::{sync::watch, task::JoinSet};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Routines that are made at once.
const MAKERS: usize = 64;

/// Writes down when each run began.
#[derive(Debug, Default)]
struct Starts(Mutex<HashMap<RunId, Micros>>);

impl Executor for Starts {
    fn execute(&self, job: Job) -> Boxed<'static, Ending> {
        let now = job.engine.world().clock.now();
        if let Ok(mut starts) = self.0.lock() {
            starts.insert(job.run, now);
        }
        Box::pin(async {
            Ending { outcome: Outcome::Succeeded, reason: None, headline: "began".to_owned(), error: None }
        })
    }
}

impl Starts {
    fn count(&self) -> usize {
        self.0.lock().map_or(0, |starts| starts.len())
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    // cargo adds `--bench`.
    let words: Vec<String> = env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let [url, jobs, lead_s] = words.as_slice() else { return Err("schedulers URL JOBS LEAD_S".into()) };
    let (jobs, lead_s): (usize, i64) = (jobs.parse()?, lead_s.parse()?);
    let home = env::temp_dir().join(format!("midwatch-schedulers-{}", std::process::id()));
    let measured = measured(url, home.clone(), jobs, lead_s).await;
    std::fs::remove_dir_all(home)?;
    println!("{}", measured?);
    Ok(())
}

async fn measured(url: &str, home: PathBuf, jobs: usize, lead_s: i64) -> Result<serde_json::Value, Failure> {
    let world = World::system();
    let opening = Opening {
        url: url.to_owned(),
        outside: Outside { deployment: None, key: None, key_file: None, state_home: home },
        process: ProcessId::new(world.uuid()),
        actor: Actor::Cli(0),
        repeat_window_s: None,
        halted: false,
    };
    let engine = Engine::open(world, opening).await?;
    let bot = engine.register_bot("bench", None, &origin(), None).await?.value;
    let now = engine.log().store_time().await?;
    let due = Micros((now.seconds() + lead_s) * 1_000_000);
    make(&engine, bot, due, jobs).await?;
    let position = projector::catch_up(&engine).await?;
    if engine.log().store_time().await? > due.plus_s(-2) {
        return Err("the routines were not there in time; give a longer lead".into());
    }

    let (stop, stopped) = watch::channel(false);
    let starts = Arc::new(Starts::default());
    engine.start_process("bench", &[Role::Clock, Role::Runner, Role::Projector]).await?;
    let mut roles = JoinSet::new();
    roles.spawn(projector::run(engine.clone(), stopped.clone()));
    roles.spawn(clock::run(engine.clone(), stopped.clone()));
    roles.spawn(reactor::run(engine.clone(), stopped.clone()));
    let executor: Arc<dyn Executor> = Arc::clone(&starts) as Arc<dyn Executor>;
    roles.spawn(runner::run(engine.clone(), executor, stopped));
    while starts.count() < jobs {
        if engine.world().clock.now() > due.plus_s(300) {
            return Err(format!("only {} of {jobs} began", starts.count()).into());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    stop.send_replace(true);
    while roles.join_next().await.is_some() {}
    let claims = claims(&engine, position).await?;
    let starts: Vec<Micros> = starts.0.lock().map_err(|_| "a runner panicked")?.values().copied().collect();
    let (claimed, mut line) = (late(&claims, due), late(&starts, due));
    line["claimed"] = claimed;
    Ok(line)
}

fn origin() -> Origin {
    Origin::of(Actor::Cli(0))
}

async fn make(engine: &Engine, bot: BotId, due: Micros, jobs: usize) -> Result<(), Failure> {
    let recording = json!({"steps": [{"tool": "computer_list_files", "arguments": {}}]}).to_string();
    let new = Arc::new(NewRoutine {
        name: "bench".to_owned(),
        bot,
        schedule: json!({"kind": "once", "at": due.to_string()}).to_string(),
        work: Work { instruction: None, recording: Some(recording) },
        limits: Limits::default(),
        owner: None,
    });
    let mut makers = JoinSet::new();
    for maker in 0..MAKERS {
        let (engine, new) = (engine.clone(), Arc::clone(&new));
        makers.spawn(async move {
            for _ in (maker..jobs).step_by(MAKERS) {
                engine.create_routine(&new, &origin(), None).await?;
            }
            Ok::<_, Failure>(())
        });
    }
    while let Some(made) = makers.join_next().await {
        made??;
    }
    Ok(())
}

/// When each claim was recorded, by the store's time.
async fn claims(engine: &Engine, after: u64) -> Result<Vec<Micros>, Failure> {
    let (mut after, mut claims) = (after, Vec::new());
    loop {
        let (page, scanned) = engine.log().read_all(after, 1_000, &Filter::default()).await?;
        if page.is_empty() {
            return Ok(claims);
        }
        after = scanned;
        for recorded in &page {
            if let Ok(AnyEvent::Routine(RoutineEvent::RunClaimed(_), _)) = AnyEvent::decode(recorded) {
                claims.push(recorded.recorded_at);
            }
        }
    }
}

/// How late, in milliseconds, and how many a second until the last.
fn late(at: &[Micros], due: Micros) -> serde_json::Value {
    let mut late: Vec<i64> = at.iter().map(|at| at.since(due) / 1_000).collect();
    late.sort_unstable();
    let nth = |percent: usize| late.get((late.len() * percent / 100).min(late.len().saturating_sub(1))).copied();
    let last = late.last().copied().unwrap_or(0);
    let rate = late.len() as f64 * 1_000.0 / last.max(1) as f64;
    json!({"jobs": late.len(), "p50_ms": nth(50), "p99_ms": nth(99), "last_ms": last, "rate": rate})
}
